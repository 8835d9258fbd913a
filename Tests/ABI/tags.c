/* Tags: what was put with a tag is removed together, from every tier, whatever wrote it; what has
   another tag, or none, stays. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static hutch_put_options tagged(const char *tag) {
  hutch_put_options put = put_options();
  put.tag = tag;
  put.tag_size = tag ? strlen(tag) : 0;
  return put;
}

static void put_tagged(hutch_cache *cache, const char *key, const char *tag, uint32_t policy) {
  hutch_put_options put = tagged(tag);
  put.write_policy = policy;
  CHECK_OK(hutch_put(cache, KEY(key), "v", 1, &put, NULL));
}

#define CHECK_TAG(cache, key, tag) check_tag(__FILE__, __LINE__, cache, key, tag)
static void check_tag(const char *file, int line, hutch_cache *cache, const char *key,
                      const char *tag) {
  char buffer[HUTCH_TAG_MAX];
  size_t size = 999;
  check_status(file, line, "hutch_tag", HUTCH_OK,
               hutch_tag(cache, KEY(key), buffer, sizeof buffer, &size));
  check_bytes(file, line, key, tag, strlen(tag), buffer, size);
  check_equal(file, line, key, (int64_t)strlen(tag), info_of(cache, key).tag_size);
}

#define CHECK_REMOVES(count, cache, tag) \
  check_removes(__FILE__, __LINE__, count, cache, tag)
static void check_removes(const char *file, int line, uint64_t count, hutch_cache *cache,
                          const char *tag) {
  uint64_t removed = 999;
  check_status(file, line, tag, HUTCH_OK, hutch_remove_tagged(cache, KEY(tag), &removed));
  check_equal(file, line, tag, (int64_t)count, (int64_t)removed);
}

static const char *const red[] = {"a", "b", "key", "key that is longer", "\xff"};
static const char *const blue[] = {"c", "ke"};
static const char *const plain[] = {"d", "keyz"};
enum { RED = 5, BLUE = 2, PLAIN = 2 };

static void put_all(hutch_cache *cache, uint32_t policy) {
  for (int i = 0; i < RED; i++) put_tagged(cache, red[i], "red", policy);
  for (int i = 0; i < BLUE; i++) put_tagged(cache, blue[i], "redder", policy);
  for (int i = 0; i < PLAIN; i++) put_tagged(cache, plain[i], NULL, policy);
}

static void check_red_gone(hutch_cache *cache) {
  for (int i = 0; i < RED; i++) CHECK_MISSING(cache, red[i]);
  for (int i = 0; i < BLUE; i++) CHECK_TEXT(cache, blue[i], "v");
  for (int i = 0; i < PLAIN; i++) CHECK_TEXT(cache, plain[i], "v");
  CHECK_EQUAL(BLUE + PLAIN, count_of(cache));
}

TEST_EACH_KIND(entries_with_a_tag_are_removed) {
  CHECK_REMOVES(0, f->cache, "red");
  put_all(f->cache, HUTCH_WRITE_DEFAULT);
  CHECK_TAG(f->cache, red[0], "red");
  CHECK_TAG(f->cache, blue[0], "redder");
  CHECK_TAG(f->cache, plain[0], "");
  CHECK_REMOVES(0, f->cache, "r");
  CHECK_REMOVES(RED, f->cache, "red");
  check_red_gone(f->cache);
  CHECK_REMOVES(0, f->cache, "red");
  CHECK_REMOVES(BLUE, f->cache, "redder");
  CHECK_EQUAL(PLAIN, count_of(f->cache));
}

TEST_EACH_KIND(the_newest_put_decides_over_the_tag) {
  put_tagged(f->cache, "k", "red", 0);
  put_tagged(f->cache, "k", "blue", 0);
  CHECK_REMOVES(0, f->cache, "red");
  CHECK_TAG(f->cache, "k", "blue");
  put_tagged(f->cache, "k", NULL, 0);
  CHECK_REMOVES(0, f->cache, "blue");
  CHECK_TAG(f->cache, "k", "");
  put_tagged(f->cache, "k", "red", 0);
  CHECK_REMOVES(1, f->cache, "red");
  CHECK_MISSING(f->cache, "k");
}

TEST(a_tag_is_removed_from_every_tier) {
  static const uint32_t policies[] = {HUTCH_WRITE_THROUGH, HUTCH_WRITE_MEMORY, HUTCH_WRITE_DISK,
                                      HUTCH_WRITE_ON_EVICTION};
  for (int kind = HUTCH_STORAGE_MIXED; kind <= HUTCH_STORAGE_FILE; kind++)
    for (int i = 0; i < 4; i++) {
      hutch_options options = unlimited_options();
      options.storage = (uint32_t)kind;
      options.sharing = HUTCH_SHARING_EXCLUSIVE;
      char name[16];
      sprintf(name, "cache%d", kind);
      hutch_cache *cache = open_cache(scratch(name).text, &options);
      put_all(cache, policies[i]);
      CHECK_REMOVES(RED, cache, "red");
      check_red_gone(cache);
      CHECK_OK(hutch_close(cache));
      cache = open_cache(scratch(name).text, &options);
      for (int j = 0; j < RED; j++) CHECK_MISSING(cache, red[j]);
      if (policies[i] != HUTCH_WRITE_MEMORY) check_red_gone(cache);
      CHECK_OK(hutch_clear(cache));
      CHECK_OK(hutch_close(cache));
    }
}

TEST(a_tag_stays_with_its_entry) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = tagged("red");
  put.extended = "more";
  put.extended_size = 4;
  CHECK_OK(hutch_put(cache, KEY("row"), KEY("value"), &put, NULL));
  char *large = filled(100000, 1);
  CHECK_OK(hutch_put(cache, KEY("file"), large, 100000, &put, NULL));
  put.extended_size = 0;
  int64_t sum = 0;
  CHECK_OK(hutch_increment(cache, KEY("counter"), 1, 0, &put, &sum));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  /* Read from disk, promoted, touched, added to. */
  for (int round = 0; round < 3; round++) {
    CHECK_TAG(cache, "row", "red");
    CHECK_TAG(cache, "file", "red");
    CHECK_TAG(cache, "counter", "red");
    hutch_value *value = get_value(cache, "row");
    CHECK_BYTES("value", 5, hutch_value_data(value), hutch_value_size(value));
    CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
    CHECK_BYTES("red", 3, hutch_value_tag(value), hutch_value_tag_size(value));
    CHECK_EQUAL(4, info_of_value(value).extended_size);
    CHECK_EQUAL(3, info_of_value(value).tag_size);
    hutch_value_release(value);
    value = get_value(cache, "file");
    CHECK_BYTES(large, 100000, hutch_value_data(value), hutch_value_size(value));
    CHECK_BYTES("red", 3, hutch_value_tag(value), hutch_value_tag_size(value));
    hutch_value_release(value);
    char buffer[16];
    hutch_found found = {.struct_size = sizeof found};
    CHECK_OK(hutch_look(cache, KEY("row"), 0, buffer, 9, &found));
    CHECK(!found.value && found.size == 5 && found.extended_size == 4);
    CHECK_BYTES("valuemore", 9, buffer, 9);
    CHECK_OK(hutch_touch(cache, KEY("row"), HUTCH_HOUR, 0));
    CHECK_OK(hutch_touch(cache, KEY("file"), HUTCH_HOUR, 0));
    CHECK_OK(hutch_increment(cache, KEY("counter"), 1, 0, NULL, &sum));
    CHECK_EQUAL(round + 2, sum);
  }
  free(large);
  CHECK_REMOVES(3, cache, "red");
  CHECK_EQUAL(0, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

static hutch_status make(void *context, const void *key, size_t key_size, hutch_loading *loading) {
  (void)key, (void)key_size;
  hutch_put_options put = tagged(context);
  return hutch_loading_fulfil(loading, "made", 4, &put);
}

static void end_task(void *context, const hutch_completion *completion) {
  (void)context;
  CHECK_OK(completion->status);
}

TEST(a_value_without_a_tag_has_an_empty_one) {
  hutch_cache *caches[] = {open_cache(NULL, NULL), open_cache(scratch("cache").text, NULL)};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(put_text(caches[i], "plain", "value"));
    hutch_value *value = get_value(caches[i], "plain");
    CHECK(hutch_value_tag(value) && hutch_value_extended(value));
    CHECK_EQUAL(0, hutch_value_tag_size(value) + hutch_value_extended_size(value));
    hutch_value_release(value);
    CHECK_OK(hutch_close(caches[i]));
  }
  CHECK(!hutch_value_tag(NULL) && hutch_value_tag_size(NULL) == 0);
}

static void remove_content(void *removed, const char *file, const struct stat *status) {
  if (!strstr(file, "/content/") || !S_ISREG(status->st_mode)) return;
  CHECK(unlink(file) == 0);
  ++*(int *)removed;
}

TEST(the_tag_of_a_large_value_is_told_without_its_file) {
  hutch_options options = unlimited_options();
  options.inline_threshold = 1000;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options put = tagged("red");
  void *value = filled(100000, 1);
  CHECK_OK(hutch_put(disk, KEY("large"), value, 100000, &put, NULL));
  free(value);
  put_tagged(disk, "small", "red", 0);
  int removed = 0;
  each_file(directory.text, remove_content, &removed);
  CHECK_EQUAL(1, removed);
  CHECK_TAG(disk, "large", "red");
  CHECK_TAG(disk, "small", "red");
  CHECK_REMOVES(2, disk, "red");
  CHECK_EQUAL(0, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(whatever_puts_can_put_a_tag) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_options options = unlimited_options();
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, &options);
    hutch_put_options put = tagged("red");
    hutch_put_result result = new_result();
    CHECK_OK(hutch_add(cache, KEY("add"), "v", 1, &put, &result));
    CHECK_OK(put_text(cache, "replace", "v"));
    CHECK_OK(hutch_replace(cache, KEY("replace"), "v", 1, &put, NULL));
    CHECK_OK(hutch_compare_and_swap(cache, KEY("add"), result.version, "w", 1, &put, NULL));
    const void *keys[] = {"m1", "m2"}, *values[] = {"v", "v"};
    const size_t sizes[] = {2, 2}, value_sizes[] = {1, 1};
    hutch_batch *batch = NULL;
    CHECK_OK(hutch_put_many(cache, keys, sizes, values, value_sizes, 2, &put, &batch));
    hutch_batch_release(batch);
    hutch_value *value = NULL;
    CHECK_OK(hutch_load(cache, KEY("load"), make, "red", NULL, &value));
    hutch_value_release(value);
    char *bytes = filled(200000, 7);
    write_file(scratch("given").text, bytes, 200000);
    CHECK_OK(hutch_put_file(cache, KEY("copied"), scratch("given").text, HUTCH_FILE_COPY, &put,
                            NULL));
    CHECK_OK(hutch_put_file(cache, KEY("linked"), scratch("given").text, HUTCH_FILE_LINK, &put,
                            NULL));
    for (int i = 0; i < 2; i++) {
      hutch_writer *writer = NULL;
      CHECK_OK(hutch_writer_begin(cache, KEY(i ? "written" : "small"), 0, &put, &writer));
      CHECK_OK(hutch_writer_append(writer, bytes, i ? 200000 : 10));
      CHECK_OK(hutch_writer_commit(writer, NULL));
      hutch_writer_release(writer);
    }
    free(bytes);
    hutch_task_options task = {.struct_size = sizeof task, .complete = end_task};
    CHECK_OK(hutch_put_async(cache, KEY("async"), "v", 1, &put, &task, NULL));
    CHECK_OK(hutch_load_async(cache, KEY("later"), make, "red", NULL, NULL, &task, NULL));
    CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER));
    CHECK_OK(put_text(cache, "plain", "v"));
    static const char *const all[] = {"add", "replace", "m1", "m2", "load", "copied", "linked",
                                      "written", "small", "async", "later"};
    const int count = sizeof all / sizeof all[0];
    for (int i = 0; i < count; i++) CHECK_TAG(cache, all[i], "red");
    CHECK_EQUAL(count + 1, count_of(cache));
    CHECK_REMOVES((uint64_t)count, cache, "red");
    CHECK_EQUAL(1, count_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_view_removes_a_tag_from_its_tier) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  put_all(cache, HUTCH_WRITE_DEFAULT);
  CHECK_REMOVES(RED, memory, "red");
  for (int i = 0; i < RED; i++) check_where(cache, red[i], false, true);
  CHECK_REMOVES(RED, disk, "red");
  check_red_gone(cache);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------ objects */

static void count_release(void *object) { atomic_fetch_add((_Atomic int *)object, 1); }

TEST(objects_have_tags_too) {
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_DRAIN_RELEASES;
  _Atomic int released[600] = {0};
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  char tag[HUTCH_TAG_MAX + 1] = {0};
  memset(tag, 't', HUTCH_TAG_MAX);
  for (int i = 0; i < 600; i++) {
    char key[16];
    sprintf(key, "object%d", i);
    hutch_put_options put = tagged(i % 3 == 0 ? tag : i % 3 == 1 ? "red" : NULL);
    CHECK_OK(hutch_put_object(cache, KEY(key), (void *)&released[i], count_release, &put));
    CHECK_OK(hutch_put(cache, KEY(key), "v", 1, &put, NULL));
  }
  /* An entry and an object of each key. */
  CHECK_REMOVES(400, cache, tag);
  CHECK_EQUAL(800, count_of(cache));
  CHECK_OK(hutch_drain_releases(cache, 0, NULL));
  for (int i = 0; i < 600; i++) {
    CHECK_EQUAL(i % 3 == 0, released[i]);
    char key[16];
    sprintf(key, "object%d", i);
    hutch_object *object = NULL;
    CHECK_STATUS(i % 3 == 0 ? HUTCH_NOT_FOUND : HUTCH_OK,
                 hutch_get_object(cache, KEY(key), &object));
    if (object) CHECK(hutch_object_pointer(object) == (void *)&released[i]);
    hutch_object_release(object);
  }
  /* Not from the disk tier. */
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_REMOVES(200, disk, "red");
  hutch_cache_release(disk);
  CHECK_REMOVES(200, cache, "red");
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- bad input */

TEST_EACH_KIND(a_tag_that_is_none) {
  static const char longest[HUTCH_TAG_MAX + 1];
  hutch_put_options put = put_options();
  put.tag = longest;
  put.tag_size = HUTCH_TAG_MAX;
  CHECK_OK(hutch_put(f->cache, KEY("long"), "v", 1, &put, NULL));
  const size_t sizes[] = {HUTCH_TAG_MAX + 1, SIZE_MAX};
  for (int i = 0; i < 2; i++) {
    put.tag_size = sizes[i];
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_put(f->cache, KEY("key"), "v", 1, &put, NULL));
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_add(f->cache, KEY("key"), "v", 1, &put, NULL));
  }
  put.tag = NULL;
  put.tag_size = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_put(f->cache, KEY("key"), "v", 1, &put, NULL));
  CHECK_MISSING(f->cache, "key");
  uint64_t removed = 7;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_tagged(f->cache, "", 0, &removed));
  CHECK_EQUAL(0, removed);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_tagged(f->cache, NULL, 3, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_tagged(f->cache, longest, 256, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove_tagged(f->cache, longest, SIZE_MAX, NULL));
  /* A tag where there is room for it, and not. */
  char buffer[HUTCH_TAG_MAX];
  size_t size = 0;
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL,
               hutch_tag(f->cache, KEY("long"), buffer, HUTCH_TAG_MAX - 1, &size));
  CHECK_EQUAL(HUTCH_TAG_MAX, size);
  CHECK_STATUS(HUTCH_BUFFER_TOO_SMALL, hutch_tag(f->cache, KEY("long"), NULL, 0, &size));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_tag(f->cache, KEY("long"), NULL, 1, &size));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_tag(f->cache, KEY("long"), buffer, 1, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_tag(f->cache, KEY("none"), buffer, 1, &size));
  CHECK_OK(hutch_tag(f->cache, KEY("long"), buffer, HUTCH_TAG_MAX, &size));
  CHECK_BYTES(longest, HUTCH_TAG_MAX, buffer, size);
  CHECK_OK(hutch_remove_tagged(f->cache, longest, HUTCH_TAG_MAX, &removed));
  CHECK_EQUAL(1, removed);
}

/* ------------------------------------------------------------- while others write */

typedef struct traffic {
  hutch_cache *cache;
  _Atomic int ends;
  uint32_t count;
} traffic;

static void count_removals(void *context, const hutch_event *event) {
  if (event->cause != HUTCH_CAUSE_REMOVED) return;
  CHECK(event->value && hutch_value_tag_size(event->value) == 3);
  atomic_fetch_add((_Atomic int *)context, 1);
}

static void remove_or_move(void *context, int index) {
  traffic *t = context;
  if (index == 0) {
    uint64_t removed = 0;
    CHECK_OK(hutch_remove_tagged(t->cache, KEY("red"), &removed));
    CHECK_EQUAL(t->count, removed);
    atomic_store(&t->ends, 1);
    return;
  }
  uint64_t state = seed() + (uint64_t)index;
  while (!atomic_load(&t->ends)) {
    if (index == 1) CHECK_OK(hutch_flush(t->cache));
    char key[32];
    hutch_value *value = NULL;
    sprintf(key, "key%u", (unsigned)(next_random(&state) % (2 * t->count)));
    if (hutch_get(t->cache, KEY(key), &value) == HUTCH_OK) hutch_value_release(value);
  }
}

/* Entries go down and come up while their tag is removed: none is missed, each is told once. */
TEST(a_tag_is_removed_while_entries_change_tiers) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  enum { COUNT = SANITIZED_BY == 1 ? 2000 : 500 };
  options.memory.count = COUNT / 4;
  traffic t = {.cache = open_cache(scratch("cache").text, &options), .count = COUNT};
  for (int i = 0; i < 2 * (int)t.count; i++) {
    char key[32];
    sprintf(key, "key%d", i);
    put_tagged(t.cache, key, i % 2 ? "red" : NULL, 0);
  }
  _Atomic int told = 0;
  CHECK_OK(hutch_set_listener(t.cache, HUTCH_EVENT_DID_REMOVE, count_removals, &told, NULL));
  run_threads(4, remove_or_move, &t);
  CHECK_OK(hutch_set_listener(t.cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(t.count, told);
  CHECK_EQUAL(t.count, count_of(t.cache));
  CHECK_OK(hutch_close(t.cache));
}

enum { KEYS = 40 };

/* One thread removes a tag; the others put their own keys, with it and without. */
static void remove_or_put(void *context, int index) {
  traffic *t = context;
  if (index == 0) {
    for (int i = 0; i < repeats(200); i++)
      CHECK_OK(hutch_remove_tagged(t->cache, KEY("red"), NULL));
    atomic_store(&t->ends, 1);
    return;
  }
  uint64_t state = seed() + (uint64_t)index;
  while (!atomic_load(&t->ends)) {
    char key[32];
    sprintf(key, "%d %u", index, (unsigned)(next_random(&state) % KEYS));
    put_tagged(t->cache, key, "red", 0);
    int64_t sum = 0;
    /* What has the tag no more is there for its writer. */
    if (next_random(&state) % 4 == 0) {
      hutch_status status = hutch_remove(t->cache, KEY(key));
      CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
      CHECK_OK(hutch_increment(t->cache, KEY(key), 1, 0, NULL, &sum));
      CHECK_EQUAL(1, sum);
      CHECK_OK(hutch_increment(t->cache, KEY(key), 1, 0, NULL, &sum));
      CHECK_EQUAL(2, sum);
    } else {
      put_tagged(t->cache, key, next_random(&state) % 2 ? "blue" : NULL, 0);
      CHECK_TEXT(t->cache, key, "v");
    }
  }
}

TEST(an_entry_that_has_the_tag_no_more_stays) {
  for (int shape = 0; shape < 4; shape++) {
    hutch_options options = unlimited_options();
    if (shape == 2) options.write_policy = HUTCH_WRITE_ON_EVICTION;
    if (shape == 2) options.memory.count = 30;
    if (shape == 3) options.sharing = HUTCH_SHARING_SHARED;
    char name[16];
    sprintf(name, "cache%d", shape);
    traffic t = {.cache = open_cache(shape ? scratch(name).text : NULL, &options)};
    run_threads(4, remove_or_put, &t);
    CHECK_OK(hutch_remove_tagged(t.cache, KEY("red"), NULL));
    for (int index = 1; index < 4; index++)
      for (int i = 0; i < KEYS; i++) {
        char key[32], tag[8];
        size_t size = 0;
        sprintf(key, "%d %d", index, i);
        hutch_status status = hutch_tag(t.cache, KEY(key), tag, sizeof tag, &size);
        CHECK(status == HUTCH_NOT_FOUND || (status == HUTCH_OK && size != 3));
      }
    CHECK_OK(hutch_close(t.cache));
  }
}

/* ------------------------------------------------------------- what comes later */

static void note_status(void *context, const hutch_completion *completion) {
  atomic_store((_Atomic int *)context, completion->status);
}

TEST(what_began_before_stores_nothing_with_the_tag) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_options options = unlimited_options();
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, &options);
    hutch_put_options put = tagged("red"), other = tagged("blue");
    hutch_value *value = NULL;
    hutch_loading *stale = NULL, *fresh = NULL, *joiner = NULL;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(cache, KEY("stale"), NULL, &value, &stale));
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_load_begin(cache, KEY("fresh"), NULL, &value, &fresh));
    CHECK_OK(hutch_suspend(cache));
    _Atomic int with = -1, without = -1;
    hutch_task_options task = {.struct_size = sizeof task, .complete = note_status};
    task.context = (void *)&with;
    CHECK_OK(hutch_put_async(cache, KEY("task"), "v", 1, &put, &task, NULL));
    task.context = (void *)&without;
    CHECK_OK(hutch_put_async(cache, KEY("other task"), "v", 1, &other, &task, NULL));
    CHECK_REMOVES(0, cache, "red");
    /* The load's tag is not known yet. */
    CHECK_STATUS(HUTCH_WOULD_BLOCK, hutch_load_begin(cache, KEY("stale"), NULL, &value, &joiner));
    CHECK_OK(hutch_resume(cache));
    CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER));
    CHECK_STATUS(HUTCH_SUPERSEDED, with);
    CHECK_OK(without);
    /* The callers of a load get the value. */
    CHECK_STATUS(HUTCH_SUPERSEDED, hutch_loading_fulfil(stale, "old", 3, &put));
    CHECK_OK(hutch_loading_wait(stale, 0, &value));
    CHECK_BYTES("old", 3, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    CHECK_OK(hutch_loading_wait(joiner, 0, &value));
    CHECK_BYTES("old", 3, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    hutch_loading_release(joiner);
    CHECK_OK(hutch_loading_fulfil(fresh, "new", 3, &other));
    hutch_loading_release(stale);
    hutch_loading_release(fresh);
    CHECK_MISSING(cache, "stale");
    CHECK_MISSING(cache, "task");
    CHECK_TEXT(cache, "fresh", "new");
    CHECK_TEXT(cache, "other task", "v");
    /* One that begins later stores. */
    CHECK_OK(hutch_load(cache, KEY("stale"), make, "red", NULL, &value));
    hutch_value_release(value);
    CHECK_TEXT(cache, "stale", "made");
    CHECK_OK(hutch_close(cache));
  }
}

/* ------------------------------------------------------------- processes, kills */

static hutch_options shared_options(void) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  return options;
}

PROCESS(reads_and_puts, directory) {
  hutch_options options = shared_options();
  hutch_cache *cache = open_cache(directory, &options);
  for (int i = 0; i < 100; i++) {
    char key[16];
    sprintf(key, "mine%d", i);
    put_tagged(cache, key, "red", 0);
    sprintf(key, "yours%d", i);
    CHECK_TEXT(cache, key, "v");
  }
  tell_ready();
  await_end();
  for (int i = 0; i < 100; i++) {
    char key[16];
    sprintf(key, "mine%d", i);
    CHECK_MISSING(cache, key);
    sprintf(key, "yours%d", i);
    CHECK_MISSING(cache, key);
  }
  CHECK_TEXT(cache, "plain", "v");
  CHECK_OK(hutch_close(cache));
}

TEST(a_tag_is_removed_from_every_process) {
  path directory = scratch("cache");
  hutch_options options = shared_options();
  hutch_cache *cache = open_cache(directory.text, &options);
  put_tagged(cache, "plain", NULL, 0);
  for (int i = 0; i < 100; i++) {
    char key[16];
    sprintf(key, "yours%d", i);
    put_tagged(cache, key, "red", 0);
  }
  process other = start_process("reads_and_puts", directory.text);
  await_ready(&other);
  CHECK_REMOVES(200, cache, "red");
  CHECK_EQUAL(0, end_process(&other));
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

typedef struct progress {
  _Atomic uint32_t round;   /* all of it was put */
  _Atomic uint32_t removed; /* and all of it with the tag removed */
} progress;

static progress *map_progress(const char *directory) {
  char file[4200];
  snprintf(file, sizeof file, "%s.progress", directory);
  int number = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(number >= 0 && ftruncate(number, sizeof(progress)) == 0);
  progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0);
  CHECK(p != MAP_FAILED);
  close(number);
  return p;
}

PROCESS(removes_until_killed, directory) {
  progress *p = map_progress(directory);
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_cache(directory, &options);
  for (uint32_t round = atomic_load(&p->round) + 1;; round++) {
    for (int i = 0; i < KEYS; i++) {
      char key[16];
      sprintf(key, "%d", i);
      put_tagged(cache, key, i % 2 ? "red" : NULL, i % 3 ? 0 : HUTCH_WRITE_ON_EVICTION);
    }
    atomic_store(&p->round, round);
    CHECK_OK(hutch_remove_tagged(cache, KEY("red"), NULL));
    atomic_store(&p->removed, round);
    for (int i = 0; i < KEYS; i++) {
      char key[16];
      sprintf(key, "%d", i);
      CHECK_STATUS(i % 2 ? HUTCH_NOT_FOUND : HUTCH_OK, hutch_contains(cache, KEY(key)));
    }
    while (round % 2 && atomic_load(&p->round) == round) nap();
  }
}

/* The process stands still behind a removal in every other round, or is killed amid another. */
TEST(a_kill_brings_nothing_back) {
  path directory = scratch("cache");
  progress *p = map_progress(directory.text);
  hutch_options options = unlimited_options();
  uint64_t state = seed();
  for (int i = 0; i < repeats(12); i++) {
    /* The first odd one that it comes to. */
    uint32_t round = (atomic_load(&p->round) + 1) | 1;
    process other = start_process("removes_until_killed", directory.text);
    while (atomic_load(&p->removed) < round) {
      CHECK(waitpid(other.pid, NULL, WNOHANG) == 0);
      nap();
    }
    bool is_behind = next_random(&state) % 2;
    if (!is_behind) {
      /* It goes on, and is met anywhere in the next round. */
      atomic_store(&p->round, round + 1);
      for (uint64_t turns = next_random(&state) % 3000; turns > 0; turns--) sched_yield();
    }
    kill(other.pid, SIGKILL);
    CHECK_EQUAL(SIGKILL, end_process(&other));
    hutch_cache *cache = open_cache(directory.text, &options);
    for (int k = 0; k < KEYS && is_behind; k++) {
      char key[16];
      sprintf(key, "%d", k);
      if (k % 2) CHECK_MISSING(cache, key);
    }
    CHECK_OK(hutch_remove_tagged(cache, KEY("red"), NULL));
    for (int k = 1; k < KEYS; k += 2) {
      char key[16];
      sprintf(key, "%d", k);
      CHECK_MISSING(cache, key);
    }
    CHECK_EQUAL(0, stats_of(cache).disk.damaged);
    CHECK_OK(hutch_close(cache));
  }
}
