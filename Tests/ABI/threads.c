/* Several threads on one cache, in memory and with two tiers. Runs are bounded by a number of
   calls (more with HUTCH_LONG), never by time. */
#define _GNU_SOURCE
#include "check.h"

enum { THREADS = 4 };

typedef struct shared {
  hutch_cache *cache, *memory;
  bool disk;
  uint64_t seed;
  pthread_barrier_t barrier;
  _Atomic uint64_t sums[64];
  _Atomic uint32_t done[512];
  _Atomic bool stop;
} shared;

static void run_on(const char *note, const char *directory, const hutch_options *options,
                   uint64_t seed, void (*body)(void *context, int index),
                   void (*check)(shared *s)) {
  check_note(note);
  shared *s = calloc(1, sizeof *s);
  s->cache = open_cache(directory, options);
  s->memory = tier_of(s->cache, HUTCH_TIER_MEMORY);
  s->disk = directory != NULL;
  s->seed = seed;
  CHECK(pthread_barrier_init(&s->barrier, NULL, THREADS) == 0);
  run_threads(THREADS, body, s);
  if (check) check(s);
  pthread_barrier_destroy(&s->barrier);
  hutch_cache_release(s->memory);
  CHECK_OK(hutch_close(s->cache));
  free(s);
  check_note(NULL);
}

/* Once in memory and once with two tiers. */
static void run_on_both(const hutch_options *options, void (*body)(void *context, int index),
                        void (*check)(shared *s)) {
  uint64_t random = seed();
  run_on("in memory", NULL, options, random, body, check);
  run_on("two tiers", scratch("cache").text, options, random, body, check);
}

static uint64_t thread_seed(const shared *s, int index) { return s->seed + (uint64_t)index; }

/* ----------------------------------------------------------------- counters */

enum { COUNTERS = 8 };

static void increment(void *context, int index) {
  shared *s = context;
  uint64_t state = thread_seed(s, index);
  for (int i = 0; i < repeats(1500); i++) {
    uint32_t key = (uint32_t)(next_random(&state) % COUNTERS);
    int64_t delta = (int64_t)(next_random(&state) % 2001) - 1000, sum;
    CHECK_OK(hutch_increment(s->cache, &key, sizeof key, delta, 0, NULL, &sum));
    atomic_fetch_add(&s->sums[key], (uint64_t)delta);
  }
}

static void check_sums(shared *s) {
  for (uint32_t key = 0; key < COUNTERS; key++) {
    int64_t sum;
    CHECK_OK(hutch_increment(s->cache, &key, sizeof key, 0, 0, NULL, &sum));
    CHECK_EQUAL(s->sums[key], sum);
  }
}

TEST(increments_add_up) {
  hutch_options options = unlimited_options();
  run_on_both(&options, increment, check_sums);
}

static void swap(void *context, int index) {
  shared *s = context;
  (void)index;
  for (int i = 0; i < repeats(300); i++)
    for (;;) {
      hutch_value *value = NULL;
      hutch_status status = hutch_get(s->cache, KEY("n"), &value);
      int64_t number = 0;
      if (status == HUTCH_OK) {
        memcpy(&number, hutch_value_data(value), sizeof number);
        number++;
        status = hutch_compare_and_swap(s->cache, KEY("n"), info_of_value(value).version,
                                        &number, sizeof number, NULL, NULL);
      } else {
        CHECK_STATUS(HUTCH_NOT_FOUND, status);
        number = 1;
        status = hutch_add(s->cache, KEY("n"), &number, sizeof number, NULL, NULL);
      }
      hutch_value_release(value);
      if (status == HUTCH_OK) break;
      CHECK(status == HUTCH_CONFLICT || status == HUTCH_EXISTS);
    }
}

static void check_swaps(shared *s) {
  int64_t sum;
  CHECK_OK(hutch_increment(s->cache, KEY("n"), 0, 0, NULL, &sum));
  CHECK_EQUAL(THREADS * repeats(300), sum);
}

TEST(no_swap_is_lost) {
  hutch_options options = unlimited_options();
  run_on_both(&options, swap, check_swaps);
}

/* ------------------------------------------------------------- exactly once */

enum { TICKETS = 512 };

static void add_tickets(void *context, int index) {
  shared *s = context;
  for (uint32_t key = 0; key < TICKETS; key++) {
    hutch_status status = hutch_add(s->cache, &key, sizeof key, &index, sizeof index, NULL, NULL);
    if (status == HUTCH_OK) atomic_fetch_add(&s->done[key], 1u + 1000u * (uint32_t)index);
    else CHECK_STATUS(HUTCH_EXISTS, status);
  }
}

static void check_added(shared *s) {
  for (uint32_t key = 0; key < TICKETS; key++) {
    CHECK_EQUAL(1, s->done[key] % 1000);
    int winner = (int)(s->done[key] / 1000), stored = -1;
    size_t size;
    CHECK_OK(hutch_get_into(s->cache, &key, sizeof key, &stored, sizeof stored, &size));
    CHECK_EQUAL(winner, stored);
  }
}

TEST(one_add_of_several_wins) {
  hutch_options options = unlimited_options();
  run_on_both(&options, add_tickets, check_added);
}

static void pop_tickets(void *context, int index) {
  shared *s = context;
  /* Each thread puts its share, and all of them pop all. */
  for (uint32_t key = 0; key < TICKETS; key++)
    if ((int)(key % THREADS) == index)
      CHECK_OK(hutch_put(s->cache, &key, sizeof key, &key, sizeof key, NULL, NULL));
  pthread_barrier_wait(&s->barrier);
  for (uint32_t key = 0; key < TICKETS; key++) {
    hutch_value *value = NULL;
    hutch_status status = hutch_pop(s->cache, &key, sizeof key, &value);
    if (status == HUTCH_OK) {
      CHECK_BYTES(&key, sizeof key, hutch_value_data(value), hutch_value_size(value));
      hutch_value_release(value);
      atomic_fetch_add(&s->done[key], 1);
    } else {
      CHECK_STATUS(HUTCH_NOT_FOUND, status);
    }
  }
}

static void check_popped(shared *s) {
  for (uint32_t key = 0; key < TICKETS; key++) CHECK_EQUAL(1, s->done[key]);
  CHECK_EQUAL(0, count_of(s->cache));
}

TEST(one_pop_of_several_gets_the_value) {
  hutch_options options = unlimited_options();
  run_on_both(&options, pop_tickets, check_popped);
}

/* ------------------------------------------------------------ whole values */

/* A value that tells its own key, seed and size; the rest follows from them. */
typedef struct told {
  uint64_t key, seed, size;
} told;

static hutch_status put_told(hutch_cache *cache, uint64_t key, uint64_t seed, size_t size) {
  char *data = malloc(sizeof(told) + size);
  CHECK(data);
  told header = {key, seed, size};
  memcpy(data, &header, sizeof header);
  fill(data + sizeof header, size, seed);
  hutch_put_result result = new_result();
  hutch_status status =
      hutch_put(cache, &key, sizeof key, data, sizeof header + size, NULL, &result);
  free(data);
  if (status == HUTCH_PARTIAL) {
    /* This failure is not provoked here, and may not come again. */
    hutch_tier_stats disk = stats_of(cache).disk;
    FAIL("partial: memory %u, disk %u, state %ju, %ju failures, %ju refusals", result.memory,
         result.disk, (uintmax_t)disk.state, (uintmax_t)disk.failures, (uintmax_t)disk.refusals);
  }
  return status;
}

static told check_told(const hutch_value *value, uint64_t key) {
  told header;
  CHECK(hutch_value_size(value) >= sizeof header);
  memcpy(&header, hutch_value_data(value), sizeof header);
  CHECK_EQUAL(key, header.key);
  CHECK_EQUAL(sizeof header + header.size, hutch_value_size(value));
  char *expected = filled(header.size, header.seed);
  CHECK_BYTES(expected, header.size, (const char *)hutch_value_data(value) + sizeof header,
              header.size);
  free(expected);
  return header;
}

static hutch_value *find(hutch_cache *cache, uint64_t key) {
  hutch_value *value = NULL;
  hutch_status status = hutch_get(cache, &key, sizeof key, &value);
  CHECK(status == HUTCH_NOT_FOUND ? !value : status == HUTCH_OK && value);
  return value;
}

static void use_everything(void *context, int index) {
  shared *s = context;
  enum { KEYS = 40 };
  uint64_t state = thread_seed(s, index);
  for (int i = 0; i < repeats(1500); i++) {
    uint64_t key = next_random(&state) % KEYS, what = next_random(&state) % 100;
    hutch_value *value = NULL;
    hutch_entry_info info = {.struct_size = sizeof info};
    hutch_status status = HUTCH_OK;
    if (what < 30) {
      /* Small ones, and some that get a file of their own. */
      size_t size = (size_t)(next_random(&state) % (what < 25 ? 300 : 50000));
      CHECK_OK(put_told(s->cache, key, next_random(&state), size));
    } else if (what < 70) {
      if ((value = find(s->cache, key))) check_told(value, key);
    } else if (what < 76) {
      status = hutch_remove(s->cache, &key, sizeof key);
    } else if (what < 80) {
      status = hutch_pop(s->cache, &key, sizeof key, &value);
      if (value) check_told(value, key);
    } else if (what < 84) {
      status = hutch_contains(s->cache, &key, sizeof key);
    } else if (what < 88) {
      status = hutch_info(s->cache, &key, sizeof key, &info);
    } else if (what < 92) {
      status = hutch_touch(s->cache, &key, sizeof key, HUTCH_HOUR, 0);
    } else if (what < 96) {
      status = hutch_remove(s->memory, &key, sizeof key);
    } else if (what < 98) {
      CHECK(count_of(s->cache) <= KEYS);
      stats_of(s->cache);
    } else if (what < 99) {
      status = hutch_clear(s->memory);
    } else {
      status = hutch_clear(s->cache);
    }
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    hutch_value_release(value);
  }
}

static int32_t count_visits(void *context, const void *key, size_t key_size,
                            const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  ++*(uint64_t *)context;
  return 0;
}

static void check_count(shared *s) {
  uint64_t visits = 0;
  CHECK_OK(hutch_each(s->cache, count_visits, &visits));
  CHECK_EQUAL(visits, count_of(s->cache));
  CHECK_OK(hutch_clear(s->cache));
  CHECK_EQUAL(0, count_of(s->cache));
  CHECK_EQUAL(0, cost_of(s->memory));
}

TEST(no_value_is_ever_torn) {
  hutch_options options = unlimited_options();
  options.memory.cost = 200000;
  /* Values that fall out of memory are still on disk, those in memory alone are not. */
  run_on_both(&options, use_everything, check_count);
}

/* Each key has one writer, which tells when a put is complete; no reader may see less than that
   afterwards. Meanwhile the memory tier is emptied again and again, so that values are
   promoted from disk all the time. */
static void race_for_the_newest(void *context, int index) {
  shared *s = context;
  enum { KEYS = 4 };
  uint64_t state = thread_seed(s, index);
  if (index == 0) {
    for (uint64_t i = 1; i <= (uint64_t)repeats(1200); i++) {
      uint64_t key = i % KEYS;
      CHECK_OK(put_told(s->cache, key, i, i % 50));
      atomic_store(&s->sums[key], i);
    }
    atomic_store(&s->stop, true);
    return;
  }
  while (!atomic_load(&s->stop)) {
    uint64_t key = next_random(&state) % KEYS;
    uint64_t completed = atomic_load(&s->sums[key]);
    hutch_value *value = find(s->cache, key);
    if (value) CHECK(check_told(value, key).seed >= completed);
    else CHECK_EQUAL(0, completed);
    hutch_value_release(value);
    if (s->disk && index == 1) CHECK_OK(hutch_clear(s->memory));
  }
}

TEST(nobody_sees_a_value_older_than_the_newest_completed) {
  hutch_options options = unlimited_options();
  run_on_both(&options, race_for_the_newest, NULL);
}

static void check_tiers_agree(shared *s) {
  if (!s->disk) return;
  hutch_cache *disk = tier_of(s->cache, HUTCH_TIER_DISK);
  for (uint64_t key = 0; key < 3; key++) {
    hutch_value *above = find(s->memory, key), *below = find(disk, key);
    CHECK(above && below);
    CHECK_EQUAL(info_of_value(above).version, info_of_value(below).version);
    CHECK_BYTES(hutch_value_data(above), hutch_value_size(above), hutch_value_data(below),
                hutch_value_size(below));
    hutch_value_release(above);
    hutch_value_release(below);
  }
  hutch_cache_release(disk);
}

static void put_same_keys(void *context, int index) {
  shared *s = context;
  for (int i = 0; i < repeats(300); i++) {
    for (uint64_t key = 0; key < 3; key++)
      CHECK_OK(put_told(s->cache, key, (uint64_t)(i * THREADS + index), 20));
    pthread_barrier_wait(&s->barrier);
    if (index == 0) check_tiers_agree(s);
    pthread_barrier_wait(&s->barrier);
  }
}

TEST(trap_3_the_tiers_agree_on_the_last_of_several_puts) {
  hutch_options options = unlimited_options();
  run_on_both(&options, put_same_keys, NULL);
}

/* ------------------------------------------------------------------ limits */

enum { MOST_COUNT = 40, MOST_COST = 30000 };

static void put_to_the_limit(void *context, int index) {
  shared *s = context;
  uint64_t state = thread_seed(s, index);
  hutch_cache *disk = s->disk ? tier_of(s->cache, HUTCH_TIER_DISK) : NULL;
  for (int round = 0; round < repeats(60); round++) {
    for (int i = 0; i < 8; i++)
      CHECK_OK(put_told(s->cache, next_random(&state) % 500, 1, next_random(&state) % 2000));
    /* Every put has returned. */
    pthread_barrier_wait(&s->barrier);
    if (index == 0) {
      CHECK(count_of(s->memory) <= MOST_COUNT);
      CHECK(cost_of(s->memory) <= MOST_COST);
      if (disk) CHECK(count_of(disk) <= MOST_COUNT);
    }
    pthread_barrier_wait(&s->barrier);
  }
  hutch_cache_release(disk);
}

TEST(limits_hold_whoever_puts) {
  hutch_options options = unlimited_options();
  options.memory.count = options.disk.count = MOST_COUNT;
  options.memory.cost = MOST_COST;
  run_on_both(&options, put_to_the_limit, NULL);
}

static void change_limits(void *context, int index) {
  shared *s = context;
  uint64_t state = thread_seed(s, index);
  for (int i = 0; i < repeats(400); i++) {
    if (index > 0) {
      CHECK_OK(put_told(s->cache, next_random(&state) % 500, 1, 100));
      continue;
    }
    hutch_cache_limits limits = limits_of(s->cache);
    limits.memory.count = 1 + next_random(&state) % 100;
    limits.disk.count = 1 + next_random(&state) % 100;
    CHECK_OK(hutch_set_limits(s->cache, &limits));
  }
}

static void check_limits(shared *s) {
  CHECK(count_of(s->memory) <= limits_of(s->cache).memory.count);
  CHECK(stats_of(s->cache).disk.count <= (s->disk ? limits_of(s->cache).disk.count : 0));
}

TEST(limits_may_change_under_load) {
  hutch_options options = unlimited_options();
  run_on_both(&options, change_limits, check_limits);
}

/* ----------------------------------------------------------------- iterate */

enum { STAYING = 300 };

typedef struct visits {
  int staying[STAYING];
} visits;

static int32_t note_visit(void *context, const void *key, size_t key_size,
                          const hutch_entry_info *info) {
  visits *v = context;
  uint64_t number;
  (void)info;
  CHECK_EQUAL(sizeof number, key_size);
  memcpy(&number, key, sizeof number);
  if (number < STAYING) v->staying[number]++;
  return 0;
}

static void walk_and_change(void *context, int index) {
  shared *s = context;
  uint64_t state = thread_seed(s, index);
  if (index == 0)
    for (uint64_t key = 0; key < STAYING; key++) CHECK_OK(put_told(s->cache, key, key, 30));
  pthread_barrier_wait(&s->barrier);
  for (int i = 0; i < 10 * scale(); i++) {
    if (index < 2) {
      visits v = {{0}};
      CHECK_OK(hutch_each(s->cache, note_visit, &v));
      for (int n = 0; n < STAYING; n++) CHECK_EQUAL(1, v.staying[n]);
    } else {
      for (int n = 0; n < 60; n++) {
        uint64_t key = STAYING + next_random(&state) % 1000;
        hutch_status status = next_random(&state) % 2
                                  ? hutch_remove(s->cache, &key, sizeof key)
                                  : put_told(s->cache, key, key, 30);
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
        /* Replacing is staying. */
        CHECK_OK(put_told(s->cache, next_random(&state) % STAYING, 1, 30));
      }
    }
  }
}

TEST(what_stays_is_visited_once_whatever_comes_and_goes) {
  hutch_options options = unlimited_options();
  run_on_both(&options, walk_and_change, NULL);
}

/* ------------------------------------------------------------------- close */

static void put_until_closed(void *context, int index) {
  shared *s = context;
  hutch_cache_retain(s->cache);
  pthread_barrier_wait(&s->barrier);
  uint64_t key = (uint64_t)index << 32;
  if (index == 0) {
    /* Closes when everybody is at work. */
    for (int i = 1; i < THREADS; i++)
      while (atomic_load(&s->done[i]) < 30) nap();
    CHECK_OK(hutch_close(s->cache));
  } else {
    hutch_status status;
    while (key++, (status = put_told(s->cache, key, key, 100)) == HUTCH_OK) {
      atomic_fetch_add(&s->done[index], 1);
      hutch_value *value = NULL;
      status = hutch_get(s->cache, &key, sizeof key, &value);
      if (status == HUTCH_OK) check_told(value, key);
      else CHECK_STATUS(HUTCH_CLOSED, status);
      hutch_value_release(value);
    }
    CHECK_STATUS(HUTCH_CLOSED, status);
  }
  check_every_call(s->cache, HUTCH_CLOSED);
  hutch_cache_release(s->cache);
}

TEST(a_cache_may_be_closed_while_others_use_it) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  for (int round = 0; round < 10 * scale(); round++)
    for (int disk = 0; disk < 2; disk++) {
      shared *s = calloc(1, sizeof *s);
      s->cache = open_cache(disk ? directory.text : NULL, &options);
      CHECK(pthread_barrier_init(&s->barrier, NULL, THREADS) == 0);
      run_threads(THREADS, put_until_closed, s);
      pthread_barrier_destroy(&s->barrier);
      if (disk) {
        /* Every put that answered HUTCH_OK is there. */
        hutch_cache *cache = open_cache(directory.text, &options);
        for (uint64_t index = 1; index < THREADS; index++)
          for (uint64_t n = 1; n <= s->done[index]; n++) {
            uint64_t key = (index << 32) + n;
            hutch_value *value = find(cache, key);
            CHECK(value);
            check_told(value, key);
            hutch_value_release(value);
          }
        CHECK_OK(hutch_clear(cache));
        CHECK_OK(hutch_close(cache));
      }
      free(s);
    }
}

/* The calls that go deepest, in a thread with as little stack as hutch.h promises to do with. */
static void *call_with_little_stack(void *directory) {
  hutch_cache *cache = open_cache(directory, NULL);
  CHECK_OK(put_text(cache, "small", "value"));
  CHECK_OK(put_size(cache, "large", 3 << 20));
  CHECK_OK(hutch_flush(cache));
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(disk, KEY("large"), &value));
  hutch_value_release(value);
  hutch_cursor *cursor = NULL;
  CHECK_OK(hutch_cursor_create_ordered(disk, HUTCH_ORDER_ACCESS, &cursor));
  const void *key;
  size_t size;
  while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) CHECK(size == 5);
  hutch_cursor_release(cursor);
  CHECK_OK(hutch_check(cache, 0, NULL));
  CHECK_OK(hutch_maintain(cache, 0));
  path other = scratch("other");
  hutch_cache *target = open_cache(other.text, NULL);
  CHECK_OK(hutch_copy(cache, target, NULL));
  CHECK_OK(hutch_remove_tagged(target, KEY("tag"), NULL));
  CHECK_OK(hutch_remove_prefix(target, KEY("small"), NULL));
  CHECK_OK(hutch_close(target));
  CHECK_OK(hutch_destroy(other.text));
  CHECK_OK(hutch_clear(cache));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  return NULL;
}

TEST(a_call_needs_little_stack) {
  if (SANITIZED_BY > 1) return;
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
  path directory = scratch("cache");
  CHECK(pthread_create(&thread, &attributes, call_with_little_stack, directory.text) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  pthread_attr_destroy(&attributes);
}
