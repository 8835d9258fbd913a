/* Values: counted references to bytes that never change. */
#include "check.h"

static void check_value(const hutch_value *value, const char *key, const char *data,
                        const char *extended) {
  CHECK_BYTES(data, strlen(data), hutch_value_data(value), hutch_value_size(value));
  CHECK_BYTES(key, strlen(key), hutch_value_key(value), hutch_value_key_size(value));
  CHECK_BYTES(extended, strlen(extended), hutch_value_extended(value),
              hutch_value_extended_size(value));
}

TEST_EACH_KIND(a_values_data_is_aligned_and_never_null) {
  for (size_t size = 0; size < 70; size++)
    for (size_t extended_size = 0; extended_size < 3; extended_size++) {
      char extended[2] = "x";
      hutch_put_options options = put_options();
      options.extended = extended;
      options.extended_size = extended_size;
      char key[80];
      memset(key, 'k', sizeof key);
      char *data = filled(size, size);
      CHECK_OK(hutch_put(f->cache, key, size + 1, data, size, &options, NULL));
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(f->cache, key, size + 1, &value));
      CHECK(hutch_value_data(value));
      CHECK(hutch_value_extended(value));
      CHECK_EQUAL(0, (uintptr_t)hutch_value_data(value) % 16);
      CHECK_BYTES(data, size, hutch_value_data(value), hutch_value_size(value));
      CHECK_BYTES(extended, extended_size, hutch_value_extended(value),
                  hutch_value_extended_size(value));
      CHECK_BYTES(key, size + 1, hutch_value_key(value), hutch_value_key_size(value));
      hutch_value_release(value);
      free(data);
    }
}

/* A put may take the memory of the entry that it evicts, but not from a reader that has it. */
TEST(a_value_stays_while_others_of_its_size_evict_its_entry) {
  enum { ROOM = 300, HELD = 100 };
  hutch_options options = unlimited_options();
  options.memory.count = ROOM;
  hutch_cache *cache = open_cache(NULL, &options);
  hutch_value *values[HELD];
  for (uint32_t i = 0; i < 20 * ROOM; i++) {
    char *data = filled(100, i);
    CHECK_OK(hutch_put(cache, &i, sizeof i, data, 100, NULL, NULL));
    if (i < HELD) CHECK_OK(hutch_get(cache, &i, sizeof i, &values[i]));
    free(data);
  }
  for (uint32_t i = 0; i < HELD; i++) {
    char *data = filled(100, i);
    CHECK_BYTES(data, 100, hutch_value_data(values[i]), hutch_value_size(values[i]));
    CHECK_BYTES(&i, sizeof i, hutch_value_key(values[i]), hutch_value_key_size(values[i]));
    hutch_value_release(values[i]);
    free(data);
  }
  hutch_cache_stats stats = stats_of(cache);
  CHECK_EQUAL(ROOM, stats.memory.count);
  CHECK_EQUAL(0, stats.memory.held_count);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_value_stays_whatever_becomes_of_its_entry) {
  hutch_put_options options = put_options();
  options.extended = "more";
  options.extended_size = 4;
  options.time_to_live = HUTCH_SECOND;
  hutch_value *values[5];
  for (int i = 0; i < 5; i++) {
    char key[] = "key 0";
    key[4] = (char)('0' + i);
    CHECK_OK(hutch_put(f->cache, KEY(key), KEY("value"), &options, NULL));
    values[i] = get_value(f->cache, key);
  }
  CHECK_OK(put_text(f->cache, "key 0", "another"));
  CHECK_OK(hutch_remove(f->cache, KEY("key 1")));
  f->clock.now += HUTCH_MINUTE;
  CHECK_MISSING(f->cache, "key 2");
  CHECK_OK(hutch_clear(f->cache));
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.count = limits.disk.count = 1;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  CHECK_OK(put_text(f->cache, "other", "value"));
  for (int i = 0; i < 5; i++) {
    char key[] = "key 0";
    key[4] = (char)('0' + i);
    check_value(values[i], key, "value", "more");
    hutch_value_release(values[i]);
  }
}

TEST(a_value_outlives_its_cache) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, NULL);
    CHECK_OK(put_text(cache, "small", "value"));
    CHECK_OK(put_size(cache, "large", 300000));
    hutch_value *small = get_value(cache, "small"), *large = get_value(cache, "large");
    uint64_t version = info_of(cache, "small").version;
    CHECK_OK(hutch_close(cache));
    if (disk) remove_tree(scratch("cache").text);
    check_value(small, "small", "value", "");
    CHECK_EQUAL(version, info_of_value(small).version);
    void *expected = filled(300000, 300000);
    CHECK_BYTES(expected, 300000, hutch_value_data(large), hutch_value_size(large));
    free(expected);
    hutch_value_release(small);
    hutch_value_release(large);
  }
}

TEST_EACH_KIND(values_of_all_sizes_take_each_others_place) {
  enum { ROUNDS = 300, HELD = 7 };
  hutch_value *held[HELD] = {NULL};
  size_t held_size[HELD] = {0};
  uint64_t version = 0;
  for (size_t i = 0; i < ROUNDS; i++) {
    /* By small steps, and now and then by large ones. */
    size_t size = i % 25 == 24 ? 1000 + i : i * 7 % 40 + i / 5;
    char *data = filled(size, i);
    hutch_put_result result = new_result();
    f->clock.now += HUTCH_MILLISECOND;
    CHECK_OK(hutch_put(f->cache, KEY("key"), data, size, NULL, &result));
    CHECK(result.version > version);
    version = result.version;
    hutch_entry_info info = info_of(f->cache, "key");
    CHECK_EQUAL(version, info.version);
    CHECK_EQUAL(size, info.size);
    CHECK_EQUAL(f->clock.now, info.created);
    CHECK_EQUAL(1, count_of(f->cache));
    hutch_value *value = get_value(f->cache, "key");
    CHECK_BYTES(data, size, hutch_value_data(value), hutch_value_size(value));
    CHECK_EQUAL(version, info_of_value(value).version);
    /* Every third value is held for some rounds, in which it stays as it is. */
    if (i % 3 == 0) {
      size_t at = i / 3 % HELD;
      if (held[at]) {
        char *old = filled(held_size[at], i - 3 * HELD);
        CHECK_BYTES(old, held_size[at], hutch_value_data(held[at]), hutch_value_size(held[at]));
        free(old);
        hutch_value_release(held[at]);
      }
      held[at] = value;
      held_size[at] = size;
    } else {
      hutch_value_release(value);
    }
    free(data);
  }
  for (int at = 0; at < HELD; at++) hutch_value_release(held[at]);
}

/* What an entry costs follows what replaces it, in steps of malloc, and stays within the limit. */
TEST(a_tiers_cost_follows_every_replacement) {
  hutch_options options = unlimited_options();
  options.memory.cost = 4096;
  hutch_cache *cache = open_cache(NULL, &options);
  CHECK_OK(put_size(cache, "a", 0));
  const uint64_t fixed = stats_of(cache).memory.cost;
  for (size_t i = 0; i < 400; i++) {
    size_t size = i * 11 % 60;
    CHECK_OK(put_size(cache, "a", size));
    CHECK_EQUAL(fixed + (size + 7) / 16 * 16, stats_of(cache).memory.cost);
  }
  for (size_t i = 0; i < 2000; i++) {
    char key[] = "a";
    key[0] = (char)('a' + i % 26);
    CHECK_OK(put_size(cache, key, i * 11 % 200));
    CHECK(stats_of(cache).memory.cost <= 4096);
  }
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_value_is_counted) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_value *value = get_value(f->cache, "key");
  CHECK_OK(hutch_clear(f->cache));
  for (int i = 0; i < 1000; i++) CHECK(hutch_value_retain(value) == value);
  for (int i = 0; i < 1000; i++) hutch_value_release(value);
  check_value(value, "key", "value", "");
  hutch_value_release(value);
}

TEST_EACH_KIND(a_values_record_is_the_writes) {
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_MINUTE;
  options.time_to_idle = HUTCH_HOUR;
  options.cost = 5;
  int64_t written = f->clock.now;
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("value"), &options, &result));
  f->clock.now += HUTCH_SECOND;
  hutch_value *value = get_value(f->cache, "key");
  f->clock.now += HUTCH_SECOND;
  CHECK_OK(put_text(f->cache, "key", "another value"));
  hutch_entry_info info = info_of_value(value);
  CHECK_EQUAL(result.version, info.version);
  CHECK_EQUAL(written, info.created);
  CHECK_EQUAL(written, info.accessed);
  CHECK_EQUAL(written + HUTCH_MINUTE, info.expires);
  CHECK_EQUAL(HUTCH_HOUR, info.time_to_idle);
  CHECK_EQUAL(5, info.cost);
  CHECK_EQUAL(5, info.size);
  hutch_value_release(value);
}

TEST_EACH_KIND(a_values_record_leaves_out_the_tiers_ages) {
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.time_to_live = limits.disk.time_to_live = HUTCH_HOUR;
  limits.memory.time_to_idle = limits.disk.time_to_idle = HUTCH_MINUTE;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_value *value = get_value(f->cache, "key");
  CHECK_EQUAL(f->clock.now + HUTCH_HOUR, info_of(f->cache, "key").expires);
  CHECK_EQUAL(0, info_of_value(value).expires);
  hutch_value_release(value);
}

TEST(null_is_no_value) {
  CHECK(!hutch_value_data(NULL));
  CHECK(!hutch_value_key(NULL));
  CHECK(!hutch_value_extended(NULL));
  CHECK_EQUAL(0, hutch_value_size(NULL));
  CHECK_EQUAL(0, hutch_value_key_size(NULL));
  CHECK_EQUAL(0, hutch_value_extended_size(NULL));
  CHECK(!hutch_value_retain(NULL));
  hutch_value_release(NULL);
}

/* Values that are held after their entry went are counted, by what becomes of the entry. */
TEST_EACH_KIND(what_is_held_is_counted_apart) {
  if (k == DISK_VIEW) return;
  hutch_value *held[4];
  CHECK_OK(put_text(f->cache, "replaced", "value"));
  CHECK_OK(put_text(f->cache, "removed", "value"));
  CHECK_OK(put_text(f->cache, "cleared", "value"));
  held[0] = get_value(f->cache, "replaced");
  held[1] = get_value(f->cache, "removed");
  held[2] = get_value(f->cache, "cleared");
  CHECK_EQUAL(0, stats_of(f->cache).memory.held_count);
  CHECK_OK(put_text(f->cache, "replaced", "another"));
  CHECK_EQUAL(1, stats_of(f->cache).memory.held_count);
  CHECK_EQUAL(1, stats_of(f->cache).memory.replacements);
  CHECK_OK(hutch_remove(f->cache, KEY("removed")));
  CHECK_EQUAL(2, stats_of(f->cache).memory.held_count);
  CHECK_OK(hutch_clear(f->cache));
  CHECK_EQUAL(0, stats_of(f->cache).memory.cost);
  CHECK_EQUAL(3, stats_of(f->cache).memory.held_count);
  uint64_t bytes = stats_of(f->cache).memory.held_bytes;
  CHECK(bytes >= 3 * 5 && bytes < 1000);
  /* A second reference changes nothing, nor does the first one's end. */
  held[3] = hutch_value_retain(held[0]);
  hutch_value_release(held[0]);
  CHECK_EQUAL(3, stats_of(f->cache).memory.held_count);
  for (int i = 1; i < 4; i++) {
    CHECK_EQUAL(4 - i, stats_of(f->cache).memory.held_count);
    CHECK_BYTES("value", 5, hutch_value_data(held[i]), hutch_value_size(held[i]));
    hutch_value_release(held[i]);
  }
  CHECK_EQUAL(0, stats_of(f->cache).memory.held_count);
  CHECK_EQUAL(0, stats_of(f->cache).memory.held_bytes);
}
