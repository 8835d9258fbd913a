/*
 * A matrix: every public function (matrix_calls.c) is called from within every callback (here),
 * on the cache that makes the callback, on its tier views, and on another cache.
 *
 * What it is to show is that a callback may call what it likes: a call that waits for its own
 * caller says so (HUTCH_DEADLOCK), every other one does what it does elsewhere, and none hangs.
 * Left out are the clock, which must not call the library, and a codec's calls on its own cache.
 */
#define _GNU_SOURCE
#include "matrix.h"

#include <signal.h>
#include <unistd.h>

/* --------------------------------------------------------------------- stages */

/* A cache whose callback is to make the calls, and another one. */
typedef struct stage {
  const char *callback;
  hutch_options options;
  test_clock clock;
  path directory, other_directory;
  hutch_cache *cache, *other;
  hutch_queue *queue, *other_queue; /* of the caches, or a host's */
  hutch_buffer *buffer;
  bool is_own, is_own_queue, is_closed, is_down;
  bool only_other;   /* calls on its own cache are none of this callback's */
  uint32_t kind;     /* a listener's */
  _Atomic int begun; /* work that waits for its cache's close */
  _Atomic int entered, left;
} stage;

static void *enter(stage *s) {
  if (atomic_exchange(&s->entered, 1)) return NULL;
  for (uint32_t tier = 0; !s->only_other && tier <= HUTCH_TIER_DISK; tier++) {
    place here = {.callback = s->callback, .cache = s->cache, .tier = tier,
                  .directory = s->directory.text, .is_own = s->is_own,
                  .is_closed = s->is_closed, .is_down = s->is_down, .queue = s->queue,
                  .is_own_queue = s->is_own_queue, .buffer = s->buffer};
    if (tier && s->is_closed) break;
    if (tier) here.cache = tier_of(s->cache, tier);
    call_everything(&here);
    if (tier) hutch_cache_release(here.cache);
  }
  place elsewhere = {.callback = s->callback, .cache = s->other,
                     .directory = s->other_directory.text, .queue = s->other_queue,
                     .buffer = s->buffer};
  call_everything(&elsewhere);
  atomic_store(&s->left, 1);
  return NULL;
}

/* As a release function, and as a loader's. */
static void enter_here(void *context) { enter(context); }
static void no_release(void *context) { (void)context; }

/* The callback is one of the cache's, unless the caller says otherwise afterwards. */
static void prepare(stage *s, const char *callback) {
  static int number;
  char name[32];
  *s = (stage){.callback = callback, .is_own = true, .is_own_queue = true};
  s->options = unlimited_options();
  snprintf(name, sizeof name, "own %d", ++number);
  s->directory = scratch(name);
  snprintf(name, sizeof name, "other %d", number);
  s->other_directory = scratch(name);
  s->other = open_cache(s->other_directory.text, NULL);
  CHECK_OK(hutch_cache_queue(s->other, &s->other_queue));
}

static void open_stage(stage *s) {
  s->cache = open_cache(s->directory.text, &s->options);
  CHECK_OK(hutch_cache_queue(s->cache, &s->queue));
}

static void begin(stage *s, const char *callback) {
  prepare(s, callback);
  open_stage(s);
}

/* The callback may be another thread's. */
static void await_callback(stage *s) {
  while (!atomic_load(&s->left)) usleep(1000);
}

static void end_other(stage *s) {
  CHECK(atomic_load(&s->left));
  hutch_queue_release(s->other_queue);
  CHECK_OK(hutch_close(s->other));
  check_everything_released();
}

static void end(stage *s) {
  hutch_queue_release(s->queue);
  hutch_status status = hutch_close(s->cache);
  CHECK(status == HUTCH_OK || (s->is_down && status == HUTCH_IO));
  end_other(s);
}

/* ------------------------------------------------------------------- listeners */

static void hear(void *context, const hutch_event *event) {
  stage *s = context;
  if (event->kind == s->kind) enter(s);
}

static void listen_for(stage *s, uint32_t kind) {
  s->kind = kind;
  CHECK_OK(hutch_set_listener(s->cache, HUTCH_EVENT_ALL, hear, s, no_release));
}

static void test_listener(const char *callback, uint32_t kind,
                          hutch_status (*cause)(hutch_cache *cache)) {
  stage s;
  begin(&s, callback);
  CHECK_OK(put_text(s.cache, "first", "value"));
  listen_for(&s, kind);
  /* What the calls have done to the entry is theirs. */
  CHECK(cause(s.cache) >= HUTCH_OK);
  await_callback(&s);
  end(&s);
}

static hutch_status put_first(hutch_cache *cache) { return put_text(cache, "first", "again"); }
static hutch_status remove_first(hutch_cache *cache) { return hutch_remove(cache, KEY("first")); }
static hutch_status warn(hutch_cache *cache) {
  return hutch_notify(cache, HUTCH_NOTIFY_MEMORY_WARNING);
}
static hutch_status leave(hutch_cache *cache) {
  return hutch_notify(cache, HUTCH_NOTIFY_ENTERED_BACKGROUND);
}

TEST(from_a_listener_of_a_put_to_come) {
  test_listener("listener, will add", HUTCH_EVENT_WILL_ADD, put_first);
}
TEST(from_a_listener_of_a_put) {
  test_listener("listener, did add", HUTCH_EVENT_DID_ADD, put_first);
}
TEST(from_a_listener_of_a_removal_to_come) {
  test_listener("listener, will remove", HUTCH_EVENT_WILL_REMOVE, remove_first);
}
TEST(from_a_listener_of_a_removal) {
  test_listener("listener, did remove", HUTCH_EVENT_DID_REMOVE, remove_first);
}
TEST(from_a_listener_of_a_replacement) {
  test_listener("listener, replaced", HUTCH_EVENT_DID_REMOVE, put_first);
}
TEST(from_a_listener_of_a_clear_to_come) {
  test_listener("listener, will clear", HUTCH_EVENT_WILL_CLEAR, hutch_clear);
}
TEST(from_a_listener_of_a_clear) {
  test_listener("listener, did clear", HUTCH_EVENT_DID_CLEAR, hutch_clear);
}
TEST(from_a_listener_of_a_memory_warning) {
  test_listener("listener, memory warning", HUTCH_EVENT_MEMORY_WARNING, warn);
}
TEST(from_a_listener_of_the_background) {
  test_listener("listener, entered background", HUTCH_EVENT_ENTERED_BACKGROUND, leave);
}

TEST(from_a_listener_of_an_eviction) {
  stage s;
  prepare(&s, "listener, evicted");
  s.options.memory.count = s.options.disk.count = 3;
  open_stage(&s);
  for (int i = 0; i < 3; i++) CHECK_OK(put_text(s.cache, (char[]){(char)('a' + i), 0}, "value"));
  listen_for(&s, HUTCH_EVENT_DID_REMOVE);
  CHECK_OK(put_text(s.cache, "d", "value"));
  await_callback(&s);
  end(&s);
}

/* On the library's thread. */
TEST(from_a_listener_of_maintenance) {
  stage s;
  prepare(&s, "listener, expired");
  use_clock(&s.options, &s.clock);
  open_stage(&s);
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_SECOND;
  CHECK_OK(hutch_put(s.cache, KEY("short"), KEY("value"), &options, NULL));
  listen_for(&s, HUTCH_EVENT_DID_REMOVE);
  s.clock.now += HUTCH_MINUTE;
  /* Maintenance goes by the time of the last call. */
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(s.cache, KEY("nothing")));
  await_callback(&s);
  end(&s);
}

TEST(from_a_listener_of_a_tier_that_goes_down_and_up) {
  for (uint32_t kind = HUTCH_EVENT_TIER_DOWN; kind <= HUTCH_EVENT_TIER_UP; kind *= 2) {
    stage s;
    prepare(&s, kind == HUTCH_EVENT_TIER_DOWN ? "listener, tier down" : "listener, tier up");
    s.is_down = true;
    path away = new_path();
    open_stage(&s);
    listen_for(&s, kind);
    CHECK(rename(s.directory.text, away.text) == 0);
    while (put_text(s.cache, "b", "2") == HUTCH_OK) continue;
    if (kind == HUTCH_EVENT_TIER_UP) CHECK(rename(away.text, s.directory.text) == 0);
    await_callback(&s);
    end(&s);
  }
}

TEST(from_the_release_of_a_listener) {
  for (int how = 0; how < 3; how++) {
    static const char *const names[] = {"listener's release", "release of a refused listener",
                                        "listener's release by the close"};
    stage s;
    begin(&s, names[how]);
    if (how == 1) {
      CHECK_STATUS(HUTCH_UNSUPPORTED,
                   hutch_set_listener(s.cache, HUTCH_EVENT_ALL + 1, hear, &s, enter_here));
    } else {
      CHECK_OK(hutch_set_listener(s.cache, HUTCH_EVENT_ALL, hear, &s, enter_here));
    }
    if (how == 0) CHECK_OK(hutch_set_listener(s.cache, 0, NULL, NULL, NULL));
    if (how == 2) {
      s.is_closed = true;
      hutch_cache_retain(s.cache);
      CHECK_OK(hutch_close(s.cache));
      hutch_queue_release(s.queue);
      hutch_cache_release(s.cache);
      end_other(&s);
    } else {
      end(&s);
    }
  }
}

/* --------------------------------------------------------------------- loggers */

static void note_line(void *context, const hutch_log_record *record) {
  (void)record;
  enter(context);
}

static hutch_status fail_to_load(void *context, const void *key, size_t key_size,
                                 hutch_loading *loading) {
  (void)context, (void)key, (void)key_size, (void)loading;
  return 5;
}

/* Loaders that fail are logged. */
static void cause_a_line(stage *s) {
  hutch_value *value;
  CHECK_STATUS(HUTCH_LOAD_FAILED,
               hutch_load(s->cache, KEY("fails"), fail_to_load, NULL, NULL, &value));
}

TEST(from_a_logger) {
  for (int own = 0; own < 2; own++) {
    stage s;
    begin(&s, own ? "logger" : "default logger");
    if (own) CHECK_OK(hutch_set_logger(s.cache, HUTCH_LOG_DEBUG, note_line, &s, no_release));
    else CHECK_OK(hutch_set_default_logger(HUTCH_LOG_DEBUG, note_line, &s, no_release));
    cause_a_line(&s);
    CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
    end(&s);
  }
}

TEST(from_the_release_of_a_logger) {
  stage s;
  begin(&s, "logger's release");
  CHECK_OK(hutch_set_logger(s.cache, HUTCH_LOG_DEBUG, note_line, &s, enter_here));
  CHECK_OK(hutch_set_logger(s.cache, 0, NULL, NULL, NULL));
  end(&s);
  begin(&s, "logger's release by the close");
  CHECK_OK(hutch_set_logger(s.cache, HUTCH_LOG_DEBUG, note_line, &s, enter_here));
  s.is_closed = true;
  hutch_cache_retain(s.cache);
  CHECK_OK(hutch_close(s.cache));
  hutch_queue_release(s.queue);
  hutch_cache_release(s.cache);
  end_other(&s);
  /* The default logger's release is no callback. */
  begin(&s, "default logger's release");
  s.is_own = s.is_own_queue = false;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_DEBUG, note_line, &s, enter_here));
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
  end(&s);
}

/* --------------------------------------------------------------------- loaders */

static hutch_status load_here(void *context, const void *key, size_t key_size,
                              hutch_loading *loading) {
  enter(context);
  /* A clear was among the calls. */
  CHECK_STATUS(HUTCH_SUPERSEDED, hutch_loading_fulfil(loading, key, key_size, NULL));
  return HUTCH_OK;
}
static hutch_status load_there(void *context, const void *key, size_t key_size,
                               hutch_loading *loading) {
  (void)context;
  CHECK_OK(hutch_loading_fulfil(loading, key, key_size, NULL));
  return HUTCH_OK;
}

TEST(from_a_loader) {
  stage s;
  hutch_value *value;
  begin(&s, "loader");
  CHECK_OK(hutch_load(s.cache, KEY("k"), load_here, &s, NULL, &value));
  hutch_value_release(value);
  end(&s);
  begin(&s, "loader on a worker");
  CHECK_OK(hutch_load_async(s.cache, KEY("k"), load_here, &s, no_release, NULL, NULL, NULL));
  await_callback(&s);
  end(&s);
}

TEST(from_the_release_of_a_loader) {
  stage s;
  begin(&s, "loader's release");
  CHECK_OK(hutch_load_async(s.cache, KEY("k"), load_there, &s, enter_here, NULL, NULL, NULL));
  await_callback(&s);
  end(&s);
  begin(&s, "release of a refused loader");
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load_async(s.cache, NULL, 0, load_there, &s,
                                                        enter_here, NULL, NULL, NULL));
  end(&s);
}

/* ----------------------------------------------------------------------- tasks */

static void complete_here(void *context, const hutch_completion *completion) {
  (void)completion;
  enter(context);
}
static int32_t progress_here(void *context, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  enter(context);
  return 0;
}
static hutch_status work_here(void *context, hutch_task *task) {
  (void)task;
  enter(context);
  return HUTCH_OK;
}
static hutch_status no_work(void *context, hutch_task *task) {
  (void)context, (void)task;
  return HUTCH_OK;
}

static hutch_task_options task_options(stage *s) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options), .context = s};
}

TEST(from_a_completion) {
  stage s;
  hutch_task_options options;
  begin(&s, "completion");
  options = task_options(&s);
  options.complete = complete_here;
  CHECK_OK(hutch_put_async(s.cache, KEY("k"), KEY("v"), NULL, &options, NULL));
  await_callback(&s);
  end(&s);
}

/* Whatever queue the port is drained for: the callback is one of the cache's. */
TEST(from_a_completion_that_a_port_makes) {
  for (int closes = 0; closes < 2; closes++) {
    stage s;
    hutch_port *port;
    hutch_task *task;
    begin(&s, closes ? "completion, by the close of a port" : "completion, drained");
    hutch_task_options options = task_options(&s);
    CHECK_OK(hutch_port_create(&port));
    options.complete = complete_here;
    options.port = port;
    CHECK_OK(hutch_put_async(s.cache, KEY("k"), KEY("v"), NULL, &options, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    hutch_task_release(task);
    if (closes) CHECK_OK(hutch_port_close(port, HUTCH_PORT_DRAIN));
    else CHECK_OK(hutch_port_drain(port, 0, NULL));
    hutch_port_release(port);
    end(&s);
  }
}

TEST(from_the_release_of_a_completion) {
  for (int how = 0; how < 5; how++) {
    static const char *const names[] = {"completion's release", "completion's release, drained",
                                        "completion's release, discarded",
                                        "completion's release, port gone",
                                        "release of a refused task"};
    stage s;
    hutch_port *port = NULL;
    hutch_task *task;
    begin(&s, names[how]);
    hutch_task_options options = task_options(&s);
    options.release = enter_here;
    if (how >= 1 && how <= 3) CHECK_OK(hutch_port_create(&port));
    options.port = port;
    if (how == 4) {
      CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get_async(s.cache, NULL, 0, &options, NULL));
    } else {
      CHECK_OK(hutch_put_async(s.cache, KEY("k"), KEY("v"), NULL, &options, &task));
      CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
      hutch_task_release(task);
    }
    if (how == 1) CHECK_OK(hutch_port_drain(port, 0, NULL));
    if (how == 2) CHECK_OK(hutch_port_close(port, HUTCH_PORT_DISCARD));
    hutch_port_release(port);
    await_callback(&s);
    end(&s);
  }
}

TEST(from_progress) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
  for (int how = 0; how < 3; how++) {
    static const char *const names[] = {"progress of a trim", "progress of a trim, on a worker",
                                        "progress of a clear, on a worker"};
    stage s;
    begin(&s, names[how]);
    for (int i = 0; i < 20; i++) CHECK_OK(hutch_put(s.cache, &i, sizeof i, "v", 1, NULL, NULL));
    hutch_task_options options = task_options(&s);
    options.progress = progress_here;
    if (how == 0) {
      hutch_trim_spec told = spec;
      told.progress = progress_here;
      told.context = &s;
      CHECK_OK(hutch_trim(s.cache, &told, NULL));
    } else if (how == 1) {
      CHECK_OK(hutch_trim_async(s.cache, &spec, &options, NULL));
    } else {
      CHECK_OK(hutch_clear_async(s.cache, &options, NULL));
    }
    await_callback(&s);
    end(&s);
  }
}

/* ---------------------------------------------------------------------- queues */

/* On a queue of the host's, whose callbacks are not the cache's. */
static void begin_on_queue(stage *s, const char *callback, uint32_t flags) {
  begin(s, callback);
  hutch_queue_release(s->queue);
  hutch_queue_options options = {.struct_size = sizeof options, .flags = flags};
  CHECK_OK(hutch_queue_create(&options, &s->queue));
  s->is_own = false;
}

static void run_queue(stage *s, uint32_t flags) {
  if (flags) CHECK_OK(hutch_queue_run(s->queue, 0, NULL));
  await_callback(s);
  /* What its calls have submitted. */
  if (flags) CHECK_OK(hutch_queue_run(s->queue, 0, NULL));
  CHECK_OK(hutch_queue_wait_all(s->queue, HUTCH_FOREVER));
}

TEST(from_work) {
  for (uint32_t flags = 0; flags <= HUTCH_QUEUE_NO_THREADS; flags++) {
    stage s;
    begin_on_queue(&s, flags ? "work, by hutch_queue_run" : "work", flags);
    CHECK_OK(hutch_queue_submit(s.queue, work_here, &s, NULL, NULL, NULL));
    run_queue(&s, flags);
    end(&s);
    begin_on_queue(&s, flags ? "work's release, by hutch_queue_run" : "work's release", flags);
    CHECK_OK(hutch_queue_submit(s.queue, no_work, &s, enter_here, NULL, NULL));
    run_queue(&s, flags);
    end(&s);
    begin_on_queue(&s, "completion of work", flags);
    hutch_task_options options = task_options(&s);
    options.complete = complete_here;
    CHECK_OK(hutch_queue_submit(s.queue, no_work, &s, NULL, &options, NULL));
    run_queue(&s, flags);
    end(&s);
    begin_on_queue(&s, "release of cancelled work", flags);
    hutch_task *task;
    CHECK_OK(hutch_queue_suspend(s.queue));
    CHECK_OK(hutch_queue_submit(s.queue, no_work, &s, enter_here, NULL, &task));
    CHECK_OK(hutch_task_cancel(task, NULL));
    hutch_task_release(task);
    CHECK_OK(hutch_queue_resume(s.queue));
    run_queue(&s, flags);
    end(&s);
  }
}

TEST(from_work_on_a_caches_queue) {
  stage s;
  begin(&s, "work on a cache's queue");
  CHECK_OK(hutch_queue_submit(s.queue, work_here, &s, NULL, NULL, NULL));
  await_callback(&s);
  end(&s);
  begin(&s, "work's release on a cache's queue");
  CHECK_OK(hutch_queue_submit(s.queue, no_work, &s, enter_here, NULL, NULL));
  await_callback(&s);
  end(&s);
}

/* In a cache without workers hutch_maintain runs its tasks, on the host's thread. */
TEST(from_a_completion_that_maintenance_makes) {
  stage s;
  prepare(&s, "completion, by hutch_maintain");
  s.options.flags |= HUTCH_OPEN_NO_THREADS;
  open_stage(&s);
  hutch_task_options options = task_options(&s);
  options.complete = complete_here;
  CHECK_OK(hutch_get_async(s.cache, KEY("k"), &options, NULL));
  CHECK_OK(hutch_maintain(s.cache, 0));
  end(&s);
}

static void merge_here(void *into, void *from) {
  (void)from;
  enter(into);
}

TEST(from_a_merge) {
  stage s;
  begin_on_queue(&s, "merge", 0);
  hutch_task_options options = task_options(&s);
  options.identifier = "same";
  options.identifier_size = 4;
  options.merge = merge_here;
  CHECK_OK(hutch_queue_suspend(s.queue));
  for (int i = 0; i < 2; i++)
    CHECK_OK(hutch_queue_submit(s.queue, no_work, &s, NULL, &options, NULL));
  CHECK_OK(hutch_queue_resume(s.queue));
  run_queue(&s, 0);
  end(&s);
}

TEST(from_a_groups_completion) {
  for (int released = 0; released < 2; released++) {
    stage s;
    hutch_group *group;
    begin_on_queue(&s, released ? "release of a group's completion" : "group's completion", 0);
    CHECK_OK(hutch_group_create(s.queue, &group));
    hutch_task_options of_task = {.struct_size = sizeof of_task, .group = group};
    CHECK_OK(hutch_queue_submit(s.queue, no_work, NULL, NULL, &of_task, NULL));
    hutch_task_options options = task_options(&s);
    if (released) options.release = enter_here;
    else options.complete = complete_here;
    CHECK_OK(hutch_group_start(group, &options));
    hutch_group_release(group);
    run_queue(&s, 0);
    end(&s);
  }
}

/* ---------------------------------------------------- while a cache is being closed */

/* A close waits for what runs, and must not have anything then that this could want. */

/* Work that has not begun when the close does is none of it. */
static void await_work(stage *s) {
  while (!atomic_load(&s->begun)) usleep(1000);
}

static void await_close(stage *s) {
  atomic_store(&s->begun, 1);
  while (hutch_queue_submit(s->queue, no_work, NULL, NULL, NULL, NULL) != HUTCH_CLOSED)
    usleep(1000);
}

/* Once the close has begun to wait. */
static void enter_when_closed(stage *s) {
  await_close(s);
  s->is_closed = true;
  enter(s);
}

static hutch_status work_when_closed(void *context, hutch_task *task) {
  (void)task;
  enter_when_closed(context);
  return HUTCH_OK;
}

static void end_closed(stage *s) {
  hutch_queue_release(s->queue);
  hutch_cache_release(s->cache);
  end_other(s);
}

TEST(from_work_while_its_cache_is_being_closed) {
  stage s;
  prepare(&s, "work, while its cache is being closed");
  s.options.close_deadline = HUTCH_FOREVER;
  open_stage(&s);
  hutch_cache_retain(s.cache);
  CHECK_OK(hutch_queue_submit(s.queue, work_when_closed, &s, NULL, NULL, NULL));
  await_work(&s);
  CHECK_OK(hutch_close(s.cache));
  end_closed(&s);
}

static int32_t progress_when_closed(void *context, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  enter_when_closed(context);
  return 0;
}

static void trim_or_close(void *context, int index) {
  stage *s = context;
  if (index == 0) {
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT,
                            .progress = progress_when_closed, .context = s};
    hutch_status status = hutch_trim(s->cache, &spec, NULL);
    CHECK(status == HUTCH_OK || status == HUTCH_CLOSED);
    return;
  }
  await_work(s);
  CHECK_OK(hutch_close(s->cache));
}

TEST(from_progress_while_its_cache_is_being_closed) {
  stage s;
  begin(&s, "progress, while its cache is being closed");
  for (int i = 0; i < 20; i++) CHECK_OK(hutch_put(s.cache, &i, sizeof i, "v", 1, NULL, NULL));
  hutch_cache_retain(s.cache);
  run_threads(2, trim_or_close, &s);
  end_closed(&s);
}

/* The directory itself: another thread waits until it is closed; who is waited for is told. */
static hutch_status open_when_closed(void *context, hutch_task *task) {
  (void)task;
  stage *s = context;
  hutch_cache *cache;
  await_close(s);
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_open(s->directory.text, &s->options, &cache));
  CHECK(!cache);
  atomic_store(&s->left, 1);
  return HUTCH_OK;
}

static void close_or_open(void *context, int index) {
  stage *s = context;
  if (index == 0) {
    CHECK_OK(hutch_close(s->cache));
    return;
  }
  hutch_cache *cache;
  while (hutch_contains(s->cache, KEY("key")) != HUTCH_CLOSED) usleep(1000);
  CHECK_OK(hutch_open(s->directory.text, &s->options, &cache));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(a_directory_that_is_being_closed_is_opened_afterwards) {
  stage s;
  begin(&s, "open, while the directory is being closed");
  CHECK_OK(put_text(s.cache, "key", "value"));
  hutch_cache_retain(s.cache);
  CHECK_OK(hutch_queue_submit(s.queue, open_when_closed, &s, NULL, NULL, NULL));
  await_work(&s);
  run_threads(2, close_or_open, &s);
  end_closed(&s);
}

/* -------------------------------------------------------------------- visitors */

static int32_t visit_here(void *context, const void *key, size_t key_size,
                          const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  enter(context);
  return 0;
}

TEST(from_a_visitor) {
  stage s;
  begin(&s, "visitor");
  CHECK_OK(put_text(s.cache, "key", "value"));
  CHECK_OK(hutch_each(s.cache, visit_here, &s));
  end(&s);
}

/* ---------------------------------------------------------------------- codecs */

static hutch_status code(stage *s, const void *input, size_t size, hutch_buffer *output) {
  s->buffer = output;
  enter(s);
  void *room = hutch_buffer_resize(output, size);
  CHECK(room);
  memcpy(room, input, size);
  return HUTCH_OK;
}
static hutch_status copy(void *context, const void *input, size_t size, hutch_buffer *output) {
  (void)context;
  memcpy(hutch_buffer_resize(output, size), input, size);
  return HUTCH_OK;
}
static hutch_status code_here(void *context, const void *input, size_t size,
                              hutch_buffer *output) {
  return code(context, input, size, output);
}

TEST(from_a_codec) {
  for (int decodes = 0; decodes < 2; decodes++) {
    stage s;
    prepare(&s, decodes ? "codec, decode" : "codec, encode");
    s.only_other = true;
    s.options.codec_id = 7;
    s.options.codec_encode = decodes ? copy : code_here;
    s.options.codec_decode = decodes ? code_here : copy;
    s.options.codec_context = &s;
    open_stage(&s);
    CHECK_OK(put_text(s.cache, "key", "value"));
    hutch_cache *disk = tier_of(s.cache, HUTCH_TIER_DISK);
    CHECK_TEXT(disk, "key", "value");
    hutch_cache_release(disk);
    end(&s);
  }
}

static int64_t read_stage(void *context) { return ((stage *)context)->clock.now; }

/* By the last reference to the cache, and by an opening that fails: there is no cache then. */
TEST(from_the_release_of_a_codec_or_a_clock) {
  for (int how = 0; how < 4; how++) {
    static const char *const names[] = {"codec's release", "clock's release",
                                        "release of a refused codec",
                                        "release of a refused clock"};
    stage s;
    prepare(&s, names[how]);
    s.only_other = true;
    if (how % 2) {
      s.clock.now = HUTCH_DAY;
      s.options.clock = read_stage;
      s.options.clock_context = &s;
      s.options.clock_release = enter_here;
    } else {
      s.options.codec_id = 7;
      s.options.codec_encode = s.options.codec_decode = copy;
      s.options.codec_context = &s;
      s.options.codec_release = enter_here;
    }
    if (how >= 2) {
      hutch_cache *cache;
      s.options.policy = 77;
      CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(s.directory.text, &s.options, &cache));
      end_other(&s);
    } else {
      open_stage(&s);
      hutch_queue_release(s.queue);
      CHECK_OK(hutch_close(s.cache));
      end_other(&s);
    }
  }
}

/* --------------------------------------------------------------------- objects */

TEST(from_the_release_of_an_object) {
  for (int how = 0; how < 4; how++) {
    static const char *const names[] = {"object's release, on a worker",
                                        "object's release, by hutch_drain_releases",
                                        "release of a refused object",
                                        "object's release by the close"};
    stage s;
    prepare(&s, names[how]);
    if (how == 1) s.options.flags |= HUTCH_OPEN_DRAIN_RELEASES;
    open_stage(&s);
    if (how == 2) {
      CHECK_STATUS(HUTCH_INVALID_ARGUMENT,
                   hutch_put_object(s.cache, NULL, 0, &s, enter_here, NULL));
    } else {
      CHECK_OK(hutch_put_object(s.cache, KEY("object"), &s, enter_here, NULL));
      if (how < 2) CHECK_OK(hutch_remove_object(s.cache, KEY("object")));
      if (how == 1) CHECK_OK(hutch_drain_releases(s.cache, 0, NULL));
    }
    if (how == 3) {
      s.is_closed = true;
      hutch_cache_retain(s.cache);
      CHECK_OK(hutch_close(s.cache));
      hutch_queue_release(s.queue);
      hutch_cache_release(s.cache);
      end_other(&s);
    } else {
      await_callback(&s);
      end(&s);
    }
  }
}
