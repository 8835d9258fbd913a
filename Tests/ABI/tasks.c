/* What tasks of a cache promise each other: keys beside each other, priorities behind a key, the
   threads they run on, and a close in the middle of everything. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <unistd.h>

typedef struct told {
  atomic_int completed, released;
  hutch_status status;
  _Atomic int *order;
  int place;
} told;

static void complete(void *context, const hutch_completion *completion) {
  told *t = context;
  t->status = completion->status;
  if (t->order) t->place = atomic_fetch_add(t->order, 1);
  atomic_fetch_add(&t->completed, 1);
}
static void release(void *context) { atomic_fetch_add(&((told *)context)->released, 1); }

static hutch_task_options telling(told *t) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options), .complete = complete,
                              .context = t, .release = release};
}

/* A completion that keeps its task running until it is let go. */
typedef struct stuck {
  atomic_bool runs, go;
  atomic_int completed;
} stuck;

static void be_stuck(void *context, const hutch_completion *completion) {
  (void)completion;
  stuck *s = context;
  atomic_store(&s->runs, true);
  while (!atomic_load(&s->go)) usleep(100);
  atomic_fetch_add(&s->completed, 1);
}

static void get_stuck(hutch_cache *cache, stuck *s, const char *key) {
  *s = (stuck){0};
  hutch_task_options options = {.struct_size = sizeof options, .complete = be_stuck, .context = s};
  CHECK_OK(hutch_get_async(cache, KEY(key), &options, NULL));
  while (!atomic_load(&s->runs)) usleep(100);
}

TEST_EACH_KIND(keys_run_beside_each_other_and_tasks_of_one_do_not) {
  stuck s;
  get_stuck(f->cache, &s, "a");
  told same = {0}, other = {0};
  hutch_task *first = NULL, *second = NULL;
  hutch_task_options options = telling(&same);
  CHECK_OK(hutch_contains_async(f->cache, KEY("a"), &options, &first));
  options = telling(&other);
  CHECK_OK(hutch_contains_async(f->cache, KEY("b"), &options, &second));
  CHECK_OK(hutch_task_wait(second, HUTCH_FOREVER));
  CHECK_EQUAL(1, other.completed);
  CHECK_EQUAL(0, same.completed);
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_task_wait(first, 0));
  atomic_store(&s.go, true);
  CHECK_OK(hutch_task_wait(first, HUTCH_FOREVER));
  CHECK_EQUAL(1, same.completed);
  hutch_task_release(first);
  hutch_task_release(second);
}

TEST(the_first_of_a_key_has_the_highest_priority_behind_it) {
  /* Without a disk tier, whose maintenance is a task too. */
  hutch_options unlimited = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &unlimited);
  /* The place of the oldest is taken, so the other one goes by priority. */
  for (int leaves = 0; leaves < 2; leaves++) {
    stuck s;
    get_stuck(cache, &s, "gate");
    CHECK_OK(hutch_suspend(cache));
    _Atomic int order = 0;
    told low = {.order = &order}, middle = {.order = &order}, high = {.order = &order};
    hutch_task *tasks[3] = {NULL};
    hutch_task_options options = telling(&low);
    options.priority = HUTCH_PRIORITY_LOW;
    CHECK_OK(hutch_contains_async(cache, KEY("a"), &options, &tasks[0]));
    options = telling(&middle);
    CHECK_OK(hutch_contains_async(cache, KEY("b"), &options, &tasks[1]));
    options = telling(&high);
    options.priority = HUTCH_PRIORITY_HIGH;
    CHECK_OK(hutch_contains_async(cache, KEY("a"), &options, &tasks[2]));
    if (leaves) CHECK_OK(hutch_task_cancel(tasks[2], NULL));
    if (leaves) CHECK_OK(hutch_task_wait(tasks[2], HUTCH_FOREVER));
    CHECK_EQUAL(leaves, order);
    CHECK_OK(hutch_resume(cache));
    for (int n = 0; n < 3; n++) {
      CHECK_OK(hutch_task_wait(tasks[n], HUTCH_FOREVER));
      hutch_task_release(tasks[n]);
    }
    if (leaves) CHECK(middle.place < low.place);
    else CHECK(low.place < high.place && high.place < middle.place);
    atomic_store(&s.go, true);
    CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER));
  }
  CHECK_OK(hutch_close(cache));
}

static hutch_status look_at_signals(void *context, hutch_task *task) {
  (void)task;
  /* A fault in a callback is the business of the host's handler. */
  const int unblocked[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t mask, wanted;
  sigfillset(&wanted);
  for (size_t i = 0; i < sizeof unblocked / sizeof *unblocked; i++)
    sigdelset(&wanted, unblocked[i]);
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
  for (int number = 1; number < 32; number++)
    CHECK_EQUAL(sigismember(&mask, number), sigismember(&wanted, number));
  char name[16];
  CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0);
  CHECK(strcmp(name, "hutch-task") == 0);
  *(pthread_t *)context = pthread_self();
  return HUTCH_OK;
}

TEST(workers_have_a_name_and_block_all_signals_but_those_of_faults) {
  sigset_t before, after;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(NULL, &queue));
  pthread_t thread = pthread_self();
  CHECK_OK(hutch_queue_submit(queue, look_at_signals, &thread, NULL, NULL, NULL));
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  CHECK(!pthread_equal(thread, pthread_self()));
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
  for (int number = 1; number < 32; number++)
    CHECK_EQUAL(sigismember(&before, number), sigismember(&after, number));
  hutch_queue_release(queue);
}

/* A close while tasks of every kind are under way: one that runs, reads and writes that wait,
   tasks of a group that was started and of one that was not, completions in a port that is not
   drained before. Each is made once, and the close ends. */
TEST(a_close_in_the_middle_of_everything_makes_every_completion_once) {
  enum { EACH = 30, ALL = 4 * EACH };
  static told t[ALL], started, runs;
  memset(t, 0, sizeof t);
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_queue *queue = NULL;
  hutch_group *group = NULL, *waiting = NULL;
  hutch_port *port = NULL;
  CHECK_OK(hutch_queue_create(NULL, &queue));
  CHECK_OK(hutch_group_create(queue, &group));
  CHECK_OK(hutch_group_create(queue, &waiting));
  CHECK_OK(hutch_port_create(&port));
  hutch_task_options o = telling(&runs);
  CHECK_OK(hutch_trim_async(cache, &(hutch_trim_spec){.struct_size = sizeof(hutch_trim_spec),
                                                      .kind = HUTCH_TRIM_EXPIRED}, &o, NULL));
  for (int n = 0; n < ALL; n++) {
    char key[16];
    int size = snprintf(key, sizeof key, "%d", n % 20);
    o = telling(&t[n]);
    o.priority = n % 3 - 1;
    o.port = n / EACH == 1 ? port : NULL;
    o.group = n / EACH == 2 ? group : n / EACH == 3 ? waiting : NULL;
    if (n % 2) CHECK_OK(hutch_get_async(cache, key, (size_t)size, &o, NULL));
    else CHECK_OK(hutch_put_async(cache, key, (size_t)size, key, 1, NULL, &o, NULL));
  }
  o = telling(&started);
  CHECK_OK(hutch_group_start(group, &o));
  CHECK_OK(hutch_close(cache));
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  for (int n = EACH; n < 2 * EACH; n++) CHECK_EQUAL(0, t[n].completed);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  CHECK_EQUAL(1, runs.completed);
  CHECK_EQUAL(1, started.completed);
  for (int n = 0; n < ALL; n++) {
    CHECK_EQUAL(1, t[n].completed);
    CHECK_EQUAL(1, t[n].released);
    /* Writes are carried out, unless their group was never started. */
    if (n % 2 == 0 && n / EACH != 3)
      CHECK(t[n].status == HUTCH_OK || t[n].status == HUTCH_SUPERSEDED);
    if (n / EACH == 3) CHECK_EQUAL(HUTCH_CANCELLED, t[n].status);
  }
  hutch_group_release(group);
  hutch_group_release(waiting);
  hutch_port_release(port);
  hutch_queue_release(queue);
}
