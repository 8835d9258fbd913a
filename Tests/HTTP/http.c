#include "http.h"

#include <dirent.h>
#include <unistd.h>

/* A quiet machine needs less than a second for each. */
#define LONG_WAIT (30 * HUTCH_SECOND)

#ifdef HUTCH_SANITIZED
#if __has_feature(address_sanitizer)
/* How many threads this process has. */
static int threads(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/task");
  while (directory && readdir(directory)) count++;
  if (directory) closedir(directory);
  return count - 2; /* "." and ".." */
}

/* The thread of a session frees what it has after the session has ended. LeakSanitizer, which looks
   when the process exits, would not find what is just being freed. ThreadSanitizer does not look for
   leaks, and has a thread of its own, so with it this would wait in vain. */
static void await_threads(void) {
  for (int tries = 0; tries < 400 && threads() > 1; tries++) usleep(5000);
}

/* Called before LeakSanitizer, which was there first. */
__attribute__((constructor)) static void await_threads_at_exit(void) { atexit(await_threads); }
#endif
#endif

/* Texts that stay until the process ends, where valgrind finds them. */
const char *kept(const char *format, const char *a, const char *b) {
  static struct text {
    struct text *next;
    char characters[];
  } *all;
  size_t size = strlen(format) + strlen(a) + strlen(b) + 1;
  struct text *text = malloc(sizeof *text + size);
  CHECK(text != NULL);
  text->next = all;
  all = text;
  snprintf(text->characters, size, format, a, b);
  return text->characters;
}

const char *file_of(const char *name) {
  const char *directory = getenv("HUTCH_HTTP_SERVERS");
  if (directory == NULL) FAIL("HUTCH_HTTP_SERVERS is not set");
  return kept("%s/%s", directory, name);
}

const char *told(const char *name) {
  FILE *file = fopen(file_of("servers.txt"), "r");
  if (file == NULL) FAIL("the servers do not run: servers.py start");
  char key[64], value[256];
  while (fscanf(file, "%63s %255s", key, value) == 2) {
    if (strcmp(key, name) == 0) {
      fclose(file);
      return kept("%s%s", value, "");
    }
  }
  FAIL("servers.txt has no %s", name);
}

const char *url_of(const char *server, const char *path) {
  bool secure = strcmp(server, "good") == 0 || strcmp(server, "wrong") == 0 ||
                strcmp(server, "old") == 0 || strcmp(server, "own") == 0 ||
                strcmp(server, "asks") == 0;
  const char *start = kept("%s%s", secure ? "https://127.0.0.1:" : "http://127.0.0.1:",
                           told(server));
  return kept("%s%s", start, path);
}

hutch_http_session *new_session(const hutch_http_configuration *configuration) {
  hutch_http_session *session;
  CHECK_OK(hutch_http_session_create(configuration, &session));
  return session;
}

void end_session(hutch_http_session *session) {
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  CHECK_OK(hutch_http_session_wait(session, LONG_WAIT));
  hutch_http_session_release(session);
}

hutch_http_request get(const char *url) {
  return (hutch_http_request){.struct_size = sizeof(hutch_http_request), .url = url};
}

hutch_http_task *begin(hutch_http_session *session, const hutch_http_request *request) {
  hutch_http_task *task;
  hutch_status status = hutch_http_task_create(session, request, &task);
  if (status != HUTCH_OK) FAIL("%d: %s", status, hutch_http_error_words());
  CHECK_OK(hutch_http_task_resume(task));
  return task;
}

hutch_status result_of(hutch_http_task *task) {
  uint32_t state;
  hutch_status result;
  CHECK_OK(hutch_http_task_wait(task, LONG_WAIT));
  CHECK_OK(hutch_http_task_status(task, &state, &result));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, state);
  return result;
}

hutch_http_task *fetch(hutch_http_session *session, const hutch_http_request *request) {
  hutch_http_task *task = begin(session, request);
  hutch_status status = result_of(task);
  if (status < 0) FAIL("%s: %s", request->url, error_of(task).words);
  CHECK_EQUAL(HUTCH_OK, status);
  return task;
}

hutch_http_response response_of(hutch_http_task *task) {
  hutch_http_response response = {.struct_size = sizeof response};
  CHECK_OK(hutch_http_task_response(task, &response));
  return response;
}

hutch_error error_of(hutch_http_task *task) {
  hutch_error error = {.struct_size = sizeof error};
  hutch_status status = hutch_http_task_error(task, &error);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  return error;
}

bool body_has(hutch_http_task *task, const char *text) {
  hutch_http_response response = response_of(task);
  return response.body_size > 0 &&
         memmem(response.body, response.body_size, text, strlen(text)) != NULL;
}

void await_callback(hutch_http_task *task, const _Atomic int *is_made) {
  while (!*is_made) {
    if (state_of(task) == HUTCH_HTTP_ENDED && !*is_made)
      FAIL("a task has ended without a callback: %s", error_of(task).words);
    nap();
  }
}

uint32_t state_of(hutch_http_task *task) {
  uint32_t state;
  CHECK_OK(hutch_http_task_status(task, &state, NULL));
  return state;
}

const char *status_of(const hutch_http_configuration *configuration,
                      const hutch_http_request *request, hutch_status expected) {
  hutch_http_session *session = new_session(configuration);
  hutch_http_task *task = begin(session, request);
  hutch_status status = result_of(task);
  hutch_error error = error_of(task);
  if (status != expected)
    FAIL("%s: %s instead of %s: %s", request->url, hutch_http_status_name(status),
         hutch_http_status_name(expected), error.words);
  CHECK_EQUAL(expected < 0 ? expected : 0, error.status);
  hutch_http_task_release(task);
  end_session(session);
  return kept("%s%s", error.words, "");
}

void count_completion(void *context, const hutch_http_completion *completion) {
  counts *c = context;
  c->completions++;
  c->status = completion->status;
  c->thread = pthread_self();
  CHECK_EQUAL(HUTCH_HTTP_ENDED, state_of(completion->task));
  CHECK((completion->status < 0) == (completion->error != NULL));
  if (completion->error) memcpy(c->words, completion->error->words, sizeof c->words);
}

void count_release(void *context) { ((counts *)context)->releases++; }

void count_response(void *context, hutch_http_task *task) {
  response_of(task);
  ((counts *)context)->responses++;
}

void count_progress(void *context, hutch_http_task *task, const hutch_http_progress *progress) {
  counts *c = context;
  CHECK(task != NULL && progress->struct_size == sizeof *progress);
  CHECK(progress->received >= c->received && progress->sent >= c->sent);
  c->progresses++;
  c->received = progress->received;
  c->sent = progress->sent;
  c->expected = progress->expected;
}

hutch_http_request counted(const char *url, counts *c) {
  hutch_http_request request = get(url);
  request.context = c;
  request.complete = count_completion;
  request.release = count_release;
  request.on_response = count_response;
  request.on_progress = count_progress;
  return request;
}
