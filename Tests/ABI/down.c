/* A disk tier that is down: from the beginning, or since its directory went away. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* On a clock of the host's, by which counting does the maintenance, and so tries the directory
   again; and without threads of the library's, which would make a directory anew while the test
   is about to bring it back. */
typedef struct fixture_down {
  test_clock clock;
  hutch_options options;
} down;

static void prepare(down *d, uint32_t flags) {
  d->options = unlimited_options();
  d->options.flags = flags;
  d->options.flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(&d->options, &d->clock);
}

/* What was put on a clock of the host's need not be of today's. */
static hutch_cache *open_unlimited(const char *directory) {
  hutch_options options = unlimited_options();
  return open_cache(directory, &options);
}

static uint64_t state_of(hutch_cache *cache) { return stats_of(cache).disk.state; }

static void block_with_a_file(const char *name) { write_file(scratch(name).text, "x", 1); }

TEST(a_disk_that_is_optional_may_come_later) {
  down d = {0};
  block_with_a_file("parent");
  path directory = scratch("parent/cache");
  prepare(&d, 0);
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(directory.text, &d.options, &cache));
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  cache = open_cache(directory.text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("early"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_STATUS(HUTCH_TIER_DOWN, put_text(disk, "disk", "value"));
  CHECK_TEXT(cache, "early", "value");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));

  CHECK(unlink(scratch("parent").text) == 0);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  CHECK_MISSING(disk, "early");
  CHECK_OK(put_text(cache, "late", "value"));
  CHECK_OK(put_size(cache, "large", 100000));
  CHECK_TEXT(disk, "late", "value");
  /* The process knows it as open, under any path. */
  hutch_cache *second = NULL;
  CHECK_OK(hutch_open(directory.text, NULL, &second));
  CHECK_TEXT(second, "late", "value");
  CHECK_OK(hutch_close(second));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  cache = open_unlimited(directory.text);
  CHECK_TEXT(cache, "late", "value");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_disk_that_never_comes_ends_well) {
  down d = {0};
  block_with_a_file("parent");
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  hutch_cache *cache = open_cache(scratch("parent/cache").text, &d.options);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, d.clock.released);
}

TEST(what_asks_for_the_wrong_thing_is_no_matter_of_the_directory) {
  down d = {0};
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  d.options.storage = HUTCH_STORAGE_FILE;
  CHECK_OK(hutch_close(open_cache(scratch("cache").text, &d.options)));
  hutch_cache *cache;
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  d.options.storage = HUTCH_STORAGE_LOG + 1;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(scratch("cache").text, &d.options, &cache));
  /* Another kind of storage is none of them. */
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  d.options.storage = HUTCH_STORAGE_SQLITE;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(scratch("cache").text, &d.options, &cache));
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
}

/* A failed touch, and a write that has failed and whose condition was not decided, leave the entry. */
TEST(what_a_failed_condition_did_not_replace_stays) {
  down d = {0};
  prepare(&d, 0);
  d.options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  static const char *const keys[] = {"add", "replace", "swap", "count", "touch", "pop"};
  for (int i = 0; i < 6; i++) CHECK_OK(put_text(i % 2 ? cache : disk, keys[i], "old"));
  uint64_t version = info_of(disk, "swap").version;
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  block_with_a_file("cache");
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(disk));
  CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_add(disk, KEY("add"), KEY("new"), NULL, NULL));
  hutch_replace(cache, KEY("replace"), KEY("new"), NULL, NULL);
  hutch_compare_and_swap(disk, KEY("swap"), version, KEY("new"), NULL, NULL);
  hutch_increment(disk, KEY("count"), 1, 1, NULL, NULL);
  hutch_touch(disk, KEY("touch"), HUTCH_DAY, 0);
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_pop(cache, KEY("pop"), &value));
  CHECK(!value);
  CHECK_TEXT(cache, "pop", "old");
  CHECK(unlink(scratch("cache").text) == 0);
  CHECK(rename(scratch("away").text, scratch("cache").text) == 0);
  do count_of(cache);
  while (state_of(cache) != HUTCH_STATE_UP);
  for (int i = 0; i < 6; i++) {
    check_note(keys[i]);
    CHECK_TEXT(disk, keys[i], "old");
    CHECK_TEXT(cache, keys[i], "old");
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(what_was_written_meanwhile_counts) {
  down d = {0};
  prepare(&d, 0);
  hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
  for (int i = 0; i < 10; i++) CHECK_OK(put_text(cache, "replaced", "older"));
  CHECK_OK(put_text(cache, "removed", "older"));
  CHECK_OK(put_text(cache, "popped", "older"));
  hutch_put_options tagged = put_options();
  tagged.tag = "tag";
  tagged.tag_size = 3;
  CHECK_OK(hutch_put(cache, KEY("tagged"), KEY("value"), &tagged, NULL));
  CHECK_OK(put_text(cache, "kept", "value"));
  CHECK_OK(hutch_close(cache));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  block_with_a_file("cache");

  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  cache = open_cache(scratch("cache").text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_value *value = NULL;
  CHECK_MISSING(cache, "kept");
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "replaced", "newer"));
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_remove(cache, KEY("removed")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(cache, KEY("popped"), &value));
  /* It will be back, so it is not removed. */
  uint64_t removed = 1;
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_remove_tagged(cache, KEY("tag"), &removed));
  CHECK_EQUAL(0, removed);
  CHECK(unlink(scratch("cache").text) == 0);
  CHECK(rename(scratch("away").text, scratch("cache").text) == 0);
  count_of(cache);
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  CHECK_TEXT(cache, "replaced", "newer");
  CHECK_MISSING(disk, "replaced");
  CHECK_MISSING(cache, "removed");
  CHECK_TEXT(cache, "kept", "value");
  CHECK_OK(put_text(cache, "replaced", "newest"));
  CHECK_TEXT(disk, "replaced", "newest");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  cache = open_unlimited(scratch("cache").text);
  CHECK_TEXT(cache, "replaced", "newest");
  CHECK_MISSING(cache, "removed");
  CHECK_OK(hutch_close(cache));
}

/* Whether the cache has noticed that its directory is not at its path any more makes no
   difference. */
TEST(a_close_says_that_the_directory_is_away) {
  for (int notices = 0; notices < 2; notices++) {
    for (int removes = 0; removes < 2; removes++) {
      down d = {0};
      prepare(&d, 0);
      hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
      CHECK_OK(put_text(cache, "key", "value"));
      if (removes) remove_tree(scratch("cache").text);
      else CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
      if (notices) {
        let_notice(cache);
        CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "other", "value"));
        CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
      }
      CHECK_STATUS(removes ? HUTCH_OK : HUTCH_IO, hutch_close(cache));
      if (removes) continue;
      CHECK(rename(scratch("away").text, scratch("cache").text) == 0);
      cache = open_unlimited(scratch("cache").text);
      CHECK_TEXT(cache, "key", "value");
      CHECK_OK(hutch_close(cache));
    }
  }
}

TEST(a_removed_directory_comes_back_or_is_made_again) {
  for (uint32_t flags = 0; flags <= HUTCH_OPEN_DISK_OPTIONAL; flags += 2) {
    down d = {0};
    prepare(&d, flags);
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(directory.text, &d.options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(put_size(cache, "large", 100000));
    remove_tree(directory.text);
    let_notice(cache);
    /* Maintenance may be quicker where it may make the directory. */
    if (!flags) {
      CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "other", "value"));
      CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
    }
    count_of(cache);
    count_of(cache);
    if (!flags) {
      CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
      CHECK(access(directory.text, F_OK) != 0);
      CHECK(mkdir(directory.text, 0700) == 0);
      count_of(cache);
    }
    CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
    CHECK_OK(put_size(cache, "large", 100001));
    CHECK_TEXT(cache, "key", "value");
    hutch_cache *second = NULL;
    CHECK_OK(hutch_open(directory.text, NULL, &second));
    CHECK_OK(hutch_close(second));
    CHECK_OK(hutch_close(cache));
    cache = open_unlimited(directory.text);
    CHECK_EQUAL(100001, info_of(cache, "large").size);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Another process may not open it meanwhile, nor when it is back. */
PROCESS(is_kept_out, directory) {
  hutch_cache *cache;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory, NULL, &cache));
}

TEST(a_directory_of_one_process_alone_comes_back) {
  for (int on_eviction = 0; on_eviction < 2; on_eviction++) {
    down d = {0};
    prepare(&d, 0);
    if (on_eviction) d.options.write_policy = HUTCH_WRITE_ON_EVICTION;
    else d.options.sharing = HUTCH_SHARING_EXCLUSIVE;
    path directory = scratch("cache"), away = scratch("away");
    hutch_cache *cache = open_cache(directory.text, &d.options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_flush(cache));
    for (int times = 0; times < 3; times++) {
      CHECK(rename(directory.text, away.text) == 0);
      let_notice(cache);
      CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(cache));
      CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
      process other = start_process("is_kept_out", away.text);
      CHECK_EQUAL(0, end_process(&other));
      CHECK(rename(away.text, directory.text) == 0);
      count_of(cache);
      CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
      CHECK_OK(put_text(cache, "new", "value"));
      CHECK_OK(hutch_flush(cache));
      other = start_process("is_kept_out", directory.text);
      CHECK_EQUAL(0, end_process(&other));
    }
    CHECK_EQUAL(2, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    cache = open_unlimited(directory.text);
    CHECK_TEXT(cache, "key", "value");
    CHECK_TEXT(cache, "new", "value");
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* An older directory takes the place of the one that was moved away, as a backup does. Memory has
   the newer entry, and its version decides; the older one goes. */
TEST(an_older_directory_that_comes_back_stops_no_write) {
  for (int which = 0; which < 4; which++) {
    hutch_options options = unlimited_options();
    options.flags = HUTCH_OPEN_NO_THREADS;
    options.sharing = HUTCH_SHARING_SHARED;
    path directory = scratch("cache"), older = scratch("older"), away = scratch("away");
    int64_t number = 5, sum = 0;
    hutch_cache *cache = open_cache(older.text, &options);
    CHECK_OK(hutch_put(cache, KEY("key"), &number, sizeof number, NULL, NULL));
    CHECK_OK(hutch_close(cache));
    cache = open_cache(directory.text, &options);
    number = 7;
    for (int i = 0; i < 3; i++)
      CHECK_OK(hutch_put(cache, KEY("key"), &number, sizeof number, NULL, NULL));
    CHECK(rename(directory.text, away.text) == 0);
    let_notice(cache);
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
    CHECK(rename(older.text, directory.text) == 0);
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));

    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    uint64_t version = info_of(cache, "key").version;
    CHECK(info_of(disk, "key").version < version);
    hutch_value *value = NULL;
    switch (which) {
    case 0:
      CHECK_OK(hutch_pop(cache, KEY("key"), &value));
      CHECK_BYTES(&number, sizeof number, hutch_value_data(value), hutch_value_size(value));
      hutch_value_release(value);
      break;
    case 1:
      CHECK_OK(hutch_increment(cache, KEY("key"), 1, 0, NULL, &sum));
      CHECK_EQUAL(8, sum);
      break;
    case 2:
      CHECK_OK(hutch_compare_and_swap(cache, KEY("key"), version, KEY("newer"), NULL, NULL));
      CHECK_TEXT(disk, "key", "newer");
      break;
    default: CHECK_OK(hutch_remove(cache, KEY("key")));
    }
    bool has_gone = which == 0 || which == 3;
    CHECK_EQUAL(has_gone ? 0 : 1, count_of(disk));
    CHECK_EQUAL(has_gone ? 0 : 1, count_of(cache));
    CHECK_SOUND(cache);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
    remove_tree(away.text);
  }
}

static hutch_status write_under_a_condition(hutch_cache *cache, int which, uint64_t version) {
  hutch_value *value = NULL;
  hutch_put_options tagged = put_options();
  tagged.tag = "tag";
  tagged.tag_size = 3;
  switch (which) {
  case 0: return hutch_replace(cache, KEY("key"), KEY("newer"), NULL, NULL);
  case 1: return hutch_compare_and_swap(cache, KEY("key"), version, KEY("newer"), &tagged, NULL);
  default: {
    hutch_status status = hutch_pop(cache, KEY("key"), &value);
    hutch_value_release(value);
    return status;
  }
  }
}

/* SQLite would go on in the directory that was moved. */
TEST(a_write_under_a_condition_that_finds_the_directory_away_changes_nothing) {
  for (int which = 0; which < 3; which++) {
    down d = {0};
    prepare(&d, 0);
    d.options.storage = HUTCH_STORAGE_MIXED;
    path directory = scratch("cache"), away = scratch("away");
    hutch_cache *cache = open_cache(directory.text, &d.options);
    CHECK_OK(put_text(cache, "key", "older"));
    uint64_t version = info_of(cache, "key").version;
    CHECK(rename(directory.text, away.text) == 0);
    CHECK_STATUS(HUTCH_TIER_DOWN, write_under_a_condition(cache, which, version));
    CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
    CHECK(rename(away.text, directory.text) == 0);
    count_of(cache);
    CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
    CHECK_TEXT(cache, "key", "older");
    CHECK_EQUAL(version, info_of(cache, "key").version);
    CHECK_OK(write_under_a_condition(cache, which, version));
    CHECK_EQUAL(which < 2, CHECK_SOUND(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

TEST(what_memory_has_is_counted_while_the_disk_is_away) {
  down d = {0};
  prepare(&d, 0);
  path directory = scratch("cache"), away = scratch("away");
  hutch_cache *cache = open_cache(directory.text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "a", "1"));
  CHECK_OK(put_text(cache, "b", "2"));
  CHECK_OK(put_text(disk, "below", "3"));
  CHECK_EQUAL(3, count_of(cache));
  CHECK(rename(directory.text, away.text) == 0);
  let_notice(cache);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "c", "4"));
  CHECK_EQUAL(3, count_of(cache));
  CHECK_EQUAL(0, count_of(disk));
  CHECK_TEXT(cache, "a", "1");
  CHECK(rename(away.text, directory.text) == 0);
  count_of(cache);
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  CHECK_EQUAL(4, count_of(cache));
  CHECK_EQUAL(3, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* The put that finds the directory away is refused as the ones behind it: no call has failed. */
TEST(a_put_that_finds_the_directory_away_is_no_failed_call) {
  down d = {0};
  prepare(&d, 0);
  d.options.storage = HUTCH_STORAGE_LOG;
  hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(disk, "key", "value"));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  hutch_status status = HUTCH_OK;
  while (status == HUTCH_OK) {
    nap();
    status = put_text(disk, "key", "other");
  }
  CHECK_STATUS(HUTCH_TIER_DOWN, status);
  CHECK_STATUS(HUTCH_TIER_DOWN, put_text(disk, "key", "other"));
  CHECK_EQUAL(0, stats_of(cache).disk.failures);
  CHECK_MISSING(disk, "key");
  hutch_cache_release(disk);
  CHECK_STATUS(HUTCH_IO, hutch_close(cache));
}

TEST(time_alone_brings_a_tier_back) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  let_notice(cache);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "key", "value"));
  /* Or else the library has made it anew by now. */
  (void)!rename(scratch("away").text, scratch("cache").text);
  time_t end = time(NULL) + 60;
  while (put_text(cache, "key", "value") == HUTCH_PARTIAL) {
    CHECK(time(NULL) < end);
    usleep(10000);
  }
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  CHECK_OK(hutch_close(cache));
}

PROCESS(have_it_open, directory) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_cache(directory, &options);
  CHECK_OK(put_text(cache, "key", "of the other"));
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

TEST(a_directory_of_another_process_is_waited_for) {
  process child = start_process("have_it_open", scratch("cache").text);
  await_ready(&child);
  down d = {0};
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
  CHECK_EQUAL(HUTCH_STATE_DOWN, state_of(cache));
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "mine", "value"));
  CHECK_EQUAL(0, end_process(&child));
  count_of(cache);
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  CHECK_TEXT(cache, "key", "of the other");
  CHECK_TEXT(cache, "mine", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(a_child_has_a_directory_that_came_late) {
  block_with_a_file("parent");
  down d = {0};
  prepare(&d, HUTCH_OPEN_DISK_OPTIONAL);
  hutch_cache *cache = open_cache(scratch("parent/cache").text, &d.options);
  CHECK(unlink(scratch("parent").text) == 0);
  count_of(cache);
  CHECK_EQUAL(HUTCH_STATE_UP, state_of(cache));
  int channel[2];
  CHECK(pipe(channel) == 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    char end;
    close(channel[1]);
    CHECK(read(channel[0], &end, 1) == 0);
    CHECK_TEXT(cache, "of the parent", "value");
    CHECK_OK(hutch_close(cache));
    _exit(0);
  }
  close(channel[0]);
  CHECK_OK(put_text(cache, "of the parent", "value"));
  CHECK_OK(hutch_close(cache));
  hutch_options alone = unlimited_options();
  alone.sharing = HUTCH_SHARING_EXCLUSIVE;
  CHECK_STATUS(HUTCH_BUSY, hutch_open(scratch("parent/cache").text, &alone, &cache));
  close(channel[1]);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  cache = open_unlimited(scratch("parent/cache").text);
  CHECK_TEXT(cache, "of the parent", "value");
  CHECK_OK(hutch_close(cache));
}

TEST(a_clock_that_jumps_neither_ends_nor_keeps_what_it_should_not) {
  down d = {0};
  prepare(&d, 0);
  hutch_cache *cache = open_cache(scratch("cache").text, &d.options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options put = put_options();
  put.time_to_live = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(disk, KEY("key"), KEY("value"), &put, NULL));
  d.clock.now -= HUTCH_DAY;
  CHECK_TEXT(disk, "key", "value");
  CHECK_EQUAL(1, count_of(disk));
  d.clock.now += HUTCH_DAY + 9 * HUTCH_SECOND;
  CHECK_TEXT(disk, "key", "value");
  d.clock.now += HUTCH_SECOND;
  CHECK_MISSING(disk, "key");
  CHECK_OK(hutch_put(disk, KEY("key"), KEY("value"), &put, NULL));
  d.clock.now += 1000 * HUTCH_DAY;
  CHECK_MISSING(disk, "key");
  CHECK_EQUAL(0, count_of(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* Pages of the database that an opening does not read, but later calls do. */
static void zero_pages(const char *directory) {
  int file = open(in_directory(directory, "manifest.sqlite").text, O_WRONLY);
  static const char page[4096];
  for (int i = 20; i < 60; i++) CHECK_EQUAL(sizeof page, pwrite(file, page, sizeof page, i * 4096));
  CHECK(close(file) == 0);
}

/* Pages that an opening does not read are zeros, and the maintenance after it meets them. It brings
   the tier back and comes to an end, though memory has more entries than it reviews at once. The
   tier is empty then, and stays in service. */
TEST(a_manifest_that_is_found_damaged_in_use_is_set_aside) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  options.storage = HUTCH_STORAGE_MIXED;
  options.flags = HUTCH_OPEN_NO_THREADS;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  char key[16];
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(cache, key, i < 10 ? 30000 : 200));
  }
  CHECK_OK(hutch_close(cache));
  zero_pages(directory.text);
  cache = open_cache(directory.text, &options);
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "%d", i);
    hutch_value *value;
    CHECK(hutch_get(cache, KEY(key), &value) <= HUTCH_NOT_FOUND);
    hutch_value_release(value);
  }
  for (int i = 0; i < 300; i++) {
    snprintf(key, sizeof key, "m%d", i);
    CHECK_EQUAL(HUTCH_PARTIAL, put_text(cache, key, "1"));
  }
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_EQUAL(HUTCH_STATE_UP, stats_of(cache).disk.state);
  CHECK_OK(put_text(cache, "b", "2"));
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_TEXT(cache, "b", "2");
  CHECK_OK(hutch_close(cache));
}

static void count_tier_event(void *context, const hutch_event *event) {
  ((int *)context)[event->kind == HUTCH_EVENT_TIER_UP]++;
}

/* The host need not wait for the tier to come back by itself, and learns that it was away, though
   a read alone has found that. */
TEST(a_check_brings_the_tier_back_at_once) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_MIXED;
  options.flags = HUTCH_OPEN_NO_THREADS;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &options);
  char key[16];
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(cache, key, 200));
  }
  CHECK_OK(hutch_close(cache));
  zero_pages(directory.text);
  cache = open_cache(directory.text, &options);
  int told[2] = {0};
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_TIER_DOWN | HUTCH_EVENT_TIER_UP, count_tier_event,
                              told, NULL));
  for (int i = 0; i < 1000 && stats_of(cache).disk.state == HUTCH_STATE_UP; i++) {
    snprintf(key, sizeof key, "%d", i);
    hutch_value *value;
    CHECK(hutch_get(cache, KEY(key), &value) <= HUTCH_NOT_FOUND);
    hutch_value_release(value);
  }
  CHECK(stats_of(cache).disk.state != HUTCH_STATE_UP);
  CHECK_OK(hutch_check(cache, 0, NULL));
  CHECK_EQUAL(HUTCH_STATE_UP, stats_of(cache).disk.state);
  CHECK_EQUAL(told[0], told[1]);
  CHECK(told[0] > 0);
  CHECK_OK(put_text(cache, "b", "2"));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

/* A directory that was moved away, and is back. */
TEST(a_check_finds_a_directory_that_is_there_again) {
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  path directory = scratch("cache"), away = scratch("away");
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK(rename(directory.text, away.text) == 0);
  let_notice(cache);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "other", "value"));
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_check(cache, 0, NULL));
  CHECK(rename(away.text, directory.text) == 0);
  CHECK_EQUAL(1, CHECK_SOUND(cache));
  CHECK_OK(hutch_close(cache));
}
