/* The default policy: what keeps its place, by the reads that are answered. */
#include "check.h"

static hutch_cache *memory_of(uint64_t count, test_clock *clock) {
  hutch_options options = unlimited_options();
  options.memory.count = count;
  if (clock) use_clock(&options, clock);
  return open_cache(NULL, &options);
}

static int has(hutch_cache *cache, uint32_t key) {
  char value[8];
  size_t size;
  hutch_status status = hutch_get_into(cache, &key, sizeof key, value, sizeof value, &size);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  return status == HUTCH_OK;
}

static void put(hutch_cache *cache, uint32_t key, int64_t time_to_live) {
  hutch_put_options options = put_options();
  options.time_to_live = time_to_live;
  CHECK_OK(hutch_put(cache, &key, sizeof key, "value", 5, time_to_live ? &options : NULL, NULL));
}

/* A value that is there, or made and put. */
static int ask(hutch_cache *cache, uint32_t key, int64_t time_to_live) {
  int is_hit = has(cache, key);
  if (!is_hit) put(cache, key, time_to_live);
  return is_hit;
}

/* What is read is what was written last, and a reader puts nothing: misses count though no put
   follows. The least recently used would all be hits. */
TEST(what_was_written_of_late_stays_for_its_readers) {
  enum { ROOM = 500, WRITES = 60000, SPAN = 400 };
  hutch_cache *cache = memory_of(ROOM, NULL);
  uint64_t random = 1;
  uint32_t hits = 0;
  for (uint32_t i = 0; i < WRITES; i++) {
    put(cache, i, 0);
    if (i >= SPAN) hits += has(cache, i - next_random(&random) % SPAN);
  }
  CHECK(hits > (WRITES - SPAN) / 10 * 8);
  CHECK_OK(hutch_close(cache));
}

/* As many writes as reads, of as many keys, half of which have room. */
TEST(writes_that_are_never_read_push_out_nothing_that_is) {
  enum { ROOM = 320, KEYS = 300, ROUNDS = 60000 };
  hutch_cache *cache = memory_of(ROOM, NULL);
  uint64_t random = 1;
  uint32_t hits = 0;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    hits += ask(cache, next_random(&random) % KEYS, 0);
    put(cache, KEYS + next_random(&random) % KEYS, 0);
  }
  CHECK(hits > ROUNDS / 10 * 7);
  CHECK_OK(hutch_close(cache));
}

/* A result that another program fetches once: what has been read is of no use any more. */
TEST(what_is_read_once_makes_room_for_what_was_not_read) {
  enum { ROOM = 1000, GAP = 700, ROUNDS = 60000 };
  hutch_cache *cache = memory_of(ROOM, NULL);
  uint32_t hits = 0;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    put(cache, i, 0);
    if (i >= GAP) hits += (uint32_t)has(cache, i - GAP);
  }
  CHECK(hits > ROUNDS / 10 * 9);
  CHECK_OK(hutch_close(cache));
}

/* Of the keys below each power of two about as many requests: few keys are popular. */
static uint32_t skewed(uint64_t *random) {
  uint32_t range = 1u << next_random(random) % 13;
  return (uint32_t)(next_random(random) % range);
}

/* A key that was used keeps its place among the others when its value is removed, and a new one is
   put, as programs do with values that have changed. As a new key it would be the first to go. */
TEST(a_key_that_was_removed_is_no_new_key) {
  enum { ROOM = 1000, ROUNDS = 100000 };
  hutch_cache *cache = memory_of(ROOM, NULL);
  uint64_t random = 1;
  uint32_t hits = 0;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    hits += ask(cache, skewed(&random), 0);
    uint32_t key = skewed(&random);
    if (i % 3 == 0) hutch_remove(cache, &key, sizeof key);
  }
  CHECK(hits > ROUNDS / 1000 * 653);
  CHECK_OK(hutch_close(cache));
}

/* So does one that was used before it expired. */
TEST(a_key_that_has_expired_is_no_new_key) {
  enum { ROOM = 600, POPULAR = 256, ROUNDS = 100000, STEP = 1000 };
  test_clock clock = {0};
  hutch_cache *cache = memory_of(ROOM, &clock);
  uint64_t random = 1;
  uint32_t hits = 0;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    clock.now += STEP;
    uint32_t key = skewed(&random);
    hits += ask(cache, key, key < POPULAR ? 1000 * STEP : 0);
  }
  CHECK(hits > ROUNDS / 1000 * 684);
  CHECK_OK(hutch_close(cache));
}
