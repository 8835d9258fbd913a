/* What the cases share about caches. See check.h. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

hutch_cache *check_open(const char *file, int line, const char *directory,
                        const hutch_options *options) {
  hutch_cache *cache = NULL;
  hutch_options defaults = default_options();
  if (!options) options = &defaults;
  check_status(file, line, "hutch_open", HUTCH_OK, hutch_open(directory, options, &cache));
  if (!cache) check_fail(file, line, "hutch_open gave no cache");
  return cache;
}

/* ----------------------------------------------------------------- options */

bool on_log(void) { return !getenv("HUTCH_TEST_SQLITE"); }

hutch_options default_options(void) {
  /* With one threshold the same values have files in either store. */
  return (hutch_options){.struct_size = sizeof(hutch_options),
                         .inline_threshold = on_log() ? 20480 : 0,
                         .storage = on_log() ? HUTCH_STORAGE_DEFAULT : HUTCH_STORAGE_MIXED};
}

hutch_tier_limits no_limits(void) {
  return (hutch_tier_limits){HUTCH_NO_LIMIT, HUTCH_NO_LIMIT, HUTCH_NO_LIMIT, HUTCH_FOREVER,
                             HUTCH_FOREVER, HUTCH_NO_LIMIT, {0}};
}

hutch_options unlimited_options(void) {
  hutch_options options = default_options();
  options.memory = options.disk = no_limits();
  return options;
}

hutch_queue *new_queue(uint32_t width, uint32_t flags) {
  hutch_queue_options options = {.struct_size = sizeof options, .width = width, .flags = flags};
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_queue_create(&options, &queue));
  CHECK(queue);
  return queue;
}

void gate_pass(gate *g) {
  atomic_fetch_add(&g->waiting, 1);
  while (!atomic_load(&g->open)) usleep(100);
}

hutch_status gate_work(void *context, hutch_task *task) {
  (void)task;
  gate_pass(context);
  return HUTCH_OK;
}

void gate_await(gate *g, int count) {
  while (atomic_load(&g->waiting) < count) usleep(100);
}

void gate_open(gate *g) { atomic_store(&g->open, true); }

static int64_t read_clock(void *context) { return atomic_load(&((test_clock *)context)->now); }

static void release_clock(void *context) {
  atomic_fetch_add(&((test_clock *)context)->released, 1);
}

void use_clock(hutch_options *options, test_clock *clock) {
  if (clock->now == 0) clock->now = 20500 * HUTCH_DAY;
  options->clock = read_clock;
  options->clock_context = clock;
  options->clock_release = release_clock;
}

/* ---------------------------------------------------------------- fixtures */

bool has_disk(kind k) { return k == TWO_TIERS || k == DISK_VIEW; }

void for_each_kind(void (*body)(fixture *f, kind k)) {
  static const char *const names[KINDS] = {"in memory", "two tiers", "memory view", "disk view"};
  for (kind k = 0; k < KINDS; k++) {
    check_note(names[k]);
    fixture f = {0};
    hutch_options options = unlimited_options();
    use_clock(&options, &f.clock);
    f.whole = open_cache(k == IN_MEMORY ? NULL : scratch(names[k]).text, &options);
    f.cache = f.whole;
    if (k == MEMORY_VIEW) f.cache = tier_of(f.whole, HUTCH_TIER_MEMORY);
    if (k == DISK_VIEW) f.cache = tier_of(f.whole, HUTCH_TIER_DISK);
    body(&f, k);
    if (f.cache != f.whole) hutch_cache_release(f.cache);
    CHECK_OK(hutch_close(f.whole));
    CHECK_EQUAL(1, f.clock.released);
  }
  check_note(NULL);
}

/* ---------------------------------------------------------- puts and gets */

hutch_status put_text(hutch_cache *cache, const char *key, const char *value) {
  return hutch_put(cache, KEY(key), KEY(value), NULL, NULL);
}

hutch_status put_size(hutch_cache *cache, const char *key, size_t size) {
  void *data = filled(size, size);
  hutch_status status = hutch_put(cache, KEY(key), data, size, NULL, NULL);
  free(data);
  return status;
}

void check_text(const char *file, int line, hutch_cache *cache, const char *key,
                const char *expected) {
  hutch_value *value = NULL;
  check_status(file, line, key, HUTCH_OK, hutch_get(cache, KEY(key), &value));
  check_bytes(file, line, key, expected, strlen(expected), hutch_value_data(value),
              hutch_value_size(value));
  hutch_value_release(value);
}

void check_missing(const char *file, int line, hutch_cache *cache, const char *key) {
  hutch_value *value = NULL;
  check_status(file, line, key, HUTCH_NOT_FOUND, hutch_get(cache, KEY(key), &value));
  if (value) check_fail(file, line, "%s: not found, but there is a value", key);
  check_status(file, line, key, HUTCH_NOT_FOUND, hutch_contains(cache, KEY(key)));
}

hutch_value *get_value(hutch_cache *cache, const char *key) {
  hutch_value *value = NULL;
  CHECK_OK(hutch_get(cache, KEY(key), &value));
  CHECK(value);
  return value;
}

hutch_put_options put_options(void) {
  return (hutch_put_options){.struct_size = sizeof(hutch_put_options)};
}

hutch_put_result new_result(void) {
  return (hutch_put_result){.struct_size = sizeof(hutch_put_result)};
}

hutch_check_report report_of(hutch_cache *cache, uint32_t flags) {
  hutch_check_report report = {.struct_size = sizeof report};
  CHECK_OK(hutch_check(cache, flags, &report));
  return report;
}

uint64_t check_sound(const char *file, int line, hutch_cache *cache) {
  hutch_check_report report = report_of(cache, 0);
  uint64_t wrong = report.damaged + report.orphans + report.counters + report.manifest;
  if (wrong) {
    check_fail(file, line, "%u damaged, %u orphans, %u counters, %u of the manifest",
               (unsigned)report.damaged, (unsigned)report.orphans, (unsigned)report.counters,
               (unsigned)report.manifest);
  }
  return report.entries;
}

hutch_entry_info info_of(hutch_cache *cache, const char *key) {
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_OK(hutch_info(cache, KEY(key), &info));
  return info;
}

hutch_entry_info info_of_value(const hutch_value *value) {
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_OK(hutch_value_info(value, &info));
  return info;
}

hutch_cache_limits limits_of(hutch_cache *cache) {
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  CHECK_OK(hutch_limits(cache, &limits));
  return limits;
}

hutch_cache_stats stats_of(hutch_cache *cache) {
  hutch_cache_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(hutch_stats(cache, &stats));
  return stats;
}

hutch_error last_error(void) {
  hutch_error error = {.struct_size = sizeof error};
  if (hutch_last_error(&error) != HUTCH_OK) FAIL("hutch_last_error failed");
  return error;
}

uint64_t count_of(hutch_cache *cache) {
  uint64_t count = UINT64_MAX;
  CHECK_OK(hutch_count(cache, &count));
  return count;
}

uint64_t cost_of(hutch_cache *cache) {
  uint64_t cost = UINT64_MAX;
  CHECK_OK(hutch_cost(cache, &cost));
  return cost;
}

hutch_cache *tier_of(hutch_cache *cache, uint32_t tier) {
  hutch_cache *view = NULL;
  CHECK_OK(hutch_tier(cache, tier, &view));
  CHECK(view);
  return view;
}

void fill(void *data, size_t size, uint64_t seed) {
  uint64_t state = seed * 31 + size;
  uint8_t *bytes = data;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = next_random(&state);
    memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
  }
}

void *filled(size_t size, uint64_t seed) {
  void *data = malloc(size ? size : 1);
  CHECK(data);
  fill(data, size, seed);
  return data;
}

/* ------------------------------------------------------------- every call */

static int32_t visit_nothing(void *context, const void *key, size_t key_size,
                             const hutch_entry_info *info) {
  (void)context, (void)key, (void)key_size, (void)info;
  return 0;
}

int workers(void) {
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (fgets(name, sizeof name, file) && strcmp(name, "hutch-task\n") == 0) count++;
    fclose(file);
  }
  closedir(tasks);
  return count;
}

bool workers_end(int naps) {
  while (workers() > 0) {
    if (naps-- == 0) return false;
    nap();
  }
  return true;
}

void await_no_workers(void) {
  enum { MINUTE = 60 * 1000 * 1000 / 50 };
  if (!workers_end(MINUTE)) FAIL("%d workers do not end", workers());
}

static void never_completed(void *context, const hutch_completion *completion) {
  (void)context, (void)completion;
  FAIL("a task that was not submitted has been completed");
}
static void count_release(void *context) { ++*(int *)context; }
static hutch_status load_nothing(void *context, const void *key, size_t key_size,
                                 hutch_loading *loading) {
  (void)context, (void)key, (void)key_size, (void)loading;
  FAIL("a loader is run for a cache that cannot be used");
  return HUTCH_OK;
}

void check_every_call(hutch_cache *cache, hutch_status expected) {
  hutch_put_result result;
  hutch_entry_info info = {.struct_size = sizeof info};
  hutch_cache_limits limits = {.struct_size = sizeof limits};
  hutch_cache_stats stats = {.struct_size = sizeof stats};
  int64_t sum = 0;
  uint64_t number = 0;
  size_t size = 0;
  char buffer[8];
  /* Not NULL, so that NULL must have been written. */
  hutch_value *value = (hutch_value *)buffer;
  hutch_cache *view = (hutch_cache *)buffer;
  hutch_cursor *cursor = (hutch_cursor *)buffer;

  /* A result is filled in by calls that fail, too. */
#define CHECK_PUT(call)                                                \
  do {                                                                 \
    result = (hutch_put_result){sizeof result, UINT64_MAX, 77, 77};    \
    CHECK_STATUS(expected, call);                                      \
    CHECK(result.version == 0 && result.memory == HUTCH_OUTCOME_NONE && \
          result.disk == HUTCH_OUTCOME_NONE);                          \
  } while (0)
  CHECK_PUT(hutch_put(cache, KEY("k"), KEY("v"), NULL, &result));
  CHECK_PUT(hutch_add(cache, KEY("k"), KEY("v"), NULL, &result));
  CHECK_PUT(hutch_replace(cache, KEY("k"), KEY("v"), NULL, &result));
  CHECK_PUT(hutch_compare_and_swap(cache, KEY("k"), 1, KEY("v"), NULL, &result));
  CHECK_STATUS(expected, hutch_copy(cache, cache, NULL));
  CHECK_STATUS(expected, hutch_increment(cache, KEY("k"), 1, 0, NULL, &sum));
  CHECK_STATUS(expected, hutch_get(cache, KEY("k"), &value));
  CHECK(!value);
  value = (hutch_value *)buffer;
  CHECK_STATUS(expected, hutch_pop(cache, KEY("k"), &value));
  CHECK(!value);
  CHECK_STATUS(expected, hutch_get_into(cache, KEY("k"), buffer, sizeof buffer, &size));
  hutch_found found = {.struct_size = sizeof found, .size = 1, .value = (hutch_value *)buffer};
  CHECK_STATUS(expected, hutch_look(cache, KEY("k"), 0, buffer, sizeof buffer, &found));
  CHECK(!found.value && found.size == 0);
  CHECK_STATUS(expected, hutch_contains(cache, KEY("k")));
  CHECK_STATUS(expected, hutch_info(cache, KEY("k"), &info));
  CHECK_STATUS(expected, hutch_touch(cache, KEY("k"), HUTCH_SECOND, 0));
  CHECK_STATUS(expected, hutch_remove(cache, KEY("k")));
  CHECK_STATUS(expected, hutch_clear(cache));
  CHECK_STATUS(expected, hutch_flush(cache));
  const void *keys[] = {"k"}, *values[] = {"v"};
  const size_t sizes[] = {1};
  hutch_batch *batch = (hutch_batch *)buffer;
  CHECK_STATUS(expected, hutch_get_many(cache, keys, sizes, 1, &batch));
  CHECK(!batch);
  CHECK_STATUS(expected, hutch_info_many(cache, keys, sizes, 1, &batch));
  CHECK_STATUS(expected, hutch_remove_many(cache, keys, sizes, 1, &batch));
  CHECK_STATUS(expected, hutch_remove_prefix(cache, KEY("key"), NULL));
  CHECK_STATUS(expected, hutch_remove_tagged(cache, KEY("tag"), NULL));
  CHECK_STATUS(expected, hutch_tag(cache, KEY("k"), buffer, sizeof buffer, &size));
  CHECK_STATUS(expected, hutch_put_many(cache, keys, sizes, values, sizes, 1, NULL, &batch));
  hutch_loading *loading = (hutch_loading *)buffer;
  value = (hutch_value *)buffer;
  CHECK_STATUS(expected, hutch_load(cache, KEY("k"), load_nothing, NULL, NULL, &value));
  CHECK(!value);
  value = (hutch_value *)buffer;
  CHECK_STATUS(expected, hutch_load_begin(cache, KEY("k"), NULL, &value, &loading));
  CHECK(!value && !loading);
  CHECK_PUT(hutch_put_file(cache, KEY("k"), "file", HUTCH_FILE_COPY, NULL, &result));
  hutch_writer *writer = (hutch_writer *)buffer;
  CHECK_STATUS(expected, hutch_writer_begin(cache, KEY("k"), 0, NULL, &writer));
  CHECK(!writer);
  CHECK_STATUS(expected, hutch_path(cache, KEY("k"), buffer, sizeof buffer, &size));
  int32_t file = 0;
  CHECK_STATUS(expected, hutch_open_fd(cache, KEY("k"), &file));
  CHECK(file == -1);
  CHECK_STATUS(expected, hutch_hold_files(cache));
  CHECK_STATUS(expected, hutch_unhold_files(cache));
  hutch_object *object = (hutch_object *)buffer;
  CHECK_STATUS(expected, hutch_put_object(cache, KEY("k"), buffer, NULL, NULL));
  CHECK_STATUS(expected, hutch_get_object(cache, KEY("k"), &object));
  CHECK(!object);
  CHECK_STATUS(expected, hutch_remove_object(cache, KEY("k")));
  CHECK_STATUS(expected, hutch_drain_releases(cache, 0, &number));
  CHECK_EQUAL(0, number);
  CHECK_STATUS(expected, hutch_limits(cache, &limits));
  limits = (hutch_cache_limits){.struct_size = sizeof limits};
  CHECK_STATUS(expected, hutch_set_limits(cache, &limits));
  hutch_options open_options = {.struct_size = sizeof open_options};
  CHECK_STATUS(expected, hutch_get_options(cache, &open_options));
  open_options = (hutch_options){.struct_size = sizeof open_options};
  CHECK_STATUS(expected, hutch_set_options(cache, &open_options));
  CHECK_STATUS(expected, hutch_count(cache, &number));
  CHECK_STATUS(expected, hutch_cost(cache, &number));
  CHECK_STATUS(expected, hutch_value_bytes(cache, &number));
  number = 7;
  CHECK_STATUS(expected, hutch_stats(cache, &stats));
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_EXPIRED};
  CHECK_STATUS(expected, hutch_trim(cache, &spec, &number));
  CHECK_EQUAL(0, number);
  CHECK_STATUS(expected, hutch_each(cache, visit_nothing, NULL));
  CHECK_STATUS(expected, hutch_cursor_create(cache, &cursor));
  CHECK(!cursor);
  CHECK_STATUS(expected, hutch_set_logger(cache, 0, NULL, NULL, NULL));
  hutch_queue *queue = (hutch_queue *)buffer;
  CHECK_STATUS(expected, hutch_cache_queue(cache, &queue));
  CHECK(!queue);
  CHECK_STATUS(expected, hutch_wait_all(cache, 0));
  CHECK_STATUS(expected, hutch_suspend(cache));
  CHECK_STATUS(expected, hutch_resume(cache));
  CHECK_STATUS(expected, hutch_maintain(cache, 0));
  hutch_trim_spec every = {.struct_size = sizeof every, .kind = HUTCH_TRIM_EXPIRED};
  int released = 0;
  hutch_task_options task_options = {.struct_size = sizeof task_options,
                                     .complete = never_completed, .context = &released,
                                     .release = count_release};
  hutch_task *task;
#define CHECK_ASYNC(call)              \
  do {                                 \
    task = (hutch_task *)buffer;       \
    CHECK_STATUS(expected, call);      \
    CHECK(!task);                      \
  } while (0)
  CHECK_ASYNC(hutch_get_async(cache, KEY("k"), &task_options, &task));
  CHECK_ASYNC(hutch_put_async(cache, KEY("k"), KEY("v"), NULL, &task_options, &task));
  CHECK_ASYNC(hutch_remove_async(cache, KEY("k"), &task_options, &task));
  CHECK_ASYNC(hutch_contains_async(cache, KEY("k"), &task_options, &task));
  CHECK_ASYNC(hutch_clear_async(cache, &task_options, &task));
  CHECK_ASYNC(hutch_flush_async(cache, &task_options, &task));
  hutch_call call = {.struct_size = sizeof call, .operation = HUTCH_OPERATION_COUNT};
  CHECK_ASYNC(hutch_submit(cache, &call, &task_options, &task));
  CHECK_ASYNC(hutch_trim_async(cache, &every, &task_options, &task));
  CHECK_ASYNC(hutch_load_async(cache, KEY("k"), load_nothing, &released, count_release, NULL,
                               &task_options, &task));
  CHECK_EQUAL(10, released);
  CHECK_STATUS(expected, hutch_tier(cache, HUTCH_TIER_MEMORY, &view));
  CHECK(!view);
}

void check_where(hutch_cache *cache, const char *key, bool in_memory, bool on_disk) {
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY), *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_STATUS(in_memory ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(memory, KEY(key)));
  CHECK_STATUS(on_disk ? HUTCH_OK : HUTCH_NOT_FOUND, hutch_contains(disk, KEY(key)));
  hutch_cache_release(memory);
  hutch_cache_release(disk);
}

/* -------------------------------------------------------------------- fork */

void *shared_memory(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static int64_t monotonic(void) {
  struct timespec now;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

pid_t fork_amid(bool *late) {
  fflush(NULL);
  int64_t begun = monotonic();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) check_note("in the child");
  *late = monotonic() - begun >= HUTCH_SECOND;
  return child;
}

pid_t fork_now(void) {
  enum { TRIES = 5 };
  _Atomic int *verdict = shared_memory(sizeof *verdict);
  for (int i = 0; i < TRIES; i++) {
    bool late;
    *verdict = 0;
    pid_t child = fork_amid(&late);
    if (child == 0) {
      *verdict = late ? 2 : 1;
      if (late) _exit(0);
      return 0;
    }
    while (*verdict == 0) nap();
    if (*verdict == 1) return child;
    await_child(child);
  }
  FAIL("%d forks took more than a second", TRIES);
}

void end_child(void) {
  fflush(NULL);
  _exit(0);
}

void await_child(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void run_sql(path directory, const char *sql) {
  char file[4200];
  snprintf(file, sizeof file, "%s/manifest.sqlite", directory.text);
  sqlite3 *database = NULL;
  char *words = NULL;
  CHECK(sqlite3_open(file, &database) == SQLITE_OK);
  if (sqlite3_exec(database, sql, NULL, NULL, &words) != SQLITE_OK) FAIL("%s: %s", sql, words);
  CHECK(sqlite3_close(database) == SQLITE_OK);
}

void let_notice(hutch_cache *cache) {
  if (on_log()) hutch_flush(cache);
}

static void map_to_root(const char *file, unsigned id) {
  char map[32];
  int size = snprintf(map, sizeof map, "0 %u 1", id);
  write_file(file, map, (size_t)size);
}

path small_disk(const char *options) {
  path disk = scratch("disk");
  CHECK(mkdir(disk.text, 0700) == 0);
  unsigned user = geteuid(), group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    /* Another user than root is root in a user name space, and must be known there to make files. */
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) check_skip(strerror(errno));
    write_file("/proc/self/setgroups", "deny", 4);
    map_to_root("/proc/self/uid_map", user);
    map_to_root("/proc/self/gid_map", group);
  }
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("tmpfs", disk.text, "tmpfs", 0, options) != 0)
    check_skip(strerror(errno));
  return disk;
}
