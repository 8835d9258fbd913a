/* One request for a URL among sessions of several processes that share a directory. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

static rig start_in(const char *name, const char *directory, int64_t lease, uint32_t flags) {
  hutch_options options = {.struct_size = sizeof options, .clock = the_time};
  rig r = {.configuration = {.struct_size = sizeof r.configuration, .cache_lease = lease,
                             .cache_flags = flags},
           .name = name};
  CHECK_OK(hutch_open(directory, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.session = new_session(&r.configuration);
  r.plain = new_session(NULL);
  return r;
}

/* Another session, with the same cache. */
static rig start_beside(const rig *r, int64_t lease, uint32_t flags) {
  rig other = *r;
  hutch_cache_retain(r->cache);
  other.configuration.cache_lease = lease;
  other.configuration.cache_flags = flags;
  other.session = new_session(&other.configuration);
  other.plain = new_session(NULL);
  return other;
}

static hutch_http_task *begin_get(rig *r) {
  hutch_http_request request = request_of(r);
  return begin(r->session, &request);
}

static void expect_body(hutch_http_task *task, const char *body) {
  CHECK_EQUAL(HUTCH_OK, result_of(task));
  answer a = read_answer(task);
  if (strcmp(a.body, body) != 0) FAIL("\"%s\" instead of \"%s\"", a.body, body);
  hutch_http_task_release(task);
}

/* The version of the lease; 0: there is none. */
static uint64_t lease_of(rig *r) {
  char key[256];
  int size = snprintf(key, sizeof key, "LEASE GET %s", request_of(r).url);
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_status status = hutch_info(r->cache, key, size, &info);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  return status == HUTCH_OK ? info.version : 0;
}

/* argument: "NAME DIRECTORY". */
static rig start_child(const char *argument) {
  static char name[64], directory[4096];
  CHECK_EQUAL(2, sscanf(argument, "%63s %4095s", name, directory));
  return start_in(name, directory, 0, 0);
}

PROCESS(gets_the_body, argument) {
  rig r = start_child(argument);
  hutch_http_task *task = begin_get(&r);
  tell_ready();
  expect_body(task, "body");
  await_end();
  stop(&r);
}

PROCESS(is_killed_in_its_request, argument) {
  rig r = start_child(argument);
  hutch_http_task *task = begin_get(&r);
  while (lease_of(&r) == 0) continue;
  tell_ready();
  result_of(task);
}

static const char *argument_of(const char *name, const path *directory) {
  return kept("%s %s", name, directory->text);
}

TEST(processes_that_share_a_directory_make_one_request) {
  enum { CHILDREN = 3 };
  path directory = scratch("cache");
  rig r = start_in("lease_one", directory.text, 0, 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  process children[CHILDREN];
  for (int index = 0; index < CHILDREN; index++)
    children[index] = start_process("gets_the_body", argument_of(r.name, &directory));
  for (int index = 0; index < CHILDREN; index++) await_ready(&children[index]);
  hutch_http_task *task = begin_get(&r);
  while (asked(&r) == 0) continue;
  go(&r);
  expect_body(task, "body");
  for (int index = 0; index < CHILDREN; index++) CHECK_EQUAL(0, end_process(&children[index]));
  CHECK_EQUAL(1, asked(&r));
  /* Nothing is left of the lease. */
  CHECK_EQUAL(0, lease_of(&r));
  CHECK_EQUAL(1, count_of(r.cache));
  stop(&r);
}

TEST(a_process_that_is_killed_blocks_the_others_no_longer_than_its_term) {
  path directory = scratch("cache");
  rig r = start_in("lease_killed", directory.text, 200 * HUTCH_MILLISECOND, 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nlost\n====\n"
           "200 OK\nCache-Control: max-age=100\n\nbody");
  process child = start_process("is_killed_in_its_request", argument_of(r.name, &directory));
  await_ready(&child);
  while (asked(&r) == 0) continue;
  CHECK_EQUAL(0, kill(child.pid, SIGKILL));
  CHECK(WIFSIGNALED(end_process(&child)));
  CHECK(lease_of(&r) != 0);
  /* Many callers, and a second session: one of them makes the request. */
  rig other = start_beside(&r, 200 * HUTCH_MILLISECOND, 0);
  hutch_http_task *tasks[8];
  for (int index = 0; index < 8; index++) tasks[index] = begin_get(index % 2 ? &r : &other);
  for (int index = 0; index < 8; index++) expect_body(tasks[index], "body");
  CHECK_EQUAL(2, asked(&r));
  CHECK_EQUAL(0, lease_of(&r));
  stop(&other);
  stop(&r);
}

TEST(a_lease_is_renewed_as_long_as_the_request_runs) {
  path directory = scratch("cache");
  rig r = start_in("lease_renewed", directory.text, 60 * HUTCH_MILLISECOND, 0);
  rig other = start_beside(&r, 10 * HUTCH_SECOND, 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_task *first = begin_get(&r);
  while (asked(&r) == 0) continue;
  hutch_http_task *second = begin_get(&other);
  uint64_t version = lease_of(&r);
  CHECK(version != 0);
  for (int changes = 0; changes < 5;) {
    uint64_t now = lease_of(&r);
    if (now != version) changes++;
    version = now;
  }
  CHECK_EQUAL(1, asked(&r));
  go(&r);
  expect_body(first, "body");
  expect_body(second, "body");
  CHECK_EQUAL(1, asked(&r));
  stop(&other);
  stop(&r);
}

/* Those that wait in one session with the task that waits for a lease. */
TEST(a_response_of_another_session_is_for_all_that_waited_for_it) {
  path directory = scratch("cache");
  rig r = start_in("lease_waited", directory.text, 0, 0);
  rig other = start_beside(&r, 0, 0);
  /* It has no lifetime: it answers only those that waited. */
  tell(&r, "hold 200 OK\n\nbody\n====\n200 OK\n\nlate");
  hutch_http_task *first = begin_get(&r);
  while (asked(&r) == 0) continue;
  hutch_http_task *tasks[4];
  for (int index = 0; index < 4; index++) tasks[index] = begin_get(&other);
  let_begin(&other);
  go(&r);
  expect_body(first, "body");
  for (int index = 0; index < 4; index++) expect_body(tasks[index], "body");
  CHECK_EQUAL(1, asked(&r));
  CHECK_EQUAL(0, lease_of(&r));
  stop(&other);
  stop(&r);
}

TEST(a_redirect_of_another_session_keeps_no_task_waiting_for_where_it_leads) {
  path directory = scratch("cache");
  rig r = start_in("lease_moved", directory.text, 0, 0);
  rig other = start_beside(&r, 0, 0);
  rig target = other;
  target.name = "lease_moved_to";
  tell(&r, "hold 301 Moved\nCache-Control: max-age=100\nLocation: /lease_moved_to\n\nmoved");
  tell(&target, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_request request = request_of(&r);
  request.flags = HUTCH_HTTP_NO_REDIRECTS;
  hutch_http_task *first = begin(r.session, &request);
  while (asked(&r) == 0) continue;
  hutch_http_task *leader = begin_get(&other);
  hutch_http_task *follower = begin(other.session, &request);
  let_begin(&other);
  go(&r);
  expect_body(first, "moved");
  while (asked(&target) == 0) continue;
  expect_body(follower, "moved");
  CHECK_EQUAL(HUTCH_HTTP_RUNNING, state_of(leader));
  go(&target);
  CHECK_EQUAL(HUTCH_OK, result_of(leader));
  CHECK(body_has(leader, "body"));
  hutch_http_task_release(leader);
  CHECK_EQUAL(1, asked(&r));
  CHECK_EQUAL(1, asked(&target));
  stop(&other);
  stop(&r);
}

TEST(a_response_that_may_not_be_shared_is_asked_for_by_each_session) {
  path directory = scratch("cache");
  rig r = start_in("lease_private", directory.text, 0, 0);
  rig other = start_beside(&r, 0, 0);
  tell(&r, "hold 200 OK\nCache-Control: no-store\n\none\n====\n200 OK\n\ntwo");
  hutch_http_task *first = begin_get(&r);
  while (asked(&r) == 0) continue;
  hutch_http_task *second = begin_get(&other);
  go(&r);
  expect_body(first, "one");
  expect_body(second, "two");
  CHECK_EQUAL(2, asked(&r));
  CHECK_EQUAL(0, lease_of(&r));
  stop(&other);
  stop(&r);
}

TEST(a_task_that_waits_for_a_lease_is_suspended_and_cancelled) {
  path directory = scratch("cache");
  rig r = start_in("lease_stopped", directory.text, 0, 0);
  rig other = start_beside(&r, 0, 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_task *first = begin_get(&r);
  while (asked(&r) == 0) continue;
  hutch_http_task *cancelled = begin_get(&other), *suspended = begin_get(&other);
  CHECK_OK(hutch_http_task_suspend(suspended));
  CHECK_OK(hutch_http_task_cancel(cancelled, NULL));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(cancelled));
  hutch_http_task_release(cancelled);
  go(&r);
  expect_body(first, "body");
  CHECK_OK(hutch_http_task_resume(suspended));
  expect_body(suspended, "body");
  CHECK_EQUAL(1, asked(&r));
  stop(&other);
  stop(&r);
}

TEST(sessions_without_leases_make_a_request_each) {
  path directory = scratch("cache");
  rig r = start_in("lease_none", directory.text, 0, 0);
  rig other = start_beside(&r, 0, HUTCH_HTTP_CACHE_NO_LEASES);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\none\n====\n"
           "200 OK\nCache-Control: max-age=100\n\ntwo");
  hutch_http_task *first = begin_get(&r);
  while (asked(&r) == 0) continue;
  expect_body(begin_get(&other), "two");
  go(&r);
  expect_body(first, "one");
  CHECK_EQUAL(2, asked(&r));
  stop(&other);
  stop(&r);
  hutch_http_configuration bad = {.struct_size = sizeof bad, .cache_lease = 1};
  hutch_http_session *session;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&bad, &session));
}
