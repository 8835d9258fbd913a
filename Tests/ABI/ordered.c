/* Cursors in an order: hutch_cursor_create_ordered. */
#include "check.h"

enum { MOST = 40000 };

static const uint32_t orders[] = {HUTCH_ORDER_INSERTION, HUTCH_ORDER_ACCESS};

static hutch_cursor *begin(hutch_cache *cache, uint32_t order) {
  hutch_cursor *cursor = NULL;
  CHECK_OK(hutch_cursor_create_ordered(cache, order, &cursor));
  CHECK(cursor != NULL);
  return cursor;
}

/* The next key, a uint32_t; -1: the end. */
static int64_t step(hutch_cursor *cursor) {
  const void *key;
  size_t size;
  hutch_status status = hutch_cursor_next(cursor, &key, &size);
  if (status == HUTCH_NOT_FOUND) return -1;
  CHECK_OK(status);
  uint32_t number;
  CHECK_EQUAL(sizeof number, size);
  memcpy(&number, key, sizeof number);
  CHECK(number < MOST);
  return number;
}

static void put_number(hutch_cache *cache, uint32_t number, int64_t time_to_idle) {
  hutch_put_options options = {.struct_size = sizeof options, .time_to_idle = time_to_idle};
  CHECK_OK(hutch_put(cache, &number, sizeof number, &number, sizeof number, &options, NULL));
}

static void get_number(hutch_cache *cache, uint32_t number) {
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(cache, &number, sizeof number, &value));
  hutch_value_release(value);
}

/* That a walk, and the walk back, meet exactly these. */
static void check_walk(hutch_cache *cache, uint32_t order, const uint32_t *expected, int count) {
  hutch_cursor *cursor = begin(cache, order);
  for (int i = 0; i < count; i++) CHECK_EQUAL(expected[i], step(cursor));
  CHECK_EQUAL(-1, step(cursor));
  CHECK_EQUAL(-1, step(cursor));
  hutch_cursor_release(cursor);
  cursor = begin(cache, order | HUTCH_ORDER_DESCENDING);
  for (int i = count; i-- > 0;) CHECK_EQUAL(expected[i], step(cursor));
  CHECK_EQUAL(-1, step(cursor));
  hutch_cursor_release(cursor);
}

TEST_EACH_KIND(an_empty_cache_has_no_order) {
  for (int i = 0; i < 2; i++) check_walk(f->cache, orders[i], NULL, 0);
}

TEST_EACH_KIND(by_the_time_of_the_write) {
  uint32_t expected[300];
  int count = 0;
  for (uint32_t i = 0; i < 300; i++) {
    put_number(f->cache, i, 0);
    /* Those of one time by the order of their writes. */
    if (i % 10 == 9) f->clock.now += HUTCH_SECOND;
  }
  for (uint32_t i = 0; i < 300; i++)
    if (i % 7 != 0) expected[count++] = i;
  for (uint32_t i = 0; i < 300; i += 7) {
    f->clock.now += HUTCH_SECOND;
    if (i % 2)
      put_number(f->cache, i, 0);
    else
      CHECK_OK(hutch_touch(f->cache, &i, sizeof i, 0, 0));
    expected[count++] = i;
  }
  /* A read changes nothing here. */
  for (uint32_t i = 0; i < 300; i += 3) get_number(f->cache, i);
  check_walk(f->cache, HUTCH_ORDER_INSERTION, expected, count);
}

TEST_EACH_KIND(by_the_last_access) {
  for (uint32_t i = 0; i < 200; i++) {
    put_number(f->cache, i, HUTCH_DAY);
    f->clock.now += HUTCH_SECOND;
  }
  uint32_t expected[200];
  int count = 0;
  for (uint32_t i = 1; i < 200; i += 2) expected[count++] = i;
  for (uint32_t i = 200; i > 0; i -= 2) {
    get_number(f->cache, i - 2);
    f->clock.now += HUTCH_SECOND;
    expected[count++] = i - 2;
  }
  check_walk(f->cache, HUTCH_ORDER_ACCESS, expected, count);
}

TEST(entries_of_both_tiers_are_one_order) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  options.memory.count = 20;
  options.policy = HUTCH_POLICY_LRU;
  hutch_cache *cache = open_cache(scratch("both").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  uint32_t expected[500];
  for (uint32_t i = 0; i < 500; i++) {
    /* The last few are in memory alone. */
    put_number(i < 490 ? cache : memory, i, 0);
    expected[i] = i;
    clock.now += HUTCH_SECOND;
  }
  CHECK_EQUAL(500, count_of(cache));
  check_walk(cache, HUTCH_ORDER_INSERTION, expected, 500);
  check_walk(cache, HUTCH_ORDER_ACCESS, expected, 500);
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(entries_from_before_the_clock_was_set_back_are_met) {
  for (uint32_t i = 0; i < 10; i++) put_number(f->cache, i, 0);
  f->clock.now -= HUTCH_DAY;
  for (uint32_t i = 10; i < 20; i++) put_number(f->cache, i, 0);
  for (int i = 0; i < 4; i++) {
    hutch_cursor *cursor = begin(f->cache, orders[i / 2] | (i % 2 ? HUTCH_ORDER_DESCENDING : 0));
    int met[20] = {0};
    for (int64_t n = step(cursor); n >= 0; n = step(cursor)) met[n]++;
    for (int n = 0; n < 20; n++) CHECK_EQUAL(1, met[n]);
    hutch_cursor_release(cursor);
  }
}

TEST_EACH_KIND(what_goes_is_not_seen) {
  for (uint32_t i = 0; i < 300; i++) put_number(f->cache, i, 0);
  for (int i = 0; i < 2; i++) {
    hutch_cursor *cursor = begin(f->cache, orders[i]);
    CHECK(step(cursor) >= 0);
    for (uint32_t n = 150; n < 300; n++) hutch_remove(f->cache, &n, sizeof n);
    /* One page of keys at most was fetched before. */
    int seen = 1;
    while (step(cursor) >= 0) seen++;
    CHECK_EQUAL(150, seen);
    hutch_cursor_release(cursor);
    for (uint32_t n = 150; n < 300; n++) put_number(f->cache, n, 0);
    f->clock.now += HUTCH_SECOND;
  }
}

TEST_EACH_KIND(what_is_written_meanwhile_is_seen_once_at_most) {
  for (uint32_t i = 0; i < 600; i++) put_number(f->cache, i, HUTCH_DAY);
  f->clock.now += HUTCH_SECOND;
  for (int i = 0; i < 4; i++) {
    hutch_cursor *cursor = begin(f->cache, orders[i / 2] | (i % 2 ? HUTCH_ORDER_DESCENDING : 0));
    int met[600] = {0};
    for (int64_t n = step(cursor); n >= 0; n = step(cursor)) {
      met[n]++;
      f->clock.now += HUTCH_MILLISECOND;
      /* Even ones only. */
      uint32_t other = (uint32_t)n * 7 % 600 & ~1u;
      put_number(f->cache, other, HUTCH_DAY);
      other = (uint32_t)n * 11 % 600 & ~1u;
      CHECK_OK(hutch_touch(f->cache, &other, sizeof other, 0, 0));
      get_number(f->cache, (uint32_t)n * 13 % 600 & ~1u);
    }
    hutch_cursor_release(cursor);
    for (int n = 0; n < 600; n++) CHECK(n % 2 ? met[n] == 1 : met[n] <= 1);
    f->clock.now += HUTCH_SECOND;
  }
}

TEST(what_moves_between_the_tiers_is_seen_once) {
  hutch_options options = unlimited_options();
  options.memory.count = 50;
  /* Small enough that the disk tier gives up what memory keeps. */
  options.disk.count = 300;
  hutch_cache *cache = open_cache(scratch("moves").text, &options);
  for (uint32_t i = 0; i < 250; i++) put_number(cache, i, 0);
  hutch_cursor *cursor = begin(cache, HUTCH_ORDER_INSERTION);
  int met[MOST / 10] = {0};
  uint32_t next = 250;
  for (int64_t n = step(cursor); n >= 0; n = step(cursor)) {
    met[n]++;
    get_number(cache, (uint32_t)n * 31 % 250);
    if (next < 290) put_number(cache, next++, 0);
  }
  for (int n = 0; n < 250; n++) CHECK_EQUAL(1, met[n]);
  hutch_cursor_release(cursor);
  CHECK_OK(hutch_close(cache));
}

enum { NUMBERS = SANITIZED_BY == 1 ? 3000 : 1000 };

typedef struct reads {
  hutch_cache *cache;
  _Atomic int ended;
} reads;

static void walk_or_read(void *context, int index) {
  reads *r = context;
  uint64_t state = 1;
  for (int i = 0; index == 0 && i < (SANITIZED_BY == 1 ? 10 : 2) * scale(); i++) {
    hutch_cache *memory = tier_of(r->cache, HUTCH_TIER_MEMORY);
    CHECK_OK(hutch_clear(memory));
    CHECK_OK(hutch_close(memory));
    int met[NUMBERS] = {0};
    hutch_cursor *cursor = begin(r->cache, HUTCH_ORDER_INSERTION);
    for (int64_t n = step(cursor); n >= 0; n = step(cursor)) met[n]++;
    hutch_cursor_release(cursor);
    for (int n = 0; n < NUMBERS; n++) CHECK_EQUAL(1, met[n]);
  }
  if (index == 0) r->ended = 1;
  while (!r->ended) get_number(r->cache, (uint32_t)(next_random(&state) % NUMBERS));
}

TEST(what_a_read_brings_up_meanwhile_is_seen_once) {
  for (uint64_t count = 0; count <= 100; count += 100) {
    hutch_options options = unlimited_options();
    options.write_policy = count ? HUTCH_WRITE_ON_EVICTION : HUTCH_WRITE_THROUGH;
    options.memory.count = count;
    reads r = {.cache = open_cache(scratch(count ? "small" : "large").text, &options)};
    for (uint32_t i = 0; i < NUMBERS; i++) put_number(r.cache, i, 0);
    run_threads(3, walk_or_read, &r);
    CHECK_OK(hutch_close(r.cache));
  }
}

/* The walk writes what waits to be written. A thread that wrote some of it meanwhile would give the
   store another order. */
TEST(what_memory_has_just_given_up_is_seen_on_disk) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  options.policy = HUTCH_POLICY_LRU;
  options.memory.count = 10;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  uint32_t expected[25];
  for (uint32_t i = 0; i < 35; i++) put_number(cache, i, 0);
  for (uint32_t i = 0; i < 25; i++) expected[i] = i;
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  check_walk(disk, HUTCH_ORDER_INSERTION, expected, 25);
  CHECK_OK(hutch_close(disk));
  CHECK_OK(hutch_close(cache));
}

TEST(more_than_a_page) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &options);
  for (uint32_t i = 0; i < MOST; i++) put_number(cache, i, 0);
  for (int way = 0; way < 2; way++) {
    hutch_cursor *cursor = begin(cache, HUTCH_ORDER_INSERTION | (way ? HUTCH_ORDER_DESCENDING : 0));
    for (uint32_t i = 0; i < MOST; i++) CHECK_EQUAL(way ? MOST - 1 - i : i, step(cursor));
    CHECK_EQUAL(-1, step(cursor));
    hutch_cursor_release(cursor);
  }
  CHECK_OK(hutch_close(cache));
}

/* The store has an earlier time of the last access than memory had. A page takes many entries: with
   a sanitizer one way has to do. */
TEST(what_memory_gives_up_between_two_pages_is_seen_once) {
  test_clock clock = {0};
  for (int way = 0; way < (SANITIZED_BY == 1 ? 2 : 1); way++) {
    hutch_options options = unlimited_options();
    use_clock(&options, &clock);
    hutch_cache *cache = open_cache(scratch(way ? "down" : "up").text, &options);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    for (uint32_t i = 0; i < MOST; i++) {
      put_number(cache, i, 0);
      if (i % 10 == 9) clock.now += HUTCH_MILLISECOND;
    }
    clock.now += HUTCH_HOUR;
    for (uint32_t i = 0; i < 1000; i++) get_number(cache, i);
    clock.now += HUTCH_HOUR;
    static uint8_t met[MOST];
    memset(met, 0, sizeof met);
    hutch_cursor *cursor = begin(cache, HUTCH_ORDER_ACCESS | (way ? HUTCH_ORDER_DESCENDING : 0));
    CHECK_EQUAL(way ? 999 : 1000, step(cursor));
    met[way ? 999 : 1000]++;
    CHECK_OK(hutch_clear(memory));
    for (int64_t n = step(cursor); n >= 0; n = step(cursor)) met[n]++;
    for (int n = 0; n < MOST; n++) CHECK_EQUAL(1, met[n]);
    hutch_cursor_release(cursor);
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(what_is_put_anew_at_the_time_of_the_walk_is_seen_once) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  for (uint32_t i = 0; i < MOST; i++) put_number(cache, i, 0);
  static uint8_t met[MOST];
  hutch_cursor *cursor = begin(cache, HUTCH_ORDER_INSERTION);
  for (int64_t n = step(cursor); n >= 0; n = step(cursor)) {
    CHECK_EQUAL(0, met[n]++);
    put_number(cache, (uint32_t)n, 0);
  }
  hutch_cursor_release(cursor);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_cursor_shows_its_entry) {
  for (uint32_t i = 0; i < 10; i++) put_number(f->cache, i, 0);
  hutch_cursor *cursor = begin(f->cache, HUTCH_ORDER_INSERTION);
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_value(cursor, &value));
  for (int i = 0; i < 10; i++) {
    CHECK_EQUAL(i, step(cursor));
    CHECK_OK(hutch_cursor_value(cursor, &value));
    CHECK_EQUAL(0, memcmp(&i, hutch_value_data(value), sizeof i));
    hutch_value_release(value);
    hutch_entry_info info = {.struct_size = sizeof info};
    CHECK_OK(hutch_cursor_info(cursor, &info));
    CHECK_EQUAL(4, info.size);
  }
  CHECK_EQUAL(-1, step(cursor));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_value(cursor, &value));
  hutch_cursor_release(cursor);
}

TEST(a_bad_order) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_cursor *cursor = (hutch_cursor *)cache;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_cursor_create_ordered(cache, 0, &cursor));
  CHECK(cursor == NULL);
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_cursor_create_ordered(cache, 3, &cursor));
  CHECK_STATUS(HUTCH_UNSUPPORTED,
               hutch_cursor_create_ordered(cache, HUTCH_ORDER_DESCENDING, &cursor));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_cursor_create_ordered(cache, 1 | 512, &cursor));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_cursor_create_ordered(cache, 1, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_cursor_create_ordered(NULL, 1, &cursor));
  CHECK_OK(hutch_close(cache));
}
