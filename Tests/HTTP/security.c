/* Whom a session trusts, and what it sends where. */
#include "http.h"

static hutch_http_security trusting(void) {
  return (hutch_http_security){.struct_size = sizeof(hutch_http_security),
                               .authorities = file_of("authority.pem")};
}

static hutch_http_configuration with(const hutch_http_security *security) {
  return (hutch_http_configuration){.struct_size = sizeof(hutch_http_configuration),
                                    .security = security};
}

/* The answer of a server to a session with this security. */
static const char *expect(const hutch_http_security *security, const char *server,
                          hutch_status expected) {
  hutch_http_configuration configuration = with(security);
  hutch_http_request request = get(url_of(server, "/hello.txt"));
  return status_of(&configuration, &request, expected);
}

static void read_pin(const char *name, unsigned char *pin) {
  const char *digits = told(name);
  for (int index = 0; index < 32; index++) {
    unsigned value;
    CHECK_EQUAL(1, sscanf(digits + 2 * index, "%2x", &value));
    pin[index] = (unsigned char)value;
  }
}

static const char *contents_of(const char *name) {
  char text[20000] = "";
  FILE *file = fopen(file_of(name), "r");
  CHECK(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  return kept("%s%s", text, "");
}

TEST(the_chain_and_the_name_are_validated) {
  hutch_http_security security = trusting();
  expect(&security, "good", HUTCH_OK);
  expect(NULL, "good", HUTCH_HTTP_NOT_TRUSTED);
  expect(&security, "wrong", HUTCH_HTTP_NOT_TRUSTED);
  const char *words = expect(&security, "old", HUTCH_HTTP_NOT_TRUSTED);
  CHECK(strstr(words, "not trusted") != NULL && strstr(words, "expired") != NULL);
  expect(&security, "own", HUTCH_HTTP_NOT_TRUSTED);
}

TEST(the_chain_and_the_name_may_each_be_left_out) {
  hutch_http_security security = trusting();
  security.flags = HUTCH_HTTP_ANY_NAME;
  expect(&security, "wrong", HUTCH_OK);
  expect(&security, "own", HUTCH_HTTP_NOT_TRUSTED);
  security.flags = HUTCH_HTTP_ANY_CHAIN;
  expect(&security, "own", HUTCH_OK);
  expect(&security, "old", HUTCH_OK);
  expect(&security, "wrong", HUTCH_HTTP_NOT_TRUSTED);
}

TEST(a_public_key_is_pinned_with_and_without_the_chain) {
  unsigned char pins[64] = {0};
  hutch_http_security security = trusting();
  security.public_keys = pins;
  security.public_key_count = 2;
  const char *words = expect(&security, "good", HUTCH_HTTP_PIN);
  CHECK(strstr(words, "pinned") != NULL);
  read_pin("pin_good", pins + 32);
  expect(&security, "good", HUTCH_OK);
  /* A pin does not stand for the chain, unless the host says so. */
  read_pin("pin_own", pins);
  expect(&security, "own", HUTCH_HTTP_NOT_TRUSTED);
  security.flags = HUTCH_HTTP_ANY_CHAIN;
  expect(&security, "own", HUTCH_OK);
  memset(pins, 1, 32);
  expect(&security, "own", HUTCH_HTTP_PIN);
}

TEST(a_certificate_is_pinned_with_and_without_the_chain) {
  hutch_http_security security = trusting();
  security.certificates = contents_of("own.pem");
  const char *words = expect(&security, "good", HUTCH_HTTP_PIN);
  CHECK(strstr(words, "pinned") != NULL);
  expect(&security, "own", HUTCH_HTTP_NOT_TRUSTED);
  security.flags = HUTCH_HTTP_ANY_CHAIN;
  expect(&security, "own", HUTCH_OK);
  expect(&security, "good", HUTCH_HTTP_PIN);
  security.flags = 0;
  security.certificates = kept("%s\n%s", contents_of("own.pem"), contents_of("good.pem"));
  expect(&security, "good", HUTCH_OK);
  /* The authority's certificate is not the server's own. */
  security.certificates = contents_of("authority.pem");
  expect(&security, "good", HUTCH_HTTP_PIN);
}

TEST(nothing_is_sent_to_a_server_with_another_certificate) {
  /* Two requests of one session: the second must not use what the first one left. */
  hutch_http_security security = trusting();
  security.certificates = contents_of("own.pem");
  hutch_http_configuration configuration = with(&security);
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("good", "/hello.txt"));
  for (int round = 0; round < 3; round++) {
    hutch_http_task *task = begin(session, &request);
    CHECK_EQUAL(HUTCH_HTTP_PIN, result_of(task));
    hutch_http_metrics metrics = {.struct_size = sizeof metrics};
    CHECK_OK(hutch_http_task_metrics(task, &metrics));
    CHECK_EQUAL(0, metrics.bytes_sent);
    hutch_http_task_release(task);
  }
  end_session(session);
  security.certificates = contents_of("good.pem");
  session = new_session(&configuration);
  for (int round = 0; round < 3; round++) hutch_http_task_release(fetch(session, &request));
  end_session(session);
}

TEST(nothing_stored_stands_in_for_a_server_that_is_not_trusted) {
  hutch_http_security security = trusting();
  hutch_http_configuration configuration = with(&security);
  CHECK_OK(hutch_open(NULL, NULL, &configuration.cache));
  hutch_http_header header = {"Cache-Control", "max-age=0, stale-if-error=1000"};
  hutch_http_request request = get(url_of("good", "/hello.txt"));
  request.headers = &header;
  request.header_count = 1;
  status_of(&configuration, &request, HUTCH_OK);
  security.public_keys = "01234567890123456789012345678901";
  security.public_key_count = 1;
  status_of(&configuration, &request, HUTCH_HTTP_PIN);
  security = (hutch_http_security){.struct_size = sizeof security};
  status_of(&configuration, &request, HUTCH_HTTP_NOT_TRUSTED);
  security = trusting();
  security.identity = file_of("none.pem");
  status_of(&configuration, &request, HUTCH_HTTP_TLS);
  hutch_cache_release(configuration.cache);
}

TEST(a_client_has_a_certificate) {
  hutch_http_security security = trusting();
  hutch_http_configuration configuration = with(&security);
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("asks", "/hello.txt"));
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(400, response_of(task).code);
  hutch_http_task_release(task);
  end_session(session);
  for (int round = 0; round < 2; round++) {
    security.identity = file_of(round == 0 ? "client_both.pem" : "client.pem");
    security.identity_key = round == 0 ? NULL : file_of("client.key");
    session = new_session(&configuration);
    task = fetch(session, &request);
    CHECK_EQUAL(200, response_of(task).code);
    hutch_http_task_release(task);
    end_session(session);
  }
  security.identity = file_of("none.pem");
  expect(&security, "asks", HUTCH_HTTP_TLS);
}

TEST(security_is_checked_when_the_session_is_made) {
  hutch_http_session *session;
  hutch_http_security security = trusting();
  hutch_http_configuration configuration = with(&security);
  security.certificates = "no certificate";
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  CHECK(session == NULL);
  CHECK(strstr(hutch_http_error_words(), "PEM") != NULL);
  security.certificates = contents_of("own.pem");
  security.public_keys = "01234567890123456789012345678901";
  security.public_key_count = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  security.certificates = NULL;
  security.public_key_count = 65;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  security.public_key_count = SIZE_MAX;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  security.public_key_count = 0;
  security.flags = 4;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_session_create(&configuration, &session));
}

/* ----------------------------------------------------- redirects, credentials */

static const char *redirect_to(const char *server, const char *code, const char *target) {
  char path[512];
  snprintf(path, sizeof path, "/redirect?code=%s&to=%s", code, target);
  return url_of(server, kept("%s%s", strcmp(server, "wire") == 0 ? "" : "/wire", path));
}

TEST(https_leads_to_https_only) {
  hutch_http_security security = trusting();
  hutch_http_configuration configuration = with(&security);
  hutch_http_request request = get(redirect_to("good", "302", url_of("plain", "/hello.txt")));
  status_of(&configuration, &request, HUTCH_HTTP_REDIRECT);
  configuration.flags = HUTCH_HTTP_INSECURE_REDIRECTS;
  status_of(&configuration, &request, HUTCH_OK);
  configuration.flags = 0;
  request.url = redirect_to("plain", "302", url_of("good", "/hello.txt"));
  status_of(&configuration, &request, HUTCH_OK);
}

TEST(a_redirect_leads_to_http_only) {
  const char *targets[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "http://ann:pw@127.0.0.1/",
                           "//", "gopher://127.0.0.1:70/_x"};
  for (int index = 0; index < 5; index++) {
    hutch_http_request request = get(redirect_to("wire", "302", targets[index]));
    status_of(NULL, &request, HUTCH_HTTP_REDIRECT);
  }
}

TEST(credentials_stay_with_their_origin) {
  hutch_http_header headers[] = {{"Authorization", "Bearer secret"}, {"Cookie", "a=secret"},
                                 {"Proxy-Authorization", "Basic secret"}, {"X-Open", "kept"}};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(redirect_to("wire", "307", "/echo"));
  request.headers = headers;
  request.header_count = 4;
  hutch_http_task *task = fetch(session, &request);
  CHECK(body_has(task, "Bearer secret") && body_has(task, "cookie: a=secret"));
  hutch_http_task_release(task);
  /* Another port is another origin. */
  request.url = redirect_to("plain", "307", url_of("wire", "/echo"));
  task = fetch(session, &request);
  CHECK(!body_has(task, "secret") && body_has(task, "x-open: kept"));
  hutch_http_task_release(task);
  /* And so it is with a session's own headers, and the user in a URL. */
  end_session(session);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .headers = headers, .header_count = 4};
  session = new_session(&configuration);
  request = get(request.url);
  task = fetch(session, &request);
  CHECK(!body_has(task, "secret"));
  hutch_http_task_release(task);
  end_session(session);
  session = new_session(NULL);
  char url[600];
  snprintf(url, sizeof url, "http://ann:s3cret@%s", request.url + strlen("http://"));
  request.url = url;
  task = fetch(session, &request);
  CHECK(!body_has(task, "authorization"));
  hutch_http_task_release(task);
  snprintf(url, sizeof url, "http://ann:s3cret@%s", url_of("wire", "/basic") + strlen("http://"));
  task = fetch(session, &request);
  CHECK(body_has(task, "welcome"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(the_user_of_a_url_stays_within_its_origin) {
  const char *targets[] = {"/basic", url_of("wire", "/basic")};
  for (int index = 0; index < 2; index++) {
    hutch_http_session *session = new_session(NULL);
    hutch_http_request request = get(kept(
        "http://ann:s3cret@%s%s", redirect_to("wire", "302", targets[index]) + strlen("http://"),
        ""));
    hutch_http_task *task = fetch(session, &request);
    CHECK(body_has(task, "welcome"));
    hutch_http_task_release(task);
    end_session(session);
  }
}

typedef struct answers {
  int asked, right_at, refuse_at, is_proxy;
  char scheme[16], realm[16];
} answers;

static int32_t answer(void *context, hutch_http_task *task,
                      const hutch_http_challenge *challenge,
                      hutch_http_credentials *credentials) {
  answers *a = context;
  CHECK(task != NULL && challenge->url != NULL);
  CHECK_EQUAL(++a->asked, challenge->attempt);
  CHECK_EQUAL(a->is_proxy, challenge->is_proxy);
  strcpy(a->scheme, challenge->scheme);
  strcpy(a->realm, challenge->realm);
  if (a->asked == a->refuse_at) return 1;
  strcpy(credentials->user, "ann");
  strcpy(credentials->password, a->asked == a->right_at ? "s3cret" : "wrong");
  return 0;
}

static int32_t answer_both(void *context, hutch_http_task *task,
                           const hutch_http_challenge *challenge,
                           hutch_http_credentials *credentials) {
  int *asked = context;
  CHECK(task != NULL);
  asked[challenge->is_proxy]++;
  strcpy(credentials->user, "ann");
  strcpy(credentials->password, "s3cret");
  return 0;
}

TEST(challenges_are_answered_by_the_host) {
  hutch_http_session *session = new_session(NULL);
  const char *paths[] = {"/basic", "/digest"};
  for (int index = 0; index < 2; index++) {
    answers a = {.right_at = 2};
    hutch_http_request request = get(url_of("wire", paths[index]));
    request.on_challenge = answer;
    request.context = &a;
    request.body = "and a body";
    request.body_size = 10;
    hutch_http_task *task = fetch(session, &request);
    CHECK_EQUAL(200, response_of(task).code);
    CHECK(body_has(task, "welcome and a body"));
    CHECK_EQUAL(2, a.asked);
    CHECK(strcmp(a.scheme, paths[index] + 1) == 0 && strcmp(a.realm, "safe") == 0);
    /* For a digest libcurl asks for the numbers first, each time. */
    hutch_http_metrics metrics = {.struct_size = sizeof metrics};
    CHECK_OK(hutch_http_task_metrics(task, &metrics));
    CHECK_EQUAL(index == 0 ? 3 : 5, metrics.requests);
    hutch_http_task_release(task);
    /* Never right: asked three times, and the refusal is the response. */
    a = (answers){0};
    task = fetch(session, &request);
    CHECK_EQUAL(401, response_of(task).code);
    CHECK_EQUAL(3, a.asked);
    hutch_http_task_release(task);
    a = (answers){.refuse_at = 1};
    task = fetch(session, &request);
    CHECK_EQUAL(401, response_of(task).code);
    CHECK(body_has(task, "no"));
    CHECK_EQUAL(1, a.asked);
    hutch_http_task_release(task);
  }
  end_session(session);
}

static int32_t answer_with_a_colon(void *context, hutch_http_task *task,
                                   const hutch_http_challenge *challenge,
                                   hutch_http_credentials *credentials) {
  (void)context;
  CHECK(task != NULL && challenge->attempt == 1);
  strcpy(credentials->user, "ann:s3");
  strcpy(credentials->password, "cret");
  return 0;
}

TEST(a_user_for_basic_has_no_colon) {
  hutch_http_request request = get(url_of("wire", "/basic"));
  request.on_challenge = answer_with_a_colon;
  status_of(NULL, &request, HUTCH_INVALID_ARGUMENT);
}

static int32_t answer_with_a_line(void *context, hutch_http_task *task,
                                  const hutch_http_challenge *challenge,
                                  hutch_http_credentials *credentials) {
  CHECK(task != NULL && challenge->attempt == 1);
  const char *line = "ann\r\nX-Added: 1";
  strcpy(credentials->user, *(int *)context ? line : "ann");
  strcpy(credentials->password, *(int *)context ? "s3cret" : line);
  return 0;
}

TEST(no_login_adds_a_header) {
  const char *paths[] = {"/basic", "/digest"};
  for (int index = 0; index < 4; index++) {
    int is_user = index & 1;
    hutch_http_request request = get(url_of("wire", paths[index / 2]));
    request.on_challenge = answer_with_a_line;
    request.context = &is_user;
    status_of(NULL, &request, HUTCH_INVALID_ARGUMENT);
  }
}

/* A proxy asks before it makes a tunnel. */
TEST(challenges_for_a_tunnel_are_answered_by_the_host) {
  hutch_http_security security = {.struct_size = sizeof security,
                                  .authorities = file_of("authority.pem")};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .proxy = url_of("wire", ""), .security = &security};
  const char *schemes[] = {"basic", "digest"};
  for (int index = 0; index < 2; index++) {
    char url[128];
    const char *there = url_of("good", "/hello.txt");
    const char *port = strrchr(there, ':');
    snprintf(url, sizeof url, "https://%s%s", index ? "127.0.0.1" : "localhost", port);
    answers a = {.right_at = 2, .is_proxy = 1};
    hutch_http_request request = get(url);
    request.on_challenge = answer;
    request.context = &a;
    hutch_http_session *session = new_session(&configuration);
    hutch_http_task *task = fetch(session, &request);
    CHECK(body_has(task, "hello\n"));
    CHECK_EQUAL(2, a.asked);
    CHECK(strcmp(a.scheme, schemes[index]) == 0 && strcmp(a.realm, "safe") == 0);
    const char *value;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-Proxy", 0, &value));
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Proxy-Authenticate", 0, &value));
    hutch_http_task_release(task);
    end_session(session);
    /* Never right: asked three times. Refused: asked once. */
    for (int is_refused = 0; is_refused < 2; is_refused++) {
      a = (answers){.is_proxy = 1, .refuse_at = is_refused};
      const char *words = status_of(&configuration, &request, HUTCH_HTTP_NO_CONNECTION);
      CHECK(strstr(words, "407") != NULL);
      CHECK_EQUAL(is_refused ? 1 : 3, a.asked);
    }
  }
}

/* The server asks when the proxy has made the tunnel. */
TEST(a_tunnel_and_a_server_have_challenges_of_their_own) {
  hutch_http_security security = {.struct_size = sizeof security,
                                  .authorities = file_of("authority.pem")};
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .proxy = url_of("wire", ""), .security = &security};
  for (int index = 0; index < 2; index++) {
    char url[128];
    const char *there = url_of("good", index ? "/wire/digest" : "/wire/basic");
    snprintf(url, sizeof url, "https://%s%s", index ? "127.0.0.1" : "localhost",
             strrchr(there, ':'));
    int asked[2] = {0};
    hutch_http_request request = get(url);
    request.on_challenge = answer_both;
    request.context = asked;
    hutch_http_session *session = new_session(&configuration);
    for (int again = 0; again < 2; again++) {
      hutch_http_task *task = fetch(session, &request);
      CHECK_EQUAL(200, response_of(task).code);
      CHECK(body_has(task, "welcome "));
      hutch_http_task_release(task);
    }
    CHECK_EQUAL(2, asked[0]);
    CHECK(asked[1] >= 1);
    end_session(session);
  }
}

TEST(challenges_of_one_line_are_told_apart) {
  static const struct { const char *path; const char *scheme; } rows[] = {
      {"/basic?before=Negotiate%2C", "basic"},
      {"/basic?before=Negotiate+YWJj%3D%3D%2C+", "basic"},
      {"/basic?before=Bearer+realm%3D%22other%22%2C+error%3D%22a%2C+b%22%2C", "basic"},
      {"/basic?behind=%2C+Bearer+realm%3D%22other%22", "basic"},
      {"/basic?behind=%2C+charset%3D%22UTF-8%22%2CNTLM", "basic"},
      {"/digest?before=Basic+realm%3D%22other%22%2C+", "digest"},
      {"/basic?before=Basically+realm%3D%22other%22%2C", "basic"}};
  hutch_http_session *session = new_session(NULL);
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    check_note(rows[index].path);
    answers a = {.right_at = 1};
    hutch_http_request request = get(url_of("wire", rows[index].path));
    request.on_challenge = answer;
    request.context = &a;
    hutch_http_task *task = fetch(session, &request);
    CHECK_EQUAL(200, response_of(task).code);
    CHECK(strcmp(a.scheme, rows[index].scheme) == 0 && strcmp(a.realm, "safe") == 0);
    hutch_http_task_release(task);
  }
  check_note(NULL);
  end_session(session);
}

static int32_t stop_at_b(void *context, hutch_http_task *task, int32_t code, const char *url) {
  counts *c = context;
  CHECK(task != NULL);
  CHECK_EQUAL(302, code);
  c->redirects++;
  return strstr(url, "n=1") != NULL;
}

TEST(redirects_are_asked_about_counted_and_bounded) {
  counts c = {0};
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = counted(url_of("wire", "/steps?n=4"), &c);
  request.on_redirect = stop_at_b;
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(3, c.redirects);
  CHECK_EQUAL(302, response_of(task).code);
  CHECK_EQUAL(2, response_of(task).redirects);
  hutch_http_task_release(task);
  request = get(request.url);
  task = fetch(session, &request);
  CHECK_EQUAL(200, response_of(task).code);
  CHECK_EQUAL(5, response_of(task).redirects);
  hutch_http_task_release(task);
  request.flags = HUTCH_HTTP_NO_REDIRECTS;
  task = fetch(session, &request);
  CHECK_EQUAL(302, response_of(task).code);
  hutch_http_task_release(task);
  request = get(url_of("wire", "/circle"));
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_REDIRECT, result_of(task));
  CHECK(strstr(error_of(task).words, "too many") != NULL);
  hutch_http_metrics metrics = {.struct_size = sizeof metrics};
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK_EQUAL(21, metrics.requests);
  hutch_http_task_release(task);
  end_session(session);
}

/* -------------------------------------------------------------- injection */

TEST(no_text_adds_a_header_or_a_request) {
  hutch_http_session *session = new_session(NULL);
  hutch_http_task *task;
  const char *urls[] = {"", "/path", "ftp://127.0.0.1/", "http://", "http://127.0.0.1/a b",
                        "http://127.0.0.1/\r\nX: 1", "http://127.0.0.1/\x80", "file:///etc/passwd",
                        "http://[::1", "http://127.0.0.1:99999/", "127.0.0.1/"};
  for (size_t index = 0; index < sizeof urls / sizeof *urls; index++) {
    hutch_http_request request = get(urls[index]);
    if (hutch_http_task_create(session, &request, &task) != HUTCH_INVALID_ARGUMENT)
      FAIL("%s is accepted", urls[index]);
    CHECK(task == NULL);
  }
  hutch_http_header headers[] = {
      {"X", "a\r\nY: b"}, {"X", "a\nb"}, {"X\r\nY", "b"}, {"X:", "b"}, {"", "b"},
      {"X Y", "b"}, {"X", "\x01"}, {"X", "\x7f"}, {NULL, "b"}, {"X", NULL},
      {"Content-Length", "5"}, {"transfer-encoding", "chunked"}};
  for (size_t index = 0; index < sizeof headers / sizeof *headers; index++) {
    hutch_http_request request = get(url_of("wire", "/echo"));
    request.headers = &headers[index];
    request.header_count = 1;
    if (hutch_http_task_create(session, &request, &task) != HUTCH_INVALID_ARGUMENT)
      FAIL("header %zu is accepted", index);
    hutch_http_session *other;
    hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                              .headers = &headers[index], .header_count = 1};
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &other));
  }
  const char *methods[] = {"", "GET /", "GET\r\n", "G\xc3\xa9T"};
  for (size_t index = 0; index < 4; index++) {
    hutch_http_request request = get(url_of("wire", "/echo"));
    request.method = methods[index];
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  }
  end_session(session);
}

/* ------------------------------------------------------------------- exit() */

static _Atomic int is_within, exits;

static hutch_status last_beyond_exit(void *context, hutch_http_task *task, const void *data,
                                     size_t size) {
  (void)task, (void)data, (void)size;
  is_within = 1;
  while (!exits) nap();
  for (int turn = 0; turn < 100; turn++) nap();
  /* Its handshake would use what libcrypto has freed. */
  CHECK_OK(hutch_http_task_resume(context));
  return HUTCH_OK;
}

/* Registered before libcrypto's handler, so called after it. */
static void give_others_time(void) {
  for (int turn = 0; turn < 600; turn++) nap();
}

PROCESS(exits_within_a_transfer, argument) {
  (void)argument;
  CHECK(atexit(give_others_time) == 0);
  hutch_http_security security = trusting();
  hutch_http_configuration configuration = with(&security);
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("wrong", "/hello.txt"));
  hutch_http_task *other;
  CHECK_OK(hutch_http_task_create(session, &request, &other));
  request = get(url_of("good", "/hello.txt"));
  request.on_body = last_beyond_exit;
  request.context = other;
  begin(session, &request);
  while (!is_within) nap();
  exits = 1;
  exit(0);
}

TEST(a_process_may_exit_within_a_transfer) {
  process child = start_process("exits_within_a_transfer", "");
  CHECK_EQUAL(0, end_process(&child));
}
