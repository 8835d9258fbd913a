/* hutch_get_options, hutch_set_options: the options in force, and their change in use. */
#include "check.h"

static hutch_options options_of(hutch_cache *cache) {
  hutch_options options = {.struct_size = sizeof options};
  CHECK_OK(hutch_get_options(cache, &options));
  return options;
}

static hutch_options change(void) { return (hutch_options){.struct_size = sizeof(hutch_options)}; }

TEST(the_defaults_are_told) {
  hutch_options given = {.struct_size = sizeof given};
  if (!on_log()) given.storage = HUTCH_STORAGE_MIXED;
  hutch_cache *cache = open_cache(scratch("cache").text, &given);
  hutch_options told = options_of(cache);
  CHECK_EQUAL(HUTCH_POLICY_ADAPTIVE, told.policy);
  CHECK_EQUAL(on_log() ? HUTCH_POLICY_ADAPTIVE : HUTCH_POLICY_LRU, told.disk_policy);
  CHECK_EQUAL(on_log() ? HUTCH_STORAGE_LOG : HUTCH_STORAGE_MIXED, told.storage);
  CHECK_EQUAL(HUTCH_DURABILITY_PROCESS, told.durability);
  CHECK_EQUAL(HUTCH_SHARING_SHARED, told.sharing);
  CHECK_EQUAL(2, told.workers);
  CHECK_EQUAL(on_log() ? 1 << 20 : 20480, told.inline_threshold);
  CHECK_EQUAL(64 << 20, told.memory.cost);
  CHECK_EQUAL(50000000, told.disk.cost);
  CHECK_EQUAL(30 * HUTCH_DAY, told.disk.time_to_live);
  CHECK_EQUAL(HUTCH_SHRINK_EMPTY, told.on_memory_warning);
  CHECK_EQUAL(HUTCH_SHRINK_EMPTY, told.on_background);
  CHECK_EQUAL(50, told.low_water);
  CHECK_EQUAL(HUTCH_WRITE_THROUGH, told.write_policy);
  CHECK_EQUAL(HUTCH_CHECKSUMS_ALWAYS, told.checksums);
  CHECK(told.queue_length == HUTCH_NO_LIMIT);
  CHECK_EQUAL(30 * HUTCH_SECOND, told.close_deadline);
  CHECK_EQUAL(0, told.flags);
  CHECK(!told.clock && !told.codec_encode && !told.codec_decode && told.codec_id == 0);
  CHECK_OK(hutch_close(cache));
}

TEST(a_cache_in_memory_has_no_options_of_a_disk_tier) {
  hutch_options given = {.struct_size = sizeof given,
                         .flags = HUTCH_OPEN_NO_THREADS | HUTCH_OPEN_DRAIN_RELEASES,
                         .policy = HUTCH_POLICY_LFU, .queue_length = 7,
                         .close_deadline = 5 * HUTCH_SECOND};
  hutch_cache *cache = open_cache(NULL, &given);
  hutch_options told = options_of(cache);
  CHECK_EQUAL(HUTCH_OPEN_NO_THREADS | HUTCH_OPEN_DRAIN_RELEASES, told.flags);
  CHECK_EQUAL(HUTCH_POLICY_LFU, told.policy);
  CHECK_EQUAL(0, told.workers);
  CHECK_EQUAL(7, told.queue_length);
  CHECK_EQUAL(5 * HUTCH_SECOND, told.close_deadline);
  CHECK_EQUAL(HUTCH_WRITE_MEMORY, told.write_policy);
  CHECK_EQUAL(0, told.storage + told.durability + told.sharing + told.checksums);
  CHECK(told.inline_threshold == 0 && told.disk.cost == 0 && told.disk_policy == 0);
  hutch_options wanted = change();
  wanted.disk_policy = HUTCH_POLICY_LRU;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  CHECK_OK(hutch_close(cache));
}

/* What get_options has filled in opens another cache that is the same. */
TEST(the_options_of_one_cache_open_another) {
  test_clock clock = {0};
  hutch_options given = {.struct_size = sizeof given, .workers = 3,
                         .inline_threshold = 1000, .write_policy = HUTCH_WRITE_DISK,
                         .on_background = HUTCH_SHRINK_EXPIRED, .low_water = 25};
  given.disk.count = 17;
  use_clock(&given, &clock);
  if (!on_log()) given.durability = HUTCH_DURABILITY_POWER, given.storage = HUTCH_STORAGE_FILE;
  hutch_cache *first = open_cache(scratch("first").text, &given);
  hutch_options told = options_of(first);
  CHECK(told.clock == given.clock && told.clock_context == &clock && !told.clock_release);
  hutch_cache *second = open_cache(scratch("second").text, &told);
  hutch_options again = options_of(second);
  CHECK_BYTES(&told, sizeof told, &again, sizeof again);
  CHECK_EQUAL(17, again.disk.count);
  CHECK_EQUAL(1000, again.inline_threshold);
  CHECK_OK(hutch_close(second));
  CHECK_EQUAL(0, clock.released);
  CHECK_OK(hutch_close(first));
  CHECK_EQUAL(1, clock.released);
}

TEST(a_second_opening_and_a_view_tell_what_is_in_force) {
  hutch_options given = default_options();
  given.workers = 5;
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &given);
  given.workers = 9;
  hutch_cache *second;
  hutch_status status = hutch_open(directory.text, &given, &second);
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, status);
  CHECK_EQUAL(5, options_of(second).workers);
  hutch_cache *view = tier_of(cache, HUTCH_TIER_DISK);
  hutch_options wanted = change();
  wanted.workers = 4;
  CHECK_OK(hutch_set_options(view, &wanted));
  CHECK_EQUAL(4, options_of(view).workers);
  CHECK_EQUAL(4, options_of(second).workers);
  hutch_cache_release(view);
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(cache));
}

static void put_numbers(hutch_cache *cache, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    CHECK_OK(hutch_put(cache, &i, sizeof i, &i, sizeof i, NULL, NULL));
}

static bool get_number(hutch_cache *cache, uint32_t key) {
  uint32_t value;
  size_t size;
  return hutch_get_into(cache, &key, sizeof key, &value, sizeof value, &size) == HUTCH_OK
         && value == key;
}

static bool has_number(hutch_cache *cache, uint32_t key) {
  return hutch_contains(cache, &key, sizeof key) == HUTCH_OK;
}

enum { LIMIT = 500, HOT = LIMIT / 4 };

/* A full cache of one policy, of whose entries the oldest quarter is read before the change to
   another policy, or after it. Returns how many of those are left when as many new entries have
   come as take the place of all others. */
static int hot_kept(uint32_t from, uint32_t to, bool reads_before) {
  hutch_options given = unlimited_options();
  given.memory.count = LIMIT;
  given.policy = from;
  hutch_cache *cache = open_cache(NULL, &given);
  put_numbers(cache, 0, LIMIT);
  hutch_options wanted = change();
  wanted.policy = to;
  for (int is_after = 0; is_after < 2; is_after++) {
    for (uint32_t key = 0; reads_before != is_after && key < 5 * HOT; key++) {
      CHECK(get_number(cache, key % HOT));
    }
    if (!is_after) CHECK_OK(hutch_set_options(cache, &wanted));
    CHECK_EQUAL(LIMIT, count_of(cache));
  }
  CHECK_EQUAL(to, options_of(cache).policy);
  for (uint32_t key = 0; key < LIMIT; key++) CHECK(has_number(cache, key));
  put_numbers(cache, LIMIT, 2 * LIMIT - HOT);
  CHECK_EQUAL(LIMIT, count_of(cache));
  int kept = 0;
  for (uint32_t key = 0; key < HOT; key++) kept += has_number(cache, key);
  CHECK_OK(hutch_close(cache));
  return kept;
}

/* The reads after the change count as the new policy says. */
TEST(the_policy_changes_in_use) {
  for (uint32_t from = HUTCH_POLICY_LRU; from <= HUTCH_POLICY_ADAPTIVE; from++) {
    CHECK_EQUAL(HOT, hot_kept(from, HUTCH_POLICY_LRU, false));
    CHECK_EQUAL(HOT, hot_kept(from, HUTCH_POLICY_LFU, false));
    CHECK(hot_kept(from, HUTCH_POLICY_ADAPTIVE, false) > HOT / 2);
    int kept = hot_kept(from, HUTCH_POLICY_FIFO, false);
    CHECK(from == HUTCH_POLICY_ADAPTIVE || kept == 0);
  }
}

/* The order and the uses of the former policy count. */
TEST(a_new_policy_begins_with_what_the_former_one_knew) {
  CHECK_EQUAL(HOT, hot_kept(HUTCH_POLICY_LRU, HUTCH_POLICY_FIFO, true));
  CHECK_EQUAL(HOT, hot_kept(HUTCH_POLICY_LFU, HUTCH_POLICY_FIFO, true));
  CHECK_EQUAL(0, hot_kept(HUTCH_POLICY_FIFO, HUTCH_POLICY_LRU, true));
  CHECK_EQUAL(HOT, hot_kept(HUTCH_POLICY_LRU, HUTCH_POLICY_LFU, true));
  CHECK_EQUAL(HOT, hot_kept(HUTCH_POLICY_FIFO, HUTCH_POLICY_LFU, true));
}

/* A cache of up to so many entries, of up to so many bytes (0: no limit), on disk, whose disk tier
   evicts by a policy. */
static hutch_cache *evicting_by(
    uint32_t policy, uint64_t count, uint64_t cost, test_clock *clock) {
  hutch_options given = unlimited_options();
  use_clock(&given, clock);
  if (!on_log()) given.storage = HUTCH_STORAGE_MIXED;
  if (count > 0) given.disk.count = count;
  if (cost > 0) given.disk.cost = cost;
  given.disk_policy = policy;
  return open_cache(scratch("policy").text, &given);
}

static void close_and_destroy(hutch_cache *cache) {
  CHECK_OK(hutch_close(cache));
  CHECK_OK(hutch_destroy(scratch("policy").text));
}

/* Of LIMIT entries on disk, the oldest quarter is read often and early, all others once and late.
   Then half as many new entries come. Returns how many of that quarter are left. */
static int hot_left_on_disk(uint32_t policy, bool in_use) {
  test_clock clock = {0};
  hutch_cache *cache = evicting_by(in_use ? 0 : policy, LIMIT, 0, &clock);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  put_numbers(disk, 0, LIMIT);
  hutch_options wanted = change();
  wanted.disk_policy = policy;
  if (in_use) CHECK_OK(hutch_set_options(cache, &wanted));
  CHECK_EQUAL(policy, options_of(cache).disk_policy);
  for (uint32_t read = 0; read < 3 * HOT + LIMIT - HOT; read++) {
    if (read % HOT == 0) clock.now += HUTCH_SECOND;
    CHECK(get_number(disk, read < 3 * HOT ? read % HOT : read - 2 * HOT));
  }
  clock.now += HUTCH_SECOND;
  put_numbers(disk, LIMIT, LIMIT + LIMIT / 2);
  CHECK_EQUAL(LIMIT, count_of(disk));
  int left = 0;
  for (uint32_t key = 0; key < HOT; key++) left += has_number(disk, key);
  hutch_cache_release(disk);
  close_and_destroy(cache);
  return left;
}

TEST(the_disk_tier_evicts_by_the_policy_of_its_opening_or_of_a_change) {
  for (int in_use = 0; in_use < 2; in_use++) {
    CHECK_EQUAL(0, hot_left_on_disk(HUTCH_POLICY_LRU, in_use));
    CHECK_EQUAL(HOT, hot_left_on_disk(HUTCH_POLICY_LFU, in_use));
    CHECK_EQUAL(0, hot_left_on_disk(HUTCH_POLICY_FIFO, in_use));
  }
}

/* A trim goes by the same order. */
TEST(reads_keep_an_entry_on_disk_by_lru_and_not_by_fifo) {
  for (uint32_t policy = HUTCH_POLICY_LRU; policy <= HUTCH_POLICY_FIFO; policy += 2) {
    for (int is_trim = 0; is_trim < 2; is_trim++) {
      test_clock clock = {0};
      hutch_cache *cache = evicting_by(policy, is_trim ? 0 : LIMIT, 0, &clock);
      hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
      put_numbers(disk, 0, LIMIT);
      clock.now += HUTCH_SECOND;
      for (uint32_t key = 0; key < HOT; key++) CHECK(get_number(disk, key));
      clock.now += HUTCH_SECOND;
      if (is_trim) {
        hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT,
                                .amount = HOT};
        CHECK_OK(hutch_trim(disk, &spec, NULL));
      } else {
        put_numbers(disk, LIMIT, 2 * LIMIT - HOT);
      }
      for (uint32_t key = 0; key < HOT; key++)
        CHECK_EQUAL(policy == HUTCH_POLICY_LRU, has_number(disk, key));
      hutch_cache_release(disk);
      close_and_destroy(cache);
    }
  }
}

TEST(a_use_in_memory_counts_for_the_disk_tier_but_by_fifo) {
  for (uint32_t policy = HUTCH_POLICY_LRU; policy <= HUTCH_POLICY_FIFO; policy++) {
    test_clock clock = {0};
    hutch_cache *cache = evicting_by(policy, LIMIT, 0, &clock);
    put_numbers(cache, 0, LIMIT);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    clock.now += HUTCH_SECOND;
    for (uint32_t key = 0; key < 4; key++) CHECK(get_number(cache, key) && get_number(cache, key));
    put_numbers(disk, LIMIT, LIMIT + LIMIT / 2);
    for (uint32_t key = 0; key < 4; key++)
      CHECK_EQUAL(policy != HUTCH_POLICY_FIFO, has_number(disk, key));
    hutch_cache_release(disk);
    close_and_destroy(cache);
  }
}

/* Random calls within a small cost limit, while the policy changes: no value is another's, and the
   store is as it should be. */
TEST(the_disk_policy_changes_amid_random_calls) {
  test_clock clock = {0};
  hutch_cache *cache = evicting_by(0, 0, 3 << 20, &clock);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  static char value[4000];
  uint64_t state = seed();
  for (int i = 0; i < 20000; i++) {
    uint32_t key = (uint32_t)(next_random(&state) % 4000), there;
    size_t size = sizeof key + next_random(&state) % (sizeof value - sizeof key);
    if (i % 1000 == 0) {
      hutch_options wanted = change();
      wanted.disk_policy = 1 + (uint32_t)(next_random(&state) % HUTCH_POLICY_ADAPTIVE);
      CHECK_OK(hutch_set_options(cache, &wanted));
      clock.now += HUTCH_SECOND;
    }
    switch (next_random(&state) % 8) {
    case 0: hutch_remove(cache, &key, sizeof key); break;
    case 1: case 2: case 3:
      memcpy(value, &key, sizeof key);
      CHECK_OK(hutch_put(disk, &key, sizeof key, value, size, NULL, NULL));
      break;
    default: {
      hutch_value *found = NULL;
      if (hutch_get(disk, &key, sizeof key, &found) != HUTCH_OK) break;
      memcpy(&there, hutch_value_data(found), sizeof there);
      CHECK_EQUAL(key, there);
      hutch_value_release(found);
    }
    }
  }
  hutch_check_report report = report_of(cache, 0);
  CHECK_EQUAL(0, report.damaged);
  uint64_t cost;
  CHECK_OK(hutch_cost(disk, &cost));
  CHECK(cost <= 3 << 20);
  CHECK(stats_of(cache).disk.evictions > 1000);
  hutch_cache_release(disk);
  close_and_destroy(cache);
}

TEST(a_second_opening_with_another_disk_policy_differs) {
  hutch_options given = default_options();
  path directory = scratch("cache");
  given.disk_policy = HUTCH_POLICY_FIFO;
  hutch_cache *cache = open_cache(directory.text, &given), *second;
  given.disk_policy = HUTCH_POLICY_LFU;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &given, &second));
  CHECK_EQUAL(HUTCH_POLICY_FIFO, options_of(second).disk_policy);
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(cache));
  given.disk_policy = 99;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(directory.text, &given, &second));
}

TEST(a_second_opening_with_any_other_option_differs) {
  hutch_options first = default_options();
  path directory = scratch("cache");
  hutch_cache *cache = open_cache(directory.text, &first), *second;
  hutch_options none = default_options(), others[9];
  for (int i = 0; i < 9; i++) others[i] = none;
  others[0].write_policy = HUTCH_WRITE_DISK;
  others[1].on_memory_warning = HUTCH_SHRINK_EXPIRED;
  others[2].on_background = HUTCH_SHRINK_LOW_WATER;
  others[3].low_water = 20;
  others[4].workers = 7;
  others[5].queue_length = 9;
  others[6].close_deadline = HUTCH_MINUTE;
  others[7].sharing = HUTCH_SHARING_EXCLUSIVE;
  others[8].write_policy = HUTCH_WRITE_ON_EVICTION;
  for (int i = 0; i < 9; i++) {
    CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &others[i], &second));
    CHECK_OK(hutch_close(second));
  }
  none.flags |= HUTCH_OPEN_NO_THREADS;
  CHECK_STATUS(HUTCH_OPTIONS_DIFFER, hutch_open(directory.text, &none, &second));
  CHECK_OK(hutch_close(second));
  /* What is in force is no other option, be it said or not. */
  hutch_options told = options_of(cache);
  CHECK_OK(hutch_open(directory.text, &told, &second));
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_open(directory.text, NULL, &second));
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(cache));
}

/* What a directory would be is told before it is there, and holds for another opening. */
TEST(the_kind_of_a_directory_that_never_came_is_the_one_that_was_chosen) {
  write_file(scratch("file").text, "no directory", 12);
  for (uint32_t kind = HUTCH_STORAGE_MIXED; kind <= HUTCH_STORAGE_LOG; kind++) {
    hutch_options given = {.struct_size = sizeof given, .flags = HUTCH_OPEN_DISK_OPTIONAL,
                           .storage = kind};
    hutch_cache *cache = open_cache(scratch("file").text, &given);
    CHECK_EQUAL(kind, options_of(cache).storage);
    CHECK_OK(hutch_close(cache));
  }
}

/* While threads read and write, in more entries than one shard has. */
static _Atomic bool is_over;

static void read_and_write(void *context, int index) {
  hutch_cache *cache = context;
  uint64_t state = seed() + (uint64_t)index;
  if (index == 0) {
    for (int i = 0; i < repeats(24); i++) {
      hutch_options wanted = change();
      wanted.policy = 1 + (uint32_t)i % 4;
      CHECK_OK(hutch_set_options(cache, &wanted));
    }
    is_over = true;
  }
  while (!is_over) {
    uint32_t key = (uint32_t)(next_random(&state) % 30000), value;
    size_t size;
    if (next_random(&state) % 2) {
      CHECK_OK(hutch_put(cache, &key, sizeof key, &key, sizeof key, NULL, NULL));
    } else if (hutch_get_into(cache, &key, sizeof key, &value, sizeof value, &size) == HUTCH_OK) {
      CHECK_EQUAL(key, value);
    }
  }
}

TEST(the_policy_changes_while_threads_read_and_write) {
  hutch_options given = unlimited_options();
  given.memory.count = 20000;
  hutch_cache *cache = open_cache(NULL, &given);
  put_numbers(cache, 0, 20000);
  run_threads(3, read_and_write, cache);
  CHECK_EQUAL(20000, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(what_pressure_takes_changes_in_use) {
  hutch_options given = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &given);
  put_numbers(cache, 0, 100);
  hutch_options wanted = change();
  wanted.on_memory_warning = HUTCH_SHRINK_EXPIRED;
  CHECK_OK(hutch_set_options(cache, &wanted));
  CHECK_OK(hutch_notify(cache, HUTCH_NOTIFY_MEMORY_WARNING));
  CHECK_EQUAL(100, count_of(cache));
  CHECK_EQUAL(HUTCH_SHRINK_EMPTY, options_of(cache).on_background);
  wanted = change();
  wanted.on_background = HUTCH_SHRINK_LOW_WATER;
  wanted.low_water = 25;
  CHECK_OK(hutch_set_options(cache, &wanted));
  CHECK_EQUAL(HUTCH_SHRINK_EXPIRED, options_of(cache).on_memory_warning);
  CHECK_OK(hutch_notify(cache, HUTCH_NOTIFY_ENTERED_BACKGROUND));
  CHECK_EQUAL(25, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(what_cannot_change_is_refused_and_nothing_changes) {
  hutch_options given = default_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &given);
  hutch_options before = options_of(cache), wanted = change();
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_set_options(cache, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get_options(cache, NULL));
  wanted.workers = 257;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_set_options(cache, &wanted));
  wanted = change();
  wanted.low_water = 101;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_set_options(cache, &wanted));
  wanted = change();
  wanted.policy = 99;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  wanted = change();
  wanted.disk_policy = 99;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  wanted = change();
  wanted.workers = 7;
  wanted.durability = HUTCH_DURABILITY_SYNC;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  wanted = change();
  wanted.workers = 7;
  wanted.disk.count = 7;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  wanted = change();
  CHECK_OK(hutch_set_options(cache, &wanted));
  hutch_options after = options_of(cache);
  CHECK_BYTES(&before, sizeof before, &after, sizeof after);
  CHECK_OK(hutch_close(cache));
  given = (hutch_options){.struct_size = sizeof given, .flags = HUTCH_OPEN_NO_THREADS};
  cache = open_cache(NULL, &given);
  wanted.workers = 2;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_set_options(cache, &wanted));
  CHECK_OK(hutch_close(cache));
}
