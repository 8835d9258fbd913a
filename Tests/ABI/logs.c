/* Loggers: each kind of line, levels, the process's and a cache's own, their ends. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <unistd.h>

/* What a logger was told. */
typedef struct told {
  pthread_mutex_t lock;
  int lines, released;
  uint64_t left_out;
  hutch_log_record last;
  char all[16384], directory[4096];
} told;

#define TOLD {.lock = PTHREAD_MUTEX_INITIALIZER}

static void note(void *context, const hutch_log_record *record) {
  told *t = context;
  CHECK_EQUAL(sizeof *record, record->struct_size);
  pthread_mutex_lock(&t->lock);
  t->lines++;
  t->last = *record;
  t->left_out += record->left_out;
  snprintf(t->directory, sizeof t->directory, "%s", record->directory ? record->directory : "");
  size_t used = strlen(t->all);
  snprintf(t->all + used, sizeof t->all - used, "%u: %s\n", record->level, record->words);
  pthread_mutex_unlock(&t->lock);
}
static void let_go(void *context) { ((told *)context)->released++; }

/* How often these words were told. */
static int count_of_words(told *t, const char *words) {
  int count = 0;
  pthread_mutex_lock(&t->lock);
  for (const char *at = t->all; (at = strstr(at, words)); at++) count++;
  pthread_mutex_unlock(&t->lock);
  return count;
}

#define CHECK_LOGGED(t, words)                                       \
  do {                                                               \
    if (count_of_words(t, words) == 0) FAIL("not logged: %s; but %s", words, (t)->all); \
  } while (0)

static void log_to(told *t, hutch_cache *cache, uint32_t level) {
  CHECK_OK(hutch_set_logger(cache, level, note, t, let_go));
}

/* ------------------------------------------------------------------- lines */

TEST(a_tier_that_goes_and_comes_back_is_logged) {
  path directory = scratch("cache"), away = scratch("away");
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS; /* whose thread would make the directory anew */
  hutch_cache *cache = open_cache(directory.text, &options);
  told t = TOLD;
  log_to(&t, cache, HUTCH_LOG_DEBUG);
  CHECK_OK(put_text(cache, "a", "1"));
  CHECK_EQUAL(0, t.lines);
  CHECK(rename(directory.text, away.text) == 0);
  while (put_text(cache, "b", "2") == HUTCH_OK) continue;
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "c", "3"));
  /* On a clock of the host's, counting does the maintenance. */
  (void)count_of(cache);
  CHECK_LOGGED(&t, "2: the disk tier is out of service: ");
  CHECK_LOGGED(&t, "2: a value was not stored on disk; an older one of its key is barred there: ");
  CHECK(strcmp(t.directory, directory.text) == 0);
  CHECK_EQUAL(HUTCH_TIER_DISK, t.last.tiers);
  CHECK(t.last.status < 0);
  CHECK(rename(away.text, directory.text) == 0);
  hutch_cache_stats stats;
  do {
    (void)count_of(cache);
    stats = stats_of(cache);
  } while (stats.disk.state != HUTCH_STATE_UP);
  (void)count_of(cache);
  CHECK_LOGGED(&t, "3: the disk tier is in service again\n");
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, t.released);
}

static void damage(void *context, const char *file, const struct stat *status) {
  if (!strstr(file, "/content/") || !S_ISREG(status->st_mode) || status->st_size < 1000) return;
  FILE *f = fopen(file, "r+");
  CHECK(f && fseek(f, (long)status->st_size / 2, SEEK_SET) == 0);
  fputs("damage", f);
  fclose(f);
  ++*(int *)context;
}

TEST(damage_is_logged) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  told t = TOLD;
  log_to(&t, cache, HUTCH_LOG_WARNING);
  CHECK_OK(put_size(disk, "key", 100000));
  int damaged = 0;
  each_file(directory.text, damage, &damaged);
  CHECK_EQUAL(1, damaged);
  CHECK_MISSING(disk, "key");
  CHECK_EQUAL(1, count_of_words(&t, "2: an entry was damaged and is dropped\n"));
  CHECK_EQUAL(1, t.lines);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_manifest_that_is_set_aside_is_logged) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(hutch_close(cache));
  write_file(scratch("cache/manifest.sqlite").text, "no database at all", 18);
  told t = TOLD;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &t, let_go));
  cache = open_cache(directory.text, NULL);
  CHECK_EQUAL(1, count_of_words(&t, "2: the manifest was damaged, has been set aside"));
  CHECK(strcmp(t.directory, directory.text) == 0);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, t.released);
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
  CHECK_EQUAL(1, t.released);
}

TEST(limits_that_an_opening_changes_are_logged) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  told t = TOLD;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &t, let_go));
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  CHECK_EQUAL(0, t.lines);
  options.disk.count = 100;
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  CHECK_EQUAL(1, count_of_words(&t, "3: the opening has changed the limits of the directory"));
  CHECK_OK(hutch_close(open_cache(directory.text, NULL)));
  CHECK_EQUAL(1, t.lines);
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
}

TEST(a_log_whose_index_is_made_anew_is_logged) {
  path directory = scratch("cache");
  hutch_options options = {.struct_size = sizeof options, .storage = HUTCH_STORAGE_LOG};
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  CHECK(unlink(scratch("cache/hutch-index").text) == 0);
  told t = TOLD;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &t, let_go));
  CHECK_OK(hutch_close(open_cache(directory.text, &options)));
  CHECK_EQUAL(1, count_of_words(&t, "2: the log's index could not be used"));
  CHECK_EQUAL(1, t.lines);
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
}

PROCESS(is_killed, directory) {
  hutch_cache *cache = open_cache(directory, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  tell_ready();
  await_end();
}

TEST(a_directory_that_was_not_closed_is_logged) {
  path directory = scratch("cache");
  process other = start_process("is_killed", directory.text);
  await_ready(&other);
  kill(other.pid, SIGKILL);
  (void)end_process(&other);
  told t = TOLD;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &t, let_go));
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_EQUAL(1, count_of_words(&t, "3: the directory was not closed"));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, NULL);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, t.lines);
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
}

TEST(a_value_that_is_too_large_for_the_disk_is_a_warning) {
  hutch_options options = unlimited_options();
  options.disk.max_entry = 1000;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  told quiet = TOLD, t = TOLD;
  log_to(&quiet, cache, HUTCH_LOG_ERROR);
  CHECK_STATUS(HUTCH_PARTIAL, put_size(cache, "key", 5000));
  log_to(&t, cache, HUTCH_LOG_WARNING);
  CHECK_STATUS(HUTCH_PARTIAL, put_size(cache, "key", 5000));
  CHECK_EQUAL(0, quiet.lines);
  CHECK_LOGGED(&t, "2: a value was not stored on disk: it is too large\n");
  CHECK_OK(hutch_close(cache));
}

static hutch_status fail(void *context, const void *key, size_t size, hutch_loading *loading) {
  (void)context, (void)key, (void)size, (void)loading;
  return 7;
}

TEST_EACH_KIND(a_loader_that_fails_is_logged) {
  told t = TOLD;
  log_to(&t, f->cache, HUTCH_LOG_INFO);
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_LOAD_FAILED, hutch_load(f->cache, KEY("key"), fail, NULL, NULL, &value));
  CHECK_EQUAL(1, count_of_words(&t, "3: a loader has failed\n"));
  CHECK_EQUAL(has_disk(k) || k == MEMORY_VIEW, t.directory[0] != 0);
  CHECK_OK(hutch_set_logger(f->cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(1, t.released);
}

typedef struct stuck {
  atomic_bool runs, go;
} stuck;

static void be_stuck(void *context, const hutch_completion *completion) {
  (void)completion;
  stuck *s = context;
  atomic_store(&s->runs, true);
  while (!atomic_load(&s->go)) usleep(100);
}

TEST(a_close_that_waits_no_longer_is_logged) {
  hutch_options options = unlimited_options();
  options.close_deadline = HUTCH_MILLISECOND;
  hutch_cache *cache = open_cache(NULL, &options);
  told t = TOLD;
  log_to(&t, cache, HUTCH_LOG_WARNING);
  stuck s = {0};
  hutch_task *task = NULL;
  hutch_task_options o = {.struct_size = sizeof o, .complete = be_stuck, .context = &s};
  CHECK_OK(hutch_get_async(cache, KEY("key"), &o, &task));
  while (!atomic_load(&s.runs)) usleep(100);
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_close(cache));
  CHECK_EQUAL(1, count_of_words(&t, "2: a close did not wait any longer for tasks"));
  atomic_store(&s.go, true);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
}

/* ------------------------------------------------------------- the loggers */

static void load_and_fail(hutch_cache *cache) {
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_LOAD_FAILED, hutch_load(cache, KEY("key"), fail, NULL, NULL, &value));
}

TEST(a_caches_own_logger_stands_before_the_processs) {
  hutch_cache *one = open_cache(NULL, NULL), *two = open_cache(NULL, NULL);
  told own = TOLD, all = TOLD, late = TOLD;
  load_and_fail(one);
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &all, let_go));
  log_to(&own, one, HUTCH_LOG_INFO);
  load_and_fail(one);
  load_and_fail(two);
  CHECK_EQUAL(1, own.lines);
  CHECK_EQUAL(1, all.lines);
  /* A message that its level leaves out goes to no other logger. */
  log_to(&own, one, HUTCH_LOG_ERROR);
  CHECK_EQUAL(1, own.released);
  load_and_fail(one);
  CHECK_EQUAL(1, own.lines);
  CHECK_EQUAL(1, all.lines);
  CHECK_OK(hutch_set_logger(one, 0, NULL, NULL, NULL));
  load_and_fail(one);
  CHECK_EQUAL(2, all.lines);
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note, &late, let_go));
  CHECK_EQUAL(1, all.released);
  load_and_fail(two);
  CHECK_EQUAL(2, all.lines);
  CHECK_EQUAL(1, late.lines);
  CHECK_OK(hutch_close(one));
  CHECK_OK(hutch_close(two));
  CHECK_EQUAL(2, own.released);
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
  CHECK_EQUAL(1, late.released);
}

TEST(bad_levels_are_told_and_contexts_released) {
  hutch_cache *cache = open_cache(NULL, NULL);
  told t = TOLD;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_logger(cache, 0, note, &t, let_go));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_logger(cache, 5, note, &t, let_go));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_default_logger(UINT32_MAX, note, &t, let_go));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_set_logger(NULL, 1, note, &t, let_go));
  hutch_cache_retain(cache);
  CHECK_OK(hutch_close(cache));
  CHECK_STATUS(HUTCH_CLOSED, hutch_set_logger(cache, 1, note, &t, let_go));
  hutch_cache_release(cache);
  CHECK_EQUAL(5, t.released);
}

static int depth;
static void call_back(void *context, const hutch_log_record *record) {
  hutch_cache *cache = context;
  (void)record;
  CHECK_EQUAL(0, depth);
  depth++;
  CHECK_OK(put_text(cache, "from", "logger"));
  CHECK_TEXT(cache, "from", "logger");
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(cache));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(cache));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_wait_all(cache, HUTCH_FOREVER));
  /* What it brings about itself comes when it has returned. */
  static int calls;
  if (calls++ < 3) load_and_fail(cache);
  else CHECK_OK(hutch_set_logger(cache, 0, NULL, NULL, NULL));
  depth--;
}

TEST(a_logger_may_call_any_function) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_OK(hutch_set_logger(cache, HUTCH_LOG_INFO, call_back, cache, NULL));
  load_and_fail(cache);
  CHECK_EQUAL(0, depth);
  CHECK_OK(hutch_close(cache));
}

TEST(no_more_than_some_lines_a_second) {
  hutch_cache *cache = open_cache(NULL, NULL);
  told t = TOLD;
  log_to(&t, cache, HUTCH_LOG_INFO);
  /* However long it takes: what is not told is counted. */
  int loads = 0;
  while (t.left_out == 0) {
    load_and_fail(cache);
    loads++;
  }
  CHECK(t.lines <= loads);
  CHECK_EQUAL(loads, t.lines + (int)t.left_out);
  CHECK_OK(hutch_close(cache));
}

/* Loggers that are replaced while lines are told: each is released once, after its last call. */
typedef struct place {
  _Atomic int calls, within, released;
} place;

static void note_place(void *context, const hutch_log_record *record) {
  place *p = context;
  (void)record;
  atomic_fetch_add(&p->within, 1);
  CHECK_EQUAL(0, atomic_load(&p->released));
  atomic_fetch_add(&p->calls, 1);
  CHECK_EQUAL(0, atomic_load(&p->released));
  atomic_fetch_sub(&p->within, 1);
}
static void release_place(void *context) {
  place *p = context;
  CHECK_EQUAL(0, atomic_load(&p->within));
  atomic_fetch_add(&p->released, 1);
}

enum { PLACES = 400 };
static place places[2 * PLACES];
static atomic_int loading;

static void replace_or_load(void *context, int index) {
  hutch_cache *cache = context;
  if (index == 0) {
    for (int n = 0; n < PLACES; n++) {
      CHECK_OK(hutch_set_logger(cache, HUTCH_LOG_INFO, note_place, &places[n], release_place));
      CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note_place, &places[PLACES + n],
                                        release_place));
      if (n % 3 == 0) CHECK_OK(hutch_set_logger(cache, 0, NULL, NULL, NULL));
    }
    atomic_store(&loading, 0);
    return;
  }
  while (atomic_load(&loading)) load_and_fail(cache);
}

TEST(a_logger_is_replaced_while_others_use_it) {
  hutch_cache *cache = open_cache(NULL, NULL);
  atomic_store(&loading, 1);
  run_threads(3, replace_or_load, cache);
  CHECK_OK(hutch_close(cache));
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
  for (int n = 0; n < 2 * PLACES; n++) CHECK_EQUAL(1, places[n].released);
}
