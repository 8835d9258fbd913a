/*
 * contenders.h - what the benchmarks of the disk tier compare: Hutch's disk tier, and what a C
 * program would use instead, each by the same six functions. A program includes it once.
 *
 * WITH_LMDB, WITH_KYOTO, WITH_LEVELDB and WITH_ROCKSDB say which peers are installed.
 */
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
#ifdef WITH_KYOTO
#include <kclangc.h>
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
static uint32_t storage = HUTCH_STORAGE_MIXED;

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
static unsigned lmdb_flags = MDB_NOSYNC;
static void *lmdb_open(const char *path) {
  lmdb *l = malloc(sizeof *l);
  mkdir(path, 0700);
  MUST(mdb_env_create(&l->env) == 0 && mdb_env_set_mapsize(l->env, 8ul << 30) == 0);
  MUST(mdb_env_open(l->env, path, lmdb_flags, 0600) == 0);
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

#ifdef WITH_KYOTO
static void *kyoto_open(const char *path) {
  char file[600];
  mkdir(path, 0700);
  /* Room for a million records: the bucket array does not grow. */
  snprintf(file, sizeof file, "%s/raw.kch#bnum=2000000#msiz=2147483648#opts=l", path);
  KCDB *db = kcdbnew();
  MUST(kcdbopen(db, file, KCOWRITER | KCOCREATE));
  return db;
}
static void kyoto_put(void *it, const char *key, const char *value, size_t size) {
  MUST(kcdbset(it, key, KEY, value, size));
}
static int kyoto_get(void *it, const char *key, char *value, size_t size) {
  return kcdbgetbuf(it, key, KEY, value, size) == (int32_t)size;
}
static void kyoto_remove(void *it, const char *key) { MUST(kcdbremove(it, key, KEY)); }
static void kyoto_close(void *it) {
  MUST(kcdbclose(it));
  kcdbdel(it);
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
