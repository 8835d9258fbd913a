/*
 * Mistakes that other caches have made, each as a test that fails if Hutch makes it.
 *
 *    1  tiers.c             a promoted entry lost its cost and its expiry
 *    2  traps_calls.c       an old value came back into memory by a promotion
 *    3  threads.c           two puts of one key left one value in memory, another on disk
 *    4  tiers.c             what was too large was dropped in silence, the old file stayed
 *    5  traps_calls.c       a write that failed was told as done
 *    6  here                the sum of bytes was overwritten at the opening
 *    7  entries.c           contains did not look at the age, get did
 *    8  here                the sweep of the expired knew entries' own ages only
 *    9  here                the default age held only once it had been set
 *   10  here                statements were not reset, and the log grew
 *   11  steps.c             files were written in place over the old ones
 *   12  steps.c             a row that replaces a file: the file went before the commit
 *   13  here                sums in a C int
 *   14  files.c             orphans were never collected
 *   15  traps_calls.c       a trim held a lock as long as it took
 *   16  faults.c            opening listed the directory
 *   17  here                keys became names of files
 *   18  traps_calls.c       a call waited for a task of its own, and the pool was full
 *   19  async.c             a cache that was given up never made its completions
 *   20  traps_calls.c       the thread of the ages kept the cache alive
 *   21  faults.c            free space was asked of the wrong file system
 *   22  here                a read wrote its time to the database
 *   23  here                the cost of what was replaced stayed
 *   24  queues.c            a task ran twice when its priority was changed
 *   25  here                trash survived a kill
 *   26  here, and rules.py: exports
 *                           POSIX locks were lost: two copies of SQLite, or an open and close
 *   27  fork_amid.c         the child waited for a lock of a thread that it did not have
 *   28  fork_both.c         the child opened connections of its own, and held no lock
 *   29  traps_calls.c       a sweep took the file of a put that was under way
 *   30  Tests/Python/test_traps.py
 *                           pickle by default made a directory a way to run code
 *
 * The names of the tests begin with the number: ctest -R '[.]trap_7_'. scripts/traps puts each mistake
 * into a copy of the sources and shows that its test fails.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void put_filled(hutch_cache *cache, uint32_t key, size_t size, uint64_t number) {
  void *value = filled(size, number);
  CHECK_OK(hutch_put(cache, &key, sizeof key, value, size, NULL, NULL));
  free(value);
}

static hutch_status get_number(hutch_cache *cache, uint32_t key) {
  hutch_value *value = NULL;
  hutch_status status = hutch_get(cache, &key, sizeof key, &value);
  hutch_value_release(value);
  return status;
}

/* By stat only: to open and close the database's file drops SQLite's locks. */
static struct stat state_of(path directory, const char *name) {
  struct stat state;
  CHECK(stat(in_directory(directory.text, name).text, &state) == 0);
  return state;
}

/* ------------------------------------------------------------- the log */

enum { LOG_BOUND = 16 << 20 };

typedef struct load {
  hutch_cache *disk;
  path directory;
  atomic_bool done;
  _Atomic int64_t largest;
  /* Asks the readers to stand between two reads; how many do. */
  atomic_bool pauses;
  _Atomic int standing;
} load;

enum { READERS = 2 };

static void put_and_look(load *l, uint32_t key, uint64_t number) {
  put_filled(l->disk, key, 15000, number);
  int64_t size = state_of(l->directory, "manifest.sqlite-wal").st_size;
  if (size > l->largest) l->largest = size;
}

/* A read that is under way keeps the log, and on a busy machine one always is: a reader stops in its
   midst for others to run. So these puts meet no read. */
static void put_between_reads(load *l, uint32_t puts) {
  atomic_store(&l->pauses, true);
  while (atomic_load(&l->standing) < READERS) nap();
  for (uint32_t i = 0; i < puts; i++) put_and_look(l, i % 500, i);
  atomic_store(&l->pauses, false);
}

static void stand_if_asked(load *l) {
  if (!atomic_load(&l->pauses)) return;
  atomic_fetch_add(&l->standing, 1);
  while (atomic_load(&l->pauses)) nap();
  atomic_fetch_sub(&l->standing, 1);
}

static void read_or_write(void *context, int index) {
  load *l = context;
  uint64_t state = (uint64_t)index + 1;
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (index > 0) {
    /* Readers, one of them with a cursor that stays open. */
    hutch_cursor *cursor = NULL;
    CHECK_OK(hutch_cursor_create(l->disk, &cursor));
    while (!atomic_load(&l->done)) {
      const void *key;
      size_t size;
      get_number(l->disk, (uint32_t)(next_random(&state) % 500));
      if (index == 1) hutch_cursor_next(cursor, &key, &size);
      stand_if_asked(l);
    }
    hutch_cursor_release(cursor);
    return;
  }
  for (int i = 0;; i++) {
    put_and_look(l, (uint32_t)(next_random(&state) % 500), state);
    if (i % 64 == 0) put_between_reads(l, 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* With HUTCH_LONG a minute. */
    if (scale() > 1 ? now.tv_sec - begin.tv_sec >= 60 : i == 300) break;
  }
  /* More than the bound. */
  put_between_reads(l, 1300);
  atomic_store(&l->done, true);
}

/* Where statements are not reset a reader that stands keeps the log: it grew past 200 MB. */
TEST(trap_10_the_log_stays_within_its_bound_while_others_read) {
  load l = {.directory = scratch("log")};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(l.directory.text, &options);
  l.disk = tier_of(cache, HUTCH_TIER_DISK);
  run_threads(1 + READERS, read_or_write, &l);
  CHECK(l.largest > 0);
  CHECK(l.largest <= LOG_BOUND);
  hutch_cache_release(l.disk);
  CHECK_OK(hutch_close(cache));
}

/* Readers that have read twice keep their transactions: not in the way of the log. */
TEST(the_log_stays_within_its_bound_while_nobody_reads) {
  load l = {.directory = scratch("log")};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(l.directory.text, &options);
  l.disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int round = 0; round < 3; round++) {
    put_filled(l.disk, 0, 100, (uint64_t)round);
    for (int i = 0; i < 4; i++) CHECK_OK(get_number(l.disk, 0));
    for (uint32_t i = 0; i < 600; i++) {
      put_filled(l.disk, i % 500, 15000, i);
      int64_t size = state_of(l.directory, "manifest.sqlite-wal").st_size;
      if (size > l.largest) l.largest = size;
    }
  }
  CHECK(l.largest > 0);
  CHECK(l.largest <= LOG_BOUND);
  hutch_cache_release(l.disk);
  CHECK_OK(hutch_close(cache));
}

/* A reader that has to wait for a processor in the midst of a read is not in the way for long. */
static void read_or_put(void *context, int index) {
  load *l = context;
  uint64_t state = (uint64_t)index + 1;
  if (index > 0) {
    while (!atomic_load(&l->done)) get_number(l->disk, (uint32_t)(next_random(&state) % 100));
    return;
  }
  for (int i = repeats(600); i > 0; i--)
    put_filled(l->disk, (uint32_t)(next_random(&state) % 100), 3000, state);
  atomic_store(&l->done, true);
}

TEST(reads_refuse_no_puts_where_the_log_is_small) {
  load l = {.directory = scratch("log")};
  hutch_options options = unlimited_options();
  options.disk.cost = 500000;
  hutch_cache *cache = open_cache(l.directory.text, &options);
  l.disk = tier_of(cache, HUTCH_TIER_DISK);
  run_threads(1 + 2 * READERS, read_or_put, &l);
  hutch_cache_release(l.disk);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- sums */

TEST(trap_13_sums_beyond_two_gigabytes) {
  path directory = scratch("sums");
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t i = 0; i < 5; i++) put_filled(cache, i, 100, i);
  CHECK_OK(hutch_close(cache));
  run_sql(directory, "UPDATE entries SET charge = 3000000000; UPDATE meta SET bytes = 15000000000");
  cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  uint64_t before = cost_of(disk);
  CHECK(before >= UINT64_C(15000000000));
  uint32_t key = 0;
  CHECK_OK(hutch_remove(disk, &key, sizeof key));
  CHECK(cost_of(disk) <= before - UINT64_C(2999000000));
  CHECK(cost_of(disk) >= before - UINT64_C(3001000000));
  for (key = 1; key < 5; key++) CHECK_OK(hutch_remove(disk, &key, sizeof key));
  CHECK(cost_of(disk) < 1 << 20);
  hutch_check_report report = report_of(disk, 0);
  CHECK_EQUAL(0, report.counters);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* --------------------------------------------------------------- reads */

TEST(trap_22_a_read_writes_nothing) {
  path directory = scratch("reads");
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  /* Maintenance of its own would write what the puts have left. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 100; i++) put_filled(cache, i, i % 10 ? 100 : 50000, i);
  CHECK_OK(hutch_flush(cache));
  struct stat log = state_of(directory, "manifest.sqlite-wal");
  struct stat file = state_of(directory, "manifest.sqlite");
  for (int i = 0; i < 2000; i++) {
    CHECK_OK(get_number(disk, (uint32_t)i % 100));
    CHECK_OK(get_number(cache, (uint32_t)i % 100));
    CHECK_STATUS(HUTCH_NOT_FOUND, get_number(disk, 1000));
  }
  struct stat log_after = state_of(directory, "manifest.sqlite-wal");
  struct stat file_after = state_of(directory, "manifest.sqlite");
  CHECK_EQUAL(log.st_size, log_after.st_size);
  CHECK_EQUAL(0, memcmp(&log.st_mtim, &log_after.st_mtim, sizeof log.st_mtim));
  CHECK_EQUAL(0, memcmp(&file.st_mtim, &file_after.st_mtim, sizeof file.st_mtim));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------------------- ages */

static hutch_options aged_options(test_clock *clock) {
  hutch_options options = default_options();
  use_clock(&options, clock);
  options.memory.time_to_live = options.disk.time_to_live = HUTCH_DAY;
  return options;
}

/* No entry has an age of its own, and no caller asks for one: the sweep alone removes them. */
TEST(trap_8_a_trim_of_the_expired_removes_what_lives_by_the_tiers_age) {
  for (uint32_t tier = HUTCH_TIER_MEMORY; tier <= HUTCH_TIER_DISK; tier++) {
    test_clock clock = {0};
    hutch_options options = aged_options(&clock);
    hutch_cache *cache = open_cache(scratch(tier == 1 ? "1" : "2").text, &options);
    hutch_cache *view = tier_of(cache, tier);
    for (uint32_t i = 0; i < 300; i++) put_filled(view, i, 100, i);
    clock.now += HUTCH_DAY;
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
    uint64_t removed = 0;
    CHECK_OK(hutch_trim(view, &spec, &removed));
    hutch_cache_stats stats = stats_of(view);
    CHECK_EQUAL(0, tier == HUTCH_TIER_MEMORY ? stats.memory.count : stats.disk.count);
    /* The maintenance thread may have taken some. */
    CHECK_EQUAL(300, tier == HUTCH_TIER_MEMORY ? stats.memory.expirations
                                               : stats.disk.expirations);
    hutch_cache_release(view);
    CHECK_OK(hutch_close(cache));
  }
}

/* No setter is called. */
TEST(trap_9_the_age_of_the_options_holds_by_itself) {
  for (uint32_t tier = HUTCH_TIER_MEMORY; tier <= HUTCH_TIER_DISK; tier++) {
    test_clock clock = {0};
    hutch_options options = aged_options(&clock);
    hutch_cache *cache = open_cache(scratch(tier == 1 ? "1" : "2").text, &options);
    hutch_cache *view = tier_of(cache, tier);
    for (uint32_t i = 0; i < 300; i++) put_filled(view, i, 100, i);
    clock.now += HUTCH_DAY - HUTCH_SECOND;
    CHECK_EQUAL(300, count_of(view));
    CHECK_OK(get_number(view, 7));
    clock.now += HUTCH_SECOND;
    CHECK_STATUS(HUTCH_NOT_FOUND, get_number(view, 7));
    CHECK_EQUAL(0, count_of(view));
    hutch_cache_release(view);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(ages_of_the_tier_change_live) {
  test_clock clock = {0};
  hutch_options options = default_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("ages").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 300; i++) put_filled(disk, i, 100, i);
  clock.now += HUTCH_HOUR;
  hutch_cache_limits limits = limits_of(disk);
  limits.disk.time_to_live = HUTCH_FOREVER;
  limits.disk.time_to_idle = 2 * HUTCH_HOUR;
  CHECK_OK(hutch_set_limits(disk, &limits));
  for (uint32_t i = 0; i < 300; i += 3) CHECK_OK(get_number(disk, i));
  clock.now += HUTCH_HOUR;
  uint32_t key = 1;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(disk, &key, sizeof key));
  CHECK_EQUAL(100, count_of(disk));
  limits.disk.time_to_idle = HUTCH_FOREVER;
  limits.disk.time_to_live = 90 * HUTCH_MINUTE;
  CHECK_OK(hutch_set_limits(disk, &limits));
  uint64_t removed;
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(0, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------ what an earlier process left */

static void reopen_killed(const char *process_name, path directory) {
  process child = start_process(process_name, directory.text);
  await_ready(&child);
  CHECK(kill(child.pid, SIGKILL) == 0);
  CHECK_EQUAL(SIGKILL, WTERMSIG(end_process(&child)));
}

PROCESS(puts_twenty, directory) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options);
  for (uint32_t i = 0; i < 20; i++) put_filled(cache, i, i % 2 ? 100 : 50000, i);
  tell_ready();
  await_end();
}

/* What is written and removed while the opening looks through the directory counts too. */
TEST(trap_6_the_sum_of_bytes_goes_on_where_it_was) {
  path directory = scratch("sum");
  reopen_killed("puts_twenty", directory);
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK(cost_of(disk) >= 10 * 50000);
  for (uint32_t i = 0; i < 5; i++) put_filled(cache, i, 100, i);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(cost_of(disk) >= 7 * 50000);
  for (uint32_t key = 0; key < 20; key++) CHECK_OK(hutch_remove(cache, &key, sizeof key));
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK(cost_of(disk) < 1 << 20);
  hutch_check_report report = report_of(disk, 0);
  CHECK_EQUAL(0, report.counters);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

static void count_files(void *context, const char *file, const struct stat *status) {
  (void)status;
  const char *trash = strstr(file, "/trash/");
  if (trash) ++*(int *)context;
}

/* Nothing unlinks what it removes. */
enum { REMOVED_SIZE = 200000 };

PROCESS(removes_and_waits, directory) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory, &options);
  for (uint32_t i = 0; i < 10; i++) put_filled(cache, i, REMOVED_SIZE, i);
  for (uint32_t i = 0; i < 10; i++) CHECK_OK(hutch_remove(cache, &i, sizeof i));
  tell_ready();
  await_end();
}

TEST(trap_25_trash_does_not_survive_a_kill) {
  path directory = scratch("killed");
  reopen_killed("removes_and_waits", directory);
  int files = 0;
  each_file(directory.text, count_files, &files);
  CHECK_EQUAL(10, files);
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(hutch_maintain(cache, 0));
  files = 0;
  each_file(directory.text, count_files, &files);
  CHECK_EQUAL(0, files);
  /* What the processes share and an empty manifest are left. */
  CHECK(bytes_below(directory.text) < 10 * REMOVED_SIZE / 2);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ keys */

TEST(trap_17_keys_are_no_names_of_files) {
  static char longest[HUTCH_KEY_MAX];
  memset(longest, 'x', sizeof longest);
  const struct { const char *data; size_t size; } keys[] = {
      {longest, sizeof longest}, {longest, 256}, {".", 1}, {"..", 2}, {"../../escape", 12},
      {"/", 1}, {"a/b", 3}, {"a\0b", 3}, {"\0", 1}, {"\xff\xfe", 2}, {"manifest.sqlite", 15}};
  enum { KEYS = sizeof keys / sizeof *keys };
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_FILE;
  path directory = scratch("names");
  for (int opening = 0; opening < 2; opening++) {
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    for (uint32_t i = 0; i < KEYS; i++) {
      /* Each of the two has its own way to a file. */
      if (opening == 0)
        CHECK_OK(hutch_put(i % 2 ? disk : cache, keys[i].data, keys[i].size, &i, sizeof i, NULL,
                           NULL));
      uint32_t stored = KEYS;
      size_t size;
      CHECK_OK(hutch_get_into(disk, keys[i].data, keys[i].size, &stored, sizeof stored, &size));
      CHECK_EQUAL(i, stored);
    }
    CHECK_EQUAL(KEYS, count_of(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
  }
}

/* ----------------------------------------------------------------- costs */

TEST_EACH_KIND(trap_23_what_is_replaced_is_charged_no_more) {
  uint64_t nothing = cost_of(f->cache);
  /* In a row and in a file, in turn; on disk the log is charged too, up to 4 MB of it. */
  const size_t sizes[] = {1000, 200000};
  const uint64_t log = has_disk(k) ? 5 << 20 : 0;
  for (int n = 0; n < 101; n++) put_filled(f->cache, 1, sizes[n % 2], (uint64_t)n);
  CHECK_OK(hutch_maintain(f->cache, 0));
  CHECK_EQUAL(1, count_of(f->cache));
  CHECK(cost_of(f->cache) < nothing + 10000 + log);
  uint32_t key = 1;
  CHECK_OK(hutch_remove(f->cache, &key, sizeof key));
  CHECK_OK(hutch_maintain(f->cache, 0));
  CHECK(cost_of(f->cache) <= nothing + log);
  if (!has_disk(k)) return;
  hutch_check_report report = report_of(f->cache, 0);
  CHECK_EQUAL(0, report.counters);
}

/* ----------------------------------------------------------------- locks */

/* Ends with 0 if another process has a POSIX lock on the file. */
PROCESS(sees_a_lock, file) {
  int descriptor = open(file, O_RDWR);
  CHECK(descriptor >= 0);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(fcntl(descriptor, F_GETLK, &lock) == 0);
  CHECK(lock.l_type != F_UNLCK);
  tell_ready();
}

static void check_locked(path directory, const char *name) {
  process child = start_process("sees_a_lock", in_directory(directory.text, name).text);
  CHECK_EQUAL(0, end_process(&child));
}

/* A close of any descriptor of a file drops the process's POSIX locks on it. */
TEST(trap_26_nothing_that_the_library_does_drops_sqlites_locks) {
  path directory = scratch("locks");
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  check_locked(directory, "manifest.sqlite");
  for (uint32_t i = 0; i < 50; i++) put_filled(cache, i, i % 10 ? 100 : 50000, i);
  hutch_cache *again = NULL;
  CHECK_OK(hutch_open(directory.text, &options, &again));
  CHECK_OK(get_number(again, 1));
  CHECK_OK(hutch_close(again));
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  report_of(disk, 0);
  hutch_cache_limits limits = limits_of(disk);
  limits.disk.count = 40;
  limits.disk.min_free = 1;
  CHECK_OK(hutch_set_limits(disk, &limits));
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 30};
  CHECK_OK(hutch_trim(disk, &spec, NULL));
  stats_of(disk);
  CHECK_OK(hutch_flush(cache));
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_OK(hutch_clear(cache));
  CHECK_OK(hutch_maintain(cache, 0));
  hutch_cache_release(disk);
  check_locked(directory, "manifest.sqlite");
  check_locked(directory, "manifest.sqlite-shm");
  CHECK_OK(hutch_close(cache));
}
