/* Forks that cannot hand a cache on, or not all of it; and what each process lets go of. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/syscall.h>
#include <unistd.h>

static hutch_options options_for(uint32_t sharing) {
  hutch_options options = unlimited_options();
  options.sharing = sharing;
  return options;
}

/* ------------------------------------------------------------ what cannot be */

typedef struct gatekeeper {
  int begun[2], go_on[2];
  hutch_cache *cache;
  size_t size;
} gatekeeper;

/* Whose next write to a file stalls; the program stands before libc here. */
static _Thread_local gatekeeper *stalls;

static void stall(void) {
  gatekeeper *g = stalls;
  char byte;
  if (!g) return;
  stalls = NULL;
  CHECK(write(g->begun[1], "", 1) == 1);
  CHECK(read(g->go_on[0], &byte, 1) == 1);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at);
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  stall();
  return (ssize_t)syscall(SYS_pwrite64, file, data, size, at);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at);
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  stall();
  return (ssize_t)syscall(SYS_pwrite64, file, data, size, at);
}

static void put_and_stall(void *context, int index) {
  gatekeeper *g = context;
  if (index == 0) {
    stalls = g;
    CHECK_OK(put_size(g->cache, "slow", g->size));
    CHECK(!stalls);
    return;
  }
  char byte;
  CHECK(read(g->begun[0], &byte, 1) == 1);
  bool late;
  pid_t child = fork_amid(&late);
  if (child == 0) {
    CHECK(late);
    hutch_cache *view = tier_of(g->cache, HUTCH_TIER_MEMORY), *disk = NULL, *second = NULL;
    hutch_put_result result = new_result();
    CHECK_STATUS(HUTCH_PARTIAL, hutch_put(g->cache, KEY("key"), KEY("value"), NULL, &result));
    CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
    CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
    CHECK_TEXT(g->cache, "key", "value");
    CHECK_TEXT(view, "key", "value");
    CHECK_MISSING(g->cache, "before");
    CHECK_EQUAL(HUTCH_STATE_DOWN, stats_of(g->cache).disk.state);
    CHECK_OK(hutch_tier(g->cache, HUTCH_TIER_DISK, &disk));
    check_every_call(disk, HUTCH_FORKED);
    CHECK_STATUS(HUTCH_FORKED, hutch_flush(g->cache));
    CHECK_STATUS(HUTCH_FORKED, hutch_open(scratch("cache").text, NULL, &second));
    CHECK_OK(hutch_maintain(g->cache, 0));
    hutch_cache *other = open_cache(scratch("other").text, NULL);
    CHECK_OK(put_text(other, "key", "value"));
    CHECK_OK(hutch_close(other));
    pid_t grandchild = fork_now();
    if (grandchild == 0) {
      CHECK_TEXT(g->cache, "key", "value");
      check_every_call(disk, HUTCH_FORKED);
      end_child();
    }
    await_child(grandchild);
    hutch_cache_release(disk);
    hutch_cache_release(view);
    CHECK_OK(hutch_close(g->cache));
    end_child();
  }
  await_child(child);
  CHECK(write(g->go_on[1], "", 1) == 1);
}

static void stall_with(size_t size) {
  gatekeeper g = {.size = size};
  CHECK(pipe(g.begun) == 0 && pipe(g.go_on) == 0);
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  g.cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(g.cache, "before", "value"));
  run_threads(2, put_and_stall, &g);
  CHECK_TEXT(g.cache, "before", "value");
  CHECK_EQUAL(size, info_of(g.cache, "slow").size);
  CHECK_OK(put_text(g.cache, "after", "value"));
  /* The next one has it. */
  pid_t child = fork_now();
  if (child == 0) {
    CHECK_OK(put_text(g.cache, "child", "value"));
    CHECK_OK(hutch_close(g.cache));
    end_child();
  }
  await_child(child);
  CHECK_TEXT(g.cache, "child", "value");
  CHECK_OK(hutch_close(g.cache));
}

TEST(a_commit_that_stalls_leaves_the_child_no_disk) { stall_with(10); }
/* Nothing but the call itself is in the way: it holds no lock. */
TEST(a_file_that_stalls_leaves_the_child_no_disk) { stall_with(100000); }

TEST(a_directory_that_came_back_goes_with_the_next_fork) {
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  options.flags |= HUTCH_OPEN_DISK_OPTIONAL;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int times = 0; times < 2; times++) {
    hutch_status status;
    while ((status = put_text(cache, "parent", "value")) == HUTCH_PARTIAL) nap();
    CHECK_OK(status);
    pid_t child = fork_now();
    if (child == 0) {
      CHECK_TEXT(cache, "parent", "value");
      CHECK_OK(put_text(cache, "child", times ? "second" : "first"));
      if (times) CHECK_OK(hutch_close(cache));
      end_child();
    }
    await_child(child);
    CHECK_TEXT(cache, "child", times ? "second" : "first");
    if (times == 0) {
      remove_tree(scratch("cache").text);
      let_notice(cache);
    }
  }
  CHECK_OK(hutch_close(cache));
}

typedef struct within {
  hutch_cache *cache, *memory;
  _Atomic int calls;
} within;

static void fork_within(within *w) {
  atomic_fetch_add(&w->calls, 1);
  pid_t child = fork_now();
  if (child == 0) {
    check_every_call(w->cache, HUTCH_FORKED);
    check_every_call(w->memory, HUTCH_FORKED);
    hutch_cache *cache = NULL;
    CHECK_STATUS(HUTCH_FORKED, hutch_open(scratch("cache").text, NULL, &cache));
    CHECK_STATUS(HUTCH_FORKED, hutch_close(w->cache));
    hutch_cache_release(w->memory);
    cache = open_cache(NULL, NULL);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  await_child(child);
}

static void fork_in_listener(void *context, const hutch_event *event) {
  (void)event;
  fork_within(context);
}
static hutch_status fork_in_loader(void *context, const void *key, size_t size,
                                   hutch_loading *loading) {
  (void)key, (void)size;
  fork_within(context);
  return hutch_loading_fulfil(loading, "made", 4, NULL);
}
static hutch_status fork_in_task(void *context, hutch_task *task) {
  (void)task;
  fork_within(context);
  return HUTCH_OK;
}

TEST(a_fork_within_a_callback_leaves_the_child_nothing) {
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  within w = {open_cache(scratch("cache").text, &options), open_cache(NULL, &options), 0};
  CHECK_OK(hutch_set_listener(w.cache, HUTCH_EVENT_WILL_ADD | HUTCH_EVENT_DID_ADD,
                              fork_in_listener, &w, NULL));
  CHECK_OK(put_text(w.cache, "key", "value"));
  CHECK_OK(hutch_set_listener(w.cache, 0, NULL, NULL, NULL));
  hutch_value *value = NULL;
  CHECK_OK(hutch_load(w.cache, KEY("load"), fork_in_loader, &w, NULL, &value));
  hutch_value_release(value);
  hutch_queue *queue;
  CHECK_OK(hutch_cache_queue(w.cache, &queue));
  CHECK_OK(hutch_queue_submit(queue, fork_in_task, &w, NULL, NULL, NULL));
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_queue_release(queue);
  CHECK_EQUAL(4, w.calls);
  CHECK_TEXT(w.cache, "key", "value");
  CHECK_TEXT(w.cache, "load", "made");
  CHECK_OK(hutch_close(w.cache));
  CHECK_OK(hutch_close(w.memory));
}

/* ---------------------------------------------------------- what is handed over */

typedef struct handed {
  int released, told;
} handed;

static void count_released(void *context) { ((handed *)context)->released++; }
static void count_told(void *context, const hutch_event *event) {
  (void)event;
  ((handed *)context)->told++;
}

static hutch_status copy_bytes(void *context, const void *input, size_t size,
                               hutch_buffer *output) {
  (void)context;
  void *room = hutch_buffer_resize(output, size);
  if (room == NULL) return HUTCH_NO_MEMORY;
  memcpy(room, input, size);
  return HUTCH_OK;
}

TEST(what_a_cache_was_given_each_process_lets_go_of_once) {
  handed listener = {0}, object = {0}, own = {0}, codec = {0};
  test_clock clock = {0};
  hutch_options options = options_for(HUTCH_SHARING_EXCLUSIVE);
  /* A thread of the parent that uses the clock during the fork keeps a reference to it in the
     child for ever. Without workers there is no such thread. */
  options.flags |= HUTCH_OPEN_DRAIN_RELEASES | HUTCH_OPEN_NO_THREADS;
  options.codec_id = 7;
  options.codec_encode = options.codec_decode = copy_bytes;
  options.codec_context = &codec;
  options.codec_release = count_released;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD, count_told, &listener, count_released));
  CHECK_OK(hutch_put_object(cache, KEY("object"), &object, count_released, NULL));
  CHECK_OK(hutch_put_object(cache, KEY("waits"), &object, count_released, NULL));
  CHECK_OK(hutch_remove_object(cache, KEY("waits")));
  pid_t child = fork_now();
  hutch_object *found = NULL;
  CHECK_OK(hutch_get_object(cache, KEY("object"), &found));
  CHECK(hutch_object_pointer(found) == &object);
  hutch_object_release(found);
  CHECK_OK(put_text(cache, child == 0 ? "child" : "parent", "value"));
  CHECK_EQUAL(1, listener.told);
  if (child == 0) {
    CHECK_OK(hutch_put_object(cache, KEY("own"), &own, count_released, NULL));
    CHECK_OK(hutch_remove_object(cache, KEY("own")));
    uint64_t drained = 0;
    CHECK_OK(hutch_drain_releases(cache, 0, &drained));
    CHECK_EQUAL(1, drained);
    CHECK_EQUAL(1, own.released);
  }
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, listener.released);
  CHECK_EQUAL(1, clock.released);
  CHECK_EQUAL(1, codec.released);
  CHECK_EQUAL(child == 0 ? 0 : 2, object.released);
  if (child == 0) end_child();
  await_child(child);
}
