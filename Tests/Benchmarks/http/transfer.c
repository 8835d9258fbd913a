/* Downloads with libhutch_http and with a plain program of libcurl: transfer many URL | large URL
 * DIRECTORY. Prints the medians of interleaved rounds: elapsed time, and CPU time of the process.
 *
 *   many   1,000 downloads at once into memory, each with a connection; a new session, and a new
 *          multi handle, for each round
 *   large  one body: through a new cache in DIRECTORY to a function that reads it, and by libcurl
 *          into a file there; then the stored body out of the cache
 *
 * transfer.py starts a server, builds this program and runs it. */
#include <curl/curl.h>
#include <hutch_http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9, TASKS = 1000, MOST = 3 };

static const char *url, *directory;
static uint64_t size; /* of one body */

static void need(int is_true, const char *what) {
  if (is_true) return;
  fprintf(stderr, "%s: %s\n", what, hutch_http_error_words());
  exit(1);
}

/* -------------------------------------------------------------------- many */

typedef struct body {
  char *bytes;
  size_t size, room;
} body;

static size_t append(char *bytes, size_t one, size_t count, void *context) {
  body *b = context;
  if (b->size + one * count > b->room) {
    b->room = 2 * b->room + one * count;
    b->bytes = realloc(b->bytes, b->room);
  }
  memcpy(b->bytes + b->size, bytes, one * count);
  b->size += one * count;
  return one * count;
}

static void many_by_curl(void) {
  static body bodies[TASKS];
  CURLM *multi = curl_multi_init();
  int running = 0, left = 0, done = 0;
  for (int index = 0; index < TASKS; index++) {
    CURL *easy = curl_easy_init();
    bodies[index].size = 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &bodies[index]);
    curl_multi_add_handle(multi, easy);
  }
  do {
    curl_multi_perform(multi, &running);
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
      CURL *easy = message->easy_handle;
      need(message->msg == CURLMSG_DONE && message->data.result == CURLE_OK, "curl");
      curl_multi_remove_handle(multi, easy);
      curl_easy_cleanup(easy);
      done++;
    }
    if (running) curl_multi_poll(multi, NULL, 0, 1000, NULL);
  } while (running);
  need(done == TASKS, "curl");
  for (int index = 0; index < TASKS; index++) need(bodies[index].size == size, "a body of curl");
  curl_multi_cleanup(multi);
}

static void many(void) {
  static hutch_http_task *tasks[TASKS];
  hutch_http_session *session;
  hutch_http_configuration configuration = {
      .struct_size = sizeof configuration, .connections_per_host = TASKS, .width = TASKS};
  hutch_http_request request = {.struct_size = sizeof request, .url = url};
  hutch_http_response response = {.struct_size = sizeof response};
  need(hutch_http_session_create(&configuration, &session) == HUTCH_OK, "session");
  for (int index = 0; index < TASKS; index++) {
    need(hutch_http_task_create(session, &request, &tasks[index]) == HUTCH_OK, "task");
    hutch_http_task_resume(tasks[index]);
  }
  for (int index = 0; index < TASKS; index++) {
    hutch_http_task_wait(tasks[index], HUTCH_FOREVER);
    need(hutch_http_task_response(tasks[index], &response) == HUTCH_OK, "response");
    need(response.code == 200 && response.body_size == size, "a body");
    hutch_http_task_release(tasks[index]);
  }
  hutch_http_session_end(session, HUTCH_HTTP_FINISH);
  hutch_http_session_wait(session, HUTCH_FOREVER);
  hutch_http_session_release(session);
}

/* ------------------------------------------------------------------- large */

static uint64_t got;

static hutch_status read_piece(void *context, hutch_http_task *task, const void *data,
                               size_t count) {
  (void)context, (void)task, (void)data;
  got += count;
  return HUTCH_OK;
}

static hutch_cache *cache;
static hutch_http_session *session;

static void fetch(uint32_t mode) {
  hutch_http_request request = {
      .struct_size = sizeof request, .url = url, .on_body = read_piece, .cache_mode = mode};
  hutch_http_response response = {.struct_size = sizeof response};
  hutch_http_task *task;
  got = 0;
  need(hutch_http_task_create(session, &request, &task) == HUTCH_OK, "task");
  hutch_http_task_resume(task);
  hutch_http_task_wait(task, HUTCH_FOREVER);
  need(hutch_http_task_response(task, &response) == HUTCH_OK && got == size, "large body");
  need(response.from_cache == (mode == HUTCH_HTTP_CACHE_ONLY), "from the cache");
  hutch_http_task_release(task);
}

static void large_stored(void) { fetch(HUTCH_HTTP_CACHE_RELOAD); }
static void large_hit(void) { fetch(HUTCH_HTTP_CACHE_ONLY); }

static void large_by_curl(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/by_curl", directory);
  FILE *file = fopen(path, "wb");
  CURL *easy = curl_easy_init();
  need(file != NULL && easy != NULL, path);
  curl_easy_setopt(easy, CURLOPT_URL, url);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, file);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 102400L); /* as the tool curl does */
  need(curl_easy_perform(easy) == CURLE_OK && ftell(file) == (long)size, "curl");
  curl_easy_cleanup(easy);
  fclose(file);
}

static void open_session(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/cache", directory);
  hutch_options options = {.struct_size = sizeof options};
  options.disk.cost = UINT64_C(4) << 30;
  options.disk.max_entry = 1 << 30;
  need(hutch_open(path, &options, &cache) == HUTCH_OK, "open");
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache};
  need(hutch_http_session_create(&configuration, &session) == HUTCH_OK, "session");
}

/* ----------------------------------------------------------------- rounds */

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(void (*const *works)(void), const char *const *names, int count) {
  double elapsed[MOST][ROUNDS], cpu[MOST][ROUNDS];
  for (int round = -1; round < ROUNDS; round++)
    for (int work = 0; work < count; work++) {
      double start = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
      works[work]();
      if (round < 0) continue;
      elapsed[work][round] = now(CLOCK_MONOTONIC) - start;
      cpu[work][round] = now(CLOCK_PROCESS_CPUTIME_ID) - used;
    }
  for (int work = 0; work < count; work++) {
    qsort(elapsed[work], ROUNDS, sizeof(double), by_size);
    qsort(cpu[work], ROUNDS, sizeof(double), by_size);
    printf("%-28s %8.1f ms (%.2f x)  CPU %8.1f ms (%.2f x)\n", names[work],
           elapsed[work][ROUNDS / 2], elapsed[0][ROUNDS / 2] / elapsed[work][ROUNDS / 2],
           cpu[work][ROUNDS / 2], cpu[0][ROUNDS / 2] / cpu[work][ROUNDS / 2]);
  }
}

int main(int count, char **arguments) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  if (count == 4 && strcmp(arguments[1], "many") == 0) {
    url = arguments[2];
    size = strtoull(arguments[3], NULL, 10);
    static void (*const works[])(void) = {many_by_curl, many};
    static const char *const names[] = {"1,000 by libcurl", "1,000 by libhutch_http"};
    measure(works, names, 2);
    return 0;
  }
  if (count == 5 && strcmp(arguments[1], "large") == 0) {
    url = arguments[2];
    size = strtoull(arguments[3], NULL, 10);
    directory = arguments[4];
    open_session();
    static void (*const works[])(void) = {large_by_curl, large_stored, large_hit};
    static const char *const names[] = {"large, curl to a file", "large, through the cache",
                                        "large, out of the cache"};
    measure(works, names, 3);
    hutch_http_session_end(session, HUTCH_HTTP_FINISH);
    hutch_http_session_wait(session, HUTCH_FOREVER);
    hutch_http_session_release(session);
    return hutch_close(cache);
  }
  return fprintf(stderr, "transfer many URL SIZE | large URL SIZE DIRECTORY\n"), 2;
}
