/* The groups 'events' and 'pressure' of hutch.h. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* What a listener was told, one word an event: "+a" did_add of key a, and so on. */
typedef struct record {
  hutch_cache *cache;
  pthread_mutex_t lock;
  char text[4096];
  size_t length;
  _Atomic int released;
} record;

static const char *sign_of(uint32_t kind) {
  switch (kind) {
    case HUTCH_EVENT_WILL_ADD: return "?+";
    case HUTCH_EVENT_DID_ADD: return "+";
    case HUTCH_EVENT_WILL_REMOVE: return "?-";
    case HUTCH_EVENT_DID_REMOVE: return "-";
    case HUTCH_EVENT_WILL_CLEAR: return "?0";
    case HUTCH_EVENT_DID_CLEAR: return "0";
    case HUTCH_EVENT_TIER_DOWN: return "down";
    case HUTCH_EVENT_TIER_UP: return "up";
    case HUTCH_EVENT_MEMORY_WARNING: return "warning";
    case HUTCH_EVENT_ENTERED_BACKGROUND: return "background";
    default: return "unknown";
  }
}

static const char *cause_of(uint32_t cause) {
  static const char *const names[] = {"", "r", "x", "e", "t", "c", "d"};
  return cause < 7 ? names[cause] : "unknown";
}

/* sign key [cause] tiers [=value] */
static void note(void *context, const hutch_event *event) {
  record *r = context;
  CHECK_EQUAL(sizeof *event, event->struct_size);
  pthread_mutex_lock(&r->lock);
  char *end = r->text + r->length;
  size_t room = sizeof r->text - r->length;
  int written = snprintf(end, room, "%s%s%.*s%s%u", r->length ? " " : "", sign_of(event->kind),
                         (int)event->key_size, (const char *)event->key, cause_of(event->cause),
                         event->tiers);
  if (event->value) {
    written += snprintf(end + written, room - (size_t)written, "=%.*s",
                        (int)hutch_value_size(event->value),
                        (const char *)hutch_value_data(event->value));
  }
  r->length += (size_t)written;
  pthread_mutex_unlock(&r->lock);
}

static void let_go(void *context) { ((record *)context)->released++; }

static void listen_to(record *r, hutch_cache *cache, uint32_t kinds) {
  *r = (record){.cache = cache, .lock = PTHREAD_MUTEX_INITIALIZER};
  CHECK_OK(hutch_set_listener(cache, kinds, note, r, let_go));
}

#define CHECK_TOLD(r, expected) check_told(__LINE__, r, expected)
static void check_told(int line, record *r, const char *expected) {
  pthread_mutex_lock(&r->lock);
  if (strcmp(r->text, expected)) {
    check_fail(__FILE__, line, "told\n  %s\nand not\n  %s", r->text, expected);
  }
  r->text[r->length = 0] = 0;
  pthread_mutex_unlock(&r->lock);
}

static size_t length_of(record *r) {
  pthread_mutex_lock(&r->lock);
  size_t length = r->length;
  pthread_mutex_unlock(&r->lock);
  return length;
}

static const uint32_t entries = HUTCH_EVENT_WILL_ADD | HUTCH_EVENT_DID_ADD |
                                HUTCH_EVENT_WILL_REMOVE | HUTCH_EVENT_DID_REMOVE;

TEST_EACH_KIND(puts_and_removals_are_told_in_their_order) {
  record r;
  listen_to(&r, f->cache, HUTCH_EVENT_ALL);
  int tiers = k == TWO_TIERS ? 3 : k == DISK_VIEW ? 2 : 1;
  char expected[256];
  CHECK_OK(put_text(f->cache, "a", "one"));
  sprintf(expected, "?+a%d=one +a%d=one", tiers, tiers);
  CHECK_TOLD(&r, expected);
  CHECK_OK(put_text(f->cache, "a", "two"));
  sprintf(expected, "?+a%d=two ?-ar%d=one -ar%d=one +a%d=two", tiers, tiers, tiers, tiers);
  CHECK_TOLD(&r, expected);
  CHECK_OK(hutch_remove(f->cache, KEY("a")));
  sprintf(expected, "?-ax%d=two -ax%d=two", tiers, tiers);
  CHECK_TOLD(&r, expected);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(f->cache, KEY("a")));
  CHECK_TOLD(&r, "");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(f->cache, KEY("a"), KEY("x"), NULL, NULL));
  CHECK_TOLD(&r, "");
  CHECK_OK(hutch_add(f->cache, KEY("a"), KEY("x"), NULL, NULL));
  sprintf(expected, "?+a%d=x +a%d=x", tiers, tiers);
  CHECK_TOLD(&r, expected);
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(f->cache, KEY("a"), KEY("y"), NULL, NULL));
  CHECK_TOLD(&r, "");
  CHECK_OK(hutch_touch(f->cache, KEY("a"), HUTCH_HOUR, 0));
  CHECK_TEXT(f->cache, "a", "x");
  CHECK_TOLD(&r, "");
  hutch_value *value;
  CHECK_OK(hutch_pop(f->cache, KEY("a"), &value));
  hutch_value_release(value);
  sprintf(expected, "?-ax%d=x -ax%d=x", tiers, tiers);
  CHECK_TOLD(&r, expected);
  int64_t sum;
  CHECK_OK(hutch_increment(f->cache, KEY("n"), 1, 0, NULL, &sum));
  r.text[r.length = 0] = 0;
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(1, r.released);
  CHECK_OK(put_text(f->cache, "a", "three"));
  CHECK_TOLD(&r, "");
}

/* The store decides a condition. Once it has, a later put knows what it replaces. */
TEST_EACH_KIND(a_put_after_a_condition_tells_what_it_replaces) {
  record r;
  int tiers = k == TWO_TIERS ? 3 : k == DISK_VIEW ? 2 : 1;
  char expected[256];
  sprintf(expected, "?+a%d=two ?-ar%d=one -ar%d=one +a%d=two", tiers, tiers, tiers, tiers);
  for (int way = 0; way < 5; way++) {
    CHECK_OK(put_text(f->cache, "a", "12345678"));
    hutch_value *value = NULL;
    switch (way) {
      case 0:
        CHECK_STATUS(HUTCH_EXISTS, hutch_add(f->cache, KEY("a"), KEY("x"), NULL, NULL));
        break;
      case 1: CHECK_OK(hutch_replace(f->cache, KEY("a"), KEY("x"), NULL, NULL)); break;
      case 2: CHECK_OK(hutch_increment(f->cache, KEY("a"), 1, 1, NULL, NULL)); break;
      case 3: CHECK_OK(hutch_touch(f->cache, KEY("a"), HUTCH_HOUR, 0)); break;
      case 4: CHECK_OK(hutch_pop(f->cache, KEY("a"), &value)); break;
    }
    hutch_value_release(value);
    CHECK_OK(put_text(f->cache, "a", "one"));
    listen_to(&r, f->cache, HUTCH_EVENT_ALL);
    CHECK_OK(put_text(f->cache, "a", "two"));
    CHECK_TOLD(&r, expected);
    CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
  }
}

/* That it is done may be told for each tier by itself, as the store decides for one of them. */
TEST(where_processes_share_a_removal_is_announced_once) {
  hutch_options options = default_options();
  options.sharing = HUTCH_SHARING_SHARED;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  const uint32_t kinds[] = {HUTCH_EVENT_WILL_REMOVE,
                            HUTCH_EVENT_WILL_REMOVE | HUTCH_EVENT_DID_REMOVE};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(put_text(cache, "a", "one"));
    CHECK_OK(hutch_replace(cache, KEY("a"), KEY("two"), NULL, NULL));
    record r;
    listen_to(&r, cache, kinds[i]);
    CHECK_OK(hutch_remove(cache, KEY("a")));
    CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
    const char *announced = "?-ax3=two";
    CHECK(!strncmp(r.text, announced, strlen(announced)));
    CHECK(!strchr(r.text + 1, '?'));
    CHECK_EQUAL(i == 0, r.length == strlen(announced));
  }
  CHECK_OK(hutch_close(cache));
}

TEST(only_the_kinds_that_were_asked_for_are_told) {
  hutch_cache *cache = open_cache(NULL, NULL);
  record r;
  listen_to(&r, cache, HUTCH_EVENT_DID_REMOVE);
  CHECK_OK(put_text(cache, "a", "one"));
  CHECK_OK(put_text(cache, "a", "two"));
  CHECK_OK(hutch_clear(cache));
  CHECK_TOLD(&r, "-ar1=one -ac1=two");
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, r.released);
}

/* The record in `value` is the removed one's, and the value outlives the event. */
static hutch_value *kept;
static uint64_t kept_version;
static void keep(void *context, const hutch_event *event) {
  (void)context;
  kept = hutch_value_retain(event->value);
  kept_version = event->version;
}

TEST_EACH_KIND(a_removed_value_can_be_kept) {
  hutch_put_result result = new_result();
  CHECK_OK(hutch_put(f->cache, KEY("a"), KEY("value"), NULL, &result));
  CHECK_OK(hutch_set_listener(f->cache, HUTCH_EVENT_DID_REMOVE, keep, NULL, NULL));
  CHECK_OK(hutch_remove(f->cache, KEY("a")));
  CHECK_BYTES("value", 5, hutch_value_data(kept), hutch_value_size(kept));
  CHECK_EQUAL(result.version, kept_version);
  CHECK_EQUAL(result.version, info_of_value(kept).version);
  hutch_value_release(kept);
}

TEST(a_tier_tells_its_own_evictions) {
  hutch_options options = unlimited_options();
  options.policy = HUTCH_POLICY_FIFO;
  options.memory.count = 2;
  options.disk.count = 3;
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  record r;
  listen_to(&r, cache, entries);
  CHECK_OK(put_text(cache, "a", "1"));
  CHECK_OK(put_text(cache, "b", "2"));
  CHECK_OK(put_text(cache, "c", "3"));
  CHECK_OK(put_text(cache, "d", "4"));
  CHECK_OK(hutch_remove(cache, KEY("d")));
  /* Events of different keys may come in another order than this one. */
  const char *const expected[] = {"?+a3=1", "+a3=1", "?+b3=2", "+b3=2", "?+c3=3", "+c3=3",
                                  "?-ae1=1", "-ae1=1", "?+d3=4", "?-be1=2", "-be1=2", "?-ae2",
                                  "-ae2", "+d3=4", "?-dx3=4", "-dx3=4"};
  size_t length = 0;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    CHECK(strstr(r.text, expected[i]));
    length += strlen(expected[i]) + (i > 0);
  }
  CHECK_EQUAL(length, r.length);
  CHECK_OK(hutch_close(cache));
}

/* Where the value of a key lies that is put twice: a put of as many bytes into an entry without a
   holder goes into the place that it has. */
static bool is_overwritten(hutch_cache *cache) {
  const void *place[2];
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hutch_put(cache, KEY("k"), i ? "two" : "one", 3, NULL, NULL));
    hutch_value *value = get_value(cache, "k");
    place[i] = hutch_value_data(value);
    hutch_value_release(value);
  }
  return place[0] == place[1];
}

/* The charge of an entry that expires is higher. */
TEST(an_entry_that_a_touch_makes_too_large_for_memory_is_told_as_evicted) {
  for (int has_disk = 0; has_disk < 2; has_disk++) {
    hutch_options options = unlimited_options();
    hutch_cache *cache = open_cache(has_disk ? scratch("cache").text : NULL, &options);
    CHECK_OK(put_text(cache, "a", "one"));
    hutch_cache_limits limits = {sizeof limits, no_limits(), no_limits()};
    limits.memory.max_entry = stats_of(cache).memory.cost;
    CHECK_OK(hutch_set_limits(cache, &limits));
    record r;
    listen_to(&r, cache, entries);
    CHECK_OK(hutch_touch(cache, KEY("a"), HUTCH_HOUR, 0));
    /* Maintenance may be telling it, which the call does not wait for. */
    while (length_of(&r) < strlen("?-ae1=one -ae1=one")) sched_yield();
    CHECK_TOLD(&r, "?-ae1=one -ae1=one");
    CHECK_EQUAL(1, stats_of(cache).memory.evictions);
    CHECK_STATUS(has_disk ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(cache, KEY("a")));
    CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_listener_that_has_gone_leaves_the_ways_as_they_were) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK(is_overwritten(cache));
  record r = {.cache = cache, .lock = PTHREAD_MUTEX_INITIALIZER};
  CHECK_OK(hutch_set_listener(cache, entries, note, &r, let_go));
  CHECK(!is_overwritten(cache));
  CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
  CHECK(is_overwritten(cache));
  CHECK_OK(hutch_close(cache));
}

/* What is announced and what is told name the same tiers: those that have the entry. */
TEST(a_removal_names_the_tiers_that_have_the_entry) {
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  record r = {.cache = cache, .lock = PTHREAD_MUTEX_INITIALIZER};
  const uint32_t kinds = HUTCH_EVENT_WILL_REMOVE | HUTCH_EVENT_DID_REMOVE;
  CHECK_OK(put_text(cache, "both", "value"));
  CHECK_OK(put_text(cache, "seen", "value"));
  CHECK_OK(put_text(disk, "disk", "value"));
  CHECK_OK(put_text(memory, "memory", "value"));
  CHECK_OK(hutch_set_listener(cache, kinds, note, &r, NULL));
  CHECK_OK(hutch_remove(cache, KEY("both")));
  CHECK_OK(hutch_remove(disk, KEY("seen")));
  CHECK_OK(hutch_remove(cache, KEY("disk")));
  CHECK_OK(hutch_remove(cache, KEY("memory")));
  CHECK_BYTES(
      "?-bothx3=value -bothx3=value ?-seenx3=value -seenx3=value "
      "?-diskx2=value -diskx2=value ?-memoryx1=value -memoryx1=value",
      strlen(r.text), r.text, r.length);
  CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(what_expires_is_told) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = open_cache(i ? scratch("cache").text : NULL, &options);
    record r;
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_SECOND;
    CHECK_OK(hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
    listen_to(&r, cache, HUTCH_EVENT_DID_REMOVE);
    clock.now += 2 * HUTCH_SECOND;
    CHECK_MISSING(cache, "a");
    hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
    uint64_t removed;
    CHECK_OK(hutch_trim(cache, &spec, &removed));
    /* The maintenance thread may be the one that tells. */
    while (i == 1 && length_of(&r) < strlen("-at1=1 -at2"))
      CHECK_OK(hutch_trim(cache, &spec, &removed));
    CHECK_TOLD(&r, i ? "-at1=1 -at2" : "-at1=1");
    CHECK_OK(hutch_close(cache));
    clock.released = 0;
  }
}

TEST(what_has_expired_is_told_by_each_tier_when_it_is_replaced) {
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  record r;
  hutch_put_options put = put_options();
  put.time_to_live = HUTCH_SECOND;
  CHECK_OK(hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
  listen_to(&r, cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE);
  clock.now += 2 * HUTCH_SECOND;
  CHECK_OK(put_text(cache, "a", "2"));
  /* Maintenance may have removed it from either tier first. */
  CHECK(strstr(r.text, "-at1=1") && strstr(r.text, "-at2") && strstr(r.text, "+a3=2"));
  CHECK_EQUAL(strlen("-at1=1 -at2 +a3=2"), r.length);
  CHECK_EQUAL(1, stats_of(cache).disk.expirations);
  CHECK_OK(hutch_close(cache));
}

/* Memory's entry lives; the put that replaces it is no read of the disk's. */
TEST(what_has_been_idle_for_too_long_on_disk_is_told_when_it_is_replaced) {
  test_clock clock = {0};
  hutch_options options = unlimited_options();
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.disk.time_to_idle = HUTCH_SECOND;
  use_clock(&options, &clock);
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  record r;
  CHECK_OK(put_text(cache, "a", "1"));
  clock.now += 2 * HUTCH_SECOND;
  check_where(cache, "a", true, false);
  listen_to(&r, cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE);
  CHECK_OK(put_text(cache, "a", "2"));
  CHECK(strstr(r.text, "-ar1=1") && strstr(r.text, "-at2") && strstr(r.text, "+a3=2"));
  CHECK_EQUAL(strlen("-ar1=1 -at2 +a3=2"), r.length);
  CHECK_EQUAL(1, stats_of(cache).disk.expirations);
  CHECK_OK(hutch_close(cache));
}

TEST(what_expires_on_its_way_to_the_disk_is_told_when_it_is_replaced) {
  for (int is_removal = 0; is_removal < 2; is_removal++) {
    hutch_options options = unlimited_options();
    test_clock clock = {0};
    use_clock(&options, &clock);
    options.flags |= HUTCH_OPEN_NO_THREADS;
    options.write_policy = HUTCH_WRITE_ON_EVICTION;
    options.policy = HUTCH_POLICY_LRU;
    options.memory.count = 1;
    hutch_cache *cache = open_cache(scratch(is_removal ? "removed" : "put").text, &options);
    record r;
    hutch_put_options put = put_options();
    put.time_to_live = HUTCH_SECOND;
    CHECK_OK(hutch_put(cache, KEY("a"), KEY("1"), &put, NULL));
    CHECK_OK(put_text(cache, "b", "2"));
    listen_to(&r, cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE);
    clock.now += 2 * HUTCH_SECOND;
    if (is_removal)
      CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("a")));
    else
      CHECK_OK(hutch_put(cache, KEY("a"), KEY("3"), &put, NULL));
    CHECK(strstr(r.text, "-at2=1"));
    CHECK(is_removal || strstr(r.text, "+a1=3") > strstr(r.text, "-at2=1"));
    CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
    CHECK_OK(hutch_close(cache));
  }
}

TEST_EACH_KIND(a_clear_is_told) {
  record r;
  CHECK_OK(put_text(f->cache, "a", "1"));
  listen_to(&r, f->cache, HUTCH_EVENT_ALL);
  CHECK_OK(hutch_clear(f->cache));
  CHECK_TOLD(&r, k == IN_MEMORY || k == MEMORY_VIEW ? "?01 ?-ac1=1 -ac1=1 01"
                 : k == TWO_TIERS                   ? "?03 ?-ac1=1 -ac1=1 03"
                                                    : "?02 02");
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
}

typedef struct clearing {
  hutch_cache *cache;
  _Atomic bool is_told, is_over;
  _Atomic pid_t clearer;
  _Atomic int removals;
} clearing;

/* The event of the put keeps those behind it from being told, until the clear waits or is told. */
static void keep_back(void *context, const hutch_event *event) {
  clearing *c = context;
  if (event->kind == HUTCH_EVENT_DID_ADD) {
    atomic_store(&c->is_told, true);
    while (!atomic_load(&c->is_over) &&
           !(atomic_load(&c->clearer) && sleeps(atomic_load(&c->clearer)))) nap();
  }
  if (event->kind == HUTCH_EVENT_DID_CLEAR) atomic_store(&c->is_over, true);
  if (event->kind == HUTCH_EVENT_DID_REMOVE) {
    CHECK_EQUAL(HUTCH_CAUSE_CLEARED, event->cause);
    CHECK(!atomic_load(&c->is_over));
    atomic_fetch_add(&c->removals, 1);
  }
}

static void put_or_clear(void *context, int index) {
  clearing *c = context;
  if (index == 0) {
    CHECK_OK(put_text(c->cache, "key", "value"));
  } else {
    while (!atomic_load(&c->is_told)) nap();
    atomic_store(&c->clearer, gettid());
    CHECK_OK(hutch_clear(c->cache));
  }
}

TEST(a_clear_is_over_when_its_removals_are_told_by_whatever_thread) {
  for (int i = 0; i < 12; i++) {
    char name[16];
    snprintf(name, sizeof name, "cache%d", i);
    clearing c = {.cache = open_cache(i % 2 ? scratch(name).text : NULL, NULL)};
    CHECK_OK(hutch_set_listener(c.cache, HUTCH_EVENT_ALL, keep_back, &c, NULL));
    run_threads(2, put_or_clear, &c);
    CHECK_EQUAL(1, atomic_load(&c.removals));
    CHECK_OK(hutch_close(c.cache));
  }
}

TEST_EACH_KIND(a_trim_is_told_before_it_returns) {
  CHECK_OK(put_text(f->cache, "a", "small"));
  CHECK_OK(put_text(f->cache, "b", "larger"));
  record r;
  listen_to(&r, f->cache, HUTCH_EVENT_ALL);
  hutch_trim_spec spec = {
      .struct_size = sizeof spec, .kind = HUTCH_TRIM_LARGER_THAN, .amount = 5};
  CHECK_OK(hutch_trim(f->cache, &spec, NULL));
  CHECK_TOLD(&r, k == IN_MEMORY || k == MEMORY_VIEW ? "?-be1=larger -be1=larger"
                 : k == TWO_TIERS ? "?-be1=larger -be1=larger ?-be2 -be2" : "?-be2 -be2");
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
  /* No event that waits keeps the listener. */
  CHECK_EQUAL(1, r.released);
}

TEST(a_put_that_no_tier_took_adds_nothing) {
  hutch_options options = unlimited_options();
  options.memory.max_entry = options.disk.max_entry = 4000;
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = open_cache(i ? scratch("cache").text : NULL, &options);
    CHECK_OK(put_text(cache, "a", "small"));
    record r;
    listen_to(&r, cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE);
    CHECK_STATUS(HUTCH_TOO_LARGE, put_size(cache, "a", 9000));
    CHECK_TOLD(&r, i ? "-ar3=small" : "-ar1=small");
    CHECK_OK(hutch_close(cache));
  }
}

TEST(a_listener_is_released_once_when_its_last_call_is_over) {
  hutch_cache *cache = open_cache(NULL, NULL), *view = tier_of(cache, HUTCH_TIER_MEMORY);
  record one, two;
  listen_to(&one, cache, entries);
  listen_to(&two, view, entries);
  CHECK_EQUAL(1, one.released);
  CHECK_EQUAL(0, two.released);
  CHECK_OK(put_text(cache, "a", "1"));
  CHECK_TOLD(&one, "");
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_listener(cache, 1024, note, &one, let_go));
  CHECK_EQUAL(2, one.released);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_set_listener(NULL, 1, note, &one, let_go));
  CHECK_EQUAL(3, one.released);
  hutch_cache_release(view);
  hutch_cache_retain(cache);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, two.released);
  CHECK_STATUS(HUTCH_CLOSED, hutch_set_listener(cache, 1, note, &one, let_go));
  CHECK_EQUAL(4, one.released);
  hutch_cache_release(cache);
}

static void count_one(void *context, const hutch_event *event) {
  (void)event;
  ++*(_Atomic int *)context;
}

/* Called from a listener: another key, the same key, and what waits. */
static _Atomic int depth, nested;
static void call_back(void *context, const hutch_event *event) {
  hutch_cache *cache = context;
  if (event->kind == HUTCH_EVENT_DID_ADD && nested < 10) {
    nested++;
    CHECK_EQUAL(0, depth);
    CHECK_OK(put_text(cache, "other", "nested"));
    depth++;
    CHECK_OK(hutch_put(cache, event->key, event->key_size, "again", 5, NULL, NULL));
    depth--;
  }
  hutch_value *value;
  hutch_status status = hutch_get(cache, event->key, event->key_size, &value);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  hutch_value_release(value);
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(cache));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(cache));
}

/* The listener of the first event changes the key once more, and ends itself. */
static void change_and_leave(void *context, const hutch_event *event) {
  record *r = context;
  note(r, event);
  if (event->version == 0 || r->cache == NULL) return;
  hutch_cache *cache = r->cache;
  r->cache = NULL;
  CHECK_OK(put_text(cache, "a", "two"));
  CHECK_OK(hutch_set_listener(cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(0, r->released);
  CHECK_OK(put_text(cache, "a", "three"));
}

TEST_EACH_KIND(a_listener_that_was_replaced_gets_the_events_of_before) {
  record r = {.cache = f->cache, .lock = PTHREAD_MUTEX_INITIALIZER};
  CHECK_OK(hutch_set_listener(f->cache, HUTCH_EVENT_DID_ADD, change_and_leave, &r, let_go));
  CHECK_OK(put_text(f->cache, "a", "one"));
  char expected[64];
  int tiers = k == TWO_TIERS ? 3 : k == DISK_VIEW ? 2 : 1;
  sprintf(expected, "+a%d=one +a%d=two", tiers, tiers);
  CHECK_TOLD(&r, expected);
  CHECK_EQUAL(1, r.released);
  CHECK_TEXT(f->cache, "a", "three");
}

TEST_EACH_KIND(a_listener_may_call_any_function) {
  depth = nested = 0;
  CHECK_OK(hutch_set_listener(f->cache, entries, call_back, f->whole, NULL));
  CHECK_OK(put_text(f->cache, "key", "first"));
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
  CHECK_EQUAL(10, nested);
  CHECK_TEXT(f->whole, "key", "again");
  CHECK_OK(hutch_contains(f->whole, KEY("other")));
}

/* Two caches of which each copies what is put into it to the other one. */
typedef struct mirror {
  hutch_cache *caches[2];
  _Atomic int told; /* listeners that have been called */
} mirror;
static _Thread_local bool is_copying;

static void copy_over(mirror *m, int to, const hutch_event *event) {
  if (is_copying) return;
  is_copying = true;
  m->told++;
  while (m->told < 2) nap();
  CHECK_OK(hutch_put(m->caches[to], event->key, event->key_size, "copy", 4, NULL, NULL));
  is_copying = false;
}
static void copy_to_first(void *context, const hutch_event *event) { copy_over(context, 0, event); }
static void copy_to_second(void *context, const hutch_event *event) { copy_over(context, 1, event); }
static void put_into_one(void *context, int index) {
  CHECK_OK(put_text(((mirror *)context)->caches[index], "key", "value"));
}

TEST(listeners_of_two_caches_may_write_to_each_other_at_once) {
  mirror m = {.told = 0};
  for (int i = 0; i < 2; i++) m.caches[i] = open_cache(NULL, NULL);
  CHECK_OK(hutch_set_listener(m.caches[0], HUTCH_EVENT_DID_ADD, copy_to_second, &m, NULL));
  CHECK_OK(hutch_set_listener(m.caches[1], HUTCH_EVENT_DID_ADD, copy_to_first, &m, NULL));
  run_threads(2, put_into_one, &m);
  for (int i = 0; i < 2; i++) {
    CHECK_TEXT(m.caches[i], "key", "copy");
    CHECK_OK(hutch_close(m.caches[i]));
  }
}

/* Several threads on few keys: the events of each key are in the order of its versions, each
   version is added at most once, and goes at most once from a tier. */
enum { KEYS = 8, PER_THREAD = 1500 };
typedef struct order {
  hutch_cache *cache;
  uint64_t seed;
  /* Written by one thread at a time for each key; checked to be so. */
  _Atomic int inside[KEYS];
  uint64_t added[KEYS], left[KEYS][3];
  _Atomic uint64_t adds, puts;
} order;

/* Entries whose time to idle ends while threads read them that have looked at the clock before. */
typedef struct idlers {
  hutch_cache *disk;
  _Atomic int64_t now;
  _Atomic int left;       /* puts that are still to be made */
  _Atomic int have[KEYS]; /* how many entries the disk has, as told */
} idlers;
static _Thread_local int64_t lag;

static int64_t clock_of_idlers(void *context) {
  return atomic_load(&((idlers *)context)->now) - lag;
}

static void count_entries(void *context, const hutch_event *event) {
  idlers *i = context;
  if (!(event->tiers & HUTCH_TIER_DISK)) return;
  int change = event->kind == HUTCH_EVENT_DID_ADD ? 1 : -1;
  atomic_fetch_add(&i->have[((const char *)event->key)[0] - '0'], change);
}

static void put_or_read(void *context, int index) {
  idlers *i = context;
  uint64_t state = (uint64_t)index + 1;
  lag = index < 2 ? 0 : HUTCH_SECOND * 9 / 10;
  while (atomic_load(&i->left) > 0) {
    char key = (char)('0' + next_random(&state) % KEYS);
    hutch_value *value = NULL;
    if (index < 2) {
      hutch_put_options options = put_options();
      options.time_to_idle = HUTCH_SECOND;
      atomic_fetch_add(&i->now, (int64_t)(next_random(&state) % (HUTCH_SECOND / 2)));
      CHECK_OK(hutch_put(i->disk, &key, 1, "value", 5, &options, NULL));
      atomic_fetch_sub(&i->left, 1);
    } else if (hutch_get(i->disk, &key, 1, &value) == HUTCH_OK) hutch_value_release(value);
  }
}

static void revive(uint32_t storage, int puts) {
  idlers i = {.now = INT64_C(1700000000) * HUTCH_SECOND, .left = puts};
  hutch_options options = unlimited_options();
  options.storage = storage;
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  options.clock = clock_of_idlers;
  options.clock_context = &i;
  path directory = scratch("idle");
  hutch_cache *cache = open_cache(directory.text, &options);
  i.disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE, count_entries,
                              &i, NULL));
  run_threads(4, put_or_read, &i);
  hutch_trim_spec expired = {.struct_size = sizeof expired, .kind = HUTCH_TRIM_EXPIRED};
  CHECK_OK(hutch_trim(cache, &expired, NULL));
  for (char key = '0'; key < '0' + KEYS; key++)
    CHECK_EQUAL(hutch_contains(i.disk, &key, 1) == HUTCH_OK, i.have[key - '0']);
  hutch_cache_release(i.disk);
  CHECK_OK(hutch_close(cache));
  remove_tree(directory.text);
}

TEST(an_idle_entry_that_a_read_revives_is_told_when_it_is_replaced) {
  revive(HUTCH_STORAGE_LOG, repeats(60000));
  revive(HUTCH_STORAGE_MIXED, repeats(10000));
}

static void check_order(void *context, const hutch_event *event) {
  order *o = context;
  if (!event->key) return;
  int key = ((const char *)event->key)[0] - '0';
  CHECK_EQUAL(0, o->inside[key]++);
  if (event->kind == HUTCH_EVENT_DID_ADD) {
    CHECK(event->version > o->added[key]);
    o->added[key] = event->version;
    o->adds++;
  } else if (event->kind == HUTCH_EVENT_DID_REMOVE) {
    /* It was added before, and nothing newer was. */
    CHECK(event->version <= o->added[key]);
    for (uint32_t tier = 1; tier <= 2; tier++) {
      if (!(event->tiers & tier)) continue;
      /* From memory a version can go again, if a get has brought it back. */
      if (tier == 2) CHECK(event->version > o->left[key][tier]);
      CHECK(event->version >= o->left[key][tier]);
      o->left[key][tier] = event->version;
    }
  }
  o->inside[key]--;
}

static void write_and_read(void *context, int index) {
  order *o = context;
  uint64_t state = o->seed + (uint64_t)index * 977;
  for (int i = 0; i < repeats(PER_THREAD); i++) {
    uint64_t random = next_random(&state);
    char key[2] = {(char)('0' + random % KEYS), 0};
    char value[32];
    sprintf(value, "%d.%d", index, i);
    hutch_value *got;
    switch (random / KEYS % 8) {
      case 0:
      case 1:
      case 2:
        CHECK_OK(put_text(o->cache, key, value));
        o->puts++;
        break;
      case 3: {
        hutch_status status = hutch_remove(o->cache, KEY(key));
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
        break;
      }
      default: {
        hutch_status status = hutch_get(o->cache, KEY(key), &got);
        CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
        hutch_value_release(got);
      }
    }
  }
}

TEST(events_of_a_key_come_in_the_order_of_its_versions) {
  for (int i = 0; i < 4; i++) {
    hutch_options options = unlimited_options();
    options.memory.count = i % 2 ? 3 : HUTCH_NO_LIMIT;
    if (i == 3) options.disk.count = 5;
    hutch_cache *cache = open_cache(i >= 2 ? scratch(i == 2 ? "a" : "b").text : NULL, &options);
    order *o = calloc(1, sizeof *o);
    o->cache = cache;
    o->seed = seed();
    CHECK_OK(hutch_set_listener(cache, entries, check_order, o, NULL));
    run_threads(4, write_and_read, o);
    CHECK_EQUAL(o->puts, o->adds);
    CHECK_OK(hutch_close(cache));
    free(o);
  }
}

/* More keys than lanes: some share one. */
TEST_EACH_KIND(many_keys_in_one_call_are_told_of) {
  enum { MANY = 300 };
  char texts[MANY][8];
  const void *keys[MANY];
  size_t sizes[MANY];
  for (int i = 0; i < MANY; i++) {
    sizes[i] = (size_t)sprintf(texts[i], "%d", i);
    keys[i] = texts[i];
  }
  static _Atomic int told;
  told = 0;
  CHECK_OK(hutch_set_listener(f->cache, entries, count_one, (void *)&told, NULL));
  hutch_batch *batch;
  CHECK_OK(hutch_put_many(f->cache, keys, sizes, keys, sizes, MANY, NULL, &batch));
  hutch_batch_release(batch);
  CHECK_EQUAL(2 * MANY, told);
  CHECK_OK(hutch_remove_many(f->cache, keys, sizes, MANY, &batch));
  hutch_batch_release(batch);
  CHECK_EQUAL(4 * MANY, told);
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
}

TEST(a_directory_that_goes_and_comes_back_is_told) {
  path directory = scratch("cache"), away = scratch("away");
  hutch_options options = unlimited_options();
  test_clock clock = {0};
  use_clock(&options, &clock);
  options.flags |= HUTCH_OPEN_NO_THREADS; /* whose thread would make the directory anew */
  hutch_cache *cache = open_cache(directory.text, &options);
  record r;
  listen_to(&r, cache, HUTCH_EVENT_TIER_DOWN | HUTCH_EVENT_TIER_UP);
  CHECK_OK(put_text(cache, "a", "1"));
  CHECK(rename(directory.text, away.text) == 0);
  while (put_text(cache, "b", "2") == HUTCH_OK) continue;
  CHECK_TOLD(&r, "down2");
  CHECK(rename(away.text, directory.text) == 0);
  /* On a clock of the host's, counting does the maintenance. */
  do (void)count_of(cache);
  while (stats_of(cache).disk.state != HUTCH_STATE_UP);
  CHECK_TOLD(&r, "up2");
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- pressure */

TEST(a_notification_empties_memory_unless_the_options_say_otherwise) {
  const uint32_t responses[] = {HUTCH_SHRINK_DEFAULT, HUTCH_SHRINK_EMPTY, HUTCH_SHRINK_LOW_WATER,
                                HUTCH_SHRINK_EXPIRED};
  for (int tiers = 1; tiers <= 2; tiers++) {
    for (int i = 0; i < 4; i++) {
      for (uint32_t what = 1; what <= 2; what++) {
        char name[32];
        sprintf(name, "%d %d %u", tiers, i, what);
        check_note(name);
        hutch_options options = unlimited_options();
        test_clock clock = {0};
        use_clock(&options, &clock);
        options.memory.cost = 1000;
        options.low_water = 40;
        options.on_memory_warning = what == 1 ? responses[i] : HUTCH_SHRINK_EXPIRED;
        options.on_background = what == 2 ? responses[i] : HUTCH_SHRINK_EXPIRED;
        hutch_cache *cache = open_cache(tiers == 2 ? scratch(name).text : NULL, &options);
        hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
        hutch_put_options put = put_options();
        put.cost = 100;
        for (char key[] = "0"; key[0] < '9'; key[0]++) {
          CHECK_OK(hutch_put(cache, KEY(key), KEY("value"), &put, NULL));
        }
        put.time_to_live = HUTCH_SECOND;
        CHECK_OK(hutch_put(cache, KEY("short"), KEY("value"), &put, NULL));
        clock.now += HUTCH_MINUTE;
        record r;
        listen_to(&r, cache, HUTCH_EVENT_MEMORY_WARNING | HUTCH_EVENT_ENTERED_BACKGROUND);
        CHECK_OK(hutch_notify(cache, what));
        CHECK_TOLD(&r, tiers == 2 ? (what == 1 ? "warning3" : "background3")
                                  : (what == 1 ? "warning1" : "background1"));
        CHECK_EQUAL(i < 2 ? 0 : i == 2 ? 4 : 9, count_of(memory));
        if (tiers == 2) CHECK_EQUAL(9, count_of(cache));
        hutch_cache_release(memory);
        CHECK_OK(hutch_close(cache));
      }
    }
  }
  check_note(NULL);
}

static void count_then(void *context, const hutch_event *event) {
  hutch_cache *cache = context;
  CHECK_EQUAL(HUTCH_EVENT_MEMORY_WARNING, event->kind);
  CHECK_EQUAL(1, count_of(cache));
  nested = 1;
}

TEST(the_event_comes_before_the_shrinking) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "a", "1"));
  nested = 0;
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_MEMORY_WARNING, count_then, cache, NULL));
  CHECK_OK(hutch_notify(cache, HUTCH_NOTIFY_MEMORY_WARNING));
  CHECK_EQUAL(1, nested);
  CHECK_EQUAL(0, count_of(cache));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_notify(cache, 0));
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_notify(cache, 3));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_notify(NULL, 1));
  CHECK_OK(hutch_close(cache));
}

TEST(bad_ways_to_shrink_are_refused) {
  hutch_options options = default_options();
  hutch_cache *cache;
  options.on_memory_warning = 4;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(NULL, &options, &cache));
  options = default_options();
  options.low_water = 101;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &cache));
}
