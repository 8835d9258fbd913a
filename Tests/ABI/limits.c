/* The group 'limits' of hutch.h: every limit is hard, and holds when a put returns. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/mman.h>
#include <sys/stat.h>

/* A cache in memory with these limits; 0 is none. */
static hutch_cache *open_limited(uint64_t cost, uint64_t count, uint64_t max_entry) {
  hutch_options options = unlimited_options();
  if (cost) options.memory.cost = cost;
  if (count) options.memory.count = count;
  if (max_entry) options.memory.max_entry = max_entry;
  options.policy = HUTCH_POLICY_LRU;
  return open_cache(NULL, &options);
}

static hutch_status put_cost(hutch_cache *cache, const char *key, uint64_t cost) {
  hutch_put_options options = put_options();
  options.cost = cost;
  return hutch_put(cache, KEY(key), KEY("value"), &options, NULL);
}

static hutch_status put_number(hutch_cache *cache, uint32_t key, size_t size) {
  void *data = filled(size, key);
  hutch_status status = hutch_put(cache, &key, sizeof key, data, size, NULL, NULL);
  free(data);
  return status;
}

/* ------------------------------------------------------------------ memory */

/* A value that memory refuses for its size is not read, and not copied: a copy could take all of
   the machine's memory. It replaces nothing and leaves nothing. */
TEST(a_value_larger_than_the_tier_is_not_copied) {
  size_t size = (size_t)1 << 30;
  void *value = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(value != MAP_FAILED);
  hutch_cache *cache = open_limited(1 << 20, 0, 0);
  hutch_put_options options = put_options();
  options.time_to_live = 1000000000;
  hutch_put_result result = {.struct_size = sizeof result};
  CHECK_OK(put_text(cache, "key", "old"));
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(cache, KEY("key"), value, size, NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.memory);
  CHECK_MISSING(cache, "key");
  CHECK_OK(put_text(cache, "key", "old"));
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("key"), value, size, &options, NULL));
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(cache, KEY("key"), value, size, &options, NULL));
  CHECK_MISSING(cache, "key");
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_add(cache, KEY("key"), value, size, NULL, NULL));
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(cache, KEY("key"), value, INT64_MAX, NULL, NULL));
  CHECK_EQUAL(0, cost_of(cache));
  CHECK_EQUAL(4, stats_of(cache).memory.refusals);
  /* No entry came with a cost of its own: costs are bytes still. */
  CHECK_OK(put_number(cache, 1, 100000));
  CHECK(cost_of(cache) > 100000);
  CHECK_OK(hutch_close(cache));
  CHECK(munmap(value, size) == 0);
}

/* A file is refused like a value, and what it would replace is not counted as removed. */
TEST(a_file_that_is_too_large_counts_as_refused) {
  hutch_options options = default_options();
  options.memory.max_entry = options.disk.max_entry = 4000;
  path file = scratch("file");
  void *data = filled(10000, 1);
  write_file(file.text, data, 10000);
  free(data);
  for (int on_disk = 0; on_disk < 2; on_disk++) {
    hutch_cache *cache = open_cache(on_disk ? scratch("cache").text : NULL, &options);
    CHECK_OK(put_text(cache, "key", "old"));
    CHECK_STATUS(HUTCH_TOO_LARGE,
                 hutch_put_file(cache, KEY("key"), file.text, HUTCH_FILE_COPY, NULL, NULL));
    CHECK_MISSING(cache, "key");
    hutch_cache_stats stats = stats_of(cache);
    CHECK(stats.memory.refusals == 1 && stats.disk.refusals == (uint64_t)on_disk);
    CHECK(stats.memory.removals == 0 && stats.disk.removals == 0);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(the_default_limits_hold_without_a_setter) {
  hutch_cache *cache = open_cache(NULL, NULL);
  for (uint32_t i = 0; i < 100; i++) {
    CHECK_OK(put_number(cache, i, 1 << 20));
    CHECK(cost_of(cache) <= 64 << 20);
    /* What was just put is not what goes. */
    CHECK_OK(hutch_contains(cache, &i, sizeof i));
  }
  CHECK(count_of(cache) >= 40);
  CHECK_EQUAL(100 - count_of(cache), stats_of(cache).memory.evictions);
  CHECK_STATUS(HUTCH_TOO_LARGE, put_size(cache, "large", 17 << 20));
  CHECK_MISSING(cache, "large");
  CHECK_OK(hutch_close(cache));
}

/* The memory tier's cost is the sum of the costs given, 0 too. */
TEST(a_cost_of_0_can_be_given) {
  static const uint32_t policies[] = {HUTCH_POLICY_LRU, HUTCH_POLICY_LFU, HUTCH_POLICY_FIFO,
                                      HUTCH_POLICY_ADAPTIVE};
  for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
    hutch_options options = unlimited_options();
    options.memory.cost = 100;
    options.policy = policies[p];
    hutch_cache *cache = open_cache(NULL, &options);
    char key[32];
    for (int i = 0; i < 1000; i++) {
      snprintf(key, sizeof key, "free %d", i);
      CHECK_OK(put_cost(cache, key, HUTCH_NO_COST));
    }
    CHECK_EQUAL(0, cost_of(cache));
    CHECK_EQUAL(1000, count_of(cache));
    CHECK(info_of(cache, "free 7").cost == HUTCH_NO_COST);
    for (int i = 0; i < 4; i++) {
      snprintf(key, sizeof key, "costly %d", i);
      CHECK_OK(put_cost(cache, key, 25));
    }
    CHECK_EQUAL(100, cost_of(cache));
    CHECK_OK(put_cost(cache, "one more", 30));
    CHECK(cost_of(cache) <= 100);
    CHECK_OK(hutch_contains(cache, KEY("one more")));
    CHECK_OK(put_cost(cache, "one more", HUTCH_NO_COST));
    CHECK(cost_of(cache) <= 75);
    CHECK_OK(hutch_close(cache));
  }
}

/* A cost of 0 comes back from disk with its entry. */
TEST(a_cost_of_0_is_stored) {
  hutch_options options = default_options();
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_cost(cache, "key", HUTCH_NO_COST));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_TEXT(cache, "key", "value");
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_OK(hutch_contains(memory, KEY("key")));
  CHECK_EQUAL(0, cost_of(memory));
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(value_bytes_are_the_sum_of_the_sizes) {
  uint64_t bytes = 1;
  CHECK_OK(hutch_value_bytes(f->cache, &bytes));
  CHECK_EQUAL(0, bytes);
  for (int i = 0; i < 10; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(f->cache, key, 1000));
  }
  CHECK_OK(put_size(f->cache, "large", 100000));
  CHECK_OK(put_size(f->cache, "empty", 0));
  CHECK_OK(hutch_value_bytes(f->cache, &bytes));
  CHECK_EQUAL(110000, bytes);
  CHECK_OK(put_size(f->cache, "large", 50000));
  CHECK_OK(hutch_value_bytes(f->whole, &bytes));
  CHECK_EQUAL(60000, bytes);
  CHECK_OK(hutch_clear(f->cache));
  CHECK_OK(hutch_value_bytes(f->whole, &bytes));
  CHECK_EQUAL(0, bytes);
}

TEST(a_count_limit_keeps_the_recently_used) {
  hutch_cache *cache = open_limited(0, 4, 0);
  const char *keys[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) CHECK_OK(put_text(cache, keys[i], "value"));
  CHECK_TEXT(cache, "a", "value");
  CHECK_OK(put_text(cache, "e", "value"));
  CHECK_EQUAL(4, count_of(cache));
  CHECK_MISSING(cache, "b");
  CHECK_OK(put_text(cache, "c", "again"));
  CHECK_OK(put_text(cache, "f", "value"));
  CHECK_MISSING(cache, "d");
  CHECK_OK(put_text(cache, "g", "value"));
  CHECK_MISSING(cache, "a");
  CHECK_TEXT(cache, "e", "value");
  CHECK_TEXT(cache, "c", "again");
  CHECK_OK(hutch_close(cache));
}

/* The share of hits of the small entries, of 20,000 requests of which each fifth is for a large
 * one: 500 small ones in half the room, and 50 large ones that ten of would fill it. */
static double hits_of_small(uint32_t policy) {
  hutch_options options = default_options();
  options.memory.cost = 1000000;
  options.policy = policy;
  hutch_cache *cache = open_cache(NULL, &options);
  uint32_t random = 12345, hits = 0, asked = 0;
  for (uint32_t i = 0; i < 20000; i++) {
    random = random * 1664525 + 1013904223;
    int is_large = i % 5 == 4;
    uint32_t key = is_large ? 1000 + (random >> 16) % 50 : (random >> 16) % 500;
    size_t size;
    hutch_status status = hutch_get_into(cache, &key, sizeof key, NULL, 0, &size);
    if (!is_large && i >= 10000) {
      asked++;
      hits += status == HUTCH_OK;
    }
    if (status == HUTCH_OK) continue;
    CHECK_STATUS(HUTCH_NOT_FOUND, status);
    hutch_put_options put = put_options();
    put.cost = is_large ? 100000 : 1000;
    CHECK_OK(hutch_put(cache, &key, sizeof key, NULL, 0, &put, NULL));
    CHECK(cost_of(cache) <= 1000000);
    CHECK_OK(hutch_contains(cache, &key, sizeof key));
  }
  CHECK_OK(hutch_close(cache));
  return (double)hits / asked;
}

TEST(the_default_policy_keeps_many_small_popular_entries_not_few_large_ones) {
  CHECK(hits_of_small(HUTCH_POLICY_DEFAULT) > 0.9);
  CHECK(hits_of_small(HUTCH_POLICY_LRU) < 0.3);
}

/* "exact up to 4,096 entries", against the plainest model there is. */
TEST(lru_is_exact) {
  enum { LIMIT = 1000, KEYS = 1500, STEPS = 40000 };
  static uint64_t used[KEYS];
  uint64_t state = seed();
  hutch_cache *cache = open_limited(0, LIMIT, 0);
  int held = 0;
  for (uint64_t step = 1; step <= STEPS; step++) {
    uint32_t key = (uint32_t)(next_random(&state) % KEYS);
    bool put = next_random(&state) % 4 == 0;
    if (!put) {
      hutch_value *value = NULL;
      CHECK_STATUS(used[key] ? HUTCH_OK : HUTCH_NOT_FOUND,
                   hutch_get(cache, &key, sizeof key, &value));
      hutch_value_release(value);
      if (!used[key]) continue;
    } else {
      CHECK_OK(hutch_put(cache, &key, sizeof key, &step, sizeof step, NULL, NULL));
      if (!used[key] && ++held > LIMIT) {
        int oldest = -1;
        for (int i = 0; i < KEYS; i++)
          if (used[i] && (oldest < 0 || used[i] < used[oldest])) oldest = i;
        used[oldest] = 0;
        held--;
      }
    }
    used[key] = step;
  }
  CHECK_EQUAL(held, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(an_explicit_cost_replaces_the_charge) {
  hutch_cache *cache = open_limited(100, 0, 0);
  CHECK_OK(put_cost(cache, "a", 40));
  CHECK_OK(put_cost(cache, "b", 60));
  CHECK_EQUAL(100, cost_of(cache));
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(put_cost(cache, "c", 1));
  CHECK_EQUAL(61, cost_of(cache));
  CHECK_MISSING(cache, "a");
  /* In place of itself an entry's old cost does not count. */
  CHECK_OK(put_cost(cache, "b", 99));
  CHECK_EQUAL(100, cost_of(cache));
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(put_cost(cache, "b", 10));
  CHECK_EQUAL(11, cost_of(cache));
  CHECK_OK(hutch_remove(cache, KEY("b")));
  CHECK_EQUAL(1, cost_of(cache));
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(0, cost_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(the_charge_is_at_least_what_was_given) {
  hutch_cache *cache = open_limited(0, 0, 0);
  hutch_put_options options = put_options();
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &options, NULL));
  CHECK(cost_of(cache) >= 3 + 5 + 4);
  uint64_t small = cost_of(cache);
  CHECK_OK(put_size(cache, "key", 10000));
  CHECK(cost_of(cache) >= 10003 && cost_of(cache) < 10003 + 1000);
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &options, NULL));
  CHECK_EQUAL(small, cost_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(max_entry_refuses_larger_ones_and_the_old_value_goes) {
  hutch_cache *cache = open_limited(0, 0, 50);
  CHECK_OK(put_cost(cache, "key", 50));
  hutch_put_options options = put_options();
  options.cost = 51;
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(cache, KEY("key"), KEY("new"), &options, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_NONE, result.disk);
  CHECK_MISSING(cache, "key");
  CHECK_EQUAL(0, count_of(cache));
  CHECK_EQUAL(1, stats_of(cache).memory.refusals);
  CHECK_OK(hutch_close(cache));
}

TEST(a_quarter_is_a_quarter_of_the_limit_as_it_is) {
  hutch_cache *cache = open_limited(400, 0, HUTCH_MAX_ENTRY_QUARTER);
  CHECK_OK(put_cost(cache, "a", 100));
  CHECK_STATUS(HUTCH_TOO_LARGE, put_cost(cache, "b", 101));
  hutch_cache_limits limits = limits_of(cache);
  CHECK_EQUAL(HUTCH_MAX_ENTRY_QUARTER, limits.memory.max_entry);
  limits.memory.cost = 800;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_OK(put_cost(cache, "b", 200));
  CHECK_STATUS(HUTCH_TOO_LARGE, put_cost(cache, "c", 201));
  CHECK_EQUAL(300, cost_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(the_greatest_cost_is_only_a_number) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(put_text(cache, "other", "value"));
  CHECK_STATUS(HUTCH_TOO_LARGE, put_cost(cache, "key", UINT64_MAX - 1));
  CHECK_MISSING(cache, "key");
  CHECK_TEXT(cache, "other", "value");
  CHECK_OK(hutch_close(cache));

  /* Without a limit it is stored. Several do not fit into any sum, which must not wrap around:
     some may go, and what is charged for the rest comes back exactly. */
  cache = open_limited(0, 0, 0);
  const char *keys[] = {"a", "b", "c"};
  const uint64_t costs[] = {UINT64_MAX - 1, UINT64_MAX - 1, UINT64_MAX / 2};
  for (int i = 0; i < 9; i++) {
    CHECK_OK(put_cost(cache, keys[i % 3], costs[i % 3]));
    CHECK_TEXT(cache, keys[i % 3], "value");
    CHECK(cost_of(cache) >= costs[i % 3]);
  }
  for (int i = 0; i < 3; i++) hutch_remove(cache, KEY(keys[i]));
  CHECK_EQUAL(0, cost_of(cache));
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_value_that_a_reader_holds_is_not_kept_by_the_cache) {
  hutch_cache *cache = open_limited(0, 1, 0);
  CHECK_OK(put_text(cache, "a", "held"));
  hutch_value *value = get_value(cache, "a");
  CHECK_OK(put_text(cache, "b", "value"));
  CHECK_MISSING(cache, "a");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_BYTES("held", 4, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------- numbers at the end */

/* A time that no 64 bits hold is the last that they do. */
TEST(a_duration_that_overflows_is_a_long_one) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  clock.now = INT64_MAX - HUTCH_DAY;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  hutch_put_options spec = put_options();
  spec.time_to_live = INT64_MAX - 1;
  spec.time_to_idle = INT64_MAX - 1;
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &spec, NULL));
  CHECK_OK(hutch_put_object(cache, KEY("key"), &clock, NULL, &spec));
  CHECK_OK(hutch_touch(cache, KEY("key"), INT64_MAX - 1, INT64_MAX - 1));
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.time_to_live = limits.memory.time_to_idle = INT64_MAX;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_OK(put_text(cache, "other", "value"));
  clock.now += HUTCH_HOUR;
  hutch_object *object;
  CHECK_TEXT(cache, "key", "value");
  CHECK_TEXT(cache, "other", "value");
  CHECK_OK(hutch_get_object(cache, KEY("key"), &object));
  hutch_object_release(object);
  CHECK_EQUAL(3, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(limits_at_the_end_of_the_numbers) {
  const uint64_t ends[] = {UINT64_MAX, UINT64_MAX - 1, (uint64_t)INT64_MAX + 1, INT64_MAX};
  for (int i = 0; i < 4; i++) {
    hutch_cache *cache = open_limited(ends[i], ends[i], 0);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(put_cost(cache, "large", ends[i] / 2));
    CHECK_OK(put_cost(cache, "larger", ends[i] - 1));
    CHECK(cost_of(cache) <= ends[i]);
    CHECK_TEXT(cache, "larger", "value");
    hutch_cache_limits limits = limits_of(cache);
    limits.memory.cost = limits.memory.count = 1;
    CHECK_OK(hutch_set_limits(cache, &limits));
    CHECK_EQUAL(0, cost_of(cache));
    CHECK_STATUS(HUTCH_TOO_LARGE, put_text(cache, "key", "value"));
    CHECK_OK(put_cost(cache, "key", 1));
    CHECK_OK(put_cost(cache, "other", 1));
    CHECK_EQUAL(1, count_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}

/* Objects and values share the limits. */
TEST(a_lower_limit_takes_objects_too) {
  hutch_options options = unlimited_options();
  options.policy = HUTCH_POLICY_LRU;
  options.flags = HUTCH_OPEN_DRAIN_RELEASES;
  hutch_cache *cache = open_cache(NULL, &options);
  for (uint32_t i = 0; i < 1000; i++) {
    CHECK_OK(hutch_put_object(cache, &i, sizeof i, cache, NULL, NULL));
    CHECK_OK(put_number(cache, i, 0));
  }
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.count = 7;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_EQUAL(7, count_of(cache));
  uint32_t last = 999;
  hutch_object *object;
  CHECK_OK(hutch_get_object(cache, &last, sizeof last, &object));
  hutch_object_release(object);
  CHECK_EQUAL(1993, stats_of(cache).memory.evictions);
  uint64_t drained;
  CHECK_OK(hutch_drain_releases(cache, 0, &drained));
  CHECK_EQUAL(997, drained);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------- set_limits */

TEST(a_limit_that_is_not_set_stays_as_it_is) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_cache_limits before = limits_of(cache), limits = {.struct_size = sizeof limits}, after;
  CHECK_OK(hutch_set_limits(cache, &limits));
  after = limits_of(cache);
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  limits.memory.count = 3;
  limits.disk.min_free = 4096;
  limits.disk.time_to_idle = HUTCH_HOUR;
  CHECK_OK(hutch_set_limits(cache, &limits));
  before.memory.count = 3;
  before.disk.min_free = 4096;
  before.disk.time_to_idle = HUTCH_HOUR;
  after = limits_of(cache);
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  /* What was told can be set again, none included. */
  limits = (hutch_cache_limits){sizeof limits, no_limits(), no_limits()};
  CHECK_OK(hutch_set_limits(cache, &limits));
  after = limits_of(cache);
  CHECK_BYTES(&limits, sizeof limits, &after, sizeof after);
  CHECK_OK(hutch_set_limits(cache, &before));
  after = limits_of(cache);
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  CHECK_OK(hutch_close(cache));
}

TEST(a_lower_limit_holds_when_the_call_returns) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 200; i++) CHECK_OK(put_number(cache, i, 1000));
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.count = 10;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_EQUAL(10, count_of(memory));
  CHECK_EQUAL(200, count_of(cache));
  limits.disk.count = 20;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_EQUAL(20, count_of(disk));
  CHECK(count_of(cache) <= 30);
  limits.memory.cost = 2500;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK(cost_of(memory) <= 2500);
  CHECK_EQUAL(2500, limits_of(cache).memory.cost);
  CHECK_EQUAL(20, limits_of(cache).disk.count);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_view_sets_its_own_limits) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  limits.memory.count = 3;
  limits.disk.count = 5;
  CHECK_OK(hutch_set_limits(memory, &limits));
  CHECK_EQUAL(3, limits_of(cache).memory.count);
  CHECK_EQUAL(HUTCH_NO_LIMIT, limits_of(cache).disk.count);
  limits.memory.count = 7;
  CHECK_OK(hutch_set_limits(disk, &limits));
  CHECK_EQUAL(3, limits_of(cache).memory.count);
  CHECK_EQUAL(5, limits_of(cache).disk.count);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(what_a_shorter_struct_leaves_out_stays_as_it_is) {
  hutch_options options = unlimited_options();
  options.disk.count = 5;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache_limits limits = {.struct_size = offsetof(hutch_cache_limits, disk)};
  limits.memory.count = 3;
  limits.disk.count = 99;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_EQUAL(3, limits_of(cache).memory.count);
  CHECK_EQUAL(5, limits_of(cache).disk.count);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- disk */

TEST(a_disk_count_limit_is_hard) {
  hutch_options options = default_options();
  options.disk.count = 50;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 300; i++) {
    CHECK_OK(put_number(cache, i, 100));
    CHECK(count_of(disk) <= 50);
    CHECK_OK(hutch_contains(disk, &i, sizeof i));
  }
  CHECK(count_of(disk) >= 25);
  CHECK_EQUAL(300, count_of(cache));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* The directory itself, as `du --apparent-size` would have it, stays within the limit. */
static void fill_the_disk(const char *name, uint32_t storage, uint64_t limit, size_t size) {
  check_note(name);
  path directory = scratch(name);
  hutch_options options = default_options();
  options.storage = storage;
  options.disk.cost = limit;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  uint32_t puts = (uint32_t)(2 * scale() * limit / size);
  for (uint32_t i = 0; i < puts; i++) {
    CHECK_OK(put_number(cache, i, size));
    CHECK(cost_of(disk) <= limit);
  }
  CHECK(count_of(disk) >= limit / size / 3);
  CHECK(stats_of(cache).disk.evictions > 0);
  uint32_t last = puts - 1;
  CHECK_OK(hutch_contains(disk, &last, sizeof last));
  /* What processes share lies beside the limit. */
  char file[sizeof directory.text + 16];
  snprintf(file, sizeof file, "%s/hutch.shared", directory.text);
  struct stat shared;
  CHECK(stat(file, &shared) == 0);
  uint64_t used = bytes_below(directory.text) - (uint64_t)shared.st_size;
  if (used > limit) FAIL("the directory has %ju bytes", (uintmax_t)used);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  CHECK(bytes_below(directory.text) <= limit);
}

TEST(a_disk_cost_limit_is_hard) {
  fill_the_disk("small values", HUTCH_STORAGE_MIXED, 6000000, 3000);
  fill_the_disk("files", HUTCH_STORAGE_MIXED, 6000000, 60000);
  fill_the_disk("all in the database", HUTCH_STORAGE_SQLITE, 6000000, 60000);
  fill_the_disk("all in a smaller one", HUTCH_STORAGE_SQLITE, 3000000, 60000);
  fill_the_disk("all in a small one", HUTCH_STORAGE_SQLITE, 300000, 3000);
  fill_the_disk("all in files", HUTCH_STORAGE_FILE, 6000000, 6000);
}

TEST(the_limits_hold_for_what_an_earlier_process_left) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t i = 0; i < 200; i++) CHECK_OK(put_number(cache, i, 1000));
  CHECK_OK(hutch_close(cache));
  options.disk.count = 40;
  cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "one more", "value"));
  CHECK(count_of(cache) <= 40);
  CHECK_TEXT(cache, "one more", "value");
  CHECK_OK(hutch_close(cache));
}

/* Of what is above limits that have been lowered, a put evicts little. */
TEST(a_put_after_the_limits_were_lowered_evicts_a_few_hundred) {
  for (int by_cost = 0; by_cost <= 1; by_cost++) {
    path directory = scratch("cache");
    hutch_options options = unlimited_options();
    options.flags |= HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(directory.text, &options);
    for (uint32_t i = 0; i < 6000; i++) CHECK_OK(put_number(cache, i, 300));
    CHECK_OK(hutch_close(cache));
    if (by_cost) options.disk.cost = 500000;
    else options.disk.count = 500;
    options.memory.count = 1;
    cache = open_cache(directory.text, &options);
    uint64_t before = count_of(cache);
    for (int put = 0; put < 3; put++) {
      CHECK_OK(put_number(cache, 10000 + (uint32_t)put, 300));
      CHECK(count_of(cache) <= before && count_of(cache) + 600 >= before);
      before = count_of(cache);
    }
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK(count_of(cache) <= (by_cost ? 1700 : 501));
    CHECK_OK(put_number(cache, 20000, 300));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

TEST(the_disks_entries_live_for_thirty_days) {
  test_clock clock = {0};
  hutch_options options = default_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_EQUAL(clock.now + 30 * HUTCH_DAY, info_of(disk, "key").expires);
  clock.now += 30 * HUTCH_DAY;
  CHECK_MISSING(disk, "key");
  /* The memory tier has no such limit. */
  CHECK_TEXT(cache, "key", "value");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- stats */

TEST(the_statistics_count_what_happened) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_OK(put_text(cache, "a", "value"));
  CHECK_OK(put_text(cache, "b", "value"));
  CHECK_TEXT(cache, "a", "value");
  hutch_value *none = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(cache, KEY("none"), &none));
  CHECK_OK(hutch_clear(memory));
  CHECK_TEXT(cache, "a", "value"); /* from disk, promoted */
  CHECK_TEXT(cache, "a", "value"); /* from memory */
  CHECK_OK(hutch_remove(cache, KEY("a")));
  hutch_cache_stats stats = stats_of(cache);
  CHECK_EQUAL(HUTCH_STATE_UP, stats.memory.state);
  CHECK_EQUAL(HUTCH_STATE_UP, stats.disk.state);
  CHECK_EQUAL(2, stats.memory.hits);
  CHECK_EQUAL(2, stats.memory.misses);
  CHECK_EQUAL(1, stats.disk.hits);
  CHECK_EQUAL(1, stats.disk.misses);
  CHECK_EQUAL(3, stats.memory.puts);
  CHECK_EQUAL(2, stats.disk.puts);
  CHECK_EQUAL(1, stats.memory.removals);
  CHECK_EQUAL(1, stats.disk.removals);
  CHECK_EQUAL(0, stats.memory.count);
  CHECK_EQUAL(1, stats.disk.count);
  CHECK_EQUAL(cost_of(memory), stats.memory.cost);
  CHECK_EQUAL(cost_of(cache) - cost_of(memory), stats.disk.cost);
  CHECK_EQUAL(0, stats.memory.evictions + stats.disk.evictions);
  CHECK_EQUAL(0, stats.memory.failures + stats.disk.failures);
  CHECK_EQUAL(0, stats.disk.damaged);
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST(expirations_are_counted) {
  hutch_options options = default_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  hutch_put_options put = put_options();
  put.time_to_live = HUTCH_SECOND;
  for (uint32_t i = 0; i < 10; i++)
    CHECK_OK(hutch_put(cache, &i, sizeof i, "v", 1, &put, NULL));
  clock.now += 3 * HUTCH_SECOND;
  CHECK_EQUAL(0, count_of(cache));
  CHECK_EQUAL(0, cost_of(cache));
  CHECK_EQUAL(10, stats_of(cache).memory.expirations);
  CHECK_OK(hutch_close(cache));
}

TEST(a_cache_in_memory_has_no_disk_statistics) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_cache_stats stats = stats_of(cache), none;
  memset(&none, 0, sizeof none);
  CHECK_BYTES(&none.disk, sizeof none.disk, &stats.disk, sizeof stats.disk);
  CHECK_EQUAL(HUTCH_STATE_UP, stats.memory.state);
  CHECK_OK(hutch_close(cache));
}
