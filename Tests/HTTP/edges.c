/* Responses that cost much, have no end, or come while a callback runs; and what is left of an
   older response. */
#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"

static hutch_status drop(void *context, hutch_http_task *task, const void *data, size_t size) {
  (void)context, (void)task, (void)data, (void)size;
  return HUTCH_OK;
}

/* -------------------------------------------------------------- many headers */

/* The work for a response must not grow with the square of its headers: the session has one
   thread, and 60,000 of them would keep it for minutes. */
TEST(a_response_with_very_many_headers_comes_and_is_not_stored) {
  static const struct { const char *query; bool is_stored; } rows[] = {
      {"line=X-Any:+1&n=990", true},
      {"line=X-Any:+1&n=1010", false},
      {"line=a:", false},
      {"line=Vary:+a", false},
      {"line=Connection:+a", false},
      {"line=Cache-Control:+no-cache%3D%22a%22", false},
      /* These are one header. */
      {"line=+b", true}};
  rig r = start("many_headers", 0);
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    check_note(rows[index].query);
    const char *path = kept("/short_headers?%s%s", rows[index].query, "");
    hutch_http_request request = get(url_of("wire", path));
    for (int turn = 0; turn < 2; turn++) {
      hutch_http_task *task = fetch(r.session, &request);
      hutch_http_response response = response_of(task);
      const char *value;
      CHECK(response.code == 200 && response.body_size == 4);
      CHECK_OK(hutch_http_task_header(task, "x-first", 0, &value));
      CHECK_EQUAL('1', value[0]);
      CHECK_EQUAL(turn == 1 && rows[index].is_stored, response.from_cache);
      hutch_http_task_release(task);
    }
  }
  check_note(NULL);
  stop(&r);
}

TEST(a_304_with_very_many_headers_confirms_and_removes) {
  rig r = start("many_in_304", 0);
  char text[30000] = "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nold\n====\n"
                     "304 Not Modified\nETag: \"1\"\nCache-Control: max-age=100\n";
  size_t size = strlen(text);
  for (int line = 0; line < 1500; line++)
    size += (size_t)snprintf(text + size, sizeof text - size, "X-%d: 1\n", line);
  strcat(text, "\n\n====\n200 OK\n\nnew");
  tell(&r, text);
  expect(&r, NULL, 200, "old", false);
  seconds += 2;
  expect(&r, NULL, 200, "old", true);
  expect(&r, NULL, 200, "new", false);
  stop(&r);
}

/* ------------------------------------------------------------- without an end */

TEST(a_response_without_an_end_keeps_no_other_task_waiting) {
  static const char *const types[] = {"text/event-stream", "Text/Event-Stream;charset=utf-8",
                                      "multipart/x-mixed-replace;boundary=a"};
  rig r = start("endless", 0);
  for (size_t index = 0; index < sizeof types / sizeof *types; index++) {
    counts first = {0}, second = {0};
    hutch_http_request request =
        counted(url_of("wire", kept("/events?type=%s%s", types[index], "")), &first);
    request.on_body = drop;
    hutch_http_task *tasks[2] = {begin(r.session, &request)};
    await_callback(tasks[0], &first.responses);
    request.context = &second;
    tasks[1] = begin(r.session, &request);
    await_callback(tasks[1], &second.responses);
    /* The second one has its own request, and has not waited for the end of the first one. */
    for (int one = 0; one < 2; one++) {
      CHECK_EQUAL(HUTCH_HTTP_RUNNING, state_of(tasks[one]));
      CHECK_OK(hutch_http_task_cancel(tasks[one], NULL));
      CHECK_EQUAL(HUTCH_CANCELLED, result_of(tasks[one]));
      hutch_http_task_release(tasks[one]);
    }
  }
  stop(&r);
}

/* ------------------------------------------------------------------ a callback */

static void read_request(int connection) {
  char text[4096];
  size_t size = 0;
  while (size < 4 || memcmp(text + size - 4, "\r\n\r\n", 4) != 0) {
    ssize_t count = read(connection, text + size, sizeof text - size);
    CHECK(count > 0);
    size += (size_t)count;
  }
}

/* The server's end of a connection on which a request has come. */
static int taken(int listener) {
  int connection = accept(listener, NULL, NULL);
  CHECK(connection >= 0);
  read_request(connection);
  return connection;
}

static void say(int connection, const char *text) {
  CHECK_EQUAL((ssize_t)strlen(text), write(connection, text, strlen(text)));
}

typedef struct held {
  _Atomic int is_called, may_return;
} held;

static void hold_thread(void *context, hutch_http_task *task) {
  held *h = context;
  (void)task;
  h->is_called = 1;
  while (!h->may_return) usleep(1000);
}

TEST(what_came_while_a_callback_ran_counts_before_a_timeout) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
  hutch_http_session *session = new_session(NULL);
  counts c = {0};
  hutch_http_request request = counted(url, &c);
  request.idle_timeout = 2 * HUTCH_SECOND;
  /* libcurl looks at a new connection by itself, and so reads what has come on it. */
  hutch_http_task *warming = begin(session, &request);
  int first = taken(listener);
  say(first, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  CHECK_EQUAL(HUTCH_OK, result_of(warming));
  hutch_http_task_release(warming);
  c.responses = 0;
  hutch_http_task *waiting = begin(session, &request);
  read_request(first);
  say(first, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbo");
  await_callback(waiting, &c.responses);
  held h = {0};
  request = get(url);
  request.on_response = hold_thread;
  request.context = &h;
  hutch_http_task *holding = begin(session, &request);
  int second = taken(listener);
  say(second, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  await_callback(holding, &h.is_called);
  /* Longer than the idle timeout: then the rest is there, and the thread is let go. */
  struct timespec more = {.tv_sec = 2, .tv_nsec = 200000000};
  CHECK(nanosleep(&more, NULL) == 0);
  say(first, "dy");
  h.may_return = 1;
  CHECK_EQUAL(HUTCH_OK, result_of(waiting));
  CHECK(body_has(waiting, "body"));
  CHECK_EQUAL(HUTCH_OK, result_of(holding));
  hutch_http_task_release(waiting);
  hutch_http_task_release(holding);
  /* One that has nothing to read is idle as before. */
  request.on_response = NULL;
  request.idle_timeout = 50 * HUTCH_MILLISECOND;
  hutch_http_task *idle = begin(session, &request);
  CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(idle));
  hutch_http_task_release(idle);
  end_session(session);
  close(first);
  close(second);
  close(listener);
}

/* ----------------------------------------------------------- an older response */

TEST(a_clock_that_was_set_back_keeps_nothing_fresh_for_longer) {
  ROWS(set_back,
       {"by a minute", "Cache-Control: max-age=3600", -60, NULL, 1, 0},
       {"by two hours", "Cache-Control: max-age=3600", -7200, NULL, 2, 0},
       {"by a year, a date", "Date: {date+0}\nExpires: {date+3600}", -31536000, NULL, 2, 0});
}

TEST(a_newer_response_that_is_too_large_removes_the_older_one) {
  rig r = start("too_large", 0);
  r.configuration.max_body = 8;
  end_session(r.session);
  r.session = new_session(&r.configuration);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nold\n====\n"
           "200 OK\nCache-Control: max-age=100\n\nnew, and too large\n====\n200 OK\n\nnewest");
  expect(&r, NULL, 200, "old", false);
  hutch_http_request request = request_of(&r);
  request.on_body = drop;
  request.cache_mode = HUTCH_HTTP_CACHE_RELOAD;
  hutch_http_task *task = fetch(r.session, &request);
  CHECK_EQUAL(0, response_of(task).from_cache);
  hutch_http_task_release(task);
  /* The host has had a newer one, so the older one does not answer any more. */
  expect(&r, NULL, 200, "newest", false);
  stop(&r);
}

TEST(a_validation_behind_an_answer_is_about_the_whole) {
  static const char *const headers[] = {"If-None-Match: W/\"1\"", "Range: bytes=0-1",
                                        "If-Modified-Since: Mon, 18 Jan 2077 08:00:00 GMT"};
  static const int codes[] = {304, 206, 304};
  for (int index = 0; index < 3; index++) {
    char name[32];
    snprintf(name, sizeof name, "behind_whole_%d", index);
    rig r = start(name, 0);
    tell(&r, "200 OK\nCache-Control: max-age=1, stale-while-revalidate=100\nETag: W/\"1\"\n"
             "Last-Modified: {date-9}\n\nbody\n====\n"
             "304 Not Modified\nETag: W/\"1\"\nCache-Control: max-age=100\n\n\n====\n"
             "200 OK\n\nnot asked for");
    expect(&r, NULL, 200, "body", false);
    seconds += 2;
    answer a = answer_to(&r, headers[index], 0);
    CHECK(a.code == codes[index] && a.from_cache);
    while (asked(&r) < 2) continue;
    CHECK(asked_with(&r, "if-none-match: W/\"1\"\n") && !asked_with(&r, "range: "));
    /* The session ends when the validation has ended. */
    end_session(r.session);
    r.session = new_session(&r.configuration);
    expect(&r, NULL, 200, "body", true);
    CHECK_EQUAL(2, asked(&r));
    stop(&r);
  }
}
