/*
 * The order of writes: what a call answers while the write of another is submitted and not yet
 * committed, and what becomes of a write that comes late.
 *
 * Calls are stopped at a step of the test's choosing: sqlite3_step, pwrite and malloc are defined
 * here, in the program, which the dynamic linker asks first, and a codec is a function of the test's
 * anyhow.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STOPS_AGAIN false
#include "stops.h"

/* ------------------------------------------------------------------- steps */

/* What this thread does before it next writes a file, which is within a COMMIT. */
static _Thread_local void (*at_write)(void);
/* The file system is full for this thread. */
static _Thread_local bool is_full;
/* How often this thread has written a file. */
static _Thread_local int writes;

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  stop(&at_write);
  writes++;
  if (is_full) errno = ENOSPC;
  return is_full ? -1 : syscall(SYS_pwrite64, file, data, size, at);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  return pwrite64(file, data, size, at);
}

/* What this thread does before it next allocates a block of a large value. */
enum { LARGE_BLOCK = 64 << 10 };
static _Thread_local void (*at_large_block)(void);
/* Blocks of entries come from there too. */
BLOCKS_FROM_MALLOC

void *__libc_malloc(size_t size);

void *malloc(size_t size) {
  if (size >= LARGE_BLOCK) stop(&at_large_block);
  return __libc_malloc(size);
}

/* Whether a thread of this process sleeps: it waits for something. */
static bool is_asleep(int thread) {
  char name[64], text[512];
  snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return false;
  text[size] = 0;
  const char *state = strrchr(text, ')');
  return state && state[2] == 'S';
}

/* Two threads. One stands at a step until the other has made its call, or waits within it. */
static struct {
  hutch_cache *cache, *view;
  int way;
  _Atomic int stands, other, other_is_done;
  bool other_was_done;
} scene;

static void wait_for_other(void) {
  while (!atomic_load(&scene.other_is_done)) {
    int other = atomic_load(&scene.other);
    if (other && is_asleep(other)) break;
    sched_yield();
  }
  scene.other_was_done = atomic_load(&scene.other_is_done);
}

static void stand(void) {
  atomic_store(&scene.stands, 1);
  wait_for_other();
}

static void begin_other(void) {
  while (!atomic_load(&scene.stands)) sched_yield();
  atomic_store(&scene.other, (int)syscall(SYS_gettid));
}

static void begin_scene(void) {
  atomic_store(&scene.stands, 0);
  atomic_store(&scene.other, 0);
  atomic_store(&scene.other_is_done, 0);
  scene.other_was_done = false;
}

/* What a task ended with, which goes. */
static hutch_status end_of(hutch_task *task) {
  uint32_t state;
  hutch_status status;
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  CHECK_OK(hutch_task_status(task, &state, &status));
  hutch_task_release(task);
  return status;
}

/* --------------------------------------- answers that rest on what is not committed */

enum { REMOVES, POPS, REMOVES_MANY, REMOVES_ASYNC, REMOVES_BELOW, VAIN_WAYS };

static void remove_in_vain(void) {
  const void *key = "k";
  const size_t size = 1;
  hutch_value *value = NULL;
  hutch_batch *batch = NULL;
  hutch_task *task = NULL;
  switch (scene.way) {
    case REMOVES: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(scene.cache, "k", 1)); break;
    case POPS: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(scene.cache, "k", 1, &value)); break;
    case REMOVES_MANY: CHECK_OK(hutch_remove_many(scene.cache, &key, &size, 1, &batch)); break;
    case REMOVES_ASYNC:
      CHECK_OK(hutch_remove_async(scene.cache, "k", 1, NULL, &task));
      CHECK_STATUS(HUTCH_NOT_FOUND, end_of(task));
      break;
    default: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(scene.view, "k", 1)); break;
  }
  hutch_batch_release(batch);
}

static void remove_twice(void *context, int index) {
  if (index == 0) {
    at_write = stand;
    CHECK_OK(hutch_remove(scene.cache, "k", 1));
    at_write = NULL;
    return;
  }
  begin_other();
  remove_in_vain();
  atomic_store(&scene.other_is_done, 1);
  if (context) kill(getpid(), SIGKILL);
}

/* The first byte of the argument: which way. */
static hutch_cache *open_as_told(const char *argument, hutch_options *options) {
  scene.way = argument[0] - '0';
  begin_scene();
  scene.cache = open_cache(argument + 1, options);
  scene.view = tier_of(scene.cache, HUTCH_TIER_DISK);
  return scene.cache;
}

PROCESS(removes_twice_and_is_killed, argument) {
  hutch_options options = unlimited_options();
  open_as_told(argument, &options);
  CHECK_OK(put_text(scene.cache, "k", "value"));
  run_threads(2, remove_twice, &options);
}

static void run_and_be_killed(const char *name, int way, const char *directory) {
  char argument[sizeof(path) + 1];
  snprintf(argument, sizeof argument, "%d%s", way, directory);
  process child = start_process(name, argument);
  int status = end_process(&child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(a_removal_that_finds_nothing_is_not_undone_by_a_kill) {
  for (int way = REMOVES; way < VAIN_WAYS; way++) {
    path directory = scratch("cache");
    run_and_be_killed("removes_twice_and_is_killed", way, directory.text);
    hutch_cache *cache = open_cache(directory.text, NULL);
    CHECK_MISSING(cache, "k");
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

TEST(a_removal_that_finds_nothing_waits_for_the_one_that_took_it_where_processes_share) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  scene.cache = open_cache(scratch("cache").text, &options);
  scene.view = tier_of(scene.cache, HUTCH_TIER_DISK);
  for (scene.way = REMOVES; scene.way < VAIN_WAYS; scene.way++) {
    begin_scene();
    CHECK_OK(put_text(scene.cache, "k", "value"));
    run_threads(2, remove_twice, NULL);
    CHECK(!scene.other_was_done);
  }
  hutch_cache_release(scene.view);
  CHECK_OK(hutch_close(scene.cache));
}

/* The removal of what the disk has, by a put into memory alone, is being committed. */
static void put_above_and_remove_below(void *context, int index) {
  hutch_cache *memory = context;
  if (index == 0) {
    at_write = stand;
    CHECK_OK(hutch_put(memory, "k", 1, "new", 3, NULL, NULL));
    at_write = NULL;
    return;
  }
  begin_other();
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(scene.view, "k", 1));
  atomic_store(&scene.other_is_done, 1);
}

/* A removal from the disk tier that finds nothing there takes nothing from memory. */
TEST(a_removal_from_the_disk_that_finds_nothing_leaves_memory_its_entry) {
  hutch_options options = unlimited_options();
  scene.cache = open_cache(scratch("cache").text, &options);
  scene.view = tier_of(scene.cache, HUTCH_TIER_DISK);
  hutch_cache *memory = tier_of(scene.cache, HUTCH_TIER_MEMORY);
  begin_scene();
  CHECK_OK(put_text(scene.cache, "k", "old"));
  run_threads(2, put_above_and_remove_below, memory);
  CHECK_TEXT(scene.cache, "k", "new");
  hutch_cache_release(memory);
  hutch_cache_release(scene.view);
  CHECK_OK(hutch_close(scene.cache));
}

/* The first put's removal of what the disk has is being committed. */
static void put_twice(void *context, int index) {
  (void)context;
  if (index == 0) {
    at_write = stand;
    CHECK_OK(put_text(scene.cache, "k", "first"));
    at_write = NULL;
    return;
  }
  begin_other();
  if (scene.way == 0) CHECK_OK(put_text(scene.cache, "k", "second"));
  if (scene.way == 1) CHECK_OK(hutch_remove(scene.cache, "k", 1));
  if (scene.way == 2) {
    hutch_value *value;
    CHECK_OK(hutch_pop(scene.cache, "k", 1, &value));
  }
  kill(getpid(), SIGKILL);
}

static hutch_options deferring_options(void) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  return options;
}

PROCESS(puts_twice_and_is_killed, argument) {
  hutch_options options = deferring_options();
  open_as_told(argument, &options);
  CHECK_OK(put_text(scene.view, "k", "old"));
  run_threads(2, put_twice, NULL);
}

TEST(a_put_over_one_that_is_owed_brings_no_older_value_back) {
  for (int way = 0; way < 3; way++) {
    path directory = scratch("cache");
    run_and_be_killed("puts_twice_and_is_killed", way, directory.text);
    hutch_cache *cache = open_cache(directory.text, NULL);
    CHECK_MISSING(cache, "k");
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* ------------------------------------------------------------ another process */

typedef struct board {
  _Atomic int order, done;
  _Atomic int answer;
} board;

static board *map_board(const char *directory) {
  char file[sizeof(path) + 8];
  snprintf(file, sizeof file, "%s.board", directory);
  int descriptor = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(descriptor >= 0 && ftruncate(descriptor, sizeof(board)) == 0);
  void *mapped = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(mapped != MAP_FAILED);
  close(descriptor);
  return mapped;
}

enum { GET = 1, EVICT, PUT, END };

PROCESS(does_as_told, directory) {
  board *b = map_board(directory);
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(directory, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  pid_t parent = getppid();
  tell_ready();
  for (int order = 0; order != END;) {
    while ((order = atomic_load(&b->order)) == 0) {
      if (getppid() != parent) _exit(1);
      sched_yield();
    }
    hutch_value *value = NULL;
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
    if (order == GET) atomic_store(&b->answer, hutch_get(cache, KEY("k"), &value));
    if (order == EVICT) atomic_store(&b->answer, hutch_trim(disk, &spec, NULL));
    if (order == PUT) atomic_store(&b->answer, put_text(cache, "k", "other"));
    hutch_value_release(value);
    atomic_store(&b->order, 0);
    atomic_store(&b->done, 1);
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

static board *others;

static hutch_status tell(int order) {
  atomic_store(&others->done, 0);
  atomic_store(&others->order, order);
  while (!atomic_load(&others->done)) sched_yield();
  return atomic_load(&others->answer);
}

static process begin_sharing(void) {
  path directory = scratch("cache");
  others = map_board(directory.text);
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  scene.cache = open_cache(directory.text, &options);
  process other = start_process("does_as_told", directory.text);
  await_ready(&other);
  return other;
}

static void end_sharing(process *other) {
  tell(END);
  CHECK_EQUAL(0, end_process(other));
  CHECK_OK(hutch_close(scene.cache));
}

static void evict_it(void) { CHECK_OK(tell(EVICT)); }

/* The row is evicted by another process between the pop's look and its turn. */
TEST(a_pop_takes_the_copies_of_what_is_evicted_meanwhile) {
  process other = begin_sharing();
  for (int round = 0; round < 5; round++) {
    CHECK_OK(put_text(scene.cache, "k", "value"));
    CHECK_OK(tell(GET));
    CHECK_OK(tell(GET));
    CHECK_TEXT(scene.cache, "k", "value");
    hutch_value *value = NULL;
    at_turn = evict_it;
    CHECK_OK(hutch_pop(scene.cache, KEY("k"), &value));
    CHECK(!at_turn);
    hutch_value_release(value);
    CHECK_STATUS(HUTCH_NOT_FOUND, tell(GET));
    CHECK_MISSING(scene.cache, "k");
  }
  end_sharing(&other);
}

static void put_it(void) { CHECK_OK(tell(PUT)); }

static void count_event(void *context, const hutch_event *event) {
  (void)event;
  atomic_fetch_add((_Atomic int *)context, 1);
}

/* The condition is decided once more, for another process has put a value meanwhile. */
TEST(a_put_that_is_decided_twice_is_announced_once) {
  process other = begin_sharing();
  _Atomic int told = 0;
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_MEMORY;
  CHECK_OK(hutch_put(scene.cache, KEY("k"), KEY("mine"), &options, NULL));
  CHECK_OK(hutch_set_listener(scene.cache, HUTCH_EVENT_WILL_ADD, count_event, &told, NULL));
  at_turn = put_it;
  CHECK_OK(hutch_replace(scene.cache, KEY("k"), KEY("newer"), NULL, NULL));
  CHECK(!at_turn);
  CHECK_TEXT(scene.cache, "k", "newer");
  CHECK_EQUAL(1, atomic_load(&told));
  end_sharing(&other);
}

/* The look has found no entry, and the store finds one. */
TEST(a_put_that_the_store_refuses_is_not_counted_as_a_put) {
  process other = begin_sharing();
  uint64_t puts = stats_of(scene.cache).disk.puts;
  at_turn = put_it;
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(scene.cache, KEY("k"), KEY("mine"), NULL, NULL));
  CHECK(!at_turn);
  CHECK_EQUAL(puts, stats_of(scene.cache).disk.puts);
  CHECK_TEXT(scene.cache, "k", "other");
  end_sharing(&other);
}

static hutch_task *removal;

/* The put is submitted, and about to be committed; memory has its value. */
static void remove_meanwhile(void) {
  hutch_cache *memory = tier_of(scene.cache, HUTCH_TIER_MEMORY);
  CHECK_OK(hutch_remove_async(scene.cache, KEY("k"), NULL, &removal));
  while (hutch_contains(memory, KEY("k")) == HUTCH_OK) sched_yield();
  hutch_cache_release(memory);
}

/* The commit of the put changes the number by which the store knows memory's copy. Kinds: put into
   memory alone; the same over a row; put into both tiers, and too large for the disk. */
TEST(a_removal_finds_what_memory_alone_has_while_its_put_is_committed) {
  process other = begin_sharing();
  hutch_cache_limits limits = {.struct_size = sizeof limits, no_limits(), no_limits()};
  limits.disk.max_entry = 10000;
  CHECK_OK(hutch_set_limits(scene.cache, &limits));
  static char large[20000];
  for (int kind = 0; kind < 3; kind++) {
    hutch_put_options options = put_options();
    if (kind < 2) options.write_policy = HUTCH_WRITE_MEMORY;
    if (kind == 1) CHECK_OK(put_text(scene.cache, "k", "older"));
    at_turn = remove_meanwhile;
    CHECK_STATUS(kind < 2 ? HUTCH_OK : HUTCH_PARTIAL,
                 hutch_put(scene.cache, KEY("k"), large, kind < 2 ? 100 : sizeof large,
                           &options, NULL));
    CHECK(!at_turn);
    CHECK_OK(hutch_task_wait(removal, HUTCH_FOREVER));
    uint32_t state;
    hutch_status found;
    CHECK_OK(hutch_task_status(removal, &state, &found));
    CHECK_OK(found);
    hutch_task_release(removal);
    CHECK_MISSING(scene.cache, "k");
  }
  end_sharing(&other);
}

/* ------------------------------------------------ from memory to disk, with a codec */

static _Thread_local void (*at_encode)(void);
static _Atomic(void (*)(void)) at_any_encode;

static hutch_status copy_to(hutch_buffer *output, const void *input, size_t size) {
  void *room = hutch_buffer_resize(output, size);
  if (!room) return HUTCH_NO_MEMORY;
  memcpy(room, input, size);
  return HUTCH_OK;
}
static hutch_status encode(void *context, const void *input, size_t size, hutch_buffer *output) {
  (void)context;
  stop(&at_encode);
  void (*any)(void) = atomic_exchange(&at_any_encode, NULL);
  if (any) any();
  return copy_to(output, input, size);
}
static hutch_status decode(void *context, const void *input, size_t size, hutch_buffer *output) {
  (void)context;
  return copy_to(output, input, size);
}

static void use_codec(hutch_options *options, uint32_t id) {
  options->codec_id = id;
  options->codec_encode = encode;
  options->codec_decode = decode;
}

static void touch_it(void) { CHECK_OK(hutch_touch(scene.cache, "k", 1, HUTCH_HOUR, 0)); }
static void put_newer(void) { CHECK_OK(put_text(scene.cache, "k", "newer")); }

/* Only a copy goes: the entry is written first, as it is when it goes. */
TEST(a_removal_from_memory_loses_no_entry_that_is_owed) {
  hutch_options options = deferring_options();
  use_codec(&options, 7);
  scene.cache = open_cache(scratch("cache").text, &options);
  scene.view = tier_of(scene.cache, HUTCH_TIER_MEMORY);
  static void (*const changes[])(void) = {touch_it, put_newer};
  for (int change = 0; change < 2; change++) {
    CHECK_OK(put_text(scene.cache, "k", "value"));
    at_encode = changes[change];
    CHECK_OK(hutch_remove(scene.view, "k", 1));
    CHECK(!at_encode);
    CHECK_TEXT(scene.cache, "k", change ? "newer" : "value");

    CHECK_OK(put_text(scene.cache, "k", "value"));
    atomic_store(&at_any_encode, changes[change]);
    hutch_task *task;
    CHECK_OK(hutch_remove_async(scene.view, "k", 1, NULL, &task));
    CHECK_STATUS(change ? HUTCH_SUPERSEDED : HUTCH_OK, end_of(task));
    CHECK(!atomic_load(&at_any_encode));
    CHECK_TEXT(scene.cache, "k", change ? "newer" : "value");
  }
  hutch_cache_release(scene.view);
  CHECK_OK(hutch_close(scene.cache));
}

TEST(a_counter_takes_the_place_of_an_entry_of_another_codec) {
  for (uint32_t sharing = HUTCH_SHARING_EXCLUSIVE; sharing <= HUTCH_SHARING_SHARED; sharing++) {
    path directory = scratch("cache");
    hutch_options options = unlimited_options();
    options.sharing = sharing;
    use_codec(&options, 7);
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "k", "value"));
    CHECK_OK(hutch_close(cache));
    use_codec(&options, 9);
    cache = open_cache(directory.text, &options);
    CHECK_MISSING(cache, "k");
    int64_t sum = 0;
    CHECK_OK(hutch_increment(cache, KEY("k"), 1, 5, NULL, &sum));
    CHECK_EQUAL(6, sum);
    CHECK_OK(hutch_remove(cache, KEY("k")));
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("k")));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* --------------------------------------------------------------------- reads */

static char *large(char byte, size_t size) {
  char *data = malloc(size);
  memset(data, byte, size);
  return data;
}

enum { LARGE = 60000 };

static char first_byte_by_fd(hutch_cache *cache) {
  int32_t file = -1;
  char byte = 0;
  CHECK_OK(hutch_open_fd(cache, "k", 1, &file));
  CHECK_EQUAL(1, pread(file, &byte, 1, 0));
  close(file);
  return byte;
}

static hutch_cache *disk_view;

/* The disk has no entry, or one whose value begins so. */
static void check_below(char byte) {
  char *value = malloc(LARGE);
  size_t size = 0;
  hutch_status status = hutch_get_into(disk_view, "k", 1, value, LARGE, &size);
  if (status != HUTCH_NOT_FOUND) CHECK_OK(status);
  if (status == HUTCH_OK) CHECK_EQUAL(byte, value[0]);
  free(value);
}

static void put_and_read(void *context, int index) {
  char *data = context;
  if (index == 0) {
    at_step = stand;
    CHECK_OK(hutch_put(scene.cache, "k", 1, data, LARGE, NULL, NULL));
    CHECK(!at_step);
    return;
  }
  begin_other();
  hutch_value *value = get_value(scene.cache, "k");
  char seen = *(const char *)hutch_value_data(value);
  hutch_value_release(value);
  CHECK_EQUAL('n', seen);
  if (disk_view)
    check_below(seen);
  else
    CHECK_EQUAL(seen, first_byte_by_fd(scene.cache));
  atomic_store(&scene.other_is_done, 1);
}

/* Memory has the new value, and what the disk has is about to be removed. */
TEST(a_file_descriptor_shows_nothing_older_than_a_get_before_it) {
  hutch_options options = deferring_options();
  scene.cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(scene.cache, HUTCH_TIER_DISK);
  char *old = large('o', LARGE), *new = large('n', LARGE);
  CHECK_OK(hutch_put(disk, "k", 1, old, LARGE, NULL, NULL));
  begin_scene();
  run_threads(2, put_and_read, new);
  CHECK_EQUAL('n', first_byte_by_fd(scene.cache));
  free(old);
  free(new);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(scene.cache));
}

TEST(a_view_of_the_disk_shows_nothing_older_than_a_get_before_it) {
  hutch_options options = deferring_options();
  scene.cache = open_cache(scratch("cache").text, &options);
  disk_view = tier_of(scene.cache, HUTCH_TIER_DISK);
  char *old = large('o', LARGE), *new = large('n', LARGE);
  CHECK_OK(hutch_put(disk_view, "k", 1, old, LARGE, NULL, NULL));
  begin_scene();
  run_threads(2, put_and_read, new);
  free(old);
  free(new);
  hutch_cache_release(disk_view);
  CHECK_OK(hutch_close(scene.cache));
}

/* Puts keys of every stripe, and waits for no commit. */
static void *disturb(void *unused) {
  (void)unused;
  atomic_store(&scene.other, (int)syscall(SYS_gettid));
  for (uint32_t key = 0; key < 600; key++) {
    CHECK_OK(hutch_put(scene.cache, &key, sizeof key, "v", 1, NULL, NULL));
  }
  atomic_store(&scene.other_is_done, 1);
  return NULL;
}

static pthread_t disturbers[64];
static int rounds;

/* In every look at the store again, until this was far too often. */
static void disturb_read(void) {
  begin_scene();
  CHECK(pthread_create(&disturbers[rounds], NULL, disturb, NULL) == 0);
  wait_for_other();
  if (++rounds < 60) at_step = disturb_read;
}

TEST(a_get_that_finds_nothing_is_one_miss_however_much_is_written) {
  hutch_options options = deferring_options();
  scene.cache = open_cache(scratch("cache").text, &options);
  uint64_t misses = stats_of(scene.cache).disk.misses;
  at_step = disturb_read;
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(scene.cache, KEY("absent"), &value));
  at_step = NULL;
  CHECK(rounds > 1 && rounds < 30);
  CHECK_EQUAL(misses + 1, stats_of(scene.cache).disk.misses);
  at_step = disturb_read;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(scene.cache, KEY("absent")));
  at_step = NULL;
  CHECK(rounds < 60);
  for (int i = 0; i < rounds; i++) pthread_join(disturbers[i], NULL);
  CHECK_OK(hutch_close(scene.cache));
}

/* ------------------------------------------------------------- late writes */

/* A put that is a task, and a removal or a clear right after its submission, of a key that is not
   there: whichever comes first, nothing is there afterwards. */
TEST(what_is_removed_after_the_submission_of_a_put_stays_away) {
  for (int with_listener = 0; with_listener < 2; with_listener++) {
    hutch_cache *cache = open_cache(NULL, NULL);
    _Atomic int told = 0;
    if (with_listener) {
      CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD, count_event, &told, NULL));
    }
    for (int round = 0; round < 20000 * scale(); round++) {
      hutch_task *task;
      CHECK_OK(hutch_put_async(cache, "k", 1, "v", 1, NULL, NULL, &task));
      if (round % 4 == 0) CHECK_OK(hutch_clear(cache));
      else if (round % 4 == 1) {
        hutch_task *clearing;
        CHECK_OK(hutch_clear_async(cache, NULL, &clearing));
        CHECK_OK(end_of(clearing));
      } else {
        hutch_status status = hutch_remove(cache, "k", 1);
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
      }
      hutch_status status = end_of(task);
      CHECK(status == HUTCH_OK || status == HUTCH_SUPERSEDED);
      CHECK_MISSING(cache, "k");
    }
    CHECK_OK(hutch_close(cache));
  }
}

/* ------------------------------------------- what has expired on disk and is not yet swept */

TEST(a_deferred_put_takes_the_place_of_what_has_expired) {
  for (int way = 0; way < 4; way++) {
    path directory = scratch("cache");
    test_clock clock = {0};
    hutch_options options = deferring_options();
    options.workers = 0;
    use_clock(&options, &clock);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    hutch_put_options put = put_options();
    put.time_to_idle = HUTCH_SECOND;
    CHECK_OK(hutch_put(cache, KEY("k"), KEY("old"), &put, NULL));
    CHECK_OK(hutch_flush(cache));
    atomic_fetch_add(&clock.now, HUTCH_SECOND * 11 / 10);
    CHECK_MISSING(cache, "k");
    put = put_options();
    if (way == 1) put.time_to_live = HUTCH_SECOND / 5;
    if (way == 2) CHECK_OK(hutch_add(cache, KEY("k"), KEY("new"), &put, NULL));
    else CHECK_OK(hutch_put(cache, KEY("k"), KEY("new"), &put, NULL));
    CHECK_TEXT(cache, "k", "new");
    CHECK_MISSING(disk, "k");
    CHECK_EQUAL(1, count_of(cache));
    CHECK_OK(hutch_maintain(cache, HUTCH_SECOND));
    if (way == 1) atomic_fetch_add(&clock.now, HUTCH_SECOND / 4);
    else CHECK_OK(hutch_remove(cache, KEY("k")));
    CHECK_MISSING(cache, "k");
    CHECK_MISSING(disk, "k");
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

TEST(a_touch_of_what_reads_in_memory_keep_alive_is_not_lost) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.workers = 0;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_put_options put = put_options();
  put.time_to_idle = HUTCH_SECOND;
  CHECK_OK(hutch_put(cache, KEY("k"), KEY("value"), &put, NULL));
  for (int i = 0; i < 3; i++) {
    atomic_fetch_add(&clock.now, HUTCH_SECOND * 7 / 10);
    CHECK_TEXT(cache, "k", "value");
  }
  CHECK_OK(hutch_touch(cache, KEY("k"), 0, HUTCH_FOREVER));
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_clear(memory));
  atomic_fetch_add(&clock.now, HUTCH_HOUR);
  CHECK_TEXT(cache, "k", "value");
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST(what_was_written_after_a_clear_of_the_disk_is_there_for_conditions) {
  for (int way = 0; way < 6; way++) {
    path directory = scratch("cache");
    test_clock clock = {0};
    hutch_options options = deferring_options();
    options.workers = 0;
    options.disk.time_to_live = HUTCH_SECOND;
    use_clock(&options, &clock);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    int64_t number = 41;
    hutch_put_result result = new_result();
    CHECK_OK(hutch_put(cache, KEY("k"), &number, sizeof number, NULL, &result));
    CHECK_OK(hutch_clear(disk));
    CHECK_OK(hutch_flush(cache));
    atomic_fetch_add(&clock.now, HUTCH_SECOND * 11 / 10);
    hutch_value *value = get_value(cache, "k");
    hutch_value_release(value);
    switch (way) {
      case 0: CHECK_OK(hutch_remove(cache, KEY("k"))); break;
      case 1: CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("k"), "x", 1, NULL, NULL)); break;
      case 2: CHECK_OK(hutch_replace(cache, KEY("k"), "x", 1, NULL, NULL)); break;
      case 3:
        CHECK_OK(hutch_pop(cache, KEY("k"), &value));
        hutch_value_release(value);
        break;
      case 4:
        CHECK_OK(hutch_compare_and_swap(cache, KEY("k"), result.version, "x", 1, NULL, NULL));
        break;
      default:
        CHECK_OK(hutch_increment(cache, KEY("k"), 1, 0, NULL, &number));
        CHECK_EQUAL(42, number);
    }
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* ------------------------------------------------------------- a touch that began earlier */

static struct {
  hutch_cache *cache;
  _Atomic int64_t now;
} late;

/* This thread's touch has read the clock, and stands until the key is put, a minute later. */
static _Thread_local bool is_early;

static void put_later(void *unused, int index) {
  (void)unused, (void)index;
  atomic_fetch_add(&late.now, 60 * HUTCH_SECOND);
  hutch_put_options put = put_options();
  put.time_to_live = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(late.cache, KEY("key"), KEY("value"), &put, NULL));
}

static int64_t read_late_clock(void *unused) {
  (void)unused;
  int64_t now = atomic_load(&late.now);
  if (is_early) {
    is_early = false;
    run_threads(1, put_later, NULL);
  }
  return now;
}

/* It counts from a time at which the entry was there, so the entry does not end at once. */
TEST(a_touch_that_began_before_the_put_does_not_end_the_entry) {
  static const uint32_t kinds[] = {HUTCH_STORAGE_SQLITE, HUTCH_STORAGE_SQLITE,
                                   HUTCH_STORAGE_SQLITE, HUTCH_STORAGE_LOG};
  for (int kind = 0; kind < 5; kind++) {
    hutch_options options = unlimited_options();
    atomic_store(&late.now, 20500 * HUTCH_DAY);
    options.clock = read_late_clock;
    if (kind > 0) options.storage = kinds[kind - 1];
    if (kind > 1) options.sharing = kind == 3 ? HUTCH_SHARING_SHARED : HUTCH_SHARING_EXCLUSIVE;
    if (kind == 2) options.write_policy = HUTCH_WRITE_ON_EVICTION;
    late.cache = open_cache(kind > 0 ? scratch("cache").text : NULL, &options);
    for (int is_there = 0; is_there < 2; is_there++) {
      for (int times = 0; times < 2; times++) {
        hutch_status status = hutch_remove(late.cache, KEY("key"));
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
        if (is_there) CHECK_OK(put_text(late.cache, "key", "older"));
        is_early = true;
        CHECK_OK(hutch_touch(late.cache, KEY("key"), times * 20 * HUTCH_SECOND, 0));
        CHECK(!is_early);
        atomic_fetch_add(&late.now, (times ? 20 : 10) * HUTCH_SECOND - 1);
        CHECK_TEXT(late.cache, "key", "value");
        atomic_fetch_add(&late.now, 1);
        CHECK_MISSING(late.cache, "key");
      }
    }
    CHECK_OK(hutch_close(late.cache));
    if (kind > 0) remove_tree(scratch("cache").text);
  }
}

/* --------------------------------------------------------- a write-back that is refused */

static struct {
  hutch_cache *cache;
  int added_to_disk, left_memory, left_disk;
} refused;

static void note_refused(void *unused, const hutch_event *event) {
  (void)unused;
  bool is_added = event->kind == HUTCH_EVENT_DID_ADD;
  if (is_added && event->tiers & HUTCH_TIER_DISK) refused.added_to_disk++;
  if (!is_added && event->tiers & HUTCH_TIER_MEMORY) refused.left_memory++;
  if (!is_added && event->tiers & HUTCH_TIER_DISK) refused.left_disk++;
}

static void trim_memory(void *memory, int index) {
  (void)index;
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
  CHECK_OK(hutch_trim(memory, &spec, NULL));
}

/* Within the commit of the write-back: memory evicts the entry, and there is no space. */
static void evict_and_fill(void) {
  hutch_cache *memory = tier_of(refused.cache, HUTCH_TIER_MEMORY);
  run_threads(1, trim_memory, memory);
  hutch_cache_release(memory);
  is_full = true;
}

/* The entry is lost, as evicted. The listener is told that it left memory, and is never told that
   it came to the disk tier. */
TEST(what_memory_evicts_during_a_write_back_that_is_refused_is_told_once) {
  for (int is_evicted = 0; is_evicted < 2; is_evicted++) {
    hutch_options options = unlimited_options();
    options.sharing = HUTCH_SHARING_EXCLUSIVE;
    options.storage = HUTCH_STORAGE_SQLITE;
    options.write_policy = HUTCH_WRITE_ON_EVICTION;
    memset(&refused, 0, sizeof refused);
    refused.cache = open_cache(scratch("cache").text, &options);
    CHECK_OK(hutch_set_listener(refused.cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE,
                                note_refused, NULL, NULL));
    CHECK_OK(put_text(refused.cache, "key", "value"));
    if (is_evicted) at_write = evict_and_fill;
    else is_full = true;
    CHECK_STATUS(HUTCH_NO_SPACE, hutch_flush(refused.cache));
    CHECK(!at_write && is_full);
    is_full = false;
    CHECK_EQUAL(is_evicted, refused.left_memory);
    CHECK_EQUAL(0, refused.added_to_disk);
    CHECK_EQUAL(0, refused.left_disk);
    CHECK_EQUAL(!is_evicted, count_of(refused.cache));
    /* What memory has still is written by the next flush. */
    CHECK_OK(hutch_flush(refused.cache));
    CHECK_EQUAL(!is_evicted, refused.added_to_disk);
    if (is_evicted) CHECK_MISSING(refused.cache, "key");
    else CHECK_TEXT(refused.cache, "key", "value");
    CHECK_OK(hutch_close(refused.cache));
    remove_tree(scratch("cache").text);
  }
}

/* ------------------------------------------- a put that is refused, and a touch meanwhile */

static _Atomic int in_commit;

/* The put stands within its commit until the touch is about to put its copy into memory. */
static void fail_once_the_other_stands(void) {
  atomic_store(&in_commit, 1);
  begin_other();
  is_full = true;
}

static void put_and_touch(void *unused, int index) {
  (void)unused;
  if (index == 0) {
    static char data[LARGE_BLOCK];
    at_write = fail_once_the_other_stands;
    CHECK_STATUS(HUTCH_PARTIAL, hutch_put(scene.cache, KEY("key"), data, LARGE_BLOCK, NULL, NULL));
    is_full = false;
    atomic_store(&scene.other_is_done, 1);
    return;
  }
  while (!atomic_load(&in_commit)) sched_yield();
  at_large_block = stand;
  hutch_status status = hutch_touch(scene.cache, KEY("key"), HUTCH_HOUR, 0);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  CHECK(!at_large_block);
}

/* The touch has seen the put among the pending writes. Its copy is memory's alone all the same. */
TEST(a_touch_during_a_put_that_the_disk_refuses_leaves_an_entry_of_memory_alone) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  options.storage = HUTCH_STORAGE_SQLITE;
  begin_scene();
  atomic_store(&in_commit, 0);
  scene.cache = open_cache(scratch("cache").text, &options);
  run_threads(2, put_and_touch, NULL);
  CHECK_EQUAL(1, count_of(scene.cache));
  CHECK_OK(hutch_close(scene.cache));
}

/* The frames of a commit: the rows' pages, those of the index of keys, and others. */
TEST(a_commit_reaches_the_log_of_sqlite_in_one_write) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_SQLITE;
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  for (int i = 0; i < 20; i++) {
    writes = 0;
    CHECK_OK(put_size(cache, i % 2 ? "key" : "other", 1000));
    CHECK_EQUAL(1, writes);
  }
  CHECK_OK(hutch_close(cache));
}
