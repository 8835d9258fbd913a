/* The group 'entries' of hutch.h, on every kind of handle: put, get, contains, info, touch,
   remove, clear, and what becomes of an entry with time. */
#include "check.h"

/* ------------------------------------------------------------- put and get */

TEST_EACH_KIND(a_put_is_found) {
  CHECK_MISSING(f->cache, "key");
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_TEXT(f->cache, "key", "value");
  CHECK_OK(hutch_contains(f->cache, KEY("key")));
  CHECK_MISSING(f->cache, "ke");
  CHECK_MISSING(f->cache, "keys");
}

TEST_EACH_KIND(a_put_takes_the_place_of_the_one_before) {
  const char *values[] = {"one", "", "a longer one than those before", "four"};
  for (int i = 0; i < 4; i++) {
    CHECK_OK(put_text(f->cache, "key", values[i]));
    CHECK_TEXT(f->cache, "key", values[i]);
    CHECK_EQUAL(1, count_of(f->cache));
  }
  /* From small to large and back, so that the disk changes how it keeps the value. */
  CHECK_OK(put_size(f->cache, "key", 1 << 20));
  CHECK_OK(put_text(f->cache, "key", "small again"));
  CHECK_TEXT(f->cache, "key", "small again");
}

TEST_EACH_KIND(an_empty_value_is_a_value) {
  CHECK_OK(hutch_put(f->cache, KEY("key"), NULL, 0, NULL, NULL));
  CHECK_TEXT(f->cache, "key", "");
  CHECK_EQUAL(1, count_of(f->cache));
}

TEST_EACH_KIND(the_callers_bytes_are_copied) {
  char key[] = "key", value[] = "value", extended[] = "extended";
  hutch_put_options options = put_options();
  options.extended = extended;
  options.extended_size = strlen(extended);
  CHECK_OK(hutch_put(f->cache, KEY(key), KEY(value), &options, NULL));
  memset(key, 'x', sizeof key - 1);
  memset(value, 'x', sizeof value - 1);
  memset(extended, 'x', sizeof extended - 1);
  hutch_value *got = get_value(f->cache, "key");
  CHECK_BYTES("value", 5, hutch_value_data(got), hutch_value_size(got));
  CHECK_BYTES("key", 3, hutch_value_key(got), hutch_value_key_size(got));
  CHECK_BYTES("extended", 8, hutch_value_extended(got), hutch_value_extended_size(got));
  hutch_value_release(got);
}

TEST_EACH_KIND(keys_are_any_bytes_of_any_length) {
  /* Keys of 0, 1, 2, ... zero bytes differ; so do long ones in their last byte only. */
  char *key = calloc(1, HUTCH_KEY_MAX);
  const size_t lengths[] = {1, 2, 3, 8, 16, 255, 256, 4096, HUTCH_KEY_MAX - 1, HUTCH_KEY_MAX};
  enum { LENGTHS = sizeof lengths / sizeof *lengths };
  for (int last = 0; last < 2; last++)
    for (uint32_t i = 0; i < LENGTHS; i++) {
      key[lengths[i] - 1] = last ? '\xff' : '\0';
      uint32_t value = i * 2 + (uint32_t)last;
      CHECK_OK(hutch_put(f->cache, key, lengths[i], &value, sizeof value, NULL, NULL));
      key[lengths[i] - 1] = '\0';
    }
  CHECK_EQUAL(2 * LENGTHS, count_of(f->cache));
  for (int last = 0; last < 2; last++)
    for (uint32_t i = 0; i < LENGTHS; i++) {
      key[lengths[i] - 1] = last ? '\xff' : '\0';
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(f->cache, key, lengths[i], &value));
      uint32_t expected = i * 2 + (uint32_t)last;
      CHECK_BYTES(&expected, sizeof expected, hutch_value_data(value), hutch_value_size(value));
      CHECK_BYTES(key, lengths[i], hutch_value_key(value), hutch_value_key_size(value));
      hutch_value_release(value);
      key[lengths[i] - 1] = '\0';
    }
  free(key);
}

TEST_EACH_KIND(many_entries_are_each_found) {
  enum { ENTRIES = 6000 };
  for (uint64_t i = 0; i < ENTRIES; i++) {
    uint64_t value = i * i;
    CHECK_OK(hutch_put(f->cache, &i, sizeof i, &value, sizeof value, NULL, NULL));
  }
  CHECK_EQUAL(ENTRIES, count_of(f->cache));
  for (uint64_t i = 0; i < ENTRIES; i++) {
    uint64_t value = 0;
    size_t size = 0;
    CHECK_OK(hutch_get_into(f->cache, &i, sizeof i, &value, sizeof value, &size));
    CHECK_EQUAL(i * i, value);
  }
}

TEST_EACH_KIND(a_large_value_is_whole) {
  size_t size = 9 << 20;
  CHECK_OK(put_size(f->cache, "large", size));
  void *expected = filled(size, size);
  hutch_value *value = get_value(f->cache, "large");
  CHECK_BYTES(expected, size, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  free(expected);
}

TEST_EACH_KIND(get_into_copies_or_tells_the_size) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  char buffer[8] = "-------";
  size_t size = 99;
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, hutch_get_into(f->cache, KEY("key"), NULL, 0, &size));
  CHECK_EQUAL(5, size);
  size = 99;
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, hutch_get_into(f->cache, KEY("key"), buffer, 4, &size));
  CHECK_EQUAL(5, size);
  CHECK_BYTES("-------", 8, buffer, sizeof buffer);
  CHECK_OK(hutch_get_into(f->cache, KEY("key"), buffer, 5, &size));
  CHECK_BYTES("value--", 8, buffer, sizeof buffer);
  CHECK_OK(hutch_get_into(f->cache, KEY("key"), buffer, sizeof buffer, &size));
  CHECK_EQUAL(5, size);
  CHECK_BYTES("value--", 8, buffer, sizeof buffer);
  CHECK_STATUS(HUTCH_NOT_FOUND,
               hutch_get_into(f->cache, KEY("none"), buffer, sizeof buffer, &size));
  CHECK_OK(hutch_put(f->cache, KEY("empty"), NULL, 0, NULL, NULL));
  CHECK_OK(hutch_get_into(f->cache, KEY("empty"), NULL, 0, &size));
  CHECK_EQUAL(0, size);
}

static hutch_status look(hutch_cache *cache, const char *key, uint32_t flags, void *buffer,
                         size_t capacity, hutch_found *found) {
  *found = (hutch_found){.struct_size = sizeof *found, .size = 99, .value = (hutch_value *)99};
  return hutch_look(cache, key, strlen(key), flags, buffer, capacity, found);
}

TEST_EACH_KIND(a_look_copies_or_gives_a_reference) {
  hutch_put_options options = {.struct_size = sizeof options, .extended = "ext", .extended_size = 3};
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("value"), &options, NULL));
  char buffer[16];
  hutch_found found;
  for (size_t capacity = 0; capacity <= sizeof buffer; capacity++) {
    memset(buffer, '-', sizeof buffer);
    CHECK_OK(look(f->cache, "key", 0, capacity ? buffer : NULL, capacity, &found));
    CHECK_EQUAL(5, found.size);
    CHECK_EQUAL(3, found.extended_size);
    CHECK_EQUAL(capacity < 8, found.value != NULL);
    if (!found.value) {
      CHECK_BYTES("valueext--------", 16, buffer, sizeof buffer);
      continue;
    }
    CHECK_BYTES("----------------", 16, buffer, sizeof buffer);
    CHECK_BYTES("value", 5, hutch_value_data(found.value), hutch_value_size(found.value));
    CHECK_BYTES("ext", 3, hutch_value_extended(found.value), found.extended_size);
    hutch_value_release(found.value);
  }
  CHECK_STATUS(HUTCH_NOT_FOUND, look(f->cache, "none", 0, buffer, sizeof buffer, &found));
  CHECK(found.size == 0 && !found.value);
  CHECK_OK(hutch_put(f->cache, KEY("empty"), NULL, 0, NULL, NULL));
  CHECK_OK(look(f->cache, "empty", 0, NULL, 0, &found));
  CHECK(found.size == 0 && !found.value);
  /* One that is copied outside the locks. */
  size_t size = 100000;
  CHECK_OK(put_size(f->cache, "large", size));
  char *copy = malloc(size), *expected = filled(size, size);
  CHECK_OK(look(f->cache, "large", 0, copy, size, &found));
  CHECK(!found.value);
  CHECK_BYTES(expected, size, copy, found.size);
  free(expected);
  free(copy);
}

/* The caller of such a struct could release nothing. */
TEST(a_look_into_a_struct_without_a_value_keeps_no_reference) {
  hutch_cache *cache = open_cache(NULL, NULL);
  for (size_t size = sizeof(size_t); size <= sizeof(hutch_found); size += sizeof(size_t)) {
    CHECK_OK(put_size(cache, "key", 1000));
    hutch_found found = {.struct_size = size};
    CHECK_OK(hutch_look(cache, KEY("key"), 0, NULL, 0, &found));
    CHECK_OK(hutch_remove(cache, KEY("key")));
    CHECK_EQUAL(found.value != NULL, stats_of(cache).memory.held_count);
    CHECK_EQUAL(size >= offsetof(hutch_found, version), found.value != NULL);
    hutch_value_release(found.value);
  }
  CHECK_OK(hutch_close(cache));
}

/* A key of each size, and those that differ from it in one byte: code that compares keys by words
   of 8, of 4 and one by one takes none for another. */
TEST_EACH_KIND(keys_of_every_size_are_told_apart) {
  enum { LONGEST = 40 };
  char key[LONGEST];
  for (size_t size = 1; size <= LONGEST; size++) {
    memset(key, 'k', sizeof key);
    uint8_t value = (uint8_t)size;
    CHECK_OK(hutch_put(f->cache, key, size, &value, 1, NULL, NULL));
  }
  for (size_t size = 1; size <= LONGEST; size++)
    for (size_t other = 0; other <= size; other++) {
      memset(key, 'k', sizeof key);
      if (other < size) key[other] = 'K';
      bool is_there = other == size;
      hutch_status expected = is_there ? HUTCH_OK : HUTCH_NOT_FOUND;
      uint8_t copied = 0, looked = 0;
      size_t copied_size;
      hutch_found found = {.struct_size = sizeof found, .value = (hutch_value *)99};
      CHECK_STATUS(expected, hutch_contains(f->cache, key, size));
      CHECK_STATUS(expected, hutch_get_into(f->cache, key, size, &copied, 1, &copied_size));
      CHECK_STATUS(expected, hutch_look(f->cache, key, size, 0, &looked, 1, &found));
      CHECK_EQUAL(is_there ? size : 0, copied);
      CHECK_EQUAL(copied, looked);
      CHECK_EQUAL(is_there ? 1 : 0, found.size);
      CHECK(!found.value && found.extended_size == 0);
    }
}

/* Not one byte more is written, however a size is copied. */
TEST_EACH_KIND(values_of_every_size_are_copied_whole) {
  enum { LARGEST = 300 };
  for (size_t size = 0; size <= LARGEST; size++) {
    char *data = filled(size, size);
    /* Both the first put and one over it, with and without extended data. */
    for (int round = 0; round < 4; round++) {
      hutch_put_options options = put_options();
      options.extended = "x";
      options.extended_size = round / 2;
      CHECK_OK(hutch_put(f->cache, &size, sizeof size, data, size,
                         round / 2 ? &options : NULL, NULL));
      char copied[LARGEST + 2], looked[LARGEST + 2];
      size_t copied_size;
      hutch_found found = {.struct_size = sizeof found};
      memset(copied, '#', sizeof copied);
      memset(looked, '#', sizeof looked);
      CHECK_OK(hutch_get_into(f->cache, &size, sizeof size, copied, sizeof copied, &copied_size));
      CHECK_OK(hutch_look(f->cache, &size, sizeof size, 0, looked, sizeof looked, &found));
      CHECK_BYTES(data, size, copied, copied_size);
      CHECK_BYTES(data, size, looked, found.size);
      CHECK(copied[size] == '#' && looked[size + found.extended_size] == '#');
    }
    free(data);
  }
}

/* hutch_contains has paths of its own for keys of 4 to 16 bytes, and for a tier of one shard. It
   tells of each key what was done with it last, and is no access. */
TEST(contains_tells_of_keys_of_every_size) {
  enum { LARGEST = 20, KINDS = 4, PAST = HUTCH_KEY_MAX };
  static const int counts[] = {4, 500};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    hutch_options options = unlimited_options();
    hutch_cache *cache = open_cache(NULL, &options);
    char *key = calloc(1, PAST);
    for (int round = 0; round < 2; round++)
      for (int i = 0; i < counts[c] * KINDS; i++)
        for (size_t size = 1; size <= LARGEST + 1; size++) {
          size_t whole = size > LARGEST ? PAST : size;
          if (size < 3 && i >= 1 << (8 * size)) continue;
          memset(key, 'k', whole);
          memcpy(key, &i, size < sizeof i ? size : sizeof i);
          if (whole == PAST && i > 40) continue;
          hutch_put_options put = put_options();
          put.time_to_live = i % KINDS == 2 ? 1 : i % KINDS == 3 ? HUTCH_HOUR : 0;
          if (round == 0 && i % KINDS > 0)
            CHECK_OK(hutch_put(cache, key, whole, "v", 1, &put, NULL));
          hutch_status there = i % KINDS == 0 || i % KINDS == 2 ? HUTCH_NOT_FOUND : HUTCH_OK;
          CHECK_STATUS(there, hutch_contains(cache, key, whole));
          if (round == 1 && there == HUTCH_OK) {
            CHECK_OK(hutch_remove(cache, key, whole));
            CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(cache, key, whole));
          }
        }
    hutch_trim_spec expired = {.struct_size = sizeof expired, .kind = HUTCH_TRIM_EXPIRED};
    CHECK_OK(hutch_trim(cache, &expired, NULL));
    CHECK_EQUAL(0, count_of(cache));
    hutch_cache_stats stats = stats_of(cache);
    CHECK_EQUAL(0, stats.memory.hits + stats.memory.misses);
    free(key);
    CHECK_OK(hutch_close(cache));
  }
}

/* Gets by keys of 8 to 16 bytes, which have paths of their own: a hit and a miss are counted once,
   and a value that does not fit is told with its size, whatever the value has beside it. */
TEST(gets_by_short_keys_are_counted_once) {
  static const size_t sizes[] = {0, 1, 64, 65, 128, 129, 4095, 4096, 4097, 9000};
  enum { SIZES = sizeof sizes / sizeof *sizes, KINDS = 4 };
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LFU; policy++) {
    hutch_options options = {.struct_size = sizeof options, .policy = policy};
    hutch_cache *cache = open_cache(NULL, &options);
    uint64_t hits = 0, misses = 0;
    for (int round = 0; round < 9; round++)
      for (size_t i = 0; i < SIZES * KINDS; i++) {
        size_t key_size = 8 + (round + i) % 9, size = sizes[i % SIZES], told;
        char key[17], copied[9002];
        snprintf(key, sizeof key, "%016zu", i * 9 + round);
        char *data = filled(size, i);
        hutch_put_options put = put_options();
        put.extended = "x";
        put.extended_size = i / SIZES & 1;
        put.time_to_live = i / SIZES & 2 ? HUTCH_HOUR : 0;
        const char *start = key + 16 - key_size;
        CHECK_STATUS(HUTCH_NOT_FOUND,
                     hutch_get_into(cache, start, key_size, copied, sizeof copied, &told));
        misses++;
        CHECK_OK(hutch_put(cache, start, key_size, data, size, &put, NULL));
        for (size_t more = 0; more <= 20; more++, hits++) {
          memset(copied, '#', sizeof copied);
          CHECK_OK(hutch_get_into(cache, start, key_size, copied, size + more, &told));
          CHECK_BYTES(data, size, copied, told);
          CHECK(copied[size] == '#');
        }
        if (size > 0) {
          told = 0;
          CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL,
                       hutch_get_into(cache, start, key_size, copied, size - 1, &told));
          CHECK_EQUAL(size, told);
          hits++;
        }
#define INVALID(call) CHECK_STATUS(HUTCH_INVALID_ARGUMENT, call)
        INVALID(hutch_get_into(NULL, start, key_size, copied, size, &told));
        INVALID(hutch_get_into(cache, NULL, key_size, copied, size, &told));
        INVALID(hutch_get_into(cache, start, key_size, NULL, size + 1, &told));
        INVALID(hutch_get_into(cache, start, key_size, copied, size, NULL));
        INVALID(hutch_get_into(cache, start, key_size, copied, SIZE_MAX, &told));
        INVALID(hutch_get_into(cache, "no entry", 8, copied, SIZE_MAX, &told));
        INVALID(hutch_get_into(cache, "none", 4, copied, SIZE_MAX, &told));
        hutch_found found = {.struct_size = sizeof found};
        INVALID(hutch_look(cache, "no entry", 8, 0, copied, SIZE_MAX, &found));
        INVALID(hutch_look(cache, "no entry of this key", 20, 0, copied, SIZE_MAX, &found));
        free(data);
      }
    hutch_cache_stats stats = stats_of(cache);
    CHECK_EQUAL(hits, stats.memory.hits);
    CHECK_EQUAL(misses, stats.memory.misses);
    hutch_cache *other = hutch_cache_retain(cache);
    CHECK_OK(hutch_close(cache));
    size_t told;
    CHECK_STATUS(HUTCH_CLOSED, hutch_get_into(other, "no entry", 8, &told, sizeof told, &told));
    hutch_cache_release(other);
  }
}

/* Where memory cannot answer, a look at once says so and leaves no trace. */
TEST_EACH_KIND(a_look_at_once_leaves_the_disk_alone) {
  bool has_disk = k == TWO_TIERS || k == DISK_VIEW;
  hutch_status missing = has_disk ? HUTCH_WOULD_BLOCK : HUTCH_NOT_FOUND;
  char buffer[8];
  hutch_found found;
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_cache_stats before = stats_of(f->whole);
  CHECK_STATUS(k == DISK_VIEW ? HUTCH_WOULD_BLOCK : HUTCH_OK,
               look(f->cache, "key", HUTCH_LOOK_AT_ONCE, buffer, sizeof buffer, &found));
  CHECK_STATUS(missing, look(f->cache, "no", HUTCH_LOOK_AT_ONCE, buffer, sizeof buffer, &found));
  CHECK(!found.value);
  hutch_cache_stats after = stats_of(f->whole);
  CHECK_EQUAL(before.memory.hits + (k != DISK_VIEW), after.memory.hits);
  CHECK_EQUAL(before.memory.misses + !has_disk, after.memory.misses);
  CHECK_EQUAL(before.disk.hits + before.disk.misses, after.disk.hits + after.disk.misses);
  /* Without the flag the disk answers, and the miss is counted. */
  CHECK_STATUS(HUTCH_NOT_FOUND, look(f->cache, "no", 0, buffer, sizeof buffer, &found));
  hutch_cache_stats then = stats_of(f->whole);
  CHECK_EQUAL(after.memory.misses + (k != DISK_VIEW), then.memory.misses);
  CHECK_EQUAL(after.disk.misses + has_disk, then.disk.misses);
}

/* Looks for "the key" with the version of the look before. */
static hutch_status look_again(hutch_cache *cache, uint32_t flags, char buffer[8],
                               hutch_found *found) {
  memcpy(buffer, "before!", 8);
  return hutch_look(cache, KEY("the key"), flags, buffer, 8, found);
}

/* A look with the version of a value gives that value's version, is an access, and copies every
   other value. */
TEST_EACH_KIND(a_known_value_need_not_be_copied) {
  char buffer[8];
  hutch_found found = {.struct_size = sizeof found};
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_OK(put_text(f->cache, "the key", "one"));
  /* What lies in the version says nothing without the flag. */
  CHECK_OK(hutch_info(f->cache, KEY("the key"), &info));
  found.version = info.version;
  CHECK_OK(look_again(f->cache, 0, buffer, &found));
  CHECK_BYTES("one", 3, buffer, found.size);
  CHECK_EQUAL(info.version, found.version);

  hutch_cache_stats before = stats_of(f->whole);
  for (int i = 0; i < 3; i++) CHECK_OK(look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK_EQUAL(info.version, found.version);
  CHECK(!found.value && found.size == 3 && found.extended_size == 0);
  CHECK(strncmp(buffer, "before!", 8) == 0 || strncmp(buffer, "oneore!", 8) == 0);
  hutch_cache_stats after = stats_of(f->whole);
  CHECK_EQUAL(before.memory.hits + before.disk.hits + 3, after.memory.hits + after.disk.hits);

  /* Another version is another value, be it by a put, a put with a time to live or a sum. */
  CHECK_OK(put_text(f->cache, "the key", "two"));
  CHECK_OK(look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK_BYTES("two", 3, buffer, found.size);
  CHECK(found.version != info.version);
  hutch_put_options options = put_options();
  options.time_to_live = 3600 * (int64_t)1000000000;
  CHECK_OK(hutch_put(f->cache, KEY("the key"), "three", 5, &options, NULL));
  CHECK_OK(look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK_BYTES("three", 5, buffer, found.size);
  uint64_t third = found.version;
  CHECK_OK(look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK_EQUAL(third, found.version);
  /* A value that does not fit comes by reference. */
  CHECK_OK(put_text(f->cache, "the key", "longer than the buffer"));
  CHECK_OK(look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK(found.value && found.version != third);
  CHECK_BYTES("longer than the buffer", 22, hutch_value_data(found.value), found.size);
  hutch_value_release(found.value);
  CHECK_OK(hutch_remove(f->cache, KEY("the key")));
  CHECK_STATUS(HUTCH_NOT_FOUND, look_again(f->cache, HUTCH_LOOK_KNOWN, buffer, &found));
}

/* The log tells the sizes of what does not fit; else it comes by reference. */
TEST_EACH_KIND(sizes_may_suffice) {
  hutch_put_options options = put_options();
  options.extended = "ext";
  options.extended_size = 3;
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_found found;
  size_t size = 1000;
  char *value = filled(size, 1), *room = malloc(size + 3);
  CHECK_OK(hutch_put(f->cache, KEY("key"), value, size, &options, NULL));
  CHECK_OK(hutch_info(f->cache, KEY("key"), &info));
  hutch_cache_stats before = stats_of(f->whole);
  uint64_t hits = before.memory.hits + before.disk.hits;
  hutch_status status = look(f->cache, "key", HUTCH_LOOK_OR_SIZES, room, size + 2, &found);
  CHECK_EQUAL(size, found.size);
  CHECK_EQUAL(3, found.extended_size);
  CHECK_EQUAL(info.version, found.version);
  hutch_cache_stats after = stats_of(f->whole);
  if (k == DISK_VIEW && on_log()) {
    CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, status);
    CHECK(!found.value);
    CHECK_EQUAL(hits, after.memory.hits + after.disk.hits);
    status = look(f->cache, "key", HUTCH_LOOK_OR_SIZES, NULL, 0, &found);
    CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, status);
    CHECK(!found.value && found.size == size);
  } else {
    CHECK_OK(status);
    CHECK_BYTES(value, size, hutch_value_data(found.value), found.size);
    hutch_value_release(found.value);
    hits++;
  }
  CHECK_OK(look(f->cache, "key", HUTCH_LOOK_OR_SIZES, room, size + 3, &found));
  CHECK(!found.value);
  CHECK_EQUAL(info.version, found.version);
  CHECK_BYTES(value, size, room, found.size);
  CHECK_BYTES("ext", 3, room + size, found.extended_size);
  after = stats_of(f->whole);
  CHECK_EQUAL(hits + 1, after.memory.hits + after.disk.hits);
  CHECK_STATUS(HUTCH_NOT_FOUND, look(f->cache, "none", HUTCH_LOOK_OR_SIZES, room, 8, &found));
  CHECK(found.size == 0 && !found.value);
  free(room);
  free(value);
}

/* The short path of memory makes no copy. */
TEST(memory_leaves_the_buffer_of_a_known_value_alone) {
  hutch_options options = {.struct_size = sizeof options};
  hutch_found found = {.struct_size = sizeof found};
  hutch_cache *cache = NULL;
  char buffer[8];
  CHECK_OK(hutch_open(NULL, &options, &cache));
  CHECK_OK(put_text(cache, "the key", "one"));
  CHECK_OK(look_again(cache, 0, buffer, &found));
  CHECK_BYTES("oneore!", 8, buffer, sizeof buffer);
  CHECK_OK(look_again(cache, HUTCH_LOOK_KNOWN, buffer, &found));
  CHECK_BYTES("before!", 8, buffer, sizeof buffer);
  CHECK_EQUAL(3, found.size);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------- remove and clear */

TEST_EACH_KIND(remove_removes) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_OK(put_text(f->cache, "other", "value"));
  CHECK_OK(hutch_remove(f->cache, KEY("key")));
  CHECK_MISSING(f->cache, "key");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(f->cache, KEY("key")));
  CHECK_TEXT(f->cache, "other", "value");
  CHECK_EQUAL(1, count_of(f->cache));
  CHECK_OK(put_text(f->cache, "key", "again"));
  CHECK_TEXT(f->cache, "key", "again");
}

TEST_EACH_KIND(clear_removes_all_and_the_cache_goes_on) {
  CHECK_OK(hutch_clear(f->cache));
  for (int round = 0; round < 3; round++) {
    for (uint32_t i = 0; i < 300; i++)
      CHECK_OK(hutch_put(f->cache, &i, sizeof i, &i, sizeof i, NULL, NULL));
    CHECK_OK(put_size(f->cache, "large", 200000));
    CHECK_EQUAL(301, count_of(f->cache));
    CHECK_OK(hutch_clear(f->cache));
    CHECK_EQUAL(0, count_of(f->cache));
    CHECK_MISSING(f->cache, "large");
    for (uint32_t i = 0; i < 300; i++)
      CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(f->cache, &i, sizeof i));
  }
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_TEXT(f->cache, "key", "value");
  CHECK_EQUAL(1, count_of(f->cache));
}

TEST(what_was_removed_or_cleared_stays_away_after_reopening) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_text(cache, "cleared", "value"));
  CHECK_OK(put_size(cache, "cleared too", 100000));
  CHECK_OK(hutch_clear(cache));
  CHECK_OK(put_text(cache, "removed", "value"));
  CHECK_OK(put_size(cache, "removed too", 100000));
  CHECK_OK(put_text(cache, "kept", "value"));
  CHECK_OK(hutch_remove(cache, KEY("removed")));
  CHECK_OK(hutch_remove(cache, KEY("removed too")));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, NULL);
  CHECK_MISSING(cache, "cleared");
  CHECK_MISSING(cache, "cleared too");
  CHECK_MISSING(cache, "removed");
  CHECK_MISSING(cache, "removed too");
  CHECK_TEXT(cache, "kept", "value");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- the record */

TEST_EACH_KIND(info_tells_what_the_put_said) {
  hutch_put_options options = put_options();
  options.time_to_live = 10 * HUTCH_SECOND;
  options.time_to_idle = 5 * HUTCH_SECOND;
  options.cost = 77;
  options.extended = "more";
  options.extended_size = 4;
  hutch_put_result result = new_result();
  int64_t now = f->clock.now;
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("abc"), &options, &result));
  CHECK_EQUAL(k == DISK_VIEW ? HUTCH_OUTCOME_REMOVED : HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(has_disk(k)       ? HUTCH_OUTCOME_STORED
              : k == MEMORY_VIEW ? HUTCH_OUTCOME_REMOVED
                                 : HUTCH_OUTCOME_NONE,
              result.disk);

  f->clock.now += HUTCH_SECOND;
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK_EQUAL(sizeof info, info.struct_size);
  CHECK_EQUAL(result.version, info.version);
  CHECK(info.version != 0);
  CHECK_EQUAL(now, info.created);
  CHECK_EQUAL(now, info.accessed);
  CHECK_EQUAL(now + 10 * HUTCH_SECOND, info.expires);
  CHECK_EQUAL(5 * HUTCH_SECOND, info.time_to_idle);
  CHECK_EQUAL(77, info.cost);
  CHECK_EQUAL(3, info.size);
  CHECK_EQUAL(4, info.extended_size);
  CHECK_EQUAL(k == DISK_VIEW ? HUTCH_TIER_DISK : HUTCH_TIER_MEMORY, info.tier);
  /* XXH3 of "abc", as xxHash 0.8.4 gives it; in memory alone it may be left out. */
  if (has_disk(k) || info.checksum != 0) CHECK_EQUAL(UINT64_C(0x78af5f94892f3950), info.checksum);
}

TEST_EACH_KIND(a_plain_put_has_a_plain_record) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK_EQUAL(0, info.expires);
  CHECK_EQUAL(0, info.time_to_idle);
  CHECK_EQUAL(0, info.cost);
  CHECK_EQUAL(0, info.extended_size);
}

TEST_EACH_KIND(a_put_renews_everything) {
  hutch_put_options options = put_options();
  options.time_to_live = options.time_to_idle = HUTCH_SECOND;
  options.cost = 5;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("value"), &options, NULL));
  hutch_entry_info before = info_of(f->cache, "key");
  f->clock.now += HUTCH_MILLISECOND;
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK(info.version != before.version);
  CHECK_EQUAL(f->clock.now, info.created);
  CHECK_EQUAL(0, info.expires);
  CHECK_EQUAL(0, info.time_to_idle);
  CHECK_EQUAL(0, info.cost);
  CHECK_EQUAL(0, info.extended_size);
  f->clock.now += HUTCH_DAY;
  CHECK_TEXT(f->cache, "key", "value");
}

TEST_EACH_KIND(extended_data_travels_with_the_entry) {
  enum { MOST = 65535 };
  char *extended = filled(MOST, 3);
  const size_t sizes[] = {1, 15, 4096, MOST};
  for (int i = 0; i < 4; i++) {
    hutch_put_options options = put_options();
    options.extended = extended;
    options.extended_size = sizes[i];
    CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("value"), &options, NULL));
    hutch_value *value = get_value(f->cache, "key");
    CHECK_BYTES(extended, sizes[i], hutch_value_extended(value),
                hutch_value_extended_size(value));
    CHECK_BYTES("value", 5, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
  }
  free(extended);
}

/* One of 40 keys, any size to 1,200, and options: mostly extended data and a time to live. */
static size_t drawn_put(uint64_t *state, char *key, hutch_put_options *options) {
  static const char extended[] =
      "py:int, and so on, to more bytes than the shorter way is for, since it copies at most 64";
  static const size_t extended_sizes[] = {0, 6, 6, 6, 7, 64, 65};
  static const int64_t lives[] = {0, 0, 0, 0, HUTCH_HOUR, HUTCH_HOUR, HUTCH_DAY, 1,
                                  INT64_MAX - 1, HUTCH_FOREVER};
  size_t number = next_random(state) % 40;
  snprintf(key, 32, number % 2 ? "%zu" : "key-number-%zu", number);
  *options = put_options();
  options->extended = extended + next_random(state) % 2;
  options->extended_size = extended_sizes[next_random(state) % 7];
  options->time_to_live = lives[next_random(state) % 10];
  uint64_t chance = next_random(state) % 40;
  if (chance == 0) options->tag = "tag", options->tag_size = 3;
  if (chance == 1) options->time_to_idle = HUTCH_HOUR;
  if (chance == 2) options->cost = 77;
  return next_random(state) % (next_random(state) % 8 ? 40 : 1200);
}

/* NULL: the entry had a time to live of a nanosecond. `age`: that of the tier. */
static hutch_value *checked_value(hutch_cache *cache, const char *key, const char *bytes,
                                  size_t size, const hutch_put_options *options, int64_t age) {
  int64_t life = options->time_to_live ? options->time_to_live : age;
  if (life == 1) {
    CHECK_MISSING(cache, key);
    return NULL;
  }
  hutch_entry_info info = info_of(cache, key);
  if (life == 0 || life == HUTCH_FOREVER)
    CHECK_EQUAL(0, info.expires);
  else if (life <= HUTCH_DAY)
    CHECK_EQUAL(life, info.expires - info.created);
  hutch_value *value = get_value(cache, key);
  CHECK_BYTES(bytes, size, hutch_value_data(value), hutch_value_size(value));
  CHECK_BYTES(options->extended, options->extended_size, hutch_value_extended(value),
              hutch_value_extended_size(value));
  CHECK_EQUAL(options->tag_size, hutch_value_tag_size(value));
  return value;
}

static void compare_puts(int64_t age) {
  uint64_t state = seed();
  char *bytes = filled(1200, 1), *other = filled(1200, 2);
  hutch_options options = {.struct_size = sizeof options, .memory = {.time_to_live = age}};
  hutch_cache *caches[2] = {open_cache(NULL, &options), open_cache(NULL, &options)};
  hutch_cache_stats stats[2];
  for (int step = 0; step < 3000; step++) {
    char key[32];
    hutch_put_options put;
    size_t size = drawn_put(&state, key, &put);
    hutch_put_result result = new_result();
    /* A value that is referenced is not overwritten in its place. */
    bool is_held = next_random(&state) % 4 == 0;
    CHECK_OK(hutch_put(caches[0], KEY(key), bytes, size, &put, NULL));
    CHECK_OK(hutch_put(caches[1], KEY(key), bytes, size, &put, &result));
    for (int i = 0; i < 2; i++) {
      hutch_value *value = checked_value(caches[i], key, bytes, size, &put, age);
      if (is_held) {
        CHECK_OK(hutch_put(caches[i], KEY(key), other, size, &put, i ? &result : NULL));
        if (value) CHECK_BYTES(bytes, size, hutch_value_data(value), hutch_value_size(value));
        hutch_value_release(checked_value(caches[i], key, other, size, &put, age));
      }
      hutch_value_release(value);
      stats[i] = stats_of(caches[i]);
    }
    CHECK_EQUAL(stats[1].memory.count, stats[0].memory.count);
    CHECK_EQUAL(stats[1].memory.cost, stats[0].memory.cost);
    CHECK_EQUAL(stats[1].memory.puts, stats[0].memory.puts);
    CHECK_EQUAL(stats[1].memory.replacements, stats[0].memory.replacements);
    CHECK_EQUAL(stats[1].memory.hits, stats[0].memory.hits);
  }
  for (int i = 0; i < 2; i++) CHECK_OK(hutch_close(caches[i]));
  free(bytes);
  free(other);
}

/* A put whose caller asks for no result may take a shorter way. It stores the same. */
TEST(a_put_without_a_result_stores_what_one_with_it_does) { compare_puts(0); }
TEST(a_put_without_a_result_has_the_tiers_time_to_live) { compare_puts(HUTCH_DAY); }

TEST(puts_with_extended_data_keep_to_the_limits) {
  uint64_t state = seed();
  char *bytes = filled(1200, 1);
  hutch_options options = {.struct_size = sizeof options, .memory = {.count = 15, .cost = 6000}};
  hutch_cache *cache = open_cache(NULL, &options);
  for (int step = 0; step < 4000; step++) {
    char key[32];
    hutch_put_options put;
    size_t size = drawn_put(&state, key, &put);
    hutch_status status = hutch_put(cache, KEY(key), bytes, size, &put, NULL);
    hutch_cache_stats stats = stats_of(cache);
    CHECK(stats.memory.count <= 15 && stats.memory.cost <= 6000);
    if (status != HUTCH_TOO_LARGE) {
      CHECK_OK(status);
      hutch_value_release(checked_value(cache, key, bytes, size, &put, 0));
    }
  }
  CHECK_OK(hutch_close(cache));
  free(bytes);
}

TEST(the_record_is_there_after_reopening) {
  path directory = scratch("cache");
  test_clock clock = {0}, later = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  hutch_put_options put = put_options();
  put.time_to_live = HUTCH_HOUR;
  put.time_to_idle = HUTCH_MINUTE;
  put.cost = 123;
  put.extended = "more";
  put.extended_size = 4;
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &put, NULL));
  hutch_entry_info before = info_of(cache, "key");
  CHECK_OK(hutch_close(cache));

  use_clock(&options, &later);
  later.now = clock.now + 30 * HUTCH_SECOND;
  cache = open_cache(directory.text, &options);
  hutch_entry_info after = info_of(cache, "key");
  before.tier = HUTCH_TIER_DISK;
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  hutch_value *value = get_value(cache, "key");
  CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
  hutch_value_release(value);
  later.now += HUTCH_MINUTE;
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(contains_and_info_are_no_access) {
  hutch_put_options options = put_options();
  options.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(f->cache, KEY("key"), KEY("value"), &options, NULL));
  hutch_cache_stats before = stats_of(f->whole);
  f->clock.now += 8 * HUTCH_SECOND;
  CHECK_OK(hutch_contains(f->cache, KEY("key")));
  CHECK_EQUAL(f->clock.now - 8 * HUTCH_SECOND, info_of(f->cache, "key").accessed);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(f->cache, KEY("none")));
  hutch_cache_stats after = stats_of(f->whole);
  CHECK_EQUAL(before.memory.hits, after.memory.hits);
  CHECK_EQUAL(before.memory.misses, after.memory.misses);
  CHECK_EQUAL(before.disk.hits, after.disk.hits);
  CHECK_EQUAL(before.disk.misses, after.disk.misses);
  f->clock.now += 3 * HUTCH_SECOND;
  CHECK_MISSING(f->cache, "key");
}

/* -------------------------------------------------------------------- time */

static void put_for(hutch_cache *cache, const char *key, int64_t to_live, int64_t to_idle) {
  hutch_put_options options = put_options();
  options.time_to_live = to_live;
  options.time_to_idle = to_idle;
  CHECK_OK(hutch_put(cache, KEY(key), KEY("value"), &options, NULL));
}

TEST_EACH_KIND(an_entry_lives_for_its_time_to_live) {
  put_for(f->cache, "key", 10 * HUTCH_SECOND, 0);
  f->clock.now += 10 * HUTCH_SECOND - 1;
  CHECK_TEXT(f->cache, "key", "value");
  f->clock.now += 1;
  CHECK_MISSING(f->cache, "key");
}

static int32_t fails_if_called(void *context, const void *key, size_t key_size,
                               const hutch_entry_info *info) {
  (void)context, (void)key, (void)key_size, (void)info;
  FAIL("an expired entry was visited");
}

static void check_gone(hutch_cache *cache, const char *key) {
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_MISSING(cache, key);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_info(cache, KEY(key), &info));
}

/* The system's clock, too, is read in steps of milliseconds. */
static void set_for_a_nanosecond(hutch_cache *cache) {
  hutch_put_options put = put_options();
  hutch_put_result result = new_result();
  put.time_to_live = 1;
  CHECK_OK(hutch_put(cache, KEY("put"), KEY("value"), &put, NULL));
  check_gone(cache, "put");
  CHECK_OK(hutch_add(cache, KEY("put"), KEY("value"), &put, NULL));
  check_gone(cache, "put");
  CHECK_OK(hutch_put(cache, KEY("swapped"), KEY("value"), NULL, &result));
  CHECK_OK(hutch_compare_and_swap(cache, KEY("swapped"), result.version, KEY("new"), &put, NULL));
  check_gone(cache, "swapped");
  CHECK_OK(put_text(cache, "touched", "value"));
  CHECK_OK(hutch_touch(cache, KEY("touched"), 1, 0));
  check_gone(cache, "touched");
}

TEST_EACH_KIND(a_time_to_live_of_a_nanosecond_has_ended_when_the_call_returns) {
  set_for_a_nanosecond(f->cache);
}

TEST(a_time_to_live_of_a_nanosecond_has_ended_by_the_systems_clock) {
  for (int i = 0; i < 50; i++) {
    hutch_cache *cache = open_cache(i ? NULL : scratch("cache").text, NULL);
    set_for_a_nanosecond(cache);
    CHECK_OK(hutch_close(cache));
  }
}

TEST_EACH_KIND(trap_7_nothing_sees_an_expired_entry) {
  const char *keys[] = {"get",     "into",    "contains", "info", "touch", "remove",
                        "replace", "swap",    "pop",      "add",  "count", "large"};
  for (int i = 0; i < 12; i++) put_for(f->cache, keys[i], HUTCH_SECOND, 0);
  int64_t one = 1, sum = 0;
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_SECOND;
  CHECK_OK(hutch_increment(f->cache, KEY("counter"), one, 40, &options, NULL));
  uint64_t version = info_of(f->cache, "swap").version;
  CHECK_EQUAL(13, count_of(f->cache));
  f->clock.now += 3 * HUTCH_SECOND;

  hutch_value *value = NULL;
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_cursor *cursor = NULL;
  const void *key;
  size_t size;
  char buffer[8];
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(f->cache, KEY("get"), &value));
  CHECK_STATUS(HUTCH_NOT_FOUND,
               hutch_get_into(f->cache, KEY("into"), buffer, sizeof buffer, &size));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(f->cache, KEY("contains")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_info(f->cache, KEY("info"), &info));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(f->cache, KEY("touch"), HUTCH_HOUR, 0));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(f->cache, KEY("remove")));
  CHECK_STATUS(HUTCH_NOT_FOUND,
               hutch_replace(f->cache, KEY("replace"), KEY("new"), NULL, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_compare_and_swap(f->cache, KEY("swap"), version,
                                                       KEY("new"), NULL, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(f->cache, KEY("pop"), &value));
  CHECK_OK(hutch_each(f->cache, fails_if_called, NULL));
  CHECK_OK(hutch_cursor_create(f->cache, &cursor));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_next(cursor, &key, &size));
  hutch_cursor_release(cursor);
  /* They expired longer than a second ago. */
  CHECK_EQUAL(0, count_of(f->cache));
  CHECK_OK(hutch_add(f->cache, KEY("add"), KEY("new"), NULL, NULL));
  CHECK_TEXT(f->cache, "add", "new");
  CHECK_OK(hutch_increment(f->cache, KEY("counter"), one, 50, NULL, &sum));
  CHECK_EQUAL(51, sum);
}

TEST_EACH_KIND(an_access_prolongs_a_time_to_idle) {
  put_for(f->cache, "key", 0, 10 * HUTCH_SECOND);
  char buffer[8];
  size_t size;
  for (int i = 0; i < 5; i++) {
    f->clock.now += 8 * HUTCH_SECOND;
    CHECK_TEXT(f->cache, "key", "value");
    f->clock.now += 8 * HUTCH_SECOND;
    CHECK_OK(hutch_get_into(f->cache, KEY("key"), buffer, sizeof buffer, &size));
    CHECK_EQUAL(f->clock.now, info_of(f->cache, "key").accessed);
  }
  f->clock.now += 10 * HUTCH_SECOND;
  CHECK_MISSING(f->cache, "key");
}

TEST_EACH_KIND(an_access_does_not_prolong_a_time_to_live) {
  put_for(f->cache, "key", 10 * HUTCH_SECOND, 0);
  put_for(f->cache, "both", 10 * HUTCH_SECOND, 6 * HUTCH_SECOND);
  f->clock.now += 5 * HUTCH_SECOND;
  CHECK_TEXT(f->cache, "key", "value");
  CHECK_TEXT(f->cache, "both", "value");
  f->clock.now += 4 * HUTCH_SECOND;
  CHECK_TEXT(f->cache, "both", "value");
  f->clock.now += HUTCH_SECOND;
  CHECK_MISSING(f->cache, "key");
  CHECK_MISSING(f->cache, "both");
}

TEST_EACH_KIND(touch_sets_the_times_anew) {
  put_for(f->cache, "key", 10 * HUTCH_SECOND, 0);
  uint64_t version = info_of(f->cache, "key").version;
  /* 0 keeps the entry's own duration, from now on. */
  f->clock.now += 8 * HUTCH_SECOND;
  CHECK_OK(hutch_touch(f->cache, KEY("key"), 0, 0));
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK_EQUAL(version, info.version);
  CHECK_EQUAL(f->clock.now, info.created);
  CHECK_EQUAL(f->clock.now, info.accessed);
  CHECK_EQUAL(f->clock.now + 10 * HUTCH_SECOND, info.expires);
  /* Another one, and a time to idle. */
  CHECK_OK(hutch_touch(f->cache, KEY("key"), HUTCH_HOUR, HUTCH_MINUTE));
  info = info_of(f->cache, "key");
  CHECK_EQUAL(f->clock.now + HUTCH_HOUR, info.expires);
  CHECK_EQUAL(HUTCH_MINUTE, info.time_to_idle);
  /* None. */
  CHECK_OK(hutch_touch(f->cache, KEY("key"), HUTCH_FOREVER, HUTCH_FOREVER));
  info = info_of(f->cache, "key");
  CHECK_EQUAL(0, info.expires);
  CHECK_EQUAL(0, info.time_to_idle);
  f->clock.now += 365 * HUTCH_DAY;
  CHECK_TEXT(f->cache, "key", "value");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(f->cache, KEY("none"), HUTCH_HOUR, 0));
}

TEST_EACH_KIND(the_tiers_ages_hold_for_entries_without_their_own) {
  CHECK_OK(put_text(f->cache, "plain", "value"));
  put_for(f->cache, "shorter", HUTCH_SECOND, 0);
  put_for(f->cache, "longer", HUTCH_HOUR, HUTCH_FOREVER);
  put_for(f->cache, "forever", HUTCH_FOREVER, HUTCH_FOREVER);
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.time_to_live = limits.disk.time_to_live = HUTCH_MINUTE;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  CHECK_EQUAL(f->clock.now + HUTCH_MINUTE, info_of(f->cache, "plain").expires);
  CHECK_EQUAL(f->clock.now + HUTCH_HOUR, info_of(f->cache, "longer").expires);
  CHECK_EQUAL(0, info_of(f->cache, "forever").expires);
  f->clock.now += 2 * HUTCH_SECOND;
  CHECK_MISSING(f->cache, "shorter");
  f->clock.now += HUTCH_MINUTE;
  CHECK_MISSING(f->cache, "plain");
  CHECK_TEXT(f->cache, "longer", "value");
  CHECK_TEXT(f->cache, "forever", "value");
  f->clock.now += HUTCH_HOUR;
  CHECK_MISSING(f->cache, "longer");
  CHECK_TEXT(f->cache, "forever", "value");
  CHECK_EQUAL(1, count_of(f->cache));
}

TEST_EACH_KIND(the_tiers_time_to_idle_holds_likewise) {
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.time_to_idle = limits.disk.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  CHECK_OK(put_text(f->cache, "read", "value"));
  CHECK_OK(put_text(f->cache, "unread", "value"));
  put_for(f->cache, "forever", 0, HUTCH_FOREVER);
  CHECK_EQUAL(10 * HUTCH_SECOND, info_of(f->cache, "read").time_to_idle);
  CHECK_EQUAL(0, info_of(f->cache, "forever").time_to_idle);
  for (int i = 0; i < 3; i++) {
    f->clock.now += 8 * HUTCH_SECOND;
    CHECK_TEXT(f->cache, "read", "value");
  }
  CHECK_MISSING(f->cache, "unread");
  CHECK_TEXT(f->cache, "forever", "value");
  f->clock.now += 11 * HUTCH_SECOND;
  CHECK_MISSING(f->cache, "read");
}

TEST_EACH_KIND(the_longest_times_do_not_wrap_around) {
  const int64_t longest[] = {INT64_MAX - 1, INT64_MAX - 1000, INT64_MAX / 2};
  for (int i = 0; i < 3; i++) {
    put_for(f->cache, "live", longest[i], 0);
    put_for(f->cache, "idle", 0, longest[i]);
    CHECK_TEXT(f->cache, "live", "value");
    CHECK_TEXT(f->cache, "idle", "value");
    CHECK_OK(hutch_touch(f->cache, KEY("live"), longest[i], longest[i]));
    CHECK_TEXT(f->cache, "live", "value");
    hutch_entry_info info = info_of(f->cache, "live");
    CHECK(info.expires == 0 || info.expires > f->clock.now);
  }
  f->clock.now += 100 * 365 * HUTCH_DAY;
  CHECK_TEXT(f->cache, "live", "value");
  CHECK_TEXT(f->cache, "idle", "value");
}

TEST_EACH_KIND(any_time_of_day_is_a_time) {
  const int64_t times[] = {INT64_MIN, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
  for (int i = 0; i < 6; i++) {
    f->clock.now = times[i];
    CHECK_OK(hutch_clear(f->cache));
    CHECK_OK(put_text(f->cache, "key", "value"));
    CHECK_TEXT(f->cache, "key", "value");
    CHECK_EQUAL(1, count_of(f->cache));
  }
}
