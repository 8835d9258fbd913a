/* What becomes of tasks when the host closes or gives up what they run on: a cache, one of its
   openings, a queue, a group. Every completion is made, and every context released, once. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

/* What became of one task. */
typedef struct fate {
  atomic_int worked, completed, released, work_released;
  hutch_status status;
  gate *at; /* where its completion waits; NULL: nowhere */
} fate;

static hutch_status work(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((fate *)context)->worked, 1);
  return HUTCH_OK;
}
static void release_work(void *context) {
  atomic_fetch_add(&((fate *)context)->work_released, 1);
}
static void complete(void *context, const hutch_completion *completion) {
  fate *f = context;
  f->status = completion->status;
  if (f->at) gate_pass(f->at);
  atomic_fetch_add(&f->completed, 1);
}
static void release(void *context) {
  fate *f = context;
  CHECK_EQUAL(1, f->completed);
  atomic_fetch_add(&f->released, 1);
}

static hutch_task_options telling(fate *f) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options),
                              .complete = complete, .context = f, .release = release};
}

static void check_fate(const fate *f, hutch_status status) {
  CHECK_EQUAL(1, f->completed);
  CHECK_EQUAL(1, f->released);
  if (f->status != status)
    FAIL("%s expected, completed with %s", hutch_status_name(status),
         hutch_status_name(f->status));
}

static hutch_task *submit(hutch_queue *queue, hutch_group *group, fate *f) {
  hutch_task_options options = telling(f);
  options.group = group;
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, work, f, release_work, &options, &task));
  return task;
}

/* ------------------------------------------------- one opening of several */

enum { OWN, FOREIGN, FOREIGN_OF_KEY, OWN_OF_KEY, TASKS };

static void submit_to_both(hutch_cache *one, hutch_cache *two, fate fates[TASKS]) {
  static const char *const keys[TASKS] = {"own", "foreign", "shared", "shared"};
  static const int order[TASKS] = {FOREIGN, FOREIGN_OF_KEY, OWN_OF_KEY, OWN};
  for (int n = 0; n < TASKS; n++) {
    int k = order[n];
    hutch_cache *cache = k == OWN || k == OWN_OF_KEY ? one : two;
    fates[k] = (fate){0};
    hutch_task_options options = telling(&fates[k]);
    CHECK_OK(hutch_put_async(cache, KEY(keys[k]), KEY(k == OWN_OF_KEY ? "second" : "first"), NULL,
                             &options, NULL));
  }
}

/* What it has to carry out, and what stands before that in its key's order; nothing else. */
static void close_one_of_two(bool has_threads) {
  hutch_options options = unlimited_options();
  if (!has_threads) options.flags |= HUTCH_OPEN_NO_THREADS;
  path directory = scratch(has_threads ? "threads" : "none");
  hutch_cache *one = open_cache(directory.text, &options);
  hutch_cache *two = open_cache(directory.text, &options);
  fate fates[TASKS];
  CHECK_OK(hutch_suspend(two));
  submit_to_both(one, two, fates);
  CHECK_OK(hutch_close(one));
  check_fate(&fates[OWN], HUTCH_OK);
  check_fate(&fates[FOREIGN_OF_KEY], HUTCH_OK);
  check_fate(&fates[OWN_OF_KEY], HUTCH_OK);
  CHECK_EQUAL(0, fates[FOREIGN].completed);
  CHECK_MISSING(two, "foreign");
  CHECK_TEXT(two, "own", "first");
  CHECK_TEXT(two, "shared", "second");
  CHECK_OK(hutch_resume(two));
  if (has_threads) CHECK_OK(hutch_wait_all(two, HUTCH_FOREVER));
  else CHECK_OK(hutch_maintain(two, 0));
  check_fate(&fates[FOREIGN], HUTCH_OK);
  CHECK_OK(hutch_close(two));
}

TEST(a_close_carries_out_tasks_of_its_own_opening_alone) { close_one_of_two(true); }
TEST(and_so_it_does_without_workers) { close_one_of_two(false); }

/* A priority that is changed meanwhile, and one that was changed before. */
TEST(a_task_of_a_closed_opening_keeps_its_place_whatever_its_priority) {
  hutch_options options = unlimited_options();
  options.workers = 1;
  hutch_cache *one = open_cache(scratch("cache").text, &options);
  hutch_cache *two = open_cache(scratch("cache").text, &options);
  fate fates[20];
  hutch_task *tasks[20];
  CHECK_OK(hutch_suspend(two));
  for (int n = 0; n < 20; n++) {
    fates[n] = (fate){0};
    hutch_task_options task_options = telling(&fates[n]);
    task_options.priority = n % 3 - 1;
    CHECK_OK(hutch_put_async(n % 2 ? one : two, n % 4 < 2 ? "a" : "b", 1, &n, sizeof n, NULL,
                             &task_options, &tasks[n]));
    CHECK_OK(hutch_task_set_priority(tasks[n / 2], n % 2));
  }
  CHECK_OK(hutch_close(one));
  for (int n = 0; n < 20; n++) CHECK_OK(hutch_task_set_priority(tasks[n], n % 3 - 1));
  CHECK_OK(hutch_resume(two));
  CHECK_OK(hutch_wait_all(two, HUTCH_FOREVER));
  for (int n = 0; n < 20; n++) {
    check_fate(&fates[n], HUTCH_OK);
    hutch_task_release(tasks[n]);
  }
  CHECK_OK(hutch_close(two));
}

/* ------------------------------------------------------ caches given up */

static int32_t load_text(void *context, const void *key, size_t size, hutch_loading *loading) {
  (void)context;
  CHECK_OK(hutch_loading_fulfil(loading, key, size, NULL));
  return 0;
}

enum { GIVEN_UP = 6 };

/* Puts, a get, a load, and one whose completion waits in a port. */
static void submit_some(hutch_cache *cache, hutch_port *port, fate fates[GIVEN_UP]) {
  for (int n = 0; n < GIVEN_UP; n++) {
    fates[n] = (fate){0};
    hutch_task_options options = telling(&fates[n]);
    if (n == 3) options.port = port;
    char key[] = {'k', (char)('0' + n), 0};
    if (n == 4) CHECK_OK(hutch_get_async(cache, KEY("k0"), &options, NULL));
    else if (n == 5)
      CHECK_OK(hutch_load_async(cache, KEY(key), load_text, NULL, NULL, NULL, &options, NULL));
    else CHECK_OK(hutch_put_async(cache, KEY(key), KEY("value"), NULL, &options, NULL));
  }
}

/* A completion in a port keeps its cache open until it is drained. */
static void drain_one(hutch_port *port) {
  for (uint64_t drained = 0; !drained;) CHECK_OK(hutch_port_drain(port, 0, &drained));
}

static void check_given_up(fate fates[GIVEN_UP]) {
  for (int n = 0; n < GIVEN_UP; n++) check_fate(&fates[n], HUTCH_OK);
}

PROCESS(open_and_read, directory) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(directory, &options);
  for (int n = 0; n < 4; n++) {
    char key[] = {'k', (char)('0' + n), 0};
    CHECK_TEXT(cache, key, "value");
  }
  CHECK_OK(hutch_close(cache));
  tell_ready();
  await_end();
}

static void check_free(const char *directory) {
  process other = start_process("open_and_read", directory);
  await_ready(&other);
  CHECK_EQUAL(0, end_process(&other));
}

TEST(a_suspended_cache_that_is_given_up_ends_its_tasks) {
  for (int on_disk = 0; on_disk < 2; on_disk++) {
    hutch_options options = unlimited_options();
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(on_disk ? directory.text : NULL, &options);
    hutch_port *port = NULL;
    CHECK_OK(hutch_port_create(&port));
    fate fates[GIVEN_UP];
    CHECK_OK(hutch_suspend(cache));
    hutch_cache *view = tier_of(cache, HUTCH_TIER_MEMORY);
    submit_some(cache, port, fates);
    CHECK(hutch_cache_retain(cache) == cache);
    hutch_cache_release(cache);
    hutch_cache_release(cache);
    /* The view is a reference too. */
    CHECK_MISSING(view, "k0");
    CHECK_EQUAL(0, fates[0].completed);
    hutch_cache_release(view);
    drain_one(port);
    await_no_workers();
    check_given_up(fates);
    hutch_port_release(port);
    if (on_disk) check_free(directory.text);
  }
}

TEST(a_cache_without_workers_that_is_given_up_ends_its_tasks) {
  for (int suspended = 0; suspended < 2; suspended++) {
    for (int on_disk = 0; on_disk < 2; on_disk++) {
      hutch_options options = unlimited_options();
      options.flags |= HUTCH_OPEN_NO_THREADS;
      path directory = scratch(suspended ? "suspended" : "cache");
      hutch_cache *cache = open_cache(on_disk ? directory.text : NULL, &options);
      hutch_port *port = NULL;
      CHECK_OK(hutch_port_create(&port));
      fate fates[GIVEN_UP];
      if (suspended) CHECK_OK(hutch_suspend(cache));
      submit_some(cache, port, fates);
      hutch_cache_release(cache);
      drain_one(port);
      check_given_up(fates);
      hutch_port_release(port);
      if (on_disk) check_free(directory.text);
    }
  }
}

/* What can only wait for others is cancelled: there is no thread that would see its end. */
TEST(without_workers_what_is_held_or_parked_is_cancelled) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_queue *queue = new_queue(1, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  fate held = {0}, waits = {0};
  hutch_task_options o = telling(&held);
  o.group = group;
  CHECK_OK(hutch_put_async(cache, KEY("held"), KEY("value"), NULL, &o, NULL));
  hutch_value *value = NULL;
  hutch_loading *leader = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(cache, KEY("key"), NULL, &value, &leader));
  o = telling(&waits);
  CHECK_OK(hutch_load_async(cache, KEY("key"), load_text, NULL, NULL, NULL, &o, NULL));
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_EQUAL(0, waits.completed);
  hutch_cache_release(cache);
  check_fate(&held, HUTCH_CANCELLED);
  check_fate(&waits, HUTCH_CANCELLED);
  hutch_loading_release(leader);
  hutch_group_release(group);
  hutch_queue_release(queue);
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

static void give_up_cache(void *context, const hutch_completion *completion) {
  (void)completion;
  hutch_cache_release(context);
}

/* The thread that is within the completion carries out the rest, whatever its budget. */
TEST(a_cache_without_workers_may_be_given_up_by_a_completion) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_cache_queue(cache, &queue));
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  hutch_task_options o = {.struct_size = sizeof o, .complete = give_up_cache, .context = cache};
  CHECK_OK(hutch_contains_async(cache, KEY("any"), &o, NULL));
  fate fates[GIVEN_UP];
  submit_some(cache, port, fates);
  CHECK_OK(hutch_queue_run(queue, 1, NULL));
  drain_one(port);
  check_given_up(fates);
  CHECK_STATUS(HUTCH_CLOSED, hutch_queue_submit(queue, work, &fates[0], NULL, NULL, NULL));
  hutch_queue_release(queue);
  hutch_port_release(port);
  check_free(directory.text);
}

typedef struct clearing {
  hutch_cache *cache;
  hutch_task *task;
  atomic_bool begun;
  atomic_bool closed;
} clearing;

/* Runs until a close of the cache has begun. */
static void await_close(void *context, const hutch_event *event) {
  (void)event;
  clearing *c = context;
  atomic_store(&c->begun, true);
  uint64_t count;
  while (hutch_count(c->cache, &count) != HUTCH_CLOSED) usleep(100);
}

/* Runs until a close of the cache has returned. */
static void await_closed(void *context, const hutch_event *event) {
  (void)event;
  clearing *c = context;
  atomic_store(&c->begun, true);
  while (!atomic_load(&c->closed)) usleep(100);
}

static void *clear_as_task(void *context) {
  clearing *c = context;
  CHECK_OK(hutch_clear_async(c->cache, NULL, &c->task));
  return NULL;
}

/* A close without threads runs what another thread queues while the close waits for it. */
TEST(without_workers_a_close_carries_out_a_clear_that_is_being_submitted) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.close_deadline = HUTCH_FOREVER;
  for (int round = 0; round < 20; round++) {
    clearing c = {.cache = open_cache(NULL, &options)};
    CHECK_OK(hutch_set_listener(c.cache, HUTCH_EVENT_WILL_CLEAR, await_close, &c, NULL));
    hutch_cache_retain(c.cache);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, clear_as_task, &c) == 0);
    while (!atomic_load(&c.begun)) usleep(100);
    CHECK_OK(hutch_close(c.cache));
    CHECK(pthread_join(thread, NULL) == 0);
    hutch_task_release(c.task);
    hutch_cache_release(c.cache);
  }
}

/* A close that has reached its deadline ends the store before the clear has begun. */
TEST(a_clear_that_a_close_did_not_wait_for_fails) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  options.close_deadline = 1;
  clearing c = {.cache = open_cache(directory.text, &options)};
  CHECK_OK(put_text(c.cache, "kept", "value"));
  CHECK_OK(hutch_set_listener(c.cache, HUTCH_EVENT_WILL_CLEAR, await_closed, &c, NULL));
  hutch_cache_retain(c.cache);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, clear_as_task, &c) == 0);
  while (!atomic_load(&c.begun)) usleep(100);
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_close(c.cache));
  atomic_store(&c.closed, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(hutch_task_wait(c.task, HUTCH_FOREVER));
  uint32_t state;
  hutch_status result;
  CHECK_OK(hutch_task_status(c.task, &state, &result));
  CHECK_STATUS(HUTCH_CLOSED, result);
  hutch_task_release(c.task);
  hutch_cache_release(c.cache);
  c.cache = open_cache(directory.text, NULL);
  CHECK_EQUAL(1, count_of(c.cache));
  CHECK_OK(hutch_close(c.cache));
}

/* ------------------------------------------------------ queues given up */

TEST(a_queue_is_given_up_while_a_group_holds_a_task_of_it) {
  hutch_queue *queue = new_queue(1, 0), *other = new_queue(2, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  fate ran = {0}, held = {0};
  hutch_task *first = submit(other, NULL, &ran);
  CHECK_OK(hutch_task_wait(first, HUTCH_FOREVER));
  hutch_task *task = submit(other, group, &held);
  hutch_queue_release(other);
  CHECK_EQUAL(0, held.completed);
  CHECK_OK(hutch_group_start(group, NULL));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_fate(&held, HUTCH_OK);
  CHECK_EQUAL(1, held.worked);
  hutch_task_release(first);
  hutch_task_release(task);
  hutch_group_release(group);
  hutch_queue_release(queue);
  await_no_workers();
}

/* In either order, started or not. */
TEST(a_queue_without_threads_and_its_group_are_given_up) {
  for (int way = 0; way < 4; way++) {
    hutch_queue *queue = new_queue(1, HUTCH_QUEUE_NO_THREADS);
    hutch_group *group = NULL;
    CHECK_OK(hutch_group_create(queue, &group));
    fate own = {0}, all = {0};
    hutch_task_release(submit(queue, group, &own));
    hutch_task_options options = telling(&all);
    if (way & 1) CHECK_OK(hutch_group_start(group, &options));
    if (way & 2) hutch_group_release(group);
    hutch_queue_release(queue);
    if (!(way & 2)) hutch_group_release(group);
    check_fate(&own, HUTCH_CANCELLED);
    CHECK_EQUAL(0, own.worked);
    CHECK_EQUAL(1, own.work_released);
    if (way & 1) check_fate(&all, HUTCH_CANCELLED);
  }
}

/* Its completion is made where its last task ends. */
TEST(a_group_outlives_the_queue_that_it_was_made_for) {
  for (int way = 0; way < 2; way++) {
    hutch_queue *queue = new_queue(1, way ? HUTCH_QUEUE_NO_THREADS : 0), *other = new_queue(1, 0);
    hutch_group *group = NULL;
    CHECK_OK(hutch_group_create(queue, &group));
    hutch_queue_release(queue);
    fate own = {0}, all = {0};
    hutch_task_release(submit(other, group, &own));
    hutch_task_options options = telling(&all);
    CHECK_OK(hutch_group_start(group, &options));
    CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
    check_fate(&all, HUTCH_OK);
    check_fate(&own, HUTCH_OK);
    hutch_group_release(group);
    hutch_queue_release(other);
  }
  await_no_workers();
}

/* ---------------------------------------------------------------- threads */

TEST(a_task_runs_beside_the_completion_of_one_that_was_cancelled) {
  hutch_queue *queue = new_queue(2, 0);
  gate g = {0};
  fate off = {.at = &g}, runs = {0};
  CHECK_OK(hutch_queue_suspend(queue));
  hutch_task *cancelled = submit(queue, NULL, &off);
  CHECK_OK(hutch_task_cancel(cancelled, NULL));
  gate_await(&g, 1);
  CHECK_OK(hutch_queue_resume(queue));
  hutch_task *task = submit(queue, NULL, &runs);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_fate(&runs, HUTCH_OK);
  gate_open(&g);
  CHECK_OK(hutch_task_wait(cancelled, HUTCH_FOREVER));
  check_fate(&off, HUTCH_CANCELLED);
  hutch_task_release(cancelled);
  hutch_task_release(task);
  hutch_queue_release(queue);
}

/* A group's completion comes to a cache's queue from another queue while the cache is closed. */
TEST(groups_end_while_the_cache_whose_queue_tells_of_them_is_closed) {
  hutch_options options = unlimited_options();
  options.workers = 4;
  for (int round = 0; round < 30; round++) {
    hutch_cache *cache = open_cache(NULL, &options);
    hutch_queue *queue = NULL, *other = new_queue(2, 0);
    CHECK_OK(hutch_cache_queue(cache, &queue));
    enum { GROUPS = 20 };
    fate fates[GROUPS] = {0}, own[GROUPS] = {0};
    hutch_group *groups[GROUPS];
    for (int n = 0; n < GROUPS; n++) {
      CHECK_OK(hutch_group_create(queue, &groups[n]));
      hutch_task_release(submit(other, groups[n], &own[n]));
      hutch_task_options task_options = telling(&fates[n]);
      CHECK_OK(hutch_group_start(groups[n], &task_options));
    }
    CHECK_OK(hutch_close(cache));
    for (int n = 0; n < GROUPS; n++) {
      CHECK_OK(hutch_group_wait(groups[n], HUTCH_FOREVER));
      hutch_group_release(groups[n]);
    }
    hutch_queue_release(other);
    hutch_queue_release(queue);
    for (int n = 0; n < GROUPS; n++) {
      check_fate(&own[n], HUTCH_OK);
      check_fate(&fates[n], HUTCH_OK);
    }
  }
}

/* ----------------------------------------------------------------- groups */

TEST(a_wait_starts_a_group) {
  hutch_queue *queue = new_queue(2, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  fate fates[3] = {0}, all = {0};
  for (int n = 0; n < 3; n++) hutch_task_release(submit(queue, group, &fates[n]));
  /* A look is no wait. */
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_group_wait(group, 0));
  CHECK_EQUAL(0, fates[0].worked);
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  for (int n = 0; n < 3; n++) check_fate(&fates[n], HUTCH_OK);
  CHECK_OK(hutch_group_wait(group, 0));
  hutch_task_options options = telling(&all);
  all.completed = 1;
  CHECK_STATUS(HUTCH_EXISTS, hutch_group_start(group, &options));
  CHECK_EQUAL(1, all.released);
  hutch_group_release(group);
  hutch_queue_release(queue);
}

TEST(a_wait_for_a_group_lasts_until_its_completion_has_been_made) {
  hutch_queue *queue = new_queue(1, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  gate g = {0};
  fate own = {0}, all = {.at = &g};
  hutch_task_release(submit(queue, group, &own));
  hutch_task_options options = telling(&all);
  CHECK_OK(hutch_group_start(group, &options));
  gate_await(&g, 1);
  check_fate(&own, HUTCH_OK);
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_group_wait(group, 0));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_group_wait(group, 1));
  gate_open(&g);
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  check_fate(&all, HUTCH_OK);
  hutch_group_release(group);
  hutch_queue_release(queue);
}

/* In its port it waits no more. */
TEST(a_wait_for_a_group_is_over_when_its_completion_is_in_its_port) {
  hutch_queue *queue = new_queue(1, 0);
  hutch_group *group = NULL;
  hutch_port *port = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  CHECK_OK(hutch_port_create(&port));
  fate own = {0}, all = {0};
  hutch_task_release(submit(queue, group, &own));
  hutch_task_options options = telling(&all);
  options.port = port;
  CHECK_OK(hutch_group_start(group, &options));
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  hutch_group_release(group);
  hutch_queue_release(queue);
  CHECK_EQUAL(0, all.completed);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  check_fate(&all, HUTCH_OK);
  hutch_port_release(port);
}

/* Some of its tasks had run by then. */
TEST(a_group_that_is_cancelled_completes_with_that) {
  for (int way = 0; way < 3; way++) {
    hutch_queue *queue = new_queue(1, 0);
    hutch_group *group = NULL;
    CHECK_OK(hutch_group_create(queue, &group));
    gate g = {0};
    fate first = {.at = &g}, second = {0}, all = {0};
    hutch_task *ran = submit(queue, group, &first);
    hutch_task_release(submit(queue, group, &second));
    hutch_task_options options = telling(&all);
    /* Before the start; between the two tasks; after the end. */
    if (way == 0) CHECK_OK(hutch_group_cancel(group));
    CHECK_OK(hutch_group_start(group, &options));
    gate_await(&g, 1);
    if (way == 1) CHECK_OK(hutch_group_cancel(group));
    gate_open(&g);
    CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
    if (way == 2) CHECK_OK(hutch_group_cancel(group));
    check_fate(&all, way == 2 ? HUTCH_OK : HUTCH_CANCELLED);
    check_fate(&first, way == 0 ? HUTCH_CANCELLED : HUTCH_OK);
    check_fate(&second, way == 2 ? HUTCH_OK : HUTCH_CANCELLED);
    hutch_task_release(ran);
    hutch_group_release(group);
    hutch_queue_release(queue);
  }
}

/* The worker that ends the cache's last task has the next task before it, which it must not have
   taken: the cache's end waits for every task of its queue. */
TEST(the_end_of_a_task_ends_its_cache_before_the_next_task_is_taken) {
  for (int has_threads = 1; has_threads >= 0; has_threads--) {
    hutch_options options = unlimited_options();
    options.close_deadline = HUTCH_FOREVER;
    if (has_threads) options.workers = 1;
    else options.flags |= HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(NULL, &options);
    hutch_queue *queue = NULL;
    CHECK_OK(hutch_cache_queue(cache, &queue));
    gate first = {0};
    fate before = {.at = &first}, last = {0}, next = {0};
    if (has_threads) {
      hutch_task_release(submit(queue, NULL, &before));
      gate_await(&first, 1);
    }
    hutch_task_options told = telling(&last);
    CHECK_OK(hutch_get_async(cache, KEY("key"), &told, NULL));
    hutch_task *task = submit(queue, NULL, &next);
    hutch_cache_release(cache);
    gate_open(&first);
    while (!next.released) usleep(100);
    if (has_threads) check_fate(&before, HUTCH_OK);
    check_fate(&last, HUTCH_NOT_FOUND);
    CHECK(next.status == HUTCH_OK || next.status == HUTCH_CANCELLED);
    CHECK_EQUAL(next.status == HUTCH_OK, next.worked);
    CHECK_EQUAL(1, next.work_released);
    hutch_task_release(task);
    hutch_queue_release(queue);
  }
  await_no_workers();
}
