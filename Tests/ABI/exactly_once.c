/* Every task completes exactly once, whatever happens meanwhile: threads submit work and operations
   of a cache at random, cancel them, change priorities, widths and groups; the cache is closed
   among all that, and the process forks. A million tasks with HUTCH_LONG. */
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>
#include <unistd.h>

enum { IN_ROUND = 10000, ACTORS = 3, FORKS = 3, KEPT = 32 };

/* What became of one task. */
typedef struct fate {
  atomic_int worked, completed, released, context_released;
  atomic_int cancelled;
  bool is_work;  /* of a queue; else an operation of the cache */
  bool shares;   /* its work is done for others too, who may want it when it has left */
  bool refused;  /* the cache was closed already */
} fate;

typedef struct chaos {
  hutch_cache *cache, *references[ACTORS + 1];
  hutch_queue *queues[2], *suspended;
  hutch_port *port;
  hutch_group *group;
  fate *fates; /* the last ones are of the thread that forks */
  int count, close_at, fork_at[FORKS];
  uint64_t seed;
  atomic_int next;
  atomic_bool done;
} chaos;

static hutch_status fate_work(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((fate *)context)->worked, 1);
  return HUTCH_OK;
}
static void fate_release(void *context) { atomic_fetch_add(&((fate *)context)->released, 1); }
static void fate_context(void *context) {
  atomic_fetch_add(&((fate *)context)->context_released, 1);
}
static void fate_merge(void *into, void *from) { (void)into, (void)from; }
static void fate_complete(void *context, const hutch_completion *completion) {
  fate *f = context;
  atomic_fetch_add(&f->completed, 1);
  if (completion->status == HUTCH_CANCELLED) atomic_fetch_add(&f->cancelled, 1);
}

static hutch_task_options options_of(fate *f) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options),
                              .complete = fate_complete, .context = f, .release = fate_context};
}

static void check_fates(const fate *fates, int count) {
  for (int k = 0; k < count; k++) {
    const fate *f = &fates[k];
    if (f->completed != !f->refused || f->released != f->is_work || f->context_released != 1 ||
        f->worked > 1 || (f->cancelled && f->worked && !f->shares))
      FAIL("task %d: worked %d, completed %d, released %d and %d, cancelled %d, refused %d", k,
           f->worked, f->completed, f->released, f->context_released, f->cancelled, f->refused);
  }
}

/* ------------------------------------------------------------------ actors */

static hutch_task *submit_work(chaos *c, fate *f, uint64_t r, hutch_group **group) {
  char name[2] = {'a' + (char)(r >> 40 & 7), 0};
  bool shares = (r >> 20 & 3) == 0;
  hutch_task_options options = options_of(f);
  options.priority = (int32_t)(r >> 8 & 3) % 3 - 1;
  options.port = r >> 16 & 1 ? c->port : NULL;
  options.identifier = shares ? name : NULL;
  options.identifier_size = shares;
  options.merge = fate_merge;
  f->is_work = true;
  f->shares = shares;
  if ((r >> 24 & 7) == 0) {
    CHECK_OK(hutch_group_create(c->queues[0], group));
    options.group = *group;
  }
  hutch_task *task = NULL;
  CHECK_OK(hutch_queue_submit(c->queues[r >> 32 & 1], fate_work, f, fate_release, &options,
                              &task));
  return task;
}

static hutch_status submit_operation(hutch_cache *cache, hutch_port *port, fate *f, uint64_t r,
                                     hutch_task **task) {
  uint32_t key = r >> 24 & 63;
  hutch_task_options options = options_of(f);
  options.priority = (int32_t)(r >> 8 & 3) % 3 - 1;
  options.port = r >> 16 & 1 ? port : NULL;
  switch (r >> 40 & 7) {
    case 0: return hutch_remove_async(cache, &key, sizeof key, &options, task);
    case 1: return hutch_contains_async(cache, &key, sizeof key, &options, task);
    case 2:
    case 3: return hutch_get_async(cache, &key, sizeof key, &options, task);
    default:
      return hutch_put_async(cache, &key, sizeof key, &r, sizeof r, NULL, &options, task);
  }
}

static void act_on(chaos *c, hutch_task *victim, uint64_t r) {
  switch (r & 7) {
    case 0: if (victim) CHECK_OK(hutch_task_cancel(victim, NULL)); break;
    case 1: if (victim) CHECK_OK(hutch_task_set_priority(victim, (int32_t)(r >> 8 & 1))); break;
    case 2: CHECK_OK(hutch_queue_set_width(c->queues[0], 1 + (uint32_t)(r >> 8 & 3))); break;
    case 3:
      if ((r >> 56 & 63) == 0) CHECK_OK(hutch_queue_cancel_all(c->queues[1], NULL));
      break;
    case 4:
      CHECK_OK(hutch_queue_suspend(c->queues[1]));
      CHECK_OK(hutch_queue_resume(c->queues[1]));
      break;
    default: break;
  }
}

static void act_at_random(chaos *c, int index) {
  uint64_t state = c->seed + (uint64_t)index * 1000003;
  hutch_task *kept[KEPT] = {NULL};
  for (int k; (k = atomic_fetch_add(&c->next, 1)) < c->count;) {
    if (k == c->close_at) CHECK_OK(hutch_close(c->cache));
    fate *f = &c->fates[k];
    uint64_t r = next_random(&state);
    hutch_group *group = NULL;
    hutch_task *task = NULL;
    if (r & 1) {
      task = submit_work(c, f, r, &group);
    } else {
      hutch_status status = submit_operation(c->references[index], c->port, f, r, &task);
      f->refused = status == HUTCH_CLOSED;
      CHECK_STATUS(f->refused ? HUTCH_CLOSED : HUTCH_OK, status);
    }
    hutch_task **place = &kept[r >> 48 & (KEPT - 1)];
    hutch_task_release(*place);
    *place = task;
    act_on(c, kept[next_random(&state) & (KEPT - 1)], next_random(&state));
    if (group) {
      /* Some are started, some cancelled, some given up. */
      if (r >> 60 & 1) CHECK_OK(hutch_group_start(group, NULL));
      if (r >> 61 & 1) CHECK_OK(hutch_group_cancel(group));
      hutch_group_release(group);
    }
  }
  for (int k = 0; k < KEPT; k++) hutch_task_release(kept[k]);
}

/* ------------------------------------------------------------------- forks */

static int64_t sum_of(const chaos *c) {
  int64_t sum = 0;
  for (int k = 0; k < c->count + FORKS; k++) {
    const fate *f = &c->fates[k];
    sum += f->worked + f->completed + f->released + f->context_released;
  }
  return sum;
}

static void check_parents(chaos *c, hutch_task *task) {
  uint32_t state;
  hutch_task *made = NULL;
  fate f = {0};
  hutch_task_options options = options_of(&f);
  CHECK_STATUS(HUTCH_FORKED, hutch_task_status(task, &state, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_cancel(task, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_set_priority(task, 1));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_wait(task, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_FORKED, hutch_group_wait(c->group, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_FORKED, hutch_port_drain(c->port, 0, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_wait_all(c->queues[0], HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_FORKED,
               hutch_queue_submit(c->queues[1], fate_work, &f, fate_release, &options, &made));
  CHECK(!made);
  CHECK_EQUAL(0, f.completed + f.worked);
  CHECK_EQUAL(2, f.released + f.context_released);
  hutch_task_release(task);
}

/* The child has none of the parent's tasks, and makes its own. */
static void live_as_child(chaos *c, hutch_task *task, bool late) {
  enum { OWN = 50 };
  static fate own[2 * OWN];
  hutch_task *tasks[OWN] = {NULL};
  hutch_cache *cache = c->references[ACTORS];
  hutch_queue *queue = NULL;
  hutch_port *port = NULL;
  int64_t before = sum_of(c);
  uint64_t state = c->seed;
  check_parents(c, task);
  CHECK_OK(hutch_queue_create(NULL, &queue));
  CHECK_OK(hutch_port_create(&port));
  memset(own, 0, sizeof own);
  for (int k = 0; k < OWN; k++) {
    hutch_task_options options = options_of(&own[k]);
    options.port = k % 2 ? port : NULL;
    own[k].is_work = true;
    CHECK_OK(hutch_queue_submit(queue, fate_work, &own[k], fate_release, &options, &tasks[k]));
    if (k % 5 == 0) CHECK_OK(hutch_task_cancel(tasks[k], NULL));
    hutch_task_release(tasks[k]);
  }
  for (int k = 0; k < OWN; k++) {
    hutch_status status =
        submit_operation(cache, port, &own[OWN + k], next_random(&state), &tasks[k]);
    own[OWN + k].refused = status != HUTCH_OK;
    /* It may have been closed, or was being closed. */
    if (status != HUTCH_OK) CHECK(status == HUTCH_CLOSED || status == HUTCH_FORKED);
    if (c->close_at >= c->count && !late) CHECK_OK(status);
  }
  for (int k = 0; k < OWN; k++) {
    if (tasks[k]) CHECK_OK(hutch_task_wait(tasks[k], HUTCH_FOREVER));
    hutch_task_release(tasks[k]);
  }
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  hutch_queue_release(queue);
  hutch_port_release(port);
  hutch_cache_release(cache);
  check_fates(own, 2 * OWN);
  CHECK_EQUAL(before, sum_of(c));
  end_child();
}

static void fork_at_random(chaos *c) {
  for (int i = 0; i < FORKS; i++) {
    while (atomic_load(&c->next) < c->fork_at[i]) sched_yield();
    fate *f = &c->fates[c->count + i];
    hutch_task_options options = options_of(f);
    hutch_task *task = NULL;
    bool late;
    f->is_work = true;
    CHECK_OK(hutch_queue_submit(c->suspended, fate_work, f, fate_release, &options, &task));
    pid_t child = fork_amid(&late);
    if (child == 0) live_as_child(c, task, late);
    await_child(child);
    hutch_task_release(task);
  }
}

/* --------------------------------------------------------------- all of it */

static void take_part(void *context, int index) {
  chaos *c = context;
  if (index < ACTORS) act_at_random(c, index);
  else fork_at_random(c);
}

static void drain_or_take_part(void *context, int index) {
  chaos *c = context;
  if (index == 0) {
    while (!atomic_load(&c->done)) {
      CHECK_OK(hutch_port_drain(c->port, 0, NULL));
      usleep(200);
    }
    return;
  }
  run_threads(ACTORS + 1, take_part, c);
  if (c->close_at >= c->count) CHECK_OK(hutch_close(c->cache));
  CHECK_OK(hutch_queue_resume(c->suspended));
  CHECK_OK(hutch_queue_wait_all(c->suspended, HUTCH_FOREVER));
  CHECK_OK(hutch_queue_wait_all(c->queues[0], HUTCH_FOREVER));
  CHECK_OK(hutch_queue_wait_all(c->queues[1], HUTCH_FOREVER));
  atomic_store(&c->done, true);
}

static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void run_round(uint64_t *state, int round) {
  char name[32];
  snprintf(name, sizeof name, "cache-%d", round);
  path directory = scratch(name);
  hutch_options options = unlimited_options();
  chaos c = {.cache = open_cache(round % 4 == 3 ? NULL : directory.text, &options),
             .queues = {new_queue(2, 0), new_queue(3, 0)}, .suspended = new_queue(1, 0),
             .count = IN_ROUND, .seed = next_random(state)};
  c.fates = calloc(IN_ROUND + FORKS, sizeof *c.fates);
  CHECK(c.fates);
  for (int i = 0; i <= ACTORS; i++) c.references[i] = hutch_cache_retain(c.cache);
  /* Every other round closes the cache at its end. */
  c.close_at = round % 2 ? c.count : (int)(next_random(state) % IN_ROUND);
  for (int i = 0; i < FORKS; i++) c.fork_at[i] = (int)(next_random(state) % IN_ROUND);
  qsort(c.fork_at, FORKS, sizeof c.fork_at[0], by_size);
  CHECK_OK(hutch_port_create(&c.port));
  CHECK_OK(hutch_group_create(c.queues[0], &c.group));
  CHECK_OK(hutch_queue_suspend(c.suspended));
  run_threads(2, drain_or_take_part, &c);
  CHECK_OK(hutch_port_drain(c.port, 0, NULL));
  check_fates(c.fates, c.count + FORKS);
  for (int i = 0; i <= ACTORS; i++) hutch_cache_release(c.references[i]);
  hutch_port_release(c.port);
  hutch_group_release(c.group);
  hutch_queue_release(c.suspended);
  hutch_queue_release(c.queues[0]);
  hutch_queue_release(c.queues[1]);
  CHECK_EQUAL(0, workers());
  free(c.fates);
  remove_tree(directory.text);
}

TEST(every_task_completes_exactly_once) {
  uint64_t state = seed();
  int count = scale() == 1 ? (SANITIZED_BY == 1 ? 4 : 2) : 100 / SANITIZED_BY;
  for (int round = 0; round < count; round++) run_round(&state, round);
}
