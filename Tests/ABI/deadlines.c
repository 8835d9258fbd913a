/* Deadlines of tasks that wait: they end in time though nothing runs them. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <unistd.h>

typedef struct told {
  atomic_int completed, released, worked;
  hutch_status status;
} told;

static void complete(void *context, const hutch_completion *completion) {
  told *t = context;
  t->status = completion->status;
  atomic_fetch_add(&t->completed, 1);
}
static void release(void *context) { atomic_fetch_add(&((told *)context)->released, 1); }
static hutch_status work(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((told *)context)->worked, 1);
  return HUTCH_OK;
}

static hutch_task *submit(hutch_queue *queue, told *t, hutch_task_options options) {
  options.struct_size = sizeof options;
  options.complete = complete;
  options.context = t;
  options.release = release;
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, work, t, NULL, &options, &task));
  return task;
}

static void check_late(hutch_task *task, told *t) {
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  CHECK_EQUAL(1, t->completed);
  CHECK_EQUAL(HUTCH_TIMED_OUT, t->status);
  CHECK_EQUAL(0, t->worked);
  hutch_task_release(task);
}

TEST(a_deadline_passes_though_every_worker_is_busy) {
  for (uint32_t width = 1; width <= 3; width++) {
    gate g = {0};
    hutch_queue *queue = new_queue(width, 0);
    /* Before the workers are busy, and after. */
    told before = {0}, after = {0}, without = {0};
    for (uint32_t n = 0; n < width; n++)
      CHECK_OK(hutch_queue_submit(queue, gate_work, &g, NULL, NULL, NULL));
    hutch_task *early =
        submit(queue, &before, (hutch_task_options){.deadline = 30 * HUTCH_MILLISECOND});
    gate_await(&g, (int)width);
    hutch_task *late = submit(queue, &after, (hutch_task_options){.deadline = HUTCH_MILLISECOND});
    hutch_task *never = submit(queue, &without, (hutch_task_options){0});
    check_late(late, &after);
    if (width > 1) check_late(early, &before);
    else {
      CHECK_OK(hutch_task_wait(early, HUTCH_FOREVER));
      CHECK_EQUAL(HUTCH_TIMED_OUT, before.status);
      hutch_task_release(early);
    }
    CHECK_EQUAL(0, without.completed);
    gate_open(&g);
    CHECK_OK(hutch_task_wait(never, HUTCH_FOREVER));
    CHECK_OK(without.status);
    hutch_task_release(never);
    /* The task that stands at the gate has to be through it. */
    CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
    hutch_queue_release(queue);
  }
}

TEST(a_deadline_passes_though_the_queue_is_suspended) {
  hutch_queue *queue = new_queue(2, 0);
  CHECK_OK(hutch_queue_suspend(queue));
  told t[3] = {{0}};
  hutch_task *later = submit(queue, &t[0], (hutch_task_options){.deadline = 3600 * HUTCH_SECOND});
  /* An earlier one than that for which a thread sleeps. */
  hutch_task *sooner =
      submit(queue, &t[1], (hutch_task_options){.deadline = 2 * HUTCH_MILLISECOND});
  check_late(sooner, &t[1]);
  hutch_task *soonest = submit(queue, &t[2], (hutch_task_options){.deadline = 1});
  check_late(soonest, &t[2]);
  CHECK_EQUAL(0, t[0].completed);
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(later, HUTCH_FOREVER));
  CHECK_OK(t[0].status);
  hutch_task_release(later);
  hutch_queue_release(queue);
}

TEST(a_port_is_told_of_a_deadline_in_time) {
  gate g = {0};
  hutch_queue *queue = new_queue(1, 0);
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  CHECK_OK(hutch_queue_submit(queue, gate_work, &g, NULL, NULL, NULL));
  gate_await(&g, 1);
  told t = {0};
  hutch_task *task =
      submit(queue, &t, (hutch_task_options){.deadline = HUTCH_MILLISECOND, .port = port});
  struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
  CHECK(poll(&descriptor, 1, -1) == 1);
  CHECK_EQUAL(0, t.completed);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  check_late(task, &t);
  gate_open(&g);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_port_release(port);
  hutch_queue_release(queue);
}

TEST(a_group_that_is_not_started_ends_by_deadlines) {
  hutch_queue *queue = new_queue(1, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  told t = {0}, stays = {0};
  hutch_task *task =
      submit(queue, &t, (hutch_task_options){.deadline = HUTCH_MILLISECOND, .group = group});
  hutch_task *other = submit(queue, &stays, (hutch_task_options){.group = group});
  check_late(task, &t);
  CHECK_OK(hutch_group_start(group, NULL));
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  CHECK_OK(hutch_task_wait(other, HUTCH_FOREVER));
  CHECK_OK(stays.status);
  hutch_task_release(other);
  hutch_group_release(group);
  hutch_queue_release(queue);
}

TEST(of_tasks_done_as_one_a_deadline_ends_its_own) {
  hutch_queue *queue = new_queue(1, 0);
  CHECK_OK(hutch_queue_suspend(queue));
  told t[3] = {{0}};
  hutch_task *tasks[3];
  for (int n = 0; n < 3; n++)
    tasks[n] = submit(queue, &t[n],
                      (hutch_task_options){.deadline = n == 1 ? 0 : HUTCH_MILLISECOND,
                                           .identifier = "one", .identifier_size = 3});
  check_late(tasks[0], &t[0]);
  check_late(tasks[2], &t[2]);
  CHECK_EQUAL(0, t[1].completed);
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(tasks[1], HUTCH_FOREVER));
  CHECK_OK(t[1].status);
  CHECK_EQUAL(1, t[1].worked);
  hutch_task_release(tasks[1]);
  hutch_queue_release(queue);
}

TEST(of_operations_on_a_key_a_deadline_ends_its_own) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_OK(hutch_suspend(cache));
  told t[3] = {{0}};
  hutch_task *tasks[3];
  for (int n = 0; n < 3; n++) {
    hutch_task_options options = {.struct_size = sizeof options, .complete = complete,
                                  .context = &t[n], .release = release,
                                  .deadline = n == 2 ? 0 : HUTCH_MILLISECOND};
    char value[2] = {(char)('0' + n), 0};
    CHECK_OK(hutch_put_async(cache, KEY("key"), value, 1, NULL, &options, &tasks[n]));
  }
  check_late(tasks[0], &t[0]);
  check_late(tasks[1], &t[1]);
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_resume(cache));
  CHECK_OK(hutch_task_wait(tasks[2], HUTCH_FOREVER));
  CHECK_OK(t[2].status);
  hutch_task_release(tasks[2]);
  CHECK_TEXT(cache, "key", "2");
  CHECK_OK(hutch_close(cache));
}

TEST(room_in_a_full_queue_comes_by_deadlines) {
  hutch_queue_options options = {.struct_size = sizeof options, .length = 1};
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(&options, &queue));
  CHECK_OK(hutch_queue_suspend(queue));
  told t[2] = {{0}};
  hutch_task *first = submit(queue, &t[0], (hutch_task_options){.deadline = HUTCH_MILLISECOND});
  hutch_task *second = submit(queue, &t[1], (hutch_task_options){.flags = HUTCH_TASK_WAIT});
  check_late(first, &t[0]);
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(second, HUTCH_FOREVER));
  CHECK_OK(t[1].status);
  hutch_task_release(second);
  hutch_queue_release(queue);
}

TEST(without_threads_deadlines_are_seen_by_who_runs_the_queue) {
  hutch_queue *queue = new_queue(1, HUTCH_QUEUE_NO_THREADS);
  told t[2] = {{0}};
  CHECK_OK(hutch_queue_suspend(queue));
  hutch_task *task = submit(queue, &t[0], (hutch_task_options){.deadline = 1});
  hutch_task *stays = submit(queue, &t[1], (hutch_task_options){.deadline = HUTCH_FOREVER});
  CHECK_OK(hutch_queue_run(queue, 0, NULL));
  check_late(task, &t[0]);
  CHECK_EQUAL(0, t[1].completed);
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_queue_run(queue, 0, NULL));
  CHECK_OK(t[1].status);
  hutch_task_release(stays);
  hutch_queue_release(queue);
}

/* Many deadlines, some cancelled, some changed in their priority: each task ends once, and what
   was not due has not ended by time. */
TEST(many_deadlines_in_any_order) {
  enum { COUNT = 3000 };
  static told t[COUNT];
  static hutch_task *tasks[COUNT];
  uint64_t state = seed();
  hutch_queue *queue = new_queue(2, 0);
  CHECK_OK(hutch_queue_suspend(queue));
  for (int n = 0; n < COUNT; n++) {
    uint64_t r = next_random(&state);
    int64_t deadline = n % 3 == 0 ? 0 : n % 3 == 1 ? 3600 * HUTCH_SECOND + (int64_t)(r & 0xffff)
                                                   : 1 + (int64_t)(r % (20 * HUTCH_MILLISECOND));
    tasks[n] = submit(queue, &t[n], (hutch_task_options){.deadline = deadline});
    if (n % 5 == 0) CHECK_OK(hutch_task_cancel(tasks[next_random(&state) % (uint64_t)(n + 1)],
                                               NULL));
    if (n % 7 == 0) CHECK_OK(hutch_task_set_priority(tasks[n], HUTCH_PRIORITY_HIGH));
  }
  for (int n = 2; n < COUNT; n += 3) CHECK_OK(hutch_task_wait(tasks[n], HUTCH_FOREVER));
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  for (int n = 0; n < COUNT; n++) {
    CHECK_EQUAL(1, t[n].completed);
    CHECK_EQUAL(t[n].status == HUTCH_OK, t[n].worked);
    if (t[n].status != HUTCH_CANCELLED)
      CHECK_EQUAL(n % 3 == 2 ? HUTCH_TIMED_OUT : HUTCH_OK, t[n].status);
    hutch_task_release(tasks[n]);
  }
  hutch_queue_release(queue);
}
