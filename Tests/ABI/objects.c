#define _DEFAULT_SOURCE
/* The group 'objects' of hutch.h: host pointers, each released exactly once. */
#include "check.h"

#include <unistd.h>

/* What a host keeps: counts its releases. */
typedef struct thing {
  _Atomic int released;
  _Atomic pthread_t thread;
  int number;
} thing;

static void release_thing(void *object) {
  thing *t = object;
  t->thread = pthread_self();
  atomic_fetch_add(&t->released, 1);
}

static hutch_status put(hutch_cache *cache, const char *key, thing *t) {
  return hutch_put_object(cache, KEY(key), t, release_thing, NULL);
}

static thing *get(hutch_cache *cache, const char *key) {
  hutch_object *object = NULL;
  hutch_status status = hutch_get_object(cache, KEY(key), &object);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  CHECK_EQUAL(status == HUTCH_OK, object != NULL);
  thing *t = hutch_object_pointer(object);
  hutch_object_release(object);
  return t;
}

/* Waits until the library has released it, and sees that it does so once. */
static void await_release(thing *t) {
  while (!atomic_load(&t->released)) usleep(200);
  CHECK_EQUAL(1, t->released);
}

static hutch_cache *open_draining(uint32_t policy) {
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_DRAIN_RELEASES;
  options.policy = policy;
  return open_cache(NULL, &options);
}

static uint64_t drain(hutch_cache *cache, uint64_t max) {
  uint64_t drained = 99;
  CHECK_OK(hutch_drain_releases(cache, max, &drained));
  return drained;
}

TEST(an_object_is_found_under_its_key_and_nothing_else) {
  hutch_cache *cache = open_cache(NULL, NULL);
  thing a = {.number = 1}, b = {.number = 2};
  CHECK_OK(put(cache, "key", &a));
  CHECK_OK(put(cache, "other", &b));
  CHECK(get(cache, "key") == &a && get(cache, "other") == &b && !get(cache, "none"));
  CHECK_EQUAL(2, count_of(cache));
  CHECK_EQUAL(4, stats_of(cache).memory.hits + stats_of(cache).memory.misses + 1);
  CHECK_OK(hutch_close(cache));
  CHECK(a.released == 1 && b.released == 1);
}

TEST(keys_of_objects_are_their_own) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &options);
  enum { COUNT = 20000 };
  static thing things[COUNT];
  for (int i = 0; i < COUNT; i++) {
    things[i].number = i;
    CHECK_OK(hutch_put_object(cache, &i, sizeof i, &things[i], release_thing, NULL));
    CHECK_OK(hutch_put(cache, &i, sizeof i, &i, sizeof i, NULL, NULL));
  }
  CHECK_EQUAL(2 * COUNT, count_of(cache));
  for (int i = 0; i < COUNT; i++) {
    hutch_object *object;
    int value;
    size_t size;
    CHECK_OK(hutch_get_object(cache, &i, sizeof i, &object));
    CHECK_EQUAL(i, ((thing *)hutch_object_pointer(object))->number);
    hutch_object_release(object);
    CHECK_OK(hutch_get_into(cache, &i, sizeof i, &value, sizeof value, &size));
    CHECK_EQUAL(i, value);
    if (i % 3 == 0) CHECK_OK(hutch_remove(cache, &i, sizeof i));
    if (i % 3 == 1) CHECK_OK(hutch_remove_object(cache, &i, sizeof i));
  }
  for (int i = 0; i < COUNT; i++) {
    hutch_object *object;
    CHECK_STATUS(i % 3 == 1 ? HUTCH_NOT_FOUND : HUTCH_OK,
                 hutch_get_object(cache, &i, sizeof i, &object));
    hutch_object_release(object);
    CHECK_STATUS(i % 3 == 0 ? HUTCH_NOT_FOUND : HUTCH_OK, hutch_contains(cache, &i, sizeof i));
  }
  /* A walk sees values alone. */
  hutch_cursor *cursor;
  const void *key;
  size_t size, seen = 0;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) seen++;
  hutch_cursor_release(cursor);
  CHECK_EQUAL(count_of(cache) - (uint64_t)(COUNT - (COUNT + 1) / 3), seen);
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
  for (int i = 0; i < COUNT; i++) CHECK_EQUAL(1, things[i].released);
}

/* Else a tier full of objects would have half as much again in memory as its limit. */
TEST(an_object_is_charged_what_the_cache_keeps_of_it) {
  hutch_cache *values = open_cache(NULL, NULL), *objects = open_cache(NULL, NULL);
  static const char bytes[40];
  hutch_put_options tagged = put_options();
  tagged.tag = "tag";
  tagged.tag_size = 3;
  const hutch_put_options *of[] = {NULL, &tagged};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hutch_put(values, KEY("key"), bytes, sizeof bytes, of[i], NULL));
    CHECK_OK(hutch_put_object(objects, KEY("key"), NULL, NULL, of[i]));
    CHECK_EQUAL(cost_of(values), cost_of(objects));
  }
  CHECK_OK(hutch_close(values));
  CHECK_OK(hutch_close(objects));
}

TEST(an_object_has_no_bytes_that_a_trim_could_find_too_many) {
  hutch_cache *cache = open_cache(NULL, NULL);
  thing t = {0};
  CHECK_OK(put(cache, "object", &t));
  CHECK_OK(put_text(cache, "value", "1"));
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_LARGER_THAN, .amount = 0};
  uint64_t removed = 0;
  CHECK_OK(hutch_trim(cache, &spec, &removed));
  CHECK_EQUAL(1, removed);
  CHECK(get(cache, "object") == &t);
  CHECK_OK(hutch_close(cache));
}

/* By replacement, removal, clear, expiry, a limit and a trim. */
TEST(whatever_ends_an_entry_releases_its_object_on_a_thread_of_the_library) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  thing things[7] = {0};
  CHECK_OK(put(cache, "replaced", &things[0]));
  CHECK_OK(put(cache, "replaced", &things[6]));
  await_release(&things[0]);
  CHECK_OK(put(cache, "removed", &things[1]));
  CHECK_OK(hutch_remove_object(cache, KEY("removed")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove_object(cache, KEY("removed")));
  await_release(&things[1]);
  CHECK_EQUAL(0, things[6].released);
  CHECK_OK(put(cache, "cleared", &things[2]));
  CHECK_OK(hutch_clear(cache));
  await_release(&things[2]);
  await_release(&things[6]);
  hutch_put_options put_spec = put_options();
  put_spec.time_to_live = HUTCH_SECOND;
  CHECK_OK(hutch_put_object(cache, KEY("expires"), &things[3], release_thing, &put_spec));
  CHECK(get(cache, "expires") == &things[3]);
  clock.now += HUTCH_SECOND;
  CHECK(!get(cache, "expires"));
  await_release(&things[3]);
  CHECK_OK(put(cache, "trimmed", &things[4]));
  hutch_trim_spec trim = {.struct_size = sizeof trim, .kind = HUTCH_TRIM_TO_COUNT};
  uint64_t removed;
  CHECK_OK(hutch_trim(cache, &trim, &removed));
  CHECK_EQUAL(1, removed);
  await_release(&things[4]);
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.count = 1;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_OK(put(cache, "evicted", &things[5]));
  CHECK_OK(put_text(cache, "key", "value"));
  await_release(&things[5]);
  for (int i = 0; i < 7; i++) CHECK(!pthread_equal(things[i].thread, pthread_self()));
  CHECK_OK(hutch_close(cache));
}

TEST(a_pinned_object_is_not_released) {
  hutch_cache *cache = open_draining(HUTCH_POLICY_DEFAULT);
  thing t = {0};
  hutch_object *object;
  CHECK_OK(put(cache, "key", &t));
  CHECK_OK(hutch_get_object(cache, KEY("key"), &object));
  CHECK_EQUAL(0, stats_of(cache).memory.held_count);
  CHECK_OK(hutch_remove_object(cache, KEY("key")));
  CHECK_EQUAL(1, stats_of(cache).memory.held_count);
  CHECK(stats_of(cache).memory.held_bytes > 0);
  CHECK_EQUAL(0, drain(cache, 0));
  CHECK(hutch_object_retain(object) == object);
  hutch_object_release(object);
  CHECK_EQUAL(0, drain(cache, 0));
  CHECK(hutch_object_pointer(object) == &t && t.released == 0);
  hutch_object_release(object);
  CHECK_EQUAL(0, stats_of(cache).memory.held_count);
  CHECK_EQUAL(0, stats_of(cache).memory.held_bytes);
  CHECK_EQUAL(1, stats_of(cache).memory.waiting);
  CHECK_EQUAL(0, t.released);
  CHECK_EQUAL(1, drain(cache, 0));
  CHECK_EQUAL(1, t.released);
  CHECK(pthread_equal(t.thread, pthread_self()));
  CHECK_EQUAL(0, stats_of(cache).memory.waiting);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, t.released);
}

TEST(releases_are_drained_in_order_and_number) {
  const uint32_t policies[] = {HUTCH_POLICY_LRU, HUTCH_POLICY_ADAPTIVE};
  for (int p = 0; p < 2; p++) {
    hutch_cache *cache = open_draining(policies[p]);
    thing things[10] = {0};
    for (int i = 0; i < 10; i++) CHECK_OK(put(cache, "key", &things[i]));
    CHECK_EQUAL(9, stats_of(cache).memory.waiting);
    CHECK_EQUAL(4, drain(cache, 4));
    for (int i = 0; i < 10; i++) CHECK_EQUAL(i < 4, things[i].released);
    CHECK_EQUAL(5, drain(cache, 100));
    for (int i = 0; i < 10; i++) CHECK_EQUAL(i < 9, things[i].released);
    CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(1, things[9].released);
  }
}

TEST(the_last_holder_releases_after_the_close) {
  for (int draining = 0; draining < 2; draining++) {
    hutch_cache *cache = draining ? open_draining(0) : open_cache(NULL, NULL);
    thing held = {0}, left = {0}, waiting = {0};
    hutch_object *object;
    CHECK_OK(put(cache, "held", &held));
    CHECK_OK(put(cache, "left", &left));
    CHECK_OK(put(cache, "waiting", &waiting));
    CHECK_OK(hutch_remove_object(cache, KEY("waiting")));
    CHECK_OK(hutch_get_object(cache, KEY("held"), &object));
    CHECK_OK(hutch_close(cache));
    CHECK(left.released == 1 && waiting.released == 1 && held.released == 0);
    CHECK(hutch_object_pointer(object) == &held);
    hutch_object_release(object);
    CHECK_EQUAL(1, held.released);
    CHECK(pthread_equal(held.thread, pthread_self()));
  }
}

TEST(a_put_that_fails_releases_too) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = 1000;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  thing things[8] = {0}, old = {0};
  char key[HUTCH_KEY_MAX + 1] = {0};
  hutch_put_options spec = put_options();
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, put(NULL, "key", &things[0]));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_object(cache, NULL, 1, &things[1], release_thing, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_object(cache, key, sizeof key, &things[2], release_thing, NULL));
  spec.extended = "x";
  spec.extended_size = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_object(cache, KEY("key"), &things[3], release_thing, &spec));
  spec = put_options();
  spec.time_to_idle = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_put_object(cache, KEY("key"), &things[4], release_thing, &spec));
  CHECK_STATUS(HUTCH_UNSUPPORTED, put(disk, "key", &things[5]));
  /* What cannot be stored takes the older one with it, as a value does. */
  CHECK_OK(put(cache, "key", &old));
  spec = put_options();
  spec.cost = UINT64_MAX - 1;
  CHECK_STATUS(HUTCH_TOO_LARGE,
               hutch_put_object(cache, KEY("key"), &things[6], release_thing, &spec));
  CHECK(!get(cache, "key"));
  await_release(&old);
  hutch_cache_retain(cache);
  CHECK_OK(hutch_close(cache));
  CHECK_STATUS(HUTCH_CLOSED, put(cache, "key", &things[7]));
  hutch_cache_release(cache);
  hutch_cache_release(disk);
  for (int i = 0; i < 8; i++) {
    CHECK_EQUAL(1, things[i].released);
    CHECK(pthread_equal(things[i].thread, pthread_self()));
  }
}

TEST(what_a_failed_put_has_released_does_not_wait) {
  hutch_cache *cache = open_draining(HUTCH_POLICY_DEFAULT);
  hutch_put_options spec = put_options();
  spec.cost = UINT64_MAX - 1;
  thing large = {0};
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.max_entry = 1000;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put_object(cache, KEY("key"), &large, release_thing, &spec));
  CHECK_EQUAL(1, large.released);
  CHECK_EQUAL(0, stats_of(cache).memory.waiting);
  CHECK_EQUAL(0, drain(cache, 0));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, large.released);
}

TEST(bad_arguments_and_nothing) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_object *object = (hutch_object *)cache;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get_object(cache, NULL, 0, &object));
  CHECK(!object);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get_object(cache, KEY("key"), NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_object(cache, "", 0));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_drain_releases(NULL, 0, NULL));
  CHECK(!hutch_object_pointer(NULL) && !hutch_object_retain(NULL));
  hutch_object_release(NULL);
  /* No release function, no object: both may be. */
  int number;
  CHECK_OK(hutch_put_object(cache, KEY("key"), &number, NULL, NULL));
  CHECK_OK(hutch_get_object(cache, KEY("key"), &object));
  CHECK(hutch_object_pointer(object) == &number);
  hutch_object_release(object);
  CHECK_OK(hutch_put_object(cache, KEY("key"), NULL, NULL, NULL));
  CHECK_OK(hutch_get_object(cache, KEY("key"), &object));
  CHECK(object && !hutch_object_pointer(object));
  hutch_object_release(object);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- tiers */

TEST(objects_beside_a_disk) {
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_DRAIN_RELEASES;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  thing a = {0}, b = {0};
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(put(cache, "key", &a));
  CHECK_OK(put(memory, "other", &b));
  CHECK_EQUAL(3, count_of(cache));
  CHECK_EQUAL(3, count_of(memory));
  CHECK_EQUAL(1, count_of(disk));
  CHECK(get(memory, "key") == &a && get(cache, "other") == &b);
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_remove_object(disk, KEY("key")));
  /* What is done to a value of the same key is done to that. */
  CHECK_OK(hutch_remove(cache, KEY("key")));
  CHECK(get(cache, "key") == &a);
  CHECK_OK(hutch_clear(disk));
  CHECK(get(cache, "key") == &a);
  CHECK_OK(hutch_clear(memory));
  CHECK(!get(cache, "key"));
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(put(cache, "key", &b));
  CHECK_EQUAL(2, drain(cache, 0));
  CHECK_EQUAL(1, a.released);
  b.released = 0;
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(1, drain(cache, 0));
  CHECK_EQUAL(1, b.released);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ threads */

static hutch_cache *busy;

/* Puts a new object in its place, closes in vain, drains. */
static void calls_back(void *object) {
  thing *t = object;
  size_t size;
  char key[32];
  snprintf(key, sizeof key, "from %d", t->number);
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(busy));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(busy));
  CHECK_OK(put_text(busy, key, "value"));
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, hutch_get_into(busy, KEY(key), NULL, 0, &size));
  if (t->number % 2) CHECK_OK(hutch_remove(busy, KEY(key)));
  CHECK_OK(hutch_drain_releases(busy, 1, NULL));
  count_of(busy);
  atomic_fetch_add(&t->released, 1);
}

TEST(release_functions_call_back) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  busy = open_cache(scratch("cache").text, &options);
  thing things[50] = {0};
  for (int i = 0; i < 50; i++) {
    things[i].number = i;
    CHECK_OK(hutch_put_object(busy, KEY("key"), &things[i], calls_back, NULL));
  }
  CHECK_OK(hutch_remove_object(busy, KEY("key")));
  for (int i = 0; i < 50; i++) await_release(&things[i]);
  CHECK_EQUAL(25, count_of(busy));
  CHECK_OK(hutch_close(busy));
}

static hutch_cache *closing;
static void calls_a_closed_cache(void *object) {
  CHECK_STATUS(HUTCH_CLOSED, put_text(closing, "key", "value"));
  CHECK_STATUS(HUTCH_CLOSED, put(closing, "key", object));
  hutch_cache *other = open_cache(NULL, NULL);
  CHECK_OK(hutch_close(other));
}

TEST(release_functions_call_a_cache_that_is_closed) {
  for (int on_disk = 0; on_disk < 2; on_disk++) {
    closing = open_cache(on_disk ? scratch("cache").text : NULL, NULL);
    thing t = {0};
    CHECK_OK(hutch_put_object(closing, KEY("key"), &t, calls_a_closed_cache, NULL));
    hutch_cache_retain(closing);
    CHECK_OK(hutch_close(closing));
    CHECK_EQUAL(1, t.released);
    hutch_cache_release(closing);
  }
}

typedef struct crowd {
  hutch_cache *cache;
  _Atomic long made, ended;
} crowd;

static crowd everybody;

static void release_counted(void *object) {
  free(object);
  atomic_fetch_add(&everybody.ended, 1);
}

static void use_objects(void *context, int index) {
  crowd *c = context;
  uint64_t state = seed() + (uint64_t)index;
  hutch_object *pinned[8] = {NULL};
  for (int i = 0; i < repeats(20000); i++) {
    uint32_t key = (uint32_t)(next_random(&state) % 300);
    uint64_t what = next_random(&state) % 16;
    if (what < 6) {
      uint32_t *object = malloc(sizeof *object);
      *object = key;
      atomic_fetch_add(&c->made, 1);
      hutch_put_options options = put_options();
      options.cost = 1 + key % 20;
      CHECK_OK(hutch_put_object(c->cache, &key, sizeof key, object, release_counted, &options));
      CHECK(count_of(c->cache) <= 100 && cost_of(c->cache) <= 800);
    } else if (what < 14) {
      int place = (int)(next_random(&state) % 8);
      hutch_object_release(pinned[place]);
      if (hutch_get_object(c->cache, &key, sizeof key, &pinned[place]) == HUTCH_OK)
        CHECK_EQUAL(key, *(uint32_t *)hutch_object_pointer(pinned[place]));
    } else if (what == 14) {
      hutch_remove_object(c->cache, &key, sizeof key);
    } else if (next_random(&state) % 50 == 0) {
      CHECK_OK(hutch_clear(c->cache));
    }
  }
  for (int i = 0; i < 8; i++)
    if (pinned[i]) CHECK(*(uint32_t *)hutch_object_pointer(pinned[i]) < 300);
  for (int i = 0; i < 8; i++) hutch_object_release(pinned[i]);
}

/* Limits hold at every moment, nothing is released that is held, everything in the end. */
TEST(many_threads_and_hard_limits) {
  for (int draining = 0; draining < 2; draining++) {
    everybody.made = everybody.ended = 0;
    hutch_options options = unlimited_options();
    options.memory.count = 100;
    options.memory.cost = 800;
    if (draining) options.flags = HUTCH_OPEN_DRAIN_RELEASES;
    everybody.cache = open_cache(NULL, &options);
    run_threads(4, use_objects, &everybody);
    CHECK_EQUAL(0, stats_of(everybody.cache).memory.held_count);
    CHECK_EQUAL(0, stats_of(everybody.cache).memory.held_bytes);
    CHECK_OK(hutch_close(everybody.cache));
    CHECK_EQUAL(everybody.made, everybody.ended);
  }
}
