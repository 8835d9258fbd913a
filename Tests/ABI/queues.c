/* Tasks, queues and groups: order, priorities, cancellation, coalescing, waits, ends. Ports and
   the calls of a cache as tasks are in async.c. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

/* A gate that work waits at, and the order in which things happened. */
typedef struct stage {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool open;
  int waiting;
  int order[256];
  int count;
} stage;

#define STAGE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, {0}, 0}

static void note(stage *s, int what) {
  pthread_mutex_lock(&s->lock);
  s->order[s->count++] = what;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

/* A worker, within the work: until the test opens the gate. */
static void stop_here(stage *s) {
  pthread_mutex_lock(&s->lock);
  s->waiting++;
  pthread_cond_broadcast(&s->changed);
  while (!s->open) pthread_cond_wait(&s->changed, &s->lock);
  s->waiting--;
  pthread_mutex_unlock(&s->lock);
}

static void await_waiting(stage *s, int count) {
  pthread_mutex_lock(&s->lock);
  while (s->waiting < count) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void open_gate(stage *s) {
  pthread_mutex_lock(&s->lock);
  s->open = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

typedef struct item {
  stage *s;
  int number;
  int worked, completed, released, context_released;
  hutch_status status;
} item;

static hutch_status work(void *context, hutch_task *task) {
  (void)task;
  item *i = context;
  i->worked++;
  note(i->s, i->number);
  return HUTCH_OK;
}

static hutch_status blocking_work(void *context, hutch_task *task) {
  (void)task;
  item *i = context;
  i->worked++;
  stop_here(i->s);
  return HUTCH_OK;
}

static void complete(void *context, const hutch_completion *completion) {
  item *i = context;
  CHECK_EQUAL(sizeof *completion, completion->struct_size);
  CHECK_EQUAL(HUTCH_OPERATION_WORK, completion->operation);
  CHECK_EQUAL(0, i->context_released);
  i->completed++;
  i->status = completion->status;
}

static void release_work(void *context) { ((item *)context)->released++; }
static void release_context(void *context) {
  item *i = context;
  CHECK_EQUAL(1, i->completed);
  i->context_released++;
}

static hutch_task_options task_options(item *i) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options),
                              .complete = complete, .context = i, .release = release_context};
}

static hutch_task *submit(hutch_queue *queue, item *i, int32_t priority) {
  hutch_task_options options = task_options(i);
  options.priority = priority;
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, work, i, release_work, &options, &task));
  CHECK(task);
  return task;
}

/* Occupies one place of the queue until the gate opens. */
static void block(hutch_queue *queue, item *i) {
  hutch_task_options options = task_options(i);
  CHECK_OK(hutch_queue_submit(queue, blocking_work, i, release_work, &options, NULL));
}

static void check_ended(const item *i, int worked, hutch_status status) {
  CHECK_EQUAL(worked, i->worked);
  CHECK_EQUAL(1, i->completed);
  CHECK_EQUAL(1, i->released);
  CHECK_EQUAL(1, i->context_released);
  CHECK_EQUAL(status, i->status);
}

static void wait_all(hutch_queue *queue) {
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
}

static uint32_t state_of(hutch_task *task) {
  uint32_t state = 0;
  CHECK_OK(hutch_task_status(task, &state, NULL));
  return state;
}

/* -------------------------------------------------------------------- tasks */

TEST(work_runs_once_and_completes_once) {
  stage s = STAGE;
  item i = {.s = &s, .number = 7};
  hutch_queue *queue = new_queue(0, 0);
  hutch_task *task = submit(queue, &i, 0);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_ended(&i, 1, HUTCH_OK);
  uint32_t state = 0;
  hutch_status result = 77;
  CHECK_OK(hutch_task_status(task, &state, &result));
  CHECK_EQUAL(HUTCH_TASK_ENDED, state);
  CHECK_EQUAL(HUTCH_OK, result);
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_TASK_ENDED, was);
  check_ended(&i, 1, HUTCH_OK);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

TEST(a_task_may_be_released_before_it_ends) {
  stage s = STAGE;
  item gate = {.s = &s}, i = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  hutch_task_release(submit(queue, &i, 0));
  open_gate(&s);
  wait_all(queue);
  check_ended(&i, 1, HUTCH_OK);
  hutch_queue_release(queue);
}

static hutch_status answer(void *context, hutch_task *task) {
  (void)task;
  return *(hutch_status *)context;
}

TEST(the_status_of_work_is_the_completions) {
  hutch_queue *queue = new_queue(0, 0);
  hutch_status statuses[] = {HUTCH_OK, HUTCH_NOT_FOUND, HUTCH_IO, 12345};
  for (int k = 0; k < 4; k++) {
    hutch_task *task = NULL;
    CHECK_OK(hutch_queue_submit(queue, answer, &statuses[k], NULL, NULL, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    uint32_t state;
    hutch_status result;
    CHECK_OK(hutch_task_status(task, &state, &result));
    CHECK_EQUAL(statuses[k], result);
    hutch_task_release(task);
  }
  hutch_queue_release(queue);
}

TEST(a_cancelled_task_never_runs) {
  stage s = STAGE;
  item gate = {.s = &s}, i = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  await_waiting(&s, 1);
  hutch_task *task = submit(queue, &i, 0);
  CHECK_EQUAL(HUTCH_TASK_QUEUED, state_of(task));
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_TASK_QUEUED, was);
  CHECK_OK(hutch_task_cancel(task, NULL));
  open_gate(&s);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  wait_all(queue);
  check_ended(&i, 0, HUTCH_CANCELLED);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

/* Ends only when it is asked to. */
static hutch_status patient_work(void *context, hutch_task *task) {
  item *i = context;
  i->worked++;
  note(i->s, i->number);
  while (state_of(task) != HUTCH_TASK_CANCELLING) usleep(100);
  return HUTCH_CANCELLED;
}

TEST(a_running_task_is_asked_to_end) {
  stage s = STAGE;
  item i = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  hutch_task_options options = task_options(&i);
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, patient_work, &i, release_work, &options, &task));
  while (state_of(task) == HUTCH_TASK_QUEUED) usleep(100);
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_TASK_RUNNING, was);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_ended(&i, 1, HUTCH_CANCELLED);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

TEST(waits_have_a_time_out) {
  stage s = STAGE;
  item gate = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  hutch_task_options options = task_options(&gate);
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, blocking_work, &gate, release_work, &options, &task));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_task_wait(task, 0));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_queue_wait_all(queue, 0));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_task_wait(task, HUTCH_MILLISECOND));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_queue_wait_all(queue, HUTCH_MILLISECOND));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_task_wait(task, -1));
  open_gate(&s);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  wait_all(queue);
  CHECK_OK(hutch_task_wait(task, 0));
  hutch_task_release(task);
  hutch_queue_release(queue);
}

TEST(a_task_whose_turn_comes_too_late_does_not_run) {
  stage s = STAGE;
  item gate = {.s = &s}, late = {.s = &s}, early = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  hutch_task_options options = task_options(&late);
  options.deadline = 1;
  CHECK_OK(hutch_queue_submit(queue, work, &late, release_work, &options, NULL));
  options = task_options(&early);
  options.deadline = HUTCH_HOUR;
  CHECK_OK(hutch_queue_submit(queue, work, &early, release_work, &options, NULL));
  open_gate(&s);
  wait_all(queue);
  check_ended(&late, 0, HUTCH_TIMED_OUT);
  check_ended(&early, 1, HUTCH_OK);
  hutch_queue_release(queue);
}

/* -------------------------------------------------------------------- order */

TEST(a_width_of_one_is_strict_order_whatever_the_priority) {
  stage s = STAGE;
  item gate = {.s = &s}, items[30];
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  for (int k = 0; k < 30; k++) {
    items[k] = (item){.s = &s, .number = k};
    hutch_task_release(submit(queue, &items[k], k % 3 - 1));
  }
  open_gate(&s);
  wait_all(queue);
  CHECK_EQUAL(30, s.count);
  for (int k = 0; k < 30; k++) CHECK_EQUAL(k, s.order[k]);
  hutch_queue_release(queue);
}

/* A queue of two whose place for the oldest is taken: the other goes by priority. */
static hutch_queue *queue_by_priority(stage *s, item *gate) {
  hutch_queue *queue = new_queue(2, 0);
  block(queue, gate);
  await_waiting(s, 1);
  CHECK_OK(hutch_queue_suspend(queue));
  return queue;
}

TEST(the_highest_priority_goes_first_and_equals_by_age) {
  stage s = STAGE, order = STAGE;
  item gate = {.s = &s}, items[6];
  static const int32_t priorities[6] = {HUTCH_PRIORITY_LOW, HUTCH_PRIORITY_DEFAULT,
                                        HUTCH_PRIORITY_HIGH, HUTCH_PRIORITY_LOW,
                                        HUTCH_PRIORITY_HIGH, HUTCH_PRIORITY_DEFAULT};
  static const int expected[6] = {2, 4, 1, 5, 0, 3};
  hutch_queue *queue = queue_by_priority(&s, &gate);
  hutch_task *last = NULL;
  for (int k = 0; k < 6; k++) {
    items[k] = (item){.s = &order, .number = k};
    hutch_task *task = submit(queue, &items[k], priorities[k]);
    if (k == 3) last = task; else hutch_task_release(task);
  }
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(last, HUTCH_FOREVER));
  for (int k = 0; k < 6; k++) CHECK_EQUAL(expected[k], order.order[k]);
  hutch_task_release(last);
  open_gate(&s);
  wait_all(queue);
  hutch_queue_release(queue);
}

TEST(a_priority_can_be_changed_and_nothing_runs_twice) {
  stage s = STAGE, order = STAGE;
  item gate = {.s = &s}, items[3];
  hutch_queue *queue = queue_by_priority(&s, &gate);
  hutch_task *tasks[3];
  for (int k = 0; k < 3; k++) {
    items[k] = (item){.s = &order, .number = k};
    tasks[k] = submit(queue, &items[k], 0);
  }
  CHECK_OK(hutch_task_set_priority(tasks[2], HUTCH_PRIORITY_HIGH));
  CHECK_OK(hutch_task_set_priority(tasks[0], HUTCH_PRIORITY_LOW));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_task_set_priority(tasks[0], 2));
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(tasks[0], HUTCH_FOREVER));
  static const int expected[3] = {2, 1, 0};
  for (int k = 0; k < 3; k++) CHECK_EQUAL(expected[k], order.order[k]);
  for (int k = 0; k < 3; k++) {
    CHECK_OK(hutch_task_set_priority(tasks[k], HUTCH_PRIORITY_HIGH));
    CHECK_EQUAL(1, items[k].worked);
    hutch_task_release(tasks[k]);
  }
  open_gate(&s);
  wait_all(queue);
  for (int k = 0; k < 3; k++) check_ended(&items[k], 1, HUTCH_OK);
  hutch_queue_release(queue);
}

TEST(trap_24_changing_the_priority_of_running_work_does_nothing) {
  stage s = STAGE;
  item gate = {.s = &s};
  hutch_queue *queue = new_queue(2, 0);
  hutch_task_options options = task_options(&gate);
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, blocking_work, &gate, release_work, &options, &task));
  await_waiting(&s, 1);
  CHECK_OK(hutch_task_set_priority(task, HUTCH_PRIORITY_HIGH));
  open_gate(&s);
  wait_all(queue);
  check_ended(&gate, 1, HUTCH_OK);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

/* Submits itself anew, for ever, at high priority. */
typedef struct restless {
  hutch_queue *queue;
  atomic_bool stop;
  atomic_int runs;
} restless;

static hutch_status run_again(void *context, hutch_task *task) {
  (void)task;
  restless *r = context;
  atomic_fetch_add(&r->runs, 1);
  if (atomic_load(&r->stop)) return HUTCH_OK;
  hutch_task_options options = {.struct_size = sizeof options,
                                .priority = HUTCH_PRIORITY_HIGH};
  CHECK_OK(hutch_queue_submit(r->queue, run_again, r, NULL, &options, NULL));
  return HUTCH_OK;
}

TEST(nothing_starves) {
  stage s = STAGE;
  item low = {.s = &s};
  hutch_queue *queue = new_queue(2, 0);
  restless r = {.queue = queue};
  CHECK_OK(hutch_queue_suspend(queue));
  for (int k = 0; k < 8; k++) CHECK_OK(hutch_queue_submit(queue, run_again, &r, NULL, NULL, NULL));
  hutch_task *task = submit(queue, &low, HUTCH_PRIORITY_LOW);
  CHECK_OK(hutch_queue_resume(queue));
  /* High ones go on for as long as this one has not had its turn. */
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_ended(&low, 1, HUTCH_OK);
  atomic_store(&r.stop, true);
  wait_all(queue);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

TEST(the_width_is_how_many_run_and_can_be_changed) {
  stage s = STAGE;
  item items[6];
  hutch_queue *queue = new_queue(1, 0);
  for (int k = 0; k < 6; k++) {
    items[k] = (item){.s = &s};
    block(queue, &items[k]);
  }
  await_waiting(&s, 1);
  CHECK_EQUAL(1, s.waiting);
  CHECK_OK(hutch_queue_set_width(queue, 4));
  await_waiting(&s, 4);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_queue_set_width(queue, 0));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_queue_set_width(queue, 257));
  CHECK_EQUAL(4, workers());
  open_gate(&s);
  wait_all(queue);
  for (int k = 0; k < 6; k++) check_ended(&items[k], 1, HUTCH_OK);
  hutch_queue_release(queue);
  CHECK_EQUAL(0, workers());
}

TEST(a_suspended_queue_starts_nothing) {
  stage s = STAGE;
  item i = {.s = &s}, off = {.s = &s};
  hutch_queue *queue = new_queue(2, 0);
  CHECK_OK(hutch_queue_suspend(queue));
  CHECK_OK(hutch_queue_suspend(queue));
  hutch_task *task = submit(queue, &i, 0), *cancelled = submit(queue, &off, 0);
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_task_wait(task, 5 * HUTCH_MILLISECOND));
  CHECK_EQUAL(HUTCH_TASK_QUEUED, state_of(task));
  /* Completions are no tasks. */
  CHECK_OK(hutch_task_cancel(cancelled, NULL));
  CHECK_OK(hutch_task_wait(cancelled, HUTCH_FOREVER));
  CHECK_OK(hutch_queue_resume(queue));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_queue_resume(queue));
  hutch_task_release(task);
  hutch_task_release(cancelled);
  hutch_queue_release(queue);
}

/* ------------------------------------------------------------------- bounds */

TEST(a_full_queue_says_so) {
  stage s = STAGE;
  item gate = {.s = &s}, first = {.s = &s}, second = {.s = &s};
  hutch_queue_options bounded = {.struct_size = sizeof bounded, .width = 1, .length = 1};
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(&bounded, &queue));
  block(queue, &gate);
  await_waiting(&s, 1);
  hutch_task_release(submit(queue, &first, 0));
  second.completed = 1;
  hutch_task_options options = task_options(&second);
  hutch_task *task = (hutch_task *)&s;
  CHECK_STATUS(HUTCH_WOULD_BLOCK,
               hutch_queue_submit(queue, work, &second, release_work, &options, &task));
  CHECK(!task);
  CHECK_EQUAL(1, second.released);
  CHECK_EQUAL(1, second.context_released);
  options.flags = HUTCH_TASK_WAIT;
  options.deadline = HUTCH_MILLISECOND;
  CHECK_STATUS(HUTCH_TIMED_OUT,
               hutch_queue_submit(queue, work, &second, release_work, &options, &task));
  CHECK_EQUAL(2, second.released);
  open_gate(&s);
  second = (item){.s = &s};
  options.deadline = 0;
  CHECK_OK(hutch_queue_submit(queue, work, &second, release_work, &options, NULL));
  wait_all(queue);
  check_ended(&first, 1, HUTCH_OK);
  check_ended(&second, 1, HUTCH_OK);
  hutch_queue_release(queue);
}

/* --------------------------------------------------------------- deadlocks */

typedef struct self_waiter {
  hutch_queue *queue;
  hutch_task *task;
  hutch_group *group;
} self_waiter;

static hutch_status wait_for_self(void *context, hutch_task *task) {
  self_waiter *w = context;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_queue_wait_all(w->queue, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_task_wait(task, HUTCH_SECOND));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_task_wait(task, 0));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_group_wait(w->group, HUTCH_SECOND));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_queue_run(w->queue, 0, NULL));
  return HUTCH_OK;
}

static void wait_in_completion(void *context, const hutch_completion *completion) {
  wait_for_self(context, completion->task);
}

TEST(a_task_cannot_wait_for_its_own_queue) {
  hutch_queue *queue = new_queue(2, 0);
  self_waiter w = {.queue = queue};
  CHECK_OK(hutch_group_create(queue, &w.group));
  hutch_task_options options = {.struct_size = sizeof options, .complete = wait_in_completion,
                                .context = &w};
  CHECK_OK(hutch_queue_submit(queue, wait_for_self, &w, NULL, &options, NULL));
  wait_all(queue);
  hutch_group_release(w.group);
  hutch_queue_release(queue);
}

static hutch_status wait_for_other(void *context, hutch_task *task) {
  (void)task;
  return hutch_task_wait(context, HUTCH_FOREVER);
}

TEST(a_task_may_wait_for_another_queue) {
  stage s = STAGE;
  item i = {.s = &s};
  hutch_queue *queue = new_queue(1, 0), *other = new_queue(1, 0);
  hutch_task *task = submit(other, &i, 0), *waiter = NULL;
  CHECK_OK(hutch_queue_submit(queue, wait_for_other, task, NULL, NULL, &waiter));
  CHECK_OK(hutch_task_wait(waiter, HUTCH_FOREVER));
  hutch_task_release(task);
  hutch_task_release(waiter);
  hutch_queue_release(queue);
  hutch_queue_release(other);
}

/* -------------------------------------------------------------- coalescing */

typedef struct sum {
  stage *s;
  int value, calls, released;
  int completed;
  hutch_status status;
} sum;

static hutch_status sum_work(void *context, hutch_task *task) {
  (void)task;
  sum *x = context;
  x->calls++;
  note(x->s, x->value);
  return HUTCH_OK;
}
static void sum_merge(void *into, void *from) { ((sum *)into)->value += ((sum *)from)->value; }
static void sum_release(void *context) { ((sum *)context)->released++; }
static void sum_complete(void *context, const hutch_completion *completion) {
  ((sum *)context)->completed++;
  ((sum *)context)->status = completion->status;
}

static hutch_task *submit_sum(hutch_queue *queue, sum *x, const char *name, int32_t priority) {
  hutch_task_options options = {.struct_size = sizeof options, .priority = priority,
                                .complete = sum_complete, .context = x, .identifier = name,
                                .identifier_size = strlen(name), .merge = sum_merge};
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, sum_work, x, sum_release, &options, &task));
  return task;
}

TEST(tasks_of_one_identifier_are_done_once_each_with_its_own_receipt) {
  stage s = STAGE;
  item gate = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  await_waiting(&s, 1);
  sum a = {&s, 1, 0, 0, 0, 77}, b = {&s, 10, 0, 0, 0, 77}, c = {&s, 100, 0, 0, 0, 77};
  sum other = {&s, 5, 0, 0, 0, 77};
  hutch_task *tasks[4] = {submit_sum(queue, &a, "x", 0), submit_sum(queue, &b, "x", 0),
                          submit_sum(queue, &other, "y", 0), submit_sum(queue, &c, "x", 0)};
  CHECK(tasks[0] != tasks[1] && tasks[1] != tasks[3]);
  open_gate(&s);
  wait_all(queue);
  CHECK_EQUAL(2, s.count);
  CHECK_EQUAL(111, s.order[0]);
  CHECK_EQUAL(5, s.order[1]);
  CHECK_EQUAL(1, a.calls);
  CHECK_EQUAL(0, b.calls + c.calls);
  sum *all[4] = {&a, &b, &other, &c};
  for (int k = 0; k < 4; k++) {
    CHECK_EQUAL(1, all[k]->completed);
    CHECK_EQUAL(HUTCH_OK, all[k]->status);
    CHECK_EQUAL(1, all[k]->released);
    CHECK_EQUAL(HUTCH_TASK_ENDED, state_of(tasks[k]));
    hutch_task_release(tasks[k]);
  }
  /* No submission joins a task that has begun. */
  sum d = {&s, 7, 0, 0, 0, 77};
  hutch_task_release(submit_sum(queue, &d, "x", 0));
  wait_all(queue);
  CHECK_EQUAL(7, s.order[2]);
  hutch_queue_release(queue);
}

/* Which of three leave, by bit. */
static void leave_some(int mask) {
  stage s = STAGE;
  item gate = {.s = &s};
  hutch_queue *queue = new_queue(1, 0);
  block(queue, &gate);
  await_waiting(&s, 1);
  sum x[3];
  hutch_task *tasks[3];
  int expected = 0;
  for (int k = 0; k < 3; k++) {
    x[k] = (sum){.s = &s, .value = 1 << (4 * k)};
    tasks[k] = submit_sum(queue, &x[k], "same", 0);
  }
  for (int k = 0; k < 3; k++) {
    if (mask & 1 << k) {
      uint32_t was = 0;
      CHECK_OK(hutch_task_cancel(tasks[k], &was));
      CHECK_EQUAL(HUTCH_TASK_QUEUED, was);
    } else {
      expected += x[k].value;
    }
  }
  open_gate(&s);
  wait_all(queue);
  CHECK_EQUAL(mask == 7 ? 0 : 1, s.count);
  if (mask != 7) CHECK_EQUAL(expected, s.order[0]);
  for (int k = 0; k < 3; k++) {
    CHECK_EQUAL(1, x[k].completed);
    CHECK_EQUAL(1, x[k].released);
    CHECK_EQUAL(mask & 1 << k ? HUTCH_CANCELLED : HUTCH_OK, x[k].status);
    hutch_task_release(tasks[k]);
  }
  hutch_queue_release(queue);
}

TEST(to_cancel_one_of_several_cancels_that_one_alone) {
  for (int mask = 0; mask < 8; mask++) leave_some(mask);
}

TEST(coalesced_work_runs_at_the_highest_priority_of_those_who_wait) {
  for (int leaves = 0; leaves < 2; leaves++) {
    stage s = STAGE, order = STAGE;
    item gate = {.s = &s}, middle = {.s = &order, .number = -1};
    hutch_queue *queue = queue_by_priority(&s, &gate);
    sum a = {.s = &order, .value = 1}, b = {.s = &order, .value = 10};
    hutch_task *first = submit_sum(queue, &a, "x", HUTCH_PRIORITY_LOW);
    hutch_task *between = submit(queue, &middle, HUTCH_PRIORITY_DEFAULT);
    hutch_task *urgent = submit_sum(queue, &b, "x", HUTCH_PRIORITY_HIGH);
    if (leaves) CHECK_OK(hutch_task_cancel(urgent, NULL));
    CHECK_OK(hutch_queue_resume(queue));
    CHECK_OK(hutch_task_wait(first, HUTCH_FOREVER));
    CHECK_OK(hutch_task_wait(between, HUTCH_FOREVER));
    CHECK_EQUAL(leaves ? -1 : 11, order.order[0]);
    CHECK_EQUAL(leaves ? 1 : -1, order.order[1]);
    open_gate(&s);
    wait_all(queue);
    hutch_task_release(first);
    hutch_task_release(between);
    hutch_task_release(urgent);
    hutch_queue_release(queue);
  }
}

/* Says which of the two that share the work have asked it to end. */
typedef struct shared {
  hutch_task *tasks[2];
  stage *s;
  atomic_int step;
  uint32_t seen;
  int completed[2];
  hutch_status status[2];
} shared;

static hutch_status shared_work(void *context, hutch_task *task) {
  shared *x = context;
  stop_here(x->s);
  /* One has left: the other still waits for it. */
  CHECK_EQUAL(HUTCH_TASK_RUNNING, state_of(task));
  atomic_store(&x->step, 1);
  while (atomic_load(&x->step) != 2) usleep(100);
  return state_of(task) == HUTCH_TASK_CANCELLING ? HUTCH_IO : HUTCH_OK;
}

static void first_completed(void *context, const hutch_completion *completion) {
  ((shared *)context)->completed[0]++;
  ((shared *)context)->status[0] = completion->status;
}
static void second_completed(void *context, const hutch_completion *completion) {
  ((shared *)context)->completed[1]++;
  ((shared *)context)->status[1] = completion->status;
}

static void share_running_work(bool both_leave) {
  stage s = STAGE;
  hutch_queue *queue = new_queue(1, 0);
  shared x = {.s = &s};
  hutch_task_options options = {.struct_size = sizeof options, .complete = first_completed,
                                .context = &x, .identifier = "w", .identifier_size = 1};
  CHECK_OK(hutch_queue_suspend(queue));
  CHECK_OK(hutch_queue_submit(queue, shared_work, &x, NULL, &options, &x.tasks[0]));
  options.complete = second_completed;
  CHECK_OK(hutch_queue_submit(queue, shared_work, &x, NULL, &options, &x.tasks[1]));
  CHECK_OK(hutch_queue_resume(queue));
  await_waiting(&s, 1);
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(x.tasks[0], &was));
  CHECK_EQUAL(HUTCH_TASK_RUNNING, was);
  open_gate(&s);
  while (atomic_load(&x.step) != 1) usleep(100);
  if (both_leave) CHECK_OK(hutch_task_cancel(x.tasks[1], NULL));
  atomic_store(&x.step, 2);
  wait_all(queue);
  CHECK_EQUAL(1, x.completed[0]);
  CHECK_EQUAL(1, x.completed[1]);
  CHECK_EQUAL(both_leave ? HUTCH_IO : HUTCH_CANCELLED, x.status[0]);
  CHECK_EQUAL(both_leave ? HUTCH_IO : HUTCH_OK, x.status[1]);
  hutch_task_release(x.tasks[0]);
  hutch_task_release(x.tasks[1]);
  hutch_queue_release(queue);
}

TEST(shared_work_is_asked_to_end_when_the_last_has_left) {
  share_running_work(false);
  share_running_work(true);
}

/* Whichever of the tasks that share the work is asked about, and whichever of them leaves first. */
TEST(a_task_of_shared_work_is_cancelling_when_all_have_left) {
  for (int leaves = 0; leaves < 3; leaves++) {
    stage s = STAGE;
    item items[3];
    hutch_queue *queue = new_queue(1, 0);
    hutch_task *tasks[3] = {NULL};
    CHECK_OK(hutch_queue_suspend(queue));
    for (int k = 0; k < 3; k++) {
      items[k] = (item){.s = &s};
      hutch_task_options options = {.struct_size = sizeof options, .identifier = "w",
                                    .identifier_size = 1};
      CHECK_OK(hutch_queue_submit(queue, blocking_work, &items[k], NULL, &options, &tasks[k]));
    }
    CHECK_OK(hutch_queue_resume(queue));
    await_waiting(&s, 1);
    for (int left = 0; left < 3; left++) {
      for (int k = 0; k < 3; k++) CHECK_EQUAL(HUTCH_TASK_RUNNING, state_of(tasks[k]));
      uint32_t was = 0;
      CHECK_OK(hutch_task_cancel(tasks[(leaves + left) % 3], &was));
      CHECK_EQUAL(HUTCH_TASK_RUNNING, was);
    }
    for (int k = 0; k < 3; k++) {
      uint32_t was = 0;
      CHECK_EQUAL(HUTCH_TASK_CANCELLING, state_of(tasks[k]));
      CHECK_OK(hutch_task_cancel(tasks[k], &was));
      CHECK_EQUAL(HUTCH_TASK_CANCELLING, was);
    }
    open_gate(&s);
    wait_all(queue);
    for (int k = 0; k < 3; k++) hutch_task_release(tasks[k]);
    hutch_queue_release(queue);
  }
}

/* ------------------------------------------------------------------- groups */

typedef struct tally {
  atomic_int completed, released;
  hutch_completion last;
} tally;

static void group_complete(void *context, const hutch_completion *completion) {
  tally *t = context;
  t->last = *completion;
  atomic_fetch_add(&t->completed, 1);
}
static void group_release(void *context) { atomic_fetch_add(&((tally *)context)->released, 1); }

TEST(a_group_completes_when_its_last_task_has_ended) {
  stage s = STAGE;
  hutch_queue *queues[2] = {new_queue(1, 0), new_queue(2, 0)};
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queues[0], &group));
  item items[10];
  hutch_task *tasks[10];
  for (int k = 0; k < 10; k++) {
    items[k] = (item){.s = &s, .number = k};
    hutch_task_options options = task_options(&items[k]);
    options.group = group;
    CHECK_OK(hutch_queue_submit(queues[k % 2], work, &items[k], release_work, &options, &tasks[k]));
  }
  /* No task runs before the start, and no wait includes it. */
  CHECK_OK(hutch_queue_wait_all(queues[0], HUTCH_FOREVER));
  CHECK_EQUAL(0, s.count);
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_group_wait(group, 0));
  CHECK_OK(hutch_task_cancel(tasks[3], NULL));
  CHECK_OK(hutch_task_cancel(tasks[4], NULL));
  tally t = {0};
  hutch_task_options options = {.struct_size = sizeof options, .complete = group_complete,
                                .context = &t, .release = group_release};
  CHECK_OK(hutch_group_start(group, &options));
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  CHECK_EQUAL(8, s.count);
  wait_all(queues[0]);
  wait_all(queues[1]);
  CHECK_EQUAL(1, t.completed);
  CHECK_EQUAL(1, t.released);
  CHECK_EQUAL(HUTCH_OK, t.last.status);
  CHECK_EQUAL(HUTCH_OPERATION_GROUP, t.last.operation);
  CHECK_EQUAL(10, t.last.count);
  CHECK_EQUAL(2, t.last.cancelled);
  CHECK(!t.last.task);
  /* A second start; a task that comes too late. */
  CHECK_STATUS(HUTCH_EXISTS, hutch_group_start(group, &options));
  CHECK_EQUAL(2, t.released);
  item late = {.s = &s, .completed = 1};
  options = task_options(&late);
  options.group = group;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_queue_submit(queues[0], work, &late, release_work, &options, NULL));
  CHECK_EQUAL(1, late.released);
  CHECK_EQUAL(1, late.context_released);
  for (int k = 0; k < 10; k++) hutch_task_release(tasks[k]);
  hutch_group_release(hutch_group_retain(group));
  hutch_group_release(group);
  hutch_queue_release(queues[0]);
  hutch_queue_release(queues[1]);
}

TEST(a_group_can_be_cancelled_and_may_be_empty) {
  stage s = STAGE;
  hutch_queue *queue = new_queue(1, 0);
  item gate = {.s = &s}, items[5];
  block(queue, &gate);
  hutch_group *group = NULL, *empty = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  CHECK_OK(hutch_group_create(queue, &empty));
  for (int k = 0; k < 5; k++) {
    items[k] = (item){.s = &s};
    hutch_task_options options = task_options(&items[k]);
    options.group = group;
    CHECK_OK(hutch_queue_submit(queue, work, &items[k], release_work, &options, NULL));
  }
  tally t = {0}, none = {0};
  hutch_task_options options = {.struct_size = sizeof options, .complete = group_complete,
                                .context = &t};
  CHECK_OK(hutch_group_start(group, &options));
  CHECK_OK(hutch_group_cancel(group));
  options.context = &none;
  CHECK_OK(hutch_group_start(empty, &options));
  open_gate(&s);
  wait_all(queue);
  CHECK_EQUAL(HUTCH_CANCELLED, t.last.status);
  CHECK_EQUAL(5, t.last.cancelled);
  CHECK_EQUAL(1, none.completed);
  CHECK_EQUAL(HUTCH_OK, none.last.status);
  CHECK_EQUAL(0, none.last.count);
  for (int k = 0; k < 5; k++) check_ended(&items[k], 0, HUTCH_CANCELLED);
  hutch_group_release(group);
  hutch_group_release(empty);
  hutch_queue_release(queue);
}

TEST(a_group_that_is_given_up_cancels_its_tasks) {
  stage s = STAGE;
  hutch_queue *queue = new_queue(1, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  item i = {.s = &s};
  hutch_task_options options = task_options(&i);
  options.group = group;
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, work, &i, release_work, &options, &task));
  hutch_group_release(group);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_ended(&i, 0, HUTCH_CANCELLED);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

/* --------------------------------------------------------------------- ends */

TEST(threads_are_made_at_first_need_and_end_with_the_queue) {
  stage s = STAGE;
  item i = {.s = &s};
  hutch_queue *queue = new_queue(4, 0);
  CHECK_EQUAL(0, workers());
  hutch_task *task = submit(queue, &i, 0);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  CHECK(workers() >= 1);
  hutch_queue_retain(queue);
  hutch_queue_release(queue);
  CHECK(workers() >= 1);
  hutch_queue_release(queue);
  CHECK_EQUAL(0, workers());
  /* The task's handle is good for itself. */
  CHECK_EQUAL(HUTCH_TASK_ENDED, state_of(task));
  hutch_task_release(task);
}

TEST(what_is_queued_when_the_queue_is_released_is_carried_out) {
  stage s = STAGE;
  item gate = {.s = &s}, items[20];
  hutch_queue *queue = new_queue(2, 0);
  block(queue, &gate);
  await_waiting(&s, 1);
  CHECK_OK(hutch_queue_suspend(queue));
  hutch_task *tasks[20];
  for (int k = 0; k < 20; k++) {
    items[k] = (item){.s = &s, .number = k};
    tasks[k] = submit(queue, &items[k], 0);
  }
  hutch_queue_release(queue);
  open_gate(&s);
  for (int k = 0; k < 20; k++) {
    CHECK_OK(hutch_task_wait(tasks[k], HUTCH_FOREVER));
    check_ended(&items[k], 1, HUTCH_OK);
    hutch_task_release(tasks[k]);
  }
  CHECK_EQUAL(20, s.count);
  await_no_workers();
}

static hutch_status release_own_queue(void *context, hutch_task *task) {
  (void)task;
  hutch_queue_release(context);
  return HUTCH_OK;
}

TEST(a_queue_may_be_released_by_its_own_task) {
  hutch_queue *queue = new_queue(2, 0);
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, release_own_queue, queue, NULL, NULL, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  await_no_workers();
  hutch_task_release(task);
}

TEST(all_can_be_cancelled_at_once) {
  stage s = STAGE;
  item running = {.s = &s}, items[50];
  hutch_queue *queue = new_queue(1, 0);
  hutch_task_options options = task_options(&running);
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, patient_work, &running, release_work, &options, &task));
  while (state_of(task) == HUTCH_TASK_QUEUED) usleep(100);
  for (int k = 0; k < 50; k++) {
    items[k] = (item){.s = &s};
    hutch_task_release(submit(queue, &items[k], k % 3 - 1));
  }
  uint64_t cancelled = 0;
  CHECK_OK(hutch_queue_cancel_all(queue, &cancelled));
  CHECK_EQUAL(50, cancelled);
  wait_all(queue);
  check_ended(&running, 1, HUTCH_CANCELLED);
  for (int k = 0; k < 50; k++) check_ended(&items[k], 0, HUTCH_CANCELLED);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

TEST(a_queue_without_threads_is_run_by_its_host) {
  stage s = STAGE;
  item items[5];
  hutch_queue_options options = {.struct_size = sizeof options, .flags = HUTCH_QUEUE_NO_THREADS};
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(&options, &queue));
  for (int k = 0; k < 5; k++) {
    items[k] = (item){.s = &s, .number = k};
    hutch_task *task = submit(queue, &items[k], 0);
    if (k == 1) CHECK_OK(hutch_task_cancel(task, NULL));
    hutch_task_release(task);
  }
  CHECK_EQUAL(0, items[1].completed);
  uint64_t ran = 0;
  CHECK_OK(hutch_queue_run(queue, 1, &ran));
  CHECK(ran >= 1);
  CHECK_OK(hutch_queue_run(queue, 0, &ran));
  CHECK_OK(hutch_queue_wait_all(queue, 0));
  for (int k = 0; k < 5; k++) check_ended(&items[k], k != 1, k == 1 ? HUTCH_CANCELLED : HUTCH_OK);
  item left = {.s = &s};
  hutch_task_release(submit(queue, &left, 0));
  hutch_queue_release(queue);
  check_ended(&left, 0, HUTCH_CANCELLED);
  CHECK_EQUAL(0, workers());
}

/* A host keeps the tasks of its function and of a completion, of which it has no other reference. */
static hutch_task *kept[2];
static hutch_status keep(void *context, hutch_task *task) {
  (void)context;
  kept[0] = hutch_task_retain(task);
  return HUTCH_OK;
}
static void keep_completed(void *context, const hutch_completion *completion) {
  (void)context;
  kept[1] = hutch_task_retain(completion->task);
}

TEST(a_task_that_was_kept_can_be_called_when_its_queue_is_gone) {
  hutch_queue_options options = {.struct_size = sizeof options, .flags = HUTCH_QUEUE_NO_THREADS};
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(&options, &queue));
  hutch_task_options told = {.struct_size = sizeof told, .complete = keep_completed};
  CHECK_OK(hutch_queue_submit(queue, keep, NULL, NULL, NULL, NULL));
  CHECK_OK(hutch_queue_submit(queue, keep, NULL, NULL, &told, NULL));
  hutch_task *first = NULL;
  uint64_t ran = 0;
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hutch_queue_run(queue, 1, &ran));
    CHECK_EQUAL(1, ran);
    if (i == 0) first = kept[0];
  }
  CHECK(kept[0] == kept[1]);
  hutch_queue_release(queue);
  hutch_task *const tasks[] = {first, kept[0], kept[1]};
  for (int i = 0; i < 3; i++) {
    CHECK_EQUAL(HUTCH_TASK_ENDED, state_of(tasks[i]));
    CHECK_OK(hutch_task_wait(tasks[i], 0));
    CHECK_OK(hutch_task_set_priority(tasks[i], HUTCH_PRIORITY_HIGH));
    uint32_t was = 0;
    CHECK_OK(hutch_task_cancel(tasks[i], &was));
    CHECK_EQUAL(HUTCH_TASK_ENDED, was);
    hutch_task_release(tasks[i]);
  }
}
