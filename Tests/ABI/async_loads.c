/* Loads as tasks: one loader for all forms of a load, who waits takes no worker, cancellation and
   deadlines of each, answers that come later. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

/* One task: what its completion told, and what became of its loader's context. */
typedef struct told {
  atomic_int completed, released, context_released;
  hutch_status status;
  hutch_error error;
  char text[16];
  hutch_task *task;
} told;

static void complete(void *context, const hutch_completion *completion) {
  told *t = context;
  CHECK_EQUAL(HUTCH_OPERATION_LOAD, completion->operation);
  t->status = completion->status;
  CHECK((completion->status < 0) == (completion->error != NULL));
  if (completion->error) t->error = *completion->error;
  CHECK((completion->status == HUTCH_OK) == (completion->value != NULL));
  if (completion->value)
    memcpy(t->text, hutch_value_data(completion->value), hutch_value_size(completion->value));
  atomic_fetch_add(&t->completed, 1);
}
static void release(void *context) { atomic_fetch_add(&((told *)context)->released, 1); }

/* A source of values, which a loader waits at until it is open. */
typedef struct source {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool open, deferring;
  int calls, within;
  hutch_status returns;
  const char *text;
  hutch_loading *loading;
  atomic_int released;
  hutch_status wanted;
} source;

#define SOURCE {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static hutch_status make(void *context, const void *key, size_t key_size, hutch_loading *loading) {
  source *s = context;
  CHECK(key_size == 1 && *(const char *)key == 'k');
  pthread_mutex_lock(&s->lock);
  s->calls++;
  s->within++;
  s->loading = loading;
  if (s->deferring) hutch_loading_retain(loading);
  pthread_cond_broadcast(&s->changed);
  while (!s->open) pthread_cond_wait(&s->changed, &s->lock);
  s->within--;
  pthread_mutex_unlock(&s->lock);
  s->wanted = hutch_loading_wanted(loading);
  if (s->deferring) return HUTCH_WOULD_BLOCK;
  if (s->returns) return s->returns;
  const char *text = s->text ? s->text : "made";
  hutch_status status = hutch_loading_fulfil(loading, text, strlen(text), NULL);
  CHECK(status == HUTCH_OK || status == HUTCH_SUPERSEDED);
  return HUTCH_OK;
}

static void release_source(void *context) { atomic_fetch_add(&((source *)context)->released, 1); }

static void await_call(source *s, int calls) {
  pthread_mutex_lock(&s->lock);
  while (s->calls < calls) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void open_source(source *s) {
  pthread_mutex_lock(&s->lock);
  s->open = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static void submit_with(hutch_cache *cache, source *s, told *t, const hutch_load_options *load,
                        hutch_task_options options) {
  *t = (told){0};
  options.struct_size = sizeof options;
  options.complete = complete;
  options.context = t;
  options.release = release;
  CHECK_OK(hutch_load_async(cache, KEY("k"), make, s, release_source, load, &options, &t->task));
}

static void submit(hutch_cache *cache, source *s, told *t) {
  submit_with(cache, s, t, NULL, (hutch_task_options){0});
}

static void end(told *t, hutch_status status, const char *text) {
  CHECK_OK(hutch_task_wait(t->task, HUTCH_FOREVER));
  CHECK_EQUAL(1, t->completed);
  CHECK_EQUAL(1, t->released);
  if (t->status != status)
    FAIL("%s expected, completed with %s", hutch_status_name(status),
         hutch_status_name(t->status));
  CHECK(strcmp(t->text, text) == 0);
  hutch_task_release(t->task);
}

static uint32_t state_of(const told *t) {
  uint32_t state = 0;
  CHECK_OK(hutch_task_status(t->task, &state, NULL));
  return state;
}

/* Until a task waits for a loader's answer, without a worker: one of its key that was submitted
   after it has ended, and so it has looked. */
static void await_parked(hutch_cache *cache, const told *t) {
  hutch_task *task = NULL;
  CHECK_OK(hutch_contains_async(cache, KEY("k"), NULL, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  while (state_of(t) != HUTCH_TASK_QUEUED) usleep(100);
}

/* ------------------------------------------------------------ one flight */

TEST_EACH_KIND(one_loader_runs_for_all_tasks_and_is_released) {
  enum { COUNT = 50 };
  static told t[COUNT];
  source s = SOURCE;
  for (int n = 0; n < COUNT; n++) submit(f->cache, &s, &t[n]);
  await_call(&s, 1);
  /* One worker is in the loader. Those who wait take none: the other one is free. */
  for (int n = 1; n < COUNT; n++) await_parked(f->cache, &t[n]);
  CHECK_EQUAL(HUTCH_TASK_RUNNING, state_of(&t[0]));
  open_source(&s);
  for (int n = 0; n < COUNT; n++) end(&t[n], HUTCH_OK, "made");
  CHECK_OK(hutch_wait_all(f->cache, HUTCH_FOREVER));
  CHECK_EQUAL(1, s.calls);
  CHECK_TEXT(f->cache, "k", "made");
  submit(f->cache, &s, &t[0]);
  end(&t[0], HUTCH_OK, "made");
  CHECK_EQUAL(1, s.calls);
  CHECK_EQUAL(COUNT + 1, s.released);
  CHECK_EQUAL(1, t[0].released);
}

typedef struct asker {
  hutch_cache *cache;
  source *s;
} asker;

static void ask(void *context, int index) {
  asker *a = context;
  (void)index;
  hutch_value *value = NULL;
  CHECK_OK(hutch_load(a->cache, KEY("k"), make, a->s, NULL, &value));
  CHECK_BYTES("made", 4, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
}

static void *ask_alone(void *context) {
  ask(context, 0);
  return NULL;
}

TEST_EACH_KIND(tasks_calls_and_the_open_form_share_a_load) {
  /* A call leads, a task and the open form wait. */
  source s = SOURCE;
  asker a = {f->cache, &s};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ask_alone, &a) == 0);
  await_call(&s, 1);
  told t;
  submit(f->cache, &s, &t);
  await_parked(f->cache, &t);
  hutch_value *value = NULL;
  hutch_loading *loading = NULL;
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_load_begin(f->cache, KEY("k"), NULL, &value, &loading));
  CHECK_OK(hutch_loading_wanted(loading));
  open_source(&s);
  end(&t, HUTCH_OK, "made");
  CHECK_OK(hutch_loading_wait(loading, HUTCH_FOREVER, &value));
  hutch_value_release(value);
  hutch_loading_release(loading);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(1, s.calls);

  /* The open form leads, and a task and calls wait; it is answered without a loader's call. */
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("k"), NULL, &value, &loading));
  submit(f->cache, &s, &t);
  await_parked(f->cache, &t);
  CHECK_OK(hutch_loading_fulfil(loading, "made", 4, NULL));
  end(&t, HUTCH_OK, "made");
  CHECK_STATUS(HUTCH_CANCELLED, hutch_loading_wanted(loading));
  hutch_loading_release(loading);

  /* A task leads, and calls wait. */
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  source other = SOURCE;
  submit(f->cache, &other, &t);
  await_call(&other, 1);
  a.s = &other;
  CHECK(pthread_create(&thread, NULL, ask_alone, &a) == 0);
  open_source(&other);
  CHECK(pthread_join(thread, NULL) == 0);
  end(&t, HUTCH_OK, "made");
  CHECK_EQUAL(1, other.calls);
  CHECK_EQUAL(1, s.calls);
}

TEST_EACH_KIND(a_failure_reaches_all_tasks_with_its_words) {
  source s = SOURCE;
  s.returns = 77;
  told t[5];
  for (int n = 0; n < 5; n++) submit(f->cache, &s, &t[n]);
  await_call(&s, 1);
  for (int n = 1; n < 5; n++) await_parked(f->cache, &t[n]);
  open_source(&s);
  for (int n = 0; n < 5; n++) {
    end(&t[n], HUTCH_LOAD_FAILED, "");
    CHECK_EQUAL(77, t[n].error.system_error);
    CHECK(strncmp(t[n].error.words, "the loader failed", 17) == 0);
  }
  CHECK_EQUAL(1, s.calls);
  /* Not remembered, unless asked for. */
  hutch_load_options load = {.struct_size = sizeof load, .negative_time_to_live = HUTCH_SECOND};
  submit_with(f->cache, &s, &t[0], &load, (hutch_task_options){0});
  end(&t[0], HUTCH_LOAD_FAILED, "");
  submit(f->cache, &s, &t[0]);
  end(&t[0], HUTCH_LOAD_FAILED, "");
  CHECK_EQUAL(77, t[0].error.system_error);
  CHECK_EQUAL(2, s.calls);
}

TEST_EACH_KIND(an_old_value_is_refreshed_by_one_task) {
  source s = SOURCE;
  CHECK_OK(put_text(f->cache, "k", "old"));
  atomic_fetch_add(&f->clock.now, 5 * HUTCH_SECOND);
  hutch_load_options load = {.struct_size = sizeof load, .soft_time_to_live = 5 * HUTCH_SECOND,
                             .flags = HUTCH_LOAD_STALE_IF_ERROR};
  told lead, other;
  hutch_completion now = {.struct_size = sizeof now};
  submit_with(f->cache, &s, &lead, &load,
              (hutch_task_options){.flags = HUTCH_TASK_MAY_FINISH_NOW, .now = &now});
  CHECK_EQUAL(0, now.operation);
  await_call(&s, 1);
  submit_with(f->cache, &s, &other, &load, (hutch_task_options){0});
  end(&other, HUTCH_OK, "old");
  s.returns = 5;
  open_source(&s);
  end(&lead, HUTCH_OK, "old");
  s.returns = 0;
  submit_with(f->cache, &s, &lead, &load, (hutch_task_options){0});
  end(&lead, HUTCH_OK, "made");
  CHECK_EQUAL(2, s.calls);
}

TEST_EACH_KIND(a_hit_may_finish_now) {
  source s = SOURCE;
  told t = {0};
  CHECK_OK(put_text(f->cache, "k", "there"));
  hutch_completion now = {.struct_size = sizeof now};
  hutch_task_options options = {.struct_size = sizeof options, .now = &now, .complete = complete,
                                .flags = HUTCH_TASK_MAY_FINISH_NOW, .context = &t,
                                .release = release};
  CHECK_OK(hutch_load_async(f->cache, KEY("k"), make, &s, release_source, NULL, &options,
                            &t.task));
  if (k == DISK_VIEW) {
    CHECK_EQUAL(0, now.operation);
    end(&t, HUTCH_OK, "there");
    return;
  }
  CHECK_EQUAL(HUTCH_OPERATION_LOAD, now.operation);
  CHECK_OK(now.status);
  CHECK(!t.task);
  CHECK_BYTES("there", 5, hutch_value_data(now.value), hutch_value_size(now.value));
  hutch_value_release(now.value);
  CHECK_EQUAL(0, t.completed);
  CHECK_EQUAL(1, t.released);
  CHECK_EQUAL(1, s.released);
  CHECK_EQUAL(0, s.calls);
}

/* ------------------------------------------------------------------- order */

TEST_EACH_KIND(what_waits_before_a_load_is_done_before_it) {
  source s = SOURCE;
  told t;
  CHECK_OK(hutch_suspend(f->cache));
  CHECK_OK(hutch_put_async(f->cache, KEY("k"), KEY("put"), NULL, NULL, NULL));
  submit(f->cache, &s, &t);
  CHECK_OK(hutch_resume(f->cache));
  end(&t, HUTCH_OK, "put");
  CHECK_EQUAL(0, s.calls);
}

TEST_EACH_KIND(a_put_by_a_task_during_the_load_is_newer) {
  /* Done during the load; and still waiting when the load is over. */
  for (int waits = 0; waits < 2; waits++) {
    source s = SOURCE;
    told t;
    submit(f->cache, &s, &t);
    await_call(&s, 1);
    if (waits) CHECK_OK(hutch_suspend(f->cache));
    hutch_task *put = NULL;
    CHECK_OK(hutch_put_async(f->cache, KEY("k"), KEY("newer"), NULL, NULL, &put));
    if (!waits) CHECK_OK(hutch_task_wait(put, HUTCH_FOREVER));
    open_source(&s);
    end(&t, HUTCH_OK, waits ? "made" : "newer");
    if (waits) CHECK_OK(hutch_resume(f->cache));
    CHECK_OK(hutch_task_wait(put, HUTCH_FOREVER));
    uint32_t state = 0;
    hutch_status status = HUTCH_CANCELLED;
    CHECK_OK(hutch_task_status(put, &state, &status));
    CHECK_OK(status);
    hutch_task_release(put);
    CHECK_TEXT(f->cache, "k", "newer");
    CHECK_OK(hutch_remove(f->cache, KEY("k")));
  }
}

/* ------------------------------------------------- cancellation, deadlines */

TEST_EACH_KIND(to_cancel_one_who_waits_cancels_that_one) {
  source s = SOURCE;
  told t[4];
  for (int n = 0; n < 4; n++) submit(f->cache, &s, &t[n]);
  await_call(&s, 1);
  for (int n = 1; n < 4; n++) await_parked(f->cache, &t[n]);
  uint32_t was = 0;
  CHECK_OK(hutch_task_cancel(t[2].task, &was));
  CHECK_EQUAL(HUTCH_TASK_QUEUED, was);
  end(&t[2], HUTCH_CANCELLED, "");
  CHECK_OK(hutch_task_cancel(t[0].task, &was));
  CHECK_EQUAL(HUTCH_TASK_RUNNING, was);
  open_source(&s);
  end(&t[1], HUTCH_OK, "made");
  end(&t[3], HUTCH_OK, "made");
  end(&t[0], HUTCH_OK, "made");
  /* Asked to end, but others waited. */
  CHECK_OK(s.wanted);
  CHECK_EQUAL(1, s.calls);
}

TEST_EACH_KIND(the_work_is_asked_to_stop_when_the_last_has_left) {
  source s = SOURCE;
  told t[3];
  for (int n = 0; n < 3; n++) submit(f->cache, &s, &t[n]);
  await_call(&s, 1);
  for (int n = 1; n < 3; n++) await_parked(f->cache, &t[n]);
  CHECK_OK(hutch_loading_wanted(s.loading));
  CHECK_OK(hutch_task_cancel(t[0].task, NULL));
  CHECK_OK(hutch_loading_wanted(s.loading));
  CHECK_OK(hutch_task_cancel(t[1].task, NULL));
  end(&t[1], HUTCH_CANCELLED, "");
  CHECK_OK(hutch_loading_wanted(s.loading));
  CHECK_OK(hutch_task_cancel(t[2].task, NULL));
  end(&t[2], HUTCH_CANCELLED, "");
  CHECK_STATUS(HUTCH_CANCELLED, hutch_loading_wanted(s.loading));
  s.returns = ECANCELED;
  open_source(&s);
  end(&t[0], HUTCH_LOAD_FAILED, "");
}

TEST_EACH_KIND(who_waits_does_so_for_its_own_time) {
  source s = SOURCE;
  told lead, deadline, timeout, patient;
  submit(f->cache, &s, &lead);
  await_call(&s, 1);
  submit_with(f->cache, &s, &deadline, NULL,
              (hutch_task_options){.deadline = HUTCH_MILLISECOND});
  hutch_load_options load = {.struct_size = sizeof load, .timeout = HUTCH_MILLISECOND};
  submit_with(f->cache, &s, &timeout, &load, (hutch_task_options){0});
  load.timeout = HUTCH_FOREVER;
  submit_with(f->cache, &s, &patient, &load, (hutch_task_options){.deadline = HUTCH_FOREVER});
  end(&deadline, HUTCH_TIMED_OUT, "");
  end(&timeout, HUTCH_TIMED_OUT, "");
  CHECK_EQUAL(HUTCH_TIMED_OUT, timeout.error.status);
  await_parked(f->cache, &patient);
  open_source(&s);
  end(&lead, HUTCH_OK, "made");
  end(&patient, HUTCH_OK, "made");
  CHECK_EQUAL(1, s.calls);
}

TEST_EACH_KIND(the_lead_passes_on_to_a_task_that_waits) {
  /* From who gives up, and from who takes too long. */
  for (int gives_up = 0; gives_up < 2; gives_up++) {
    hutch_value *value = NULL;
    hutch_loading *loading = NULL;
    hutch_load_options load = {.struct_size = sizeof load,
                               .timeout = gives_up ? HUTCH_FOREVER : HUTCH_MILLISECOND};
    CHECK_STATUS(HUTCH_NOT_FOUND,
                 hutch_load_begin(f->cache, KEY("k"), &load, &value, &loading));
    source s = SOURCE;
    told t[3];
    for (int n = 0; n < 3; n++) submit(f->cache, &s, &t[n]);
    if (gives_up) {
      for (int n = 0; n < 3; n++) await_parked(f->cache, &t[n]);
      CHECK_OK(hutch_loading_abandon(loading));
    }
    await_call(&s, 1);
    if (!gives_up)
      CHECK_STATUS(HUTCH_SUPERSEDED, hutch_loading_fulfil(loading, "late", 4, NULL));
    open_source(&s);
    for (int n = 0; n < 3; n++) end(&t[n], HUTCH_OK, "made");
    CHECK_EQUAL(1, s.calls);
    hutch_loading_release(loading);
    CHECK_OK(hutch_remove(f->cache, KEY("k")));
  }
}

/* ---------------------------------------------------- answers that come later */

TEST_EACH_KIND(an_answer_may_come_later_from_elsewhere) {
  enum { FULFIL, FAIL_IT, ABANDON, WAYS };
  for (int way = 0; way < WAYS; way++) {
    source s = SOURCE;
    s.deferring = s.open = true;
    told lead, waits;
    submit(f->cache, &s, &lead);
    await_call(&s, 1);
    await_parked(f->cache, &lead);
    /* No worker is in a loader: as many loads as one likes. */
    source second = SOURCE;
    second.open = true;
    submit(f->cache, &second, &waits);
    await_parked(f->cache, &waits);
    CHECK_OK(hutch_loading_wanted(s.loading));
    if (way == FULFIL) CHECK_OK(hutch_loading_fulfil(s.loading, "later", 5, NULL));
    if (way == FAIL_IT) CHECK_OK(hutch_loading_fail(s.loading, 5, "no luck"));
    if (way == ABANDON) CHECK_OK(hutch_loading_abandon(s.loading));
    hutch_loading_release(s.loading);
    end(&lead, way == FULFIL ? HUTCH_OK : way == FAIL_IT ? HUTCH_LOAD_FAILED : HUTCH_CANCELLED,
        way == FULFIL ? "later" : "");
    end(&waits, way == FAIL_IT ? HUTCH_LOAD_FAILED : HUTCH_OK,
        way == FULFIL ? "later" : way == FAIL_IT ? "" : "made");
    if (way == FAIL_IT) CHECK(strcmp(waits.error.words, "the loader failed: no luck") == 0);
    CHECK_EQUAL(way == ABANDON, second.calls);
    hutch_status status = hutch_remove(f->cache, KEY("k"));
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  }
}

TEST_EACH_KIND(who_leads_and_answers_later_can_be_cancelled) {
  source s = SOURCE;
  s.deferring = s.open = true;
  told lead;
  submit(f->cache, &s, &lead);
  await_call(&s, 1);
  await_parked(f->cache, &lead);
  CHECK_OK(hutch_task_cancel(lead.task, NULL));
  end(&lead, HUTCH_CANCELLED, "");
  CHECK_STATUS(HUTCH_CANCELLED, hutch_loading_wanted(s.loading));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(s.loading, "late", 4, NULL));
  hutch_loading_release(s.loading);
  CHECK_MISSING(f->cache, "k");
}

TEST_EACH_KIND(a_lead_without_a_reference_that_could_answer_is_abandoned) {
  /* The host releases the reference without an answer. */
  source s = SOURCE;
  s.deferring = s.open = true;
  hutch_load_options load = {.struct_size = sizeof load, .timeout = HUTCH_FOREVER};
  told lead;
  submit_with(f->cache, &s, &lead, &load, (hutch_task_options){0});
  await_call(&s, 1);
  await_parked(f->cache, &lead);
  source second = SOURCE;
  second.open = true;
  told next;
  submit_with(f->cache, &second, &next, &load, (hutch_task_options){0});
  await_parked(f->cache, &next);
  hutch_loading_release(s.loading);
  end(&lead, HUTCH_CANCELLED, "");
  end(&next, HUTCH_OK, "made");
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  /* The loader has taken none. */
  source third = SOURCE;
  third.open = true;
  third.returns = HUTCH_WOULD_BLOCK;
  submit_with(f->cache, &third, &lead, &load, (hutch_task_options){0});
  end(&lead, HUTCH_CANCELLED, "");
}

TEST_EACH_KIND(a_lead_that_answers_later_ends_by_time) {
  source s = SOURCE;
  s.deferring = s.open = true;
  hutch_load_options load = {.struct_size = sizeof load, .timeout = HUTCH_MILLISECOND};
  told lead;
  submit_with(f->cache, &s, &lead, &load, (hutch_task_options){0});
  await_call(&s, 1);
  source second = SOURCE;
  told next;
  submit(f->cache, &second, &next);
  await_call(&second, 1);
  /* Another has the lead, and this one's own time is over. */
  end(&lead, HUTCH_TIMED_OUT, "");
  open_source(&second);
  end(&next, HUTCH_OK, "made");
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(s.loading, "late", 4, NULL));
  hutch_loading_release(s.loading);
  CHECK_TEXT(f->cache, "k", "made");
}

/* Another queue ends a task in time that is due after this one. */
static void end_by_time(told *t) {
  hutch_queue *idle = new_queue(0, 0);
  CHECK_OK(hutch_queue_suspend(idle));
  hutch_task_options options = {.struct_size = sizeof options, .deadline = 4 * HUTCH_SECOND};
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(idle, gate_work, NULL, NULL, &options, &task));
  end(t, HUTCH_TIMED_OUT, "");
  uint32_t state = 0;
  CHECK_OK(hutch_task_cancel(task, &state));
  CHECK_EQUAL(HUTCH_TASK_QUEUED, state);
  hutch_task_release(task);
  hutch_queue_release(idle);
}

/* The worker is at a gate, and the thread beside it has slept since before the load came. */
TEST(a_lead_that_answers_later_ends_by_time_though_the_worker_is_busy) {
  hutch_queue *queue = new_queue(1, 0);
  gate g = {0}, second = {0};
  CHECK_OK(hutch_queue_submit(queue, gate_work, &g, NULL, NULL, NULL));
  gate_await(&g, 1);
  hutch_task_options options = {.struct_size = sizeof options, .deadline = HUTCH_MILLISECOND};
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(queue, gate_work, &g, NULL, &options, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  gate_open(&g);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));

  hutch_options unlimited = unlimited_options();
  unlimited.queue = queue;
  hutch_cache *cache = open_cache(NULL, &unlimited);
  source s = SOURCE;
  s.deferring = true;
  told t;
  submit_with(cache, &s, &t, NULL, (hutch_task_options){.deadline = 50 * HUTCH_MILLISECOND});
  await_call(&s, 1);
  CHECK_OK(hutch_queue_submit(queue, gate_work, &second, NULL, NULL, NULL));
  open_source(&s);
  gate_await(&second, 1);
  end_by_time(&t);
  hutch_loading_release(s.loading);
  gate_open(&second);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  CHECK_OK(hutch_close(cache));
  hutch_queue_release(queue);
}

/* Takes long enough for a worker that was woken for it in vain to sleep again. */
static hutch_status open_and_defer(void *context, const void *key, size_t key_size,
                                   hutch_loading *loading) {
  (void)key, (void)key_size;
  CHECK_OK(hutch_close(open_cache(scratch("other").text, NULL)));
  *(hutch_loading **)context = hutch_loading_retain(loading);
  return HUTCH_WOULD_BLOCK;
}

TEST(a_lead_that_the_host_ran_ends_by_time) {
  hutch_queue *queue = new_queue(1, 0);
  hutch_options unlimited = unlimited_options();
  unlimited.queue = queue;
  hutch_cache *cache = open_cache(NULL, &unlimited);
  /* As a rule, this thread takes the task before the worker does. */
  CHECK_OK(hutch_flush_async(cache, NULL, NULL));
  CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER));
  hutch_loading *loading = NULL;
  told t = {0};
  hutch_task_options options = {.struct_size = sizeof options, .complete = complete, .context = &t,
                                .release = release, .deadline = 200 * HUTCH_MILLISECOND};
  CHECK_OK(hutch_load_async(cache, KEY("k"), open_and_defer, &loading, NULL, NULL, &options,
                            &t.task));
  CHECK_OK(hutch_queue_run(queue, 0, NULL));
  end_by_time(&t);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_loading_release(loading);
  CHECK_OK(hutch_close(cache));
  hutch_queue_release(queue);
}

/* -------------------------------------------------------- cycles, ports, ends */

TEST_EACH_KIND(a_cycle_is_told_to_a_task) {
  hutch_value *value = NULL;
  hutch_loading *a = NULL, *b = NULL;
  hutch_load_options load = {.struct_size = sizeof load};
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("k"), NULL, &value, &a));
  load.parent = a;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("b"), &load, &value, &b));
  load.parent = b;
  source s = SOURCE;
  told t;
  submit_with(f->cache, &s, &t, &load, (hutch_task_options){0});
  end(&t, HUTCH_DEADLOCK, "");
  CHECK_EQUAL(0, s.calls);
  hutch_loading_release(b);
  hutch_loading_release(a);
}

TEST_EACH_KIND(a_port_has_the_completions_of_loads) {
  source s = SOURCE;
  told t[3];
  hutch_port *port = NULL;
  CHECK_OK(hutch_port_create(&port));
  hutch_task_options options = {.port = port};
  for (int n = 0; n < 3; n++) submit_with(f->cache, &s, &t[n], NULL, options);
  await_call(&s, 1);
  open_source(&s);
  for (int n = 0; n < 3; n++) CHECK_OK(hutch_task_wait(t[n].task, HUTCH_FOREVER));
  for (int n = 0; n < 3; n++) CHECK_EQUAL(0, t[n].completed);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  for (int n = 0; n < 3; n++) end(&t[n], HUTCH_OK, "made");
  CHECK_EQUAL(3, s.released);
  hutch_port_release(port);
}

TEST(a_close_cancels_loads_that_wait) {
  for (int deferring = 0; deferring < 2; deferring++) {
    hutch_options unlimited = unlimited_options();
    hutch_cache *cache = open_cache(NULL, &unlimited);
    source s = SOURCE;
    s.deferring = s.open = deferring;
    told lead, waits, queued;
    submit(cache, &s, &lead);
    await_call(&s, 1);
    if (deferring) await_parked(cache, &lead);
    submit(cache, &s, &waits);
    await_parked(cache, &waits);
    CHECK_OK(hutch_suspend(cache));
    submit(cache, &s, &queued);
    if (!deferring) {
      /* The loader is waited for; it learns of the close. */
      s.returns = 1;
      CHECK_OK(hutch_task_set_priority(lead.task, HUTCH_PRIORITY_HIGH));
      open_source(&s);
      CHECK_OK(hutch_task_wait(lead.task, HUTCH_FOREVER));
    }
    CHECK_OK(hutch_close(cache));
    end(&queued, HUTCH_CANCELLED, "");
    CHECK_EQUAL(1, waits.completed);
    end(&waits, HUTCH_CANCELLED, "");
    end(&lead, deferring ? HUTCH_CANCELLED : HUTCH_LOAD_FAILED, "");
    CHECK_EQUAL(3, s.released);
    if (!deferring) continue;
    CHECK_STATUS(HUTCH_CLOSED, hutch_loading_fulfil(s.loading, "late", 4, NULL));
    hutch_loading_release(s.loading);
  }
}

/* A cache without workers whose last reference is released: that call runs the loader, which wants
   to answer later. No thread would run the task again. */
TEST(a_release_cancels_the_loads_that_it_began) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(NULL, &options);
  source s = SOURCE;
  s.deferring = s.open = true;
  told lead;
  submit(cache, &s, &lead);
  CHECK_EQUAL(0, s.calls);
  hutch_cache_release(cache);
  CHECK_EQUAL(1, s.calls);
  CHECK_EQUAL(1, s.released);
  end(&lead, HUTCH_CANCELLED, "");
  hutch_loading_release(s.loading);
}

TEST(bad_arguments_are_told_and_contexts_released) {
  hutch_cache *cache = open_cache(NULL, NULL);
  source s = SOURCE;
  hutch_load_options load = {.struct_size = sizeof load, .timeout = -1};
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_load_async(NULL, KEY("k"), make, &s, release_source, NULL, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_load_async(cache, KEY(""), make, &s, release_source, NULL, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_load_async(cache, KEY("k"), NULL, &s, release_source, NULL, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
               hutch_load_async(cache, KEY("k"), make, &s, release_source, &load, NULL, NULL));
  hutch_task_options options = {.struct_size = sizeof options, .priority = 9};
  CHECK_STATUS(HUTCH_UNSUPPORTED,
               hutch_load_async(cache, KEY("k"), make, &s, release_source, NULL, &options, NULL));
  options = (hutch_task_options){.struct_size = sizeof options, .identifier = "i",
                                 .identifier_size = 1};
  CHECK_STATUS(HUTCH_UNSUPPORTED,
               hutch_load_async(cache, KEY("k"), make, &s, release_source, NULL, &options, NULL));
  CHECK_EQUAL(6, s.released);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_wanted(NULL));
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- at random */

/* Loads of few keys by tasks and calls, cancelled and timed out at random, while their keys are
   written: every task completes once, every context is released once. */
typedef struct storm {
  hutch_cache *cache;
  hutch_port *port;
  uint64_t seed;
  atomic_int submitted, completed, released, running;
} storm;

static hutch_status make_at_random(void *context, const void *key, size_t key_size,
                                   hutch_loading *loading) {
  storm *s = context;
  (void)key, (void)key_size;
  uint64_t state = (uint64_t)(uintptr_t)loading ^ s->seed;
  uint64_t r = next_random(&state);
  if ((r & 7) == 0) return (hutch_status)(r >> 8 & 1);
  if ((r & 7) == 1) {
    hutch_loading_retain(loading);
    hutch_status status = hutch_loading_fulfil(loading, &r, sizeof r, NULL);
    CHECK(status == HUTCH_OK || status == HUTCH_SUPERSEDED || status == HUTCH_INVALID_ARGUMENT);
    hutch_loading_release(loading);
    return HUTCH_WOULD_BLOCK;
  }
  if ((r & 7) == 2) usleep(50);
  hutch_status status = hutch_loading_fulfil(loading, &r, sizeof r, NULL);
  CHECK(status == HUTCH_OK || status == HUTCH_SUPERSEDED || status == HUTCH_INVALID_ARGUMENT);
  return HUTCH_OK;
}

static void storm_complete(void *context, const hutch_completion *completion) {
  storm *s = context;
  switch (completion->status) {
    case HUTCH_OK: case HUTCH_CANCELLED: case HUTCH_TIMED_OUT: case HUTCH_LOAD_FAILED: break;
    default: FAIL("completed with %s", hutch_status_name(completion->status));
  }
  atomic_fetch_add(&s->completed, 1);
}
static void storm_release(void *context) { atomic_fetch_add(&((storm *)context)->released, 1); }

static void act(void *context, int index) {
  storm *s = context;
  if (index == 0) {
    while (atomic_load(&s->running) > 0) {
      CHECK_OK(hutch_port_drain(s->port, 0, NULL));
      usleep(100);
    }
    return;
  }
  uint64_t state = s->seed + (uint64_t)index;
  hutch_task *kept[8] = {NULL};
  for (int n = 0; n < 3000 * scale(); n++) {
    uint64_t r = next_random(&state);
    char key[2] = {(char)('a' + (r & 3)), 0};
    hutch_load_options load = {.struct_size = sizeof load,
                               .timeout = (r >> 8 & 3) == 0 ? 20000 : 0};
    hutch_task_options options = {
        .struct_size = sizeof options, .priority = (int32_t)(r >> 16 & 3) % 3 - 1,
        .deadline = (r >> 24 & 7) == 0 ? 20000 : 0, .port = r >> 32 & 1 ? s->port : NULL,
        .complete = storm_complete, .context = s, .release = storm_release};
    hutch_task **place = &kept[r >> 40 & 7];
    hutch_task_release(*place);
    atomic_fetch_add(&s->submitted, 1);
    CHECK_OK(hutch_load_async(s->cache, KEY(key), make_at_random, s, storm_release, &load,
                              &options, place));
    hutch_task *victim = kept[r >> 44 & 7];
    if ((r >> 48 & 3) == 0 && victim) CHECK_OK(hutch_task_cancel(victim, NULL));
    if ((r >> 52 & 7) == 0) CHECK_OK(hutch_put(s->cache, KEY(key), "x", 1, NULL, NULL));
    if ((r >> 56 & 3) == 0) CHECK_OK(hutch_remove_async(s->cache, KEY(key), NULL, NULL));
  }
  for (int k = 0; k < 8; k++) hutch_task_release(kept[k]);
  CHECK_OK(hutch_wait_all(s->cache, HUTCH_FOREVER));
  atomic_fetch_sub(&s->running, 1);
}

TEST(every_load_completes_exactly_once) {
  hutch_options unlimited = unlimited_options();
  storm s = {.cache = open_cache(NULL, &unlimited), .seed = seed(), .running = 3};
  CHECK_OK(hutch_port_create(&s.port));
  run_threads(4, act, &s);
  CHECK_OK(hutch_port_drain(s.port, 0, NULL));
  CHECK_OK(hutch_close(s.cache));
  CHECK_EQUAL(s.submitted, s.completed);
  CHECK_EQUAL(2 * s.submitted, s.released);
  hutch_port_release(s.port);
}
