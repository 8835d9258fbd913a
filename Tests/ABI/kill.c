/* A process that is killed while it writes. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process that will be killed has completed, in a file that both have mapped. */
static _Atomic uint32_t *map_progress(const char *directory) {
  char file[4200];
  snprintf(file, sizeof file, "%s.progress", directory);
  int descriptor = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(descriptor >= 0 && ftruncate(descriptor, 4096) == 0);
  void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(mapped != MAP_FAILED);
  close(descriptor);
  return mapped;
}

/* Key n % KEYS holds n or more, of a size that follows from it. */
enum { KEYS = 50 };

static size_t size_of(uint32_t n) {
  if (n % 7 == 0) return 30000 + n % 1000;
  return n % KEYS % 3 == 0 ? 9000 + n % 100 : 8 + n % 500;
}

PROCESS(puts_until_killed, directory) {
  _Atomic uint32_t *progress = map_progress(directory);
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options);
  for (uint32_t n = atomic_load(progress) + 1;; n++) {
    uint32_t key = n % KEYS;
    char *data = filled(size_of(n), n);
    memcpy(data, &n, sizeof n);
    CHECK_OK(hutch_put(cache, &key, sizeof key, data, size_of(n), NULL, NULL));
    free(data);
    atomic_store(progress, n);
  }
}

TEST(a_kill_loses_nothing_that_was_put) {
  path directory = scratch("cache");
  _Atomic uint32_t *progress = map_progress(directory.text);
  uint64_t state = seed();
  hutch_options options = unlimited_options();
  for (int round = 0; round < 8 * scale(); round++) {
    uint32_t goal = atomic_load(progress) + 20 + (uint32_t)(next_random(&state) % 200);
    process other = start_process("puts_until_killed", directory.text);
    while (atomic_load(progress) < goal) {
      CHECK(waitpid(other.pid, NULL, WNOHANG) == 0);
      nap();
    }
    kill(other.pid, SIGKILL);
    CHECK_EQUAL(SIGKILL, end_process(&other));

    uint32_t completed = atomic_load(progress);
    hutch_cache *cache = open_cache(directory.text, &options);
    for (uint32_t n = completed; n > 0 && n + KEYS > completed; n--) {
      uint32_t key = n % KEYS, found;
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(cache, &key, sizeof key, &value));
      memcpy(&found, hutch_value_data(value), sizeof found);
      /* The one that was under way when the kill came is there or not, but whole. */
      CHECK(found == n || found == completed + 1);
      char *data = filled(size_of(found), found);
      memcpy(data, &found, sizeof found);
      CHECK_BYTES(data, size_of(found), hutch_value_data(value), hutch_value_size(value));
      free(data);
      hutch_value_release(value);
    }
    CHECK_EQUAL(0, stats_of(cache).disk.damaged);
    CHECK_OK(hutch_close(cache));
  }
}

/* SQLite writes a part of such a commit into its log before the COMMIT, since its page cache is
   full. In the COMMIT it writes those pages again, in place, that have changed since, and computes
   checksums anew. Here this is a page of the index of keys: the first key and the last one are
   neighbours there, and FEW keys are between them and the others. */
enum { ROWS = 128, ROW_SIZE = 20000, FEW = 2000, ROUNDS = 3 };

static const char *row_key(uint32_t row) {
  static _Thread_local char key[8];
  bool is_at_end = row == 0 || row == ROWS - 1;
  snprintf(key, sizeof key, is_at_end ? "a%u" : "z%u", row);
  return key;
}

static char *row_value(uint32_t round, uint32_t row) {
  return filled(ROW_SIZE, round * ROWS + row + 1);
}

static void put_rows(hutch_cache *cache, uint32_t round) {
  static char keys[ROWS][8];
  const void *key_of[ROWS], *values[ROWS];
  size_t key_sizes[ROWS], sizes[ROWS];
  for (uint32_t row = 0; row < ROWS; row++) {
    key_of[row] = strcpy(keys[row], row_key(row));
    key_sizes[row] = strlen(keys[row]);
    values[row] = row_value(round, row);
    sizes[row] = ROW_SIZE;
  }
  hutch_batch *batch;
  CHECK_OK(hutch_put_many(cache, key_of, key_sizes, values, sizes, ROWS, NULL, &batch));
  hutch_batch_release(batch);
  for (uint32_t row = 0; row < ROWS; row++) free((void *)values[row]);
}

PROCESS(commits_more_than_the_page_cache, directory) {
  _Atomic uint32_t *progress = map_progress(directory);
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory, &options);
  for (uint32_t few = 0; few < FEW; few++) {
    char key[8];
    snprintf(key, sizeof key, "k%u", few);
    CHECK_OK(put_text(cache, key, "value"));
  }
  for (uint32_t round = 0; round < ROUNDS; round++) {
    put_rows(cache, round);
    atomic_store(progress, round + 1);
  }
  raise(SIGKILL);
}

TEST(a_commit_larger_than_the_page_cache_is_whole) {
  path directory = scratch("cache");
  _Atomic uint32_t *progress = map_progress(directory.text);
  process other = start_process("commits_more_than_the_page_cache", directory.text);
  CHECK_EQUAL(SIGKILL, end_process(&other));
  CHECK_EQUAL(ROUNDS, atomic_load(progress));
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint32_t row = 0; row < ROWS; row++) {
    char *data = row_value(ROUNDS - 1, row);
    hutch_value *value = get_value(cache, row_key(row));
    CHECK_BYTES(data, ROW_SIZE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    free(data);
  }
  CHECK_EQUAL(ROWS + FEW, count_of(cache));
  report_of(cache, 0);
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
}
