/*
 * raw.c - several processes on one directory, native, beside raw SQLite
 *
 *   cc -O2 raw.c $(pkg-config --cflags --libs hutch) -lsqlite3 -lpthread -o raw && ./raw [rounds]
 *
 * As processes.py, without Python: each process gets and puts random ones of 1,000 keys with
 * values of 1,000 bytes, 90 gets to 10 puts, no two puts with the same value. Beside the disk
 * view of a cache that is shared stands SQLite as a program would use it for this: one
 * connection, prepared statements, WAL, synchronous = NORMAL, a busy handler that yields. That is
 * what a cache on SQLite can hope for. Rounds take turns, in fresh directories in the working
 * directory; the medians of calls per second of all processes together, and Hutch's part.
 */
#define _GNU_SOURCE
#include <hutch.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

enum { KEYS = 1000, SIZE = 1000, CALLS = 20000, MOST_ROUNDS = 64 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static hutch_cache *whole, *disk;

static void hutch_begin(const char *directory) {
  hutch_options options = {.struct_size = sizeof options};
  options.disk.cost = options.disk.max_entry = HUTCH_NO_LIMIT;
  options.disk.time_to_live = HUTCH_FOREVER;
  options.sharing = HUTCH_SHARING_SHARED;
  MUST(hutch_open(directory, &options, &whole) == HUTCH_OK);
  MUST(hutch_tier(whole, HUTCH_TIER_DISK, &disk) == HUTCH_OK);
}
static void hutch_write(int key, const char *value) {
  MUST(hutch_put(disk, &key, sizeof key, value, SIZE, NULL, NULL) == HUTCH_OK);
}
static void hutch_read(int key, char *room) {
  size_t size;
  MUST(hutch_get_into(disk, &key, sizeof key, room, SIZE, &size) == HUTCH_OK);
}
static void hutch_end(void) {
  hutch_cache_release(disk);
  MUST(hutch_close(whole) == HUTCH_OK);
}

static sqlite3 *database;
static sqlite3_stmt *put, *get;

static int yield(void *context, int tries) {
  (void)context;
  if (tries < 100) return sched_yield(), 1;
  return usleep(200), tries < 50000;
}
static void raw_begin(const char *directory) {
  char file[600];
  snprintf(file, sizeof file, "%s/raw.sqlite", directory);
  MUST(sqlite3_open(file, &database) == SQLITE_OK);
  sqlite3_busy_handler(database, yield, NULL);
  MUST(sqlite3_exec(database,
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                    "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB)",
                    NULL, NULL, NULL) == SQLITE_OK);
  const char *sql = "INSERT INTO entries VALUES (?1, ?2)"
                    " ON CONFLICT (key) DO UPDATE SET value = excluded.value";
  MUST(sqlite3_prepare_v2(database, sql, -1, &put, NULL) == SQLITE_OK);
  sql = "SELECT value FROM entries WHERE key = ?1";
  MUST(sqlite3_prepare_v2(database, sql, -1, &get, NULL) == SQLITE_OK);
}
static void raw_write(int key, const char *value) {
  sqlite3_bind_blob(put, 1, &key, sizeof key, SQLITE_STATIC);
  sqlite3_bind_blob(put, 2, value, SIZE, SQLITE_STATIC);
  MUST(sqlite3_step(put) == SQLITE_DONE);
  sqlite3_reset(put);
}
static void raw_read(int key, char *room) {
  sqlite3_bind_blob(get, 1, &key, sizeof key, SQLITE_STATIC);
  MUST(sqlite3_step(get) == SQLITE_ROW);
  memcpy(room, sqlite3_column_blob(get, 0), SIZE);
  sqlite3_reset(get);
}
static void raw_end(void) {
  sqlite3_finalize(put);
  sqlite3_finalize(get);
  MUST(sqlite3_close(database) == SQLITE_OK);
}

static const struct {
  void (*begin)(const char *directory);
  void (*write)(int key, const char *value);
  void (*read)(int key, char *room);
  void (*end)(void);
} contenders[] = {{hutch_begin, hutch_write, hutch_read, hutch_end},
                  {raw_begin, raw_write, raw_read, raw_end}};

static double rate(int contender, int processes, pthread_barrier_t *barrier) {
  char directory[] = "processes-XXXXXX", value[SIZE] = "", command[64];
  MUST(mkdtemp(directory));
  contenders[contender].begin(directory);
  for (int key = 0; key < KEYS; key++) contenders[contender].write(key, value);
  contenders[contender].end();
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(barrier, &shared, (unsigned)processes + 1);
  for (int process = 0; process < processes; process++) {
    if (fork() != 0) continue;
    contenders[contender].begin(directory);
    unsigned random = (unsigned)process + 1;
    pthread_barrier_wait(barrier);
    for (int call = 0; call < CALLS; call++) {
      int writes = rand_r(&random) % 10 == 0, key = rand_r(&random) % KEYS;
      memcpy(value, &call, sizeof call);
      memcpy(value + SIZE / 2, &process, sizeof process);
      if (writes) {
        contenders[contender].write(key, value);
      } else {
        char room[SIZE];
        contenders[contender].read(key, room);
      }
    }
    pthread_barrier_wait(barrier);
    contenders[contender].end();
    _exit(0);
  }
  pthread_barrier_wait(barrier);
  double start = now();
  pthread_barrier_wait(barrier);
  double took = now() - start;
  for (int status; wait(&status) > 0;) MUST(status == 0);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  MUST(system(command) == 0);
  return processes * CALLS / took;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *numbers, int count) {
  qsort(numbers, (size_t)count, sizeof *numbers, by_size);
  return numbers[count / 2];
}

int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 5;
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 5;
  pthread_barrier_t *barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MUST(barrier != MAP_FAILED);
  for (int processes = 1; processes <= 8; processes *= 2) {
    double rates[2][MOST_ROUNDS];
    for (int round = 0; round < rounds; round++)
      for (int contender = 0; contender < 2; contender++)
        rates[contender][round] = rate(contender, processes, barrier);
    double ours = median(rates[0], rounds), theirs = median(rates[1], rounds);
    printf("%d processes: hutch %.0f calls/s, sqlite %.0f (%.2f)\n", processes, ours, theirs,
           ours / theirs);
    fflush(stdout);
  }
  return 0;
}
