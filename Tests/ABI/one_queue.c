/* options.queue: one queue for several caches; and hutch_shared_queue, the process's. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

enum { MOST = 64 };

/* The completions in the order in which they were made. */
typedef struct notes {
  pthread_mutex_t lock;
  int order[MOST];
  hutch_status status[MOST]; /* by number */
  int count;
} notes;

#define NOTES {.lock = PTHREAD_MUTEX_INITIALIZER}

typedef struct item {
  notes *to;
  int number;
} item;

static void noted(void *context, const hutch_completion *completion) {
  item *i = context;
  pthread_mutex_lock(&i->to->lock);
  i->to->order[i->to->count++] = i->number;
  i->to->status[i->number] = completion->status;
  pthread_mutex_unlock(&i->to->lock);
}

static int count_noted(notes *n) {
  pthread_mutex_lock(&n->lock);
  int count = n->count;
  pthread_mutex_unlock(&n->lock);
  return count;
}

static hutch_task_options noting(notes *to, int number) {
  item *i = malloc(sizeof *i);
  *i = (item){to, number};
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options), .complete = noted,
                              .context = i, .release = free};
}

static void put_later(hutch_cache *cache, const char *key, notes *to, int number, int priority) {
  hutch_task_options options = noting(to, number);
  options.priority = priority;
  CHECK_OK(hutch_put_async(cache, KEY(key), "value", 5, NULL, &options, NULL));
}

static void get_later(hutch_cache *cache, const char *key, notes *to, int number) {
  hutch_task_options options = noting(to, number);
  CHECK_OK(hutch_get_async(cache, KEY(key), &options, NULL));
}

/* Work that runs until it is let go. */
typedef struct occupation {
  _Atomic int running;
  _Atomic bool open;
} occupation;

static hutch_status wait_here(void *context, hutch_task *task) {
  (void)task;
  occupation *g = context;
  atomic_fetch_add(&g->running, 1);
  while (!atomic_load(&g->open)) nap();
  atomic_fetch_sub(&g->running, 1);
  return HUTCH_OK;
}

static void occupy(hutch_queue *queue, occupation *g, int count) {
  for (int i = 0; i < count; i++)
    CHECK_OK(hutch_queue_submit(queue, wait_here, g, NULL, NULL, NULL));
  while (atomic_load(&g->running) < count) nap();
}

/* The work is done when the call returns. The end of a queue does not wait for it. */
static void let_go(occupation *g) {
  atomic_store(&g->open, true);
  while (atomic_load(&g->running) > 0) nap();
}

static hutch_options on(hutch_queue *queue) {
  hutch_options options = unlimited_options();
  options.queue = queue;
  return options;
}

/* A cache on disk, and one in memory, on one queue. */
typedef struct pair {
  hutch_queue *queue;
  hutch_cache *a, *b;
  path directory;
} pair;

static pair pair_on(hutch_queue *queue, uint32_t flags) {
  pair p = {.queue = queue, .directory = scratch("a")};
  hutch_options options = on(queue);
  options.flags = flags;
  p.a = open_cache(p.directory.text, &options);
  p.b = open_cache(NULL, &options);
  return p;
}

static void close_pair(pair *p) {
  CHECK_OK(hutch_close(p->a));
  CHECK_OK(hutch_close(p->b));
  hutch_queue_release(p->queue);
}

TEST(operations_of_two_caches_do_not_run_as_one_for_their_identifier) {
  pair p = pair_on(new_queue(1, 0), 0);
  CHECK_OK(put_text(p.a, "key", "value"));
  CHECK_OK(put_text(p.b, "key", "value"));
  hutch_cache *caches[] = {p.a, p.b};
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 0};
  notes n = NOTES;
  CHECK_OK(hutch_queue_suspend(p.queue));
  for (int i = 0; i < 2; i++) {
    hutch_task_options options = noting(&n, i);
    options.identifier = "trim";
    options.identifier_size = 4;
    CHECK_OK(hutch_trim_async(caches[i], &spec, &options, NULL));
  }
  CHECK_OK(hutch_queue_resume(p.queue));
  CHECK_OK(hutch_queue_wait_all(p.queue, HUTCH_FOREVER));
  for (int i = 0; i < 2; i++) {
    CHECK_EQUAL(HUTCH_OK, n.status[i]);
    CHECK_EQUAL(0, count_of(caches[i]));
  }
  close_pair(&p);
}

/* -------------------------------------------------------------- order, width */

TEST(several_caches_run_in_the_order_of_one_queue) {
  pair p = pair_on(new_queue(1, 0), 0);
  notes n = NOTES;
  CHECK_OK(hutch_queue_suspend(p.queue));
  for (int i = 0; i < 40; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    put_later(i % 3 ? p.a : p.b, key, &n, i, 0);
  }
  CHECK_EQUAL(0, count_noted(&n));
  CHECK_OK(hutch_queue_resume(p.queue));
  CHECK_OK(hutch_queue_wait_all(p.queue, HUTCH_FOREVER));
  CHECK_EQUAL(40, count_noted(&n));
  for (int i = 0; i < 40; i++) {
    CHECK_EQUAL(i, n.order[i]);
    CHECK_EQUAL(HUTCH_OK, n.status[i]);
  }
  close_pair(&p);
}

TEST(priorities_hold_among_all_caches_of_a_queue) {
  pair p = pair_on(new_queue(2, HUTCH_QUEUE_NO_THREADS), 0);
  notes n = NOTES;
  put_later(p.a, "oldest", &n, 0, HUTCH_PRIORITY_LOW);
  put_later(p.a, "low", &n, 1, HUTCH_PRIORITY_LOW);
  put_later(p.b, "default", &n, 2, HUTCH_PRIORITY_DEFAULT);
  occupation g = {.open = true};
  hutch_task_options options = noting(&n, 3);
  options.priority = HUTCH_PRIORITY_HIGH;
  CHECK_OK(hutch_queue_submit(p.queue, wait_here, &g, NULL, &options, NULL));
  put_later(p.b, "high", &n, 4, HUTCH_PRIORITY_HIGH);
  /* One task of each run: the first run of all takes the oldest one. */
  CHECK_OK(hutch_queue_set_width(p.queue, 1));
  uint64_t ran;
  CHECK_OK(hutch_queue_run(p.queue, 0, &ran));
  CHECK_EQUAL(5, ran);
  for (int i = 0; i < 5; i++) CHECK_EQUAL(i, n.order[i]);

  occupation first = {0};
  hutch_queue *wide = new_queue(2, 0);
  pair q = {.queue = wide, .a = p.a, .b = p.b};
  hutch_options given = on(wide);
  q.a = open_cache(NULL, &given);
  q.b = open_cache(NULL, &given);
  /* The place for the oldest is taken, so the other one goes by priority. */
  occupation second = {0};
  occupy(wide, &first, 1);
  occupy(wide, &second, 1);
  notes m = NOTES;
  put_later(q.a, "low", &m, 0, HUTCH_PRIORITY_LOW);
  put_later(q.b, "default", &m, 1, HUTCH_PRIORITY_DEFAULT);
  put_later(q.a, "high", &m, 2, HUTCH_PRIORITY_HIGH);
  let_go(&second);
  CHECK_OK(hutch_wait_all(q.a, HUTCH_FOREVER));
  CHECK_OK(hutch_wait_all(q.b, HUTCH_FOREVER));
  CHECK_EQUAL(2, m.order[0]);
  CHECK_EQUAL(1, m.order[1]);
  CHECK_EQUAL(0, m.order[2]);
  let_go(&first);
  close_pair(&q);
  close_pair(&p);
}

TEST(a_wait_for_a_cache_waits_for_its_own_tasks) {
  pair p = pair_on(new_queue(2, 0), 0);
  occupation g = {0};
  notes n = NOTES;
  occupy(p.queue, &g, 1);
  put_later(p.a, "key", &n, 0, 0);
  CHECK_OK(hutch_wait_all(p.a, HUTCH_FOREVER));
  CHECK_EQUAL(1, count_noted(&n));
  CHECK_OK(hutch_wait_all(p.b, 0));
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_queue_wait_all(p.queue, 0));
  occupy(p.queue, &g, 0);
  CHECK_OK(hutch_queue_suspend(p.queue));
  put_later(p.b, "key", &n, 1, 0);
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_wait_all(p.b, 0));
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_wait_all(p.b, HUTCH_MILLISECOND));
  CHECK_OK(hutch_wait_all(p.a, 0));
  CHECK_OK(hutch_queue_resume(p.queue));
  CHECK_OK(hutch_wait_all(p.b, HUTCH_FOREVER));
  let_go(&g);
  close_pair(&p);
}

/* ----------------------------------------------------------------------- ends */

TEST(a_close_ends_the_tasks_of_its_cache_alone) {
  pair p = pair_on(new_queue(1, 0), 0);
  notes n = NOTES;
  CHECK_OK(hutch_queue_suspend(p.queue));
  put_later(p.b, "theirs", &n, 0, HUTCH_PRIORITY_HIGH);
  put_later(p.a, "ours", &n, 1, HUTCH_PRIORITY_LOW);
  get_later(p.a, "other", &n, 2);
  /* The close waits for no resume, and leaves the other cache's task where it is. */
  CHECK_OK(hutch_close(p.a));
  CHECK_EQUAL(2, count_noted(&n));
  CHECK_EQUAL(HUTCH_OK, n.status[1]);
  CHECK_EQUAL(HUTCH_CANCELLED, n.status[2]);
  CHECK_MISSING(p.b, "theirs");
  hutch_options options = on(p.queue);
  p.a = open_cache(p.directory.text, &options);
  CHECK_TEXT(p.a, "ours", "value");
  CHECK_OK(hutch_queue_resume(p.queue));
  CHECK_OK(hutch_wait_all(p.b, HUTCH_FOREVER));
  CHECK_TEXT(p.b, "theirs", "value");
  close_pair(&p);
}

TEST(a_close_gives_up_where_others_occupy_the_queue) {
  hutch_queue *queue = new_queue(1, 0);
  hutch_options options = on(queue);
  options.close_deadline = 20 * HUTCH_MILLISECOND;
  hutch_cache *a = open_cache(scratch("a").text, &options), *b = open_cache(NULL, &options);
  occupation g = {0};
  notes n = NOTES;
  occupy(queue, &g, 1);
  put_later(a, "key", &n, 0, 0);
  put_later(b, "key", &n, 1, 0);
  CHECK_STATUS(HUTCH_TIMED_OUT, hutch_close(a));
  CHECK_EQUAL(1, count_noted(&n));
  CHECK_EQUAL(HUTCH_CANCELLED, n.status[0]);
  let_go(&g);
  CHECK_OK(hutch_wait_all(b, HUTCH_FOREVER));
  CHECK_EQUAL(HUTCH_OK, n.status[1]);
  CHECK_OK(hutch_close(b));
  hutch_queue_release(queue);
}

TEST(the_queue_is_released_before_its_caches) {
  pair p = pair_on(new_queue(2, 0), 0);
  hutch_queue_release(p.queue);
  notes n = NOTES;
  for (int i = 0; i < 10; i++) put_later(i % 2 ? p.a : p.b, "key", &n, i, 0);
  CHECK_OK(hutch_wait_all(p.a, HUTCH_FOREVER));
  CHECK_OK(hutch_wait_all(p.b, HUTCH_FOREVER));
  CHECK_EQUAL(10, count_noted(&n));
  CHECK(workers() > 0);
  hutch_cache *view = tier_of(p.a, HUTCH_TIER_MEMORY);
  put_later(p.b, "last", &n, 10, 0);
  CHECK_OK(hutch_close(p.a));
  CHECK_OK(hutch_close(p.b));
  CHECK_EQUAL(HUTCH_OK, n.status[10]);
  hutch_cache_release(view);
  await_no_workers();
}

TEST(the_queue_serves_when_its_caches_have_gone) {
  pair p = pair_on(new_queue(2, 0), 0);
  CHECK_OK(hutch_close(p.a));
  hutch_cache_release(p.b); /* not closed: ends with its last task */
  occupation g = {.open = true};
  hutch_task *task;
  CHECK_OK(hutch_queue_submit(p.queue, wait_here, &g, NULL, NULL, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  hutch_queue_release(p.queue);
  await_no_workers();
}

/* -------------------------------------------------------------------- threads */

TEST(a_queue_without_threads_is_run_by_the_host) {
  pair p = pair_on(new_queue(0, HUTCH_QUEUE_NO_THREADS), HUTCH_OPEN_NO_THREADS);
  CHECK_EQUAL(0, workers());
  notes n = NOTES;
  put_later(p.a, "key", &n, 0, 0);
  put_later(p.b, "key", &n, 1, 0);
  CHECK_OK(hutch_maintain(p.a, 0));
  CHECK_EQUAL(0, count_noted(&n));
  uint64_t ran;
  CHECK_OK(hutch_queue_run(p.queue, 0, &ran));
  CHECK_EQUAL(2, ran);
  CHECK_EQUAL(2, count_noted(&n));
  /* A close runs what is its own. */
  put_later(p.b, "theirs", &n, 2, 0);
  put_later(p.a, "ours", &n, 3, 0);
  CHECK_OK(hutch_close(p.a));
  CHECK_EQUAL(3, count_noted(&n));
  CHECK_EQUAL(HUTCH_OK, n.status[3]);
  CHECK_EQUAL(0, workers());
  CHECK_OK(hutch_close(p.b));
  CHECK_EQUAL(HUTCH_OK, n.status[2]);
  hutch_queue_release(p.queue);
}

TEST(a_cache_without_threads_uses_those_of_the_queue) {
  pair p = pair_on(new_queue(1, 0), HUTCH_OPEN_NO_THREADS);
  CHECK_EQUAL(0, workers());
  notes n = NOTES;
  put_later(p.a, "key", &n, 0, 0);
  CHECK_OK(hutch_wait_all(p.a, HUTCH_FOREVER));
  CHECK_EQUAL(1, count_noted(&n));
  CHECK_EQUAL(1, workers());
  CHECK_OK(hutch_maintain(p.a, 0));
  close_pair(&p);
}

static void count_release(void *object) { atomic_fetch_add((_Atomic int *)object, 1); }

TEST(neither_a_suspended_nor_a_busy_queue_delays_maintenance) {
  pair p = pair_on(new_queue(1, 0), 0);
  occupation g = {0};
  occupy(p.queue, &g, 1);
  CHECK_OK(hutch_queue_suspend(p.queue));
  _Atomic int released = 0;
  CHECK_OK(hutch_put_object(p.a, KEY("key"), &released, count_release, NULL));
  CHECK_OK(hutch_remove_object(p.a, KEY("key")));
  while (atomic_load(&released) == 0) nap();
  CHECK_OK(hutch_queue_resume(p.queue));
  let_go(&g);
  /* The other way round: a suspended cache does no maintenance, and its queue goes on. */
  CHECK_OK(hutch_suspend(p.a));
  notes n = NOTES;
  put_later(p.a, "key", &n, 0, 0);
  CHECK_OK(hutch_wait_all(p.a, HUTCH_FOREVER));
  CHECK_OK(hutch_resume(p.a));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_resume(p.a));
  close_pair(&p);
}

/* ------------------------------------------------------------------ callbacks */

static hutch_status work_of_the_queue(void *context, hutch_task *task) {
  (void)task;
  pair *p = context;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(p->a));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(p->a));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_maintain(p->b, 0));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_wait_all(p->b, HUTCH_FOREVER));
  return HUTCH_OK;
}

static void completion_of_a_cache(void *context, const hutch_completion *completion) {
  CHECK_EQUAL(HUTCH_OK, completion->status);
  (void)work_of_the_queue(context, NULL);
}

static int32_t visit(void *context, const void *key, size_t size, const hutch_entry_info *info) {
  (void)key, (void)size, (void)info;
  pair *p = context;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_queue_wait_all(p->queue, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_queue_run(p->queue, 0, NULL));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_wait_all(p->b, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(p->a));
  CHECK_OK(hutch_flush(p->b)); /* which waits for nothing of this cache */
  return 0;
}

TEST(a_callback_of_the_queue_is_one_of_all_its_caches) {
  pair p = pair_on(new_queue(2, 0), 0);
  CHECK_OK(hutch_queue_submit(p.queue, work_of_the_queue, &p, NULL, NULL, NULL));
  hutch_task_options options = {.struct_size = sizeof options, .context = &p,
                                .complete = completion_of_a_cache};
  CHECK_OK(hutch_put_async(p.b, KEY("key"), "value", 5, NULL, &options, NULL));
  CHECK_OK(hutch_queue_wait_all(p.queue, HUTCH_FOREVER));
  hutch_port *port;
  CHECK_OK(hutch_port_create(&port));
  options.port = port;
  CHECK_OK(hutch_put_async(p.a, KEY("key"), "value", 5, NULL, &options, NULL));
  CHECK_OK(hutch_wait_all(p.a, HUTCH_FOREVER));
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  hutch_port_release(port);
  CHECK_OK(hutch_each(p.a, visit, &p));
  close_pair(&p);
}

/* ------------------------------------------------------------------- options */

TEST(options_that_do_not_go_with_a_queue) {
  hutch_queue *queue = new_queue(2, 0), *other = new_queue(2, 0), *own;
  path directory = scratch("cache");
  hutch_options options = on(queue);
  hutch_cache *cache = NULL, *second = NULL;
  options.workers = 2;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(directory.text, &options, &cache));
  CHECK(!cache && strstr(hutch_error_words(), "options.queue"));
  options.workers = 0;
  options.queue_length = 5;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(directory.text, &options, &cache));
  options.queue_length = 0;
  cache = open_cache(directory.text, &options);

  hutch_options told = {.struct_size = sizeof told};
  CHECK_OK(hutch_get_options(cache, &told));
  CHECK(told.queue == queue && told.workers == 0 && told.queue_length == 0 && told.flags == 0);
  hutch_cache *memory = open_cache(NULL, &told);
  CHECK_OK(hutch_cache_queue(memory, &own));
  CHECK(own == queue);
  hutch_queue_release(own);
  CHECK_OK(hutch_close(memory));

  CHECK_OK(hutch_open(directory.text, &options, &second));
  CHECK_OK(hutch_close(second));
  options.queue = NULL;
  hutch_status status = hutch_open(directory.text, &options, &second);
  CHECK_OK(status);
  CHECK_OK(hutch_close(second));
  options.queue = other;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &second));
  CHECK_OK(hutch_close(second));

  hutch_options change = {.struct_size = sizeof change, .workers = 3};
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &change));
  change = (hutch_options){.struct_size = sizeof change, .queue = other};
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &change));
  CHECK_OK(hutch_close(cache));

  /* A cache's own queue ends with that cache. */
  cache = open_cache(NULL, NULL);
  CHECK_OK(hutch_cache_queue(cache, &own));
  options.queue = own;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &second));
  CHECK(!second);
  hutch_queue_release(own);
  CHECK_OK(hutch_close(cache));
  hutch_queue_release(queue);
  hutch_queue_release(other);
}

/* ----------------------------------------------------------------------- fork */

static void go_on(pair *p, const char *key) {
  notes n = NOTES;
  put_later(p->a, key, &n, 0, 0);
  put_later(p->b, key, &n, 1, 0);
  CHECK_OK(hutch_wait_all(p->a, HUTCH_FOREVER));
  CHECK_OK(hutch_wait_all(p->b, HUTCH_FOREVER));
  CHECK_EQUAL(HUTCH_OK, n.status[0]);
  CHECK_EQUAL(HUTCH_OK, n.status[1]);
  CHECK_TEXT(p->a, key, "value");
  CHECK_TEXT(p->b, key, "value");
}

static void fork_a_pair(pair p, bool is_suspended) {
  bool is_shared = p.queue == NULL;
  if (is_shared) CHECK_OK(hutch_shared_queue(&p.queue));
  p = pair_on(p.queue, 0);
  go_on(&p, "parent");
  if (is_suspended) CHECK_OK(hutch_queue_suspend(p.queue));
  pid_t child = fork_now();
  if (child == 0) {
    hutch_cache *third = NULL;
    hutch_options options = on(p.queue);
    CHECK_STATUS(HUTCH_FORKED, hutch_open(NULL, &options, &third));
    CHECK_STATUS(HUTCH_FORKED, hutch_queue_suspend(p.queue));
    hutch_queue *a, *b, *shared;
    CHECK_OK(hutch_cache_queue(p.a, &a));
    CHECK_OK(hutch_cache_queue(p.b, &b));
    CHECK_OK(hutch_shared_queue(&shared));
    CHECK(a == b && a != p.queue && (shared == a) == is_shared && shared != p.queue);
    hutch_queue_release(p.queue);
    p.queue = a;
    hutch_queue_release(b);
    hutch_queue_release(shared);
    go_on(&p, "child");
    options = on(a);
    third = open_cache(NULL, &options);
    CHECK_OK(hutch_close(third));
    close_pair(&p);
    end_child();
  }
  await_child(child);
  if (is_suspended) CHECK_OK(hutch_queue_resume(p.queue));
  go_on(&p, "again");
  close_pair(&p);
}

TEST(the_caches_of_a_queue_have_one_queue_in_a_child) {
  fork_a_pair((pair){.queue = new_queue(2, 0)}, false);
}
TEST(the_queue_of_a_child_is_not_suspended) {
  fork_a_pair((pair){.queue = new_queue(2, 0)}, true);
}
TEST(a_child_has_a_shared_queue_of_its_own) { fork_a_pair((pair){.queue = NULL}, false); }

/* -------------------------------------------------------------- shared queue */

static void take_shared(void *context, int index) {
  CHECK_OK(hutch_shared_queue((hutch_queue **)context + index));
}

TEST(the_shared_queue_is_one_for_all_threads) {
  hutch_queue *queues[8];
  run_threads(8, take_shared, queues);
  for (int i = 0; i < 8; i++) {
    CHECK(queues[i] == queues[0]);
    hutch_queue_release(queues[i]);
  }
  CHECK_EQUAL(0, workers());
  hutch_queue *queue;
  CHECK_OK(hutch_shared_queue(&queue));
  CHECK(queue == queues[0]);
  /* As wide as there are processors. */
  long width = sysconf(_SC_NPROCESSORS_ONLN);
  if (width < 2) width = 2;
  occupation g = {0};
  occupy(queue, &g, (int)width);
  CHECK_OK(hutch_queue_submit(queue, wait_here, &g, NULL, NULL, NULL));
  CHECK_EQUAL(width, workers());
  CHECK_EQUAL(width, atomic_load(&g.running));
  atomic_store(&g.open, true);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_queue_release(queue);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_shared_queue(NULL));
}

/* What happened at the exit of a child. */
typedef struct ends {
  _Atomic int finished, ran, cancelled;
} ends;

static ends *at_end;
static occupation *exits;

static void begin_exit(void) { atomic_store(&exits->open, true); }

static hutch_status finish_slowly(void *context, hutch_task *task) {
  (void)wait_here(exits, task);
  usleep(50000);
  atomic_fetch_add(&((ends *)context)->finished, 1);
  return HUTCH_OK;
}
static hutch_status run_never(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((ends *)context)->ran, 1);
  return HUTCH_OK;
}
static void count_cancelled(void *context, const hutch_completion *completion) {
  (void)context;
  if (completion->status == HUTCH_CANCELLED) atomic_fetch_add(&at_end->cancelled, 1);
}

/* LeakSanitizer asks for it at the end of a process. */
static int leaves_a_cache_open;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return leaves_a_cache_open; }

/* Tasks run when exit() is called, and others wait. */
static void exit_with_tasks(void) {
  leaves_a_cache_open = 1;
  static occupation g;
  exits = &g;
  hutch_queue *queue;
  CHECK_OK(hutch_shared_queue(&queue));
  CHECK(atexit(begin_exit) == 0); /* before the library's own */
  hutch_options options = on(queue);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  int width = 0;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  for (; width < (processors < 2 ? 2 : processors); width++)
    CHECK_OK(hutch_queue_submit(queue, finish_slowly, at_end, NULL, NULL, NULL));
  while (atomic_load(&g.running) < width) nap();
  hutch_task_options told = {.struct_size = sizeof told, .complete = count_cancelled};
  CHECK_OK(hutch_queue_submit(queue, run_never, at_end, NULL, &told, NULL));
  CHECK_OK(hutch_get_async(cache, KEY("key"), &told, NULL));
  CHECK_OK(hutch_put_async(cache, KEY("key"), "value", 5, NULL, NULL, NULL));
}

TEST(an_exit_waits_for_the_tasks_of_the_shared_queue) {
  at_end = shared_memory(sizeof *at_end);
  pid_t child = fork_now();
  if (child == 0) {
    exit_with_tasks();
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQUAL(0, status);
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  CHECK_EQUAL(processors < 2 ? 2 : processors, at_end->finished);
  CHECK_EQUAL(0, at_end->ran);
  CHECK_EQUAL(2, at_end->cancelled);
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

static hutch_status call_exit(void *context, hutch_task *task) {
  (void)context, (void)task;
  exit(7);
}

TEST(an_exit_within_a_task_of_the_shared_queue_ends) {
  pid_t child = fork_now();
  if (child == 0) {
    hutch_queue *queue;
    CHECK_OK(hutch_shared_queue(&queue));
    CHECK_OK(hutch_queue_submit(queue, call_exit, NULL, NULL, NULL, NULL));
    for (;;) pause();
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
