/* Several processes on one directory (HUTCH_SHARING_SHARED). */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------ what they share */

enum { WORKERS = 8, KEYS = 64, VERSIONS = 4096 };

/* What the test's processes tell each other: a file that all have mapped. Key k is written by
   worker k % WORKERS alone, by numbered operations. */
typedef struct board {
  _Atomic uint32_t stop, workers;
  _Atomic uint64_t calls;
  _Atomic uint64_t started[KEYS], done[KEYS];
  _Atomic uint64_t sum, sum_started, added;
  _Atomic uint64_t versions[VERSIONS], version_count;
  /* One thing for another process to do. */
  _Atomic uint32_t order, answer_ready;
  char what;
  char key[32], text[64];
  uint64_t number;
  int32_t answer;
} board;

static board *map_board(const char *directory) {
  char file[4200];
  snprintf(file, sizeof file, "%s.board", directory);
  int descriptor = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(descriptor >= 0 && ftruncate(descriptor, sizeof(board)) == 0);
  void *mapped = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(mapped != MAP_FAILED);
  close(descriptor);
  return mapped;
}

/* A process that waits for another one ends with the test that has failed. */
static pid_t parent;

static void end_with_parent(void) {
  if (parent && getppid() != parent) _exit(1);
}

/* Between processes that are to work at the same moment. */
static void pause_briefly(void) {
  end_with_parent();
  sched_yield();
}

static hutch_options shared_options(void) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  return options;
}

static hutch_cache *open_shared(const char *directory) {
  hutch_options options = shared_options();
  return open_cache(directory, &options);
}

/* ------------------------------------------------------ one that does as told */

static hutch_status obey(hutch_cache *cache, board *b) {
  hutch_value *value = NULL;
  hutch_put_result result = new_result();
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  hutch_status status = HUTCH_OK;
  switch (b->what) {
    case 'g':
      status = hutch_get(cache, KEY(b->key), &value);
      memset(b->text, 0, sizeof b->text);
      if (value) memcpy(b->text, hutch_value_data(value), hutch_value_size(value));
      hutch_value_release(value);
      return status;
    case 'p': return put_text(cache, b->key, b->text);
    case 'a': return hutch_add(cache, KEY(b->key), KEY(b->text), NULL, &result);
    case 'r': return hutch_remove(cache, KEY(b->key));
    case 'c': return hutch_clear(cache);
    case 't': return hutch_touch(cache, KEY(b->key), HUTCH_HOUR, 0);
    case 'n': return hutch_count(cache, &b->number);
    case 'v': b->number = info_of(cache, b->key).version; return HUTCH_OK;
    case 'w':
      status = hutch_compare_and_swap(cache, KEY(b->key), b->number, KEY(b->text), NULL, &result);
      b->number = result.version;
      return status;
    case 'l':
      CHECK_OK(hutch_limits(cache, &limits));
      limits.disk.count = b->number;
      return hutch_set_limits(cache, &limits);
    case 'm': {
      hutch_cache *view = tier_of(cache, HUTCH_TIER_MEMORY);
      status = put_text(view, b->key, b->text);
      hutch_cache_release(view);
      return status;
    }
    default: FAIL("no such order");
  }
}

PROCESS(does_as_told, directory) {
  parent = getppid();
  board *b = map_board(directory);
  hutch_cache *cache = open_shared(directory);
  tell_ready();
  for (uint32_t done = 0; !atomic_load(&b->stop);) {
    if (atomic_load(&b->order) == done) {
      end_with_parent();
      nap();
      continue;
    }
    done = atomic_load(&b->order);
    b->answer = obey(cache, b);
    atomic_store(&b->answer_ready, done);
  }
  CHECK_OK(hutch_close(cache));
}

static hutch_status tell(board *b, char what, const char *key, const char *text, uint64_t number) {
  b->what = what;
  snprintf(b->key, sizeof b->key, "%s", key);
  snprintf(b->text, sizeof b->text, "%s", text);
  b->number = number;
  uint32_t order = atomic_fetch_add(&b->order, 1) + 1;
  while (atomic_load(&b->answer_ready) != order) nap();
  return b->answer;
}

#define TOLD_TEXT(b, key, expected)                        \
  do {                                                     \
    CHECK_STATUS(HUTCH_OK, tell(b, 'g', key, "", 0));      \
    CHECK_BYTES(expected, strlen(expected), (b)->text, strlen((b)->text)); \
  } while (0)
#define TOLD_MISSING(b, key) CHECK_STATUS(HUTCH_NOT_FOUND, tell(b, 'g', key, "", 0))

typedef struct pair {
  board *b;
  process other;
  hutch_cache *cache;
} pair;

static pair make_pair(void) {
  path directory = scratch("cache");
  pair p = {.b = map_board(directory.text)};
  p.cache = open_shared(directory.text);
  p.other = start_process("does_as_told", directory.text);
  await_ready(&p.other);
  return p;
}

static void end_pair(pair *p) {
  atomic_store(&p->b->stop, 1);
  CHECK_EQUAL(0, end_process(&p->other));
  CHECK_OK(hutch_close(p->cache));
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ who may open */

PROCESS(holds_it_shared, directory) {
  hutch_cache *cache = open_shared(directory);
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

PROCESS(holds_it_exclusively, directory) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_cache(directory, &options);
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

/* The members of a database and the children among them are counted in a file. */
TEST(no_number_of_members_ends_a_process) {
  path directory = scratch("cache");
  hutch_options options = shared_options();
  options.storage = HUTCH_STORAGE_MIXED;
  hutch_cache *cache = open_cache(directory.text, &options);
  int file = open(in_directory(directory.text, "hutch.shared").text, O_RDWR);
  CHECK(file >= 0);
  enum { MEMBERS = 56, CHILDREN = 120 };
  CHECK_EQUAL(4, pwrite(file, "\xff\xff\xff\xff", 4, MEMBERS));
  process other = start_process("holds_it_shared", directory.text);
  await_ready(&other);
  CHECK_EQUAL(4, pwrite(file, "\xff\xff\xff\xff", 4, MEMBERS));
  CHECK_EQUAL(4, pwrite(file, "\xff\xff\xff\xff", 4, CHILDREN));
  pid_t child = fork_now();
  if (child == 0) {
    CHECK_OK(put_text(cache, "key", "value"));
    end_child();
  }
  await_child(child);
  CHECK_EQUAL(0, end_process(&other));
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(4, pwrite(file, "\xff\xff\xff\xff", 4, CHILDREN));
  CHECK_OK(hutch_close(cache));
  close(file);
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(1, CHECK_SOUND(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(shared_and_exclusive_are_in_each_others_way) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  hutch_cache *cache = NULL;
  process other = start_process("holds_it_shared", directory.text);
  await_ready(&other);
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, &options, &cache));
  CHECK(!cache);
  options.sharing = HUTCH_SHARING_SHARED;
  CHECK_OK(hutch_open(directory.text, &options, &cache));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, end_process(&other));

  other = start_process("holds_it_exclusively", directory.text);
  await_ready(&other);
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, &options, &cache));
  CHECK_EQUAL(0, end_process(&other));
  /* The way of sharing is the opening's, not the directory's. */
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  CHECK_OK(hutch_open(directory.text, &options, &cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_second_opening_that_shares_otherwise_is_told) {
  hutch_options options = shared_options();
  hutch_cache *first = open_cache(scratch("cache").text, &options), *second = NULL;
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(scratch("cache").text, &options, &second));
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(first));
}

/* -------------------------------------------------------------------- coherence */

TEST(what_one_process_writes_the_other_reads) {
  pair p = make_pair();
  CHECK_OK(put_text(p.cache, "key", "one"));
  for (int i = 0; i < 3; i++) TOLD_TEXT(p.b, "key", "one");
  CHECK_OK(put_text(p.cache, "key", "two"));
  TOLD_TEXT(p.b, "key", "two");
  CHECK_OK(tell(p.b, 'p', "key", "three", 0));
  CHECK_TEXT(p.cache, "key", "three");
  CHECK_TEXT(p.cache, "key", "three");
  CHECK_OK(hutch_remove(p.cache, KEY("key")));
  TOLD_MISSING(p.b, "key");
  CHECK_MISSING(p.cache, "key");
  CHECK_OK(tell(p.b, 'p', "key", "four", 0));
  CHECK_TEXT(p.cache, "key", "four");
  CHECK_OK(tell(p.b, 'r', "key", "", 0));
  CHECK_MISSING(p.cache, "key");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(p.cache, KEY("key")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(p.cache, KEY("key")));
  end_pair(&p);
}

TEST(a_clear_is_seen_by_all) {
  pair p = make_pair();
  char key[16];
  for (int i = 0; i < 100; i++) {
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(put_text(p.cache, key, "value"));
    TOLD_TEXT(p.b, key, "value");
  }
  CHECK_OK(tell(p.b, 'c', "", "", 0));
  for (int i = 0; i < 100; i++) {
    snprintf(key, sizeof key, "key %d", i);
    CHECK_MISSING(p.cache, key);
  }
  CHECK_EQUAL(0, count_of(p.cache));
  CHECK_OK(put_text(p.cache, "key 1", "again"));
  TOLD_TEXT(p.b, "key 1", "again");
  CHECK_OK(hutch_clear(p.cache));
  TOLD_MISSING(p.b, "key 1");
  end_pair(&p);
}

TEST(a_touch_is_seen_by_all) {
  pair p = make_pair();
  CHECK_OK(put_text(p.cache, "key", "value"));
  TOLD_TEXT(p.b, "key", "value");
  CHECK_TEXT(p.cache, "key", "value");
  CHECK_EQUAL(0, info_of(p.cache, "key").expires);
  CHECK_OK(tell(p.b, 't', "key", "", 0));
  CHECK(info_of(p.cache, "key").expires != 0);
  CHECK_TEXT(p.cache, "key", "value");
  CHECK(info_of(p.cache, "key").expires != 0);
  end_pair(&p);
}

TEST(a_copy_whose_entry_has_expired_by_another_processs_touch_is_not_counted) {
  test_clock clock = {0};
  hutch_options options = shared_options();
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_TEXT(cache, "key", "value");
  pid_t child = fork_now();
  if (child == 0) {
    CHECK_OK(hutch_touch(cache, KEY("key"), HUTCH_SECOND, 0));
    end_child();
  }
  await_child(child);
  clock.now += HUTCH_MINUTE;
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  CHECK_OK(hutch_trim(cache, &spec, NULL));
  CHECK_EQUAL(0, count_of(cache));
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_close(cache));
}

TEST(a_copy_of_what_was_evicted_elsewhere_goes_with_a_removal) {
  pair p = make_pair();
  CHECK_OK(put_text(p.cache, "key", "value"));
  CHECK_TEXT(p.cache, "key", "value");
  /* Evicts it from disk by way of the count; here it is in memory still. */
  CHECK_OK(tell(p.b, 'l', "", "", 1));
  CHECK_OK(tell(p.b, 'p', "other", "value", 0));
  CHECK_TEXT(p.cache, "key", "value");
  CHECK_STATUS(HUTCH_NOT_FOUND, tell(p.b, 'r', "key", "", 0));
  CHECK_MISSING(p.cache, "key");
  end_pair(&p);
}

TEST(an_entry_in_memory_alone_gives_way_to_another_processs) {
  pair p = make_pair();
  hutch_cache *view = tier_of(p.cache, HUTCH_TIER_MEMORY);
  CHECK_OK(put_text(view, "key", "here"));
  CHECK_TEXT(p.cache, "key", "here");
  TOLD_MISSING(p.b, "key");
  CHECK_OK(tell(p.b, 'p', "key", "there", 0));
  CHECK_TEXT(p.cache, "key", "there");
  CHECK_EQUAL(1, count_of(p.cache));
  CHECK_OK(tell(p.b, 'm', "key", "in memory", 0));
  /* What memory has of it here counts no more. */
  hutch_cursor *cursor;
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create(view, &cursor));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_cursor_next(cursor, &key, &size));
  hutch_cursor_release(cursor);
  CHECK_MISSING(p.cache, "key");
  TOLD_TEXT(p.b, "key", "in memory");
  hutch_cache_release(view);
  end_pair(&p);
}

static void remove_below(hutch_cache *cache) {
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(memory, "key", "here"));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(disk, KEY("key")));
  CHECK_TEXT(cache, "key", "here");
  hutch_cache_release(memory);
  hutch_cache_release(disk);
}

TEST(a_removal_from_disk_leaves_what_memory_alone_has) {
  pair p = make_pair();
  remove_below(p.cache);
  end_pair(&p);
  hutch_cache *alone = open_shared(scratch("cache").text);
  remove_below(alone);
  CHECK_OK(hutch_close(alone));
}

TEST(what_is_put_while_the_directory_is_away_stays_in_memory_when_it_is_back) {
  pair p = make_pair();
  CHECK_OK(put_text(p.cache, "k", "older"));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  let_notice(p.cache);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(p.cache, "k", "newer"));
  /* The other process notices it too, now or by its next look. */
  hutch_status told = tell(p.b, 'p', "its", "value", 0);
  CHECK(told == HUTCH_PARTIAL || (told == HUTCH_OK && on_log()));
  CHECK(rename(scratch("away").text, scratch("cache").text) == 0);
  /* A directory that could not be used is tried again after a second. Each process has come back
     before it closes: the end of a disk tier that is out of service is not clean. */
  while (put_text(p.cache, "other", "value") != HUTCH_OK) usleep(10000);
  while (tell(p.b, 'p', "its", "value", 0) != HUTCH_OK) usleep(10000);
  CHECK_OK(hutch_flush(p.cache));
  CHECK_TEXT(p.cache, "k", "newer");
  TOLD_MISSING(p.b, "k");
  end_pair(&p);
}

/* Its copies in memory go by numbers that the others do not know. However often it tries, it is not
   one of them; when they have ended it takes over what they have left. */
TEST(a_directory_that_others_have_made_again_is_waited_for) {
  path directory = scratch("cache");
  hutch_cache *cache = open_shared(directory.text);
  CHECK_OK(put_text(cache, "k", "older"));
  CHECK(rename(directory.text, scratch("away").text) == 0);
  let_notice(cache);
  board *b = map_board(directory.text);
  process other = start_process("does_as_told", directory.text);
  await_ready(&other);
  CHECK_STATUS(HUTCH_OK, tell(b, 'p', "k", "its", 0));
  for (int i = 0; i < 3; i++) CHECK_STATUS(HUTCH_TIER_DOWN, hutch_check(cache, 0, NULL));
  CHECK_EQUAL(HUTCH_STATE_DOWN, stats_of(cache).disk.state);
  CHECK_STATUS(HUTCH_OK, tell(b, 'p', "k", "newest", 0));
  atomic_store(&b->stop, 1);
  CHECK_EQUAL(0, end_process(&other));
  CHECK_OK(hutch_check(cache, 0, NULL));
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_TEXT(disk, "k", "newest");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(conditions_are_decided_over_all_processes) {
  pair p = make_pair();
  hutch_put_result result = new_result();
  CHECK_OK(hutch_add(p.cache, KEY("key"), KEY("first"), NULL, NULL));
  CHECK_STATUS(HUTCH_EXISTS, tell(p.b, 'a', "key", "second", 0));
  CHECK_TEXT(p.cache, "key", "first");
  uint64_t version = info_of(p.cache, "key").version;
  CHECK_OK(tell(p.b, 'v', "key", "", 0));
  CHECK_EQUAL(version, p.b->number);
  CHECK_OK(tell(p.b, 'w', "key", "swapped", version));
  uint64_t newer = p.b->number;
  CHECK(newer != version);
  CHECK_STATUS(HUTCH_CONFLICT,
               hutch_compare_and_swap(p.cache, KEY("key"), version, KEY("late"), NULL, &result));
  CHECK_EQUAL(newer, result.version);
  CHECK_TEXT(p.cache, "key", "swapped");
  CHECK_OK(hutch_replace(p.cache, KEY("key"), KEY("replaced"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
  TOLD_TEXT(p.b, "key", "replaced");
  CHECK_OK(tell(p.b, 'r', "key", "", 0));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(p.cache, KEY("key"), KEY("no"), NULL, NULL));
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(p.cache, KEY("key"), &value));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(p.cache, KEY("key"), HUTCH_HOUR, 0));
  CHECK_OK(tell(p.b, 'p', "key", "popped", 0));
  CHECK_OK(hutch_pop(p.cache, KEY("key"), &value));
  CHECK_BYTES("popped", 6, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  TOLD_MISSING(p.b, "key");
  end_pair(&p);
}

TEST(counts_and_limits_are_those_of_all) {
  pair p = make_pair();
  char key[16];
  for (int i = 0; i < 40; i++) {
    snprintf(key, sizeof key, "key %d", i);
    if (i % 2) {
      CHECK_OK(put_text(p.cache, key, "value"));
    } else {
      CHECK_OK(tell(p.b, 'p', key, "value", 0));
    }
    CHECK_EQUAL(i + 1, count_of(p.cache));
    CHECK_OK(tell(p.b, 'n', "", "", 0));
    CHECK_EQUAL(i + 1, p.b->number);
  }
  hutch_cache *view = tier_of(p.cache, HUTCH_TIER_DISK);
  CHECK_OK(tell(p.b, 'l', "", "", 10));
  CHECK_EQUAL(10, count_of(view));
  for (int i = 0; i < 20; i++) {
    snprintf(key, sizeof key, "more %d", i);
    CHECK_OK(put_text(p.cache, key, "value"));
    CHECK(count_of(view) <= 10);
  }
  CHECK_EQUAL(10, limits_of(p.cache).disk.count);
  hutch_cache_release(view);
  end_pair(&p);
}

TEST(limits_in_force_are_the_directorys) {
  pair p = make_pair();
  CHECK_OK(tell(p.b, 'l', "", "", 7));
  CHECK_OK(put_text(p.cache, "key", "value"));
  CHECK_OK(hutch_close(p.cache));
  hutch_options options = shared_options();
  options.disk.count = 0;
  CHECK_OK(hutch_open(scratch("cache").text, &options, &p.cache));
  CHECK_EQUAL(7, limits_of(p.cache).disk.count);
  CHECK_OK(hutch_close(p.cache));
  /* A limit that is set changes the directory's, for all processes that have it open. */
  options.disk.count = 100;
  CHECK_OK(hutch_open(scratch("cache").text, &options, &p.cache));
  CHECK_EQUAL(100, limits_of(p.cache).disk.count);
  char key[16];
  for (int i = 0; i < 20; i++) {
    snprintf(key, sizeof key, "key %d", i);
    CHECK_OK(tell(p.b, 'p', key, "value", 0));
  }
  hutch_cache *view = tier_of(p.cache, HUTCH_TIER_DISK);
  CHECK_EQUAL(21, count_of(view));
  hutch_cache_release(view);
  end_pair(&p);
}

/* ------------------------------------------------------------------------ judge */

static uint32_t index_of(const char *argument, const char **directory) {
  *directory = strchr(argument, ':') + 1;
  return (uint32_t)strtoul(argument, NULL, 10);
}

static process start_worker(const char *name, int index, const char *directory) {
  char argument[4200];
  snprintf(argument, sizeof argument, "%d:%s", index, directory);
  return start_process(name, argument);
}

/* In files, in rows that are replaced in their places, and in short rows. */
static size_t size_of(uint64_t n) {
  if (n % 11 == 0) return 21000 + n % 1000;
  return n / 4 % 2 ? 9000 + n % 100 : 16 + n % 300;
}

static bool removes(uint64_t n) { return n % 5 == 0; }

static void write_one(hutch_cache *cache, board *b, uint32_t key) {
  uint64_t n = atomic_load(&b->started[key]) + 1;
  atomic_store(&b->started[key], n);
  if (removes(n)) {
    hutch_status status = hutch_remove(cache, &key, sizeof key);
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  } else {
    size_t size = size_of(n);
    char *data = filled(size, n);
    memcpy(data, &n, sizeof n);
    CHECK_OK(hutch_put(cache, &key, sizeof key, data, size, NULL, NULL));
    free(data);
  }
  atomic_store(&b->done[key], n);
}

/* Nothing older than what was complete before the call, and nothing but whole values. */
static void read_one(hutch_cache *cache, board *b, uint32_t key) {
  uint64_t complete = atomic_load(&b->done[key]);
  hutch_value *value = NULL;
  hutch_status status = hutch_get(cache, &key, sizeof key, &value);
  uint64_t begun = atomic_load(&b->started[key]);
  if (status == HUTCH_NOT_FOUND) {
    bool was_removed = complete == 0 || removes(complete);
    for (uint64_t n = complete + 1; n <= begun; n++) was_removed = was_removed || removes(n);
    if (!was_removed) FAIL("key %u: %llu was put and is gone", key, (unsigned long long)complete);
    return;
  }
  CHECK_OK(status);
  uint64_t n;
  memcpy(&n, hutch_value_data(value), sizeof n);
  if (n < complete || n > begun)
    FAIL("key %u: %llu, after %llu was complete", key, (unsigned long long)n,
         (unsigned long long)complete);
  char *data = filled(size_of(n), n);
  memcpy(data, &n, sizeof n);
  CHECK_BYTES(data, size_of(n), hutch_value_data(value), hutch_value_size(value));
  free(data);
  hutch_value_release(value);
}

PROCESS(works, argument) {
  const char *directory;
  uint32_t own = index_of(argument, &directory);
  parent = getppid();
  board *b = map_board(directory);
  hutch_cache *cache = open_shared(directory);
  uint64_t state = (uint64_t)getpid() * 77 + own;
  while (!atomic_load(&b->stop)) {
    pause_briefly();
    uint64_t random = next_random(&state);
    uint32_t key = (uint32_t)(random >> 8) % KEYS;
    if (random % 10 == 0) {
      write_one(cache, b, key / WORKERS * WORKERS + own);
    } else {
      read_one(cache, b, key);
    }
    atomic_fetch_add(&b->calls, 1);
  }
  CHECK_OK(hutch_close(cache));
}

TEST(eight_processes_before_a_judge_and_some_are_killed) {
  path directory = scratch("cache");
  board *b = map_board(directory.text);
  uint64_t state = seed();
  process workers[WORKERS];
  for (int i = 0; i < WORKERS; i++) workers[i] = start_worker("works", i, directory.text);
  for (int round = 0; round < 12 * scale(); round++) {
    uint64_t goal = atomic_load(&b->calls) + 500 + next_random(&state) % 500;
    while (atomic_load(&b->calls) < goal) {
      for (int i = 0; i < WORKERS; i++) CHECK(waitpid(workers[i].pid, NULL, WNOHANG) == 0);
      usleep(1000);
    }
    int victim = (int)(next_random(&state) % WORKERS);
    kill(workers[victim].pid, SIGKILL);
    CHECK_EQUAL(SIGKILL, end_process(&workers[victim]));
    workers[victim] = start_worker("works", victim, directory.text);
  }
  /* We look too, from among them. */
  hutch_cache *cache = open_shared(directory.text);
  for (uint32_t key = 0; key < KEYS; key++) read_one(cache, b, key);
  atomic_store(&b->stop, 1);
  for (int i = 0; i < WORKERS; i++) CHECK_EQUAL(0, end_process(&workers[i]));
  uint64_t there = 0;
  for (uint32_t key = 0; key < KEYS; key++) {
    read_one(cache, b, key);
    there += hutch_contains(cache, &key, sizeof key) == HUTCH_OK;
  }
  CHECK_EQUAL(there, count_of(cache));
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
  hutch_options options = unlimited_options();
  cache = open_cache(directory.text, &options);
  for (uint32_t key = 0; key < KEYS; key++) read_one(cache, b, key);
  CHECK_EQUAL(there, count_of(cache));
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- contention */

enum { STEPS = 150 };

PROCESS(contends, argument) {
  const char *directory;
  uint32_t own = index_of(argument, &directory);
  parent = getppid();
  board *b = map_board(directory);
  atomic_fetch_add(&b->workers, 1);
  while (atomic_load(&b->workers) < 4) pause_briefly();
  hutch_cache *cache = open_shared(directory); /* all four at once; no process has it open */
  for (uint32_t i = 0; i < STEPS; i++) {
    int64_t sum;
    CHECK_OK(hutch_increment(cache, KEY("counter"), 1, 0, NULL, &sum));
    hutch_put_result result = new_result();
    hutch_status status = hutch_add(cache, &i, sizeof i, &own, sizeof own, NULL, &result);
    CHECK(status == HUTCH_OK || status == HUTCH_EXISTS);
    if (status == HUTCH_OK) {
      atomic_fetch_add(&b->added, 1);
      atomic_store(&b->versions[atomic_fetch_add(&b->version_count, 1)], result.version);
    }
  }
  CHECK_OK(hutch_close(cache));
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

TEST(no_increment_is_lost_and_one_of_many_adds) {
  path directory = scratch("cache");
  board *b = map_board(directory.text);
  process workers[4];
  for (int i = 0; i < 4; i++) workers[i] = start_worker("contends", i, directory.text);
  for (int i = 0; i < 4; i++) CHECK_EQUAL(0, end_process(&workers[i]));
  hutch_cache *cache = open_shared(directory.text);
  int64_t sum = 0;
  CHECK_OK(hutch_increment(cache, KEY("counter"), 0, 0, NULL, &sum));
  CHECK_EQUAL(4 * STEPS, sum);
  CHECK_EQUAL(STEPS, atomic_load(&b->added));
  CHECK_EQUAL(STEPS + 1, count_of(cache));
  uint64_t versions[STEPS];
  for (int i = 0; i < STEPS; i++) versions[i] = atomic_load(&b->versions[i]);
  qsort(versions, STEPS, sizeof versions[0], by_value);
  for (int i = 1; i < STEPS; i++) CHECK(versions[i - 1] != versions[i]);
  CHECK_OK(hutch_close(cache));
}

PROCESS(fills, argument) {
  const char *directory;
  uint32_t own = index_of(argument, &directory);
  parent = getppid();
  board *b = map_board(directory);
  hutch_options options = shared_options();
  options.disk.count = 100;
  options.disk.cost = 3000000;
  hutch_cache *cache = open_cache(directory, &options), *view = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 200; i++) {
    uint32_t key[2] = {own, i};
    size_t size = size_of(i);
    char *data = filled(size, i);
    CHECK_OK(hutch_put(view, key, sizeof key, data, size, NULL, NULL));
    free(data);
    CHECK(count_of(view) <= 100);
    CHECK(cost_of(view) <= 3000000);
    atomic_fetch_add(&b->calls, 1);
  }
  hutch_cache_release(view);
  CHECK_OK(hutch_close(cache));
}

TEST(four_processes_hold_one_limit) {
  path directory = scratch("cache");
  process workers[4];
  for (int i = 0; i < 4; i++) workers[i] = start_worker("fills", i, directory.text);
  for (int i = 0; i < 4; i++) CHECK_EQUAL(0, end_process(&workers[i]));
  hutch_options options = shared_options();
  options.disk.count = 100;
  options.disk.cost = 3000000;
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_EQUAL(100, count_of(cache));
  uint64_t seen = 0;
  hutch_cursor *cursor;
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) seen++;
  hutch_cursor_release(cursor);
  CHECK_EQUAL(100, seen);
  CHECK_OK(hutch_close(cache));
}

enum { LONG_KEYS = 24 };

static hutch_cache *open_of_few(const char *directory) {
  hutch_options options = shared_options();
  options.disk.count = LONG_KEYS - 4;
  return open_cache(directory, &options);
}

/* The n-th value, which tells n. */
static char *long_value(uint64_t n, size_t *size) {
  *size = 9000 + n % 3;
  char *data = filled(*size, n);
  memcpy(data, &n, sizeof n);
  return data;
}

static void check_long(hutch_cache *view, uint32_t key) {
  hutch_value *value = NULL;
  hutch_status status = hutch_get(view, &key, sizeof key, &value);
  if (status == HUTCH_NOT_FOUND) return; /* evicted */
  CHECK_OK(status);
  uint64_t n;
  memcpy(&n, hutch_value_data(value), sizeof n);
  size_t size;
  char *data = long_value(n, &size);
  CHECK_BYTES(data, size, hutch_value_data(value), hutch_value_size(value));
  free(data);
  hutch_value_release(value);
}

PROCESS(replaces, argument) {
  const char *directory;
  uint32_t own = index_of(argument, &directory);
  parent = getppid();
  hutch_cache *cache = open_of_few(directory), *view = tier_of(cache, HUTCH_TIER_DISK);
  uint64_t state = (uint64_t)getpid() * 77 + own;
  for (uint64_t i = 0; i < 300; i++) {
    uint64_t n = (uint64_t)own << 32 | i;
    uint32_t key = (uint32_t)(next_random(&state) % LONG_KEYS);
    size_t size;
    char *data = long_value(n, &size);
    CHECK_OK(hutch_put(view, &key, sizeof key, data, size, NULL, NULL));
    free(data);
    check_long(view, (uint32_t)(next_random(&state) % LONG_KEYS));
    CHECK(count_of(view) <= LONG_KEYS - 4);
  }
  hutch_cache_release(view);
  CHECK_OK(hutch_close(cache));
}

TEST(processes_replace_each_others_long_values) {
  path directory = scratch("cache");
  process workers[3];
  for (int i = 0; i < 3; i++) workers[i] = start_worker("replaces", i, directory.text);
  for (int i = 0; i < 3; i++) CHECK_EQUAL(0, end_process(&workers[i]));
  hutch_cache *cache = open_of_few(directory.text), *view = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_EQUAL(LONG_KEYS - 4, count_of(view));
  for (uint32_t key = 0; key < LONG_KEYS; key++) check_long(view, key);
  CHECK_SOUND(view);
  hutch_cache_release(view);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- pops at once */

enum { ROUNDS = 600 / SANITIZED_BY, FILLERS = 25 };

static void until(_Atomic uint64_t *number, uint64_t least) {
  while (atomic_load(number) < least) pause_briefly();
}

/* Gets the entry of a round, and pops it while the entries of another process evict it. */
PROCESS(pops, argument) {
  const char *directory;
  uint32_t own = index_of(argument, &directory);
  parent = getppid();
  board *b = map_board(directory);
  hutch_options options = shared_options();
  options.disk.count = 20;
  hutch_cache *cache = open_cache(directory, &options);
  for (uint64_t round = 1; round <= ROUNDS; round++) {
    char key[32];
    snprintf(key, sizeof key, "round %ju", (uintmax_t)round);
    until(&b->started[0], round);
    CHECK_TEXT(cache, key, "value");
    atomic_store(&b->done[own], 2 * round - 1);
    until(&b->calls, (round - 1) * FILLERS + 15 + round % 10);
    hutch_value *value = NULL;
    hutch_status status = hutch_pop(cache, KEY(key), &value);
    if (status == HUTCH_OK)
      atomic_fetch_add(&b->added, 1);
    else
      CHECK_EQUAL(HUTCH_NOT_FOUND, status);
    hutch_value_release(value);
    atomic_store(&b->done[own], 2 * round);
  }
  CHECK_OK(hutch_close(cache));
}

TEST(of_two_processes_one_pops_what_is_evicted) {
  path directory = scratch("cache");
  board *b = map_board(directory.text);
  hutch_options options = shared_options();
  options.disk.count = 20;
  hutch_cache *cache = open_cache(directory.text, &options);
  process workers[2];
  for (int i = 0; i < 2; i++) workers[i] = start_worker("pops", i, directory.text);
  for (uint64_t round = 1; round <= ROUNDS; round++) {
    char key[32];
    snprintf(key, sizeof key, "round %ju", (uintmax_t)round);
    CHECK_OK(put_text(cache, key, "value"));
    atomic_store(&b->started[0], round);
    for (int i = 0; i < 2; i++) until(&b->done[i], 2 * round - 1);
    for (uint32_t i = 0; i < FILLERS; i++) {
      CHECK_OK(hutch_put(cache, &i, sizeof i, "x", 1, NULL, NULL));
      atomic_fetch_add(&b->calls, 1);
    }
    for (int i = 0; i < 2; i++) until(&b->done[i], 2 * round);
    CHECK(atomic_exchange(&b->added, 0) <= 1);
  }
  for (int i = 0; i < 2; i++) CHECK_EQUAL(0, end_process(&workers[i]));
  CHECK_OK(hutch_close(cache));
}

/* The store refuses a pop whose entry the other process has replaced since the pop's look. */
static void note_version(void *context, const hutch_event *event) {
  uint64_t *last = context;
  if (event->version <= *last)
    FAIL("version %ju after %ju", (uintmax_t)event->version, (uintmax_t)*last);
  *last = event->version;
}

TEST(a_pop_beside_another_processs_puts_is_told_once) {
  path directory = scratch("cache");
  board *b = map_board(directory.text);
  hutch_options options = shared_options();
  options.storage = HUTCH_STORAGE_LOG;
  parent = getpid();
  pid_t child = fork_now();
  hutch_cache *cache = open_cache(directory.text, &options);
  if (child == 0) {
    for (; !b->stop; end_with_parent()) CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  uint64_t last = 0;
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_REMOVE, note_version, &last, NULL));
  for (int popped = 0; popped < repeats(200);) {
    hutch_value *value = NULL;
    hutch_status status = hutch_pop(cache, KEY("key"), &value);
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    popped += status == HUTCH_OK;
    hutch_value_release(value);
  }
  b->stop = 1;
  await_child(child);
  parent = 0;
  CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
  CHECK(last > 0);
  CHECK_OK(hutch_close(cache));
}
