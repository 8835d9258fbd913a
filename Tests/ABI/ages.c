/* The ages of tiers: removals of entries that have expired by them, and reads in memory that keep an
   entry on disk alive. */
#include "check.h"

enum { AGE = 10 };

/* ---------------------------------------------- removals of what has expired */

static void set_ages(hutch_cache *cache, int64_t time_to_live, int64_t time_to_idle) {
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  limits.memory.time_to_live = limits.disk.time_to_live = time_to_live;
  limits.memory.time_to_idle = limits.disk.time_to_idle = time_to_idle;
  CHECK_OK(hutch_set_limits(cache, &limits));
}

static void remove_it(hutch_cache *cache) {
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("key")));
}

static void pop_it(hutch_cache *cache) {
  hutch_value *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(cache, KEY("key"), &value));
}

static void remove_many(hutch_cache *cache) {
  const void *keys[] = {"key"};
  size_t sizes[] = {3};
  hutch_batch *batch;
  CHECK_OK(hutch_remove_many(cache, keys, sizes, 1, &batch));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_status(batch, 0));
  hutch_batch_release(batch);
}

static void remove_by_prefix(hutch_cache *cache) {
  uint64_t removed = 7;
  CHECK_OK(hutch_remove_prefix(cache, KEY("ke"), &removed));
  CHECK_EQUAL(0, removed);
}

static void remove_by_tag(hutch_cache *cache) {
  uint64_t removed = 7;
  CHECK_OK(hutch_remove_tagged(cache, KEY("tag"), &removed));
  CHECK_EQUAL(0, removed);
}

static const struct removal {
  const char *name;
  void (*run)(hutch_cache *);
} removals[] = {{"remove", remove_it},
                {"pop", pop_it},
                {"remove_many", remove_many},
                {"remove_prefix", remove_by_prefix},
                {"remove_tagged", remove_by_tag}};

static void put_tagged(hutch_cache *cache, const char *key, const char *tag) {
  hutch_put_options options = put_options();
  options.tag = tag;
  options.tag_size = strlen(tag);
  CHECK_OK(hutch_put(cache, KEY(key), KEY("value"), &options, NULL));
}

/* Puts an entry that is removed once it has expired, and another one with the same ages. */
static void expires_removed_and_stays_away(kind k, const struct removal *removal,
                                           hutch_options *options, bool by_idling,
                                           bool on_disk_alone) {
  test_clock clock = {0};
  use_clock(options, &clock);
  options->flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *whole = open_cache(k == IN_MEMORY ? NULL : scratch("cache").text, options);
  hutch_cache *cache = whole;
  if (k == MEMORY_VIEW) cache = tier_of(whole, HUTCH_TIER_MEMORY);
  if (k == DISK_VIEW) cache = tier_of(whole, HUTCH_TIER_DISK);
  int64_t age = AGE * HUTCH_SECOND;
  set_ages(whole, by_idling ? HUTCH_FOREVER : age, by_idling ? age : HUTCH_FOREVER);
  put_tagged(cache, "key", "tag");
  put_tagged(cache, "other", "another");
  if (on_disk_alone) {
    hutch_cache *memory = tier_of(whole, HUTCH_TIER_MEMORY);
    CHECK_OK(hutch_clear(memory));
    hutch_cache_release(memory);
  }
  clock.now += age + HUTCH_SECOND;
  removal->run(cache);
  set_ages(whole, by_idling ? HUTCH_FOREVER : 100 * age, by_idling ? 100 * age : HUTCH_FOREVER);
  CHECK_MISSING(cache, "key");
  /* As the removed one would be. */
  CHECK_TEXT(cache, "other", "value");
  if (cache != whole) hutch_cache_release(cache);
  CHECK_OK(hutch_close(whole));
  if (k == IN_MEMORY) return;
  whole = open_cache(scratch("cache").text, options);
  if (k != MEMORY_VIEW) CHECK_MISSING(whole, "key");
  CHECK_OK(hutch_close(whole));
  CHECK_OK(hutch_destroy(scratch("cache").text));
}

static void for_each_removal(kind k, uint32_t sharing, uint32_t durability, bool on_disk_alone) {
  static char note[64];
  for (size_t i = 0; i < sizeof removals / sizeof *removals; i++) {
    for (int by_idling = 0; by_idling <= 1; by_idling++) {
      snprintf(note, sizeof note, "%s, kind %d%s", removals[i].name, k,
               by_idling ? ", idle" : "");
      check_note(note);
      hutch_options options = unlimited_options();
      options.sharing = sharing;
      options.durability = durability;
      expires_removed_and_stays_away(k, &removals[i], &options, by_idling, on_disk_alone);
    }
  }
  check_note(NULL);
}

TEST(a_removed_entry_that_had_expired_is_not_back_under_another_age) {
  for (kind k = 0; k < KINDS; k++) for_each_removal(k, 0, 0, false);
}

TEST(an_expired_entry_on_disk_alone_is_removed_for_good) {
  for_each_removal(TWO_TIERS, 0, 0, true);
}

TEST(an_expired_entry_is_removed_for_good_with_durability) {
  for (kind k = TWO_TIERS; k < KINDS; k++)
    for_each_removal(k, 0, HUTCH_DURABILITY_SYNC, k == TWO_TIERS);
}

TEST(an_expired_entry_is_removed_for_good_where_processes_share) {
  for (kind k = TWO_TIERS; k < KINDS; k++)
    for_each_removal(k, HUTCH_SHARING_SHARED, 0, false);
  for_each_removal(TWO_TIERS, HUTCH_SHARING_SHARED, 0, true);
}

TEST(an_expired_entry_that_was_to_be_written_on_eviction_is_removed_for_good) {
  for (size_t i = 0; i < sizeof removals / sizeof *removals; i++) {
    check_note(removals[i].name);
    hutch_options options = unlimited_options();
    options.write_policy = HUTCH_WRITE_ON_EVICTION;
    expires_removed_and_stays_away(TWO_TIERS, &removals[i], &options, false, false);
    /* And one that is on its way, or on disk by now. */
    options = unlimited_options();
    options.write_policy = HUTCH_WRITE_ON_EVICTION;
    expires_removed_and_stays_away(TWO_TIERS, &removals[i], &options, false, true);
  }
  check_note(NULL);
}

TEST(an_expired_object_is_removed_for_good) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  set_ages(cache, AGE * HUTCH_SECOND, HUTCH_FOREVER);
  static int one, other;
  hutch_put_options tagged = put_options();
  tagged.tag = "tag";
  tagged.tag_size = 3;
  CHECK_OK(hutch_put_object(cache, KEY("one"), &one, NULL, &tagged));
  CHECK_OK(hutch_put_object(cache, KEY("other"), &other, NULL, NULL));
  clock.now += (AGE + 1) * HUTCH_SECOND;
  remove_by_tag(cache);
  set_ages(cache, 100 * AGE * HUTCH_SECOND, HUTCH_FOREVER);
  hutch_object *object;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get_object(cache, KEY("one"), &object));
  CHECK_OK(hutch_get_object(cache, KEY("other"), &object));
  hutch_object_release(object);
  CHECK_OK(hutch_close(cache));
}

/* What has another tag by now, or is alive, is no removal's of the expired. */
TEST(a_removal_by_tag_spares_an_entry_that_was_put_again_with_another) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  set_ages(cache, AGE * HUTCH_SECOND, HUTCH_FOREVER);
  put_tagged(cache, "key", "tag");
  clock.now += (AGE + 1) * HUTCH_SECOND;
  put_tagged(cache, "key", "another");
  remove_by_tag(cache);
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------- accesses, from tier to tier */

/* A cache in the directory, without threads, by a clock that the test sets. */
static hutch_cache *open_by_hand(hutch_options *options, test_clock *clock) {
  options->flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(options, clock);
  return open_cache(scratch("cache").text, options);
}

/* The key, with a time to idle of its own. */
static void put_idling(hutch_cache *cache) {
  hutch_put_options put = put_options();
  put.time_to_idle = AGE * HUTCH_SECOND;
  CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &put, NULL));
}

/* Memory's own age ends its copy, whose reads have kept the entry alive. */
TEST(an_access_outlives_the_copy_in_memory) {
  for (int is_swept = 0; is_swept <= 1; is_swept++) {
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    options.memory.time_to_live = 8 * HUTCH_SECOND;
    hutch_cache *cache = open_by_hand(&options, &clock);
    put_idling(cache);
    clock.now += 7 * HUTCH_SECOND;
    CHECK_TEXT(cache, "key", "value");
    clock.now += 5 * HUTCH_SECOND;
    if (is_swept) CHECK_OK(hutch_maintain(cache, HUTCH_SECOND));
    CHECK_TEXT(cache, "key", "value");
    clock.now += (AGE + 1) * HUTCH_SECOND;
    CHECK_MISSING(cache, "key");
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(scratch("cache").text));
  }
}

static uint64_t removed_with_prefix(hutch_cache *cache) {
  uint64_t removed;
  CHECK_OK(hutch_remove_prefix(cache, KEY("ke"), &removed));
  return removed;
}

static hutch_status walk_over(hutch_cache *cache) {
  hutch_cursor *cursor;
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create_ordered(cache, HUTCH_ORDER_ACCESS, &cursor));
  hutch_status status = hutch_cursor_next(cursor, &key, &size);
  hutch_cursor_release(cursor);
  return status;
}

/* One call that depends on whether the key has an entry. False: there are no more. */
static bool find_by(int call, hutch_cache *cache, hutch_cache *disk) {
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_value *value = NULL;
  uint64_t sum;
  switch (call) {
    case 0: CHECK_OK(hutch_contains(cache, KEY("key"))); break;
    case 1: CHECK_OK(hutch_info(cache, KEY("key"), &info)); break;
    case 2: CHECK_OK(walk_over(cache)); break;
    case 3: CHECK_OK(hutch_touch(cache, KEY("key"), 0, 0)); break;
    case 4: CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("key"), KEY("new"), NULL, NULL)); break;
    case 5: CHECK_OK(hutch_replace(cache, KEY("key"), KEY("new"), NULL, NULL)); break;
    case 6: CHECK_OK(hutch_pop(cache, KEY("key"), &value)); break;
    case 7: CHECK_EQUAL(1, removed_with_prefix(cache)); break;
    case 8: CHECK_OK(hutch_value_bytes(cache, &sum)); CHECK_EQUAL(5, sum); break;
    case 9: CHECK_OK(hutch_contains(disk, KEY("key"))); break;
    case 10: CHECK_TEXT(disk, "key", "value"); break;
    default: return false;
  }
  hutch_value_release(value);
  return true;
}

/* As above, by the disk tier's time to idle, and for calls that are no access: memory has not given
   its copy up when they look at the store. */
TEST(each_call_knows_the_reads_of_the_copy_in_memory) {
  const uint32_t policies[] = {HUTCH_WRITE_THROUGH, HUTCH_WRITE_ON_EVICTION};
  for (int way = 0; way < 3; way++) {
    bool is_more = true;
    for (int call = 0; is_more; call++) {
      test_clock clock = {0};
      hutch_options options = unlimited_options();
      options.memory.time_to_live = AGE * HUTCH_SECOND;
      options.disk.time_to_idle = AGE * HUTCH_SECOND;
      options.sharing = way ? HUTCH_SHARING_EXCLUSIVE : HUTCH_SHARING_SHARED;
      options.write_policy = policies[way / 2];
      hutch_cache *cache = open_by_hand(&options, &clock);
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      CHECK_OK(put_text(cache, "key", "value"));
      CHECK_OK(hutch_flush(cache));
      clock.now += 4 * HUTCH_SECOND;
      CHECK_TEXT(cache, "key", "value");
      clock.now += 7 * HUTCH_SECOND;
      is_more = find_by(call, cache, disk);
      hutch_cache_release(disk);
      CHECK_OK(hutch_close(cache));
      CHECK_OK(hutch_destroy(scratch("cache").text));
    }
  }
}

/* The entry lives by reads of the copy in memory, which goes before the disk tier looks. */
TEST(a_view_of_the_disk_knows_the_reads_of_the_copy_in_memory) {
  for (int call = 0; call < 8; call++) {
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    options.sharing = call % 2 ? HUTCH_SHARING_EXCLUSIVE : HUTCH_SHARING_SHARED;
    hutch_cache *cache = open_by_hand(&options, &clock);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    put_idling(cache);
    for (int i = 0; i < 3; i++) {
      clock.now += (AGE - 3) * HUTCH_SECOND;
      CHECK_TEXT(cache, "key", "value");
    }
    clock.now += HUTCH_SECOND;
    hutch_value *value = NULL;
    switch (call / 2) {
      case 0: CHECK_OK(hutch_touch(disk, KEY("key"), 0, 0)); break;
      case 1: CHECK_OK(hutch_remove(disk, KEY("key"))); break;
      case 2: CHECK_EQUAL(1, removed_with_prefix(disk)); break;
      case 3: CHECK_OK(hutch_pop(disk, KEY("key"), &value)); break;
    }
    hutch_value_release(value);
    clock.now += (AGE - 1) * HUTCH_SECOND;
    CHECK_STATUS(call / 2 == 0 ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(cache, KEY("key")));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(scratch("cache").text));
  }
}

/* The tier's age, which memory has not: given at the opening, changed later, and lifted. */
TEST(the_disk_tiers_time_to_idle_counts_reads_in_memory) {
  for (uint32_t storage = 0; storage < 2; storage++) {
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    options.storage = storage ? HUTCH_STORAGE_MIXED : HUTCH_STORAGE_LOG;
    options.disk.time_to_idle = AGE * HUTCH_SECOND;
    hutch_cache *cache = open_by_hand(&options, &clock);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    for (int age = AGE; age <= 4 * AGE; age *= 4) {
      hutch_cache_limits limits = {.struct_size = sizeof limits};
      limits.disk.time_to_idle = age * HUTCH_SECOND;
      CHECK_OK(hutch_set_limits(cache, &limits));
      CHECK_OK(put_text(cache, "key", "value"));
      for (int i = 0; i < 12; i++) {
        clock.now += age * HUTCH_SECOND / 5 * 4;
        CHECK_TEXT(cache, "key", "value");
        if (i % 4 == 0) CHECK_OK(hutch_maintain(cache, HUTCH_SECOND));
      }
      CHECK_OK(hutch_clear(memory));
      clock.now += age * HUTCH_SECOND / 5;
      CHECK_TEXT(cache, "key", "value");
      CHECK_EQUAL(0, info_of(memory, "key").time_to_idle);
      clock.now += age * HUTCH_SECOND;
      CHECK_OK(hutch_clear(memory));
      CHECK_MISSING(cache, "key");
    }
    hutch_cache_limits limits = {.struct_size = sizeof limits};
    limits.disk.time_to_idle = HUTCH_FOREVER;
    CHECK_OK(hutch_set_limits(cache, &limits));
    CHECK_OK(put_text(cache, "key", "value"));
    clock.now += 100 * AGE * HUTCH_SECOND;
    CHECK_OK(hutch_clear(memory));
    CHECK_TEXT(cache, "key", "value");
    CHECK_EQUAL(HUTCH_FOREVER, limits_of(cache).memory.time_to_idle);
    hutch_cache_release(memory);
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(scratch("cache").text));
  }
}

/* No limit makes the cleaner evict anything. It meets the entry after its time to idle, as the log
   knows it, and before a sweep. */
TEST(the_cleaner_keeps_what_reads_in_memory_keep_alive) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  hutch_cache *cache = open_by_hand(&options, &clock);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  put_idling(cache);
  for (int i = 0; i < 1000; i++) CHECK_OK(put_size(cache, "other", 3000));
  clock.now += 8 * HUTCH_SECOND;
  CHECK_TEXT(cache, "key", "value");
  clock.now += 4 * HUTCH_SECOND;
  /* Segments are used again. */
  for (int i = 0; i < 10000; i++) CHECK_OK(put_size(cache, "other", 3000));
  CHECK_TEXT(cache, "key", "value");
  CHECK_OK(hutch_clear(memory));
  CHECK_TEXT(cache, "key", "value");
  hutch_cache_release(memory);
  CHECK_OK(hutch_close(cache));
}

typedef struct flushing {
  hutch_cache *cache;
  _Atomic int asked, done;
  _Atomic bool ends;
} flushing;

static void *flush_when_asked(void *context) {
  flushing *f = context;
  while (!f->ends) {
    int asked = f->asked;
    if (asked == f->done) continue;
    CHECK_OK(hutch_flush(f->cache));
    f->done = asked;
  }
  return NULL;
}

/* The entry is alive by an access that goes from memory into its row meanwhile. A read that had seen
   the row before, and looked for the access afterwards, missed the entry. */
TEST(a_read_beside_a_flush_finds_what_an_access_keeps_alive) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_MIXED;
  flushing f = {.cache = open_by_hand(&options, &clock)};
  hutch_cache *disk = tier_of(f.cache, HUTCH_TIER_DISK);
  put_idling(disk);
  pthread_t thread;
  CHECK_EQUAL(0, pthread_create(&thread, NULL, flush_when_asked, &f));
  for (int round = repeats(150); round > 0; round--) {
    clock.now += 8 * HUTCH_SECOND;
    CHECK_TEXT(disk, "key", "value");
    clock.now += 8 * HUTCH_SECOND;
    for (int asked = ++f.asked; f.done != asked;) CHECK_OK(hutch_contains(disk, KEY("key")));
    CHECK_TEXT(disk, "key", "value");
    CHECK_OK(hutch_flush(f.cache));
  }
  f.ends = true;
  pthread_join(thread, NULL);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(f.cache));
}

/* As the cleaner, so the database's evictions. */
TEST(an_eviction_spares_what_reads_in_memory_keep_alive) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_MIXED;
  options.disk.count = 10;
  hutch_cache *cache = open_by_hand(&options, &clock);
  put_idling(cache);
  clock.now += 8 * HUTCH_SECOND;
  CHECK_TEXT(cache, "key", "value");
  clock.now += 4 * HUTCH_SECOND;
  for (int i = 0; i < 30; i++) {
    char other[16];
    sprintf(other, "%d", i);
    CHECK_OK(put_text(cache, other, "value"));
  }
  check_where(cache, "key", true, true);
  CHECK_OK(hutch_close(cache));
}

/* An eviction that spares the key, since memory has used it, does not make that a read of now: a trim
   by the time to idle goes by the last read. */
TEST(an_eviction_leaves_the_last_read_to_a_trim_by_age) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_MIXED;
  options.flags = HUTCH_OPEN_AGES_ON_TRIM;
  options.disk.count = 10;
  options.disk.time_to_idle = AGE * HUTCH_SECOND;
  hutch_cache *cache = open_by_hand(&options, &clock);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "key", "value"));
  clock.now += 2 * HUTCH_SECOND;
  CHECK_TEXT(cache, "key", "value");
  clock.now += 2 * AGE * HUTCH_SECOND;
  for (int i = 0; i < 12; i++) {
    char other[16];
    sprintf(other, "%d", i);
    CHECK_OK(put_text(cache, other, "value"));
  }
  check_where(cache, "key", true, true);
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  uint64_t removed = 0;
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(1, removed);
  CHECK_MISSING(disk, "key");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* What has expired goes first. The read in memory makes the key one that has not, and others were
   read longer ago. */
TEST(a_trim_to_a_count_spares_what_reads_in_memory_keep_alive) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.disk_policy = HUTCH_POLICY_LRU;
  hutch_cache *cache = open_by_hand(&options, &clock);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  put_idling(cache);
  for (int i = 0; i < 10; i++) {
    char other[16];
    sprintf(other, "%d", i);
    CHECK_OK(put_text(cache, other, "value"));
  }
  clock.now += 8 * HUTCH_SECOND;
  CHECK_TEXT(cache, "key", "value");
  clock.now += 4 * HUTCH_SECOND;
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 6};
  uint64_t removed = 0;
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(5, removed);
  check_where(cache, "key", true, true);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* More of them than the database's tier gathers times of, where no life hangs on one. */
TEST(reads_of_many_entries_keep_each_of_them_alive) {
  enum { MANY = 10000 };
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_by_hand(&options, &clock);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options put = put_options();
  put.time_to_idle = AGE * HUTCH_SECOND;
  for (uint32_t i = 0; i < MANY; i++)
    CHECK_OK(hutch_put(disk, &i, sizeof i, KEY("value"), &put, NULL));
  for (int round = 0; round < 3; round++) {
    clock.now += 8 * HUTCH_SECOND;
    if (round == 2) CHECK_OK(hutch_flush(cache));
    for (uint32_t i = 0; i < MANY; i++) {
      hutch_value *value;
      CHECK_OK(hutch_get(disk, &i, sizeof i, &value));
      hutch_value_release(value);
    }
  }
  clock.now += (AGE + 1) * HUTCH_SECOND;
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_EQUAL(0, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------- times before 1970 */

/* A write is decided by its own time, whatever that is. */
TEST(a_hosts_clock_may_show_any_time) {
  int64_t times[] = {0, -1, -HUTCH_DAY, INT64_MIN, INT64_MAX, HUTCH_DAY};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    path directory = scratch("cache");
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    options.flags |= HUTCH_OPEN_NO_THREADS;
    use_clock(&options, &clock);
    atomic_store(&clock.now, times[i]);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_HOUR;
    CHECK_OK(hutch_put(cache, KEY("both"), KEY("value"), &put, NULL));
    CHECK_OK(hutch_put(disk, KEY("disk"), KEY("value"), &put, NULL));
    CHECK_OK(hutch_flush(cache));
    CHECK_OK(hutch_touch(cache, KEY("both"), HUTCH_DAY, 0));
    CHECK_OK(hutch_touch(disk, KEY("disk"), HUTCH_DAY, 0));
    CHECK_TEXT(cache, "both", "value");
    CHECK_TEXT(disk, "disk", "value");
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_EQUAL(2, count_of(cache));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* An entry without an end has an end of 0. */
TEST(an_end_in_1970_to_the_nanosecond_is_an_end) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(NULL, &options);
  static const int64_t lives[] = {1, HUTCH_SECOND};
  for (int i = 0; i < 4; i++) {
    int64_t life = lives[i % 2];
    bool is_touched = i >= 2;
    atomic_store(&clock.now, life == 1 ? 0 : -life);
    hutch_put_options put = put_options();
    put.time_to_live = is_touched ? HUTCH_DAY : life;
    CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &put, NULL));
    if (is_touched) CHECK_OK(hutch_touch(cache, KEY("key"), life, 0));
    atomic_store(&clock.now, HUTCH_SECOND);
    size_t size;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_get_into(cache, KEY("key"), NULL, 0, &size));
  }
  CHECK_OK(hutch_close(cache));
}
