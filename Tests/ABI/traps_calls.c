/* Mistakes that other caches have made in the order of calls and threads (see traps.c): each
   interleaving is brought about, none is waited for by luck. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>

/* ------------------------------------------------- a read that takes its time */

/* A codec that runs something in the middle of a read: when the row has been read, and before
   what it made of it goes into memory. */
typedef struct middle {
  hutch_cache *cache;
  void (*now)(struct middle *m);
  atomic_int fails;
} middle;

static hutch_status copy_out(void *context, const void *input, size_t size,
                             hutch_buffer *output) {
  middle *m = context;
  if (atomic_load(&m->fails)) return HUTCH_IO;
  memcpy(hutch_buffer_resize(output, size), input, size);
  return HUTCH_OK;
}

static void *run_now(void *context) {
  middle *m = context;
  m->now(m);
  return NULL;
}

static hutch_status copy_in(void *context, const void *input, size_t size,
                            hutch_buffer *output) {
  middle *m = context;
  hutch_status status = copy_out(m, input, size, output);
  if (m->now) {
    /* Another thread's call, all of it. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_now, m) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    m->now = NULL;
  }
  return status;
}

static hutch_options with_middle(middle *m) {
  hutch_options options = unlimited_options();
  options.codec_id = 7;
  options.codec_encode = copy_out;
  options.codec_decode = copy_in;
  options.codec_context = m;
  return options;
}

static void put_the_new(middle *m) {
  m->now = NULL;
  CHECK_OK(put_text(m->cache, "key", "new"));
}

static void put_on_disk(middle *m) {
  m->now = NULL;
  hutch_cache *disk = tier_of(m->cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(disk, "key", "new"));
  hutch_cache_release(disk);
}

static void remove_it(middle *m) {
  m->now = NULL;
  CHECK_OK(hutch_remove(m->cache, KEY("key")));
}

static void clear_it(middle *m) {
  m->now = NULL;
  CHECK_OK(hutch_clear(m->cache));
}

TEST(trap_2_a_promotion_brings_no_old_value_back) {
  void (*const writes[])(middle *) = {put_the_new, put_on_disk, remove_it, clear_it};
  for (int sharing = 0; sharing < 2; sharing++)
    for (int w = 0; w < 4; w++) {
      middle m = {0};
      hutch_options options = with_middle(&m);
      options.sharing = sharing ? HUTCH_SHARING_SHARED : HUTCH_SHARING_EXCLUSIVE;
      m.cache = open_cache(scratch("cache").text, &options);
      hutch_cache *memory = tier_of(m.cache, HUTCH_TIER_MEMORY);
      CHECK_OK(put_text(m.cache, "key", "old"));
      CHECK_OK(hutch_clear(memory));
      m.now = writes[w];
      /* Begun before the write, it may answer with either. */
      hutch_value *value = NULL;
      hutch_status status = hutch_get(m.cache, KEY("key"), &value);
      CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
      hutch_value_release(value);
      CHECK(!m.now);
      if (w < 2) CHECK_TEXT(m.cache, "key", "new");
      else CHECK_MISSING(m.cache, "key");
      if (w >= 2) CHECK_MISSING(memory, "key");
      hutch_cache_release(memory);
      CHECK_OK(hutch_clear(m.cache));
      CHECK_OK(hutch_close(m.cache));
    }
}

/* --------------------------------------------------- a write that is not done */

typedef struct told {
  _Atomic uint32_t added; /* tiers, of the last did_add */
  atomic_int adds, completions;
  hutch_status status;
  uint32_t memory, disk;
} told;

static void note_add(void *context, const hutch_event *event) {
  told *t = context;
  atomic_store(&t->added, event->tiers);
  atomic_fetch_add(&t->adds, 1);
}

static void note_completion(void *context, const hutch_completion *completion) {
  told *t = context;
  t->status = completion->status;
  t->memory = completion->memory;
  t->disk = completion->disk;
  atomic_fetch_add(&t->completions, 1);
}

TEST(trap_5_a_write_that_failed_is_told_as_failed) {
  middle m = {.fails = 1};
  hutch_options options = with_middle(&m);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  told t = {0};
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD, note_add, &t, NULL));

  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_IO, hutch_put(disk, KEY("key"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_EQUAL(0, t.adds);
  CHECK_MISSING(cache, "key");
  hutch_task_options task_options = {.struct_size = sizeof task_options,
                                     .complete = note_completion, .context = &t};
  hutch_task *task = NULL;
  CHECK_OK(hutch_put_async(disk, KEY("key"), KEY("value"), NULL, &task_options, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_EQUAL(1, t.completions);
  CHECK_EQUAL(HUTCH_IO, t.status);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, t.disk);
  CHECK_EQUAL(0, t.adds);

  /* Memory has it, and says so. */
  result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("key"), KEY("value"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_EQUAL(1, t.adds);
  CHECK_EQUAL(HUTCH_TIER_MEMORY, t.added);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- a long trim */

typedef struct trimming {
  hutch_cache *cache;
  int calls;
} trimming;

static void *use_all(void *context) {
  const trimming *t = context;
  hutch_value *value = NULL;
  CHECK_OK(put_text(t->cache, "new", "value"));
  CHECK_TEXT(t->cache, "new", "value");
  hutch_status status = hutch_get(t->cache, KEY("0"), &value);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  hutch_value_release(value);
  CHECK_OK(hutch_remove(t->cache, KEY("new")));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(t->cache, KEY("nowhere")));
  count_of(t->cache);
  return NULL;
}

/* In the middle of the trim another thread reads and writes, and this one waits for it. */
static int32_t wait_for_another(void *context, uint64_t removed, uint64_t total) {
  trimming *t = context;
  (void)removed, (void)total;
  if (t->calls++ < 2) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_all, t) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  return 0;
}

TEST_EACH_KIND(trap_15_nobody_waits_for_a_trim) {
  for (uint32_t kind = HUTCH_TRIM_EXPIRED; kind <= HUTCH_TRIM_LARGER_THAN; kind++) {
    for (int i = 0; i < 1000 / SANITIZED_BY; i++) {
      char key[16];
      snprintf(key, sizeof key, "%d", i);
      hutch_put_options options = put_options();
      options.time_to_live = i % 2 ? HUTCH_MINUTE : 0;
      CHECK_OK(hutch_put(f->cache, KEY(key), KEY("some value"), &options, NULL));
    }
    f->clock.now += HUTCH_HOUR;
    trimming t = {.cache = f->cache};
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind, .amount = 4,
                            .progress = wait_for_another, .context = &t};
    spec.time = kind == HUTCH_TRIM_WRITTEN_BEFORE ? f->clock.now : HUTCH_SECOND;
    CHECK_OK(hutch_trim(f->cache, &spec, NULL));
    /* The maintenance of a cache may have been first to remove what has expired. */
    CHECK(kind == HUTCH_TRIM_EXPIRED || t.calls > 0);
  }
}

/* -------------------------------------------------------------- a full pool */

typedef struct pool {
  atomic_int running;
  atomic_bool go;
} pool;

static hutch_status occupy(void *context, hutch_task *task) {
  pool *p = context;
  (void)task;
  atomic_fetch_add(&p->running, 1);
  while (!atomic_load(&p->go)) nap();
  return HUTCH_OK;
}

/* Every worker is taken, and so is every place that waits. */
TEST_EACH_KIND(trap_18_calls_that_wait_need_no_worker) {
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_cache_queue(f->cache, &queue));
  CHECK_OK(hutch_queue_set_width(queue, 2));
  pool p = {0};
  for (int i = 0; i < 10; i++)
    CHECK_OK(hutch_queue_submit(queue, occupy, &p, NULL, NULL, NULL));
  while (atomic_load(&p.running) < 2) nap();

  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_OK(hutch_flush(f->cache));
  CHECK_TEXT(f->cache, "key", "value");
  CHECK_OK(hutch_contains(f->cache, KEY("key")));
  CHECK_OK(hutch_touch(f->cache, KEY("key"), HUTCH_HOUR, 0));
  int64_t sum;
  CHECK_OK(hutch_increment(f->cache, KEY("counter"), 1, 0, NULL, &sum));
  const void *keys[] = {"key"};
  const size_t sizes[] = {3};
  hutch_batch *batch = NULL;
  CHECK_OK(hutch_put_many(f->cache, keys, sizes, keys, sizes, 1, NULL, &batch));
  hutch_batch_release(batch);
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 1};
  CHECK_OK(hutch_trim(f->cache, &spec, NULL));
  hutch_value *value = NULL;
  hutch_status status = hutch_pop(f->cache, KEY("key"), &value);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  hutch_value_release(value);
  CHECK_OK(hutch_clear(f->cache));
  CHECK_OK(hutch_maintain(f->cache, 0));
  CHECK_EQUAL(2, p.running);

  atomic_store(&p.go, true);
  CHECK_OK(hutch_queue_wait_all(queue, HUTCH_FOREVER));
  hutch_queue_release(queue);
}

/* ------------------------------------------------ a cache without a reference */

/* Those of the library, by their name: a sanitizer has threads, too. */
static int threads_of_the_library(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks);
  for (struct dirent *entry; (entry = readdir(tasks));) {
    char file[300], name[32] = "";
    snprintf(file, sizeof file, "/proc/self/task/%s/comm", entry->d_name);
    FILE *f = fopen(file, "r");
    if (!f) continue;
    if (fgets(name, sizeof name, f)) count += strncmp(name, "hutch", 5) == 0;
    fclose(f);
  }
  closedir(tasks);
  return count;
}

static void note_nothing(void *context, const hutch_event *event) {
  (void)context, (void)event;
}
static void note_release(void *context) { atomic_fetch_add((atomic_int *)context, 1); }

/* Its threads look after ages; they end with it, whatever there is to wait for. */
TEST(trap_20_a_cache_with_ages_ends_with_its_last_reference) {
  for (int disk = 0; disk < 2; disk++) {
    hutch_options options = unlimited_options();
    options.memory.time_to_live = options.disk.time_to_live = HUTCH_HOUR;
    hutch_cache *cache = open_cache(disk ? scratch("cache").text : NULL, &options);
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_SECOND;
    CHECK_OK(hutch_put(cache, KEY("key"), KEY("value"), &put, NULL));
    CHECK_OK(put_text(cache, "other", "value"));
    atomic_int released = 0;
    CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_ALL, note_nothing, &released, note_release));
    hutch_cache_release(cache);
    while (atomic_load(&released) == 0) nap();
    while (threads_of_the_library() > 0) nap();
    CHECK_EQUAL(1, released);
  }
}

/* ----------------------------------------------------- a put that is under way */

enum { LARGE = 300000 };

PROCESS(commits_late, directory) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(directory, &options);
  void *data = filled(LARGE, 1);
  hutch_writer *writer = NULL;
  CHECK_OK(hutch_writer_begin(cache, KEY("key"), LARGE, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, LARGE));
  tell_ready();
  await_end();
  hutch_put_result result = new_result();
  CHECK_OK(hutch_writer_commit(writer, &result));
  hutch_writer_release(writer);
  free(data);
  CHECK_OK(hutch_close(cache));
}

/* The file is there, and its row is not yet. */
TEST(trap_29_a_sweep_leaves_the_file_of_a_put_under_way) {
  path directory = scratch("cache");
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(directory.text, &options);
  process child = start_process("commits_late", directory.text);
  await_ready(&child);
  void *data = filled(LARGE, 1);
  hutch_writer *writer = NULL;
  CHECK_OK(hutch_writer_begin(cache, KEY("own"), LARGE, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, LARGE));
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (int i = 0; i < 2; i++) {
    hutch_check_report report = report_of(disk, 0);
    CHECK_EQUAL(0, report.orphans);
    CHECK_OK(hutch_maintain(cache, 0));
  }
  CHECK_OK(hutch_writer_commit(writer, NULL));
  hutch_writer_release(writer);
  CHECK_EQUAL(0, end_process(&child));
  for (int i = 0; i < 2; i++) {
    hutch_value *value = get_value(disk, i ? "own" : "key");
    CHECK_BYTES(data, LARGE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
  }
  free(data);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}
