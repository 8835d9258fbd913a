/* Short sessions on a directory: an open, a few calls, a close. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the disk */

/* How often a call has waited for the disk. The program stands before libc. */
static _Atomic int waits;

int fsync(int file) {
  waits++;
  return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
  waits++;
  return (int)syscall(SYS_fdatasync, file);
}

int syncfs(int file) {
  waits++;
  return (int)syscall(SYS_syncfs, file);
}

int msync(void *start, size_t size, int flags) {
  if (flags & MS_SYNC) waits++;
  return (int)syscall(SYS_msync, start, size, flags);
}

enum { KEYS = 60 };

static const char *key_of(uint32_t number) {
  static char key[16];
  snprintf(key, sizeof key, "key %u", number);
  return key;
}

static void put_keys(const char *directory) {
  hutch_cache *cache = open_cache(directory, NULL);
  for (uint32_t i = 0; i < KEYS; i++) CHECK_OK(put_text(cache, key_of(i), "value"));
  CHECK_OK(hutch_close(cache));
}

TEST(a_session_that_reads_waits_for_no_disk) {
  path directory = scratch("cache");
  put_keys(directory.text);
  for (int session = 0; session < 3; session++) {
    waits = 0;
    hutch_cache *cache = open_cache(directory.text, NULL);
    CHECK_EQUAL(KEYS, count_of(cache));
    CHECK_TEXT(cache, key_of(session), "value");
    CHECK_MISSING(cache, "another key");
    CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(0, waits);
  }
}

static int64_t now;

static int64_t tell_time(void *context) {
  (void)context;
  return now;
}

static hutch_cache *open_at(const char *directory, int64_t time) {
  hutch_options options = unlimited_options();
  options.clock = tell_time;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  now = time;
  return open_cache(directory, &options);
}

/* What the reads of a session leave is neither lost nor without bound. */
TEST(accesses_of_sessions_that_read_are_kept) {
  path directory = scratch("cache");
  int64_t start = 20500 * HUTCH_DAY;
  hutch_cache *cache = open_at(directory.text, start);
  for (uint32_t i = 0; i < KEYS; i++) CHECK_OK(put_text(cache, key_of(i), "value"));
  CHECK_OK(hutch_close(cache));
  path log = in_directory(directory.text, "manifest.sqlite-wal");
  int sessions_that_waited = 0;
  for (int session = 1; session <= 100; session++) {
    waits = 0;
    cache = open_at(directory.text, start + session * HUTCH_HOUR);
    for (uint32_t i = session % 2; i < KEYS; i += 2) CHECK_TEXT(cache, key_of(i), "value");
    CHECK_OK(hutch_close(cache));
    if (waits > 0) sessions_that_waited++;
    struct stat status;
    CHECK(stat(log.text, &status) != 0 || status.st_size <= 300000);
  }
  CHECK(sessions_that_waited <= 10);
  cache = open_at(directory.text, start + 101 * HUTCH_HOUR);
  CHECK_EQUAL(start + 100 * HUTCH_HOUR, info_of(cache, key_of(0)).accessed);
  CHECK_EQUAL(start + 99 * HUTCH_HOUR, info_of(cache, key_of(1)).accessed);
  report_of(cache, 0);
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- a kill */

PROCESS(draws_versions_for_memory_and_is_killed, directory) {
  hutch_cache *cache = open_cache(directory, NULL), *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  for (int i = 0; i < 10; i++) CHECK_OK(put_text(memory, "key", "value"));
  uint64_t version = info_of(memory, "key").version;
  path name;
  snprintf(name.text, sizeof name.text, "%s.version", directory);
  int file = open(name.text, O_WRONLY | O_CREAT, 0600);
  CHECK(file >= 0 && write(file, &version, sizeof version) == sizeof version);
  raise(SIGKILL);
}

TEST(no_version_of_a_session_that_was_killed_is_used_again) {
  path directory = scratch("cache");
  put_keys(directory.text);
  uint64_t last = 0;
  for (int round = 0; round < 3; round++) {
    process other = start_process("draws_versions_for_memory_and_is_killed", directory.text);
    CHECK_EQUAL(SIGKILL, end_process(&other));
    uint64_t version = 0;
    int file = open(scratch("cache.version").text, O_RDONLY);
    CHECK(file >= 0 && read(file, &version, sizeof version) == sizeof version);
    close(file);
    CHECK(version > last);
    last = version;
  }
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK(info_of(cache, "key").version > last);
  CHECK_OK(hutch_close(cache));
}

TEST(no_version_of_a_session_that_changed_nothing_on_disk_is_used_again) {
  path directory = scratch("cache");
  put_keys(directory.text);
  uint64_t last = 0;
  for (int round = 0; round < 3; round++) {
    hutch_cache *cache = open_cache(directory.text, NULL);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    CHECK_OK(put_text(memory, "key", "value"));
    uint64_t version = info_of(memory, "key").version;
    CHECK(version > last);
    last = version;
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(cache));
  }
}

PROCESS(begins_a_file_and_is_killed, directory) {
  static char bytes[600000];
  hutch_cache *cache = open_cache(directory, NULL);
  hutch_writer *writer;
  CHECK_OK(hutch_writer_begin(cache, KEY("large"), 0, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, bytes, sizeof bytes));
  raise(SIGKILL);
}

static void add_content(void *context, const char *file, const struct stat *status) {
  if (strstr(file, "/content/") && S_ISREG(status->st_mode)) ++*(int *)context;
}

static int content_files(const char *directory) {
  int count = 0;
  each_file(directory, add_content, &count);
  return count;
}

TEST(a_file_of_a_session_that_was_killed_goes) {
  path directory = scratch("cache");
  put_keys(directory.text);
  process other = start_process("begins_a_file_and_is_killed", directory.text);
  CHECK_EQUAL(SIGKILL, end_process(&other));
  CHECK_EQUAL(1, content_files(directory.text));
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(hutch_maintain(cache, HUTCH_SECOND));
  CHECK_EQUAL(0, content_files(directory.text));
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- a full disk */

/* A session for whose files there is no room loses nothing, nor does one that finds none on its way. */
TEST(a_full_disk_loses_nothing) {
  path disk = small_disk("size=2m");
  path directory = in_directory(disk.text, "cache");
  put_keys(directory.text);
  int fill = open(in_directory(disk.text, "fill").text, O_RDWR | O_CREAT, 0600);
  CHECK(fill >= 0);
  static char bytes[4096];
  off_t size = 0;
  while (write(fill, bytes, sizeof bytes) == (ssize_t)sizeof bytes) size += sizeof bytes;
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  for (off_t room = 0; room < 600000; room += 50000) {
    CHECK(ftruncate(fill, size - room) == 0);
    hutch_cache *cache = NULL;
    hutch_status status = hutch_open(directory.text, &options, &cache);
    if (status != HUTCH_OK) {
      CHECK_STATUS(HUTCH_NO_SPACE, status);
      continue;
    }
    while (write(fill, bytes, sizeof bytes) == (ssize_t)sizeof bytes) continue;
    for (uint32_t i = 0; i < KEYS; i++) CHECK_TEXT(cache, key_of(i), "value");
    CHECK_OK(hutch_close(cache));
  }
  CHECK(ftruncate(fill, 0) == 0);
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t i = 0; i < KEYS; i++) CHECK_TEXT(cache, key_of(i), "value");
  CHECK_OK(put_text(cache, key_of(0), "newer"));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

/* A cache that has filled the disk by itself takes values all the same, in place of older ones. */
TEST(a_cache_that_fills_the_disk_goes_on) {
  path disk = small_disk("size=9m");
  path directory = in_directory(disk.text, "cache");
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  static char bytes[1 << 20];
  /* Values in rows, then in files too. */
  for (uint64_t largest = 4 << 10; largest <= 64 << 10; largest *= 4) {
    uint64_t state = seed();
    hutch_cache *cache = open_cache(directory.text, &options);
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
      uint64_t key = next_random(&state) % 3000;
      uint64_t bound = next_random(&state) % 30 == 0 ? sizeof bytes : largest;
      hutch_put_result result = {.struct_size = sizeof result};
      hutch_status status = hutch_put(
          cache, &key, sizeof key, bytes, next_random(&state) % bound, NULL, &result);
      CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL || status == HUTCH_NO_SPACE);
      refused = result.disk == HUTCH_OUTCOME_STORED ? 0 : refused + 1;
      if (refused > 50) FAIL("refused %d times, at put %d", refused, i);
    }
    CHECK_OK(hutch_clear(cache));
    CHECK_OK(hutch_close(cache));
  }
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, key_of(0), "newer"));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}
