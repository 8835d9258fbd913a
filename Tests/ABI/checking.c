/* The group 'check' of hutch.h. */
#define _XOPEN_SOURCE 700
#include "check.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static void check_clean(hutch_cache *cache, uint64_t entries) {
  CHECK_EQUAL(entries, CHECK_SOUND(cache));
}

TEST_EACH_KIND(all_is_well) {
  for (int i = 0; i < 50; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(put_size(f->cache, key, i % 5 ? 100 : 50000));
  }
  if (has_disk(k)) {
    check_clean(f->cache, 50);
    hutch_check_report report = report_of(f->cache, 0);
    CHECK_EQUAL(10 * 50000 + 40 * 100, report.bytes);
    report = report_of(f->cache, HUTCH_CHECK_QUICK);
    CHECK_EQUAL(50, report.entries);
    CHECK_EQUAL(0, report.bytes);
    CHECK_OK(hutch_check(f->cache, 0, NULL));
  } else {
    CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_check(f->cache, 0, NULL));
  }
  hutch_check_report report = {0};
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_check(f->cache, 0, &report));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_check(f->cache, 2, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_check(NULL, 0, NULL));
}

/* That a process has no descriptor left says nothing of the files that it cannot open. */
TEST(a_lack_of_descriptors_is_no_damage) {
  enum { LARGE = 50000, LARGER = 2000000, MOST = 1024 };
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3) {
    hutch_options options = unlimited_options();
    options.storage = storage;
    options.inline_threshold = 20480;
    options.flags |= HUTCH_OPEN_NO_THREADS;
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_OK(put_size(disk, "large", LARGE));
    CHECK_OK(put_size(disk, "larger", LARGER));
    /* From here on the store needs descriptors for files of values alone. */
    hutch_value_release(get_value(disk, "large"));
    int held[MOST], count = 0;
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const struct rlimit few = {MOST / 2, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (count < MOST && (held[count] = dup(0)) >= 0) count++;
    CHECK(count > 0 && count < MOST);
    hutch_value *value = NULL;
    CHECK_STATUS(HUTCH_IO, hutch_get(disk, KEY("large"), &value));
    CHECK_STATUS(HUTCH_IO, hutch_get(disk, KEY("larger"), &value));
    CHECK_STATUS(HUTCH_IO, hutch_check(disk, HUTCH_CHECK_QUICK, NULL));
    CHECK_STATUS(HUTCH_IO, hutch_check(disk, 0, NULL));
    while (count > 0) close(held[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_EQUAL(LARGE, info_of(disk, "large").size);
    value = get_value(disk, "larger");
    CHECK_EQUAL(LARGER, hutch_value_size(value));
    hutch_value_release(value);
    CHECK_EQUAL(2, CHECK_SOUND(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* The sums agree with the rows, the rows do not with what they hold. */
TEST(what_an_entry_counts_is_checked) {
  hutch_options options = unlimited_options();
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  for (int i = 0; i < 300; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(put_size(cache, key, i % 10 ? 100 : 50000));
  }
  check_clean(cache, 300);
  CHECK_OK(hutch_close(cache));
  run_sql(directory, "UPDATE meta SET dead = 0");
  cache = open_cache(directory.text, &options);
  uint64_t cost = stats_of(cache).disk.cost;
  CHECK_OK(hutch_close(cache));
  run_sql(directory, "UPDATE entries SET charge = charge + 1000000 WHERE slot % 7 = 0;"
                     "UPDATE entries SET charge = 0 WHERE slot % 11 = 0;"
                     "UPDATE meta SET bytes = (SELECT sum(charge) FROM entries)");

  cache = open_cache(directory.text, &options);
  CHECK(stats_of(cache).disk.cost > cost + 30000000);
  hutch_check_report report = report_of(cache, HUTCH_CHECK_QUICK);
  CHECK_EQUAL(300, report.entries);
  CHECK_EQUAL(1, report.counters);
  CHECK_EQUAL(0, report.damaged + report.orphans + report.manifest);
  CHECK(stats_of(cache).disk.cost < cost + 1000000);
  check_clean(cache, 300);
  CHECK_OK(hutch_close(cache));
}

static void damage(void *context, const char *file, const struct stat *status) {
  int *left = context;
  if (strstr(file, "manifest") || !S_ISREG(status->st_mode) || status->st_size < 40000) return;
  if ((*left)-- > 0) CHECK(truncate(file, status->st_size - 1) == 0);
}

TEST(damage_costs_its_entries) {
  hutch_options options = unlimited_options();
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  for (int i = 0; i < 20; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(put_size(cache, key, i % 2 ? 100 : 50000));
  }
  CHECK_OK(hutch_close(cache));
  int left = 3;
  each_file(directory.text, damage, &left);

  cache = open_cache(directory.text, &options);
  hutch_check_report report = report_of(cache, 0);
  CHECK_EQUAL(17, report.entries);
  CHECK_EQUAL(3, report.damaged);
  CHECK_EQUAL(0, report.counters + report.manifest);
  CHECK_EQUAL(17, count_of(cache));
  CHECK_EQUAL(3, stats_of(cache).disk.damaged);
  check_clean(cache, 17);
  CHECK_OK(hutch_close(cache));
}

/* No put makes such a row. The tier above is not asked when it was read. */
TEST(a_row_without_a_key_is_evicted_like_others) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  options.disk.time_to_idle = 100 * HUTCH_SECOND;
  options.disk.count = 10;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t key = 0; key < 10; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "v", 1, NULL, NULL));
  CHECK_OK(hutch_close(cache));
  run_sql(directory, "UPDATE entries SET key = x'' WHERE slot = (SELECT min(slot) FROM entries)");
  clock.now += 200 * HUTCH_SECOND;
  cache = open_cache(directory.text, &options);
  for (uint32_t key = 0; key < 20; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "v", 1, NULL, NULL));
  CHECK_EQUAL(10, stats_of(cache).disk.count);
  CHECK_OK(hutch_close(cache));
}

/* Two rows for each key: the index that keeps keys unique is another index for a moment. */
static void double_rows(path directory) {
  run_sql(directory,
          "PRAGMA writable_schema = ON;"
          "UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL UNIQUE', 'NOT NULL')"
          "  WHERE name = 'entries';"
          "UPDATE sqlite_schema SET name = 'twice', sql = 'CREATE INDEX twice ON entries (key)'"
          "  WHERE name = 'sqlite_autoindex_entries_1'");
  run_sql(directory,
          "CREATE TEMP TABLE again AS SELECT * FROM entries;"
          "UPDATE again SET slot = slot + 1000;"
          "INSERT INTO entries SELECT * FROM again;"
          "UPDATE meta SET count = (SELECT count(*) FROM entries),"
          "  bytes = (SELECT sum(charge) FROM entries), newest = (SELECT max(slot) FROM entries)");
  run_sql(directory,
          "PRAGMA writable_schema = ON;"
          "UPDATE sqlite_schema SET sql = replace(sql, 'key BLOB NOT NULL', "
          "  'key BLOB NOT NULL UNIQUE') WHERE name = 'entries';"
          "UPDATE sqlite_schema SET name = 'sqlite_autoindex_entries_1', sql = NULL"
          "  WHERE name = 'twice'");
}

/* The first put of a key fails, since SQLite shows and deletes one of the two rows. */
TEST(two_rows_of_a_key_go_one_by_one_and_are_counted) {
  enum { KEYS = 20 };
  hutch_options options = unlimited_options();
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t key = 0; key < KEYS; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "old", 3, NULL, NULL));
  CHECK_OK(hutch_close(cache));
  double_rows(directory);

  cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_EQUAL(2 * KEYS, count_of(disk));
  for (int round = 0; round < 2; round++) {
    for (uint32_t key = 0; key < KEYS; key++)
      CHECK_STATUS(round == 0 ? HUTCH_PARTIAL : HUTCH_OK,
                   hutch_put(cache, &key, sizeof key, "new", 3, NULL, NULL));
    CHECK_EQUAL(KEYS, count_of(disk));
  }
  for (uint32_t key = 0; key < KEYS; key++) {
    char data[3];
    size_t size;
    CHECK_OK(hutch_get_into(disk, &key, sizeof key, data, sizeof data, &size));
    CHECK(memcmp(data, "new", 3) == 0);
  }
  hutch_cache_release(disk);
  check_clean(cache, KEYS);
  CHECK_OK(hutch_close(cache));
}

/* A value that is replaced during the check leaves its file for a moment; that is no orphan. No
   other process has the directory open, so no file is spared for its age. */
typedef struct beside {
  hutch_cache *cache;
  _Atomic bool stops;
} beside;

static void replace_or_check(void *context, int index) {
  beside *b = context;
  if (index == 0) {
    for (int i = 0; i < 200 / SANITIZED_BY; i++) {
      hutch_check_report report = report_of(b->cache, HUTCH_CHECK_QUICK);
      CHECK_EQUAL(0, report.damaged + report.counters + report.manifest);
      CHECK_EQUAL(0, report.orphans);
    }
    atomic_store(&b->stops, true);
    return;
  }
  for (int n = 0; !atomic_load(&b->stops); n++) {
    char key[16];
    snprintf(key, sizeof key, "%d", n % 30);
    if (n % 7 == 6) (void)hutch_remove(b->cache, key, strlen(key));
    else CHECK_OK(put_size(b->cache, key, 30000));
  }
}

TEST(a_check_beside_replacements_finds_nothing) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  beside b = {open_cache(scratch("cache").text, &options), false};
  run_threads(3, replace_or_check, &b);
  CHECK_OK(hutch_close(b.cache));
}

/* ------------------------------------------------------- damage to the manifest */

enum { PAGE = 4096, ENTRIES = 60 };

static void write_at(path directory, const char *name, off_t place, const void *data, size_t size) {
  int file = open(in_directory(directory.text, name).text, O_WRONLY | O_CREAT, 0600);
  CHECK(file >= 0);
  CHECK(pwrite(file, data, size, place) == (ssize_t)size);
  close(file);
}

static path make_database(hutch_options *options) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, options);
  for (uint32_t key = 0; key < ENTRIES; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "value", 5, NULL, NULL));
  CHECK_OK(hutch_close(cache));
  return directory;
}

/* A write to the table `meta` meets its third page: the first one is the schema's. */
static void damage_free_space(path directory) {
  write_at(directory, "manifest.sqlite", 2 * PAGE + 1, "\0\x08", 2);
}

static void damage_write_version(path directory) {
  write_at(directory, "manifest.sqlite", 18, "\x03", 1);
}

static void damage_next_version(path directory) {
  run_sql(directory, "UPDATE meta SET next_version = (1 << 60) - 1");
}

/* As a killed process has left it, with a version that none has drawn. */
static void damage_shared_state(path directory) {
  static uint64_t words[266240 / 8];
  words[0] = UINT64_C(0x3130646572616873);
  words[16] = UINT64_MAX;
  write_file(in_directory(directory.text, "hutch.shared").text, words, sizeof words);
}

/* The opening sets other limits, so it writes. */
TEST(damage_that_the_opening_itself_meets_closes_no_directory) {
  static void (*const damages[])(path) = {damage_free_space, damage_write_version,
                                          damage_next_version, damage_shared_state};
  for (int i = 0; i < 4; i++) {
    hutch_options options = unlimited_options();
    path directory = make_database(&options);
    damages[i](directory);
    options.disk.count = 1000;
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_EQUAL(i < 3 ? 0 : ENTRIES, count_of(cache));
    CHECK_OK(put_text(cache, "key", "value"));
    check_clean(cache, i < 3 ? 1 : ENTRIES + 1);
    CHECK_OK(hutch_close(cache));
    cache = open_cache(directory.text, &options);
    CHECK_TEXT(cache, "key", "value");
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Readers of such a database stop its writers. */
TEST(a_database_that_lost_its_log_has_one_again) {
  hutch_options options = unlimited_options();
  path directory = make_database(&options);
  run_sql(directory, "PRAGMA journal_mode = DELETE");
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t key = 0; key < ENTRIES; key++) {
    CHECK_OK(hutch_contains(disk, &key, sizeof key));
    CHECK_OK(hutch_contains(disk, &key, sizeof key));
    CHECK_OK(hutch_put(disk, &key, sizeof key, "newer", 5, NULL, NULL));
  }
  hutch_cache_release(disk);
  check_clean(cache, ENTRIES);
  CHECK_OK(hutch_close(cache));
}

static int32_t count_visit(void *context, const void *key, size_t size,
                           const hutch_entry_info *info) {
  (void)key, (void)size, (void)info;
  ++*(int *)context;
  return 0;
}

/* No walk by age comes to the first two, no key leads to the next two, and the sums are never those
   of another row than the last. */
TEST(rows_that_no_walk_or_no_key_leads_to_are_removed) {
  hutch_options options = unlimited_options();
  path directory = make_database(&options);
  run_sql(directory, "UPDATE entries SET slot = -3 WHERE slot = 3;"
                     "UPDATE entries SET id = 1e300 WHERE slot = 5;"
                     "UPDATE entries SET key = CAST(key AS TEXT) WHERE slot = 7;"
                     "UPDATE entries SET key = 9 WHERE slot = 9;"
                     "UPDATE entries SET id = 'id' WHERE slot = (SELECT max(slot) FROM entries)");
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_check_report report = report_of(cache, 0);
  CHECK_EQUAL(5, report.manifest);
  CHECK_EQUAL(ENTRIES - 5, report.entries);
  for (int order = 0; order < 4; order++) {
    hutch_cursor *cursor;
    uint64_t steps = 0;
    const void *key;
    size_t size;
    CHECK_OK(hutch_cursor_create_ordered(disk, (order & 1) + 1 + (order & 2) * 128, &cursor));
    while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) steps++;
    hutch_cursor_release(cursor);
    CHECK_EQUAL(ENTRIES - 5, steps);
  }
  int visits = 0;
  CHECK_OK(hutch_each(disk, count_visit, &visits));
  CHECK_EQUAL(ENTRIES - 5, visits);
  CHECK_EQUAL(ENTRIES - 5, count_of(disk));
  for (uint32_t key = 0; key < ENTRIES; key++)
    CHECK_OK(hutch_put(disk, &key, sizeof key, "newer", 5, NULL, NULL));
  hutch_cache_release(disk);
  check_clean(cache, ENTRIES);
  CHECK_OK(hutch_close(cache));
}

/* SQLite takes a text for greater than each number. */
TEST(ids_go_on_where_the_last_one_is_no_number) {
  hutch_options options = unlimited_options();
  path directory = make_database(&options);
  run_sql(directory, "UPDATE meta SET newest = 'newest'");
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t key = ENTRIES; key < 2 * ENTRIES; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "value", 5, NULL, NULL));
  CHECK_EQUAL(2 * ENTRIES, report_of(cache, 0).entries);
  check_clean(cache, 2 * ENTRIES);
  CHECK_EQUAL(2 * ENTRIES, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* Gives the pages behind a row another number, which no file can have. The row's own page ends it
   with the number, among the value's bytes. */
static void lead_astray(path directory) {
  path file = in_directory(directory.text, "manifest.sqlite");
  struct stat status;
  CHECK(stat(file.text, &status) == 0);
  char *data = malloc((size_t)status.st_size);
  int opened = open(file.text, O_RDWR);
  CHECK(opened >= 0 && read(opened, data, (size_t)status.st_size) == status.st_size);
  int changed = 0;
  for (off_t at = 8; at + 4 <= status.st_size; at++) {
    if (at % PAGE == 0 || memcmp(data + at - 8, "aaaaaaaa", 8) != 0) continue;
    if (memcmp(data + at, "\0\0\0", 3) != 0 || data[at + 3] == 0) continue;
    changed += pwrite(opened, "\x70\x10\x20\x30", 4, at) == 4;
  }
  CHECK(changed > 0);
  close(opened);
  free(data);
}

/* SQLite gives the same answer for such a number as for a full disk. */
TEST(the_number_of_no_page_is_no_full_disk) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_SQLITE;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  char value[10000];
  memset(value, 'a', sizeof value);
  CHECK_OK(hutch_put(cache, KEY("long"), value, sizeof value, NULL, NULL));
  CHECK_OK(put_text(cache, "short", "value"));
  CHECK_OK(hutch_close(cache));
  lead_astray(directory);
  cache = open_cache(directory.text, &options);
  CHECK(report_of(cache, 0).manifest > 0);
  check_clean(cache, 0);
  CHECK_OK(put_text(cache, "short", "value"));
  check_clean(cache, 1);
  CHECK_OK(hutch_close(cache));
}
