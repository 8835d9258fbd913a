/*
 * Random calls, some of which run out of memory at a step of their own: every context is released
 * exactly once, and no block of an entry is left when all that was taken has been given back.
 *
 * malloc and its kin are defined here, in the program, which the dynamic linker asks first. An
 * allocation of LARGE bytes or more fails on the thread that makes a call, never on the library's
 * own threads. (The objects that the engine makes of itself are smaller; without memory for one
 * of these the process ends.) Allocations of that size are counted too, and no more of them are
 * left after a round than before it.
 *
 * Zeroed memory of any size fails too, in the cases that say so: the engine checks each of these
 * allocations, and none of its objects is one.
 */
#define _GNU_SOURCE
#include "check.h"
#include "hutch_tasks.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <time.h>

/* ------------------------------------------------------------- allocations */

enum { LARGE = 10000 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* Blocks of entries too. */
BLOCKS_FROM_MALLOC

/* Until the allocation of this thread that fails; 0: none does. */
static _Thread_local int until_failure;
/* The smallest that fails. */
static _Thread_local size_t least = LARGE;
static atomic_long large_blocks;
/* Of any size. */
static atomic_long all_blocks;
/* Likewise, of zeroed memory of any size. */
static _Thread_local int until_zeroed_failure;
/* What is freed does not keep its bytes. */
static bool spoils;

static bool fails(size_t size) {
  return size >= least && until_failure > 0 && --until_failure == 0;
}

static bool fails_zeroed(void) {
  return until_zeroed_failure > 0 && --until_zeroed_failure == 0;
}

static void *counted(void *memory) {
  if (memory && malloc_usable_size(memory) >= LARGE) atomic_fetch_add(&large_blocks, 1);
  if (memory) atomic_fetch_add(&all_blocks, 1);
  if (!memory) errno = ENOMEM;
  return memory;
}

static void uncount(void *memory) {
  if (memory && malloc_usable_size(memory) >= LARGE) atomic_fetch_sub(&large_blocks, 1);
  if (memory) atomic_fetch_sub(&all_blocks, 1);
}

void *malloc(size_t size) { return counted(fails(size) ? NULL : __libc_malloc(size)); }
void *calloc(size_t count, size_t size) {
  return counted(fails(count * size) || fails_zeroed() ? NULL : __libc_calloc(count, size));
}
static void *aligned(size_t alignment, size_t size) {
  return counted(fails(size) ? NULL : __libc_memalign(alignment, size));
}
void *aligned_alloc(size_t alignment, size_t size) {
  return fails_zeroed() ? counted(NULL) : aligned(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
  *memory = aligned(alignment, size);
  return *memory ? 0 : ENOMEM;
}
void *realloc(void *memory, size_t size) {
  if (fails(size)) return counted(NULL);
  size_t before = memory ? malloc_usable_size(memory) : 0;
  void *after = __libc_realloc(memory, size);
  if (after && before >= LARGE) atomic_fetch_sub(&large_blocks, 1);
  if (after && memory) atomic_fetch_sub(&all_blocks, 1);
  return counted(after);
}
void free(void *memory) {
  uncount(memory);
  if (memory && spoils) memset(memory, 0xA5, malloc_usable_size(memory));
  __libc_free(memory);
}

/* ---------------------------------------------------------------- contexts */

enum { MOST_CONTEXTS = 1 << 17 };

/* How often the context with this number was released, and for what it was given. */
static struct {
  atomic_int released;
  const char *given_to;
} contexts[MOST_CONTEXTS];
static atomic_int given;

static void *give(const char *to) {
  int number = atomic_fetch_add(&given, 1);
  CHECK(number < MOST_CONTEXTS);
  contexts[number].given_to = to;
  return &contexts[number];
}

static void take_back(void *context) { atomic_fetch_add((atomic_int *)context, 1); }

/* ------------------------------------------------------------------- calls */

enum { ACTORS = 3, CALLS = 1500, HELD = 12, KEYS = 24, MOST = 3 * LARGE };

typedef struct actor {
  hutch_cache *cache;
  hutch_queue *queue;
  hutch_port *port;
  uint64_t random;
  hutch_value *values[HELD];
  hutch_object *objects[HELD];
  hutch_task *tasks[HELD];
  hutch_batch *batches[HELD];
  hutch_cursor *cursors[HELD];
  hutch_loading *loadings[HELD];
} actor;

static char bytes[MOST];

static void listen(void *context, const hutch_event *event) { (void)context, (void)event; }
static void log_line(void *context, const hutch_log_record *record) {
  (void)context, (void)record;
}
static void complete(void *context, const hutch_completion *completion) {
  (void)completion;
  /* The context is in use. */
  CHECK_EQUAL(0, atomic_load((atomic_int *)context));
}
static hutch_status work(void *context, hutch_task *task) {
  (void)task;
  CHECK_EQUAL(0, atomic_load((atomic_int *)context));
  return HUTCH_OK;
}
static hutch_status load(void *context, const void *key, size_t size, hutch_loading *loading) {
  (void)context, (void)key, (void)size;
  return hutch_loading_fulfil(loading, bytes, LARGE, NULL);
}

static hutch_task_options task_options(actor *a, uint64_t r) {
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options), .complete = complete,
                              .context = give("a task"), .release = take_back,
                              .port = r & 1 ? a->port : NULL,
                              .identifier = r & 6 ? NULL : "same", .identifier_size = r & 6 ? 0 : 4,
                              .deadline = r & 56 ? 0 : HUTCH_MILLISECOND};
}

/* One call, whose answer may be anything that its arguments allow. */
static void call(actor *a) {
  uint64_t r = next_random(&a->random), s = next_random(&a->random);
  unsigned slot = s % HELD;
  char key[2] = {'a' + (char)(r % KEYS), 0};
  size_t size = s >> 8 & 1 ? LARGE + (s >> 16) % (MOST - LARGE) : (s >> 16) % 64;
  hutch_put_options put = put_options();
  put.extended = bytes;
  put.extended_size = s >> 40 & 3 ? 0 : 9;
  put.tag = s >> 42 & 3 ? NULL : "tag";
  put.tag_size = s >> 42 & 3 ? 0 : 3;
  put.time_to_live = s >> 44 & 7 ? 0 : 1 + (int64_t)(s >> 48 & 1) * HUTCH_MILLISECOND;
  hutch_load_options soon = {.struct_size = sizeof soon, .timeout = HUTCH_MILLISECOND};
  unsigned what = r >> 16 & 63;
  hutch_task_options options = {.struct_size = sizeof options};
  void *context = NULL;
  if (what >= 32 && what < 46) options = task_options(a, s >> 20);
  if (what == 12 || what == 13) context = give("an object");
  if (what == 16) context = give("a listener");
  if (what == 17) context = give("a logger");
  if (what == 32 || what == 33) context = give("a work");
  if (what == 38) context = give("a loader");
  hutch_value *value = NULL;
  hutch_task *task = NULL;
  hutch_object *object = NULL;
  hutch_batch *batch = NULL;
  hutch_cursor *cursor = NULL;
  hutch_loading *loading = NULL;
  hutch_group *group = NULL;
  const void *keys[] = {"a", "b", key, "c"};
  const size_t sizes[] = {1, 1, 1, 1};
  const void *values[] = {bytes, bytes, bytes, bytes};
  const size_t value_sizes[] = {LARGE, 5, size, 0};
  if ((r >> 32 & 3) == 0) until_failure = 1 + (int)(r >> 40 & 3);
  switch (what) {
    case 0: case 1: case 2: case 3: hutch_get(a->cache, key, 1, &value); break;
    case 4: hutch_pop(a->cache, key, 1, &value); break;
    case 5: hutch_remove(a->cache, key, 1); break;
    case 6: hutch_touch(a->cache, key, 1, HUTCH_HOUR, 0); break;
    case 7: hutch_add(a->cache, key, 1, bytes, size, &put, NULL); break;
    case 8: hutch_replace(a->cache, key, 1, bytes, size, &put, NULL); break;
    case 9: hutch_increment(a->cache, key, 1, 1, 1, NULL, NULL); break;
    case 10: hutch_get_many(a->cache, keys, sizes, 4, &batch); break;
    case 11: hutch_put_many(a->cache, keys, sizes, values, value_sizes, 4, &put, &batch); break;
    case 12: case 13:
      put.extended_size = 0;
      hutch_put_object(a->cache, key, 1, context, take_back, &put);
      break;
    case 14: hutch_get_object(a->cache, key, 1, &object); break;
    case 15: hutch_remove_object(a->cache, key, 1); break;
    case 16:
      hutch_set_listener(a->cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE,
                         s & 1 ? listen : NULL, context, take_back);
      break;
    case 17: hutch_set_logger(a->cache, s & 3, s & 4 ? log_line : NULL, context, take_back); break;
    case 18: hutch_cursor_create(a->cache, &cursor); break;
    case 19: {
      const void *at;
      size_t at_size;
      if (a->cursors[slot]) hutch_cursor_next(a->cursors[slot], &at, &at_size);
      if (a->cursors[slot]) hutch_cursor_value(a->cursors[slot], &value);
      break;
    }
    case 20: {
      hutch_trim_spec spec = {.struct_size = sizeof spec,
                              .kind = 1 + (uint32_t)(s % HUTCH_TRIM_LEAST_FREQUENT), .amount = 3};
      hutch_trim(a->cache, &spec, NULL);
      break;
    }
    case 21: hutch_clear(a->cache); break;
    case 22: hutch_flush(a->cache); break;
    case 23: hutch_remove_tagged(a->cache, "tag", 3, NULL); break;
    case 24: hutch_notify(a->cache, HUTCH_NOTIFY_MEMORY_WARNING); break;
    case 25: hutch_load(a->cache, key, 1, load, NULL, &soon, &value); break;
    case 26: hutch_load_begin(a->cache, key, 1, &soon, &value, &loading); break;
    case 27:
      if (a->loadings[slot]) hutch_loading_fulfil(a->loadings[slot], bytes, size, &put);
      break;
    case 28: if (a->loadings[slot]) hutch_loading_abandon(a->loadings[slot]); break;
    case 29: hutch_maintain(a->cache, HUTCH_MILLISECOND); break;
    case 30: hutch_drain_releases(a->cache, 2, NULL); break;
    case 32: case 33:
      hutch_queue_submit(a->queue, work, context, take_back, &options, &task);
      break;
    case 34: hutch_get_async(a->cache, key, 1, &options, &task); break;
    case 35: case 36: hutch_put_async(a->cache, key, 1, bytes, size, &put, &options, &task); break;
    case 37: hutch_remove_async(a->cache, key, 1, &options, &task); break;
    case 38:
      hutch_load_async(a->cache, key, 1, load, context, take_back, &soon, &options, &task);
      break;
    case 39: hutch_clear_async(a->cache, &options, &task); break;
    case 40: hutch_flush_async(a->cache, &options, &task); break;
    case 41: hutch_contains_async(a->cache, key, 1, &options, &task); break;
    case 42: case 43:
      options.identifier = NULL;
      options.identifier_size = 0;
      if (hutch_group_create(a->queue, &group) == HUTCH_OK) {
        options.deadline = 0;
        hutch_group_start(group, &options);
      } else {
        take_back(options.context);
      }
      hutch_group_release(group);
      break;
    case 44: case 45: {
      hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 5};
      hutch_trim_async(a->cache, &spec, &options, &task);
      break;
    }
    case 46: if (a->tasks[slot]) hutch_task_cancel(a->tasks[slot], NULL); break;
    case 47: hutch_port_drain(a->port, 0, NULL); break;
    default: hutch_put(a->cache, key, 1, bytes, size, &put, NULL);
  }
  until_failure = 0;
#define KEEP(what, kind)                        \
  if (what) {                                   \
    hutch_##kind##_release(a->what##s[slot]);   \
    a->what##s[slot] = what;                    \
  }
  KEEP(value, value)
  KEEP(object, object)
  KEEP(task, task)
  KEEP(cursor, cursor)
  KEEP(loading, loading)
  if (batch) {
    hutch_batch_release(a->batches[slot]);
    a->batches[slot] = batch;
  }
}

static void act(void *context, int index) {
  actor *a = (actor *)context + index;
  for (int i = 0; i < CALLS; i++) call(a);
}

static void give_back(actor *a) {
  for (int i = 0; i < HELD; i++) {
    hutch_value_release(a->values[i]);
    hutch_object_release(a->objects[i]);
    hutch_task_release(a->tasks[i]);
    hutch_batch_release(a->batches[i]);
    hutch_cursor_release(a->cursors[i]);
    hutch_loading_release(a->loadings[i]);
  }
  hutch_cache_release(a->cache);
}

/* ------------------------------------------------------------------ rounds */

static int64_t codec_clock(void *context) {
  struct timespec now;
  CHECK_EQUAL(0, atomic_load((atomic_int *)context));
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * HUTCH_SECOND + now.tv_nsec;
}

static hutch_status copy(void *context, const void *input, size_t size, hutch_buffer *output) {
  CHECK_EQUAL(0, atomic_load((atomic_int *)context));
  void *target = hutch_buffer_resize(output, size);
  if (!target) return HUTCH_NO_MEMORY;
  if (size > 0) memcpy(target, input, size);
  return HUTCH_OK;
}

static void play(uint64_t *random, int kind) {
  atomic_store(&given, 0);
  memset(contexts, 0, sizeof contexts);
  uint64_t r = next_random(random);
  hutch_options options = unlimited_options();
  options.memory.cost = 12 * MOST;
  options.write_policy = kind == 2 ? HUTCH_WRITE_ON_EVICTION : HUTCH_WRITE_THROUGH;
  options.flags = r & 1 ? HUTCH_OPEN_NO_THREADS : 0;
  if (r & 2) {
    options.clock = codec_clock;
    options.clock_context = give("a clock");
    options.clock_release = take_back;
  }
  if (r & 4 && kind > 0) {
    options.codec_id = 7;
    options.codec_encode = options.codec_decode = copy;
    options.codec_context = give("a codec");
    options.codec_release = take_back;
  }
  path directory = scratch("cache");
  hutch_cache *cache = NULL;
  /* An opening that fails releases too. */
  hutch_options again = options;
  if (r & 8) {
    if (again.clock_context) again.clock_context = give("a clock of an opening that failed");
    if (again.codec_context) again.codec_context = give("a codec of an opening that failed");
    until_failure = 1 + (int)(r >> 32 & 15);
    hutch_status status = hutch_open(kind ? directory.text : NULL, &again, &cache);
    until_failure = 0;
    if (status == HUTCH_OK) CHECK_OK(hutch_close(cache));
  }
  cache = open_cache(kind ? directory.text : NULL, &options);
  actor actors[ACTORS] = {0};
  hutch_queue_options of_queue = {.struct_size = sizeof of_queue, .width = 2};
  for (int i = 0; i < ACTORS; i++) {
    actor *a = &actors[i];
    a->cache = hutch_cache_retain(cache);
    a->random = next_random(random);
    CHECK_OK(hutch_queue_create(&of_queue, &a->queue));
    CHECK_OK(hutch_port_create(&a->port));
  }
  run_threads(ACTORS, act, actors);
  bool before = r & 16;
  for (int i = 0; i < ACTORS && before; i++) give_back(&actors[i]);
  hutch_status closed = hutch_close(cache);
  if (closed != HUTCH_OK) printf("closed: %d, %s\n", closed, hutch_error_words());
  for (int i = 0; i < ACTORS; i++) {
    CHECK_OK(hutch_queue_wait_all(actors[i].queue, HUTCH_FOREVER));
    CHECK_OK(hutch_port_drain(actors[i].port, 0, NULL));
    if (!before) give_back(&actors[i]);
    hutch_queue_release(actors[i].queue);
    hutch_port_release(actors[i].port);
  }
  await_no_workers();
  for (int i = 0; i < atomic_load(&given); i++)
    if (atomic_load(&contexts[i].released) != 1)
      FAIL("context %d, of %s, was released %d times (kind %d, %#llx)", i, contexts[i].given_to,
           atomic_load(&contexts[i].released), kind, (unsigned long long)r);
  if (kind) remove_tree(directory.text);
}

TEST(every_context_is_released_once_and_no_block_is_left) {
  uint64_t random = seed();
  memset(bytes, 'x', sizeof bytes);
  long before = 0;
  int rounds = scale() == 1 ? 12 : 300;
  for (int round = 0; round < rounds; round++) {
    play(&random, round % 3);
    long left = atomic_load(&large_blocks);
    /* What the libraries keep for the life of the process is there after the first of each kind. */
    if (round < 3) before = left;
    if (left > before) FAIL("round %d: %ld large blocks are left, not %ld", round, left, before);
  }
}

/* The tables of a cache and of its tiers are larger than any object of the engine. */
TEST(an_opening_without_memory_for_a_table_is_refused) {
  static const uint32_t kinds[] = {HUTCH_STORAGE_MIXED, HUTCH_STORAGE_LOG};
  for (int kind = 0; kind < 3; kind++) {
    hutch_options options = unlimited_options();
    if (kind > 0) options.storage = kinds[kind - 1];
    path directory = scratch("cache");
    bool was_reached = true;
    int refused = 0;
    for (int step = 1; was_reached; step++) {
      hutch_cache *cache = NULL;
      least = 1600;
      until_failure = step;
      hutch_status status = hutch_open(kind ? directory.text : NULL, &options, &cache);
      was_reached = until_failure == 0;
      until_failure = 0;
      least = LARGE;
      if (status == HUTCH_NO_MEMORY) refused++;
      if (status == HUTCH_OK) CHECK_OK(hutch_close(cache));
      else CHECK(was_reached && !cache);
    }
    CHECK(refused > (kind > 0));
    if (kind) remove_tree(directory.text);
  }
}

enum { POLICIES = 4 };
static const uint32_t policies[POLICIES] = {HUTCH_POLICY_ADAPTIVE, HUTCH_POLICY_LRU,
                                            HUTCH_POLICY_LFU, HUTCH_POLICY_FIFO};

TEST(an_opening_that_fails_leaves_nothing) {
  static const uint32_t kinds[] = {0, HUTCH_STORAGE_MIXED, HUTCH_STORAGE_LOG};
  int refused = 0;
  for (int i = 0; i < POLICIES + 2; i++) {
    int kind = i < POLICIES ? 0 : i - POLICIES + 1;
    hutch_options options = unlimited_options();
    options.policy = policies[i % POLICIES];
    options.flags |= HUTCH_OPEN_NO_THREADS;
    path directory = scratch("cache");
    const char *where = kind ? directory.text : NULL;
    if (kind) options.storage = kinds[kind];
    /* What the library keeps for the life of the process is there after the first one. */
    CHECK_OK(hutch_close(open_cache(where, &options)));
    bool was_reached = true;
    for (int step = 1; was_reached; step++) {
      hutch_cache *cache = NULL;
      long before = atomic_load(&all_blocks);
      until_zeroed_failure = step;
      hutch_status status = hutch_open(where, &options, &cache);
      was_reached = until_zeroed_failure == 0;
      until_zeroed_failure = 0;
      if (status == HUTCH_OK) CHECK_OK(hutch_close(cache));
      else CHECK_STATUS(HUTCH_NO_MEMORY, status);
      refused += status != HUTCH_OK;
      long left = atomic_load(&all_blocks);
      if (left != before) FAIL("step %d: %ld blocks are left, not %ld", step, left, before);
    }
    remove_tree(directory.text);
  }
  CHECK(refused > 30);
}

/* A change of policy that fails leaves shards with the former policy. A later change to a policy of
   that kind is another one. */
TEST(a_policy_is_changed_after_a_change_that_failed) {
  for (int i = 0; i < POLICIES; i++) {
    for (int step = 1, was_reached = 1; was_reached; step++) {
      hutch_options options = unlimited_options();
      hutch_options other = {.struct_size = sizeof other}, same = other;
      options.policy = same.policy = policies[i];
      other.policy = policies[(i + 1) % POLICIES];
      options.memory.count = 100;
      options.flags |= HUTCH_OPEN_NO_THREADS;
      hutch_cache *cache = open_cache(NULL, &options);
      for (int k = 0; k < 100; k++) CHECK_OK(hutch_put(cache, &k, sizeof k, "x", 1, NULL, NULL));
      spoils = true;
      until_zeroed_failure = step;
      hutch_status status = hutch_set_options(cache, &other);
      was_reached = until_zeroed_failure == 0;
      until_zeroed_failure = 0;
      if (status != HUTCH_OK) CHECK_STATUS(HUTCH_NO_MEMORY, status);
      CHECK_OK(hutch_set_options(cache, &same));
      for (int k = 50; k < 250; k++) CHECK_OK(hutch_put(cache, &k, sizeof k, "y", 1, NULL, NULL));
      CHECK_EQUAL(100, count_of(cache));
      for (int k = 150; k < 250; k++) hutch_contains(cache, &k, sizeof k);
      CHECK_OK(hutch_close(cache));
      spoils = false;
    }
  }
}

/* Entries without times are evicted for one with times, which then has no memory for them. */
TEST(a_put_without_memory_for_times_is_not_counted) {
  int refused = 0;
  for (int step = 1, was_reached = 1; was_reached; step++) {
    hutch_options options = unlimited_options();
    options.memory.count = 300;
    options.policy = HUTCH_POLICY_LRU;
    options.flags |= HUTCH_OPEN_NO_THREADS;
    hutch_cache *cache = open_cache(NULL, &options);
    for (int k = 0; k < 300; k++) CHECK_OK(hutch_put(cache, &k, sizeof k, "x", 1, NULL, NULL));
    hutch_put_options expiring = {.struct_size = sizeof expiring, .time_to_live = 3600000000000};
    uint64_t before = stats_of(cache).memory.puts;
    int key = 1000;
    until_zeroed_failure = step;
    hutch_status status = hutch_put(cache, &key, sizeof key, "y", 1, &expiring, NULL);
    was_reached = until_zeroed_failure == 0;
    until_zeroed_failure = 0;
    if (status != HUTCH_OK) CHECK_STATUS(HUTCH_NO_MEMORY, status);
    refused += status != HUTCH_OK;
    CHECK_EQUAL(before + (status == HUTCH_OK), stats_of(cache).memory.puts);
    CHECK_OK(hutch_close(cache));
  }
  CHECK(refused >= 2);
}
