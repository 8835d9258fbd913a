/* The calls of fuzz.c, and their arguments. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

/* -------------------------------------------------------------- arguments */

/* The size of a struct, or another one. */
static size_t any_size(size_t right) {
  const size_t wrong[] = {0, 7, 8, right - 8, right - 4, right - 1, right + 1, right + 8, 4096, 4097,
                          SIZE_MAX};
  return one_in(16) ? wrong[below(LENGTH(wrong))] : right;
}

static bool has_whole(size_t size, size_t right) {
  return size >= right && size <= 4096 && size % 8 == 0;
}

/* A struct of zeroes in a room of its own, which may state another size, and may have something in
   a part that this library does not know. */
#define STRUCT(type, name)                                             \
  _Alignas(16) char name##_room[ROOM];                                 \
  type *name = (type *)name##_room;                                    \
  memset(name##_room, 0, ROOM);                                        \
  name->struct_size = any_size(sizeof *name);                          \
  if (one_in(60)) name##_room[sizeof *name + 3] = 1

#define MAYBE(pointer) (one_in(50) ? NULL : (pointer))

static uint32_t any_number(uint32_t most) {
  return one_in(100) ? (uint32_t)any() : (uint32_t)below((uint64_t)most + 1);
}

static int64_t any_duration(void) {
  const int64_t odd[] = {INT64_MAX, INT64_MAX - 1, 1, 200 * 365 * HUTCH_DAY, HUTCH_MILLISECOND,
                         HUTCH_SECOND};
  if (one_in(40)) return one_in(2) ? -1 : INT64_MIN;
  return one_in(2) ? odd[below(LENGTH(odd))] : 0;
}

/* Of a wait. */
static int64_t short_time(void) {
  const int64_t odd[] = {-1, 0, 1};
  return one_in(2) ? odd[below(LENGTH(odd))] : (int64_t)below(2 * HUTCH_MILLISECOND);
}

static uint64_t any_limit(void) {
  const uint64_t odd[] = {UINT64_MAX, UINT64_MAX - 1, (uint64_t)INT64_MAX + 1, INT64_MAX, 1, 10, 100,
                          65536, 300000, 1 << 20, UINT64_C(1) << 40, any()};
  return one_in(2) ? odd[below(LENGTH(odd))] : 0;
}

static part any_key(void) {
  const part odd[] = {{NULL, 0}, {NULL, 4}, {content, 0}, {content, SIZE_MAX},
                      {content, HUTCH_KEY_MAX}, {content, HUTCH_KEY_MAX + 1},
                      {content, (size_t)PTRDIFF_MAX + 1}, {content + 3, 40000}};
  if (one_in(8)) return odd[below(LENGTH(odd))];
  uint64_t n = below(24);
  return (part){content + n, 1 + n * n % 40};
}

part any_value(void) {
  const part odd[] = {{NULL, 0}, {NULL, 5}, {content, SIZE_MAX}, {content, (size_t)PTRDIFF_MAX + 1},
                      {content, 130000}, {content, 25000}, {content, 8}};
  if (one_in(6)) return odd[below(LENGTH(odd))];
  return (part){content + below(100), below(one_in(4) ? 9000 : 200)};
}

static const void *any_place(void) { return one_in(40) ? NULL : content + below(3); }
static hutch_cache *any_cache(void) { return HELD(caches); }

hutch_put_options *any_put_options(char room[ROOM]) {
  static const char *const suffixes[] = {".jpg", "", "a/b", "a suffix that is too long"};
  memset(room, 0, ROOM);
  hutch_put_options *o = (hutch_put_options *)room;
  o->struct_size = any_size(sizeof *o);
  if (one_in(2)) o->time_to_live = any_duration();
  if (one_in(2)) o->time_to_idle = any_duration();
  if (one_in(3)) o->cost = any_limit();
  if (one_in(4)) {
    o->extended = any_place();
    o->extended_size = one_in(10) ? any_limit() : below(100);
  }
  if (one_in(4)) o->write_policy = any_number(4);
  if (one_in(8)) o->suffix = suffixes[below(LENGTH(suffixes))];
  if (one_in(3)) {
    o->tag = any_place();
    o->tag_size = one_in(10) ? any_limit() : 1 + below(3);
  }
  if (one_in(80)) o->reserved = 1;
  return one_in(4) ? NULL : o;
}

/* ------------------------------------------------------------------ caches */

static void open_something(void) {
  STRUCT(hutch_options, o);
  /* By default a close may wait 30 seconds: for the completion of a group, say, of which a task is on
     a queue that is suspended. */
  if (o->struct_size >= 8 && o->struct_size < sizeof *o) o->struct_size = sizeof *o;
  bool is_whole = has_whole(o->struct_size, sizeof *o);
  if (one_in(3)) o->flags = any_number(127);
  if (one_in(2)) o->policy = any_number(4);
  if (one_in(2)) o->storage = any_number(4);
  if (one_in(6)) o->durability = any_number(3);
  if (one_in(4)) o->sharing = any_number(2);
  if (one_in(3)) o->workers = any_number(3);
  if (one_in(4)) o->inline_threshold = any_limit();
  hutch_tier_limits *tiers[] = {&o->memory, &o->disk};
  for (int t = 0; t < 2; t++) {
    if (one_in(2)) {
      tiers[t]->cost = any_limit();
      tiers[t]->count = any_limit();
      tiers[t]->max_entry = any_limit();
    }
    if (one_in(4)) {
      tiers[t]->time_to_live = any_duration();
      tiers[t]->time_to_idle = any_duration();
    }
  }
  if (one_in(20)) o->disk.min_free = any_limit();
  if (one_in(4)) {
    o->on_memory_warning = any_number(3);
    o->on_background = any_number(3);
    o->low_water = any_number(100);
  }
  if (one_in(4)) o->write_policy = any_number(4);
  if (one_in(6)) o->checksums = any_number(2);
  if (one_in(6)) o->queue_length = any_limit();
  /* The default is 30 seconds. */
  o->close_deadline = one_in(20) ? -1 : 1 + (int64_t)below(HUTCH_SECOND);
  if (one_in(5)) {
    o->queue = HELD(queues);
    if (!one_in(10)) o->workers = 0, o->queue_length = 0;
  }
  if (one_in(99)) o->reserved = 1;
  /* A struct of another size has no release functions that the library knows of. */
  if (is_whole) {
    if (one_in(5)) {
      o->clock = tell_time;
      o->clock_context = new_context();
      o->clock_release = release_context;
    }
    if (one_in(6)) {
      o->codec_id = 3;
      o->codec_encode = encode;
      o->codec_decode = decode;
      o->codec_context = new_context();
      o->codec_release = release_context;
    }
    if (one_in(5)) o->object_codec = &object_codec;
  }
  const char *directory = one_in(4) ? NULL : one_in(50) ? "" : directories[below(3)].text;
  hutch_cache *cache = NULL;
  hutch_status status = hutch_open(directory, o, one_in(60) ? NULL : &cache);
  CHECK(status >= 0 || !cache);
  KEEP(caches, cache, hutch_cache_release);
}

static void close_something(void) {
  hutch_cache **place = PLACE(caches), *cache = *place;
  *place = NULL;
  if (one_in(2)) hutch_cache_release(cache);
  else if (hutch_close(cache) == HUTCH_DEADLOCK) hutch_cache_release(cache);
}

static void share(void) {
  hutch_cache *cache = hutch_cache_retain(HELD(caches)), *view = NULL;
  KEEP(caches, cache, hutch_cache_release);
  hutch_tier(any_cache(), 1 + any_number(1), MAYBE(&view));
  KEEP(caches, view, hutch_cache_release);
}

static void ask_library(void) {
  STRUCT(hutch_error, error);
  hutch_last_error(MAYBE(error));
  CHECK(hutch_status_text((hutch_status)any()) && hutch_error_words());
  hutch_directory(HELD(caches));
  if (one_in(20)) hutch_destroy(one_in(10) ? MAYBE("") : directories[below(3)].text);
}

static void change_options(void) {
  STRUCT(hutch_options, o);
  if (one_in(2)) {
    hutch_get_options(any_cache(), MAYBE(o));
    return;
  }
  if (one_in(2)) o->policy = any_number(4);
  if (one_in(3)) o->disk_policy = any_number(4);
  if (one_in(3)) o->workers = any_number(4);
  if (one_in(3)) o->on_background = any_number(3);
  if (one_in(3)) o->low_water = any_number(100);
  if (one_in(20)) o->storage = 2;
  hutch_set_options(any_cache(), MAYBE(o));
}

static void change_limits(void) {
  STRUCT(hutch_cache_limits, l);
  hutch_limits(any_cache(), MAYBE(l));
  l->struct_size = any_size(sizeof *l);
  hutch_tier_limits *tiers[] = {&l->memory, &l->disk};
  for (int t = 0; t < 2; t++) {
    *tiers[t] = (hutch_tier_limits){.cost = any_limit(), .count = any_limit()};
    if (!one_in(4)) continue;
    tiers[t]->max_entry = any_limit();
    tiers[t]->time_to_live = any_duration();
    tiers[t]->time_to_idle = any_duration();
    tiers[t]->min_free = one_in(8) ? any_limit() : 0;
    tiers[t]->reserved[3] = one_in(8);
  }
  hutch_cache *cache = any_cache();
  hutch_set_limits(cache, MAYBE(l));
  hutch_cache_limits large = {.struct_size = sizeof large, .memory = no_limits(),
                              .disk = no_limits()};
  if (one_in(2)) hutch_set_limits(cache, &large);
}

static void count(void) {
  uint64_t n = 0;
  hutch_cache *cache = any_cache();
  STRUCT(hutch_cache_stats, stats);
  hutch_stats(cache, MAYBE(stats));
  hutch_count(cache, MAYBE(&n));
  hutch_cost(cache, MAYBE(&n));
  if (one_in(3)) hutch_value_bytes(cache, MAYBE(&n));
}

static void maintain(void) {
  hutch_cache *cache = any_cache();
  STRUCT(hutch_check_report, report);
  switch (below(8)) {
    case 0: hutch_flush(cache); break;
    case 1: hutch_check(cache, any_number(1), MAYBE(report)); break;
    case 2: hutch_suspend(cache); break;
    case 3: hutch_resume(cache); break;
    case 4: hutch_notify(cache, any_number(3)); break;
    case 5: hutch_hold_files(cache); break;
    case 6: hutch_unhold_files(cache); break;
    default: hutch_maintain(cache, short_time());
  }
}

static void copy(void) {
  STRUCT(hutch_copy_report, report);
  hutch_copy(any_cache(), any_cache(), MAYBE(report));
}

static void tell(void) {
  uint32_t kinds = one_in(10) ? (uint32_t)any() : HUTCH_EVENT_ALL;
  switch (below(5)) {
    case 0:
      hutch_set_default_logger(any_number(4), one_in(3) ? NULL : write_line, new_context(),
                               release_context);
      break;
    case 1: case 2:
      hutch_set_logger(any_cache(), any_number(4), one_in(3) ? NULL : write_line, new_context(),
                       release_context);
      break;
    default:
      hutch_set_listener(any_cache(), kinds, one_in(3) ? NULL : listen, new_context(),
                         release_context);
  }
}

/* ----------------------------------------------------------------- entries */

static void put(void) {
  char room[ROOM];
  part key = any_key(), value = any_value();
  hutch_cache *cache = any_cache();
  STRUCT(hutch_put_result, r);
  hutch_put_result *result = MAYBE(r);
  hutch_put_options *o = any_put_options(room);
  hutch_entry_info info = {.struct_size = sizeof info};
  int64_t sum = 0;
  switch (below(6)) {
    case 0: hutch_add(cache, key.data, key.size, value.data, value.size, o, result); break;
    case 1: hutch_replace(cache, key.data, key.size, value.data, value.size, o, result); break;
    case 2:
      hutch_info(cache, key.data, key.size, &info);
      hutch_compare_and_swap(cache, key.data, key.size, info.version, value.data, value.size, o,
                             result);
      break;
    case 3:
      hutch_increment(cache, key.data, key.size, one_in(4) ? (int64_t)any() : 1,
                      one_in(4) ? INT64_MAX : 0, o, MAYBE(&sum));
      break;
    default: hutch_put(cache, key.data, key.size, value.data, value.size, o, result);
  }
}

static void get(void) {
  part key = any_key();
  hutch_value *value = NULL, **out = MAYBE(&value);
  hutch_cache *cache = any_cache();
  hutch_status status = one_in(4) ? hutch_pop(cache, key.data, key.size, out)
                                  : hutch_get(cache, key.data, key.size, out);
  CHECK((status == HUTCH_OK) == (value != NULL));
  CHECK((uintptr_t)hutch_value_data(value) % 16 == 0);
  KEEP(values, value, hutch_value_release);
}

static void look(void) {
  part key = any_key();
  char buffer[10000];
  size_t size = 0, capacity = one_in(3) ? 0 : sizeof buffer;
  void *into = MAYBE(buffer);
  STRUCT(hutch_found, found);
  found->version = one_in(2) ? 0 : any();
  hutch_look(any_cache(), key.data, key.size, any_number(7), into, capacity, MAYBE(found));
  KEEP(values, found->value, hutch_value_release);
  hutch_get_into(any_cache(), key.data, key.size, into, capacity, MAYBE(&size));
  hutch_tag(any_cache(), key.data, key.size, into, capacity, MAYBE(&size));
}

static void inspect(void) {
  part key = any_key();
  STRUCT(hutch_entry_info, info);
  hutch_contains(any_cache(), key.data, key.size);
  hutch_info(any_cache(), key.data, key.size, MAYBE(info));
  hutch_touch(any_cache(), key.data, key.size, any_duration(), any_duration());
}

static void remove_something(void) {
  part key = any_key();
  uint64_t removed = 0;
  uint64_t size = one_in(10) ? any_limit() : 1 + below(3);
  switch (below(12)) {
    case 0: hutch_clear(any_cache()); break;
    case 1: hutch_remove_prefix(any_cache(), any_place(), size, MAYBE(&removed)); break;
    case 2: hutch_remove_tagged(any_cache(), any_place(), size, MAYBE(&removed)); break;
    default: hutch_remove(any_cache(), key.data, key.size);
  }
}

static void read_value(void) {
  hutch_value *value = HELD(values);
  STRUCT(hutch_entry_info, info);
  hutch_value_info(value, MAYBE(info));
  CHECK(!value == !hutch_value_key(value) && !value == !hutch_value_tag(value));
  CHECK(value || hutch_value_size(value) + hutch_value_extended_size(value) == 0);
  hutch_value *again = hutch_value_retain(value);
  KEEP(values, again, hutch_value_release);
}

/* Mostly right ones: one that is wrong is a wrong call. */
static void any_parts(part (*one)(void), size_t most, const void **data, size_t *sizes, int count) {
  bool may_be_wrong = one_in(10);
  for (int i = 0; i < count; i++) {
    part p = one();
    while (!may_be_wrong && (p.size > most || !p.data || p.size == 0)) p = one();
    data[i] = p.data;
    sizes[i] = p.size;
  }
}

static void call_many(void) {
  enum { MOST = 6 };
  const void *keys[MOST], *values[MOST];
  size_t sizes[MOST], value_sizes[MOST];
  char room[ROOM];
  any_parts(any_key, HUTCH_KEY_MAX, keys, sizes, MOST);
  any_parts(any_value, 130000, values, value_sizes, MOST);
  size_t count = one_in(30) ? SIZE_MAX >> below(44) : below(MOST + 1);
  if (count > MOST && count <= HUTCH_MANY_MAX) count = MOST;
  hutch_batch *batch = NULL, **out = MAYBE(&batch);
  hutch_cache *cache = any_cache();
  const void **k = MAYBE(keys);
  size_t *s = MAYBE(sizes);
  switch (below(4)) {
    case 0: hutch_get_many(cache, k, s, count, out); break;
    case 1: hutch_info_many(cache, k, s, count, out); break;
    case 2:
      hutch_put_many(cache, k, s, MAYBE(values), MAYBE(value_sizes), count, any_put_options(room),
                     out);
      break;
    default: hutch_remove_many(cache, k, s, count, out);
  }
  KEEP(batches, batch, hutch_batch_release);
}

static void read_batch(void) {
  hutch_batch *batch = HELD(batches);
  size_t index = one_in(10) ? SIZE_MAX : below(8);
  STRUCT(hutch_entry_info, info);
  STRUCT(hutch_put_result, result);
  CHECK(index < hutch_batch_count(batch)
        || hutch_batch_status(batch, index) == HUTCH_INVALID_ARGUMENT);
  hutch_value *value = hutch_value_retain(hutch_batch_value(batch, index));
  KEEP(values, value, hutch_value_release);
  hutch_batch_info(batch, index, MAYBE(info));
  hutch_batch_put_result(batch, index, MAYBE(result));
}

static void any_trim(hutch_trim_spec *spec) {
  spec->kind = 1 + any_number(10);
  spec->amount = any_limit();
  spec->time = any_duration();
}

static void trim(void) {
  STRUCT(hutch_trim_spec, spec);
  any_trim(spec);
  if (one_in(2)) spec->progress = see_progress;
  uint64_t removed = 0;
  hutch_trim(any_cache(), MAYBE(spec), MAYBE(&removed));
}

static void walk(void) {
  hutch_cursor **place = PLACE(cursors), *cursor = NULL;
  if (one_in(3)) hutch_each(any_cache(), MAYBE(visit), NULL);
  if (!*place || one_in(10)) {
    hutch_cursor **out = MAYBE(&cursor);
    if (one_in(2)) hutch_cursor_create(any_cache(), out);
    else hutch_cursor_create_ordered(any_cache(), 1 + any_number(1) + 256 * any_number(1), out);
    hutch_cursor_release(*place);
    *place = cursor;
  }
  const void *key = NULL;
  size_t size = 0;
  for (int i = 0; i < 4; i++) hutch_cursor_next(*place, MAYBE(&key), MAYBE(&size));
  hutch_value *value = NULL;
  hutch_cursor_value(*place, MAYBE(&value));
  KEEP(values, value, hutch_value_release);
  STRUCT(hutch_entry_info, info);
  hutch_cursor_info(*place, MAYBE(info));
}

static void any_load(hutch_load_options *o) {
  /* A struct that is too short has the default: a minute. */
  if (o->struct_size < sizeof *o) o->struct_size = sizeof *o;
  o->flags = any_number(1);
  o->timeout = one_in(30) ? -1 : 1 + (int64_t)below(2 * HUTCH_MILLISECOND);
  if (one_in(3)) o->soft_time_to_live = any_duration();
  if (one_in(3)) o->negative_time_to_live = any_duration();
  if (one_in(5)) o->parent = HELD(loadings);
}

static void load(void) {
  STRUCT(hutch_load_options, o);
  any_load(o);
  part key = any_key();
  hutch_value *value = NULL;
  hutch_loading *loading = NULL;
  if (one_in(2))
    hutch_load(any_cache(), key.data, key.size, MAYBE(load_something), NULL, o, MAYBE(&value));
  else
    hutch_load_begin(any_cache(), key.data, key.size, o, MAYBE(&value), MAYBE(&loading));
  KEEP(values, value, hutch_value_release);
  KEEP(loadings, loading, hutch_loading_release);
}

static void answer(void) {
  hutch_loading *loading = HELD(loadings);
  char room[ROOM];
  part value = any_value();
  hutch_value *found = NULL;
  switch (below(5)) {
    case 0: hutch_loading_wait(loading, short_time(), MAYBE(&found)); break;
    case 1: hutch_loading_fulfil(loading, value.data, value.size, any_put_options(room)); break;
    case 2: hutch_loading_fail(loading, (int32_t)any(), MAYBE("because")); break;
    case 3: hutch_loading_abandon(loading); break;
    default: hutch_loading_wanted(loading);
  }
  KEEP(values, found, hutch_value_release);
}

static void put_object(void) {
  part key = any_key();
  char room[ROOM];
  hutch_object *object = NULL;
  uint64_t drained = 0;
  switch (below(4)) {
    case 0: hutch_remove_object(any_cache(), key.data, key.size); break;
    case 1: hutch_drain_releases(any_cache(), any_limit(), MAYBE(&drained)); break;
    case 2:
      hutch_get_object(any_cache(), key.data, key.size, MAYBE(&object));
      CHECK(!object == !hutch_object_pointer(object));
      KEEP(objects, object, hutch_object_release);
      break;
    default:
      hutch_put_object(any_cache(), key.data, key.size, new_context(), release_context,
                       any_put_options(room));
  }
}

static void put_file(void) {
  char file[4200], room[ROOM];
  snprintf(file, sizeof file, "%s.given-%p", directories[0].text, (void *)me);
  write_file(file, content, below(60000));
  const char *const paths[] = {file, file, file, directories[0].text, "/nowhere/at/all", "", NULL};
  part key = any_key();
  STRUCT(hutch_put_result, result);
  hutch_put_file(any_cache(), key.data, key.size, paths[below(LENGTH(paths))], 1 + any_number(2),
                 any_put_options(room), MAYBE(result));
  unlink(file);
}

static void read_file(void) {
  part key = any_key();
  char buffer[5000];
  size_t size = 0;
  int32_t fd = -1;
  hutch_path(any_cache(), key.data, key.size, MAYBE(buffer), one_in(3) ? 0 : sizeof buffer,
             MAYBE(&size));
  hutch_status status = hutch_open_fd(any_cache(), key.data, key.size, MAYBE(&fd));
  CHECK((status == HUTCH_OK) == (fd >= 0));
  if (fd >= 0) close(fd);
}

static void write_pieces(void) {
  char room[ROOM];
  hutch_writer **place = PLACE(writers), *writer = NULL;
  if (!*place || one_in(10)) {
    part key = any_key();
    hutch_writer_begin(any_cache(), key.data, key.size, any_limit(), any_put_options(room),
                       MAYBE(&writer));
    hutch_writer_release(*place);
    *place = writer;
  }
  part value = any_value();
  STRUCT(hutch_put_result, result);
  for (int i = 0; i < 3; i++) hutch_writer_append(*place, value.data, value.size);
  if (one_in(3)) hutch_writer_commit(*place, MAYBE(result));
  else if (one_in(6)) hutch_writer_abort(*place);
}

/* ------------------------------------------------------------------- tasks */

static hutch_task_options *any_task(char room[ROOM], hutch_completion *now) {
  memset(room, 0, ROOM);
  if (one_in(4)) return NULL;
  hutch_task_options *o = (hutch_task_options *)room;
  o->struct_size = any_size(sizeof *o);
  o->priority = (int32_t)any_number(2) - 1;
  if (one_in(6)) o->flags = any_number(3);
  if (one_in(3) || o->flags & HUTCH_TASK_WAIT)
    o->deadline = 1 + (int64_t)below(2 * HUTCH_MILLISECOND);
  else if (one_in(20))
    o->deadline = -1;
  if (!one_in(4)) o->complete = complete;
  if (one_in(5)) o->progress = see_progress;
  if (has_whole(o->struct_size, sizeof *o) && !one_in(3)) {
    o->context = new_context();
    o->release = release_context;
  }
  if (one_in(2)) o->port = HELD(ports);
  if (one_in(4)) o->group = HELD(groups);
  if (one_in(4)) {
    o->identifier = any_place();
    o->identifier_size = one_in(20) ? any_limit() : 3;
    if (one_in(2)) o->merge = merge;
  }
  *now = (hutch_completion){.struct_size = sizeof *now};
  if (o->flags & HUTCH_TASK_MAY_FINISH_NOW) o->now = MAYBE(now);
  return o;
}

/* What is done at once leaves its results to the caller. */
static void take_results(hutch_status status, hutch_task_options *o, hutch_task *task) {
  CHECK(status == HUTCH_OK || !task);
  if (status == HUTCH_OK && o && has_whole(o->struct_size, sizeof *o) && o->now
      && o->now->operation) {
    hutch_value_release(o->now->value);
    hutch_batch_release(o->now->batch);
  }
  KEEP(tasks, task, hutch_task_release);
}

static void any_call(hutch_call *call, char room[ROOM]) {
  static const void *const keys[] = {content, content + 1, content + 2, content + 3};
  static const size_t sizes[] = {3, 3, 1, 3};
  uint32_t operation = HUTCH_OPERATION_INFO + any_number(14);
  bool is_many = operation >= HUTCH_OPERATION_GET_MANY && operation <= HUTCH_OPERATION_REMOVE_MANY;
  bool is_put = operation >= HUTCH_OPERATION_ADD && operation <= HUTCH_OPERATION_COMPARE_AND_SWAP;
  bool is_wrong = one_in(10);
  part key = any_key(), value = any_value();
  call->operation = operation;
  if (operation == HUTCH_OPERATION_INFO || operation >= HUTCH_OPERATION_PUT_FILE || is_put
      || operation == HUTCH_OPERATION_TOUCH || operation == HUTCH_OPERATION_INCREMENT
      || operation == HUTCH_OPERATION_POP || is_wrong)
    call->key = key.data, call->key_size = key.size;
  if (is_put || is_wrong) call->value = value.data, call->value_size = value.size;
  if (is_put || operation == HUTCH_OPERATION_INCREMENT || operation == HUTCH_OPERATION_PUT_MANY
      || operation == HUTCH_OPERATION_PUT_FILE)
    call->put_options = any_put_options(room);
  if (operation == HUTCH_OPERATION_COMPARE_AND_SWAP) call->version = any();
  if (operation == HUTCH_OPERATION_INCREMENT) call->delta = (int64_t)any();
  if (operation == HUTCH_OPERATION_TOUCH) call->time_to_live = any_duration();
  if (operation == HUTCH_OPERATION_EACH) call->visitor = MAYBE(visit);
  if (operation == HUTCH_OPERATION_PUT_FILE) call->path = "/nowhere/at/all", call->use = 1;
  if (!is_many) return;
  call->keys = MAYBE(keys);
  call->key_sizes = MAYBE(sizes);
  call->count = one_in(30) ? SIZE_MAX : below(LENGTH(keys) + 1);
  if (operation != HUTCH_OPERATION_PUT_MANY) return;
  call->values = MAYBE(keys);
  call->value_sizes = MAYBE(sizes);
}

static void submit(void) {
  char room[ROOM], put_room[ROOM];
  hutch_completion now;
  hutch_task_options *o = any_task(room, &now);
  hutch_task *task = NULL, **out = one_in(3) ? NULL : &task;
  hutch_cache *cache = any_cache();
  part key = any_key(), value = any_value();
  STRUCT(hutch_call, call);
  STRUCT(hutch_trim_spec, spec);
  STRUCT(hutch_load_options, l);
  hutch_status status;
  switch (below(11)) {
    case 0: status = hutch_get_async(cache, key.data, key.size, o, out); break;
    case 1:
      status = hutch_put_async(cache, key.data, key.size, value.data, value.size,
                               any_put_options(put_room), o, out);
      break;
    case 2: status = hutch_remove_async(cache, key.data, key.size, o, out); break;
    case 3: status = hutch_contains_async(cache, key.data, key.size, o, out); break;
    case 4: status = hutch_clear_async(cache, o, out); break;
    case 5: status = hutch_flush_async(cache, o, out); break;
    case 6:
      any_trim(spec);
      status = hutch_trim_async(cache, MAYBE(spec), o, out);
      break;
    case 7: case 8:
      any_load(l);
      status = hutch_load_async(cache, key.data, key.size, MAYBE(load_something), new_context(),
                                release_context, l, o, out);
      break;
    case 9:
      status = hutch_queue_submit(HELD(queues), MAYBE(work), new_context(), release_context, o, out);
      break;
    default:
      any_call(call, put_room);
      status = hutch_submit(cache, MAYBE(call), o, out);
  }
  take_results(status, o, task);
}

static void see_task(void) {
  hutch_task *task = HELD(tasks);
  uint32_t state = 0;
  hutch_status status;
  switch (below(4)) {
    case 0: hutch_task_cancel(task, MAYBE(&state)); break;
    case 1: hutch_task_wait(task, short_time()); break;
    case 2: hutch_task_set_priority(task, (int32_t)any_number(2) - 1); break;
    default: hutch_task_status(task, MAYBE(&state), MAYBE(&status));
  }
}

static void run_queue(void) {
  hutch_queue *queue = HELD(queues), *made = NULL, **out = MAYBE(&made);
  STRUCT(hutch_queue_options, o);
  uint64_t n = 0;
  switch (below(10)) {
    case 0: hutch_shared_queue(out); break;
    case 1: hutch_cache_queue(any_cache(), out); break;
    case 2:
      o->width = any_number(3);
      o->flags = any_number(1);
      o->length = one_in(3) ? any_limit() : 0;
      hutch_queue_create(MAYBE(o), out);
      break;
    case 3: hutch_queue_set_width(queue, any_number(4)); break;
    case 4: hutch_queue_wait_all(queue, short_time()); break;
    case 5: hutch_queue_cancel_all(queue, MAYBE(&n)); break;
    case 6: hutch_queue_suspend(queue); break;
    case 7: hutch_queue_resume(queue); break;
    case 8: hutch_wait_all(any_cache(), short_time()); break;
    default: hutch_queue_run(queue, short_time(), MAYBE(&n));
  }
  KEEP(queues, made, hutch_queue_release);
}

static void run_group(void) {
  hutch_group *group = HELD(groups), *made = NULL;
  char room[ROOM];
  hutch_completion now;
  hutch_task_options *o;
  switch (below(5)) {
    case 0: hutch_group_create(HELD(queues), MAYBE(&made)); break;
    case 1: hutch_group_cancel(group); break;
    case 2: hutch_group_wait(group, short_time()); break;
    default:
      o = any_task(room, &now);
      /* Mostly with what a group takes. */
      if (o && !one_in(20))
        *o = (hutch_task_options){.struct_size = o->struct_size, .complete = o->complete,
                                  .context = o->context, .release = o->release, .port = o->port};
      hutch_group_start(group, o);
  }
  KEEP(groups, made, hutch_group_release);
}

static void run_port(void) {
  hutch_port *port = HELD(ports), *made = NULL;
  uint64_t n = 0;
  switch (below(8)) {
    case 0: hutch_port_create(MAYBE(&made)); break;
    case 1: if (one_in(3)) hutch_port_close(port, any_number(1)); break;
    default:
      CHECK((hutch_port_fd(port) >= 0) == (port != NULL));
      hutch_port_drain(port, below(4), MAYBE(&n));
  }
  KEEP(ports, made, hutch_port_release);
}

/* --------------------------------------------------------------- the table */

void call_something(void) {
  static const struct {
    void (*call)(void);
    int weight;
  } calls[] = {
      {open_something, 3}, {close_something, 1}, {share, 2}, {ask_library, 1}, {change_options, 1},
      {change_limits, 1}, {count, 1}, {maintain, 4}, {copy, 1}, {tell, 2}, {put, 12}, {get, 4},
      {look, 3}, {inspect, 3}, {remove_something, 2}, {read_value, 1}, {call_many, 3},
      {read_batch, 1}, {trim, 1}, {walk, 3}, {load, 3}, {answer, 3}, {put_object, 4}, {put_file, 1},
      {read_file, 2}, {write_pieces, 2}, {submit, 14}, {see_task, 3}, {run_queue, 4},
      {run_group, 3}, {run_port, 3}};
  int sum = 0;
  for (size_t i = 0; i < LENGTH(calls); i++) sum += calls[i].weight;
  int at = (int)below((uint64_t)sum);
  size_t i = 0;
  while (at >= calls[i].weight) at -= calls[i++].weight;
  calls[i].call();
}

void let_go(void) {
#define LET_GO(pool, release)                        \
  for (size_t i = 0; i < LENGTH(me->pool); i++) {    \
    release(me->pool[i]);                            \
    me->pool[i] = NULL;                              \
  }
  LET_GO(cursors, hutch_cursor_release)
  LET_GO(writers, hutch_writer_release)
  LET_GO(values, hutch_value_release)
  LET_GO(batches, hutch_batch_release)
  LET_GO(loadings, hutch_loading_release)
  LET_GO(groups, hutch_group_release)
  LET_GO(tasks, hutch_task_release)
  LET_GO(objects, hutch_object_release)
  LET_GO(caches, hutch_close)
  LET_GO(queues, hutch_queue_release)
  LET_GO(ports, hutch_port_release)
}
