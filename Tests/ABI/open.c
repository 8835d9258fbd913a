/* The group 'open' of hutch.h: options, opening, closing, references. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

/* ----------------------------------------------------------------- options */

TEST(the_defaults_are_the_ones_in_the_header) {
  hutch_options options;
  memset(&options, 0xff, sizeof options);
  CHECK_OK(hutch_options_init(&options, sizeof options));
  hutch_options expected;
  memset(&expected, 0, sizeof expected);
  expected.struct_size = sizeof expected;
  expected.inline_threshold = 20480;
  expected.memory.cost = 64 << 20;
  expected.memory.max_entry = HUTCH_MAX_ENTRY_QUARTER;
  expected.disk.cost = 50000000;
  expected.disk.max_entry = HUTCH_MAX_ENTRY_QUARTER;
  expected.disk.time_to_live = 30 * HUTCH_DAY;
  expected.workers = 2;
  expected.close_deadline = 30 * HUTCH_SECOND;
  CHECK_BYTES(&expected, sizeof expected, &options, sizeof options);
}

TEST(options_init_fills_what_the_caller_knows) {
  hutch_options options, filled;
  memset(&options, 0xff, sizeof options);
  filled = options;
  size_t known = offsetof(hutch_options, memory);
  CHECK_OK(hutch_options_init(&options, known));
  CHECK_EQUAL(known, options.struct_size);
  CHECK_EQUAL(20480, options.inline_threshold);
  CHECK_BYTES((char *)&filled + known, sizeof filled - known, (char *)&options + known,
              sizeof options - known);
}

TEST(null_options_are_the_defaults) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_options options = default_options();
  hutch_cache_limits limits = limits_of(cache);
  CHECK_BYTES(&options.memory, sizeof options.memory, &limits.memory, sizeof limits.memory);
  CHECK_BYTES(&options.disk, sizeof options.disk, &limits.disk, sizeof limits.disk);
  CHECK_OK(hutch_close(cache));
}

/* --------------------------------------------------------------- directory */

TEST(a_cache_in_memory_leaves_nothing_behind) {
  CHECK(chdir(scratch(NULL).text) == 0);
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK(!hutch_directory(cache));
  CHECK_OK(put_size(cache, "key", 1 << 20));
  CHECK_OK(hutch_flush(cache));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, digest_of(scratch(NULL).text));
}

TEST(the_directory_is_made_with_its_parents) {
  path directory = scratch("a/b/c");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  struct stat status;
  CHECK(stat(directory.text, &status) == 0);
  CHECK_EQUAL(0700, status.st_mode & 07777);
  CHECK_OK(hutch_close(cache));
}

TEST(the_directory_is_told_as_it_was_given) {
  CHECK(chdir(scratch(NULL).text) == 0);
  const char *given = ".//cache/../cache/";
  hutch_cache *cache = open_cache(given, NULL);
  hutch_cache *view = tier_of(cache, HUTCH_TIER_DISK);
  CHECK(strcmp(hutch_directory(cache), given) == 0);
  CHECK(strcmp(hutch_directory(view), given) == 0);
  hutch_cache_retain(cache);
  CHECK_OK(hutch_close(cache));
  CHECK(strcmp(hutch_directory(cache), given) == 0);
  hutch_cache_release(cache);
  hutch_cache_release(view);
}

TEST(a_path_is_bytes) {
  /* Latin-1, and a lone continuation byte: no UTF-8. */
  path directory = scratch("caf\xe9\x80");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
  CHECK(access(directory.text, F_OK) == 0);
  cache = open_cache(directory.text, NULL);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(the_working_directory_may_change) {
  CHECK(chdir(scratch(NULL).text) == 0);
  hutch_cache *cache = open_cache("cache", NULL);
  CHECK_OK(put_size(cache, "before", 100000));
  CHECK(chdir("/") == 0);
  CHECK_OK(put_size(cache, "after", 100000));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, NULL);
  CHECK_OK(hutch_contains(cache, KEY("before")));
  CHECK_OK(hutch_contains(cache, KEY("after")));
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------ close, reopen */

static const size_t sizes[] = {0, 1, 7, 100, 4096, 20479, 20480, 20481, 100000, 3 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void check_sizes(hutch_cache *cache) {
  for (int i = 0; i < SIZES; i++) {
    char key[32];
    snprintf(key, sizeof key, "%zu bytes", sizes[i]);
    hutch_value *value = get_value(cache, key);
    void *expected = filled(sizes[i], sizes[i]);
    CHECK_BYTES(expected, sizes[i], hutch_value_data(value), hutch_value_size(value));
    free(expected);
    hutch_value_release(value);
  }
  CHECK_EQUAL(SIZES, count_of(cache));
}

TEST(what_was_put_is_there_after_reopening) {
  const uint32_t storages[] = {HUTCH_STORAGE_DEFAULT, HUTCH_STORAGE_MIXED, HUTCH_STORAGE_SQLITE,
                               HUTCH_STORAGE_FILE};
  for (int s = 0; s < 4; s++) {
    char name[] = "storage 0";
    name[8] = (char)('0' + s);
    check_note(name);
    hutch_options options = unlimited_options();
    options.storage = storages[s];
    hutch_cache *cache = open_cache(scratch(name).text, &options);
    for (int i = 0; i < SIZES; i++) {
      char key[32];
      snprintf(key, sizeof key, "%zu bytes", sizes[i]);
      CHECK_OK(put_size(cache, key, sizes[i]));
    }
    check_sizes(cache);
    CHECK_OK(hutch_close(cache));
    cache = open_cache(scratch(name).text, &options);
    check_sizes(cache);
    CHECK_OK(hutch_close(cache));
    /* The default takes what the directory has. */
    options.storage = HUTCH_STORAGE_DEFAULT;
    cache = open_cache(scratch(name).text, &options);
    check_sizes(cache);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(giving_up_the_last_reference_closes_too) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK(hutch_cache_retain(cache) == cache);
  hutch_cache_release(cache);
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(0, clock.released);
  hutch_cache_release(cache);
  CHECK_EQUAL(1, clock.released);
  options = unlimited_options();
  cache = open_cache(scratch("cache").text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(no_version_is_used_twice_in_a_directory) {
  enum { ROUNDS = 5, PUTS = 40 };
  uint64_t versions[ROUNDS * PUTS];
  int known = 0;
  for (int round = 0; round < ROUNDS; round++) {
    hutch_cache *cache = open_cache(scratch("cache").text, NULL);
    for (int i = 0; i < PUTS; i++) {
      hutch_put_result result = new_result();
      CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), NULL, &result));
      for (int k = 0; k < known; k++) CHECK(versions[k] != result.version);
      versions[known++] = result.version;
    }
    CHECK_OK(hutch_close(cache));
  }
}

TEST(the_storage_kind_is_settled_at_the_first_use) {
  hutch_options options = default_options();
  options.storage = HUTCH_STORAGE_FILE;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
  options.storage = HUTCH_STORAGE_SQLITE;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(directory.text, &options, &cache));
  CHECK(!cache);
  cache = open_cache(directory.text, NULL);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(flush_answers_when_all_is_committed) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_OK(hutch_flush(f->cache));
  CHECK_TEXT(f->cache, "key", "value");
}

/* ------------------------------------------------------------- two openings */

TEST(two_openings_share_one_cache) {
  path directory = scratch("cache");
  hutch_cache *first = open_cache(directory.text, NULL);
  CHECK_OK(put_text(first, "key", "of the first"));
  CHECK(symlink(directory.text, scratch("link").text) == 0);
  hutch_cache *second = open_cache(scratch("link").text, NULL);
  CHECK(strcmp(hutch_directory(second), scratch("link").text) == 0);
  CHECK_TEXT(second, "key", "of the first");
  CHECK_OK(put_text(second, "key", "of the second"));
  CHECK_TEXT(first, "key", "of the second");
  CHECK_EQUAL(1, count_of(first));

  /* Each handle is closed by itself. */
  hutch_cache_retain(first);
  CHECK_OK(hutch_close(first));
  CHECK_STATUS(HUTCH_CLOSED, put_text(first, "key", "late"));
  hutch_cache_release(first);
  CHECK_TEXT(second, "key", "of the second");
  CHECK_OK(put_text(second, "other", "value"));
  CHECK_OK(hutch_close(second));

  first = open_cache(directory.text, NULL);
  CHECK_TEXT(first, "other", "value");
  CHECK_OK(hutch_close(first));
}

TEST(a_second_opening_with_other_options_is_told) {
  path directory = scratch("cache");
  test_clock clock = {0};
  hutch_options options = default_options();
  options.memory.count = 10;
  hutch_cache *first = open_cache(directory.text, &options);
  hutch_cache *same = open_cache(directory.text, &options);

  use_clock(&options, &clock);
  options.memory.count = 20;
  hutch_cache *other = NULL;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &other));
  CHECK(other);
  /* The options that were there go on, so nobody keeps this clock. */
  CHECK_EQUAL(10, limits_of(other).memory.count);
  CHECK_OK(put_text(other, "key", "value"));
  CHECK_TEXT(first, "key", "value");
  CHECK_OK(hutch_close(other));
  CHECK_EQUAL(1, clock.released);
  CHECK_OK(hutch_close(same));
  CHECK_OK(hutch_close(first));
}

static void open_and_close(void *context, int index) {
  char key[16];
  snprintf(key, sizeof key, "%d", index);
  for (int i = 0; i < 20; i++) {
    hutch_cache *cache = open_cache(context, NULL);
    CHECK_OK(put_text(cache, key, key));
    CHECK_TEXT(cache, key, key);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(threads_may_open_and_close_one_directory_at_once) {
  path directory = scratch("cache");
  run_threads(4, open_and_close, directory.text);
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_EQUAL(4, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- close */

TEST(a_closed_cache_answers_that_it_is_closed) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, NULL);
    hutch_cache *view = tier_of(cache, HUTCH_TIER_MEMORY);
    CHECK_OK(put_text(cache, "k", "value"));
    hutch_cache_retain(cache);
    hutch_cache_retain(cache);
    CHECK_OK(hutch_close(cache));
    check_every_call(cache, HUTCH_CLOSED);
    CHECK(last_error().words[0] != '\0');
    check_every_call(view, HUTCH_CLOSED);
    /* Gives the reference up all the same, which LeakSanitizer would tell. */
    CHECK_STATUS(HUTCH_CLOSED, hutch_close(cache));
    hutch_cache_release(cache);
    hutch_cache_release(view);
  }
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "k", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(closing_a_view_only_gives_it_up) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_OK(hutch_close(tier_of(cache, HUTCH_TIER_MEMORY)));
  CHECK_OK(hutch_close(tier_of(cache, HUTCH_TIER_DISK)));
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

typedef struct seen {
  hutch_cache *cache;
  int calls;
} seen;

static int32_t waits(void *context, const void *key, size_t key_size,
                     const hutch_entry_info *info) {
  seen *s = context;
  (void)key, (void)key_size, (void)info;
  s->calls++;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(s->cache));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(s->cache));
  /* Of another cache, it waits for nobody who waits for it. */
  hutch_cache *other = open_cache(NULL, NULL);
  CHECK_OK(hutch_flush(other));
  CHECK_OK(hutch_close(other));
  return 0;
}

TEST(a_callback_may_not_wait_for_its_own_cache) {
  for (int disk = 0; disk < 2; disk++) {
    seen s = {.cache = open_cache(disk ? scratch("cache").text : NULL, NULL)};
    CHECK_OK(put_text(s.cache, "key", "value"));
    CHECK_OK(hutch_each(s.cache, waits, &s));
    CHECK_EQUAL(1, s.calls);
    CHECK_TEXT(s.cache, "key", "value");
    CHECK_OK(hutch_close(s.cache));
  }
}

TEST(null_may_be_closed_and_released) {
  CHECK_OK(hutch_close(NULL));
  hutch_cache_release(NULL);
  hutch_value_release(NULL);
  hutch_cursor_release(NULL);
}

/* ------------------------------------------------------------------- clock */

TEST(a_clock_is_released_once_whatever_comes_of_the_opening) {
  test_clock clock = {0};
  hutch_options options = default_options();
  use_clock(&options, &clock);
  hutch_cache *cache = NULL;
  path file = scratch("file");
  write_file(file.text, "x", 1);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(file.text, &options, &cache));
  CHECK_EQUAL(1, clock.released);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open("", &options, &cache));
  CHECK_EQUAL(2, clock.released);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, NULL));
  CHECK_EQUAL(3, clock.released);
  options.disk.time_to_live = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &cache));
  CHECK_EQUAL(4, clock.released);
}

TEST(a_value_does_not_keep_the_clock) {
  test_clock clock = {0};
  hutch_options options = default_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  hutch_value *value = get_value(cache, "key");
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, clock.released);
  hutch_value_release(value);
}
