/*
 * hit - what sharing costs on a hit in memory
 *
 * Two caches on directories of their own, EXCLUSIVE and SHARED, with the same entries in
 * memory. Rounds of random gets alternate between them; printed is the median time of a get of
 * each, and of their difference within a round.
 *
 *   cc -O2 hit.c -o hit $(pkg-config --cflags --libs hutch) && ./hit [entries] [rounds]
 *
 * `hit count exclusive|shared` makes a million hits and prints nothing: for
 * `valgrind --tool=callgrind --toggle-collect=hutch_get_into`.
 */
#define _GNU_SOURCE
#include "hutch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GETS = 200000, VALUE = 100 };

static char value[VALUE];

static void must(hutch_status status) {
  if (status != HUTCH_OK) {
    fprintf(stderr, "%s\n", hutch_status_name(status));
    exit(1);
  }
}

static hutch_cache *make(const char *directory, uint32_t sharing, uint32_t entries) {
  hutch_options options = {.struct_size = sizeof options};
  options.sharing = sharing;
  options.memory.cost = options.disk.cost = HUTCH_NO_LIMIT;
  hutch_cache *cache;
  must(hutch_open(directory, &options, &cache));
  for (uint32_t i = 0; i < entries; i++)
    must(hutch_put(cache, &i, sizeof i, value, sizeof value, NULL, NULL));
  return cache;
}

static uint64_t random_state = 88172645463325252u;

static uint32_t next(uint32_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)((random_state >> 32) * below >> 32);
}

static double gets(hutch_cache *cache, uint32_t entries, int count) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < count; i++) {
    uint32_t key = next(entries);
    size_t size;
    must(hutch_get_into(cache, &key, sizeof key, value, sizeof value, &size));
  }
  clock_gettime(CLOCK_MONOTONIC, &to);
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / count;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *numbers, int count) {
  qsort(numbers, (size_t)count, sizeof *numbers, by_value);
  return numbers[count / 2];
}

static void remove_directory(const char *directory) {
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", directory);
  if (system(command) != 0) perror(command);
}

int main(int argc, char **argv) {
  char exclusive[] = "hit-XXXXXX", shared[] = "hit-XXXXXX";
  if (!mkdtemp(exclusive) || !mkdtemp(shared)) return 1;
  if (argc > 2 && strcmp(argv[1], "count") == 0) {
    int shares = strcmp(argv[2], "shared") == 0;
    hutch_cache *cache =
        make(exclusive, shares ? HUTCH_SHARING_SHARED : HUTCH_SHARING_EXCLUSIVE, 1000);
    gets(cache, 1000, 1000000);
    must(hutch_close(cache));
  } else {
    uint32_t entries = argc > 1 ? (uint32_t)atoi(argv[1]) : 10000;
    int rounds = argc > 2 ? atoi(argv[2]) : 101;
    hutch_cache *first = make(exclusive, HUTCH_SHARING_EXCLUSIVE, entries);
    hutch_cache *second = make(shared, HUTCH_SHARING_SHARED, entries);
    double *times = calloc(3 * (size_t)rounds, sizeof *times);
    for (int round = 0; round < rounds; round++) {
      double a = 0, b = 0;
      if (round % 2) b = gets(second, entries, GETS);
      a = gets(first, entries, GETS);
      if (round % 2 == 0) b = gets(second, entries, GETS);
      times[round] = a;
      times[rounds + round] = b;
      times[2 * rounds + round] = b - a;
    }
    printf("%u entries of %d bytes, %d rounds of %d gets\n", entries, VALUE, rounds, GETS);
    printf("EXCLUSIVE %6.1f ns\n", median(times, rounds));
    printf("SHARED    %6.1f ns\n", median(times + rounds, rounds));
    printf("more by   %6.1f ns\n", median(times + 2 * rounds, rounds));
    free(times);
    must(hutch_close(first));
    must(hutch_close(second));
  }
  remove_directory(exclusive);
  remove_directory(shared);
  return 0;
}
