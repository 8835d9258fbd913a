/*
 * failing.h - calls of libc that fail on demand
 *
 * failing.c defines the calls that the library and its SQLite make, in the program, which the
 * dynamic linker asks first. So the library is the one that is shipped, and SQLite's own calls fail
 * too. A program with other definitions of its own makes them with REAL.
 */
#ifndef FAILING_H
#define FAILING_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What a call does, as far as it matters to how it may fail. */
enum {
  OPENS = 1,
  NAMES = 2,
  WRITES = 4,
  READS = 8,
  SYNCS = 16,
  MAPS = 32,
  /* Of a range of a file, SQLite's and the directory's; giving one up does not fail. */
  LOCKS = 64,
  ALL = 127,
  /* At a name or an open file. */
  LOOKS = 128,
  /* Of the library and of SQLite, by realloc. */
  MEMORY = 256,
  /* A thread is made. */
  THREADS = 512,
  /* Memory that is no file's. */
  PAGES = 1024,
  /* Memory that is all zero at first: of the library, and of libc, which may not bear it. */
  ZEROES = 2048,
  /* A file below a directory is opened, by openat2. */
  BENEATH = 4096
};

extern struct fault {
  atomic_int calls;   /* calls of these kinds that may fail */
  atomic_long left;   /* until the one that fails; 0: none does */
  atomic_int code;    /* errno; 0: a short write */
  atomic_int fired;
  atomic_bool lasts;  /* all calls fail from that one on */
  atomic_bool stops;  /* the process is stopped before that call, which does not fail */
  atomic_ulong one_in; /* one call in so many fails, with any code; 0: see left */
  atomic_ullong random;
} fault;

/* From here on the n-th of these calls fails, or each from that one on (`lasts`). */
void begin_faults(int calls, int code, bool lasts, long n);
/* From here on one of so many of these calls fails. */
void begin_random_faults(int calls, unsigned long one_in, uint64_t random);
void end_faults(void);

/* What is said to be free, of the file system of this inode only; -1: what is. */
extern _Atomic int64_t free_bytes;
extern atomic_ullong asked_of, expected_inode;
/* Listings of folders with content files. */
extern atomic_int listings;

/* libc's function, as `real`. */
#define REAL(name)                                              \
  static __typeof__(&name) real;                                \
  if (!real) {                                                  \
    void *found = dlsym(RTLD_NEXT, #name);                      \
    memcpy(&real, &found, sizeof real);                         \
  }

#endif
