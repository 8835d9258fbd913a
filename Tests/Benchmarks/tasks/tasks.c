/*
 * Tasks: what they cost. Beside each figure stands the one that is wanted.
 *
 *   cc -O2 -I include Tests/Benchmarks/tasks/tasks.c -o build/tasks -Lbuild -lhutch \
 *     -Wl,-rpath,$PWD/build -lpthread && build/tasks
 *
 * Medians of five interleaved rounds; nothing is asserted.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "hutch_tasks.h"

enum { ROUNDS = 5, SMALL = 500000, GETS = 200000, WAKES = 500, QUEUED = 1000000, KEYS = 1000 };

#define CHECK(call)                                                       \
  do {                                                                    \
    hutch_status status_ = (call);                                        \
    if (status_ < 0) {                                                    \
      fprintf(stderr, "%s: %s\n", #call, hutch_status_name(status_));     \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static size_t resident(void) {
  size_t pages = 0, all;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%zu %zu", &all, &pages) != 2) exit(1);
  fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}
static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

/* ----------------------------------------------------------- small tasks */

static hutch_status small_work(void *context, hutch_task *task) {
  (void)task;
  *(volatile int *)context += 1;
  return HUTCH_OK;
}

static double small_tasks(uint32_t width, double *cpu_per_task) {
  hutch_queue_options options = {.struct_size = sizeof options, .width = width};
  hutch_queue *queue = NULL;
  CHECK(hutch_queue_create(&options, &queue));
  int counter = 0;
  int64_t begin = now(), used = cpu();
  for (int k = 0; k < SMALL; k++)
    CHECK(hutch_queue_submit(queue, small_work, &counter, NULL, NULL, NULL));
  CHECK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  *cpu_per_task = (double)(cpu() - used) / SMALL;
  double rate = SMALL / ((double)(now() - begin) * 1e-9);
  hutch_queue_release(queue);
  return rate;
}

/* ------------------------------------------------------------------ gets */

static atomic_long completed;
static void count(void *context, const hutch_completion *completion) {
  (void)context;
  if (completion->status != HUTCH_OK) exit(1);
  atomic_fetch_add_explicit(&completed, 1, memory_order_relaxed);
}

/* CPU of the whole process for a get that hits memory: submission, task, completion. */
static double async_gets(hutch_cache *cache, hutch_port *port, int finish_now) {
  hutch_completion result = {.struct_size = sizeof result};
  hutch_task_options options = {.struct_size = sizeof options, .complete = count, .port = port,
                                .flags = finish_now ? HUTCH_TASK_MAY_FINISH_NOW : 0,
                                .now = finish_now ? &result : NULL};
  atomic_store(&completed, 0);
  int64_t used = cpu();
  for (long k = 0; k < GETS; k++) {
    uint64_t key = (uint64_t)k * 2654435761u % KEYS;
    CHECK(hutch_get_async(cache, &key, sizeof key, &options, NULL));
    if (finish_now) hutch_value_release(result.value);
    /* An event loop drains now and then. */
    if (port && k % 64 == 0) CHECK(hutch_port_drain(port, 0, NULL));
  }
  CHECK(hutch_wait_all(cache, HUTCH_FOREVER));
  if (port) CHECK(hutch_port_drain(port, 0, NULL));
  double each = (double)(cpu() - used) / GETS;
  if (!finish_now && atomic_load(&completed) != GETS) exit(1);
  return each;
}

static double plain_gets(hutch_cache *cache) {
  int64_t used = cpu();
  for (long k = 0; k < GETS; k++) {
    uint64_t key = (uint64_t)k * 2654435761u % KEYS;
    hutch_value *value = NULL;
    CHECK(hutch_get(cache, &key, sizeof key, &value));
    hutch_value_release(value);
  }
  return (double)(cpu() - used) / GETS;
}

/* --------------------------------------------------------------- wake-up */

static _Atomic int64_t woken;
static hutch_status note_time(void *context, hutch_task *task) {
  (void)context, (void)task;
  atomic_store(&woken, now());
  return HUTCH_OK;
}

static double wake_up(void) {
  hutch_queue *queue = NULL;
  CHECK(hutch_queue_create(NULL, &queue));
  static double times[WAKES];
  for (int k = 0; k < WAKES; k++) {
    usleep(300); /* so that the worker sleeps */
    atomic_store(&woken, 0);
    int64_t begin = now();
    CHECK(hutch_queue_submit(queue, note_time, NULL, NULL, NULL, NULL));
    while (!atomic_load(&woken)) usleep(20);
    times[k] = (double)(atomic_load(&woken) - begin) * 1e-3;
  }
  hutch_queue_release(queue);
  return median(times, WAKES);
}

/* The same hand-off with a condition variable and nothing else. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int flag;
static void *bare_worker(void *context) {
  (void)context;
  pthread_mutex_lock(&lock);
  for (int k = 0; k < WAKES; k++) {
    while (!flag) pthread_cond_wait(&cond, &lock);
    flag = 0;
    atomic_store(&woken, now());
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}
static double bare_wake_up(void) {
  static double times[WAKES];
  pthread_t thread;
  pthread_create(&thread, NULL, bare_worker, NULL);
  for (int k = 0; k < WAKES; k++) {
    usleep(300);
    atomic_store(&woken, 0);
    int64_t begin = now();
    pthread_mutex_lock(&lock);
    flag = 1;
    pthread_mutex_unlock(&lock);
    pthread_cond_signal(&cond);
    while (!atomic_load(&woken)) usleep(20);
    times[k] = (double)(atomic_load(&woken) - begin) * 1e-3;
  }
  pthread_join(thread, NULL);
  return median(times, WAKES);
}

/* ----------------------------------------------------------------- bytes */

static void queued_bytes(void) {
  hutch_queue *queue = NULL;
  int counter = 0;
  CHECK(hutch_queue_create(NULL, &queue));
  CHECK(hutch_queue_suspend(queue));
  size_t before = resident();
  for (int k = 0; k < QUEUED; k++)
    CHECK(hutch_queue_submit(queue, small_work, &counter, NULL, NULL, NULL));
  printf("bytes a queued task, at %d       %8.1f    (wanted: at most 128)\n", QUEUED,
         (double)(resident() - before) / QUEUED);
  CHECK(hutch_queue_cancel_all(queue, NULL));
  CHECK(hutch_queue_resume(queue));
  CHECK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_queue_release(queue);
  malloc_trim(0);

  hutch_cache *cache = NULL;
  CHECK(hutch_open(NULL, NULL, &cache));
  CHECK(hutch_suspend(cache));
  before = resident();
  for (uint64_t k = 0; k < QUEUED / 10; k++)
    CHECK(hutch_get_async(cache, &k, sizeof k, NULL, NULL));
  printf("bytes a queued get, at %d         %8.1f\n", QUEUED / 10,
         (double)(resident() - before) / (QUEUED / 10));
  CHECK(hutch_close(cache));
}

int main(void) {
  queued_bytes();
  hutch_cache *cache = NULL;
  hutch_port *port = NULL;
  CHECK(hutch_open(NULL, NULL, &cache));
  CHECK(hutch_port_create(&port));
  for (uint64_t k = 0; k < KEYS; k++) CHECK(hutch_put(cache, &k, sizeof k, "value", 5, NULL, NULL));
  double rate[2][ROUNDS], used[2][ROUNDS], gets[4][ROUNDS], wakes[2][ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    for (uint32_t w = 0; w < 2; w++) rate[w][r] = small_tasks(w + 1, &used[w][r]);
    gets[0][r] = plain_gets(cache);
    gets[1][r] = async_gets(cache, NULL, 1);
    gets[2][r] = async_gets(cache, port, 0);
    gets[3][r] = async_gets(cache, NULL, 0);
    wakes[0][r] = bare_wake_up();
    wakes[1][r] = wake_up();
  }
  printf("small tasks a second, width 1       %8.0f    (wanted: 500,000)\n",
         median(rate[0], ROUNDS));
  printf("small tasks a second, width 2       %8.0f\n", median(rate[1], ROUNDS));
  printf("  CPU each, ns, width 1 and 2       %8.0f %8.0f\n", median(used[0], ROUNDS),
         median(used[1], ROUNDS));
  printf("a get that hits memory, CPU in all, ns\n");
  printf("  hutch_get                         %8.0f\n", median(gets[0], ROUNDS));
  printf("  hutch_get_async, at once          %8.0f    (wanted: at most 2000)\n",
         median(gets[1], ROUNDS));
  printf("  hutch_get_async, through a port   %8.0f\n", median(gets[2], ROUNDS));
  printf("  hutch_get_async, on a worker      %8.0f\n", median(gets[3], ROUNDS));
  printf("wake-up of an idle worker, us       %8.1f    (wanted: at most 15)\n",
         median(wakes[1], ROUNDS));
  printf("  the same with a bare condition    %8.1f\n", median(wakes[0], ROUNDS));
  hutch_port_release(port);
  CHECK(hutch_close(cache));
  return 0;
}
