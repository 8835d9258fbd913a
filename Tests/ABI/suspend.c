/*
 * Quiet: between hutch_suspend and hutch_resume a cache does nothing of its own.
 *
 * That nothing happens is seen beside a cache that is not suspended, in which it does: as often as
 * that one has done its maintenance, the other would have.
 */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

typedef struct subject {
  hutch_cache *cache;
  test_clock clock;
  path directory;
  _Atomic int expired, released;
} subject;

static void hear(void *context, const hutch_event *event) {
  if (event->kind == HUTCH_EVENT_DID_REMOVE && event->cause == HUTCH_CAUSE_EXPIRED)
    atomic_fetch_add(&((subject *)context)->expired, 1);
}

static void release(void *object) { atomic_fetch_add(&((subject *)object)->released, 1); }

static void count_trash(void *context, const char *file, const struct stat *status) {
  (void)status;
  if (strstr(file, "/trash/")) ++*(int *)context;
}

static int trash_of(subject *s) {
  int files = 0;
  each_file(s->directory.text, count_trash, &files);
  return files;
}

static hutch_status suspend(void *context, hutch_task *task) {
  (void)task;
  return hutch_suspend(context);
}

static void begin(subject *s, const char *name, bool suspended) {
  hutch_options options = unlimited_options();
  use_clock(&options, &s->clock);
  options.memory.count = options.disk.count = 50;
  options.workers = 1;
  s->directory = scratch(name);
  s->cache = open_cache(s->directory.text, &options);
  CHECK_OK(hutch_set_listener(s->cache, HUTCH_EVENT_DID_REMOVE, hear, s, NULL));
  if (!suspended) return;
  /* On the only worker: nothing else runs at that moment. */
  hutch_queue *queue;
  hutch_task *task;
  CHECK_OK(hutch_cache_queue(s->cache, &queue));
  CHECK_OK(hutch_queue_submit(queue, suspend, s->cache, NULL, NULL, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  hutch_queue_release(queue);
}

enum { FILES = 5 };

/* Gives maintenance everything to do that it does: an entry that expires in both tiers, files
   that have been removed, an object without a reference. */
static void leave_work(subject *s) {
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_SECOND;
  CHECK_OK(hutch_put(s->cache, KEY("short"), KEY("value"), &options, NULL));
  for (int i = 0; i < FILES; i++) {
    char key[] = {'f', (char)('0' + i), 0};
    CHECK_OK(put_size(s->cache, key, 50000));
    CHECK_OK(hutch_remove(s->cache, KEY(key)));
  }
  CHECK_OK(hutch_put_object(s->cache, KEY("object"), s, release, NULL));
  CHECK_OK(hutch_remove_object(s->cache, KEY("object")));
  s->clock.now += HUTCH_MINUTE;
  /* Maintenance goes by the time of the last call. */
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(s->cache, KEY("nothing")));
}

static void await_maintenance(subject *s, int times) {
  while (atomic_load(&s->expired) < 2 * times || atomic_load(&s->released) < times ||
         trash_of(s) > 0)
    usleep(10000);
}

TEST(a_suspended_cache_does_no_maintenance_and_makes_up_for_it) {
  static subject quiet, busy;
  begin(&quiet, "quiet", true);
  begin(&busy, "busy", false);
  leave_work(&quiet);
  for (int times = 1; times <= 2; times++) {
    leave_work(&busy);
    await_maintenance(&busy, times);
  }
  CHECK_EQUAL(0, quiet.expired);
  CHECK_EQUAL(0, quiet.released);
  CHECK_EQUAL(FILES, trash_of(&quiet));

  /* Calls are served: no call finds an expired entry, though it is there, and limits hold. */
  CHECK_MISSING(quiet.cache, "short");
  for (uint32_t i = 0; i < 200; i++)
    CHECK_OK(hutch_put(quiet.cache, &i, sizeof i, "v", 1, NULL, NULL));
  hutch_cache *memory = tier_of(quiet.cache, HUTCH_TIER_MEMORY);
  CHECK(count_of(memory) <= 50);
  hutch_cache_release(memory);

  /* A second one asks for a resume of its own. */
  CHECK_OK(hutch_suspend(quiet.cache));
  CHECK_OK(hutch_resume(quiet.cache));
  leave_work(&busy);
  await_maintenance(&busy, 3);
  CHECK_EQUAL(0, quiet.released);
  CHECK_OK(hutch_resume(quiet.cache));
  while (!atomic_load(&quiet.released) || trash_of(&quiet) > 0) usleep(10000);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_resume(quiet.cache));
  CHECK(strstr(hutch_error_words(), "cache"));

  /* What is left to expire goes now, too. Memory has room, so it keeps the entry until then. */
  for (uint32_t i = 0; i < 200; i++) hutch_remove(quiet.cache, &i, sizeof i);
  quiet.expired = quiet.released = 0;
  leave_work(&quiet);
  await_maintenance(&quiet, 1);
  CHECK_OK(hutch_close(quiet.cache));
  CHECK_OK(hutch_close(busy.cache));
}

/* The host's own call is not the cache's. */
TEST(a_suspended_cache_is_maintained_by_call) {
  static subject s;
  begin(&s, "suspended", true);
  leave_work(&s);
  CHECK_EQUAL(FILES, trash_of(&s));
  CHECK_OK(hutch_maintain(s.cache, 0));
  CHECK_EQUAL(2, s.expired);
  CHECK_EQUAL(1, s.released);
  CHECK_EQUAL(0, trash_of(&s));
  CHECK_OK(hutch_resume(s.cache));
  CHECK_OK(hutch_close(s.cache));
}
