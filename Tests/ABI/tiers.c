/* Two tiers as one, and each by itself: what a view does to the other tier, promotion, and
   what becomes of a value that one tier cannot take. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tiers {
  hutch_cache *cache, *memory, *disk;
  path directory;
  test_clock clock;
} tiers;

static void open_tiers(tiers *t, const hutch_options *given) {
  hutch_options options = given ? *given : unlimited_options();
  use_clock(&options, &t->clock);
  t->directory = scratch("cache");
  t->cache = open_cache(t->directory.text, &options);
  t->memory = tier_of(t->cache, HUTCH_TIER_MEMORY);
  t->disk = tier_of(t->cache, HUTCH_TIER_DISK);
}

static void close_tiers(tiers *t) {
  hutch_cache_release(t->memory);
  hutch_cache_release(t->disk);
  CHECK_OK(hutch_close(t->cache));
}

/* ------------------------------------------------------------------- views */

TEST(a_view_of_a_view_is_a_view_of_the_cache) {
  tiers t = {0};
  open_tiers(&t, NULL);
  hutch_cache *disk = tier_of(t.memory, HUTCH_TIER_DISK);
  CHECK_OK(put_text(disk, "key", "value"));
  CHECK_MISSING(t.memory, "key");
  CHECK_TEXT(t.cache, "key", "value");
  hutch_cache_release(disk);
  close_tiers(&t);
}

TEST(a_cache_in_memory_has_one_tier) {
  hutch_cache *cache = open_cache(NULL, NULL), *view = cache;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_tier(cache, HUTCH_TIER_DISK, &view));
  CHECK(!view);
  view = tier_of(cache, HUTCH_TIER_MEMORY);
  CHECK_OK(put_text(view, "key", "value"));
  CHECK_TEXT(cache, "key", "value");
  hutch_cache_release(view);
  CHECK_OK(hutch_close(cache));
}

TEST(a_put_of_the_whole_is_in_both_tiers) {
  tiers t = {0};
  open_tiers(&t, NULL);
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(t.cache, KEY("key"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
  CHECK_EQUAL(result.version, info_of(t.memory, "key").version);
  CHECK_EQUAL(result.version, info_of(t.disk, "key").version);
  CHECK_TEXT(t.memory, "key", "value");
  CHECK_TEXT(t.disk, "key", "value");
  CHECK_EQUAL(1, count_of(t.cache));
  CHECK_EQUAL(cost_of(t.memory) + cost_of(t.disk), cost_of(t.cache));
  CHECK_OK(hutch_remove(t.cache, KEY("key")));
  CHECK_MISSING(t.memory, "key");
  CHECK_MISSING(t.disk, "key");
  close_tiers(&t);
}

TEST(a_put_through_the_memory_view_leaves_the_disk_without) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "key", "old"));
  CHECK_OK(put_text(t.memory, "key", "new"));
  CHECK_MISSING(t.disk, "key");
  CHECK_TEXT(t.cache, "key", "new");
  CHECK_OK(hutch_remove(t.memory, KEY("key")));
  CHECK_MISSING(t.cache, "key");
  CHECK_OK(put_text(t.memory, "key", "new"));
  close_tiers(&t);
  open_tiers(&t, NULL);
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
}

TEST(a_put_through_the_disk_view_leaves_memory_without) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "key", "old"));
  CHECK_OK(put_text(t.disk, "key", "new"));
  CHECK_MISSING(t.memory, "key");
  CHECK_TEXT(t.cache, "key", "new");
  close_tiers(&t);
}

TEST(removing_through_the_memory_view_drops_copies) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "a", "value"));
  CHECK_OK(put_text(t.cache, "b", "value"));
  CHECK_OK(hutch_remove(t.memory, KEY("a")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(t.memory, KEY("a")));
  CHECK_MISSING(t.memory, "a");
  CHECK_TEXT(t.disk, "a", "value");
  CHECK_OK(hutch_clear(t.memory));
  CHECK_EQUAL(0, count_of(t.memory));
  CHECK_EQUAL(2, count_of(t.disk));
  CHECK_TEXT(t.cache, "a", "value");
  CHECK_TEXT(t.cache, "b", "value");
  close_tiers(&t);
}

TEST(removing_through_the_disk_view_removes_copies_of_what_was_there) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "a", "value"));
  CHECK_OK(put_text(t.cache, "b", "value"));
  CHECK_OK(put_text(t.memory, "memory only", "value"));
  CHECK_OK(hutch_remove(t.disk, KEY("a")));
  CHECK_MISSING(t.cache, "a");
  CHECK_OK(hutch_clear(t.disk));
  CHECK_MISSING(t.cache, "b");
  CHECK_EQUAL(0, count_of(t.disk));
  CHECK_TEXT(t.cache, "memory only", "value");
  close_tiers(&t);
}

TEST(a_pop_through_a_view_takes_what_the_view_has) {
  tiers t = {0};
  open_tiers(&t, NULL);
  hutch_value *value = NULL;
  CHECK_OK(put_text(t.cache, "key", "value"));
  CHECK_OK(hutch_pop(t.disk, KEY("key"), &value));
  hutch_value_release(value);
  CHECK_MISSING(t.cache, "key");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(t.disk, KEY("key"), &value));
  close_tiers(&t);
}

/* --------------------------------------------------------------- promotion */

TEST(a_get_from_disk_brings_the_value_into_memory) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "key", "value"));
  CHECK_OK(put_size(t.cache, "large", 200000));
  CHECK_OK(hutch_clear(t.memory));
  CHECK_TEXT(t.disk, "key", "value");
  CHECK_MISSING(t.memory, "key");
  CHECK_EQUAL(HUTCH_TIER_DISK, info_of(t.cache, "key").tier);
  CHECK_TEXT(t.cache, "key", "value");
  CHECK_TEXT(t.memory, "key", "value");
  CHECK_EQUAL(HUTCH_TIER_MEMORY, info_of(t.cache, "key").tier);
  char buffer[8];
  size_t size;
  CHECK_OK(hutch_clear(t.memory));
  CHECK_OK(hutch_get_into(t.cache, KEY("key"), buffer, sizeof buffer, &size));
  CHECK_TEXT(t.memory, "key", "value");
  hutch_value_release(get_value(t.cache, "large"));
  CHECK_OK(hutch_contains(t.memory, KEY("large")));
  close_tiers(&t);
}

TEST(trap_1_a_promoted_entry_keeps_its_record) {
  tiers t = {0};
  open_tiers(&t, NULL);
  hutch_put_options options = put_options();
  options.time_to_live = 5 * HUTCH_SECOND;
  options.time_to_idle = 4 * HUTCH_SECOND;
  options.cost = 7;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_put(t.cache, KEY("key"), KEY("value"), &options, NULL));
  hutch_entry_info before = info_of(t.memory, "key");
  CHECK_OK(hutch_clear(t.memory));
  t.clock.now += 3 * HUTCH_SECOND;
  hutch_value *value = get_value(t.cache, "key");
  CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
  hutch_value_release(value);
  hutch_entry_info after = info_of(t.memory, "key");
  CHECK_EQUAL(t.clock.now, after.accessed);
  after.accessed = before.accessed;
  before.checksum = after.checksum;
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  CHECK_EQUAL(7, cost_of(t.memory));
  t.clock.now += 2 * HUTCH_SECOND;
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
}

TEST(an_access_in_memory_keeps_the_copy_on_disk_alive) {
  tiers t = {0};
  open_tiers(&t, NULL);
  hutch_put_options options = put_options();
  options.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(t.cache, KEY("key"), KEY("value"), &options, NULL));
  for (int i = 0; i < 3; i++) {
    t.clock.now += 8 * HUTCH_SECOND;
    CHECK_TEXT(t.cache, "key", "value");
  }
  t.clock.now += 8 * HUTCH_SECOND;
  CHECK_OK(hutch_clear(t.memory));
  CHECK_TEXT(t.cache, "key", "value");
  close_tiers(&t);
  t.clock.now += 9 * HUTCH_SECOND;
  open_tiers(&t, NULL);
  CHECK_TEXT(t.cache, "key", "value");
  close_tiers(&t);
}

TEST(a_touch_reaches_both_tiers) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "key", "value"));
  CHECK_OK(put_text(t.cache, "disk only", "value"));
  CHECK_OK(hutch_remove(t.memory, KEY("disk only")));
  t.clock.now += HUTCH_SECOND;
  CHECK_OK(hutch_touch(t.cache, KEY("key"), HUTCH_MINUTE, 0));
  CHECK_OK(hutch_touch(t.cache, KEY("disk only"), HUTCH_MINUTE, 0));
  int64_t end = t.clock.now + HUTCH_MINUTE;
  CHECK_EQUAL(end, info_of(t.memory, "key").expires);
  CHECK_EQUAL(end, info_of(t.disk, "key").expires);
  CHECK_EQUAL(end, info_of(t.disk, "disk only").expires);
  CHECK_OK(hutch_clear(t.memory));
  CHECK_TEXT(t.cache, "key", "value");
  CHECK_EQUAL(end, info_of(t.memory, "key").expires);
  t.clock.now = end;
  CHECK_MISSING(t.cache, "key");
  CHECK_MISSING(t.cache, "disk only");
  close_tiers(&t);
}

/* The disk tier's time to idle has ended when memory's copy is touched, and is read after that. */
TEST(a_touch_reaches_an_entry_that_has_been_idle_for_too_long_on_disk) {
  for (uint32_t sharing = HUTCH_SHARING_EXCLUSIVE; sharing <= HUTCH_SHARING_SHARED; sharing++) {
    hutch_options options = unlimited_options();
    options.sharing = sharing;
    options.disk.time_to_idle = 10 * HUTCH_SECOND;
    /* Maintenance may remove the row before the touch: memory alone has the entry then. */
    options.flags = HUTCH_OPEN_NO_THREADS;
    tiers t = {0};
    open_tiers(&t, &options);
    CHECK_OK(put_text(t.cache, "key", "value"));
    t.clock.now += 12 * HUTCH_SECOND;
    CHECK_OK(hutch_touch(t.cache, KEY("key"), 0, 5 * HUTCH_SECOND));
    CHECK_TEXT(t.cache, "key", "value");
    CHECK_OK(hutch_flush(t.cache));
    hutch_entry_info info = info_of(t.disk, "key");
    CHECK_EQUAL(t.clock.now, info.created);
    CHECK_EQUAL(5 * HUTCH_SECOND, info.time_to_idle);
    t.clock.now += 6 * HUTCH_SECOND;
    CHECK_MISSING(t.cache, "key");
    close_tiers(&t);
  }
}

TEST(a_touch_through_the_disk_view_counts_where_processes_share) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  tiers t = {0};
  open_tiers(&t, &options);
  CHECK_OK(put_text(t.cache, "key", "value"));
  CHECK_OK(hutch_touch(t.disk, KEY("key"), 5 * HUTCH_SECOND, 0));
  CHECK_EQUAL(t.clock.now + 5 * HUTCH_SECOND, info_of(t.cache, "key").expires);
  CHECK_TEXT(t.cache, "key", "value");
  t.clock.now += 6 * HUTCH_SECOND;
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
}

/* The counter keeps the time at which it was made. */
static void count_now_and_then(fixture *f, kind k) {
  hutch_put_options options = put_options();
  options.time_to_idle = 10 * HUTCH_SECOND;
  for (int64_t i = 1; i <= 3; i++) {
    int64_t sum = 0;
    CHECK_OK(hutch_increment(f->cache, KEY("counter"), 1, 0, &options, &sum));
    CHECK_EQUAL(i, sum);
    CHECK_EQUAL(f->clock.now, info_of(f->cache, "counter").accessed);
    f->clock.now += 6 * HUTCH_SECOND;
  }
  CHECK_OK(hutch_contains(f->cache, KEY("counter")));
  if (k != TWO_TIERS) return;
  hutch_cache *disk = tier_of(f->cache, HUTCH_TIER_DISK);
  CHECK_OK(hutch_contains(disk, KEY("counter")));
  hutch_cache_release(disk);
}

TEST(an_increment_puts_the_end_of_a_time_to_idle_off) { for_each_kind(count_now_and_then); }

TEST(an_add_that_the_disk_refuses_is_in_memory_where_processes_share) {
  static const char value[30000];
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  options.inline_threshold = 2000;
  options.disk.max_entry = 20000;
  tiers t = {0};
  open_tiers(&t, &options);
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_add(t.cache, KEY("key"), value, sizeof value, NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.disk);
  CHECK_OK(hutch_contains(t.cache, KEY("key")));
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(t.cache, KEY("key"), KEY("value"), NULL, NULL));
  close_tiers(&t);
}

TEST(what_memory_evicts_is_on_disk) {
  hutch_options options = unlimited_options();
  options.memory.count = 10;
  tiers t = {0};
  open_tiers(&t, &options);
  for (uint32_t i = 0; i < 100; i++)
    CHECK_OK(hutch_put(t.cache, &i, sizeof i, &i, sizeof i, NULL, NULL));
  CHECK_EQUAL(10, count_of(t.memory));
  CHECK_EQUAL(100, count_of(t.cache));
  for (uint32_t i = 0; i < 100; i++) {
    hutch_value *value = NULL;
    CHECK_OK(hutch_get(t.cache, &i, sizeof i, &value));
    CHECK_BYTES(&i, sizeof i, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    CHECK(count_of(t.memory) <= 10);
  }
  close_tiers(&t);
}

/* ------------------------------------------ what one tier does not take */

/* The hot keys are the first that were put, and no read of them comes to the disk tier. */
TEST(what_memory_answers_stays_on_disk_too) {
  enum { HOT = 100, COLD = 3000 };
  path directory = scratch("cache");
  hutch_options options = default_options();
  options.memory.count = 500;
  options.disk.count = 1000;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  char key[16];
#define HOT_KEY(i) (snprintf(key, sizeof key, "hot%d", i), key)
  for (int i = 0; i < HOT; i++) CHECK_OK(put_size(cache, HOT_KEY(i), 100));
  for (int n = 0; n < COLD; n++) {
    char cold[16];
    snprintf(cold, sizeof cold, "cold%d", n);
    CHECK_OK(put_size(cache, cold, 100));
    for (int i = 0; n % 10 == 0 && i < HOT; i++) {
      char value[100];
      size_t size = 0;
      CHECK_OK(hutch_get_into(cache, KEY(HOT_KEY(i)), value, sizeof value, &size));
    }
  }
  int found = 0;
  for (int i = 0; i < HOT; i++) found += hutch_contains(disk, KEY(HOT_KEY(i))) == HUTCH_OK;
  if (found < HOT * 9 / 10) FAIL("%d of %d hot keys are on disk", found, HOT);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, NULL);
  found = 0;
  for (int i = 0; i < HOT; i++) found += hutch_contains(cache, KEY(HOT_KEY(i))) == HUTCH_OK;
  CHECK(found >= HOT * 9 / 10);
#undef HOT_KEY
  CHECK_OK(hutch_close(cache));
}

/* The entry is kept for its uses in memory, and its time to idle goes on. */
TEST(what_memory_keeps_on_disk_ends_by_its_time_to_idle) {
  hutch_options options = unlimited_options();
  options.disk.count = 2;
  tiers t = {0};
  open_tiers(&t, &options);
  hutch_put_options idle = put_options();
  idle.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(t.cache, KEY("key"), KEY("value"), &idle, NULL));
  for (int i = 0; i < 3; i++) CHECK_TEXT(t.cache, "key", "value");
  t.clock.now += 6 * HUTCH_SECOND;
  for (uint32_t i = 0; i < 3; i++)
    CHECK_OK(hutch_put(t.cache, &i, sizeof i, "value", 5, NULL, NULL));
  t.clock.now += 6 * HUTCH_SECOND;
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
}

/* A memory tier that has used all that is on disk does not keep the disk from its limit. */
TEST(what_memory_has_read_does_not_keep_the_disk_from_its_limit) {
  enum { COUNT = 1000, LIMIT = 100 };
  hutch_options options = default_options();
  options.disk.count = LIMIT;
  /* Maintenance may be about to tell memory what a put has evicted on disk: the count misses it. */
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < COUNT; i++) {
    char data[100] = {0};
    CHECK_OK(hutch_put(cache, &i, sizeof i, data, sizeof data, NULL, NULL));
    CHECK(count_of(disk) <= LIMIT);
    char value[100];
    size_t size = 0;
    CHECK_OK(hutch_get_into(cache, &i, sizeof i, value, sizeof value, &size));
  }
  CHECK_EQUAL(COUNT, count_of(cache));
  CHECK(count_of(disk) >= LIMIT / 2);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(too_large_for_memory_is_stored_on_disk) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = 1000;
  tiers t = {0};
  open_tiers(&t, &options);
  hutch_put_result result = new_result();
  CHECK_OK(put_text(t.cache, "key", "old"));
  char *data = filled(2000, 1);
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(t.cache, KEY("key"), data, 2000, NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
  CHECK_MISSING(t.memory, "key");
  CHECK_EQUAL(result.version, info_of(t.cache, "key").version);
  hutch_value *value = get_value(t.cache, "key");
  CHECK_BYTES(data, 2000, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_MISSING(t.memory, "key");
  /* The conditional puts answer alike. */
  CHECK_STATUS(HUTCH_PARTIAL, hutch_replace(t.cache, KEY("key"), data, 2000, NULL, NULL));
  CHECK_STATUS(HUTCH_PARTIAL, hutch_add(t.cache, KEY("new"), data, 2000, NULL, NULL));
  free(data);
  close_tiers(&t);
}

TEST(too_large_for_the_disk_is_stored_in_memory) {
  hutch_options options = unlimited_options();
  options.disk.max_entry = 10000;
  tiers t = {0};
  open_tiers(&t, &options);
  hutch_put_result result = new_result();
  CHECK_OK(put_text(t.cache, "key", "old"));
  char *data = filled(20000, 1);
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(t.cache, KEY("key"), data, 20000, NULL, &result));
  free(data);
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.disk);
  CHECK_EQUAL(20000, info_of(t.cache, "key").size);
  CHECK_MISSING(t.disk, "key");
  CHECK_EQUAL(1, stats_of(t.cache).disk.refusals);
  /* The old value does not come back, now or later. */
  CHECK_OK(hutch_clear(t.memory));
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
  open_tiers(&t, &options);
  CHECK_MISSING(t.cache, "key");
  close_tiers(&t);
}

TEST(trap_4_too_large_for_both_is_refused_and_the_old_value_goes) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = options.disk.max_entry = 10000;
  tiers t = {0};
  open_tiers(&t, &options);
  hutch_put_result result = new_result();
  CHECK_OK(put_text(t.cache, "key", "old"));
  CHECK_OK(put_text(t.cache, "other", "value"));
  char *data = filled(20000, 1);
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_put(t.cache, KEY("key"), data, 20000, NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.disk);
  CHECK_MISSING(t.cache, "key");
  /* Nothing was there to add to, and nothing came of it. */
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_add(t.cache, KEY("new"), data, 20000, NULL, NULL));
  CHECK_MISSING(t.cache, "new");
  free(data);
  close_tiers(&t);
  open_tiers(&t, &options);
  CHECK_MISSING(t.cache, "key");
  CHECK_TEXT(t.cache, "other", "value");
  close_tiers(&t);
}

/* --------------------------------------------------- damage, loss, no space */

typedef struct largest {
  char file[4096];
  off_t size;
} largest;

/* The content file of the only large value there is. */
static void note_largest(void *context, const char *file, const struct stat *status) {
  largest *l = context;
  if (!strstr(file, "/content/") || !S_ISREG(status->st_mode) || status->st_size <= l->size) return;
  snprintf(l->file, sizeof l->file, "%s", file);
  l->size = status->st_size;
}

static void flip(const char *file) {
  FILE *stream = fopen(file, "r+b");
  CHECK(stream && fseek(stream, 60000, SEEK_SET) == 0);
  int byte = fgetc(stream);
  CHECK(byte != EOF && fseek(stream, 60000, SEEK_SET) == 0 && fputc(byte ^ 1, stream) != EOF);
  CHECK(fclose(stream) == 0);
}

static void truncate_it(const char *file) { CHECK(truncate(file, 60000) == 0); }
static void lengthen(const char *file) { CHECK(truncate(file, 200000) == 0); }
static void unlink_it(const char *file) { CHECK(unlink(file) == 0); }

TEST(a_damaged_entry_is_gone_and_no_other) {
  void (*const damages[])(const char *) = {flip, truncate_it, lengthen, unlink_it};
  for (int i = 0; i < 4; i++) {
    tiers t = {0};
    open_tiers(&t, NULL);
    CHECK_OK(put_text(t.cache, "small", "value"));
    CHECK_OK(put_size(t.cache, "large", 120000));
    close_tiers(&t);
    largest l = {.size = 0};
    each_file(t.directory.text, note_largest, &l);
    CHECK(l.size >= 120000);
    damages[i](l.file);

    open_tiers(&t, NULL);
    CHECK_EQUAL(2, count_of(t.cache));
    hutch_value *value = NULL;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get(t.cache, KEY("large"), &value));
    CHECK_MISSING(t.cache, "large");
    CHECK_EQUAL(1, stats_of(t.cache).disk.damaged);
    CHECK_EQUAL(1, count_of(t.cache));
    CHECK_TEXT(t.cache, "small", "value");
    CHECK_OK(put_size(t.cache, "large", 120000));
    CHECK_OK(hutch_clear(t.memory));
    hutch_value_release(get_value(t.cache, "large"));
    close_tiers(&t);
    remove_tree(t.directory.text);
  }
}

/* The end of a cache whose disk is in trouble. */
static void check_unclean(hutch_status status) {
  if (status != HUTCH_OK) CHECK_STATUS(HUTCH_IO, status);
}

TEST(memory_goes_on_when_the_directory_is_removed) {
  tiers t = {0};
  open_tiers(&t, NULL);
  CHECK_OK(put_text(t.cache, "before", "value"));
  remove_tree(t.directory.text);
  let_notice(t.cache);
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(t.cache, KEY("after"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_EQUAL(HUTCH_STATE_DOWN, stats_of(t.cache).disk.state);
  CHECK_TEXT(t.cache, "before", "value");
  CHECK_TEXT(t.cache, "after", "value");
  CHECK_STATUS(HUTCH_TIER_DOWN, put_text(t.disk, "disk", "value"));
  CHECK(last_error().words[0] != '\0');
  hutch_cache_release(t.memory);
  hutch_cache_release(t.disk);
  check_unclean(hutch_close(t.cache));
}

TEST(memory_goes_on_when_the_file_system_is_full) {
  path mounted = small_disk("size=1m,mode=777");
  path place = in_directory(mounted.text, "cache");

  hutch_options options = unlimited_options();
  /* The log's segments are a thirty-second of it. */
  if (on_log()) options.disk.cost = 4 << 20;
  hutch_cache *cache = open_cache(place.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "old", "value"));
  CHECK_OK(put_size(cache, "key", 1000));
  hutch_put_result result = new_result();
  char *data = filled(3 << 20, 1);
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("key"), data, 3 << 20, NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_NO_SPACE, result.disk);
  CHECK_EQUAL(3 << 20, info_of(cache, "key").size);
  CHECK_MISSING(disk, "key");
  CHECK_STATUS(HUTCH_NO_SPACE, hutch_put(disk, KEY("key"), data, 3 << 20, NULL, NULL));
  CHECK_MISSING(cache, "key");
  free(data);
  /* Many small ones fill it too; every answer is one of these, and every value is whole. */
  for (uint32_t i = 0; i < 400; i++) {
    data = filled(8000, i);
    hutch_status status = hutch_put(cache, &i, sizeof i, data, 8000, NULL, NULL);
    CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL);
    hutch_value *value = NULL;
    CHECK_OK(hutch_get(cache, &i, sizeof i, &value));
    CHECK_BYTES(data, 8000, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    free(data);
  }
  CHECK(count_of(disk) < 400);
  hutch_cache_release(disk);
  check_unclean(hutch_close(cache));
  cache = open_cache(place.text, &options);
  CHECK_MISSING(cache, "key");
  CHECK_OK(hutch_clear(cache));
  CHECK_OK(put_text(cache, "new", "value"));
  CHECK_OK(hutch_close(cache));
  CHECK(umount(mounted.text) == 0);
}

/* ---------------------------------------------------------- write policies */

TEST(a_put_stores_where_its_write_policy_says) {
  for (uint32_t of_cache = HUTCH_WRITE_DEFAULT; of_cache <= HUTCH_WRITE_ON_EVICTION; of_cache++) {
    for (uint32_t of_put = HUTCH_WRITE_DEFAULT; of_put <= HUTCH_WRITE_ON_EVICTION; of_put++) {
      char name[32];
      sprintf(name, "%u %u", of_cache, of_put);
      check_note(name);
      hutch_options options = unlimited_options();
      options.write_policy = of_cache;
      options.sharing = HUTCH_SHARING_EXCLUSIVE;
      hutch_cache *cache = open_cache(scratch(name).text, &options);
      uint32_t policy = of_put ? of_put : of_cache;
      bool in_memory = policy != HUTCH_WRITE_DISK, is_deferred = policy == HUTCH_WRITE_ON_EVICTION;
      bool on_disk = policy != HUTCH_WRITE_MEMORY && !is_deferred;
      hutch_put_options through = put_options(), put = put_options();
      through.write_policy = HUTCH_WRITE_THROUGH;
      put.write_policy = of_put;
      hutch_put_result result = new_result();
      CHECK_OK(hutch_put(cache, KEY("a"), KEY("old"), &through, NULL));
      check_where(cache, "a", true, true);
      CHECK_OK(hutch_put(cache, KEY("a"), KEY("new"), &put, &result));
      check_where(cache, "a", in_memory, on_disk);
      CHECK_EQUAL(in_memory ? HUTCH_OUTCOME_STORED : HUTCH_OUTCOME_REMOVED, result.memory);
      CHECK_EQUAL(on_disk       ? HUTCH_OUTCOME_STORED
                  : is_deferred ? HUTCH_OUTCOME_DEFERRED
                                : HUTCH_OUTCOME_REMOVED,
                  result.disk);
      CHECK_TEXT(cache, "a", "new");
      CHECK_EQUAL(1, count_of(cache));
      /* The condition is about the whole cache, whatever the put's tiers are. */
      CHECK_OK(hutch_put(cache, KEY("b"), KEY("b"), &through, NULL));
      CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("b"), KEY("no"), &put, NULL));
      CHECK_OK(hutch_replace(cache, KEY("b"), KEY("yes"), &put, NULL));
      CHECK_TEXT(cache, "b", "yes");
      int64_t sum = 0;
      CHECK_OK(hutch_increment(cache, KEY("n"), 5, 0, &put, &sum));
      check_where(cache, "n", in_memory, on_disk);
      CHECK_OK(hutch_increment(cache, KEY("n"), 5, 0, &put, &sum));
      CHECK_EQUAL(10, sum);
      const void *keys[] = {"m"}, *values[] = {"many"};
      const size_t key_sizes[] = {1}, value_sizes[] = {4};
      hutch_batch *batch;
      CHECK_OK(hutch_put_many(cache, keys, key_sizes, values, value_sizes, 1, &put, &batch));
      hutch_batch_release(batch);
      check_where(cache, "m", in_memory, on_disk);
      CHECK_OK(hutch_close(cache));
      /* What memory alone had is gone with it. */
      cache = open_cache(scratch(name).text, &options);
      CHECK_EQUAL(on_disk || is_deferred ? 4 : 0, count_of(cache));
      CHECK_OK(hutch_close(cache));
    }
  }
  check_note(NULL);
}

/* Each key is asked for twice, with so many others between as the disk tier has room for and memory
   has not. That memory was given an entry is no read of it, for which the disk tier would keep it
   before new ones. */
TEST(a_small_memory_tier_costs_the_disk_tier_no_hits) {
  enum { IN_MEMORY_TIER = 200, ON_DISK = 1000, DISTANCE = 800, KEYS = 6000 };
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  options.memory.count = IN_MEMORY_TIER;
  options.disk.count = ON_DISK;
  options.disk.cost = ON_DISK * 2048;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  uint32_t hits = 0;
  for (uint32_t i = 0; i < KEYS; i++)
    for (uint32_t again = 0; again < 2; again++) {
      char value[448] = {0};
      size_t size;
      uint32_t key = again ? i - DISTANCE : i;
      if (again && i < DISTANCE) continue;
      hutch_status status = hutch_get_into(cache, &key, sizeof key, value, sizeof value, &size);
      if (status == HUTCH_OK) {
        hits++;
        continue;
      }
      CHECK_STATUS(HUTCH_NOT_FOUND, status);
      CHECK_OK(hutch_put(cache, &key, sizeof key, value, sizeof value, NULL, NULL));
    }
  CHECK(hits > (KEYS - DISTANCE) / 10 * 9);
  CHECK_OK(hutch_close(cache));
}

TEST(write_policies_that_cannot_be_are_refused) {
  hutch_options options = default_options();
  hutch_put_options put = put_options();
  hutch_cache *cache;
  options.write_policy = 77;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(NULL, &options, &cache));
  options.write_policy = HUTCH_WRITE_DISK;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(NULL, &options, &cache));
  cache = open_cache(NULL, NULL);
  put.write_policy = HUTCH_WRITE_DISK;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
  put.write_policy = 77;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
  put.write_policy = HUTCH_WRITE_MEMORY;
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
  CHECK_OK(hutch_close(cache));
}
