/* One process on a directory that it shares (HUTCH_SHARING_SHARED), between its memory tier and its
   disk tier: conditions, which are decided with the commit. And a process that was alone, and does
   nothing of its own when another one comes. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

/* A clock that looks around whenever it is asked: between the commit of a put under a condition
   and what memory learns of it, say. */
typedef struct looking {
  hutch_cache *cache, *disk;
  bool looks, pops, is_within;
  int skips, asked, missed, older;
  char seen[16];
} looking;

static int64_t look(void *context) {
  looking *l = context;
  if (!l->looks || l->is_within || l->skips-- > 0) return 20500 * HUTCH_DAY;
  l->is_within = true;
  l->asked++;
  hutch_value *value = NULL, *below = NULL;
  hutch_status status = l->pops ? hutch_pop(l->cache, KEY("key"), &value)
                                : hutch_get(l->cache, KEY("key"), &value);
  if (status != HUTCH_OK) l->missed++;
  if (value) {
    memset(l->seen, 0, sizeof l->seen);
    memcpy(l->seen, hutch_value_data(value), hutch_value_size(value));
  }
  if (hutch_get(l->disk, KEY("key"), &below) == HUTCH_OK &&
      (!value || info_of_value(value).version < info_of_value(below).version))
    l->older++;
  if (l->pops && value) l->looks = false;
  hutch_value_release(value);
  hutch_value_release(below);
  l->is_within = false;
  return 20500 * HUTCH_DAY;
}

static void open_looking(looking *l) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.clock = look;
  options.clock_context = l;
  l->cache = open_cache(scratch("cache").text, &options);
  l->disk = tier_of(l->cache, HUTCH_TIER_DISK);
}

static void end_looking(looking *l) {
  l->looks = false;
  hutch_cache_release(l->disk);
  CHECK_OK(hutch_close(l->cache));
}

TEST(a_put_into_memory_alone_under_a_condition_leaves_no_moment_without_a_value) {
  looking l = {0};
  open_looking(&l);
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_DISK;
  CHECK_OK(hutch_put(l.cache, KEY("key"), KEY("old"), &options, NULL));
  options.write_policy = HUTCH_WRITE_MEMORY;
  hutch_put_result result = new_result();
  l.looks = true;
  CHECK_OK(hutch_replace(l.cache, KEY("key"), KEY("new"), &options, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_REMOVED, result.disk);
  CHECK(l.asked > 0);
  CHECK_EQUAL(0, l.missed);
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(l.cache, KEY("key"), KEY("x"), &options, NULL));
  CHECK_TEXT(l.cache, "key", "new");
  end_looking(&l);
}

TEST(what_is_seen_on_disk_is_not_followed_by_an_older_copy_in_memory) {
  looking l = {0};
  open_looking(&l);
  CHECK_OK(put_text(l.cache, "key", "old"));
  l.looks = true;
  CHECK_OK(hutch_replace(l.cache, KEY("key"), KEY("new"), NULL, NULL));
  l.looks = false;
  CHECK(l.asked > 0);
  CHECK_EQUAL(0, l.missed);
  CHECK_EQUAL(0, l.older);
  end_looking(&l);
}

TEST(what_memory_alone_had_is_not_taken_twice) {
  looking l = {0};
  open_looking(&l);
  hutch_cache *memory = tier_of(l.cache, HUTCH_TIER_MEMORY);
  for (int skips = 0; skips < 8; skips++) {
    CHECK_OK(put_text(memory, "key", "old"));
    l.skips = skips;
    uint64_t version = info_of(l.cache, "key").version;
    l.looks = l.pops = true;
    memset(l.seen, 0, sizeof l.seen);
    hutch_status status =
        hutch_compare_and_swap(l.cache, KEY("key"), version, KEY("new"), NULL, NULL);
    l.looks = l.pops = false;
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    if (status == HUTCH_OK && l.seen[0]) CHECK(strcmp(l.seen, "new") == 0);
  }
  hutch_cache_release(memory);
  end_looking(&l);
}

/* ------------------------------------------------- a process whose only worker is blocked */

static void block_until_the_end(void *context, const hutch_completion *completion) {
  (void)context, (void)completion;
  tell_ready();
  await_end();
}

PROCESS(reads_and_then_blocks_its_worker, directory) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  options.workers = 1;
  hutch_cache *cache = open_cache(directory, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "key", "value"));
  /* The reads after the first one use a transaction that the process keeps. */
  for (int i = 0; i < 3; i++) CHECK_TEXT(disk, "key", "value");
  hutch_cache_release(disk);
  hutch_task_options blocking = {.struct_size = sizeof blocking, .complete = block_until_the_end};
  hutch_task *task;
  CHECK_OK(hutch_get_async(cache, KEY("key"), &blocking, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_OK(hutch_close(cache));
}

TEST(a_process_whose_only_worker_is_blocked_does_not_use_up_the_space_of_others) {
  path directory = scratch("cache");
  process other = start_process("reads_and_then_blocks_its_worker", directory.text);
  await_ready(&other);
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  options.disk.cost = 4 << 20;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_put_options put = put_options();
  put.write_policy = HUTCH_WRITE_DISK;
  char data[1000] = {0};
  hutch_put_result result = new_result();
  /* While the transaction is kept the log grows, and the puts come to its limit. They are stored
     again once the other process's maintenance has ended it. */
  int puts = 0;
  do {
    hutch_status status = hutch_put(cache, KEY("other"), data, sizeof data, &put, &result);
    CHECK(status == HUTCH_OK || status == HUTCH_NO_SPACE);
    if (result.disk != HUTCH_OUTCOME_STORED) usleep(10000);
  } while (++puts < 2000 || result.disk != HUTCH_OUTCOME_STORED);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(0, end_process(&other));
}
