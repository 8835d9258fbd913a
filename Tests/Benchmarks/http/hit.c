/* A fresh response of the cache, from C: hit URL. Prints the medians of interleaved rounds: elapsed
 * time, and CPU time of the whole process, which other work on the machine disturbs less.
 *
 *   get      hutch_get and release of a value of the response's size
 *   task     a task with libhutch_http, from its creation to its release, and its body
 *   session  the same with a completion, which the session's thread makes
 *
 * hit.py starts a server, builds this program and runs it. */
#include <hutch_http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef TURNS
#define TURNS 2000
#endif
enum { ROUNDS = 15 };

static hutch_cache *cache;
static hutch_http_session *session;
static const char *url;
static uint64_t sum;

static void need(hutch_status status) {
  if (status == HUTCH_OK) return;
  fprintf(stderr, "%d %s\n", status, hutch_http_error_words());
  exit(1);
}

static void get(void) {
  hutch_value *value;
  need(hutch_get(cache, HUTCH_STR("plain"), &value));
  sum += hutch_value_size(value);
  hutch_value_release(value);
}

static void ended(void *context, const hutch_http_completion *completion) {
  (void)context;
  sum += (uint64_t)completion->status;
}

static hutch_http_response run(hutch_http_complete complete) {
  hutch_http_request request = {
      .struct_size = sizeof request, .url = url, .complete = complete};
  hutch_http_response response = {.struct_size = sizeof response};
  hutch_http_task *task;
  need(hutch_http_task_create(session, &request, &task));
  need(hutch_http_task_resume(task));
  need(hutch_http_task_wait(task, HUTCH_FOREVER));
  need(hutch_http_task_response(task, &response));
  hutch_http_task_release(task);
  return response;
}

static void task(void) { sum += run(NULL).body_size; }
static void through(void) { sum += run(ended).body_size; }

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void measure(void (*work)(void), double *elapsed, double *cpu) {
  double start = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int turn = 0; turn < TURNS; turn++) work();
  *elapsed = (now(CLOCK_MONOTONIC) - start) / TURNS;
  *cpu = (now(CLOCK_PROCESS_CPUTIME_ID) - used) / TURNS;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int count, char **arguments) {
  if (count != 2) return fprintf(stderr, "hit URL\n"), 2;
  url = arguments[1];
  need(hutch_open(NULL, NULL, &cache));
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache};
  need(hutch_http_session_create(&configuration, &session));
  hutch_http_response first = run(NULL);
  if (first.from_cache || !run(NULL).from_cache) return fprintf(stderr, "not stored\n"), 1;
  char *body = calloc(1, first.body_size + 200);
  need(hutch_put(cache, HUTCH_STR("plain"), body, first.body_size + 200, NULL, NULL));
  free(body);

  static void (*const works[])(void) = {get, task, through};
  static const char *const names[] = {"get", "task", "session"};
  double elapsed[3][ROUNDS], cpu[3][ROUNDS];
  for (int round = 0; round < ROUNDS; round++)
    for (int work = 0; work < 3; work++)
      measure(works[work], &elapsed[work][round], &cpu[work][round]);
  for (int work = 0; work < 3; work++) {
    qsort(elapsed[work], ROUNDS, sizeof(double), by_size);
    qsort(cpu[work], ROUNDS, sizeof(double), by_size);
    printf("%-8s %8.2f us  CPU %8.2f us\n", names[work], elapsed[work][ROUNDS / 2],
           cpu[work][ROUNDS / 2]);
  }
  printf("task - get: %.2f us, CPU %.2f us\n", elapsed[1][ROUNDS / 2] - elapsed[0][ROUNDS / 2],
         cpu[1][ROUNDS / 2] - cpu[0][ROUNDS / 2]);
  need(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  need(hutch_http_session_wait(session, HUTCH_FOREVER));
  hutch_http_session_release(session);
  return hutch_close(cache);
}
