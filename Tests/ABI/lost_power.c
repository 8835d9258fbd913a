/* What a loss of power leaves of a log (HUTCH_STORAGE_LOG): a process ends without a close, and
   the index does not count afterwards. All that was written to the files is on the disk. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static hutch_options log_options(uint32_t durability) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  options.durability = durability;
  options.disk.cost = 400000;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  return options;
}

/* The number of the boot in the index is another one. */
static void lose_power(const char *directory) {
  uint64_t boot = 77;
  int file = open(in_directory(directory, "hutch-index").text, O_RDWR);
  CHECK(file >= 0 && pwrite(file, &boot, sizeof boot, 72) == sizeof boot);
  close(file);
}

/* ---------------------------------------------- removals after an eviction */

static const char *const ways[] = {
    "remove", "remove from the disk tier", "pop", "a put that is too large",
    "remove by tag", "remove by prefix"};
enum { WAYS = sizeof ways / sizeof *ways, BY_TAG = 4, BY_PREFIX };

static void remove_evicted(hutch_cache *cache, hutch_cache *disk, unsigned way) {
  static char large[500000];
  hutch_value *value = NULL;
  hutch_put_result result = new_result();
  switch (way) {
    case 0: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("key"))); break;
    case 1: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(disk, KEY("key"))); break;
    case 2: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(cache, KEY("key"), &value)); break;
    case BY_TAG: CHECK_OK(hutch_remove_tagged(cache, KEY("red"), NULL)); break;
    case BY_PREFIX: CHECK_OK(hutch_remove_prefix(cache, KEY("ke"), NULL)); break;
    default:
      hutch_put(disk, KEY("key"), large, sizeof large, NULL, &result);
      CHECK_EQUAL(HUTCH_OUTCOME_TOO_LARGE, result.disk);
  }
}

/* `argument`: the way, the durability, the directory. */
PROCESS(removes_what_was_evicted, argument) {
  unsigned way, durability;
  CHECK(sscanf(argument, "%u:%u:", &way, &durability) == 2);
  const char *directory = strchr(strchr(argument, ':') + 1, ':') + 1;
  hutch_options options = log_options(durability);
  hutch_cache *cache = open_cache(directory, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; hutch_contains(disk, KEY("key")) == HUTCH_OK; i++) {
    char other[16];
    snprintf(other, sizeof other, "%d", i);
    CHECK_OK(put_size(disk, other, 500));
    CHECK(i < 10000);
  }
  remove_evicted(cache, disk, way);
  CHECK_OK(put_text(disk, "last", "value"));
  CHECK_OK(hutch_flush(cache));
  _exit(0);
}

/* The checkpoint before has the entry, and the log after it the writes that followed. A removal
   that names no key has withdrawn that checkpoint, under `process` without making another. */
TEST(what_was_removed_after_its_eviction_stays_removed) {
  const uint32_t durabilities[] = {HUTCH_DURABILITY_PROCESS, HUTCH_DURABILITY_POWER};
  for (unsigned i = 0; i < 2 * WAYS; i++) {
    unsigned way = i % WAYS;
    uint32_t durability = durabilities[i / WAYS];
    check_note(ways[way]);
    path directory = scratch((char[]){'0' + (char)i, 0});
    hutch_options options = log_options(durability);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_put_options put = put_options();
    put.tag = "red";
    put.tag_size = 3;
    CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &put, NULL));
    CHECK_OK(hutch_close(cache));
    char argument[4300];
    snprintf(argument, sizeof argument, "%u:%u:%s", way, durability, directory.text);
    process other = start_process("removes_what_was_evicted", argument);
    CHECK_EQUAL(0, end_process(&other));
    lose_power(directory.text);
    cache = open_cache(directory.text, &options);
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_MISSING(cache, "key");
    if (way >= BY_TAG && durability == HUTCH_DURABILITY_PROCESS)
      CHECK_EQUAL(0, count_of(cache));
    else if (durability == HUTCH_DURABILITY_POWER || count_of(cache) > 0)
      CHECK_TEXT(cache, "last", "value");
    /* Else the index took one more page by then, and the log has given back the segment in which the
       checkpoint ends: nothing behind it can be read on. Under `process` that may be. */
    CHECK_OK(hutch_close(cache));
  }
  check_note(NULL);
}
