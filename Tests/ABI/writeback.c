/* Writing on eviction: what such puts store where, what becomes of them when memory lets them go,
   and that no moment misses one. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static hutch_options deferring_options(void) {
  hutch_options options = unlimited_options();
  options.write_policy = HUTCH_WRITE_ON_EVICTION;
  return options;
}

static hutch_put_options deferred(void) {
  hutch_put_options put = put_options();
  put.write_policy = HUTCH_WRITE_ON_EVICTION;
  return put;
}

static hutch_cache *open_deferring(void) {
  hutch_options options = deferring_options();
  return open_cache(scratch("cache").text, &options);
}

/* -------------------------------------------------------------------- puts */

TEST(a_deferred_put_is_in_memory_and_what_the_disk_had_is_gone) {
  hutch_options options = default_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = deferred();
  hutch_put_result result = new_result();
  CHECK_OK(put_text(cache, "a", "old"));
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("new"), &put, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_DEFERRED, result.disk);
  check_where(cache, "a", true, false);
  CHECK_TEXT(cache, "a", "new");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(HUTCH_TIER_MEMORY, info_of(cache, "a").tier);
  CHECK_OK(hutch_flush(cache));
  check_where(cache, "a", true, true);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, NULL);
  CHECK_TEXT(cache, "a", "new");
  CHECK_OK(hutch_close(cache));
}

/* Between the end of the entry's life and the write, no other call has asked the host's clock. */
TEST(what_has_expired_by_the_hosts_clock_is_not_written) {
  enum { FLUSH, CLOSE, LIMITS, NOTIFY, CALLS };
  for (int call = 0; call < CALLS; call++) {
    test_clock clock = {0};
    hutch_options options = deferring_options();
    options.memory.time_to_live = 9 * HUTCH_SECOND;
    use_clock(&options, &clock);
    hutch_cache *cache = open_cache(scratch("cache").text, &options);
    hutch_cache_limits limits = {.struct_size = sizeof limits, .memory.count = 9};
    CHECK_OK(put_text(cache, "key", "value"));
    clock.now += 10 * HUTCH_SECOND;
    switch (call) {
    case FLUSH: CHECK_OK(hutch_flush(cache)); break;
    case CLOSE: CHECK_OK(hutch_close(cache)); break;
    case LIMITS: CHECK_OK(hutch_set_limits(cache, &limits)); break;
    case NOTIFY: CHECK_OK(hutch_notify(cache, HUTCH_NOTIFY_MEMORY_WARNING)); break;
    }
    if (call == CLOSE) cache = open_cache(scratch("cache").text, &options);
    CHECK_MISSING(cache, "key");
    CHECK_OK(hutch_close(cache));
  }
}

/* The older entry is written after the newer one, and lives by the disk tier's time to live. */
TEST(a_count_by_a_hosts_clock_is_exact_of_entries_that_were_written_out_of_their_order) {
  test_clock clock = {0};
  hutch_options options = deferring_options();
  options.disk.time_to_live = 2 * HUTCH_SECOND;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_text(cache, "older", "value"));
  clock.now += HUTCH_SECOND / 2;
  CHECK_OK(put_text(disk, "newer", "value"));
  CHECK_OK(hutch_flush(cache));
  CHECK_EQUAL(2, count_of(disk));
  clock.now += HUTCH_SECOND * 3 / 2;
  CHECK_MISSING(disk, "older");
  CHECK_EQUAL(1, count_of(disk));
  check_where(cache, "newer", false, true);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(a_close_writes_what_was_deferred) {
  hutch_cache *cache = open_deferring();
  for (int i = 0; i < 300; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_OK(put_text(cache, key, key));
  }
  check_where(cache, "7", true, false);
  CHECK_OK(hutch_close(cache));
  cache = open_deferring();
  CHECK_EQUAL(300, count_of(cache));
  CHECK_TEXT(cache, "7", "7");
  CHECK_OK(hutch_close(cache));
}

TEST(an_eviction_writes_the_whole_record) {
  test_clock clock = {0};
  hutch_options options = deferring_options();
  options.policy = HUTCH_POLICY_LRU;
  options.memory.count = 2;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = put_options();
  put.time_to_live = 100 * HUTCH_SECOND;
  put.time_to_idle = 50 * HUTCH_SECOND;
  put.cost = 77;
  put.extended = "more";
  put.extended_size = 4;
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("value"), &put, &result));
  hutch_entry_info before = info_of(cache, "a");
  CHECK_OK(put_text(cache, "b", "b"));
  CHECK_OK(put_text(cache, "c", "c"));
  check_where(cache, "a", false, true);
  hutch_entry_info after = info_of(cache, "a");
  CHECK_EQUAL(HUTCH_TIER_DISK, after.tier);
  CHECK_EQUAL(result.version, after.version);
  CHECK_EQUAL(before.created, after.created);
  CHECK_EQUAL(before.expires, after.expires);
  CHECK_EQUAL(before.time_to_idle, after.time_to_idle);
  CHECK_EQUAL(77, after.cost);
  CHECK_EQUAL(4, after.extended_size);
  CHECK_EQUAL(before.checksum, after.checksum);
  CHECK_EQUAL(3, count_of(cache));
  CHECK_OK(hutch_flush(cache));
  CHECK_EQUAL(3, count_of(cache));
  after = info_of(cache, "a");
  CHECK_EQUAL(result.version, after.version);
  CHECK_EQUAL(before.expires, after.expires);
  CHECK_EQUAL(77, after.cost);
  CHECK_OK(hutch_close(cache));
}

TEST(an_eviction_takes_the_time_of_the_last_read_along) {
  test_clock clock = {0};
  hutch_options options = deferring_options();
  options.policy = HUTCH_POLICY_LRU;
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.memory.count = 2;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = put_options();
  put.time_to_idle = 10 * HUTCH_SECOND;
  for (int flushes = 0; flushes < 2; flushes++) {
    CHECK_OK(hutch_put(cache, KEY("a"), KEY("value"), &put, NULL));
    clock.now += 8 * HUTCH_SECOND;
    CHECK_TEXT(cache, "a", "value");
    /* The write-back comes later than the read, and by either way. */
    clock.now += HUTCH_SECOND;
    if (flushes) CHECK_OK(hutch_flush(cache));
    CHECK_OK(put_text(cache, "b", "b"));
    CHECK_OK(put_text(cache, "c", "c"));
    CHECK_OK(hutch_maintain(cache, 0));
    check_where(cache, "a", false, true);
    clock.now += 8 * HUTCH_SECOND;
    CHECK_EQUAL(3, count_of(cache));
    CHECK_TEXT(cache, "a", "value");
    clock.now += 11 * HUTCH_SECOND;
    CHECK_MISSING(cache, "a");
    CHECK_OK(hutch_clear(cache));
  }
  CHECK_OK(hutch_close(cache));
}

/* The charge of an entry that expires is higher. */
TEST(a_touch_that_makes_a_deferred_entry_too_large_for_memory_keeps_it) {
  test_clock clock = {0};
  hutch_options options = deferring_options();
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("value"), NULL, &result));
  hutch_cache_limits limits = {sizeof limits, no_limits(), no_limits()};
  limits.memory.max_entry = stats_of(cache).memory.cost;
  CHECK_OK(hutch_set_limits(cache, &limits));
  check_where(cache, "a", true, true);
  /* Put again, so that memory owes it. */
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("other"), NULL, &result));
  check_where(cache, "a", true, false);
  CHECK_OK(hutch_touch(cache, KEY("a"), 100 * HUTCH_SECOND, 0));
  check_where(cache, "a", false, true);
  hutch_entry_info info = info_of(cache, "a");
  CHECK_EQUAL(result.version, info.version);
  CHECK_EQUAL(info.created + 100 * HUTCH_SECOND, info.expires);
  CHECK_TEXT(cache, "a", "other");
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  CHECK_TEXT(cache, "a", "other");
  CHECK_OK(hutch_close(cache));
}

/* The limits shrink when a put has made its plan, and before memory has its value. */
typedef struct shrinking {
  hutch_cache *cache;
  char told[8];
  size_t count;
} shrinking;

static void shrink(void *context, const hutch_event *event) {
  shrinking *s = context;
  if (event->kind == HUTCH_EVENT_WILL_ADD) {
    hutch_cache_limits limits = {.struct_size = sizeof limits};
    limits.memory.max_entry = 1000;
    CHECK_OK(hutch_set_limits(s->cache, &limits));
  } else if (s->count < sizeof s->told) {
    s->told[s->count++] = (char)(event->kind == HUTCH_EVENT_DID_REMOVE       ? '-'
                                 : event->tiers == HUTCH_TIER_MEMORY     ? 'm'
                                                                             : 'd');
  }
}

static void check_size(hutch_cache *cache, const char *key, size_t size) {
  hutch_value *value = get_value(cache, key);
  CHECK_EQUAL(size, hutch_value_size(value));
  hutch_value_release(value);
}

TEST(a_value_that_memory_refuses_since_its_limits_have_shrunk_goes_on_disk) {
  hutch_cache *cache = open_deferring();
  CHECK_OK(put_text(cache, "a", "old"));
  shrinking s = {.cache = cache};
  uint32_t kinds = HUTCH_EVENT_WILL_ADD | HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE;
  CHECK_OK(hutch_set_listener(cache, kinds, shrink, &s, NULL));
  CHECK_OK(put_size(cache, "a", 50000));
  CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
  check_size(cache, "a", 50000);
  /* The old one is written back, for the limits, and replaced. */
  CHECK_BYTES("d-md-", 5, s.told, s.count);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_OK(hutch_flush(cache));
  check_where(cache, "a", false, true);
  CHECK_OK(hutch_close(cache));
  cache = open_deferring();
  check_size(cache, "a", 50000);
  CHECK_OK(hutch_close(cache));
}

TEST(many_evictions_lose_nothing) {
  hutch_options options = deferring_options();
  /* What a thread of the library's is just writing is counted on both sides. */
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.memory.count = 100;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  for (int i = 0; i < 5000; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_OK(put_text(cache, key, key));
    CHECK_EQUAL(i + 1, count_of(cache));
  }
  for (int i = 0; i < 5000; i++) {
    char key[16];
    sprintf(key, "%d", i);
    CHECK_TEXT(cache, key, key);
  }
  CHECK_OK(hutch_close(cache));
  cache = open_cache(scratch("cache").text, &options);
  CHECK_EQUAL(5000, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* ----------------------------------------------------------------- threads */

/* Each thread has keys of its own, so it knows what it put last; gets of the others' keys must
   find some version that was put. Far fewer fit into memory than there are. */
enum { THREADS = 4, KEYS_EACH = 150, IN_MEMORY_AT_ONCE = 40 };

typedef struct hammered {
  hutch_cache *cache;
  uint64_t seed;
  int rounds;
  /* What each key's owner has put last, and is putting. */
  _Atomic uint32_t completed[THREADS][KEYS_EACH], begun[THREADS][KEYS_EACH];
} hammered;

static void check_read(hammered *h, int owner, int k) {
  char key[32];
  sprintf(key, "%d %d", owner, k);
  uint32_t least = atomic_load(&h->completed[owner][k]), value[50];
  size_t size = 0;
  hutch_status status = hutch_get_into(h->cache, KEY(key), value, sizeof value, &size);
  uint32_t most = atomic_load(&h->begun[owner][k]);
  if (status == HUTCH_NOT_FOUND && least == 0) return;
  if (status != HUTCH_OK) FAIL("seed %llu: %s answers %s after put %u", (unsigned long long)h->seed,
                               key, hutch_status_name(status), least);
  if (value[0] < least || value[0] > most)
    FAIL("seed %llu: %s is %u, put was %u, is being %u", (unsigned long long)h->seed, key, value[0],
         least, most);
}

static void hammer(void *context, int index) {
  hammered *h = context;
  uint64_t random = h->seed + (uint64_t)index;
  uint32_t value[50] = {0};
  const uint32_t policies[] = {HUTCH_WRITE_ON_EVICTION, HUTCH_WRITE_ON_EVICTION,
                               HUTCH_WRITE_ON_EVICTION, HUTCH_WRITE_THROUGH, HUTCH_WRITE_DISK};
  for (int round = 0; round < h->rounds; round++) {
    uint64_t r = next_random(&random);
    int k = (int)(r % KEYS_EACH);
    char key[32];
    sprintf(key, "%d %d", index, k);
    switch ((r >> 32) % 8) {
      case 0: case 1: case 2: case 3: {
        hutch_put_options put = put_options();
        put.write_policy = policies[(r >> 40) % 5];
        value[0] = atomic_load(&h->completed[index][k]) + 1;
        atomic_store(&h->begun[index][k], value[0]);
        CHECK_OK(hutch_put(h->cache, KEY(key), value, 4 + (r >> 48) % 190, &put, NULL));
        atomic_store(&h->completed[index][k], value[0]);
        break;
      }
      case 4:
        if (atomic_load(&h->completed[index][k])) CHECK_OK(hutch_touch(h->cache, KEY(key), 0, 0));
        break;
      case 5:
        check_read(h, index, k);
        break;
      default:
        check_read(h, (int)((r >> 16) % THREADS), k);
    }
    if (index == 0 && round % 500 == 499) {
      hutch_cache *memory = tier_of(h->cache, HUTCH_TIER_MEMORY);
      switch (round / 500 % 4) {
        case 0: CHECK_OK(hutch_flush(h->cache)); break;
        case 1: CHECK_OK(hutch_clear(memory)); break;
        case 2: CHECK_OK(hutch_notify(h->cache, HUTCH_NOTIFY_MEMORY_WARNING)); break;
        default: hutch_remove(memory, KEY(key));
      }
      hutch_cache_release(memory);
    }
  }
}

TEST(no_get_misses_an_entry_on_its_way_from_memory_to_disk) {
  const uint32_t policies[] = {HUTCH_POLICY_ADAPTIVE, HUTCH_POLICY_LRU};
  for (int i = 0; i < 2; i++) {
    hutch_options options = deferring_options();
    options.memory.count = IN_MEMORY_AT_ONCE;
    options.policy = policies[i];
    options.inline_threshold = 100;
    hammered h = {.seed = seed(), .rounds = repeats(1500)};
    char name[8];
    sprintf(name, "%d", i);
    h.cache = open_cache(scratch(name).text, &options);
    run_threads(THREADS, hammer, &h);
    uint64_t expected = 0;
    for (int t = 0; t < THREADS; t++)
      for (int k = 0; k < KEYS_EACH; k++) {
        check_read(&h, t, k);
        if (h.completed[t][k]) expected++;
      }
    CHECK_OK(hutch_flush(h.cache));
    CHECK_EQUAL(expected, count_of(h.cache));
    CHECK_OK(hutch_close(h.cache));
    h.cache = open_cache(scratch(name).text, &options);
    CHECK_EQUAL(expected, count_of(h.cache));
    for (int t = 0; t < THREADS; t++)
      for (int k = 0; k < KEYS_EACH; k++) check_read(&h, t, k);
    CHECK_OK(hutch_close(h.cache));
  }
}

/* ------------------------------------------------------------------- model */

/* Random calls against an array. Nothing is lost but what was put into memory alone: such an
   entry may be gone, and then it stays gone. */
enum { MODEL_KEYS = 24 };

typedef struct model_entry {
  bool there, may_go;
  uint64_t version, number;
  size_t size;
  int64_t expires; /* 0: never */
} model_entry;

typedef struct model {
  hutch_options options;
  test_clock clock;
  hutch_cache *cache;
  path directory;
  uint64_t seed, random, number;
  model_entry entries[MODEL_KEYS];
  uint32_t storage, policy;
} model;

#define SAYS(m, condition) \
  ((condition) ? (void)0   \
               : FAIL("seed %llu policy %u storage %u: %s", (unsigned long long)(m)->seed, (m)->policy, (m)->storage, #condition))

static uint64_t pick(model *m, uint64_t below) { return next_random(&m->random) % below; }

static const char *name_of(int k) {
  static _Thread_local char name[16];
  sprintf(name, "key %d", k);
  return name;
}

static model_entry *current(model *m, int k) {
  model_entry *e = &m->entries[k];
  if (e->there && e->expires && m->clock.now >= e->expires) e->there = false;
  return e;
}

/* Values are a counter's, or filled from the number. */
static size_t value_of(const model_entry *e, uint8_t *value) {
  if (e->size == 8) {
    memcpy(value, &e->number, 8);
  } else {
    fill(value, e->size, e->number);
  }
  return e->size;
}

/* What get said of a key; NULL: nothing. */
static void check_said(model *m, int k, const void *value, size_t size, uint64_t version) {
  model_entry *e = current(m, k);
  if (!value) {
    if (e->may_go) e->there = false;
    SAYS(m, !e->there);
    return;
  }
  SAYS(m, e->there);
  uint8_t expected[4096];
  SAYS(m, value_of(e, expected) == size && memcmp(expected, value, size) == 0);
  if (version) SAYS(m, version == e->version);
}

static void check_key(model *m, int k) {
  hutch_value *value = NULL;
  hutch_status status = hutch_get(m->cache, KEY(name_of(k)), &value);
  SAYS(m, status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  if (value) {
    check_said(m, k, hutch_value_data(value), hutch_value_size(value), info_of_value(value).version);
  } else {
    check_said(m, k, NULL, 0, 0);
  }
  hutch_value_release(value);
}

static void check_all(model *m) {
  uint64_t count = 0, lasting = 0, seen = 0;
  for (int k = 0; k < MODEL_KEYS; k++) check_key(m, k);
  /* A get that brought one into memory may have put out another that memory alone had. */
  for (int k = 0; k < MODEL_KEYS; k++) {
    model_entry *e = current(m, k);
    if (e->there && e->may_go && hutch_contains(m->cache, KEY(name_of(k)))) e->there = false;
    if (e->there) count++;
    if (e->there && !e->may_go) lasting++;
  }
  SAYS(m, count_of(m->cache) == count);
  hutch_cursor *cursor;
  CHECK_OK(hutch_cursor_create(m->cache, &cursor));
  const void *key;
  size_t size;
  bool given[MODEL_KEYS] = {false};
  while (hutch_cursor_next(cursor, &key, &size) == HUTCH_OK) {
    char text[16] = {0};
    memcpy(text, key, size);
    int k = atoi(text + 4);
    SAYS(m, !given[k]);
    /* It was when its page was made. */
    SAYS(m, current(m, k)->there || current(m, k)->may_go);
    given[k] = true;
    if (!m->entries[k].may_go) seen++;
    /* What leaves meanwhile must be met all the same. */
    if (pick(m, 4) == 0) check_key(m, (int)pick(m, MODEL_KEYS));
  }
  hutch_cursor_release(cursor);
  SAYS(m, seen == lasting);
}

static void model_put(model *m, int k, uint64_t call) {
  model_entry *e = current(m, k), new = {.there = true, .number = ++m->number};
  if (e->may_go) {
    check_key(m, k);
    e = current(m, k);
  }
  const size_t sizes[] = {8, 8, 0, 20, 120, 700, 3000};
  new.size = sizes[pick(m, 7)];
  hutch_put_options put = put_options();
  put.write_policy = (uint32_t)pick(m, 8) + 1;
  if (put.write_policy > HUTCH_WRITE_ON_EVICTION) put.write_policy = HUTCH_WRITE_ON_EVICTION;
  new.may_go = put.write_policy == HUTCH_WRITE_MEMORY;
  if (pick(m, 4) == 0) {
    put.time_to_live = (int64_t)(1 + pick(m, 20)) * HUTCH_SECOND;
    new.expires = m->clock.now + put.time_to_live;
  }
  uint8_t value[4096];
  size_t size = value_of(&new, value);
  hutch_put_result result = new_result();
  hutch_status status, expected = HUTCH_OK;
  switch (call) {
    case 1:
      status = hutch_add(m->cache, KEY(name_of(k)), value, size, &put, &result);
      if (e->there) expected = HUTCH_EXISTS;
      break;
    case 2:
      status = hutch_replace(m->cache, KEY(name_of(k)), value, size, &put, &result);
      if (!e->there) expected = HUTCH_NOT_FOUND;
      break;
    case 3: {
      bool is_right = pick(m, 3) != 0;
      status = hutch_compare_and_swap(m->cache, KEY(name_of(k)), e->version + !is_right, value, size,
                                      &put, &result);
      if (!e->there) {
        expected = HUTCH_NOT_FOUND;
      } else if (!is_right) {
        expected = HUTCH_CONFLICT;
      }
      break;
    }
    case 4: {
      const void *keys[] = {name_of(k)}, *values[] = {value};
      const size_t key_sizes[] = {strlen(name_of(k))}, value_sizes[] = {size};
      hutch_batch *batch;
      CHECK_OK(hutch_put_many(m->cache, keys, key_sizes, values, value_sizes, 1, &put, &batch));
      status = hutch_batch_status(batch, 0);
      CHECK_OK(hutch_batch_put_result(batch, 0, &result));
      hutch_batch_release(batch);
      break;
    }
    default:
      status = hutch_put(m->cache, KEY(name_of(k)), value, size, &put, &result);
  }
  /* A small memory does not take the largest: on disk alone, or nowhere. */
  if (status == HUTCH_PARTIAL) status = HUTCH_OK;
  if (status == HUTCH_TOO_LARGE && new.may_go) {
    e->there = false;
    return;
  }
  if (status != expected) printf("%s, not %s\n", hutch_status_name(status), hutch_status_name(expected));
  SAYS(m, status == expected);
  if (status != HUTCH_OK) return;
  new.version = result.version;
  *e = new;
}

static void model_increment(model *m, int k) {
  check_key(m, k);
  model_entry *e = current(m, k);
  int64_t sum = 0, delta = (int64_t)pick(m, 9);
  hutch_put_options put = put_options();
  put.write_policy = HUTCH_WRITE_ON_EVICTION;
  hutch_status status = hutch_increment(m->cache, KEY(name_of(k)), delta, 100, &put, &sum);
  if (e->there && e->size != 8) {
    SAYS(m, status == HUTCH_WRONG_TYPE);
    return;
  }
  SAYS(m, status == HUTCH_OK);
  if (!e->there) *e = (model_entry){.there = true, .size = 8, .number = 100};
  e->number += (uint64_t)delta;
  SAYS(m, (int64_t)e->number == sum);
  e->may_go = false;
  hutch_entry_info info = info_of(m->cache, name_of(k));
  SAYS(m, info.version > e->version);
  e->version = info.version;
}

static void model_remove(model *m, int k, bool pops) {
  if (current(m, k)->may_go) check_key(m, k);
  model_entry *e = current(m, k);
  hutch_value *value = NULL;
  hutch_status status = pops ? hutch_pop(m->cache, KEY(name_of(k)), &value)
                             : hutch_remove(m->cache, KEY(name_of(k)));
  SAYS(m, status == (e->there ? HUTCH_OK : HUTCH_NOT_FOUND));
  if (value) check_said(m, k, hutch_value_data(value), hutch_value_size(value), e->version);
  hutch_value_release(value);
  e->there = false;
}

static void model_touch(model *m, int k) {
  if (current(m, k)->may_go) check_key(m, k);
  model_entry *e = current(m, k);
  int64_t live = (int64_t)(1 + pick(m, 20)) * HUTCH_SECOND;
  hutch_status status = hutch_touch(m->cache, KEY(name_of(k)), live, 0);
  SAYS(m, status == (e->there ? HUTCH_OK : HUTCH_NOT_FOUND));
  if (e->there) e->expires = m->clock.now + live;
}

static void model_limits(model *m) {
  hutch_cache_limits limits = limits_of(m->cache);
  limits.memory.count = 1 + pick(m, 12);
  CHECK_OK(hutch_set_limits(m->cache, &limits));
}

static void model_memory(model *m, int k) {
  hutch_cache *memory = tier_of(m->cache, HUTCH_TIER_MEMORY);
  hutch_trim_spec trim = {.struct_size = sizeof trim, .kind = HUTCH_TRIM_TO_COUNT, .amount = 2};
  switch (pick(m, 6)) {
    case 0: CHECK_OK(hutch_clear(memory)); break;
    case 1: hutch_remove(memory, KEY(name_of(k))); break;
    case 2: CHECK_OK(hutch_trim(memory, &trim, NULL)); break;
    case 3:
      trim.kind = HUTCH_TRIM_LARGER_THAN;
      trim.amount = 100;
      CHECK_OK(hutch_trim(memory, &trim, NULL));
      break;
    case 4: CHECK_OK(hutch_notify(m->cache, HUTCH_NOTIFY_MEMORY_WARNING)); break;
    default: CHECK_OK(hutch_notify(m->cache, HUTCH_NOTIFY_ENTERED_BACKGROUND));
  }
  hutch_cache_release(memory);
}

static void model_reopen(model *m) {
  CHECK_OK(hutch_close(m->cache));
  m->cache = open_cache(m->directory.text, &m->options);
  for (int k = 0; k < MODEL_KEYS; k++) check_key(m, k);
}

static void model_step(model *m) {
  int k = (int)pick(m, MODEL_KEYS);
  uint64_t call = pick(m, 100);
  if (call < 30) {
    model_put(m, k, call / 5);
  } else if (call < 60) {
    check_key(m, k);
  } else if (call < 66) {
    model_remove(m, k, call & 1);
  } else if (call < 72) {
    model_touch(m, k);
  } else if (call < 80) {
    model_increment(m, k);
  } else if (call < 86) {
    model_memory(m, k);
  } else if (call < 89) {
    m->clock.now += (int64_t)pick(m, 4) * HUTCH_SECOND;
  } else if (call < 93) {
    model_limits(m);
  } else if (call < 96) {
    check_all(m);
  } else if (call < 98) {
    CHECK_OK(hutch_flush(m->cache));
  } else if (call == 98) {
    model_reopen(m);
  } else if (pick(m, 4) == 0) {
    CHECK_OK(hutch_clear(m->cache));
    for (int i = 0; i < MODEL_KEYS; i++) m->entries[i].there = false;
  }
}

TEST(random_calls_answer_as_a_dictionary_does) {
  const uint32_t policies[] = {HUTCH_POLICY_ADAPTIVE, HUTCH_POLICY_LRU, HUTCH_POLICY_LFU,
                               HUTCH_POLICY_FIFO};
  const uint32_t kinds[] = {HUTCH_STORAGE_MIXED, HUTCH_STORAGE_SQLITE, HUTCH_STORAGE_FILE};
  uint64_t given = seed();
  for (int i = 0; i < 12; i++) {
    model m = {.seed = given, .random = given + (uint64_t)i, .policy = policies[i % 4],
               .storage = kinds[i / 4]};
    m.options = deferring_options();
    m.options.policy = m.policy;
    m.options.storage = m.storage;
    m.options.inline_threshold = 500;
    m.options.on_memory_warning = HUTCH_SHRINK_LOW_WATER;
    m.options.memory.count = 6;
    m.options.memory.cost = 8000;
    use_clock(&m.options, &m.clock);
    char name[8];
    sprintf(name, "%d", i);
    m.directory = scratch(name);
    m.cache = open_cache(m.directory.text, &m.options);
    for (int step = 0; step < 200 * scale(); step++) model_step(&m);
    check_all(&m);
    CHECK_OK(hutch_close(m.cache));
  }
}

/* ------------------------------------------------------------------ the end */

PROCESS(puts_and_is_killed, directory) {
  hutch_options options = deferring_options();
  hutch_cache *cache = open_cache(directory, &options);
  hutch_put_options through = put_options();
  through.write_policy = HUTCH_WRITE_THROUGH;
  CHECK_OK(hutch_put(cache, KEY("replaced"), KEY("old"), &through, NULL));
  CHECK_OK(hutch_put(cache, KEY("through"), KEY("kept"), &through, NULL));
  CHECK_OK(put_text(cache, "flushed", "kept"));
  CHECK_OK(hutch_flush(cache));
  CHECK_OK(put_text(cache, "replaced", "new"));
  CHECK_OK(put_text(cache, "owed", "lost"));
  raise(SIGKILL);
}

TEST(a_kill_loses_what_is_owed_and_brings_no_older_value_back) {
  path directory = scratch("cache");
  process child = start_process("puts_and_is_killed", directory.text);
  int status = end_process(&child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  hutch_cache *cache = open_deferring();
  CHECK_MISSING(cache, "replaced");
  CHECK_MISSING(cache, "owed");
  CHECK_TEXT(cache, "through", "kept");
  CHECK_TEXT(cache, "flushed", "kept");
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

/* Events of entries that leave memory while another thread replaces or removes them. */
typedef struct leaving {
  hutch_cache *cache;
  _Atomic int ended, replaced, removed;
} leaving;

static void count_writes(void *context, const hutch_event *event) {
  leaving *l = context;
  if (((const char *)event->key)[0] != 'w') return;
  if (event->cause == HUTCH_CAUSE_REPLACED) l->replaced++;
  if (event->cause == HUTCH_CAUSE_REMOVED) l->removed++;
}

/* Puts other keys, for which memory evicts all entries, until the other thread has ended. */
static void evict(leaving *l) {
  for (int i = 0; !l->ended; i++) {
    char key[16];
    sprintf(key, "e%d", i % 7);
    CHECK_OK(put_text(l->cache, key, "other"));
  }
}

static hutch_cache *open_small(void) {
  hutch_options options = deferring_options();
  options.policy = HUTCH_POLICY_LRU;
  options.memory.count = 2;
  return open_cache(scratch("cache").text, &options);
}

static void write_or_evict(void *context, int index) {
  leaving *l = context;
  for (int i = 0; index == 0 && i < repeats(3000); i++) {
    char key[16];
    sprintf(key, "w%d", i % 7);
    CHECK_OK(put_text(l->cache, key, "old"));
    CHECK_OK(put_text(l->cache, key, "new"));
    CHECK_EQUAL(i + 1, l->replaced);
    CHECK_OK(hutch_remove(l->cache, KEY(key)));
    CHECK_EQUAL(i + 1, l->removed);
  }
  if (index == 0) l->ended = 1;
  if (index == 1) evict(l);
}

TEST(a_write_of_an_entry_that_is_going_down_is_told) {
  leaving l = {.cache = open_small()};
  CHECK_OK(hutch_set_listener(l.cache, HUTCH_EVENT_DID_REMOVE, count_writes, &l, NULL));
  run_threads(2, write_or_evict, &l);
  CHECK_OK(hutch_set_listener(l.cache, 0, NULL, NULL, NULL));
  CHECK_OK(hutch_close(l.cache));
}

/* Until the call has met the entry on disk, or so often that it has its turn again. */
static hutch_status touch_on_disk(hutch_cache *disk, const char *key) {
  hutch_status status = HUTCH_NOT_FOUND;
  for (int i = 0; status == HUTCH_NOT_FOUND && i < 2000; i++)
    status = hutch_touch(disk, KEY(key), 1000 * HUTCH_SECOND, 0);
  return status;
}

static void use_disk_or_evict(void *context, int index) {
  leaving *l = context;
  hutch_cache *disk = tier_of(l->cache, HUTCH_TIER_DISK);
  for (int i = 0; index == 0 && i < repeats(400); i++) {
    char key[16];
    sprintf(key, "w%d", i);
    CHECK_OK(put_text(l->cache, key, "value"));
    if (i % 2) {
      if (touch_on_disk(disk, key) == HUTCH_OK) CHECK(info_of(disk, key).expires != 0);
    } else {
      hutch_value *value = NULL;
      hutch_status status;
      while ((status = hutch_pop(disk, KEY(key), &value)) == HUTCH_NOT_FOUND)
        CHECK_OK(hutch_contains(l->cache, KEY(key)));
      CHECK_OK(status);
      hutch_value_release(value);
    }
  }
  if (index == 0) l->ended = 1;
  if (index == 1) evict(l);
  CHECK_OK(hutch_close(disk));
}

TEST(a_view_of_the_disk_meets_an_entry_that_is_going_down_or_leaves_it) {
  leaving l = {.cache = open_small()};
  run_threads(2, use_disk_or_evict, &l);
  CHECK_OK(hutch_close(l.cache));
}

static void flush_or_touch(void *context, int index) {
  leaving *l = context;
  hutch_cache *disk = tier_of(l->cache, HUTCH_TIER_DISK);
  uint64_t state = 1;
  char key[16];
  for (int i = 0; index == 0 && i < repeats(150); i++) {
    for (int n = 0; n < 60; n++) {
      sprintf(key, "%d", n);
      CHECK_OK(put_text(l->cache, key, "value"));
    }
    CHECK_OK(hutch_flush(l->cache));
    CHECK_EQUAL(60, count_of(disk));
  }
  if (index == 0) l->ended = 1;
  while (!l->ended) {
    sprintf(key, "%d", (int)(next_random(&state) % 60));
    hutch_status status = hutch_touch(l->cache, KEY(key), HUTCH_SECOND * 1000, 0);
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  }
  CHECK_OK(hutch_close(disk));
}

TEST(a_flush_writes_what_is_touched_meanwhile) {
  leaving l = {.cache = open_deferring()};
  run_threads(2, flush_or_touch, &l);
  CHECK_OK(hutch_close(l.cache));
}

TEST(what_the_disk_does_not_take_is_lost_only_when_memory_lets_it_go) {
  write_file(scratch("parent").text, "x", 1);
  hutch_options options = deferring_options();
  options.flags = HUTCH_OPEN_DISK_OPTIONAL;
  options.policy = HUTCH_POLICY_LRU;
  options.memory.count = 1;
  hutch_cache *cache = open_cache(scratch("parent/cache").text, &options);
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("a"), KEY("a"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(cache));
  CHECK_TEXT(cache, "a", "a");
  CHECK_STATUS(HUTCH_PARTIAL, put_text(cache, "b", "b"));
  CHECK_TEXT(cache, "b", "b");
  /* Which tries those on their way, too. */
  CHECK_STATUS(HUTCH_TIER_DOWN, hutch_flush(cache));
  CHECK_MISSING(cache, "a");
  CHECK_TEXT(cache, "b", "b");
  /* What is still owed cannot be written: the end is not clean. */
  CHECK_STATUS(HUTCH_IO, hutch_close(cache));
}

TEST(where_processes_share_nothing_is_written_on_eviction) {
  hutch_options options = deferring_options();
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(scratch("cache").text, &options, &cache));
  options.write_policy = HUTCH_WRITE_DEFAULT;
  cache = open_cache(scratch("cache").text, &options);
  hutch_put_options put = deferred();
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("a"), &put, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
  check_where(cache, "a", true, true);
  CHECK_OK(hutch_close(cache));
}
