/* What a program may do wrong, each with the status it gets, with words, and with nothing lost:
   bad arguments, bad structs, bad directories, bad manifests. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* ----------------------------------------------------------- being rejected */

/* A cache that holds something to lose, on a clock that stands still. */
static hutch_cache *cache, *other;
static test_clock standing;

static void prepare(void) {
  hutch_options options = unlimited_options();
  use_clock(&options, &standing);
  cache = open_cache(scratch("cache").text, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(put_size(cache, "large", 50000));
  other = open_cache(NULL, NULL);
  CHECK_OK(hutch_increment(other, KEY("full"), 0, INT64_MAX, NULL, NULL));
}

static void finish(void) {
  CHECK_OK(hutch_close(other));
  CHECK_OK(hutch_close(cache));
  hutch_options options = unlimited_options();
  cache = open_cache(scratch("cache").text, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* Makes the last error another one than a rejection's. */
static void fail_otherwise(void) {
  hutch_increment(other, KEY("full"), 1, 0, NULL, NULL);
  CHECK_EQUAL(HUTCH_OVERFLOW, last_error().status);
}

static void check_rejected(const char *file, int line, const char *call, hutch_status expected,
                           hutch_status actual) {
  check_status(file, line, call, expected, actual);
  hutch_error error = last_error();
  if (error.status != expected || strlen(error.words) < 8)
    check_fail(file, line, "%s: the last error is %s, '%s'", call,
               hutch_status_name(error.status), error.words);
  if (count_of(cache) != 2) check_fail(file, line, "%s: an entry came or went", call);
  check_text(file, line, cache, "key", "value");
}

#define REJECTED(status, call) \
  (fail_otherwise(), check_rejected(__FILE__, __LINE__, #call, status, call))
#define INVALID(call) REJECTED(HUTCH_INVALID_ARGUMENT, call)

static int32_t visit(void *context, const void *key, size_t key_size,
                     const hutch_entry_info *info) {
  (void)context, (void)key, (void)key_size, (void)info;
  return 0;
}

/* ----------------------------------------------------------- bad arguments */

TEST(null_for_the_cache) {
  prepare();
  hutch_put_result result = new_result();
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  hutch_cache_stats stats = {.struct_size = sizeof stats};
  hutch_cache *view = cache;
  hutch_value *value = (hutch_value *)&info;
  hutch_cursor *cursor = (hutch_cursor *)&info;
  uint64_t number;
  int64_t sum;
  size_t size;
  char buffer[8];
  INVALID(hutch_put(NULL, KEY("k"), KEY("v"), NULL, &result));
  INVALID(hutch_add(NULL, KEY("k"), KEY("v"), NULL, &result));
  INVALID(hutch_replace(NULL, KEY("k"), KEY("v"), NULL, &result));
  INVALID(hutch_compare_and_swap(NULL, KEY("k"), 1, KEY("v"), NULL, &result));
  INVALID(hutch_increment(NULL, KEY("k"), 1, 0, NULL, &sum));
  INVALID(hutch_get(NULL, KEY("k"), &value));
  CHECK(!value);
  value = (hutch_value *)&info;
  INVALID(hutch_pop(NULL, KEY("k"), &value));
  CHECK(!value);
  INVALID(hutch_get_into(NULL, KEY("k"), buffer, sizeof buffer, &size));
  INVALID(hutch_contains(NULL, KEY("k")));
  INVALID(hutch_info(NULL, KEY("k"), &info));
  INVALID(hutch_touch(NULL, KEY("k"), 1, 1));
  INVALID(hutch_remove(NULL, KEY("k")));
  INVALID(hutch_clear(NULL));
  INVALID(hutch_flush(NULL));
  INVALID(hutch_limits(NULL, &limits));
  INVALID(hutch_set_limits(NULL, &limits));
  hutch_options options = {.struct_size = sizeof options};
  INVALID(hutch_get_options(NULL, &options));
  INVALID(hutch_set_options(NULL, &options));
  INVALID(hutch_count(NULL, &number));
  INVALID(hutch_cost(NULL, &number));
  INVALID(hutch_value_bytes(NULL, &number));
  INVALID(hutch_stats(NULL, &stats));
  INVALID(hutch_each(NULL, visit, NULL));
  INVALID(hutch_cursor_create(NULL, &cursor));
  CHECK(!cursor);
  INVALID(hutch_tier(NULL, HUTCH_TIER_MEMORY, &view));
  CHECK(!view);
  CHECK(!hutch_directory(NULL));
  CHECK(!hutch_cache_retain(NULL));
  finish();
}

TEST(null_for_a_key) {
  prepare();
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_value *value = (hutch_value *)&info;
  size_t size;
  INVALID(hutch_put(cache, NULL, 1, KEY("v"), NULL, NULL));
  INVALID(hutch_add(cache, NULL, 1, KEY("v"), NULL, NULL));
  INVALID(hutch_replace(cache, NULL, 1, KEY("v"), NULL, NULL));
  INVALID(hutch_compare_and_swap(cache, NULL, 1, 1, KEY("v"), NULL, NULL));
  INVALID(hutch_increment(cache, NULL, 1, 1, 0, NULL, NULL));
  INVALID(hutch_get(cache, NULL, 1, &value));
  CHECK(!value);
  INVALID(hutch_pop(cache, NULL, 1, &value));
  INVALID(hutch_get_into(cache, NULL, 1, NULL, 0, &size));
  INVALID(hutch_contains(cache, NULL, 1));
  INVALID(hutch_info(cache, NULL, 1, &info));
  INVALID(hutch_touch(cache, NULL, 1, 1, 1));
  INVALID(hutch_remove(cache, NULL, 1));
  finish();
}

TEST(a_size_that_no_key_has) {
  prepare();
  hutch_entry_info info = {.struct_size = sizeof info};
  char *key = calloc(1, HUTCH_KEY_MAX + 1);
  const size_t sizes[] = {0, HUTCH_KEY_MAX + 1, INT_MAX, (size_t)UINT32_MAX + 2, PTRDIFF_MAX,
                          (size_t)PTRDIFF_MAX + 1, SIZE_MAX};
  for (int i = 0; i < 7; i++) {
    hutch_value *value = (hutch_value *)&info;
    size_t size = sizes[i];
    INVALID(hutch_put(cache, key, size, KEY("v"), NULL, NULL));
    INVALID(hutch_add(cache, key, size, KEY("v"), NULL, NULL));
    INVALID(hutch_replace(cache, key, size, KEY("v"), NULL, NULL));
    INVALID(hutch_compare_and_swap(cache, key, size, 1, KEY("v"), NULL, NULL));
    INVALID(hutch_increment(cache, key, size, 1, 0, NULL, NULL));
    INVALID(hutch_get(cache, key, size, &value));
    CHECK(!value);
    INVALID(hutch_pop(cache, key, size, &value));
    INVALID(hutch_get_into(cache, key, size, NULL, 0, &(size_t){0}));
    INVALID(hutch_contains(cache, key, size));
    INVALID(hutch_info(cache, key, size, &info));
    INVALID(hutch_touch(cache, key, size, 1, 1));
    INVALID(hutch_remove(cache, key, size));
  }
  free(key);
  finish();
}

TEST(a_size_that_no_value_has) {
  prepare();
  const size_t sizes[] = {(size_t)PTRDIFF_MAX + 1, SIZE_MAX - 100, SIZE_MAX};
  for (int i = 0; i < 3; i++) {
    size_t size = sizes[i];
    hutch_put_options options = put_options();
    options.extended = "e";
    options.extended_size = size;
    INVALID(hutch_put(cache, KEY("key"), "v", size, NULL, NULL));
    INVALID(hutch_add(cache, KEY("new"), "v", size, NULL, NULL));
    INVALID(hutch_replace(cache, KEY("key"), "v", size, NULL, NULL));
    INVALID(hutch_compare_and_swap(cache, KEY("key"), 1, "v", size, NULL, NULL));
    INVALID(hutch_put(cache, KEY("key"), KEY("v"), &options, NULL));
    /* Also of a key without an entry. */
    const char *keys[] = {"key", "new", "a new key", "a new key that is longer"};
    for (int k = 0; k < 4; k++) {
      hutch_found found = {.struct_size = sizeof found};
      INVALID(hutch_get_into(cache, keys[k], strlen(keys[k]), &options, size, &(size_t){0}));
      INVALID(hutch_look(cache, keys[k], strlen(keys[k]), 0, &options, size, &found));
    }
  }
  hutch_put_options options = put_options();
  options.extended_size = 1;
  INVALID(hutch_put(cache, KEY("key"), KEY("v"), &options, NULL));
  char *extended = calloc(1, 65536);
  options.extended = extended;
  options.extended_size = 65536;
  INVALID(hutch_put(cache, KEY("key"), KEY("v"), &options, NULL));
  free(extended);
  /* The largest sizes that there might be: the library does not read that far. */
  for (size_t size = PTRDIFF_MAX; size > PTRDIFF_MAX - 3; size--) {
    hutch_status status = hutch_put(other, KEY("huge"), "v", size, NULL, NULL);
    CHECK(status == HUTCH_TOO_LARGE || status == HUTCH_NO_MEMORY ||
          status == HUTCH_INVALID_ARGUMENT);
    CHECK_MISSING(other, "huge");
    status = hutch_put(cache, KEY("huge"), "v", size, NULL, NULL);
    CHECK(status == HUTCH_NO_MEMORY || status == HUTCH_INVALID_ARGUMENT);
  }
  finish();
}

/* With each kind of disk store: each adds to a size before it compares. */
TEST(the_largest_sizes_are_refused_by_every_kind_of_storage) {
  static const int32_t kinds[] = {HUTCH_STORAGE_MIXED, HUTCH_STORAGE_FILE, HUTCH_STORAGE_SQLITE,
                                  HUTCH_STORAGE_LOG};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    hutch_options options = unlimited_options();
    options.storage = kinds[i];
    hutch_cache *whole = open_cache(scratch("kind").text, &options);
    hutch_cache *disk = tier_of(whole, HUTCH_TIER_DISK);
    for (size_t less = 0; less < 5000; less += 1 + less / 2) {
      hutch_status status = hutch_put(disk, KEY("huge"), "v", PTRDIFF_MAX - less, NULL, NULL);
      CHECK(status == HUTCH_TOO_LARGE || status == HUTCH_NO_MEMORY);
      CHECK_MISSING(disk, "huge");
      hutch_writer *writer = NULL;
      CHECK_OK(hutch_writer_begin(whole, KEY("huge"), 0, NULL, &writer));
      status = hutch_writer_append(writer, "v", PTRDIFF_MAX - less);
      CHECK(status == HUTCH_TOO_LARGE || status == HUTCH_NO_MEMORY || status == HUTCH_IO);
      hutch_writer_release(writer);
      CHECK_MISSING(whole, "huge");
    }
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(whole));
    remove_tree(scratch("kind").text);
  }
}

TEST(a_write_policy_that_the_cache_has_no_tier_for_changes_nothing) {
  prepare();
  CHECK_OK(put_text(other, "key", "value"));
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_DISK;
  size_t size = 30 << 20;
  void *large = calloc(1, size);
  hutch_cache_limits limits = {.struct_size = sizeof limits, .memory.cost = 16 << 20};
  CHECK_OK(hutch_set_limits(other, &limits));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_put(other, KEY("key"), large, size, &options, NULL));
  CHECK_TEXT(other, "key", "value");
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_add(other, KEY("key"), "v", 1, &options, NULL));
  free(large);
  finish();
}

TEST(null_where_a_pointer_is_needed) {
  prepare();
  hutch_cursor *cursor = NULL;
  hutch_value *value = NULL;
  hutch_entry_info info = {.struct_size = sizeof info};
  const void *key;
  size_t size;
  char buffer[8];
  INVALID(hutch_put(cache, KEY("key"), NULL, 1, NULL, NULL));
  INVALID(hutch_add(cache, KEY("new"), NULL, 1, NULL, NULL));
  INVALID(hutch_replace(cache, KEY("key"), NULL, 1, NULL, NULL));
  INVALID(hutch_compare_and_swap(cache, KEY("key"), 1, NULL, 1, NULL, NULL));
  INVALID(hutch_get(cache, KEY("key"), NULL));
  INVALID(hutch_pop(cache, KEY("key"), NULL));
  INVALID(hutch_get_into(cache, KEY("key"), NULL, 1, &size));
  INVALID(hutch_get_into(cache, KEY("key"), buffer, sizeof buffer, NULL));
  hutch_found found = {.struct_size = sizeof found};
  INVALID(hutch_look(cache, KEY("key"), 0, NULL, 1, &found));
  INVALID(hutch_look(cache, KEY("key"), 0, buffer, SIZE_MAX, &found));
  CHECK_STATUS(HUTCH_UNSUPPORTED,
               hutch_look(cache, KEY("key"), 8, buffer, sizeof buffer, &found));
  INVALID(hutch_look(cache, KEY("key"), 0, buffer, sizeof buffer, NULL));
  INVALID(hutch_look(NULL, KEY("key"), 0, buffer, sizeof buffer, &found));
  INVALID(hutch_look(cache, NULL, 1, 0, buffer, sizeof buffer, &found));
  INVALID(hutch_look(cache, KEY("key"), 0, buffer, sizeof buffer, &(hutch_found){0}));
  INVALID(hutch_info(cache, KEY("key"), NULL));
  INVALID(hutch_limits(cache, NULL));
  INVALID(hutch_set_limits(cache, NULL));
  INVALID(hutch_count(cache, NULL));
  INVALID(hutch_cost(cache, NULL));
  INVALID(hutch_value_bytes(cache, NULL));
  INVALID(hutch_stats(cache, NULL));
  INVALID(hutch_each(cache, NULL, NULL));
  INVALID(hutch_cursor_create(cache, NULL));
  INVALID(hutch_tier(cache, HUTCH_TIER_MEMORY, NULL));
  INVALID(hutch_open(NULL, NULL, NULL));
  INVALID(hutch_value_info(NULL, &info));
  INVALID(hutch_cursor_next(NULL, &key, &size));
  INVALID(hutch_cursor_value(NULL, &value));
  INVALID(hutch_cursor_info(NULL, &info));
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  INVALID(hutch_cursor_next(cursor, NULL, &size));
  INVALID(hutch_cursor_next(cursor, &key, NULL));
  CHECK_OK(hutch_cursor_next(cursor, &key, &size));
  INVALID(hutch_cursor_value(cursor, NULL));
  INVALID(hutch_cursor_info(cursor, NULL));
  value = get_value(cache, "key");
  INVALID(hutch_value_info(value, NULL));
  hutch_value_release(value);
  hutch_cursor_release(cursor);
  finish();
}

TEST(a_duration_below_zero) {
  prepare();
  const int64_t durations[] = {-1, -HUTCH_DAY, INT64_MIN};
  for (int i = 0; i < 3; i++) {
    hutch_put_options live = put_options(), idle = put_options();
    live.time_to_live = idle.time_to_idle = durations[i];
    INVALID(hutch_put(cache, KEY("key"), KEY("v"), &live, NULL));
    INVALID(hutch_put(cache, KEY("key"), KEY("v"), &idle, NULL));
    INVALID(hutch_add(cache, KEY("new"), KEY("v"), &live, NULL));
    INVALID(hutch_replace(cache, KEY("key"), KEY("v"), &idle, NULL));
    INVALID(hutch_increment(cache, KEY("new"), 1, 0, &live, NULL));
    INVALID(hutch_touch(cache, KEY("key"), durations[i], 0));
    INVALID(hutch_touch(cache, KEY("key"), 0, durations[i]));
    int64_t times[2] = {durations[i], 0};
    for (int which = 0; which < 4; which++) {
      hutch_options options = default_options();
      hutch_cache_limits limits = limits_of(cache);
      hutch_tier_limits *in_options = which < 2 ? &options.memory : &options.disk;
      hutch_tier_limits *in_limits = which < 2 ? &limits.memory : &limits.disk;
      in_options->time_to_live = in_limits->time_to_live = times[which % 2];
      in_options->time_to_idle = in_limits->time_to_idle = times[1 - which % 2];
      hutch_cache *opened = cache;
      INVALID(hutch_set_limits(cache, &limits));
      INVALID(hutch_open(scratch("unmade").text, &options, &opened));
      CHECK(!opened && access(scratch("unmade").text, F_OK) != 0);
    }
  }
  finish();
}

TEST(what_is_not_defined) {
  prepare();
  for (uint32_t tier = 0; tier < 10; tier++) {
    hutch_cache *view = cache;
    if (tier == HUTCH_TIER_MEMORY || tier == HUTCH_TIER_DISK) continue;
    REJECTED(HUTCH_UNSUPPORTED, hutch_tier(cache, tier, &view));
    CHECK(!view);
  }
  const uint32_t flags[] = {1u << 20, 0x80000000, UINT32_MAX};
  for (int i = 0; i < 3; i++) {
    hutch_options options = default_options();
    options.flags = flags[i];
    hutch_cache *opened = cache;
    REJECTED(HUTCH_UNSUPPORTED, hutch_open(scratch("unmade").text, &options, &opened));
    CHECK(!opened);
    REJECTED(HUTCH_UNSUPPORTED, hutch_check(cache, flags[i], NULL));
    REJECTED(HUTCH_UNSUPPORTED, hutch_set_listener(cache, flags[i], NULL, NULL, NULL));
    hutch_load_options load = {.struct_size = sizeof load, .flags = flags[i]};
    hutch_value *value = NULL;
    hutch_loading *loading = NULL;
    REJECTED(HUTCH_UNSUPPORTED, hutch_load_begin(cache, KEY("new"), &load, &value, &loading));
    hutch_task_options task = {.struct_size = sizeof task, .flags = flags[i]};
    REJECTED(HUTCH_UNSUPPORTED, hutch_get_async(cache, KEY("key"), &task, NULL));
    hutch_queue_options queue_options = {.struct_size = sizeof queue_options, .flags = flags[i]};
    hutch_queue *queue = NULL;
    REJECTED(HUTCH_UNSUPPORTED, hutch_queue_create(&queue_options, &queue));
  }
  /* Options that a later library may know. */
  for (int field = 0; field < 9; field++) {
    hutch_options options = default_options();
    uint32_t *fields[] = {&options.policy, &options.disk_policy, &options.storage,
                          &options.durability, &options.sharing, &options.checksums,
                          &options.write_policy, &options.on_memory_warning,
                          &options.on_background};
    /* The first number behind those that are defined. */
    const uint32_t defined[] = {HUTCH_POLICY_ADAPTIVE, HUTCH_POLICY_ADAPTIVE,
                                HUTCH_STORAGE_LOG, HUTCH_DURABILITY_SYNC, HUTCH_SHARING_SHARED, HUTCH_CHECKSUMS_NEVER,
                                HUTCH_WRITE_ON_EVICTION, HUTCH_SHRINK_EXPIRED,
                                HUTCH_SHRINK_EXPIRED};
    *fields[field] = defined[field] + 1;
    hutch_cache *opened = cache;
    REJECTED(HUTCH_UNSUPPORTED, hutch_open(scratch("unmade").text, &options, &opened));
    CHECK(!opened);
  }
  CHECK(access(scratch("unmade").text, F_OK) != 0);
  /* Enumerators that are arguments: the first number behind those that are defined. */
  hutch_put_options put = put_options();
  put.write_policy = HUTCH_WRITE_ON_EVICTION + 1;
  REJECTED(HUTCH_UNSUPPORTED, hutch_put(cache, KEY("new"), KEY("v"), &put, NULL));
  for (uint32_t use = 0; use <= HUTCH_FILE_LINK + 1; use += HUTCH_FILE_LINK + 1)
    REJECTED(HUTCH_UNSUPPORTED, hutch_put_file(cache, KEY("new"), "file", use, NULL, NULL));
  hutch_trim_spec trim = {.struct_size = sizeof trim};
  for (; trim.kind <= HUTCH_TRIM_ACCESSED_BEFORE + 1; trim.kind += HUTCH_TRIM_ACCESSED_BEFORE + 1)
    REJECTED(HUTCH_UNSUPPORTED, hutch_trim(cache, &trim, NULL));
  const uint32_t orders[] = {0, HUTCH_ORDER_ACCESS + 1, HUTCH_ORDER_DESCENDING,
                             HUTCH_ORDER_DESCENDING << 1};
  for (int i = 0; i < 4; i++) {
    hutch_cursor *cursor = NULL;
    REJECTED(HUTCH_UNSUPPORTED, hutch_cursor_create_ordered(cache, orders[i], &cursor));
  }
  const uint32_t notifications[] = {0, HUTCH_NOTIFY_ENTERED_BACKGROUND + 1};
  for (int i = 0; i < 2; i++)
    REJECTED(HUTCH_UNSUPPORTED, hutch_notify(cache, notifications[i]));
  const int32_t priorities[] = {HUTCH_PRIORITY_LOW - 1, HUTCH_PRIORITY_HIGH + 1};
  for (int i = 0; i < 2; i++) {
    hutch_task_options task = {.struct_size = sizeof task, .priority = priorities[i]};
    REJECTED(HUTCH_UNSUPPORTED, hutch_get_async(cache, KEY("key"), &task, NULL));
  }
  finish();
}

/* Words say which path, which flag and which number. */
TEST(words_name_what_was_refused) {
  prepare();
  hutch_options options = default_options();
  hutch_cache *opened = NULL;
  options.policy = 77;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(NULL, &options, &opened));
  CHECK(strcmp(hutch_error_words(), "options.policy is not defined: 77") == 0);
  options.policy = 0;
  options.flags = UINT32_MAX;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(scratch("unmade").text, &options, &opened));
  CHECK(strstr(hutch_error_words(), "/unmade: a flag is not defined: "));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_tier(cache, 0, &opened));
  CHECK(strcmp(hutch_error_words(), "there is no such tier: 0") == 0);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open("/dev/null/below", NULL, &opened));
  CHECK(strstr(hutch_error_words(), "/dev/null/below: ") == hutch_error_words());
  CHECK(strstr(hutch_error_words(), "Not a directory"));
  CHECK_STATUS(HUTCH_IO, hutch_put_file(cache, KEY("new"), "/dev/null/file", HUTCH_FILE_COPY,
                                        NULL, NULL));
  CHECK(strstr(hutch_error_words(), "/dev/null/file: ") == hutch_error_words());
  /* Of a path that would leave no room for the reason, the end. */
  char deep[400];
  memset(deep, 'x', sizeof deep);
  memcpy(deep, "/dev/null/", 10);
  strcpy(deep + sizeof deep - 9, "/the end");
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(deep, NULL, &opened));
  CHECK(strncmp(hutch_error_words(), "...x", 4) == 0);
  CHECK(strstr(hutch_error_words(), "x/the end: "));
  CHECK(strstr(hutch_error_words(), "Not a directory"));
  CHECK(strcmp(hutch_error_words(), last_error().words) == 0);
  /* They are UTF-8, whatever the path is: what belongs to no character is a question mark. Here a
     byte alone, a surrogate, more bytes than needed, too large a number, and parts of characters. */
  const char *any = "/dev/null/a\xff""b\xed\xa0\x80""c\xc0\xafg\xe0\x9f\xbfh\xf0\x8f\xbf\xbf"
                    "d\xf4\x90\x80\x80""e\xe2\x82""f\xf0\x9f\x98";
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(any, NULL, &opened));
  CHECK(strncmp(hutch_error_words(), "/dev/null/a?b???c??g???h????d????e??f???: ", 42) == 0);
  const char *text = "/dev/null/\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"
                     "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf: ";
  char path[64] = {0};
  memcpy(path, text, strlen(text) - 2);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(path, NULL, &opened));
  CHECK(strncmp(hutch_error_words(), text, strlen(text)) == 0);
  finish();
}

TEST(reserved_fields_that_are_not_zero) {
  prepare();
  for (int i = 0; i < 6; i++) {
    hutch_options options = default_options();
    hutch_cache_limits limits = limits_of(cache);
    (i < 3 ? &options.memory : &options.disk)->reserved[i * 9 % 10] = 1;
    (i < 3 ? &limits.memory : &limits.disk)->reserved[i * 9 % 10] = 1;
    limits.memory.count = 1;
    hutch_cache *opened = cache;
    REJECTED(HUTCH_UNSUPPORTED, hutch_open(scratch("unmade").text, &options, &opened));
    CHECK(!opened);
    REJECTED(HUTCH_UNSUPPORTED, hutch_set_limits(cache, &limits));
  }
  hutch_options options = default_options();
  options.reserved = 1;
  hutch_cache *opened = cache;
  REJECTED(HUTCH_UNSUPPORTED, hutch_open(scratch("unmade").text, &options, &opened));
  CHECK(!opened);
  CHECK_EQUAL(HUTCH_NO_LIMIT, limits_of(cache).memory.count);
  CHECK(access(scratch("unmade").text, F_OK) != 0);
  finish();
}

/* ----------------------------------------------------------------- structs */

/* Every struct that a call takes, with a call that works and changes nothing. */
static hutch_status with_error(void *s) { return hutch_last_error(s); }

static hutch_status with_options(void *s) {
  hutch_cache *opened = NULL;
  hutch_status status = hutch_open(NULL, s, &opened);
  hutch_close(opened);
  return status;
}

static hutch_status with_limits_out(void *s) { return hutch_limits(cache, s); }

static hutch_status with_limits(void *s) { return hutch_set_limits(other, s); }

static hutch_status with_put_options(void *s) {
  return hutch_put(other, KEY("k"), KEY("v"), s, NULL);
}

static hutch_status with_put_result(void *s) {
  return hutch_put(other, KEY("k"), KEY("v"), NULL, s);
}

static hutch_status with_stats(void *s) { return hutch_stats(cache, s); }

static hutch_status with_info(void *s) { return hutch_info(cache, KEY("key"), s); }

static hutch_status with_value_info(void *s) {
  hutch_value *value = get_value(cache, "key");
  hutch_status status = hutch_value_info(value, s);
  hutch_value_release(value);
  return status;
}

static hutch_status with_cursor_info(void *s) {
  hutch_cursor *cursor = NULL;
  const void *key;
  size_t size;
  CHECK_OK(hutch_cursor_create(cache, &cursor));
  CHECK_OK(hutch_cursor_next(cursor, &key, &size));
  hutch_status status = hutch_cursor_info(cursor, s);
  hutch_cursor_release(cursor);
  return status;
}

static const struct {
  const char *name;
  size_t size;
  bool out; /* it is filled in */
  hutch_status (*call)(void *s);
} structs[] = {
    {"hutch_error", sizeof(hutch_error), true, with_error},
    {"hutch_options", sizeof(hutch_options), false, with_options},
    {"hutch_cache_limits, out", sizeof(hutch_cache_limits), true, with_limits_out},
    {"hutch_cache_limits", sizeof(hutch_cache_limits), false, with_limits},
    {"hutch_put_options", sizeof(hutch_put_options), false, with_put_options},
    {"hutch_put_result", sizeof(hutch_put_result), true, with_put_result},
    {"hutch_cache_stats", sizeof(hutch_cache_stats), true, with_stats},
    {"hutch_entry_info", sizeof(hutch_entry_info), true, with_info},
    {"hutch_entry_info of a value", sizeof(hutch_entry_info), true, with_value_info},
    {"hutch_entry_info of a cursor", sizeof(hutch_entry_info), true, with_cursor_info},
};
enum { STRUCTS = sizeof structs / sizeof *structs, ROOM = 1024 };

/* A struct that claims to have size bytes; what is behind them is not the callee's. */
typedef union room {
  size_t struct_size;
  unsigned char bytes[ROOM];
} room;

static room claim(size_t size) {
  room r;
  memset(&r, 0, sizeof r);
  if (size < ROOM) memset(r.bytes + size, 0xee, ROOM - size);
  r.struct_size = size;
  return r;
}

static void check_untouched(const room *r, size_t from) {
  for (size_t i = from; i < ROOM; i++) CHECK_EQUAL(0xee, r->bytes[i]);
}

TEST(a_shorter_struct_is_an_older_one) {
  prepare();
  for (int i = 0; i < STRUCTS; i++) {
    check_note(structs[i].name);
    for (size_t size = sizeof(size_t); size <= structs[i].size; size += 8) {
      room r = claim(size);
      CHECK_OK(structs[i].call(&r));
      CHECK_EQUAL(size, r.struct_size);
      check_untouched(&r, size);
    }
  }
  check_note(NULL);
  finish();
}

/* What the library fills in may be longer than the library's, with anything in it. */
TEST(a_longer_struct_that_is_filled_in_is_zero_behind) {
  prepare();
  for (int i = 0; i < STRUCTS; i++) {
    if (!structs[i].out) continue;
    check_note(structs[i].name);
    for (size_t more = 8; more < 100; more += 32) {
      size_t whole = structs[i].size + more;
      room r = claim(whole);
      memset(r.bytes + sizeof(size_t), 0x5a, whole - sizeof(size_t));
      CHECK_OK(structs[i].call(&r));
      CHECK_EQUAL(whole, r.struct_size);
      for (size_t at = structs[i].size; at < whole; at++) CHECK_EQUAL(0, r.bytes[at]);
      check_untouched(&r, whole);
    }
  }
  check_note(NULL);
  finish();
}

TEST(a_longer_struct_with_nothing_new_in_it_is_accepted) {
  prepare();
  for (int i = 0; i < STRUCTS; i++) {
    check_note(structs[i].name);
    for (size_t more = 8; more < 100; more += 32) {
      room r = claim(structs[i].size + more);
      CHECK_OK(structs[i].call(&r));
      check_untouched(&r, structs[i].size + more);
    }
  }
  check_note(NULL);
  finish();
}

TEST(a_longer_struct_with_something_new_in_it_is_not) {
  prepare();
  for (int i = 0; i < STRUCTS; i++) {
    if (structs[i].out) continue;
    check_note(structs[i].name);
    for (size_t at = 0; at < 64; at += 21) {
      room r = claim(structs[i].size + 64);
      r.bytes[structs[i].size + at] = 1;
      room before = r;
      REJECTED(HUTCH_UNSUPPORTED, structs[i].call(&r));
      CHECK_BYTES(&before, sizeof before, &r, sizeof r);
    }
  }
  check_note(NULL);
  CHECK_EQUAL(1, count_of(other));
  finish();
}

TEST(a_struct_size_that_no_struct_has) {
  prepare();
  size_t sizes[] = {0, 1, 7, 4104, (size_t)PTRDIFF_MAX + 1, SIZE_MAX, 12, 0, 0, 0, 0};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  for (int i = 0; i < STRUCTS; i++) {
    check_note(structs[i].name);
    /* Such a struct would end within its last field, which may be a pointer. */
    const size_t near[] = {-4, -1, 1, 4};
    for (int n = 0; n < 4; n++) sizes[SIZES - 4 + n] = structs[i].size + near[n];
    for (int s = 0; s < SIZES; s++) {
      room r = claim(sizes[s]), before = r;
      if (structs[i].call == with_error) CHECK(structs[i].call(&r) == HUTCH_INVALID_ARGUMENT);
      else INVALID(structs[i].call(&r));
      CHECK_BYTES(&before, sizeof before, &r, sizeof r);
    }
  }
  check_note(NULL);
  finish();
}

TEST(what_a_shorter_struct_lacks_has_its_default) {
  hutch_options options;
  memset(&options, 0xff, sizeof options);
  options.struct_size = offsetof(hutch_options, storage);
  options.flags = options.policy = 0;
  hutch_cache *opened = open_cache(scratch("cache").text, &options);
  hutch_cache *ordinary = open_cache(scratch("ordinary").text, NULL);
  hutch_cache_limits defaults = limits_of(ordinary), limits = limits_of(opened);
  CHECK_OK(hutch_close(ordinary));
  CHECK_BYTES(&defaults, sizeof defaults, &limits, sizeof limits);

  hutch_put_options put;
  memset(&put, 0xff, sizeof put);
  put.struct_size = offsetof(hutch_put_options, cost);
  put.time_to_live = HUTCH_HOUR;
  put.time_to_idle = 0;
  CHECK_OK(hutch_put(opened, KEY("key"), KEY("value"), &put, NULL));
  hutch_entry_info info = info_of(opened, "key");
  CHECK_EQUAL(0, info.cost);
  CHECK_EQUAL(0, info.extended_size);
  /* The struct of a header that had no tags. */
  put = (hutch_put_options){.struct_size = offsetof(hutch_put_options, tag), .tag = &put,
                            .tag_size = SIZE_MAX};
  CHECK_OK(hutch_put(opened, KEY("key"), KEY("value"), &put, NULL));
  CHECK_EQUAL(0, info_of(opened, "key").tag_size);
  CHECK_OK(hutch_close(opened));
}

/* ------------------------------------------------------------- directories */

static void check_not_opened(const char *directory, hutch_status expected) {
  hutch_cache *opened = cache;
  REJECTED(expected, hutch_open(directory, NULL, &opened));
  CHECK(!opened);
}

TEST(a_directory_that_cannot_be_made_or_used) {
  prepare();
  path around = scratch("around"), file = scratch("around/file");
  CHECK(mkdir(around.text, 0700) == 0);
  write_file(file.text, "precious", 8);
  char long_path[2 * PATH_MAX];
  memset(long_path, 'x', sizeof long_path - 1);
  long_path[0] = '/';
  long_path[sizeof long_path - 1] = '\0';
  CHECK(symlink("loop", scratch("around/loop").text) == 0);
  uint64_t digest = digest_of(around.text);

  check_not_opened(file.text, HUTCH_BAD_DIRECTORY);
  check_not_opened(scratch("around/file/below").text, HUTCH_BAD_DIRECTORY);
  check_not_opened(scratch("around/file/below/deeper").text, HUTCH_BAD_DIRECTORY);
  check_not_opened("/proc/hutch/cache", HUTCH_BAD_DIRECTORY);
  check_not_opened("/dev/null", HUTCH_BAD_DIRECTORY);
  check_not_opened(scratch("around/loop").text, HUTCH_BAD_DIRECTORY);
  check_not_opened(long_path, HUTCH_BAD_DIRECTORY);
  check_not_opened("", HUTCH_INVALID_ARGUMENT);
  CHECK_EQUAL(digest, digest_of(around.text));
  finish();
}

/* The names of the cache's own files have to fit behind it. */
TEST(a_directory_whose_path_is_too_long) {
  prepare();
  path deep = scratch("deep");
  const size_t longest = PATH_MAX - 1 - strlen("/content/xx/hutch-0123456789abcdef") - HUTCH_SUFFIX_MAX;
  size_t length = strlen(deep.text);
  while (length < longest) {
    CHECK(mkdir(deep.text, 0700) == 0);
    size_t step = longest - length > 250 ? 120 : longest - length;
    deep.text[length] = '/';
    memset(deep.text + length + 1, 'd', step - 1);
    length += step;
    deep.text[length] = '\0';
  }
  hutch_options options = default_options();
  options.storage = HUTCH_STORAGE_LOG;
  options.inline_threshold = 1;
  hutch_cache *opened = open_cache(deep.text, &options);
  hutch_put_options put = put_options();
  put.suffix = ".fifteen_bytes_";
  CHECK_OK(hutch_put(opened, KEY("key"), KEY("value"), &put, NULL));
  size_t size;
  char file[PATH_MAX];
  CHECK_OK(hutch_path(opened, KEY("key"), file, sizeof file, &size));
  CHECK(access(file, R_OK) == 0);
  CHECK_OK(hutch_close(opened));
  for (; length < PATH_MAX - 1; length++) {
    deep.text[length] = 'd';
    deep.text[length + 1] = '\0';
    check_not_opened(deep.text, HUTCH_BAD_DIRECTORY);
  }
  finish();
}

TEST(a_directory_without_permission) {
  if (geteuid() == 0) check_skip("root may do all");
  prepare();
  path locked = scratch("locked");
  CHECK(mkdir(locked.text, 0500) == 0);
  check_not_opened(locked.text, HUTCH_BAD_DIRECTORY);
  check_not_opened(scratch("locked/below").text, HUTCH_BAD_DIRECTORY);
  CHECK(chmod(locked.text, 0) == 0);
  check_not_opened(locked.text, HUTCH_BAD_DIRECTORY);
  finish();
}

/* --------------------------------------------------------------- manifests */

static const char *const not_databases[] = {"", "x", "SQLite format 3",
                                            "This was once something else entirely."};

typedef struct search {
  const void *bytes;
  size_t size;
  int found;
} search;

static void look_for(void *context, const char *file, const struct stat *status) {
  search *s = context;
  if (!S_ISREG(status->st_mode) || (size_t)status->st_size != s->size || s->size == 0) return;
  FILE *stream = fopen(file, "rb");
  if (!stream && errno == ENOENT) return;
  char *data = malloc(s->size);
  CHECK(stream && fread(data, 1, s->size, stream) == s->size);
  fclose(stream);
  if (memcmp(data, s->bytes, s->size) == 0) s->found++;
  free(data);
}

static void check_set_aside(const void *bytes, size_t size) {
  path directory = scratch("damaged");
  CHECK(mkdir(directory.text, 0700) == 0);
  write_file(scratch("damaged/manifest.sqlite").text, bytes, size);
  hutch_cache *opened = NULL;
  /* Where nothing says that the directory is a cache's, the file may be another program's. */
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(directory.text, NULL, &opened));
  remove_tree(directory.text);

  CHECK_OK(hutch_close(open_cache(directory.text, NULL)));
  write_file(scratch("damaged/manifest.sqlite").text, bytes, size);
  opened = open_cache(directory.text, NULL);
  CHECK_EQUAL(0, count_of(opened));
  CHECK_OK(put_text(opened, "key", "value"));
  CHECK_OK(hutch_close(opened));
  opened = open_cache(directory.text, NULL);
  CHECK_TEXT(opened, "key", "value");
  CHECK_OK(hutch_close(opened));
  search s = {bytes, size, 0};
  each_file(directory.text, look_for, &s);
  CHECK_EQUAL(size > 0, s.found);
  remove_tree(directory.text);
}

TEST(a_manifest_that_is_no_database_is_set_aside) {
  for (size_t i = 0; i < sizeof not_databases / sizeof *not_databases; i++)
    check_set_aside(not_databases[i], strlen(not_databases[i]));
  void *noise = filled(100000, 1);
  check_set_aside(noise, 100000);
  free(noise);
}

static void overwrite(const char *file, off_t from) {
  struct stat status;
  FILE *stream = fopen(file, "r+b");
  CHECK(stream && fstat(fileno(stream), &status) == 0 && status.st_size > from);
  size_t size = (size_t)(status.st_size - from);
  void *noise = filled(size, 2);
  CHECK(fseek(stream, from, SEEK_SET) == 0 && fwrite(noise, 1, size, stream) == size);
  CHECK(fclose(stream) == 0);
  free(noise);
}

/* A database whose head is right and whose pages are noise: it may forget, it may not lie,
   and it works again. */
TEST(a_damaged_manifest_costs_entries_and_nothing_else) {
  const off_t from[] = {100, 4096, 3 * 4096, 10 * 4096};
  for (int i = 0; i < 4; i++) {
    path directory = scratch("cache");
    hutch_cache *opened = open_cache(directory.text, NULL);
    for (uint32_t key = 0; key < 300; key++) {
      void *data = filled(500, key);
      CHECK_OK(hutch_put(opened, &key, sizeof key, data, 500, NULL, NULL));
      free(data);
    }
    CHECK_OK(hutch_close(opened));
    overwrite(scratch("cache/manifest.sqlite").text, from[i]);

    opened = open_cache(directory.text, NULL);
    for (uint32_t key = 0; key < 300; key++) {
      hutch_value *value = NULL;
      hutch_status status = hutch_get(opened, &key, sizeof key, &value);
      void *expected = filled(500, key);
      if (status == HUTCH_OK)
        CHECK_BYTES(expected, 500, hutch_value_data(value), hutch_value_size(value));
      else CHECK_STATUS(HUTCH_NOT_FOUND, status);
      free(expected);
      hutch_value_release(value);
    }
    hutch_status status = hutch_close(opened);
    CHECK(status == HUTCH_OK || status == HUTCH_IO);
    opened = open_cache(directory.text, NULL);
    CHECK_OK(put_text(opened, "key", "value"));
    CHECK_TEXT(opened, "key", "value");
    CHECK_OK(hutch_close(opened));
    remove_tree(directory.text);
  }
}

TEST(a_directory_of_a_newer_library_is_left_alone) {
  path directory = scratch("newer");
  hutch_cache *opened = open_cache(directory.text, NULL);
  CHECK_OK(put_text(opened, "key", "value"));
  CHECK_OK(put_size(opened, "large", 100000));
  CHECK_OK(hutch_close(opened));
  run_sql(directory, "PRAGMA user_version = 1000000");
  uint64_t digest = digest_of(directory.text);
  prepare();
  for (int i = 0; i < 2; i++) {
    check_not_opened(directory.text, HUTCH_NEWER_FORMAT);
    CHECK_EQUAL(digest, digest_of(directory.text));
  }
  finish();
}
