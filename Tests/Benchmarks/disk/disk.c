/*
 * disk - the disk tier beside what a C program would use instead
 *
 *   disk [rounds]             put, get, miss, remove at four sizes of value
 *   disk threshold [rounds]   a value in its row, or in a file: put and get by size
 *   disk many [rounds]        hutch_put_many beside one transaction of SQLite's
 *   disk threads [rounds]     one thread that puts, and several, each with keys of its own
 *   disk open [entries]       opening, after a clean close and after a kill
 *   disk trim [entries]       how long a get takes while another thread trims
 *
 * Everything runs through the view of the disk tier, in fresh directories below TMPDIR. The
 * contenders take turns, round by round, on the same keys and values; printed are medians over
 * the rounds of the wall time of one operation in microseconds, and in brackets its ratio to
 * Hutch's. All keep what they were given when the process is killed and none syncs: SQLite
 * with WAL and NORMAL (which syncs at checkpoints), LMDB with NOSYNC, LevelDB and RocksDB as
 * they come. Peers that are not installed are left out.
 *
 *   cc -O2 -Iinclude disk.c -o disk -Lbuild -lhutch -lsqlite3 [-llmdb] [-lleveldb] [-lrocksdb]
 *      with -DWITH_LMDB, -DWITH_LEVELDB, -DWITH_ROCKSDB for those that are there
 */
#define _GNU_SOURCE
#include "contenders.h"

static const contender contenders[] = {
  {"hutch", hutch_begin, hutch_store, hutch_fetch, hutch_drop, hutch_end},
  {"sqlite", raw_open, raw_put, raw_get, raw_remove, raw_close},
  {"files", files_open, files_put, files_get, files_remove, files_close},
#ifdef WITH_LMDB
  {"lmdb", lmdb_open, lmdb_put, lmdb_get, lmdb_remove, lmdb_close},
#endif
#ifdef WITH_LEVELDB
  {"leveldb", leveldb_begin, leveldb_store, leveldb_fetch, leveldb_drop, leveldb_end},
#endif
#ifdef WITH_ROCKSDB
  {"rocksdb", rocksdb_begin, rocksdb_store, rocksdb_fetch, rocksdb_drop, rocksdb_end},
#endif
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders, OPERATIONS = 4 };

/* One round of one contender: times of put, get, miss, remove. */
static void round_of(const contender *c, size_t size, int count, double *times) {
  static char *room;
  char *value = value_of(size), key[KEY];
  room = realloc(room, size);
  void *it = c->open(fresh(c->name));
  double start = now();
  for (int i = 0; i < count; i++) make_key(key, i), c->put(it, key, value, size);
  times[0] = (now() - start) / count;
  start = now();
  for (int i = 0; i < count; i++) {
    make_key(key, (uint64_t)i * 7919 % count);
    MUST(c->get(it, key, room, size));
  }
  times[1] = (now() - start) / count;
  MUST(memcmp(room, value, size) == 0);
  start = now();
  for (int i = 0; i < count; i++) make_key(key, count + i), MUST(!c->get(it, key, room, size));
  times[2] = (now() - start) / count;
  start = now();
  for (int i = 0; i < count; i++) make_key(key, i), c->remove(it, key);
  times[3] = (now() - start) / count;
  c->close(it);
  fresh(c->name);
  free(value);
}

static void operations(int rounds) {
  static const char *const names[OPERATIONS] = {"put", "get", "miss", "remove"};
  const size_t sizes[] = {100, 10000, 100000, 1000000};
  const int counts[] = {20000, 4000, 400, 40};
  for (int s = 0; s < 4; s++) {
    static double all[CONTENDERS][OPERATIONS][MOST_ROUNDS];
    for (int r = 0; r < rounds; r++)
      for (int c = 0; c < CONTENDERS; c++) {
        double times[OPERATIONS];
        round_of(&contenders[(c + r) % CONTENDERS], sizes[s], counts[s], times);
        for (int o = 0; o < OPERATIONS; o++) all[(c + r) % CONTENDERS][o][r] = times[o];
      }
    printf("\n%zu bytes\n%-8s", sizes[s], "");
    for (int c = 0; c < CONTENDERS; c++) printf("%16s", contenders[c].name);
    for (int o = 0; o < OPERATIONS; o++) {
      printf("\n%-8s", names[o]);
      double ours = median(all[0][o], rounds);
      for (int c = 0; c < CONTENDERS; c++) {
        double theirs = median(all[c][o], rounds);
        printf("%9.2f (%4.2f)", theirs, theirs / ours);
      }
    }
    printf("\n");
    fflush(stdout);
  }
}

/* Replacement of values that are there: what a cache does in the long run. */
static void thresholds(int rounds) {
  printf("%9s %14s %14s %14s %14s\n", "bytes", "put, row", "put, file", "get, row", "get, file");
  for (size_t size = 1 << 10; size <= 1 << 20; size *= 2) {
    static double puts[2][MOST_ROUNDS], gets[2][MOST_ROUNDS];
    int count = size <= 16384 ? 1000 : size <= 131072 ? 300 : 60;
    char *value = value_of(size), *room = malloc(size), key[KEY];
    for (int r = 0; r < rounds; r++)
      for (int kind = 0; kind < 2; kind++) {
        storage = kind ? HUTCH_STORAGE_FILE : HUTCH_STORAGE_SQLITE;
        void *disk = hutch_begin(fresh("threshold"));
        for (int i = 0; i < count; i++) make_key(key, i), hutch_store(disk, key, value, size);
        double start = now();
        for (int i = 0; i < count; i++) make_key(key, i), hutch_store(disk, key, value, size);
        puts[kind][r] = (now() - start) / count;
        start = now();
        for (int i = 0; i < count; i++) {
          make_key(key, (uint64_t)i * 7919 % count);
          MUST(hutch_fetch(disk, key, room, size));
        }
        gets[kind][r] = (now() - start) / count;
        hutch_end(disk);
        fresh("threshold");
      }
    printf("%9zu %14.1f %14.1f %14.1f %14.1f\n", size, median(puts[0], rounds),
           median(puts[1], rounds), median(gets[0], rounds), median(gets[1], rounds));
    fflush(stdout);
    free(value), free(room);
  }
}

static void many(int rounds) {
  enum { BATCH = 100, BATCHES = 100 };
  const size_t sizes[] = {100, 10000};
  for (int s = 0; s < 2; s++) {
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
    char *value = value_of(sizes[s]), keys[BATCH][KEY];
    const void *pointers[BATCH], *values[BATCH];
    size_t key_sizes[BATCH], value_sizes[BATCH];
    for (int i = 0; i < BATCH; i++) {
      pointers[i] = keys[i], key_sizes[i] = KEY;
      values[i] = value, value_sizes[i] = sizes[s];
    }
    for (int r = 0; r < rounds; r++) {
      void *disk = hutch_begin(fresh("hutch"));
      double start = now();
      for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++) make_key(keys[i], b * BATCH + i);
        hutch_batch *batch;
        MUST(hutch_put_many(disk, pointers, key_sizes, values, value_sizes, BATCH, NULL, &batch) ==
             HUTCH_OK);
        hutch_batch_release(batch);
      }
      ours[r] = (now() - start) / BATCH / BATCHES;
      hutch_end(disk);
      fresh("hutch");
      raw *it = raw_open(fresh("sqlite"));
      start = now();
      for (int b = 0; b < BATCHES; b++) {
        run(it->begin);
        for (int i = 0; i < BATCH; i++) {
          make_key(keys[i], b * BATCH + i);
          raw_put(it, keys[i], value, sizes[s]);
        }
        run(it->commit);
      }
      theirs[r] = (now() - start) / BATCH / BATCHES;
      raw_close(it);
      fresh("sqlite");
    }
    double a = median(ours, rounds), b = median(theirs, rounds);
    printf("put_many, 100 at once, %zu bytes: %.2f us each; sqlite %.2f (%.2f)\n", sizes[s], a, b,
           b / a);
    free(value);
  }
}

typedef struct writing {
  void *disk;
  const char *value;
  size_t size;
  int index, count;
} writing;

static void *write_own(void *context) {
  writing *w = context;
  char key[KEY];
  for (int i = 0; i < w->count; i++) {
    make_key(key, (uint64_t)w->index << 32 | (unsigned)i);
    hutch_store(w->disk, key, w->value, w->size);
  }
  return NULL;
}

static void writers(int rounds) {
  enum { MOST = 4 };
  static const int threads[] = {1, 2, 4};
  const size_t sizes[] = {100, 10000};
  for (int s = 0; s < 2; s++) {
    double rates[3][MOST_ROUNDS];
    char *value = value_of(sizes[s]);
    for (int r = 0; r < rounds; r++)
      for (int t = 0; t < 3; t++) {
        void *disk = hutch_begin(fresh("threads"));
        pthread_t ids[MOST];
        writing work[MOST];
        int count = 12000 / threads[t];
        double start = now();
        for (int i = 0; i < threads[t]; i++) {
          work[i] = (writing){disk, value, sizes[s], i, count};
          pthread_create(&ids[i], NULL, write_own, &work[i]);
        }
        for (int i = 0; i < threads[t]; i++) pthread_join(ids[i], NULL);
        rates[t][r] = count * threads[t] / (now() - start) * 1e6;
        hutch_end(disk);
        fresh("threads");
      }
    double one = median(rates[0], rounds);
    for (int t = 0; t < 3; t++) {
      double rate = median(rates[t], rounds);
      printf("%zu bytes, %d threads: %.0f puts a second (%.2f)\n", sizes[s], threads[t], rate,
             rate / one);
    }
    free(value);
  }
}

static void put_numbers(void *disk, int count) {
  enum { BATCH = 1000 };
  static char keys[BATCH][KEY], value[100];
  static const void *pointers[BATCH], *values[BATCH];
  static size_t key_sizes[BATCH], value_sizes[BATCH];
  for (int i = 0; i < count;) {
    int n = 0;
    for (; n < BATCH && i < count; n++, i++) {
      make_key(keys[n], i);
      pointers[n] = keys[n], key_sizes[n] = KEY, values[n] = value, value_sizes[n] = sizeof value;
    }
    hutch_batch *batch;
    MUST(hutch_put_many(disk, pointers, key_sizes, values, value_sizes, n, NULL, &batch) ==
         HUTCH_OK);
    hutch_batch_release(batch);
  }
}

static void openings(int count) {
  const char *path = fresh("open");
  void *disk = hutch_begin(path);
  put_numbers(disk, count);
  hutch_end(disk);
  double times[11];
  for (int i = 0; i < 11; i++) {
    double start = now();
    disk = hutch_begin(path);
    times[i] = now() - start;
    hutch_end(disk);
  }
  printf("%d entries: opening after a clean close %.2f ms", count, median(times, 11) / 1000);
  for (int i = 0; i < 11; i++) {
    pid_t child = fork();
    if (child == 0) {
      disk = hutch_begin(path);
      hutch_store(disk, "0123456789abcdef", "v", 1);
      kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    double start = now();
    disk = hutch_begin(path);
    times[i] = now() - start;
    hutch_end(disk);
  }
  printf(", after a kill %.2f ms\n", median(times, 11) / 1000);
  fresh("open");
}

static atomic_int trimming;
static void *trim(void *disk) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT, .amount = 1000};
  uint64_t removed;
  double start = now();
  MUST(hutch_trim(disk, &spec, &removed) == HUTCH_OK);
  printf("trimmed %llu entries in %.2f s; ", (unsigned long long)removed, (now() - start) / 1e6);
  trimming = 0;
  return NULL;
}

static void trims(int count) {
  enum { MOST = 4000000 };
  void *disk = hutch_begin(fresh("trim"));
  put_numbers(disk, count);
  double *times = malloc(MOST * sizeof *times);
  int done = 0;
  pthread_t thread;
  trimming = 1;
  pthread_create(&thread, NULL, trim, disk);
  char key[KEY], value[100];
  while (trimming && done < MOST) {
    make_key(key, (uint64_t)done * 7919 % count);
    double start = now();
    hutch_fetch(disk, key, value, sizeof value);
    times[done++] = now() - start;
  }
  pthread_join(thread, NULL);
  qsort(times, done, sizeof *times, by_size);
  printf("%d gets meanwhile: median %.1f us, p99 %.1f, p99.9 %.1f, longest %.1f\n", done,
         times[done / 2], times[(int)(done * 0.99)], times[(int)(done * 0.999)], times[done - 1]);
  free(times);
  hutch_end(disk);
  fresh("trim");
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "";
  int number = count > 2 ? atoi(arguments[2]) : 0;
  int rounds = number > 0 && number < MOST_ROUNDS ? number : 5;
  if (!strcmp(what, "threshold")) return thresholds(rounds), 0;
  if (!strcmp(what, "many")) return many(rounds), 0;
  if (!strcmp(what, "threads")) return writers(rounds), 0;
  if (!strcmp(what, "open")) return openings(number > 0 ? number : 100000), 0;
  if (!strcmp(what, "trim")) return trims(number > 0 ? number : 200000), 0;
  rounds = atoi(what) > 0 && atoi(what) < MOST_ROUNDS ? atoi(what) : 5;
  return operations(rounds), 0;
}
