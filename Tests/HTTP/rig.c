#include "rig.h"

_Atomic int64_t seconds = START;

int64_t the_time(void *context) {
  (void)context;
  return seconds * HUTCH_SECOND;
}

rig start(const char *name, uint32_t cache_flags) {
  hutch_options options = {.struct_size = sizeof options, .clock = the_time};
  rig r = {.configuration = {.struct_size = sizeof r.configuration, .cache_flags = cache_flags},
           .name = name};
  CHECK_OK(hutch_open(NULL, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.session = new_session(&r.configuration);
  r.plain = new_session(NULL);
  return r;
}

void stop(rig *r) {
  end_session(r->session);
  end_session(r->plain);
  hutch_cache_release(r->cache);
}

hutch_http_task *control(rig *r, const char *method, const char *verb, const char *body) {
  char path[256];
  snprintf(path, sizeof path, "/%s/%s", verb, r->name);
  hutch_http_request request = get(url_of("origin", path));
  request.method = method;
  request.body = body;
  request.body_size = body ? strlen(body) : 0;
  return fetch(r->plain, &request);
}

void tell(rig *r, const char *answers) {
  hutch_http_task_release(control(r, "PUT", "tell", answers));
}

void go(rig *r) { hutch_http_task_release(control(r, "GET", "go", NULL)); }

void let_begin(rig *r) {
  hutch_http_request request = get(url_of("origin", "/count/none"));
  request.cache_mode = HUTCH_HTTP_CACHE_NONE;
  hutch_http_task_release(fetch(r->session, &request));
  while (asked(r) == 0) continue;
}

int asked(rig *r) {
  hutch_http_task *task = control(r, "GET", "count", NULL);
  hutch_http_response response = response_of(task);
  int count = 0;
  for (const char *digit = response.body; *digit != '\n'; digit++)
    count = 10 * count + *digit - '0';
  hutch_http_task_release(task);
  return count;
}

bool asked_with(rig *r, const char *line) {
  hutch_http_task *task = control(r, "GET", "count", NULL);
  bool has = body_has(task, line);
  hutch_http_task_release(task);
  return has;
}

hutch_http_request request_of(rig *r) {
  char path[128];
  snprintf(path, sizeof path, "/%s", r->name);
  return get(url_of("origin", path));
}

hutch_http_task *ask_in(rig *r, const char *header, uint32_t mode) {
  static char name[64], value[256];
  hutch_http_header headers[1] = {{name, value}};
  hutch_http_request request = request_of(r);
  request.cache_mode = mode;
  if (header) {
    CHECK(sscanf(header, "%63[^:]: %255[^\n]", name, value) == 2);
    request.headers = headers;
    request.header_count = 1;
  }
  return fetch(r->session, &request);
}

hutch_http_task *ask(rig *r, const char *header) { return ask_in(r, header, 0); }

answer read_answer(hutch_http_task *task) {
  hutch_http_response response = response_of(task);
  hutch_http_metrics metrics = {.struct_size = sizeof metrics};
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK_EQUAL(response.from_cache, metrics.from_cache);
  answer a = {.code = response.code, .from_cache = response.from_cache == 1,
              .requests = (int)metrics.requests};
  CHECK(response.body_size < sizeof a.body);
  memcpy(a.body, response.body_size ? response.body : "", response.body_size);
  return a;
}

answer answer_to(rig *r, const char *header, uint32_t mode) {
  hutch_http_task *task = ask_in(r, header, mode);
  answer a = read_answer(task);
  hutch_http_task_release(task);
  return a;
}

void expect(rig *r, const char *header, int code, const char *body, bool from_cache) {
  answer a = answer_to(r, header, 0);
  CHECK_EQUAL(code, a.code);
  if (strcmp(body, a.body) != 0) FAIL("\"%s\" instead of \"%s\"", a.body, body);
  CHECK_EQUAL(from_cache, a.from_cache);
}

bool header_is(hutch_http_task *task, const char *name, const char *expected) {
  const char *value;
  hutch_status status = hutch_http_task_header(task, name, 0, &value);
  return status == HUTCH_OK && strcmp(value, expected) == 0;
}

void check_rows(const char *name, const row *rows, size_t count) {
  for (size_t index = 0; index < count; index++) {
    const row *one = &rows[index];
    char resource[128], text[1024];
    snprintf(resource, sizeof resource, "%s_%zu", name, index);
    bool has_code = one->headers[0] >= '0' && one->headers[0] <= '9';
    snprintf(text, sizeof text, "%s%s%s\n\nbody", has_code ? "" : "200 OK",
             has_code || !*one->headers ? "" : "\n", one->headers);
    seconds = START;
    rig r = start(resource, one->flags);
    tell(&r, text);
    check_note(one->what);
    answer first = answer_to(&r, NULL, 0);
    CHECK(!first.from_cache);
    seconds += one->passed;
    answer second = answer_to(&r, one->request, 0);
    CHECK_EQUAL(one->expected, asked(&r));
    bool is_refused = second.code == 504 && one->request && strstr(one->request, "only-if-cached");
    CHECK_EQUAL(one->expected == 1 && !is_refused, second.from_cache);
    stop(&r);
    check_note(NULL);
  }
}
