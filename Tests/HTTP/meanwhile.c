/* What becomes of a response while something else happens: another request changes its resource,
   the server stalls, other requests have all connections. And what of a request the cache reads. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rig.h"

static void go(rig *r) { hutch_http_task_release(control(r, "GET", "go", NULL)); }

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
