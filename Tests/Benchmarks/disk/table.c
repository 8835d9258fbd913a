/*
 * table - what a store on disk costs, beside LMDB with a writable map, Kyoto Cabinet and RocksDB
 *
 *   table [--store log|sqlite|mixed] [--entries n] [--rounds n] [--without name] [row...]
 *
 * Rows, all of them if none is named:
 *   small      entries of 16 + 100 bytes: put new, get in random order, miss, remove; a put through
 *              both tiers; the bytes on disk beyond key and value
 *   replace    puts of random keys where the store is at its limit, and the times of single ones
 *   large      10 KB, 100 KB and 1 MB: replacements and gets in the steady state; and replacements
 *              while the store uses its room for the second time
 *   threads    gets on one thread, and on two at once
 *   open       opening, after a clean close and after a kill
 *   processes  four processes, 90 gets to 10 puts of 1 KB
 *
 * All contenders are open at once, in directories below TMPDIR. They take turns in slices of each
 * row on the same keys, in an order that changes from slice to slice. Printed are medians over the
 * slices: microseconds of an operation, and in brackets the median of the slices' ratios to the
 * first contender, LMDB if it is there. All rows count the CPU time of the calling threads, so not
 * RocksDB's compactions; but `open`, and the times of single puts, the wall's. A `+` before the
 * name: the handle of both tiers.
 *
 *   cc -O2 -Iinclude table.c -o table -Lbuild -lhutch -lsqlite3 -lpthread
 *      [-DWITH_LMDB -llmdb] [-DWITH_KYOTO -lkyotocabinet] [-DWITH_ROCKSDB -lrocksdb]
 */
#define _GNU_SOURCE
#include "contenders.h"

enum { MOST_PEERS = 8, MOST_SLICES = 400 };

typedef struct peer {
  contender does;
  char path[520];
  void *it;
  /* Takes part in `processes`. */
  int is_shared;
} peer;

static peer peers[MOST_PEERS];
static int peer_count;
static uint64_t entries = 1000000;
static int rounds = 25;
/* Of Hutch's disk tier; 0: none. */
static uint64_t limit;

/* Hutch, as often as one likes. */
typedef struct ours {
  hutch_cache *whole, *disk;
} ours;

static void *ours_open(const char *path) {
  hutch_options options = {.struct_size = sizeof options};
  options.disk.cost = limit ? limit : HUTCH_NO_LIMIT;
  options.disk.max_entry = HUTCH_NO_LIMIT;
  options.disk.time_to_live = HUTCH_FOREVER;
  options.storage = storage;
  ours *o = malloc(sizeof *o);
  MUST(o && hutch_open(path, &options, &o->whole) == HUTCH_OK);
  MUST(hutch_tier(o->whole, HUTCH_TIER_DISK, &o->disk) == HUTCH_OK);
  return o;
}
static void ours_put(void *it, const char *key, const char *value, size_t size) {
  hutch_store(((ours *)it)->disk, key, value, size);
}
static void both_put(void *it, const char *key, const char *value, size_t size) {
  hutch_store(((ours *)it)->whole, key, value, size);
}
static int ours_get(void *it, const char *key, char *value, size_t size) {
  return hutch_fetch(((ours *)it)->disk, key, value, size);
}
static void ours_remove(void *it, const char *key) { hutch_drop(((ours *)it)->disk, key); }
static void ours_close(void *it) {
  ours *o = it;
  hutch_cache_release(o->disk);
  MUST(hutch_close(o->whole) == HUTCH_OK);
  free(o);
}

/* A name that is left out. */
static const char *without = "";

static void add(const char *name, contender does, int is_shared) {
  if (!strcmp(name, without)) return;
  does.name = name;
  peers[peer_count++] = (peer){.does = does, .is_shared = is_shared};
}

static void open_peers(const char *row) {
  for (int p = 0; p < peer_count; p++) {
    char name[80];
    snprintf(name, sizeof name, "%s-%s", peers[p].does.name, row);
    snprintf(peers[p].path, sizeof peers[p].path, "%s", fresh(name));
    peers[p].it = peers[p].does.open(peers[p].path);
  }
}

static void close_peers(void) {
  for (int p = 0; p < peer_count; p++) {
    peers[p].does.close(peers[p].it);
    nftw(peers[p].path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
  }
}

/* ------------------------------------------------------------------- slices */

static uint64_t random_state = 88172645463325252ull;
static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static double used(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void print_row(const char *row, double times[][MOST_SLICES], int slices) {
  printf("%-14s", row);
  for (int p = 0; p < peer_count; p++) {
    double ratios[MOST_SLICES], own[MOST_SLICES];
    for (int s = 0; s < slices; s++) {
      ratios[s] = times[p][s] / times[0][s];
      own[s] = times[p][s];
    }
    if (own[0] < 0) printf("%17s", "-");
    else printf("%10.3f (%4.2f)", median(own, slices), median(ratios, slices));
  }
  printf("\n");
  fflush(stdout);
}

typedef enum { PUT, GET, MISS, REMOVE } operation;

/* `slices` of `count` operations by each contender. Keys: `first` and on, or random ones of the
   numbers below `below`. */
static void run_row(const char *row, operation what, size_t size, int slices, int count,
                    uint64_t first, uint64_t below) {
  static double times[MOST_PEERS][MOST_SLICES];
  char *value = value_of(size), *room = malloc(size + 8), key[KEY];
  for (int s = 0; s < slices; s++) {
    uint64_t seed = next_random();
    for (int turn = 0; turn < peer_count; turn++) {
      int p = (turn + s) % peer_count;
      const contender *c = &peers[p].does;
      void *it = peers[p].it;
      random_state = seed;
      uint64_t number = first + (uint64_t)s * count;
      double start = used();
      for (int i = 0; i < count; i++) {
        make_key(key, below ? next_random() % below : number + i);
        switch (what) {
          case PUT: c->put(it, key, value, size); break;
          case GET: MUST(c->get(it, key, room, size) || limit); break;
          case MISS: MUST(!c->get(it, key, room, size)); break;
          case REMOVE: c->remove(it, key); break;
        }
      }
      times[p][s] = (used() - start) / count;
    }
  }
  if (row) print_row(row, times, slices);
  free(value), free(room);
}

static double bytes_there;
static int add_bytes(const char *path, const struct stat *s, int type, struct FTW *walk) {
  (void)path, (void)type, (void)walk;
  bytes_there += (double)s->st_blocks * 512;
  return 0;
}

static void title(const char *row) {
  printf("\n%-14s", row);
  for (int p = 0; p < peer_count; p++) printf("%17s", peers[p].does.name);
  printf("\n");
}

static void small(void) {
  enum { SLICES = 50 };
  int count = (int)(entries / SLICES);
  title("16 + 100");
  limit = 0;
  open_peers("small");
  run_row("put new", PUT, 100, SLICES, count, 0, 0);
  printf("%-14s", "bytes beyond");
  for (int p = 0; p < peer_count; p++) {
    bytes_there = 0;
    nftw(peers[p].path, add_bytes, 32, FTW_PHYS);
    printf("%17.1f", bytes_there / (double)entries - 116);
  }
  printf("\n");
  run_row("get random", GET, 100, SLICES, count, 0, entries);
  run_row("miss", MISS, 100, SLICES, count, entries, 0);
  run_row("replace, room", PUT, 100, SLICES, count / 2, 0, entries);
  run_row("remove", REMOVE, 100, SLICES, count, 0, 0);
  close_peers();
}

static void latencies(void) {
  enum { COUNT = 1000000 };
  double *times = malloc(COUNT * sizeof *times);
  char *value = value_of(100), key[KEY];
  for (int p = 0; p < peer_count; p++) {
    for (int i = 0; i < COUNT; i++) {
      make_key(key, next_random() % entries);
      double start = now();
      peers[p].does.put(peers[p].it, key, value, 100);
      times[i] = now() - start;
    }
    qsort(times, COUNT, sizeof *times, by_size);
    printf("%-14s wall: p50 %.2f, p99 %.2f, p99.9 %.2f, p99.99 %.1f, longest %.0f\n",
           peers[p].does.name, times[COUNT / 2], times[COUNT / 100 * 99],
           times[COUNT / 1000 * 999], times[COUNT / 10000 * 9999], times[COUNT - 1]);
    fflush(stdout);
  }
  free(times), free(value);
}

static void replacements(void) {
  enum { SLICES = 50 };
  title("at the limit");
  limit = entries * 288;
  open_peers("replace");
  run_row(NULL, PUT, 100, 1, (int)entries, 0, 0);
  run_row(NULL, PUT, 100, 1, (int)(entries * 2), 0, entries);
  run_row("replace", PUT, 100, SLICES, (int)(entries / SLICES), 0, entries);
  run_row("get", GET, 100, SLICES, (int)(entries / SLICES), 0, entries);
  latencies();
  close_peers();
}

static void large(void) {
  const size_t sizes[] = {10000, 100000, 1000000};
  const int counts[] = {400, 40, 8};
  limit = 512 << 20;
  for (int s = 0; s < 3; s++) {
    char name[32];
    uint64_t keys = (160 << 20) / sizes[s];
    snprintf(name, sizeof name, "%zu bytes", sizes[s]);
    title(name);
    open_peers("large");
    run_row(NULL, PUT, sizes[s], 1, (int)keys, 0, 0);
    int lap = (int)(limit / sizes[s]);
    run_row(NULL, PUT, sizes[s], 1, lap, 0, keys);
    /* A log has stored to none of its pages through the mapping yet. */
    run_row("second lap", PUT, sizes[s], 8, lap / 8, 0, keys);
    run_row(NULL, PUT, sizes[s], 1, lap, 0, keys);
    run_row("replace", PUT, sizes[s], rounds, counts[s] * 4, 0, keys);
    run_row("get", GET, sizes[s], rounds, counts[s] * 4, 0, keys);
    close_peers();
  }
}

/* ------------------------------------------------------------------ threads */

typedef struct reading {
  peer *p;
  uint64_t seed;
  int count;
  double time;
} reading;

static void *read_random(void *context) {
  reading *r = context;
  char key[KEY], room[128];
  uint64_t state = r->seed;
  double start = used();
  for (int i = 0; i < r->count; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    make_key(key, (state >> 20) % entries);
    MUST(r->p->does.get(r->p->it, key, room, 100));
  }
  r->time = used() - start;
  return NULL;
}

/* The gets of all threads in a microsecond of each one's CPU time. */
static double rate_of(peer *p, int threads) {
  enum { COUNT = 400000 };
  pthread_t ids[4];
  reading work[4];
  double time = 0;
  for (int t = 0; t < threads; t++) {
    work[t] = (reading){p, next_random(), COUNT, 0};
    pthread_create(&ids[t], NULL, read_random, &work[t]);
  }
  for (int t = 0; t < threads; t++) {
    pthread_join(ids[t], NULL);
    time += work[t].time;
  }
  return (double)COUNT * threads * threads / time;
}

static void threads(void) {
  limit = 0;
  open_peers("threads");
  run_row(NULL, PUT, 100, 1, (int)entries, 0, 0);
  for (int p = 0; p < peer_count; p++) {
    double one[MOST_SLICES], two[MOST_SLICES], ratio[MOST_SLICES];
    for (int r = 0; r < rounds; r++) {
      one[r] = rate_of(&peers[p], 1);
      two[r] = rate_of(&peers[p], 2);
      ratio[r] = two[r] / one[r];
    }
    printf("%-14s gets on one thread %.2f M/s, on two %.2f M/s (%.2f)\n", peers[p].does.name,
           median(one, rounds), median(two, rounds), median(ratio, rounds));
  }
  close_peers();
}

/* --------------------------------------------------------------------- open */

static void opening(void) {
  limit = 0;
  open_peers("open");
  run_row(NULL, PUT, 100, 1, (int)entries, 0, 0);
  for (int p = 0; p < peer_count; p++) {
    const contender *c = &peers[p].does;
    double clean[MOST_SLICES], killed[MOST_SLICES];
    c->close(peers[p].it);
    for (int r = 0; r < rounds; r++) {
      double start = now();
      void *it = c->open(peers[p].path);
      clean[r] = now() - start;
      c->close(it);
      pid_t child = fork();
      if (child == 0) {
        it = c->open(peers[p].path);
        c->put(it, "0123456789abcdef", "v", 1);
        kill(getpid(), SIGKILL);
      }
      waitpid(child, NULL, 0);
      start = now();
      it = c->open(peers[p].path);
      killed[r] = now() - start;
      c->close(it);
    }
    printf("%-14s opening after a clean close %.3f ms, after a kill %.3f ms\n", c->name,
           median(clean, rounds) / 1000, median(killed, rounds) / 1000);
    peers[p].it = c->open(peers[p].path);
  }
  close_peers();
}

/* ---------------------------------------------------------------- processes */

/* The operations of four processes in a microsecond of each one's CPU time. */
static double rate_of_four(peer *p, const char *value) {
  enum { PROCESSES = 4, KEYS = 100000, SIZE = 1000, COUNT = 400000 };
  int pipes[2];
  MUST(pipe(pipes) == 0);
  for (int i = 0; i < PROCESSES; i++) {
    pid_t child = fork();
    if (child) continue;
    void *it = p->does.open(p->path);
    char key[KEY], room[SIZE];
    random_state = (uint64_t)(i + 1) * 88172645463325252ull;
    double start = 0;
    /* The first round brings the files into the process's tables of pages. */
    for (int n = -COUNT; n < COUNT; n++) {
      if (n == 0) start = used();
      make_key(key, next_random() % KEYS);
      if (next_random() % 10) p->does.get(it, key, room, SIZE);
      else p->does.put(it, key, value, SIZE);
    }
    double done = COUNT / (used() - start);
    p->does.close(it);
    MUST(write(pipes[1], &done, sizeof done) == sizeof done);
    _exit(0);
  }
  double sum = 0, one;
  for (int i = 0; i < PROCESSES; i++) {
    MUST(read(pipes[0], &one, sizeof one) == sizeof one);
    sum += one;
    wait(NULL);
  }
  close(pipes[0]), close(pipes[1]);
  return sum;
}

static void processes(void) {
  double rates[MOST_PEERS][MOST_SLICES];
  char *value = value_of(1000);
  limit = 0;
  open_peers("processes");
  run_row(NULL, PUT, 1000, 1, 100000, 0, 0);
  for (int p = 0; p < peer_count; p++) peers[p].does.close(peers[p].it);
  int times = rounds < 9 ? rounds : 9;
  for (int r = 0; r < times; r++)
    for (int p = 0; p < peer_count; p++)
      if (peers[p].is_shared) rates[p][r] = rate_of_four(&peers[p], value);
  double first = peers[0].is_shared ? median(rates[0], times) : 1;
  for (int p = 0; p < peer_count; p++)
    if (peers[p].is_shared)
      printf("%-14s four processes, 90 to 10: %.3f M/s (%.2f)\n", peers[p].does.name,
             median(rates[p], times), median(rates[p], times) / first);
  for (int p = 0; p < peer_count; p++)
    nftw(peers[p].path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
  free(value);
}

/* --------------------------------------------------------------------- main */

int main(int count, char **arguments) {
  const char *store = "log", *wanted[8];
  int wanted_count = 0;
  for (int i = 1; i < count; i++) {
    int has_more = i + 1 < count;
    if (!strcmp(arguments[i], "--store") && has_more) store = arguments[++i];
    else if (!strcmp(arguments[i], "--entries") && has_more) entries = strtoull(arguments[++i], NULL, 10);
    else if (!strcmp(arguments[i], "--rounds") && has_more) rounds = atoi(arguments[++i]);
    else if (!strcmp(arguments[i], "--without") && has_more) without = arguments[++i];
    else if (wanted_count < 8) wanted[wanted_count++] = arguments[i];
  }
  if (rounds < 1 || rounds > MOST_SLICES || entries < 1000) return 2;
  storage = !strcmp(store, "log")      ? HUTCH_STORAGE_LOG
            : !strcmp(store, "sqlite") ? HUTCH_STORAGE_SQLITE
                                       : HUTCH_STORAGE_MIXED;
#ifdef WITH_LMDB
  lmdb_flags = MDB_NOSYNC | MDB_WRITEMAP;
  add("lmdb", (contender){NULL, lmdb_open, lmdb_put, lmdb_get, lmdb_remove, lmdb_close}, 1);
#endif
  contender hutch = {NULL, ours_open, ours_put, ours_get, ours_remove, ours_close};
  add(store, hutch, 1);
  hutch.put = both_put;
  char both[40];
  snprintf(both, sizeof both, "+%s", store);
  add(both, hutch, 1);
#ifdef WITH_KYOTO
  add("kyoto", (contender){NULL, kyoto_open, kyoto_put, kyoto_get, kyoto_remove, kyoto_close}, 0);
#endif
#ifdef WITH_ROCKSDB
  add("rocksdb",
      (contender){NULL, rocksdb_begin, rocksdb_store, rocksdb_fetch, rocksdb_drop, rocksdb_end}, 0);
#endif
  static const struct { const char *name; void (*run)(void); } rows[] = {
    {"small", small}, {"replace", replacements}, {"large", large},
    {"threads", threads}, {"open", opening}, {"processes", processes},
  };
  for (int r = 0; r < 6; r++) {
    int is_wanted = wanted_count == 0;
    for (int w = 0; w < wanted_count; w++) is_wanted |= !strcmp(wanted[w], rows[r].name);
    if (is_wanted) rows[r].run();
  }
  return 0;
}
