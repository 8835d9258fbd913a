/* The harness itself: runs cases, reports, and keeps directories, threads and processes.
   What knows about caches is in support.c. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A case that takes this long has hung, or so many times as long as HUTCH_LONG makes its loops.
   Nothing is asserted about time below it. */
enum { WATCHDOG_SECONDS = 240 };
enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77 };
/* Where a process started by a case tells that it is ready. */
enum { READY_DESCRIPTOR = 3 };

#ifdef HUTCH_DL
hutch_dl hutch_dl_table;
#endif

static check_case *first_case, **next_case = &first_case;
static check_process *first_process;
static _Thread_local const char *note;
static char directory[64];

void check_register(check_case *entry) {
  *next_case = entry;
  next_case = &entry->next;
}

void check_register_process(check_process *entry) {
  entry->next = first_process;
  first_process = entry;
}

/* ----------------------------------------------------------------- reports */

void check_note(const char *text) { note = text; }

void check_fail(const char *file, int line, const char *format, ...) {
  char words[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  const char *slash = strrchr(file, '/');
  fprintf(stderr, "%s:%d: %s%s%s%s\n", slash ? slash + 1 : file, line, words,
          note ? " (" : "", note ? note : "", note ? ")" : "");
  fflush(NULL);
  /* Other threads may be at work: no exit handler is to run. */
  _exit(EXIT_FAILED);
}

void check_skip(const char *why) {
  printf("skipped: %s\n", why);
  fflush(NULL);
  remove_tree(directory);
  _exit(EXIT_SKIPPED);
}

void check_status(const char *file, int line, const char *call, hutch_status expected,
                  hutch_status actual) {
  if (actual == expected) return;
  hutch_error error = last_error();
  check_fail(file, line, "%s: %s expected, %s answered%s%s", call, hutch_status_name(expected),
             hutch_status_name(actual), actual < 0 ? ": " : "", actual < 0 ? error.words : "");
}

void check_equal(const char *file, int line, const char *what, int64_t expected,
                 int64_t actual) {
  if (actual == expected) return;
  check_fail(file, line, "%s: %jd expected, is %jd", what, (intmax_t)expected, (intmax_t)actual);
}

void check_bytes(const char *file, int line, const char *what, const void *expected,
                 size_t expected_size, const void *actual, size_t actual_size) {
  if (actual_size != expected_size)
    check_fail(file, line, "%s: %zu bytes expected, are %zu", what, expected_size, actual_size);
  for (size_t i = 0; i < actual_size; i++)
    if (((const uint8_t *)actual)[i] != ((const uint8_t *)expected)[i])
      check_fail(file, line, "%s: differs at byte %zu of %zu", what, i, actual_size);
}

/* ------------------------------------------------------------- directories */

path scratch(const char *name) {
  path result;
  snprintf(result.text, sizeof result.text, "%s%s%s", directory, name ? "/" : "",
           name ? name : "");
  return result;
}

path in_directory(const char *parent, const char *name) {
  path result;
  CHECK((size_t)snprintf(result.text, sizeof result.text, "%s/%s", parent, name) <
        sizeof result.text);
  return result;
}

static FTS *walk(const char *root) {
  char *roots[] = {(char *)root, NULL};
  FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  if (!walk) FAIL("%s: %s", root, strerror(errno));
  return walk;
}

void each_file(const char *root,
               void (*visit)(void *context, const char *path, const struct stat *status),
               void *context) {
  FTS *tree = walk(root);
  for (FTSENT *entry; (entry = fts_read(tree));)
    if (entry->fts_level > 0 && entry->fts_info != FTS_DP && entry->fts_info != FTS_NS)
      visit(context, entry->fts_path, entry->fts_statp);
  fts_close(tree);
}

void remove_tree(const char *root) {
  FTS *tree = walk(root);
  for (FTSENT *entry; (entry = fts_read(tree));) {
    if (entry->fts_info == FTS_D) chmod(entry->fts_path, 0700);
    else if (remove(entry->fts_path) != 0 && errno == EBUSY && /* small_disk */
             umount2(entry->fts_path, MNT_DETACH) == 0)
      remove(entry->fts_path);
  }
  fts_close(tree);
}

static void add_size(void *context, const char *file, const struct stat *status) {
  (void)file;
  if (S_ISREG(status->st_mode)) *(uint64_t *)context += (uint64_t)status->st_size;
}

uint64_t bytes_below(const char *root) {
  uint64_t sum = 0;
  each_file(root, add_size, &sum);
  return sum;
}

/* FNV-1a. */
static uint64_t hash(uint64_t state, const void *data, size_t size) {
  for (size_t i = 0; i < size; i++)
    state = (state ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
  return state;
}

static void add_digest(void *context, const char *file, const struct stat *status) {
  off_t size = S_ISREG(status->st_mode) ? status->st_size : 0;
  uint64_t state = hash(UINT64_C(0xcbf29ce484222325), file, strlen(file));
  state = hash(state, &size, sizeof size);
  FILE *stream = size > 0 ? fopen(file, "rb") : NULL;
  if (stream) {
    char buffer[4096];
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, stream)) > 0;)
      state = hash(state, buffer, got);
    fclose(stream);
  }
  /* A sum, since the order in which files are met is not promised. */
  *(uint64_t *)context += state;
}

uint64_t digest_of(const char *root) {
  uint64_t sum = 0;
  each_file(root, add_digest, &sum);
  return sum;
}

void write_file(const char *file, const void *data, size_t size) {
  FILE *stream = fopen(file, "wb");
  if (!stream || fwrite(data, 1, size, stream) != size || fclose(stream) != 0)
    FAIL("%s: %s", file, strerror(errno));
}

/* ------------------------------------------------- threads and randomness */

typedef struct thread_start {
  void (*body)(void *context, int index);
  void *context;
  int index;
  const char *note;
} thread_start;

static void *thread_main(void *argument) {
  const thread_start *start = argument;
  check_note(start->note);
  start->body(start->context, start->index);
  return NULL;
}

void run_threads(int count, void (*body)(void *context, int index), void *context) {
  enum { MOST = 32 };
  pthread_t threads[MOST];
  thread_start starts[MOST];
  CHECK(count <= MOST);
  for (int i = 0; i < count; i++) {
    starts[i] = (thread_start){body, context, i, note};
    CHECK(pthread_create(&threads[i], NULL, thread_main, &starts[i]) == 0);
  }
  for (int i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

bool sleeps(pid_t thread) {
  char name[64], line[256] = "";
  snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)thread);
  FILE *file = fopen(name, "r");
  /* It has ended. */
  if (!file) return false;
  if (!fgets(line, sizeof line, file)) line[0] = 0;
  fclose(file);
  const char *state = strrchr(line, ')');
  return state && state[2] == 'S';
}

void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

int scale(void) {
  const char *text = getenv("HUTCH_LONG");
  int asked = text ? atoi(text) : 0;
  return asked <= 0 ? 1 : asked == 1 ? 10 : asked;
}

int repeats(int count) {
  enum { LEAST = 4, PART = SANITIZED_BY == 1 ? 1 : 3 * SANITIZED_BY };
  int wanted = count * scale() / PART;
  return wanted > LEAST ? wanted : count < LEAST ? count : LEAST;
}

uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t seed(void) {
  const char *text = getenv("HUTCH_SEED");
  uint64_t value = 0;
  if (text) value = strtoull(text, NULL, 0);
  else if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) FAIL("no random bytes");
  printf("HUTCH_SEED=%#jx\n", (uintmax_t)value);
  fflush(stdout);
  return value;
}

/* --------------------------------------------------------------- processes */

process start_process(const char *name, const char *argument) {
  int to[2], from[2];
  CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], READY_DESCRIPTOR);
  char *arguments[] = {"/proc/self/exe", "--process", (char *)name, (char *)argument, NULL};
  process child = {.to = to[1], .from = from[0]};
  int error = posix_spawn(&child.pid, arguments[0], &actions, NULL, arguments, environ);
  if (error) FAIL("posix_spawn: %s", strerror(error));
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  return child;
}

void await_ready(const process *child) {
  char byte;
  if (read(child->from, &byte, 1) != 1) FAIL("the second process ended early");
}

int end_process(process *child) {
  int status = 0;
  close(child->to);
  CHECK(waitpid(child->pid, &status, 0) == child->pid);
  close(child->from);
  return status;
}

void tell_ready(void) { CHECK(write(READY_DESCRIPTOR, "", 1) == 1); }

void await_end(void) {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
}

static int run_process(const char *name, const char *argument) {
  for (check_process *entry = first_process; entry; entry = entry->next)
    if (strcmp(entry->name, name) == 0) {
      entry->run(argument);
      return 0;
    }
  FAIL("no process %s", name);
}

/* ------------------------------------------------------------------ runner */

static void make_directory(void) {
  const char *base = getenv("TMPDIR");
  int size = snprintf(directory, sizeof directory, "%s/hutch-test-XXXXXX", base ? base : "/tmp");
  if (size >= (int)sizeof directory) strcpy(directory, "/tmp/hutch-test-XXXXXX");
  if (!mkdtemp(directory)) FAIL("mkdtemp: %s", strerror(errno));
}

/* A close waits for the tasks of its cache, not for the worker that lets the last one go: that
 * worker may release the cache, or the queue, a moment later. A sanitizer that looks for leaks
 * meanwhile finds parts of the cache. Workers that stay are those of the shared queue, or of a
 * cache that the case has left open. */
static void await_workers(void) {
  if (SANITIZED_BY > 1) workers_end(4000);
}

/* Returns the case's wait status. */
static int run_apart(const check_case *test) {
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm((unsigned)(WATCHDOG_SECONDS * scale()));
    test->run();
    await_workers();
    exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

static bool is_asked_for(const check_case *test, int count, char **names) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], test->name) == 0) return true;
  return count == 0;
}

static void load_library(void) {
#ifdef HUTCH_DL
  const char *library = getenv("HUTCH_LIBRARY");
  const char *why = hutch_dl_open(&hutch_dl_table, library ? library : HUTCH_LIBRARY);
  if (why) FAIL("%s", why);
#endif
}

int main(int count, char **arguments) {
  load_library();
  if (count == 4 && strcmp(arguments[1], "--process") == 0) {
    /* Some run until they are killed: a test that fails leaves none behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return run_process(arguments[2], arguments[3]);
  }
  bool here = count > 1 && strcmp(arguments[1], "--here") == 0;
  int names = here ? 2 : 1;

  int passed = 0, failed = 0, skipped = 0;
  for (check_case *test = first_case; test; test = test->next) {
    if (!is_asked_for(test, count - names, arguments + names)) continue;
    make_directory();
    int status = 0;
    if (here) {
      alarm((unsigned)(WATCHDOG_SECONDS * scale()));
      test->run();
      await_workers();
    } else status = run_apart(test);
    remove_tree(directory);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 0) passed++;
    else if (code == EXIT_SKIPPED) skipped++;
    else failed++;
    printf("%s %s", code == 0 ? "ok     " : code == EXIT_SKIPPED ? "skipped" : "FAILED ",
           test->name);
    if (WIFSIGNALED(status)) printf(": %s", strsignal(WTERMSIG(status)));
    printf("\n");
  }
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  int code = failed > 0 || passed + skipped == 0 ? EXIT_FAILED : passed > 0 ? 0 : EXIT_SKIPPED;
  if (here) return code;
  /* This process has called nothing of the library: a sanitizer has nothing to look for in it. */
  fflush(NULL);
  _exit(code);
}
