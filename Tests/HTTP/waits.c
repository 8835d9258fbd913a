/* Threads that wait for tasks. Each wakes when its task has ended, whatever ends beside it. */
#include <pthread.h>
#include <sys/stat.h>

#include "http.h"

typedef struct waiter {
  hutch_http_task *task;
  pthread_t thread;
  _Atomic hutch_status status;
  _Atomic int is_back;
} waiter;

static void *wait_for_it(void *context) {
  waiter *w = context;
  w->status = hutch_http_task_wait(w->task, 30 * HUTCH_SECOND);
  w->is_back = 1;
  return NULL;
}

static void start_waiting(waiter *w, hutch_http_task *task) {
  *w = (waiter){.task = task, .status = HUTCH_WOULD_BLOCK};
  CHECK(pthread_create(&w->thread, NULL, wait_for_it, w) == 0);
}

static void stop_waiting(waiter *w) {
  pthread_join(w->thread, NULL);
  CHECK_STATUS(HUTCH_OK, w->status);
}

TEST(each_of_many_waiters_comes_back) {
  enum { TASKS = 48, WAITERS = 2 * TASKS };
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .connections_per_host = 16};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task *tasks[TASKS];
  waiter waiters[WAITERS];
  for (int index = 0; index < TASKS; index++)
    CHECK_OK(hutch_http_task_create(session, &request, &tasks[index]));
  for (int index = 0; index < WAITERS; index++)
    start_waiting(&waiters[index], tasks[index % TASKS]);
  /* The last one first, so that the tasks end in another order than their waiters began. */
  for (int index = TASKS - 1; index >= 0; index--) CHECK_OK(hutch_http_task_resume(tasks[index]));
  for (int index = 0; index < WAITERS; index++) stop_waiting(&waiters[index]);
  for (int index = 0; index < TASKS; index++) {
    CHECK(body_has(tasks[index], "hello\n"));
    hutch_http_task_release(tasks[index]);
  }
  end_session(session);
}

/* A completion that does not return before the waiter of another task is back. */
typedef struct meeting {
  waiter other;
  int has_met, is_late;
} meeting;

static void meet(void *context, const hutch_http_completion *completion) {
  meeting *m = context;
  (void)completion;
  if (state_of(m->other.task) != HUTCH_HTTP_ENDED) return;
  m->has_met = 1;
  struct timespec pause = {0, 1000000};
  for (int turn = 0; turn < 10000 && !m->other.is_back; turn++) nanosleep(&pause, NULL);
  m->is_late = !m->other.is_back;
}

/* Keeps the session's thread. */
typedef struct hold {
  _Atomic int is_held, may_go;
} hold;

static void keep(void *context, hutch_http_task *task) {
  hold *h = context;
  (void)task;
  h->is_held = 1;
  while (!h->may_go) nap();
}

/* The thread of the session is kept until the responses of both tasks have been sent, so that it
   finds both in one step. Where it does not, the round has nothing to say. */
TEST(a_waiter_is_back_before_the_next_callback_is_made) {
  hutch_http_session *session = new_session(NULL), *other = new_session(NULL);
  int meetings = 0;
  for (int round = 0; round < 20 && meetings < 3; round++) {
    meeting m = {0};
    hold h = {0};
    hutch_http_request silent = get(url_of("wire", "/wait?ms=20"));
    hutch_http_request loud = get(url_of("wire", "/wait?ms=40"));
    loud.context = &m;
    loud.complete = meet;
    hutch_http_request holding = get(url_of("plain", "/hello.txt"));
    holding.context = &h;
    holding.on_response = keep;
    start_waiting(&m.other, begin(session, &silent));
    hutch_http_task *tasks[2] = {begin(session, &loud), begin(session, &holding)};
    await_callback(tasks[1], &h.is_held);
    hutch_http_request later = get(url_of("wire", "/wait?ms=60"));
    hutch_http_task_release(fetch(other, &later));
    h.may_go = 1;
    for (int index = 0; index < 2; index++) {
      CHECK_EQUAL(HUTCH_OK, result_of(tasks[index]));
      hutch_http_task_release(tasks[index]);
    }
    stop_waiting(&m.other);
    hutch_http_task_release(m.other.task);
    CHECK(!m.is_late);
    meetings += m.has_met;
  }
  end_session(session);
  end_session(other);
}

/* Sockets of this process. */
static int open_sockets(void) {
  int count = 0;
  for (int descriptor = 0; descriptor < 1024; descriptor++) {
    struct stat information;
    if (fstat(descriptor, &information) == 0 && S_ISSOCK(information.st_mode)) count++;
  }
  return count;
}

TEST(a_session_that_has_ended_has_closed_its_connections) {
  int before = open_sockets();
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  hutch_http_task *task = fetch(session, &request);
  CHECK(body_has(task, "hello\n"));
  CHECK(open_sockets() > before);
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  CHECK_OK(hutch_http_session_wait(session, 30 * HUTCH_SECOND));
  CHECK_EQUAL(before, open_sockets());
  hutch_http_task_release(task);
  hutch_http_session_release(session);
}

/* What a thread does when it ends, after all functions of the library. */
static pthread_key_t ending;
static _Atomic int ended;

static void end_slowly(void *value) {
  (void)value;
  struct timespec pause = {.tv_nsec = 50 * HUTCH_MILLISECOND};
  nanosleep(&pause, NULL);
  ended++;
}

static void mark_thread(void *context, hutch_http_task *task) {
  (void)task;
  CHECK_EQUAL(0, pthread_setspecific(ending, context));
}

static hutch_http_session *session_with_marked_thread(void) {
  static int mark;
  hutch_http_session *session = new_session(NULL);
  hutch_http_request request = get(url_of("plain", "/hello.txt"));
  request.on_response = mark_thread;
  request.context = &mark;
  hutch_http_task_release(fetch(session, &request));
  return session;
}

/* A process may exit then, which frees what libraries keep for threads. */
TEST(a_session_that_was_waited_for_has_no_thread) {
  CHECK_EQUAL(0, pthread_key_create(&ending, end_slowly));
  hutch_http_session *session = session_with_marked_thread();
  CHECK_OK(hutch_http_session_end(session, HUTCH_HTTP_FINISH));
  CHECK_OK(hutch_http_session_wait(session, 30 * HUTCH_SECOND));
  CHECK_EQUAL(1, ended);
  CHECK_OK(hutch_http_session_wait(session, 0));
  hutch_http_session_release(session);
}

TEST(a_session_without_a_task_has_no_thread_after_its_last_release) {
  CHECK_EQUAL(0, pthread_key_create(&ending, end_slowly));
  hutch_http_session_release(session_with_marked_thread());
  CHECK_EQUAL(1, ended);
}
