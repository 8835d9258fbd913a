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
#include "hutch.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_LMDB
#include <lmdb.h>
#endif
#ifdef WITH_LEVELDB
#include <leveldb/c.h>
#endif
#ifdef WITH_ROCKSDB
#include <rocksdb/c.h>
#endif

#define MUST(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

enum { KEY = 16, MOST_ROUNDS = 64 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void make_key(char *key, uint64_t number) {
  uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ull;
  memcpy(key, &mixed, 8);
  memcpy(key + 8, &number, 8);
}

static char *value_of(size_t size) {
  char *value = malloc(size);
  MUST(value);
  uint64_t state = 1;
  for (size_t i = 0; i < size; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    value[i] = (char)(state >> 56);
  }
  return value;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *walk) {
  (void)s, (void)type, (void)walk;
  return remove(path);
}

static char directory[512];

static const char *fresh(const char *name) {
  const char *base = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/hutch-disk-%d-%s", base ? base : "/var/tmp",
           (int)getpid(), name);
  nftw(directory, remove_one, 32, FTW_DEPTH | FTW_PHYS);
  return directory;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *numbers, int count) {
  qsort(numbers, count, sizeof *numbers, by_size);
  return numbers[count / 2];
}

/* -------------------------------------------------------------- contenders */

typedef struct contender {
  const char *name;
  void *(*open)(const char *directory);
  void (*put)(void *, const char *key, const char *value, size_t size);
  /* Copies the value out; whether it was there. */
  int (*get)(void *, const char *key, char *value, size_t size);
  void (*remove)(void *, const char *key);
  void (*close)(void *);
} contender;

static hutch_cache *whole;
static uint32_t storage = HUTCH_STORAGE_DEFAULT;

static void *hutch_begin(const char *path) {
  hutch_options options = {.struct_size = sizeof options};
  options.disk.cost = options.disk.max_entry = HUTCH_NO_LIMIT;
  options.disk.time_to_live = HUTCH_FOREVER;
  options.storage = storage;
  hutch_cache *disk;
  MUST(hutch_open(path, &options, &whole) == HUTCH_OK);
  MUST(hutch_tier(whole, HUTCH_TIER_DISK, &disk) == HUTCH_OK);
  return disk;
}
static void hutch_store(void *disk, const char *key, const char *value, size_t size) {
  MUST(hutch_put(disk, key, KEY, value, size, NULL, NULL) == HUTCH_OK);
}
static int hutch_fetch(void *disk, const char *key, char *value, size_t size) {
  size_t found;
  return hutch_get_into(disk, key, KEY, value, size, &found) == HUTCH_OK;
}
static void hutch_drop(void *disk, const char *key) {
  MUST(hutch_remove(disk, key, KEY) == HUTCH_OK);
}
static void hutch_end(void *disk) {
  hutch_cache_release(disk);
  MUST(hutch_close(whole) == HUTCH_OK);
}

typedef struct raw {
  sqlite3 *database;
  sqlite3_stmt *put, *get, *remove, *begin, *commit;
} raw;

static sqlite3_stmt *prepare(sqlite3 *database, const char *sql) {
  sqlite3_stmt *statement;
  MUST(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK);
  return statement;
}
static void *raw_open(const char *path) {
  raw *r = calloc(1, sizeof *r);
  char file[600];
  mkdir(path, 0700);
  snprintf(file, sizeof file, "%s/raw.sqlite", path);
  MUST(sqlite3_open(file, &r->database) == SQLITE_OK);
  MUST(sqlite3_exec(r->database,
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                    "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB)",
                    NULL, NULL, NULL) == SQLITE_OK);
  r->put = prepare(r->database, "INSERT OR REPLACE INTO entries VALUES (?1, ?2)");
  r->get = prepare(r->database, "SELECT value FROM entries WHERE key = ?1");
  r->remove = prepare(r->database, "DELETE FROM entries WHERE key = ?1");
  r->begin = prepare(r->database, "BEGIN IMMEDIATE");
  r->commit = prepare(r->database, "COMMIT");
  return r;
}
static void run(sqlite3_stmt *statement) {
  MUST(sqlite3_step(statement) == SQLITE_DONE);
  sqlite3_reset(statement);
}
static void raw_put(void *it, const char *key, const char *value, size_t size) {
  raw *r = it;
  sqlite3_bind_blob(r->put, 1, key, KEY, SQLITE_STATIC);
  sqlite3_bind_blob(r->put, 2, value, (int)size, SQLITE_STATIC);
  run(r->put);
}
static int raw_get(void *it, const char *key, char *value, size_t size) {
  raw *r = it;
  sqlite3_bind_blob(r->get, 1, key, KEY, SQLITE_STATIC);
  int there = sqlite3_step(r->get) == SQLITE_ROW;
  if (there) {
    MUST((size_t)sqlite3_column_bytes(r->get, 0) == size);
    memcpy(value, sqlite3_column_blob(r->get, 0), size);
  }
  sqlite3_reset(r->get);
  return there;
}
static void raw_remove(void *it, const char *key) {
  raw *r = it;
  sqlite3_bind_blob(r->remove, 1, key, KEY, SQLITE_STATIC);
  run(r->remove);
}
static void raw_close(void *it) {
  raw *r = it;
  sqlite3_stmt *all[] = {r->put, r->get, r->remove, r->begin, r->commit};
  for (int i = 0; i < 5; i++) sqlite3_finalize(all[i]);
  MUST(sqlite3_close(r->database) == SQLITE_OK);
  free(r);
}

/* Plain files, one for a value: written whole, renamed. */
static int folder;
static void *files_open(const char *path) {
  mkdir(path, 0700);
  folder = open(path, O_RDONLY | O_DIRECTORY);
  MUST(folder >= 0);
  return &folder;
}
static const char *file_of(const char *key) {
  static char name[40];
  for (int i = 0; i < KEY; i++) sprintf(name + 2 * i, "%02x", (unsigned char)key[i]);
  return name;
}
static void files_put(void *it, const char *key, const char *value, size_t size) {
  (void)it;
  int file = openat(folder, "new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  MUST(file >= 0 && write(file, value, size) == (ssize_t)size && close(file) == 0);
  MUST(renameat(folder, "new", folder, file_of(key)) == 0);
}
static int files_get(void *it, const char *key, char *value, size_t size) {
  (void)it;
  int file = openat(folder, file_of(key), O_RDONLY);
  if (file < 0) return 0;
  MUST(read(file, value, size) == (ssize_t)size);
  close(file);
  return 1;
}
static void files_remove(void *it, const char *key) {
  (void)it;
  MUST(unlinkat(folder, file_of(key), 0) == 0);
}
static void files_close(void *it) { (void)it, close(folder); }

#ifdef WITH_LMDB
typedef struct lmdb { MDB_env *env; MDB_dbi dbi; } lmdb;
static void *lmdb_open(const char *path) {
  lmdb *l = malloc(sizeof *l);
  mkdir(path, 0700);
  MUST(mdb_env_create(&l->env) == 0 && mdb_env_set_mapsize(l->env, 8ul << 30) == 0);
  MUST(mdb_env_open(l->env, path, MDB_NOSYNC, 0600) == 0);
  MDB_txn *txn;
  MUST(mdb_txn_begin(l->env, NULL, 0, &txn) == 0 && mdb_dbi_open(txn, NULL, 0, &l->dbi) == 0);
  MUST(mdb_txn_commit(txn) == 0);
  return l;
}
static void lmdb_put(void *it, const char *key, const char *value, size_t size) {
  lmdb *l = it;
  MDB_txn *txn;
  MDB_val k = {KEY, (void *)key}, v = {size, (void *)value};
  MUST(mdb_txn_begin(l->env, NULL, 0, &txn) == 0 && mdb_put(txn, l->dbi, &k, &v, 0) == 0);
  MUST(mdb_txn_commit(txn) == 0);
}
static int lmdb_get(void *it, const char *key, char *value, size_t size) {
  lmdb *l = it;
  MDB_txn *txn;
  MDB_val k = {KEY, (void *)key}, v;
  MUST(mdb_txn_begin(l->env, NULL, MDB_RDONLY, &txn) == 0);
  int there = mdb_get(txn, l->dbi, &k, &v) == 0;
  if (there) memcpy(value, v.mv_data, size);
  mdb_txn_abort(txn);
  return there;
}
static void lmdb_remove(void *it, const char *key) {
  lmdb *l = it;
  MDB_txn *txn;
  MDB_val k = {KEY, (void *)key};
  MUST(mdb_txn_begin(l->env, NULL, 0, &txn) == 0 && mdb_del(txn, l->dbi, &k, NULL) == 0);
  MUST(mdb_txn_commit(txn) == 0);
}
static void lmdb_close(void *it) {
  lmdb *l = it;
  mdb_env_close(l->env);
  free(l);
}
#endif

/* LevelDB's interface for C, and RocksDB's, which is made after it. */
#define LIKE_LEVELDB(db)                                                                   \
  typedef struct my_##db { db##_t *store; db##_readoptions_t *r; db##_writeoptions_t *w; } \
      my_##db;                                                                             \
  static void *db##_begin(const char *path) {                                              \
    my_##db *l = malloc(sizeof *l);                                                        \
    char *error = NULL;                                                                    \
    db##_options_t *options = db##_options_create();                                       \
    db##_options_set_create_if_missing(options, 1);                                        \
    l->store = db##_open(options, path, &error);                                           \
    MUST(!error);                                                                          \
    db##_options_destroy(options);                                                         \
    l->r = db##_readoptions_create();                                                      \
    l->w = db##_writeoptions_create();                                                     \
    return l;                                                                              \
  }                                                                                        \
  static void db##_store(void *it, const char *key, const char *value, size_t size) {      \
    my_##db *l = it;                                                                       \
    char *error = NULL;                                                                    \
    db##_put(l->store, l->w, key, KEY, value, size, &error);                               \
    MUST(!error);                                                                          \
  }                                                                                        \
  static int db##_fetch(void *it, const char *key, char *value, size_t size) {             \
    my_##db *l = it;                                                                       \
    char *error = NULL;                                                                    \
    size_t found;                                                                          \
    char *copy = db##_get(l->store, l->r, key, KEY, &found, &error);                       \
    MUST(!error);                                                                          \
    if (!copy) return 0;                                                                   \
    memcpy(value, copy, size);                                                             \
    db##_free(copy);                                                                       \
    return 1;                                                                              \
  }                                                                                        \
  static void db##_drop(void *it, const char *key) {                                       \
    my_##db *l = it;                                                                       \
    char *error = NULL;                                                                    \
    db##_delete(l->store, l->w, key, KEY, &error);                                         \
    MUST(!error);                                                                          \
  }                                                                                        \
  static void db##_end(void *it) {                                                         \
    my_##db *l = it;                                                                       \
    db##_readoptions_destroy(l->r);                                                        \
    db##_writeoptions_destroy(l->w);                                                       \
    db##_close(l->store);                                                                  \
    free(l);                                                                               \
  }
#ifdef WITH_LEVELDB
LIKE_LEVELDB(leveldb)
#endif
#ifdef WITH_ROCKSDB
LIKE_LEVELDB(rocksdb)
#endif

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
