/* Fresh responses that answer on the thread that resumes a task; one request for many callers. */
#include "http.h"

typedef struct rig {
  hutch_cache *cache;
  hutch_http_session *session, *plain;
  const char *url;
} rig;

static void control(rig *r, const char *verb, const char *name, const char *body, char *answer) {
  char path[128];
  snprintf(path, sizeof path, "/%s/%s", verb, name);
  hutch_http_request request = get(url_of("origin", path));
  request.method = body ? "PUT" : "GET";
  request.body = body;
  request.body_size = body ? strlen(body) : 0;
  hutch_http_task *task = fetch(r->plain, &request);
  hutch_http_response response = response_of(task);
  if (answer) snprintf(answer, 64, "%.*s", (int)response.body_size, (const char *)response.body);
  hutch_http_task_release(task);
}

static int asked(rig *r, const char *name) {
  char answer[64];
  control(r, "count", name, NULL, answer);
  return atoi(answer);
}

/* A session with a cache, and a resource of the origin server. */
static rig start(const char *directory, const char *name, const char *answers) {
  char path[128];
  rig r = {.plain = new_session(NULL)};
  CHECK_OK(hutch_open(directory, NULL, &r.cache));
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = r.cache};
  r.session = new_session(&configuration);
  snprintf(path, sizeof path, "/%s", name);
  r.url = url_of("origin", path);
  control(&r, "tell", name, answers, NULL);
  return r;
}

static void stop(rig *r) {
  end_session(r->session);
  end_session(r->plain);
  hutch_cache_release(r->cache);
}

static hutch_http_task *made(rig *r, const hutch_http_request *request) {
  hutch_http_task *task;
  CHECK_OK(hutch_http_task_create(r->session, request, &task));
  return task;
}

static const char fresh[] = "200 OK\nCache-Control: max-age=1000\n\nfirst";

TEST(a_fresh_response_answers_before_resume_returns) {
  rig r = start(NULL, "here1", fresh);
  hutch_http_request request = get(r.url);
  hutch_http_task_release(fetch(r.session, &request));
  counts c = {.completions = 0};
  request.context = &c;
  request.release = count_release;
  hutch_http_task *task = made(&r, &request);
  CHECK_OK(hutch_http_task_resume(task));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, state_of(task));
  CHECK_OK(hutch_http_task_wait(task, 0));
  CHECK_EQUAL(1, c.releases);
  CHECK_EQUAL(1, response_of(task).from_cache);
  CHECK(body_has(task, "first"));
  const char *value;
  CHECK_OK(hutch_http_task_header(task, "Cache-Status", 0, &value));
  CHECK(strncmp(value, "hutch; hit; ttl=", 16) == 0);
  CHECK_EQUAL(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Age", 1, &value));
  hutch_http_metrics metrics = {.struct_size = sizeof metrics};
  CHECK_OK(hutch_http_task_metrics(task, &metrics));
  CHECK(metrics.from_cache == 1 && metrics.requests == 0);
  uint32_t was;
  CHECK_OK(hutch_http_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_HTTP_ENDED, was);
  hutch_http_task_release(task);
  CHECK_EQUAL(1, asked(&r, "here1"));
  stop(&r);
}

static hutch_status count_body(void *context, hutch_http_task *task, const void *data,
                               size_t size) {
  (void)task, (void)data;
  ((counts *)context)->received = size;
  /* A wait for the task itself within its callback would never end. */
  CHECK_EQUAL(HUTCH_DEADLOCK, hutch_http_task_wait(task, HUTCH_FOREVER));
  return HUTCH_OK;
}

TEST(callbacks_are_made_by_resume_only_if_they_may_be) {
  rig r = start(NULL, "here2", fresh);
  hutch_http_request plain = get(r.url);
  hutch_http_task_release(fetch(r.session, &plain));
  for (int any = 0; any < 2; any++) {
    counts c = {.completions = 0};
    hutch_http_request request = counted(r.url, &c);
    request.on_progress = NULL;
    request.on_body = count_body;
    if (any) request.flags = HUTCH_HTTP_ANY_THREAD;
    hutch_http_task *task = made(&r, &request);
    CHECK_OK(hutch_http_task_resume(task));
    if (any) CHECK_EQUAL(1, c.completions);
    CHECK_EQUAL(HUTCH_OK, result_of(task));
    CHECK(c.responses == 1 && c.completions == 1 && c.received == 5 && c.status == HUTCH_OK);
    CHECK(pthread_equal(c.thread, pthread_self()) ? any : !any);
    hutch_http_task_release(task);
    end_session(r.session); /* Now the context has been released. */
    CHECK_EQUAL(1, c.releases);
    hutch_http_configuration configuration = {
        .struct_size = sizeof configuration, .cache = r.cache};
    r.session = new_session(&configuration);
  }
  CHECK_EQUAL(1, asked(&r, "here2"));
  stop(&r);
}

static void cancel_it(void *context, hutch_http_task *task) {
  uint32_t was;
  ((counts *)context)->responses++;
  CHECK_OK(hutch_http_task_suspend(task));
  CHECK_OK(hutch_http_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, was);
}

TEST(a_cancel_within_a_callback_of_resume_has_its_effect) {
  rig r = start(NULL, "here3", fresh);
  hutch_http_request plain = get(r.url);
  hutch_http_task_release(fetch(r.session, &plain));
  counts c = {.completions = 0};
  hutch_http_request request = counted(r.url, &c);
  request.on_response = cancel_it;
  request.flags = HUTCH_HTTP_ANY_THREAD;
  hutch_http_task *task = made(&r, &request);
  CHECK_OK(hutch_http_task_resume(task));
  CHECK(c.responses == 1 && c.completions == 1 && c.releases == 1);
  CHECK_EQUAL(HUTCH_CANCELLED, c.status);
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  hutch_http_task_release(task);
  stop(&r);
}

typedef struct turn {
  counts c; /* Its address is the context of all callbacks. */
  hutch_http_session *session;
} turn;

/* When it returns, the session's thread has done all that was wished before. */
static void *take_turn(void *context) {
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task_release(fetch(context, &request));
  return NULL;
}

static void suspend_and_resume(void *context, hutch_http_task *task) {
  turn *t = context;
  pthread_t thread;
  if (t->c.responses++) return;
  CHECK_OK(hutch_http_task_suspend(task));
  CHECK_OK(hutch_http_task_resume(task));
  CHECK(pthread_create(&thread, NULL, take_turn, t->session) == 0);
  pthread_join(thread, NULL);
}

TEST(a_callback_of_resume_may_suspend_and_resume_the_task) {
  rig r = start(NULL, "here7", fresh);
  hutch_http_request plain = get(r.url);
  hutch_http_task_release(fetch(r.session, &plain));
  turn t = {.session = r.session};
  hutch_http_request request = counted(r.url, &t.c);
  request.on_response = suspend_and_resume;
  request.flags = HUTCH_HTTP_ANY_THREAD;
  hutch_http_task *task = made(&r, &request);
  CHECK_OK(hutch_http_task_resume(task));
  CHECK(t.c.responses == 1 && t.c.completions == 1 && t.c.releases == 1);
  CHECK(pthread_equal(t.c.thread, pthread_self()));
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  hutch_http_task_release(task);
  stop(&r);
}

static void release_it(void *context, const hutch_http_completion *completion) {
  (*(int *)context)++;
  hutch_http_task_release(completion->task);
}

TEST(a_completion_of_resume_may_release_the_task_and_end_the_session) {
  rig r = start(NULL, "here4", fresh);
  hutch_http_request request = get(r.url);
  hutch_http_task_release(fetch(r.session, &request));
  int completions = 0;
  request.context = &completions;
  request.complete = release_it;
  request.flags = HUTCH_HTTP_ANY_THREAD;
  CHECK_OK(hutch_http_task_resume(made(&r, &request)));
  CHECK_EQUAL(1, completions);
  stop(&r);
}

TEST(what_is_stale_or_on_disk_only_is_not_for_resume) {
  rig r = start(scratch("cache").text, "here5",
                "200 OK\nCache-Control: max-age=1000\nETag: \"a\"\n\nfirst\n====\n"
                "304 Not Modified\nETag: \"a\"\n\n");
  hutch_http_request request = get(r.url);
  hutch_http_task_release(fetch(r.session, &request));
  hutch_cache *memory;
  CHECK_OK(hutch_tier(r.cache, HUTCH_TIER_MEMORY, &memory));
  CHECK_OK(hutch_clear(memory));
  hutch_cache_release(memory);
  hutch_http_task *task = fetch(r.session, &request); /* from the disk, by the session's thread */
  CHECK(response_of(task).from_cache == 1 && body_has(task, "first"));
  hutch_http_task_release(task);
  CHECK_EQUAL(1, asked(&r, "here5"));
  hutch_http_header header = {"Cache-Control", "max-age=0"};
  request.headers = &header;
  request.header_count = 1;
  task = fetch(r.session, &request);
  CHECK(response_of(task).from_cache == 1 && body_has(task, "first"));
  hutch_http_task_release(task);
  CHECK_EQUAL(2, asked(&r, "here5"));
  stop(&r);
}

/* Threads that resume, cancel and release tasks of one fresh URL while the session ends. */
typedef struct crowd {
  rig *r;
  counts c;
  _Atomic int begun;
} crowd;

static void *hurry(void *context) {
  crowd *all = context;
  hutch_http_request request = counted(all->r->url, &all->c);
  request.on_progress = NULL;
  request.flags = HUTCH_HTTP_ANY_THREAD;
  for (int turn = 0; turn < 500; turn++) {
    hutch_http_task *task;
    if (hutch_http_task_create(all->r->session, &request, &task) != HUTCH_OK) {
      all->c.completions++; /* There is none; its context is released all the same. */
      all->begun++;
      continue;
    }
    all->begun++;
    if (turn % 3 == 0) {
      hutch_http_task_set_priority(task, HUTCH_PRIORITY_HIGH);
      hutch_http_task_suspend(task);
    }
    hutch_http_task_resume(task);
    if (turn % 2 == 0) hutch_http_task_cancel(task, NULL);
    hutch_http_task_release(task);
  }
  return NULL;
}

TEST(each_task_of_many_threads_ends_once) {
  rig r = start(NULL, "here6", fresh);
  hutch_http_request plain = get(r.url);
  hutch_http_task_release(fetch(r.session, &plain));
  crowd all = {.r = &r};
  pthread_t threads[4];
  for (int index = 0; index < 4; index++)
    CHECK(pthread_create(&threads[index], NULL, hurry, &all) == 0);
  while (all.begun < 200) nap();
  CHECK_OK(hutch_http_session_end(r.session, HUTCH_HTTP_FINISH));
  for (int index = 0; index < 4; index++) pthread_join(threads[index], NULL);
  CHECK_OK(hutch_http_session_wait(r.session, 30 * HUTCH_SECOND));
  CHECK_EQUAL(2000, all.begun);
  CHECK_EQUAL(2000, all.c.completions);
  CHECK_EQUAL(2000, all.c.releases);
  stop(&r);
}
