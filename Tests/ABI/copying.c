/* Copies of a cache's entries in another cache: every pair of kinds, what stays as it was, and what
   a copy does not do. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;

static hutch_cache *open_kind(const char *name, uint32_t storage, test_clock *clock) {
  hutch_options options = unlimited_options();
  options.storage = storage;
  options.inline_threshold = 20000;
  if (clock) use_clock(&options, clock);
  return open_cache(storage ? scratch(name).text : NULL, &options);
}

static hutch_copy_report copy(hutch_cache *source, hutch_cache *target) {
  hutch_copy_report report = {.struct_size = sizeof report};
  CHECK_OK(hutch_copy(source, target, &report));
  return report;
}

/* Four entries that differ in all that a put can choose. */
static void fill_source(hutch_cache *source, test_clock *clock) {
  CHECK_OK(put_text(source, "plain", "value"));
  clock->now += SECOND;
  hutch_put_options options = put_options();
  options.time_to_live = 100 * SECOND;
  options.cost = 7;
  options.extended = "more";
  options.extended_size = 4;
  options.tag = "fruit";
  options.tag_size = 5;
  CHECK_OK(hutch_put(source, KEY("all"), KEY("another"), &options, NULL));
  clock->now += SECOND;
  options = put_options();
  options.time_to_idle = 50 * SECOND;
  CHECK_OK(hutch_put(source, KEY("idle"), KEY("read"), &options, NULL));
  clock->now += SECOND;
  options = put_options();
  options.suffix = ".jpg";
  void *data = filled(50000, 3);
  CHECK_OK(hutch_put(source, KEY("large"), data, 50000, &options, NULL));
  free(data);
  CHECK_OK(put_text(source, "gone", "value"));
  CHECK_OK(hutch_remove(source, KEY("gone")));
  options = put_options();
  options.time_to_live = 2 * SECOND;
  CHECK_OK(hutch_put(source, KEY("expired"), KEY("value"), &options, NULL));
  clock->now += 40 * SECOND;
  CHECK_TEXT(source, "idle", "read");
  clock->now += 20 * SECOND;
}

/* In memory, the copy is an access. */
static void check_same(hutch_cache *source, hutch_cache *target, const char *key) {
  check_note(key);
  hutch_entry_info old = info_of(source, key), new = info_of(target, key);
  CHECK_EQUAL(old.created, new.created);
  CHECK_EQUAL(old.expires, new.expires);
  CHECK_EQUAL(old.time_to_idle, new.time_to_idle);
  if (old.time_to_idle && new.tier == HUTCH_TIER_DISK) CHECK_EQUAL(old.accessed, new.accessed);
  CHECK_EQUAL(old.cost, new.cost);
  hutch_value *was = get_value(source, key), *is = get_value(target, key);
  CHECK_BYTES(hutch_value_data(was), hutch_value_size(was), hutch_value_data(is),
              hutch_value_size(is));
  CHECK_BYTES(hutch_value_extended(was), hutch_value_extended_size(was),
              hutch_value_extended(is), hutch_value_extended_size(is));
  CHECK_BYTES(hutch_value_tag(was), hutch_value_tag_size(was), hutch_value_tag(is),
              hutch_value_tag_size(is));
  hutch_value_release(was);
  hutch_value_release(is);
}

TEST(an_entry_is_copied_with_its_record) {
  /* 0: a cache in memory. */
  static const uint32_t kinds[] = {0, HUTCH_STORAGE_MIXED, HUTCH_STORAGE_SQLITE,
                                   HUTCH_STORAGE_FILE, HUTCH_STORAGE_LOG};
  static const char *keys[] = {"plain", "all", "idle", "large"};
  for (size_t i = 0; i < 25; i++) {
    uint32_t from = kinds[i / 5], to = kinds[i % 5];
    char names[2][16];
    snprintf(names[0], sizeof names[0], "from%zu", i);
    snprintf(names[1], sizeof names[1], "to%zu", i);
    test_clock clock = {0};
    hutch_cache *source = open_kind(names[0], from, &clock);
    fill_source(source, &clock);
    hutch_cache *target = open_kind(names[1], to, &clock);
    hutch_copy_report report = copy(source, target);
    CHECK_EQUAL(4, report.copied);
    CHECK_EQUAL(5 + 7 + 4 + 50000, report.bytes);
    CHECK_EQUAL(0, report.existing + report.refused);
    CHECK_EQUAL(4, count_of(target));
    for (int k = 0; k < 4; k++) {
      if (to) check_where(target, keys[k], false, true);
      check_same(source, target, keys[k]);
    }
    CHECK_MISSING(target, "gone");
    CHECK_MISSING(target, "expired");
    if (from > HUTCH_STORAGE_SQLITE || from == HUTCH_STORAGE_MIXED) {
      if (to > HUTCH_STORAGE_SQLITE || to == HUTCH_STORAGE_MIXED) {
        char file[4200];
        size_t size;
        CHECK_OK(hutch_path(target, KEY("large"), file, sizeof file, &size));
        CHECK(strcmp(file + strlen(file) - 4, ".jpg") == 0);
      }
    }
    /* The rest of a life is as long as it was. */
    clock.now += 39 * SECOND;
    CHECK_MISSING(target, "all");
    CHECK_OK(hutch_close(source));
    CHECK_OK(hutch_close(target));
  }
}

TEST(what_the_target_has_stays_and_a_second_copy_adds_what_is_missing) {
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_MIXED, NULL);
  hutch_cache *target = open_kind("to", HUTCH_STORAGE_LOG, NULL);
  for (uint32_t i = 0; i < 3000; i++) CHECK_OK(hutch_put(source, &i, 4, &i, 4, NULL, NULL));
  uint32_t own = 17;
  CHECK_OK(hutch_put(target, &own, 4, KEY("newer"), NULL, NULL));
  hutch_copy_report report = copy(source, target);
  CHECK_EQUAL(2999, report.copied);
  CHECK_EQUAL(1, report.existing);
  for (uint32_t i = 0; i < 3000; i++) {
    uint32_t value = 0;
    size_t size = 0;
    if (i == own) continue;
    CHECK_OK(hutch_get_into(target, &i, 4, &value, sizeof value, &size));
    CHECK_EQUAL(i, value);
  }
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(target, &own, 4, &value));
  CHECK_BYTES("newer", 5, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_OK(put_text(source, "late", "value"));
  report = copy(source, target);
  CHECK_EQUAL(1, report.copied);
  CHECK_EQUAL(3000, report.existing);
  CHECK_EQUAL(3001, count_of(source));
  CHECK_OK(hutch_close(source));
  CHECK_OK(hutch_close(target));
  target = open_kind("to", HUTCH_STORAGE_LOG, NULL);
  CHECK_TEXT(target, "late", "value");
  CHECK_OK(hutch_check(target, 0, NULL));
  CHECK_OK(hutch_close(target));
}

static hutch_status turn(void *context, const void *input, size_t size, hutch_buffer *output) {
  unsigned char *out = hutch_buffer_resize(output, size);
  if (!out) return HUTCH_NO_MEMORY;
  for (size_t i = 0; i < size; i++) out[i] = ((const unsigned char *)input)[i] ^ 0x5A;
  *(int *)context += 1;
  return HUTCH_OK;
}

/* `calls`: how often it was called. */
static void use_codec(hutch_options *options, int *calls) {
  options->codec_encode = turn;
  options->codec_decode = turn;
  options->codec_context = calls;
  options->codec_id = 9;
}

TEST(each_cache_has_its_own_codec) {
  int calls = 0;
  hutch_options options = unlimited_options();
  use_codec(&options, &calls);
  hutch_cache *plain = open_kind("plain", HUTCH_STORAGE_MIXED, NULL);
  hutch_cache *encoded = open_cache(scratch("encoded").text, &options);
  hutch_cache *back = open_kind("back", HUTCH_STORAGE_LOG, NULL);
  CHECK_OK(put_text(plain, "key", "value"));
  CHECK_EQUAL(1, copy(plain, encoded).copied);
  CHECK_EQUAL(1, copy(encoded, back).copied);
  CHECK_TEXT(encoded, "key", "value");
  CHECK_TEXT(back, "key", "value");
  CHECK(calls >= 2);
  CHECK_OK(hutch_close(plain));
  CHECK_OK(hutch_close(encoded));
  CHECK_OK(hutch_close(back));
}

/* Where processes share, a touch goes to the store first, whose entry the codec has made. */
TEST(a_touched_entry_is_copied_without_the_codec) {
  int calls = 0;
  hutch_options options = default_options();
  use_codec(&options, &calls);
  hutch_cache *source = open_cache(scratch("source").text, &options);
  CHECK_OK(put_text(source, "key", "value"));
  CHECK_OK(hutch_touch(source, KEY("key"), HUTCH_HOUR, 0));
  hutch_cache *target = open_kind("target", HUTCH_STORAGE_SQLITE, NULL);
  CHECK_EQUAL(1, copy(source, target).copied);
  CHECK_TEXT(target, "key", "value");
  CHECK_OK(hutch_close(source));
  CHECK_OK(hutch_close(target));
}

TEST(what_the_target_cannot_take_is_told) {
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_MIXED, NULL);
  CHECK_OK(put_text(source, "small", "value"));
  CHECK_OK(put_size(source, "large", 300000));
  hutch_options options = default_options();
  options.disk.max_entry = 100000;
  hutch_cache *target = open_cache(scratch("to").text, &options);
  hutch_copy_report report = copy(source, target);
  CHECK_EQUAL(1, report.copied);
  CHECK_EQUAL(1, report.refused);
  CHECK_TEXT(target, "small", "value");
  CHECK_MISSING(target, "large");
  CHECK_OK(hutch_close(target));

  /* The limits hold as ever. */
  options = default_options();
  options.disk.count = 10;
  target = open_cache(scratch("few").text, &options);
  for (uint32_t i = 0; i < 100; i++) CHECK_OK(hutch_put(source, &i, 4, &i, 4, NULL, NULL));
  CHECK_EQUAL(102, copy(source, target).copied);
  CHECK_EQUAL(10, count_of(target));
  CHECK_OK(hutch_close(target));
  CHECK_EQUAL(102, count_of(source));
  CHECK_OK(hutch_close(source));
}

TEST(a_copy_of_a_view_is_a_copy_of_its_tier) {
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_MIXED, NULL);
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_MEMORY;
  CHECK_OK(hutch_put(source, KEY("above"), KEY("value"), &options, NULL));
  options.write_policy = HUTCH_WRITE_DISK;
  CHECK_OK(hutch_put(source, KEY("below"), KEY("value"), &options, NULL));
  hutch_cache *target = open_kind("to", HUTCH_STORAGE_LOG, NULL);
  hutch_cache *disk = tier_of(source, HUTCH_TIER_DISK);
  hutch_cache *memory = tier_of(target, HUTCH_TIER_MEMORY);
  CHECK_EQUAL(1, copy(disk, memory).copied);
  check_where(target, "below", true, false);
  CHECK_EQUAL(1, copy(source, target).copied);
  check_where(target, "above", false, true);
  hutch_cache_release(disk);
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(source));
  CHECK_OK(hutch_close(target));
}

TEST(a_copy_from_a_tier_out_of_service_fails) {
  static const uint32_t kinds[] = {HUTCH_STORAGE_MIXED, HUTCH_STORAGE_LOG};
  for (int i = 0; i < 2; i++) {
    path place = scratch(i ? "from log" : "from mixed");
    hutch_cache *source = open_kind(i ? "from log" : "from mixed", kinds[i], NULL);
    hutch_cache *target = open_kind(NULL, HUTCH_STORAGE_DEFAULT, NULL);
    hutch_put_options options = put_options();
    options.write_policy = HUTCH_WRITE_DISK;
    CHECK_OK(hutch_put(source, KEY("below"), KEY("value"), &options, NULL));
    CHECK_OK(put_text(source, "both", "value"));
    CHECK(rename(place.text, scratch("away").text) == 0);
    CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(source));
    CHECK_EQUAL(HUTCH_STATE_DOWN, stats_of(source).disk.state);
    hutch_copy_report report = {.struct_size = sizeof report};
    CHECK_STATUS(HUTCH_TIER_DOWN, hutch_copy(source, target, &report));
    CHECK_EQUAL(1, report.copied);
    hutch_cache *disk = tier_of(source, HUTCH_TIER_DISK);
    hutch_cache *memory = tier_of(source, HUTCH_TIER_MEMORY);
    CHECK_STATUS(HUTCH_TIER_DOWN, hutch_copy(disk, target, &report));
    CHECK_OK(hutch_copy(memory, target, &report));
    CHECK_EQUAL(1, report.existing);
    hutch_cache_release(disk);
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(target));
    hutch_close(source);
    remove_tree(scratch("away").text);
  }
}

TEST(what_is_no_copy_is_refused) {
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_MIXED, NULL);
  hutch_cache *target = open_kind("to", HUTCH_STORAGE_LOG, NULL);
  hutch_cache *view = tier_of(source, HUTCH_TIER_DISK);
  CHECK_OK(put_text(source, "key", "value"));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_copy(source, source, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_copy(source, view, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_copy(NULL, target, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_copy(source, NULL, NULL));
  hutch_copy_report report = {0};
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_copy(source, target, &report));
  CHECK_EQUAL(0, count_of(target));
  CHECK_OK(hutch_copy(source, target, NULL));
  CHECK_TEXT(target, "key", "value");
  hutch_cache_release(view);
  hutch_cache_retain(target);
  CHECK_OK(hutch_close(target));
  report.struct_size = sizeof report;
  report.copied = 7;
  CHECK_STATUS(HUTCH_CLOSED, hutch_copy(source, target, &report));
  CHECK_EQUAL(0, report.copied);
  report.copied = 7;
  CHECK_STATUS(HUTCH_CLOSED, hutch_copy(target, source, &report));
  CHECK_EQUAL(0, report.copied);
  hutch_cache_release(target);
  CHECK_OK(hutch_close(source));
}

/* Another process puts, replaces and removes in the source meanwhile: each value in the target is
   one that its key has had, and what was not touched is there. */
TEST(a_source_that_another_process_writes_to) {
  enum { KEYS = 400 };
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_LOG, NULL);
  for (uint32_t i = 0; i < 2 * KEYS; i++) CHECK_OK(hutch_put(source, &i, 4, &i, 4, NULL, NULL));
  int ready[2];
  CHECK(pipe(ready) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(ready[0]);
    for (uint32_t round = 1;; round++) {
      for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t value = i + round * 2 * KEYS;
        if ((i + round) % 5 == 0) hutch_remove(source, &i, 4);
        else hutch_put(source, &i, 4, &value, 4, NULL, NULL);
      }
      if (round < 3 && write(ready[1], "x", 1) != 1) _exit(1);
    }
  }
  char byte;
  CHECK(read(ready[0], &byte, 1) == 1);
  hutch_cache *target = open_kind("to", HUTCH_STORAGE_MIXED, NULL);
  copy(source, target);
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, NULL, 0) == child);
  for (uint32_t i = 0; i < 2 * KEYS; i++) {
    uint32_t value = 0;
    size_t size = 0;
    hutch_status status = hutch_get_into(target, &i, 4, &value, sizeof value, &size);
    if (i >= KEYS || status != HUTCH_NOT_FOUND) CHECK_OK(status);
    if (status == HUTCH_OK) CHECK_EQUAL(i, value % (2 * KEYS));
  }
  close(ready[0]);
  close(ready[1]);
  CHECK_OK(hutch_close(source));
  CHECK_OK(hutch_close(target));
}

/* The source stays as it was, and a later copy adds what is missing. */
TEST(a_copy_ends_where_the_file_system_is_full) {
  enum { SMALL = 10, LARGE = 8 << 20 };
  static const uint32_t kinds[] = {HUTCH_STORAGE_MIXED, HUTCH_STORAGE_SQLITE, HUTCH_STORAGE_LOG};
  path mounted = small_disk("size=4m,mode=777");
  hutch_cache *source = open_kind("from", HUTCH_STORAGE_MIXED, NULL);
  for (uint32_t i = 0; i < SMALL; i++) CHECK_OK(hutch_put(source, &i, 4, &i, 4, NULL, NULL));
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    char name[32];
    snprintf(name, sizeof name, "%zu", kind);
    check_note(name);
    path place = in_directory(mounted.text, name);
    CHECK_OK(put_size(source, "large", LARGE));
    hutch_options options = unlimited_options();
    options.storage = kinds[kind];
    /* The log's segments are a thirty-second of it. */
    options.disk.cost = 2 * LARGE;
    hutch_cache *target = open_cache(place.text, &options);
    hutch_copy_report report = {.struct_size = sizeof report};
    CHECK_STATUS(HUTCH_NO_SPACE, hutch_copy(source, target, &report));
    CHECK(last_error().words[0] != '\0');
    CHECK(report.copied <= SMALL);
    CHECK_EQUAL(4 * report.copied, report.bytes);
    CHECK_EQUAL(SMALL + 1, count_of(source));
    CHECK_MISSING(target, "large");
    CHECK_OK(hutch_remove(source, KEY("large")));
    hutch_copy_report rest = copy(source, target);
    CHECK_EQUAL(SMALL, rest.copied + rest.existing);
    CHECK_EQUAL(0, rest.refused);
    for (uint32_t i = 0; i < SMALL; i++) {
      uint32_t value = SMALL;
      size_t size = 0;
      CHECK_OK(hutch_get_into(target, &i, 4, &value, sizeof value, &size));
      CHECK_EQUAL(i, value);
    }
    hutch_close(target);
    remove_tree(place.text);
  }
  CHECK_OK(hutch_close(source));
  CHECK(umount(mounted.text) == 0);
}
