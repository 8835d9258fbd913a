/* What the events say of every entry: it comes into a tier once, it leaves the tier once, and the
   events of a key come in the order of its versions. Threads make random calls on few keys in
   small caches: for one key, for many, and as tasks. At rest the tiers have what the events say,
   and as many entries were told to be removed as calls have removed. A run prints its seed, and
   HUTCH_SEED gives every thread the same calls again. */
#include "check.h"

enum { KEYS = 24, THREADS = 4, ROUNDS = 3, CALLS = 1200, LOG = 24, OWN = 64 };

/* A key, by its events. */
typedef struct fate {
  pthread_mutex_t lock;
  uint64_t newest;               /* version that was added */
  uint64_t in_memory, on_disk;   /* 0: none; a get may have brought another into memory */
  uint64_t was_on_disk;          /* the last one that the disk had */
  uint64_t own[OWN];             /* beside another process: versions that were added last */
  unsigned added;
  char log[LOG][64];
  unsigned count;
} fate;

typedef struct world {
  hutch_cache *cache, *memory, *disk;
  test_clock clock;
  bool has_disk; /* else all three handles are the cache's */
  bool shares;
  fate fates[KEYS];
  _Atomic uint64_t removed, told_removed;
  _Atomic int under_way; /* tasks */
  uint64_t seed;
} world;

static _Noreturn void accuse(fate *f, int key, const char *words) {
  fprintf(stderr, "key %d: newest %ju, in memory %ju, on disk %ju\n", key, (uintmax_t)f->newest,
          (uintmax_t)f->in_memory, (uintmax_t)f->on_disk);
  for (unsigned i = f->count > LOG ? f->count - LOG : 0; i < f->count; i++)
    fprintf(stderr, "  %s\n", f->log[i % LOG]);
  FAIL("%s", words);
}

static void note_event(fate *f, const hutch_event *event) {
  snprintf(f->log[f->count++ % LOG], sizeof *f->log, "%s %ju, tiers %u, cause %u",
           event->kind == HUTCH_EVENT_DID_ADD ? "added" : "gone", (uintmax_t)event->version,
           event->tiers, event->cause);
}

static void hear(void *context, const hutch_event *event) {
  world *w = context;
  if (!event->key) return;
  int key = *(const uint8_t *)event->key;
  fate *f = &w->fates[key];
  uint64_t v = event->version;
  pthread_mutex_lock(&f->lock);
  note_event(f, event);
  if (event->kind == HUTCH_EVENT_DID_ADD) {
    if (event->cause == HUTCH_CAUSE_WRITTEN_BACK ? v != f->newest : v <= f->newest)
      accuse(f, key, "an entry was added out of order");
    if (event->tiers & HUTCH_TIER_DISK) {
      if (f->on_disk) accuse(f, key, "the disk had an older entry");
      f->on_disk = f->was_on_disk = v;
    }
    if (event->tiers & HUTCH_TIER_MEMORY) {
      if (f->in_memory) accuse(f, key, "memory had an older entry");
      f->in_memory = v;
    }
    f->newest = v;
  } else {
    if (v != f->newest) accuse(f, key, "an entry has gone out of order");
    if (event->tiers & HUTCH_TIER_DISK) {
      if (v != f->on_disk) accuse(f, key, "the disk did not have it");
      f->on_disk = 0;
    }
    if (event->tiers & HUTCH_TIER_MEMORY) {
      if (f->in_memory ? v != f->in_memory : v != f->was_on_disk)
        accuse(f, key, "memory did not have it");
      f->in_memory = 0;
    }
    if (event->cause == HUTCH_CAUSE_REMOVED) atomic_fetch_add(&w->told_removed, 1);
  }
  pthread_mutex_unlock(&f->lock);
}

/* Beside a process that writes the same keys. That process's entries are told when they go, with
   versions from anywhere. The own ones come once, and what is told of them is in their order. */
static void hear_own(void *context, const hutch_event *event) {
  world *w = context;
  if (!event->key) return;
  int key = *(const uint8_t *)event->key;
  fate *f = &w->fates[key];
  uint64_t v = event->version;
  bool comes = event->kind == HUTCH_EVENT_DID_ADD;
  bool is_own = comes;
  pthread_mutex_lock(&f->lock);
  note_event(f, event);
  for (int i = 0; i < OWN && !is_own; i++) is_own = f->own[i] == v;
  if (is_own) {
    if (comes ? v <= f->newest : v < f->newest) accuse(f, key, "an own entry is out of order");
    f->newest = v;
    if (event->tiers & HUTCH_TIER_MEMORY) {
      if (comes ? f->in_memory != 0 : f->in_memory != 0 && f->in_memory != v)
        accuse(f, key, "memory had another entry");
      f->in_memory = comes ? v : 0;
    }
  }
  if (comes) f->own[f->added++ % OWN] = v;
  pthread_mutex_unlock(&f->lock);
}

/* An answer of a removal. */
static void note_removal(world *w, hutch_status status) {
  if (status == HUTCH_OK) atomic_fetch_add(&w->removed, 1);
  else CHECK_EQUAL(HUTCH_NOT_FOUND, status);
}

static void end_removal(void *context, const hutch_completion *completion) {
  world *w = context;
  if (completion->status != HUTCH_SUPERSEDED) note_removal(w, completion->status);
  atomic_fetch_sub(&w->under_way, 1);
}

static void end_put(void *context, const hutch_completion *completion) {
  CHECK(completion->status != HUTCH_CANCELLED);
  atomic_fetch_sub(&((world *)context)->under_way, 1);
}

static void play(void *context, int index) {
  world *w = context;
  static const char bytes[5000];
  uint64_t state = w->seed + (uint64_t)index * 1000;
  for (int i = 0; i < CALLS / SANITIZED_BY * scale(); i++) {
    uint64_t r = next_random(&state);
    uint8_t key = (uint8_t)(r % KEYS);
    unsigned what = (unsigned)(r >> 8) % 100;
    hutch_cache *cache = (r >> 16) % 8 ? w->cache : (r >> 20) % 2 ? w->memory : w->disk;
    hutch_put_options put = put_options();
    hutch_value *value = NULL;
    hutch_status status;
    uint64_t count = 0;
    if (what < 40) {
      size_t size = (r >> 24) % 16 ? (r >> 28) % 300 : (r >> 28) % sizeof bytes;
      if ((r >> 40) % 4 == 0) put.time_to_live = (int64_t)((r >> 42) % 4 + 1) * HUTCH_SECOND;
      put.tag = "tag";
      put.tag_size = (r >> 44) % 2 * 3;
      unsigned how = (unsigned)(r >> 45) % 8;
      if (how < 2) {
        status = hutch_add(cache, &key, 1, bytes, size, &put, NULL);
      } else if (how < 4) {
        status = hutch_replace(cache, &key, 1, bytes, size, &put, NULL);
      } else if (how < 5) {
        hutch_task_options options = {.struct_size = sizeof options, .complete = end_put,
                                      .context = w};
        atomic_fetch_add(&w->under_way, 1);
        status = hutch_put_async(cache, &key, 1, bytes, size, &put, &options, NULL);
      } else {
        status = hutch_put(cache, &key, 1, bytes, size, &put, NULL);
      }
      CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL || status == HUTCH_TOO_LARGE ||
            status == HUTCH_EXISTS || status == HUTCH_NOT_FOUND);
    } else if (what < 62) {
      status = hutch_get(cache, &key, 1, &value);
      CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    } else if (what < 72) {
      note_removal(w, hutch_remove(cache, &key, 1));
    } else if (what < 74) {
      hutch_task_options options = {.struct_size = sizeof options, .complete = end_removal,
                                    .context = w};
      atomic_fetch_add(&w->under_way, 1);
      CHECK_OK(hutch_remove_async(cache, &key, 1, &options, NULL));
    } else if (what < 75) {
      uint8_t keys[4] = {key, (uint8_t)((r >> 24) % KEYS), (uint8_t)((r >> 32) % KEYS),
                         (uint8_t)((r >> 40) % KEYS)};
      const void *const at[4] = {&keys[0], &keys[1], &keys[2], &keys[3]};
      const void *const values[4] = {bytes, bytes, bytes, bytes};
      const size_t sizes[4] = {1, 1, 1, 1};
      hutch_batch *batch = NULL;
      if ((r >> 50) % 2) {
        CHECK_OK(hutch_put_many(cache, at, sizes, values, sizes, 4, NULL, &batch));
      } else {
        CHECK_OK(hutch_remove_many(cache, at, sizes, 4, &batch));
        for (size_t n = 0; n < 4; n++) note_removal(w, hutch_batch_status(batch, n));
      }
      hutch_batch_release(batch);
    } else if (what < 76) {
      int64_t sum;
      status = hutch_increment(cache, &key, 1, 1, 0, NULL, &sum);
      CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL || status == HUTCH_WRONG_TYPE);
    } else if (what < 77) {
      hutch_entry_info info = {.struct_size = sizeof info};
      if (hutch_info(cache, &key, 1, &info) == HUTCH_OK) {
        status = hutch_compare_and_swap(cache, &key, 1, info.version, bytes, 8, &put, NULL);
        CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL || status == HUTCH_CONFLICT ||
              status == HUTCH_NOT_FOUND);
      }
    } else if (what < 82) {
      note_removal(w, hutch_pop(cache, &key, 1, &value));
    } else if (what < 88) {
      status = hutch_touch(cache, &key, 1, (int64_t)((r >> 42) % 4) * HUTCH_SECOND, 0);
      CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    } else if (what < 90) {
      hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
      spec.amount = (r >> 24) % 4;
      CHECK_OK(hutch_trim((r >> 30) % 2 ? w->memory : w->disk, &spec, NULL));
    } else if (what < 91) {
      CHECK_OK(hutch_clear(w->memory));
    } else if (what < 92) {
      CHECK_OK(hutch_remove_tagged(cache, "tag", 3, &count));
      atomic_fetch_add(&w->removed, count);
    } else if (what < 94 && w->has_disk) {
      hutch_cache_limits limits = {.struct_size = sizeof limits};
      CHECK_OK(hutch_limits(w->cache, &limits));
      limits.disk.max_entry = (r >> 24) % 2 ? 300 : HUTCH_NO_LIMIT;
      CHECK_OK(hutch_set_limits(w->cache, &limits));
    } else if (what < 96) {
      CHECK_OK(hutch_flush(w->cache));
    } else if (what < 97) {
      CHECK_OK(hutch_maintain(w->cache, 0));
    } else {
      atomic_fetch_add(&w->clock.now, HUTCH_SECOND / 2);
    }
    hutch_value_release(value);
  }
}

/* Puts and replacements of one key, in both tiers and in one, with few other calls. The store
   decides a replacement before memory carries it out: others may come between. */
static void replace_one(void *context, int index) {
  world *w = context;
  static const uint8_t key = 0;
  uint64_t state = w->seed + (uint64_t)index * 1000;
  for (int i = 0; i < CALLS / SANITIZED_BY * scale(); i++) {
    uint64_t r = next_random(&state);
    unsigned what = (unsigned)(r >> 8) % 16;
    hutch_cache *cache = (r >> 16) % 2 ? w->cache : (r >> 20) % 4 ? w->disk : w->memory;
    hutch_status status;
    hutch_value *value = NULL;
    if (what < 6) {
      status = hutch_put(cache, &key, 1, &r, sizeof r, NULL, NULL);
    } else if (what < 13) {
      status = hutch_replace(cache, &key, 1, &r, sizeof r, NULL, NULL);
    } else if (what < 14) {
      status = hutch_pop(cache, &key, 1, &value);
      note_removal(w, status);
    } else {
      status = hutch_get(cache, &key, 1, &value);
    }
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
    hutch_value_release(value);
  }
}

static uint64_t version_in(hutch_cache *view, uint8_t key) {
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_status status = hutch_info(view, &key, 1, &info);
  if (status == HUTCH_NOT_FOUND) return 0;
  CHECK_OK(status);
  return info.version;
}

static void await_tasks(world *w) {
  while (atomic_load(&w->under_way) > 0) CHECK_OK(hutch_maintain(w->cache, 0));
}

static void check_rest(world *w) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  await_tasks(w);
  CHECK_OK(hutch_flush(w->cache));
  CHECK_OK(hutch_trim(w->cache, &spec, NULL));
  for (uint8_t key = 0; key < KEYS; key++) {
    fate *f = &w->fates[key];
    uint64_t in_memory = version_in(w->memory, key);
    uint64_t on_disk = w->has_disk ? version_in(w->disk, key) : 0;
    if (on_disk != f->on_disk) accuse(f, key, "the disk has another entry than the events say");
    /* A copy of memory that counts no more is told of when it goes. */
    if (f->in_memory ? in_memory != f->in_memory && (in_memory || !w->shares)
                     : in_memory && in_memory != f->was_on_disk)
      accuse(f, key, "memory has another entry than the events say");
  }
  /* Where processes share, an entry that memory alone has may leave it between the decision of a
     removal and the end of that call: then it is told as what made it leave. */
  if (!w->shares) CHECK_EQUAL(w->removed, w->told_removed);
}

typedef void player(void *context, int index);

static void open_world(world *w, const char *directory, uint32_t policy, uint32_t sharing,
                       uint32_t order) {
  for (int i = 0; i < KEYS; i++) pthread_mutex_init(&w->fates[i].lock, NULL);
  w->has_disk = directory != NULL;
  w->shares = sharing == HUTCH_SHARING_SHARED;
  hutch_options options = unlimited_options();
  use_clock(&options, &w->clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  if (w->has_disk) options.write_policy = policy;
  options.sharing = sharing;
  options.policy = order;
  options.memory.count = 5;
  options.memory.max_entry = 4000;
  options.disk.count = 9;
  w->cache = open_cache(directory, &options);
  w->memory = w->has_disk ? tier_of(w->cache, HUTCH_TIER_MEMORY) : hutch_cache_retain(w->cache);
  w->disk = w->has_disk ? tier_of(w->cache, HUTCH_TIER_DISK) : hutch_cache_retain(w->cache);
}

static void listen(world *w, hutch_listener listener) {
  CHECK_OK(hutch_set_listener(w->cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE, listener, w,
                              NULL));
}

static void close_world(world *w) {
  CHECK_OK(hutch_set_listener(w->cache, 0, NULL, NULL, NULL));
  hutch_cache_release(w->memory);
  hutch_cache_release(w->disk);
  CHECK_OK(hutch_close(w->cache));
}

static void run(bool has_disk, uint32_t policy, uint32_t sharing, uint32_t order, player *play) {
  world w = {.seed = seed()};
  open_world(&w, has_disk ? scratch("cache").text : NULL, policy, sharing, order);
  listen(&w, hear);
  for (int round = 0; round < ROUNDS; round++) {
    run_threads(THREADS, play, &w);
    check_rest(&w);
    w.seed++;
  }
  close_world(&w);
}

/* ------------------------------------------------- beside another process */

static void open_shared(world *w, const char *directory) {
  open_world(w, directory, HUTCH_WRITE_THROUGH, HUTCH_SHARING_SHARED, HUTCH_POLICY_ADAPTIVE);
}

static _Atomic bool has_to_end;
static void *await_the_end(void *unused) {
  (void)unused;
  await_end();
  has_to_end = true;
  return NULL;
}

static void write_too(const char *directory, player *play) {
  world w = {.seed = seed()};
  pthread_t waiter;
  open_shared(&w, directory);
  tell_ready();
  CHECK(pthread_create(&waiter, NULL, await_the_end, NULL) == 0);
  for (; !has_to_end; w.seed++) run_threads(1, play, &w);
  pthread_join(waiter, NULL);
  await_tasks(&w);
  close_world(&w);
}

PROCESS(writes_all, directory) { write_too(directory, play); }
PROCESS(writes_one, directory) { write_too(directory, replace_one); }

static void run_beside(const char *other, player *play) {
  world w = {.seed = seed()};
  path directory = scratch("cache");
  /* Before it, as each changes the limits. */
  open_shared(&w, directory.text);
  listen(&w, hear_own);
  process child = start_process(other, directory.text);
  await_ready(&child);
  run_threads(THREADS, play, &w);
  await_tasks(&w);
  CHECK_EQUAL(0, end_process(&child));
  CHECK_SOUND(w.cache);
  close_world(&w);
}

TEST(of_entries_in_memory) {
  run(false, HUTCH_WRITE_MEMORY, HUTCH_SHARING_EXCLUSIVE, HUTCH_POLICY_LRU, play);
}
TEST(of_entries_that_are_written_through) {
  run(true, HUTCH_WRITE_THROUGH, HUTCH_SHARING_EXCLUSIVE, HUTCH_POLICY_LRU, play);
}
TEST(of_entries_that_are_written_on_eviction) {
  run(true, HUTCH_WRITE_ON_EVICTION, HUTCH_SHARING_EXCLUSIVE, HUTCH_POLICY_LRU, play);
}
TEST(of_entries_where_processes_may_share) {
  run(true, HUTCH_WRITE_THROUGH, HUTCH_SHARING_SHARED, HUTCH_POLICY_ADAPTIVE, play);
}
TEST(of_one_entry_where_processes_may_share) {
  run(true, HUTCH_WRITE_THROUGH, HUTCH_SHARING_SHARED, HUTCH_POLICY_ADAPTIVE, replace_one);
}
TEST(of_entries_that_another_process_writes_too) { run_beside("writes_all", play); }
TEST(of_one_entry_that_another_process_writes_too) { run_beside("writes_one", replace_one); }
