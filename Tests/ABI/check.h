/*
 * check.h - the harness of the C tests
 *
 * A program is one file of cases:
 *
 *   TEST(a_put_is_found) {
 *     hutch_cache *cache = open_cache(NULL, NULL);
 *     CHECK_OK(put_text(cache, "key", "value"));
 *     CHECK_TEXT(cache, "key", "value");
 *     CHECK_OK(hutch_close(cache));
 *   }
 *
 * Every case runs in a process of its own, with an empty directory of its own: a failed
 * check, a crash or a hang costs that case alone, and no case inherits what another one
 * did to the library. `program NAME...` runs the cases named; `program --here [NAME...]` runs
 * them in the program's own process, one after another: a single one for CTest, which starts a
 * process for each, or several for valgrind. The directory of one that fails there stays.
 *
 * A source is built to link the library (the default) and, with HUTCH_DL, to load it with
 * dlopen.
 */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef HUTCH_DL
#define HUTCH_DL_NAMES
#include "hutch_dl.h"
extern hutch_dl hutch_dl_table;
#else
#include "hutch_tasks.h"
#endif

/* In a program that watches malloc: blocks of entries come from there, in place of the library's
   own heap. (Such a program defines _GNU_SOURCE, for setenv.) */
#define BLOCKS_FROM_MALLOC                                                      \
  static __attribute__((constructor)) void take_blocks_from_malloc(void) {      \
    setenv("HUTCH_MALLOC", "1", 1);                                             \
  }

/* ------------------------------------------------------------------- cases */

typedef struct check_case {
  const char *name;
  void (*run)(void);
  struct check_case *next;
} check_case;

void check_register(check_case *entry);

#define TEST(name)                                                      \
  static void name(void);                                               \
  __attribute__((constructor)) static void name##_register(void) {      \
    static check_case entry = {#name, name, NULL};                      \
    check_register(&entry);                                             \
  }                                                                     \
  static void name(void)

/* Says why, and ends the case without counting it for or against anything. */
_Noreturn void check_skip(const char *why);

/* ------------------------------------------------------------------ checks */

/* What a failed check says beside its own words: which kind of cache it was, say. It
   is per thread, and text is kept by the caller. */
void check_note(const char *text);

/* Prints where and what, and ends the case. From any thread. */
_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define FAIL(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition) ((condition) ? (void)0 : FAIL("%s", #condition))

void check_status(const char *file, int line, const char *call, hutch_status expected,
                  hutch_status actual);
#define CHECK_STATUS(expected, call) check_status(__FILE__, __LINE__, #call, expected, call)
#define CHECK_OK(call) CHECK_STATUS(HUTCH_OK, call)

/* Integers of any type, shown as signed. */
#define CHECK_EQUAL(expected, actual) \
  check_equal(__FILE__, __LINE__, #actual, (int64_t)(expected), (int64_t)(actual))
void check_equal(const char *file, int line, const char *what, int64_t expected, int64_t actual);

#define CHECK_BYTES(expected, expected_size, actual, actual_size) \
  check_bytes(__FILE__, __LINE__, #actual, expected, expected_size, actual, actual_size)
void check_bytes(const char *file, int line, const char *what, const void *expected,
                 size_t expected_size, const void *actual, size_t actual_size);

/* ------------------------------------------------------------- directories */

typedef struct path {
  char text[4096];
} path;

/* A path in the case's own directory, which is empty when the case begins and is removed
   after it. NULL: the directory itself. */
path scratch(const char *name);

/* The path of a file in a directory. */
path in_directory(const char *directory, const char *name);

/* Calls visit for every file and directory below directory, with its path and what stat says of
   it. A file that maintenance removes meanwhile is left out. */
void each_file(const char *directory,
               void (*visit)(void *context, const char *path, const struct stat *status),
               void *context);

/* Sum of the sizes of all files below. */
uint64_t bytes_below(const char *directory);

/* A number that changes with any name, size or byte below the directory. */
uint64_t digest_of(const char *directory);

void write_file(const char *file, const void *data, size_t size);

void remove_tree(const char *directory);

/* The directory has been removed or renamed. The log store notices it after 0.1 s, or by this. */
void let_notice(hutch_cache *cache);

/* A directory with a file system in memory of its own, mounted with these options in a name space
   of this case's own. */
path small_disk(const char *options);

/* Runs statements on the manifest of a directory, past the library. */
void run_sql(path directory, const char *sql);

/* ----------------------------------------------------------------- caches */

/* Opens, and ends the case if that does not answer HUTCH_OK. */
#define open_cache(directory, options) check_open(__FILE__, __LINE__, directory, options)
hutch_cache *check_open(const char *file, int line, const char *directory,
                        const hutch_options *options);

/* False with HUTCH_TEST_SQLITE (CMakeLists.txt): new directories are of the kind
   HUTCH_STORAGE_MIXED. Else they are of the default kind, HUTCH_STORAGE_LOG. */
bool on_log(void);

/* The defaults, but for the kind of a new directory (`on_log`) and the size from which values have
   files, which is the same in either store. */
hutch_options default_options(void);

/* No limit of size, count or age. */
hutch_tier_limits no_limits(void);

/* Memory and disk without any limit. */
hutch_options unlimited_options(void);
hutch_queue *new_queue(uint32_t width, uint32_t flags);

/* What tasks and callbacks stand at until the test opens it: {0} is a closed one. */
typedef struct gate {
  atomic_bool open;
  atomic_int waiting; /* how many have come */
} gate;

void gate_pass(gate *g);
/* The same as the work of a task, whose context is the gate. */
hutch_status gate_work(void *context, hutch_task *task);
/* Returns when so many have come. */
void gate_await(gate *g, int count);
void gate_open(gate *g);

/* A clock that stands still until a test moves it. */
typedef struct test_clock {
  _Atomic int64_t now;
  _Atomic int released;
} test_clock;

/* Makes it the clock of the options; one that is at 0 is set to a day in 2026. */
void use_clock(hutch_options *options, test_clock *clock);

/* The four kinds of handle that take every call. */
typedef enum kind { IN_MEMORY, TWO_TIERS, MEMORY_VIEW, DISK_VIEW, KINDS } kind;

/* A cache of one kind without limits, on a test clock. */
typedef struct fixture {
  hutch_cache *cache;  /* the handle to call */
  hutch_cache *whole;  /* the cache that it is, or is a view of */
  test_clock clock;
} fixture;

/* Runs body on a fresh fixture of every kind. */
void for_each_kind(void (*body)(fixture *f, kind k));
/* Whether the handle's entries are on disk. */
bool has_disk(kind k);

/* A case that is repeated for every kind: its body sees f and k. */
#define TEST_EACH_KIND(name)                                            \
  static void name##_of(fixture *, kind);                               \
  TEST(name) { for_each_kind(name##_of); }                              \
  static void name##_of(fixture *f __attribute__((unused)), kind k __attribute__((unused)))

/* ---------------------------------------------------------- puts and gets */

/* With text keys and values, for tests that are about neither. */
hutch_status put_text(hutch_cache *cache, const char *key, const char *value);
hutch_status put_size(hutch_cache *cache, const char *key, size_t size);

#define KEY(text) (text), strlen(text)

/* get answers with this text; with nothing. */
#define CHECK_TEXT(cache, key, value) check_text(__FILE__, __LINE__, cache, key, value)
void check_text(const char *file, int line, hutch_cache *cache, const char *key,
                const char *value);
#define CHECK_MISSING(cache, key) check_missing(__FILE__, __LINE__, cache, key)
void check_missing(const char *file, int line, hutch_cache *cache, const char *key);

hutch_put_options put_options(void);
hutch_entry_info info_of(hutch_cache *cache, const char *key);
hutch_entry_info info_of_value(const hutch_value *value);
hutch_put_result new_result(void);
hutch_check_report report_of(hutch_cache *cache, uint32_t flags);

/* A whole check of the disk tier finds nothing wrong; the number of its entries. */
#define CHECK_SOUND(cache) check_sound(__FILE__, __LINE__, cache)
uint64_t check_sound(const char *file, int line, hutch_cache *cache);

hutch_cache_limits limits_of(hutch_cache *cache);
hutch_cache_stats stats_of(hutch_cache *cache);
hutch_error last_error(void);
uint64_t count_of(hutch_cache *cache);
uint64_t cost_of(hutch_cache *cache);
hutch_cache *tier_of(hutch_cache *cache, uint32_t tier);
/* Which of the tiers have the key. */
void check_where(hutch_cache *cache, const char *key, bool in_memory, bool on_disk);
hutch_value *get_value(hutch_cache *cache, const char *key);

/* Fills with bytes that depend on every one of position, seed and size. */
void fill(void *data, size_t size, uint64_t seed);
/* A pointer to size such bytes, to be freed. */
void *filled(size_t size, uint64_t seed);

/* Makes every call that takes a cache, with arguments that are right, and checks that
   each answers with this status and gives no handle. */
void check_every_call(hutch_cache *cache, hutch_status expected);

/* ------------------------------------------------- threads and randomness */

/* Runs body(context, 0..count-1), each on a thread of its own, and waits for all. */
void run_threads(int count, void (*body)(void *context, int index), void *context);

/* Whether a thread of this process waits for something. */
bool sleeps(pid_t thread);

/* 50 microseconds of sleep, for a loop that waits for another thread or process. A loop that yields
   keeps a core busy, and where both are, the other one waits for it. It has its place where threads
   or processes are to go on at the same moment. */
void nap(void);

/* How many threads of this process the library has named. */
int workers(void);
/* Waits until it has none, for `naps` at most; whether it has none. */
bool workers_end(int naps);
/* Waits for that, and ends the case if some stay for a minute. */
void await_no_workers(void);

/* What a long loop is divided by: a sanitizer makes it up to ten times as long. */
#ifdef HUTCH_SANITIZED
enum { SANITIZED_BY = 8 };
#else
enum { SANITIZED_BY = 1 };
#endif

/* 1, or more if HUTCH_LONG asks for longer runs. */
int scale(void);

/* How often a loop of several threads runs: `count` times, more often if HUTCH_LONG asks for that,
   and with a sanitizer a 24th of it, but 4 times at least. ThreadSanitizer sees a race in each
   order of two accesses, and needs no repetition until they meet. */
int repeats(int count);

/* splitmix64. */
uint64_t next_random(uint64_t *state);

/* From HUTCH_SEED, or new; printed, so that a failing run can be had again. */
uint64_t seed(void);

/* --------------------------------------------------------------- processes */

/*
 * A case may start its own program as a second process, which runs a function defined
 * with PROCESS. The two talk over pipes: the child tells that it is ready, and stays until
 * the parent lets it end.
 */
typedef struct process {
  pid_t pid;
  int to, from;
} process;

process start_process(const char *name, const char *argument);
void await_ready(const process *child);
/* Lets the child end and returns its wait status. */
int end_process(process *child);

/* For the child: */
void tell_ready(void);
void await_end(void);

/* Forks. In the child (0) a failed check says that it was there. The library waits for other
   threads and processes for a second at most; where they did not run for so long, it is tried
   again. */
pid_t fork_now(void);
_Noreturn void end_child(void);
/* Waits for a child, which must have ended by end_child. */
void await_child(pid_t child);

/* Once: `*late` says that the library may have waited for a second, so that the child is excused. */
pid_t fork_amid(bool *late);

/* Memory that parent and child have in common. */
void *shared_memory(size_t size);

typedef struct check_process {
  const char *name;
  void (*run)(const char *argument);
  struct check_process *next;
} check_process;

void check_register_process(check_process *entry);

#define PROCESS(name, argument)                                         \
  static void name(const char *);                                       \
  __attribute__((constructor)) static void name##_register(void) {      \
    static check_process entry = {#name, name, NULL};                   \
    check_register_process(&entry);                                     \
  }                                                                     \
  static void name(const char *argument)

#endif
