/* The group 'loaders' of hutch.h: first by one thread through the open form, where every
   interleaving can be written down, then with threads. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

static hutch_load_options load_options(void) {
  return (hutch_load_options){.struct_size = sizeof(hutch_load_options)};
}

/* A part in a load of key, which must come to `expected`. */
#define BEGIN(expected, cache, key) check_begin(__FILE__, __LINE__, expected, cache, key, NULL)
#define BEGIN_WITH(expected, cache, key, options) \
  check_begin(__FILE__, __LINE__, expected, cache, key, options)
static hutch_loading *check_begin(const char *file, int line, hutch_status expected,
                                  hutch_cache *cache, const char *key,
                                  const hutch_load_options *options) {
  hutch_value *value = NULL;
  hutch_loading *loading = NULL;
  check_status(file, line, key, expected,
               hutch_load_begin(cache, KEY(key), options, &value, &loading));
  if ((value != NULL) != (expected == HUTCH_OK)) check_fail(file, line, "%s: the value", key);
  hutch_value_release(value);
  return loading;
}

/* What waiting comes to; of HUTCH_OK the value is `text`. */
#define CHECK_WAIT(expected, loading, timeout, text) \
  check_wait(__FILE__, __LINE__, expected, loading, timeout, text)
static void check_wait(const char *file, int line, hutch_status expected, hutch_loading *loading,
                       int64_t timeout, const char *text) {
  hutch_value *value = NULL;
  check_status(file, line, "hutch_loading_wait", expected, hutch_loading_wait(loading, timeout, &value));
  if (expected == HUTCH_OK)
    check_bytes(file, line, "the value", text, strlen(text), hutch_value_data(value),
                hutch_value_size(value));
  else if (value) check_fail(file, line, "there is a value");
  hutch_value_release(value);
}

static hutch_status fulfil(hutch_loading *loading, const char *text) {
  return hutch_loading_fulfil(loading, KEY(text), NULL);
}

static void end(hutch_loading *a, hutch_loading *b, hutch_loading *c) {
  hutch_loading_release(a);
  hutch_loading_release(b);
  hutch_loading_release(c);
}

/* ------------------------------------------------------------ the open form */

TEST_EACH_KIND(a_leader_makes_the_value_for_who_waits) {
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  CHECK_WAIT(HUTCH_NOT_FOUND, leader, HUTCH_FOREVER, NULL);
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  hutch_loading *third = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  hutch_loading *other = BEGIN(HUTCH_NOT_FOUND, f->cache, "other");
  CHECK_WAIT(HUTCH_WOULD_BLOCK, second, 0, NULL);
  CHECK_WAIT(HUTCH_TIMED_OUT, second, HUTCH_MILLISECOND, NULL);
  CHECK_EQUAL(HUTCH_TIMED_OUT, last_error().status);
  CHECK(last_error().words[0]);
  CHECK_MISSING(f->cache, "k");
  CHECK_OK(fulfil(leader, "made"));
  CHECK_WAIT(HUTCH_OK, leader, 0, "made");
  CHECK_WAIT(HUTCH_OK, second, 0, "made");
  CHECK_WAIT(HUTCH_OK, third, HUTCH_FOREVER, "made");
  CHECK_WAIT(HUTCH_OK, third, 0, "made");
  CHECK_TEXT(f->cache, "k", "made");
  CHECK(BEGIN(HUTCH_OK, f->cache, "k") == NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, fulfil(leader, "again"));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fail(leader, 1, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, fulfil(second, "never led"));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fail(second, 1, NULL));
  CHECK_TEXT(f->cache, "k", "made");
  CHECK_WAIT(HUTCH_NOT_FOUND, other, 0, NULL);
  CHECK(hutch_loading_retain(other) == other);
  hutch_loading_release(other);
  CHECK_OK(fulfil(other, ""));
  CHECK_TEXT(f->cache, "other", "");
  end(leader, second, third);
  hutch_loading_release(other);
}

TEST_EACH_KIND(a_loaded_value_is_stored_with_options) {
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_MINUTE;
  options.cost = 77;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_loading_fulfil(leader, "v", 1, &options));
  hutch_entry_info info = info_of(f->cache, "k");
  CHECK_EQUAL(f->clock.now + HUTCH_MINUTE, info.expires);
  CHECK_EQUAL(77, info.cost);
  CHECK_EQUAL(4, info.extended_size);
  hutch_value *value = get_value(f->cache, "k");
  CHECK_BYTES("more", 4, hutch_value_extended(value), hutch_value_extended_size(value));
  hutch_value_release(value);
  CHECK_EQUAL(1, count_of(f->whole));
  end(leader, NULL, NULL);
}

TEST_EACH_KIND(a_failure_reaches_who_waits_and_is_forgotten) {
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  CHECK_OK(hutch_loading_fail(leader, 404, "no such page"));
  for (int i = 0; i < 2; i++) {
    /* Another failure comes between. */
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get(f->cache, NULL, 0, NULL));
    CHECK_WAIT(HUTCH_LOAD_FAILED, i ? leader : second, 0, NULL);
    CHECK_EQUAL(HUTCH_LOAD_FAILED, last_error().status);
    CHECK_EQUAL(404, last_error().system_error);
    CHECK(strcmp(last_error().words, "the loader failed: no such page") == 0);
  }
  hutch_loading *next = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  char words[5000];
  memset(words, 'w', sizeof words);
  words[sizeof words - 1] = 0;
  CHECK_OK(hutch_loading_fail(next, 2, words));
  CHECK_WAIT(HUTCH_LOAD_FAILED, next, 0, NULL);
  CHECK_EQUAL(strlen("the loader failed: ") + 200, strlen(last_error().words));
  end(leader, second, next);
  /* No character is cut: the 200th byte is the first one of an "é". */
  for (int i = 199; i < 4900; i += 2) memcpy(words + i, "é", 2);
  next = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  CHECK_OK(hutch_loading_fail(next, 2, words));
  CHECK_WAIT(HUTCH_LOAD_FAILED, next, 0, NULL);
  CHECK_EQUAL(strlen("the loader failed: ") + 199, strlen(last_error().words));
  end(next, NULL, NULL);
  next = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  CHECK_OK(hutch_loading_fail(next, 2, NULL));
  CHECK_WAIT(HUTCH_LOAD_FAILED, next, 0, NULL);
  CHECK(strcmp(last_error().words, "the loader failed") == 0);
  end(next, NULL, NULL);
}

TEST_EACH_KIND(a_failure_is_remembered_where_asked) {
  hutch_load_options options = load_options();
  options.negative_time_to_live = HUTCH_SECOND;
  static const char *const enders[] = {"time", "put", "remove", "clear"};
  for (int way = 0; way < 4; way++) {
    check_note(enders[way]);
    hutch_loading *leader = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
    CHECK_OK(hutch_loading_fail(leader, 7, "gone"));
    end(leader, NULL, NULL);
    f->clock.now += HUTCH_SECOND - 1;
    CHECK(!BEGIN(HUTCH_LOAD_FAILED, f->cache, "k"));
    CHECK_EQUAL(7, last_error().system_error);
    CHECK(strcmp(last_error().words, "the loader failed: gone") == 0);
    CHECK_MISSING(f->cache, "k");
    if (way == 0) f->clock.now += 1;
    if (way == 1) {
      CHECK_OK(put_text(f->cache, "k", "there"));
      CHECK_TEXT(f->cache, "k", "there");
      CHECK_OK(hutch_remove(f->cache, KEY("k")));
    }
    if (way == 2) CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(f->cache, KEY("k")));
    if (way == 3) CHECK_OK(hutch_clear(f->cache));
    leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
    CHECK_OK(fulfil(leader, "v"));
    CHECK_OK(hutch_remove(f->cache, KEY("k")));
    end(leader, NULL, NULL);
  }
  check_note(NULL);
}

TEST(remembered_failures_take_little_memory) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_load_options options = load_options();
  options.negative_time_to_live = HUTCH_DAY;
  char key[1000];
  enum { FAILURES = 3000 };
  for (int i = 0; i < FAILURES; i++) {
    snprintf(key, sizeof key, "%0999d", i);
    hutch_loading *leader = BEGIN_WITH(HUTCH_NOT_FOUND, cache, key, &options);
    CHECK_OK(hutch_loading_fail(leader, i, NULL));
    hutch_loading_release(leader);
  }
  int remembered = 0;
  for (int i = 0; i < FAILURES; i++) {
    snprintf(key, sizeof key, "%0999d", i);
    hutch_value *value;
    hutch_loading *loading;
    hutch_status status = hutch_load_begin(cache, KEY(key), NULL, &value, &loading);
    hutch_loading_release(loading);
    if (status == HUTCH_LOAD_FAILED) {
      CHECK_EQUAL(i, last_error().system_error);
      remembered++;
    } else CHECK(status == HUTCH_NOT_FOUND && remembered == 0);
  }
  /* The newest, and as many as 1 MiB has room for. */
  CHECK(remembered >= 200 && remembered <= 1024 * 1024 / 999);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------- writes during the load */

/* The ways to write "k" while it is loaded, and what is there afterwards (NULL: nothing). */
typedef struct way {
  const char *name, *after;
} way;

static const way ways[] = {{"put", "newer"}, {"add", "newer"}, {"put_many", "newer"},
                           {"remove", NULL}, {"pop", NULL}, {"remove_many", NULL},
                           {"clear", NULL}, {"remove_async", NULL}, {"clear_async", NULL},
                           {"put and remove", NULL}};
enum { WAYS = sizeof ways / sizeof *ways };

static void write_by(const way *way, hutch_cache *cache) {
  const void *key = "k", *value = "newer";
  const size_t key_size = 1, value_size = 5;
  hutch_batch *batch = NULL;
  hutch_value *popped = NULL;
  hutch_task *task = NULL;
  switch (way - ways) {
  case 0: CHECK_OK(put_text(cache, "k", "newer")); break;
  case 1: CHECK_OK(hutch_add(cache, "k", 1, "newer", 5, NULL, NULL)); break;
  case 2:
    CHECK_OK(hutch_put_many(cache, &key, &key_size, &value, &value_size, 1, NULL, &batch));
    break;
  case 3: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, "k", 1)); break;
  case 4: CHECK_STATUS(HUTCH_NOT_FOUND, hutch_pop(cache, "k", 1, &popped)); break;
  case 5: CHECK_OK(hutch_remove_many(cache, &key, &key_size, 1, &batch)); break;
  case 6: CHECK_OK(hutch_clear(cache)); break;
  case 7:
    CHECK_OK(hutch_remove_async(cache, "k", 1, NULL, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    break;
  case 8:
    CHECK_OK(hutch_clear_async(cache, NULL, &task));
    CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
    break;
  default:
    CHECK_OK(put_text(cache, "k", "newer"));
    CHECK_OK(hutch_remove(cache, "k", 1));
  }
  hutch_batch_release(batch);
  hutch_task_release(task);
}

static void check_after(hutch_cache *cache, const char *text) {
  if (text) CHECK_TEXT(cache, "k", text);
  else CHECK_MISSING(cache, "k");
}

TEST_EACH_KIND(a_write_during_the_load_is_newer) {
  for (const way *way = ways; way < ways + WAYS; way++) {
    check_note(way->name);
    const char *answer = way->after ? way->after : "made";
    hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
    hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
    write_by(way, f->cache);
    CHECK_STATUS(HUTCH_SUPERSEDED, fulfil(leader, "made"));
    CHECK_WAIT(HUTCH_OK, leader, 0, answer);
    CHECK_WAIT(HUTCH_OK, second, 0, answer);
    check_after(f->cache, way->after);
    check_after(f->whole, way->after);
    end(leader, second, NULL);
    hutch_remove(f->cache, KEY("k"));
  }
  check_note(NULL);
}

TEST_EACH_KIND(who_asks_after_a_write_takes_part_in_another_load) {
  for (const way *way = ways + 3; way < ways + WAYS; way++) {
    check_note(way->name);
    hutch_loading *first = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
    write_by(way, f->cache);
    hutch_loading *second = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
    hutch_loading *third = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
    CHECK_STATUS(HUTCH_SUPERSEDED, fulfil(first, "older"));
    CHECK_WAIT(HUTCH_OK, first, 0, "older");
    CHECK_WAIT(HUTCH_WOULD_BLOCK, third, 0, NULL);
    CHECK_MISSING(f->cache, "k");
    CHECK_OK(fulfil(second, "made"));
    CHECK_WAIT(HUTCH_OK, third, 0, "made");
    CHECK_TEXT(f->cache, "k", "made");
    CHECK_OK(hutch_remove(f->cache, KEY("k")));
    end(first, second, third);
  }
  check_note(NULL);
}

TEST_EACH_KIND(a_put_during_a_load_that_fails_is_what_all_get) {
  hutch_load_options options = load_options();
  options.negative_time_to_live = HUTCH_DAY;
  hutch_loading *leader = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  CHECK_OK(put_text(f->cache, "k", "newer"));
  CHECK_STATUS(HUTCH_SUPERSEDED, hutch_loading_fail(leader, 1, "x"));
  CHECK_WAIT(HUTCH_OK, leader, 0, "newer");
  CHECK_WAIT(HUTCH_OK, second, 0, "newer");
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  end(leader, second, NULL);
  /* Nor is a failure remembered that a removal has made old. */
  leader = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(f->cache, KEY("k")));
  CHECK_OK(hutch_loading_fail(leader, 1, "x"));
  CHECK_WAIT(HUTCH_LOAD_FAILED, leader, 0, NULL);
  second = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  end(leader, second, NULL);
}

TEST_EACH_KIND(writes_that_do_not_happen_leave_the_load_alone) {
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_replace(f->cache, KEY("k"), KEY("v"), NULL, NULL));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_touch(f->cache, KEY("k"), HUTCH_SECOND, 0));
  CHECK_OK(put_text(f->cache, "other", "v"));
  CHECK_OK(hutch_remove(f->cache, KEY("other")));
  CHECK_OK(fulfil(leader, "made"));
  CHECK_TEXT(f->cache, "k", "made");
  end(leader, NULL, NULL);
}

TEST(a_put_through_another_view_is_newer_too) {
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &options);
  hutch_cache *views[] = {cache, tier_of(cache, HUTCH_TIER_MEMORY),
                          tier_of(cache, HUTCH_TIER_DISK)};
  for (int loads = 0; loads < 3; loads++)
    for (int puts = 0; puts < 3; puts++) {
      hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, views[loads], "k");
      CHECK_OK(put_text(views[puts], "k", "newer"));
      CHECK_STATUS(HUTCH_SUPERSEDED, fulfil(leader, "made"));
      CHECK_TEXT(cache, "k", "newer");
      CHECK_OK(hutch_clear(cache));
      end(leader, NULL, NULL);
    }
  hutch_cache_release(views[1]);
  hutch_cache_release(views[2]);
  CHECK_OK(hutch_close(cache));
}

TEST_EACH_KIND(a_value_that_no_tier_takes_is_given_all_the_same) {
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.max_entry = limits.disk.max_entry = 1000;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  char *large = filled(5000, 1);
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_loading_fulfil(leader, large, 5000, NULL));
  hutch_value *value;
  CHECK_OK(hutch_loading_wait(second, 0, &value));
  CHECK_BYTES(large, 5000, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_MISSING(f->cache, "k");
  end(leader, second, NULL);
  free(large);
}

/* ------------------------------------------------------------ who leads next */

TEST_EACH_KIND(a_lead_that_is_given_up_passes_on) {
  for (int way = 0; way < 2; way++) {
    hutch_loading *first = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
    hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
    hutch_loading *third = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
    if (way == 0) {
      CHECK_OK(hutch_loading_abandon(first));
      CHECK_OK(hutch_loading_abandon(first));
      CHECK_WAIT(HUTCH_CANCELLED, first, HUTCH_FOREVER, NULL);
      CHECK_STATUS(HUTCH_INVALID_ARGUMENT, fulfil(first, "old"));
    } else {
      hutch_loading_release(first);
      first = NULL;
    }
    CHECK_WAIT(HUTCH_NOT_FOUND, second, HUTCH_FOREVER, NULL);
    CHECK_WAIT(HUTCH_WOULD_BLOCK, third, 0, NULL);
    CHECK_OK(fulfil(second, "made"));
    CHECK_WAIT(HUTCH_OK, third, 0, "made");
    end(first, second, third);
    CHECK_OK(hutch_remove(f->cache, KEY("k")));
  }
  /* To the next who asks, if those who wait do not look. */
  hutch_loading *first = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  CHECK_OK(hutch_loading_abandon(first));
  hutch_loading *third = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  CHECK_OK(hutch_loading_abandon(second));
  CHECK_WAIT(HUTCH_CANCELLED, second, 0, NULL);
  CHECK_OK(fulfil(third, "made"));
  end(first, second, third);
  /* A load is over when no caller waits for it. */
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  first = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  end(first, NULL, NULL);
  first = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  end(first, NULL, NULL);
}

/* A part in the load of "k" by the second caller: by then the first one's time may be over. */
static hutch_loading *begin_second(hutch_cache *cache) {
  hutch_value *value;
  hutch_loading *loading;
  hutch_status status = hutch_load_begin(cache, KEY("k"), NULL, &value, &loading);
  CHECK(status == HUTCH_WOULD_BLOCK || status == HUTCH_NOT_FOUND);
  return loading;
}

TEST_EACH_KIND(a_lead_ends_by_time_if_somebody_waits) {
  hutch_load_options options = load_options();
  options.timeout = HUTCH_MILLISECOND;
  hutch_loading *first = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
  hutch_loading *second = begin_second(f->cache);
  CHECK_WAIT(HUTCH_NOT_FOUND, second, HUTCH_FOREVER, NULL);
  CHECK_WAIT(HUTCH_TIMED_OUT, first, HUTCH_FOREVER, NULL);
  /* A late result is its maker's alone. */
  CHECK_STATUS(HUTCH_SUPERSEDED, fulfil(first, "late"));
  CHECK_WAIT(HUTCH_OK, first, 0, "late");
  CHECK_MISSING(f->cache, "k");
  CHECK_WAIT(HUTCH_NOT_FOUND, second, 0, NULL);
  CHECK_OK(fulfil(second, "made"));
  CHECK_WAIT(HUTCH_OK, first, 0, "made");
  CHECK_TEXT(f->cache, "k", "made");
  end(first, second, NULL);
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  /* And a late failure is told to no caller. */
  first = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
  second = begin_second(f->cache);
  CHECK_WAIT(HUTCH_NOT_FOUND, second, HUTCH_FOREVER, NULL);
  CHECK_STATUS(HUTCH_SUPERSEDED, hutch_loading_fail(first, 1, "late"));
  CHECK_WAIT(HUTCH_NOT_FOUND, second, 0, NULL);
  end(first, second, NULL);
  /* As long as no other caller has the lead, a leader that is late still leads. */
  first = BEGIN_WITH(HUTCH_NOT_FOUND, f->cache, "k", &options);
  usleep(2000);
  CHECK_OK(fulfil(first, "made"));
  CHECK_TEXT(f->cache, "k", "made");
  end(first, NULL, NULL);
}

TEST_EACH_KIND(who_waits_does_so_for_its_own_time) {
  hutch_load_options options = load_options();
  options.timeout = HUTCH_MILLISECOND;
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, f->cache, "k");
  hutch_loading *brief = BEGIN_WITH(HUTCH_WOULD_BLOCK, f->cache, "k", &options);
  hutch_loading *patient = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "k");
  CHECK_WAIT(HUTCH_TIMED_OUT, brief, HUTCH_FOREVER, NULL);
  CHECK_WAIT(HUTCH_TIMED_OUT, brief, 0, NULL);
  CHECK_WAIT(HUTCH_TIMED_OUT, patient, HUTCH_MILLISECOND, NULL);
  /* Its time is over, so the lead is not for it. */
  CHECK_OK(hutch_loading_abandon(leader));
  CHECK_WAIT(HUTCH_TIMED_OUT, brief, 0, NULL);
  CHECK_WAIT(HUTCH_NOT_FOUND, patient, HUTCH_FOREVER, NULL);
  CHECK_OK(fulfil(patient, "made"));
  CHECK_WAIT(HUTCH_OK, brief, 0, "made");
  CHECK_WAIT(HUTCH_CANCELLED, leader, 0, NULL);
  end(leader, brief, patient);
}

/* -------------------------------------------------------------------- cycles */

static hutch_loading *check_begin_within(const char *file, int line, hutch_status expected,
                                         hutch_cache *cache, const char *key,
                                         hutch_loading *parent) {
  hutch_load_options options = load_options();
  options.parent = parent;
  return check_begin(file, line, expected, cache, key, &options);
}
#define WITHIN(expected, cache, key, parent) \
  check_begin_within(__FILE__, __LINE__, expected, cache, key, parent)

TEST_EACH_KIND(a_cycle_is_a_deadlock) {
  static const char *const keys[] = {"a", "b", "c"};
  for (int length = 1; length <= 3; length++) {
    hutch_loading *leads[3] = {NULL}, *waits[3] = {NULL};
    for (int i = 0; i < length; i++) leads[i] = BEGIN(HUTCH_NOT_FOUND, f->cache, keys[i]);
    for (int i = 0; i + 1 < length; i++)
      waits[i] = WITHIN(HUTCH_WOULD_BLOCK, f->cache, keys[i + 1], leads[i]);
    CHECK(!WITHIN(HUTCH_DEADLOCK, f->cache, keys[0], leads[length - 1]));
    CHECK(last_error().words[0]);
    /* A wait of another caller is no cycle. */
    hutch_loading *other = BEGIN(HUTCH_WOULD_BLOCK, f->cache, keys[0]);
    CHECK_WAIT(HUTCH_WOULD_BLOCK, other, 0, NULL);
    hutch_loading_release(other);
    if (length > 1) {
      /* Nor is it one any more when who waited has gone. */
      hutch_loading_release(waits[0]);
      waits[0] = NULL;
      other = WITHIN(HUTCH_WOULD_BLOCK, f->cache, keys[0], leads[length - 1]);
      CHECK(!WITHIN(HUTCH_DEADLOCK, f->cache, keys[1], leads[0]));
      hutch_loading_release(other);
    }
    end(leads[0], leads[1], leads[2]);
    end(waits[0], waits[1], waits[2]);
  }
}

TEST_EACH_KIND(a_cycle_goes_with_the_lead) {
  hutch_loading *a = BEGIN(HUTCH_NOT_FOUND, f->cache, "a");
  hutch_loading *b = BEGIN(HUTCH_NOT_FOUND, f->cache, "b");
  hutch_loading *next = BEGIN(HUTCH_WOULD_BLOCK, f->cache, "a");
  hutch_loading *wait = WITHIN(HUTCH_WOULD_BLOCK, f->cache, "b", a);
  CHECK(!WITHIN(HUTCH_DEADLOCK, f->cache, "a", b));
  /* The new leader of "a" does not wait for "b". */
  CHECK_OK(hutch_loading_abandon(a));
  CHECK_WAIT(HUTCH_NOT_FOUND, next, 0, NULL);
  hutch_loading *other = WITHIN(HUTCH_WOULD_BLOCK, f->cache, "a", b);
  CHECK(!WITHIN(HUTCH_DEADLOCK, f->cache, "b", next));
  end(a, b, next);
  end(wait, other, NULL);
}

TEST(many_loads_within_each_other_are_searched) {
  hutch_cache *cache = open_cache(NULL, NULL);
  enum { DEPTH = 2000 };
  hutch_loading **leads = calloc(DEPTH, sizeof *leads);
  char key[16];
  for (int i = 0; i < DEPTH; i++) {
    snprintf(key, sizeof key, "%d", i);
    leads[i] = i ? WITHIN(HUTCH_NOT_FOUND, cache, key, leads[i - 1])
                 : BEGIN(HUTCH_NOT_FOUND, cache, key);
  }
  CHECK(!WITHIN(HUTCH_DEADLOCK, cache, "0", leads[DEPTH - 1]));
  CHECK(!WITHIN(HUTCH_DEADLOCK, cache, "1000", leads[DEPTH - 1]));
  /* Downwards there is no cycle: 0 needs the last one anyway. */
  hutch_loading *wait = WITHIN(HUTCH_WOULD_BLOCK, cache, key, leads[0]);
  CHECK_WAIT(HUTCH_WOULD_BLOCK, wait, 0, NULL);
  for (int i = 0; i < DEPTH; i++) hutch_loading_release(leads[i]);
  hutch_loading_release(wait);
  free(leads);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------- old and usable */

TEST_EACH_KIND(an_old_value_is_refreshed_by_one_caller) {
  hutch_load_options options = load_options();
  options.soft_time_to_live = HUTCH_SECOND;
  hutch_put_options hard = put_options();
  hard.time_to_live = HUTCH_MINUTE;
  CHECK_OK(hutch_put(f->cache, KEY("k"), KEY("old"), &hard, NULL));
  f->clock.now += HUTCH_SECOND - 1;
  CHECK(!BEGIN_WITH(HUTCH_OK, f->cache, "k", &options));
  f->clock.now += 1;
  hutch_loading *leader = BEGIN_WITH(HUTCH_OK, f->cache, "k", &options);
  CHECK(leader);
  CHECK(!BEGIN_WITH(HUTCH_OK, f->cache, "k", &options));
  CHECK(!BEGIN(HUTCH_OK, f->cache, "k"));
  CHECK_TEXT(f->cache, "k", "old");
  CHECK_OK(hutch_loading_fulfil(leader, "new", 3, &hard));
  CHECK_WAIT(HUTCH_OK, leader, 0, "new");
  CHECK_TEXT(f->cache, "k", "new");
  CHECK(!BEGIN_WITH(HUTCH_OK, f->cache, "k", &options));
  end(leader, NULL, NULL);

  /* A refresh that fails, or is given up, leaves the old value, and another may try. */
  f->clock.now += HUTCH_SECOND;
  leader = BEGIN_WITH(HUTCH_OK, f->cache, "k", &options);
  CHECK_OK(hutch_loading_fail(leader, 5, "source is down"));
  CHECK_WAIT(HUTCH_LOAD_FAILED, leader, 0, NULL);
  CHECK_TEXT(f->cache, "k", "new");
  end(leader, NULL, NULL);
  options.flags = HUTCH_LOAD_STALE_IF_ERROR;
  options.negative_time_to_live = HUTCH_SECOND;
  leader = BEGIN_WITH(HUTCH_OK, f->cache, "k", &options);
  CHECK_OK(hutch_loading_fail(leader, 5, "source is down"));
  CHECK_WAIT(HUTCH_OK, leader, 0, "new");
  end(leader, NULL, NULL);
  /* While the failure is remembered no caller loads. */
  CHECK(!BEGIN_WITH(HUTCH_OK, f->cache, "k", &options));
  f->clock.now += HUTCH_SECOND;
  leader = BEGIN_WITH(HUTCH_OK, f->cache, "k", &options);
  CHECK_OK(hutch_loading_abandon(leader));
  hutch_loading *second = BEGIN_WITH(HUTCH_OK, f->cache, "k", &options);
  CHECK(second);

  /* When its life ends during the refresh, the others wait for it. */
  f->clock.now += HUTCH_MINUTE;
  hutch_loading *third = BEGIN_WITH(HUTCH_WOULD_BLOCK, f->cache, "k", &options);
  CHECK_OK(fulfil(second, "newest"));
  CHECK_WAIT(HUTCH_OK, third, 0, "newest");
  end(leader, second, third);
}

TEST_EACH_KIND(a_touch_makes_a_value_young) {
  hutch_load_options options = load_options();
  options.soft_time_to_live = HUTCH_SECOND;
  CHECK_OK(put_text(f->cache, "k", "v"));
  f->clock.now += HUTCH_SECOND;
  CHECK_OK(hutch_touch(f->cache, KEY("k"), 0, 0));
  CHECK(!BEGIN_WITH(HUTCH_OK, f->cache, "k", &options));
}

/* ----------------------------------------------------------- the closed form */

typedef struct source {
  const char *text;     /* NULL: fails */
  hutch_status returns;
  int32_t code;
  _Atomic int runs;
  hutch_cache *cache;   /* asked for `needs`, if there is one */
  const char *needs;
  struct source *next;
  hutch_status got;
  bool answers_first;   /* before it asks for `needs` */
} source;

static hutch_status load_from(void *context, const void *key, size_t key_size,
                              hutch_loading *loading) {
  source *s = context;
  (void)key, (void)key_size;
  atomic_fetch_add(&s->runs, 1);
  if (s->answers_first) CHECK_OK(fulfil(loading, s->text));
  if (s->needs) {
    hutch_value *value;
    s->got = hutch_load(s->cache, KEY(s->needs), load_from, s->next, NULL, &value);
    hutch_value_release(value);
  }
  if (s->answers_first) return s->returns;
  if (s->text) CHECK_OK(fulfil(loading, s->text));
  else if (s->code) CHECK_OK(hutch_loading_fail(loading, s->code, "from the loader"));
  return s->returns;
}

#define CHECK_LOAD(expected, cache, key, s, options, text) \
  check_load(__FILE__, __LINE__, expected, cache, key, s, options, text)
static void check_load(const char *file, int line, hutch_status expected, hutch_cache *cache,
                       const char *key, source *s, const hutch_load_options *options,
                       const char *text) {
  hutch_value *value = NULL;
  check_status(file, line, key, expected,
               hutch_load(cache, KEY(key), load_from, s, options, &value));
  if (expected == HUTCH_OK)
    check_bytes(file, line, key, text, strlen(text), hutch_value_data(value),
                hutch_value_size(value));
  else if (value) check_fail(file, line, "there is a value");
  hutch_value_release(value);
}

TEST_EACH_KIND(a_loader_runs_on_a_miss_only) {
  source s = {.text = "made"};
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "made");
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "made");
  CHECK_EQUAL(1, s.runs);
  CHECK_TEXT(f->cache, "k", "made");
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "made");
  CHECK_EQUAL(2, s.runs);
}

TEST_EACH_KIND(what_a_loader_returns_is_its_answer) {
  source fails = {.code = 12}, returns = {.returns = -77}, silent = {0}, made = {.text = "made"};
  CHECK_LOAD(HUTCH_LOAD_FAILED, f->cache, "k", &fails, NULL, NULL);
  CHECK_EQUAL(12, last_error().system_error);
  CHECK_LOAD(HUTCH_LOAD_FAILED, f->cache, "k", &returns, NULL, NULL);
  CHECK_EQUAL(-77, last_error().system_error);
  CHECK_LOAD(HUTCH_CANCELLED, f->cache, "k", &silent, NULL, NULL);
  /* An answer that was given counts, whatever is returned. */
  made.returns = HUTCH_IO;
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &made, NULL, "made");
  CHECK_OK(hutch_remove(f->cache, KEY("k")));
  hutch_load_options options = load_options();
  options.negative_time_to_live = HUTCH_SECOND;
  CHECK_LOAD(HUTCH_LOAD_FAILED, f->cache, "k", &fails, &options, NULL);
  CHECK_LOAD(HUTCH_LOAD_FAILED, f->cache, "k", &made, &options, NULL);
  CHECK_EQUAL(12, last_error().system_error);
  CHECK_EQUAL(1, made.runs);
}

TEST_EACH_KIND(a_loader_may_load) {
  source c = {.text = "c"}, b = {.text = "b", .cache = f->cache, .needs = "c", .next = &c},
         a = {.text = "a", .cache = f->cache, .needs = "b", .next = &b};
  CHECK_LOAD(HUTCH_OK, f->cache, "a", &a, NULL, "a");
  CHECK_TEXT(f->cache, "b", "b");
  CHECK_TEXT(f->cache, "c", "c");
  CHECK_OK(hutch_clear(f->cache));
  /* Itself it may not load, over one key or three. */
  c.cache = f->cache;
  c.needs = "a";
  c.next = &a;
  CHECK_LOAD(HUTCH_OK, f->cache, "a", &a, NULL, "a");
  CHECK_EQUAL(HUTCH_DEADLOCK, c.got);
  CHECK_OK(hutch_clear(f->cache));
  c.needs = "c";
  CHECK_LOAD(HUTCH_OK, f->cache, "c", &c, NULL, "c");
  CHECK_EQUAL(HUTCH_DEADLOCK, c.got);
}

/* A load waits for the loader of a load that it needs, also when that one has answered or is of
   another cache. */
TEST_EACH_KIND(a_loader_may_not_wait_for_any_load_of_its_thread) {
  source b = {.text = "b", .cache = f->cache, .needs = "a", .answers_first = true},
         a = {.text = "a", .cache = f->cache, .needs = "b", .next = &b};
  b.next = &a;
  CHECK_LOAD(HUTCH_OK, f->cache, "a", &a, NULL, "a");
  CHECK_EQUAL(HUTCH_DEADLOCK, b.got);
  CHECK_OK(hutch_clear(f->cache));
  hutch_cache *other = open_cache(NULL, NULL);
  b.answers_first = false;
  a.cache = other;
  CHECK_LOAD(HUTCH_OK, f->cache, "a", &a, NULL, "a");
  CHECK_EQUAL(HUTCH_DEADLOCK, b.got);
  CHECK_EQUAL(2, a.runs);
  CHECK_OK(hutch_close(other));
}

static void load_as_told(void *context, const hutch_event *event) {
  source *s = context;
  hutch_value *value;
  hutch_load_options options = load_options();
  options.timeout = HUTCH_SECOND;
  s->got = hutch_load(s->cache, event->key, event->key_size, load_from, s->next, &options, &value);
  hutch_value_release(value);
}

TEST_EACH_KIND(a_listener_does_not_wait_for_the_load_that_it_is_told_of) {
  source s = {.text = "made"}, listens = {.cache = f->cache, .next = &s};
  CHECK_OK(hutch_set_listener(f->cache, HUTCH_EVENT_WILL_ADD, load_as_told, &listens, NULL));
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "made");
  CHECK_EQUAL(HUTCH_DEADLOCK, listens.got);
  CHECK_EQUAL(1, s.runs);
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
}

static void put_as_told(void *context, const hutch_event *event) {
  CHECK_OK(hutch_put(context, event->key, event->key_size, "x", 1, NULL, NULL));
}

/* Nor does one of another cache, whose put the listener of this cache makes. */
TEST_EACH_KIND(a_listener_of_another_cache_does_not_wait_for_that_load_either) {
  hutch_cache *other = open_cache(NULL, NULL);
  source s = {.text = "made"}, listens = {.cache = f->cache, .next = &s};
  CHECK_OK(hutch_set_listener(f->cache, HUTCH_EVENT_WILL_ADD, put_as_told, other, NULL));
  CHECK_OK(hutch_set_listener(other, HUTCH_EVENT_WILL_ADD, load_as_told, &listens, NULL));
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "made");
  CHECK_EQUAL(HUTCH_DEADLOCK, listens.got);
  CHECK_EQUAL(1, s.runs);
  CHECK_OK(hutch_set_listener(f->cache, 0, NULL, NULL, NULL));
  CHECK_OK(hutch_close(other));
}

static hutch_status load_and_close(void *context, const void *key, size_t key_size,
                                   hutch_loading *loading) {
  hutch_cache *cache = context;
  hutch_value *value;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_close(cache));
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_flush(cache));
  CHECK_OK(hutch_put(cache, KEY("other"), key, key_size, NULL, NULL));
  CHECK_OK(hutch_get(cache, KEY("other"), &value));
  hutch_value_release(value);
  CHECK_OK(hutch_clear(cache));
  /* The clear was during the load. */
  CHECK_STATUS(HUTCH_SUPERSEDED, fulfil(loading, "made"));
  return HUTCH_OK;
}

TEST_EACH_KIND(a_loader_may_call_anything) {
  hutch_value *value;
  CHECK_OK(hutch_load(f->whole, KEY("k"), load_and_close, f->whole, NULL, &value));
  CHECK_BYTES("made", 4, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_MISSING(f->cache, "k");
}

TEST_EACH_KIND(a_loader_refreshes) {
  hutch_load_options options = load_options();
  options.soft_time_to_live = HUTCH_SECOND;
  source s = {.text = "new"}, fails = {.code = 3};
  CHECK_OK(put_text(f->cache, "k", "old"));
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, &options, "old");
  f->clock.now += HUTCH_SECOND;
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, NULL, "old");
  CHECK_EQUAL(0, s.runs);
  CHECK_LOAD(HUTCH_LOAD_FAILED, f->cache, "k", &fails, &options, NULL);
  options.flags = HUTCH_LOAD_STALE_IF_ERROR;
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &fails, &options, "old");
  CHECK_LOAD(HUTCH_OK, f->cache, "k", &s, &options, "new");
  CHECK_EQUAL(1, s.runs);
  CHECK_TEXT(f->cache, "k", "new");
}

TEST_EACH_KIND(a_load_that_names_its_parent_finds_the_cycle) {
  hutch_loading *a = BEGIN(HUTCH_NOT_FOUND, f->cache, "a");
  hutch_load_options options = load_options();
  options.parent = a;
  source s = {.text = "made"};
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_DEADLOCK, hutch_load(f->cache, KEY("a"), load_from, &s, &options, &value));
  CHECK(!value);
  CHECK_OK(hutch_load(f->cache, KEY("b"), load_from, &s, &options, &value));
  hutch_value_release(value);
  end(a, NULL, NULL);
}

/* -------------------------------------------------------------------- arguments */

TEST(bad_arguments_are_told) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_value *value;
  hutch_loading *loading;
  source s = {.text = "made"};
  hutch_load_options options = load_options();
#define BAD(expected)                                                                       \
  do {                                                                                      \
    value = (hutch_value *)&s, loading = (hutch_loading *)&s;                               \
    CHECK_STATUS(expected, hutch_load(cache, KEY("k"), load_from, &s, &options, &value));   \
    CHECK(!value);                                                                          \
    CHECK_STATUS(expected, hutch_load_begin(cache, KEY("k"), &options, &value, &loading));  \
    CHECK(!value && !loading);                                                              \
    options = load_options();                                                               \
  } while (0)
  CHECK_OK(put_text(cache, "k", "value"));
  options.struct_size = 0;
  BAD(HUTCH_INVALID_ARGUMENT);
  options.flags = 2;
  BAD(HUTCH_UNSUPPORTED);
  options.reserved = 1;
  BAD(HUTCH_UNSUPPORTED);
  options.timeout = -1;
  BAD(HUTCH_INVALID_ARGUMENT);
  options.soft_time_to_live = -1;
  BAD(HUTCH_INVALID_ARGUMENT);
  options.negative_time_to_live = INT64_MIN;
  BAD(HUTCH_INVALID_ARGUMENT);
  CHECK_EQUAL(0, stats_of(cache).memory.hits);
  CHECK_OK(hutch_remove(cache, KEY("k")));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load(cache, "", 0, load_from, &s, NULL, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load(cache, NULL, 1, load_from, &s, NULL, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load(cache, "k", 1, NULL, &s, NULL, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load(cache, "k", 1, load_from, &s, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load(NULL, "k", 1, load_from, &s, NULL, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load_begin(cache, "k", 1, NULL, NULL, &loading));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_load_begin(cache, "k", 1, NULL, &value, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_wait(NULL, 0, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(NULL, "", 0, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fail(NULL, 0, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_abandon(NULL));
  CHECK(!hutch_loading_retain(NULL));
  hutch_loading_release(NULL);
  CHECK_EQUAL(0, s.runs);
  loading = BEGIN(HUTCH_NOT_FOUND, cache, "k");
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_wait(loading, -1, &value));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_wait(loading, 0, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(loading, NULL, 1, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(loading, "", SIZE_MAX, NULL));
  hutch_put_options bad = put_options();
  bad.time_to_live = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_loading_fulfil(loading, "", 0, &bad));
  /* It still leads after all of these. */
  CHECK_OK(fulfil(loading, "made"));
  hutch_loading_release(loading);
  /* A parent of another cache, or one that does not lead, is none. */
  hutch_cache *other = open_cache(NULL, NULL);
  hutch_loading *parent = BEGIN(HUTCH_NOT_FOUND, other, "k");
  CHECK_OK(hutch_remove(cache, KEY("k")));
  loading = WITHIN(HUTCH_NOT_FOUND, cache, "k", parent);
  hutch_loading *within = WITHIN(HUTCH_WOULD_BLOCK, cache, "k", parent);
  /* So over two caches no cycle is seen. */
  hutch_loading *back = WITHIN(HUTCH_WOULD_BLOCK, other, "k", loading);
  hutch_loading_release(back);
  CHECK_OK(hutch_loading_abandon(loading));
  hutch_loading *again = WITHIN(HUTCH_NOT_FOUND, cache, "k", loading);
  end(loading, within, parent);
  end(again, NULL, NULL);
  CHECK_OK(hutch_close(other));
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- the end */

TEST_EACH_KIND(a_closed_cache_tells_those_who_load) {
  (void)f;
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(k == IN_MEMORY ? NULL : scratch("to close").text, &options);
  hutch_cache *view = k == MEMORY_VIEW ? tier_of(cache, HUTCH_TIER_MEMORY)
                      : k == DISK_VIEW ? tier_of(cache, HUTCH_TIER_DISK)
                                       : hutch_cache_retain(cache);
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, view, "k");
  hutch_loading *second = BEGIN(HUTCH_WOULD_BLOCK, view, "k");
  CHECK_OK(hutch_close(cache));
  hutch_cache_release(view);
  hutch_value *value;
  CHECK_STATUS(HUTCH_CLOSED, fulfil(leader, "made"));
  CHECK_STATUS(HUTCH_CLOSED, hutch_loading_fail(leader, 1, NULL));
  CHECK_STATUS(HUTCH_CLOSED, hutch_loading_abandon(leader));
  CHECK_STATUS(HUTCH_CLOSED, hutch_loading_wait(second, HUTCH_FOREVER, &value));
  CHECK(hutch_loading_retain(second) == second);
  end(leader, second, second);
}

TEST(a_lead_passes_from_an_opening_that_is_closed) {
  hutch_cache *first = open_cache(scratch("cache").text, NULL);
  hutch_cache *second = open_cache(scratch("cache").text, NULL);
  hutch_loading *leader = BEGIN(HUTCH_NOT_FOUND, first, "k");
  hutch_loading *waiter = BEGIN(HUTCH_WOULD_BLOCK, second, "k");
  CHECK_OK(hutch_close(first));
  CHECK_WAIT(HUTCH_NOT_FOUND, waiter, HUTCH_FOREVER, NULL);
  CHECK_STATUS(HUTCH_CLOSED, fulfil(leader, "old"));
  CHECK_OK(fulfil(waiter, "made"));
  CHECK_TEXT(second, "k", "made");
  end(leader, waiter, NULL);
  CHECK_OK(hutch_close(second));
}
