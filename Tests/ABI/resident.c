/*
 * resident - the pages that a full memory tier has in memory, beside its limit of cost, for sizes
 * that malloc would keep up to three times as much for: by one thread, by several, and after others
 * have taken the writing over with other sizes. And the faults that values cost which take the place
 * of others. Each case is a process of its own.
 */
#define _GNU_SOURCE
#include "check.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The heap and the table take another way below 8 MB, and other limits are paid for below 64. */
enum { limit = 20 << 20, small_limit = 6 << 20, least_limit = 1 << 20, most_threads = 4 };

/* The size of a large tier, or the number of puts into one: half of it without HUTCH_LONG. */
static size_t halved(size_t count) { return scale() > 1 ? count : count / 2; }

typedef struct phase {
  int threads, least, most;
} phase;

typedef struct run {
  hutch_cache *cache;
  size_t limit;
  phase phase;
  uint64_t seed;
} run;

/* The process's own pages, without those of programs and libraries. */
static size_t resident(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  long all, pages, of_files;
  CHECK(file && fscanf(file, "%ld %ld %ld", &all, &pages, &of_files) == 3);
  fclose(file);
  return (size_t)(pages - of_files) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Each doubling of sizes is as likely as the others. */
static size_t size_of(const phase *phase, uint64_t r) {
  size_t least = (size_t)phase->least, most = (size_t)phase->most, doublings = 1;
  while (least << doublings <= most) doublings++;
  size_t from = least << (r >> 32) % doublings;
  size_t size = from + (r >> 8) % from;
  return size > most ? most : size;
}

static void put_some(void *context, int index) {
  const run *run = context;
  static char value[1 << 22];
  uint64_t state = run->seed * most_threads + (uint64_t)index + 1;
  for (size_t put = 0; put < 3 * run->limit / (size_t)run->phase.threads;) {
    char key[16] = {0};
    state = state * 6364136223846793005u + 1442695040888963407u;
    memcpy(key, &state, sizeof state);
    size_t size = size_of(&run->phase, state);
    CHECK_OK(hutch_put(run->cache, key, sizeof key, value, size, NULL, NULL));
    put += size + 80;
  }
}

/* True in a child of the process. In the parent false, once the child has ended well. */
static bool in_child(void) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has memory of its own");
#endif
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) return true;
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQUAL(0, status);
  return false;
}

/* Of the tier. */
static int64_t time_to_live;

static void check_phases(size_t limit, uint32_t policy, const phase *phases, int count) {
  if (!in_child()) return;
  size_t before = resident();
  hutch_options options = unlimited_options();
  options.memory.cost = limit;
  options.memory.time_to_live = time_to_live;
  options.policy = policy;
  run run = {open_cache(NULL, &options), limit, phases[0], 1};
  for (int i = 0; i < count; i++, run.seed++) {
    run.phase = phases[i];
    /* A thread has memory of its own. */
    if (run.phase.threads == 1) put_some(&run, 0);
    else run_threads(run.phase.threads, put_some, &run);
    uint64_t cost;
    CHECK_OK(hutch_cost(run.cache, &cost));
    double share = (double)(resident() - before) / (double)limit;
    printf("%d threads, %d to %d bytes: charged %.3f, resident %.3f of the limit\n",
           run.phase.threads, run.phase.least, run.phase.most, (double)cost / (double)limit, share);
    fflush(stdout);
    CHECK(cost <= limit && cost > limit / 100 * 70);
    /* The smaller a tier, the more weighs a value that is in use or was freed. A seventh is what
       the README promises of tiers of 1 to 4 MB. */
    CHECK(share < (limit == least_limit ? 1.15 : limit <= 4 << 20 ? 8.0 / 7 : 1.12));
  }
  CHECK_OK(hutch_close(run.cache));
  /* What is free is the system's again, but for what malloc keeps, and a stack for each thread. */
  CHECK(resident() - before < (256 << 10));
  _exit(0);
}

#define CHECK_PHASES_OF(limit, policy, ...) \
  check_phases(limit, policy, (const phase[]){__VA_ARGS__}, \
               (int)(sizeof(const phase[]){__VA_ARGS__} / sizeof(phase)))
#define CHECK_PHASES(...) CHECK_PHASES_OF(limit, __VA_ARGS__)

TEST(of_many_sizes) {
  CHECK_PHASES(HUTCH_POLICY_DEFAULT, {1, 100, 10000}, {4, 100, 10000});
}

/* What the heap may keep for the next requests is less. */
TEST(of_a_small_tier) {
  CHECK_PHASES_OF(small_limit, HUTCH_POLICY_DEFAULT, {1, 100, 10000}, {4, 100, 10000});
  CHECK_PHASES_OF(small_limit, HUTCH_POLICY_LRU, {1, 1000, 1000}, {4, 10000, 10000},
                  {1, 2000, 2000});
  CHECK_PHASES_OF(4 << 20, HUTCH_POLICY_DEFAULT, {1, 100, 60000}, {1, 8, 8});
  CHECK_PHASES_OF(2 << 20, HUTCH_POLICY_LRU, {1, 100, 100}, {1, 1000, 1000}, {1, 100, 100});
  CHECK_PHASES_OF(2 << 20, HUTCH_POLICY_DEFAULT, {1, 100, 10000});
}

/* It pays for what it has beside its entries, and the arenas of the heap are few. */
TEST(of_the_smallest_tier_that_pays_for_all) {
  static const phase phases[] = {{1, 8, 8},         {1, 100, 100},   {1, 1000, 1000},
                                 {1, 10000, 10000}, {1, 100, 10000}, {1, 8, 60000}};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    check_phases(least_limit, HUTCH_POLICY_DEFAULT, &phases[i], 1);
    check_phases(least_limit, HUTCH_POLICY_LRU, &phases[i], 1);
  }
}

/* Each entry has times, of which its charge has nothing. */
TEST(of_entries_that_the_age_of_the_tier_ends) {
  time_to_live = HUTCH_HOUR;
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    CHECK_PHASES(policy, {1, 16, 16});
    CHECK_PHASES_OF(least_limit, policy, {1, 100, 100});
  }
  time_to_live = 0;
}

/* A tier of the least limit, full of entries of many sizes. */
static hutch_cache *full_small_tier(uint32_t policy) {
  hutch_options options = unlimited_options();
  options.memory.cost = least_limit;
  options.policy = policy;
  run run = {open_cache(NULL, &options), least_limit, {1, 100, 10000}, 1};
  put_some(&run, 0);
  return run.cache;
}

/* An entry that has room under the limit alone is stored, though a small tier pays. */
TEST(a_small_tier_stores_an_entry_of_nearly_its_limit) {
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    hutch_cache *cache = full_small_tier(policy);
    static const char value[least_limit - 1000];
    char found[4];
    size_t size;
    CHECK_OK(hutch_put(cache, "large", 5, value, sizeof value, NULL, NULL));
    CHECK(hutch_get_into(cache, "large", 5, found, sizeof found, &size) != HUTCH_NOT_FOUND);
    CHECK_EQUAL(sizeof value, size);
    CHECK_OK(hutch_close(cache));
  }
}

/* Such costs need not be bytes. */
TEST(a_small_tier_with_own_costs_pays_nothing) {
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    hutch_cache *cache = full_small_tier(policy);
    hutch_put_options own = {.struct_size = sizeof own, .cost = least_limit / 256};
    for (uint64_t i = 0; i < 1000; i++) {
      CHECK_OK(hutch_put(cache, &i, sizeof i, "value", 5, &own, NULL));
    }
    uint64_t cost;
    CHECK_OK(hutch_cost(cache, &cost));
    CHECK(cost <= least_limit && cost > least_limit - own.cost);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(of_large_values_on_several_threads) {
  CHECK_PHASES(HUTCH_POLICY_DEFAULT, {4, 50000, 200000}, {1, 8, 65536}, {4, 8, 65536});
}

/* Of the small entries slots and words are left, and holes in the heap. */
TEST(after_small_entries_have_grown) {
  CHECK_PHASES(HUTCH_POLICY_LRU, {1, 100, 100}, {1, 1000, 1000}, {1, 100, 100});
  CHECK_PHASES(HUTCH_POLICY_FIFO, {4, 300, 300}, {4, 10000, 10000}, {1, 300, 300});
  CHECK_PHASES(HUTCH_POLICY_DEFAULT, {1, 16, 512}, {4, 100, 10000}, {1, 16, 512});
}

/* Their pages go back to the system although their arena gets no request any more, and what it may
   keep takes nothing of the limit. */
TEST(after_the_largest_values) {
  CHECK_PHASES(HUTCH_POLICY_LRU, {1, 3500000, 3500000}, {1, 200, 200});
}

/* A put makes room for what is lost, but a little of it: others come after it. */
TEST(a_put_evicts_little_for_what_others_have_left) {
  hutch_options options = unlimited_options();
  options.memory.cost = limit;
  options.policy = HUTCH_POLICY_LRU;
  run run = {open_cache(NULL, &options), limit, {1, 100, 100}, 1};
  put_some(&run, 0);
  static const char value[1000];
  uint64_t before, after, most = 0;
  CHECK_OK(hutch_count(run.cache, &before));
  for (uint64_t i = 0; i < 20000; i++, before = after) {
    CHECK_OK(hutch_put(run.cache, &i, sizeof i, value, sizeof value, NULL, NULL));
    CHECK_OK(hutch_count(run.cache, &after));
    if (before > after && before - after > most) most = before - after;
  }
  printf("at most %d entries less after a put\n", (int)most);
  CHECK(most > 0 && most < 40);
  CHECK_OK(hutch_close(run.cache));
}

/* What the heap has for a moment does not cost a full tier its entries. */
TEST(a_full_tier_stays_full) {
  static const char value[100];
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    hutch_options options = unlimited_options();
    options.memory.cost = halved(128 << 20);
    options.policy = policy;
    hutch_cache *cache = open_cache(NULL, &options);
    uint64_t least = UINT64_MAX;
    for (uint64_t i = 0; i < halved(900000); i++) {
      CHECK_OK(hutch_put(cache, &i, sizeof i, value, sizeof value, NULL, NULL));
      /* Full with five sixths of this. */
      if (i > halved(750000) && i % 1000 == 0 && cost_of(cache) < least) least = cost_of(cache);
    }
    printf("charged at least %.3f\n", (double)least / options.memory.cost);
    CHECK(least > options.memory.cost / 100 * 97);
    CHECK_OK(hutch_close(cache));
  }
}

/* A put of a value that has the size of hundreds of entries makes room for a part of it. The puts
   after it make room for the rest. */
TEST(a_large_put_evicts_few_entries_at_once) {
  static const char value[64 << 10];
  enum { LARGE = 1000 };
  hutch_options options = unlimited_options();
  options.memory.cost = halved(128 << 20);
  hutch_cache *cache = open_cache(NULL, &options);
  uint64_t before = 0, after, by_large = 0, by_small = 0;
  for (uint64_t i = 0; i < halved(850) * LARGE; i++, before = after) {
    bool is_large = i > halved(800) * LARGE && i % LARGE == 0;
    CHECK_OK(hutch_put(cache, &i, sizeof i, value, is_large ? sizeof value : 100, NULL, NULL));
    CHECK_OK(hutch_count(cache, &after));
    uint64_t fewer = before > after ? before - after : 0;
    if (is_large && fewer > by_large) by_large = fewer;
    if (!is_large && fewer > by_small) by_small = fewer;
    CHECK(cost_of(cache) <= options.memory.cost);
  }
  printf("at most %d entries less after a large put, %d after a small one\n", (int)by_large,
         (int)by_small);
  CHECK(by_large > 0 && by_large < 100);
  CHECK(by_small > 0 && by_small < 4);
  CHECK_OK(hutch_close(cache));
}

/* Large values come into a tier that is full of small entries. A large value needs its room in one
   piece, and the entries that go for it leave theirs in hundreds of places. The tier closes these
   holes as fast as they come: its charge stays near the limit, and so does its memory. `small` and
   `large`: bytes of a value. `every`: one put of so many is a large one, and `row` of them follow
   each other. `most`: resident, of the limit. */
static void check_large_among_small(size_t size_limit, uint32_t policy, int small, int large,
                                    int every, int row, double most) {
  if (!in_child()) return;
  static const char value[1 << 20];
  size_t before = resident();
  hutch_options options = unlimited_options();
  options.memory.cost = size_limit;
  options.policy = policy;
  hutch_cache *cache = open_cache(NULL, &options);
  /* A fifth more than a full tier has, or more. */
  size_t first = size_limit / ((size_t)small + 50);
  double limit = (double)options.memory.cost, put = 0, charged = 1, share = 0;
  for (uint64_t i = 0; i < first || put < 2 * limit; i++) {
    bool is_large = i >= first && i % (uint64_t)(every * row) < (uint64_t)row;
    size_t size = (size_t)(is_large ? large : small);
    CHECK_OK(hutch_put(cache, &i, sizeof i, value, size, NULL, NULL));
    if (i < first) continue;
    put += (double)size + 80;
    if (i % 100 != 0 && (!is_large || row == 1)) continue;
    double now = (double)cost_of(cache) / limit;
    double pages = (double)(resident() - before) / limit;
    if (now < charged) charged = now;
    if (pages > share) share = pages;
  }
  printf("%d MB, policy %d, %d bytes one put in %d: charged at least %.3f, resident at most %.3f\n",
         (int)(size_limit >> 20), (int)policy, large, every, charged, share);
  fflush(stdout);
  /* One large value may be a 32nd of the limit, or no small one comes that closes holes too. */
  bool is_much = (size_t)large >= size_limit / 64 || (every == 1 && large > 1000);
  CHECK(charged > (!is_much ? 0.86 : size_limit >= 16 << 20 ? 0.84 : 0.80));
  CHECK(share < most);
  /* Slots that no entry uses any more are given back, once the entries of their neighbours have
     gone too: how soon that is depends on the seed of the hash. */
  uint64_t full = options.memory.cost / 100 * (is_much ? 85 : 97);
  for (uint64_t i = 0; cost_of(cache) <= full && put < 10 * limit; i++) {
    CHECK_OK(hutch_put(cache, &i, sizeof i, value, (size_t)large, NULL, NULL));
    put += (double)large + 80;
  }
  CHECK(cost_of(cache) > full);
  CHECK_OK(hutch_close(cache));
  _exit(0);
}

TEST(of_large_values_among_small_ones) {
  check_large_among_small(halved(64 << 20), HUTCH_POLICY_LRU, 100, 64 << 10, 1000, 1, 1.10);
  check_large_among_small(halved(64 << 20), HUTCH_POLICY_FIFO, 100, 256 << 10, 300, 1, 1.10);
  check_large_among_small(64 << 20, HUTCH_POLICY_LRU, 100, 1000, 1, 1, 1.10);
}

/* A few of them in a row leave hardly more holes than one. */
TEST(of_larger_values_among_small_ones) {
  check_large_among_small(halved(64 << 20), HUTCH_POLICY_LRU, 100, 1 << 20, 1000, 4, 1.13);
  check_large_among_small(16 << 20, HUTCH_POLICY_LRU, 100, 256 << 10, 300, 4, 1.13);
  check_large_among_small(8 << 20, HUTCH_POLICY_LRU, 100, 256 << 10, 300, 4, 1.20);
  /* And nothing else. */
  check_large_among_small(halved(64 << 20), HUTCH_POLICY_LRU, 100, 10000, 1, 1, 1.10);
  check_large_among_small(halved(64 << 20), HUTCH_POLICY_LFU, 100, 30000, 1, 1, 1.10);
  check_large_among_small(16 << 20, HUTCH_POLICY_FIFO, 100, 30000, 1, 1, 1.10);
  check_large_among_small(64 << 20, HUTCH_POLICY_DEFAULT, 8, 64 << 10, 1, 1, 1.10);
  check_large_among_small(8 << 20, HUTCH_POLICY_LRU, 100, 10000, 1, 1, 1.16);
  /* The policy has memory for each small entry too. */
  check_large_among_small(16 << 20, HUTCH_POLICY_DEFAULT, 8, 200000, 1, 1, 1.12); /* to 1.094 */
  check_large_among_small(8 << 20, HUTCH_POLICY_DEFAULT, 8, 10000, 1, 1, 1.18);
}

TEST(after_a_change_of_sizes_and_threads) {
  CHECK_PHASES(HUTCH_POLICY_LRU, {1, 1000, 1000}, {4, 10000, 10000}, {1, 2000, 2000});
  CHECK_PHASES(HUTCH_POLICY_LFU, {1, 100000, 100000}, {4, 1000, 1000}, {1, 100000, 100000});
}

/* A lower limit or a trim evicts half of the entries. When the call returns the others are on few
   pages, as are their slots, and it has evicted little more than it had to. */
static void check_less(uint32_t policy, int least, int most, bool is_trim) {
  if (!in_child()) return;
  size_t before = resident();
  hutch_options options = unlimited_options();
  options.memory.cost = 2 * limit;
  options.policy = policy;
  run run = {open_cache(NULL, &options), 2 * limit, {1, least, most}, 1};
  put_some(&run, 0);
  if (is_trim) {
    hutch_trim_spec half = {.struct_size = sizeof half, .kind = HUTCH_TRIM_TO_COST};
    half.amount = limit;
    CHECK_OK(hutch_trim(run.cache, &half, NULL));
  } else {
    hutch_cache_limits half = {.struct_size = sizeof half, .memory.cost = limit};
    CHECK_OK(hutch_set_limits(run.cache, &half));
  }
  double share = (double)(resident() - before) / limit;
  uint64_t cost;
  CHECK_OK(hutch_cost(run.cache, &cost));
  printf("%d to %d bytes, half: charged %.3f, resident %.3f of it\n", least, most,
         (double)cost / limit, share);
  fflush(stdout);
  CHECK(share < 1.15);
  CHECK(cost <= limit && cost > limit / 100 * (is_trim ? 98 : 95));
  CHECK_OK(hutch_close(run.cache));
  _exit(0);
}

TEST(after_a_limit_is_halved) {
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    check_less(policy, 100, 100, false);
    check_less(policy, 100, 10000, false);
  }
}

/* The tier has been none that pays for all it has beside its entries. It pays at once, and has the
   holes of what goes for that closed. */
TEST(after_a_limit_becomes_a_small_one) {
  if (!in_child()) return;
  size_t before = resident();
  hutch_options options = unlimited_options();
  options.memory.cost = 2 * small_limit;
  hutch_cache *cache = open_cache(NULL, &options);
  static const char value[100];
  double charged = 0, most = 0;
  for (uint64_t i = 1; i <= 200000; i++) {
    uint64_t key = i * 0x9E3779B97F4A7C15u;
    CHECK_OK(hutch_put(cache, &key, sizeof key, value, sizeof value, NULL, NULL));
    if (i == 180000) {
      hutch_cache_limits half = {.struct_size = sizeof half, .memory.cost = small_limit};
      CHECK_OK(hutch_set_limits(cache, &half));
    }
    if (i < 180000 || i % 1000 != 0) continue;
    double share = (double)(resident() - before) / small_limit;
    if (share > most) most = share;
    charged = (double)cost_of(cache) / small_limit;
  }
  printf("charged %.3f, resident at most %.3f of the new limit\n", charged, most);
  fflush(stdout);
  CHECK(charged > 0.82);
  CHECK(most < 1.14); /* of 50 runs 1.104 to 1.120 */
  CHECK_OK(hutch_close(cache));
  _exit(0);
}

TEST(after_a_trim_to_a_half) {
  for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
    check_less(policy, 100, 100, true);
    check_less(policy, 100, 10000, true);
  }
}

/* Of the process, or SIZE_MAX if the system does not say. */
static size_t in_huge_pages(void) {
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  if (!file) return SIZE_MAX;
  char line[256];
  size_t size = SIZE_MAX;
  while (fgets(line, sizeof line, file)) (void)sscanf(line, "AnonHugePages: %zu kB", &size);
  fclose(file);
  return size == SIZE_MAX ? size : size << 10;
}

/* MADV_COLLAPSE, and whether the system's owner lets programs ask for huge pages. */
static bool has_huge_pages(void) {
  enum { chunk = 2 << 20 };
  char setting[64] = "";
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (!file) return false;
  bool is_off = !fgets(setting, sizeof setting, file) || strstr(setting, "[never]");
  fclose(file);
  if (is_off || in_huge_pages() == SIZE_MAX) return false;
  char *memory = aligned_alloc(chunk, chunk);
  CHECK(memory);
  memset(memory, 1, chunk);
  bool is_done = madvise(memory, chunk, 25) == 0;
  free(memory);
  return is_done;
}

/* A cache in memory that has become large puts what stays there into huge pages, in the background
   or when the host says so. What is in memory is the same. */
TEST(what_stays_comes_into_huge_pages) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has memory of its own");
#endif
  if (!has_huge_pages()) check_skip("the system makes no huge pages");
  for (uint32_t flags = 0; flags <= HUTCH_OPEN_NO_THREADS; flags += HUTCH_OPEN_NO_THREADS) {
    if (!in_child()) continue;
    hutch_options options = unlimited_options();
    options.flags = flags;
    hutch_cache *cache = open_cache(NULL, &options);
    run run = {cache, limit, {1, 100, 1000}, 1};
    put_some(&run, 0);
    size_t before = resident();
    /* A chunk is moved each 25 ms, if there is memory for a huge page. */
    while (in_huge_pages() < (size_t)4 << 20) {
      if (flags) CHECK_OK(hutch_maintain(cache, 0));
    }
    CHECK(resident() < before + (before >> 5));
    CHECK_OK(hutch_close(cache));
    CHECK(in_huge_pages() == 0);
    _exit(0);
  }
}

/* Puts or gets values of 1 MB under different keys. Returns the faults for each page of a value. */
static double faults(hutch_cache *cache, bool is_put) {
  enum { count = 16, size = 1000000 };
  static const char value[size];
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  for (int n = 0; n < count; n++) {
    char key[16];
    int length = snprintf(key, sizeof key, "key-%d", n);
    if (is_put) {
      CHECK_OK(hutch_put(cache, key, (size_t)length, value, size, NULL, NULL));
    } else {
      hutch_value *found;
      CHECK_OK(hutch_get(cache, key, (size_t)length, &found));
      hutch_value_release(found);
    }
  }
  getrusage(RUSAGE_SELF, &after);
  return (double)(after.ru_minflt - before.ru_minflt) / count / (size / 4096.0);
}

static void check_faults(const char *directory) {
  if (!in_child()) return;
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options), *part = cache;
  if (directory) CHECK_OK(hutch_tier(cache, HUTCH_TIER_DISK, &part));
  (void)faults(part, true);
  (void)faults(part, !directory);
  double share = faults(part, !directory);
  printf("%s: %.3f faults a page\n", directory ? "read from disk" : "replaced", share);
  fflush(stdout);
  CHECK(share < 0.25);
  if (part != cache) hutch_close(part);
  CHECK_OK(hutch_close(cache));
  _exit(0);
}

TEST(a_large_value_has_the_pages_of_the_one_before_it) {
  check_faults(NULL);
  check_faults(scratch("disk").text);
}
