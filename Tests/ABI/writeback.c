/* Writing on eviction: what such puts store where, what becomes of them when memory lets them go,
   and that no moment misses one. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static hutch_options deferring_options(void) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  return options;
}

static hutch_put_options deferred(void) {
  hutch_put_options put = put_options();
  put.write_policy = HUTCH_WRITE_ON_EVICTION;
  return put;
}

static hutch_cache *open_deferring(void) {
  hutch_options options = deferring_options();
  return open_cache(scratch("cache").text, &options);
}

static void check_where(hutch_cache *cache, const char *key, bool in_memory, bool on_disk) {
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY), *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_STATUS(in_memory ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(memory, KEY(key)));
  CHECK_STATUS(on_disk ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(disk, KEY(key)));
  hutch_cache_release(memory);
  hutch_cache_release(disk);
}

/* -------------------------------------------------------------------- puts */

TEST(a_deferred_put_is_in_memory_and_what_the_disk_had_is_gone) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_put_options put = deferred();
  hutch_put_result result = new_result();
  CHECK_OK(put_text(cache, "a", "old"));
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("new"), &put, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_DEFERRED, result.disk);
  check_where(cache, "a", true, false);
  CHECK_TEXT(cache, "a", "new");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(HUTCH_TIER_MEMORY, info_of(cache, "a").tier);
  CHECK_OK(hutch_flush(cache));
  check_where(cache, "a", true, true);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "a", "new");
  CHECK_OK(hutch_close(cache));
}

TEST(a_close_writes_what_was_deferred) {
  hutch_cache *cache = open_deferring();
  for (int i = 0; i < 300; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_OK(put_text(cache, key, key));
  }
  check_where(cache, "7", true, false);
  CHECK_OK(hutch_close(cache));
  cache = open_deferring();
  CHECK_EQUAL(300, count_of(cache));
  CHECK_TEXT(cache, "7", "7");
  CHECK_OK(hutch_close(cache));
}

TEST(an_eviction_writes_the_whole_record) {
  test_clock clock = {0};
  hutch_options options = deferring_options();
  options.policy = HUTCH_POLICY_LRU;
  options.memory.count = 2;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = put_options();
  put.time_to_live = 100 * HUTCH_SECOND;
  put.time_to_idle = 50 * HUTCH_SECOND;
  put.cost = 77;
  put.extended = "more";
  put.extended_size = 4;
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("value"), &put, &result));
  hutch_entry_info before = info_of(cache, "a");
  CHECK_OK(put_text(cache, "b", "b"));
  CHECK_OK(put_text(cache, "c", "c"));
  check_where(cache, "a", false, true);
  hutch_entry_info after = info_of(cache, "a");
  CHECK_EQUAL(HUTCH_TIER_DISK, after.tier);
  CHECK_EQUAL(result.version, after.version);
  CHECK_EQUAL(before.created, after.created);
  CHECK_EQUAL(before.expires, after.expires);
  CHECK_EQUAL(before.time_to_idle, after.time_to_idle);
  CHECK_EQUAL(77, after.cost);
  CHECK_EQUAL(4, after.extended_size);
  CHECK_EQUAL(before.checksum, after.checksum);
  CHECK_EQUAL(3, count_of(cache));
  CHECK_OK(hutch_flush(cache));
  CHECK_EQUAL(3, count_of(cache));
  after = info_of(cache, "a");
  CHECK_EQUAL(result.version, after.version);
  CHECK_EQUAL(before.expires, after.expires);
  CHECK_EQUAL(77, after.cost);
  CHECK_OK(hutch_close(cache));
}

TEST(many_evictions_lose_nothing) {
  hutch_options options = deferring_options();
  options.memory.count = 100;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int i = 0; i < 5000; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_OK(put_text(cache, key, key));
    CHECK_EQUAL(i + 1, count_of(cache));
  }
  for (int i = 0; i < 5000; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_TEXT(cache, key, key);
  }
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(5000, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------------------- threads */

/* Each thread has keys of its own, so it knows what it put last; gets of the others' keys must
   find some version that was put. Far fewer fit into memory than there are. */
enum { THREADS = 4, KEYS_EACH = 150, IN_MEMORY_AT_ONCE = 40 };

typedef struct hammered {
  hutch_cache *cache;
  uint64_t seed;
  int rounds;
  /* What each key's owner has put last, and is putting. */
  _Atomic uint32_t completed[THREADS][KEYS_EACH], begun[THREADS][KEYS_EACH];
} hammered;

static void check_read(hammered *h, int owner, int k) {
  char key[32];
  sprintf(key, "%d %d", owner, k);
  uint32_t least = atomic_load(&h->completed[owner][k]), value[50];
  size_t size = 0;
  hutch_status status = hutch_get_into(h->cache, KEY(key), value, sizeof value, &size);
  uint32_t most = atomic_load(&h->begun[owner][k]);
  if (status == HUTCH_NOT_FOUND && least == 0) return;
  if (status != HUTCH_OK) FAIL("seed %llu: %s answers %s after put %u", (unsigned long long)h->seed,
                               key, hutch_status_name(status), least);
  if (value[0] < least || value[0] > most)
    FAIL("seed %llu: %s is %u, put was %u, is being %u", (unsigned long long)h->seed, key, value[0],
         least, most);
}

static void hammer(void *context, int index) {
  hammered *h = context;
  uint64_t random = h->seed + (uint64_t)index;
  uint32_t value[50] = {0};
  const uint32_t policies[] = {HUTCH_WRITE_ON_EVICTION, HUTCH_WRITE_ON_EVICTION,
                               HUTCH_WRITE_ON_EVICTION, HUTCH_WRITE_THROUGH, HUTCH_WRITE_DISK};
  for (int round = 0; round < h->rounds; round++) {
    uint64_t r = next_random(&random);
    int k = (int)(r % KEYS_EACH);
    char key[32];
    sprintf(key, "%d %d", index, k);
    switch ((r >> 32) % 8) {
      case 0: case 1: case 2: case 3: {
        hutch_put_options put = put_options();
        put.write_policy = policies[(r >> 40) % 5];
        value[0] = atomic_load(&h->completed[index][k]) + 1;
        atomic_store(&h->begun[index][k], value[0]);
        CHECK_OK(hutch_put(h->cache, KEY(key), value, 4 + (r >> 48) % 190, &put, NULL));
        atomic_store(&h->completed[index][k], value[0]);
        break;
      }
      case 4:
        if (atomic_load(&h->completed[index][k])) CHECK_OK(hutch_touch(h->cache, KEY(key), 0, 0));
        break;
      case 5:
        check_read(h, index, k);
        break;
      default:
        check_read(h, (int)((r >> 16) % THREADS), k);
    }
    if (index == 0 && round % 500 == 499) {
      hutch_cache *memory = tier_of(h->cache, HUTCH_TIER_MEMORY);
      switch (round / 500 % 4) {
        case 0: CHECK_OK(hutch_flush(h->cache)); break;
        case 1: CHECK_OK(hutch_clear(memory)); break;
        case 2: CHECK_OK(hutch_notify(h->cache, HUTCH_NOTIFY_MEMORY_WARNING)); break;
        default: hutch_remove(memory, KEY(key));
      }
      hutch_cache_release(memory);
    }
  }
}

TEST(no_get_misses_an_entry_on_its_way_from_memory_to_disk) {
  const uint32_t policies[] = {HUTCH_POLICY_ADAPTIVE, HUTCH_POLICY_LRU};
  for (int i = 0; i < 2; i++) {
    hutch_options options = deferring_options();
    options.memory.count = IN_MEMORY_AT_ONCE;
    options.policy = policies[i];
    options.inline_threshold = 100;
    hammered h = {.seed = seed(), .rounds = 1500 * scale()};
    char name[8];
    sprintf(name, "%d", i);
    h.cache = open_cache(scratch(name).text, &options);
    run_threads(THREADS, hammer, &h);
    uint64_t expected = 0;
    for (int t = 0; t < THREADS; t++)
      for (int k = 0; k < KEYS_EACH; k++) {
        check_read(&h, t, k);
        if (h.completed[t][k]) expected++;
      }
    CHECK_OK(hutch_flush(h.cache));
    CHECK_EQUAL(expected, count_of(h.cache));
    CHECK_OK(hutch_close(h.cache));
    h.cache = open_cache(scratch(name).text, &options);
    CHECK_EQUAL(expected, count_of(h.cache));
    for (int t = 0; t < THREADS; t++)
      for (int k = 0; k < KEYS_EACH; k++) check_read(&h, t, k);
    CHECK_OK(hutch_close(h.cache));
  }
}
