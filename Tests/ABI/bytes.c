/*
 * bytes - the memory that an entry takes beyond its key, value, extended data and tag, by what its
 * record holds, by policy and by tier: what malloc gave, beside the table in the head of
 * Sources/Hutch/Memory/MemoryTier.swift. Blocks come from malloc here, which counts them, and whose
 * header and rounding are those of the library's heap. (resident.c measures that.)
 */
#define _GNU_SOURCE
#include "check.h"

#include <malloc.h>

enum { entries = 100000, key_size = 16, value_size = 100 };

BLOCKS_FROM_MALLOC

typedef struct record {
  const char *name;
  hutch_put_options options;
  bool may_expire;
  /* As in the table. */
  int header;
} record;

static size_t given(void) {
  struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

static void put(hutch_cache *cache, uint64_t number, const record *record) {
  char key[key_size] = {0}, value[value_size] = {0};
  memcpy(key, &number, sizeof number);
  hutch_put_options options = record->options;
  options.struct_size = sizeof options;
  bool is_plain = record->header == 32;
  CHECK_OK(hutch_put(cache, key, sizeof key, value, sizeof value, is_plain ? NULL : &options, NULL));
}

/* What malloc gives for a block. */
static double block(const record *record) {
  int extended = (int)(record->options.extended_size + record->options.tag_size);
  int start = (record->header + key_size + 15) / 16 * 16;
  int all = (start + value_size + extended + 8 + 15) / 16 * 16;
  return all - key_size - value_size - extended;
}

/* In a tier of `capacity` entries that so many are put into, which is no more than that, or twice
   as many. */
static double measure(const record *record, uint32_t policy, uint64_t capacity, uint64_t puts) {
  hutch_options options = unlimited_options();
  options.memory.count = capacity;
  options.policy = policy;
  size_t before = given();
  hutch_cache *cache = open_cache(NULL, &options);
  for (uint64_t i = 0; i < puts; i++) put(cache, i, record);
  uint64_t count;
  CHECK_OK(hutch_count(cache, &count));
  CHECK_EQUAL(puts < capacity ? puts : capacity, count);
  double bytes = (double)(given() - before) / (double)count;
  CHECK_OK(hutch_close(cache));
  return bytes - key_size - value_size -
         (double)(record->options.extended_size + record->options.tag_size);
}

static const record records[] = {
    {"plain", {0}, false, 32},
    {"tag", {.tag = "tag", .tag_size = 3}, false, 48},
    {"extended data", {.extended = "extended", .extended_size = 8}, false, 48},
    {"cost", {.cost = 1}, false, 80},
    {"time to live", {.time_to_live = HUTCH_HOUR}, true, 80},
    {"time to idle", {.time_to_idle = HUTCH_HOUR}, true, 80},
    {"all", {.time_to_live = HUTCH_HOUR, .cost = 2, .tag = "t", .tag_size = 1, .extended = "e",
             .extended_size = 1}, true, 80},
};

static void check_within(const char *name, double least, double bytes, double most) {
  printf("%-40s %6.1f: %.1f to %.1f\n", name, bytes, least, most);
  fflush(stdout);
  CHECK(least <= bytes && bytes <= most);
}

static void check_policy(const char *name, uint32_t policy, double least, double most) {
  for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
    const record *r = &records[i];
    double known = block(r) + (r->may_expire ? 16.1 : 0);
    char line[80];
    snprintf(line, sizeof line, "%s, %s", name, r->name);
    check_within(line, known + least, measure(r, policy, entries, 2 * entries), known + most);
  }
}

/* A mix of entries under a limit of cost: the sizes of keys and values, each equally often. */
typedef struct mix {
  const char *name;
  int keys[2], values[2];
  hutch_put_options options;
} mix;

static const mix mixes[] = {
    {"keys alone", {8, 8}, {0, 0}, {0}},
    {"the most of rounding", {17, 17}, {9, 9}, {0}},
    {"no rounding", {16, 16}, {8, 8}, {0}},
    {"small", {8, 40}, {0, 64}, {0}},
    {"all sizes", {8, 200}, {0, 10000}, {0}},
    {"extended data and tag", {8, 40}, {0, 64},
     {.tag = "tag", .tag_size = 3, .extended = "ext", .extended_size = 3}},
    {"times", {8, 40}, {0, 64}, {.time_to_live = HUTCH_HOUR}},
};

static int size_between(const int sizes[2], uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return sizes[0] + (int)((*state >> 33) % (uint64_t)(sizes[1] - sizes[0] + 1));
}

/* The memory that a tier takes whose entries were all replaced, by its limit of cost. */
static double of_limit(const mix *mix, uint32_t policy) {
  static const uint64_t limit = 8 << 20;
  static const char value[10000];
  hutch_options options = unlimited_options();
  options.memory.cost = limit;
  options.policy = policy;
  size_t before = given();
  hutch_cache *cache = open_cache(NULL, &options);
  hutch_put_options put = mix->options;
  put.struct_size = sizeof put;
  bool is_plain = put.tag_size == 0 && put.time_to_live == 0;
  uint64_t state = 1, evicted = 0;
  for (uint64_t i = 0; evicted < 1; i++) {
    char key[200] = {0};
    memcpy(key, &i, sizeof i);
    int key_length = size_between(mix->keys, &state);
    CHECK_OK(hutch_put(cache, key, (size_t)key_length, value,
                       (size_t)size_between(mix->values, &state), is_plain ? NULL : &put, NULL));
    if (i % 1000 != 0) continue;
    hutch_cache_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(hutch_stats(cache, &stats));
    evicted = stats.memory.evictions / (stats.memory.count + 1);
  }
  uint64_t cost;
  CHECK_OK(hutch_cost(cache, &cost));
  CHECK(cost <= limit);
  double share = (double)(given() - before) / (double)limit;
  CHECK_OK(hutch_close(cache));
  return share;
}

static void needs_malloc(void) {
#ifdef HUTCH_SANITIZED
  check_skip("a sanitizer has another malloc");
#endif
}

/* Word, slot, ghosts, sketch and shadows. */
TEST(of_the_default_policy_at_capacity) {
  needs_malloc();
  check_policy("default", HUTCH_POLICY_DEFAULT, 9.2 + 8.1 + 4 + 2, 11 + 8.1 + 4 + 4 + 4);
}

/* Word and slot. */
TEST(of_another_policy_at_capacity) {
  needs_malloc();
  check_policy("lru", HUTCH_POLICY_LRU, 9.2 + 16.1, 11 + 16.1 + 1);
}

/* Twice as many entries, five times over, take no more than what a tier that is just full does. */
TEST(does_not_grow_with_evictions) {
  needs_malloc();
  double once = measure(&records[0], HUTCH_POLICY_DEFAULT, entries, 2 * entries);
  double often = measure(&records[0], HUTCH_POLICY_DEFAULT, entries, 12 * entries);
  check_within("ten evictions an entry", once - 0.5, often, once + 1);
}

/* Removals from between others, which leave their slots linked for a while, free them. */
TEST(does_not_grow_with_removals) {
  needs_malloc();
  hutch_options options = unlimited_options();
  size_t before = given();
  hutch_cache *cache = open_cache(NULL, &options);
  const uint64_t kept = 20000;
  for (uint64_t i = 0; i < 40 * kept; i++) {
    put(cache, i, &records[0]);
    if (i <= kept) continue;
    char key[key_size] = {0};
    uint64_t old = i - 1;
    memcpy(key, &old, sizeof old);
    CHECK_OK(hutch_remove(cache, key, sizeof key));
  }
  uint64_t count;
  CHECK_OK(hutch_count(cache, &count));
  double bytes = (double)(given() - before) / (double)count - key_size - value_size;
  CHECK_EQUAL(kept + 1, count);
  double known = block(&records[0]) + 8.1;
  check_within("after removals", known + 9.2, bytes, known + 15 + 5);
  CHECK_OK(hutch_close(cache));
}

/* The charge of entries is the memory that they take, whatever their sizes and what their records
   hold: a tier that is full by its limit of cost takes that much. */
TEST(the_charge_is_the_memory) {
  needs_malloc();
  for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
    for (uint32_t policy = HUTCH_POLICY_DEFAULT; policy <= HUTCH_POLICY_LRU; policy++) {
      char line[80];
      snprintf(line, sizeof line, "%s, policy %u, %% of the limit", mixes[i].name, policy);
      check_within(line, 95, 100 * of_limit(&mixes[i], policy), 105);
    }
  }
}
