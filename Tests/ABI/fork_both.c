/* A fork after which parent and child both go on with a cache, and a third process that opens
   the directory afterwards and judges. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the parent's threads had is lost in a child, and LeakSanitizer would say so. */
#if defined(__SANITIZE_ADDRESS__)
#define EXIT _exit
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXIT _exit
#endif
#endif
#ifndef EXIT
#define EXIT exit
#endif

static hutch_options options_for(uint32_t sharing) {
  hutch_options options = unlimited_options();
  options.sharing = sharing;
  return options;
}

/* ------------------------------------------------------------- the writers */

enum { KEYS = 40, STEPS = 400, WRITERS = 4 };

static size_t size_of(uint64_t random) {
  return random % 9 == 0 ? 30000 + random % 5000 : random % 700;
}

/* What one of several writers does, step by step, with keys of its own; `newest` is what
   each of them is to have, 0: nothing. It follows from the seed alone. */
static void next_step(uint64_t *state, uint64_t newest[KEYS], uint32_t *key, uint64_t *what) {
  uint64_t random = next_random(state);
  *key = random % KEYS;
  *what = random >> 8 | 1;
  newest[*key] = random >> 32 & 7 ? *what : 0;
}

static void check_newest(hutch_cache *cache, uint32_t writer, uint32_t key, uint64_t newest) {
  uint32_t name[2] = {writer, key};
  hutch_value *value = NULL;
  hutch_status status = hutch_get(cache, name, sizeof name, &value);
  CHECK_STATUS(newest ? HUTCH_OK : HUTCH_NOT_FOUND, status);
  if (!newest) return;
  char *data = filled(size_of(newest), newest);
  CHECK_BYTES(data, size_of(newest), hutch_value_data(value), hutch_value_size(value));
  free(data);
  hutch_value_release(value);
}

/* All steps of a writer from `from` to `to`; what has gone before is done again in the mind. */
static void write_steps(hutch_cache *cache, uint32_t writer, int from, int to) {
  uint64_t state = writer, newest[KEYS] = {0};
  for (int step = 0; step < to; step++) {
    uint32_t key;
    uint64_t what;
    next_step(&state, newest, &key, &what);
    if (step < from) continue;
    uint32_t name[2] = {writer, key};
    if (newest[key]) {
      char *data = filled(size_of(what), what);
      CHECK_OK(hutch_put(cache, name, sizeof name, data, size_of(what), NULL, NULL));
      free(data);
    } else {
      hutch_status status = hutch_remove(cache, name, sizeof name);
      CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    }
    check_newest(cache, writer, key, newest[key]);
    int64_t sum;
    CHECK_OK(hutch_increment(cache, KEY("steps"), 1, 0, NULL, &sum));
  }
}

/* What the steps of a writer have come to; returns how many entries. */
static int check_steps(hutch_cache *cache, uint32_t writer, int steps) {
  uint64_t state = writer, newest[KEYS] = {0}, what;
  uint32_t key;
  int count = 0;
  for (int step = 0; step < steps; step++) next_step(&state, newest, &key, &what);
  for (key = 0; key < KEYS; key++) {
    check_newest(cache, writer, key, newest[key]);
    count += newest[key] != 0;
  }
  return count;
}

/* The argument: sharing, how many writers, and whether files may be left over, one digit
   each, and the directory. */
PROCESS(judges, argument) {
  hutch_options options = options_for((uint32_t)(argument[0] - '0'));
  int writers = argument[1] - '0', count = 1;
  hutch_cache *cache = NULL;
  hutch_status status;
  /* A process that was killed has the directory until the system has ended it. */
  while ((status = hutch_open(argument + 3, &options, &cache)) == HUTCH_BUSY &&
         argument[2] != '0')
    nap();
  CHECK_OK(status);
  for (int writer = 1; writer <= writers; writer++)
    count += check_steps(cache, (uint32_t)writer, STEPS);
  CHECK_EQUAL(count, count_of(cache));
  int64_t sum;
  CHECK_OK(hutch_increment(cache, KEY("steps"), 0, 0, NULL, &sum));
  CHECK_EQUAL(writers * STEPS, sum);
  hutch_check_report report = report_of(cache, 0);
  CHECK_EQUAL(count, report.entries);
  CHECK_EQUAL(0, report.damaged + report.counters + report.manifest);
  if (argument[2] == '0') CHECK_EQUAL(0, report.orphans);
  CHECK_OK(hutch_close(cache));
  if (on_log()) return;
  path file;
  snprintf(file.text, sizeof file.text, "%.4000s/manifest.sqlite", argument + 3);
  sqlite3 *database;
  sqlite3_stmt *statement;
  CHECK(sqlite3_open(file.text, &database) == SQLITE_OK);
  CHECK(sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &statement, NULL) ==
        SQLITE_OK);
  CHECK(sqlite3_step(statement) == SQLITE_ROW);
  CHECK(strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0);
  sqlite3_finalize(statement);
  sqlite3_close(database);
}

static void let_judge(uint32_t sharing, int writers, bool was_killed, path directory) {
  char argument[sizeof directory.text + 3];
  snprintf(argument, sizeof argument, "%u%d%d%s", sharing, writers, was_killed, directory.text);
  process judge = start_process("judges", argument);
  CHECK_EQUAL(0, end_process(&judge));
}

/* ------------------------------------------------------------ both go on */

static void both_go_on(uint32_t sharing, bool parent_first) {
  path directory = scratch("cache");
  hutch_options options = options_for(sharing);
  hutch_cache *cache = open_cache(directory.text, &options);
  write_steps(cache, 1, 0, STEPS / 2);
  pid_t child = fork_now();
  if (child == 0) {
    write_steps(cache, 2, 0, STEPS);
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  write_steps(cache, 1, STEPS / 2, STEPS);
  if (!parent_first) await_child(child);
  CHECK_OK(hutch_close(cache));
  if (parent_first) await_child(child);
  let_judge(sharing, 2, false, directory);
}

TEST(parent_and_child_go_on_and_the_parent_closes_last) {
  both_go_on(HUTCH_SHARING_EXCLUSIVE, false);
}
TEST(parent_and_child_go_on_and_the_parent_closes_first) {
  both_go_on(HUTCH_SHARING_EXCLUSIVE, true);
}
TEST(parent_and_child_go_on_where_others_may_come) { both_go_on(HUTCH_SHARING_SHARED, true); }

TEST(a_child_of_a_child_goes_on_too) {
  path directory = scratch("cache");
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  hutch_cache *cache = open_cache(directory.text, &options);
  pid_t child = fork_now();
  if (child == 0) {
    write_steps(cache, 2, 0, STEPS / 2);
    pid_t grandchild = fork_now();
    if (grandchild == 0) {
      write_steps(cache, 3, 0, STEPS);
      CHECK_OK(hutch_close(cache));
      end_child();
    }
    write_steps(cache, 2, STEPS / 2, STEPS);
    CHECK_OK(hutch_close(cache));
    await_child(grandchild);
    end_child();
  }
  write_steps(cache, 1, 0, STEPS / 2);
  pid_t second = fork_now();
  if (second == 0) {
    write_steps(cache, 4, 0, STEPS);
    end_child(); /* without closing */
  }
  write_steps(cache, 1, STEPS / 2, STEPS);
  await_child(child);
  await_child(second);
  CHECK_OK(hutch_close(cache));
  let_judge(HUTCH_SHARING_EXCLUSIVE, 4, false, directory);
}

TEST(a_third_process_judges_while_both_run) {
  path directory = scratch("cache");
  hutch_options options = options_for(HUTCH_SHARING_SHARED);
  hutch_cache *cache = open_cache(directory.text, &options);
  _Atomic int *done = shared_memory(4096);
  pid_t child = fork_now();
  if (child == 0) {
    write_steps(cache, 2, 0, STEPS);
    while (atomic_load(done) == 0) nap();
    let_judge(HUTCH_SHARING_SHARED, 2, false, directory);
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  write_steps(cache, 1, 0, STEPS);
  atomic_store(done, 1);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) check_steps(cache, 1, STEPS);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(hutch_close(cache));
}

/* One says what it has put, the other must not get anything older: of memory, for each has the
   key there. */
static void take_turns(uint32_t sharing) {
  hutch_options options = options_for(sharing);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  _Atomic int *turn = shared_memory(4096);
  uint64_t versions[2] = {0};
  CHECK_OK(hutch_put(cache, KEY("key"), &(int){0}, sizeof(int), NULL, NULL));
  pid_t child = fork_now();
  int me = child == 0;
  for (int number = 0; number < 300; number++) {
    if (number % 2 == me) {
      hutch_put_result result = new_result();
      if (number % 6 < 4) {
        CHECK_OK(hutch_put(cache, KEY("key"), &number, sizeof number, NULL, &result));
      } else {
        CHECK_OK(hutch_remove(cache, KEY("key")));
        CHECK_OK(hutch_add(cache, KEY("key"), &number, sizeof number, NULL, &result));
      }
      CHECK(result.version > versions[0]);
      versions[0] = result.version;
      atomic_store(turn, number + 1);
      continue;
    }
    while (atomic_load(turn) <= number) sched_yield();
    for (int again = 0; again < 2; again++) {
      int found = -1;
      size_t size;
      CHECK_OK(hutch_get_into(cache, KEY("key"), &found, sizeof found, &size));
      CHECK_EQUAL(number, found);
    }
    hutch_entry_info info = info_of(cache, "key");
    CHECK(info.version > versions[0]);
    versions[0] = info.version;
  }
  CHECK_OK(hutch_close(cache));
  if (child == 0) end_child();
  await_child(child);
}

TEST(a_get_has_what_the_other_has_put) { take_turns(HUTCH_SHARING_EXCLUSIVE); }
TEST(a_get_has_what_the_other_has_put_where_others_may_come) { take_turns(HUTCH_SHARING_SHARED); }

/* ------------------------------------------------------------------- kill */

static void kill_one(bool kills_child) {
  path directory = scratch("cache");
  _Atomic int *progress = shared_memory(4096);
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  /* Both are children of the case, so that it can wait for them. */
  pid_t first = fork_now();
  if (first == 0) {
    hutch_cache *cache = open_cache(directory.text, &options);
    pid_t second = fork_now();
    bool dies = (second == 0) == kills_child;
    if (dies) {
      progress[1] = getpid();
      for (uint32_t step = 1;; step++) {
        char *data = filled(step % 5 ? 100 : 30000, step);
        CHECK_OK(hutch_put(cache, KEY("its"), data, step % 5 ? 100 : 30000, NULL, NULL));
        free(data);
        progress[0] = (int)step;
      }
    }
    write_steps(cache, 1, 0, STEPS / 2);
    while (progress[0] < 20) nap();
    kill(progress[1], SIGKILL);
    write_steps(cache, 1, STEPS / 2, STEPS);
    CHECK_OK(hutch_remove(cache, KEY("its")));
    CHECK_OK(hutch_close(cache));
    progress[2] = 1;
    end_child();
  }
  int status;
  CHECK(waitpid(first, &status, 0) == first);
  while (!progress[2]) nap();
  /* The process that has just closed may not be gone, but has given the directory up. */
  let_judge(HUTCH_SHARING_EXCLUSIVE, 1, true, directory);
}

TEST(a_child_that_is_killed_harms_nothing) { kill_one(true); }
TEST(a_parent_that_is_killed_harms_nothing) { kill_one(false); }

/* ------------------------------------------------------------ the directory */

PROCESS(finds_it_busy, directory) {
  for (uint32_t sharing = HUTCH_SHARING_EXCLUSIVE; sharing <= HUTCH_SHARING_SHARED; sharing++) {
    hutch_options options = options_for(sharing);
    hutch_cache *cache = NULL;
    CHECK_STATUS(HUTCH_BUSY, hutch_open(directory, &options, &cache));
  }
}

static void check_busy(path directory) {
  process other = start_process("finds_it_busy", directory.text);
  CHECK_EQUAL(0, end_process(&other));
}

TEST(a_family_keeps_others_out_until_the_last_has_gone) {
  path directory = scratch("cache");
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  int ends[2];
  CHECK(pipe(ends) == 0);
  for (int uses_it = 0; uses_it < 2; uses_it++) {
    hutch_cache *cache = open_cache(directory.text, &options);
    check_busy(directory);
    pid_t child = fork_now();
    if (child == 0) {
      char byte;
      if (uses_it) CHECK_OK(put_text(cache, "child", "value"));
      CHECK(read(ends[0], &byte, 1) == 1);
      if (uses_it) CHECK_TEXT(cache, "parent", "value");
      end_child();
    }
    check_busy(directory);
    CHECK_OK(put_text(cache, "parent", "value"));
    check_busy(directory);
    CHECK_OK(hutch_close(cache));
    check_busy(directory);
    CHECK(write(ends[1], "", 1) == 1);
    await_child(child);
    cache = open_cache(directory.text, &options);
    CHECK_TEXT(cache, "parent", "value");
    if (uses_it) CHECK_TEXT(cache, "child", "value");
    CHECK_SOUND(cache);
    CHECK_OK(hutch_close(cache));
  }
}

/* SQLite's locks are its process's, and its own table of them is inherited as a lie. */
static void count_databases(int *count) {
  DIR *descriptors = opendir("/proc/self/fd");
  CHECK(descriptors);
  *count = 0;
  for (struct dirent *entry; (entry = readdir(descriptors));) {
    char target[4096] = "";
    CHECK(readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target - 1) >= -1);
    *count += strstr(target, "/manifest.sqlite") != NULL;
  }
  closedir(descriptors);
}

TEST(trap_28_no_connection_is_open_across_a_fork) {
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  int count;
  for (int i = 0; i < 2; i++) {
    CHECK_OK(put_text(cache, "key", "value"));
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_TEXT(disk, "key", "value");
    hutch_cache_release(disk);
    count_databases(&count);
    CHECK(count > 0);
    pid_t child = fork_now();
    if (child == 0) {
      count_databases(&count);
      CHECK_EQUAL(0, count);
      CHECK_OK(put_text(cache, "child", "value"));
      count_databases(&count);
      CHECK(count > 0);
      if (i) CHECK_OK(hutch_close(cache));
      end_child();
    }
    await_child(child);
    CHECK_TEXT(cache, "child", "value");
  }
  CHECK_OK(hutch_close(cache));
}

TEST(a_child_that_closes_leaves_the_parent_its_cache) {
  path directory = scratch("cache");
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  for (int how = 0; how < 4; how++) {
    pid_t child = fork_now();
    if (child == 0) {
      if (how == 0) CHECK_OK(hutch_close(cache)); /* at once */
      if (how == 1) {
        CHECK_TEXT(cache, "key", "value");
        CHECK_OK(hutch_close(cache));
        hutch_cache *again = NULL;
        CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, &options, &again));
      }
      if (how == 2) EXIT(0);
      if (how == 3) execl("/bin/true", "true", (char *)NULL);
      end_child();
    }
    await_child(child);
    CHECK_TEXT(cache, "key", "value");
    CHECK_OK(put_text(cache, "key", "value"));
  }
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
}
