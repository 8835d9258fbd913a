/* One thread's random calls, and the facts that they leave. See player.h. */
#define _GNU_SOURCE
#include "player.h"

#include <sched.h>

static uint64_t draw(player *p, uint64_t below) { return next_random(&p->random) % below; }

/* -------------------------------------------------------------------- values */

/* A value begins with a number that no other has, from which the rest follows. One of 8 bytes is
   a counter, too. */
static size_t make_value(player *p, uint64_t number, char *data) {
  static const size_t sizes[] = {8, 8, 24, 150, 700, 2600, 5200};
  size_t size = sizes[draw(p, p->t->r->limited ? 7 : 5)];
  fill(data, size, number);
  memcpy(data, &number, sizeof number);
  return size;
}

enum { MOST_BYTES = 5200 };

static uint64_t new_number(player *p) { return next_random(&p->random) >> 12; }

static uint64_t number_of(const void *data, size_t size) {
  uint64_t number;
  CHECK(size >= sizeof number && size <= MOST_BYTES);
  memcpy(&number, data, sizeof number);
  if (size > sizeof number) {
    char expected[MOST_BYTES];
    fill(expected, size, number);
    memcpy(expected, &number, sizeof number);
    CHECK_BYTES(expected, size, data, size);
  }
  return number;
}

/* --------------------------------------------------------------------- facts */

static int64_t clock_of(const table *t) { return atomic_load(&t->clock.now); }

static fact *begin(player *p, const char *call, uint8_t key) {
  fact *f = begin_fact(p->t->h, call, key);
  f->clock_begin = clock_of(p->t);
  return f;
}

static void end(table *t, fact *f) {
  f->clock_end = clock_of(t);
  atomic_store(&f->end, next_moment(t->h));
}

static void end_with(table *t, fact *f, fact_kind kind, uint32_t tiers) {
  f->kind = kind;
  f->tiers = tiers;
  end(t, f);
}

static void found(table *t, fact *f, const hutch_value *value) {
  f->value = number_of(hutch_value_data(value), hutch_value_size(value));
  f->version = info_of_value(value).version;
  end_with(t, f, FACT_FOUND, JUDGE_BOTH);
}

static void found_version(table *t, fact *f, uint64_t version) {
  f->version = version;
  end_with(t, f, FACT_FOUND, JUDGE_BOTH);
}

static uint32_t stored_tiers(uint32_t memory, uint32_t disk) {
  return (memory == HUTCH_OUTCOME_STORED ? JUDGE_MEMORY : 0u) |
         (disk == HUTCH_OUTCOME_STORED ? JUDGE_DISK : 0u);
}

/* Stored in memory, and owed to the disk tier; which may find it too large, once its limits are
   changed or because a file takes whole pages. */
static void owe(const table *t, fact *f) {
  f->owed = JUDGE_DISK;
  size_t fits = t->r->storage == HUTCH_STORAGE_SQLITE  ? 2000
                : t->r->storage == HUTCH_STORAGE_MIXED ? INLINE_SIZE : 0;
  f->may_be_refused = t->r->limited && f->size > fits;
}

/* Where a put without a policy of its own stores. */
static void guess_tiers(const table *t, fact *f) {
  f->guesses = true;
  bool in_both = t->disk && t->r->write_policy == HUTCH_WRITE_THROUGH;
  f->tiers = in_both ? JUDGE_BOTH
             : t->disk && t->r->write_policy == HUTCH_WRITE_DISK ? JUDGE_DISK : JUDGE_MEMORY;
  if (t->r->write_policy == HUTCH_WRITE_ON_EVICTION && f->status == HUTCH_OK) owe(t, f);
}

/* What came of a put that was not turned down by a condition. */
static void wrote(table *t, fact *f, hutch_status status, uint64_t version, uint32_t memory,
                  uint32_t disk) {
  uint32_t tiers = stored_tiers(memory, disk);
  if (status != HUTCH_OK && status != HUTCH_PARTIAL && status != HUTCH_TOO_LARGE)
    FAIL("a put answered %s: %s", hutch_status_name(status), last_error().words);
  CHECK((status == HUTCH_TOO_LARGE) == (tiers == 0));
  CHECK(version);
  f->status = status;
  f->version = version;
  if (disk == HUTCH_OUTCOME_DEFERRED) owe(t, f);
  end_with(t, f, FACT_WROTE, tiers);
}

/* The cache or one of its views, and the tiers that it is about. */
static hutch_cache *choose(player *p, uint32_t *tiers) {
  table *t = p->t;
  uint64_t what = t->r->views ? draw(p, 10) : 9;
  *tiers = t->disk && what == 0 ? JUDGE_DISK : what == 1 ? JUDGE_MEMORY : JUDGE_BOTH;
  if (!t->disk) *tiers = JUDGE_BOTH;
  return *tiers == JUDGE_DISK ? t->disk : *tiers == JUDGE_MEMORY ? t->memory : t->cache;
}

/* --------------------------------------------------------------------- reads */

static void missed(table *t, fact *f, hutch_status status, uint32_t tiers) {
  CHECK_STATUS(HUTCH_NOT_FOUND, status);
  f->status = status;
  end_with(t, f, FACT_MISSED, tiers);
}

void get_key(player *p, uint8_t key) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  fact *f = begin(p, "get", key);
  hutch_value *value = NULL;
  hutch_status status = hutch_get(cache, &key, 1, &value);
  if (status != HUTCH_OK) {
    missed(p->t, f, status, tiers);
    return;
  }
  found(p->t, f, value);
  p->newest[key] = f->version;
  hutch_value_release(value);
}

static void get_into(player *p, uint8_t key) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  char data[MOST_BYTES];
  size_t size;
  fact *f = begin(p, "get_into", key);
  hutch_status status = hutch_get_into(cache, &key, 1, data, sizeof data, &size);
  if (status != HUTCH_OK) {
    missed(p->t, f, status, tiers);
    return;
  }
  f->value = number_of(data, size);
  end_with(p->t, f, FACT_FOUND, tiers);
}

static void ask(player *p, uint8_t key) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  if (draw(p, 2)) {
    fact *f = begin(p, "contains", key);
    hutch_status status = hutch_contains(cache, &key, 1);
    if (status != HUTCH_OK) missed(p->t, f, status, tiers);
    else end(p->t, f);
    return;
  }
  hutch_entry_info info = {.struct_size = sizeof info};
  fact *f = begin(p, "info", key);
  hutch_status status = hutch_info(cache, &key, 1, &info);
  if (status != HUTCH_OK) missed(p->t, f, status, tiers);
  else found_version(p->t, f, info.version);
}

static void get_many(player *p) {
  enum { SOME = 4 };
  uint8_t keys[SOME];
  const void *pointers[SOME];
  size_t sizes[SOME];
  for (int i = 0; i < SOME; i++) {
    keys[i] = (uint8_t)draw(p, KEYS);
    pointers[i] = &keys[i];
    sizes[i] = 1;
  }
  fact *facts[SOME];
  for (int i = 0; i < SOME; i++) facts[i] = begin(p, "get_many", keys[i]);
  hutch_batch *batch = NULL;
  CHECK_OK(hutch_get_many(p->t->cache, pointers, sizes, SOME, &batch));
  for (size_t i = 0; i < SOME; i++) {
    if (hutch_batch_status(batch, i) == HUTCH_OK)
      found(p->t, facts[i], hutch_batch_value(batch, i));
    else missed(p->t, facts[i], hutch_batch_status(batch, i), JUDGE_BOTH);
  }
  hutch_batch_release(batch);
}

/* -------------------------------------------------------------------- writes */

static hutch_put_options random_options(player *p, fact *f) {
  hutch_put_options options = put_options();
  if (p->t->r->ages && draw(p, 3) == 0)
    f->lifetime = options.time_to_live = (int64_t)(1 + draw(p, 20)) * HUTCH_SECOND;
  if (p->t->disk && draw(p, 4) == 0)
    options.write_policy = (uint32_t)draw(p, p->t->h->shares ? 4 : 5);
  return options;
}

static void put(player *p, uint8_t key) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  char data[MOST_BYTES];
  uint64_t number = new_number(p);
  size_t size = make_value(p, number, data);
  fact *f = begin(p, "put", key);
  hutch_put_options options = random_options(p, f);
  f->value = number;
  f->size = size;
  hutch_put_result result = new_result();
  hutch_status status = hutch_put(cache, &key, 1, data, size, &options, &result);
  wrote(p->t, f, status, result.version, result.memory, result.disk);
  p->newest[key] = result.version;
}

static void put_if(player *p, uint8_t key) {
  table *t = p->t;
  char data[MOST_BYTES];
  uint64_t number = new_number(p), expected = p->newest[key];
  size_t size = make_value(p, number, data);
  uint64_t what = draw(p, expected ? 3 : 2);
  static const char *const names[] = {"add", "replace", "swap"};
  fact *f = begin(p, names[what], key);
  hutch_put_options options = random_options(p, f);
  hutch_put_result result = new_result();
  hutch_status status =
      what == 0   ? hutch_add(t->cache, &key, 1, data, size, &options, &result)
      : what == 1 ? hutch_replace(t->cache, &key, 1, data, size, &options, &result)
                  : hutch_compare_and_swap(t->cache, &key, 1, expected, data, size, &options,
                                           &result);
  f->status = status;
  if (status == HUTCH_NOT_FOUND) {
    CHECK(what > 0);
    f->lifetime = 0;
    missed(t, f, status, JUDGE_BOTH);
  } else if (status == HUTCH_EXISTS || status == HUTCH_CONFLICT) {
    CHECK(what == (status == HUTCH_EXISTS ? 0 : 2));
    f->lifetime = 0;
    found_version(t, f, result.version);
    p->newest[key] = result.version;
  } else {
    /* Two facts: what it found, and what it wrote. */
    fact *before = more_of(t->h, f);
    f->value = number;
    f->size = size;
    if (what == 2 && status != HUTCH_TOO_LARGE) f->swapped = expected;
    wrote(t, f, status, result.version, result.memory, result.disk);
    before->status = status;
    if (what == 0) {
      end_with(t, before, FACT_MISSED, JUDGE_BOTH);
    } else if (what == 2) {
      before->took = true;
      found_version(t, before, expected);
    }
    p->newest[key] = result.version;
  }
}

/* Its version is told by the event only. */
static void count_up(player *p, uint8_t key) {
  table *t = p->t;
  if (!t->r->listened) return;
  fact *f = begin(p, "increment", key);
  int64_t sum = 0;
  hutch_status status =
      hutch_increment(t->cache, &key, 1, (int64_t)(new_number(p) >> 8),
                      (int64_t)new_number(p), NULL, &sum);
  f->status = status;
  if (status == HUTCH_WRONG_TYPE) return;
  if (status == HUTCH_TOO_LARGE) {
    end_with(t, f, FACT_REMOVED, JUDGE_BOTH);
    return;
  }
  CHECK(status == HUTCH_OK || status == HUTCH_PARTIAL);
  f->value = (uint64_t)sum;
  f->size = sizeof sum;
  /* It keeps the time to live of the entry before it, which the player does not know. */
  if (t->r->ages) f->lifetime = -1;
  guess_tiers(t, f);
  end_with(t, f, FACT_WROTE, f->tiers);
}

static void put_many(player *p) {
  enum { SOME = 4 };
  uint8_t keys[SOME];
  const void *pointers[SOME], *values[SOME];
  size_t sizes[SOME], value_sizes[SOME];
  char data[SOME][MOST_BYTES];
  fact *facts[SOME];
  for (int i = 0; i < SOME; i++) {
    uint64_t number = new_number(p);
    keys[i] = (uint8_t)draw(p, KEYS);
    pointers[i] = &keys[i];
    sizes[i] = 1;
    value_sizes[i] = make_value(p, number, data[i]);
    values[i] = data[i];
    facts[i] = begin(p, "put_many", keys[i]);
    facts[i]->value = number;
    facts[i]->size = value_sizes[i];
  }
  hutch_batch *batch = NULL;
  CHECK_OK(hutch_put_many(p->t->cache, pointers, sizes, values, value_sizes, SOME, NULL, &batch));
  for (size_t i = 0; i < SOME; i++) {
    hutch_put_result result = new_result();
    CHECK_OK(hutch_batch_put_result(batch, i, &result));
    wrote(p->t, facts[i], hutch_batch_status(batch, i), result.version, result.memory,
          result.disk);
  }
  hutch_batch_release(batch);
}

static void touch(player *p, uint8_t key) {
  fact *f = begin(p, "touch", key);
  hutch_status status = hutch_touch(p->t->cache, &key, 1, 0, 0);
  if (status == HUTCH_OK) end_with(p->t, f, FACT_TOUCHED, JUDGE_BOTH);
  else missed(p->t, f, status, JUDGE_BOTH);
}

/* ------------------------------------------------------------------ removals */

/* Of the disk view, the memory copies of what was on disk may go too. */
static void removed(table *t, fact *f, uint32_t tiers) {
  f->through_view = tiers != JUDGE_BOTH;
  end_with(t, f, FACT_REMOVED, tiers == JUDGE_DISK ? JUDGE_BOTH : tiers);
}

static void remove_one(player *p, uint8_t key) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  fact *f = begin(p, "remove", key);
  hutch_status status = hutch_remove(cache, &key, 1);
  if (status == HUTCH_OK) {
    removed(p->t, f, tiers);
    return;
  }
  missed(p->t, f, status, tiers);
}

static void remove_many(player *p) {
  enum { SOME = 2 };
  uint8_t keys[SOME] = {(uint8_t)draw(p, KEYS), (uint8_t)draw(p, KEYS)};
  const void *pointers[SOME] = {&keys[0], &keys[1]};
  const size_t sizes[SOME] = {1, 1};
  fact *facts[SOME] = {begin(p, "remove_many", keys[0]), begin(p, "remove_many", keys[1])};
  hutch_batch *batch = NULL;
  CHECK_OK(hutch_remove_many(p->t->cache, pointers, sizes, SOME, &batch));
  for (size_t i = 0; i < SOME; i++) {
    if (hutch_batch_status(batch, i) == HUTCH_OK) removed(p->t, facts[i], JUDGE_BOTH);
    else missed(p->t, facts[i], hutch_batch_status(batch, i), JUDGE_BOTH);
  }
  hutch_batch_release(batch);
}

static void pop(player *p, uint8_t key) {
  fact *f = begin(p, "pop", key);
  hutch_value *value = NULL;
  hutch_status status = hutch_pop(p->t->cache, &key, 1, &value);
  if (status != HUTCH_OK) {
    missed(p->t, f, status, JUDGE_BOTH);
    return;
  }
  fact *gone = more_of(p->t->h, f);
  f->took = true;
  found(p->t, f, value);
  removed(p->t, gone, JUDGE_BOTH);
  hutch_value_release(value);
}

static void clear(player *p) {
  uint32_t tiers;
  hutch_cache *cache = choose(p, &tiers);
  fact *f = begin(p, "clear", ALL_KEYS);
  CHECK_OK(hutch_clear(cache));
  removed(p->t, f, tiers);
}

/* What the disk has stays; it is read from there, and brought back. */
static void forget_memory(player *p) {
  fact *f = begin(p, "clear of memory", ALL_KEYS);
  CHECK_OK(hutch_clear(p->t->memory));
  removed(p->t, f, p->t->disk ? JUDGE_MEMORY : JUDGE_BOTH);
}

/* --------------------------------------------------------------------- loads */

typedef struct making {
  player *p;
  uint64_t number;
  bool is_made;
  hutch_status stored;
} making;

static hutch_status make(void *context, const void *key, size_t key_size,
                         hutch_loading *loading) {
  making *m = context;
  char data[16];
  (void)key, (void)key_size;
  fill(data, sizeof data, m->number);
  memcpy(data, &m->number, sizeof m->number);
  m->is_made = true;
  m->stored = hutch_loading_fulfil(loading, data, sizeof data, NULL);
  return HUTCH_OK;
}

static void load(player *p, uint8_t key) {
  table *t = p->t;
  making m = {.p = p, .number = new_number(p)};
  fact *f = begin(p, "load", key);
  hutch_value *value = NULL;
  CHECK_OK(hutch_load(t->cache, &key, 1, make, &m, NULL, &value));
  if (m.is_made) {
    fact *made = more_of(t->h, f);
    made->value = m.number;
    made->size = hutch_value_size(value);
    made->status = m.stored;
    uint64_t given = number_of(hutch_value_data(value), hutch_value_size(value));
    if (given == m.number) made->version = info_of_value(value).version;
    if (m.stored == HUTCH_OK || m.stored == HUTCH_PARTIAL) {
      CHECK(made->version);
      guess_tiers(t, made);
      end_with(t, made, FACT_WROTE, made->tiers);
    } else {
      CHECK(m.stored == HUTCH_SUPERSEDED || m.stored == HUTCH_TOO_LARGE);
      if (m.stored == HUTCH_TOO_LARGE)
        end_with(t, more_of(t->h, f), FACT_REMOVED, JUDGE_BOTH);
      end_with(t, made, FACT_MADE, 0);
    }
  }
  f->value = number_of(hutch_value_data(value), hutch_value_size(value));
  end_with(t, f, FACT_FOUND, JUDGE_BOTH);
  hutch_value_release(value);
}

/* --------------------------------------------------------------------- tasks */

typedef struct errand {
  table *t;
  fact *f;
} errand;

static void came(void *context, const hutch_completion *completion) {
  const errand *e = context;
  table *t = e->t;
  fact *f = e->f;
  f->status = completion->status;
  if (completion->status == HUTCH_SUPERSEDED) return;
  switch (completion->operation) {
    case HUTCH_OPERATION_GET:
      if (completion->status == HUTCH_OK) found(t, f, completion->value);
      else missed(t, f, completion->status, JUDGE_BOTH);
      break;
    case HUTCH_OPERATION_PUT:
      wrote(t, f, completion->status, completion->version, completion->memory,
            completion->disk);
      break;
    case HUTCH_OPERATION_REMOVE:
      if (completion->status == HUTCH_OK) removed(t, f, JUDGE_BOTH);
      else missed(t, f, completion->status, JUDGE_BOTH);
      break;
    default: /* a clear */
      CHECK_OK(completion->status);
      removed(t, f, JUDGE_BOTH);
  }
}

static void came_back(void *context) {
  errand *e = context;
  table *t = e->t;
  free(e);
  atomic_fetch_sub(&t->under_way, 1);
}

static void submit(player *p, uint8_t key) {
  table *t = p->t;
  while (atomic_load(&t->under_way) > 40) sched_yield();
  errand *e = malloc(sizeof *e);
  CHECK(e);
  hutch_task_options options = {.struct_size = sizeof options, .complete = came, .context = e,
                                .release = came_back,
                                .priority = (int32_t)draw(p, 3) - 1};
  atomic_fetch_add(&t->under_way, 1);
  uint64_t what = draw(p, 20);
  fact *f = begin(p, what < 9 ? "put_async" : what < 14 ? "get_async"
                     : what < 19 ? "remove_async" : "clear_async", what < 19 ? key : ALL_KEYS);
  *e = (errand){t, f};
  if (what < 9) {
    char data[MOST_BYTES];
    f->value = new_number(p);
    size_t size = f->size = make_value(p, f->value, data);
    hutch_put_options chosen = random_options(p, f);
    CHECK_OK(hutch_put_async(t->cache, &key, 1, data, size, &chosen, &options, NULL));
  } else if (what < 14) {
    CHECK_OK(hutch_get_async(t->cache, &key, 1, &options, NULL));
  } else if (what < 19) {
    CHECK_OK(hutch_remove_async(t->cache, &key, 1, &options, NULL));
  } else {
    CHECK_OK(hutch_clear_async(t->cache, &options, NULL));
  }
}

/* ---------------------------------------------------------------- the limits */

static void trim(player *p) {
  hutch_trim_spec spec = {.struct_size = sizeof spec,
                          .kind = HUTCH_TRIM_EXPIRED + (uint32_t)draw(p, 10),
                          .amount = draw(p, 2000)};
  if (spec.kind == HUTCH_TRIM_TO_COUNT) spec.amount = draw(p, KEYS);
  spec.time = spec.kind == HUTCH_TRIM_WRITTEN_BEFORE ? clock_of(p->t) - HUTCH_SECOND
                                                     : (int64_t)draw(p, 10) * HUTCH_SECOND;
  CHECK_OK(hutch_trim(p->t->cache, &spec, NULL));
}

static void set_limits(player *p) {
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  limits.memory = (hutch_tier_limits){.count = 1 + draw(p, KEYS), .cost = 4000 + draw(p, 9000),
                                      .max_entry = 1000 + draw(p, 9000)};
  limits.disk = (hutch_tier_limits){.count = 2 + draw(p, KEYS), .max_entry = 3000 + draw(p, 9000)};
  CHECK_OK(hutch_set_limits(p->t->cache, &limits));
}

static void look_after(player *p) {
  table *t = p->t;
  switch (draw(p, 4)) {
    case 0: CHECK_OK(hutch_flush(t->cache)); break;
    case 1: CHECK_OK(hutch_maintain(t->cache, 0)); break;
    case 2: {
      fact *f = begin(p, "warning", ALL_KEYS);
      CHECK_OK(hutch_notify(t->cache, HUTCH_NOTIFY_MEMORY_WARNING));
      removed(t, f, t->disk ? JUDGE_MEMORY : JUDGE_BOTH);
      break;
    }
    default: {
      uint64_t count = 0;
      CHECK_OK(hutch_count(t->cache, &count));
      /* What is on its way from one tier to the other may be counted twice. */
      CHECK(count <= KEYS * (t->disk ? 2 : 1));
    }
  }
}

/* --------------------------------------------------------------------- play */

void play(player *p, int calls) {
  table *t = p->t;
  for (int i = 0; i < calls; i++) {
    uint8_t key = (uint8_t)draw(p, KEYS);
    uint64_t what = draw(p, 1000);
    if (what < 220) get_key(p, key);
    else if (what < 300) get_into(p, key);
    else if (what < 360) ask(p, key);
    else if (what < 520) put(p, key);
    else if (what < 610) put_if(p, key);
    else if (what < 640) count_up(p, key);
    else if (what < 670) put_many(p);
    else if (what < 690) get_many(p);
    else if (what < 720) touch(p, key);
    else if (what < 770) remove_one(p, key);
    else if (what < 785) remove_many(p);
    else if (what < 815) pop(p, key);
    else if (what < 865) load(p, key);
    else if (what < 950) submit(p, key);
    else if (what < 952) clear(p);
    else if (what < 975) forget_memory(p);
    else if (what < 980) look_after(p);
    else if (what < 988 && t->r->limited) trim(p);
    else if (what < 992 && t->r->limited) set_limits(p);
    else if (t->r->ages) atomic_fetch_add(&t->clock.now, HUTCH_SECOND);
  }
}

void note_event(void *context, const hutch_event *event) {
  table *t = context;
  history *h = t->h;
  CHECK(event->key_size == 1);
  size_t at = atomic_fetch_add(&h->event_count, 1);
  CHECK(at < h->event_room);
  told_event *e = &h->events[at];
  *e = (told_event){.kind = event->kind, .cause = event->cause, .tiers = event->tiers,
                    .key = *(const uint8_t *)event->key, .version = event->version,
                    .moment = next_moment(h)};
  if (event->value && event->kind == HUTCH_EVENT_DID_ADD)
    e->value = number_of(hutch_value_data(event->value), hutch_value_size(event->value));
}
