/*
 * replay - the hit ratio of the memory tier on a trace
 *
 *   zstd -dc --long=27 TRACE.u64.zst | replay NAME [--policy NUMBER] [--runs N] CAPACITY...
 *
 * Reads little-endian 64-bit keys from standard input and asks a cache in memory for each,
 * through the C ABI; what is not there is put. CAPACITY is a number of entries, or
 * fraction:number, as the tables of reference hit ratios have them. Prints
 * trace,fraction,capacity,policy,hit_ratio, one line a run; every run has another hash.
 */
#include "hutch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what) {
  fprintf(stderr, "replay: %s\n", what);
  exit(1);
}

static uint64_t *read_keys(size_t *count) {
  size_t room = 1 << 20, used = 0;
  uint64_t *keys = malloc(room * sizeof *keys);
  for (;;) {
    if (keys == NULL) fail("out of memory");
    size_t got = fread(keys + used, sizeof *keys, room - used, stdin);
    used += got;
    if (got == 0) break;
    if (used == room) {
      room *= 2;
      keys = realloc(keys, room * sizeof *keys);
    }
  }
  *count = used;
  return keys;
}

static double run(const uint64_t *keys, size_t count, uint32_t policy, uint64_t capacity) {
  hutch_options options;
  if (hutch_options_init(&options, sizeof options) != HUTCH_OK) fail("hutch_options_init");
  options.policy = policy;
  memset(&options.memory, 0, sizeof options.memory);
  options.memory.count = capacity;
  hutch_cache *cache;
  if (hutch_open(NULL, &options, &cache) != HUTCH_OK) fail("hutch_open");
  size_t hits = 0, size;
  for (size_t i = 0; i < count; i++) {
    hutch_status status = hutch_get_into(cache, &keys[i], 8, NULL, 0, &size);
    if (status == HUTCH_OK) {
      hits++;
    } else if (status != HUTCH_NOT_FOUND ||
               hutch_put(cache, &keys[i], 8, NULL, 0, NULL, NULL) != HUTCH_OK) {
      fail("a call failed");
    }
  }
  hutch_close(cache);
  return (double)hits / (double)count;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: replay NAME [--policy NUMBER] [--runs N] CAPACITY... < keys");
  uint32_t policy = HUTCH_POLICY_DEFAULT;
  int runs = 1;
  size_t count;
  uint64_t *keys = read_keys(&count);
  if (count == 0) fail("no keys");
  for (int i = 2; i < argc; i++) {
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
      printf("%s,%g,%" PRIu64 ",hutch-%u.%d,%.6f\n", argv[1], fraction, capacity, policy, r,
             run(keys, count, policy, capacity));
      fflush(stdout);
    }
  }
  free(keys);
  return 0;
}
