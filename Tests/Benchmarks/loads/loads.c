/* loads - what hutch_load costs
 *
 *   loads [rounds]
 *
 * Three things, each as a ratio:
 *   hit     hutch_load on values in memory, beside hutch_get on the same ones: CPU
 *           nanoseconds per call, taken in turn, medians over the rounds
 *   flight  64 threads ask for one missing key whose loader takes 100 ms: how often it ran,
 *           and when the last of them had its value, beside the loader's time
 *   miss    a load of a missing key by a thread alone, beside a get that misses and a put
 *
 * cc -O2 -o loads loads.c -lhutch -lpthread
 */
#define _GNU_SOURCE
#include "hutch_tasks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTRIES = 1000, CALLS = 200000, MISSES = 20000, THREADS = 64 };

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *numbers, int count) {
  qsort(numbers, (size_t)count, sizeof *numbers, compare);
  return numbers[count / 2];
}

static void must(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "loads: %s\n", what);
  exit(1);
}

static hutch_status make(void *context, const void *key, size_t key_size, hutch_loading *loading) {
  (void)context;
  return hutch_loading_fulfil(loading, key, key_size, NULL);
}

static double hits(hutch_cache *cache, int loads) {
  hutch_value *value;
  double start = now(CLOCK_THREAD_CPUTIME_ID);
  for (uint64_t i = 0; i < CALLS; i++) {
    uint64_t key = i * 7919 % ENTRIES;
    hutch_status status = loads ? hutch_load(cache, &key, sizeof key, make, NULL, NULL, &value)
                                : hutch_get(cache, &key, sizeof key, &value);
    if (status != HUTCH_OK) must(0, "a hit is none");
    hutch_value_release(value);
  }
  return (now(CLOCK_THREAD_CPUTIME_ID) - start) / CALLS;
}

static double misses(hutch_cache *cache, int loads) {
  must(hutch_clear(cache) == HUTCH_OK, "clear");
  hutch_value *value;
  double start = now(CLOCK_THREAD_CPUTIME_ID);
  for (uint64_t key = 0; key < MISSES; key++) {
    if (loads) {
      must(hutch_load(cache, &key, sizeof key, make, NULL, NULL, &value) == HUTCH_OK, "a load");
      hutch_value_release(value);
    } else {
      must(hutch_get(cache, &key, sizeof key, &value) == HUTCH_NOT_FOUND, "a get");
      must(hutch_put(cache, &key, sizeof key, &key, sizeof key, NULL, NULL) == HUTCH_OK, "a put");
    }
  }
  return (now(CLOCK_THREAD_CPUTIME_ID) - start) / MISSES;
}

/* One round of the flight. */
static hutch_cache *shared;
static uint64_t wanted;
static pthread_barrier_t barrier;
static _Atomic int runs;
static _Atomic long last;
static double began;

static hutch_status make_slowly(void *context, const void *key, size_t key_size,
                                hutch_loading *loading) {
  (void)context;
  atomic_fetch_add(&runs, 1);
  struct timespec pause = {0, 100000000};
  nanosleep(&pause, NULL);
  return hutch_loading_fulfil(loading, key, key_size, NULL);
}

static void *ask(void *context) {
  (void)context;
  hutch_value *value;
  if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) began = now(CLOCK_MONOTONIC);
  pthread_barrier_wait(&barrier);
  must(hutch_load(shared, &wanted, sizeof wanted, make_slowly, NULL, NULL, &value) == HUTCH_OK,
       "a load");
  long time = (long)(now(CLOCK_MONOTONIC) - began), before = atomic_load(&last);
  while (time > before && !atomic_compare_exchange_weak(&last, &before, time)) {}
  hutch_value_release(value);
  return NULL;
}

int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 11;
  must(rounds > 0 && rounds <= 1000, "rounds is a number from 1 to 1000");
  double *numbers[2] = {calloc((size_t)rounds, sizeof(double)),
                        calloc((size_t)rounds, sizeof(double))};
  must(hutch_open(NULL, NULL, &shared) == HUTCH_OK, "open");
  for (uint64_t key = 0; key < ENTRIES; key++)
    must(hutch_put(shared, &key, sizeof key, &key, sizeof key, NULL, NULL) == HUTCH_OK, "put");
  for (int i = 0; i < 2 * rounds; i++) numbers[i & 1][i / 2] = hits(shared, i & 1);
  double get = median(numbers[0], rounds), load = median(numbers[1], rounds);
  printf("hit     get %6.1f ns   load %6.1f ns   %.2f\n", get, load, load / get);
  for (int i = 0; i < 2 * rounds; i++) numbers[i & 1][i / 2] = misses(shared, i & 1);
  get = median(numbers[0], rounds), load = median(numbers[1], rounds);
  printf("miss    get and put %6.1f ns   load %6.1f ns   %.2f\n", get, load, load / get);

  pthread_barrier_init(&barrier, NULL, THREADS);
  int most = 0;
  for (int i = 0; i < rounds; i++) {
    pthread_t threads[THREADS];
    wanted = UINT64_MAX - (uint64_t)i;
    atomic_store(&runs, 0);
    atomic_store(&last, 0);
    for (int t = 0; t < THREADS; t++) must(!pthread_create(&threads[t], NULL, ask, NULL), "thread");
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    numbers[0][i] = (double)last / 1e8;
    if (runs > most) most = runs;
  }
  double usual = median(numbers[0], rounds);
  printf("flight  64 threads: the loader ran %d time(s); the last had its value after %.3f of its"
         " time (worst %.3f)\n", most, usual, numbers[0][rounds - 1]);
  return hutch_close(shared) != HUTCH_OK;
}
