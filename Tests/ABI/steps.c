/* A replace that is killed at every one of its calls of the system, in all four directions:
   the program stands before libc here, counts the calls that change something, and ends by
   SIGKILL at the one that it is told. A write of SQLite's counts as several: of a long one, a part
   has reached the file when the kill comes. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls left until the end; below 0: nothing is counted. */
static _Atomic int left = -1;
/* Only the thread that replaces counts: what maintenance does at the same time is not its. */
static _Thread_local int counts;

static void step(void) {
  if (counts && left >= 0 && left-- == 0) kill(getpid(), SIGKILL);
}

#define STEP(type, name, parameters, call) \
  type name parameters;                    \
  type name parameters {                   \
    step();                                \
    return (type)call;                   \
  }

/* Half a page of SQLite's. */
enum { PART = 2048 };

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at);
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  for (size_t done = 0; done < size; done += PART) {
    if (counts && left == 0 && done > 0) syscall(SYS_pwrite64, file, data, done, at);
    step();
  }
  return syscall(SYS_pwrite64, file, data, size, at);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at);
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  return pwrite64(file, data, size, at);
}
STEP(ssize_t, write, (int file, const void *data, size_t size),
     syscall(SYS_write, file, data, size))
STEP(int, renameat, (int from_in, const char *from, int to_in, const char *to),
     syscall(SYS_renameat2, from_in, from, to_in, to, 0))
STEP(int, unlinkat, (int in, const char *path, int flags),
     syscall(SYS_unlinkat, in, path, flags))
STEP(int, linkat, (int from_in, const char *from, int to_in, const char *to, int flags),
     syscall(SYS_linkat, from_in, from, to_in, to, flags))
STEP(int, mkdirat, (int in, const char *path, mode_t mode),
     syscall(SYS_mkdirat, in, path, mode))
STEP(int, ftruncate, (int file, off_t size), syscall(SYS_ftruncate, file, size))
STEP(int, ftruncate64, (int file, off64_t size), syscall(SYS_ftruncate, file, size))
STEP(int, fsync, (int file), syscall(SYS_fsync, file))
STEP(int, fdatasync, (int file), syscall(SYS_fdatasync, file))
/* Of what openat is given beside the flags only the mode of a new file counts. */
int openat(int in, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (flags & O_CREAT) step();
  return (int)syscall(SYS_openat, in, path, flags, mode);
}

#define SMALL 100
#define LARGE 60000

static const size_t sizes[2] = {SMALL, LARGE};

static hutch_cache *open_it(const char *directory, test_clock *clock) {
  hutch_options options = unlimited_options();
  use_clock(&options, clock);
  return open_cache(directory, &options);
}

/* Puts the new value, killed at step number at. True: it was not, there are fewer steps. */
static bool replace_until(const char *directory, int from, int to, int at) {
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    test_clock clock = {0};
    hutch_cache *cache = open_it(directory, &clock);
    CHECK_OK(put_size(cache, "other", LARGE + 2));
    CHECK_OK(put_size(cache, "key", sizes[from]));
    counts = 1;
    left = at;
    hutch_status status = put_size(cache, "key", sizes[to] + 1);
    left = -1;
    CHECK_OK(status);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
        (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return WIFEXITED(status);
}

static void check_whole(hutch_cache *cache, const char *key, size_t size) {
  void *expected = filled(size, size);
  hutch_value *value = get_value(cache, key);
  CHECK_BYTES(expected, size, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  free(expected);
}

static void count_content(void *context, const char *file, const struct stat *status) {
  (void)status;
  const char *below = strstr(file, "/content/");
  if (below && strlen(below) > sizeof "/content/xx") ++*(int *)context;
}

/* The old value or the new one, whole; nothing else is harmed, nothing is left behind. */
static size_t check_after(const char *directory, int from, int to) {
  test_clock clock = {0};
  hutch_cache *cache = open_it(directory, &clock);
  size_t size = info_of(cache, "key").size;
  CHECK(size == sizes[from] || size == sizes[to] + 1);
  check_whole(cache, "key", size);
  check_whole(cache, "other", LARGE + 2);
  CHECK_EQUAL(2, count_of(cache));
  CHECK_EQUAL(0, stats_of(cache).disk.damaged);
  int files = 0;
  each_file(directory, count_content, &files);
  CHECK_EQUAL(1 + (size > 20480), files);
  CHECK_OK(put_size(cache, "key", sizes[from]));
  check_whole(cache, "key", sizes[from]);
  CHECK_OK(hutch_close(cache));
  return size;
}

static void replace(int from, int to) {
  path directory = scratch("cache");
  int olds = 0, news = 0;
  for (int at = 0;; at++) {
    bool is_done = replace_until(directory.text, from, to, at);
    size_t size = check_after(directory.text, from, to);
    CHECK(!is_done || size == sizes[to] + 1);
    *(size == sizes[from] ? &olds : &news) += 1;
    remove_tree(directory.text);
    if (is_done) break;
    CHECK(at < 200);
  }
  /* The steps were counted, and the commit is among them. */
  printf("%d kills before the commit, %d after it\n", olds, news - 1);
  CHECK(olds >= 2 && news >= 1);
}

TEST(a_row_over_a_row) { replace(0, 0); }
TEST(a_file_over_a_row) { replace(0, 1); }
TEST(trap_12_a_row_over_a_file) { replace(1, 0); }
TEST(trap_11_a_file_over_a_file) { replace(1, 1); }
