/* The group 'iterate' of hutch.h: each and cursors. */
#include "check.h"

enum { MOST = 2000 };

/* How often each key, a uint32_t, was met. */
typedef struct tally {
  hutch_cache *cache;
  int met[MOST];
  int total;
  int stop_after;
} tally;

static uint32_t number_of(const void *key, size_t key_size) {
  uint32_t number;
  CHECK_EQUAL(sizeof number, key_size);
  memcpy(&number, key, sizeof number);
  CHECK(number < MOST);
  return number;
}

static int32_t meet(void *context, const void *key, size_t key_size,
                    const hutch_entry_info *info) {
  tally *t = context;
  uint32_t number = number_of(key, key_size);
  CHECK_EQUAL(sizeof number + number % 7, info->size);
  CHECK(info->version != 0);
  CHECK(info->tier == HUTCH_TIER_MEMORY || info->tier == HUTCH_TIER_DISK);
  t->met[number]++;
  return ++t->total == t->stop_after ? -1 : 0;
}

static void put_numbers(hutch_cache *cache, uint32_t from, uint32_t to) {
  char value[16] = {0};
  for (uint32_t i = from; i < to; i++)
    CHECK_OK(hutch_put(cache, &i, sizeof i, value, sizeof i + i % 7, NULL, NULL));
}

static void check_tally(const tally *t, int from, int to, int times) {
  for (int i = from; i < to; i++) CHECK_EQUAL(times, t->met[i]);
}

/* Walks with a cursor as each does with a visitor. */
static void walk(tally *t) {
  hutch_cursor *cursor = NULL;
  CHECK_OK(hutch_cursor_create(t->cache, &cursor));
  const void *key;
  size_t size;
  hutch_status status;
  while ((status = hutch_cursor_next(cursor, &key, &size)) == HUTCH_OK) {
    t->met[number_of(key, size)]++;
    t->total++;
  }
  CHECK_STATUS(HUTCH_NOT_FOUND, status);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_next(cursor, &key, &size));
  hutch_cursor_release(cursor);
}

TEST_EACH_KIND(an_empty_cache_has_nothing_to_visit) {
  tally t = {.cache = f->cache};
  CHECK_OK(hutch_each(f->cache, meet, &t));
  walk(&t);
  CHECK_EQUAL(0, t.total);
}

TEST_EACH_KIND(every_entry_is_visited_once) {
  tally visited = {0}, walked = {.cache = f->cache};
  put_numbers(f->cache, 0, MOST);
  CHECK_OK(hutch_each(f->cache, meet, &visited));
  check_tally(&visited, 0, MOST, 1);
  walk(&walked);
  check_tally(&walked, 0, MOST, 1);
  CHECK_EQUAL(MOST, count_of(f->cache));
}

TEST_EACH_KIND(a_visitor_may_stop) {
  put_numbers(f->cache, 0, 100);
  tally t = {.stop_after = 7};
  CHECK_OK(hutch_each(f->cache, meet, &t));
  CHECK_EQUAL(7, t.total);
}

static int32_t change(void *context, const void *key, size_t key_size,
                      const hutch_entry_info *info) {
  tally *t = context;
  meet(t, key, key_size, info);
  uint32_t number = number_of(key, key_size);
  uint32_t fresh = MOST / 2 + number % (MOST / 2);
  if (number % 2) {
    CHECK_OK(hutch_remove(t->cache, key, key_size));
  } else {
    put_numbers(t->cache, number, number + 1);
  }
  hutch_status status = hutch_contains(t->cache, &fresh, sizeof fresh);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  put_numbers(t->cache, fresh, fresh + 1);
  return 0;
}

TEST_EACH_KIND(a_visitor_may_change_the_cache) {
  put_numbers(f->cache, 0, MOST / 2);
  tally t = {.cache = f->cache};
  CHECK_OK(hutch_each(f->cache, change, &t));
  /* What was there when its turn came is met once, what came meanwhile at most once. */
  check_tally(&t, 0, MOST / 2, 1);
  for (int i = MOST / 2; i < MOST; i++) CHECK(t.met[i] <= 1);
  for (uint32_t i = 0; i < MOST / 2; i++)
    CHECK_STATUS(i % 2 ? HUTCH_NOT_FOUND : HUTCH_OK, hutch_contains(f->cache, &i, sizeof i));
}

static int32_t clear_all(void *context, const void *key, size_t key_size,
                         const hutch_entry_info *info) {
  tally *t = context;
  meet(t, key, key_size, info);
  CHECK_OK(hutch_clear(t->cache));
  return 0;
}

TEST_EACH_KIND(a_clear_ends_a_walk) {
  put_numbers(f->cache, 0, 500);
  tally t = {.cache = f->cache};
  CHECK_OK(hutch_each(f->cache, clear_all, &t));
  CHECK_EQUAL(1, t.total);
}

TEST(an_entry_of_two_tiers_is_visited_once) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  put_numbers(cache, 0, 100);    /* both */
  put_numbers(memory, 100, 200); /* memory only */
  put_numbers(disk, 200, 300);   /* disk only */
  tally all = {.cache = cache}, again = {0}, in_memory = {.cache = memory},
        on_disk = {.cache = disk};
  walk(&all);
  check_tally(&all, 0, 300, 1);
  CHECK_OK(hutch_each(cache, meet, &again));
  check_tally(&again, 0, 300, 1);
  walk(&in_memory);
  check_tally(&in_memory, 0, 200, 1);
  CHECK_EQUAL(200, in_memory.total);
  walk(&on_disk);
  check_tally(&on_disk, 0, 100, 1);
  check_tally(&on_disk, 200, 300, 1);
  CHECK_EQUAL(200, on_disk.total);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_cursor_gives_value_and_record) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_cursor *cursor = NULL;
  hutch_value *value = NULL;
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_OK(hutch_cursor_create(f->cache, &cursor));
  /* Before the first step it is at no entry. */
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_value(cursor, &value));
  CHECK(!value);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_info(cursor, &info));

  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_next(cursor, &key, &size));
  CHECK_BYTES("key", 3, key, size);
  CHECK_OK(hutch_cursor_value(cursor, &value));
  CHECK_BYTES("value", 5, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_OK(hutch_cursor_info(cursor, &info));
  CHECK_EQUAL(5, info.size);

  /* It answers for its key as the entry is now. */
  CHECK_OK(put_text(f->cache, "key", "newer value"));
  CHECK_OK(hutch_cursor_value(cursor, &value));
  CHECK_EQUAL(11, hutch_value_size(value));
  hutch_value_release(value);
  CHECK_OK(hutch_remove(f->cache, KEY("key")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_value(cursor, &value));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_info(cursor, &info));
  CHECK_BYTES("key", 3, key, size);
  hutch_cursor_release(cursor);
}

TEST(a_walk_is_no_access) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_put_options put = put_options();
  put.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(cache, KEY("memory"), KEY("value"), &put, NULL));
  CHECK_OK(hutch_put(cache, KEY("disk"), KEY("value"), &put, NULL));
  CHECK_OK(hutch_remove(memory, KEY("disk")));
  hutch_cache_stats before = stats_of(cache);
  clock.now += 8 * HUTCH_SECOND;

  hutch_cursor *cursor = NULL;
  hutch_value *value = NULL;
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hutch_cursor_next(cursor, &key, &size));
    CHECK_OK(hutch_cursor_value(cursor, &value));
    hutch_value_release(value);
  }
  hutch_cursor_release(cursor);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(memory, KEY("disk")));
  hutch_cache_stats after = stats_of(cache);
  CHECK_EQUAL(before.memory.hits + before.memory.misses, after.memory.hits + after.memory.misses);
  CHECK_EQUAL(before.disk.hits + before.disk.misses, after.disk.hits + after.disk.misses);
  clock.now += 3 * HUTCH_SECOND;
  CHECK_MISSING(cache, "memory");
  CHECK_MISSING(cache, "disk");
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST(a_cursor_outlives_its_cache) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, NULL);
    put_numbers(cache, 0, 10);
    hutch_cursor *cursor = NULL;
    const void *key;
    size_t size;
    hutch_value *value = NULL;
    hutch_entry_info info = {.struct_size = sizeof info};
    CHECK_OK(hutch_cursor_create(cache, &cursor));
    CHECK_OK(hutch_cursor_next(cursor, &key, &size));
    CHECK_OK(hutch_close(cache));
    CHECK(number_of(key, size) < 10);
    CHECK_STATUS(HUTCH_CLOSED, hutch_cursor_value(cursor, &value));
    CHECK(!value);
    CHECK_STATUS(HUTCH_CLOSED, hutch_cursor_info(cursor, &info));
    CHECK_STATUS(HUTCH_CLOSED, hutch_cursor_next(cursor, &key, &size));
    hutch_cursor_release(cursor);
  }
}

TEST_EACH_KIND(several_cursors_walk_at_once) {
  put_numbers(f->cache, 0, 300);
  enum { CURSORS = 3 };
  static tally tallies[CURSORS];
  memset(tallies, 0, sizeof tallies);
  hutch_cursor *cursors[CURSORS];
  for (int i = 0; i < CURSORS; i++) CHECK_OK(hutch_cursor_create(f->cache, &cursors[i]));
  const void *key;
  size_t size;
  for (int step = 0; step < 300; step++)
    for (int i = 0; i < CURSORS; i++) {
      CHECK_OK(hutch_cursor_next(cursors[i], &key, &size));
      tallies[i].met[number_of(key, size)]++;
    }
  for (int i = 0; i < CURSORS; i++) {
    check_tally(&tallies[i], 0, 300, 1);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_next(cursors[i], &key, &size));
    hutch_cursor_release(cursors[i]);
  }
}
