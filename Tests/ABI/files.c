/* Values as files and in pieces: hutch_put_file, writers, paths, descriptors, holds. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE 300000
/* More than the memory tier takes in the caches of open_small. */
#define HUGE_SIZE 3000000

/* A cache whose memory tier takes entries of up to a megabyte. */
static hutch_cache *open_small(const char *name) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = 1000000;
  return open_cache(scratch(name).text, &options);
}

static void put_file_of(const char *name, size_t size) {
  void *data = filled(size, size);
  write_file(scratch(name).text, data, size);
  free(data);
}

static void check_large(hutch_cache *cache, const char *key, size_t size) {
  void *expected = filled(size, size);
  hutch_value *value = get_value(cache, key);
  CHECK_BYTES(expected, size, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  free(expected);
}

static bool is_there(const char *file) { return access(file, F_OK) == 0; }

static path path_of(hutch_cache *cache, const char *key) {
  path found;
  size_t size = 0;
  CHECK_OK(hutch_path(cache, KEY(key), found.text, sizeof found.text, &size));
  CHECK_EQUAL(strlen(found.text), size);
  return found;
}

static void count_one(void *context, const char *file, const struct stat *status) {
  (void)status;
  const char *below = strstr(file, "/content/");
  if (below && strlen(below) > sizeof "/content/xx") ++*(int *)context;
}

static int content_files(const char *name) {
  int count = 0;
  each_file(scratch(name).text, count_one, &count);
  return count;
}

static void check_result(const hutch_put_result *result, uint32_t memory, uint32_t disk) {
  CHECK_EQUAL(memory, result->memory);
  CHECK_EQUAL(disk, result->disk);
  CHECK(result->version != 0);
}

/* ----------------------------------------------------------------- put_file */

TEST_EACH_KIND(a_file_is_stored_like_a_value) {
  static const size_t sizes[] = {0, 1, 20480, 20481, LARGE};
  put_file_of("source", 5);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    put_file_of("source", sizes[i]);
    for (uint32_t use = HUTCH_FILE_COPY; use <= HUTCH_FILE_LINK; use++) {
      hutch_put_result result = new_result();
      if (use == HUTCH_FILE_LINK) put_file_of("source", sizes[i]);
      CHECK_OK(hutch_put_file(f->cache, KEY("key"), scratch("source").text, use, NULL, &result));
      check_large(f->cache, "key", sizes[i]);
      CHECK_EQUAL(use != HUTCH_FILE_MOVE, is_there(scratch("source").text));
      CHECK_EQUAL(has_disk(k) ? HUTCH_OUTCOME_STORED
                              : k == IN_MEMORY ? HUTCH_OUTCOME_NONE : HUTCH_OUTCOME_REMOVED,
                  result.disk);
      CHECK_EQUAL(result.version, info_of(f->cache, "key").version);
    }
    unlink(scratch("source").text);
  }
}

TEST(a_file_that_memory_does_not_take_is_on_disk) {
  hutch_cache *cache = open_small("cache");
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_OK(put_text(cache, "key", "older"));
  for (uint32_t use = HUTCH_FILE_COPY; use <= HUTCH_FILE_LINK; use++) {
    put_file_of("source", HUGE_SIZE);
    hutch_put_result result = new_result();
    CHECK_STATUS(HUTCH_PARTIAL, hutch_put_file(cache, KEY("key"), scratch("source").text, use,
                                               NULL, &result));
    check_result(&result, HUTCH_OUTCOME_TOO_LARGE, HUTCH_OUTCOME_STORED);
    CHECK_MISSING(memory, "key");
    check_large(cache, "key", HUGE_SIZE);
    CHECK_EQUAL(HUGE_SIZE, info_of(cache, "key").size);
    unlink(scratch("source").text);
  }
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
  cache = open_small("cache");
  check_large(cache, "key", HUGE_SIZE);
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
}

TEST(a_link_shares_its_bytes_and_a_copy_does_not) {
  hutch_cache *cache = open_small("cache");
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  struct stat source, content;
  put_file_of("source", LARGE);
  CHECK_OK(hutch_put_file(disk, KEY("link"), scratch("source").text, HUTCH_FILE_LINK, NULL, NULL));
  CHECK_OK(hutch_put_file(disk, KEY("copy"), scratch("source").text, HUTCH_FILE_COPY, NULL, NULL));
  CHECK(stat(scratch("source").text, &source) == 0);
  CHECK(stat(path_of(disk, "link").text, &content) == 0);
  CHECK(source.st_ino == content.st_ino);
  CHECK(stat(path_of(disk, "copy").text, &content) == 0);
  CHECK(source.st_ino != content.st_ino);
  /* What changes the linked file damages that entry, and no other. */
  int file = open(scratch("source").text, O_WRONLY);
  CHECK(pwrite(file, "x", 1, 1000) == 1);
  close(file);
  CHECK_MISSING(disk, "link");
  check_large(disk, "copy", LARGE);
  CHECK_EQUAL(1, stats_of(disk).disk.damaged);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_symbolic_link_is_followed) {
  hutch_cache *cache = open_small("cache");
  put_file_of("source", LARGE);
  for (uint32_t use = HUTCH_FILE_COPY; use <= HUTCH_FILE_LINK; use++) {
    CHECK(is_there(scratch("name").text) || symlink("source", scratch("name").text) == 0);
    CHECK_OK(hutch_put_file(cache, KEY("key"), scratch("name").text, use, NULL, NULL));
    check_large(cache, "key", LARGE);
    CHECK(is_there(scratch("source").text));
    CHECK_EQUAL(use != HUTCH_FILE_MOVE, is_there(scratch("name").text));
  }
  CHECK_OK(hutch_close(cache));
}

TEST(a_move_across_file_systems_copies) {
  static const char *const places[] = {"/dev/shm", "/tmp", "/var/tmp"};
  struct stat here, there;
  CHECK(stat(scratch(NULL).text, &here) == 0);
  char source[32] = "";
  int file = -1;
  for (size_t i = 0; i < sizeof places / sizeof *places && file < 0; i++) {
    if (stat(places[i], &there) != 0 || there.st_dev == here.st_dev) continue;
    snprintf(source, sizeof source, "%s/hutch-XXXXXX", places[i]);
    file = mkstemp(source);
  }
  if (file < 0) check_skip("no second file system to move from");
  void *data = filled(HUGE_SIZE, HUGE_SIZE);
  CHECK(write(file, data, HUGE_SIZE) == HUGE_SIZE);
  free(data);
  close(file);
  hutch_cache *cache = open_small("cache");
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_status status = hutch_put_file(disk, KEY("key"), source, HUTCH_FILE_MOVE, NULL, NULL);
  bool is_left = is_there(source);
  unlink(source);
  CHECK_OK(status);
  CHECK(!is_left);
  check_large(disk, "key", HUGE_SIZE);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_file_that_no_tier_takes_stays) {
  hutch_options options = default_options();
  options.memory.cost = options.disk.cost = 1000000;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "older"));
  for (uint32_t use = HUTCH_FILE_COPY; use <= HUTCH_FILE_LINK; use++) {
    put_file_of("source", LARGE);
    hutch_put_result result = new_result();
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put_file(cache, KEY("key"), scratch("source").text, use,
                                                 NULL, &result));
    check_result(&result, HUTCH_OUTCOME_TOO_LARGE, HUTCH_OUTCOME_TOO_LARGE);
    CHECK(is_there(scratch("source").text));
    CHECK_MISSING(cache, "key");
    CHECK_EQUAL(0, content_files("cache"));
  }
  CHECK_OK(hutch_close(cache));
}

TEST(a_file_that_cannot_be_read_changes_nothing) {
  hutch_cache *cache = open_small("cache");
  CHECK_OK(put_text(cache, "key", "value"));
  hutch_put_result result = new_result();
  path missing = scratch("missing");
  CHECK_STATUS(HUTCH_IO,
               hutch_put_file(cache, KEY("key"), missing.text, HUTCH_FILE_COPY, NULL, &result));
  CHECK_EQUAL(ENOENT, last_error().system_error);
  CHECK_EQUAL(0, result.version);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_put_file(cache, KEY("key"), scratch("cache").text,
                                                      HUTCH_FILE_COPY, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_file(cache, KEY("key"), NULL, HUTCH_FILE_COPY, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_file(cache, KEY("key"), "", HUTCH_FILE_COPY, NULL, NULL));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_put_file(cache, KEY("key"), missing.text, 0, NULL, NULL));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_put_file(cache, KEY("key"), missing.text, 4, NULL, NULL));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- suffix */

TEST(a_content_file_has_the_suffix_that_its_put_asked_for) {
  hutch_cache *cache = open_small("cache");
  static const char *const suffixes[] = {".jpg", "", ".tmp", "-15-bytes-long-", "\xff\x01 '"};
  put_file_of("source", LARGE);
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    hutch_put_options options = put_options();
    options.suffix = suffixes[i];
    for (int way = 0; way < 3; way++) {
      void *data = filled(LARGE, LARGE);
      hutch_writer *writer = NULL;
      if (way == 0) CHECK_OK(hutch_put(cache, KEY("key"), data, LARGE, &options, NULL));
      if (way == 1)
        CHECK_OK(hutch_put_file(cache, KEY("key"), scratch("source").text, HUTCH_FILE_LINK,
                                &options, NULL));
      if (way == 2) {
        CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, &options, &writer));
        CHECK_OK(hutch_writer_append(writer, data, LARGE));
        CHECK_OK(hutch_writer_commit(writer, NULL));
        hutch_writer_release(writer);
      }
      free(data);
      path found = path_of(cache, "key");
      size_t length = strlen(found.text), end = strlen(suffixes[i]);
      CHECK(strcmp(found.text + length - end, suffixes[i]) == 0);
      CHECK(strncmp(found.text + length - end - 23, "/hutch-", 7) == 0);
      check_large(cache, "key", LARGE);
    }
  }
  CHECK_OK(hutch_close(cache));
  cache = open_small("cache");
  check_large(cache, "key", LARGE);
  CHECK_OK(hutch_remove(cache, KEY("key")));
  CHECK_EQUAL(0, content_files("cache"));
  CHECK_OK(hutch_close(cache));
}

/* In the calls that put otherwise than hutch_put, too. */
TEST(every_put_has_the_suffix_that_it_asked_for) {
  hutch_options cache_options = unlimited_options();
  cache_options.storage = HUTCH_STORAGE_FILE;
  hutch_put_options options = put_options();
  options.suffix = ".jpg";
  for (int way = 0; way < 2; way++) {
    cache_options.write_policy = way ? HUTCH_WRITE_ON_EVICTION : HUTCH_WRITE_THROUGH;
    hutch_cache *cache = open_cache(scratch(way ? "deferred" : "cache").text, &cache_options);
    static const char *const keys[] = {"async", "first", "second", "counter"};
    const void *many[] = {keys[1], keys[2]}, *values[] = {"value", "another"};
    const size_t sizes[] = {5, 6}, lengths[] = {5, 7};
    hutch_task *task = NULL;
    hutch_batch *results = NULL;
    int64_t sum = 0;
    CHECK_OK(hutch_put_async(cache, KEY(keys[0]), KEY("value"), &options, NULL, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    hutch_task_release(task);
    CHECK_OK(hutch_put_many(cache, many, sizes, values, lengths, 2, &options, &results));
    hutch_batch_release(results);
    CHECK_OK(hutch_increment(cache, KEY(keys[3]), 1, 1, &options, &sum));
    CHECK_OK(hutch_increment(cache, KEY(keys[3]), 1, 1, &options, &sum));
    CHECK_EQUAL(3, sum);
    for (int n = 0; n < 4; n++) {
      path found = path_of(cache, keys[n]);
      CHECK(strcmp(found.text + strlen(found.text) - 4, ".jpg") == 0);
    }
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_suffix_that_is_none_is_refused) {
  hutch_cache *cache = open_small("cache");
  static const char *const suffixes[] = {"/", "a/b", "sixteen-bytes-..", "../../elsewhere and long"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    hutch_put_options options = put_options();
    options.suffix = suffixes[i];
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
                 hutch_put(cache, KEY("key"), KEY("value"), &options, NULL));
  }
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ writers */

static void write_pieces(hutch_cache *cache, const char *key, size_t size, size_t piece,
                         hutch_put_result *result) {
  char *data = filled(size, size);
  hutch_writer *writer = NULL;
  CHECK_OK(hutch_writer_begin(cache, KEY(key), size, NULL, &writer));
  for (size_t at = 0; at < size; at += piece) {
    CHECK_OK(hutch_writer_append(writer, data + at, size - at < piece ? size - at : piece));
  }
  CHECK_OK(hutch_writer_append(writer, NULL, 0));
  CHECK_OK(hutch_writer_commit(writer, result));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_writer_commit(writer, result));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_writer_append(writer, "x", 1));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_writer_abort(writer));
  hutch_writer_release(writer);
  free(data);
}

TEST_EACH_KIND(a_value_may_come_in_pieces) {
  static const size_t sizes[] = {0, 1, 100, 20480, 20481, 65536, 65537, LARGE};
  static const size_t pieces[] = {1, 31, 32, 33, 4096, 65535, 65536, 65537, SIZE_MAX / 2};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (size_t j = 0; j < sizeof pieces / sizeof *pieces; j++) {
      if (sizes[i] / pieces[j] > 20000) continue;
      hutch_put_result result = new_result();
      write_pieces(f->cache, "key", sizes[i], pieces[j], &result);
      CHECK_EQUAL(result.version, info_of(f->cache, "key").version);
      check_large(f->cache, "key", sizes[i]);
    }
  }
  CHECK_EQUAL(1, count_of(f->cache));
}

TEST(a_value_of_pieces_is_in_a_file_or_in_both_tiers) {
  hutch_cache *cache = open_small("cache");
  hutch_put_result result = new_result();
  write_pieces(cache, "small", 20480, 1000, &result);
  check_result(&result, HUTCH_OUTCOME_STORED, HUTCH_OUTCOME_STORED);
  CHECK_EQUAL(0, content_files("cache"));
  write_pieces(cache, "large", 20481, 1000, &result);
  check_result(&result, HUTCH_OUTCOME_REMOVED, HUTCH_OUTCOME_STORED);
  CHECK_EQUAL(1, content_files("cache"));
  /* It enters memory when it is read. */
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_MISSING(memory, "large");
  check_large(cache, "large", 20481);
  check_large(memory, "large", 20481);
  CHECK(info_of(cache, "large").checksum != 0);
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

TEST(every_storage_kind_takes_pieces) {
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_FILE; storage++) {
    hutch_options options = unlimited_options();
    options.storage = storage;
    char name[] = "cache0";
    name[5] += storage;
    hutch_cache *cache = open_cache(scratch(name).text, &options);
    write_pieces(cache, "none", 0, 1, NULL);
    write_pieces(cache, "small", 10, 3, NULL);
    write_pieces(cache, "large", LARGE, 50000, NULL);
    put_file_of("source", LARGE);
    CHECK_OK(hutch_put_file(cache, KEY("file"), scratch("source").text, HUTCH_FILE_MOVE, NULL,
                            NULL));
    CHECK_EQUAL(storage == HUTCH_STORAGE_FILE ? 4 : storage == HUTCH_STORAGE_MIXED ? 2 : 0,
                content_files(name));
    CHECK_OK(hutch_close(cache));
    cache = open_cache(scratch(name).text, &options);
    check_large(cache, "none", 0);
    check_large(cache, "small", 10);
    check_large(cache, "large", LARGE);
    check_large(cache, "file", LARGE);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_writer_that_is_given_up_leaves_nothing) {
  void *data = filled(LARGE, 1);
  for (int way = 0; way < 6; way++) {
    bool on_disk = way < 3;
    hutch_options options = unlimited_options();
    hutch_cache *cache = open_cache(on_disk ? scratch("cache").text : NULL, &options);
    CHECK_OK(put_text(cache, "key", "older"));
    hutch_writer *writer = NULL;
    CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, NULL, &writer));
    CHECK_OK(hutch_writer_append(writer, data, LARGE));
    if (on_disk) CHECK_EQUAL(1, content_files("cache"));
    CHECK_TEXT(cache, "key", "older");
    if (way % 3 == 1) CHECK_OK(hutch_writer_abort(writer));
    if (way % 3 == 1) CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_writer_abort(writer));
    if (way % 3 == 2) {
      CHECK_OK(hutch_close(cache));
      CHECK_STATUS(HUTCH_CLOSED, hutch_writer_append(writer, data, LARGE));
      CHECK_STATUS(HUTCH_CLOSED, hutch_writer_commit(writer, NULL));
      CHECK_STATUS(HUTCH_CLOSED, hutch_writer_abort(writer));
      if (on_disk) CHECK_EQUAL(0, content_files("cache"));
    }
    hutch_writer_release(writer);
    if (on_disk) CHECK_EQUAL(0, content_files("cache"));
    if (way % 3 != 2) CHECK_OK(hutch_close(cache));
  }
  hutch_writer_release(NULL);
  free(data);
}

PROCESS(write_and_wait, directory) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options);
  hutch_writer *writer = NULL;
  void *data = filled(LARGE, 1);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_writer_begin(cache, KEY("key"), LARGE, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, LARGE));
  tell_ready();
  await_end();
}

TEST(trap_14_a_killed_writer_leaves_an_orphan_which_is_swept) {
  process child = start_process("write_and_wait", scratch("cache").text);
  await_ready(&child);
  CHECK_EQUAL(1, content_files("cache"));
  kill(child.pid, SIGKILL);
  int status;
  CHECK(waitpid(child.pid, &status, 0) == child.pid);
  /* A clock of the host's: counting does the maintenance. */
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(0, content_files("cache"));
  CHECK_OK(hutch_close(cache));
}

TEST(a_writer_of_too_much_is_told) {
  hutch_options options = default_options();
  options.memory.cost = options.disk.cost = 1000000;
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = open_cache(i ? NULL : scratch("cache").text, &options);
    CHECK_OK(put_text(cache, "key", "older"));
    hutch_writer *writer = (hutch_writer *)&options;
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_writer_begin(cache, KEY("key"), LARGE, NULL, &writer));
    CHECK(!writer);
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
                 hutch_writer_begin(cache, KEY("key"), UINT64_MAX, NULL, &writer));
    CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, NULL, &writer));
    void *data = filled(LARGE, 1);
    CHECK_OK(hutch_writer_append(writer, data, 200000));
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_writer_append(writer, data, 200000));
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_writer_append(writer, data, 1));
    hutch_put_result result = new_result();
    CHECK_STATUS(HUTCH_TOO_LARGE, hutch_writer_commit(writer, &result));
    CHECK_EQUAL(0, result.version);
    hutch_writer_release(writer);
    CHECK_TEXT(cache, "key", "older");
    if (!i) CHECK_EQUAL(0, content_files("cache"));
    free(data);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_writer_takes_the_options_of_a_put) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int i = 0; i < 2; i++) {
    size_t size = i ? LARGE : 10;
    char extended[] = "extended";
    hutch_put_options put = put_options();
    put.time_to_live = 10 * HUTCH_SECOND;
    put.cost = 7;
    put.extended = extended;
    put.extended_size = 8;
    void *data = filled(size, size);
    hutch_writer *writer = NULL;
    CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, &put, &writer));
    memset(extended, 0, sizeof extended);
    CHECK_OK(hutch_writer_append(writer, data, size));
    clock.now += HUTCH_MINUTE;
    CHECK_OK(hutch_writer_commit(writer, NULL));
    hutch_writer_release(writer);
    free(data);
    hutch_value *value = get_value(cache, "key");
    CHECK_BYTES("extended", 8, hutch_value_extended(value), hutch_value_extended_size(value));
    hutch_value_release(value);
    hutch_entry_info info = info_of(cache, "key");
    CHECK_EQUAL(clock.now, info.created);
    CHECK_EQUAL(clock.now + 10 * HUTCH_SECOND, info.expires);
    CHECK_EQUAL(7, info.cost);
  }
  CHECK_OK(hutch_close(cache));
}

TEST(a_writer_belongs_to_the_parent) {
  hutch_cache *cache = open_small("cache");
  hutch_writer *writer = NULL;
  void *data = filled(LARGE, LARGE);
  CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, LARGE / 2));
  pid_t child = fork_now();
  if (child == 0) {
    CHECK_STATUS(HUTCH_FORKED, hutch_writer_append(writer, data, 1));
    CHECK_STATUS(HUTCH_FORKED, hutch_writer_commit(writer, NULL));
    CHECK_STATUS(HUTCH_FORKED, hutch_writer_abort(writer));
    hutch_writer_release(writer);
    end_child();
  }
  await_child(child);
  CHECK_OK(hutch_writer_append(writer, (char *)data + LARGE / 2, LARGE / 2));
  CHECK_OK(hutch_writer_commit(writer, NULL));
  hutch_writer_release(writer);
  check_large(cache, "key", LARGE);
  free(data);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------- path, descriptor */

TEST(a_path_names_the_file) {
  hutch_cache *cache = open_small("cache");
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_OK(put_size(cache, "large", LARGE));
  CHECK_OK(put_text(cache, "small", "value"));
  path found = path_of(cache, "large");
  struct stat status;
  CHECK(found.text[0] == '/' && stat(found.text, &status) == 0 && status.st_size == LARGE);
  size_t size = 0, length = strlen(found.text);
  char *buffer = malloc(length + 1);
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, hutch_path(cache, KEY("large"), NULL, 0, &size));
  CHECK_EQUAL(length, size);
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL,
               hutch_path(cache, KEY("large"), buffer, length, &size));
  CHECK_OK(hutch_path(cache, KEY("large"), buffer, length + 1, &size));
  CHECK(strcmp(buffer, found.text) == 0);
  free(buffer);
  CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_path(cache, KEY("small"), NULL, 0, &size));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_path(cache, KEY("other"), NULL, 0, &size));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_path(memory, KEY("large"), NULL, 0, &size));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_path(cache, KEY("large"), NULL, 1, &size));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_path(cache, KEY("large"), NULL, 0, NULL));
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

static void check_descriptor(int file, size_t size) {
  struct stat status;
  CHECK(fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == (off_t)size);
  CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
  CHECK(write(file, "x", 1) == -1);
  CHECK(lseek(file, 0, SEEK_CUR) == 0);
  if (size == 0) return;
  void *expected = filled(size, size);
  void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  CHECK(mapped != MAP_FAILED);
  CHECK_BYTES(expected, size, mapped, size);
  munmap(mapped, size);
  free(expected);
}

TEST_EACH_KIND(a_descriptor_outlives_its_entry) {
  static const size_t sizes[] = {0, 1, 20480, 20481, LARGE};
  int file = 0, next = -1;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    CHECK_OK(put_size(f->cache, "key", sizes[i]));
    hutch_stats(f->cache, &(hutch_cache_stats){.struct_size = sizeof(hutch_cache_stats)});
    CHECK_OK(hutch_open_fd(f->cache, KEY("key"), &file));
    check_descriptor(file, sizes[i]);
    CHECK_OK(put_text(f->cache, "key", "newer"));
    check_descriptor(file, sizes[i]);
    CHECK_OK(hutch_remove(f->cache, KEY("key")));
    CHECK_EQUAL(0, count_of(f->cache));
    check_descriptor(file, sizes[i]);
    next = 0;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_open_fd(f->cache, KEY("key"), &next));
    CHECK_EQUAL(-1, next);
    close(file);
  }
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open_fd(f->cache, KEY("key"), NULL));
}

/* SQLite opens /dev/null in the place of a closed stream. */
static bool is_a_stream_a_file(void) {
  struct stat status;
  for (int number = 0; number < 3; number++)
    if (fstat(number, &status) == 0 && !S_ISCHR(status.st_mode)) return true;
  return false;
}

TEST(no_file_has_the_number_of_a_standard_stream) {
  pid_t child = fork_now();
  if (child == 0) {
    for (int number = 0; number < 3; number++) close(number);
    hutch_cache *cache = open_small("cache");
    CHECK(!is_a_stream_a_file());
    hutch_writer *writer = NULL;
    CHECK_OK(hutch_writer_begin(cache, KEY("written"), 0, NULL, &writer));
    void *data = filled(LARGE, LARGE);
    CHECK_OK(hutch_writer_append(writer, data, LARGE));
    CHECK(!is_a_stream_a_file());
    CHECK_OK(hutch_writer_commit(writer, NULL));
    hutch_writer_release(writer);
    int file = 0;
    CHECK_OK(hutch_open_fd(cache, KEY("written"), &file));
    CHECK(file > 2);
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  await_child(child);
}

TEST(a_descriptor_of_a_damaged_file_is_none) {
  hutch_cache *cache = open_small("cache");
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  int file;
  for (int i = 0; i < 2; i++) {
    CHECK_OK(put_size(disk, "key", LARGE));
    path found = path_of(disk, "key");
    CHECK((i ? unlink(found.text) : truncate(found.text, 1000)) == 0);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_open_fd(disk, KEY("key"), &file));
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(disk, KEY("key")));
    CHECK_EQUAL(i + 1, stats_of(disk).disk.damaged);
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- holds */

TEST(what_is_held_stays_until_the_last_release) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_size(cache, "a", LARGE));
  CHECK_OK(put_size(cache, "b", LARGE));
  path a = path_of(cache, "a"), b = path_of(cache, "b");
  CHECK_OK(hutch_hold_files(cache));
  CHECK_OK(hutch_hold_files(disk));
  CHECK_OK(hutch_hold_files(disk));
  CHECK_OK(hutch_remove(cache, KEY("a")));
  CHECK_OK(put_text(cache, "b", "inline"));
  CHECK_MISSING(cache, "a");
  CHECK_TEXT(cache, "b", "inline");
  CHECK_EQUAL(1, count_of(cache));
  CHECK(is_there(a.text) && is_there(b.text));
  CHECK(cost_of(disk) > 2 * LARGE);
  CHECK_OK(hutch_unhold_files(cache));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_unhold_files(cache));
  CHECK_OK(hutch_unhold_files(disk));
  CHECK(is_there(a.text) && is_there(b.text));
  /* The second one goes with the reference. */
  hutch_cache_release(disk);
  CHECK(!is_there(a.text) && !is_there(b.text));
  CHECK_EQUAL(1, count_of(cache));
  CHECK(cost_of(cache) < LARGE);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(NULL, NULL);
  CHECK_OK(hutch_hold_files(cache));
  CHECK_OK(hutch_unhold_files(cache));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_unhold_files(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_close_ends_all_holds) {
  hutch_cache *cache = open_small("cache");
  CHECK_OK(put_size(cache, "a", LARGE));
  CHECK_OK(hutch_hold_files(cache));
  CHECK_OK(hutch_remove(cache, KEY("a")));
  CHECK_EQUAL(1, content_files("cache"));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, content_files("cache"));
}

PROCESS(hold_and_wait, directory) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options);
  CHECK_OK(put_size(cache, "kept", LARGE));
  CHECK_OK(put_size(cache, "gone", LARGE));
  CHECK_OK(hutch_hold_files(cache));
  CHECK_OK(hutch_remove(cache, KEY("gone")));
  tell_ready();
  await_end();
}

TEST(a_kill_while_files_are_held_loses_nothing) {
  process child = start_process("hold_and_wait", scratch("cache").text);
  await_ready(&child);
  CHECK_EQUAL(2, content_files("cache"));
  kill(child.pid, SIGKILL);
  int status;
  CHECK(waitpid(child.pid, &status, 0) == child.pid);
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  check_large(cache, "kept", LARGE);
  CHECK_MISSING(cache, "gone");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(1, content_files("cache"));
  CHECK_OK(hutch_close(cache));
}
