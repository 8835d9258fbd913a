/*
 * What each operation of the ABI costs, so that two builds of the library can be compared.
 *
 *   cc -O2 -I include Tests/Benchmarks/operations/operations.c -o build/operations \
 *     -Lbuild -lhutch -Wl,-rpath,$PWD/build -lpthread
 *   Tests/Benchmarks/operations/compare [-n ROUNDS] BEFORE/build/operations build/operations
 *
 * With -DHUTCH_0_1_0 it builds with the header of release 0.1.0, and with the same limits.
 *
 * One run measures each operation once, in one thread, in CPU time of the process, and prints a
 * line each: the kind of cache, the operation, nanoseconds per call. `compare` runs several
 * programs in turns and prints medians and their ratios.
 *
 * The kinds of caches: `memory`; `both`, a memory tier above a disk tier that one process has open;
 * `shared`, the same with HUTCH_SHARING_SHARED. Directories are made in $TMPDIR or /tmp. Keys have
 * 16 bytes, values 100.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef HUTCH_0_1_0
#include "hutch.h"
#define hutch_loading_fulfil hutch_load_fulfil
#else
#include "hutch_tasks.h"
#endif

enum { KEY = 16, VALUE = 100, BATCH = 32 };

#define CHECK(call)                                                       \
  do {                                                                    \
    hutch_status status_ = (call);                                        \
    if (status_ < 0) {                                                    \
      fprintf(stderr, "%s: %s\n", #call, hutch_status_name(status_));     \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

static int64_t cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static const char *kind;
static char *directory;
static hutch_cache *cache;
static char value[VALUE];

static void make_key(char *key, const char *prefix, unsigned number) {
  char text[KEY + 1];
  snprintf(text, sizeof text, "%s-%0*u", prefix, (int)(KEY - 1 - strlen(prefix)), number);
  memcpy(key, text, KEY);
}

static void open_cache(void) {
  hutch_options options;
#ifdef HUTCH_0_1_0
  CHECK(hutch_options_init(&options, sizeof options));
#else
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
#endif
  options.sharing =
      strcmp(kind, "shared") == 0 ? HUTCH_SHARING_SHARED : HUTCH_SHARING_EXCLUSIVE;
  options.memory.cost = UINT64_C(256) << 20;
  options.disk.cost = UINT64_C(1) << 30;
  CHECK(hutch_open(directory, &options, &cache));
}

static hutch_status loaded(void *context, const void *key, size_t key_size,
                           hutch_loading *loading) {
  (void)context, (void)key, (void)key_size;
  return hutch_loading_fulfil(loading, value, VALUE, NULL);
}

static int32_t visited(void *context, const void *key, size_t key_size,
                       const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  ++*(unsigned *)context;
  return 0;
}

/* Measures `body` for index 0..<count, per `per` calls of the operation. */
#define MEASURE(name, count, per, body)                                            \
  do {                                                                             \
    int64_t begin_ = cpu();                                                        \
    for (unsigned i = 0; i < (unsigned)(count); ++i) body;                         \
    printf("%s\t%s\t%.1f\n", kind, name, (double)(cpu() - begin_) / ((double)(count) * (per))); \
    fflush(stdout);                                                                \
  } while (0)

int main(int arguments, char **argument) {
  if (arguments != 2) {
    fprintf(stderr, "usage: operations memory|both|shared\n");
    return 2;
  }
  kind = argument[1];
  int has_disk = strcmp(kind, "memory") != 0;
  char path[4096];
  const char *root = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/hutch-operations-XXXXXX", root ? root : "/tmp");
  if (has_disk) {
    directory = mkdtemp(path);
    if (!directory) return 1;
  }
  memset(value, 'v', sizeof value);
  open_cache();

  /* A write on disk costs a hundred times as much as one in memory. */
  unsigned reads = 400000, writes = has_disk ? 4000 : 100000, keys = 1000;
  static char many[1 << 17][KEY];
  for (unsigned i = 0; i < 1 << 17; ++i) make_key(many[i], "n", i);
  char hot[1000][KEY];
  for (unsigned i = 0; i < keys; ++i) make_key(hot[i], "hot", i);
  const void *batch_keys[BATCH], *batch_values[BATCH];
  size_t key_sizes[BATCH], value_sizes[BATCH];
  char buffer[VALUE];
  size_t size;
  uint64_t removed;
  hutch_value *got;
  hutch_batch *batch;

  MEASURE("put, new", writes, 1, CHECK(hutch_put(cache, many[i], KEY, value, VALUE, NULL, NULL)));
  for (unsigned i = 0; i < keys; ++i)
    CHECK(hutch_put(cache, hot[i], KEY, value, VALUE, NULL, NULL));
  MEASURE("put, replacing", writes, 1,
          CHECK(hutch_put(cache, hot[i % keys], KEY, value, VALUE, NULL, NULL)));
  MEASURE("get, in memory", reads, 1, {
    CHECK(hutch_get(cache, hot[i % keys], KEY, &got));
    hutch_value_release(got);
  });
  MEASURE("get_into, in memory", reads, 1,
          CHECK(hutch_get_into(cache, hot[i % keys], KEY, buffer, sizeof buffer, &size)));
  MEASURE("get, missing", has_disk ? 50000 : reads, 1,
          hutch_get(cache, many[(1 << 16) + i % 50000], KEY, &got));
  MEASURE("contains", reads, 1, CHECK(hutch_contains(cache, hot[i % keys], KEY)));
  hutch_entry_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  MEASURE("info", reads, 1, CHECK(hutch_info(cache, hot[i % keys], KEY, &info)));
  MEASURE("add, refused", has_disk ? 20000 : writes, 1,
          CHECK(hutch_add(cache, hot[i % keys], KEY, value, VALUE, NULL, NULL)));
  MEASURE("add, new", writes, 1,
          CHECK(hutch_add(cache, many[20000 + i % 100000], KEY, value, VALUE, NULL, NULL)));
  MEASURE("replace", writes, 1,
          CHECK(hutch_replace(cache, hot[i % keys], KEY, value, VALUE, NULL, NULL)));
  MEASURE("touch", writes, 1,
          CHECK(hutch_touch(cache, hot[i % keys], KEY, HUTCH_HOUR, 0)));
  char counter[KEY];
  make_key(counter, "count", 0);
  int64_t sum;
  MEASURE("increment", writes, 1,
          CHECK(hutch_increment(cache, counter, KEY, 1, 0, NULL, &sum)));
  MEASURE("pop", writes / 2, 1, {
    CHECK(hutch_pop(cache, many[i], KEY, &got));
    hutch_value_release(got);
  });
  MEASURE("remove", writes / 2, 1, CHECK(hutch_remove(cache, many[writes / 2 + i], KEY)));
  for (unsigned i = 0; i < BATCH; ++i) {
    batch_keys[i] = hot[i * 7], batch_values[i] = value;
    key_sizes[i] = KEY, value_sizes[i] = VALUE;
  }
  MEASURE("put_many of 32, a key", writes / 16, BATCH, {
    CHECK(hutch_put_many(cache, batch_keys, key_sizes, batch_values, value_sizes, BATCH, NULL,
                         &batch));
    hutch_batch_release(batch);
  });
  MEASURE("get_many of 32, a key", reads / BATCH, BATCH, {
    CHECK(hutch_get_many(cache, batch_keys, key_sizes, BATCH, &batch));
    hutch_batch_release(batch);
  });
  MEASURE("load, present", reads, 1, {
    CHECK(hutch_load(cache, hot[i % keys], KEY, loaded, NULL, NULL, &got));
    hutch_value_release(got);
  });
  MEASURE("load, missing", writes, 1, {
    char key[KEY];
    make_key(key, "load", i);
    CHECK(hutch_load(cache, key, KEY, loaded, NULL, NULL, &got));
    hutch_value_release(got);
  });
  MEASURE("put_async and wait", writes, 1, {
    hutch_task *task;
    CHECK(hutch_put_async(cache, hot[i % keys], KEY, value, VALUE, NULL, NULL, &task));
    CHECK(hutch_task_wait(task, HUTCH_FOREVER));
    hutch_task_release(task);
  });
  unsigned visits = 0;
  uint64_t entries;
  CHECK(hutch_count(cache, &entries));
  MEASURE("each, an entry", 1, (double)entries, CHECK(hutch_each(cache, visited, &visits)));
  if (has_disk) {
    hutch_cache *disk;
    CHECK(hutch_tier(cache, HUTCH_TIER_DISK, &disk));
    MEASURE("get, on disk", 50000, 1, {
      CHECK(hutch_get(disk, hot[i % keys], KEY, &got));
      hutch_value_release(got);
    });
    MEASURE("get, missing on disk", 50000, 1, hutch_get(disk, many[(1 << 16) + i], KEY, &got));
    hutch_cache_release(disk);
    CHECK(hutch_close(cache));
    MEASURE("open and close", 200, 1, {
      open_cache();
      CHECK(hutch_close(cache));
    });
    open_cache();
  }
  hutch_trim_spec trim;
  memset(&trim, 0, sizeof trim);
  trim.struct_size = sizeof trim;
  trim.kind = HUTCH_TRIM_TO_COUNT;
  trim.amount = entries / 2;
  MEASURE("trim to a count, an entry", 1, (double)(entries - entries / 2),
          CHECK(hutch_trim(cache, &trim, &removed)));
  CHECK(hutch_clear(cache));
  CHECK(hutch_close(cache));
  if (has_disk) {
    char command[5000];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return system(command) != 0;
  }
  return 0;
}
