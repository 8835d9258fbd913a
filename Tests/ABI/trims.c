/* The group 'trim' of hutch.h: what a trim removes, how much, and what it leaves alone. */
#include "check.h"

#define MANY 3000

/* Without limits, on a clock. */
static hutch_cache *open_policy(uint32_t policy, test_clock *clock) {
  hutch_options options = unlimited_options();
  options.policy = policy;
  use_clock(&options, clock);
  /* The cache's own thread would take what expires, if a second went by. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  return open_cache(NULL, &options);
}

static uint64_t trim(hutch_cache *cache, uint32_t kind, uint64_t amount, int64_t time) {
  hutch_trim_spec spec = {
      .struct_size = sizeof spec, .kind = kind, .amount = amount, .time = time};
  uint64_t removed = 99;
  uint64_t before = count_of(cache);
  CHECK_OK(hutch_trim(cache, &spec, &removed));
  CHECK_EQUAL(before - count_of(cache), removed);
  return removed;
}

static void put_costing(hutch_cache *cache, uint32_t key, uint64_t cost) {
  hutch_put_options options = put_options();
  options.cost = cost;
  CHECK_OK(hutch_put(cache, &key, sizeof key, "value", 5, &options, NULL));
}

static bool has(hutch_cache *cache, uint32_t key) {
  hutch_status status = hutch_contains(cache, &key, sizeof key);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  return status == HUTCH_OK;
}

static void use(hutch_cache *cache, uint32_t key) {
  size_t size;
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL,
               hutch_get_into(cache, &key, sizeof key, NULL, 0, &size));
}

static const uint32_t policies[] = {HUTCH_POLICY_LRU, HUTCH_POLICY_LFU, HUTCH_POLICY_FIFO,
                                    HUTCH_POLICY_ADAPTIVE};
#define EACH_POLICY(i) for (int i = 0; i < 4; i++)

TEST(to_a_count_by_policy) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < MANY; i++) put_costing(cache, i, 10);
    for (uint32_t i = 0; i < MANY; i += 3) use(cache, i);
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_TO_COUNT, MANY, 0));
    CHECK_EQUAL(2000, trim(cache, HUTCH_TRIM_TO_COUNT, 1000, 0));
    /* Only fifo cares nothing for what was used. */
    if (policies[p] != HUTCH_POLICY_FIFO && policies[p] != HUTCH_POLICY_ADAPTIVE)
      for (uint32_t i = 0; i < MANY; i++) CHECK_EQUAL(i % 3 == 0, has(cache, i));
    if (policies[p] == HUTCH_POLICY_FIFO)
      for (uint32_t i = 0; i < MANY; i++) CHECK_EQUAL(i >= 2000, has(cache, i));
    CHECK_EQUAL(2000, stats_of(cache).memory.trims);
    CHECK_EQUAL(0, stats_of(cache).memory.evictions);
    CHECK_EQUAL(1000, trim(cache, HUTCH_TRIM_TO_COUNT, 0, 0));
    CHECK_EQUAL(0, cost_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(to_a_cost_and_no_further) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < MANY; i++) put_costing(cache, i, 10);
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_TO_COST, MANY * 10, 0));
    CHECK_EQUAL(1, trim(cache, HUTCH_TRIM_TO_COST, MANY * 10 - 1, 0));
    CHECK_EQUAL(499, trim(cache, HUTCH_TRIM_TO_COST, 10 * (MANY - 500), 0));
    CHECK_EQUAL(10 * (MANY - 500), cost_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}

/* Charges of all magnitudes in no order: what goes are the highest, and not one too many. */
TEST(largest_first) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    uint64_t state = seed(), sum = 0, most_left = 0, least_gone = UINT64_MAX, removed_cost = 0;
    static uint64_t costs[MANY];
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < MANY; i++) {
      costs[i] = 1 + (next_random(&state) >> (16 + next_random(&state) % 48));
      sum += costs[i];
      put_costing(cache, i, costs[i]);
    }
    uint64_t aim = sum / 1000;
    uint64_t removed = trim(cache, HUTCH_TRIM_LARGEST_FIRST, aim, 0);
    CHECK(removed > 0 && cost_of(cache) <= aim);
    for (uint32_t i = 0; i < MANY; i++) {
      if (has(cache, i)) {
        if (costs[i] > most_left) most_left = costs[i];
      } else {
        if (costs[i] < least_gone) least_gone = costs[i];
        removed_cost += costs[i];
      }
    }
    CHECK(most_left <= least_gone);
    CHECK(sum - removed_cost + least_gone > aim);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(least_recently_accessed_first) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < 100; i++) put_costing(cache, i, 10);
    /* Accesses are known to within minutes. */
    for (uint32_t i = 0; i < 100; i++) {
      clock.now += 10 * HUTCH_MINUTE;
      use(cache, i * 37 % 100);
    }
    CHECK_EQUAL(60, trim(cache, HUTCH_TRIM_LEAST_RECENT, 400, 0));
    for (uint32_t i = 0; i < 100; i++) CHECK_EQUAL(i >= 60, has(cache, i * 37 % 100));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(least_frequently_accessed_first) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < 100; i++) put_costing(cache, i, 10);
    for (uint32_t i = 0; i < 100; i += 2) use(cache, i);
    for (uint32_t i = 0; i < 100; i += 4) use(cache, i);
    CHECK_EQUAL(50, trim(cache, HUTCH_TRIM_LEAST_FREQUENT, 500, 0));
    for (uint32_t i = 0; i < 100; i++) CHECK_EQUAL(i % 2 == 0, has(cache, i));
    CHECK_EQUAL(25, trim(cache, HUTCH_TRIM_LEAST_FREQUENT, 250, 0));
    for (uint32_t i = 0; i < 100; i++) CHECK_EQUAL(i % 4 == 0, has(cache, i));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(by_the_time_of_the_write) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    int64_t start = 20500 * HUTCH_DAY;
    for (uint32_t i = 0; i < 100; i++) {
      clock.now = start + i * HUTCH_SECOND;
      put_costing(cache, i, 10);
    }
    for (uint32_t i = 0; i < 100; i += 7) use(cache, i);
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, INT64_MIN));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, 0));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, start));
    CHECK_EQUAL(1, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, start + 1));
    CHECK_EQUAL(19, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, start + 20 * HUTCH_SECOND));
    CHECK(!has(cache, 19) && has(cache, 20));
    /* It is 99 s after the start; a touch counts as a write. */
    uint32_t touched = 30;
    CHECK_OK(hutch_touch(cache, &touched, sizeof touched, 0, 0));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_OLDER_THAN, 0, INT64_MAX));
    CHECK_EQUAL(19, trim(cache, HUTCH_TRIM_OLDER_THAN, 0, 59 * HUTCH_SECOND));
    CHECK(has(cache, 30) && !has(cache, 39) && has(cache, 40));
    CHECK_EQUAL(59, trim(cache, HUTCH_TRIM_OLDER_THAN, 0, 0));
    CHECK_EQUAL(2, count_of(cache));
    CHECK_EQUAL(2, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, INT64_MAX));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(idle_for_a_while) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < 100; i++) put_costing(cache, i, 10);
    clock.now += HUTCH_HOUR;
    for (uint32_t i = 0; i < 100; i += 5) use(cache, i);
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_IDLE_FOR, 0, 2 * HUTCH_HOUR));
    CHECK_EQUAL(80, trim(cache, HUTCH_TRIM_IDLE_FOR, 0, HUTCH_HOUR / 2));
    for (uint32_t i = 0; i < 100; i++) CHECK_EQUAL(i % 5 == 0, has(cache, i));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(accessed_before_a_time) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    int64_t begin = clock.now;
    for (uint32_t i = 0; i < 100; i++) put_costing(cache, i, 10);
    clock.now += HUTCH_HOUR;
    for (uint32_t i = 0; i < 100; i += 5) use(cache, i);
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_ACCESSED_BEFORE, 0, begin));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_ACCESSED_BEFORE, 0, INT64_MIN));
    CHECK_EQUAL(80, trim(cache, HUTCH_TRIM_ACCESSED_BEFORE, 0, begin + HUTCH_HOUR / 2));
    for (uint32_t i = 0; i < 100; i++) CHECK_EQUAL(i % 5 == 0, has(cache, i));
    CHECK_EQUAL(20, trim(cache, HUTCH_TRIM_ACCESSED_BEFORE, 0, INT64_MAX));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(accessed_before_a_time_on_disk) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 50; i++) put_costing(disk, i, 10);
  int64_t begin = clock.now;
  clock.now += HUTCH_HOUR;
  for (uint32_t i = 0; i < 50; i += 5) use(disk, i);
  clock.now += HUTCH_HOUR;
  CHECK_EQUAL(0, trim(disk, HUTCH_TRIM_ACCESSED_BEFORE, 0, begin - HUTCH_MINUTE));
  CHECK_EQUAL(40, trim(disk, HUTCH_TRIM_ACCESSED_BEFORE, 0, begin + HUTCH_HOUR / 2));
  for (uint32_t i = 0; i < 50; i++) CHECK_EQUAL(i % 5 == 0, has(disk, i));
  CHECK_EQUAL(10, trim(disk, HUTCH_TRIM_ACCESSED_BEFORE, 0, begin + 2 * HUTCH_HOUR));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(larger_than_a_size) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    char data[300] = {0};
    for (uint32_t i = 0; i < 300; i++)
      CHECK_OK(hutch_put(cache, &i, sizeof i, data, i, NULL, NULL));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_LARGER_THAN, UINT64_MAX, 0));
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_LARGER_THAN, 299, 0));
    CHECK_EQUAL(199, trim(cache, HUTCH_TRIM_LARGER_THAN, 100, 0));
    CHECK(has(cache, 100) && !has(cache, 101));
    CHECK_EQUAL(100, trim(cache, HUTCH_TRIM_LARGER_THAN, 0, 0));
    CHECK(has(cache, 0));
    CHECK_OK(hutch_close(cache));
  }
}

/* The tier's cost is 0 then. */
static void remove_what_costs_nothing(fixture *f, kind k) {
  (void)k;
  hutch_trim_spec spec = {
      .struct_size = sizeof spec, .kind = HUTCH_TRIM_LARGER_THAN, .amount = 4};
  for (uint32_t i = 0; i < 3; i++) put_costing(f->cache, i, HUTCH_NO_COST);
  CHECK_OK(hutch_trim(f->cache, &spec, NULL));
  for (uint32_t i = 0; i < 3; i++) CHECK(!has(f->cache, i));
  for (uint32_t i = 0; i < 3; i++) put_costing(f->cache, i, HUTCH_NO_COST);
  CHECK_OK(hutch_clear(f->cache));
  for (uint32_t i = 0; i < 3; i++) CHECK(!has(f->cache, i));
  CHECK_EQUAL(0, count_of(f->cache));
}

TEST(entries_without_a_cost_go) { for_each_kind(remove_what_costs_nothing); }

TEST(the_expired) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    hutch_put_options options = put_options();
    for (uint32_t i = 0; i < 100; i++) {
      options.time_to_live = i % 4 == 0 ? HUTCH_SECOND : i % 4 == 1 ? HUTCH_FOREVER : 0;
      options.time_to_idle = i % 4 == 2 ? HUTCH_SECOND : 0;
      CHECK_OK(hutch_put(cache, &i, sizeof i, "v", 1, &options, NULL));
    }
    CHECK_EQUAL(0, trim(cache, HUTCH_TRIM_EXPIRED, 0, 0));
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
    uint64_t removed;
    clock.now += HUTCH_SECOND;
    CHECK_OK(hutch_trim(cache, &spec, &removed));
    CHECK_EQUAL(50, removed);
    CHECK_EQUAL(50, count_of(cache));
    CHECK_EQUAL(50, stats_of(cache).memory.expirations);
    CHECK_EQUAL(0, stats_of(cache).memory.trims);
    CHECK_OK(hutch_close(cache));
  }
}

/* Over several shards, whatever their number, a trim is as exact. */
TEST(over_many_shards) {
  enum { COUNT = 40000 };
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (uint32_t i = 0; i < COUNT; i++) put_costing(cache, i, 1 + i % 1000);
    CHECK_EQUAL(COUNT / 1000 * 100, trim(cache, HUTCH_TRIM_LARGEST_FIRST,
                                         COUNT / 1000 * (900 * 901 / 2), 0));
    for (uint32_t i = 0; i < COUNT; i++) CHECK_EQUAL(i % 1000 < 900, has(cache, i));
    trim(cache, HUTCH_TRIM_TO_COUNT, 12345, 0);
    CHECK_EQUAL(12345, count_of(cache));
    CHECK_EQUAL(12345, trim(cache, HUTCH_TRIM_WRITTEN_BEFORE, 0, clock.now + 1));
    CHECK_OK(hutch_close(cache));
  }
}

typedef struct watch {
  hutch_cache *cache;
  uint64_t last, calls, stop_at;
} watch;

static int32_t on_progress(void *context, uint64_t removed, uint64_t total) {
  watch *w = context;
  CHECK(removed >= w->last);
  CHECK(total == 0 || removed <= total);
  w->last = removed;
  w->calls++;
  /* No lock is held: the cache may be used, but not waited for. */
  CHECK_OK(put_text(w->cache, "from the callback", "value"));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(w->cache));
  return removed >= w->stop_at;
}

TEST(progress_tells_and_stops) {
  EACH_POLICY(p) {
    test_clock clock = {0};
    hutch_cache *cache = open_policy(policies[p], &clock);
    for (int stopping = 0; stopping < 2; stopping++)
      for (uint32_t kind = HUTCH_TRIM_TO_COST; kind <= HUTCH_TRIM_LARGER_THAN; kind++) {
        for (uint32_t i = 0; i < MANY; i++) put_costing(cache, i, 10);
        clock.now += HUTCH_HOUR;
        watch w = {cache, 0, 0, stopping ? 50 : UINT64_MAX};
        hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind, .amount = 4,
                                .progress = on_progress, .context = &w};
        spec.time = kind == HUTCH_TRIM_WRITTEN_BEFORE ? clock.now : HUTCH_SECOND;
        uint64_t removed = 0;
        CHECK_OK(hutch_trim(cache, &spec, &removed));
        CHECK(w.calls > 0);
        CHECK_EQUAL(w.last, removed);
        if (stopping) CHECK(removed >= 50 && removed < 100);
        else CHECK(removed >= MANY - 4);
      }
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_bad_spec_removes_nothing) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  uint64_t removed = 9;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_trim(cache, NULL, &removed));
  CHECK_EQUAL(0, removed);
  hutch_trim_spec spec = {.struct_size = sizeof spec};
  const uint32_t no_kinds[] = {0, 12, 99, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    spec.kind = no_kinds[i];
    CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_trim(cache, &spec, &removed));
  }
  spec.kind = HUTCH_TRIM_OLDER_THAN;
  spec.time = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_trim(cache, &spec, NULL));
  spec.kind = HUTCH_TRIM_IDLE_FOR;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_trim(cache, &spec, NULL));
  spec.kind = HUTCH_TRIM_TO_COUNT;
  spec.reserved = 1;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_trim(cache, &spec, NULL));
  spec.reserved = 0;
  spec.struct_size = 0;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_trim(cache, &spec, NULL));
  CHECK_TEXT(cache, "key", "value");
  /* An older header knows no progress. */
  spec.struct_size = offsetof(hutch_trim_spec, progress);
  spec.progress = on_progress;
  CHECK_OK(hutch_trim(cache, &spec, NULL));
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------------------- threads */

typedef struct crowd {
  hutch_cache *cache;
  _Atomic int running;
} crowd;

static void put_or_trim(void *context, int index) {
  crowd *c = context;
  uint64_t state = seed() + (uint64_t)index;
  if (index > 0) {
    for (int i = 0; i < repeats(20000); i++) {
      uint32_t key = (uint32_t)(next_random(&state) % 5000);
      if (next_random(&state) % 2)
        put_costing(c->cache, key, 1 + key % 50);
      else
        hutch_contains(c->cache, &key, sizeof key);
    }
    atomic_fetch_sub(&c->running, 1);
    return;
  }
  hutch_trim_spec spec = {.struct_size = sizeof spec};
  while (atomic_load(&c->running) > 0) {
    spec.kind = HUTCH_TRIM_TO_COST + (uint32_t)(next_random(&state) % 9);
    spec.amount = next_random(&state) % 50000;
    spec.time = (int64_t)(next_random(&state) % HUTCH_SECOND);
    CHECK_OK(hutch_trim(c->cache, &spec, NULL));
  }
}

static void put_and_trim(void *context, int index) {
  crowd *c = context;
  uint64_t state = seed() + (uint64_t)index;
  for (int i = 0; i < repeats(1000); i++) {
    for (int n = 0; n < 10; n++)
      put_costing(c->cache, (uint32_t)(next_random(&state) % 100), 1 + next_random(&state) % 50);
    hutch_trim_spec spec = {.struct_size = sizeof spec,
                            .kind = HUTCH_TRIM_LARGEST_FIRST + (uint32_t)(next_random(&state) % 3),
                            .amount = next_random(&state) % 500};
    CHECK_OK(hutch_trim(c->cache, &spec, NULL));
  }
}

/* What one is about to remove another has removed. */
TEST(several_trims_at_once) {
  hutch_options options = unlimited_options();
  crowd c = {open_cache(NULL, &options), 0};
  run_threads(4, put_and_trim, &c);
  CHECK_OK(hutch_close(c.cache));
}

/* Whatever others do: trims end, sums agree with what is there, and nothing is lost twice. */
TEST(while_others_write) {
  hutch_options options = unlimited_options();
  crowd c = {open_cache(NULL, &options), 2};
  run_threads(3, put_or_trim, &c);
  uint64_t count = 0, cost = 0;
  for (uint32_t i = 0; i < 5000; i++)
    if (has(c.cache, i)) {
      count++;
      cost += 1 + i % 50;
    }
  CHECK_EQUAL(count, count_of(c.cache));
  CHECK_EQUAL(cost, cost_of(c.cache));
  CHECK_EQUAL(count, trim(c.cache, HUTCH_TRIM_TO_COST, 0, 0));
  CHECK_OK(hutch_close(c.cache));
}

typedef struct newcomers {
  hutch_cache *cache;
  uint32_t puts;
} newcomers;

static int32_t put_another(void *context, uint64_t removed, uint64_t total) {
  (void)removed;
  (void)total;
  newcomers *n = context;
  put_costing(n->cache, MANY + n->puts++, 10);
  return n->puts == 1000;
}

/* Each look for the entries to remove misses what is put meanwhile, which is no reason to look
   again and again. */
TEST(a_trim_on_disk_ends_while_others_put) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t kind = HUTCH_TRIM_TO_COST; kind <= HUTCH_TRIM_LEAST_FREQUENT; kind++) {
    for (uint32_t i = 0; i < MANY; i++) put_costing(disk, i, 10);
    /* The cost of a database has its log, too, which goes first. */
    uint64_t all = kind == HUTCH_TRIM_TO_COUNT ? count_of(disk) : cost_of(disk);
    newcomers n = {disk, 0};
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind, .amount = all / 32,
                            .progress = put_another, .context = &n};
    CHECK_OK(hutch_trim(disk, &spec, NULL));
    CHECK(n.puts > 0 && n.puts < 200);
    CHECK_OK(hutch_clear(disk));
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- tiers */

TEST(each_tier_by_itself) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < 100; i++) put_costing(cache, i, 10);
  hutch_trim_spec spec = {
      .struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 70};
  uint64_t removed = 0;
  CHECK_OK(hutch_trim(memory, &spec, &removed));
  CHECK_EQUAL(30, removed);
  CHECK_EQUAL(100, count_of(cache));
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(30, removed);
  CHECK_EQUAL(70, count_of(disk));
  spec.amount = 20;
  CHECK_OK(hutch_trim(cache, &spec, &removed));
  CHECK_EQUAL(100, removed);
  CHECK_EQUAL(20, count_of(memory));
  CHECK_EQUAL(20, count_of(disk));
  /* What has gone from both has gone. */
  spec.kind = HUTCH_TRIM_LARGER_THAN;
  spec.amount = 0;
  CHECK_OK(hutch_trim(cache, &spec, &removed));
  CHECK_EQUAL(40, removed);
  CHECK_EQUAL(0, count_of(cache));
  for (uint32_t i = 0; i < 100; i++) CHECK(!has(cache, i));
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* Every kind takes from a cache of both tiers at least what it takes from one in memory. */
TEST(every_kind_on_two_tiers) {
  for (uint32_t kind = HUTCH_TRIM_EXPIRED; kind <= HUTCH_TRIM_LARGER_THAN; kind++) {
    hutch_options options = unlimited_options();
    test_clock clock = {0};
    use_clock(&options, &clock);
    char name[16];
    snprintf(name, sizeof name, "kind %u", kind);
    check_note(name);
    hutch_cache *cache = open_cache(scratch(name).text, &options);
    hutch_put_options put = put_options();
    if (kind == HUTCH_TRIM_EXPIRED) put.time_to_live = HUTCH_DAY;
    for (uint32_t i = 0; i < 50; i++)
      CHECK_OK(hutch_put(cache, &i, sizeof i, "value", 5, &put, NULL));
    clock.now += HUTCH_DAY + HUTCH_HOUR;
    for (uint32_t i = 50; i < 100; i++) {
      put.time_to_live = HUTCH_FOREVER;
      CHECK_OK(hutch_put(cache, &i, sizeof i, "value", 5, &put, NULL));
    }
    clock.now += 1;
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind};
    if (kind == HUTCH_TRIM_WRITTEN_BEFORE) spec.time = clock.now;
    uint64_t removed = 0;
    CHECK_OK(hutch_trim(cache, &spec, &removed));
    CHECK_EQUAL(kind == HUTCH_TRIM_EXPIRED ? 50 : 0, count_of(cache));
    /* What has expired the maintenance thread may have found first. */
    CHECK(kind == HUTCH_TRIM_EXPIRED || removed >= 100);
    CHECK_OK(hutch_close(cache));
  }
  check_note(NULL);
}

/* ------------------------------------------------- what has expired goes first */

static void put_for(hutch_cache *cache, const char *key, int64_t time_to_live) {
  hutch_put_options put = put_options();
  put.time_to_live = time_to_live;
  put.cost = 100;
  CHECK_OK(hutch_put(cache, key, strlen(key), "value", 5, &put, NULL));
}

/* 20 that have expired, between 20 that live. */
static hutch_cache *half_expired(test_clock *clock, uint32_t policy, uint64_t limit) {
  hutch_options options = unlimited_options();
  options.policy = policy;
  options.memory.count = limit;
  /* Maintenance would remove some of them first. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(&options, clock);
  hutch_cache *cache = open_cache(NULL, &options);
  for (int i = 0; i < 40; i++) {
    char key[16];
    sprintf(key, "%d", i);
    put_for(cache, key, i % 2 ? HUTCH_SECOND : HUTCH_DAY);
  }
  clock->now += 2 * HUTCH_SECOND;
  return cache;
}

static void check_living(hutch_cache *cache) {
  for (int i = 0; i < 40; i += 2) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_TEXT(cache, key, "value");
  }
}

TEST(an_expired_entry_goes_before_a_live_one) {
  static const uint32_t policies[] = {HUTCH_POLICY_DEFAULT, HUTCH_POLICY_LRU, HUTCH_POLICY_LFU,
                                      HUTCH_POLICY_FIFO};
  for (int i = 0; i < 4; i++) {
    /* At the limit: puts make room. */
    test_clock clock = {0};
    hutch_cache *cache = half_expired(&clock, policies[i], 40);
    for (int j = 0; j < 20; j++) {
      char key[16];
      sprintf(key, "new %d", j);
      put_for(cache, key, HUTCH_DAY);
    }
    check_living(cache);
    CHECK_OK(hutch_close(cache));
    /* Trims, and a new limit. */
    for (int way = 0; way < 3; way++) {
      test_clock other = {0};
      cache = half_expired(&other, policies[i], HUTCH_NO_LIMIT);
      uint64_t removed = 0;
      hutch_trim_spec spec = {.struct_size = sizeof spec};
      spec.kind = way ? HUTCH_TRIM_TO_COST : HUTCH_TRIM_TO_COUNT;
      spec.amount = way ? 2000 : 20;
      if (way < 2) {
        CHECK_OK(hutch_trim(cache, &spec, &removed));
        CHECK_EQUAL(20, removed);
      } else {
        hutch_cache_limits limits = limits_of(cache);
        limits.memory.count = 20;
        CHECK_OK(hutch_set_limits(cache, &limits));
      }
      check_living(cache);
      CHECK_OK(hutch_close(cache));
    }
  }
}

/* --------------------------------------------- ages that act in trims alone */

static uint64_t trim_expired(hutch_cache *cache) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  uint64_t removed = 99;
  CHECK_OK(hutch_trim(cache, &spec, &removed));
  return removed;
}

static void put_aging(hutch_cache *cache, const char *key, int64_t time_to_live) {
  hutch_put_options options = put_options();
  options.time_to_live = time_to_live;
  CHECK_OK(hutch_put(cache, KEY(key), "value", 5, &options, NULL));
}

static hutch_options aging_on_trim(test_clock *clock, int64_t time_to_live, int64_t time_to_idle) {
  hutch_options options = unlimited_options();
  use_clock(&options, clock);
  options.flags = HUTCH_OPEN_AGES_ON_TRIM;
  options.memory.time_to_live = options.disk.time_to_live = time_to_live;
  options.memory.time_to_idle = options.disk.time_to_idle = time_to_idle;
  return options;
}

static void visit_key(hutch_cache *cache, const char *key) {
  hutch_cursor *cursor;
  const void *found;
  size_t size;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  int count = 0;
  while (hutch_cursor_next(cursor, &found, &size) == HUTCH_OK)
    count += size == strlen(key) && memcmp(found, key, size) == 0;
  CHECK_EQUAL(1, count);
  hutch_cursor_release(cursor);
}

TEST(ages_on_trim_end_no_entry_before_a_trim) {
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    test_clock clock = {0};
    hutch_options options = aging_on_trim(&clock, 10 * HUTCH_SECOND, HUTCH_FOREVER);
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(in_memory ? NULL : directory.text, &options);
    put_aging(cache, "old", 0);
    put_aging(cache, "own", 5 * HUTCH_SECOND);
    put_aging(cache, "ever", HUTCH_FOREVER);
    int64_t written = clock.now;
    clock.now += 20 * HUTCH_SECOND;
    put_aging(cache, "young", 0);
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_MISSING(cache, "own");
    CHECK_TEXT(cache, "old", "value");
    CHECK_EQUAL(3, count_of(cache));
    CHECK_EQUAL(written + 10 * HUTCH_SECOND, info_of(cache, "old").expires);
    visit_key(cache, "old");
    if (!in_memory) {
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      CHECK_TEXT(disk, "old", "value");
      visit_key(disk, "old");
      CHECK_EQUAL(written + 10 * HUTCH_SECOND, info_of(disk, "old").expires);
      hutch_cache_release(disk);
    }
    /* Also other limits of age, and another put. */
    hutch_cache_limits limits = {.struct_size = sizeof limits};
    limits.memory.time_to_live = limits.disk.time_to_live = 15 * HUTCH_SECOND;
    CHECK_OK(hutch_set_limits(cache, &limits));
    CHECK_TEXT(cache, "old", "value");
    CHECK_EQUAL(15 * HUTCH_SECOND, limits_of(cache).memory.time_to_live);
    CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("old"), "x", 1, NULL, NULL));
    CHECK_EQUAL(in_memory ? 1 : 2, trim_expired(cache)); /* of each tier */
    CHECK_MISSING(cache, "old");
    CHECK_TEXT(cache, "ever", "value");
    CHECK_TEXT(cache, "young", "value");
    CHECK_EQUAL(2, count_of(cache));
    CHECK_EQUAL(0, trim_expired(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(ages_on_trim_are_put_off_by_reads) {
  for (int tier = 0; tier < 3; tier++) {
    test_clock clock = {0};
    hutch_options options = aging_on_trim(&clock, HUTCH_FOREVER, 10 * HUTCH_SECOND);
    hutch_cache *whole = open_cache(tier ? scratch(tier == 1 ? "1" : "2").text : NULL, &options);
    hutch_cache *cache = tier == 2 ? tier_of(whole, HUTCH_TIER_DISK) : hutch_cache_retain(whole);
    put_aging(cache, "read", 0);
    put_aging(cache, "idle", 0);
    for (int i = 0; i < 3; i++) {
      clock.now += 8 * HUTCH_SECOND;
      CHECK_TEXT(cache, "read", "value");
    }
    CHECK_OK(hutch_maintain(whole, 0));
    CHECK_EQUAL(2, count_of(cache));
    CHECK_EQUAL(tier == 1 ? 2 : 1, trim_expired(whole));
    CHECK_MISSING(cache, "idle");
    CHECK_TEXT(cache, "read", "value");
    clock.now += HUTCH_HOUR;
    CHECK_OK(hutch_maintain(whole, 0));
    CHECK_TEXT(cache, "read", "value");
    hutch_cache_release(cache);
    CHECK_OK(hutch_close(whole));
  }
}

TEST(ages_on_trim_are_an_option_of_the_opening) {
  test_clock clock = {0};
  hutch_options options = aging_on_trim(&clock, 10 * HUTCH_SECOND, HUTCH_FOREVER), told;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options), *second;
  told = (hutch_options){.struct_size = sizeof told};
  CHECK_OK(hutch_get_options(cache, &told));
  CHECK_EQUAL(HUTCH_OPEN_AGES_ON_TRIM, told.flags);
  options.flags = 0;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &second));
  put_aging(second, "old", 0);
  clock.now += 20 * HUTCH_SECOND;
  CHECK_TEXT(second, "old", "value");
  CHECK_OK(hutch_close(second));
  /* Entries that have aged go before others. */
  put_aging(cache, "young", 0);
  CHECK_TEXT(cache, "old", "value");
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 1};
  CHECK_OK(hutch_trim(cache, &spec, NULL));
  CHECK_TEXT(cache, "young", "value");
  CHECK_MISSING(cache, "old");
  put_aging(cache, "last", 0);
  clock.now += 20 * HUTCH_SECOND;
  CHECK_TEXT(cache, "last", "value");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
  /* Without the flag what has aged goes, and counts no more. */
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(0, count_of(cache));
  CHECK_MISSING(cache, "last");
  CHECK_OK(hutch_close(cache));
}
