/*
 * What another thread does between two steps of a call, at a step of this program's choosing.
 *
 * calloc, posix_memalign, free, fcntl and sqlite3_step are defined here, in the program, which the
 * dynamic linker asks first: so a call of the library stands still where it asks for memory or
 * frees it, takes its turn among processes or gives it up, or asks SQLite, until another thread has
 * done what it wants.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define STOPS_AGAIN true
#include "stops.h"

void *__libc_calloc(size_t count, size_t size);

/* Until this many more of this thread's; 0: never. */
static _Thread_local int left;
static void (*other_does)(hutch_cache *cache);
static hutch_cache *others_cache;

static void do_it(void *unused, int index) {
  (void)unused, (void)index;
  other_does(others_cache);
}

void *calloc(size_t count, size_t size) {
  if (left > 0 && --left == 0) run_threads(1, do_it, NULL);
  return __libc_calloc(count, size);
}

/* --------------------------------------------------------------------- frees */

enum { LARGE = 256 << 10 };

/* Called when this thread frees a value of size LARGE; NULL: not. */
static _Thread_local void (*at_free)(void);
void __libc_free(void *memory);

/* Blocks of entries go there too. */
BLOCKS_FROM_MALLOC

void free(void *memory) {
  if (at_free && memory && malloc_usable_size(memory) >= LARGE) at_free();
  __libc_free(memory);
}

static struct {
  hutch_cache *cache, *memory;
  const char *key;
  pthread_t thread;
  _Atomic bool is_done;
  int frees, late;
} freeing;

/* Takes the stripe of the key, and waits for no commit. */
static void *take_stripe(void *unused) {
  (void)unused;
  hutch_status status =
      freeing.memory == freeing.cache
          ? hutch_remove(freeing.cache, freeing.key, strlen(freeing.key))
          : hutch_touch(freeing.memory, freeing.key, strlen(freeing.key), HUTCH_SECOND * 100, 0);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  atomic_store(&freeing.is_done, true);
  return NULL;
}

/* Another thread writes the key meanwhile. That it has not done so after 5 s means that it waits
   for this thread. */
static void write_meanwhile(void) {
  void (*again)(void) = at_free;
  at_free = NULL;
  atomic_store(&freeing.is_done, false);
  CHECK_EQUAL(0, pthread_create(&freeing.thread, NULL, take_stripe, NULL));
  struct timespec now, begun;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  do {
    sched_yield();
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (!atomic_load(&freeing.is_done) && now.tv_sec - begun.tv_sec < 5);
  freeing.frees++;
  if (atomic_load(&freeing.is_done)) {
    pthread_join(freeing.thread, NULL);
    at_free = again;
  } else {
    freeing.late++;
  }
}

static void listen(void *context, const hutch_event *event) { (void)context, (void)event; }

static void put_large(const char *key) {
  static char large[LARGE];
  freeing.key = key;
  at_free = write_meanwhile;
  hutch_status status = hutch_put(freeing.cache, key, strlen(key), large, LARGE, NULL, NULL);
  at_free = NULL;
  if (freeing.late > 0 && !atomic_load(&freeing.is_done)) pthread_join(freeing.thread, NULL);
  CHECK_OK(status);
}

/* A free of a large value unmaps it: the other writers of the stripe do not wait for that. */
TEST(a_replaced_or_evicted_value_is_freed_while_others_can_write) {
  for (int kind = 0; kind < 3; kind++) {
    hutch_options options = unlimited_options();
    options.memory.cost = 3 * LARGE / 2;
    options.write_policy = kind == 2 ? HUTCH_WRITE_ON_EVICTION : HUTCH_WRITE_THROUGH;
    memset(&freeing, 0, sizeof freeing);
    freeing.cache = open_cache(kind == 0 ? NULL : scratch("cache").text, &options);
    freeing.memory = kind == 0 ? freeing.cache : tier_of(freeing.cache, HUTCH_TIER_MEMORY);
    CHECK_OK(hutch_set_listener(freeing.cache, HUTCH_EVENT_DID_ADD, listen, NULL, NULL));
    put_large("key");
    put_large("key");
    put_large("other");
    CHECK_EQUAL(0, freeing.late);
    CHECK(freeing.frees > 1 - (kind == 2));
    if (kind != 0) hutch_cache_release(freeing.memory);
    CHECK_OK(hutch_close(freeing.cache));
  }
}

/* --------------------------------------------------------------------- trims */

static void clear(hutch_cache *cache) { CHECK_OK(hutch_clear(cache)); }
static void remove_half(hutch_cache *cache) {
  for (uint32_t key = 0; key < 100; key += 2) CHECK_OK(hutch_remove(cache, &key, sizeof key));
}

/* A trim once asked twice for what is held: what it was to remove was less than nothing. */
TEST(others_remove_while_a_trim_begins) {
  static void (*const others[])(hutch_cache *cache) = {clear, remove_half};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &options);
  others_cache = cache;
  for (uint32_t kind = HUTCH_TRIM_TO_COST; kind <= HUTCH_TRIM_LEAST_FREQUENT; kind++) {
    for (int other = 0; other < 2; other++) {
      other_does = others[other];
      bool was_reached = true;
      for (int step = 1; was_reached; step++) {
        for (uint32_t key = 0; key < 100; key++) {
          hutch_put_options put = put_options();
          put.cost = 10 + key;
          CHECK_OK(hutch_put(cache, &key, sizeof key, "v", 1, &put, NULL));
        }
        hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind,
                                .amount = cost_of(cache) * 9 / 10};
        if (kind == HUTCH_TRIM_TO_COUNT) spec.amount = 90;
        left = step;
        CHECK_OK(hutch_trim(cache, &spec, NULL));
        was_reached = left == 0;
        left = 0;
        /* The trims by rank ask for memory, once or oftener. */
        CHECK(was_reached || step > 1 || kind < HUTCH_TRIM_LARGEST_FIRST);
        CHECK((kind == HUTCH_TRIM_TO_COUNT ? count_of(cache) : cost_of(cache)) <= spec.amount);
      }
    }
  }
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------ between memory and disk, where processes share */

static struct {
  hutch_cache *cache, *memory, *disk;
  int reads, stop_at, turns, missed;
  _Atomic bool stands, goes_on, is_done;
  _Atomic int taken;
} scene;

static void open_scene(void) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  scene.cache = open_cache(scratch("cache").text, &options);
  scene.memory = tier_of(scene.cache, HUTCH_TIER_MEMORY);
  scene.disk = tier_of(scene.cache, HUTCH_TIER_DISK);
}

static void close_scene(void) {
  hutch_cache_release(scene.memory);
  hutch_cache_release(scene.disk);
  CHECK_OK(hutch_close(scene.cache));
}

static void look(void *unused, int index) {
  (void)unused, (void)index;
  hutch_value *value = NULL;
  if (hutch_get(scene.cache, KEY("key"), &value) != HUTCH_OK) scene.missed++;
  hutch_value_release(value);
}

/* When the turn is taken the key is put into memory alone, which is not awaited; when it is given
   up a read must find it. */
static void put_and_look(void) {
  if (++scene.turns > 1) {
    run_threads(1, look, NULL);
    return;
  }
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_MEMORY;
  CHECK_OK(hutch_put_async(scene.cache, KEY("key"), KEY("new"), &options, NULL, NULL));
  char data[8];
  size_t size = 0;
  while (hutch_get_into(scene.memory, KEY("key"), data, sizeof data, &size) != HUTCH_OK ||
         memcmp(data, "new", 3) != 0)
    sched_yield();
}

TEST(what_is_put_into_memory_during_the_commit_of_a_touch_is_found_at_once) {
  open_scene();
  for (int round = 0; round < 3; round++) {
    scene.turns = 0;
    CHECK_OK(put_text(scene.cache, "key", "old"));
    at_turn = put_and_look;
    CHECK_OK(hutch_touch(scene.cache, KEY("key"), 100 * HUTCH_SECOND, 0));
    at_turn = NULL;
    CHECK(scene.turns > 1);
    CHECK_OK(hutch_flush(scene.cache));
    CHECK_TEXT(scene.cache, "key", "new");
  }
  CHECK_EQUAL(0, scene.missed);
  close_scene();
}

static void take(void) {
  hutch_value *value = NULL;
  hutch_status status = hutch_pop(scene.cache, KEY("key"), &value);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  if (status == HUTCH_OK) atomic_fetch_add(&scene.taken, 1);
  hutch_value_release(value);
}

static void count_read(void) { scene.reads++; }
static void end_count(void) { at_step = NULL; }

/* Submitted, and about to be committed. The other pop may ask SQLite less often than the pop that
   was counted, which took a read transaction of its own if maintenance had just ended the kept
   one: after 5 s this pop goes on without its word. */
static void await_word(void) {
  struct timespec now, begun;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  atomic_store(&scene.stands, true);
  do {
    sched_yield();
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (!atomic_load(&scene.goes_on) && now.tv_sec - begun.tv_sec < 5);
}

static void give_word(void) {
  if (--scene.stop_at != 0) return;
  atomic_store(&scene.goes_on, true);
  while (!atomic_load(&scene.is_done)) sched_yield();
}

static void take_it(void *unused, int index) {
  (void)unused;
  if (index == 0) {
    at_turn = await_word;
    take();
    at_turn = NULL;
    atomic_store(&scene.is_done, true);
    return;
  }
  while (!atomic_load(&scene.stands)) sched_yield();
  at_step = give_word;
  take();
  at_step = NULL;
}

/* One of them is carried out while the other reads, at each of its reads in turn. */
TEST(of_two_pops_one_takes_the_value) {
  open_scene();
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_DISK;
  for (int round = 0; round < 2; round++) {
    CHECK_OK(hutch_put(scene.cache, KEY("key"), KEY("value"), &options, NULL));
    scene.reads = 0;
    at_step = count_read;
    at_turn = end_count;
    take();
    at_turn = NULL;
  }
  CHECK(scene.reads > 1);
  for (int step = 1; step <= scene.reads; step++) {
    CHECK_OK(hutch_put(scene.cache, KEY("key"), KEY("value"), &options, NULL));
    scene.stop_at = step;
    atomic_store(&scene.taken, 0);
    atomic_store(&scene.stands, false);
    atomic_store(&scene.goes_on, false);
    atomic_store(&scene.is_done, false);
    run_threads(2, take_it, NULL);
    CHECK_EQUAL(1, atomic_load(&scene.taken));
  }
  close_scene();
}

/* ------------------------------------------------------- up, while the row is evicted */

static struct {
  hutch_cache *cache, *disk;
  _Atomic bool reads, read_goes_on, touches, touch_goes_on;
} rise;

static void stand_in_read(void) {
  atomic_store(&rise.reads, true);
  while (!atomic_load(&rise.read_goes_on)) sched_yield();
}

static void stand_in_touch(void) {
  atomic_store(&rise.touches, true);
  while (!atomic_load(&rise.touch_goes_on)) sched_yield();
}

static void read_rising(void) {
  at_step = stand_in_read;
  CHECK_OK(hutch_contains(rise.cache, KEY("key")));
  at_step = NULL;
}

/* Holds the stripe of the key until it may go on, and then finds nothing to touch. */
static void touch_rising(void) {
  while (!atomic_load(&rise.reads)) sched_yield();
  CHECK_TEXT(rise.cache, "key", "value");
  CHECK_OK(put_text(rise.disk, "other", "value"));
  at_step = stand_in_touch;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(rise.disk, KEY("key"), 0, 0));
  at_step = NULL;
}

/* The row leaves the disk. Memory is told when the stripe is free. */
static void evict_rising(void) {
  while (!atomic_load(&rise.touches)) sched_yield();
  hutch_cache_limits limits = {.struct_size = sizeof limits, no_limits(), no_limits()};
  limits.disk.count = 1;
  CHECK_OK(hutch_set_limits(rise.cache, &limits));
}

static void let_rise(void) {
  while (!atomic_load(&rise.touches)) sched_yield();
  while (hutch_contains(rise.disk, KEY("key")) == HUTCH_OK) sched_yield();
  atomic_store(&rise.read_goes_on, true);
  while (atomic_load(&rise.reads)) sched_yield();
  atomic_store(&rise.touch_goes_on, true);
}

static void rise_index(void *unused, int index) {
  (void)unused;
  static void (*const parts[])(void) = {read_rising, touch_rising, evict_rising, let_rise};
  parts[index]();
  if (index == 0) atomic_store(&rise.reads, false);
}

/* A look finds nothing in memory and stands before it asks the disk. Meanwhile a get brings the
   entry into memory, and the disk evicts the row. */
TEST(a_look_finds_an_entry_that_went_up_before_its_row_was_evicted) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  rise.cache = open_cache(scratch("cache").text, &options);
  rise.disk = tier_of(rise.cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(rise.disk, "key", "value"));
  run_threads(4, rise_index, NULL);
  CHECK_TEXT(rise.cache, "key", "value");
  hutch_cache_release(rise.disk);
  CHECK_OK(hutch_close(rise.cache));
}

/* ------------------------------------------- memory has changed, the store not yet */

static struct {
  hutch_cache *cache, *memory, *disk;
  test_clock clock;
  char key;
  hutch_status first, second; /* the answers of the two reads */
  _Atomic pid_t reader;
  _Atomic bool has_answered, is_seen;
  void (*call)(void);
  pthread_t thread;
} change;

/* Until this many more of this thread's objects have been made; 0: never. */
static _Thread_local int objects_left;
static void (*at_object)(void);

int posix_memalign(void **made, size_t alignment, size_t size) {
  if (objects_left > 0 && --objects_left == 0) at_object();
  *made = aligned_alloc(alignment, size);
  return *made ? 0 : ENOMEM;
}

/* Until this many more of this thread's locks have been asked for; 0: never. */
static _Thread_local int locks_left;
static void (*at_lock)(void);

int pthread_mutex_lock(pthread_mutex_t *lock) {
  static int (*real)(pthread_mutex_t *lock);
  if (!real) {
    void *found = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    memcpy(&real, &found, sizeof real);
  }
  if (locks_left > 0 && --locks_left == 0) at_lock();
  return real(lock);
}

static void read_first(void *unused, int index) {
  (void)unused, (void)index;
  change.first = hutch_contains(change.memory, &change.key, 1);
}

static void clear_memory(void *unused, int index) {
  (void)unused, (void)index;
  CHECK_OK(hutch_clear(change.memory));
}

static void read_second(void) {
  change.second = hutch_contains(change.cache, &change.key, 1);
}

static void *answer(void *unused) {
  /* Before the next `meanwhile`, which waits for the number. */
  void (*call)(void) = change.call;
  atomic_store(&change.reader, gettid());
  call();
  atomic_store(&change.has_answered, true);
  return unused;
}

/* Another thread makes a call, and has its answer, or waits for the thread that stands still. */
static void meanwhile(void (*call)(void)) {
  change.call = call;
  atomic_store(&change.is_seen, true);
  atomic_store(&change.reader, 0);
  atomic_store(&change.has_answered, false);
  CHECK_EQUAL(0, pthread_create(&change.thread, NULL, answer, NULL));
  while (!atomic_load(&change.has_answered) &&
         !(atomic_load(&change.reader) && sleeps(atomic_load(&change.reader))))
    sched_yield();
}

static void read_meanwhile(void) { meanwhile(read_second); }

/* If memory shows the new end of the entry, memory gives the entry up. */
static void see_touch(void) {
  atomic_store(&change.clock.now, atomic_load(&change.clock.now) + 2 * HUTCH_SECOND);
  run_threads(1, read_first, NULL);
  if (change.first != HUTCH_OK) return;
  run_threads(1, clear_memory, NULL);
  read_meanwhile();
}

static void touch_key(void) {
  CHECK_OK(hutch_touch(change.cache, &change.key, 1, 100 * HUTCH_SECOND, 0));
}

/* If memory has dropped the entry, the store has only an older one, which another directory had. */
static void see_removal(void) {
  run_threads(1, read_first, NULL);
  if (change.first != HUTCH_OK) read_meanwhile();
}

static void remove_key(void) { CHECK_OK(hutch_remove(change.cache, &change.key, 1)); }

/* Stands still at the n-th object of a call. False: it makes fewer. */
static bool stop_at(int n, void (*call)(void), void (*at)(void)) {
  atomic_store(&change.is_seen, false);
  at_object = at;
  objects_left = n;
  call();
  bool was_reached = objects_left == 0;
  objects_left = 0;
  if (atomic_load(&change.is_seen)) CHECK_EQUAL(0, pthread_join(change.thread, NULL));
  return was_reached;
}

/* As above, at the n-th lock. */
static bool stop_at_lock(int n, void (*call)(void), void (*at)(void)) {
  atomic_store(&change.is_seen, false);
  at_lock = at;
  locks_left = n;
  call();
  bool was_reached = locks_left == 0;
  locks_left = 0;
  if (atomic_load(&change.is_seen)) CHECK_EQUAL(0, pthread_join(change.thread, NULL));
  return was_reached;
}

static void open_change(const char *name, uint32_t write_policy) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_SQLITE;
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  options.flags = HUTCH_OPEN_NO_THREADS;
  options.write_policy = write_policy;
  memset(&change.clock, 0, sizeof change.clock);
  use_clock(&options, &change.clock);
  change.cache = open_cache(scratch(name).text, &options);
  change.memory = tier_of(change.cache, HUTCH_TIER_MEMORY);
  change.disk = tier_of(change.cache, HUTCH_TIER_DISK);
}

static void close_change(void) {
  hutch_cache_release(change.memory);
  hutch_cache_release(change.disk);
  CHECK_OK(hutch_close(change.cache));
}

TEST(the_new_end_of_a_touched_entry_stays_in_sight) {
  open_change("cache", HUTCH_WRITE_THROUGH);
  change.key = 'k';
  int seen = 0;
  bool was_reached = true;
  for (int n = 1; was_reached; n++) {
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_SECOND;
    CHECK_OK(hutch_put(change.cache, &change.key, 1, "v", 1, &put, NULL));
    was_reached = stop_at(n, touch_key, see_touch);
    if (!atomic_load(&change.is_seen)) continue;
    seen++;
    CHECK_STATUS(HUTCH_OK, change.second);
  }
  CHECK(seen > 0);
  close_change();
}

/* Of each key memory has a newer entry, which is to be written on eviction, than the directory that
   has come in the place of the cache's. Nothing has compared the two yet. */
static void bring_another_directory(void) {
  open_change("other", HUTCH_WRITE_ON_EVICTION);
  for (char key = 'a'; key <= 'z'; key++)
    CHECK_OK(hutch_put(change.disk, &key, 1, "o", 1, NULL, NULL));
  close_change();
  open_change("cache", HUTCH_WRITE_ON_EVICTION);
  for (char key = 'a'; key <= 'z'; key++)
    CHECK_OK(hutch_put(change.cache, &key, 1, "n", 1, NULL, NULL));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  CHECK_STATUS(HUTCH_TIER_DOWN, put_text(change.disk, "other", "value"));
  CHECK(rename(scratch("other").text, scratch("cache").text) == 0);
  /* A put tries a second after the last try. */
  while (put_text(change.disk, "other", "value") != HUTCH_OK) usleep(10000);
  CHECK_TEXT(change.disk, "a", "o");
  CHECK_TEXT(change.cache, "a", "n");
}

TEST(beneath_an_entry_that_is_removed_no_older_one_comes_to_light) {
  bring_another_directory();
  int seen = 0;
  bool was_reached = true;
  for (int n = 1; was_reached; n++) {
    CHECK(n <= 26);
    change.key = (char)('a' + n - 1);
    was_reached = stop_at(n, remove_key, see_removal);
    if (!atomic_load(&change.is_seen)) continue;
    seen++;
    CHECK_STATUS(HUTCH_NOT_FOUND, change.second);
  }
  CHECK(seen > 0);
  close_change();
}

/* ----------------------------------------- the store has decided, memory has not followed */

static struct {
  hutch_cache *cache, *memory, *disk;
  _Atomic uint64_t newest;
  _Atomic int late;
} decision;

static void note_order(void *unused, const hutch_event *event) {
  (void)unused;
  if (event->key_size != strlen("key")) return;
  if (event->kind == HUTCH_EVENT_DID_ADD) atomic_store(&decision.newest, event->version);
  else if (event->version < atomic_load(&decision.newest)) atomic_fetch_add(&decision.late, 1);
}

static void remove_copy(void) {
  hutch_status status = hutch_remove(decision.memory, KEY("key"));
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
}

static void remove_meanwhile(void) { meanwhile(remove_copy); }

static void replace_key(void) {
  CHECK_OK(hutch_replace(decision.cache, KEY("key"), KEY("new"), NULL, NULL));
}

/* A put that the store decides stands still before each lock that it takes, until another thread
   has removed the older entry from memory, or waits to do so once the put is submitted. */
TEST(a_removal_from_memory_is_told_before_the_put_that_is_being_decided) {
  hutch_options options = unlimited_options();
  options.storage = HUTCH_STORAGE_SQLITE;
  options.sharing = HUTCH_SHARING_SHARED;
  options.flags = HUTCH_OPEN_NO_THREADS;
  decision.cache = open_cache(scratch("cache").text, &options);
  decision.memory = tier_of(decision.cache, HUTCH_TIER_MEMORY);
  CHECK_OK(hutch_set_listener(decision.cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE,
                              note_order, NULL, NULL));
  int n = 0;
  for (bool was_reached = true; was_reached;) {
    CHECK_OK(put_text(decision.cache, "key", "old"));
    was_reached = stop_at_lock(++n, replace_key, remove_meanwhile);
    CHECK_TEXT(decision.cache, "key", "new");
  }
  CHECK(n > 10);
  CHECK_OK(hutch_set_listener(decision.cache, 0, NULL, NULL, NULL));
  hutch_cache_release(decision.memory);
  CHECK_OK(hutch_close(decision.cache));
  CHECK_EQUAL(0, atomic_load(&decision.late));
}

/* ------------------------------------------ a commit has evicted a row, and has not told of it */

static void put_over_evicted(void) { CHECK_OK(put_text(decision.cache, "key", "new")); }

static void put_over_meanwhile(void) { meanwhile(put_over_evicted); }

static void put_in_its_place(void) { CHECK_OK(put_text(decision.disk, "other", "value")); }

/* A put on disk that evicts an entry stands still before each lock that it takes, until another
   thread has put a newer entry, which is to be written on eviction, or waits to do so. */
TEST(an_eviction_on_disk_is_told_before_a_put_that_finds_nothing_there) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  options.disk.count = 1;
  options.flags = HUTCH_OPEN_NO_THREADS;
  decision.cache = open_cache(scratch("cache").text, &options);
  decision.disk = tier_of(decision.cache, HUTCH_TIER_DISK);
  decision.late = 0;
  CHECK_OK(hutch_set_listener(decision.cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE,
                              note_order, NULL, NULL));
  int n = 0;
  for (bool was_reached = true; was_reached;) {
    CHECK_OK(put_text(decision.disk, "key", "old"));
    was_reached = stop_at_lock(++n, put_in_its_place, put_over_meanwhile);
    if (was_reached) CHECK_TEXT(decision.cache, "key", "new");
    CHECK_STATUS(was_reached ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_remove(decision.cache, KEY("key")));
  }
  CHECK(n > 5);
  CHECK_OK(hutch_set_listener(decision.cache, 0, NULL, NULL, NULL));
  hutch_cache_release(decision.disk);
  CHECK_OK(hutch_close(decision.cache));
  CHECK_EQUAL(0, atomic_load(&decision.late));
}

/* -------------------------------------- from memory to the disk, where processes share */

static void put_below(void) {
  CHECK_OK(hutch_put(scene.disk, KEY("key"), KEY("below"), NULL, NULL));
}

static void put_below_meanwhile(void) { meanwhile(put_below); }

static void touch_scene(void) {
  CHECK_OK(hutch_touch(scene.cache, KEY("key"), 100 * HUTCH_SECOND, 0));
}

/* A touch stands still before each lock that it takes, until another thread has put the key on disk
   alone, or waits to do so. */
TEST(a_touch_finds_an_entry_that_a_put_takes_from_memory_to_the_disk) {
  open_scene();
  int n = 0;
  for (bool was_reached = true; was_reached;) {
    CHECK_OK(hutch_put(scene.memory, KEY("key"), KEY("above"), NULL, NULL));
    was_reached = stop_at_lock(++n, touch_scene, put_below_meanwhile);
  }
  CHECK(n > 1);
  close_scene();
}

static void look_once(void) { run_threads(1, look, NULL); }

/* This thread or `replace_with_below` commits both. */
static void put_above(void) {
  at_turn = look_once;
  CHECK_OK(hutch_put(scene.memory, KEY("key"), KEY("above"), NULL, NULL));
}

static void replace_with_below(void) {
  at_turn = look_once;
  hutch_put_options options = put_options();
  options.write_policy = HUTCH_WRITE_DISK;
  CHECK_OK(hutch_replace(scene.cache, KEY("key"), KEY("below"), &options, NULL));
}

static pthread_t putters[3];
static _Atomic int ended_turns;

/* While another transaction is under way. */
static void submit_both(void) {
  if (scene.turns++ > 0) return;
  meanwhile(put_above);
  putters[0] = change.thread;
  while (hutch_contains(scene.memory, KEY("key")) != HUTCH_OK) sched_yield();
  meanwhile(replace_with_below);
  putters[1] = change.thread;
}

/* At the end of their turn both are committed, and memory has not followed. */
TEST(an_entry_stays_in_sight_that_one_transaction_takes_from_memory_to_the_disk) {
  open_scene();
  for (int round = 0; round < 3; round++) {
    hutch_remove(scene.cache, KEY("key"));
    scene.turns = 0;
    at_step = submit_both;
    CHECK_OK(put_text(scene.cache, "other", "value"));
    at_step = NULL;
    CHECK(scene.turns > 1);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(0, pthread_join(putters[i], NULL));
    CHECK_TEXT(scene.cache, "key", "below");
  }
  CHECK_EQUAL(0, scene.missed);
  close_scene();
}

/* At the end of the turn in which the replace is carried out. */
static void put_below_at_end(void) {
  if (atomic_fetch_add(&ended_turns, 1) == 1) meanwhile(put_below);
}

static void touch_first(void) {
  at_turn = put_below_at_end;
  touch_scene();
}

static void put_second(void) {
  at_turn = put_below_at_end;
  CHECK_OK(hutch_put(scene.memory, KEY("key"), KEY("above"), NULL, NULL));
}

static void replace_third(void) {
  at_turn = put_below_at_end;
  CHECK_OK(hutch_replace(scene.cache, KEY("key"), KEY("third"), NULL, NULL));
}

static void submit_three(void) {
  if (scene.turns++ > 0) return;
  meanwhile(touch_first);
  putters[0] = change.thread;
  meanwhile(put_second);
  putters[1] = change.thread;
  while (hutch_contains(scene.memory, KEY("key")) != HUTCH_OK) sched_yield();
  meanwhile(replace_third);
  putters[2] = change.thread;
}

/* After the touch memory's entry counts under another number than the replace knows. */
TEST(a_replace_finds_an_entry_that_a_put_takes_from_memory_to_the_disk) {
  open_scene();
  CHECK_OK(put_text(scene.cache, "key", "old"));
  CHECK_OK(hutch_clear(scene.memory));
  at_step = submit_three;
  CHECK_OK(put_text(scene.cache, "other", "value"));
  at_step = NULL;
  CHECK(scene.turns > 1);
  for (int i = 0; i < 3; i++) CHECK_EQUAL(0, pthread_join(putters[i], NULL));
  CHECK_EQUAL(0, pthread_join(change.thread, NULL));
  close_scene();
}

enum { SMALL_ENTRIES = 20, SMALL_COST = 10 };
static test_clock rising_clock;
static pid_t toucher;

/* Until the touch is committed, or waits for this thread. */
static void stand_in_put(void) {
  atomic_store(&change.has_answered, true);
  while (atomic_load(&ended_turns) < 2 && !sleeps(toucher)) sched_yield();
}

static bool has_stood;

static void put_in_the_place_of_many(void) {
  hutch_put_options options = put_options();
  options.cost = (SMALL_ENTRIES - 3) * SMALL_COST;
  locks_left = scene.stop_at;
  at_lock = stand_in_put;
  at_turn = look_once;
  CHECK_OK(hutch_put(scene.memory, KEY("key"), KEY("new"), &options, NULL));
  has_stood = locks_left == 0;
  locks_left = 0;
}

static void put_in_first_turn(void) {
  if (atomic_fetch_add(&ended_turns, 1) == 0) meanwhile(put_in_the_place_of_many);
}

static void fill_memory(void) {
  hutch_put_options options = put_options();
  options.cost = SMALL_COST;
  options.time_to_idle = HUTCH_HOUR;
  for (int pass = 0; pass < 2; pass++) {
    for (uint8_t key = 0; key < SMALL_ENTRIES; key++) {
      hutch_value *value = NULL;
      if (pass == 0) CHECK_OK(hutch_put(scene.memory, &key, 1, "v", 1, &options, NULL));
      else if (hutch_get(scene.memory, &key, 1, &value) == HUTCH_OK) hutch_value_release(value);
    }
    atomic_fetch_add(&rising_clock.now, HUTCH_SECOND);
  }
}

/* A put into memory stands still before each lock that it takes, until a touch of the older entry
   is committed. It evicts so many entries that it takes locks before it has its place in memory. */
TEST(what_is_put_into_memory_is_found_though_an_older_commit_ends_meanwhile) {
  hutch_options options = unlimited_options();
  options.sharing = HUTCH_SHARING_SHARED;
  options.memory.cost = SMALL_ENTRIES * SMALL_COST;
  options.flags = HUTCH_OPEN_NO_THREADS;
  use_clock(&options, &rising_clock);
  scene.cache = open_cache(scratch("cache").text, &options);
  scene.memory = tier_of(scene.cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(scene.cache, HUTCH_TIER_DISK);
  toucher = gettid();
  scene.missed = 0;
  has_stood = true;
  for (scene.stop_at = 1; has_stood; scene.stop_at++) {
    CHECK_OK(hutch_put(disk, KEY("key"), KEY("old"), NULL, NULL));
    fill_memory();
    atomic_store(&ended_turns, 0);
    at_turn = put_in_first_turn;
    CHECK_OK(hutch_touch(scene.cache, KEY("key"), 100 * HUTCH_SECOND, 0));
    at_turn = NULL;
    CHECK_EQUAL(0, pthread_join(change.thread, NULL));
    CHECK_TEXT(scene.cache, "key", "new");
  }
  CHECK(scene.stop_at > 10);
  CHECK_EQUAL(0, scene.missed);
  hutch_cache_release(disk);
  close_scene();
}

/* --------------------------------------------------------- walks that take their time */

static int64_t monotonic(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* A walk that took 10 ms is not repeated for a while. */
static void dawdle(void) {
  int64_t begun = monotonic();
  while (monotonic() - begun < 11000000) sched_yield();
}

TEST(a_count_by_a_hosts_clock_is_exact_however_long_the_walk_before_took) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  hutch_put_options put = put_options();
  for (char key = 'a'; key < 'e'; key++) {
    put.time_to_idle = (key - 'a' + 1) * 10 * HUTCH_SECOND;
    CHECK_OK(hutch_put(disk, &key, 1, "v", 1, &put, NULL));
  }
  for (uint64_t left = 3; left < 4; left--) {
    atomic_fetch_add(&clock.now, 10 * HUTCH_SECOND);
    at_step = dawdle;
    uint64_t count = count_of(cache);
    at_step = NULL;
    CHECK_EQUAL(left, count);
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------- a directory that comes back */

static int steps;
static void count_step(void) { steps++; }

/* Memory has to learn which of its entries the directory has; no put waits for that. */
TEST(a_put_that_finds_the_directory_back_looks_up_its_own_key_alone) {
  enum { ENTRIES = 2000 };
  hutch_options options = unlimited_options();
  options.flags = HUTCH_OPEN_NO_THREADS;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  for (uint32_t key = 0; key < ENTRIES; key++)
    CHECK_OK(hutch_put(cache, &key, sizeof key, "v", 1, NULL, NULL));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  let_notice(cache);
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "meanwhile", "value"));
  CHECK(rename(scratch("away").text, scratch("cache").text) == 0);
  /* A put tries a second after the last try. */
  hutch_put_result result = new_result();
  do {
    steps = 0;
    at_step = count_step;
    hutch_status status = hutch_put(cache, KEY("key"), KEY("value"), NULL, &result);
    at_step = NULL;
    CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL);
    usleep(10000);
  } while (result.disk != HUTCH_OUTCOME_STORED);
  CHECK(steps < 200);
  /* A count is exact at once: one entry is in memory alone. */
  CHECK_EQUAL(ENTRIES + 2, count_of(cache));
  CHECK_EQUAL(ENTRIES + 1, count_of(disk));
  /* A clear of the disk tier takes the copies along and leaves that entry. */
  CHECK_OK(hutch_clear(disk));
  CHECK_EQUAL(1, count_of(cache));
  CHECK_TEXT(cache, "meanwhile", "value");
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------------- openings */

static path slow, other;
static bool has_opened_the_other;

static void open_the_other(void *unused, int index) {
  (void)unused, (void)index;
  hutch_cache *cache = open_cache(other.text, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
}

static void open_meanwhile(void) {
  if (has_opened_the_other) return;
  has_opened_the_other = true;
  /* On a thread for which the one that opens waits. */
  run_threads(1, open_the_other, NULL);
  /* This one would wait for itself. */
  hutch_cache *again = NULL;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_open(slow.text, NULL, &again));
  CHECK(!again);
}

TEST(another_directory_does_not_wait_for_a_slow_opening) {
  slow = scratch("cache");
  other = scratch("other");
  at_step = open_meanwhile;
  hutch_cache *cache = open_cache(slow.text, NULL);
  at_step = NULL;
  CHECK(has_opened_the_other);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- limits */

static hutch_cache *limited;
static int looks;

static void look_at_limits(void *unused, int index) {
  (void)unused, (void)index;
  hutch_cache *memory = tier_of(limited, HUTCH_TIER_MEMORY);
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  hutch_cache_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(hutch_limits(limited, &limits));
  CHECK_OK(hutch_info(memory, KEY("newest"), &info));
  CHECK_OK(hutch_stats(limited, &stats));
  hutch_cache_release(memory);
}

static void look_meanwhile(void) {
  looks++;
  run_threads(1, look_at_limits, NULL);
}

/* A look does not wait for the commit of what the new limits evict: this thread stands still in
   that commit until the look has ended. */
TEST(looks_do_not_wait_for_the_evictions_of_new_limits) {
  limited = open_cache(scratch("cache").text, NULL);
  for (uint32_t key = 0; key < 50; key++)
    CHECK_OK(hutch_put(limited, &key, sizeof key, &key, sizeof key, NULL, NULL));
  CHECK_OK(put_text(limited, "newest", "value"));
  hutch_cache_limits fewer = {.struct_size = sizeof fewer, .disk.count = 10};
  at_step = look_meanwhile;
  CHECK_OK(hutch_set_limits(limited, &fewer));
  at_step = NULL;
  CHECK(looks > 0);
  CHECK_OK(hutch_close(limited));
}
