/* The group 'conditional' of hutch.h, on every kind of handle. */
#include "check.h"

TEST_EACH_KIND(add_puts_where_there_is_none) {
  hutch_put_result first = new_result(), second = new_result();
  CHECK_OK(hutch_add(f->cache, KEY("key"), KEY("one"), NULL, &first));
  CHECK_TEXT(f->cache, "key", "one");
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(f->cache, KEY("key"), KEY("two"), NULL, &second));
  CHECK_TEXT(f->cache, "key", "one");
  CHECK_EQUAL(first.version, second.version);
  CHECK_EQUAL(first.version, info_of(f->cache, "key").version);
  CHECK_OK(hutch_remove(f->cache, KEY("key")));
  CHECK_OK(hutch_add(f->cache, KEY("key"), KEY("two"), NULL, &second));
  CHECK(first.version != second.version);
  CHECK_TEXT(f->cache, "key", "two");
}

TEST_EACH_KIND(replace_puts_where_there_is_one) {
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(f->cache, KEY("key"), KEY("one"), NULL, &result));
  CHECK_EQUAL(0, result.version);
  CHECK_MISSING(f->cache, "key");
  CHECK_OK(put_text(f->cache, "key", "one"));
  CHECK_OK(hutch_replace(f->cache, KEY("key"), KEY("two"), NULL, &result));
  CHECK_EQUAL(result.version, info_of(f->cache, "key").version);
  CHECK_TEXT(f->cache, "key", "two");
}

TEST_EACH_KIND(compare_and_swap_puts_over_one_version) {
  hutch_put_result put = new_result(), swap = new_result();
  CHECK_STATUS(HUTCH_NOT_FOUND,
               hutch_compare_and_swap(f->cache, KEY("key"), 1, KEY("one"), NULL, &swap));
  CHECK_EQUAL(0, swap.version);
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("one"), NULL, &put));
  CHECK_OK(hutch_compare_and_swap(f->cache, KEY("key"), put.version, KEY("two"), NULL, &swap));
  CHECK_TEXT(f->cache, "key", "two");
  CHECK(swap.version != put.version);
  uint64_t now = swap.version;
  /* The version before, none at all, and one that never was. */
  const uint64_t others[] = {put.version, 0, UINT64_MAX};
  for (int i = 0; i < 3; i++) {
    swap = new_result();
    CHECK_STATUS(HUTCH_CONFLICT, hutch_compare_and_swap(f->cache, KEY("key"), others[i],
                                                        KEY("three"), NULL, &swap));
    CHECK_EQUAL(now, swap.version);
    CHECK_TEXT(f->cache, "key", "two");
  }
  /* info tells the version too, and a touch does not change it. */
  CHECK_OK(hutch_touch(f->cache, KEY("key"), HUTCH_HOUR, 0));
  uint64_t version = info_of(f->cache, "key").version;
  CHECK_OK(hutch_compare_and_swap(f->cache, KEY("key"), version, KEY("three"), NULL, NULL));
  CHECK_TEXT(f->cache, "key", "three");
}

/* Nor is one that a store refuses, which decides where processes share: see order.c. */
TEST_EACH_KIND(what_a_condition_refuses_is_not_counted_as_a_put) {
  CHECK_OK(put_text(f->cache, "key", "one"));
  hutch_cache_stats before = stats_of(f->cache);
  CHECK(before.memory.puts + before.disk.puts > 0);
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(f->cache, KEY("key"), KEY("two"), NULL, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(f->cache, KEY("none"), KEY("two"), NULL, NULL));
  CHECK_STATUS(HUTCH_CONFLICT, hutch_compare_and_swap(f->cache, KEY("key"), UINT64_MAX,
                                                      KEY("two"), NULL, NULL));
  hutch_cache_stats after = stats_of(f->cache);
  CHECK_EQUAL(before.memory.puts, after.memory.puts);
  CHECK_EQUAL(before.disk.puts, after.disk.puts);
}

TEST_EACH_KIND(conditional_puts_take_options) {
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_MINUTE;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_add(f->cache, KEY("added"), KEY("v"), &options, NULL));
  CHECK_OK(put_text(f->cache, "replaced", "v"));
  CHECK_OK(hutch_replace(f->cache, KEY("replaced"), KEY("v"), &options, NULL));
  CHECK_OK(put_text(f->cache, "swapped", "v"));
  CHECK_OK(hutch_compare_and_swap(f->cache, KEY("swapped"), info_of(f->cache, "swapped").version,
                                  KEY("v"), &options, NULL));
  CHECK_OK(hutch_increment(f->cache, KEY("counted"), 1, 0, &options, NULL));
  const char *keys[] = {"added", "replaced", "swapped", "counted"};
  for (int i = 0; i < 4; i++) {
    hutch_entry_info info = info_of(f->cache, keys[i]);
    CHECK_EQUAL(f->clock.now + HUTCH_MINUTE, info.expires);
    CHECK_EQUAL(4, info.extended_size);
  }
}

TEST_EACH_KIND(increment_counts) {
  int64_t sum = 0;
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 5, 100, NULL, &sum));
  CHECK_EQUAL(105, sum);
  CHECK_OK(hutch_increment(f->cache, KEY("n"), -200, 7, NULL, &sum));
  CHECK_EQUAL(-95, sum);
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 0, 7, NULL, NULL));
  hutch_value *value = get_value(f->cache, "n");
  const uint8_t expected[8] = {0xa1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  CHECK_BYTES(expected, 8, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  /* Any 8 bytes are a counter. */
  const uint8_t bytes[8] = {1, 2, 0, 0, 0, 0, 0, 0};
  CHECK_OK(hutch_put(f->cache, KEY("put"), bytes, 8, NULL, NULL));
  CHECK_OK(hutch_increment(f->cache, KEY("put"), 1, 0, NULL, &sum));
  CHECK_EQUAL(0x202, sum);
}

TEST_EACH_KIND(increment_keeps_the_record) {
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_MINUTE;
  options.time_to_idle = HUTCH_HOUR;
  options.cost = 9;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, &options, NULL));
  hutch_entry_info before = info_of(f->cache, "n");
  f->clock.now += HUTCH_SECOND;
  options.time_to_live = HUTCH_DAY;
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, &options, NULL));
  hutch_entry_info after = info_of(f->cache, "n");
  CHECK(after.version != before.version);
  CHECK_EQUAL(before.created, after.created);
  CHECK_EQUAL(before.expires, after.expires);
  CHECK_EQUAL(before.time_to_idle, after.time_to_idle);
  CHECK_EQUAL(before.cost, after.cost);
  hutch_value *value = get_value(f->cache, "n");
  CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
  hutch_value_release(value);
  f->clock.now += HUTCH_MINUTE;
  CHECK_MISSING(f->cache, "n");
}

/* An increment may change a counter where it stands; a value that is held must not see it. */
TEST_EACH_KIND(increment_leaves_values_that_are_held) {
  int64_t sum = 0;
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, NULL, NULL));
  hutch_entry_info before = info_of(f->cache, "n");
  for (int i = 2; i < 10; i++) {
    f->clock.now += HUTCH_SECOND;
    hutch_value *value = i % 2 ? get_value(f->cache, "n") : NULL;
    CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, NULL, &sum));
    CHECK_EQUAL(i, sum);
    hutch_entry_info after = info_of(f->cache, "n");
    CHECK(after.version > before.version);
    CHECK_EQUAL(before.created, after.created);
    before = after;
    if (value) {
      const uint8_t held[8] = {(uint8_t)(i - 1)};
      CHECK_BYTES(held, 8, hutch_value_data(value), hutch_value_size(value));
      hutch_value_release(value);
    }
  }
  CHECK_EQUAL(1, count_of(f->cache));
}

TEST_EACH_KIND(increment_refuses_what_is_no_counter) {
  CHECK_OK(put_text(f->cache, "short", "1234567"));
  CHECK_OK(put_text(f->cache, "long", "123456789"));
  CHECK_OK(put_text(f->cache, "empty", ""));
  const char *keys[] = {"short", "long", "empty"}, *values[] = {"1234567", "123456789", ""};
  for (int i = 0; i < 3; i++) {
    uint64_t version = info_of(f->cache, keys[i]).version;
    CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_increment(f->cache, KEY(keys[i]), 1, 0, NULL, NULL));
    CHECK_TEXT(f->cache, keys[i], values[i]);
    CHECK_EQUAL(version, info_of(f->cache, keys[i]).version);
  }
}

TEST_EACH_KIND(increment_counts_only_what_has_its_extended_data) {
  const char *tags[] = {NULL, "text", "number", "numbers"};
  for (int i = 0; i < 4; i++) {
    hutch_put_options stored = put_options();
    stored.extended = tags[i];
    stored.extended_size = tags[i] ? strlen(tags[i]) : 0;
    CHECK_OK(hutch_put(f->cache, KEY("n"), "ABCDEFGH", 8, &stored, NULL));
    for (int j = 0; j < 4; j++) {
      hutch_put_options asked = put_options();
      asked.extended = tags[j];
      asked.extended_size = tags[j] ? strlen(tags[j]) : 0;
      if (i != j) {
        CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_increment(f->cache, KEY("n"), 1, 0, &asked, NULL));
        CHECK_TEXT(f->cache, "n", "ABCDEFGH");
      }
    }
    if (stored.extended) {
      CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_increment(f->cache, KEY("n"), 1, 0, NULL, NULL));
    }
    CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, &stored, NULL));
    CHECK_TEXT(f->cache, "n", "BBCDEFGH");
  }
}

TEST_EACH_KIND(increment_does_not_wrap_around) {
  int64_t sum = 0;
  CHECK_OK(hutch_increment(f->cache, KEY("top"), INT64_MAX, 0, NULL, &sum));
  CHECK_EQUAL(INT64_MAX, sum);
  CHECK_STATUS(HUTCH_OVERFLOW, hutch_increment(f->cache, KEY("top"), 1, 0, NULL, NULL));
  CHECK_OK(hutch_increment(f->cache, KEY("top"), 0, 0, NULL, &sum));
  CHECK_EQUAL(INT64_MAX, sum);
  CHECK_OK(hutch_increment(f->cache, KEY("bottom"), INT64_MIN, 0, NULL, &sum));
  CHECK_EQUAL(INT64_MIN, sum);
  CHECK_STATUS(HUTCH_OVERFLOW, hutch_increment(f->cache, KEY("bottom"), -1, 0, NULL, NULL));
  CHECK_OK(hutch_increment(f->cache, KEY("bottom"), INT64_MAX, 0, NULL, &sum));
  CHECK_EQUAL(-1, sum);
  /* Nor is one made from an initial value that does not allow it. */
  CHECK_STATUS(HUTCH_OVERFLOW, hutch_increment(f->cache, KEY("new"), 1, INT64_MAX, NULL, NULL));
  CHECK_MISSING(f->cache, "new");
}

TEST_EACH_KIND(pop_gets_and_removes) {
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(f->cache, KEY("key"), &value));
  CHECK(!value);
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_OK(put_size(f->cache, "large", 100000));
  CHECK_OK(hutch_pop(f->cache, KEY("key"), &value));
  CHECK_BYTES("value", 5, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_MISSING(f->cache, "key");
  CHECK_OK(hutch_pop(f->cache, KEY("large"), &value));
  CHECK_EQUAL(100000, hutch_value_size(value));
  hutch_value_release(value);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(f->cache, KEY("large"), &value));
  CHECK_EQUAL(0, count_of(f->cache));
}

/* A cache with a disk tier decides by what is on disk, not by what is left in memory. */
TEST(the_disk_decides_where_memory_holds_nothing) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, NULL);
  hutch_put_result put = new_result(), result = new_result();
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), NULL, &put));
  CHECK_OK(hutch_increment(cache, KEY("n"), 1, 0, NULL, NULL));
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  int64_t sum = 0;
  for (int round = 0; round < 2; round++) {
    CHECK_OK(hutch_clear(memory));
    CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("key"), KEY("other"), NULL, &result));
    CHECK_EQUAL(put.version, result.version);
    CHECK_OK(hutch_clear(memory));
    CHECK_STATUS(HUTCH_CONFLICT, hutch_compare_and_swap(cache, KEY("key"), put.version + 1000,
                                                        KEY("other"), NULL, &result));
    CHECK_EQUAL(put.version, result.version);
    CHECK_OK(hutch_clear(memory));
    CHECK_OK(hutch_replace(cache, KEY("key"), KEY("value"), NULL, &put));
    CHECK_OK(hutch_clear(memory));
    CHECK_OK(hutch_increment(cache, KEY("n"), 1, 0, NULL, &sum));
    CHECK_EQUAL(round + 2, sum);
  }
  CHECK_OK(hutch_clear(memory));
  hutch_value *value = NULL;
  CHECK_OK(hutch_pop(cache, KEY("key"), &value));
  CHECK_BYTES("value", 5, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_MISSING(cache, "key");
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, NULL);
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_increment(cache, KEY("n"), 0, 0, NULL, &sum));
  CHECK_EQUAL(3, sum);
  CHECK_OK(hutch_close(cache));
}

/* The entry that has expired goes with the put that takes its place. */
TEST(a_put_in_the_place_of_an_expired_entry_is_in_memory) {
  for (uint32_t sharing = HUTCH_SHARING_EXCLUSIVE; sharing <= HUTCH_SHARING_SHARED; sharing++) {
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    use_clock(&options, &clock);
    /* Or the maintenance thread may remove the entry first, beside the put. */
    options.flags = HUTCH_OPEN_NO_THREADS;
    options.sharing = sharing;
    hutch_cache *cache = open_cache(scratch("cache").text, &options);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_SECOND;
    CHECK_OK(hutch_put(cache, KEY("key"), KEY("old"), &put, NULL));
    clock.now += 2 * HUTCH_SECOND;
    hutch_put_result result = new_result();
    CHECK_OK(hutch_add(cache, KEY("key"), KEY("new"), NULL, &result));
    CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
    CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
    CHECK_TEXT(memory, "key", "new");
    CHECK_EQUAL(1, stats_of(cache).disk.expirations);
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(cache));
  }
}
