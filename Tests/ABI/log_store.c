/* What the log store (HUTCH_STORAGE_LOG) does among processes that the other stores do otherwise. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static hutch_options log_options(void) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  return options;
}

/* Segments have 16 KiB each. */
static hutch_options small_log_options(void) {
  hutch_options options = log_options();
  options.disk.cost = 400000;
  return options;
}

/* --------------------------------------------------------------- openings */

enum { OPENERS = 4, ROUNDS = 40 };

/* How many processes have come to a point of a round, of all rounds. */
typedef struct meeting { _Atomic uint32_t begun, put, read; } meeting;

static void *map_file(const char *name, size_t size) {
  int file = open(name, O_RDWR | O_CREAT, 0600);
  struct stat status;
  CHECK(file >= 0 && fstat(file, &status) == 0);
  if ((size_t)status.st_size < size) CHECK(ftruncate(file, (off_t)size) == 0);
  void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(mapped != MAP_FAILED);
  close(file);
  return mapped;
}

/* Changes the first byte of this text in the log of an open directory. */
static void damage_in_log(const char *directory, const char *value) {
  path log = in_directory(directory, "hutch-log");
  struct stat status;
  CHECK(stat(log.text, &status) == 0);
  char *bytes = map_file(log.text, (size_t)status.st_size);
  char *found = memmem(bytes, (size_t)status.st_size, value, strlen(value));
  CHECK(found);
  *found ^= 1;
}

static pid_t parent;

static void meet(_Atomic uint32_t *point, uint32_t round) {
  atomic_fetch_add(point, 1);
  while (atomic_load(point) < OPENERS * (round + 1)) {
    if (getppid() != parent) _exit(1);
    sched_yield();
  }
}

PROCESS(opens_with_others, argument) {
  uint32_t own = (uint32_t)strtoul(argument, NULL, 10);
  const char *directory = strchr(argument, ':') + 1;
  parent = getppid();
  meeting *m = map_file(in_directory(directory, "meeting").text, sizeof *m);
  hutch_options options = log_options();
  for (uint32_t round = 0; round < ROUNDS; round++) {
    char name[16];
    snprintf(name, sizeof name, "%u", round);
    meet(&m->begun, round);
    hutch_cache *cache = open_cache(in_directory(directory, name).text, &options);
    CHECK_OK(hutch_put(cache, &own, sizeof own, KEY("value"), NULL, NULL));
    meet(&m->put, round);
    for (uint32_t key = 0; key < OPENERS; key++)
      CHECK_OK(hutch_contains(cache, &key, sizeof key));
    CHECK_EQUAL(OPENERS, count_of(cache));
    meet(&m->read, round);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(processes_open_a_new_directory_at_the_same_moment) {
  process openers[OPENERS];
  for (int i = 0; i < OPENERS; i++) {
    char argument[4200];
    snprintf(argument, sizeof argument, "%d:%s", i, scratch(NULL).text);
    openers[i] = start_process("opens_with_others", argument);
  }
  for (int i = 0; i < OPENERS; i++) CHECK_EQUAL(0, end_process(&openers[i]));
}

/* ------------------------------------------------------------------ a fork */

static _Atomic int *fork_goes_on;

static void wait_in_child(void) {
  while (!atomic_load(fork_goes_on)) nap();
}

/* The parent's maintenance runs before the child has taken its place among the processes. The
   handler is older than the library's, so it runs first. */
TEST(a_parent_does_not_take_itself_for_alone_before_its_child_is_there) {
  fork_goes_on = map_file(in_directory(scratch(NULL).text, "flags").text, 4096);
  CHECK(pthread_atfork(NULL, NULL, wait_in_child) == 0);
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "old"));
  CHECK_TEXT(cache, "key", "old");
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK_OK(put_text(cache, "key", "new"));
    _exit(0);
  }
  CHECK_OK(hutch_maintain(cache, 0));
  atomic_store(fork_goes_on, 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_TEXT(cache, "key", "new");
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------- a stopped holder */

/* Where the index has the word of its lock: an incarnation, and below its 8 bits a member. */
enum { LOCK_OFFSET = 128 };

PROCESS(has_it_open, directory) {
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory, &options);
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

/* Starts a process that has the directory open. Returns the word of the directory's lock. */
static _Atomic uint32_t *open_elsewhere(path directory, process *other) {
  *other = start_process("has_it_open", directory.text);
  await_ready(other);
  char *index = map_file(in_directory(directory.text, "hutch-index").text, 4096);
  return (_Atomic uint32_t *)(index + LOCK_OFFSET);
}

/* The second member that has opened the directory has the lock, and does not let go of it. */
enum { LOCKED_ELSEWHERE = 99 << 8 | 2 };

static void check_keys_of_failed_writes(void) {
  path directory = scratch("keys");
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < 3; i++) CHECK_OK(put_text(disk, (const char *[]){"a", "b", "c"}[i], "old"));
  process other;
  _Atomic uint32_t *word = open_elsewhere(directory, &other);
  atomic_store(word, LOCKED_ELSEWHERE);

  CHECK_TEXT(cache, "a", "old");
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("a"), KEY("new"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_STATUS(HUTCH_BUSY, put_text(disk, "b", "new"));
  CHECK_STATUS(HUTCH_BUSY, hutch_remove(disk, KEY("c")));
  /* This process finds no older value than its own, and nothing that it asked to remove. */
  CHECK_TEXT(cache, "a", "new");
  CHECK_MISSING(disk, "a");
  CHECK_MISSING(disk, "b");
  CHECK_MISSING(disk, "c");

  /* It goes on. The older value of the first key is removed, and memory keeps its own. */
  atomic_store(word, 0);
  CHECK_OK(put_text(disk, "d", "new"));
  CHECK_TEXT(cache, "a", "new");
  CHECK_MISSING(disk, "a");
  CHECK_OK(put_text(disk, "b", "newer"));
  CHECK_TEXT(disk, "b", "newer");
  CHECK_TEXT(disk, "d", "new");
  CHECK_MISSING(disk, "c");
  CHECK_EQUAL(0, end_process(&other));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));

  cache = open_cache(directory.text, &options);
  CHECK_MISSING(cache, "a");
  CHECK_MISSING(cache, "c");
  CHECK_TEXT(cache, "b", "newer");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

static void check_failed_clear(void) {
  path directory = scratch("clear");
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "a", "old"));
  process other;
  _Atomic uint32_t *word = open_elsewhere(directory, &other);
  atomic_store(word, LOCKED_ELSEWHERE);
  CHECK_STATUS(HUTCH_BUSY, hutch_clear(cache));
  CHECK_MISSING(cache, "a");
  atomic_store(word, 0);
  CHECK_OK(put_text(cache, "b", "new"));
  CHECK_MISSING(cache, "a");
  CHECK_TEXT(cache, "b", "new");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(0, end_process(&other));
  CHECK_OK(hutch_close(cache));
}

static void wait_for_stopped(void *context, int index) {
  (void)context;
  if (index == 0) check_keys_of_failed_writes();
  else check_failed_clear();
}

/* The lock is given to a process that lives and does not let go of it, as one does that was stopped
   within a write. The two wait side by side. */
TEST(a_stopped_process_costs_writers_their_patience_and_readers_nothing) {
  run_threads(2, wait_for_stopped, NULL);
}

/* How a process comes to an end whose write has failed. */
enum { PUT_CLOSE, CLEAR_CLOSE, PUT_FLUSH, PUT_CLOSE_BUSY, ENDS };

static void end_after_failure(void *context, int way) {
  (void)context;
  char name[2] = {(char)('0' + way), 0};
  path directory = scratch(name);
  hutch_options options = log_options();
  /* No maintenance comes before the end. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "old"));
  process other;
  _Atomic uint32_t *word = open_elsewhere(directory, &other);
  atomic_store(word, LOCKED_ELSEWHERE);
  if (way == CLEAR_CLOSE) CHECK_STATUS(HUTCH_BUSY, hutch_clear(cache));
  else CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "key", "new"));
  if (way != PUT_CLOSE_BUSY) atomic_store(word, 0);
  if (way == PUT_FLUSH) {
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_EQUAL(1, count_of(disk));
    CHECK_OK(hutch_flush(cache));
    CHECK_EQUAL(0, count_of(disk));
    hutch_cache_release(disk);
  }
  CHECK_STATUS(way == PUT_CLOSE_BUSY ? HUTCH_IO : HUTCH_OK, hutch_close(cache));
  atomic_store(word, 0);
  cache = open_cache(directory.text, &options);
  if (way == PUT_CLOSE_BUSY) CHECK_TEXT(cache, "key", "old");
  else CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, end_process(&other));
}

/* What a failed write was to replace or remove is removed before the end, which fails if it cannot
   be: an end that says that it was clean brings no older value back. They wait side by side. */
TEST(an_older_value_than_that_of_a_failed_write_does_not_outlive_the_session) {
  run_threads(ENDS, end_after_failure, NULL);
}

/* The lock's word while this thread waits for its holder, and after how many waits the holder lets
   go of it. The library waits by this function, which the dynamic linker finds here first. */
static _Thread_local struct {
  _Atomic uint32_t *word;
  uint32_t holder;
  int waits;
} holding;

long syscall(long number, ...) {
  static long (*_Atomic next)(long, ...);
  if (!atomic_load(&next)) atomic_store(&next, (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && holding.word && (uint32_t)a[2] == holding.holder &&
      holding.waits-- == 0)
    atomic_store(holding.word, 0);
  return atomic_load(&next)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* A log whose entry "damaged" is, that another process has open, and its lock's word. */
typedef struct damaged_log {
  hutch_cache *cache, *disk;
  process other;
  _Atomic uint32_t *word;
} damaged_log;

static damaged_log open_damaged(void) {
  path directory = scratch("damaged");
  hutch_options options = log_options();
  damaged_log log = {.cache = open_cache(directory.text, &options)};
  log.disk = tier_of(log.cache, HUTCH_TIER_DISK);
  static const char value[] = "the value that is damaged";
  CHECK_OK(put_text(log.disk, "damaged", value));
  damage_in_log(directory.text, value);
  log.word = open_elsewhere(directory, &log.other);
  return log;
}

static void close_damaged(damaged_log *log) {
  CHECK_EQUAL(0, end_process(&log->other));
  hutch_cache_release(log->disk);
  CHECK_OK(hutch_close(log->cache));
}

/* A reader that meets a damaged entry does not wait for the lock, to remove it: it counts the entry,
   and the end of a call that finds the lock free removes it. That says nothing about the holder, for
   which a writer then has all its patience: 5 s, and not the 20 ms of a holder that was waited for
   in vain. Each wait takes a millisecond or longer. */
TEST(a_reader_that_does_not_wait_for_a_holder_leaves_writers_their_patience) {
  damaged_log log = open_damaged();
  hutch_cache *cache = log.cache, *disk = log.disk;
  holding.word = log.word;
  holding.holder = LOCKED_ELSEWHERE;
  holding.waits = 40;
  atomic_store(holding.word, holding.holder);
  hutch_value *none = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(disk, KEY("damaged"), &none));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(disk, KEY("damaged"), &none));
  CHECK_EQUAL(40, holding.waits);
  CHECK_EQUAL(1, stats_of(cache).disk.damaged);
  CHECK_OK(put_text(disk, "a", "new"));
  CHECK(holding.waits < 0);
  holding.word = NULL;
  CHECK_MISSING(disk, "damaged");
  CHECK_TEXT(disk, "a", "new");
  hutch_cache_stats stats = stats_of(cache);
  CHECK_EQUAL(0, stats.disk.failures);
  CHECK_EQUAL(1, stats.disk.damaged);
  CHECK_EQUAL(1, count_of(disk));
  close_damaged(&log);
}

/* The reader that removes it, with the lock free again, does not count it once more. */
TEST(a_damaged_entry_is_counted_once_by_readers_that_wait_for_no_holder) {
  damaged_log log = open_damaged();
  hutch_cache *cache = log.cache, *disk = log.disk;
  atomic_store(log.word, LOCKED_ELSEWHERE);
  hutch_value *none = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(disk, KEY("damaged"), &none));
  CHECK_EQUAL(1, stats_of(cache).disk.damaged);
  atomic_store(log.word, 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(disk, KEY("damaged"), &none));
  CHECK_EQUAL(1, stats_of(cache).disk.damaged);
  CHECK_EQUAL(0, count_of(disk));
  close_damaged(&log);
}

TEST(what_a_touch_finds_damaged_is_left_to_memory_alone) {
  path directory = scratch("touched");
  hutch_options options = log_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_cache(directory.text, &options);
  static const char value[] = "the value that is touched";
  CHECK_OK(put_text(cache, "a", value));
  damage_in_log(directory.text, value);
  CHECK_OK(hutch_touch(cache, KEY("a"), 1000 * HUTCH_SECOND, 0));
  CHECK_EQUAL(1, stats_of(cache).disk.damaged);
  check_where(cache, "a", true, false);
  /* The maintenance thread may be on its way to memory with the news that the disk has it no more. */
  while (count_of(cache) == 0) nap();
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

static void count_damaged(void *context, const hutch_event *event) {
  if (event->cause == HUTCH_CAUSE_DAMAGED) ++*(_Atomic int *)context;
}

TEST(a_touch_of_what_is_damaged_and_on_disk_alone_finds_nothing) {
  for (uint32_t sharing = HUTCH_SHARING_EXCLUSIVE; sharing <= HUTCH_SHARING_SHARED; sharing++) {
    path directory = scratch(sharing == HUTCH_SHARING_SHARED ? "shared" : "exclusive");
    hutch_options options = log_options();
    options.sharing = sharing;
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    _Atomic int told = 0;
    CHECK_OK(put_text(cache, "a", "the value that is touched"));
    CHECK_OK(hutch_clear(memory));
    CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_REMOVE, count_damaged, &told, NULL));
    damage_in_log(directory.text, "the value that is touched");
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(cache, KEY("a"), HUTCH_HOUR, 0));
    /* The maintenance thread may be on its way with the event. */
    while (told == 0) nap();
    CHECK_EQUAL(1, told);
    CHECK_EQUAL(1, stats_of(cache).disk.damaged);
    CHECK_EQUAL(0, count_of(cache));
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(cache));
  }
}

/* ------------------------------------------------------------------ the clock */

static void count_expired(void *context, const hutch_event *event) {
  if (event->cause == HUTCH_CAUSE_EXPIRED) ++*(_Atomic int *)context;
}

/* The host's clock is far behind the system's. */
TEST(what_expires_is_decided_by_the_clock_of_the_host_alone) {
  test_clock clock = {.now = HUTCH_DAY};
  hutch_options options = log_options();
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.disk.cost = 4 << 20;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  _Atomic int told = 0;
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_REMOVE, count_expired, &told, NULL));
  hutch_put_options put = put_options();
  put.time_to_live = HUTCH_HOUR;
  static char value[1000];
  for (uint32_t i = 0; i < 10000; i++, clock.now++)
    CHECK_OK(hutch_put(disk, &i, sizeof i, value, i % 2 ? sizeof value : 100, &put, NULL));
  /* Each removal leaves a record in the log, for which room is made. */
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_LARGER_THAN,
                          .amount = 500};
  CHECK_OK(hutch_trim(disk, &spec, NULL));
  CHECK_EQUAL(0, told);
  CHECK_EQUAL(0, stats_of(cache).disk.expirations);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------- out of service and back */

/* The changes of the disk tier's state, a letter each. */
typedef struct changes {
  char text[8];
  int count;
} changes;

static void note_change(void *context, const hutch_event *event) {
  changes *c = context;
  if (c->count < (int)sizeof c->text - 1)
    c->text[c->count++] = event->kind == HUTCH_EVENT_TIER_DOWN ? 'd' : 'u';
}

/* No maintenance runs: the write that notices a change tells of it. */
TEST(the_writes_that_notice_a_change_of_state_tell_of_it) {
  path directory = scratch("cache"), away = scratch("away");
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options);
  changes c = {0};
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_TIER_DOWN | HUTCH_EVENT_TIER_UP, note_change, &c,
                              NULL));
  CHECK_OK(put_text(cache, "key", "1"));
  CHECK(rename(directory.text, away.text) == 0);
  while (put_text(cache, "key", "2") == HUTCH_OK) usleep(1000);
  CHECK(strcmp(c.text, "d") == 0);
  CHECK(rename(away.text, directory.text) == 0);
  /* A directory that could not be used is tried again after a second. */
  while (put_text(cache, "key", "3") != HUTCH_OK) usleep(10000);
  CHECK(strcmp(c.text, "du") == 0);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_TEXT(cache, "key", "3");
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------- durability */

/* How many syncs of data there were, whether the disk refuses them, and whether a signal ends every
   second one early. */
static _Atomic int syncs, refuses_syncs, interrupts_syncs;

int fdatasync(int file) {
  static int (*_Atomic next)(int);
  if (!atomic_load(&next)) atomic_store(&next, (int (*)(int))dlsym(RTLD_NEXT, "fdatasync"));
  int number = atomic_fetch_add(&syncs, 1);
  if (atomic_load(&interrupts_syncs) && number % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  if (!atomic_load(&refuses_syncs)) return atomic_load(&next)(file);
  errno = EIO;
  return -1;
}

static uint32_t durability_of(hutch_cache *cache) {
  hutch_options options = {.struct_size = sizeof options};
  CHECK_OK(hutch_get_options(cache, &options));
  return options.durability;
}

PROCESS(cannot_open_it_in_sync, directory) {
  hutch_options options = log_options();
  options.durability = HUTCH_DURABILITY_SYNC;
  hutch_cache *cache = NULL;
  atomic_store(&refuses_syncs, 1);
  CHECK_STATUS(HUTCH_IO, hutch_open(directory, &options, &cache));
  CHECK(!cache);
}

TEST(a_durability_that_the_disk_refuses_is_not_in_force) {
  path directory = scratch("cache");
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options), *second;
  CHECK_OK(put_text(cache, "a", "value"));
  CHECK_EQUAL(0, syncs);
  /* Of another process. */
  process other = start_process("cannot_open_it_in_sync", directory.text);
  CHECK_EQUAL(0, end_process(&other));
  CHECK_EQUAL(HUTCH_DURABILITY_PROCESS, durability_of(cache));
  CHECK_OK(put_text(cache, "b", "value"));
  CHECK_EQUAL(0, syncs);
  /* Of this one. */
  options.durability = HUTCH_DURABILITY_SYNC;
  atomic_store(&refuses_syncs, 1);
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &second));
  CHECK(syncs > 0);
  atomic_store(&refuses_syncs, 0);
  CHECK_EQUAL(HUTCH_DURABILITY_PROCESS, durability_of(second));
  int before = atomic_load(&syncs);
  CHECK_OK(put_text(second, "c", "value"));
  CHECK_EQUAL(before, syncs);
  CHECK_OK(hutch_close(second));
  /* What the disk has refused is not there for certain, and the end says so. */
  CHECK_STATUS(HUTCH_IO, hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(HUTCH_DURABILITY_SYNC, durability_of(cache));
  before = atomic_load(&syncs);
  CHECK_OK(put_text(cache, "d", "value"));
  CHECK(syncs > before);
  CHECK_EQUAL(4, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_sync_that_a_signal_ends_early_is_made_again) {
  hutch_options options = log_options();
  options.durability = HUTCH_DURABILITY_SYNC;
  atomic_store(&interrupts_syncs, 1);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(0, stats_of(cache).disk.failures);
  CHECK_OK(hutch_close(cache));
  atomic_store(&interrupts_syncs, 0);
}

/* No maintenance makes the file of checkpoints anew: the directory may be about to be removed. */
TEST(a_file_of_checkpoints_that_was_removed_is_made_by_the_next_opening) {
  for (uint32_t durability = HUTCH_DURABILITY_PROCESS; durability <= HUTCH_DURABILITY_SYNC;
       durability += HUTCH_DURABILITY_SYNC - HUTCH_DURABILITY_PROCESS) {
    path directory = scratch(durability == HUTCH_DURABILITY_SYNC ? "sync" : "process");
    path file = scratch(durability == HUTCH_DURABILITY_SYNC ? "sync/hutch-checkpoint"
                                                            : "process/hutch-checkpoint");
    hutch_options options = log_options();
    options.flags |= HUTCH_OPEN_NO_THREADS;
    options.durability = durability;
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK(unlink(file.text) == 0);
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_OK(put_text(cache, "other", "value"));
    CHECK(access(file.text, F_OK) != 0);
    /* A clear waits for a checkpoint under sync. */
    CHECK_STATUS(durability == HUTCH_DURABILITY_SYNC ? HUTCH_TIER_DOWN : HUTCH_OK,
                 hutch_clear(cache));
    CHECK_STATUS(durability == HUTCH_DURABILITY_SYNC ? HUTCH_IO : HUTCH_OK, hutch_close(cache));
    cache = open_cache(directory.text, &options);
    CHECK(access(file.text, F_OK) == 0);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_clear(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(evictions_that_a_call_asks_for_wait_for_the_disk_under_sync) {
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.durability = HUTCH_DURABILITY_SYNC;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int i = 0; i < 50; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_text(cache, key, "value"));
  }
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  int before = atomic_load(&syncs);
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 40};
  CHECK_OK(hutch_trim(disk, &spec, NULL));
  CHECK(syncs > before);
  before = atomic_load(&syncs);
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  limits.disk.count = 30;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK(syncs > before);
  CHECK_EQUAL(30, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- small limits */

/* Two segments of a directory that was made without a limit are larger than the limit. */
TEST(a_limit_below_two_segments_keeps_what_fits) {
  enum { LIMIT = 1 << 20, SIZE = 1000, BIG = 200000 };
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  char key[16];
  for (int i = 0; i < 3000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, SIZE));
  }
  static char large[3 << 20];
  CHECK_OK(hutch_put(disk, KEY("file"), large, sizeof large, NULL, NULL));
  for (int i = 3000; i < 4000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, SIZE));
  }
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  CHECK_OK(hutch_limits(cache, &limits));
  limits.disk.cost = LIMIT;
  CHECK_OK(hutch_set_limits(cache, &limits));
  /* The newest entries stay, as many as the limit has room for. */
  uint64_t cost = cost_of(disk), count = count_of(disk);
  CHECK(cost <= LIMIT && cost > LIMIT - 2 * SIZE);
  CHECK_MISSING(disk, "file");
  for (int i = 4000 - (int)count; i < 4000; i++) {
    hutch_value *value = NULL;
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(hutch_get(disk, KEY(key), &value));
    hutch_value_release(value);
  }
  /* And so it goes on, over more than both segments. */
  for (int i = 4000; i < 24000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, i % 100 == 0 ? BIG : SIZE));
    CHECK(cost_of(disk) <= LIMIT);
    CHECK(count_of(disk) > 100);
  }
  CHECK_OK(hutch_remove(disk, KEY("23999")));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  CHECK(cost_of(cache) <= LIMIT && count_of(cache) > 100);
  CHECK_OK(hutch_close(cache));
}

/* A removal of a key without an entry says in the log how far evictions have come, once. A record
   for each of them would push entries out. */
TEST(removals_of_what_is_not_there_evict_no_entries) {
  enum { LIMIT = 4 << 20, MOST = 16 };
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.disk.cost = LIMIT;
  path directory = scratch("cache");
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  char key[16];
  for (int i = 0; i < 40000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, 100));
  }
  uint64_t before = count_of(disk);
  CHECK(before > 10000 && before < 30000);
  for (int i = 0; i < 20000; i++) {
    snprintf(key, sizeof key, "no %d", i);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(disk, KEY(key)));
  }
  CHECK(count_of(disk) + MOST > before);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* Such a key never had an entry, so none comes back after a loss of power: its removal needs no
   record, for which there would be no room. */
TEST(keys_that_are_larger_than_a_segment_are_never_there) {
  hutch_options options = log_options();
  options.disk.cost = 1 << 20;
  options.durability = HUTCH_DURABILITY_POWER;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < 200; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, 8000));
  }
  uint64_t before = count_of(disk);
  CHECK(before < 150);
  unsigned char *key = filled(HUTCH_KEY_MAX, 1);
  for (size_t size = 32700; size <= HUTCH_KEY_MAX; size += HUTCH_KEY_MAX - 32700) {
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(disk, key, size));
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(disk, key, size, "value", 5, NULL, NULL));
    CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, key, size, "value", 5, NULL, NULL));
    CHECK_OK(hutch_remove(cache, key, size));
  }
  free(key);
  CHECK_EQUAL(before, count_of(disk));
  CHECK_EQUAL(before, CHECK_SOUND(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------ content files */

/* What lies in a directory: how many files of values, and what all but the index take up. */
typedef struct contents {
  int files;
  int64_t bytes;
} contents;

static void add_file(void *context, const char *file, const struct stat *status) {
  contents *c = context;
  if (!strstr(file, "/hutch-index")) c->bytes += status->st_blocks * 512;
  const char *below = strstr(file, "/content/");
  if (below && strlen(below) > sizeof "/content/xx") c->files++;
}

static contents contents_of(const char *directory) {
  contents c = {0, 0};
  each_file(directory, add_file, &c);
  return c;
}

static bool has_file(hutch_cache *cache, const char *key) {
  size_t size = 0;
  hutch_status status = hutch_path(cache, KEY(key), NULL, 0, &size);
  CHECK(status == HUTCH_WRONG_TYPE || status == HUTCH_BUFFER_TOO_SMALL);
  return status == HUTCH_BUFFER_TOO_SMALL;
}

TEST(values_above_the_threshold_are_files) {
  /* The limit of cost, from which the segments follow; the option; what follows from both. */
  static const struct {
    uint64_t cost, option;
    size_t largest;
  } cases[] = {{HUTCH_NO_LIMIT, 0, 1 << 20},
               {HUTCH_NO_LIMIT, 5000, 5000},
               {HUTCH_NO_LIMIT, HUTCH_NO_LIMIT, 8 << 18},
               {4 << 20, 0, 1 << 15},
               {4 << 20, 5000, 5000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    path directory = in_directory(scratch(NULL).text, (char[]){'0' + (char)i, 0});
    hutch_options options = log_options();
    options.disk.cost = cases[i].cost;
    options.inline_threshold = cases[i].option;
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_size(cache, "in the log", cases[i].largest));
    CHECK_OK(put_size(cache, "in a file", cases[i].largest + 1));
    CHECK(!has_file(cache, "in the log"));
    CHECK(has_file(cache, "in a file"));
    CHECK_EQUAL(1, contents_of(directory.text).files);
    CHECK_EQUAL(cases[i].largest, info_of(cache, "in the log").size);
    CHECK_EQUAL(cases[i].largest + 1, info_of(cache, "in a file").size);
    /* A value that gets smaller leaves its file; one that grows gets one. */
    CHECK_OK(put_size(cache, "in a file", 1));
    CHECK(!has_file(cache, "in a file"));
    CHECK_EQUAL(0, contents_of(directory.text).files);
    CHECK_OK(put_size(cache, "in the log", cases[i].largest + 1));
    CHECK(has_file(cache, "in the log"));
    CHECK_OK(hutch_clear(cache));
    CHECK_EQUAL(0, contents_of(directory.text).files);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(files_and_segments_share_the_limit) {
  enum { LIMIT = 4000000, KEYS = 300, PUTS = 1500 };
  path directory = scratch("cache");
  hutch_options options = log_options();
  options.disk.cost = LIMIT;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  unsigned seed = 14;
  for (int i = 0; i < PUTS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", rand_r(&seed) % KEYS);
    size_t size = rand_r(&seed) % 4 ? (size_t)rand_r(&seed) % 2000
                                    : (size_t)rand_r(&seed) % 200000;
    CHECK_OK(put_size(disk, key, size));
    CHECK_OK(hutch_contains(disk, KEY(key)));
    if (i % 50) continue;
    // A segment that went while maintenance was within the store is free after the next one.
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK(contents_of(directory.text).bytes <= LIMIT);
  }
  CHECK(stats_of(disk).disk.evictions > 0);
  int files = 0;
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    if (hutch_contains(disk, KEY(key)) == HUTCH_OK && has_file(disk, key)) files++;
  }
  CHECK(files > 3);
  CHECK_EQUAL(files, contents_of(directory.text).files);
  /* A value that would be too large for all of the limit makes no room for itself. If there is a
     checkpoint, it has the record of a removal, for which a few entries are cleaned. */
  uint64_t before = count_of(disk);
  CHECK_STATUS(HUTCH_TOO_LARGE, put_size(disk, "too large", LIMIT));
  uint64_t count = count_of(disk);
  CHECK(count <= before && count + 13 >= before);
  CHECK_EQUAL(count, CHECK_SOUND(disk));
  CHECK_OK(hutch_clear(disk));
  CHECK_EQUAL(0, contents_of(directory.text).files);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

static hutch_put_options options_of_all_kinds(void) {
  hutch_put_options put = put_options();
  put.extended = "more";
  put.extended_size = 4;
  put.tag = "fruit";
  put.tag_size = 5;
  put.time_to_live = HUTCH_HOUR;
  return put;
}

/* A child fills a log of several segments, whose index has several pages, and closes it or not. */
static void fill_segments(const char *directory, bool closes) {
  pid_t child = fork_now();
  if (child == 0) {
    hutch_options options = small_log_options();
    hutch_cache *cache = open_cache(directory, &options);
    for (uint32_t key = 0; key < 1500; key++)
      CHECK_OK(hutch_put(cache, &key, sizeof key, "a value", 7, NULL, NULL));
    if (closes) CHECK_OK(hutch_close(cache));
    end_child();
  }
  await_child(child);
}

/* Another program truncates a file of a directory that no process has open: new entries are stored,
   in every part of the log, and stay. */
TEST(a_truncated_log_or_index_takes_entries_again) {
  static const struct { const char *file; off_t size; } cuts[] = {
      {"hutch-log", 0}, {"hutch-log", 100}, {"hutch-log", 4 * 16384}, {"hutch-log", -1},
      {"hutch-index", 4096}, {"hutch-index", -4096}, {"hutch-index", -20000},
  };
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (size_t i = 0; i < 2 * sizeof cuts / sizeof *cuts; i++) {
    bool closes = i % 2 == 0;
    fill_segments(directory.text, closes);
    path file = in_directory(directory.text, cuts[i / 2].file);
    off_t size = cuts[i / 2].size;
    struct stat status;
    CHECK(stat(file.text, &status) == 0);
    CHECK(truncate(file.text, size < 0 ? status.st_size + size : size) == 0);
    hutch_cache *cache = open_cache(directory.text, &options);
    for (uint32_t n = 0; n < 6000; n++) {
      uint32_t key = n % 2000;
      CHECK_OK(hutch_put(cache, &key, sizeof key, "another", 7, NULL, NULL));
    }
    CHECK_EQUAL(2000, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    cache = open_cache(directory.text, &options);
    CHECK_EQUAL(2000, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* The cleaner cannot tell where the entry behind a damaged one begins: what the index says is there
   stays all the same. */
TEST(damage_costs_no_entry_behind_it_when_the_log_is_cleaned) {
  enum { KEPT = 20, OTHERS = 100 };
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  char key[16], value[200] = "";
  for (int i = 0; i < KEPT + OTHERS; i++) {
    snprintf(key, sizeof key, "%08d", i);
    snprintf(value, sizeof value, "the value %d", i);
    CHECK_OK(hutch_put(disk, key, 8, value, sizeof value, NULL, NULL));
  }
  path log = in_directory(directory.text, "hutch-log");
  struct stat status;
  CHECK(stat(log.text, &status) == 0);
  char *bytes = map_file(log.text, (size_t)status.st_size);
  char *found = memmem(bytes, (size_t)status.st_size, "the value 3", sizeof "the value 3");
  CHECK(found);
  /* Its size. */
  memset(found - 8 - 16, 0xFF, 4);
  for (int i = 0; i < 10 * OTHERS; i++) {
    snprintf(key, sizeof key, "%08d", KEPT + i % OTHERS);
    CHECK_OK(hutch_put(disk, key, 8, value, sizeof value, NULL, NULL));
  }
  for (int i = 0; i < KEPT; i++) {
    snprintf(key, sizeof key, "%08d", i);
    CHECK_STATUS(i == 3 ? HUTCH_NOT_FOUND : HUTCH_OK, hutch_contains(disk, key, 8));
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* The table of the index's pages has lost a word, or has a wrong one. Whatever call meets that first:
   the keys are put and removed again, and what the log has of them is found again. */
TEST(a_damaged_index_is_made_whole_while_it_is_in_use) {
  enum { PUTS, REMOVES, WALKS, CHECKS, FIRSTS };
  static const uint64_t words[] = {0, ~(uint64_t)0, (uint64_t)30 << 32 | 1};
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (int i = 0; i < FIRSTS * 3 * 2; i++) {
    fill_segments(directory.text, i / FIRSTS % 2);
    hutch_cache *cache = open_cache(directory.text, &options);
    FILE *index = fopen(in_directory(directory.text, "hutch-index").text, "r+");
    CHECK(index && fseek(index, 4096 + 65536 * 16 + 8 * (i / FIRSTS / 3), SEEK_SET) == 0);
    CHECK(fwrite(&words[i / FIRSTS % 3], 8, 1, index) == 1 && fclose(index) == 0);
    uint32_t key = 0, entries = 1500;
    switch (i % FIRSTS) {
      case PUTS:
        for (key = 2000; key < 2100; key++)
          CHECK_OK(hutch_put(cache, &key, sizeof key, "more", 4, NULL, NULL));
        entries += 100;
        break;
      case REMOVES:
        for (key = 0; key < 100; key++) (void)hutch_remove(cache, &key, sizeof key);
        entries -= 100;
        break;
      case WALKS: {
        hutch_cursor *cursor = NULL;
        const void *found;
        size_t size;
        CHECK_OK(hutch_cursor_create(cache, &cursor));
        for (entries = 0; hutch_cursor_next(cursor, &found, &size) == HUTCH_OK;) entries++;
        hutch_cursor_release(cursor);
        CHECK_EQUAL(1500, entries);
        break;
      }
      default: CHECK(report_of(cache, HUTCH_CHECK_QUICK).manifest <= 1);
    }
    CHECK_EQUAL(entries, CHECK_SOUND(cache));
    for (key = 0; key < 1500; key++)
      CHECK_STATUS(i % FIRSTS == REMOVES && key < 100 ? HUTCH_NOT_FOUND : HUTCH_OK,
                   hutch_contains(cache, &key, sizeof key));
    CHECK_EQUAL(entries, count_of(cache));
    CHECK_OK(hutch_close(cache));
    cache = open_cache(directory.text, &options);
    CHECK_EQUAL(entries, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* How the words that say which page of the index has a key may be wrong: one of the table, the
   highest level, the free page, the number of pages. */
enum { PAGE_DAMAGES = 9 };
/* Where these words are in the index. */
enum { PAGES = 336 / 8, SPARE = 344 / 8, TOP = 352 / 8, TABLE = (4096 + 65536 * 16) / 8 };

static uint64_t *map_index(const char *directory) {
  return map_file(in_directory(directory, "hutch-index").text, 4096 * 300);
}

/* The number of words in the table of pages that are in use. */
static uint64_t words_of(const uint64_t *index) { return (uint64_t)1 << index[TOP]; }

static void damage_pages(uint64_t *index, int damage, uint64_t number) {
  uint64_t level = (uint64_t)1 << 32, words = words_of(index);
  uint64_t *word = index + TABLE + number % words;
  switch (damage) {
    case 0: *word = 0; break;
    case 1: *word = 1; break;
    case 2: *word = (index[TOP] + 2) * level | 2; break;
    case 3: *word = index[TABLE + (number + 1) % words]; break;
    case 4: *word += level; break;
    case 5: *word = *word ? *word - level : index[TOP] * level | index[PAGES]; break;
    case 6: index[SPARE] = index[SPARE] % index[PAGES] + 1; break;
    case 7: index[TOP] += number % 2 ? 1 : (uint64_t)-1; break;
    default: index[PAGES]--;
  }
}

/* Wrong words of that kind keep no key away: the next opening makes the index whole. */
TEST(an_opening_sets_the_pages_of_the_index_right) {
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  uint64_t words = 1;
  for (uint64_t number = 0; number < words; number++)
    for (int damage = 0; damage < PAGE_DAMAGES; damage++) {
      fill_segments(directory.text, damage % 2);
      uint64_t *index = map_index(directory.text);
      words = words_of(index);
      damage_pages(index, damage, number);
      hutch_cache *cache = open_cache(directory.text, &options);
      for (uint32_t key = 1400; key < 1600; key++)
        CHECK_OK(hutch_put(cache, &key, sizeof key, "more", 4, NULL, NULL));
      CHECK_EQUAL(1600, CHECK_SOUND(cache));
      for (uint32_t key = 0; key < 1600; key++)
        CHECK_OK(hutch_contains(cache, &key, sizeof key));
      CHECK_OK(hutch_close(cache));
      remove_tree(directory.text);
    }
}

/* What a process has been told of the removal of a key. One that was not found may be in the log. */
enum { NOT_REMOVED, REMOVED, UNKNOWN };

/* Keys below 200 have another value than at first, and those from 1500 on are new. The others are
   there unless they have been removed. */
static void check_changed(hutch_cache *cache, const char *removed) {
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  char value[8];
  size_t size;
  for (uint32_t key = 0; key < 1600; key++) {
    hutch_status status = hutch_get_into(disk, &key, sizeof key, value, sizeof value, &size);
    if (removed[key] != UNKNOWN)
      CHECK_STATUS(removed[key] ? HUTCH_NOT_FOUND : HUTCH_OK, status);
    if (status == HUTCH_OK) CHECK_EQUAL(key < 200 || key >= 1500 ? 4 : 7, size);
  }
  hutch_cache_release(disk);
}

PROCESS(checks_a_damaged_index, directory) {
  const char *removed = map_file(in_directory(directory, "../removed").text, 1600);
  hutch_options options = small_log_options();
  hutch_cache *cache = open_cache(directory, &options);
  (void)report_of(cache, HUTCH_CHECK_QUICK);
  CHECK_EQUAL(count_of(cache), CHECK_SOUND(cache));
  check_changed(cache, removed);
  CHECK_OK(hutch_close(cache));
}

/* The words become wrong while the directory is open. Some keys lead to the page of others from
   there on, or to one that is full of old entries. What is put and removed then is so in both
   processes after the check of one. */
TEST(a_check_sets_the_pages_of_the_index_right_for_all_processes) {
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  char *removed = map_file(scratch("removed").text, 1600);
  for (int i = 0; i < 3 * PAGE_DAMAGES; i++) {
    fill_segments(directory.text, true);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    damage_pages(map_index(directory.text), i % PAGE_DAMAGES, (uint64_t)i * 7);
    for (uint32_t key = 200; key < 300; key++)
      removed[key] = hutch_remove(disk, &key, sizeof key) == HUTCH_OK ? REMOVED : UNKNOWN;
    for (uint32_t key = 0; key < 1600; key = key == 199 ? 1500 : key + 1)
      CHECK_OK(hutch_put(disk, &key, sizeof key, "more", 4, NULL, NULL));
    hutch_cache_release(disk);
    process other = start_process("checks_a_damaged_index", directory.text);
    CHECK_EQUAL(0, end_process(&other));
    check_changed(cache, removed);
    CHECK_EQUAL(count_of(cache), CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* A wrong word hides a part of a page. The division of that page would put the right word in its
   place, and old entries of keys that were put anew meanwhile would be found again. */
TEST(a_page_that_was_hidden_brings_no_old_entry_back) {
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (int i = 0; i < 8; i++) {
    fill_segments(directory.text, true);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    uint64_t *index = map_index(directory.text), *hidden = NULL;
    for (uint32_t key = 1500; !hidden; key++) {
      CHECK_OK(hutch_put(disk, &key, sizeof key, KEY("a value"), NULL, NULL));
      /* Of the highest level, as every word in this half of the table. */
      uint64_t word = 0, words = words_of(index);
      for (uint64_t number = words / 2; number < words; number++)
        if (index[TABLE + number]) word = index[TABLE + number];
        else hidden = &index[TABLE + number];
      if (hidden) *hidden = word;
    }
    for (uint32_t key = 0; key < 1500; key += 4)
      CHECK_OK(hutch_put(disk, &key, sizeof key, "more", 4, NULL, NULL));
    for (uint32_t key = 2000; key < 3500; key++)
      CHECK_OK(hutch_put(disk, &key, sizeof key, "more", 4, NULL, NULL));
    (void)report_of(cache, 0);
    (void)CHECK_SOUND(cache);
    for (uint32_t key = 0; key < 1500; key += 4) {
      char value[8];
      size_t size;
      CHECK_OK(hutch_get_into(disk, &key, sizeof key, value, sizeof value, &size));
      CHECK_EQUAL(4, size);
    }
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Whatever call needs the end of the log first: an index with an impossible one does not count. */
TEST(an_index_with_an_impossible_end_of_the_log_is_made_anew) {
  static const uint64_t ends[] = {0, 1, ~(uint64_t)0}, none = 0;
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    fill_segments(directory.text, true);
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(hutch_clear(cache));
    CHECK_OK(hutch_close(cache));
    int index = open(in_directory(directory.text, "hutch-index").text, O_RDWR);
    CHECK(index >= 0 && pwrite(index, &ends[i], 8, 640) == 8);
    CHECK(pwrite(index, &none, 8, 4096 + 65536 * 16) == 8);
    close(index);
    cache = open_cache(directory.text, &options);
    for (uint32_t key = 0; key < 100; key++) (void)hutch_remove(cache, &key, sizeof key);
    for (uint32_t key = 0; key < 100; key++)
      CHECK_OK(hutch_put(cache, &key, sizeof key, "a value", 7, NULL, NULL));
    CHECK_EQUAL(100, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Puts and reads until the log has come round, and to the second quarter of the segment to which
   the address at `head` leads. Returns how many puts have failed. */
static uint32_t come_round(hutch_cache *disk, const uint64_t *head) {
  uint32_t failed = 0;
  char value[7];
  size_t size;
  for (uint32_t n = 0; n < 20000 || *head % 1024 / 256 != 1; n++) {
    uint32_t often = n % 500 | 1u << 31;
    if (hutch_put(disk, &n, sizeof n, KEY("a value"), NULL, NULL) != HUTCH_OK) failed++;
    if (hutch_get_into(disk, &often, sizeof often, value, sizeof value, &size) != HUTCH_OK &&
        hutch_put(disk, &often, sizeof often, KEY("a value"), NULL, NULL) != HUTCH_OK)
      failed++;
  }
  return failed;
}

/* The table of segments has lost the one to which a stream of entries is appended: one put may
   fail, and another segment begins. */
TEST(a_log_goes_on_without_the_segment_that_it_appends_to) {
  static const struct { off_t head, active; uint32_t policy; } streams[] = {
      {256, 704, HUTCH_POLICY_ADAPTIVE}, {712, 736, HUTCH_POLICY_ADAPTIVE},
      {256, 704, HUTCH_POLICY_LRU},
  };
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    options.disk_policy = streams[i].policy;
    for (uint32_t lost = 0; lost < 2; lost++) {
      hutch_cache *cache = open_cache(directory.text, &options);
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      char *index = map_file(in_directory(directory.text, "hutch-index").text,
                             4096 + 65536 * 16);
      uint64_t *head = (uint64_t *)(index + streams[i].head);
      if (lost) {
        CHECK(*head % 1024 / 256 == 1);
        uint64_t number = *(uint64_t *)(index + streams[i].active);
        *(uint64_t *)(index + 4096 + number % 65536 * 16) = 0;
      }
      CHECK(come_round(disk, head) <= lost);
      hutch_cache_release(disk);
      CHECK_OK(hutch_close(cache));
    }
    remove_tree(directory.text);
  }
}

/* The table has lost the oldest segment, or the number of segments is an impossible one. The puts
   after a clear use the segments that are there again, and return. */
TEST(a_log_comes_round_without_its_oldest_segment) {
  enum { SEGMENTS = 320 / 8, FIRST = (4096 + 16) / 8 };
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  for (int i = 0; i < 2; i++) {
    fill_segments(directory.text, true);
    hutch_cache *cache = open_cache(directory.text, &options);
    uint64_t *index = map_index(directory.text);
    index[i == 0 ? FIRST : SEGMENTS] = ~(uint64_t)0;
    CHECK(report_of(cache, HUTCH_CHECK_QUICK).manifest > 0);
    CHECK_OK(hutch_clear(cache));
    for (uint32_t key = 0; key < 6000; key++)
      CHECK_OK(hutch_put(cache, &key, sizeof key, KEY("a value"), NULL, NULL));
    CHECK(index[SEGMENTS] < 25);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Another program may have changed any word of the index: also how many files have no entries. */
TEST(a_log_with_an_impossible_number_of_files_without_entries_is_kept_up) {
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  fill_segments(directory.text, true);
  uint64_t *index = map_file(in_directory(directory.text, "hutch-index").text, 4096);
  index[104 / 8] = (uint64_t)1 << 63;
  hutch_cache *cache = open_cache(directory.text, &options);
  while (index[104 / 8] != 0) (void)hutch_maintain(cache, HUTCH_SECOND);
  CHECK_EQUAL(1500, CHECK_SOUND(cache));
  CHECK_OK(hutch_close(cache));
}

/* A process that may have few addresses maps a part of the log, and fills it. */
TEST(a_log_without_a_limit_goes_on_where_addresses_end) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer needs more addresses");
#endif
  enum { VALUE = 1 << 20, MAPPED = 1 << 28, KEYS = MAPPED / VALUE + 60 };
  const struct rlimit few = {(rlim_t)4 << 30, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_AS, &few) == 0);
  path directory = scratch("cache");
  hutch_options options = log_options();
  options.memory.cost = 1 << 20;
  options.inline_threshold = 0;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < 2 * KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i % KEYS);
    CHECK_OK(put_size(disk, key, VALUE));
    CHECK_OK(hutch_contains(disk, KEY(key)));
  }
  struct stat status;
  CHECK(stat(in_directory(directory.text, "hutch-log").text, &status) == 0);
  CHECK(status.st_size <= MAPPED);
  CHECK_SOUND(disk);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* A process that may have few addresses maps a part of what another one does. What it had not mapped
   it took for gone: a key got a second entry, and puts failed. */
TEST(a_log_is_the_same_to_a_process_with_few_addresses) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer needs more addresses");
#endif
  enum { VALUE = 1 << 20, KEYS = (1 << 28) / VALUE + 60 };
  const struct rlimit few = {(rlim_t)4 << 30, RLIM_INFINITY};
  path directory = scratch("cache");
  hutch_options options = log_options();
  options.inline_threshold = 0;
  char key[16];
  int go[2], done[2];
  CHECK(pipe(go) == 0 && pipe(done) == 0);
  pid_t child = fork();
  if (child == 0) CHECK(setrlimit(RLIMIT_AS, &few) == 0 && read(go[0], key, 1) == 1);
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "%d", i);
    if (child == 0) {
      CHECK_OK(hutch_contains(disk, KEY(key)));
      CHECK_OK(put_text(disk, key, "a value"));
      CHECK_TEXT(disk, key, "a value");
    } else {
      CHECK_OK(put_size(disk, key, VALUE));
    }
  }
  CHECK(write(child == 0 ? done[1] : go[1], "", 1) == 1);
  CHECK(read(child == 0 ? go[0] : done[0], key, 1) == 1);
  if (child == 0) {
    /* The log has not grown beyond what this process can see. */
    CHECK_TEXT(disk, "last", "a value");
    for (int i = 0; i < KEYS; i++) {
      snprintf(key, sizeof key, "%d", i);
      CHECK_OK(put_text(disk, key, "a value"));
    }
    _exit(0);
  }
  CHECK_EQUAL(KEYS, count_of(disk));
  for (int i = 0; i < KEYS + KEYS / 2; i++) {
    snprintf(key, sizeof key, "%d", i);
    if (i < KEYS) CHECK_TEXT(disk, key, "a value");
    CHECK_OK(put_size(disk, key, VALUE));
  }
  CHECK_OK(put_text(disk, "last", "a value"));
  CHECK(write(go[1], "", 1) == 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_SOUND(disk);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* The file by which earlier libraries know a log's directory is damaged, or not there: the entries
   stay, and the file is made anew. Another program's database is refused. */
TEST(a_log_keeps_its_entries_without_its_stub) {
  path directory = scratch("cache"), stub = in_directory(directory.text, "manifest.sqlite");
  path aside = in_directory(directory.text, "hutch-0000000000000000.damaged");
  char whole[512], found[513] = "SQLite format 3";
  for (int i = 0; i < 12; i++) {
    hutch_options options = log_options();
    bool closes = i % 2 == 0;
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_close(cache));
    FILE *file = fopen(stub.text, "r+");
    CHECK(file && fread(whole, 1, sizeof whole, file) == sizeof whole && fclose(file) == 0);
    switch (i / 2) {
      case 0: write_file(stub.text, "this is no database", 19); break;
      case 1: write_file(stub.text, "", 0); break;
      case 2: write_file(stub.text, whole, 100); break;
      case 3: write_file(stub.text, whole, 99); break;
      case 4: CHECK(unlink(stub.text) == 0); break;
      default: write_file(stub.text, found, sizeof found); break;
    }
    options.storage = closes ? HUTCH_STORAGE_DEFAULT : HUTCH_STORAGE_SQLITE;
    hutch_status status = hutch_open(directory.text, &options, &cache);
    if (i / 2 == 5) {
      CHECK_EQUAL(HUTCH_BAD_DIRECTORY, status);
      struct stat left;
      CHECK(stat(stub.text, &left) == 0 && left.st_size == sizeof found);
      write_file(stub.text, whole, sizeof whole);
      continue;
    }
    CHECK_EQUAL(closes ? HUTCH_OK : HUTCH_OPTIONS_DIFFER, status);
    CHECK_TEXT(cache, "key", "value");
    CHECK_OK(hutch_close(cache));
    file = fopen(stub.text, "r");
    CHECK(file && fread(found, 1, sizeof found, file) == sizeof whole && fclose(file) == 0);
    CHECK(memcmp(whole, found, sizeof whole) == 0);
    CHECK_EQUAL(i / 2 == 4 ? -1 : 0, unlink(aside.text));
    memset(found, 0, sizeof found);
    snprintf(found, sizeof found, "SQLite format 3");
  }
}

/* Without a limit of cost a segment has a part of a small file system. */
TEST(a_log_without_a_limit_fits_a_small_disk) {
  path directory = small_disk("size=4m");
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(in_directory(directory.text, "cache").text, &options);
  for (uint32_t key = 0; key < 2000; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, scratch(NULL).text, 4000, NULL, NULL));
  CHECK_SOUND(cache);
  CHECK(count_of(cache) > 200);
  CHECK_OK(hutch_close(cache));
}

/* The file system has bytes, but no file more: entries make room for the files of others, in the
   log store and in the SQLite store. */
TEST(a_file_system_without_another_file_takes_values_in_files) {
  path directory = small_disk("size=24m,nr_inodes=320");
  for (int kind = 0; kind < 2; kind++) {
    hutch_options options = log_options();
    if (kind) options.storage = HUTCH_STORAGE_MIXED;
    options.inline_threshold = 1000;
    path place = in_directory(directory.text, kind ? "database" : "log");
    hutch_cache *cache = open_cache(place.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    for (uint32_t key = 0; key < 400; key++) {
      if (key % 4 == 3) {
        hutch_writer *writer = NULL;
        CHECK_OK(hutch_writer_begin(disk, &key, sizeof key, 0, NULL, &writer));
        CHECK_OK(hutch_writer_append(writer, place.text, 4000));
        CHECK_OK(hutch_writer_commit(writer, NULL));
        hutch_writer_release(writer);
      } else {
        CHECK_OK(hutch_put(key % 2 ? cache : disk, &key, sizeof key, place.text, 4000, NULL, NULL));
      }
      CHECK_OK(hutch_contains(disk, &key, sizeof key));
    }
    CHECK_SOUND(cache);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(place.text);
  }
}

/* Where the index says that it does not count. */
enum { RECOVERING_OFFSET = 832 };

/* A log has places that were given back, and a recovery looks for segments there: a load from a
   hole of a file in memory would need room. */
TEST(a_recovery_takes_no_room_for_places_without_segments) {
  path directory = small_disk("size=24m");
  path place = in_directory(directory.text, "cache");
  pid_t child = fork_now();
  if (child == 0) {
    hutch_options options = small_log_options();
    hutch_cache *cache = open_cache(place.text, &options);
    hutch_cache_limits limits = limits_of(cache);
    limits.disk.cost = 16000000;
    CHECK_OK(hutch_set_limits(cache, &limits));
    for (uint32_t key = 0; key < 3000; key++)
      CHECK_OK(hutch_put(cache, &key, sizeof key, place.text, 4000, NULL, NULL));
    limits.disk.cost = 400000;
    CHECK_OK(hutch_set_limits(cache, &limits));
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  await_child(child);
  uint64_t *index = map_file(in_directory(place.text, "hutch-index").text, 4096);
  index[RECOVERING_OFFSET / 8] = 1;
  int fill = open(in_directory(directory.text, "fill").text, O_RDWR | O_CREAT, 0600);
  CHECK(fill >= 0);
  static char bytes[4096];
  off_t size = 0;
  while (write(fill, bytes, sizeof bytes) == (ssize_t)sizeof bytes) size += sizeof bytes;
  CHECK(ftruncate(fill, size - 600000) == 0);
  hutch_options options = small_log_options();
  hutch_cache *cache = open_cache(place.text, &options);
  CHECK_SOUND(cache);
  CHECK(count_of(cache) > 50);
  CHECK_OK(hutch_close(cache));
}

/* The limit of a recovered log is lower than before. Each page that the new index gets costs a part
   of a segment, at last of one whose entries are just found again. */
TEST(a_recovery_under_a_lower_limit_counts_what_it_finds) {
  for (size_t size = 4; size <= 36; size += 16) {
    for (uint64_t segments = 8; segments <= 14; segments++) {
      path directory = scratch("cache");
      hutch_options options = small_log_options();
      options.flags = HUTCH_OPEN_NO_THREADS;
      hutch_cache *cache = open_cache(directory.text, &options);
      for (uint32_t key = 0; key < 5000; key++)
        CHECK_OK(hutch_put(cache, &key, sizeof key, directory.text, size, NULL, NULL));
      CHECK_OK(hutch_close(cache));
      uint64_t *index = map_file(in_directory(directory.text, "hutch-index").text, 4096);
      index[RECOVERING_OFFSET / 8] = 1;
      CHECK(munmap(index, 4096) == 0);
      options.disk.cost -= segments * 16384;
      cache = open_cache(directory.text, &options);
      uint64_t found = CHECK_SOUND(cache);
      CHECK(found > 100);
      CHECK_EQUAL(found, count_of(cache));
      CHECK_OK(hutch_close(cache));
      remove_tree(directory.text);
    }
  }
}

/* Maintenance finds the entries of a recovered log, also in sessions that end before maintenance
   would begin otherwise. */
TEST(sessions_that_end_at_once_come_to_the_end_of_a_recovery) {
  enum { KEYS = 100 };
  path directory = scratch("cache");
  hutch_options options = small_log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t key = 0; key < KEYS; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "a value", 7, NULL, NULL));
  CHECK_OK(hutch_close(cache));
  uint64_t *index = map_file(in_directory(directory.text, "hutch-index").text, 4096);
  index[RECOVERING_OFFSET / 8] = 1;
  for (uint32_t found = 0; found < KEYS;) {
    cache = open_cache(directory.text, &options);
    sched_yield();
    found = 0;
    for (uint32_t key = 0; key < KEYS; key++)
      if (hutch_contains(cache, &key, sizeof key) == HUTCH_OK) found++;
    CHECK_OK(hutch_close(cache));
  }
}

/* The disk has no byte left, while the log comes to segment after segment: the process lives, and
   the log goes on with what it has. Nothing reads meanwhile, or a segment that goes would leave its
   room to the disk only later. */
TEST(a_log_on_a_full_disk_goes_on) {
  path directory = small_disk("size=2m");
  hutch_options options = small_log_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(in_directory(directory.text, "cache").text, &options);
  static char value[1000];
  for (uint32_t key = 0; key < 200; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, value, sizeof value, NULL, NULL));
  int file = open(in_directory(directory.text, "full").text, O_CREAT | O_WRONLY, 0600);
  while (write(file, value, sizeof value) > 0) continue;
  CHECK_EQUAL(ENOSPC, errno);
  // The words of the table of segments come to their second page, and to the third one.
  for (uint32_t n = 0; n < 9000; n++) {
    uint32_t key = n % 200;
    if (n % 700 == 0) CHECK_OK(hutch_maintain(cache, 0));
    CHECK_OK(hutch_put(cache, &key, sizeof key, value, sizeof value, NULL, NULL));
  }
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

/* A removal appends a record of it, for which a full log's cleaner moves entries that were read:
   also those that a trim has just found. */
TEST(a_trim_removes_the_entries_that_it_moves) {
  static const uint32_t policies[] = {HUTCH_POLICY_LRU, HUTCH_POLICY_LFU, HUTCH_POLICY_ADAPTIVE};
  for (int p = 0; p < 3; p++) {
    uint64_t random = 7;
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    use_clock(&options, &clock);
    options.storage = HUTCH_STORAGE_LOG;
    options.flags = HUTCH_OPEN_NO_THREADS;
    options.disk.cost = 1 << 20;
    options.disk_policy = policies[p];
    hutch_cache *cache = open_cache(scratch("cache").text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    static char value[100];
    size_t size;
    for (uint32_t i = 0; i < 12000; i++) {
      CHECK_OK(hutch_put(disk, &i, sizeof i, value, next_random(&random) % sizeof value, NULL, NULL));
      uint32_t read = i / 2 + (uint32_t)(next_random(&random) % (i / 2 + 1));
      CHECK(hutch_get_into(disk, &read, sizeof read, value, sizeof value, &size) >= HUTCH_OK);
    }
    CHECK(count_of(disk) > 1000);
    clock.now += HUTCH_SECOND;
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_WRITTEN_BEFORE,
                            .time = clock.now};
    CHECK_OK(hutch_trim(disk, &spec, NULL));
    CHECK_EQUAL(0, count_of(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(scratch("cache").text);
  }
}

/* Files take the space of segments until only two are left, one of new entries and one of kept
   ones. Where nothing is left in that of the kept ones, the new ones are evicted. */
TEST(the_limit_of_count_holds_beside_files_and_kept_entries) {
  static const size_t sizes[] = {70000, 20480, 100};
  static char value[70000];
  for (uint64_t first = 15; first <= 24; first++) {
    uint64_t random = first;
    hutch_options options = unlimited_options();
    options.storage = HUTCH_STORAGE_LOG;
    options.inline_threshold = 1000;
    options.disk.cost = 160000;
    options.disk.count = 4;
    hutch_cache *cache = open_cache(scratch("cache").text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    for (int i = 0; i < 400; i++) {
      char key = (char)(next_random(&random) % 8);
      uint64_t kind = next_random(&random) % 4;
      if (kind < 3) {
        CHECK_OK(hutch_put(disk, &key, 1, value, sizes[kind], NULL, NULL));
      } else {
        size_t size;
        for (int read = 0; read < 2; read++)
          CHECK(hutch_get_into(disk, &key, 1, value, sizeof value, &size) >= HUTCH_OK);
      }
      CHECK(count_of(disk) <= 4);
    }
    CHECK_SOUND(disk);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(scratch("cache").text);
  }
}

/* A value of a page or more goes to the log straight from the caller's memory, which is the
   caller's again when the put returns. */
TEST(values_that_are_put_on_disk_alone) {
  static const size_t sizes[] = {4095, 4096, 4097, 100000, 900000};
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  changes none = {0};
  for (int heard = 0; heard < 2; heard++) {
    if (heard)
      CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD, note_change, &none, NULL));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      hutch_put_options put = options_of_all_kinds();
      unsigned char *data = filled(sizes[i], (unsigned)i);
      hutch_put_result result = new_result();
      CHECK_OK(put_text(cache, "key", "older"));
      CHECK_OK(hutch_put(disk, KEY("key"), data, sizes[i], &put, &result));
      CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
      memset(data, 0, sizes[i]);
      free(data);
      data = filled(sizes[i], (unsigned)i);
      check_where(cache, "key", false, true);
      hutch_value *value = get_value(cache, "key");
      CHECK_BYTES(data, sizes[i], hutch_value_data(value), hutch_value_size(value));
      CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
      CHECK_BYTES("fruit", 5, hutch_value_tag(value), hutch_value_tag_size(value));
      hutch_value_release(value);
      CHECK(info_of(disk, "key").expires > 0);
      free(data);
    }
  }
  CHECK_EQUAL(1, CHECK_SOUND(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* An entry that is not small is written through the file at first, with what comes before its value
   if that is short; later it is stored to the mapping. */
TEST(values_behind_keys_of_any_size) {
  enum { SIZE = 9000, LAPS = 6, SEGMENT = 2 << 20 };
  static const size_t sizes[] = {1, 300, 455, 456, 457, 3000, HUTCH_KEY_MAX};
  enum { KEYS = sizeof sizes / sizeof *sizes };
  hutch_options options = log_options();
  options.disk.cost = 3 * SEGMENT;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  unsigned char *keys[KEYS];
  for (int k = 0; k < KEYS; k++) keys[k] = filled(sizes[k], 100 + (unsigned)k);
  hutch_put_options put = options_of_all_kinds();
  int rounds = LAPS * 3 * SEGMENT / (KEYS * (SIZE + 10000));
  for (int i = 0; i <= rounds; i++) {
    hutch_cache *scope = i % 2 ? cache : disk;
    for (int k = 0; k < KEYS; k++) {
      void *data = filled(SIZE, (unsigned)(i * KEYS + k));
      CHECK_OK(hutch_put(scope, keys[k], sizes[k], data, SIZE, i % 3 ? &put : NULL, NULL));
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(disk, keys[k], sizes[k], &value));
      CHECK_BYTES(data, SIZE, hutch_value_data(value), hutch_value_size(value));
      CHECK_BYTES("more", i % 3 ? 4u : 0u, hutch_value_extended(value),
                  hutch_value_extended_size(value));
      hutch_value_release(value);
      free(data);
    }
  }
  CHECK_EQUAL(KEYS, CHECK_SOUND(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  for (int k = 0; k < KEYS; k++) {
    void *data = filled(SIZE, (unsigned)(rounds * KEYS + k));
    hutch_value *value = NULL;
    CHECK_OK(hutch_get(cache, keys[k], sizes[k], &value));
    CHECK_BYTES(data, SIZE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    free(data);
    free(keys[k]);
  }
  CHECK_OK(hutch_close(cache));
}

/* A page of the index that is full is divided: its entries say by their keys where they go. Large
   entries lie on pages that this process has not mapped, and are read through the file but for keys
   that are long. */
TEST(large_entries_move_to_other_index_pages_without_faults) {
  enum { KEYS = 1000, SIZE = 20000, LONG = 300, EACH = 50, MOST = 2 * KEYS / EACH };
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options put = options_of_all_kinds();
  void *data = filled(SIZE, 1);
  char key[LONG] = {0};
  long most = 0;
  for (int i = 0; i < KEYS; i++) {
    struct rusage before, after;
    memcpy(key, &i, sizeof i);
    size_t length = i % EACH ? sizeof i : LONG;
    getrusage(RUSAGE_THREAD, &before);
    CHECK_OK(hutch_put(disk, key, length, data, SIZE, i % 2 ? &put : NULL, NULL));
    getrusage(RUSAGE_THREAD, &after);
    long faults = after.ru_minflt - before.ru_minflt;
    if (faults > most) most = faults;
  }
  printf("%ld faults in a put\n", most);
  /* A sanitizer's own pages count too. */
  if (SANITIZED_BY == 1) CHECK(most <= MOST);
  for (int i = 0; i < KEYS; i++) {
    hutch_value *value = NULL;
    memcpy(key, &i, sizeof i);
    CHECK_OK(hutch_get(disk, key, i % EACH ? sizeof i : LONG, &value));
    CHECK_BYTES(data, SIZE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
  }
  free(data);
  CHECK_EQUAL(KEYS, CHECK_SOUND(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* What is replaced far below the limit leaves dead bytes behind, which are used again. */
TEST(a_log_does_not_grow_while_most_of_it_is_dead) {
  enum { KEYS = 20, SIZE = 100000, ROUNDS = 100, SEGMENT = 2 << 20 };
  hutch_options options = log_options();
  options.disk.cost = 32 * SEGMENT;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  void *old = filled(SIZE, 77);
  CHECK_OK(hutch_put(disk, KEY("old"), old, SIZE, NULL, NULL));
  for (int i = 0; i < KEYS * ROUNDS; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i % KEYS);
    void *data = filled(SIZE, (unsigned)i);
    CHECK_OK(hutch_put(disk, KEY(key), data, SIZE, NULL, NULL));
    free(data);
  }
  struct stat status;
  CHECK(stat(scratch("cache/hutch-log").text, &status) == 0);
  CHECK(status.st_blocks * 512 <= 6 * SEGMENT);
  CHECK_EQUAL(KEYS + 1, CHECK_SOUND(disk));
  hutch_value *value = get_value(disk, "old");
  CHECK_BYTES(old, SIZE, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  free(old);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* A directory whose index has an earlier format, or none of the format at all, is left alone. */
TEST(a_log_of_an_earlier_format_is_refused) {
  path directory = scratch("cache");
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
  uint32_t *index = map_file(in_directory(directory.text, "hutch-index").text, 4096);
  uint32_t *format = index + 2;
  CHECK_EQUAL(2, *format);
  for (uint32_t other = 0; other < 2; other++) {
    *format = other;
    CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(directory.text, &options, &cache));
    options.flags ^= HUTCH_OPEN_DISK_OPTIONAL;
    cache = open_cache(directory.text, &options);
    CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "key", "other"));
    CHECK_OK(hutch_close(cache));
    options.flags ^= HUTCH_OPEN_DISK_OPTIONAL;
  }
  *format = 3;
  CHECK_STATUS(HUTCH_NEWER_FORMAT, hutch_open(directory.text, &options, &cache));
  *format = 2;
  munmap(index, 4096);
  cache = open_cache(directory.text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

/* Another program removes what is in the directory, and then the directory. */
TEST(the_end_of_a_log_makes_nothing_in_a_directory_that_is_being_removed) {
  path directory = scratch("cache");
  hutch_options options = log_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  for (int noticed = 0; noticed < 2; noticed++) {
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    int kept = open(directory.text, O_RDONLY | O_DIRECTORY);
    CHECK(kept >= 0);
    static const char *const names[] = {"hutch.lock", "hutch-index", "hutch-log",
                                        "hutch-checkpoint", "manifest.sqlite"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      CHECK(unlinkat(kept, names[i], 0) == 0);
    close(kept);
    if (noticed) CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(cache));
    CHECK_OK(hutch_close(cache));
    CHECK(rmdir(directory.text) == 0);
  }
}

PROCESS(writes_pieces_and_waits, directory) {
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory, &options);
  hutch_writer *writer = NULL;
  void *data = filled(200000, 1);
  CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, 200000));
  tell_ready();
  await_end();
}

/* The file of a process that lives may be on its way to an entry; that of a dead one is not. */
TEST(a_sweep_spares_the_files_of_processes_that_live) {
  path directory = scratch("cache");
  hutch_options options = log_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  process child = start_process("writes_pieces_and_waits", directory.text);
  await_ready(&child);
  CHECK_EQUAL(1, contents_of(directory.text).files);
  for (int is_dead = 0; is_dead < 2; is_dead++) {
    if (is_dead) {
      int status;
      kill(child.pid, SIGKILL);
      CHECK(waitpid(child.pid, &status, 0) == child.pid);
    }
    hutch_check_report report = report_of(cache, 0);
    CHECK_EQUAL(is_dead, report.orphans);
    CHECK_EQUAL(1 - is_dead, contents_of(directory.text).files);
  }
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------- places that are given back */

enum { SLOW_SIZE = 12000, SLOW_KEYS = 100, SLOW_LIMIT = 4000000, SLOW_LESS = 400000 };

/* A read that stops while it copies the value: a page of its buffer cannot be stored to. */
typedef struct slow_read {
  _Atomic int is_inside, goes_on, has_ended, ends;
} slow_read;

static slow_read *slow;
static char *slow_page;

/* A child does not outlive a test that has failed. */
static void await_slow(_Atomic int *flag) {
  while (!atomic_load(flag)) {
    if (parent && getppid() != parent) _exit(1);
    nap();
  }
}

static void stop_at_page(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  if ((char *)info->si_addr < slow_page || (char *)info->si_addr >= slow_page + 4096) abort();
  atomic_store(&slow->is_inside, 1);
  await_slow(&slow->goes_on);
  if (mprotect(slow_page, 4096, PROT_READ | PROT_WRITE) != 0) abort();
}

static void read_slowly(hutch_cache *disk) {
  char *buffer = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(buffer != MAP_FAILED);
  slow_page = buffer + 4096;
  struct sigaction action = {.sa_sigaction = stop_at_page, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(slow_page, 4096, PROT_NONE) == 0);
  size_t size = 0;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get_into(disk, KEY("key 0"), buffer, 16384, &size));
  munmap(buffer, 16384);
}

static void *read_slowly_on_thread(void *disk) {
  read_slowly(disk);
  return NULL;
}

PROCESS(reads_slowly, directory) {
  parent = getppid();
  slow = map_file(in_directory(directory, "../slow").text, sizeof *slow);
  hutch_options options = log_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory, &options);
  read_slowly(tier_of(cache, HUTCH_TIER_DISK));
  CHECK_OK(hutch_maintain(cache, 0));
  atomic_store(&slow->has_ended, 1);
  await_slow(&slow->ends);
}

static hutch_cache *open_to_read_slowly(void) {
  slow = map_file(scratch("slow").text, sizeof *slow);
  hutch_options options = log_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  options.disk.cost = SLOW_LIMIT;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int i = 0; i < SLOW_KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(put_size(cache, key, SLOW_SIZE));
  }
  return cache;
}

static int64_t blocks_of_log(void) {
  struct stat status;
  CHECK(stat(scratch("cache/hutch-log").text, &status) == 0);
  return status.st_blocks * 512;
}

/* The read is inside, and the limit becomes a lower one: the segment that it reads in goes. */
static void lower_the_limit(hutch_cache *cache) {
  await_slow(&slow->is_inside);
  CHECK(blocks_of_log() >= SLOW_KEYS * SLOW_SIZE);
  hutch_cache_limits limits = limits_of(cache);
  limits.disk.cost = SLOW_LESS;
  CHECK_OK(hutch_set_limits(cache, &limits));
}

/* A reader takes no lock. On a full file system in memory, a load from a place that has been given
   back ends its process (SIGBUS). */
TEST(a_place_stays_in_the_log_while_another_thread_may_read_in_it) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has its own handler of SIGSEGV");
#endif
  hutch_cache *cache = open_to_read_slowly();
  pthread_t thread;
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK(pthread_create(&thread, NULL, read_slowly_on_thread, disk) == 0);
  lower_the_limit(cache);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(blocks_of_log() >= SLOW_KEYS * SLOW_SIZE);
  atomic_store(&slow->goes_on, 1);
  pthread_join(thread, NULL);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(blocks_of_log() <= SLOW_LESS);
  CHECK_SOUND(disk);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* The directory was away, and has two numbers of this process since. */
TEST(a_place_leaves_the_log_though_the_directory_was_away_before) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has its own handler of SIGSEGV");
#endif
  hutch_cache *cache = open_to_read_slowly();
  path away = scratch("away"), directory = scratch("cache");
  CHECK(rename(directory.text, away.text) == 0);
  while (stats_of(cache).disk.state == HUTCH_STATE_UP) {
    nap();
    (void)put_text(cache, "other", "value");
  }
  CHECK(rename(away.text, directory.text) == 0);
  while (stats_of(cache).disk.state != HUTCH_STATE_UP) {
    nap();
    (void)put_text(cache, "other", "value");
  }
  pthread_t thread;
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK(pthread_create(&thread, NULL, read_slowly_on_thread, disk) == 0);
  lower_the_limit(cache);
  atomic_store(&slow->goes_on, 1);
  pthread_join(thread, NULL);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(blocks_of_log() <= SLOW_LESS);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_place_stays_in_the_log_while_another_process_may_read_in_it) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has its own handler of SIGSEGV");
#endif
  hutch_cache *cache = open_to_read_slowly();
  path directory = scratch("cache");
  process other = start_process("reads_slowly", directory.text);
  lower_the_limit(cache);
  /* This process has a child that never uses the cache, which keeps nothing from going. */
  pid_t own = getpid(), child = fork_now();
  if (child == 0) {
    parent = own;
    await_slow(&slow->ends);
    end_child();
  }
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(blocks_of_log() >= SLOW_KEYS * SLOW_SIZE);
  atomic_store(&slow->goes_on, 1);
  await_slow(&slow->has_ended);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(blocks_of_log() <= SLOW_LESS);
  atomic_store(&slow->ends, 1);
  CHECK_EQUAL(0, end_process(&other));
  await_child(child);
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------ directories that come and go */

typedef struct traffic {
  hutch_cache *cache;
  atomic_bool ends;
} traffic;

/* The directory may be away at any moment: a call may fail, and a value is whole. */
static void *use_all(void *context) {
  traffic *t = context;
  for (uint32_t i = 0; !atomic_load(&t->ends); i++) {
    uint32_t key = i % 64;
    (void)hutch_put(t->cache, &key, sizeof key, &key, sizeof key, NULL, NULL);
    hutch_value *value = NULL;
    if (hutch_get(t->cache, &key, sizeof key, &value) == HUTCH_OK)
      CHECK_BYTES(&key, sizeof key, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    if (i % 16 == 0) {
      hutch_entry_info info = {.struct_size = sizeof info};
      (void)hutch_info(t->cache, &key, sizeof key, &info);
      hutch_options options = {.struct_size = sizeof options};
      CHECK_OK(hutch_get_options(t->cache, &options));
      (void)hutch_remove(t->cache, &key, sizeof key);
    }
  }
  return NULL;
}

TEST(a_directory_may_go_any_number_of_times_beside_calls) {
  path directory = scratch("cache"), away = scratch("away");
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  traffic both = {.cache = cache}, below = {.cache = disk};
  pthread_t threads[2];
  CHECK(pthread_create(&threads[0], NULL, use_all, &both) == 0);
  CHECK(pthread_create(&threads[1], NULL, use_all, &below) == 0);
  for (int i = 0; i < 12; i++) {
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK(rename(directory.text, away.text) == 0);
    let_notice(cache);
    CHECK(rename(away.text, directory.text) == 0);
    /* Another call may be about to open it. */
    while (hutch_check(cache, 0, NULL) != HUTCH_OK) usleep(1000);
  }
  atomic_store(&both.ends, true);
  atomic_store(&below.ends, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}
