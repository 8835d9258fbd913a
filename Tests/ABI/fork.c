/* More than one process: fork, and a second process on one directory. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* --------------------------------------------------------------------- fork */

static pid_t fork_child(void (*body)(void *context), void *context) {
  pid_t child = fork_now();
  if (child == 0) {
    body(context);
    end_child();
  }
  return child;
}

typedef struct family {
  hutch_cache *cache, *memory_only, *view;
  hutch_cursor *cursor;
  hutch_loading *leader, *waiter;
  hutch_value *small, *large;
  int wait_on;
} family;

static hutch_options exclusive_options(void) {
  hutch_options options = default_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  return options;
}

static void make_family(family *f) {
  hutch_options options = unlimited_options();
  f->cache = open_cache(scratch("cache").text, &options);
  f->memory_only = open_cache(NULL, &options);
  f->view = tier_of(f->cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(f->cache, "small", "value"));
  CHECK_OK(put_size(f->cache, "large", 100000));
  CHECK_OK(put_text(f->memory_only, "small", "value"));
  f->small = get_value(f->cache, "small");
  f->large = get_value(f->cache, "large");
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create(f->cache, &f->cursor));
  CHECK_OK(hutch_cursor_next(f->cursor, &key, &size));
  hutch_value *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("load"), NULL, &value, &f->leader));
  CHECK_STATUS(HUTCH_WOULD_BLOCK,
               hutch_load_begin(f->cache, KEY("load"), NULL, &value, &f->waiter));
}

static void end_family(family *f) {
  hutch_value *value;
  CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_loading_wait(f->waiter, 0, &value));
  CHECK_OK(hutch_loading_fulfil(f->leader, "made", 4, NULL));
  CHECK_OK(hutch_loading_wait(f->waiter, 0, &value));
  hutch_value_release(value);
  hutch_loading_release(f->leader);
  hutch_loading_release(f->waiter);
  hutch_cursor_release(f->cursor);
  hutch_value_release(f->small);
  hutch_value_release(f->large);
  hutch_cache_release(f->view);
  CHECK_OK(hutch_close(f->memory_only));
  CHECK_OK(hutch_close(f->cache));
}

static void check_values(const family *f) {
  CHECK_BYTES("value", 5, hutch_value_data(f->small), hutch_value_size(f->small));
  CHECK_BYTES("small", 5, hutch_value_key(f->small), hutch_value_key_size(f->small));
  CHECK_EQUAL(5, info_of_value(f->small).size);
  void *expected = filled(100000, 100000);
  CHECK_BYTES(expected, 100000, hutch_value_data(f->large), hutch_value_size(f->large));
  free(expected);
}

static void check_what_is_the_parents(family *f) {
  const void *key;
  size_t size;
  hutch_value *value = NULL;
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_STATUS(HUTCH_FORKED, hutch_cursor_next(f->cursor, &key, &size));
  CHECK(last_error().words[0] != '\0');
  CHECK_STATUS(HUTCH_FORKED, hutch_cursor_value(f->cursor, &value));
  CHECK_STATUS(HUTCH_FORKED, hutch_cursor_info(f->cursor, &info));
  CHECK_STATUS(HUTCH_FORKED, hutch_loading_wait(f->waiter, HUTCH_FOREVER, &value));
  CHECK_STATUS(HUTCH_FORKED, hutch_loading_fulfil(f->leader, "child", 5, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_loading_fail(f->leader, 1, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_loading_abandon(f->leader));
  hutch_load_options options = {.struct_size = sizeof options, .parent = f->leader};
  hutch_loading *loading = NULL;
  CHECK_STATUS(HUTCH_FORKED,
               hutch_load_begin(f->cache, KEY("nested"), &options, &value, &loading));
  CHECK_STATUS(HUTCH_FORKED, hutch_unhold_files(f->cache));
  hutch_loading_release(f->leader);
  hutch_loading_release(f->waiter);
  hutch_cursor_release(f->cursor);
}

static void use_in_child(void *context) {
  family *f = context;
  check_values(f);
  check_what_is_the_parents(f);
  CHECK(strcmp(hutch_directory(f->cache), scratch("cache").text) == 0);

  hutch_cache *caches[] = {f->cache, f->memory_only, f->view};
  for (int i = 0; i < 3; i++) {
    CHECK_TEXT(caches[i], "small", "value");
    CHECK_OK(put_text(caches[i], "child", "value"));
    CHECK_TEXT(caches[i], "child", "value");
    CHECK_OK(hutch_remove(caches[i], KEY("child")));
    CHECK_MISSING(caches[i], "child");
    int64_t sum;
    CHECK_OK(hutch_increment(caches[i], KEY("counter"), 1, 0, NULL, &sum));
    CHECK_EQUAL(i == 2 ? 2 : 1, sum);
    CHECK_EQUAL(i == 1 ? 2 : 3, count_of(caches[i]));
  }
  CHECK_OK(hutch_remove(f->cache, KEY("counter")));

  /* A load that the parent has begun is begun anew, and files may be held. */
  hutch_loading *loading;
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(f->cache, KEY("load"), NULL, &value, &loading));
  CHECK_OK(hutch_loading_abandon(loading));
  hutch_loading_release(loading);
  CHECK_OK(hutch_hold_files(f->cache));
  CHECK_OK(hutch_unhold_files(f->cache));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_unhold_files(f->cache));
  hutch_cursor *cursor;
  const void *key;
  size_t size;
  int steps = 0;
  CHECK_OK(hutch_cursor_create(f->cache, &cursor));
  while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) steps++;
  CHECK_EQUAL(2, steps);
  hutch_cursor_release(cursor);

  /* The directory is open here, too. */
  hutch_cache *second = NULL;
  hutch_options options = unlimited_options();
  CHECK_OK(hutch_open(scratch("cache").text, &options, &second));
  CHECK_TEXT(second, "small", "value");
  CHECK_OK(hutch_close(second));

  hutch_value_release(hutch_value_retain(f->small));
  hutch_value_release(f->small);
  hutch_value_release(f->large);
  hutch_cache_release(f->view);
  CHECK_OK(hutch_close(f->memory_only));
  CHECK_OK(hutch_close(f->cache));
}

TEST(a_child_has_what_the_parent_had_and_both_go_on) {
  family f;
  make_family(&f);
  CHECK_OK(hutch_hold_files(f.cache));
  await_child(fork_child(use_in_child, &f));
  check_values(&f);
  CHECK_OK(hutch_unhold_files(f.cache));
  CHECK_TEXT(f.memory_only, "small", "value");
  CHECK_MISSING(f.memory_only, "counter");
  CHECK_OK(put_text(f.cache, "after", "value"));
  CHECK_TEXT(f.view, "after", "value");
  end_family(&f);
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "small", "value");
  CHECK_TEXT(cache, "after", "value");
  CHECK_EQUAL(4, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

static void open_in_child(void *context) {
  (void)context;
  hutch_cache *memory = open_cache(NULL, NULL);
  CHECK_OK(put_text(memory, "key", "of the child"));
  CHECK_TEXT(memory, "key", "of the child");
  CHECK_OK(hutch_close(memory));
  hutch_cache *cache = open_cache(scratch("other").text, NULL);
  CHECK_OK(put_text(cache, "key", "of the child"));
  CHECK_OK(hutch_close(cache));
}

TEST(trap_27_a_child_may_open_caches_of_its_own) {
  family f;
  make_family(&f);
  await_child(fork_child(open_in_child, &f));
  hutch_cache *cache = open_cache(scratch("other").text, NULL);
  CHECK_TEXT(cache, "key", "of the child");
  CHECK_OK(hutch_close(cache));
  end_family(&f);
}

/* ------------------------------------------------------------------- tasks */

typedef struct tasks {
  hutch_cache *cache;
  hutch_queue *queue, *cache_queue;
  hutch_group *group;
  hutch_port *port;
  hutch_task *queued, *held, *in_port;
  atomic_int worked, completed, released;
} tasks;

static hutch_status count_work(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((tasks *)context)->worked, 1);
  return HUTCH_OK;
}
static void count_completion(void *context, const hutch_completion *completion) {
  (void)completion;
  atomic_fetch_add(&((tasks *)context)->completed, 1);
}
static void count_released(void *context) {
  atomic_fetch_add(&((tasks *)context)->released, 1);
}

static hutch_task_options counting(tasks *t) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options),
                              .complete = count_completion, .context = t,
                              .release = count_released};
}

static void use_tasks_in_child(void *context) {
  tasks *t = context;
  uint32_t state;
  hutch_group *group = NULL;
  hutch_task *task = NULL;
  CHECK_STATUS(HUTCH_FORKED, hutch_task_status(t->queued, &state, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_cancel(t->queued, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_wait(t->held, 0));
  CHECK_STATUS(HUTCH_FORKED, hutch_task_set_priority(t->queued, 1));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_set_width(t->queue, 1));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_wait_all(t->queue, 0));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_cancel_all(t->queue, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_suspend(t->cache_queue));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_resume(t->queue));
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_run(t->queue, 0, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_group_create(t->queue, &group));
  CHECK_STATUS(HUTCH_FORKED, hutch_group_start(t->group, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_group_cancel(t->group));
  CHECK_STATUS(HUTCH_FORKED, hutch_group_wait(t->group, 0));
  CHECK_STATUS(HUTCH_FORKED, hutch_port_drain(t->port, 0, NULL));
  CHECK_STATUS(HUTCH_FORKED, hutch_port_close(t->port, HUTCH_PORT_DISCARD));
  CHECK_STATUS(HUTCH_FORKED,
               hutch_queue_submit(t->queue, count_work, t, count_released, NULL, &task));
  CHECK(!task);
  CHECK_EQUAL(1, t->released);

  /* New ones work, but not with the parent's. */
  hutch_queue *queue = NULL;
  hutch_port *port = NULL;
  CHECK_OK(hutch_queue_create(NULL, &queue));
  CHECK_OK(hutch_port_create(&port));
  CHECK_OK(hutch_group_create(queue, &group));
  *t = (tasks){.cache = t->cache, .queue = t->queue, .port = t->port, .group = t->group,
               .queued = t->queued, .held = t->held, .in_port = t->in_port,
               .cache_queue = t->cache_queue};
  hutch_task_options options = counting(t);
  options.port = t->port;
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_submit(queue, count_work, t, NULL, &options, NULL));
  options.port = port;
  options.group = t->group;
  CHECK_STATUS(HUTCH_FORKED, hutch_queue_submit(queue, count_work, t, NULL, &options, NULL));
  options.group = group;
  CHECK_OK(hutch_queue_submit(queue, count_work, t, NULL, &options, NULL));
  CHECK_OK(hutch_group_start(group, NULL));
  CHECK_OK(hutch_group_wait(group, HUTCH_FOREVER));
  uint64_t drained = 0;
  CHECK_OK(hutch_port_drain(port, 0, &drained));
  CHECK_EQUAL(1, drained);
  CHECK_EQUAL(1, t->worked);
  hutch_cache *caches[] = {open_cache(NULL, NULL), t->cache};
  for (int i = 0; i < 2; i++) {
    options = counting(t);
    CHECK_OK(hutch_put_async(caches[i], KEY("key"), KEY("value"), NULL, &options, NULL));
    CHECK_OK(hutch_wait_all(caches[i], HUTCH_FOREVER));
    CHECK_TEXT(caches[i], "key", "value");
    hutch_queue *own;
    CHECK_OK(hutch_cache_queue(caches[i], &own));
    CHECK_OK(hutch_queue_wait_all(own, HUTCH_FOREVER));
    hutch_queue_release(own);
    CHECK_OK(hutch_close(caches[i]));
  }
  hutch_group_release(group);
  hutch_port_release(port);
  hutch_queue_release(queue);

  hutch_task_release(t->queued);
  hutch_task_release(t->held);
  hutch_task_release(t->in_port);
  hutch_group_release(t->group);
  hutch_port_release(t->port);
  hutch_queue_release(t->queue);
  hutch_queue_release(t->cache_queue);
}

TEST(tasks_in_flight_are_the_parents_alone) {
  tasks t = {.cache = open_cache(scratch("cache").text, NULL)};
  CHECK_OK(hutch_queue_create(NULL, &t.queue));
  CHECK_OK(hutch_cache_queue(t.cache, &t.cache_queue));
  CHECK_OK(hutch_group_create(t.queue, &t.group));
  CHECK_OK(hutch_port_create(&t.port));
  hutch_task_options options = counting(&t);
  options.port = t.port;
  CHECK_OK(hutch_put_async(t.cache, KEY("key"), KEY("value"), NULL, &options, &t.in_port));
  CHECK_OK(hutch_wait_all(t.cache, HUTCH_FOREVER));
  options.group = t.group;
  CHECK_OK(hutch_queue_submit(t.queue, count_work, &t, NULL, &options, &t.held));
  CHECK_OK(hutch_queue_suspend(t.queue));
  options = counting(&t);
  CHECK_OK(hutch_queue_submit(t.queue, count_work, &t, NULL, &options, &t.queued));

  await_child(fork_child(use_tasks_in_child, &t));

  CHECK_EQUAL(0, t.worked + t.completed + t.released);
  CHECK_OK(hutch_queue_resume(t.queue));
  CHECK_OK(hutch_group_start(t.group, NULL));
  CHECK_OK(hutch_group_wait(t.group, HUTCH_FOREVER));
  CHECK_OK(hutch_queue_wait_all(t.queue, HUTCH_FOREVER));
  CHECK_OK(hutch_port_drain(t.port, 0, NULL));
  CHECK_EQUAL(2, t.worked);
  CHECK_EQUAL(3, t.completed);
  CHECK_EQUAL(3, t.released);
  hutch_task_release(t.queued);
  hutch_task_release(t.held);
  hutch_task_release(t.in_port);
  hutch_group_release(t.group);
  hutch_port_release(t.port);
  hutch_queue_release(t.queue);
  hutch_queue_release(t.cache_queue);
  CHECK_TEXT(t.cache, "key", "value");
  CHECK_OK(hutch_close(t.cache));
}

static void use_memory_only(void *context) {
  hutch_cache *cache = context;
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(put_text(cache, "key", "of the child"));
  CHECK_TEXT(cache, "key", "of the child");
  CHECK_OK(hutch_remove(cache, KEY("other")));
  hutch_cache_limits limits = limits_of(cache);
  limits.memory.count = 1;
  CHECK_OK(hutch_set_limits(cache, &limits));
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_cache_in_memory_alone_is_two_caches_from_then_on) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(put_text(cache, "other", "value"));
  uint64_t puts = stats_of(cache).memory.puts;
  await_child(fork_child(use_memory_only, cache));
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_EQUAL(HUTCH_NO_LIMIT, limits_of(cache).memory.count);
  CHECK_EQUAL(puts, stats_of(cache).memory.puts);
  CHECK_OK(hutch_close(cache));
}

enum { REFERENCES = 64 };

typedef struct references {
  hutch_cache *of[REFERENCES];
  atomic_int arrived;
} references;

static void hold_all(void *context, int index) {
  references *r = context;
  (void)index;
  for (int i = 0; i < REFERENCES; i++) {
    /* Both at the same moment, if there are two cores for them. */
    atomic_fetch_add(&r->arrived, 1);
    for (int turns = 1; atomic_load(&r->arrived) < 2 * (i + 1); turns++) {
      if (turns % 1000 == 0) sched_yield();
    }
    CHECK_OK(hutch_hold_files(r->of[i]));
  }
}

static void hold_in_child(void *context) {
  references *r = context;
  run_threads(2, hold_all, r);
  for (int i = 0; i < REFERENCES; i++) {
    CHECK_OK(hutch_unhold_files(r->of[i]));
    CHECK_OK(hutch_unhold_files(r->of[i]));
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_unhold_files(r->of[i]));
  }
}

TEST(threads_of_a_child_hold_files_at_once) {
  references r = {.arrived = 0};
  hutch_cache *cache = open_cache(NULL, NULL);
  for (int i = 0; i < REFERENCES; i++) {
    r.of[i] = tier_of(cache, HUTCH_TIER_MEMORY);
    CHECK_OK(hutch_hold_files(r.of[i]));
  }
  for (int n = repeats(100); n > 0; n--) await_child(fork_child(hold_in_child, &r));
  for (int i = 0; i < REFERENCES; i++) {
    CHECK_OK(hutch_unhold_files(r.of[i]));
    hutch_cache_release(r.of[i]);
  }
  CHECK_OK(hutch_close(cache));
}

static void wait_in_child(void *context) {
  const family *f = context;
  char byte;
  CHECK(read(f->wait_on, &byte, 1) == 1);
  CHECK_TEXT(f->cache, "small", "value");
  CHECK_OK(put_text(f->cache, "late", "value"));
  CHECK_OK(hutch_close(f->cache));
}

TEST(a_child_that_lives_on_has_the_directory) {
  family f;
  int ends[2];
  CHECK(pipe(ends) == 0);
  make_family(&f);
  f.wait_on = ends[0];
  pid_t child = fork_child(wait_in_child, &f);
  end_family(&f);
  hutch_options alone = exclusive_options();
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(scratch("cache").text, &alone, &cache));
  CHECK(write(ends[1], "", 1) == 1);
  await_child(child);
  cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "small", "value");
  CHECK_TEXT(cache, "late", "value");
  CHECK_OK(hutch_close(cache));
}

static void use_a_little(void *context) {
  family *f = context;
  check_values(f);
  CHECK_TEXT(f->cache, "small", "value");
  CHECK_TEXT(f->memory_only, "small", "value");
  uint64_t mine = (uint64_t)getpid();
  CHECK_OK(hutch_put(f->cache, &mine, sizeof mine, &mine, sizeof mine, NULL, NULL));
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(f->view, &mine, sizeof mine, &value));
  hutch_value_release(value);
  CHECK_OK(hutch_remove(f->cache, &mine, sizeof mine));
}

/* Threads put all the while; each notes what is complete. */
typedef struct busy {
  family family;
  _Atomic uint32_t done[3];
  _Atomic bool stop;
} busy;

static void put_and_fork(void *context, int index) {
  busy *b = context;
  if (index == 3) {
    for (int i = 0; i < 12 * scale(); i++) {
      uint32_t before = atomic_load(&b->done[i % 3]);
      await_child(fork_child(use_a_little, &b->family));
      while (atomic_load(&b->done[i % 3]) < before + 3) nap();
    }
    atomic_store(&b->stop, true);
    return;
  }
  while (!atomic_load(&b->stop)) {
    uint32_t key[2] = {(uint32_t)index, atomic_load(&b->done[index])};
    size_t size = key[1] % 10 ? 100 : 40000;
    char *data = filled(size, key[1]);
    CHECK_OK(hutch_put(b->family.cache, key, sizeof key, data, size, NULL, NULL));
    CHECK_OK(hutch_contains(b->family.cache, key, sizeof key));
    free(data);
    atomic_fetch_add(&b->done[index], 1);
  }
}

TEST(a_fork_amid_puts_loses_nothing) {
  static busy b;
  make_family(&b.family);
  run_threads(4, put_and_fork, &b);
  end_family(&b.family);
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (uint32_t index = 0; index < 3; index++)
    for (uint32_t n = 0; n < b.done[index]; n++) {
      uint32_t key[2] = {index, n};
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(cache, key, sizeof key, &value));
      size_t size = n % 10 ? 100 : 40000;
      char *data = filled(size, n);
      CHECK_BYTES(data, size, hutch_value_data(value), hutch_value_size(value));
      free(data);
      hutch_value_release(value);
    }
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------- a second process */

PROCESS(holds_the_directory, directory) {
  hutch_options options = exclusive_options();
  hutch_cache *cache = open_cache(directory, &options);
  CHECK_OK(put_text(cache, "key", "of the second"));
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

TEST(a_directory_can_be_one_processs_alone) {
  path directory = scratch("cache");
  process other = start_process("holds_the_directory", directory.text);
  await_ready(&other);
  char mark;
  hutch_cache *cache = (hutch_cache *)&mark;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, NULL, &cache));
  CHECK(!cache);
  CHECK_EQUAL(HUTCH_BUSY, last_error().status);
  CHECK(last_error().words[0] != '\0');
  CHECK_EQUAL(0, end_process(&other));
  cache = open_cache(directory.text, NULL);
  CHECK_TEXT(cache, "key", "of the second");
  CHECK_OK(hutch_close(cache));
}

PROCESS(ends_before_its_child, directory) {
  hutch_options options = exclusive_options();
  hutch_cache *cache = open_cache(directory, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  if (fork() == 0) {
    tell_ready();
    await_end();
    _exit(0);
  }
  /* Ends without closing, and leaves a child that has all its descriptors. */
  _exit(0);
}

TEST(a_child_keeps_the_directory_of_an_ended_parent) {
  path directory = scratch("cache");
  process parent = start_process("ends_before_its_child", directory.text);
  int status;
  await_ready(&parent);
  CHECK(waitpid(parent.pid, &status, 0) == parent.pid && status == 0);
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, NULL, &cache));
  /* Now the child may end, and has ended when the pipe has no writer any more. */
  char byte;
  close(parent.to);
  CHECK(read(parent.from, &byte, 1) == 0);
  while (hutch_open(directory.text, NULL, &cache) == HUTCH_BUSY) nap();
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

PROCESS(looks_at_its_descriptors, directory) {
  DIR *descriptors = opendir("/proc/self/fd");
  CHECK(descriptors);
  for (struct dirent *entry; (entry = readdir(descriptors));) {
    char target[4096] = "";
    CHECK(readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target - 1) >= -1);
    CHECK(strncmp(target, directory, strlen(directory)) != 0);
  }
  closedir(descriptors);
}

TEST(a_new_program_inherits_no_descriptor) {
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, NULL);
  CHECK_OK(put_size(cache, "key", 100000));
  CHECK_OK(hutch_contains(cache, KEY("key")));
  process other = start_process("looks_at_its_descriptors", directory.text);
  CHECK_EQUAL(0, end_process(&other));
  CHECK_OK(hutch_close(cache));
}
