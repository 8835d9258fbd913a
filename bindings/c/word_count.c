/*
 * word_count.c - the use of a cache: word_count LIBRARY CACHE DIRECTORY
 *
 * Counts the words of every file below DIRECTORY, all of them and the distinct ones, three
 * times, and caches each file's result in the directory CACHE: with an empty cache, again in
 * the same process, and in a new process. The key of a result is the file's path, size and
 * time of change, so a changed file is counted again.
 *
 * Prints a row for each run. Exit status 1 if the runs disagree.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hutch_dl.h"

typedef struct counts {
  uint64_t words, distinct;
} counts;

/* One walk over the files. */
typedef struct run {
  const char *name;
  uint64_t files, bytes;
  counts sum;
  double seconds;
  hutch_cache_stats stats;
} run;

static hutch_dl hutch;

static void stop_if_failed(hutch_status status, const char *what) {
  if (status >= 0) return;
  hutch_error error = {.struct_size = sizeof error};
  hutch.last_error(&error);
  fprintf(stderr, "%s: %s: %s\n", what, hutch.status_name(status), error.words);
  exit(2);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---------------------------------------------------------------- the work */

/* The set of the hashes of the words seen, open addressing, 0 for an empty place. */
typedef struct word_set {
  uint64_t *places;
  size_t room, used;
} word_set;

static bool insert(word_set *set, uint64_t hash);

static void grow(word_set *set) {
  word_set larger = {.room = set->room ? set->room * 2 : 1024};
  larger.places = calloc(larger.room, sizeof *larger.places);
  if (!larger.places) abort();
  for (size_t i = 0; i < set->room; i++)
    if (set->places[i]) insert(&larger, set->places[i]);
  free(set->places);
  *set = larger;
}

/* True if the word is new. */
static bool insert(word_set *set, uint64_t hash) {
  if (2 * set->used >= set->room) grow(set);
  for (size_t i = hash & (set->room - 1);; i = (i + 1) & (set->room - 1)) {
    if (set->places[i] == hash) return false;
    if (set->places[i]) continue;
    set->places[i] = hash;
    set->used++;
    return true;
  }
}

static bool is_letter(unsigned char byte) {
  unsigned char lower = byte | 32;
  return (lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') || byte >= 128 ||
         byte == '_';
}

static counts count_words(const unsigned char *text, size_t size) {
  const uint64_t basis = UINT64_C(0xcbf29ce484222325), prime = UINT64_C(0x100000001b3);
  counts result = {0, 0};
  word_set seen = {0};
  for (size_t i = 0; i < size;) {
    uint64_t hash = basis;
    size_t start = i;
    while (i < size && is_letter(text[i])) hash = (hash ^ text[i++]) * prime;
    if (i == start) {
      i++;
      continue;
    }
    result.words++;
    result.distinct += insert(&seen, hash | 1);
  }
  free(seen.places);
  return result;
}

static counts count_file(const char *path, size_t size) {
  counts result = {0, 0};
  int file = size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return result;
  void *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (text == MAP_FAILED) return result;
  result = count_words(text, size);
  munmap(text, size);
  return result;
}

/* --------------------------------------------------------------- the cache */

/* The file's path, size and time of change; its length, or 0 for a path that is too long. */
static size_t key_of(char *key, size_t room, const char *path, const struct stat *status) {
  int length = snprintf(key, room, "%s %jd %jd.%09ld", path, (intmax_t)status->st_size,
                        (intmax_t)status->st_mtim.tv_sec, status->st_mtim.tv_nsec);
  return length > 0 && (size_t)length < room ? (size_t)length : 0;
}

/* The result for a file: from the cache, or computed and put there. */
static counts counts_of(hutch_cache *cache, const char *path, const struct stat *status) {
  char key[8192];
  size_t key_size = key_of(key, sizeof key, path, status), size;
  counts result;
  hutch_status found = HUTCH_NOT_FOUND;
  if (key_size) found = hutch.get_into(cache, key, key_size, &result, sizeof result, &size);
  stop_if_failed(found, path);
  if (found == HUTCH_OK && size == sizeof result) return result;
  result = count_file(path, (size_t)status->st_size);
  if (key_size)
    stop_if_failed(hutch.put(cache, key, key_size, &result, sizeof result, NULL, NULL), path);
  return result;
}

/* -------------------------------------------------------------------- runs */

/* Reads every file once, so that the first run does not wait for the machine's disk. */
static void read_all(char *directory) {
  static char buffer[1 << 16];
  FTS *tree = fts_open((char *[]){directory, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  for (FTSENT *entry; tree && (entry = fts_read(tree));) {
    int file = entry->fts_info == FTS_F ? open(entry->fts_path, O_RDONLY | O_CLOEXEC) : -1;
    while (file >= 0 && read(file, buffer, sizeof buffer) > 0) continue;
    if (file >= 0) close(file);
  }
  if (tree) fts_close(tree);
}

static run walk(hutch_cache *cache, char *directory, const char *name) {
  run r = {.name = name};
  hutch_cache_stats before = {.struct_size = sizeof before};
  r.stats.struct_size = sizeof r.stats;
  bool progress = isatty(STDERR_FILENO);
  double start = now();
  hutch.stats(cache, &before);
  FTS *tree = fts_open((char *[]){directory, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  for (FTSENT *entry; tree && (entry = fts_read(tree));) {
    if (entry->fts_info != FTS_F) continue;
    counts result = counts_of(cache, entry->fts_path, entry->fts_statp);
    r.files++;
    r.bytes += (uint64_t)entry->fts_statp->st_size;
    r.sum.words += result.words;
    r.sum.distinct += result.distinct;
    if (progress && r.files % 256 == 0)
      fprintf(stderr, "\r%s: %" PRIu64 " files", name, r.files);
  }
  if (tree) fts_close(tree);
  r.seconds = now() - start;
  if (progress) fprintf(stderr, "\r\033[K");
  hutch.stats(cache, &r.stats);
  r.stats.memory.hits -= before.memory.hits;
  r.stats.disk.hits -= before.disk.hits;
  r.stats.disk.misses -= before.disk.misses;
  return r;
}

static void print_row(const run *r, double cold_seconds) {
  printf("%-18s %7" PRIu64 " %12" PRIu64 " %9.3f %12" PRIu64 " %10" PRIu64 " %8" PRIu64
         " %8.1fx\n",
         r->name, r->files, r->bytes, r->seconds, r->stats.memory.hits, r->stats.disk.hits,
         r->stats.disk.misses, cold_seconds / r->seconds);
  fflush(stdout);
}

static hutch_cache *open_cache(const char *directory) {
  hutch_cache *cache = NULL;
  stop_if_failed(hutch.open(directory, NULL, &cache), directory);
  return cache;
}

static bool agree(const run *a, const run *b) {
  return a->files == b->files && a->sum.words == b->sum.words &&
         a->sum.distinct == b->sum.distinct;
}

/* The third run: this program again, which gets the first run's result as text. */
static int run_again(char **arguments, const run *cold) {
  char expected[128];
  snprintf(expected, sizeof expected, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %.9f", cold->files,
           cold->sum.words, cold->sum.distinct, cold->seconds);
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", arguments[0], arguments[1], arguments[2], arguments[3], expected,
          (char *)NULL);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static int warm_in_a_new_process(char **arguments) {
  run cold = {0};
  if (sscanf(arguments[4], "%" SCNu64 " %" SCNu64 " %" SCNu64 " %lf", &cold.files,
             &cold.sum.words, &cold.sum.distinct, &cold.seconds) != 4)
    return 2;
  hutch_cache *cache = open_cache(arguments[2]);
  run warm = walk(cache, arguments[3], "warm, new process");
  stop_if_failed(hutch.close(cache), "close");
  print_row(&warm, cold.seconds);
  return agree(&warm, &cold) ? 0 : 1;
}

int main(int count, char **arguments) {
  if (count != 4 && count != 5) {
    fprintf(stderr, "usage: %s LIBRARY CACHE DIRECTORY\n", arguments[0]);
    return 2;
  }
  const char *why = hutch_dl_open(&hutch, arguments[1]);
  if (why) {
    fprintf(stderr, "%s\n", why);
    return 2;
  }
  if (count == 5) return warm_in_a_new_process(arguments);

  hutch_cache *cache = open_cache(arguments[2]);
  stop_if_failed(hutch.clear(cache), "clear");
  read_all(arguments[3]);
  run cold = walk(cache, arguments[3], "cold");
  run warm = walk(cache, arguments[3], "warm, same process");
  stop_if_failed(hutch.close(cache), "close");

  printf("%-18s %7s %12s %9s %12s %10s %8s %9s\n", "run", "files", "bytes", "seconds",
         "memory hits", "disk hits", "misses", "speed-up");
  print_row(&cold, cold.seconds);
  print_row(&warm, cold.seconds);
  int status = run_again(arguments, &cold);
  if (status == 0 && !agree(&cold, &warm)) status = 1;
  printf("%s: %" PRIu64 " words, %" PRIu64 " of them distinct within their file\n",
         status == 0 ? "three times the same" : "THE RUNS DISAGREE", cold.sum.words,
         cold.sum.distinct);
  return status;
}
