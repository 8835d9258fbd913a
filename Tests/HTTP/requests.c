/* Sessions and tasks: what a task does with a server that behaves. */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http.h"

TEST(a_get_has_code_headers_and_body) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task *task = fetch(session, &request);
  hutch_http_response response = response_of(task);
  CHECK_EQUAL(200, response.code);
  CHECK_EQUAL(11, response.version);
  CHECK_BYTES("hello\n", 6, response.body, response.body_size);
  CHECK(strcmp(response.url, request.url) == 0);
  const char *value;
  CHECK_OK(hutch_http_task_header(task, "content-TYPE", 0, &value));
  CHECK(strcmp(value, "text/plain") == 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-None", 0, &value));
  CHECK(value == NULL);
  hutch_http_header header;
  CHECK_OK(hutch_http_task_header_at(task, 0, &header));
  CHECK(strcmp(header.name, "Server") == 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header_at(task, response.header_count, &header));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(headers_that_come_twice_are_empty_or_folded) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/echo"));
  hutch_http_task *task = fetch(session, &request);
  const char *value;
  CHECK_OK(hutch_http_task_header(task, "x-two", 0, &value));
  CHECK(strcmp(value, "1") == 0);
  CHECK_OK(hutch_http_task_header(task, "x-two", 1, &value));
  CHECK(strcmp(value, "2") == 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "x-two", 2, &value));
  CHECK_OK(hutch_http_task_header(task, "x-empty", 0, &value));
  CHECK(strcmp(value, "") == 0);
  hutch_http_task_release(task);
  request.url = url_of("wire", "/folded");
  task = fetch(session, &request);
  CHECK_OK(hutch_http_task_header(task, "X-Folded", 0, &value));
  CHECK(strcmp(value, "a b") == 0);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_task_is_made_suspended_and_completes_once) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("plain", "/hello.txt"), &c);
  hutch_http_task *task;
  CHECK_OK(hutch_http_task_create(session, &request, &task));
  CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, state_of(task));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_http_task_wait(task, 0));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_http_task_wait(task, 50 * HUTCH_MILLISECOND));
  CHECK_EQUAL(0, c.completions);
  hutch_http_response response = {.struct_size = sizeof response};
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_http_task_response(task, &response));
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  CHECK_OK(hutch_http_task_resume(task));
  uint32_t was;
  CHECK_OK(hutch_http_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, was);
  hutch_http_task_release(task);
  end_session(session);
  CHECK_EQUAL(1, c.completions);
  CHECK_EQUAL(1, c.releases);
  CHECK_EQUAL(1, c.responses);
  CHECK_EQUAL(6, c.received);
}

TEST(a_request_of_a_newer_header_gives_its_context_back) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_task *task;
  struct {
    hutch_http_request request;
    uint64_t more;
  } newer = {counted(url_of("plain", "/hello.txt"), &c), 1};
  newer.request.struct_size = sizeof newer;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(session, &newer.request, &task));
  CHECK(task == NULL);
  CHECK_EQUAL(0, c.completions);
  CHECK_EQUAL(1, c.releases);
  end_session(session);
}

TEST(methods_bodies_and_headers_are_sent) {
  hutch_http_header headers[] = {{"X-Own", "one"}, {"X-None", ""}};
  hutch_http_header shared[] = {{"X-Shared", "all"}, {"X-Own", "hidden"}};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .headers = shared, .header_count = 2};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("wire", "/echo"));
  request.headers = headers;
  request.header_count = 2;
  request.body = "body";
  request.body_size = 4;
  hutch_http_task *task = fetch(session, &request);
  CHECK(body_has(task, "POST /echo HTTP/1.1\n"));
  CHECK(body_has(task, "content-length: 4\n") && body_has(task, "\n\nbody"));
  CHECK(body_has(task, "x-own: one\n") && !body_has(task, "hidden"));
  CHECK(body_has(task, "x-shared: all\n") && body_has(task, "x-none: \n"));
  CHECK(!body_has(task, "expect:"));
  hutch_http_task_release(task);
  const char *methods[] = {"PUT", "PATCH", "DELETE", "POST"};
  for (int index = 0; index < 4; index++) {
    request = get(url_of("wire", "/echo"));
    request.method = methods[index];
    task = fetch(session, &request);
    CHECK(body_has(task, methods[index]));
    CHECK_EQUAL(index == 0 || index == 3, body_has(task, "content-length: 0\n"));
    hutch_http_task_release(task);
  }
  request.method = "HEAD";
  request.url = url_of("plain", "/hello.txt");
  task = fetch(session, &request);
  CHECK_EQUAL(0, response_of(task).body_size);
  hutch_http_task_release(task);
  end_session(session);
}

typedef struct source {
  size_t size, at;
  int rewinds;
  bool refuses, fails;
  hutch_http_session *session;
} source;

static int64_t read_source(void *context, void *buffer, size_t size) {
  source *s = context;
  if (buffer == NULL) {
    if (s->refuses) return -1;
    if (s->session)
      CHECK_STATUS(HUTCH_DEADLOCK, hutch_http_session_wait(s->session, HUTCH_MILLISECOND));
    s->at = 0;
    s->rewinds++;
    return 0;
  }
  if (s->fails) return -1;
  if (size > s->size - s->at) size = s->size - s->at;
  memset(buffer, 'u', size);
  s->at += size;
  return (int64_t)size;
}

TEST(uploads_from_a_file_and_from_a_function) {
  hutch_http_session *session = new_session(NULL);
  path file = scratch("upload");
  char *data = filled(300000, 1);
  write_file(file.text, data, 300000);
  hutch_http_request request = get(url_of("wire", "/echo"));
  request.body_file = file.text;
  hutch_http_task *task = fetch(session, &request);
  hutch_http_response response = response_of(task);
  CHECK(response.body_size > 300000);
  CHECK(memcmp((char *)response.body + response.body_size - 300000, data, 300000) == 0);
  hutch_http_progress progress = {.struct_size = sizeof progress};
  CHECK_OK(hutch_http_task_progress(task, &progress));
  CHECK_EQUAL(300000, progress.sent);
  CHECK_EQUAL(300000, progress.expected_to_send);
  hutch_http_task_release(task);

  source s = {.size = 100000};
  request = get(url_of("wire", "/echo"));
  request.read = read_source;
  request.read_size = HUTCH_HTTP_UNKNOWN_SIZE;
  request.context = &s;
  task = fetch(session, &request);
  CHECK(body_has(task, "transfer-encoding: chunked\n"));
  CHECK(response_of(task).body_size > 100000);
  hutch_http_task_release(task);

  /* A known size is sent, and what is shorter fails. */
  s = (source){.size = 10};
  request.read_size = 11;
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_UPLOAD, result_of(task));
  hutch_http_task_release(task);
  s = (source){.size = 10, .fails = true};
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_UPLOAD, result_of(task));
  hutch_http_task_release(task);
  free(data);
  end_session(session);
}

TEST(a_body_is_sent_again_after_a_redirect_that_keeps_it) {
  hutch_http_session *session = new_session(NULL);
  source s = {.size = 1000, .session = session};
  hutch_http_request request = get(url_of("wire", "/redirect?code=307&to=/echo"));
  request.method = "PUT";
  request.read = read_source;
  request.read_size = 1000;
  request.context = &s;
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(1, s.rewinds);
  CHECK(body_has(task, "PUT /echo") && body_has(task, "content-length: 1000\n"));
  CHECK_EQUAL(1, response_of(task).redirects);
  CHECK(strcmp(response_of(task).url, url_of("wire", "/echo")) == 0);
  hutch_http_task_release(task);
  s = (source){.size = 1000, .refuses = true};
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_UPLOAD, result_of(task));
  hutch_http_task_release(task);
  /* 303, and 302 of a POST, become a GET without the body's headers. */
  hutch_http_header type = {"Content-Type", "text/plain"};
  request = get(url_of("wire", "/redirect?code=302&to=/echo"));
  request.headers = &type;
  request.header_count = 1;
  request.body = "gone";
  request.body_size = 4;
  task = fetch(session, &request);
  CHECK(body_has(task, "GET /echo") && !body_has(task, "gone"));
  CHECK(!body_has(task, "content-type") && !body_has(task, "content-length"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_download_replaces_its_file_when_it_is_complete) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  path file = scratch("million");
  path part = scratch("million.part");
  write_file(file.text, "old", 3);
  hutch_http_request request = counted(url_of("plain", "/million"), &c);
  request.download = file.text;
  hutch_http_task *task = fetch(session, &request);
  struct stat information;
  CHECK(stat(file.text, &information) == 0);
  CHECK_EQUAL(1000000, information.st_size);
  CHECK(access(part.text, F_OK) != 0);
  CHECK_EQUAL(1000000, c.received);
  CHECK_EQUAL(1000000, c.expected);
  CHECK_EQUAL(0, response_of(task).body_size);
  hutch_http_task_release(task);
  /* A 404 and a lost connection leave the file as it is. */
  write_file(file.text, "old", 3);
  request = get(url_of("plain", "/none"));
  request.download = file.text;
  task = fetch(session, &request);
  CHECK_EQUAL(404, response_of(task).code);
  CHECK(response_of(task).body_size > 0);
  hutch_http_task_release(task);
  request.url = url_of("wire", "/cut");
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(task));
  hutch_http_task_release(task);
  CHECK(stat(file.text, &information) == 0 && information.st_size == 3);
  CHECK(access(part.text, F_OK) != 0);
  /* A folder that is not there. */
  request.url = url_of("plain", "/million");
  path none = scratch("none/million");
  request.download = none.text;
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_IO, result_of(task));
  hutch_http_task_release(task);
  end_session(session);
}

static hutch_status sum_body(void *context, hutch_http_task *task, const void *data,
                             size_t size) {
  counts *c = context;
  CHECK(task != NULL && data != NULL);
  c->sent += size;
  return c->sent > 500000 && c->expected == 1 ? HUTCH_CONFLICT : HUTCH_OK;
}

TEST(a_body_is_passed_to_the_host_piece_by_piece) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/million"));
  request.context = &c;
  request.on_body = sum_body;
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(1000000, c.sent);
  CHECK_EQUAL(0, response_of(task).body_size);
  hutch_http_task_release(task);
  c = (counts){.expected = 1};
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_CONFLICT, result_of(task));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(completions_come_on_a_port_and_on_a_queue) {
  counts c[3] = {{0}};
  hutch_port *port;
  hutch_queue *queue;
  CHECK_OK(hutch_port_create(&port));
  CHECK_OK(hutch_queue_create(NULL, &queue));
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("plain", "/hello.txt"), &c[0]);
  request.port = port;
  hutch_http_task_release(begin(session, &request));
  struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
  CHECK_EQUAL(1, poll(&descriptor, 1, 30000));
  CHECK_EQUAL(0, c[0].completions);
  uint64_t drained;
  CHECK_OK(hutch_port_drain(port, 0, &drained));
  CHECK_EQUAL(1, drained);
  CHECK_EQUAL(1, c[0].completions);
  CHECK_EQUAL(1, c[0].releases);
  CHECK(pthread_equal(c[0].thread, pthread_self()));

  request = counted(url_of("plain", "/hello.txt"), &c[1]);
  request.queue = queue;
  hutch_http_task *task = fetch(session, &request);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_MINUTE));
  CHECK_EQUAL(1, c[1].completions);
  CHECK_EQUAL(1, c[1].releases);
  hutch_http_task_release(task);

  /* A closed port discards the completion, and the context is given back. */
  request = counted(url_of("plain", "/hello.txt"), &c[2]);
  request.port = port;
  CHECK_OK(hutch_port_close(port, HUTCH_PORT_DISCARD));
  hutch_http_task_release(begin(session, &request));
  end_session(session);
  CHECK_EQUAL(0, c[2].completions);
  CHECK_EQUAL(1, c[2].releases);
  hutch_port_release(port);
  hutch_queue_release(queue);
}

TEST(a_full_queue_leaves_the_completion_to_the_session) {
  counts c[3] = {{0}};
  hutch_queue *queue;
  hutch_queue_options options = {.struct_size = sizeof options, .length = 1,
                                 .flags = HUTCH_QUEUE_NO_THREADS};
  CHECK_OK(hutch_queue_create(&options, &queue));
  hutch_http_session *session = new_session(NULL);
  for (int index = 0; index < 3; index++) {
    hutch_http_request request = counted(url_of("plain", "/hello.txt"), &c[index]);
    request.queue = queue;
    hutch_http_task_release(fetch(session, &request));
  }
  CHECK_EQUAL(2, c[0].completions + c[1].completions + c[2].completions);
  CHECK_OK(hutch_queue_run(queue, 0, NULL));
  end_session(session);
  for (int index = 0; index < 3; index++) {
    CHECK_EQUAL(1, c[index].completions);
    CHECK_EQUAL(1, c[index].releases);
  }
  hutch_queue_release(queue);
}

TEST(a_task_is_cancelled_before_and_while_it_runs) {
  counts c[3] = {{0}};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/stall"), &c[0]);
  hutch_http_task *task;
  uint32_t was;
  CHECK_OK(hutch_http_task_create(session, &request, &task));
  CHECK_OK(hutch_http_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, was);
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  hutch_http_response response = {.struct_size = sizeof response};
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_response(task, &response));
  hutch_http_task_release(task);
  request = counted(url_of("wire", "/stall_within"), &c[1]);
  task = begin(session, &request);
  await_callback(task, &c[1].responses);
  CHECK_OK(hutch_http_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_HTTP_RUNNING, was);
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  response = response_of(task);
  CHECK_BYTES("half", 4, response.body, response.body_size);
  hutch_http_task_release(task);
  /* The last reference to a task that is suspended. */
  request = counted(url_of("wire", "/stall"), &c[2]);
  CHECK_OK(hutch_http_task_create(session, &request, &task));
  CHECK(hutch_http_task_retain(task) == task);
  hutch_http_task_release(task);
  hutch_http_task_release(task);
  end_session(session);
  for (int index = 0; index < 3; index++) {
    CHECK_EQUAL(1, c[index].completions);
    CHECK_EQUAL(HUTCH_CANCELLED, c[index].status);
    CHECK_EQUAL(1, c[index].releases);
  }
}

static void suspend_at_once(void *context, hutch_http_task *task) {
  CHECK_OK(hutch_http_task_suspend(task));
  ((counts *)context)->responses++;  /* The test waits for it, and then asks for the state. */
}

TEST(a_suspended_task_reads_nothing_and_continues) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/large?n=30000000"), &c);
  request.on_response = suspend_at_once;
  hutch_http_task *task = begin(session, &request);
  await_callback(task, &c.responses);
  CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, state_of(task));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_http_task_wait(task, 300 * HUTCH_MILLISECOND));
  CHECK(c.received < 1000000);
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  CHECK_EQUAL(30000000, response_of(task).body_size);
  hutch_http_task_release(task);
  end_session(session);
}

/* The whole response has come when it is resumed. */
TEST(the_idle_timeout_of_a_suspended_task_does_not_run) {
  counts c = {0};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .idle_timeout = 200 * HUTCH_MILLISECOND};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = counted(url_of("plain", "/hello.txt"), &c);
  request.on_response = suspend_at_once;
  hutch_http_task *task = begin(session, &request);
  while (!c.responses) {
    /* A server that is slow is asked again. */
    if (state_of(task) == HUTCH_HTTP_ENDED && !c.responses) {
      CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(task));
      hutch_http_task_release(task);
      task = begin(session, &request);
    }
    nap();
  }
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_http_task_wait(task, 500 * HUTCH_MILLISECOND));
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  CHECK(body_has(task, "hello\n"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_suspended_task_keeps_its_place_until_its_total_timeout) {
  counts c = {0};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .width = 1};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = counted(url_of("wire", "/echo"), &c);
  request.on_response = suspend_at_once;
  request.total_timeout = 100 * HUTCH_MILLISECOND;
  hutch_http_task *task = begin(session, &request);
  request = get(request.url);
  hutch_http_task_release(fetch(session, &request));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, state_of(task));
  CHECK_EQUAL(HUTCH_TIMED_OUT, result_of(task));
  hutch_http_task_release(task);
  end_session(session);
}

/* libcurl before 8.1 loses them (curl's issue 10971): 8 KB at least each time. */
TEST(a_cancel_frees_the_pieces_that_are_kept_of_a_suspended_stream) {
  enum { TASKS = 100 };
  hutch_http_security security = {.struct_size = sizeof security,
                                  .authorities = file_of("authority.pem")};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .progress_interval = 1,
                                            .security = &security};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("good", "/hello.txt"));
  hutch_http_task_release(fetch(session, &request));
  /* It has a stream of the same connection all the time. */
  request.url = url_of("good", "/wire/stall");
  hutch_http_task *other = begin(session, &request);
  size_t before = 0;
  for (int index = 0; index <= TASKS; index++) {
    counts c = {0};
    hutch_http_progress progress = {.struct_size = sizeof progress};
    request = counted(url_of("good", "/million"), &c);
    request.on_response = suspend_at_once;
    hutch_http_task *task = begin(session, &request);
    for (; progress.received == 0; nap()) CHECK_OK(hutch_http_task_progress(task, &progress));
    CHECK_OK(hutch_http_task_cancel(task, NULL));
    CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
    hutch_http_task_release(task);
    if (index == 0) before = mallinfo2().uordblks + mallinfo2().hblkhd;
  }
  CHECK(mallinfo2().uordblks + mallinfo2().hblkhd < before + TASKS * 4000);
  CHECK_OK(hutch_http_task_cancel(other, NULL));
  hutch_http_task_release(other);
  end_session(session);
}

/* A task that the host has released when it has a response. */
typedef struct left {
  counts c; /* Its address is the context of all callbacks. */
  _Atomic int is_released;
  bool is_retained;
  hutch_http_task *_Atomic task;
} left;

static void suspend_what_is_left(void *context, hutch_http_task *task) {
  left *l = context;
  while (!l->is_released) nap();
  CHECK_OK(hutch_http_task_suspend(task));
  if (l->is_retained) l->task = hutch_http_task_retain(task);
}

TEST(a_callback_that_suspends_a_task_without_references_cancels_it) {
  left l[2] = {{.is_retained = false}, {.is_retained = true}};
  hutch_http_session *session = new_session(NULL);
  for (int index = 0; index < 2; index++) {
    hutch_http_request request = counted(url_of("plain", "/hello.txt"), &l[index].c);
    request.on_response = suspend_what_is_left;
    hutch_http_task_release(begin(session, &request));
    l[index].is_released = 1;
  }
  while (!l[0].c.releases) nap();
  CHECK_EQUAL(1, l[0].c.completions);
  CHECK_EQUAL(HUTCH_CANCELLED, l[0].c.status);
  while (!l[1].task) nap();
  CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, state_of(l[1].task));
  CHECK_OK(hutch_http_task_resume(l[1].task));
  CHECK_EQUAL(HUTCH_OK, result_of(l[1].task));
  hutch_http_task_release(l[1].task);
  end_session(session);
  for (int index = 0; index < 2; index++) {
    CHECK_EQUAL(1, l[index].c.completions);
    CHECK_EQUAL(1, l[index].c.releases);
  }
}

static hutch_status want_no_more(void *context, hutch_http_task *task, const void *data,
                                 size_t size) {
  (void)context, (void)task;
  CHECK_BYTES("half", 4, data, size);
  return HUTCH_CONFLICT;
}

/* The server sends no more for 20 s. */
TEST(a_host_that_stops_at_the_first_piece_after_a_resume_has_stopped) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/stall_within"), &c);
  request.on_response = suspend_at_once;
  request.on_body = want_no_more;
  hutch_http_task *task = begin(session, &request);
  await_callback(task, &c.responses);
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_http_task_wait(task, 100 * HUTCH_MILLISECOND));
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_OK(hutch_http_task_wait(task, 15 * HUTCH_SECOND));
  CHECK_EQUAL(HUTCH_CONFLICT, result_of(task));
  hutch_http_task_release(task);
  end_session(session);
}

static hutch_status has_no_room(void *context, hutch_http_task *task, const void *data,
                                size_t size) {
  (void)context, (void)task, (void)data, (void)size;
  return HUTCH_NO_SPACE;
}

TEST(a_task_that_the_host_ends_with_a_failure_has_an_error) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("plain", "/hello.txt"), &c);
  request.on_body = has_no_room;
  hutch_http_task *task = begin(session, &request);
  CHECK_EQUAL(HUTCH_NO_SPACE, result_of(task));
  CHECK_EQUAL(HUTCH_NO_SPACE, c.status);
  hutch_error error = error_of(task);
  CHECK_EQUAL(HUTCH_NO_SPACE, error.status);
  CHECK(strstr(error.words, "host") != NULL);
  CHECK(strcmp(error.words, c.words) == 0);
  hutch_http_task_release(task);
  end_session(session);
}

static int started[8];
static _Atomic int starts;

static void note_start(void *context, hutch_http_task *task) {
  (void)task;
  started[starts++] = *(int *)context;
}

TEST(tasks_start_by_priority_when_the_width_is_reached) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .width = 1};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request first = get(url_of("wire", "/wait?ms=300"));
  hutch_http_task *tasks[6] = {begin(session, &first)};
  int numbers[] = {0, 1, 2, 3, 4, 5};
  int32_t priorities[] = {0, -1, 0, 0, 1, -1};
  for (int index = 1; index < 6; index++) {
    hutch_http_request request = get(url_of("plain", "/hello.txt"));
    request.priority = priorities[index];
    request.context = &numbers[index];
    request.on_response = note_start;
    tasks[index] = begin(session, &request);
  }
  CHECK_OK(hutch_http_task_set_priority(tasks[5], HUTCH_PRIORITY_HIGH));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_set_priority(tasks[5], 2));
  end_session(session);
  int expected[] = {4, 5, 2, 3, 1};
  CHECK_EQUAL(5, starts);
  for (int index = 0; index < 5; index++) CHECK_EQUAL(expected[index], started[index]);
  for (int index = 0; index < 6; index++) hutch_http_task_release(tasks[index]);
}

TEST(a_session_ends_by_finishing_or_by_cancelling) {
  counts c[4] = {{0}};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/wait?ms=100&say=done"), &c[0]);
  hutch_http_task *task = begin(session, &request);
  hutch_http_task *suspended;
  request = counted(url_of("wire", "/stall"), &c[1]);
  CHECK_OK(hutch_http_task_create(session, &request, &suspended));
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  CHECK_OK(hutch_http_session_wait(session, HUTCH_MINUTE));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(suspended));
  request = counted(url_of("wire", "/stall"), &c[2]);
  hutch_http_task *late;
  CHECK_STATUS(HUTCH_CLOSED, hutch_http_task_create(session, &request, &late));
  CHECK(late == NULL);
  CHECK_EQUAL(0, c[2].completions);
  CHECK_EQUAL(1, c[2].releases);
  hutch_http_session_release(session);
  CHECK(body_has(task, "done"));
  hutch_http_task_release(task);
  hutch_http_task_release(suspended);

  session = new_session(NULL);
  request = counted(url_of("wire", "/stall"), &c[3]);
  task = begin(session, &request);
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_http_session_wait(session, 0));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_session_end(session, 7));
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_CANCEL));
  CHECK_OK(hutch_http_session_wait(session, HUTCH_MINUTE));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  hutch_http_task_release(task);
  hutch_http_session_release(session);
  for (int index = 0; index < 4; index++) CHECK_EQUAL(1, c[index].releases);
}

static void wait_within(void *context, const hutch_http_completion *completion) {
  hutch_http_session *session = context;
  hutch_http_task *other;
  hutch_http_request request = get(url_of("wire", "/stall"));
  CHECK_OK(hutch_http_task_create(session, &request, &other));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_http_task_wait(other, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_http_session_wait(session, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_http_task_wait(other, 0));
  hutch_http_task_release(other);
  uint32_t state;
  CHECK_OK(hutch_http_task_status(completion->task, &state, NULL));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, state);
}

TEST(a_callback_may_make_tasks_and_may_not_wait) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  request.context = session;
  request.complete = wait_within;
  hutch_http_task_release(fetch(session, &request));
  end_session(session);
}

TEST(http_2_with_tls_and_without) {
  hutch_http_security security = {.struct_size = sizeof security,
                                  .authorities = file_of("authority.pem")};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .security = &security};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("good", "/hello.txt"));
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(20, response_of(task).version);
  hutch_http_task_release(task);
  end_session(session);
  configuration.version = HUTCH_HTTP_VERSION_1;
  session = new_session(&configuration);
  task = fetch(session, &request);
  CHECK_EQUAL(11, response_of(task).version);
  hutch_http_task_release(task);
  end_session(session);
  configuration.version = HUTCH_HTTP_VERSION_2;
  session = new_session(&configuration);
  request = get(url_of("h2c", "/hello.txt"));
  task = fetch(session, &request);
  CHECK_EQUAL(20, response_of(task).version);
  hutch_http_task_release(task);
  task = fetch(session, &request);
  hutch_http_task_release(task);
  request.method = "PUT";
  request.url = url_of("h2c", "/wire/echo");
  request.body = "over two";
  request.body_size = 8;
  task = fetch(session, &request);
  CHECK(body_has(task, "over two"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(cookies_are_off_or_in_a_jar_that_a_file_keeps) {
  path jar = scratch("cookies");
  hutch_http_configuration configuration = {.struct_size = sizeof configuration};
  for (int round = 0; round < 3; round++) {
    configuration.flags = round == 0 ? 0 : HUTCH_HTTP_COOKIES;
    configuration.cookie_file = round == 0 ? NULL : jar.text;
    hutch_http_session *session = new_session(&configuration);
    hutch_http_request request = get(url_of("wire", "/cookie?set=a%3Db"));
    if (round < 2) hutch_http_task_release(fetch(session, &request));
    request.url = url_of("wire", "/cookie");
    hutch_http_task *task = fetch(session, &request);
    CHECK(body_has(task, round == 0 ? "none" : "a=b"));
    hutch_http_task_release(task);
    end_session(session);
  }
}

TEST(metrics_tell_of_connections_and_bytes) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("wire", "/redirect?to=/echo"));
  hutch_http_task *task;
  hutch_http_metrics metrics = {.struct_size = sizeof metrics};
  CHECK_OK(hutch_http_task_create(session, &request, &task));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_http_task_metrics(task, &metrics));
  hutch_http_task_release(task);
  task = fetch(session, &request);
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK_EQUAL(2, metrics.requests);
  CHECK_EQUAL(1, metrics.connections);
  CHECK(metrics.first_byte > 0 && metrics.total >= metrics.first_byte);
  CHECK(metrics.bytes_sent > 50 && metrics.bytes_received > response_of(task).body_size);
  CHECK_EQUAL(0, metrics.tls);
  hutch_http_task_release(task);
  request.url = url_of("wire", "/echo");
  task = fetch(session, &request);
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK_EQUAL(0, metrics.connections);
  CHECK_EQUAL(0, metrics.connect);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_compressed_body_is_decompressed_if_that_is_asked_for) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/million"));
  const char *value;
  for (int round = 0; round < 2; round++) {
    request.flags = round == 0 ? 0 : HUTCH_HTTP_COMPRESSED;
    hutch_http_task *task = fetch(session, &request);
    CHECK_EQUAL(1000000, response_of(task).body_size);
    CHECK_STATUS(round == 0 ? HUTCH_NOT_FOUND : HUTCH_OK,
                 hutch_http_task_header(task, "Content-Encoding", 0, &value));
    hutch_http_task_release(task);
  }
  end_session(session);
}

TEST(a_proxy_is_used_and_the_environment_is_not) {
  setenv("http_proxy", url_of("nobody", ""), 1);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task_release(fetch(session, &request));
  end_session(session);
  configuration.proxy = url_of("wire", "");
  setenv("no_proxy", "*", 1);
  session = new_session(&configuration);
  request.url = "http://elsewhere.test/none";
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(404, response_of(task).code);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_thousand_requests_from_threads) {
  hutch_http_session *session = new_session(NULL);
  const char *url = url_of("plain", "/ten");
  counts *all = calloc(1000, sizeof *all);
  for (int index = 0; index < 1000; index++) {
    hutch_http_request request = counted(url, &all[index]);
    hutch_http_task_release(begin(session, &request));
  }
  end_session(session);
  for (int index = 0; index < 1000; index++) {
    CHECK_EQUAL(1, all[index].completions);
    CHECK_EQUAL(HUTCH_OK, all[index].status);
    CHECK_EQUAL(10240, all[index].received);
    CHECK_EQUAL(1, all[index].releases);
  }
  free(all);
}

TEST(a_child_of_a_fork_is_refused) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task *task = fetch(session, &request);
  pid_t child = fork_now();
  if (child == 0) {
    hutch_http_task *other;
    CHECK_STATUS(HUTCH_FORKED, hutch_http_task_resume(task));
    CHECK_STATUS(HUTCH_FORKED, hutch_http_task_create(session, &request, &other));
    CHECK_STATUS(HUTCH_FORKED, hutch_http_session_end(session, HUTCH_HTTP_CANCEL));
    hutch_http_task_release(task);
    hutch_http_session_release(session);
    session = new_session(NULL);
    hutch_http_task_release(fetch(session, &request));
    end_session(session);
    end_child();
  }
  await_child(child);
  hutch_http_task_release(task);
  end_session(session);
}
