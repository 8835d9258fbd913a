/* The calls of a cache as tasks: what they answer, their order, the close; completion ports and
   event loops; maintenance by the host. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

/* What a completion told. */
typedef struct told {
  atomic_int completed, released;
  hutch_completion last;
  hutch_error error;
  char text[64];
  pthread_t thread;
} told;

static void complete(void *context, const hutch_completion *completion) {
  told *t = context;
  t->last = *completion;
  t->thread = pthread_self();
  if (completion->error) t->error = *completion->error;
  if (completion->value) {
    size_t size = hutch_value_size(completion->value);
    CHECK(size < sizeof t->text);
    memcpy(t->text, hutch_value_data(completion->value), size);
    t->text[size] = 0;
  }
  atomic_fetch_add(&t->completed, 1);
}
static void release(void *context) { atomic_fetch_add(&((told *)context)->released, 1); }

static hutch_task_options telling(told *t) {
  *t = (told){0};
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options),
                              .complete = complete, .context = t, .release = release};
}

static void wait_all(hutch_cache *cache) { CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER)); }

static void check_told(const told *t, uint32_t operation, hutch_status status) {
  CHECK_EQUAL(1, t->completed);
  CHECK_EQUAL(1, t->released);
  CHECK_EQUAL(operation, t->last.operation);
  if (t->last.status != status)
    FAIL("%s expected, completed with %s", hutch_status_name(status),
         hutch_status_name(t->last.status));
}

/* Stops the cache's queue, so that what is submitted waits. */
static void hold(hutch_cache *cache) { CHECK_OK(hutch_suspend(cache)); }
static void let_go(hutch_cache *cache) {
  CHECK_OK(hutch_resume(cache));
  wait_all(cache);
}

/* ------------------------------------------------------------------- calls */

TEST_EACH_KIND(each_call_answers_as_it_would_at_once) {
  told t;
  hutch_task_options options = telling(&t);
  CHECK_OK(hutch_get_async(f->cache, KEY("key"), &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_GET, HUTCH_NOT_FOUND);
  CHECK(!t.last.value && !t.last.error);

  options = telling(&t);
  CHECK_OK(hutch_put_async(f->cache, KEY("key"), KEY("value"), NULL, &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_PUT, HUTCH_OK);
  CHECK_EQUAL(info_of(f->cache, "key").version, t.last.version);
  CHECK_EQUAL(has_disk(k) ? HUTCH_OUTCOME_STORED
                          : k == MEMORY_VIEW ? HUTCH_OUTCOME_REMOVED : HUTCH_OUTCOME_NONE,
              t.last.disk);
  CHECK(!pthread_equal(t.thread, pthread_self()));

  options = telling(&t);
  hutch_task *task = NULL;
  CHECK_OK(hutch_get_async(f->cache, KEY("key"), &options, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  check_told(&t, HUTCH_OPERATION_GET, HUTCH_OK);
  CHECK(t.last.task == task && strcmp(t.text, "value") == 0);
  hutch_task_release(task);

  options = telling(&t);
  CHECK_OK(hutch_contains_async(f->cache, KEY("key"), &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_CONTAINS, HUTCH_OK);

  options = telling(&t);
  CHECK_OK(hutch_flush_async(f->cache, &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_FLUSH, HUTCH_OK);

  options = telling(&t);
  CHECK_OK(hutch_remove_async(f->cache, KEY("key"), &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_REMOVE, HUTCH_OK);
  options = telling(&t);
  CHECK_OK(hutch_remove_async(f->cache, KEY("key"), &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_REMOVE, HUTCH_NOT_FOUND);

  for (int n = 0; n < 10; n++) {
    char key[8];
    snprintf(key, sizeof key, "k%d", n);
    CHECK_OK(put_text(f->cache, key, "value"));
  }
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 4};
  options = telling(&t);
  CHECK_OK(hutch_trim_async(f->cache, &spec, &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_TRIM, HUTCH_OK);
  CHECK_EQUAL(k == TWO_TIERS ? 12 : 6, t.last.count);

  options = telling(&t);
  CHECK_OK(hutch_clear_async(f->cache, &options, NULL));
  wait_all(f->cache);
  check_told(&t, HUTCH_OPERATION_CLEAR, HUTCH_OK);
  CHECK_EQUAL(0, count_of(f->cache));
}

TEST(a_failure_comes_with_its_words) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = options.disk.max_entry = 1000;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  char value[5000] = {0};
  told t;
  hutch_task_options telling_options = telling(&t);
  CHECK_OK(hutch_put_async(cache, KEY("key"), value, sizeof value, NULL, &telling_options, NULL));
  wait_all(cache);
  check_told(&t, HUTCH_OPERATION_PUT, HUTCH_TOO_LARGE);
  CHECK(t.last.error && t.error.status == HUTCH_TOO_LARGE && t.error.words[0]);
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, t.last.memory);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_value_lives_as_long_as_it_is_retained) {
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_completion now = {.struct_size = sizeof now};
  hutch_task_options options = {.struct_size = sizeof options, .now = &now,
                                .flags = HUTCH_TASK_MAY_FINISH_NOW};
  hutch_task *task = NULL;
  CHECK_OK(hutch_get_async(f->cache, KEY("key"), &options, &task));
  wait_all(f->cache);
  CHECK_OK(hutch_remove(f->cache, KEY("key")));
  if (now.operation) {
    CHECK(!task);
    CHECK_BYTES("value", 5, hutch_value_data(now.value), hutch_value_size(now.value));
    hutch_value_release(now.value);
  } else {
    CHECK(task && k == DISK_VIEW);
  }
  hutch_task_release(task);
}

static hutch_status fail_badly(void *context, hutch_task *task) {
  (void)task;
  hutch_cache *none = NULL;
  return context ? *(hutch_status *)context : hutch_open("", NULL, &none);
}

/* Each kind of failure: of an operation, of the host's work, a status of the host's own. */
TEST(a_completion_that_is_a_failure_has_an_error) {
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(NULL, &queue));
  static const hutch_status statuses[] = {HUTCH_IO, HUTCH_NO_MEMORY, -4711, INT32_MIN + 1};
  for (size_t n = 0; n <= sizeof statuses / sizeof *statuses; n++) {
    hutch_status status = n == 0 ? HUTCH_INVALID_ARGUMENT : statuses[n - 1];
    told t;
    hutch_task_options options = telling(&t);
    CHECK_OK(hutch_queue_submit(queue, fail_badly, n == 0 ? NULL : (void *)&statuses[n - 1], NULL,
                                &options, NULL));
    CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
    check_told(&t, HUTCH_OPERATION_WORK, status);
    CHECK(t.last.error && t.error.words[0]);
    CHECK_EQUAL(sizeof t.error, t.error.struct_size);
    CHECK_EQUAL(status, t.error.status);
  }
  told late;
  hutch_task_options options = telling(&late);
  options.deadline = 1;
  CHECK_OK(hutch_queue_suspend(queue));
  CHECK_OK(hutch_queue_submit(queue, fail_badly, NULL, NULL, &options, NULL));
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  check_told(&late, HUTCH_OPERATION_WORK, HUTCH_TIMED_OUT);
  CHECK(late.last.error && late.error.status == HUTCH_TIMED_OUT && late.error.words[0]);
  hutch_queue_release(queue);
}

/* --------------------------------------------------------------- at once */

static void count_removal(void *context, const hutch_event *event) {
  CHECK_EQUAL(HUTCH_CAUSE_EXPIRED, event->cause);
  atomic_fetch_add((atomic_int *)context, 1);
}

TEST(what_is_found_expired_at_once_is_told_at_once) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  hutch_put_options short_lived = put_options();
  short_lived.time_to_live = HUTCH_SECOND;
  atomic_int told_of = 0;
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_REMOVE, count_removal, &told_of, NULL));
  for (int n = 0; n < 2; n++) {
    CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &short_lived, NULL));
    atomic_fetch_add(&clock.now, 2 * HUTCH_SECOND);
    hutch_completion now = {.struct_size = sizeof now};
    hutch_task_options o = {.struct_size = sizeof o, .flags = HUTCH_TASK_MAY_FINISH_NOW,
                            .now = &now};
    if (n == 0) CHECK_OK(hutch_get_async(cache, KEY("key"), &o, NULL));
    else CHECK_OK(hutch_remove_async(cache, KEY("key"), &o, NULL));
    CHECK(now.operation);
    CHECK_EQUAL(HUTCH_NOT_FOUND, now.status);
    CHECK_EQUAL(n + 1, told_of);
  }
  CHECK_OK(hutch_close(cache));
}

static hutch_status refuse(void *context, const void *key, size_t key_size,
                           hutch_loading *loading) {
  (void)context, (void)key, (void)key_size, (void)loading;
  return HUTCH_IO;
}

/* Memory is asked before there is a task, and by the task again. */
TEST_EACH_KIND(a_read_that_memory_does_not_answer_counts_once) {
  hutch_port *port;
  CHECK_OK(hutch_port_create(&port));
  hutch_load_options refresh = {.struct_size = sizeof refresh, .soft_time_to_live = 1};
  CHECK_OK(put_text(f->cache, "old", "value"));
  for (int kind = 0; kind < 4; kind++) {
    told t;
    hutch_task_options options = telling(&t);
    hutch_completion now = {.struct_size = sizeof now};
    if (kind == 1) options.flags = HUTCH_TASK_MAY_FINISH_NOW, options.now = &now;
    else options.port = port;
    hutch_cache_stats before = stats_of(f->cache);
    if (kind < 2) CHECK_OK(hutch_get_async(f->cache, KEY("none"), &options, NULL));
    else
      CHECK_OK(hutch_load_async(f->cache, kind == 2 ? "none" : "old", kind == 2 ? 4 : 3, refuse,
                                NULL, NULL, &refresh, &options, NULL));
    wait_all(f->cache);
    CHECK_OK(hutch_port_drain(port, 0, NULL));
    hutch_cache_stats after = stats_of(f->cache);
    CHECK_EQUAL(k == DISK_VIEW ? 0 : 1, after.memory.hits + after.memory.misses
                                            - before.memory.hits - before.memory.misses);
    CHECK(after.disk.misses <= before.disk.misses + 1);
  }
  hutch_port_release(port);
}

TEST_EACH_KIND(what_can_be_done_at_once_may_be) {
  bool memory_only = k == IN_MEMORY;
  CHECK_OK(put_text(f->cache, "key", "value"));
  hutch_completion now;
  told t;
  hutch_task *task;
#define NOW(status_expected, is_now, call)                          \
  do {                                                              \
    now = (hutch_completion){.struct_size = sizeof now};            \
    hutch_task_options options = telling(&t);                       \
    options.flags = HUTCH_TASK_MAY_FINISH_NOW;                      \
    options.now = &now;                                             \
    task = (hutch_task *)&now;                                      \
    CHECK_OK(call);                                                 \
    CHECK_EQUAL(is_now, now.operation != 0);                        \
    CHECK_EQUAL(is_now, task == NULL);                              \
    if (!(is_now)) CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));  \
    wait_all(f->cache);                                             \
    CHECK_EQUAL(is_now ? 0 : 1, t.completed);                       \
    CHECK_EQUAL(1, t.released);                                     \
    CHECK_EQUAL(status_expected, is_now ? now.status : t.last.status); \
    hutch_task_release(task);                                       \
  } while (0)
  bool sees_memory = k != DISK_VIEW, memory_is_all = k == IN_MEMORY || k == MEMORY_VIEW;
  NOW(HUTCH_OK, sees_memory, hutch_get_async(f->cache, KEY("key"), &options, &task));
  hutch_value_release(now.value);
  NOW(HUTCH_OK, sees_memory, hutch_contains_async(f->cache, KEY("key"), &options, &task));
  NOW(HUTCH_NOT_FOUND, memory_is_all, hutch_get_async(f->cache, KEY("none"), &options, &task));
  NOW(HUTCH_OK, memory_only,
      hutch_put_async(f->cache, KEY("new"), KEY("text"), NULL, &options, &task));
  CHECK_TEXT(f->cache, "new", "text");
  if (memory_only) CHECK_EQUAL(info_of(f->cache, "new").version, now.version);
  NOW(HUTCH_OK, memory_only, hutch_remove_async(f->cache, KEY("new"), &options, &task));
  CHECK_MISSING(f->cache, "new");
#undef NOW
  /* Not past a task of the key that waits. */
  hold(f->cache);
  told first, second;
  hutch_task_options options = telling(&first);
  CHECK_OK(hutch_put_async(f->cache, KEY("key"), KEY("later"), NULL, &options, NULL));
  options = telling(&second);
  options.flags = HUTCH_TASK_MAY_FINISH_NOW;
  now = (hutch_completion){.struct_size = sizeof now};
  options.now = &now;
  CHECK_OK(hutch_get_async(f->cache, KEY("key"), &options, NULL));
  CHECK_EQUAL(0, now.operation);
  let_go(f->cache);
  CHECK(strcmp(second.text, "later") == 0);
}

/* A host whose struct has no field for the value gets none, and owes nothing. */
TEST(a_value_that_has_no_field_is_given_back) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  hutch_completion now = {.struct_size = offsetof(hutch_completion, value)};
  hutch_task_options o = {.struct_size = sizeof o, .flags = HUTCH_TASK_MAY_FINISH_NOW,
                          .now = &now};
  CHECK_OK(hutch_get_async(cache, KEY("key"), &o, NULL));
  CHECK_EQUAL(HUTCH_OPERATION_GET, now.operation);
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(0, stats_of(cache).memory.held_count);
  now.struct_size = sizeof now;
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_get_async(cache, KEY("key"), &o, NULL));
  CHECK_OK(hutch_clear(cache));
  CHECK_EQUAL(1, stats_of(cache).memory.held_count);
  hutch_value_release(now.value);
  CHECK_EQUAL(0, stats_of(cache).memory.held_count);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- order */

TEST_EACH_KIND(tasks_of_one_key_run_in_the_order_of_their_submission) {
  enum { COUNT = 200 };
  static told tolds[COUNT * 2];
  for (int n = 0; n < COUNT; n++) {
    char value[16];
    int size = snprintf(value, sizeof value, "%d", n);
    hutch_task_options options = telling(&tolds[2 * n]);
    options.priority = n % 3 - 1;
    CHECK_OK(hutch_put_async(f->cache, KEY("key"), value, (size_t)size, NULL, &options, NULL));
    options = telling(&tolds[2 * n + 1]);
    options.priority = (n + 1) % 3 - 1;
    CHECK_OK(hutch_get_async(f->cache, KEY("key"), &options, NULL));
  }
  wait_all(f->cache);
  for (int n = 0; n < COUNT; n++) {
    check_told(&tolds[2 * n], HUTCH_OPERATION_PUT, HUTCH_OK);
    check_told(&tolds[2 * n + 1], HUTCH_OPERATION_GET, HUTCH_OK);
    CHECK_EQUAL(n, atoi(tolds[2 * n + 1].text));
  }
}

TEST_EACH_KIND(a_later_call_overtakes_a_task_that_waits) {
  told put, removal, untouched;
  hold(f->cache);
  CHECK_OK(put_text(f->cache, "b", "old"));
  hutch_task_options options = telling(&put);
  CHECK_OK(hutch_put_async(f->cache, KEY("a"), KEY("A"), NULL, &options, NULL));
  options = telling(&removal);
  CHECK_OK(hutch_remove_async(f->cache, KEY("b"), &options, NULL));
  options = telling(&untouched);
  CHECK_OK(hutch_put_async(f->cache, KEY("c"), KEY("C"), NULL, &options, NULL));
  CHECK_OK(put_text(f->cache, "a", "B"));
  CHECK_OK(put_text(f->cache, "b", "new"));
  let_go(f->cache);
  check_told(&put, HUTCH_OPERATION_PUT, HUTCH_SUPERSEDED);
  check_told(&removal, HUTCH_OPERATION_REMOVE, HUTCH_SUPERSEDED);
  check_told(&untouched, HUTCH_OPERATION_PUT, HUTCH_OK);
  CHECK_TEXT(f->cache, "a", "B");
  CHECK_TEXT(f->cache, "b", "new");
  CHECK_TEXT(f->cache, "c", "C");
}

TEST_EACH_KIND(a_later_removal_or_clear_overtakes_too) {
  for (int clears = 0; clears < 2; clears++) {
    told put, after;
    hold(f->cache);
    hutch_task_options options = telling(&put);
    CHECK_OK(hutch_put_async(f->cache, KEY("a"), KEY("A"), NULL, &options, NULL));
    /* Of a cache with two tiers the memory view's removal drops a copy only. */
    if (clears) CHECK_OK(hutch_clear(k == MEMORY_VIEW ? f->whole : f->cache));
    else CHECK_STATUS(HUTCH_NOT_FOUND,
                      hutch_remove(k == MEMORY_VIEW ? f->whole : f->cache, KEY("a")));
    options = telling(&after);
    CHECK_OK(hutch_put_async(f->cache, KEY("z"), KEY("Z"), NULL, &options, NULL));
    let_go(f->cache);
    check_told(&put, HUTCH_OPERATION_PUT, HUTCH_SUPERSEDED);
    check_told(&after, HUTCH_OPERATION_PUT, HUTCH_OK);
    CHECK_MISSING(f->cache, "a");
    CHECK_TEXT(f->cache, "z", "Z");
  }
}

TEST_EACH_KIND(a_condition_that_does_not_hold_overtakes_nothing) {
  told put;
  hold(f->cache);
  hutch_task_options options = telling(&put);
  CHECK_OK(put_text(f->cache, "a", "old"));
  CHECK_OK(hutch_put_async(f->cache, KEY("a"), KEY("A"), NULL, &options, NULL));
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(f->cache, KEY("a"), KEY("x"), NULL, NULL));
  let_go(f->cache);
  check_told(&put, HUTCH_OPERATION_PUT, HUTCH_OK);
  CHECK_TEXT(f->cache, "a", "A");
}

TEST_EACH_KIND(a_clear_counts_from_its_submission) {
  if (k == MEMORY_VIEW) return; /* drops copies only */
  told before, clear, after;
  hold(f->cache);
  CHECK_OK(put_text(f->cache, "old", "value"));
  hutch_task_options options = telling(&before);
  CHECK_OK(hutch_put_async(f->cache, KEY("waits"), KEY("value"), NULL, &options, NULL));
  options = telling(&clear);
  hutch_task *task = NULL;
  CHECK_OK(hutch_clear_async(f->cache, &options, &task));
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(task, &was));
  CHECK_EQUAL(HUTCH_TASK_RUNNING, was);
  CHECK_OK(put_text(f->cache, "new", "value"));
  options = telling(&after);
  CHECK_OK(hutch_put_async(f->cache, KEY("later"), KEY("value"), NULL, &options, NULL));
  let_go(f->cache);
  hutch_task_release(task);
  check_told(&before, HUTCH_OPERATION_PUT, HUTCH_SUPERSEDED);
  check_told(&clear, HUTCH_OPERATION_CLEAR, HUTCH_OK);
  check_told(&after, HUTCH_OPERATION_PUT, HUTCH_OK);
  CHECK_MISSING(f->cache, "old");
  CHECK_MISSING(f->cache, "waits");
  CHECK_TEXT(f->cache, "new", "value");
  CHECK_TEXT(f->cache, "later", "value");
}

/* They are decided now, and write later than the clear. */
TEST_EACH_KIND(what_a_waiting_clear_will_take_is_not_there_for_conditions) {
  if (k == MEMORY_VIEW) return; /* drops copies only */
  int64_t five = 5, sum = 0;
  CHECK_OK(put_text(f->cache, "a", "old"));
  CHECK_OK(put_text(f->cache, "b", "old"));
  CHECK_OK(put_text(f->cache, "c", "old"));
  CHECK_OK(hutch_put(f->cache, KEY("n"), &five, sizeof five, NULL, NULL));
  uint64_t version = info_of(f->cache, "b").version;
  hold(f->cache);
  told clear;
  hutch_task_options options = telling(&clear);
  CHECK_OK(hutch_clear_async(f->cache, &options, NULL));
  CHECK_OK(hutch_add(f->cache, KEY("a"), KEY("new"), NULL, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_compare_and_swap(f->cache, KEY("b"), version, KEY("new"),
                                                       NULL, NULL));
  CHECK_MISSING(f->cache, "b");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(f->cache, KEY("c"), KEY("new"), NULL, NULL));
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 100, NULL, &sum));
  CHECK_EQUAL(101, sum);
  let_go(f->cache);
  check_told(&clear, HUTCH_OPERATION_CLEAR, HUTCH_OK);
  CHECK_TEXT(f->cache, "a", "new");
  CHECK_MISSING(f->cache, "b");
  CHECK_MISSING(f->cache, "c");
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 0, 0, NULL, &sum));
  CHECK_EQUAL(101, sum);
}

/* Calls and tasks that write one key at once: what is there in the end is what the last of them
   that was not superseded wrote, and the tasks of it have not passed each other. */
typedef struct contest {
  hutch_cache *cache;
  uint64_t seed;
} contest;

static void write_at_random(void *context, int index) {
  contest *c = context;
  uint64_t state = c->seed + (uint64_t)index;
  for (int n = 0; n < 2000; n++) {
    uint64_t r = next_random(&state);
    char key[4] = {'k', (char)('0' + (r >> 8 & 3)), 0};
    switch (r & 7) {
      case 0: CHECK_OK(hutch_put(c->cache, KEY(key), &r, sizeof r, NULL, NULL)); break;
      case 1: {
        hutch_status status = hutch_remove(c->cache, KEY(key));
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
        break;
      }
      case 2: CHECK_OK(hutch_remove_async(c->cache, KEY(key), NULL, NULL)); break;
      default: CHECK_OK(hutch_put_async(c->cache, KEY(key), &r, sizeof r, NULL, NULL, NULL));
    }
  }
}

TEST_EACH_KIND(tiers_agree_after_calls_and_tasks_at_once) {
  contest c = {f->cache, seed()};
  run_threads(3, write_at_random, &c);
  /* A call that comes when all have been submitted is the last. */
  CHECK_OK(put_text(f->cache, "k0", "last"));
  wait_all(f->cache);
  CHECK_TEXT(f->cache, "k0", "last");
  if (k != TWO_TIERS) return;
  hutch_cache *disk = tier_of(f->cache, HUTCH_TIER_DISK);
  hutch_cache *memory = tier_of(f->cache, HUTCH_TIER_MEMORY);
  for (int n = 0; n < 4; n++) {
    char key[4] = {'k', (char)('0' + n), 0};
    hutch_entry_info below = {.struct_size = sizeof below}, above = below;
    hutch_status status = hutch_info(disk, KEY(key), &below);
    CHECK_STATUS(status, hutch_info(memory, KEY(key), &above));
    CHECK_EQUAL(below.version, above.version);
  }
  hutch_cache_release(disk);
  hutch_cache_release(memory);
}

/* ------------------------------------------------------------------ trims */

static int32_t count_progress(void *context, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  atomic_fetch_add(&((told *)context)->completed, 100);
  return 0;
}

TEST(a_clear_tells_how_far_it_is) {
  fixture *f = NULL;
  (void)f;
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  told t;
  hutch_task_options options = telling(&t);
  options.progress = count_progress;
  CHECK_OK(hutch_clear_async(cache, &options, NULL));
  wait_all(cache);
  CHECK(t.completed > 100 && t.completed % 100 == 1);
  CHECK_OK(hutch_close(cache));
}

TEST(of_trims_of_one_identifier_the_stronger_is_done) {
  hutch_cache *cache = open_cache(NULL, NULL);
  for (int n = 0; n < 20; n++) {
    char key[8];
    snprintf(key, sizeof key, "%d", n);
    CHECK_OK(put_text(cache, key, "value"));
  }
  static const uint64_t amounts[3] = {15, 5, 10};
  told t[3];
  hold(cache);
  for (int n = 0; n < 3; n++) {
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT,
                            .amount = amounts[n]};
    hutch_task_options options = telling(&t[n]);
    options.identifier = "trim";
    options.identifier_size = 4;
    CHECK_OK(hutch_trim_async(cache, &spec, &options, NULL));
  }
  let_go(cache);
  CHECK_EQUAL(5, count_of(cache));
  for (int n = 0; n < 3; n++) {
    check_told(&t[n], HUTCH_OPERATION_TRIM, HUTCH_OK);
    CHECK_EQUAL(15, t[n].last.count);
  }
  /* Later date, smaller size. */
  hold(cache);
  for (int n = 0; n < 2; n++) {
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_WRITTEN_BEFORE,
                            .time = n == 0 ? INT64_MAX / 2 : 1};
    hutch_task_options options = telling(&t[n]);
    options.identifier = "trim";
    options.identifier_size = 4;
    CHECK_OK(hutch_trim_async(cache, &spec, &options, NULL));
  }
  let_go(cache);
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(options_of_a_newer_header_give_their_context_back) {
  hutch_cache *cache = open_cache(NULL, NULL);
  told t;
  struct {
    hutch_task_options options;
    uint64_t more;
  } newer = {telling(&t), 1};
  newer.options.struct_size = sizeof newer;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_get_async(cache, KEY("k"), &newer.options, NULL));
  CHECK_EQUAL(1, t.released);
  CHECK_OK(hutch_close(cache));
}

TEST(an_operation_on_a_key_takes_no_identifier_and_a_clear_no_group) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_queue *queue = NULL;
  hutch_group *group = NULL;
  CHECK_OK(hutch_cache_queue(cache, &queue));
  CHECK_OK(hutch_group_create(queue, &group));
  told t;
  hutch_task_options options = telling(&t);
  options.identifier = "x";
  options.identifier_size = 1;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_get_async(cache, KEY("k"), &options, NULL));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_clear_async(cache, &options, NULL));
  CHECK_EQUAL(2, t.released);
  options = telling(&t);
  options.group = group;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_clear_async(cache, &options, NULL));
  CHECK_EQUAL(1, t.released);
  hutch_group_release(group);
  hutch_queue_release(queue);
  CHECK_OK(hutch_close(cache));
}

/* By whichever task: a put's, a removal's, or that of another call. */
TEST_EACH_KIND(tasks_of_a_group_count_from_its_start) {
  (void)k;
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_cache_queue(f->cache, &queue));
  for (int write = 0; write < 3; write++) {
    for (int later = 0; later < 2; later++) {
      hutch_group *group = NULL;
      CHECK_OK(hutch_group_create(queue, &group));
      CHECK_OK(put_text(f->cache, "key", "0"));
      told t;
      hutch_task_options options = telling(&t);
      options.group = group;
      if (write == 0) CHECK_OK(hutch_put_async(f->cache, KEY("key"), "1", 1, NULL, &options, NULL));
      if (write == 1) CHECK_OK(hutch_remove_async(f->cache, KEY("key"), &options, NULL));
      if (write == 2) {
        hutch_call call = {.struct_size = sizeof call, .operation = HUTCH_OPERATION_POP,
                           .key = "key", .key_size = 3};
        CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
      }
      if (later) hold(f->cache);
      if (later) CHECK_OK(hutch_group_start(group, NULL));
      CHECK_OK(put_text(f->cache, "key", "2"));
      if (!later) CHECK_OK(hutch_group_start(group, NULL));
      if (later) let_go(f->cache);
      wait_all(f->cache);
      CHECK_EQUAL(1, t.completed);
      CHECK_EQUAL(later ? HUTCH_SUPERSEDED : HUTCH_OK, t.last.status);
      if (later)
        CHECK_TEXT(f->cache, "key", "2");
      else if (write == 0)
        CHECK_TEXT(f->cache, "key", "1");
      else
        CHECK_MISSING(f->cache, "key");
      hutch_group_release(group);
    }
  }
  /* One that is cancelled before its group starts leaves nothing behind. */
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  told t;
  hutch_task_options options = telling(&t);
  options.group = group;
  hutch_task *task = NULL;
  CHECK_OK(hutch_put_async(f->cache, KEY("key"), "1", 1, NULL, &options, &task));
  CHECK_OK(hutch_task_cancel(task, NULL));
  CHECK_OK(hutch_group_start(group, NULL));
  hutch_task_release(task);
  wait_all(f->cache);
  CHECK_EQUAL(HUTCH_CANCELLED, t.last.status);
  CHECK_EQUAL(1, t.released);
  hutch_group_release(group);
  hutch_queue_release(queue);
}

/* -------------------------------------------------------------------- close */

TEST_EACH_KIND(a_close_carries_out_writes_and_cancels_reads) {
  told put, get, removal, flush, trim, clear;
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("other").text, &options);
  hutch_cache *view = k == MEMORY_VIEW ? tier_of(cache, HUTCH_TIER_MEMORY)
                      : k == DISK_VIEW ? tier_of(cache, HUTCH_TIER_DISK)
                                       : hutch_cache_retain(cache);
  CHECK_OK(put_text(cache, "r", "value"));
  hold(cache);
  hutch_task_options o = telling(&clear);
  CHECK_OK(hutch_clear_async(view, &o, NULL));
  o = telling(&put);
  hutch_task *task = NULL;
  CHECK_OK(hutch_put_async(view, KEY("key"), KEY("value"), NULL, &o, &task));
  o = telling(&get);
  CHECK_OK(hutch_get_async(view, KEY("key"), &o, NULL));
  o = telling(&removal);
  CHECK_OK(hutch_remove_async(view, KEY("r"), &o, NULL));
  o = telling(&flush);
  CHECK_OK(hutch_flush_async(view, &o, NULL));
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
  o = telling(&trim);
  CHECK_OK(hutch_trim_async(view, &spec, &o, NULL));
  CHECK_OK(hutch_close(cache));
  check_told(&clear, HUTCH_OPERATION_CLEAR, HUTCH_OK);
  check_told(&put, HUTCH_OPERATION_PUT, HUTCH_OK);
  check_told(&get, HUTCH_OPERATION_GET, HUTCH_CANCELLED);
  CHECK_EQUAL(1, removal.completed);
  CHECK(removal.last.status != HUTCH_CANCELLED);
  check_told(&flush, HUTCH_OPERATION_FLUSH, HUTCH_OK);
  check_told(&trim, HUTCH_OPERATION_TRIM, HUTCH_CANCELLED);
  /* Handles that are still held are good for themselves. */
  uint32_t state = 0;
  CHECK_OK(hutch_task_status(task, &state, NULL));
  CHECK_EQUAL(HUTCH_TASK_ENDED, state);
  hutch_task_release(task);
  told late;
  o = telling(&late);
  CHECK_STATUS(HUTCH_CLOSED, hutch_get_async(view, KEY("key"), &o, &task));
  CHECK(!task);
  CHECK_EQUAL(0, late.completed);
  CHECK_EQUAL(1, late.released);
  hutch_cache_release(view);
  cache = open_cache(scratch("other").text, &options);
  if (k == TWO_TIERS || k == DISK_VIEW) CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(a_close_ends_the_tasks_of_its_own_opening) {
  hutch_options options = unlimited_options();
  hutch_cache *one = open_cache(scratch("cache").text, &options);
  hutch_cache *two = open_cache(scratch("cache").text, &options);
  told first, second;
  hold(one);
  hutch_task_options o = telling(&first);
  CHECK_OK(hutch_get_async(one, KEY("a"), &o, NULL));
  o = telling(&second);
  CHECK_OK(hutch_get_async(two, KEY("b"), &o, NULL));
  CHECK_OK(hutch_close(one));
  check_told(&first, HUTCH_OPERATION_GET, HUTCH_CANCELLED);
  CHECK_OK(hutch_resume(two));
  wait_all(two);
  check_told(&second, HUTCH_OPERATION_GET, HUTCH_NOT_FOUND);
  CHECK_OK(hutch_close(two));
}

typedef struct stuck {
  atomic_bool runs, go;
} stuck;

static hutch_status be_stuck(void *context, hutch_task *task) {
  (void)task;
  stuck *s = context;
  atomic_store(&s->runs, true);
  while (!atomic_load(&s->go)) usleep(100);
  return HUTCH_OK;
}

static void complete_stuck(void *context, const hutch_completion *completion) {
  (void)completion;
  be_stuck(context, NULL);
}

TEST(a_close_does_not_wait_longer_than_its_deadline) {
  hutch_options options = unlimited_options();
  options.workers = 1;
  options.close_deadline = 20 * HUTCH_MILLISECOND;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  stuck s = {0};
  hutch_task_options o = {.struct_size = sizeof o, .complete = complete_stuck, .context = &s};
  hutch_task *task = NULL;
  CHECK_OK(hutch_get_async(cache, KEY("key"), &o, &task));
  while (!atomic_load(&s.runs)) usleep(100);
  told put, clear;
  o = telling(&put);
  CHECK_OK(hutch_put_async(cache, KEY("other"), KEY("value"), NULL, &o, NULL));
  o = telling(&clear);
  CHECK_OK(hutch_clear_async(cache, &o, NULL));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_close(cache));
  check_told(&put, HUTCH_OPERATION_PUT, HUTCH_CANCELLED);
  check_told(&clear, HUTCH_OPERATION_CLEAR, HUTCH_OK);
  atomic_store(&s.go, true);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* A build with AddressSanitizer sees that nothing is left of it. */
TEST(a_port_needs_a_descriptor) {
  enum { FEW = 256 };
  int held[FEW], count = 0;
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const struct rlimit few = {FEW, limit.rlim_max};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  while ((held[count] = dup(0)) >= 0) count++;
  hutch_port *port = NULL;
  CHECK_STATUS(HUTCH_IO, hutch_port_create(&port));
  CHECK(!port);
  while (count > 0) close(held[--count]);
  CHECK_OK(hutch_port_create(&port));
  hutch_port_release(port);
}

/* What the host writes to a stream that it has closed would come into the port, and its reads would
   take what the port has to say. */
TEST(a_ports_descriptor_is_none_of_the_standard_streams) {
  int kept = fcntl(0, F_DUPFD_CLOEXEC, 3);
  CHECK(kept > 2 && close(0) == 0);
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  CHECK(hutch_port_fd(port) > 2);
  CHECK(fcntl(hutch_port_fd(port), F_GETFD) & FD_CLOEXEC);
  CHECK(fcntl(0, F_GETFD) == -1);
  CHECK(dup2(kept, 0) == 0 && close(kept) == 0);
  hutch_port_release(port);
}

TEST(trap_19_a_cache_given_up_with_tasks_queued_makes_their_completions) {
  hutch_options options = unlimited_options();
  told t[20];
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  hutch_task *task = NULL;
  for (int n = 0; n < 20; n++) {
    char key[8];
    snprintf(key, sizeof key, "%d", n);
    hutch_task_options o = telling(&t[n]);
    o.port = n % 2 ? port : NULL;
    hutch_task_release(task);
    CHECK_OK(hutch_put_async(cache, KEY(key), KEY("value"), NULL, &o, &task));
  }
  hutch_cache_release(cache);
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  for (uint64_t drained, all = 0; all < 10; all += drained)
    CHECK_OK(hutch_port_drain(port, 0, &drained));
  for (int n = 0; n < 20; n++)
    while (!atomic_load(&t[n].released)) usleep(100);
  for (int n = 0; n < 20; n++) check_told(&t[n], HUTCH_OPERATION_PUT, HUTCH_OK);
  hutch_port_release(port);
  /* The last task has shut the cache down, or is about to. */
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(20, count_of(cache));
  CHECK_OK(hutch_close(cache));
  /* It may have been shared for a while: then it is the worker that shuts it down, after that. */
  await_no_workers();
}

static void close_in_completion(void *context, const hutch_completion *completion) {
  (void)completion;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(context));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(context));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_wait_all(context, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_maintain(context, 0));
  /* All that does not wait may be called. */
  CHECK_OK(put_text(context, "from", "completion"));
  CHECK_OK(hutch_put_async(context, KEY("a"), KEY("b"), NULL, NULL, NULL));
}

TEST(a_completion_may_call_what_does_not_wait) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  hutch_task_options options = {.struct_size = sizeof options, .complete = close_in_completion,
                                .context = cache};
  CHECK_OK(hutch_get_async(cache, KEY("key"), &options, NULL));
  options.port = port;
  CHECK_OK(hutch_get_async(cache, KEY("key"), &options, NULL));
  wait_all(cache);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  wait_all(cache);
  CHECK_TEXT(cache, "a", "b");
  hutch_port_release(port);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- ports */

static bool is_readable(hutch_port *port) {
  struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
  int ready = poll(&descriptor, 1, 0);
  CHECK(ready >= 0);
  return ready == 1;
}

static int order[64], ordered;
static void note_order(void *context, const hutch_completion *completion) {
  (void)completion;
  order[ordered++] = (int)(intptr_t)context;
}

static hutch_status do_nothing(void *context, hutch_task *task) {
  (void)context, (void)task;
  return HUTCH_OK;
}

TEST(a_port_is_readable_while_completions_wait_and_keeps_their_order) {
  hutch_queue_options one = {.struct_size = sizeof one, .width = 1};
  hutch_queue *queue = NULL;
  hutch_port *port = NULL;
  CHECK_OK(hutch_queue_create(&one, &queue));
  CHECK_OK(hutch_port_create(&port));
  CHECK(hutch_port_fd(port) >= 0);
  CHECK(!is_readable(port));
  for (int n = 0; n < 10; n++) {
    hutch_task_options options = {.struct_size = sizeof options, .complete = note_order,
                                  .context = (void *)(intptr_t)n, .port = port};
    CHECK_OK(hutch_queue_submit(queue, do_nothing, NULL, NULL, &options, NULL));
  }
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
  CHECK(poll(&descriptor, 1, -1) == 1);
  CHECK_EQUAL(0, ordered);
  uint64_t drained = 0;
  CHECK_OK(hutch_port_drain(port, 3, &drained));
  CHECK_EQUAL(3, drained);
  CHECK(is_readable(port));
  CHECK_OK(hutch_port_drain(port, 100, &drained));
  CHECK_EQUAL(7, drained);
  CHECK(!is_readable(port));
  for (int n = 0; n < 10; n++) CHECK_EQUAL(n, order[n]);
  CHECK_OK(hutch_port_drain(port, 0, &drained));
  CHECK_EQUAL(0, drained);
  hutch_port_release(port);
  hutch_queue_release(queue);
}

TEST(one_port_serves_many_caches) {
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  hutch_cache *caches[3];
  told t[3];
  for (int n = 0; n < 3; n++) {
    caches[n] = open_cache(NULL, NULL);
    hutch_task_options options = telling(&t[n]);
    options.port = port;
    CHECK_OK(hutch_put_async(caches[n], KEY("key"), KEY("value"), NULL, &options, NULL));
  }
  for (int n = 0; n < 3; n++) wait_all(caches[n]);
  /* A cache may be closed while its completions wait. */
  CHECK_OK(hutch_close(caches[1]));
  uint64_t drained = 0;
  CHECK_OK(hutch_port_drain(port, 0, &drained));
  CHECK_EQUAL(3, drained);
  for (int n = 0; n < 3; n++) {
    check_told(&t[n], HUTCH_OPERATION_PUT, HUTCH_OK);
    CHECK(pthread_equal(t[n].thread, pthread_self()));
  }
  hutch_port_release(port);
  CHECK_OK(hutch_close(caches[0]));
  CHECK_OK(hutch_close(caches[2]));
}

TEST(a_port_that_is_closed_drains_or_discards) {
  for (uint32_t how = HUTCH_PORT_DRAIN; how <= HUTCH_PORT_DISCARD; how++) {
    hutch_cache *cache = open_cache(NULL, NULL);
    hutch_port *port = NULL;
    CHECK_OK(hutch_port_create(&port));
    told t, late;
    hutch_task_options options = telling(&t);
    options.port = port;
    CHECK_OK(hutch_put_async(cache, KEY("key"), KEY("value"), NULL, &options, NULL));
    wait_all(cache);
    hold(cache);
    options = telling(&late);
    options.port = port;
    CHECK_OK(hutch_put_async(cache, KEY("key"), KEY("value"), NULL, &options, NULL));
    CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_port_close(port, 2));
    CHECK_OK(hutch_port_close(port, how));
    CHECK_EQUAL(how == HUTCH_PORT_DRAIN ? 1 : 0, t.completed);
    CHECK_EQUAL(1, t.released);
    CHECK_STATUS(HUTCH_CLOSED, hutch_port_close(port, how));
    CHECK_STATUS(HUTCH_CLOSED, hutch_port_drain(port, 0, NULL));
    CHECK(!is_readable(port));
    let_go(cache);
    CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(0, late.completed);
    CHECK_EQUAL(1, late.released);
    hutch_port_release(port);
  }
}

/* Of eight completions the first, and what it does to its port. */
typedef struct amid {
  hutch_port *port;
  int made, released;
  enum { DRAINS, CLOSES, RELEASES } does;
} amid;

static void complete_amid(void *context, const hutch_completion *completion) {
  (void)completion;
  amid *a = context;
  if (a->made++ > 0) return;
  if (a->does == DRAINS) {
    /* A loop within a loop. */
    CHECK(is_readable(a->port));
    uint64_t drained = 0;
    CHECK_OK(hutch_port_drain(a->port, 0, &drained));
    CHECK_EQUAL(7, drained);
    CHECK(!is_readable(a->port));
    CHECK_EQUAL(7, a->released);
  } else if (a->does == CLOSES) {
    CHECK_OK(hutch_port_close(a->port, HUTCH_PORT_DISCARD));
    CHECK_EQUAL(7, a->released);
  } else {
    /* The drain still uses it. */
    hutch_port_release(a->port);
  }
}

static void release_amid(void *context) { ((amid *)context)->released++; }

TEST(a_completion_may_drain_and_close_and_release_its_port) {
  for (int does = DRAINS; does <= RELEASES; does++) {
    hutch_cache *cache = open_cache(NULL, NULL);
    amid a = {.does = does};
    CHECK_OK(hutch_port_create(&a.port));
    hutch_task_options options = {.struct_size = sizeof options, .complete = complete_amid,
                                  .context = &a, .release = release_amid, .port = a.port};
    for (int n = 0; n < 8; n++) CHECK_OK(hutch_get_async(cache, KEY("key"), &options, NULL));
    wait_all(cache);
    uint64_t drained = 0;
    CHECK_OK(hutch_port_drain(a.port, 0, &drained));
    CHECK_EQUAL(does == RELEASES ? 8 : 1, drained);
    CHECK_EQUAL(does == CLOSES ? 1 : 8, a.made);
    CHECK_EQUAL(8, a.released);
    if (does != RELEASES) hutch_port_release(a.port);
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_port_without_an_owner_discards) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  told t;
  hutch_task_options options = telling(&t);
  options.port = port;
  CHECK_OK(hutch_get_async(cache, KEY("key"), &options, NULL));
  wait_all(cache);
  hutch_port_release(port);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, t.completed);
  CHECK_EQUAL(1, t.released);
}

/* One thread of its own, which submits, waits and drains: an event loop. */
typedef struct loop {
  hutch_cache *cache;
  hutch_port *port;
  uint64_t submitted, completed, all;
  pthread_t thread;
} loop;

static void advance_loop(loop *l);
static void loop_completed(void *context, const hutch_completion *completion) {
  loop *l = context;
  CHECK(pthread_equal(l->thread, pthread_self()));
  CHECK(completion->status == HUTCH_OK || completion->status == HUTCH_NOT_FOUND);
  l->completed++;
  advance_loop(l);
}

static void advance_loop(loop *l) {
  if (l->submitted == l->all) return;
  uint64_t n = l->submitted++;
  hutch_task_options options = {.struct_size = sizeof options, .complete = loop_completed,
                                .context = l, .port = l->port};
  uint64_t key = n % 1000;
  if (n % 4 == 0)
    CHECK_OK(hutch_put_async(l->cache, &key, sizeof key, &n, sizeof n, NULL, &options, NULL));
  else
    CHECK_OK(hutch_get_async(l->cache, &key, sizeof key, &options, NULL));
}

TEST(an_epoll_loop_drives_a_hundred_thousand_tasks) {
  hutch_options unlimited = unlimited_options();
  loop l = {.cache = open_cache(NULL, &unlimited),
            .all = (uint64_t)repeats(100000),
            .thread = pthread_self()};
  CHECK_OK(hutch_port_create(&l.port));
  int poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, hutch_port_fd(l.port), &event) == 0);
  for (int n = 0; n < 500; n++) advance_loop(&l);
  while (l.completed < l.all) {
    CHECK(epoll_wait(poller, &event, 1, -1) == 1);
    CHECK_OK(hutch_port_drain(l.port, 0, NULL));
  }
  CHECK_EQUAL(l.all, l.submitted);
  close(poller);
  hutch_port_release(l.port);
  CHECK_OK(hutch_close(l.cache));
}

/* ------------------------------------------------------------- maintenance */

TEST(a_cache_without_workers_is_run_by_its_host) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options short_lived = put_options();
  short_lived.time_to_live = HUTCH_SECOND;
  told put, get;
  hutch_task_options o = telling(&put);
  CHECK_OK(hutch_put_async(cache, KEY("key"), KEY("value"), &short_lived, &o, NULL));
  o = telling(&get);
  CHECK_OK(hutch_get_async(cache, KEY("key"), &o, NULL));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_wait_all(cache, 0));
  CHECK_EQUAL(0, put.completed);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_maintain(cache, -1));
  CHECK_OK(hutch_maintain(cache, 0));
  check_told(&put, HUTCH_OPERATION_PUT, HUTCH_OK);
  check_told(&get, HUTCH_OPERATION_GET, HUTCH_OK);
  CHECK(pthread_equal(get.thread, pthread_self()));
  atomic_fetch_add(&clock.now, 2 * HUTCH_SECOND);
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_EQUAL(2, stats_of(cache).memory.expirations + stats_of(cache).disk.expirations);
  told last;
  o = telling(&last);
  CHECK_OK(hutch_put_async(cache, KEY("last"), KEY("value"), NULL, &o, NULL));
  CHECK_OK(hutch_close(cache));
  check_told(&last, HUTCH_OPERATION_PUT, HUTCH_OK);
}

TEST(suspension_is_counted_and_a_close_does_not_wait_for_it) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_resume(cache));
  CHECK_OK(hutch_suspend(cache));
  CHECK_OK(hutch_suspend(cache));
  CHECK_OK(hutch_resume(cache));
  told t;
  hutch_task_options options = telling(&t);
  CHECK_OK(hutch_put_async(cache, KEY("key"), KEY("value"), NULL, &options, NULL));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_wait_all(cache, HUTCH_MILLISECOND));
  CHECK_OK(put_text(cache, "calls", "are served"));
  CHECK_OK(hutch_close(cache));
  check_told(&t, HUTCH_OPERATION_PUT, HUTCH_OK);
}

TEST(a_caches_queue_takes_work_of_the_hosts) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_cache_queue(cache, &queue));
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, do_nothing, NULL, NULL, NULL, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_OK(hutch_close(cache));
  CHECK_STATUS(HUTCH_CLOSED, hutch_queue_submit(queue, do_nothing, NULL, NULL, NULL, &task));
  CHECK(!task);
  hutch_queue_release(queue);
}
