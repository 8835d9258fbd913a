/* What a loss of power leaves of a log (HUTCH_STORAGE_LOG): a process ends without a close, and
   the index does not count afterwards. All that was written to the files is on the disk. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
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

/* 1: the index says that everything is on the disk. */
static uint64_t mark_of(const char *directory) {
  uint64_t mark = 77;
  int file = open(in_directory(directory, "hutch-index").text, O_RDONLY);
  CHECK(file >= 0 && pread(file, &mark, sizeof mark, 96) == sizeof mark);
  close(file);
  return mark;
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

/* ------------------------------------------------- files without an entry */

/* An index that says that everything is on the disk would count after a loss of power, and would say
   that no file lacks an entry. */
TEST(the_mark_of_a_clean_end_goes_before_the_first_file) {
  path directory = scratch("cache");
  hutch_options options = log_options(HUTCH_DURABILITY_PROCESS);
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(1, mark_of(directory.text));
  hutch_writer *writer = NULL;
  CHECK_OK(hutch_writer_begin(cache, KEY("key"), 0, NULL, &writer));
  static const char value[100000];
  CHECK_OK(hutch_writer_append(writer, value, sizeof value));
  CHECK_EQUAL(0, mark_of(directory.text));
  hutch_writer_release(writer);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, mark_of(directory.text));
}

/* ------------------------------------------------- files without a checkpoint */

static _Atomic unsigned whole_syncs;

/* The program stands before libc. */
int syncfs(int file) {
  atomic_fetch_add(&whole_syncs, 1);
  return (int)syscall(SYS_syncfs, file);
}

/* Another program keeps the store from writing a checkpoint. */
TEST(a_close_without_a_checkpoint_syncs_the_files_of_values) {
  path directory = scratch("cache");
  hutch_options options = log_options(HUTCH_DURABILITY_PROCESS);
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_size(cache, "large", 100000));
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 1};
  int file = open(in_directory(directory.text, "hutch.lock").text, O_RDWR);
  CHECK(file >= 0 && fcntl(file, F_OFD_SETLK, &lock) == 0);
  whole_syncs = 0;
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, whole_syncs);
  CHECK_EQUAL(1, mark_of(directory.text));
  close(file);
}

/* ------------------------------------------------------- the mark of a clean end */

static int go_on[2], has_written[2];
static bool begins_late, closes;

/* Before the library's own handler: the child is no member of the directory yet. */
static void await_close(void) {
  char byte;
  if (begins_late) CHECK(read(go_on[0], &byte, 1) == 1);
}

__attribute__((constructor)) static void stand_before_the_library(void) {
  pthread_atfork(NULL, NULL, await_close);
}

static void let_child_write(void) {
  char byte;
  CHECK(write(go_on[1], "", 1) == 1);
  CHECK(read(has_written[0], &byte, 1) == 1);
}

/* The program stands before libc. */
int fdatasync(int file) {
  if (closes) {
    closes = false;
    let_child_write();
  }
  return (int)syscall(SYS_fdatasync, file);
}

TEST(a_child_that_begins_while_its_parent_closes_or_later_takes_the_mark_back) {
  CHECK(pipe(go_on) == 0 && pipe(has_written) == 0);
  for (int later = 0; later < 2; later++) {
    path directory = scratch(later ? "later" : "while");
    hutch_options options = log_options(HUTCH_DURABILITY_PROCESS);
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    begins_late = true;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      CHECK_EQUAL(later ? 1 : 2, mark_of(directory.text));
      CHECK_OK(hutch_remove(cache, KEY("key")));
      CHECK(write(has_written[1], "", 1) == 1);
      _exit(0);
    }
    begins_late = false;
    closes = !later;
    CHECK_OK(hutch_close(cache));
    CHECK(!closes);
    if (later) let_child_write();
    CHECK_EQUAL(0, mark_of(directory.text));
    await_child(child);
  }
}
