/* Forks amid what threads and other processes do, and what memory owes to the disk at a fork. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child whose fork came late (see fork_amid) may have no disk tier, or nothing. */
static bool is_excused(bool late, hutch_status status) {
  return late && (status == HUTCH_PARTIAL || status == HUTCH_FORKED);
}

static void put_in_child(hutch_cache *cache, bool late) {
  uint32_t key = 77;
  hutch_status status = hutch_put(cache, &key, sizeof key, "of a child", 10, NULL, NULL);
  if (is_excused(late, status)) return;
  CHECK_STATUS(HUTCH_OK, status);
  CHECK_OK(hutch_contains(cache, &key, sizeof key));
}

/* ----------------------------------------------------------------- threads */

typedef struct crowd {
  hutch_cache *cache, *memory;
  hutch_queue *queue;
  _Atomic uint32_t rounds[7], worked;
  _Atomic bool stops;
} crowd;

static hutch_status work(void *context, hutch_task *task) {
  (void)task;
  atomic_fetch_add(&((crowd *)context)->worked, 1);
  return HUTCH_OK;
}

/* A sanitizer makes a fork ten times as long: there a quarter of them, for what it may see. */
enum { FORKS = SANITIZED_BY == 1 ? 60 : 15 };

static void fork_often(crowd *c) {
  for (int i = 0; i < FORKS * scale(); i++) {
    bool late;
    pid_t child = fork_amid(&late);
    if (child == 0) {
      put_in_child(c->cache, late);
      put_in_child(c->memory, late);
      end_child();
    }
    await_child(child);
  }
  atomic_store(&c->stops, true);
}

static void disturb(void *context, int index) {
  crowd *c = context;
  if (index == 0) {
    fork_often(c);
    return;
  }
  static char large[30000];
  hutch_options options = unlimited_options();
  char other[32];
  snprintf(other, sizeof other, "other-%d", index);
  for (uint32_t n = 0; !atomic_load(&c->stops); n++) {
    uint32_t key = n % 500 + 1000 * (uint32_t)index;
    hutch_value *value = NULL;
    switch (index) {
    case 1:
      CHECK_OK(hutch_put(c->cache, &key, sizeof key, large, n % 7 ? 50 : sizeof large, NULL, NULL));
      break;
    case 2:
      if (hutch_get(c->cache, &(uint32_t){1000 + n % 500}, sizeof key, &value) == HUTCH_OK)
        hutch_value_release(value);
      CHECK_OK(hutch_put(c->memory, &key, sizeof key, large, 50, NULL, NULL));
      break;
    case 3: {
      hutch_cursor *cursor;
      const void *name;
      size_t size;
      CHECK_OK(hutch_cursor_create(c->cache, &cursor));
      for (int i = 0; i < 20 && hutch_cursor_next(cursor, &name, &size) == HUTCH_OK; i++) {}
      hutch_cursor_release(cursor);
      hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
      CHECK_OK(hutch_trim(c->cache, &spec, NULL));
      break;
    }
    case 4: {
      hutch_loading *loading = NULL;
      hutch_status status = hutch_load_begin(c->cache, &key, sizeof key, NULL, &value, &loading);
      if (status == HUTCH_NOT_FOUND) CHECK_OK(hutch_loading_fulfil(loading, "made", 4, NULL));
      hutch_loading_release(loading);
      hutch_value_release(value);
      CHECK_OK(hutch_put_async(c->cache, &key, sizeof key, "later", 5, NULL, NULL, NULL));
      if (n % 50 == 0) CHECK_OK(hutch_wait_all(c->cache, HUTCH_FOREVER));
      break;
    }
    case 5:
      CHECK_OK(hutch_queue_submit(c->queue, work, c, NULL, NULL, NULL));
      if (n % 50 == 0) CHECK_OK(hutch_queue_wait_all(c->queue, HUTCH_FOREVER));
      if (n % 10 == 0) CHECK_OK(hutch_flush(c->cache));
      break;
    default: {
      /* A child may have it still. */
      hutch_cache *own;
      hutch_status status;
      while ((status = hutch_open(scratch(other).text, &options, &own)) == HUTCH_BUSY)
        nap();
      CHECK_OK(status);
      CHECK_OK(put_text(own, "key", "value"));
      CHECK_OK(hutch_close(own));
      own = open_cache(NULL, &options);
      CHECK_OK(put_text(own, "key", "value"));
      CHECK_OK(hutch_close(own));
    }
    }
    atomic_fetch_add(&c->rounds[index], 1);
  }
}

TEST(trap_27_forks_amid_all_that_threads_do) {
  static crowd c;
  hutch_options options = unlimited_options();
  c.cache = open_cache(scratch("cache").text, &options);
  c.memory = open_cache(NULL, &options);
  CHECK_OK(hutch_queue_create(NULL, &c.queue));
  run_threads(7, disturb, &c);
  CHECK_OK(hutch_wait_all(c.cache, HUTCH_FOREVER));
  CHECK_OK(hutch_queue_wait_all(c.queue, HUTCH_FOREVER));
  CHECK_EQUAL(c.rounds[5], c.worked);
  CHECK_SOUND(c.cache);
  hutch_queue_release(c.queue);
  CHECK_OK(hutch_close(c.memory));
  CHECK_OK(hutch_close(c.cache));
}

/* ------------------------------------------------------------------- check */

typedef struct checked {
  hutch_cache *cache;
  _Atomic bool stops;
} checked;

static void put_large(hutch_cache *cache, uint32_t who, uint32_t n) {
  uint32_t key[2] = {who, n % 30};
  char *data = filled(n % 3 ? 30000 : 100, n % 30);
  CHECK_OK(hutch_put(cache, key, sizeof key, data, n % 3 ? 30000 : 100, NULL, NULL));
  free(data);
}

static void check_amid(void *context, int index) {
  checked *c = context;
  if (index == 1)
    while (!atomic_load(&c->stops)) CHECK_SOUND(c->cache);
  if (index == 2)
    for (uint32_t n = 0; !atomic_load(&c->stops); n++) put_large(c->cache, 0, n);
  if (index > 0) return;
  for (uint32_t i = 1; i <= FORKS / 3; i++) {
    bool late;
    pid_t child = fork_amid(&late);
    if (child == 0) {
      hutch_status status = put_text(c->cache, "child", "value");
      if (is_excused(late, status)) end_child();
      CHECK_STATUS(HUTCH_OK, status);
      for (uint32_t n = 0; n < 30; n++) put_large(c->cache, i, n);
      CHECK_SOUND(c->cache);
      if (i % 2) CHECK_OK(hutch_close(c->cache));
      end_child();
    }
    await_child(child);
  }
  atomic_store(&c->stops, true);
}

TEST(a_check_of_everything_goes_with_a_fork_and_finds_nothing) {
  static checked c;
  hutch_options options = unlimited_options();
  c.cache = open_cache(scratch("cache").text, &options);
  run_threads(3, check_amid, &c);
  CHECK_OK(hutch_close(c.cache));
  c.cache = open_cache(scratch("cache").text, &options);
  CHECK_SOUND(c.cache);
  CHECK_OK(hutch_close(c.cache));
}

/* --------------------------------------------------- what is not waited for */

/* Threads within callbacks that do not return before the fork has, and others that wait for them. */
typedef struct waiting {
  hutch_cache *cache, *disk;
  int begun[2], go_on[2];
  _Atomic bool waits;
} waiting;

static void wait_within(void *context) {
  waiting *w = context;
  char byte;
  if (!atomic_exchange(&w->waits, false)) return;
  CHECK(write(w->begun[1], "", 1) == 1);
  CHECK(read(w->go_on[0], &byte, 1) == 1);
}

static hutch_status load_and_wait(void *context, const void *key, size_t size,
                                  hutch_loading *loading) {
  (void)key, (void)size;
  wait_within(context);
  return hutch_loading_fulfil(loading, "made", 4, NULL);
}
static void hear_and_wait(void *context, const hutch_event *event) {
  (void)event;
  wait_within(context);
}
static hutch_status copy_and_wait(void *context, const void *input, size_t size,
                                  hutch_buffer *output) {
  wait_within(context);
  void *room = hutch_buffer_resize(output, size);
  CHECK(room || size == 0);
  memcpy(room, input, size);
  return HUTCH_OK;
}
static int32_t report_and_wait(void *context, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  wait_within(context);
  return 0;
}

/* A fork while a thread waits. The child has both tiers. */
static void fork_while_they_wait(waiting *w) {
  char byte;
  CHECK(read(w->begun[0], &byte, 1) == 1);
  pid_t child = fork_now();
  if (child == 0) {
    hutch_value *value = NULL;
    CHECK_OK(put_text(w->cache, "child", "value"));
    CHECK_TEXT(w->disk, "child", "value");
    CHECK_TEXT(w->disk, "there", "value");
    CHECK_OK(hutch_load(w->cache, KEY("load"), load_and_wait, w, NULL, &value));
    hutch_value_release(value);
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
    CHECK_OK(hutch_trim(w->cache, &spec, NULL));
    hutch_cache_release(w->disk);
    CHECK_OK(hutch_close(w->cache));
    end_child();
  }
  await_child(child);
  CHECK(write(w->go_on[1], "", 1) == 1);
  CHECK_TEXT(w->disk, "child", "value");
}

static void load_twice(void *context, int index) {
  waiting *w = context;
  if (index == 2) {
    fork_while_they_wait(w);
    return;
  }
  hutch_value *value = NULL;
  CHECK_OK(hutch_load(w->cache, KEY("load"), load_and_wait, w, NULL, &value));
  CHECK_BYTES("made", 4, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
}
static void put_twice(void *context, int index) {
  waiting *w = context;
  if (index == 2) fork_while_they_wait(w);
  else CHECK_OK(put_text(w->cache, "key", "value"));
}
static void put_once(void *context, int index) {
  waiting *w = context;
  if (index == 1) fork_while_they_wait(w);
  else CHECK_OK(put_text(w->cache, "key", "value"));
}
static void put_many(void *context, int index) {
  waiting *w = context;
  if (index == 1) {
    fork_while_they_wait(w);
    return;
  }
  const void *keys[] = {"a", "b", "c"}, *values[] = {"1", "2", "3"};
  const size_t sizes[] = {1, 1, 1};
  hutch_batch *batch = NULL;
  CHECK_OK(hutch_put_many(w->cache, keys, sizes, values, sizes, 3, NULL, &batch));
  hutch_batch_release(batch);
  CHECK_TEXT(w->disk, "a", "1");
  CHECK_TEXT(w->disk, "c", "3");
}
static void get_once(void *context, int index) {
  waiting *w = context;
  if (index == 1) fork_while_they_wait(w);
  else CHECK_TEXT(w->disk, "there", "value");
}
static void trim_once(void *context, int index) {
  waiting *w = context;
  if (index == 1) {
    fork_while_they_wait(w);
    return;
  }
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_LARGER_THAN, .amount = 500,
                          .progress = report_and_wait, .context = w};
  CHECK_OK(hutch_trim(w->cache, &spec, NULL));
}

static void wait_in(waiting *w, int threads, void (*body)(void *, int)) {
  CHECK_OK(put_size(w->cache, "large", 1000));
  w->waits = true;
  run_threads(threads, body, w);
  CHECK(!w->waits);
}

TEST(a_fork_waits_for_no_callback) {
  static waiting w;
  hutch_options options = unlimited_options();
  options.codec_id = 7;
  options.codec_encode = options.codec_decode = copy_and_wait;
  options.codec_context = &w;
  CHECK(pipe(w.begun) == 0 && pipe(w.go_on) == 0);
  w.cache = open_cache(scratch("cache").text, &options);
  w.disk = tier_of(w.cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(w.cache, "there", "value"));
  wait_in(&w, 2, put_once);
  wait_in(&w, 2, put_many);
  wait_in(&w, 2, get_once);
  wait_in(&w, 3, load_twice);
  wait_in(&w, 2, trim_once);
  const uint32_t kinds[] = {HUTCH_EVENT_WILL_ADD, HUTCH_EVENT_DID_ADD};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hutch_set_listener(w.cache, kinds[i], hear_and_wait, &w, NULL));
    wait_in(&w, 2, put_once);
    wait_in(&w, 2, put_many);
    wait_in(&w, 3, put_twice);
  }
  CHECK_SOUND(w.cache);
  hutch_cache_release(w.disk);
  CHECK_OK(hutch_close(w.cache));
}

/* ------------------------------------------------------- what memory owes */

enum { OWED = 500 };

TEST(what_memory_owes_is_written_once) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  uint64_t versions[OWED];
  for (uint32_t k = 0; k < OWED; k++) {
    hutch_put_result result = new_result();
    CHECK_OK(hutch_put(cache, &k, sizeof k, &k, sizeof k, NULL, &result));
    CHECK_EQUAL(HUTCH_OUTCOME_DEFERRED, result.disk);
    versions[k] = result.version;
  }
  CHECK_EQUAL(0, stats_of(cache).disk.puts);
  for (int times = 0; times < 3; times++) {
    pid_t child = fork_now();
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    uint64_t puts = stats_of(cache).disk.puts;
    CHECK_EQUAL(OWED, puts);
    for (uint32_t k = 0; k < OWED; k++) {
      hutch_entry_info info = {.struct_size = sizeof info};
      CHECK_OK(hutch_info(disk, &k, sizeof k, &info));
      CHECK_EQUAL(versions[k], info.version);
    }
    CHECK_OK(hutch_flush(cache));
    CHECK_EQUAL(puts, stats_of(cache).disk.puts);
    hutch_cache_release(disk);
    if (child > 0) {
      await_child(child);
      continue;
    }
    hutch_put_result result = new_result();
    CHECK_OK(hutch_put(cache, KEY("own"), "value", 5, NULL, &result));
    CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
    CHECK_OK(hutch_remove(cache, KEY("own")));
    if (times > 0) CHECK_OK(hutch_close(cache));
    end_child();
  }
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(OWED, count_of(cache));
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}

enum { OWING = 3, OWN = 40 };

/* Threads put on eviction, into a memory that has room for few: `put` is the newest that each has
   put. A child has a copy of it, and with it what a get must have, or something newer. */
typedef struct owing {
  hutch_cache *cache;
  _Atomic uint64_t put[OWING][OWN];
  _Atomic bool stops;
} owing;

static void check_owed(owing *o, bool exactly) {
  for (uint32_t t = 0; t < OWING; t++)
    for (uint32_t k = 0; k < OWN; k++) {
      uint64_t least = atomic_load(&o->put[t][k]), found;
      uint32_t key[2] = {t, k};
      if (!least) continue;
      hutch_value *value = NULL;
      CHECK_OK(hutch_get(o->cache, key, sizeof key, &value));
      memcpy(&found, hutch_value_data(value), sizeof found);
      CHECK(exactly ? found == least : found >= least);
      hutch_value_release(value);
    }
}

static void owe_amid(void *context, int index) {
  owing *o = context;
  if (index < OWING) {
    char data[2000] = "";
    for (uint64_t n = 1; !atomic_load(&o->stops); n++) {
      uint32_t key[2] = {(uint32_t)index, n % OWN};
      memcpy(data, &n, sizeof n);
      CHECK_OK(hutch_put(o->cache, key, sizeof key, data, sizeof data, NULL, NULL));
      atomic_store(&o->put[index][n % OWN], n);
    }
    return;
  }
  for (int i = 0; i < FORKS * 2 / 3; i++) {
    bool late;
    pid_t child = fork_amid(&late);
    if (child == 0) {
      if (is_excused(late, put_text(o->cache, "child", "value"))) end_child();
      check_owed(o, false);
      if (i % 2) CHECK_OK(hutch_close(o->cache));
      end_child();
    }
    await_child(child);
  }
  atomic_store(&o->stops, true);
}

TEST(what_memory_owes_is_not_lost_by_forks_amid_puts) {
  static owing o;
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  options.memory.cost = 100000;
  o.cache = open_cache(scratch("cache").text, &options);
  run_threads(OWING + 1, owe_amid, &o);
  check_owed(&o, true);
  CHECK_OK(hutch_close(o.cache));
  o.cache = open_cache(scratch("cache").text, &options);
  check_owed(&o, true);
  CHECK_SOUND(o.cache);
  CHECK_OK(hutch_close(o.cache));
}

/* ------------------------------------------------- among those that write */

TEST(a_fork_has_its_turn_among_those_that_write) {
  enum { OTHERS = 4 };
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  _Atomic uint32_t *written = shared_memory(4096);
  pid_t others[OTHERS];
  for (int i = 0; i < OTHERS; i++) {
    others[i] = fork_now();
    if (others[i]) continue;
    for (uint32_t n = 0;; n++) {
      CHECK_OK(hutch_put(cache, &n, sizeof n, "value", 5, NULL, NULL));
      atomic_fetch_add(&written[i], 1);
    }
  }
  for (int i = 0; i < OTHERS; i++)
    while (!atomic_load(&written[i])) nap();
  int in_time = 0;
  for (int i = 0; i < FORKS / 3; i++) {
    bool late;
    pid_t child = fork_amid(&late);
    if (child == 0) {
      put_in_child(cache, late);
      end_child();
    }
    await_child(child);
    in_time += !late;
  }
  CHECK(in_time > 0);
  for (int i = 0; i < OTHERS; i++) kill(others[i], SIGKILL);
  for (int i = 0; i < OTHERS; i++) CHECK(waitpid(others[i], NULL, 0) == others[i]);
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
}
