/* Servers that stall, cut, lie about lengths and send what is not HTTP; and bad arguments. */
#include "http.h"

static const char *expect(const char *path, hutch_status expected) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .idle_timeout = 20 * HUTCH_SECOND};
  hutch_http_request request = get(url_of("wire", path));
  return status_of(&configuration, &request, expected);
}

TEST(a_connection_that_is_lost_is_a_failure) {
  expect("/cut", HUTCH_HTTP_LOST);
  expect("/cut_chunk", HUTCH_HTTP_LOST);
  expect("/cut_headers", HUTCH_HTTP_LOST);
  expect("/shut", HUTCH_HTTP_LOST);
}

TEST(a_request_that_fails_is_counted_once) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/cut"));
  hutch_http_task *task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(task));
  hutch_http_metrics metrics = {.struct_size = sizeof metrics};
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK_EQUAL(1, metrics.requests);
  CHECK_EQUAL(1, metrics.connections);
  CHECK_EQUAL(strlen("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n") + 10,
              metrics.bytes_received);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(what_is_not_http_is_a_failure) {
  expect("/garbage", HUTCH_HTTP_BAD_RESPONSE);
  expect("/bad_name", HUTCH_HTTP_BAD_RESPONSE);
  expect("/bad_chunk", HUTCH_HTTP_LOST);
  hutch_http_request request = get(url_of("wire", "/bad_brotli"));
  request.flags = HUTCH_HTTP_COMPRESSED;
  status_of(NULL, &request, HUTCH_HTTP_BAD_RESPONSE);
}

TEST(more_bytes_than_the_length_says_are_not_the_body) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/lie"));
  hutch_http_task *task = fetch(session, &request);
  hutch_http_response response = response_of(task);
  CHECK_BYTES("01234", 5, response.body, response.body_size);
  hutch_http_task_release(task);
  /* The connection is not used again: its next bytes are not a response. */
  request.url = url_of("wire", "/echo");
  task = fetch(session, &request);
  CHECK_EQUAL(200, response_of(task).code);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_response_may_come_byte_by_byte) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/dribble"));
  hutch_http_task *task = fetch(session, &request);
  hutch_http_response response = response_of(task);
  CHECK_BYTES("dribbled", 8, response.body, response.body_size);
  const char *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-Trailer", 0, &value));
  hutch_http_task_release(task);
  request.url = url_of("wire", "/early");
  task = fetch(session, &request);
  CHECK_EQUAL(200, response_of(task).code);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Link", 0, &value));
  CHECK_OK(hutch_http_task_header(task, "X-Final", 0, &value));
  hutch_http_task_release(task);
  end_session(session);
}

static int32_t count_redirect(void *context, hutch_http_task *task, int32_t code,
                              const char *url) {
  CHECK(task != NULL && code == 302 && strstr(url, "/echo") != NULL);
  ((counts *)context)->redirects++;
  return 0;
}

TEST(trailers_behind_a_redirect_change_nothing) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/redirect_trailers"), &c);
  request.on_redirect = count_redirect;
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(1, c.redirects);
  CHECK_EQUAL(1, response_of(task).redirects);
  CHECK(body_has(task, "GET /echo"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(control_characters_in_a_header_become_spaces) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/controls"));
  hutch_http_task *task = fetch(session, &request);
  const char *value;
  CHECK_OK(hutch_http_task_header(task, "X-Cr", 0, &value));
  CHECK(strcmp(value, "a Injected: 1") == 0);
  CHECK_OK(hutch_http_task_header(task, "X-Other", 0, &value));
  CHECK(strcmp(value, " b \tc") == 0);
  hutch_http_task_release(task);
  end_session(session);
}

TEST(a_response_with_two_lengths_contradicts_itself) {
  hutch_http_request request = get(url_of("wire", "/two_lengths?of=3-4"));
  const char *words = status_of(NULL, &request, HUTCH_HTTP_BAD_RESPONSE);
  /* And not what libcurl says of a callback that fails. */
  CHECK(strcmp(words, "the response has two lengths") == 0);
  request.url = url_of("wire", "/two_lengths?of=4,%204-4");
  status_of(NULL, &request, HUTCH_OK);
}

TEST(a_length_that_is_no_number_is_refused) {
  static const char *paths[] = {
      "/length?of=5x", "/length?of=%2B5", "/length?of=0x5", "/length?of=5%205",
      "/length?of=99999999999999999999999", "/length?of=9223372036854775808"};
  for (size_t index = 0; index < sizeof paths / sizeof *paths; index++) {
    check_note(paths[index]);
    expect(paths[index], HUTCH_HTTP_BAD_RESPONSE);
  }
  check_note(NULL);
  expect("/length?of=4", HUTCH_OK);
  expect("/length?of=0004", HUTCH_OK);
  /* What has no body needs no length. */
  hutch_http_request request = get(url_of("wire", "/length?of=5x"));
  request.method = "HEAD";
  status_of(NULL, &request, HUTCH_OK);
}

TEST(a_proxy_that_makes_no_tunnel_is_no_connection) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .proxy = url_of("wire", "")};
  hutch_http_request request = get("https://elsewhere.test/");
  const char *words = status_of(&configuration, &request, HUTCH_HTTP_NO_CONNECTION);
  CHECK(strstr(words, "404") != NULL);
}

TEST(there_is_no_server) {
  hutch_http_request request = get(url_of("nobody", "/"));
  status_of(NULL, &request, HUTCH_HTTP_NO_CONNECTION);
  request.url = "http://nobody.invalid/";
  status_of(NULL, &request, HUTCH_HTTP_NO_HOST);
}

TEST(timeouts_end_what_stalls) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .idle_timeout = 200 * HUTCH_MILLISECOND};
  const char *paths[] = {"/stall", "/stall_within"};
  for (int index = 0; index < 2; index++) {
    hutch_http_request request = get(url_of("wire", paths[index]));
    const char *words = status_of(&configuration, &request, HUTCH_TIMED_OUT);
    CHECK(strstr(words, "no byte") != NULL);
  }
  configuration.idle_timeout = 0;
  hutch_http_request request = get(url_of("wire", "/stall"));
  request.total_timeout = 200 * HUTCH_MILLISECOND;
  const char *words = status_of(&configuration, &request, HUTCH_TIMED_OUT);
  CHECK(strstr(words, "request took") != NULL);
}

TEST(headers_and_bodies_in_memory_are_bounded) {
  expect("/many_headers?n=100", HUTCH_OK);
  expect("/many_headers?n=280", HUTCH_TOO_LARGE);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .max_headers = 2000, .max_body = 100000};
  hutch_http_request request = get(url_of("wire", "/many_headers?n=1"));
  status_of(&configuration, &request, HUTCH_OK);
  request.url = url_of("wire", "/many_headers?n=2");
  status_of(&configuration, &request, HUTCH_TOO_LARGE);
  request.url = url_of("wire", "/large?n=100000");
  status_of(&configuration, &request, HUTCH_OK);
  request.url = url_of("wire", "/large?n=100001");
  status_of(&configuration, &request, HUTCH_TOO_LARGE);
  request.url = url_of("wire", "/endless");
  status_of(&configuration, &request, HUTCH_TOO_LARGE);
  /* What is decompressed counts. */
  request.url = url_of("plain", "/million");
  request.flags = HUTCH_HTTP_COMPRESSED;
  status_of(&configuration, &request, HUTCH_TOO_LARGE);
  request.flags = 0;
  request.url = url_of("wire", "/endless_redirect");
  status_of(&configuration, &request, HUTCH_OK);
}

TEST(bad_arguments_are_refused_and_contexts_given_back) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_task *task;
  hutch_http_request request = counted(url_of("wire", "/echo"), &c);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(NULL, &request, &task));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, NULL, &task));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, NULL));
  request.flags = 1 << 30;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(session, &request, &task));
  request.flags = 0;
  request.priority = 9;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(session, &request, &task));
  request.priority = 0;
  request.total_timeout = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request.total_timeout = 0;
  request.body_size = 5;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request.body_size = 0;
  request.body_file = "/";
  CHECK_STATUS(HUTCH_HTTP_UPLOAD, hutch_http_task_create(session, &request, &task));
  request.body_file = "/none";
  CHECK_STATUS(HUTCH_HTTP_UPLOAD, hutch_http_task_create(session, &request, &task));
  request.body = "two";
  request.body_size = 3;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request = counted(url_of("wire", "/echo"), &c);
  request.header_count = SIZE_MAX;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  /* A struct of a later header, with a field that this library does not know. */
  struct {
    hutch_http_request request;
    uint64_t more;
  } later = {.request = counted(url_of("wire", "/echo"), &c), .more = 1};
  later.request.struct_size = sizeof later;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(session, &later.request, &task));
  CHECK_EQUAL(11, c.releases);
  later.more = 0;
  CHECK_OK(hutch_http_task_create(session, &later.request, &task));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_resume(NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_wait(task, -1));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_status(task, NULL, NULL));
  hutch_http_task_release(task);
  hutch_http_task_release(NULL);
  hutch_http_session_release(NULL);
  end_session(session);
  CHECK_EQUAL(12, c.releases);
  CHECK_EQUAL(1, c.completions);

  hutch_http_configuration configuration = {.struct_size = sizeof configuration};
  configuration.version = 3;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_session_create(&configuration, &session));
  configuration.version = 0;
  configuration.idle_timeout = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  configuration.idle_timeout = 0;
  configuration.width = 65537;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  configuration.width = 0;
  configuration.cookie_file = "jar";
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(NULL, NULL));
  hutch_error error = {.struct_size = sizeof error};
  CHECK_OK(hutch_http_last_error(&error));
  CHECK_EQUAL(HUTCH_INVALID_ARGUMENT, error.status);
  CHECK(strcmp(hutch_http_status_name(HUTCH_HTTP_PIN), "HUTCH_HTTP_PIN") == 0);
  CHECK(strcmp(hutch_http_status_name(HUTCH_TIMED_OUT), "HUTCH_TIMED_OUT") == 0);
}

TEST(responses_of_random_bytes_never_crash) {
  /* Bytes after a status line that is right, so that the headers are read. */
  hutch_http_session *session = new_session(NULL);
  uint64_t state = seed();
  for (int round = 0; round < 40; round++) {
    char path[200];
    snprintf(path, sizeof path, "/random?seed=%llu",
             (unsigned long long)(next_random(&state) >> 33));
    hutch_http_request request = get(url_of("wire", path));
    hutch_http_task *task = begin(session, &request);
    hutch_status status = result_of(task);
    if (status != HUTCH_OK && status != HUTCH_TOO_LARGE && status > HUTCH_HTTP_NO_HOST)
      FAIL("%s: %s", hutch_http_status_name(status), error_of(task).words);
    hutch_http_task_release(task);
  }
  end_session(session);
}
