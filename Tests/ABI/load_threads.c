/* Loads by several threads. What a thread waits for is always told by another one: no case
   depends on how fast a thread is. */
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>

enum { THREADS = 12 };

/* One key's source, and what became of those who asked. */
typedef struct scene {
  hutch_cache *cache;
  const char *key;
  int threads;
  _Atomic int entered, runs, done;
  _Atomic int answers[40]; /* by status + 20 */
  _Atomic int superseded;
  hutch_load_options options;
  hutch_status (*run)(struct scene *s, int number, hutch_loading *loading);
} scene;

static void await(_Atomic int *number, int wanted) {
  while (atomic_load(number) < wanted) nap();
}

static hutch_status fulfil(hutch_loading *loading, const char *text) {
  return hutch_loading_fulfil(loading, KEY(text), NULL);
}

static hutch_status run_loader(void *context, const void *key, size_t key_size,
                               hutch_loading *loading) {
  scene *s = context;
  CHECK_BYTES(s->key, strlen(s->key), key, key_size);
  return s->run(s, atomic_fetch_add(&s->runs, 1), loading);
}

static void ask(void *context, int index) {
  scene *s = context;
  (void)index;
  hutch_value *value = NULL;
  atomic_fetch_add(&s->entered, 1);
  hutch_status status = hutch_load(s->cache, KEY(s->key), run_loader, s, &s->options, &value);
  atomic_fetch_add(&s->answers[status + 20], 1);
  if (status == HUTCH_OK)
    CHECK_BYTES("made", 4, hutch_value_data(value), hutch_value_size(value));
  else CHECK(!value);
  hutch_value_release(value);
  atomic_fetch_add(&s->done, 1);
}

static scene scene_on(hutch_cache *cache,
                      hutch_status (*run)(scene *s, int number, hutch_loading *loading)) {
  scene s = {.cache = cache, .key = "k", .threads = THREADS, .run = run};
  s.options.struct_size = sizeof s.options;
  return s;
}

static hutch_status make_when_all_have_entered(scene *s, int number, hutch_loading *loading) {
  (void)number;
  await(&s->entered, s->threads);
  CHECK_OK(fulfil(loading, "made"));
  return HUTCH_OK;
}

TEST_EACH_KIND(one_loader_runs_for_all_who_ask) {
  static const char *const keys[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) {
    scene s = scene_on(f->cache, make_when_all_have_entered);
    s.key = keys[i];
    run_threads(s.threads, ask, &s);
    CHECK_EQUAL(1, s.runs);
    CHECK_EQUAL(THREADS, s.answers[20]);
  }
}

static hutch_status fail_when_all_have_entered(scene *s, int number, hutch_loading *loading) {
  (void)number;
  await(&s->entered, s->threads);
  CHECK_OK(hutch_loading_fail(loading, 5, "no"));
  return HUTCH_OK;
}

TEST_EACH_KIND(all_who_wait_get_the_failure) {
  scene s = scene_on(f->cache, fail_when_all_have_entered);
  s.options.negative_time_to_live = HUTCH_DAY;
  run_threads(s.threads, ask, &s);
  CHECK_EQUAL(1, s.runs);
  CHECK_EQUAL(THREADS, s.answers[20 + HUTCH_LOAD_FAILED]);
}

static hutch_status give_no_answer_at_first(scene *s, int number, hutch_loading *loading) {
  if (number == 0) await(&s->entered, s->threads);
  if (number < 3) return HUTCH_OK;
  CHECK_OK(fulfil(loading, "made"));
  return HUTCH_OK;
}

TEST_EACH_KIND(the_lead_passes_on_until_somebody_answers) {
  scene s = scene_on(f->cache, give_no_answer_at_first);
  run_threads(s.threads, ask, &s);
  CHECK_EQUAL(4, s.runs);
  CHECK_EQUAL(3, s.answers[20 + HUTCH_CANCELLED]);
  CHECK_EQUAL(THREADS - 3, s.answers[20]);
}

static hutch_status be_stuck_at_first(scene *s, int number, hutch_loading *loading) {
  if (number == 0) await(&s->done, 1);
  hutch_status status = fulfil(loading, "made");
  if (status == HUTCH_SUPERSEDED) atomic_fetch_add(&s->superseded, 1);
  else CHECK_OK(status);
  return HUTCH_OK;
}

TEST_EACH_KIND(a_leader_that_is_stuck_loses_the_lead) {
  scene s = scene_on(f->cache, be_stuck_at_first);
  s.threads = 2;
  s.options.timeout = 20 * HUTCH_MILLISECOND;
  /* The second may be late itself, then no thread waits for it. */
  do {
    s.runs = s.done = s.entered = 0;
    memset((void *)s.answers, 0, sizeof s.answers);
    hutch_remove(f->cache, KEY("k"));
    run_threads(s.threads, ask, &s);
  } while (s.answers[20] != 2);
  CHECK_EQUAL(2, s.runs);
  CHECK(s.superseded >= 1);
  CHECK_EQUAL(1, count_of(f->whole));
}

/* -------------------------------------------------------------------- cycles */

typedef struct ring {
  hutch_cache *cache;
  int length;
  _Atomic int leading, deadlocks, runs;
} ring;

static hutch_status load_next(void *context, const void *key, size_t key_size,
                              hutch_loading *loading) {
  ring *r = context;
  int index;
  CHECK(key_size == sizeof index);
  memcpy(&index, key, sizeof index);
  if (atomic_fetch_add(&r->runs, 1) < r->length) {
    atomic_fetch_add(&r->leading, 1);
    /* They go on at the same moment. */
    while (atomic_load(&r->leading) < r->length) sched_yield();
  }
  int next = (index + 1) % r->length;
  hutch_value *value = NULL;
  hutch_status status = hutch_load(r->cache, &next, sizeof next, load_next, r, NULL, &value);
  if (status == HUTCH_DEADLOCK) atomic_fetch_add(&r->deadlocks, 1);
  else CHECK_OK(status);
  hutch_value_release(value);
  return hutch_loading_fulfil(loading, key, key_size, NULL);
}

static void load_in_ring(void *context, int index) {
  ring *r = context;
  hutch_value *value = NULL;
  CHECK_OK(hutch_load(r->cache, &index, sizeof index, load_next, r, NULL, &value));
  CHECK_BYTES(&index, sizeof index, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
}

TEST_EACH_KIND(one_of_a_ring_is_told_of_the_deadlock) {
  for (int length = 1; length <= 4; length++) {
    ring r = {.cache = f->cache, .length = length};
    run_threads(length, load_in_ring, &r);
    CHECK_EQUAL(1, r.deadlocks);
    CHECK_EQUAL(length, r.runs);
    CHECK_OK(hutch_clear(f->cache));
  }
}

/* ------------------------------------------------------- given up, and closed */

typedef struct waiter {
  hutch_loading *loading;
  _Atomic int waiting;
  hutch_status status;
} waiter;

static void *wait_for_ever(void *context) {
  waiter *w = context;
  hutch_value *value = NULL;
  atomic_store(&w->waiting, 1);
  w->status = hutch_loading_wait(w->loading, HUTCH_FOREVER, &value);
  CHECK(!value);
  return NULL;
}

TEST_EACH_KIND(a_wait_is_given_up_from_elsewhere) {
  hutch_value *value;
  hutch_loading *leader;
  hutch_load_options options = {.struct_size = sizeof options, .timeout = HUTCH_FOREVER};
  waiter w = {0};
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("k"), NULL, &value, &leader));
  CHECK_STATUS(HUTCH_WOULD_BLOCK,
               hutch_load_begin(f->cache, KEY("k"), &options, &value, &w.loading));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, wait_for_ever, &w) == 0);
  await(&w.waiting, 1);
  CHECK_OK(hutch_loading_abandon(w.loading));
  pthread_join(thread, NULL);
  CHECK_EQUAL(HUTCH_CANCELLED, w.status);
  hutch_loading_release(w.loading);
  CHECK_OK(fulfil(leader, "made"));
  hutch_loading_release(leader);
}

static hutch_status wait_for_the_close(scene *s, int number, hutch_loading *loading) {
  (void)number;
  await(&s->entered, s->threads);
  /* All others come back when the cache is closed; the answer is too late then. */
  await(&s->done, s->threads - 1);
  CHECK_STATUS(HUTCH_CLOSED, fulfil(loading, "made"));
  return HUTCH_OK;
}

static void *ask_all(void *context) {
  scene *s = context;
  run_threads(s->threads, ask, s);
  return NULL;
}

static void close_while_loading(const char *directory) {
  hutch_cache *cache = open_cache(directory, NULL);
  scene s = scene_on(hutch_cache_retain(cache), wait_for_the_close);
  s.options.timeout = HUTCH_FOREVER;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ask_all, &s) == 0);
  await(&s.runs, 1);
  CHECK_OK(hutch_close(cache));
  pthread_join(thread, NULL);
  CHECK_EQUAL(THREADS, s.answers[20 + HUTCH_CLOSED]);
  CHECK_EQUAL(1, s.runs);
  hutch_cache_release(s.cache);
}

TEST(who_waits_is_told_of_the_close) {
  close_while_loading(NULL);
  close_while_loading(scratch("cache").text);
}

/* ---------------------------------------------------------------- the judge */

/*
 * Each key has a number that only grows: the truth. Writers raise it and then put it, or
 * remove the key, or clear the cache; when that has returned, no caller may be given less.
 * Loaders read the truth, and take their time.
 */
enum { KEYS = 6 };

typedef struct judged {
  hutch_cache *cache;
  uint64_t seed;
  pthread_mutex_t writing[KEYS];
  _Atomic uint64_t truth[KEYS], floor[KEYS];
  _Atomic uint64_t loads;
} judged;

typedef struct asker {
  judged *j;
  uint32_t key;
  uint64_t random;
} asker;

static void pause_a_little(uint64_t random) {
  for (uint64_t i = 0; i < random % 4; i++) sched_yield();
}

static void write_truth(judged *j, uint32_t key, uint64_t random) {
  CHECK(pthread_mutex_lock(&j->writing[key]) == 0);
  uint64_t truth = atomic_fetch_add(&j->truth[key], 1) + 1;
  hutch_put_options options = {.struct_size = sizeof options, .extended = "x", .extended_size = 1};
  const void *keys = &key, *values = &truth;
  const size_t key_size = sizeof key, value_size = sizeof truth;
  hutch_batch *batch = NULL;
  switch (random % 6) {
  case 0: case 1: hutch_remove(j->cache, &key, sizeof key); break;
  case 2: CHECK_OK(hutch_put(j->cache, &key, sizeof key, &truth, sizeof truth, NULL, NULL)); break;
  case 3:
    CHECK_OK(hutch_put(j->cache, &key, sizeof key, &truth, sizeof truth, &options, NULL));
    break;
  case 4:
    CHECK_OK(hutch_put_many(j->cache, &keys, &key_size, &values, &value_size, 1, NULL, &batch));
    break;
  default: CHECK_OK(hutch_clear(j->cache));
  }
  hutch_batch_release(batch);
  atomic_store(&j->floor[key], truth);
  pthread_mutex_unlock(&j->writing[key]);
}

static hutch_status load_truth(void *context, const void *key, size_t key_size,
                               hutch_loading *loading) {
  asker *a = context;
  (void)key, (void)key_size;
  atomic_fetch_add(&a->j->loads, 1);
  uint64_t truth = atomic_load(&a->j->truth[a->key]);
  uint64_t random = next_random(&a->random);
  pause_a_little(random >> 8);
  if (random % 16 == 0) return HUTCH_OK;
  if (random % 16 == 1) return HUTCH_IO;
  if (random % 16 == 2) {
    write_truth(a->j, (a->key + 1) % KEYS, next_random(&a->random));
    pause_a_little(random >> 16);
  }
  hutch_loading_fulfil(loading, &truth, sizeof truth, NULL);
  return HUTCH_OK;
}

static void judge(judged *j, uint32_t key, uint64_t floor, hutch_value *value) {
  uint64_t number;
  CHECK(hutch_value_size(value) == sizeof number);
  memcpy(&number, hutch_value_data(value), sizeof number);
  if (number < floor)
    FAIL("key %u: %llu is older than %llu", key, (unsigned long long)number,
         (unsigned long long)floor);
  CHECK(number <= atomic_load(&j->truth[key]));
  hutch_value_release(value);
}

static void take_part(void *context, int index) {
  judged *j = context;
  asker a = {.j = j, .random = j->seed + (uint64_t)index};
  for (int i = 0; i < repeats(1500); i++) {
    uint64_t random = next_random(&a.random);
    a.key = (uint32_t)(random % KEYS);
    uint64_t floor = atomic_load(&j->floor[a.key]);
    hutch_value *value = NULL;
    hutch_load_options options = {.struct_size = sizeof options};
    if (random >> 8 & 1) options.timeout = HUTCH_MICROSECOND << (random >> 9 & 7);
    if (random >> 12 & 1) options.soft_time_to_live = HUTCH_MILLISECOND;
    options.flags = random >> 13 & 1;
    switch (random >> 16 & 7) {
    case 0: case 1: write_truth(j, a.key, random >> 24); break;
    case 2: {
      hutch_status status = hutch_get(j->cache, &a.key, sizeof a.key, &value);
      if (status == HUTCH_OK) judge(j, a.key, floor, value);
      else CHECK_STATUS(HUTCH_NOT_FOUND, status);
      break;
    }
    case 3: {
      /* The open form: some are answered, some given up, some released. */
      hutch_loading *loading = NULL;
      hutch_status status =
          hutch_load_begin(j->cache, &a.key, sizeof a.key, &options, &value, &loading);
      /* An old value to refresh may be older. */
      if (value && options.soft_time_to_live == 0) judge(j, a.key, floor, value);
      else hutch_value_release(value);
      value = NULL;
      if (status == HUTCH_WOULD_BLOCK)
        status = hutch_loading_wait(loading, random >> 20 & 1023, &value);
      if (status == HUTCH_NOT_FOUND && (random >> 32 & 3)) {
        uint64_t truth = atomic_load(&j->truth[a.key]);
        pause_a_little(random >> 40);
        hutch_loading_fulfil(loading, &truth, sizeof truth, NULL);
        if (hutch_loading_wait(loading, 0, &value) == HUTCH_OK) judge(j, a.key, floor, value);
      } else if (value) {
        /* One that was waited for. */
        if (options.soft_time_to_live == 0) judge(j, a.key, floor, value);
        else hutch_value_release(value);
      }
      if (status != HUTCH_OK && status != HUTCH_NOT_FOUND) CHECK(!value);
      hutch_loading_release(loading);
      break;
    }
    default: {
      hutch_status status =
          hutch_load(j->cache, &a.key, sizeof a.key, load_truth, &a, &options, &value);
      if (status == HUTCH_OK) judge(j, a.key, floor, value);
      else CHECK(!value && (status == HUTCH_LOAD_FAILED || status == HUTCH_CANCELLED ||
                 status == HUTCH_TIMED_OUT));
    }
    }
  }
}

static void judge_on(const char *note, const char *directory, uint64_t count) {
  check_note(note);
  hutch_options options = unlimited_options();
  if (count) options.memory.count = count;
  judged *j = calloc(1, sizeof *j);
  j->cache = open_cache(directory, &options);
  j->seed = seed();
  for (int i = 0; i < KEYS; i++) pthread_mutex_init(&j->writing[i], NULL);
  run_threads(4, take_part, j);
  CHECK(j->loads > 0);
  /* Nothing is left over: every key can be loaded at once. */
  CHECK_OK(hutch_clear(j->cache));
  for (uint32_t key = 0; key < KEYS; key++) {
    hutch_value *value;
    hutch_loading *loading;
    CHECK_STATUS(HUTCH_NOT_FOUND,
                 hutch_load_begin(j->cache, &key, sizeof key, NULL, &value, &loading));
    CHECK_OK(fulfil(loading, "made"));
    hutch_loading_release(loading);
  }
  CHECK_EQUAL(directory || !count ? KEYS : count, count_of(j->cache));
  CHECK_OK(hutch_close(j->cache));
  for (int i = 0; i < KEYS; i++) pthread_mutex_destroy(&j->writing[i]);
  free(j);
  check_note(NULL);
}

TEST(nobody_gets_less_than_was_written) {
  judge_on("in memory", NULL, 0);
  judge_on("in memory, with evictions", NULL, 2);
  judge_on("two tiers", scratch("cache").text, 0);
  judge_on("two tiers, with evictions", scratch("small").text, 2);
}
