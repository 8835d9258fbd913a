/*
 * replay - the hit ratio of the memory tier, or of the log store, on a trace
 *
 *   zstd -dc --long=27 TRACE.u64.zst | replay NAME [--policy NUMBER] [--runs N] CAPACITY...
 *   zstd -dc --long=27 TRACE.u64.zst | replay NAME --log DIRECTORY [--cost] CAPACITY...
 *   zstd -dc --long=27 TRACE.ks.zst | replay NAME --sized [...] CAPACITY...
 *
 * Reads little-endian 64-bit keys from standard input and asks a cache in memory for each,
 * through the C ABI; what is not there is put. CAPACITY is a number of entries, or
 * fraction:number, as the tables of reference hit ratios have them. Prints
 * trace,fraction,capacity,policy,hit_ratio, one line a run; every run has another hash.
 *
 * --sized: each key is followed by a little-endian 32-bit size, which is the cost of the entry
 * (sizes below 1 count 1), and CAPACITY is a limit on cost. Then lines end in
 * ...,object_hit_ratio,byte_hit_ratio. The values are empty, so the sizes cost no memory.
 *
 * --log: the disk tier of a log store in DIRECTORY, which does not exist. CAPACITY is a limit on
 * count, with --cost one on cost: the bytes that so many entries have. Lines end in
 * ...,write_amplification: the bytes of segments begun, by the index, over those of the entries put.
 */
#define _GNU_SOURCE
#include "hutch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

static void fail(const char *what) {
  fprintf(stderr, "replay: %s\n", what);
  exit(1);
}

struct request {
  uint64_t key;
  uint32_t size;
};

static struct request *read_requests(size_t *count, int is_sized) {
  size_t room = 1 << 20, used = 0, width = is_sized ? 12 : 8;
  struct request *requests = malloc(room * sizeof *requests);
  unsigned char bytes[12];
  if (requests == NULL) fail("out of memory");
  while (fread(bytes, width, 1, stdin) == 1) {
    if (used == room) {
      room *= 2;
      requests = realloc(requests, room * sizeof *requests);
      if (requests == NULL) fail("out of memory");
    }
    struct request *next = &requests[used++];
    memcpy(&next->key, bytes, 8);
    next->size = 0;
    if (is_sized) memcpy(&next->size, bytes + 8, 4);
    if (is_sized && next->size == 0) next->size = 1;
  }
  *count = used;
  return requests;
}

struct ratios {
  double objects, bytes;
};

static struct ratios run(const struct request *requests, size_t count, uint32_t policy,
                         uint64_t capacity, int is_sized) {
  hutch_options options = {.struct_size = sizeof options};
  options.policy = policy;
  options.memory.cost = options.memory.max_entry = HUTCH_NO_LIMIT;
  if (is_sized) {
    options.memory.cost = capacity;
    options.memory.max_entry = capacity;
  } else {
    options.memory.count = capacity;
  }
  hutch_cache *cache;
  if (hutch_open(NULL, &options, &cache) != HUTCH_OK) fail("hutch_open");
  hutch_put_options put = {.struct_size = sizeof put};
  size_t hits = 0, size;
  uint64_t hit_bytes = 0, bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const struct request *next = &requests[i];
    bytes += next->size;
    put.cost = next->size;
    hutch_status status = hutch_get_into(cache, &next->key, 8, NULL, 0, &size);
    if (status == HUTCH_OK) {
      hits++;
      hit_bytes += next->size;
    } else if (status == HUTCH_NOT_FOUND) {
      status = hutch_put(cache, &next->key, 8, NULL, 0, is_sized ? &put : NULL, NULL);
      // What is larger than the whole cache is not stored.
      if (status != HUTCH_OK && status != HUTCH_TOO_LARGE) fail("a put failed");
    } else {
      fail("a get failed");
    }
  }
  hutch_close(cache);
  return (struct ratios){(double)hits / (double)count,
                         bytes > 0 ? (double)hit_bytes / (double)bytes : 0};
}

/* The bytes of all segments that a log store has begun (Sources/Hutch/Log/LogFormat.swift). */
static double begun(const char *directory) {
  char path[600];
  uint64_t words[64];
  snprintf(path, sizeof path, "%s/hutch-index", directory);
  int file = open(path, O_RDONLY);
  if (file < 0 || read(file, words, sizeof words) != sizeof words) fail("no index");
  close(file);
  return (double)(words[34] << (words[1] >> 32)) * 16;
}

/* The hit ratio, and the write amplification. */
static struct ratios run_log(const struct request *requests, size_t count, const char *directory,
                             uint64_t capacity, int is_cost) {
  enum { HEADER = 56, KEY = 8, LEAST = 512 };
  /* A segment is a 32nd of the limit, and has room for two entries. */
  uint64_t entry = is_cost && capacity * LEAST < 2 << 20 ? (2 << 20) / capacity & ~15ull : LEAST;
  size_t size = entry - HEADER - KEY, got;
  char *value = calloc(1, size);
  hutch_options options = {.struct_size = sizeof options};
  options.storage = HUTCH_STORAGE_LOG;
  options.disk.max_entry = HUTCH_NO_LIMIT;
  options.disk.time_to_live = HUTCH_FOREVER;
  options.disk.cost = capacity * entry * (is_cost ? 1 : 4);
  if (!is_cost && options.disk.cost < 1 << 20) options.disk.cost = 1 << 20;
  if (!is_cost) options.disk.count = capacity;
  hutch_cache *whole, *cache;
  if (hutch_open(directory, &options, &whole) != HUTCH_OK) fail("hutch_open");
  if (hutch_tier(whole, HUTCH_TIER_DISK, &cache) != HUTCH_OK) fail("hutch_tier");
  size_t hits = 0, puts = 0;
  double before = begun(directory);
  for (size_t i = 0; i < count; i++) {
    hutch_status status = hutch_get_into(cache, &requests[i].key, KEY, value, size, &got);
    if (status == HUTCH_OK) {
      hits++;
      continue;
    }
    if (status != HUTCH_NOT_FOUND) fail("a get failed");
    if (hutch_put(cache, &requests[i].key, KEY, value, size, NULL, NULL) != HUTCH_OK) {
      fail("a put failed");
    }
    puts++;
  }
  double written = begun(directory) - before;
  hutch_cache_release(cache);
  hutch_close(whole);
  if (hutch_destroy(directory) != HUTCH_OK) fail("hutch_destroy");
  free(value);
  return (struct ratios){(double)hits / (double)count, written / ((double)puts * (double)entry)};
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: replay NAME [--sized] [--policy NUMBER] [--runs N] CAPACITY... < keys");
  uint32_t policy = HUTCH_POLICY_DEFAULT;
  int runs = 1, is_sized = 0, is_cost = 0;
  const char *directory = NULL;
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--sized") == 0) is_sized = 1;
    if (strcmp(argv[i], "--cost") == 0) is_cost = 1;
  }
  size_t count;
  struct request *requests = read_requests(&count, is_sized);
  if (count == 0) fail("no keys");
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--sized") == 0 || strcmp(argv[i], "--cost") == 0) continue;
    if (strcmp(argv[i], "--log") == 0 && i + 1 < argc) {
      directory = argv[++i];
      continue;
    }
    if (strcmp(argv[i], "--policy") == 0 && i + 1 < argc) {
      policy = (uint32_t)strtoul(argv[++i], NULL, 10);
      continue;
    }
    if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      runs = atoi(argv[++i]);
      continue;
    }
    char *colon = strchr(argv[i], ':');
    double fraction = colon ? strtod(argv[i], NULL) : 0;
    uint64_t capacity = strtoull(colon ? colon + 1 : argv[i], NULL, 10);
    if (capacity == 0) fail("a capacity is a number above 0");
    for (int r = 0; r < runs; r++) {
      struct ratios ratios =
        directory ? run_log(requests, count, directory, capacity, is_cost)
                  : run(requests, count, policy, capacity, is_sized);
      printf("%s,%g,%" PRIu64 ",hutch-%u.%d,%.6f", argv[1], fraction, capacity, policy, r,
             ratios.objects);
      if (is_sized || directory) printf(",%.6f", ratios.bytes);
      putchar('\n');
      fflush(stdout);
    }
  }
  free(requests);
  return 0;
}
