/* The group 'open' of hutch.h: options, opening, closing, references. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* ----------------------------------------------------------------- options */

static hutch_cache_limits defaults(void) {
  hutch_cache_limits limits = {sizeof limits, no_limits(), no_limits()};
  limits.memory.cost = 64 << 20;
  limits.disk.cost = 50000000;
  limits.memory.max_entry = limits.disk.max_entry = HUTCH_MAX_ENTRY_QUARTER;
  limits.disk.time_to_live = 30 * HUTCH_DAY;
  return limits;
}

static void check_limits(const hutch_cache_limits *expected, hutch_cache *cache) {
  hutch_cache_limits limits = limits_of(cache);
  CHECK_BYTES(expected, sizeof *expected, &limits, sizeof limits);
}

static int files_below(const char *directory);

/* NULL, all zero, and a struct that is no longer than its size. */
TEST(zero_is_the_default_in_every_field) {
  const size_t known[] = {0, sizeof(size_t), offsetof(hutch_options, memory),
                          sizeof(hutch_options)};
  for (int i = 0; i < 4; i++) {
    hutch_options options = {.struct_size = known[i]};
    path directory = scratch((char[]){(char)('a' + i), 0});
    hutch_cache *cache = NULL;
    CHECK_OK(hutch_open(directory.text, i == 0 ? NULL : &options, &cache));
    hutch_cache_limits expected = defaults();
    check_limits(&expected, cache);
    /* A value of a quarter of a segment is in the log, a longer one has a file. */
    CHECK_OK(put_size(cache, "inline", 262144));
    CHECK_EQUAL(0, files_below(directory.text));
    CHECK_OK(put_size(cache, "file", 262145));
    CHECK_EQUAL(1, files_below(directory.text));
    /* There are threads that carry out tasks. */
    hutch_task *task;
    CHECK_OK(hutch_get_async(cache, KEY("inline"), NULL, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    hutch_task_release(task);
    CHECK_OK(hutch_close(cache));
  }
}

static void count_content(void *context, const char *file, const struct stat *status) {
  if (strstr(file, "/content/") && S_ISREG(status->st_mode) && status->st_size > 0)
    ++*(int *)context;
}

static int files_below(const char *directory) {
  int count = 0;
  each_file(directory, count_content, &count);
  return count;
}

TEST(a_cache_in_memory_has_no_limits_of_a_disk_tier) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_cache_limits expected = defaults();
  expected.disk = (hutch_tier_limits){0};
  check_limits(&expected, cache);
  CHECK_OK(hutch_close(cache));
}

TEST(a_limit_that_is_set_leaves_the_others_at_their_defaults) {
  hutch_options options = default_options();
  options.memory.count = 7;
  options.disk.time_to_live = HUTCH_FOREVER;
  options.disk.max_entry = HUTCH_NO_LIMIT;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache_limits expected = defaults();
  expected.memory.count = 7;
  expected.disk.time_to_live = HUTCH_FOREVER;
  expected.disk.max_entry = HUTCH_NO_LIMIT;
  check_limits(&expected, cache);
  CHECK_OK(hutch_close(cache));
}

TEST(values_get_no_files_without_a_threshold) {
  hutch_options options = default_options();
  options.inline_threshold = HUTCH_NO_LIMIT;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_size(cache, "large", 1 << 20));
  CHECK_EQUAL(0, files_below(directory.text));
  CHECK_OK(hutch_close(cache));
}

TEST(a_cache_without_threads_has_no_workers) {
  hutch_options options = default_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  options.queue_length = HUTCH_NO_LIMIT;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_task *task;
  CHECK_OK(hutch_get_async(cache, KEY("key"), NULL, &task));
  CHECK_EQUAL(0, workers());
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_task_wait(task, 0));
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_OK(hutch_task_wait(task, 0));
  hutch_task_release(task);
  CHECK_OK(hutch_close(cache));
  options.workers = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &cache));
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

TEST(only_what_exists_is_opened_if_asked_for) {
  hutch_options options = default_options();
  options.flags = HUTCH_OPEN_EXISTING;
  hutch_cache *cache;
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("a/b").text, &options, &cache));
  CHECK(!cache && access(scratch("a").text, F_OK) != 0);
  CHECK_EQUAL(ENOENT, last_error().system_error);
  path empty = scratch("empty");
  CHECK(mkdir(empty.text, 0700) == 0);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(empty.text, &options, &cache));
  CHECK(strstr(hutch_error_words(), "/empty: there is no cache in the directory"));
  options.flags |= HUTCH_OPEN_DISK_OPTIONAL;
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("none").text, &options, &cache));
  CHECK(strstr(hutch_error_words(), "/none: there is no cache in the directory"));
  options.flags = HUTCH_OPEN_EXISTING;
  CHECK(rmdir(empty.text) == 0);
  CHECK_OK(hutch_close(open_cache(scratch("cache").text, NULL)));
  cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(hutch_close(open_cache(scratch("cache").text, &options)));
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------------------- destroy */

TEST(a_destroyed_cache_leaves_nothing) {
  const uint32_t sharings[] = {HUTCH_SHARING_EXCLUSIVE, HUTCH_SHARING_SHARED};
  for (int i = 0; i < 2; i++) {
    path directory = scratch(i ? "shared" : "exclusive");
    hutch_options options = default_options();
    options.sharing = sharings[i];
    options.flags = HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(directory.text, &options);
    for (uint32_t key = 0; key < 40; key++) {
      void *data = filled(30000, key);
      uint32_t half = key / 2; /* the older ones are in the trash */
      CHECK_OK(hutch_put(cache, &half, sizeof half, data, 30000, NULL, NULL));
      free(data);
    }
    CHECK_STATUS(HUTCH_BUSY, hutch_destroy(directory.text));
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_TEXT(cache, "key", "value");
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(directory.text));
    CHECK(access(directory.text, F_OK) != 0);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(directory.text));
    /* It can be made anew. */
    cache = open_cache(directory.text, &options);
    CHECK_EQUAL(0, count_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(destroying_a_cache_spares_the_files_of_others) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_size(cache, "large", 100000));
  CHECK_OK(hutch_close(cache));
  /* The log store makes it when it is needed. */
  CHECK(mkdir(scratch("cache/trash").text, 0700) == 0 || errno == EEXIST);
  const char *const theirs[] = {"cache/thesis.docx", "cache/content/notes", "cache/trash/thesis"};
  for (int i = 0; i < 3; i++) write_file(scratch(theirs[i]).text, "precious", 8);
  path elsewhere = scratch("elsewhere");
  CHECK(mkdir(elsewhere.text, 0700) == 0);
  write_file(scratch("elsewhere/0123456789abcdef").text, "precious", 8);
  CHECK(symlink(elsewhere.text, scratch("cache/content/zz").text) == 0);
  CHECK_OK(hutch_destroy(directory.text));
  for (int i = 0; i < 3; i++) CHECK(access(scratch(theirs[i]).text, F_OK) == 0);
  CHECK(access(scratch("elsewhere/0123456789abcdef").text, F_OK) == 0);
  CHECK(access(scratch("cache/manifest.sqlite").text, F_OK) != 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(directory.text));
  CHECK_EQUAL(4 * 8, bytes_below(scratch(NULL).text));
}

TEST(what_is_no_cache_is_not_destroyed) {
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_destroy(NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_destroy(""));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(scratch("absent").text));
  path directory = scratch("plain");
  CHECK(mkdir(directory.text, 0700) == 0);
  write_file(scratch("plain/file").text, "precious", 8);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(directory.text));
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_destroy(scratch("plain/file").text));
  write_file(scratch("plain/manifest.sqlite").text, "of somebody else", 16);
  uint64_t digest = digest_of(directory.text);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_destroy(directory.text));
  CHECK_EQUAL(digest, digest_of(directory.text));
}

PROCESS(hold_open, directory) {
  hutch_cache *cache = open_cache(directory, NULL);
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

TEST(a_cache_that_another_process_has_open_is_not_destroyed) {
  path directory = scratch("cache");
  process other = start_process("hold_open", directory.text);
  await_ready(&other);
  CHECK_STATUS(HUTCH_BUSY, hutch_destroy(directory.text));
  end_process(&other);
  CHECK_OK(hutch_destroy(directory.text));
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
                               HUTCH_STORAGE_FILE, HUTCH_STORAGE_LOG};
  for (int s = 0; s < 5; s++) {
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

TEST(the_storage_kind_is_chosen_at_the_first_use) {
  hutch_options options = default_options();
  options.storage = HUTCH_STORAGE_FILE;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
  options.storage = HUTCH_STORAGE_SQLITE;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &cache));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(put_text(cache, "other", "value"));
  char file[sizeof directory.text];
  size_t size;
  CHECK_OK(hutch_path(cache, KEY("other"), file, sizeof file, &size));
  CHECK_OK(hutch_close(cache));
  CHECK_OK(hutch_open(directory.text, NULL, &cache));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

/* A directory belongs to one store for its life, whatever an opening asks for. */
TEST(a_directory_has_one_store) {
  hutch_options options = default_options();
  for (int is_log = 0; is_log < 2; is_log++) {
    options.storage = is_log ? HUTCH_STORAGE_LOG : HUTCH_STORAGE_MIXED;
    path directory = scratch(is_log ? "log" : "sqlite");
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    /* While it is open here, this process has it as it is. */
    hutch_options other = default_options();
    other.storage = is_log ? HUTCH_STORAGE_FILE : HUTCH_STORAGE_LOG;
    hutch_cache *second;
    CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &other, &second));
    CHECK_OK(hutch_close(second));
    CHECK_OK(hutch_close(cache));

    for (uint32_t kind = HUTCH_STORAGE_MIXED; kind <= HUTCH_STORAGE_LOG; kind++) {
      if (kind == options.storage) continue;
      other.storage = kind;
      CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &other, &cache));
      CHECK_TEXT(cache, "key", "value");
      CHECK_OK(hutch_close(cache));
    }
    char log[4200];
    snprintf(log, sizeof log, "%s/hutch-log", directory.text);
    CHECK_EQUAL(is_log, access(log, F_OK) == 0);
    other = (hutch_options){.struct_size = sizeof other, .flags = HUTCH_OPEN_EXISTING};
    cache = open_cache(directory.text, &other);
    CHECK_TEXT(cache, "key", "value");
    CHECK_STATUS(HUTCH_BUSY, hutch_destroy(directory.text));
    CHECK_OK(hutch_close(cache));

    /* A file of another program stays, and so does the directory. */
    char notes[4200];
    snprintf(notes, sizeof notes, "%s/notes", directory.text);
    write_file(notes, "mine", 4);
    CHECK_OK(hutch_destroy(directory.text));
    CHECK(access(notes, F_OK) == 0);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(directory.text));
    CHECK(unlink(notes) == 0 && rmdir(directory.text) == 0);
  }
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
  options.policy = HUTCH_POLICY_LRU;
  options.durability = HUTCH_DURABILITY_POWER;
  options.checksums = HUTCH_CHECKSUMS_NEVER;
  options.inline_threshold = 1000;
  options.disk.count = 100;
  hutch_cache *first = open_cache(directory.text, &options);
  hutch_cache *same = open_cache(directory.text, &options);
  /* What is not set is as the cache has it. */
  CHECK_OK(hutch_close(open_cache(directory.text, NULL)));
  hutch_options some = default_options();
  some.policy = HUTCH_POLICY_LRU;
  some.disk.count = 100;
  CHECK_OK(hutch_close(open_cache(directory.text, &some)));

  use_clock(&options, &clock);
  options.memory.count = 20;
  hutch_cache *other = NULL;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &other));
  CHECK(other);
  /* The options that were there go on, so no cache keeps this clock. */
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

/* The words have the end of a long path, and no part of a character. */
TEST(the_words_about_a_path_are_whole_characters) {
  hutch_options options = {.struct_size = sizeof options, .flags = HUTCH_OPEN_EXISTING};
  for (int shift = 0; shift < 2; shift++) {
    path directory = scratch("none");
    for (int i = 0; i < 80; i++) strcat(directory.text, "é");
    if (shift) strcat(directory.text, "x");
    hutch_cache *cache;
    CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(directory.text, &options, &cache));
    hutch_error error = last_error();
    const char *at = error.words + 3;
    CHECK(strncmp(error.words, "...", 3) == 0 && memcmp(at, "é", 2) == 0);
    while (memcmp(at, "é", 2) == 0) at += 2;
    CHECK(strncmp(at, shift ? "x: " : ": ", 2) == 0);
  }
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
  /* Of another cache, it waits for no thread that waits for it. */
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
  CHECK(strcmp(hutch_error_words(), "the directory's path is empty") == 0);
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

/* -------------------------------------------------------- two directories at once */

static void open_either(void *context, int index) {
  uint64_t state = seed() + (uint64_t)index;
  for (int i = 0; i < 40; i++) {
    bool is_own = next_random(&state) % 2;
    hutch_cache *cache = NULL;
    hutch_status status = hutch_open(is_own ? scratch("a").text : context, NULL, &cache);
    CHECK(status == HUTCH_OK || status == HUTCH_OPTIONS_DIFFER);
    char key[16];
    sprintf(key, "%d-%d", index, i);
    CHECK_OK(put_text(cache, key, key));
    CHECK_TEXT(cache, key, key);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(many_threads_open_either_two_directories) {
  run_threads(4, open_either, scratch("b").text);
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = NULL;
    CHECK_OK(hutch_open(scratch(i ? "a" : "b").text, NULL, &cache));
    hutch_check_report report = report_of(cache, 0);
    CHECK_EQUAL(0, report.damaged + report.counters + report.manifest);
    CHECK_OK(hutch_close(cache));
  }
}
