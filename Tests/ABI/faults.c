/*
 * Faults: each call on a file fails once, and the cache answers right all the same.
 *
 * A run does one script of work, in which the n-th call of a kind (failing.h) fails once; runs go
 * on, with n = 1, 2, 3, ..., until no call was left to fail.
 */
#define _GNU_SOURCE
#include "check.h"
#include "failing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------- the model */

enum { KEYS = 6 };

/* What a key may answer with: the newest value, by its seed and size; the one before, if its
   removal failed and the process ended; or nothing. */
typedef struct entry {
  uint64_t seed, old_seed;
  size_t size, old_size;
  bool there;      /* the newest write completed, and stored */
  bool maybe_old;  /* only after the end of a process that could not remove it */
} entry;

typedef struct model {
  hutch_cache *cache, *disk;
  entry entries[KEYS];
  uint64_t next_seed;
  uint64_t lost;  /* entries, in openings before */
} model;

static const char *const names[KEYS] = {"a", "b", "c", "d", "e", "f"};

static void forget(entry *e, hutch_status status) {
  if (status != HUTCH_OK && e->there) {
    e->maybe_old = true;
    e->old_seed = e->seed;
    e->old_size = e->size;
  } else if (status == HUTCH_OK) {
    e->maybe_old = false;
  }
  e->there = false;
}

static bool is_failure(hutch_status status) { return status < 0; }

static void put(model *m, int key, size_t size) {
  uint64_t number = m->next_seed++;
  void *value = filled(size, number);
  hutch_status status = hutch_put(m->disk, KEY(names[key]), value, size, NULL, NULL);
  free(value);
  CHECK(status == HUTCH_OK || is_failure(status));
  entry *e = &m->entries[key];
  forget(e, status);
  if (status == HUTCH_OK) *e = (entry){.seed = number, .size = size, .there = true};
}

static void remove_key(model *m, int key) {
  hutch_status status = hutch_remove(m->disk, KEY(names[key]));
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND || is_failure(status));
  forget(&m->entries[key], status == HUTCH_NOT_FOUND ? HUTCH_OK : status);
}

static void clear(model *m) {
  hutch_status status = hutch_clear(m->disk);
  CHECK(status == HUTCH_OK || is_failure(status));
  for (int i = 0; i < KEYS; i++) forget(&m->entries[i], status);
}

static bool is_value(const hutch_value *value, uint64_t number, size_t size) {
  if (hutch_value_size(value) != size) return false;
  void *expected = filled(size, number);
  bool same = memcmp(expected, hutch_value_data(value), size) == 0;
  free(expected);
  return same;
}

/* Reads every key. Returns how many are not there that should be. */
static int read_all(model *m, bool after_the_end) {
  int missing = 0;
  for (int i = 0; i < KEYS; i++) {
    entry *e = &m->entries[i];
    hutch_value *value = NULL;
    hutch_status status = hutch_get(m->disk, KEY(names[i]), &value);
    if (status == HUTCH_OK) {
      bool newest = e->there && is_value(value, e->seed, e->size);
      bool older = after_the_end && e->maybe_old && is_value(value, e->old_seed, e->old_size);
      if (!newest && !older) FAIL("%s has a wrong value, or an older one", names[i]);
    } else {
      CHECK(value == NULL);
      /* A read may fail, once; it says so. */
      if (status != HUTCH_NOT_FOUND) CHECK(is_failure(status) && fault.fired);
      if (status == HUTCH_NOT_FOUND && e->there) missing++;
    }
    hutch_value_release(value);
  }
  return missing;
}

static void judge(model *m, bool after_the_end) {
  int missing = read_all(m, after_the_end);
  if (missing == 0) return;
  /* The disk tier may have been out of service; a host's clock lets it come back at once. */
  uint64_t count;
  for (int i = 0; i < 2; i++) CHECK_OK(hutch_count(m->disk, &count));
  missing = read_all(m, after_the_end);
  hutch_tier_stats stats = stats_of(m->disk).disk;
  /* A value that cannot be read is lost; so is what makes room on a full file system. */
  uint64_t lost = m->lost + stats.damaged + stats.evictions;
  if (missing > 0 && !(fault.fired && lost >= (uint64_t)missing))
    FAIL("%d entries are not there, %d were lost", missing, (int)lost);
}

/* ---------------------------------------------------------------- the runs */

static uint32_t sharing = HUTCH_SHARING_DEFAULT;

static bool open_it(model *m, const char *directory, test_clock *clock) {
  hutch_options options = unlimited_options();
  use_clock(&options, clock);
  options.inline_threshold = 1000;
  options.sharing = sharing;
  hutch_status status = hutch_open(directory, &options, &m->cache);
  if (status != HUTCH_OK) {
    CHECK(is_failure(status) && fault.fired && m->cache == NULL);
    return false;
  }
  m->disk = tier_of(m->cache, HUTCH_TIER_DISK);
  return true;
}

static hutch_status close_it(model *m) {
  hutch_tier_stats stats = stats_of(m->disk).disk;
  m->lost += stats.damaged + stats.evictions;
  hutch_cache_release(m->disk);
  int fired = fault.fired;
  hutch_status status = hutch_close(m->cache);
  /* The end makes room too, for what it has to write. */
  if (fault.fired && !fired && fault.code == ENOSPC) m->lost += KEYS;
  CHECK(status == HUTCH_OK || status == HUTCH_IO);
  m->cache = m->disk = NULL;
  return status;
}

enum { SMALL = 100, ROW = 900, LARGE = 5000, LARGER = 20000 };

/* Every kind of write, and replacement in all four directions. */
static void script(model *m, test_clock *clock) {
  put(m, 0, SMALL);
  put(m, 1, LARGE);
  put(m, 2, ROW);
  put(m, 3, LARGER);
  judge(m, false);
  put(m, 0, ROW);
  put(m, 1, LARGER);
  put(m, 2, LARGE);
  put(m, 3, SMALL);
  judge(m, false);
  clock->now += HUTCH_SECOND;
  hutch_touch(m->disk, KEY(names[0]), 0, 0);
  hutch_touch(m->disk, KEY(names[1]), 0, 0);
  remove_key(m, 2);
  put(m, 4, LARGE);
  hutch_flush(m->disk);
  judge(m, false);
  clear(m);
  for (int i = 0; i < KEYS; i++) put(m, i, i % 2 ? LARGE : SMALL);
  uint64_t count;
  CHECK_OK(hutch_count(m->disk, &count)); /* maintenance, by the host's clock */
  judge(m, false);
  remove_key(m, 5);
  judge(m, false);
}

/* The whole of one run. False: no call was left to fail. */
static bool run(int calls, int code, long n) {
  path directory = scratch("faults");
  test_clock clock = {0};
  model m = {.next_seed = 1};
  begin_faults(calls, code, false, n);
  bool opened = open_it(&m, directory.text, &clock);
  if (opened) {
    script(&m, &clock);
    /* Once is once: from here on all is well, and the cache that has met the fault is right. */
    bool fired = fault.fired;
    if (fired) {
      clock.now += HUTCH_SECOND;
      uint64_t count;
      CHECK_OK(hutch_count(m.disk, &count));
      CHECK_EQUAL(HUTCH_STATE_UP, stats_of(m.disk).disk.state);
      judge(&m, false);
      CHECK_SOUND(m.disk);
      judge(&m, false);
    }
    bool clean = close_it(&m) == HUTCH_OK;
    CHECK(clean || fault.fired);
    if (clean)
      for (int i = 0; i < KEYS; i++) m.entries[i].maybe_old = false;
  }
  bool fired = fault.fired;
  end_faults();
  CHECK(open_it(&m, directory.text, &clock));
  judge(&m, true);
  CHECK_SOUND(m.disk);
  judge(&m, true);
  CHECK_OK(close_it(&m));
  remove_tree(directory.text);
  return fired;
}

/* Every call with HUTCH_LONG, else one of some. */
static void each_call(int calls, int code, long stride) {
  uint64_t state = seed();
  if (scale() > 1) stride = 1;
  long n = 1 + (long)(next_random(&state) % (uint64_t)stride);
  long last = 0;
  static char words[64];
  for (; ; n += stride) {
    snprintf(words, sizeof words, "call %ld, errno %d", n, code);
    check_note(words);
    if (run(calls, code, n)) {
      last = n;
    } else if (last > 0 || n == 1) {
      break;
    } else {
      /* There are fewer such calls than the stride is long. */
      n = 1 - stride;
    }
  }
  check_note(NULL);
  CHECK(last > 0);
}

TEST(any_call_fails_with_eio) { each_call(ALL, EIO, 23); }
TEST(writing_fails_with_enospc) { each_call(OPENS | NAMES | WRITES, ENOSPC, 13); }
TEST(opening_fails_with_emfile) { each_call(OPENS, EMFILE, 3); }
TEST(opening_and_naming_fail_with_eacces) { each_call(OPENS | NAMES, EACCES, 5); }
/* The log's own writes do not fail a put: what they leave is stored to the mapping. */
TEST(a_write_that_the_log_refuses_is_stored_to_the_mapping) {
  enum { SIZE = 9000 };
  static const int codes[] = {ENOSPC, EIO, 0};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < 3; i++) {
    void *data = filled(SIZE, (unsigned)i);
    CHECK_OK(hutch_put(disk, KEY(names[i]), data, SIZE, NULL, NULL));
    begin_faults(WRITES, codes[i], false, 1);
    CHECK_OK(hutch_put(disk, KEY(names[0]), data, SIZE, NULL, NULL));
    end_faults();
    CHECK(fault.fired);
    hutch_value *value = get_value(disk, names[0]);
    CHECK_BYTES(data, SIZE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    free(data);
  }
  CHECK_EQUAL(3, CHECK_SOUND(disk));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}
TEST(a_write_is_short) { each_call(WRITES, 0, 13); }
TEST(mapping_fails_with_enomem) { each_call(MAPS, ENOMEM, 1); }
TEST(locking_fails_with_enolck) { each_call(LOCKS, ENOLCK, 7); }
TEST(any_call_fails_where_processes_share) {
  sharing = HUTCH_SHARING_SHARED;
  each_call(ALL, EIO, 29);
}
TEST(mapping_and_locking_fail_where_processes_share) {
  sharing = HUTCH_SHARING_SHARED;
  each_call(MAPS | LOCKS, ENOLCK, 11);
}

/* --------------------------------------------------------------- openings */

static void fill_directory(const char *directory, uint32_t storage, bool closes) {
  hutch_options options = unlimited_options();
  options.storage = storage;
  hutch_cache *cache = open_cache(directory, &options);
  for (int i = 0; i < KEYS; i++) CHECK_OK(put_text(cache, names[i], "value"));
  CHECK_OK(put_size(cache, "large", LARGER));
  if (closes) CHECK_OK(hutch_close(cache));
}

static void check_filled(hutch_cache *cache) {
  for (int i = 0; i < KEYS; i++) CHECK_TEXT(cache, names[i], "value");
  CHECK_EQUAL(LARGER, info_of(cache, "large").size);
  CHECK_EQUAL(KEYS + 1, count_of(cache));
}

/* Opens the directory, while the n-th of these calls fails. False: no call was left to fail. */
static bool opening_fails(uint32_t storage, bool was_closed, int calls, long n) {
  path directory = scratch("opening");
  if (was_closed) {
    fill_directory(directory.text, storage, true);
  } else {
    pid_t child = fork_now();
    if (child == 0) {
      fill_directory(directory.text, storage, false);
      end_child();
    }
    await_child(child);
  }
  static char words[64];
  snprintf(words, sizeof words, "storage %u, closed %d, calls %d, call %ld", storage, was_closed,
           calls, n);
  check_note(words);
  begin_faults(calls, EIO, false, n);
  const hutch_options options = {.struct_size = sizeof options};
  hutch_cache *cache = NULL;
  hutch_status status = hutch_open(directory.text, &options, &cache);
  end_faults();
  /* It is no other kind of directory, nor one of another version. */
  if (status != HUTCH_OK) CHECK(status == HUTCH_IO || status == HUTCH_BAD_DIRECTORY);
  CHECK((status == HUTCH_OK) == (cache != NULL));
  if (!cache) cache = open_cache(directory.text, &options);
  check_filled(cache);
  CHECK_OK(hutch_close(cache));
  check_note(NULL);
  remove_tree(directory.text);
  return fault.fired;
}

TEST(an_opening_that_cannot_read_loses_nothing) {
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3)
    for (int was_closed = 0; was_closed < 2; was_closed++)
      for (int calls = READS; calls <= LOOKS; calls += LOOKS - READS)
        for (long n = 1; opening_fails(storage, was_closed, calls, n); n++) continue;
}

/* Without the checkpoint nothing would be left. */
TEST(an_opening_after_a_loss_of_power_that_cannot_read_loses_nothing) {
  static const int kinds[][2] = {{BENEATH, EMFILE}, {READS, EIO}};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  bool fired = true;
  for (long kind = 0, n = 1; kind < 2; n = fired ? n + 1 : 1, kind += !fired) {
    path directory = scratch("opening");
    hutch_cache *cache = open_cache(directory.text, &options);
    for (int i = 0; i < KEYS; i++) CHECK_OK(put_text(cache, names[i], "value"));
    CHECK_OK(hutch_close(cache));
    /* Of another boot, and not closed. */
    uint64_t lost[] = {77, 77, 0, 0};
    int index = open(in_directory(directory.text, "hutch-index").text, O_RDWR);
    CHECK(index >= 0 && pwrite(index, lost, sizeof lost, 72) == sizeof lost);
    close(index);
    begin_faults(kinds[kind][0], kinds[kind][1], false, n);
    cache = NULL;
    hutch_status status = hutch_open(directory.text, &options, &cache);
    end_faults();
    fired = fault.fired;
    if (status != HUTCH_OK) {
      CHECK_STATUS(HUTCH_IO, status);
      cache = open_cache(directory.text, &options);
    }
    /* It waits until all entries have their places in the index again. */
    CHECK_EQUAL(KEYS, CHECK_SOUND(cache));
    for (int i = 0; i < KEYS; i++) CHECK_TEXT(cache, names[i], "value");
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

static hutch_options with_files(uint32_t storage) {
  hutch_options options = unlimited_options();
  options.storage = storage;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.inline_threshold = 20480;
  return options;
}

/* The entries behind one whose file cannot be opened stay, and so does that one. */
TEST(an_opening_after_a_loss_of_power_reads_on_behind_a_file_that_it_cannot_open) {
  static const int codes[] = {EMFILE, EIO};
  hutch_options options = with_files(HUTCH_STORAGE_LOG);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    bool fired = true;
    for (long n = 1; fired; n++) {
      path directory = scratch("opening");
      hutch_cache *cache = open_cache(directory.text, &options);
      CHECK_OK(hutch_close(cache));
      pid_t child = fork_now();
      if (child == 0) {
        cache = open_cache(directory.text, &options);
        CHECK_OK(put_size(cache, "large", 100000));
        for (int key = 0; key < KEYS; key++) CHECK_OK(put_text(cache, names[key], "value"));
        end_child();
      }
      await_child(child);
      uint64_t boot = 77;
      int index = open(in_directory(directory.text, "hutch-index").text, O_RDWR);
      CHECK(index >= 0 && pwrite(index, &boot, sizeof boot, 72) == sizeof boot);
      close(index);
      begin_faults(BENEATH, codes[i], false, n);
      cache = NULL;
      hutch_status status = hutch_open(directory.text, &options, &cache);
      end_faults();
      fired = fault.fired;
      if (status != HUTCH_OK) cache = open_cache(directory.text, &options);
      CHECK_EQUAL(KEYS + 1, CHECK_SOUND(cache));
      for (int key = 0; key < KEYS; key++) CHECK_TEXT(cache, names[key], "value");
      CHECK_EQUAL(100000, info_of(cache, "large").size);
      CHECK_OK(hutch_close(cache));
      remove_tree(directory.text);
    }
  }
}

/* A later maintenance deletes what could not be deleted. */
TEST(removed_files_go_though_their_folder_could_not_be_opened) {
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3) {
    path directory = scratch("cache"), trash = in_directory(directory.text, "trash");
    hutch_options options = with_files(storage);
    bool fired = true;
    for (long n = 1; fired; n++) {
      hutch_cache *cache = open_cache(directory.text, &options);
      CHECK_OK(put_size(cache, "large", 100000));
      CHECK_OK(hutch_remove(cache, KEY("large")));
      begin_faults(BENEATH, EMFILE, true, n);
      (void)hutch_maintain(cache, 0);
      end_faults();
      fired = fault.fired;
      CHECK_OK(hutch_maintain(cache, 0));
      /* It is empty. */
      CHECK(rmdir(trash.text) == 0 && mkdir(trash.text, 0700) == 0);
      CHECK_OK(hutch_close(cache));
    }
    remove_tree(directory.text);
  }
}

/* ----------------------------------------------------- reads of what is there */

enum { MANY_ROWS = 60 };

static void check_rows(hutch_cache *cache) {
  for (int i = 0; i < MANY_ROWS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    hutch_value *value = get_value(cache, key);
    CHECK(is_value(value, (uint64_t)i, ROW));
    hutch_value_release(value);
  }
  CHECK_EQUAL(MANY_ROWS, count_of(cache));
}

/* Checks a database whose n-th read fails, or all reads from that one on. False: no read was left
   to fail. */
static bool check_fails(bool lasts, long n) {
  path directory = scratch("checked");
  hutch_options options = {.struct_size = sizeof options, .flags = HUTCH_OPEN_NO_THREADS,
                           .storage = HUTCH_STORAGE_MIXED};
  hutch_cache *cache = open_cache(directory.text, &options);
  for (int i = 0; i < MANY_ROWS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    void *value = filled(ROW, (uint64_t)i);
    CHECK_OK(hutch_put(cache, KEY(key), value, ROW, NULL, NULL));
    free(value);
  }
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  static char words[64];
  snprintf(words, sizeof words, "lasts %d, call %ld", lasts, n);
  check_note(words);
  begin_faults(READS, EIO, lasts, n);
  hutch_status status = hutch_check(cache, 0, NULL);
  end_faults();
  CHECK_STATUS(fault.fired ? HUTCH_IO : HUTCH_OK, status);
  CHECK_EQUAL(HUTCH_STATE_UP, stats_of(cache).disk.state);
  check_rows(cache);
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  check_rows(cache);
  CHECK_OK(hutch_close(cache));
  check_note(NULL);
  remove_tree(directory.text);
  return fault.fired;
}

TEST(a_check_that_cannot_read_loses_nothing) {
  long calls = 0;
  for (int lasts = 0; lasts < 2; lasts++)
    for (long n = 1; check_fails(lasts, n); n++) calls = n;
  CHECK(calls > MANY_ROWS / 10);
}

/* In either store, values of 100,000 bytes have files of their own. */
TEST(a_check_goes_on_behind_a_value_that_cannot_be_read) {
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3) {
    path directory = scratch("cache");
    hutch_options options = with_files(storage);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_OK(put_size(disk, "large", 100000));
    /* The connection that reads is there. */
    hutch_value_release(get_value(disk, "large"));
    path folder = in_directory(directory.text, "content/00");
    CHECK(mkdir(folder.text, 0700) == 0 || errno == EEXIST);
    path orphan = in_directory(folder.text, "hutch-0012345678abcdef");
    hutch_status status = HUTCH_OK;
    for (long n = 1; status == HUTCH_OK; n++) {
      write_file(orphan.text, "", 0);
      begin_faults(BENEATH, EIO, false, n);
      status = hutch_check(disk, 0, NULL);
      end_faults();
      CHECK(fault.fired);
      CHECK(access(orphan.text, F_OK) != 0);
    }
    CHECK_STATUS(HUTCH_IO, status);
    CHECK_EQUAL(1, CHECK_SOUND(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* A value in a file that no memory is left to read is no damaged one. */
TEST(a_check_without_memory_removes_nothing) {
  path directory = scratch("cache");
  hutch_options options = with_files(HUTCH_STORAGE_LOG);
  hutch_cache *cache = open_cache(directory.text, &options);
  for (int i = 0; i < KEYS; i++) CHECK_OK(put_size(cache, names[i], 100000));
  bool fired = true;
  int failed = 0;
  for (long n = 1; fired; n++) {
    begin_faults(MEMORY, ENOMEM, false, n);
    hutch_status status = hutch_check(cache, 0, NULL);
    end_faults();
    fired = fault.fired;
    if (status != HUTCH_OK) CHECK_STATUS(HUTCH_NO_MEMORY, status);
    failed += status != HUTCH_OK;
    CHECK_EQUAL(KEYS, count_of(cache));
  }
  CHECK(failed >= KEYS);
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  CHECK_EQUAL(KEYS, CHECK_SOUND(cache));
  CHECK_OK(hutch_close(cache));
}

/* A walk over numbers in both tiers, which more than one page has, of whose calls the n-th that
   grows memory fails. The caller then asks for the same step again. */
enum { NUMBERS = 150 };

static bool walk_fails(hutch_cache *cache, uint32_t order, bool by_time, long n, int *failed) {
  int met[NUMBERS] = {0};
  hutch_cursor *cursor;
  begin_faults(MEMORY, ENOMEM, false, n);
  hutch_status status = order ? hutch_cursor_create_ordered(cache, order, &cursor)
                              : hutch_cursor_create(cache, &cursor);
  CHECK_OK(status);
  const void *key;
  size_t size;
  int64_t before = 0;
  while ((status = hutch_cursor_next(cursor, &key, &size)) != HUTCH_NOT_FOUND) {
    if (status != HUTCH_OK) {
      CHECK_STATUS(HUTCH_NO_MEMORY, status);
      CHECK(++*failed);
      continue;
    }
    uint32_t number;
    CHECK_EQUAL(sizeof number, size);
    memcpy(&number, key, size);
    met[number]++;
    hutch_entry_info info = {.struct_size = sizeof info};
    CHECK_OK(hutch_cursor_info(cursor, &info));
    if (by_time) CHECK(info.created >= before);
    before = info.created;
  }
  end_faults();
  for (int i = 0; i < NUMBERS; i++) CHECK_EQUAL(1, met[i]);
  hutch_cursor_release(cursor);
  return fault.fired;
}

TEST(a_walk_whose_step_fails_goes_on_where_it_was) {
  hutch_options options = default_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY), *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t i = 0; i < NUMBERS; i++)
    CHECK_OK(hutch_put(cache, &i, sizeof i, &i, sizeof i, NULL, NULL));
  CHECK_OK(hutch_flush(cache));
  for (uint32_t i = 0; i < NUMBERS; i += 2)
    CHECK_OK(hutch_touch(cache, &i, sizeof i, 0, 0));
  int failed = 0;
  for (int tier = 0; tier < 3; tier++)
    for (uint32_t order = 0; order <= HUTCH_ORDER_INSERTION; order++) {
      hutch_cache *walked = tier == 0 ? cache : tier == 1 ? memory : disk;
      /* A database that is walked alone has the order in which the flush stored the entries. */
      bool by_time = order && (tier < 2 || on_log());
      for (long n = 1; walk_fails(walked, order, by_time, n, &failed); n++) continue;
    }
  CHECK(failed > 30);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

static hutch_status encode_nothing(void *context, void *object, hutch_buffer *output) {
  (void)context, (void)object, (void)output;
  return HUTCH_OK;
}
static hutch_status decode_nothing(void *context, hutch_value *value, void **object) {
  (void)context, (void)value, *object = NULL;
  return HUTCH_OK;
}
static void count_release(void *context) { ++*(int *)context; }

TEST(an_opening_without_memory_releases_the_object_codec) {
  bool fired = true;
  int failed = 0;
  for (long n = 1; fired; n++) {
    int released = 0;
    hutch_object_codec codec = {.struct_size = sizeof codec, .encode = encode_nothing,
                                .decode = decode_nothing, .context = &released,
                                .context_release = count_release};
    hutch_options options = default_options();
    options.object_codec = &codec;
    hutch_cache *cache;
    begin_faults(ZEROES, ENOMEM, false, n);
    hutch_status status = hutch_open(NULL, &options, &cache);
    end_faults();
    fired = fault.fired;
    failed += status != HUTCH_OK;
    if (status != HUTCH_OK) CHECK_STATUS(HUTCH_NO_MEMORY, status);
    else CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(1, released);
  }
  CHECK(failed > 0);
}

static void count_event(void *context, const hutch_event *event) {
  (void)event;
  ++*(long *)context;
}

/* The keys of what is evicted are remembered until the call has ended. Every allocation fails with
 * HUTCH_LONG, else one of three. */
TEST(evictions_without_memory_leave_the_cache_whole) {
  bool fired = true;
  long events = 0;
  uint64_t state = seed();
  long stride = scale() > 1 ? 1 : 3;
  for (long n = 1 + (long)(next_random(&state) % (uint64_t)stride); fired; n += stride) {
    path directory = scratch("cache");
    hutch_options options = unlimited_options();
    options.storage = HUTCH_STORAGE_LOG;
    options.disk.cost = 200000;
    options.flags |= HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_ALL, count_event, &events, NULL));
    begin_faults(MEMORY, ENOMEM, false, n);
    for (int i = 0; i < 300; i++) {
      char key[300];
      int size = snprintf(key, sizeof key, "%0*d", 1 + i * 7 % 280, i);
      void *value = filled(1000, (uint64_t)i);
      hutch_status status = hutch_put(disk, key, (size_t)size, value, 1000, NULL, NULL);
      CHECK(status == HUTCH_OK || (is_failure(status) && fault.fired));
      free(value);
    }
    end_faults();
    fired = fault.fired;
    CHECK_SOUND(disk);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
  CHECK(events > 0);
}

TEST(a_folder_that_a_full_disk_refuses_is_made_after_room_is) {
  hutch_options options = default_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  bool fired = true;
  for (long n = 1; fired; n++) {
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(directory.text, &options);
    begin_faults(NAMES, ENOSPC, false, n);
    hutch_status status = put_size(cache, "large", 100000);
    end_faults();
    fired = fault.fired;
    CHECK_OK(status);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* Bytes that are not read are not wrong: the value is there when the disk can read it again. */
TEST(a_value_whose_file_cannot_be_read_stays) {
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3)
    for (int gets = 0; gets < 2; gets++) {
      path directory = scratch("cache");
      hutch_options options = with_files(storage);
      hutch_cache *cache = open_cache(directory.text, &options);
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      CHECK_OK(put_size(disk, "large", 100000));
      /* The connection that reads is there. */
      CHECK_EQUAL(100000, info_of(disk, "large").size);
      int failed = 0, file = -1;
      hutch_value *value = NULL;
      bool fired = true;
      for (long n = 1; fired; n++) {
        begin_faults(gets ? READS : LOOKS, EIO, gets, n);
        hutch_status status = gets ? hutch_get(disk, KEY("large"), &value)
                                   : hutch_open_fd(disk, KEY("large"), &file);
        end_faults();
        fired = fault.fired;
        if (status == HUTCH_OK) {
          if (gets) hutch_value_release(value); else close(file);
        } else {
          CHECK_STATUS(HUTCH_IO, status);
          failed++;
        }
        CHECK_EQUAL(100000, info_of(disk, "large").size);
      }
      CHECK(failed > 0);
      CHECK_EQUAL(0, stats_of(disk).disk.damaged);
      hutch_cache_release(disk);
      CHECK_OK(hutch_close(cache));
      remove_tree(directory.text);
    }
}

/* The put removes the older value from disk. */
TEST(a_put_for_memory_alone_says_why_the_disk_keeps_the_older_value) {
  static const int codes[] = {ENOSPC, EIO};
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_SQLITE;
  hutch_put_options above = put_options();
  above.write_policy = HUTCH_WRITE_MEMORY;
  for (int i = 0; i < 2; i++) {
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "older"));
    hutch_put_result result = new_result();
    begin_faults(WRITES, codes[i], true, 1);
    hutch_status status = hutch_put(cache, KEY("key"), KEY("value"), &above, &result);
    end_faults();
    CHECK(fault.fired);
    CHECK_STATUS(HUTCH_PARTIAL, status);
    CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
    CHECK_EQUAL(i == 0 ? HUTCH_OUTCOME_NO_SPACE : HUTCH_OUTCOME_FAILED, result.disk);
    CHECK_TEXT(cache, "key", "value");
    CHECK_OK(hutch_clear(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* A read extends an entry's life, whatever becomes of the first attempt to write its time down. */
TEST(a_time_of_a_read_that_cannot_be_written_is_kept) {
  path directory = scratch("cache");
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options idling = put_options();
  idling.time_to_idle = 10 * HUTCH_SECOND;
  CHECK_OK(hutch_put(disk, KEY("key"), KEY("value"), &idling, NULL));
  clock.now += 8 * HUTCH_SECOND;
  CHECK_TEXT(disk, "key", "value");
  begin_faults(WRITES, EIO, false, 1);
  hutch_status status = hutch_flush(disk);
  end_faults();
  CHECK_STATUS(fault.fired ? HUTCH_IO : HUTCH_OK, status);
  CHECK(fault.fired || on_log());
  clock.now += 8 * HUTCH_SECOND;
  CHECK_TEXT(disk, "key", "value");
  CHECK_OK(hutch_flush(disk));
  CHECK_OK(hutch_close(cache));
  hutch_cache_release(disk);
}

/* The row of an entry and that of its tag are written by two statements. */
TEST(a_tagged_put_without_memory_is_stored_whole_or_not_at_all) {
  bool fired = true;
  int failed = 0;
  for (long n = 1; fired; n++) {
    path directory = scratch("cache");
    hutch_options options = unlimited_options();
    options.storage = HUTCH_STORAGE_MIXED;
    options.flags |= HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    hutch_put_options tagged = put_options();
    tagged.tag = "tag";
    tagged.tag_size = 3;
    CHECK_OK(put_text(disk, "key", "older"));
    begin_faults(MEMORY, ENOMEM, false, n);
    hutch_status status = hutch_put(disk, KEY("key"), KEY("value"), &tagged, NULL);
    end_faults();
    fired = fault.fired;
    failed += status != HUTCH_OK;
    CHECK_EQUAL(status == HUTCH_OK, CHECK_SOUND(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
  CHECK(failed > 0);
}

/* The n-th look at a file fails, or all looks from that one on, in a put or in a flush, which looks
   whether the directory is still there. That is not known then, but nothing says that it is gone:
   the store stays in service, and the put is stored and says so. False: no look was left to fail. */
static bool looks_fail(uint32_t storage, bool flushes, bool lasts, long n) {
  path directory = scratch("cache");
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.storage = storage;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(disk, "kept", "value"));
  CHECK_OK(put_text(disk, "key", "older"));
  let_notice(cache);
  begin_faults(LOOKS, EIO, lasts, n);
  hutch_status status = flushes ? hutch_flush(cache) : put_text(disk, "key", "newer");
  end_faults();
  CHECK_OK(status);
  CHECK_EQUAL(HUTCH_STATE_UP, stats_of(disk).disk.state);
  CHECK_TEXT(disk, "key", flushes ? "older" : "newer");
  CHECK_TEXT(disk, "kept", "value");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  remove_tree(directory.text);
  return fault.fired;
}

static void each_look_fails(bool flushes) {
  long looks = 0;
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3)
    for (int lasts = 0; lasts < 2; lasts++)
      for (long n = 1; looks_fail(storage, flushes, lasts, n); n++) looks++;
  CHECK(looks > 0);
}

TEST(a_put_is_stored_though_looks_at_the_directory_fail) { each_look_fails(false); }
TEST(a_store_stays_in_service_though_looks_at_the_directory_fail) { each_look_fails(true); }

/* A write that failed has hidden the older value, which it could not remove. */
TEST(what_a_failed_write_has_hidden_is_not_found) {
  enum { LONG = 100000 };
  for (uint32_t storage = HUTCH_STORAGE_MIXED; storage <= HUTCH_STORAGE_LOG; storage += 3) {
    hutch_options options = with_files(storage);
    path directory = scratch("cache");
    hutch_cache *cache = open_cache(directory.text, &options);
    for (int how = 0; how < 4; how++) {
      CHECK_OK(put_text(cache, "key", "older"));
      /* HUTCH_NO_MEMORY would say that nothing has changed. */
      begin_faults(OPENS | NAMES | WRITES, how % 2 ? ENOMEM : EIO, true, 1);
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      CHECK_STATUS(HUTCH_IO, put_size(disk, "key", LONG));
      hutch_cache_release(disk);
      end_faults();
      CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(cache, KEY("key")));
      hutch_value *value = NULL;
      switch (how) {
        case 0: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("key"))); break;
        case 1: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(cache, KEY("key"), &value)); break;
        case 2: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(cache, KEY("key"), 0, 0)); break;
        case 3: CHECK_OK(hutch_add(cache, KEY("key"), KEY("newer"), NULL, NULL)); break;
      }
      CHECK_OK(hutch_close(cache));
      cache = open_cache(directory.text, &options);
      if (how == 3)
        CHECK_TEXT(cache, "key", "newer");
      else
        CHECK_MISSING(cache, "key");
    }
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* That the disk was full once is no reason to make room after a later failure of another kind. */
TEST(a_failed_write_makes_no_room_for_a_full_disk_before) {
  bool fired = true;
  for (long n = 1; fired; n++) {
    path directory = scratch("cache");
    hutch_options options = unlimited_options();
    options.storage = HUTCH_STORAGE_MIXED;
    options.flags |= HUTCH_OPEN_NO_THREADS;
    fill_directory(directory.text, HUTCH_STORAGE_MIXED, true);
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    begin_faults(READS | OPENS | WRITES | LOOKS, ENOSPC, false, n);
    put_text(disk, "key", "value");
    end_faults();
    fired = fault.fired;
    for (int i = 0; i < KEYS; i++) CHECK_OK(put_text(disk, names[i], "value"));
    uint64_t count = count_of(disk);
    begin_faults(WRITES, EIO, false, 1);
    CHECK_STATUS(HUTCH_IO, put_text(disk, "other", "value"));
    end_faults();
    CHECK_EQUAL(count, count_of(disk));
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* The index of a log store tells in which boot it was written, from the first write on. */
TEST(a_write_without_descriptors_survives_a_kill) {
  enum { FEW = 256 };
  path directory = scratch("cache");
  fill_directory(directory.text, HUTCH_STORAGE_LOG, true);
  const hutch_options options = {.struct_size = sizeof options};
  pid_t child = fork_now();
  if (child == 0) {
    hutch_cache *cache = open_cache(directory.text, &options);
    const struct rlimit few = {FEW, FEW};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (dup(0) >= 0) continue;
    CHECK_OK(put_text(cache, names[0], "value"));
    end_child();
  }
  await_child(child);
  hutch_cache *cache = open_cache(directory.text, &options);
  check_filled(cache);
  CHECK_OK(hutch_close(cache));
}

/* A fork has closed the database. That it cannot be opened at once says nothing of the entries. */
TEST(a_database_that_cannot_be_opened_after_a_fork_is_opened_later) {
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.storage = HUTCH_STORAGE_MIXED;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(disk, "key", "value"));
  for (int closes = 0; closes < 2; closes++) {
    pid_t child = fork_now();
    if (child == 0) end_child();
    await_child(child);
    begin_faults(OPENS, EMFILE, true, 1);
    hutch_status status = closes ? hutch_close(cache) : put_text(disk, "other", "older");
    end_faults();
    CHECK(fault.fired && is_failure(status));
    if (closes) break;
    CHECK_EQUAL(HUTCH_STATE_UP, stats_of(disk).disk.state);
    CHECK_TEXT(disk, "key", "value");
    CHECK_OK(put_text(disk, "other", "newer"));
  }
  hutch_cache_release(disk);
  cache = open_cache(scratch("cache").text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_TEXT(cache, "other", "newer");
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

/* The lock that the cache has is the directory's, though a look at the file has failed. */
TEST(a_tier_that_comes_back_does_not_wait_for_its_own_lock) {
  path directory = scratch("cache");
  bool fired = true;
  for (long n = 1; fired; n++) {
    test_clock clock = {0};
    hutch_options options = unlimited_options();
    use_clock(&options, &clock);
    options.flags |= HUTCH_OPEN_NO_THREADS;
    options.storage = HUTCH_STORAGE_MIXED;
    hutch_cache *cache = open_cache(directory.text, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK(rename(directory.text, scratch("away").text) == 0);
    let_notice(cache);
    CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "other", "value"));
    CHECK_EQUAL(HUTCH_STATE_DOWN, stats_of(cache).disk.state);
    CHECK(rename(scratch("away").text, directory.text) == 0);
    begin_faults(LOOKS, EIO, false, n);
    count_of(cache);
    fired = fault.fired;
    end_faults();
    count_of(cache);
    CHECK_EQUAL(HUTCH_STATE_UP, stats_of(cache).disk.state);
    CHECK_OK(put_text(cache, "key", "newer"));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* ------------------------------------------------------------------ trims */

enum { TRIMMED = 300 };

/* What a trim says went is what went, though its n-th call fails: its transactions hold a part
   of the rows each. False: no call was left to fail. */
static bool trim_fails(uint32_t kind, uint64_t amount, long n, bool *failed) {
  path directory = scratch("trims");
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  /* The call that fails is the trim's: maintenance makes calls too. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.inline_threshold = 1000;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < TRIMMED; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    CHECK_OK(put_size(disk, key, i % 64 ? 10 : 2000));
  }
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind, .amount = amount};
  uint64_t removed = 0;
  begin_faults(ALL, EIO, false, n);
  hutch_status status = hutch_trim(disk, &spec, &removed);
  end_faults();
  CHECK(status == HUTCH_OK || (is_failure(status) && fault.fired));
  *failed |= status != HUTCH_OK && removed > 0;
  /* By a host's clock a tier that was down is back with the first count. */
  clock.now += HUTCH_SECOND;
  count_of(disk);
  CHECK_EQUAL(TRIMMED, count_of(disk) + removed);
  hutch_cache_release(disk);
  hutch_status closed = hutch_close(cache);
  CHECK(closed == HUTCH_OK || fault.fired);
  remove_tree(directory.text);
  return fault.fired;
}

static void each_trim(uint32_t kind, uint64_t amount) {
  bool failed = false;
  for (long n = 1; trim_fails(kind, amount, n, &failed); n++) continue;
  /* Else nothing was seen of what this is about. */
  CHECK(failed);
}

TEST(a_trim_that_fails_says_what_went) {
  each_trim(HUTCH_TRIM_TO_COUNT, 5);
  each_trim(HUTCH_TRIM_LARGER_THAN, 5);
}

TEST(a_cache_is_not_opened_whose_thread_cannot_be_made) {
  path directory = scratch("threads");
  hutch_options options = unlimited_options();
  for (int opening = 0; opening < 3; opening++) {
    begin_faults(THREADS, EAGAIN, false, 1);
    hutch_cache *cache = NULL;
    CHECK(hutch_open(directory.text, &options, &cache) != HUTCH_OK);
    CHECK(!cache);
    CHECK(fault.fired);
    cache = open_cache(directory.text, &options);
    if (opening > 0) CHECK_TEXT(cache, "key", "value");
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_close(cache));
  }
}

static hutch_status do_nothing(void *context, hutch_task *task) {
  (void)context, (void)task;
  return HUTCH_OK;
}

/* Else its completion would never be made. */
TEST(a_group_does_not_start_whose_queue_cannot_make_a_thread) {
  hutch_queue *queue = new_queue(0, 0);
  hutch_group *group = NULL;
  CHECK_OK(hutch_group_create(queue, &group));
  begin_faults(THREADS, EAGAIN, true, 1);
  CHECK(hutch_group_start(group, NULL) < 0);
  CHECK(hutch_group_wait(group, HUTCH_SECOND) < 0);
  end_faults();
  CHECK_OK(hutch_group_start(group, NULL));
  CHECK_OK(hutch_group_wait(group, INT64_MAX));
  hutch_group_release(group);
  hutch_queue_release(queue);
}

TEST(a_group_is_cancelled_without_memory) {
  hutch_queue *queue = new_queue(1, 0);
  for (int is_given_up = 0; is_given_up < 2; is_given_up++) {
    hutch_group *group = NULL;
    CHECK_OK(hutch_group_create(queue, &group));
    hutch_task *tasks[3];
    hutch_task_options of_group = {.struct_size = sizeof of_group, .group = group};
    for (int i = 0; i < 3; i++)
      CHECK_OK(hutch_queue_submit(queue, do_nothing, NULL, NULL, &of_group, &tasks[i]));
    begin_faults(MEMORY, ENOMEM, true, 1);
    if (!is_given_up) CHECK_OK(hutch_group_cancel(group));
    hutch_group_release(group);
    end_faults();
    for (int i = 0; i < 3; i++) {
      CHECK_OK(hutch_task_wait(tasks[i], 60 * HUTCH_SECOND));
      hutch_task_release(tasks[i]);
    }
  }
  hutch_queue_release(queue);
}

TEST(deadlines_hold_without_memory) {
  hutch_queue *queue = new_queue(1, 0);
  CHECK_OK(hutch_queue_suspend(queue));
  hutch_task *tasks[40];
  hutch_task_options soon = {.struct_size = sizeof soon, .deadline = HUTCH_MILLISECOND};
  begin_faults(MEMORY, ENOMEM, true, 2); /* The first call makes room for the thread. */
  for (int i = 0; i < 40; i++)
    CHECK_OK(hutch_queue_submit(queue, do_nothing, NULL, NULL, &soon, &tasks[i]));
  end_faults();
  for (int i = 0; i < 40; i++) {
    uint32_t state = 0;
    hutch_status status = HUTCH_OK;
    CHECK_OK(hutch_task_wait(tasks[i], 60 * HUTCH_SECOND));
    CHECK_OK(hutch_task_status(tasks[i], &state, &status));
    CHECK_STATUS(HUTCH_TIMED_OUT, status);
    hutch_task_release(tasks[i]);
  }
  CHECK_OK(hutch_queue_resume(queue));
  hutch_queue_release(queue);
}

/* The kind of file system that a directory seems to be on; 0: its own. */
static atomic_long file_system;

#define FILE_SYSTEM(name, result)                               \
  int name(int fd, struct result *state) {                      \
    REAL(name)                                                  \
    int code = real(fd, state);                                 \
    if (code == 0 && atomic_load(&file_system)) state->f_type = atomic_load(&file_system); \
    return code;                                                \
  }
FILE_SYSTEM(fstatfs, statfs)
FILE_SYSTEM(fstatfs64, statfs64)

static void note_stand_in(void *context, const hutch_log_record *record) {
  if (strstr(record->words, "does not suit a log")) ++*(int *)context;
}

static uint32_t storage_of(hutch_cache *cache) {
  hutch_options told = {.struct_size = sizeof told};
  CHECK_OK(hutch_get_options(cache, &told));
  return told.storage;
}

TEST(a_new_directory_has_the_store_that_suits_its_file_system) {
  const struct {
    long number;
    uint32_t flags, storage;
  } kinds[] = {{0, 0, HUTCH_STORAGE_LOG},
               {0xEF53, 0, HUTCH_STORAGE_LOG},         /* ext4 */
               {0x9123683E, 0, HUTCH_STORAGE_MIXED},   /* btrfs */
               {0x2FC12FC1, 0, HUTCH_STORAGE_MIXED},   /* ZFS */
               {0xCA451A4E, 0, HUTCH_STORAGE_MIXED},   /* bcachefs */
               {0x65735546, 0, HUTCH_STORAGE_MIXED},   /* FUSE */
               {0x6969, HUTCH_OPEN_NETWORK_DIRECTORY, HUTCH_STORAGE_MIXED}}; /* NFS */
  int stand_ins = 0, expected = 0;
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_INFO, note_stand_in, &stand_ins, NULL));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    path directory = scratch((char[]){(char)('a' + i), 0});
    hutch_options options = {.struct_size = sizeof options, .flags = kinds[i].flags};
    for (int opening = 0; opening < 2; opening++) {
      atomic_store(&file_system, kinds[i].number);
      hutch_cache *cache = open_cache(directory.text, &options);
      atomic_store(&file_system, 0);
      CHECK_EQUAL(kinds[i].storage, storage_of(cache));
      if (opening == 1) CHECK_TEXT(cache, "key", "value");
      CHECK_OK(put_text(cache, "key", "value"));
      CHECK_OK(hutch_close(cache));
      if (opening == 0) expected += kinds[i].storage == HUTCH_STORAGE_MIXED;
    }
    CHECK_EQUAL(expected, stand_ins);
    /* The directory decides, wherever it is; and who names the log has it. */
    hutch_cache *cache = open_cache(directory.text, NULL);
    CHECK_EQUAL(kinds[i].storage, storage_of(cache));
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(directory.text));
    options.storage = HUTCH_STORAGE_LOG;
    atomic_store(&file_system, kinds[i].number);
    cache = open_cache(directory.text, &options);
    atomic_store(&file_system, 0);
    CHECK_EQUAL(HUTCH_STORAGE_LOG, storage_of(cache));
    CHECK_OK(hutch_close(cache));
  }
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
  atomic_store(&file_system, 0x6969);
  hutch_cache *cache;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(scratch("network").text, NULL, &cache));
  atomic_store(&file_system, 0);
}

/* A directory takes addresses by its limit; and where they are few, it leaves most to the host. */
TEST(many_directories_have_addresses) {
  enum { MANY = 150 };
  static hutch_cache *caches[MANY];
  hutch_options options = {.struct_size = sizeof options, .flags = HUTCH_OPEN_NO_THREADS};
  struct rlimit descriptors;
  CHECK(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  descriptors.rlim_cur = descriptors.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  for (int i = 0; i < MANY; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    caches[i] = open_cache(scratch(name).text, &options);
    CHECK_OK(put_text(caches[i], "key", name));
  }
  void *large = mmap(NULL, (size_t)1 << 45, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
  CHECK(large != MAP_FAILED);
  munmap(large, (size_t)1 << 45);
  for (int i = 0; i < MANY; i++) CHECK_OK(hutch_close(caches[i]));

  const struct rlimit few = {(rlim_t)8 << 30, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_AS, &few) == 0);
  for (int i = 0; i < 4; i++) {
    char name[16];
    snprintf(name, sizeof name, "few%d", i);
    caches[i] = open_cache(scratch(name).text, &options);
    CHECK_OK(put_size(caches[i], "key", 1 << 20));
  }
  large = malloc((size_t)3 << 30);
  CHECK(large);
  free(large);
  for (int i = 0; i < 4; i++) CHECK_OK(hutch_close(caches[i]));
}

TEST(trap_21_free_space_is_asked_of_the_directory) {
  path directory = scratch("space");
  hutch_options options = unlimited_options();
  options.disk.min_free = 1 << 30;
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  struct stat state;
  CHECK(stat(directory.text, &state) == 0);
  expected_inode = state.st_ino;
  CHECK_OK(put_size(disk, "before", 1000));
  free_bytes = 1 << 29;
  CHECK_OK(hutch_set_limits(disk, &(hutch_cache_limits){
      .struct_size = sizeof(hutch_cache_limits), .disk = options.disk}));
  CHECK_EQUAL(expected_inode, asked_of);
  CHECK_EQUAL(0, count_of(disk));
  CHECK_STATUS(HUTCH_NO_SPACE, put_size(disk, "row", 1000));
  CHECK_STATUS(HUTCH_NO_SPACE, put_size(disk, "file", 100000));
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("both"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_NO_SPACE, result.disk);
  CHECK_TEXT(cache, "both", "value");
  free_bytes = INT64_C(1) << 31;
  CHECK_OK(put_size(disk, "row", 1000));
  CHECK_OK(put_size(disk, "file", 100000));
  free_bytes = -1;
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_value_that_leaves_too_little_free_gets_no_file) {
  hutch_options options = unlimited_options();
  options.disk.min_free = 1 << 30;
  path directory = scratch("space");
  hutch_cache *cache = open_cache(directory.text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  struct stat state;
  CHECK(stat(directory.text, &state) == 0);
  expected_inode = state.st_ino;
  CHECK_OK(put_size(disk, "key", 100000));
  free_bytes = 1 << 29;
  /* The SQLite store does not look at each write while it knows of enough. */
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_STATUS(HUTCH_NO_SPACE, put_size(disk, "file", 100000));
  CHECK_STATUS(HUTCH_NO_SPACE, put_size(disk, "key", 200000));
  CHECK_MISSING(disk, "file");
  CHECK_MISSING(disk, "key");
  free_bytes = INT64_C(1) << 31;
  CHECK_OK(put_size(disk, "file", 100000));
  CHECK_OK(put_size(disk, "key", 200000));
  CHECK_EQUAL(200000, info_of(disk, "key").size);
  free_bytes = -1;
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* After a clean end nothing is listed, neither by the opening nor later. */
TEST(trap_16_opening_lists_no_files) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_FILE;
  listings = 0;
  for (int opening = 0; opening < 3; opening++) {
    hutch_cache *cache = open_cache(scratch("many").text, &options);
    if (opening == 0)
      for (int i = 0; i < 300; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        CHECK_OK(put_size(cache, key, 100));
      }
    CHECK_EQUAL(300, count_of(cache));
    CHECK_OK(hutch_maintain(cache, 0));
    CHECK_EQUAL(0, listings);
    CHECK_OK(hutch_close(cache));
  }
  /* They would have been seen. */
  hutch_cache *cache = open_cache(scratch("many").text, &options);
  CHECK_OK(hutch_check(cache, 0, NULL));
  CHECK(listings > 0);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- durability */

/* How often a put waits for the disk. */
static long syncs_of_put(hutch_cache *cache, const char *key) {
  enum { PLENTY = 1000000 };
  fault.calls = SYNCS;
  fault.left = PLENTY;
  CHECK_OK(put_text(cache, key, "value"));
  long left = atomic_exchange(&fault.left, 0);
  fault.calls = 0;
  return PLENTY - left;
}

PROCESS(holds_it_in_sync, directory) {
  hutch_options options = unlimited_options();
  options.durability = HUTCH_DURABILITY_SYNC;
  hutch_cache *cache = open_cache(directory, &options);
  CHECK(syncs_of_put(cache, "first") > 0);
  tell_ready();
  await_end();
  CHECK_OK(hutch_close(cache));
}

TEST(the_strongest_durability_of_all_openings_holds) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  hutch_cache *first = open_cache(directory.text, &options), *second, *third;
  CHECK_OK(put_text(first, "once", "value"));
  CHECK_EQUAL(0, syncs_of_put(first, "process"));
  options.durability = HUTCH_DURABILITY_SYNC;
  second = open_cache(directory.text, &options);
  CHECK(syncs_of_put(second, "sync") > 0);
  CHECK(syncs_of_put(first, "sync too") > 0);
  options.durability = HUTCH_DURABILITY_POWER;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &options, &third));
  CHECK(syncs_of_put(third, "still") > 0);
  CHECK_OK(hutch_close(third));
  CHECK_OK(hutch_close(second));
  CHECK(syncs_of_put(first, "and still") > 0);
  CHECK_OK(hutch_close(first));
}

TEST(the_strongest_durability_of_all_processes_holds) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "once", "value"));
  CHECK_EQUAL(0, syncs_of_put(cache, "process"));
  process other = start_process("holds_it_in_sync", directory.text);
  await_ready(&other);
  CHECK(syncs_of_put(cache, "sync") > 0);
  CHECK_EQUAL(0, end_process(&other));
  CHECK_OK(hutch_close(cache));
  /* The next ones begin anew. */
  cache = open_cache(directory.text, &options);
  CHECK_OK(put_text(cache, "once", "value"));
  CHECK_EQUAL(0, syncs_of_put(cache, "process"));
  CHECK_OK(hutch_close(cache));
}

/* A read does not wait for the disk for files that have lost their entries: here that of the damaged
   entry that it has found. The next write or maintenance moves them. */
TEST(a_read_of_a_durable_log_waits_for_no_sync) {
  enum { PLENTY = 1000000 };
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_LOG;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  for (uint32_t durability = HUTCH_DURABILITY_POWER; durability <= HUTCH_DURABILITY_SYNC;
       durability++) {
    path directory = scratch("cache");
    options.durability = durability;
    hutch_cache *cache = open_cache(directory.text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    for (int writes = 0; writes < 2; writes++) {
      CHECK_OK(put_size(disk, "large", 100000));
      char file[PATH_MAX];
      size_t size;
      CHECK_OK(hutch_path(disk, KEY("large"), file, sizeof file, &size));
      CHECK(truncate(file, 7) == 0);
      CHECK_OK(put_text(disk, "other", "value"));
      fault.calls = SYNCS;
      fault.left = PLENTY;
      CHECK_MISSING(disk, "large");
      CHECK_EQUAL(PLENTY, atomic_exchange(&fault.left, 0));
      fault.calls = 0;
      CHECK(access(file, F_OK) == 0);
      if (writes)
        CHECK_OK(put_text(disk, "other", "value"));
      else
        CHECK_OK(hutch_maintain(cache, 0));
      CHECK(access(file, F_OK) != 0);
    }
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}

/* ------------------------------------------------------- a process that is stopped */

/* Each look at the clock takes a second. */
static atomic_llong seconds, seconds_per_look;

int clock_gettime(clockid_t clock, struct timespec *time) {
  REAL(clock_gettime)
  int result = real(clock, time);
  if (clock == CLOCK_MONOTONIC) time->tv_sec += seconds += seconds_per_look;
  return result;
}

static hutch_cache *open_database(const char *directory) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_MIXED;
  options.sharing = HUTCH_SHARING_SHARED;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  return open_cache(directory, &options);
}

PROCESS(stops_within_its_puts, directory) {
  hutch_cache *cache = open_database(directory);
  tell_ready();
  fault.calls = WRITES;
  fault.stops = true;
  for (int i = 0; i < 2; i++) {
    fault.left = 1;
    CHECK_OK(put_text(cache, i ? "second" : "first", "theirs"));
  }
  CHECK_OK(hutch_close(cache));
  await_end();
}

static void await_stop(const process *other) {
  int status;
  CHECK(waitpid(other->pid, &status, WUNTRACED) == other->pid && WIFSTOPPED(status));
}

TEST(a_process_that_is_stopped_in_a_transaction_is_not_waited_for_without_an_end) {
  path directory = scratch("cache");
  hutch_cache *cache = open_database(directory.text);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "key", "older"));
  CHECK_OK(put_text(cache, "kept", "value"));
  process other = start_process("stops_within_its_puts", directory.text);
  await_ready(&other);
  await_stop(&other);
  seconds_per_look = 1;
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("key"), KEY("newer"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_TEXT(cache, "key", "newer");
  CHECK_MISSING(disk, "key");
  CHECK_TEXT(disk, "kept", "value");
  CHECK_STATUS(HUTCH_BUSY, put_text(disk, "key", "newer"));
  CHECK_STATUS(HUTCH_BUSY, hutch_clear(disk));
  seconds_per_look = 0;
  CHECK(kill(other.pid, SIGCONT) == 0);
  await_stop(&other);
  hutch_cache_release(disk);
  seconds_per_look = 1;
  CHECK_STATUS(HUTCH_IO, hutch_close(cache));
  hutch_options options = {.struct_size = sizeof options};
  CHECK_STATUS(HUTCH_BUSY, hutch_open(directory.text, &options, &cache));
  seconds_per_look = 0;
  CHECK(kill(other.pid, SIGCONT) == 0);
  CHECK_EQUAL(0, end_process(&other));
  cache = open_database(directory.text);
  CHECK_TEXT(cache, "first", "theirs");
  CHECK_TEXT(cache, "second", "theirs");
  CHECK_OK(put_text(cache, "last", "value"));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}
