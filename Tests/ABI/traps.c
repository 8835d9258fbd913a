/* Mistakes that other caches have made on disk, each as a test. */
#define _GNU_SOURCE
#include "check.h"

#include <sqlite3.h>
#include <sys/stat.h>

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

/* By stat only: whoever opens and closes the database by itself drops SQLite's locks. */
static struct stat state_of(path directory, const char *name) {
  char file[4200];
  snprintf(file, sizeof file, "%s/%s", directory.text, name);
  struct stat state;
  CHECK(stat(file, &state) == 0);
  return state;
}

/* ------------------------------------------------------------- the log */

enum { LOG_BOUND = 16 << 20 };

typedef struct load {
  hutch_cache *disk;
  path directory;
  atomic_bool done;
  _Atomic int64_t largest;
} load;

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
    }
    hutch_cursor_release(cursor);
    return;
  }
  for (int i = 0;; i++) {
    put_filled(l->disk, (uint32_t)(next_random(&state) % 500), 15000, state);
    int64_t size = state_of(l->directory, "manifest.sqlite-wal").st_size;
    if (size > l->largest) l->largest = size;
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* More than the bound; with HUTCH_LONG a minute. */
    if (scale() > 1 ? now.tv_sec - begin.tv_sec >= 60 : i == 1300) break;
  }
  atomic_store(&l->done, true);
}

/* 10. Statements were not reset, checkpoints failed, and the log grew past 200 MB. */
TEST(the_log_stays_within_its_bound_while_others_read) {
  load l = {.directory = scratch("log")};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(l.directory.text, &options);
  l.disk = tier_of(cache, HUTCH_TIER_DISK);
  run_threads(3, read_or_write, &l);
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

/* ---------------------------------------------------------------- sums */

static void run_sql(path directory, const char *sql) {
  char file[4200];
  snprintf(file, sizeof file, "%s/manifest.sqlite", directory.text);
  sqlite3 *database = NULL;
  char *words = NULL;
  CHECK(sqlite3_open(file, &database) == SQLITE_OK);
  if (sqlite3_exec(database, sql, NULL, NULL, &words) != SQLITE_OK) FAIL("%s: %s", sql, words);
  CHECK(sqlite3_close(database) == SQLITE_OK);
}

/* 6, 13. Sums of bytes were kept in a C int, or counted below zero. */
TEST(sums_beyond_two_gigabytes) {
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
  for (key = 1; key < 5; key++) CHECK_OK(hutch_remove(disk, &key, sizeof key));
  CHECK(cost_of(disk) < 1 << 20);
  hutch_check_report report = {.struct_size = sizeof report};
  CHECK_OK(hutch_check(disk, 0, &report));
  CHECK_EQUAL(0, report.counters);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* --------------------------------------------------------------- reads */

/* 22. Every read wrote its access time to the database. */
TEST(a_read_writes_nothing) {
  path directory = scratch("reads");
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  /* Maintenance of its own would write what the puts have left. */
  options.workers = 0;
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

/* 8, 9. Ages for all entries were enforced only if a setter had been called, or not by the
   sweep of the expired. */
TEST(ages_of_the_tier_hold_and_change_live) {
  test_clock clock = {0};
  hutch_options options = default_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("ages").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 300; i++) put_filled(disk, i, 100, i);
  clock.now += 30 * HUTCH_DAY - HUTCH_SECOND;
  CHECK_EQUAL(300, count_of(disk));
  clock.now += HUTCH_SECOND;
  CHECK_EQUAL(0, count_of(disk));
  CHECK_EQUAL(300, stats_of(disk).disk.expirations);

  for (uint32_t i = 0; i < 300; i++) put_filled(disk, i, 100, i);
  clock.now += HUTCH_HOUR;
  hutch_cache_limits limits = limits_of(disk);
  limits.disk.time_to_live = 0;
  limits.disk.time_to_idle = 2 * HUTCH_HOUR;
  CHECK_OK(hutch_set_limits(disk, &limits));
  for (uint32_t i = 0; i < 300; i += 3) CHECK_OK(get_number(disk, i));
  clock.now += HUTCH_HOUR;
  uint32_t key = 1;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(disk, &key, sizeof key));
  CHECK_EQUAL(100, count_of(disk));
  limits.disk.time_to_idle = 0;
  limits.disk.time_to_live = 90 * HUTCH_MINUTE;
  CHECK_OK(hutch_set_limits(disk, &limits));
  uint64_t removed;
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(0, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}
