/* Random calls of several threads on few keys, in caches of every kind, and a judge over what
   they were answered (see judge.h). A run prints its seed, and HUTCH_SEED gives every thread the
   same calls again; how the threads meet is left to chance. Bounded by calls, never by time. */
#define _GNU_SOURCE
#include "player.h"


#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define IS_SLOW 1
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW 0
#endif

enum { THREADS = 4, CALLS = IS_SLOW ? 30 : 400 };

static void play_calls(void *context, int index) {
  table *t = context;
  player p = {.t = t, .random = t->seed + (uint64_t)index};
  play(&p, CALLS * scale());
}

/* Where memory tiers go by counters, a write of a key under a condition evicts what memory alone
   has of another key with the same counter: one chance in 65,536 for any two keys. Whether two of
   ours have the same. What is put into memory alone changes no counter. */
static bool keys_meet(const table *t) {
  hutch_cache_limits none = {sizeof none, no_limits(), no_limits()};
  hutch_put_options through = put_options();
  through.write_policy = HUTCH_WRITE_THROUGH;
  CHECK_OK(hutch_set_limits(t->cache, &none));
  for (uint8_t one = 0; one < KEYS; one++)
    for (uint8_t other = 0; other < KEYS; other++) {
      if (other == one) continue;
      CHECK_OK(hutch_put(t->cache, &other, 1, "", 0, NULL, NULL));
      CHECK_OK(hutch_put(t->memory, &one, 1, "", 0, NULL, NULL));
      CHECK_OK(hutch_replace(t->cache, &other, 1, "", 0, &through, NULL));
      if (hutch_contains(t->cache, &one, 1) != HUTCH_OK) return true;
    }
  return false;
}

static void let_go(void *context) { atomic_store(&((table *)context)->listener_has_gone, true); }

static void play_round(const round *r, uint64_t seed, const char *name) {
  char words[200];
  snprintf(words, sizeof words,
           "%s%s%s%s%s, policy %u, storage %u, write policy %u, sharing %u",
           r->disk ? "two tiers" : "in memory", r->limited ? ", limits" : "",
           r->ages ? ", ages" : "", r->listened ? ", listener" : "", r->views ? ", views" : "",
           r->policy, r->storage, r->write_policy, r->sharing);
  check_note(words);
  size_t facts = (size_t)(THREADS * CALLS * scale()) * 8 + 1000;
  table t = {.r = r, .seed = seed, .h = new_history(facts, facts)};
  hutch_options options = unlimited_options();
  options.policy = r->policy;
  options.inline_threshold = INLINE_SIZE;
  options.sharing = r->sharing;
  if (r->disk) {
    options.storage = r->storage;
    options.write_policy = r->write_policy;
  }
  if (r->limited) {
    options.memory.count = 4;
    options.memory.cost = 12000;
    options.memory.max_entry = 4000;
    options.disk.count = 7;
    options.disk.max_entry = 9000;
  }
  /* Without ages the system's clocks: they take another way. */
  if (r->ages) use_clock(&options, &t.clock);
  t.cache = open_cache(r->disk ? scratch(name).text : NULL, &options);
  t.memory = tier_of(t.cache, HUTCH_TIER_MEMORY);
  if (r->disk) t.disk = tier_of(t.cache, HUTCH_TIER_DISK);
  t.h->shares = r->sharing == HUTCH_SHARING_SHARED;
  if (r->listened)
    CHECK_OK(hutch_set_listener(t.cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE, note_event,
                                &t, let_go));
  run_threads(THREADS, play_calls, &t);
  /* The last of each key is still there. */
  while (atomic_load(&t.under_way) > 0) nap();
  player p = {.t = &t};
  for (uint8_t key = 0; key < KEYS; key++) get_key(&p, key);
  CHECK_OK(hutch_flush(t.cache));
  CHECK(count_of(t.cache) <= KEYS);
  hutch_cache_stats stats = stats_of(t.cache);
  CHECK_OK(hutch_set_listener(t.cache, 0, NULL, NULL, NULL));
  /* A last event of maintenance may be under way. */
  while (r->listened && !atomic_load(&t.listener_has_gone)) nap();
  char *verdict = judge(t.h, KEYS);
  bool has_counters = t.h->shares || (r->disk && r->storage == HUTCH_STORAGE_LOG);
  if (verdict && has_counters && keys_meet(&t)) {
    printf("two keys share a counter\n");
    free(verdict);
    verdict = NULL;
  }
  hutch_cache_release(t.memory);
  hutch_cache_release(t.disk);
  CHECK_OK(hutch_close(t.cache));
  CHECK_EQUAL(0, stats.disk.damaged);
  CHECK_EQUAL(0, stats.disk.failures);
  if (verdict) FAIL("%s", verdict);
  free_history(t.h);
  if (r->disk) remove_tree(scratch(name).text);
  check_note(NULL);
}

static const uint32_t policies[] = {HUTCH_POLICY_LRU, HUTCH_POLICY_LFU, HUTCH_POLICY_FIFO,
                                    HUTCH_POLICY_ADAPTIVE};

static void in_memory(bool limited, bool ages) {
  uint64_t random = seed();
  for (int i = 0; i < 8; i++) {
    round r = {.limited = limited, .ages = ages, .listened = limited || ages || i % 2,
               .policy = policies[i % 4]};
    play_round(&r, random + (uint64_t)i * 100, "cache");
  }
}

/* Every kind of storage with every write policy; that which writes on eviction is not for a
   directory that is shared. */
static void two_tiers(bool limited, bool ages, bool views, uint32_t sharing) {
  uint64_t random = seed();
  for (uint32_t i = 0; i < (sharing == HUTCH_SHARING_SHARED ? 12 : 16); i++) {
    round r = {.disk = true, .limited = limited, .ages = ages, .views = views,
               .listened = limited || ages || i % 2, .policy = policies[i % 4],
               .storage = HUTCH_STORAGE_MIXED + i % 4, .sharing = sharing,
               .write_policy = HUTCH_WRITE_THROUGH + i / 4};
    play_round(&r, random + i * 100, "cache");
  }
}

TEST(in_memory_without_limits_nothing_is_lost) { in_memory(false, false); }
TEST(in_memory_with_limits) { in_memory(true, false); }
TEST(in_memory_with_ages) { in_memory(false, true); }
TEST(in_memory_with_limits_and_ages) { in_memory(true, true); }
TEST(on_disk_without_limits_nothing_is_lost) {
  two_tiers(false, false, false, HUTCH_SHARING_EXCLUSIVE);
}
TEST(on_disk_through_every_view) { two_tiers(false, false, true, HUTCH_SHARING_EXCLUSIVE); }
TEST(on_disk_with_limits) { two_tiers(true, false, false, HUTCH_SHARING_EXCLUSIVE); }
TEST(on_disk_with_limits_and_ages_through_every_view) {
  two_tiers(true, true, true, HUTCH_SHARING_EXCLUSIVE);
}
TEST(on_disk_shared) { two_tiers(false, false, true, HUTCH_SHARING_SHARED); }
TEST(on_disk_shared_with_limits) { two_tiers(true, true, true, HUTCH_SHARING_SHARED); }
