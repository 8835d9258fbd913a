/* What becomes of a response while something else happens: another request changes its resource,
   the server stalls, other requests have all connections. And what of a request the cache reads. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rig.h"

/* A request of the rig with this method, which the origin answers at once. */
static void send_method(rig *r, const char *method) {
  hutch_http_request request = request_of(r);
  request.method = method;
  hutch_http_task_release(fetch(r->session, &request));
}

/* The answer to a GET that the origin holds as its request number `requests`, and lets go after it
   has answered a request with this method. */
static answer answer_amid(rig *r, int requests, const char *method) {
  hutch_http_request request = request_of(r);
  hutch_http_task *task = begin(r->session, &request);
  while (asked(r) < requests) continue;
  send_method(r, method);
  go(r);
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  answer a = read_answer(task);
  hutch_http_task_release(task);
  return a;
}

static hutch_status drop(void *context, hutch_http_task *task, const void *data, size_t size) {
  (void)context, (void)task, (void)data, (void)size;
  return HUTCH_OK;
}

/* ----------------------------------------------------------------- a change */

static hutch_http_task *_Atomic to_suspend;
static pthread_t sessions_thread;

/* The session's thread asks for the time when the headers of an error are there. */
static int64_t time_that_suspends(void *context) {
  if (to_suspend && pthread_equal(pthread_self(), sessions_thread))
    CHECK_OK(hutch_http_task_suspend(atomic_exchange(&to_suspend, NULL)));
  return the_time(context);
}

static void suspend_at_response(void *context, hutch_http_task *task) {
  count_response(context, task);
  CHECK_OK(hutch_http_task_suspend(task));
}

/* libcurl keeps what it has unpacked of the error's body. When the task is resumed, that is more
   than the library reads of a body that nobody gets. libcurl would read on at the time of its
   timeout for connections. */
TEST(a_response_in_place_of_an_error_has_nothing_of_the_errors_body) {
  hutch_options options = {.struct_size = sizeof options, .clock = time_that_suspends};
  rig r = {.configuration = {.struct_size = sizeof r.configuration}, .name = "error_body"};
  r.configuration.connect_timeout = 3 * HUTCH_SECOND;
  CHECK_OK(hutch_open(NULL, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.session = new_session(&r.configuration);
  r.plain = new_session(NULL);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-if-error=100\n\nstored\n====\n"
           "hold zipped 500 No\n\nwrong");
  counts first = {0}, c = {0};
  hutch_http_request request = counted(request_of(&r).url, &first);
  request.flags = HUTCH_HTTP_COMPRESSED;
  hutch_http_task_release(fetch(r.session, &request));
  sessions_thread = first.thread;
  seconds += 20;
  request.context = &c;
  request.on_response = suspend_at_response;
  hutch_http_task *task = begin(r.session, &request);
  while (asked(&r) < 2) continue;
  to_suspend = task;
  go(&r);
  while (state_of(task) != HUTCH_HTTP_SUSPENDED) nap();
  let_begin(&r);
  CHECK_OK(hutch_http_task_resume(task));
  await_callback(task, &c.responses);
  go(&r);
  while (asked(&r) < 3) continue;
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_http_task_wait(task, 3 * HUTCH_SECOND));
  let_begin(&r);
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  answer a = read_answer(task);
  CHECK_EQUAL(200, a.code);
  if (strcmp(a.body, "stored") != 0) FAIL("\"%s\" instead of \"stored\"", a.body);
  hutch_http_task_release(task);
  stop(&r);
}

TEST(a_validation_answers_though_the_resource_is_changed_meanwhile) {
  rig r = start("changed_validation", 0);
  tell(&r, "200 OK\nCache-Control: max-age=0\nETag: \"1\"\n\none\n====\n"
           "hold 304 Not Modified\nETag: \"1\"\n\n\n====\n200 OK\n\nchanged");
  expect(&r, NULL, 200, "one", false);
  answer a = answer_amid(&r, 2, "POST");
  /* The host has asked for no condition, so no 304 is its answer. */
  CHECK(a.code == 200 && a.from_cache && strcmp(a.body, "one") == 0);
  CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
  stop(&r);
}

TEST(a_response_that_may_be_of_before_a_change_is_not_stored) {
  rig r = start("changed_response", 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\none\n====\n200 OK\n\nchanged\n====\n"
           "200 OK\nCache-Control: max-age=100\n\ntwo");
  CHECK(strcmp(answer_amid(&r, 1, "DELETE").body, "one") == 0);
  expect(&r, NULL, 200, "two", false);
  expect(&r, NULL, 200, "two", true);
  stop(&r);
}

TEST(the_rest_of_a_part_is_not_put_to_it_after_a_change) {
  rig r = start("changed_part", 0);
  tell(&r, "206 Partial Content\nCache-Control: max-age=100\nETag: \"1\"\n"
           "Content-Range: bytes 0-3/8\n\n0123\n====\n"
           "hold 206 Partial Content\nETag: \"1\"\nContent-Range: bytes 4-7/8\n\n4567\n====\n"
           "200 OK\n\nchanged\n====\n200 OK\nETag: \"2\"\n\nnew");
  expect(&r, "Range: bytes=0-3", 206, "0123", false);
  CHECK(strcmp(answer_amid(&r, 2, "PUT").body, "new") == 0);
  stop(&r);
}

/* ------------------------------------------------------------------ a stall */

TEST(a_stored_response_stands_in_for_a_server_that_stalls) {
  rig r = start("stalls", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-if-error=20\n\none\n====\nhold 200 OK\n\ntwo");
  expect(&r, NULL, 200, "one", false);
  seconds += 11;
  hutch_http_request request = request_of(&r);
  request.idle_timeout = 50 * HUTCH_MILLISECOND;
  hutch_http_task *task = fetch(r.session, &request);
  answer a = read_answer(task);
  CHECK(a.from_cache && strcmp(a.body, "one") == 0);
  hutch_http_task_release(task);
  /* The limit for the whole is one for the host. */
  request.idle_timeout = 0;
  request.total_timeout = 50 * HUTCH_MILLISECOND;
  task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(task));
  hutch_http_task_release(task);
  seconds += 20;
  request.idle_timeout = 50 * HUTCH_MILLISECOND;
  request.total_timeout = 0;
  task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(task));
  hutch_http_task_release(task);
  go(&r);
  stop(&r);
}

TEST(a_request_that_waits_for_a_connection_is_not_idle) {
  rig r = start("waits", 0);
  tell(&r, "hold 200 OK\n\nbody");
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .connections_per_host = 1};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = request_of(&r);
  hutch_http_task *first = begin(session, &request);
  while (asked(&r) < 1) continue;
  request.idle_timeout = 1;
  hutch_http_task *second = begin(session, &request);
  /* It has a connection, and begins after the second one: its timeout passes later. */
  request.url = url_of("wire", "/stall");
  hutch_http_task *third = begin(session, &request);
  CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(third));
  CHECK_EQUAL(HUTCH_HTTP_RUNNING, state_of(second));
  CHECK_OK(hutch_http_task_cancel(second, NULL));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(second));
  go(&r);
  CHECK_EQUAL(HUTCH_OK, result_of(first));
  hutch_http_task_release(first);
  hutch_http_task_release(second);
  hutch_http_task_release(third);
  end_session(session);
  stop(&r);
}

/* ----------------------------------------------------------------- a cancel */

typedef struct cancelling {
  bool at_response;
  int pieces;
  uint32_t was;
} cancelling;

static void cancel_at_response(void *context, hutch_http_task *task) {
  cancelling *c = context;
  if (c->at_response) CHECK_OK(hutch_http_task_cancel(task, &c->was));
}

static hutch_status cancel_at_piece(void *context, hutch_http_task *task, const void *data,
                                    size_t size) {
  cancelling *c = context;
  CHECK(data != NULL && size > 0);
  if (c->pieces++ == 0 && !c->at_response) CHECK_OK(hutch_http_task_cancel(task, &c->was));
  return HUTCH_OK;
}

TEST(a_cancel_within_a_callback_has_its_effect) {
  hutch_cache *cache;
  CHECK_OK(hutch_open(scratch("cache").text, NULL, &cache));
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache};
  hutch_http_session *session = new_session(&configuration);
  path file = scratch("file");
  /* A body that comes with its headers; and one that is stored first, and read in pieces. */
  const char *paths[] = {"/say?hex=6162", "/large?n=2000000&stored=1"};
  for (int large = 0; large < 2; large++) {
    hutch_http_request request = get(url_of("wire", paths[large]));
    request.on_body = drop;
    hutch_http_task_release(fetch(session, &request));
    request.on_response = cancel_at_response;
    for (int way = 0; way < 3; way++) {
      cancelling c = {.at_response = way != 0};
      request.context = &c;
      request.on_body = way == 2 ? NULL : cancel_at_piece;
      request.download = way == 2 ? file.text : NULL;
      hutch_http_task *task = begin(session, &request);
      CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
      CHECK_EQUAL(HUTCH_HTTP_RUNNING, c.was);
      CHECK(c.pieces <= 1);
      CHECK(access(file.text, F_OK) != 0);
      hutch_http_task_release(task);
    }
  }
  end_session(session);
  CHECK_OK(hutch_close(cache));
}

/* --------------------------------------------------- what belongs to a request */

/* From here on the session of the rig has this header. */
static void send_always(rig *r, const char *name, const char *value) {
  hutch_http_header header = {name, value};
  r->configuration.headers = &header;
  r->configuration.header_count = 1;
  end_session(r->session);
  r->session = new_session(&r->configuration);
  r->configuration.header_count = 0;
}

TEST(headers_of_the_session_are_those_of_each_request) {
  static const struct { const char *header; const char *value; int code; int requests; } rows[] = {
      {"Cache-Control", "no-cache", 200, 2}, {"Cache-Control", "max-age=0", 200, 2},
      {"Pragma", "no-cache", 200, 2},        {"Cache-Control", "max-age=100", 200, 1},
      {"If-None-Match", "\"1\"", 304, 1},    {"Range", "bytes=0-1", 206, 1},
      {"If-Match", "\"1\"", 200, 2},         {"Authorization", "Basic YTpi", 200, 1}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[64];
    snprintf(name, sizeof name, "of_session_%zu", index);
    check_note(rows[index].header);
    rig r = start(name, 0);
    tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\nbody");
    expect(&r, NULL, 200, "body", false);
    send_always(&r, rows[index].header, rows[index].value);
    CHECK_EQUAL(rows[index].code, answer_to(&r, NULL, 0).code);
    CHECK_EQUAL(rows[index].requests, asked(&r));
    stop(&r);
  }
  check_note(NULL);
  rig r = start("of_session", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
  send_always(&r, "Cache-Control", "no-store");
  expect(&r, NULL, 200, "body", false);
  expect(&r, NULL, 200, "body", false);
  /* The request's own take the place of it. */
  expect(&r, "Cache-Control: max-age=100", 200, "body", false);
  expect(&r, NULL, 200, "body", true);
  stop(&r);
}

TEST(a_request_that_names_another_host_is_made_without_the_cache) {
  rig r = start("other_host", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nmine\n====\n"
           "200 OK\nCache-Control: max-age=100\n\nother");
  expect(&r, NULL, 200, "mine", false);
  expect(&r, "Host: other.test", 200, "other", false);
  CHECK(asked_with(&r, "host: other.test\n"));
  expect(&r, NULL, 200, "mine", true);
  stop(&r);
}

static int32_t give_credentials(void *context, hutch_http_task *task,
                                const hutch_http_challenge *challenge,
                                hutch_http_credentials *credentials) {
  (void)task;
  CHECK_EQUAL(++*(_Atomic int *)context, challenge->attempt);
  strcpy(credentials->user, "ann");
  strcpy(credentials->password, "s3cret");
  return 0;
}

TEST(a_stored_challenge_is_answered_by_a_request) {
  rig r = start("challenge", 0);
  tell(&r, "401 No\nWWW-Authenticate: Basic realm=\"x\"\nCache-Control: max-age=100\n\nno\n====\n"
           "200 OK\n\nwelcome");
  expect(&r, NULL, 401, "no", false);
  _Atomic int challenges = 0;
  hutch_http_request request = request_of(&r);
  request.on_challenge = give_credentials;
  request.context = (void *)&challenges;
  /* Without a request there is no answer. */
  request.cache_mode = HUTCH_HTTP_CACHE_ONLY;
  hutch_http_task *task = fetch(r.session, &request);
  answer a = read_answer(task);
  CHECK(a.code == 401 && a.from_cache && challenges == 0);
  hutch_http_task_release(task);
  request.cache_mode = 0;
  task = fetch(r.session, &request);
  CHECK(strcmp(read_answer(task).body, "welcome") == 0);
  CHECK_EQUAL(1, challenges);
  CHECK_EQUAL(2, asked(&r));
  CHECK(asked_with(&r, "authorization: Basic YW5uOnMzY3JldA==\n"));
  hutch_http_task_release(task);
  stop(&r);
}

TEST(what_follows_from_a_challenge_is_not_for_those_without_credentials) {
  rig r = start("challenge_vary", SHARED);
  tell(&r, "401 No\nWWW-Authenticate: Basic realm=\"x\"\n\nno\n====\n"
           "200 OK\nCache-Control: max-age=100, public\nVary: Authorization\n\nwelcome\n====\n"
           "401 No\n\nno");
  _Atomic int challenges = 0;
  hutch_http_request request = request_of(&r);
  request.on_challenge = give_credentials;
  request.context = (void *)&challenges;
  hutch_http_task *task = fetch(r.session, &request);
  CHECK(strcmp(read_answer(task).body, "welcome") == 0);
  hutch_http_task_release(task);
  expect(&r, NULL, 401, "no", false);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}

TEST(a_challenge_of_a_proxy_is_not_stored) {
  rig r = start("proxy_challenge", 0);
  tell(&r, "407 No\nProxy-Authenticate: Basic realm=\"x\"\nCache-Control: max-age=100\n\nno\n====\n"
           "200 OK\n\nbody");
  expect(&r, NULL, 407, "no", false);
  expect(&r, NULL, 200, "body", false);
  stop(&r);
}

TEST(a_range_is_for_get_only) {
  rig r = start("head_range", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\n0123456789");
  expect(&r, NULL, 200, "0123456789", false);
  hutch_http_header range = {"Range", "bytes=0-1"};
  hutch_http_request request = request_of(&r);
  request.method = "HEAD";
  request.headers = &range;
  request.header_count = 1;
  hutch_http_task *task = fetch(r.session, &request);
  CHECK_EQUAL(200, read_answer(task).code);
  CHECK(header_is(task, "Content-Length", "10"));
  hutch_http_task_release(task);
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}

TEST(a_validation_behind_an_answer_keeps_no_body_in_memory) {
  rig r = start("behind", 0);
  hutch_options options = {.struct_size = sizeof options, .clock = the_time};
  hutch_cache_release(r.cache);
  CHECK_OK(hutch_open(scratch("cache").text, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.configuration.max_body = 1000;
  end_session(r.session);
  r.session = new_session(&r.configuration);
  static char text[600000];
  int size = snprintf(text, sizeof text,
                      "200 OK\nCache-Control: max-age=10, stale-while-revalidate=20\n\none\n====\n"
                      "200 OK\nCache-Control: max-age=10\n\n");
  memset(text + size, 'x', sizeof text - size - 1);
  tell(&r, text);
  hutch_http_request request = request_of(&r);
  request.on_body = drop;
  hutch_http_task_release(fetch(r.session, &request));
  seconds += 11;
  hutch_http_task_release(fetch(r.session, &request));
  /* A session that ends finishes what it does behind. */
  end_session(r.session);
  r.session = new_session(&r.configuration);
  hutch_http_task *task = fetch(r.session, &request);
  CHECK_EQUAL(1, response_of(task).from_cache);
  hutch_http_progress progress = {.struct_size = sizeof progress};
  CHECK_OK(hutch_http_task_progress(task, &progress));
  CHECK_EQUAL(sizeof text - size - 1, progress.received);
  hutch_http_task_release(task);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(one_validation_runs_behind_any_number_of_answers) {
  rig r = start("behind_once", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-while-revalidate=20\n\none\n====\n"
           "hold 500 Broken\n\nbroken");
  expect(&r, NULL, 200, "one", false);
  seconds += 11;
  expect(&r, NULL, 200, "one", true);
  while (asked(&r) < 2) continue;
  for (int index = 0; index < 5; index++) expect(&r, NULL, 200, "one", true);
  let_begin(&r);
  go(&r);
  /* A session that ends finishes what it does behind. */
  end_session(r.session);
  r.session = new_session(&r.configuration);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(a_validation_behind_an_answer_stores_what_the_request_accepts) {
  rig r = start("behind_accepted", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-while-revalidate=90\n"
           "Content-Type: text/plain\n\none\n====\n"
           "404 Gone\nCache-Control: max-age=100\n\nnone\n====\n"
           "200 OK\nCache-Control: max-age=100\nContent-Type: text/html\n\nlogin");
  hutch_http_request request = request_of(&r);
  request.first_code = 200;
  request.last_code = 299;
  request.media_types = "text/plain";
  hutch_http_task_release(fetch(r.session, &request));
  seconds += 11;
  for (int index = 0; index < 3; index++) {
    hutch_http_task *task = fetch(r.session, &request);
    CHECK(strcmp(read_answer(task).body, "one") == 0);
    hutch_http_task_release(task);
    /* A session that ends finishes what it does behind. */
    end_session(r.session);
    r.session = new_session(&r.configuration);
  }
  CHECK_EQUAL(4, asked(&r));
  stop(&r);
}

/* ---------------------------------------------------------------- a failure */

TEST(a_stored_response_stands_in_for_one_that_is_not_valid) {
  static const char *bad[] = {"X Y: 1", "Content-Length: 3", "Content-Length: x"};
  for (int index = 0; index < 3; index++) {
    char name[32], text[256];
    snprintf(name, sizeof name, "not_valid_%d", index);
    snprintf(text, sizeof text,
             "200 OK\nCache-Control: max-age=10, stale-if-error=20\n\none\n====\n"
             "200 OK\n%s\n\ntwo-and-more", bad[index]);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, NULL, 200, "one", false);
    seconds += 11;
    expect(&r, NULL, 200, "one", true);
    CHECK_EQUAL(2, asked(&r));
    seconds += 20;
    hutch_http_request request = request_of(&r);
    hutch_http_task *task = begin(r.session, &request);
    CHECK_EQUAL(HUTCH_HTTP_BAD_RESPONSE, result_of(task));
    hutch_http_task_release(task);
    stop(&r);
  }
}

/* `count` tasks for one URL, of which the first makes a request that the origin holds. */
static void begin_held(rig *r, hutch_http_task **tasks, int count) {
  hutch_http_request request = request_of(r);
  for (int index = 0; index < count; index++) tasks[index] = begin(r->session, &request);
  let_begin(r);
  go(r);
}

TEST(one_task_asks_again_for_those_that_waited_for_a_lost_connection) {
  enum { CALLERS = 8 };
  rig r = start("failed_leader", 0);
  tell(&r, "hold cut 2 200 OK\nCache-Control: max-age=100\n\nbody\n====\n"
           "200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_task *tasks[CALLERS];
  begin_held(&r, tasks, CALLERS);
  for (int index = 0; index < CALLERS; index++) {
    CHECK_EQUAL(index == 0 ? HUTCH_HTTP_LOST : HUTCH_OK, result_of(tasks[index]));
    hutch_http_task_release(tasks[index]);
  }
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
  /* No task waits for a third request. */
  r = start("failed_leaders", 0);
  tell(&r, "hold cut 2 200 OK\n\nbody");
  begin_held(&r, tasks, CALLERS);
  for (int index = 0; index < CALLERS; index++) {
    CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(tasks[index]));
    hutch_http_task_release(tasks[index]);
  }
  CHECK_EQUAL(CALLERS, asked(&r));
  stop(&r);
}

/* ------------------------------------------------------------------ programs */

/* Sockets of the internet that a program which this process starts would have too. */
static int inherited_connections(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  CHECK(directory != NULL);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    int number = atoi(entry->d_name);
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(number, (struct sockaddr *)&address, &size) == 0 &&
        address.ss_family == AF_INET && !(fcntl(number, F_GETFD) & FD_CLOEXEC))
      count++;
  }
  closedir(directory);
  return count;
}

TEST(a_connection_is_not_for_programs_that_the_host_starts) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task_release(fetch(session, &request));
  CHECK_EQUAL(0, inherited_connections());
  end_session(session);
}

/* A host that has closed a standard stream may still write to it: to the server, if a connection
   had its number. The connection stays open after the request. */
TEST(a_connection_is_none_of_the_standard_streams) {
  hutch_http_session *session = new_session(NULL);
  int kept = fcntl(0, F_DUPFD_CLOEXEC, 3);
  CHECK(kept > 2 && close(0) == 0);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task_release(fetch(session, &request));
  CHECK(fcntl(0, F_GETFD) == -1);
  CHECK(dup2(kept, 0) == 0 && close(kept) == 0);
  end_session(session);
}
