/* The calls of failing.h. */
#define _GNU_SOURCE
#include "failing.h"
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct fault fault;
/* Of the call that fails. */
static _Thread_local int code;

static bool fails_by_chance(unsigned long one_in) {
  /* The calls of all threads have one sequence: next_random steps by this number. */
  uint64_t state = atomic_fetch_add(&fault.random, 0x9E3779B97F4A7C15);
  uint64_t mixed = next_random(&state);
  if (mixed % one_in != 0) return false;
  static const int codes[] = {EIO, ENOSPC, EMFILE, EACCES, ENOMEM, 0};
  code = codes[(mixed >> 40) % (sizeof codes / sizeof *codes)];
  atomic_store(&fault.fired, 1);
  return true;
}

static bool comes_due(void) {
  long left = atomic_load(&fault.left);
  do {
    if (left <= 0) return false;
  } while (!atomic_compare_exchange_weak(&fault.left, &left, left - 1));
  if (left != 1) return false;
  atomic_store(&fault.fired, 1);
  if (atomic_load(&fault.stops)) {
    raise(SIGSTOP);
    return false;
  }
  if (atomic_load(&fault.lasts)) atomic_store(&fault.left, 1);
  code = atomic_load(&fault.code);
  return true;
}

static bool fails(int what) {
  if (!(atomic_load(&fault.calls) & what)) return false;
  unsigned long one_in = atomic_load(&fault.one_in);
  if (!(one_in ? fails_by_chance(one_in) : comes_due())) return false;
  /* Of a call that writes nothing in part. */
  errno = code ? code : EIO;
  return true;
}

void begin_faults(int calls, int with, bool lasts, long n) {
  fault.calls = calls;
  fault.code = with;
  fault.lasts = lasts;
  fault.fired = 0;
  fault.left = n;
}

void begin_random_faults(int calls, unsigned long one_in, uint64_t random) {
  fault.calls = calls;
  fault.fired = 0;
  fault.random = random;
  fault.one_in = one_in;
}

void end_faults(void) {
  fault.left = 0;
  fault.one_in = 0;
  fault.lasts = false;
}

static mode_t mode_of(int flags, va_list list) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
}

#define OPEN(name, parameters, arguments)                       \
  int name parameters {                                         \
    REAL(name)                                                  \
    va_list list;                                               \
    va_start(list, flags);                                      \
    mode_t mode = mode_of(flags, list);                         \
    va_end(list);                                               \
    return fails(OPENS) ? -1 : real arguments;                  \
  }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

long syscall(long number, ...) {
  REAL(syscall)
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_openat2 && fails(BENEATH)) return -1;
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define CALL(what, type, name, parameters, arguments)           \
  type name parameters {                                        \
    REAL(name)                                                  \
    return fails(what) ? -1 : real arguments;                   \
  }
CALL(NAMES, int, renameat, (int a, const char *b, int c, const char *d), (a, b, c, d))
CALL(NAMES, int, unlink, (const char *path), (path))
CALL(NAMES, int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
CALL(NAMES, int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
CALL(READS, ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
CALL(READS, ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
CALL(READS, ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at))
CALL(SYNCS, int, fsync, (int fd), (fd))
CALL(SYNCS, int, fdatasync, (int fd), (fd))
CALL(LOOKS, int, fstatat, (int at, const char *path, struct stat *state, int flags),
     (at, path, state, flags))
CALL(LOOKS, int, fstat, (int fd, struct stat *state), (fd, state))
CALL(LOOKS, int, fstat64, (int fd, struct stat64 *state), (fd, state))
CALL(LOOKS, int, stat, (const char *path, struct stat *state), (path, state))
CALL(LOOKS, int, stat64, (const char *path, struct stat64 *state), (path, state))
CALL(WRITES, int, ftruncate, (int fd, off_t size), (fd, size))
CALL(WRITES, int, ftruncate64, (int fd, off64_t size), (fd, size))

void *realloc(void *block, size_t size) {
  REAL(realloc)
  return fails(MEMORY) ? NULL : real(block, size);
}

void *calloc(size_t count, size_t size) {
  REAL(calloc)
  return fails(ZEROES) ? NULL : real(count, size);
}

#define MAP(name, offset)                                       \
  void *name(void *at, size_t n, int access, int flags, int fd, offset from) { \
    REAL(name)                                                  \
    return fails(fd >= 0 ? MAPS : PAGES) ? MAP_FAILED : real(at, n, access, flags, fd, from); \
  }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

static bool takes_lock(int command, const void *argument) {
  bool is_lock = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
                 command == F_OFD_SETLKW;
  return is_lock && ((const struct flock *)argument)->l_type != F_UNLCK;
}

#define CONTROL(name)                                           \
  int name(int fd, int command, ...) {                          \
    REAL(name)                                                  \
    va_list list;                                               \
    va_start(list, command);                                    \
    void *argument = va_arg(list, void *);                      \
    va_end(list);                                               \
    if (takes_lock(command, argument) && fails(LOCKS)) return -1; \
    return real(fd, command, argument);                         \
  }
CONTROL(fcntl)
CONTROL(fcntl64)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *context) {
  REAL(pthread_create)
  if (fails(THREADS)) return EAGAIN;
  return real(thread, attributes, body, context);
}

/* A write fails, or writes half. */
#define WRITE(name, parameters, arguments)                      \
  ssize_t name parameters {                                     \
    REAL(name)                                                  \
    if (fails(WRITES)) {                                        \
      if (code) return -1;                                      \
      n = (n + 1) / 2;                                          \
    }                                                           \
    return real arguments;                                      \
  }
WRITE(write, (int fd, const void *p, size_t n), (fd, p, n))
WRITE(pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
WRITE(pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at))
WRITE(pwritev, (int fd, const struct iovec *p, int n, off_t at), (fd, p, n, at))

_Atomic int64_t free_bytes = -1;
atomic_ullong asked_of, expected_inode;

#define SPACE(name, type)                                       \
  int name(int fd, type *out) {                                 \
    REAL(name)                                                  \
    int result = real(fd, out);                                 \
    struct stat state;                                          \
    if (result == 0 && free_bytes >= 0 && fstat(fd, &state) == 0) { \
      asked_of = state.st_ino;                                  \
      if (state.st_ino == expected_inode) out->f_bavail = (fsblkcnt_t)free_bytes / out->f_frsize; \
    }                                                           \
    return result;                                              \
  }
SPACE(fstatvfs, struct statvfs)
SPACE(fstatvfs64, struct statvfs64)

atomic_int listings;

DIR *fdopendir(int fd) {
  REAL(fdopendir)
  char link[64], folder[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, folder, sizeof folder - 1);
  folder[size < 0 ? 0 : size] = 0;
  if (strstr(folder, "/content")) listings++;
  return real(fd);
}
