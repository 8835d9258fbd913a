/* The functions of the matrix, each in a call that means something. See matrix.h. */
#define _GNU_SOURCE
#include "matrix.h"

#include <signal.h>
#include <unistd.h>

#include "hutch_dl.h"

/* One call of each function: call_put(p) and so on. The table at the end is made of all that
   hutch_dl.h lists, which rules.py compares with hutch.h: a function without its call here does
   not compile. */
#define CALL(name) static void call_##name(const place *p)
#define UNUSED (void)p

/* -------------------------------------------------------------- what is answered */

static void expect(const place *p, int line, const char *call, hutch_status expected,
                   hutch_status actual) {
  if (p->is_closed) expected = HUTCH_CLOSED;
  /* It may have come back meanwhile. */
  if (p->is_down && actual != HUTCH_DEADLOCK && actual != HUTCH_INVALID_ARGUMENT) return;
  check_status(__FILE__, line, call, expected, actual);
}

/* What a call on the cache answers if it is open. */
#define EXPECT(status, call) expect(p, __LINE__, #call, status, call)
#define EXPECT_OK(call) EXPECT(HUTCH_OK, call)
/* A call that waits for the cache; for the queue. Closed or within: either is true. */
#define WAITS(call) \
  (p->is_own && !p->is_closed ? CHECK_STATUS(HUTCH_DEADLOCK, call) : waits(p, __LINE__, #call, call))
#define QUEUE_WAITS(call) \
  (p->is_own_queue ? CHECK_STATUS(HUTCH_DEADLOCK, call) : CHECK_OK(call))

static void waits(const place *p, int line, const char *call, hutch_status actual) {
  if (p->is_closed && actual == HUTCH_DEADLOCK) return;
  expect(p, line, call, HUTCH_OK, actual);
}

/* What a view of the memory tier, or of the disk tier, does not do. */
static hutch_status unless(const place *p, uint32_t tier, hutch_status status) {
  return p->tier == tier ? HUTCH_UNSUPPORTED : status;
}
static hutch_status on_disk(const place *p, hutch_status status) {
  return !p->directory || p->tier == HUTCH_TIER_MEMORY ? HUTCH_UNSUPPORTED : status;
}

/* -------------------------------------------------- what is handed over, and comes back */

static _Atomic int64_t handed_over, came_back;

static void come_back(void *context) {
  CHECK(context == (void *)&came_back);
  atomic_fetch_add(&came_back, 1);
}

#define CONTEXT (atomic_fetch_add(&handed_over, 1), (void *)&came_back)

void check_everything_released(void) {
  /* A release may be a thread's last act. */
  while (atomic_load(&came_back) < atomic_load(&handed_over)) usleep(1000);
  CHECK_EQUAL(atomic_load(&handed_over), atomic_load(&came_back));
}

static hutch_task_options submission(void) {
  return (hutch_task_options){
      .struct_size = sizeof(hutch_task_options), .context = CONTEXT, .release = come_back};
}

/* ---------------------------------------------------------------------- library */

CALL(version) { UNUSED; CHECK(hutch_version()); }
CALL(abi_version) { UNUSED; CHECK(hutch_abi_version() >= HUTCH_ABI_VERSION); }
CALL(status_name) { UNUSED; CHECK(hutch_status_name(HUTCH_OK)); }
CALL(status_text) { UNUSED; CHECK(hutch_status_text(HUTCH_OK)); }
CALL(error_words) { UNUSED; CHECK(hutch_error_words()); }
CALL(last_error) { UNUSED; last_error(); }

CALL(buffer_resize) {
  /* As large as what is coded: all that it takes when that is decoded. */
  if (p->buffer) CHECK(hutch_buffer_resize(p->buffer, 5));
  else CHECK(!hutch_buffer_resize(NULL, 5));
}

/* ------------------------------------------------------------------------- open */

CALL(open) {
  hutch_cache *second;
  CHECK_OK(hutch_open(NULL, NULL, &second));
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_open(new_path().text, NULL, &second));
  CHECK_OK(hutch_close(second));
  if (!p->directory || p->is_closed || p->is_down) return;
  hutch_status status = hutch_open(p->directory, NULL, &second);
  CHECK(status == HUTCH_OK || status == HUTCH_OPTIONS_DIFFER);
  /* Of a cache that is within a callback; it is not the last reference. */
  hutch_cache_release(second);
}

CALL(close) {
  hutch_cache_retain(p->cache);
  if (p->tier) {
    CHECK_OK(hutch_close(p->cache));
  } else if (p->is_own || p->is_closed) {
    hutch_status status = hutch_close(p->cache);
    CHECK(status == HUTCH_DEADLOCK || (p->is_closed && status == HUTCH_CLOSED));
    if (status == HUTCH_DEADLOCK) hutch_cache_release(p->cache);
  } else {
    hutch_cache_release(p->cache);
    if (!p->directory || p->is_down) return;
    hutch_cache *second;
    hutch_status status = hutch_open(p->directory, NULL, &second);
    CHECK(status == HUTCH_OK || status == HUTCH_OPTIONS_DIFFER);
    CHECK_OK(hutch_close(second));
  }
}

CALL(destroy) {
  (void)p; /* Of another directory: whether the cache is closed does not matter. */
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_destroy(new_path().text));
}

CALL(cache_retain) {
  CHECK(hutch_cache_retain(p->cache) == p->cache);
  hutch_cache_release(p->cache);
}
CALL(cache_release) { call_cache_retain(p); }

CALL(tier) {
  for (uint32_t tier = HUTCH_TIER_MEMORY; tier <= HUTCH_TIER_DISK; tier++) {
    hutch_cache *view;
    hutch_status expected =
        tier == HUTCH_TIER_DISK && !p->directory ? HUTCH_UNSUPPORTED : HUTCH_OK;
    EXPECT(expected, hutch_tier(p->cache, tier, &view));
    hutch_cache_release(view);
  }
}

CALL(directory) {
  const char *name = hutch_directory(p->cache);
  CHECK(p->directory ? name && strcmp(name, p->directory) == 0 : !name);
}

CALL(get_options) {
  hutch_options options = {.struct_size = sizeof options};
  EXPECT_OK(hutch_get_options(p->cache, &options));
}

CALL(set_options) {
  hutch_options options = {.struct_size = sizeof options, .policy = HUTCH_POLICY_LRU};
  EXPECT_OK(hutch_set_options(p->cache, &options));
}

CALL(flush) { WAITS(hutch_flush(p->cache)); }

/* ---------------------------------------------------------------------- entries */

static void put_it(const place *p) { EXPECT_OK(put_text(p->cache, "key", "value")); }

CALL(put) {
  put_it(p);
  void *data = filled(100000, 1);
  EXPECT_OK(hutch_put(p->cache, KEY("large"), data, 100000, NULL, NULL));
  free(data);
}

CALL(get) {
  hutch_value *value;
  put_it(p);
  EXPECT_OK(hutch_get(p->cache, KEY("key"), &value));
  hutch_value_release(value);
}

CALL(get_into) {
  char buffer[8];
  size_t size;
  put_it(p);
  EXPECT_OK(hutch_get_into(p->cache, KEY("key"), buffer, sizeof buffer, &size));
}

CALL(look) {
  char buffer[8];
  hutch_found found = {.struct_size = sizeof found};
  put_it(p);
  EXPECT_OK(hutch_look(p->cache, KEY("key"), 0, buffer, sizeof buffer, &found));
}

CALL(contains) {
  put_it(p);
  EXPECT_OK(hutch_contains(p->cache, KEY("key")));
  EXPECT(HUTCH_NOT_FOUND, hutch_contains(p->cache, KEY("nothing")));
}

CALL(info) {
  hutch_entry_info info = {.struct_size = sizeof info};
  put_it(p);
  EXPECT_OK(hutch_info(p->cache, KEY("key"), &info));
}

CALL(tag) {
  char buffer[HUTCH_TAG_MAX];
  size_t size = 7;
  put_it(p);
  EXPECT_OK(hutch_tag(p->cache, KEY("key"), buffer, sizeof buffer, &size));
}

CALL(touch) {
  put_it(p);
  EXPECT_OK(hutch_touch(p->cache, KEY("key"), HUTCH_HOUR, 0));
}

CALL(remove) {
  put_it(p);
  EXPECT_OK(hutch_remove(p->cache, KEY("key")));
  EXPECT(HUTCH_NOT_FOUND, hutch_remove(p->cache, KEY("key")));
}

CALL(clear) { EXPECT_OK(hutch_clear(p->cache)); }

/* A value to be released; NULL: the cache gives none. */
static hutch_value *value_of(const place *p) {
  hutch_value *value;
  hutch_put_options options = put_options();
  options.extended = "extended";
  options.extended_size = 8;
  EXPECT_OK(hutch_put(p->cache, KEY("key"), KEY("value"), &options, NULL));
  EXPECT_OK(hutch_get(p->cache, KEY("key"), &value));
  return value;
}

CALL(value_data) {
  hutch_value *value = value_of(p);
  CHECK(!value || memcmp(hutch_value_data(value), "value", 5) == 0);
  hutch_value_release(value);
}
CALL(value_size) {
  hutch_value *value = value_of(p);
  CHECK_EQUAL(value ? 5 : 0, hutch_value_size(value));
  hutch_value_release(value);
}
CALL(value_key) {
  hutch_value *value = value_of(p);
  CHECK(!value || memcmp(hutch_value_key(value), "key", 3) == 0);
  hutch_value_release(value);
}
CALL(value_key_size) {
  hutch_value *value = value_of(p);
  CHECK_EQUAL(value ? 3 : 0, hutch_value_key_size(value));
  hutch_value_release(value);
}
CALL(value_extended) {
  hutch_value *value = value_of(p);
  CHECK(!value || memcmp(hutch_value_extended(value), "extended", 8) == 0);
  hutch_value_release(value);
}
CALL(value_extended_size) {
  hutch_value *value = value_of(p);
  CHECK_EQUAL(value ? 8 : 0, hutch_value_extended_size(value));
  hutch_value_release(value);
}
CALL(value_tag) {
  hutch_value *value = value_of(p);
  CHECK((hutch_value_tag(value) != NULL) == (value != NULL));
  hutch_value_release(value);
}
CALL(value_tag_size) {
  hutch_value *value = value_of(p);
  CHECK_EQUAL(0, hutch_value_tag_size(value));
  hutch_value_release(value);
}
CALL(value_info) {
  hutch_value *value = value_of(p);
  if (value) info_of_value(value);
  hutch_value_release(value);
}
CALL(value_retain) {
  hutch_value *value = value_of(p);
  CHECK(hutch_value_retain(value) == value);
  hutch_value_release(value);
  hutch_value_release(value);
}
CALL(value_release) { hutch_value_release(value_of(p)); }

/* ------------------------------------------------------------------ conditional */

CALL(add) {
  put_it(p);
  EXPECT(HUTCH_EXISTS, hutch_add(p->cache, KEY("key"), KEY("other"), NULL, NULL));
  EXPECT_OK(hutch_remove(p->cache, KEY("key")));
  EXPECT_OK(hutch_add(p->cache, KEY("key"), KEY("other"), NULL, NULL));
}
CALL(replace) {
  put_it(p);
  EXPECT_OK(hutch_replace(p->cache, KEY("key"), KEY("other"), NULL, NULL));
}
CALL(compare_and_swap) {
  hutch_put_result result = new_result();
  EXPECT_OK(hutch_put(p->cache, KEY("key"), KEY("value"), NULL, &result));
  EXPECT_OK(hutch_compare_and_swap(p->cache, KEY("key"), result.version, KEY("other"), NULL,
                                   NULL));
  EXPECT(HUTCH_CONFLICT, hutch_compare_and_swap(p->cache, KEY("key"), result.version,
                                                KEY("other"), NULL, NULL));
}
CALL(increment) {
  int64_t sum;
  EXPECT_OK(hutch_increment(p->cache, KEY("sum"), 1, 0, NULL, &sum));
}
CALL(pop) {
  hutch_value *value;
  put_it(p);
  EXPECT_OK(hutch_pop(p->cache, KEY("key"), &value));
  hutch_value_release(value);
}

/* ------------------------------------------------------------------------- many */

static const void *const keys[] = {"a", "b", "c"};
static const size_t sizes[] = {1, 1, 1};

/* A batch to be released. */
static hutch_batch *put_three(const place *p) {
  hutch_batch *batch;
  EXPECT_OK(hutch_put_many(p->cache, keys, sizes, keys, sizes, 3, NULL, &batch));
  return batch;
}
static hutch_batch *get_three(const place *p) {
  hutch_batch *batch;
  hutch_batch_release(put_three(p));
  EXPECT_OK(hutch_get_many(p->cache, keys, sizes, 3, &batch));
  return batch;
}
static hutch_batch *info_three(const place *p) {
  hutch_batch *batch;
  hutch_batch_release(put_three(p));
  EXPECT_OK(hutch_info_many(p->cache, keys, sizes, 3, &batch));
  return batch;
}

CALL(get_many) { hutch_batch_release(get_three(p)); }
CALL(info_many) { hutch_batch_release(info_three(p)); }
CALL(put_many) { hutch_batch_release(put_three(p)); }
CALL(remove_many) {
  hutch_batch *batch;
  hutch_batch_release(put_three(p));
  EXPECT_OK(hutch_remove_many(p->cache, keys, sizes, 3, &batch));
  hutch_batch_release(batch);
}
CALL(remove_prefix) {
  uint64_t removed = 7;
  EXPECT_OK(put_text(p->cache, "prefix", "value"));
  EXPECT_OK(hutch_remove_prefix(p->cache, KEY("pre"), &removed));
}
CALL(remove_tagged) {
  uint64_t removed = 7;
  hutch_put_options options = put_options();
  options.tag = "tag";
  options.tag_size = 3;
  EXPECT_OK(hutch_put(p->cache, KEY("tagged"), "v", 1, &options, NULL));
  EXPECT_OK(hutch_remove_tagged(p->cache, KEY("tag"), &removed));
}
CALL(batch_count) {
  hutch_batch *batch = get_three(p);
  CHECK_EQUAL(batch ? 3 : 0, hutch_batch_count(batch));
  hutch_batch_release(batch);
}
CALL(batch_status) {
  hutch_batch *batch = get_three(p);
  if (batch) EXPECT_OK(hutch_batch_status(batch, 2));
  hutch_batch_release(batch);
}
CALL(batch_value) {
  hutch_batch *batch = get_three(p);
  CHECK(!batch || p->is_down || hutch_batch_value(batch, 1));
  hutch_batch_release(batch);
}
CALL(batch_info) {
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_batch *batch = info_three(p);
  if (batch) EXPECT_OK(hutch_batch_info(batch, 0, &info));
  hutch_batch_release(batch);
}
CALL(batch_put_result) {
  hutch_put_result result = new_result();
  hutch_batch *batch = put_three(p);
  if (batch) EXPECT_OK(hutch_batch_put_result(batch, 0, &result));
  hutch_batch_release(batch);
}
CALL(batch_retain) {
  hutch_batch *batch = put_three(p);
  CHECK(hutch_batch_retain(batch) == batch);
  hutch_batch_release(batch);
  hutch_batch_release(batch);
}
CALL(batch_release) { hutch_batch_release(put_three(p)); }

/* ------------------------------------------------------------------------ large */

CALL(put_file) {
  path file = new_path();
  write_file(file.text, "contents", 8);
  EXPECT_OK(hutch_put_file(p->cache, KEY("file"), file.text, HUTCH_FILE_COPY, NULL, NULL));
  EXPECT_OK(hutch_put_file(p->cache, KEY("file"), file.text, HUTCH_FILE_MOVE, NULL, NULL));
}

/* A writer with some bytes, to be released; NULL: the cache gives none. */
static hutch_writer *writer_of(const place *p) {
  hutch_writer *writer;
  EXPECT_OK(hutch_writer_begin(p->cache, KEY("written"), 0, NULL, &writer));
  if (writer) EXPECT_OK(hutch_writer_append(writer, "bytes", 5));
  return writer;
}
CALL(writer_begin) { hutch_writer_release(writer_of(p)); }
CALL(writer_append) { call_writer_begin(p); }
CALL(writer_commit) {
  hutch_writer *writer = writer_of(p);
  if (writer) EXPECT_OK(hutch_writer_commit(writer, NULL));
  hutch_writer_release(writer);
}
CALL(writer_abort) {
  hutch_writer *writer = writer_of(p);
  if (writer) EXPECT_OK(hutch_writer_abort(writer));
  hutch_writer_release(writer);
}
CALL(writer_release) { call_writer_begin(p); }

CALL(path) {
  char buffer[4200];
  size_t size;
  call_put(p);
  EXPECT(on_disk(p, HUTCH_OK),
         hutch_path(p->cache, KEY("large"), buffer, sizeof buffer, &size));
}
CALL(open_fd) {
  int32_t file;
  call_put(p);
  EXPECT_OK(hutch_open_fd(p->cache, KEY("large"), &file));
  if (file >= 0) close(file);
}
CALL(hold_files) {
  EXPECT_OK(hutch_hold_files(p->cache));
  EXPECT_OK(hutch_unhold_files(p->cache));
}
CALL(unhold_files) { call_hold_files(p); }

/* ---------------------------------------------------------------------- objects */

/* An object to be released; NULL: the cache has none. */
static hutch_object *object_of(const place *p) {
  hutch_object *object;
  EXPECT(unless(p, HUTCH_TIER_DISK, HUTCH_OK),
         hutch_put_object(p->cache, KEY("object"), CONTEXT, come_back, NULL));
  EXPECT(unless(p, HUTCH_TIER_DISK, HUTCH_OK),
         hutch_get_object(p->cache, KEY("object"), &object));
  return object;
}
CALL(put_object) { hutch_object_release(object_of(p)); }
CALL(get_object) { hutch_object_release(object_of(p)); }
CALL(remove_object) {
  hutch_object_release(object_of(p));
  EXPECT(unless(p, HUTCH_TIER_DISK, HUTCH_OK), hutch_remove_object(p->cache, KEY("object")));
}
CALL(drain_releases) {
  call_remove_object(p);
  EXPECT_OK(hutch_drain_releases(p->cache, 0, NULL));
}
CALL(object_pointer) {
  hutch_object *object = object_of(p);
  CHECK(hutch_object_pointer(object) == (object ? (void *)&came_back : NULL));
  hutch_object_release(object);
}
CALL(object_retain) {
  hutch_object *object = object_of(p);
  CHECK(hutch_object_retain(object) == object);
  hutch_object_release(object);
  hutch_object_release(object);
}
CALL(object_release) { call_put_object(p); }

/* ---------------------------------------------------------------------- loaders */

static hutch_status make_value(void *context, const void *key, size_t key_size,
                               hutch_loading *loading) {
  (void)context;
  hutch_status status = hutch_loading_fulfil(loading, key, key_size, NULL);
  /* Its key may have been cleared, or its cache closed, meanwhile. */
  CHECK(status >= HUTCH_OK || status == HUTCH_CLOSED || status == HUTCH_TIER_DOWN);
  return HUTCH_OK;
}

CALL(load) {
  hutch_value *value;
  EXPECT_OK(hutch_load(p->cache, KEY("loaded"), make_value, NULL, NULL, &value));
  hutch_value_release(value);
  hutch_status status = hutch_remove(p->cache, KEY("loaded"));
  CHECK(p->is_closed || p->is_down || status == HUTCH_OK);
}

/* The caller's lead of a load, to be released; NULL: the cache gives none. */
static hutch_loading *lead(const place *p) {
  static _Atomic int number;
  char key[32];
  snprintf(key, sizeof key, "load %d", atomic_fetch_add(&number, 1));
  hutch_value *value;
  hutch_loading *loading;
  EXPECT(HUTCH_NOT_FOUND, hutch_load_begin(p->cache, KEY(key), NULL, &value, &loading));
  CHECK(!value);
  return loading;
}
CALL(load_begin) { hutch_loading_release(lead(p)); }
CALL(loading_wait) {
  hutch_value *value;
  hutch_loading *loading = lead(p);
  if (loading) EXPECT(HUTCH_NOT_FOUND, hutch_loading_wait(loading, HUTCH_FOREVER, &value));
  hutch_loading_release(loading);
}
CALL(loading_fulfil) {
  hutch_loading *loading = lead(p);
  if (loading) EXPECT_OK(hutch_loading_fulfil(loading, "made", 4, NULL));
  hutch_loading_release(loading);
}
CALL(loading_fail) {
  hutch_loading *loading = lead(p);
  if (loading) EXPECT_OK(hutch_loading_fail(loading, 7, "words"));
  hutch_loading_release(loading);
}
CALL(loading_abandon) {
  hutch_loading *loading = lead(p);
  if (loading) EXPECT_OK(hutch_loading_abandon(loading));
  hutch_loading_release(loading);
}
CALL(loading_wanted) {
  hutch_loading *loading = lead(p);
  if (loading) EXPECT_OK(hutch_loading_wanted(loading));
  hutch_loading_release(loading);
}
CALL(loading_retain) {
  hutch_loading *loading = lead(p);
  CHECK(hutch_loading_retain(loading) == loading);
  hutch_loading_release(loading);
  hutch_loading_release(loading);
}
CALL(loading_release) { call_load_begin(p); }

/* ------------------------------------------------------------- limits, trim, check */

CALL(limits) {
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  EXPECT_OK(hutch_limits(p->cache, &limits));
}
CALL(set_limits) {
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  limits.memory.count = limits.disk.count = 1000;
  EXPECT_OK(hutch_set_limits(p->cache, &limits));
}
CALL(count) {
  uint64_t count;
  EXPECT_OK(hutch_count(p->cache, &count));
}
CALL(value_bytes) {
  uint64_t bytes;
  EXPECT_OK(hutch_value_bytes(p->cache, &bytes));
}
CALL(cost) {
  uint64_t cost;
  EXPECT_OK(hutch_cost(p->cache, &cost));
}
CALL(stats) {
  hutch_cache_stats stats = {.struct_size = sizeof stats};
  EXPECT_OK(hutch_stats(p->cache, &stats));
}
CALL(trim) {
  for (uint32_t kind = HUTCH_TRIM_EXPIRED; kind <= HUTCH_TRIM_LARGER_THAN; kind++) {
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind, .amount = 10,
                            .time = HUTCH_HOUR};
    hutch_batch_release(put_three(p));
    EXPECT_OK(hutch_trim(p->cache, &spec, NULL));
  }
}
CALL(check) {
  hutch_check_report report = {.struct_size = sizeof report};
  EXPECT(on_disk(p, HUTCH_OK), hutch_check(p->cache, 0, &report));
}

CALL(copy) {
  hutch_cache *target = open_cache(NULL, NULL);
  hutch_batch_release(put_three(p));
  EXPECT_OK(hutch_copy(p->cache, target, NULL));
  CHECK_OK(hutch_close(target));
}

/* ---------------------------------------------------------------------- iterate */

static int32_t visit(void *context, const void *key, size_t size, const hutch_entry_info *info) {
  (void)context, (void)key, (void)size, (void)info;
  return 0;
}
CALL(each) {
  hutch_batch_release(put_three(p));
  EXPECT_OK(hutch_each(p->cache, visit, NULL));
}

/* A cursor at an entry, to be released; NULL: the cache gives none. */
static hutch_cursor *walk(const place *p, uint32_t order) {
  hutch_cursor *cursor;
  const void *key;
  size_t size;
  hutch_batch_release(put_three(p));
  if (order) EXPECT_OK(hutch_cursor_create_ordered(p->cache, order, &cursor));
  else EXPECT_OK(hutch_cursor_create(p->cache, &cursor));
  if (cursor) EXPECT_OK(hutch_cursor_next(cursor, &key, &size));
  return cursor;
}
CALL(cursor_create) { hutch_cursor_release(walk(p, 0)); }
CALL(cursor_create_ordered) {
  hutch_cursor_release(walk(p, HUTCH_ORDER_INSERTION));
  hutch_cursor_release(walk(p, HUTCH_ORDER_ACCESS | HUTCH_ORDER_DESCENDING));
}
CALL(cursor_next) { call_cursor_create(p); }
CALL(cursor_value) {
  hutch_value *value;
  hutch_cursor *cursor = walk(p, 0);
  if (cursor) EXPECT_OK(hutch_cursor_value(cursor, &value));
  if (cursor) hutch_value_release(value);
  hutch_cursor_release(cursor);
}
CALL(cursor_info) {
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_cursor *cursor = walk(p, 0);
  if (cursor) EXPECT_OK(hutch_cursor_info(cursor, &info));
  hutch_cursor_release(cursor);
}
CALL(cursor_release) { call_cursor_create(p); }

/* ------------------------------------------------------------- pressure, events, log */

CALL(notify) {
  EXPECT_OK(hutch_notify(p->cache, HUTCH_NOTIFY_MEMORY_WARNING));
  EXPECT_OK(hutch_notify(p->cache, HUTCH_NOTIFY_ENTERED_BACKGROUND));
}

static void hear(void *context, const hutch_event *event) { (void)context, (void)event; }
static void note_line(void *context, const hutch_log_record *record) {
  (void)context, (void)record;
}

CALL(set_listener) {
  for (int i = 0; i < 2; i++)
    EXPECT_OK(hutch_set_listener(p->cache, HUTCH_EVENT_ALL, hear, CONTEXT, come_back));
  put_it(p);
  EXPECT_OK(hutch_set_listener(p->cache, 0, NULL, NULL, NULL));
}
CALL(set_logger) {
  for (int i = 0; i < 2; i++)
    EXPECT_OK(hutch_set_logger(p->cache, HUTCH_LOG_DEBUG, note_line, CONTEXT, come_back));
  EXPECT_OK(hutch_set_logger(p->cache, 0, NULL, NULL, NULL));
}
CALL(set_default_logger) {
  UNUSED;
  for (int i = 0; i < 2; i++)
    CHECK_OK(hutch_set_default_logger(HUTCH_LOG_DEBUG, note_line, CONTEXT, come_back));
  CHECK_OK(hutch_set_default_logger(0, NULL, NULL, NULL));
}

/* ------------------------------------------------------------------ tasks, queues */

static hutch_status work(void *context, hutch_task *task) {
  (void)context, (void)task;
  return HUTCH_OK;
}

/* A task of the queue's, to be released. Closed: NULL. */
static hutch_task *submit(const place *p, hutch_task_options options) {
  hutch_task *task;
  EXPECT_OK(hutch_queue_submit(p->queue, work, CONTEXT, come_back, &options, &task));
  return task;
}
#define WITH_TASK(body)                         \
  hutch_task *task = submit(p, submission());   \
  if (!task) return;                            \
  body;                                         \
  hutch_task_release(task)

CALL(task_cancel) { WITH_TASK(CHECK_OK(hutch_task_cancel(task, NULL))); }
CALL(task_wait) { WITH_TASK(QUEUE_WAITS(hutch_task_wait(task, HUTCH_FOREVER))); }
CALL(task_set_priority) {
  WITH_TASK(CHECK_OK(hutch_task_set_priority(task, HUTCH_PRIORITY_HIGH)));
}
CALL(task_status) {
  uint32_t state;
  WITH_TASK(CHECK_OK(hutch_task_status(task, &state, NULL)));
}
CALL(task_retain) {
  WITH_TASK(CHECK(hutch_task_retain(task) == task); hutch_task_release(task));
}
CALL(task_release) { WITH_TASK(); }

CALL(queue_create) {
  for (uint32_t flags = 0; flags <= HUTCH_QUEUE_NO_THREADS; flags++) {
    hutch_queue_options options = {.struct_size = sizeof options, .flags = flags};
    place other = *p;
    other.is_closed = other.is_own_queue = false;
    CHECK_OK(hutch_queue_create(&options, &other.queue));
    hutch_task_release(submit(&other, submission()));
    if (!flags) CHECK_OK(hutch_queue_wait_all(other.queue, HUTCH_FOREVER));
    hutch_queue_release(other.queue);
  }
}
CALL(shared_queue) {
  hutch_queue *queue;
  (void)p;
  CHECK_OK(hutch_shared_queue(&queue));
  hutch_queue_release(queue);
}
CALL(cache_queue) {
  hutch_queue *queue;
  EXPECT_OK(hutch_cache_queue(p->cache, &queue));
  hutch_queue_release(queue);
}
CALL(queue_submit) { hutch_task_release(submit(p, submission())); }
CALL(queue_set_width) { CHECK_OK(hutch_queue_set_width(p->queue, 2)); }
CALL(queue_wait_all) { QUEUE_WAITS(hutch_queue_wait_all(p->queue, HUTCH_FOREVER)); }
CALL(queue_cancel_all) { CHECK_OK(hutch_queue_cancel_all(p->queue, NULL)); }
CALL(queue_suspend) {
  CHECK_OK(hutch_queue_suspend(p->queue));
  CHECK_OK(hutch_queue_resume(p->queue));
}
CALL(queue_resume) { call_queue_suspend(p); }
CALL(queue_run) { QUEUE_WAITS(hutch_queue_run(p->queue, 0, NULL)); }
CALL(queue_retain) {
  CHECK(hutch_queue_retain(p->queue) == p->queue);
  hutch_queue_release(p->queue);
}
CALL(queue_release) { call_queue_create(p); }

/* A group with two tasks, to be started and released. */
static hutch_group *group_of(const place *p) {
  hutch_group *group;
  CHECK_OK(hutch_group_create(p->queue, &group));
  for (int i = 0; i < 2; i++) {
    hutch_task_options options = submission();
    options.group = group;
    hutch_task_release(submit(p, options));
  }
  return group;
}
static void start(hutch_group *group) {
  hutch_task_options options = submission();
  CHECK_OK(hutch_group_start(group, &options));
}
CALL(group_create) { hutch_group_release(group_of(p)); }
CALL(group_start) {
  hutch_group *group = group_of(p);
  start(group);
  hutch_group_release(group);
}
CALL(group_cancel) {
  hutch_group *group = group_of(p);
  CHECK_OK(hutch_group_cancel(group));
  start(group);
  hutch_group_release(group);
}
CALL(group_wait) {
  hutch_group *group = group_of(p);
  start(group);
  QUEUE_WAITS(hutch_group_wait(group, HUTCH_FOREVER));
  hutch_group_release(group);
}
CALL(group_retain) {
  hutch_group *group = group_of(p);
  CHECK(hutch_group_retain(group) == group);
  hutch_group_release(group);
  hutch_group_release(group);
}
CALL(group_release) { call_group_create(p); }

/* A port with a completion, or one that is to come; to be released. */
static hutch_port *port_of(const place *p) {
  hutch_port *port;
  CHECK_OK(hutch_port_create(&port));
  hutch_task_options options = submission();
  options.port = port;
  hutch_task_release(submit(p, options));
  options = submission();
  options.port = port;
  hutch_task *task;
  EXPECT_OK(hutch_get_async(p->cache, KEY("key"), &options, &task));
  hutch_task_release(task);
  return port;
}
CALL(port_create) { hutch_port_release(port_of(p)); }
CALL(port_fd) {
  hutch_port *port = port_of(p);
  CHECK(hutch_port_fd(port) >= 0);
  hutch_port_release(port);
}
CALL(port_drain) {
  hutch_port *port = port_of(p);
  CHECK_OK(hutch_port_drain(port, 0, NULL));
  hutch_port_release(port);
}
CALL(port_close) {
  for (uint32_t how = HUTCH_PORT_DRAIN; how <= HUTCH_PORT_DISCARD; how++) {
    hutch_port *port = port_of(p);
    CHECK_OK(hutch_port_close(port, how));
    hutch_port_release(port);
  }
}
CALL(port_retain) {
  hutch_port *port = port_of(p);
  CHECK(hutch_port_retain(port) == port);
  hutch_port_release(port);
  hutch_port_release(port);
}
CALL(port_release) { call_port_create(p); }

/* ------------------------------------------------------------------------ async */

/* Keys of their own: what these do is done while other calls are made. */
#define ASYNC(...)                                      \
  hutch_task_options options = submission();            \
  hutch_task *task;                                     \
  EXPECT_OK(__VA_ARGS__);                               \
  hutch_task_release(task)

CALL(get_async) { ASYNC(hutch_get_async(p->cache, KEY("async"), &options, &task)); }
CALL(put_async) {
  ASYNC(hutch_put_async(p->cache, KEY("async"), KEY("value"), NULL, &options, &task));
}
CALL(remove_async) { ASYNC(hutch_remove_async(p->cache, KEY("async"), &options, &task)); }
CALL(contains_async) { ASYNC(hutch_contains_async(p->cache, KEY("async"), &options, &task)); }
CALL(clear_async) { ASYNC(hutch_clear_async(p->cache, &options, &task)); }
CALL(flush_async) { ASYNC(hutch_flush_async(p->cache, &options, &task)); }
CALL(submit) {
  hutch_call call = {.struct_size = sizeof call, .operation = HUTCH_OPERATION_TOUCH, .key = "key",
                     .key_size = 3};
  ASYNC(hutch_submit(p->cache, &call, &options, &task));
}
CALL(trim_async) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  ASYNC(hutch_trim_async(p->cache, &spec, &options, &task));
}
CALL(load_async) {
  ASYNC(hutch_load_async(p->cache, KEY("async load"), make_value, CONTEXT, come_back, NULL,
                         &options, &task));
}
CALL(wait_all) { WAITS(hutch_wait_all(p->cache, HUTCH_FOREVER)); }

/* ------------------------------------------------------------------ maintenance */

CALL(suspend) {
  EXPECT_OK(hutch_suspend(p->cache));
  EXPECT_OK(hutch_resume(p->cache));
}
CALL(resume) { call_suspend(p); }
CALL(maintain) { WAITS(hutch_maintain(p->cache, 0)); }

/* ------------------------------------------------------------------------ table */

static const struct call {
  const char *name;
  void (*make)(const place *p);
} calls[] = {
#define ROW(name) {"hutch_" #name, call_##name},
    HUTCH_DL_FUNCTIONS(ROW)
#undef ROW
};

/* What is being called, for the watchdog. */
static _Atomic uint64_t made;
static _Atomic(const char *) callback_now, function_now;

enum { MOST_SECONDS = 60 };

static void *watch(void *unused) {
  (void)unused;
  uint64_t last = 0;
  /* Counted, not measured: a process that is stopped for a while has not hung. */
  for (int seconds = 0; seconds < MOST_SECONDS; seconds++) {
    sleep(1);
    uint64_t now = atomic_load(&made);
    if (now != last || !atomic_load(&function_now)) seconds = 0;
    last = now;
  }
  fprintf(stderr, "%s x %s: has not come back\n", atomic_load(&callback_now),
          atomic_load(&function_now));
  abort();
}

static void start_watch(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
  pthread_detach(thread);
}

void call_everything(const place *where) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_watch);
  atomic_store(&callback_now, where->callback);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    char note[100];
    snprintf(note, sizeof note, "%s x %s, tier %u", where->callback, calls[i].name, where->tier);
    check_note(note);
    atomic_fetch_add(&made, 1);
    atomic_store(&function_now, calls[i].name);
    calls[i].make(where);
  }
  atomic_store(&function_now, NULL);
  check_note(NULL);
}

path new_path(void) {
  static _Atomic int number;
  char name[32];
  snprintf(name, sizeof name, "new %d", atomic_fetch_add(&number, 1));
  return scratch(name);
}
