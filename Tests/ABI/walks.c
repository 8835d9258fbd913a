/* Walks of a cache with two tiers: an entry that is there from beginning to end is met exactly
   once, whichever tier has it when, and a cursor needs no more memory for what others do. */
#include "check.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MOST = 120000 };

typedef struct tally {
  uint8_t met[MOST];
  uint32_t total;
} tally;

static void meet(tally *t, const void *key, size_t key_size) {
  uint32_t number;
  CHECK(key_size >= sizeof number);
  memcpy(&number, key, sizeof number);
  CHECK(number < MOST);
  CHECK(t->met[number] < 255);
  t->met[number]++;
  t->total++;
}

static int32_t visit(void *context, const void *key, size_t key_size,
                     const hutch_entry_info *info) {
  (void)info;
  meet(context, key, key_size);
  return 0;
}

/* By a cursor, or by hutch_each. */
static tally *walk(hutch_cache *cache, bool by_cursor) {
  tally *t = calloc(1, sizeof *t);
  CHECK(t != NULL);
  if (!by_cursor) {
    CHECK_OK(hutch_each(cache, visit, t));
    return t;
  }
  hutch_cursor *cursor = NULL;
  const void *key;
  size_t size;
  hutch_status status;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  while ((status = hutch_cursor_next(cursor, &key, &size)) == HUTCH_OK) meet(t, key, size);
  CHECK_STATUS(HUTCH_NOT_FOUND, status);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_next(cursor, &key, &size));
  hutch_cursor_release(cursor);
  return t;
}

/* That a walk meets 0..<count, each once, and nothing else. */
static void check_walk(hutch_cache *cache, uint32_t count, bool by_cursor) {
  tally *t = walk(cache, by_cursor);
  for (uint32_t i = 0; i < count; i++) CHECK_EQUAL(1, t->met[i]);
  CHECK_EQUAL(count, t->total);
  free(t);
}

static void put_number(hutch_cache *cache, uint32_t number, uint32_t policy) {
  hutch_put_options put = put_options();
  put.write_policy = policy;
  CHECK_OK(hutch_put(cache, &number, sizeof number, "value", 5, &put, NULL));
}

static void get_number(hutch_cache *cache, uint32_t number) {
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(cache, &number, sizeof number, &value));
  hutch_value_release(value);
}

/* ---------------------------------------------------------------- in peace */

TEST(of_many_entries_in_either_tier_or_both) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  static const uint32_t policies[] = {HUTCH_WRITE_THROUGH, HUTCH_WRITE_MEMORY, HUTCH_WRITE_DISK,
                                      HUTCH_WRITE_ON_EVICTION};
  uint64_t state = seed();
  uint32_t number = 0;
  /* Several pages, which end anywhere. */
  for (; number < (SANITIZED_BY == 1 ? 50000 : 12500); number++)
    put_number(cache, number, policies[next_random(&state) % 4]);
  check_walk(cache, number, true);
  check_walk(cache, number, false);
  CHECK_EQUAL(number, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(of_keys_that_begin_alike) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  /* The empty bytes behind a key tell it from others. */
  uint8_t *key = calloc(1, 65535);
  CHECK(key != NULL);
  uint32_t count = 0;
  for (size_t size = 1; size < 2000; size++, count++) {
    hutch_put_options put = put_options();
    put.write_policy = size % 3 == 0   ? HUTCH_WRITE_DISK
                       : size % 3 == 1 ? HUTCH_WRITE_MEMORY
                                       : HUTCH_WRITE_THROUGH;
    CHECK_OK(hutch_put(cache, key, size, "v", 1, &put, NULL));
  }
  /* More than a page's keys may take up together. */
  for (int i = 0; i < 100; i++, count++) {
    key[65534] = (uint8_t)(i + 1);
    hutch_put_options put = put_options();
    put.write_policy = i % 2 ? HUTCH_WRITE_DISK : HUTCH_WRITE_MEMORY;
    CHECK_OK(hutch_put(cache, key, 65535, "v", 1, &put, NULL));
  }
  for (int round = 0; round < 2; round++) {
    hutch_cursor *cursor = NULL;
    const void *found;
    size_t size;
    bool *met = calloc(2100, sizeof *met);
    CHECK(met != NULL);
    CHECK_OK(hutch_cursor_create(cache, &cursor));
    uint32_t total = 0;
    for (; hutch_cursor_next(cursor, &found, &size) == HUTCH_OK; total++) {
      size_t index = size < 65535 ? size : 1999u + ((const uint8_t *)found)[65534];
      CHECK(!met[index]);
      met[index] = true;
    }
    CHECK_EQUAL(count, total);
    hutch_cursor_release(cursor);
    free(met);
    CHECK_OK(hutch_flush(cache));
  }
  free(key);
  CHECK_OK(hutch_close(cache));
}

/* --------------------------------------------------------------- two lives */

static hutch_cache *open_on(test_clock *clock, int64_t time_to_live_on_disk) {
  hutch_options options = unlimited_options();
  options.disk.time_to_live = time_to_live_on_disk;
  use_clock(&options, clock);
  return open_cache(scratch("cache").text, &options);
}

/* Memory's copy lives on while the row has expired, and is there until it is swept. */
TEST(of_an_entry_that_lives_longer_in_memory) {
  test_clock clock = {0};
  hutch_cache *cache = open_on(&clock, HUTCH_SECOND);
  for (uint32_t i = 0; i < 10; i++) put_number(cache, i, HUTCH_WRITE_DEFAULT);
  clock.now += 2 * HUTCH_SECOND;
  get_number(cache, 3);
  check_walk(cache, 10, true);
  check_walk(cache, 10, false);
  CHECK_EQUAL(10, count_of(cache));
  check_walk(cache, 10, true);
  CHECK_OK(hutch_close(cache));
}

TEST(of_an_entry_that_is_read_again_and_again) {
  test_clock clock = {0};
  hutch_cache *cache = open_on(&clock, 0);
  hutch_put_options put = put_options();
  put.time_to_idle = HUTCH_SECOND;
  uint32_t number = 0;
  CHECK_OK(hutch_put(cache, &number, sizeof number, "value", 5, &put, NULL));
  for (int i = 0; i < 5; i++) {
    clock.now += 700 * HUTCH_MILLISECOND;
    get_number(cache, number);
    check_walk(cache, 1, true);
    check_walk(cache, 1, false);
  }
  clock.now += 700 * HUTCH_MILLISECOND;
  CHECK_OK(hutch_touch(cache, &number, sizeof number, 0, 0));
  check_walk(cache, 1, true);
  check_walk(cache, 1, false);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------- while entries change tiers */

/* A sanitizer makes a walk ten times as long. */
enum { LAPS = SANITIZED_BY == 1 ? 6 : 2, WALKED = SANITIZED_BY == 1 ? 3000 : 1000 };

typedef struct traffic {
  hutch_cache *cache;
  uint32_t count;
  atomic_bool ends;
} traffic;


static void flush_or_walk(void *context, int index) {
  traffic *t = context;
  if (index == 0) {
    CHECK_OK(hutch_flush(t->cache));
    atomic_store(&t->ends, true);
    return;
  }
  if (index == 1) {
    while (!atomic_load(&t->ends)) {
      uint64_t count = count_of(t->cache);
      /* For a moment one that has just been written counts twice. */
      CHECK(count >= t->count);
      CHECK(count <= 2 * t->count);
    }
    return;
  }
  while (!atomic_load(&t->ends)) check_walk(t->cache, t->count, index % 2);
}

/* A flush writes what memory keeps. */
TEST(during_a_flush) {
  for (int round = 0; round < 8 / SANITIZED_BY * scale(); round++) {
    traffic t = {.cache = NULL, .count = WALKED};
    hutch_options options = unlimited_options();
    options.write_policy = HUTCH_WRITE_ON_EVICTION;
    t.cache = open_cache(scratch("cache").text, &options);
    for (uint32_t i = 0; i < t.count; i++) put_number(t.cache, i, HUTCH_WRITE_DEFAULT);
    run_threads(4, flush_or_walk, &t);
    CHECK_EQUAL(t.count, count_of(t.cache));
    check_walk(t.cache, t.count, true);
    CHECK_OK(hutch_close(t.cache));
    remove_tree(scratch("cache").text);
  }
}

static void move_or_walk(void *context, int index) {
  traffic *t = context;
  if (index < 2) {
    for (int i = 0; i < LAPS; i++) check_walk(t->cache, t->count, index % 2);
    atomic_store(&t->ends, true);
    return;
  }
  uint64_t state = seed() + (uint64_t)index;
  while (!atomic_load(&t->ends)) {
    /* Gets promote, and what must make room goes down. */
    if (next_random(&state) % 64 == 0) CHECK_OK(hutch_flush(t->cache));
    get_number(t->cache, (uint32_t)(next_random(&state) % t->count));
  }
}

/* Dirty entries go down as memory gives them up, and come up when they are read. */
TEST(while_memory_gives_entries_up) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  options.memory.count = 500;
  traffic t = {.cache = open_cache(scratch("cache").text, &options), .count = WALKED};
  for (uint32_t i = 0; i < t.count; i++) put_number(t.cache, i, HUTCH_WRITE_DEFAULT);
  run_threads(4, move_or_walk, &t);
  CHECK_EQUAL(t.count, count_of(t.cache));
  CHECK_OK(hutch_close(t.cache));
}

static void drop_or_walk(void *context, int index) {
  traffic *t = context;
  if (index > 0) {
    for (int i = 0; i < LAPS; i++) check_walk(t->cache, t->count, index % 2);
    atomic_store(&t->ends, true);
    return;
  }
  hutch_cache *disk = tier_of(t->cache, HUTCH_TIER_DISK);
  uint64_t state = seed();
  while (!atomic_load(&t->ends)) {
    hutch_trim_spec spec = {.struct_size = sizeof spec,
                            .kind = HUTCH_TRIM_TO_COUNT,
                            .amount = next_random(&state) % t->count};
    CHECK_OK(hutch_trim(disk, &spec, NULL));
    for (int i = 0; i < 200; i++)
      put_number(t->cache, (uint32_t)(next_random(&state) % t->count), HUTCH_WRITE_THROUGH);
  }
  hutch_cache_release(disk);
}

/* The disk tier drops entries that memory keeps, and gets them again. */
TEST(while_the_disk_tier_drops_entries) {
  hutch_options options = unlimited_options();
  traffic t = {.cache = open_cache(scratch("cache").text, &options), .count = WALKED};
  for (uint32_t i = 0; i < t.count; i++) put_number(t.cache, i, HUTCH_WRITE_DEFAULT);
  run_threads(3, drop_or_walk, &t);
  CHECK_EQUAL(t.count, count_of(t.cache));
  CHECK_OK(hutch_close(t.cache));
}

/* ------------------------------------------------------------------ memory */

/* Whatever goes from tier to tier while a cursor exists, the cursor keeps none of it. */
TEST(a_cursor_does_not_grow_with_what_others_do) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  options.memory.count = 64;
  options.disk.count = 64;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  static char key[4000];
  hutch_cursor *cursor = NULL;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  size_t before = 0;
  for (int i = 0; i < 6000; i++) {
    /* What all need once is there by then. */
    if (i == 1000) before = mallinfo2().uordblks;
    memcpy(key, &i, sizeof i);
    CHECK_OK(hutch_put(cache, key, sizeof key, "v", 1, NULL, NULL));
  }
  size_t after = mallinfo2().uordblks;
  CHECK(after < before + (4u << 20));
  const void *found;
  size_t size;
  CHECK_OK(hutch_cursor_next(cursor, &found, &size));
  hutch_cursor_release(cursor);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ prefixes */

static const char *const alike[] = {"user:", "user:1", "user:1:a", "user:2", "user:\xff"};
static const char *const others[] = {"u", "user", "user;", "uses:1", "\xff", "a"};
enum { ALIKE = 5, OTHERS = 6 };

static void put_all(hutch_cache *cache, uint32_t policy) {
  hutch_put_options put = put_options();
  put.write_policy = policy;
  for (int i = 0; i < ALIKE; i++)
    CHECK_OK(hutch_put(cache, alike[i], strlen(alike[i]), "v", 1, &put, NULL));
  for (int i = 0; i < OTHERS; i++)
    CHECK_OK(hutch_put(cache, others[i], strlen(others[i]), "v", 1, &put, NULL));
}

TEST_EACH_KIND(keys_that_begin_alike_are_removed) {
  uint64_t removed = 7;
  CHECK_OK(hutch_remove_prefix(f->cache, KEY("user:"), &removed));
  CHECK_EQUAL(0, removed);
  put_all(f->cache, HUTCH_WRITE_DEFAULT);
  CHECK_OK(hutch_remove_prefix(f->cache, KEY("user:"), &removed));
  CHECK_EQUAL(ALIKE, removed);
  for (int i = 0; i < ALIKE; i++) CHECK_MISSING(f->cache, alike[i]);
  for (int i = 0; i < OTHERS; i++) CHECK_TEXT(f->cache, others[i], "v");
  CHECK_EQUAL(OTHERS, count_of(f->cache));
  /* No key is longer than the longest, and none is empty. */
  removed = 7;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_prefix(f->cache, "", 0, &removed));
  CHECK_EQUAL(0, removed);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_prefix(f->cache, NULL, 3, NULL));
  static const char longest[65536];
  CHECK_OK(hutch_remove_prefix(f->cache, longest, 65535, &removed));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_prefix(f->cache, longest, 65536, NULL));
  CHECK_EQUAL(OTHERS, count_of(f->cache));
}

TEST(a_prefix_is_removed_from_every_tier) {
  static const uint32_t policies[] = {HUTCH_WRITE_THROUGH, HUTCH_WRITE_MEMORY, HUTCH_WRITE_DISK,
                                      HUTCH_WRITE_ON_EVICTION};
  for (int i = 0; i < 4; i++) {
    hutch_cache *cache = open_cache(scratch("cache").text, NULL);
    put_all(cache, policies[i]);
    uint64_t removed = 0;
    CHECK_OK(hutch_remove_prefix(cache, KEY("user:"), &removed));
    CHECK_EQUAL(ALIKE, removed);
    CHECK_OK(hutch_close(cache));
    cache = open_cache(scratch("cache").text, NULL);
    for (int j = 0; j < ALIKE; j++) CHECK_MISSING(cache, alike[j]);
    CHECK_OK(hutch_clear(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_view_removes_a_prefix_from_its_tier) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  uint64_t removed = 0;
  put_all(cache, HUTCH_WRITE_DEFAULT);
  CHECK_OK(hutch_remove_prefix(memory, KEY("user:"), &removed));
  CHECK_EQUAL(ALIKE, removed);
  for (int i = 0; i < ALIKE; i++) check_where(cache, alike[i], false, true);
  CHECK_OK(hutch_remove_prefix(disk, KEY("user:"), &removed));
  CHECK_EQUAL(ALIKE, removed);
  CHECK_EQUAL(OTHERS, count_of(cache));
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

static void count_removals(void *context, const hutch_event *event) {
  /* Memory gives up others. */
  if (event->cause != HUTCH_CAUSE_REMOVED) return;
  CHECK(event->key_size > 5 && memcmp(event->key, "user:", 5) == 0);
  atomic_fetch_add((_Atomic int *)context, 1);
}

static void remove_or_move(void *context, int index) {
  traffic *t = context;
  if (index == 0) {
    uint64_t removed = 0;
    CHECK_OK(hutch_remove_prefix(t->cache, KEY("user:"), &removed));
    CHECK_EQUAL(t->count, removed);
    atomic_store(&t->ends, true);
    return;
  }
  uint64_t state = seed() + (uint64_t)index;
  while (!atomic_load(&t->ends)) {
    if (index == 1) CHECK_OK(hutch_flush(t->cache));
    char key[32];
    hutch_value *value = NULL;
    sprintf(key, "%s%u", next_random(&state) % 2 ? "user:" : "other:",
            (unsigned)(next_random(&state) % t->count));
    if (hutch_get(t->cache, key, strlen(key), &value) == HUTCH_OK) hutch_value_release(value);
  }
}

/* Entries go down and come up while their prefix is removed: none is missed, each is told once. */
TEST(a_prefix_is_removed_while_entries_change_tiers) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  enum { COUNT = SANITIZED_BY == 1 ? 2000 : 500 };
  options.memory.count = COUNT / 4;
  traffic t = {.cache = open_cache(scratch("cache").text, &options), .count = COUNT};
  for (int i = 0; i < 2 * (int)t.count; i++) {
    char key[32];
    sprintf(key, "%s%d", i % 2 ? "user:" : "other:", i / 2);
    CHECK_OK(put_text(t.cache, key, "value"));
  }
  _Atomic int told = 0;
  CHECK_OK(hutch_set_listener(t.cache, HUTCH_EVENT_DID_REMOVE, count_removals, &told, NULL));
  run_threads(4, remove_or_move, &t);
  CHECK_OK(hutch_set_listener(t.cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(t.count, told);
  CHECK_EQUAL(t.count, count_of(t.cache));
  CHECK_OK(hutch_close(t.cache));
}
