// The libc headers that the engine needs (Embedded Swift has no Glibc module), and
// what Swift cannot express: variadic calls, function-like macros, errno,
// thread-locals and statically initialised process-wide state.
//
// Each function with static storage is called from one Swift file only
// (System/ThreadState.swift, System/Process.swift, Tasks/QueueHandle.swift): an
// unoptimised build makes a copy of a static inline function, statics included, in every
// file that calls it.
#ifndef HUTCH_CSYSTEM_H
#define HUTCH_CSYSTEM_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

// Declarations that glibc has under _GNU_SOURCE only. With that macro types would have other
// members than in Swift's own Glibc module, and the ordinary build refuses that.
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif
#ifndef F_OFD_SETLKW
#define F_OFD_GETLK 36
#define F_OFD_SETLKW 38
#endif
#ifndef O_PATH
#define O_PATH 010000000
#endif
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#endif
extern int memfd_create(const char *name, unsigned int flags);
extern const char *strerrordesc_np(int error);
extern long syscall(long number, ...);
extern int dup3(int from, int to, int flags);
extern int fallocate(int file, int mode, off_t offset, off_t length);
extern int pthread_setname_np(pthread_t thread, const char *name);
extern int syncfs(int file);

// A thread's last failure, see hutch_error.
struct hutch_note {
  int32_t status;
  int32_t system_error;
  int32_t sqlite_error;
  char words[232];
};

// A callback that a thread is within, on that thread's stack.
struct hutch_callback {
  void *owner;                   // the cache or queue that makes the call
  struct hutch_callback *outer;
  struct hutch_note *before;     // from malloc: the thread's failure as it was; NULL: it still is
};

struct hutch_thread_state {
  struct hutch_note note;
  int32_t locks;        // how many of the library's locks it holds; counted in debug builds
  struct hutch_callback *callback;  // the innermost one
  void *worker_of;      // the queue whose worker this thread is
  void *loading;        // the load whose loader this thread is within
  void *telling;        // the cache whose events or lines of the log it delivers
  int32_t has_roster;   // it forks, and has the roster's lock
  int32_t inside;       // how many gates it is inside
  int32_t aside;        // in how many of them, the outermost ones, it has stepped aside
  void *gates[4];       // the outermost ones
  int32_t stripes;      // how many stripes it holds, see EndedBlocks.swift
  void *ended;          // the blocks to free when it holds none any more
  int32_t number;       // of the thread, see ThreadLines.swift; 0: it has none yet
  int32_t moves;        // how often it has left a line of readers, see ShardLock.swift
};

static inline struct hutch_thread_state *hutch_thread_state(void) {
  static _Thread_local struct hutch_thread_state state;
  return &state;
}

// The number of a thread that has none yet, from 1 on.
static inline int32_t hutch_next_number(void) {
  static uint32_t last;
  return (int32_t)(__atomic_add_fetch(&last, 1, __ATOMIC_RELAXED) & INT32_MAX);
}

static inline void **hutch_gates(struct hutch_thread_state *state) { return state->gates; }

struct hutch_process_state {
  pthread_mutex_t lock;  // protects the list of open directories; see Process.swift
  void *registry;
  uint32_t forks;        // how often this process image has been the child of a fork
  int32_t handlers;      // whether the fork handlers are registered
  // The lock could not be taken at the fork that made this process.
  int32_t opens_nothing;
  // The number of forks that wait for the lock; they get it next.
  int32_t waiting_forks;  // atomic
};

// Data with a lock of its own is a struct of its own: ThreadSanitizer reports a change of any
// field that Swift makes through a pointer as one of the struct's first byte.

struct hutch_logger_state {
  pthread_mutex_t lock;  // protects the process's logger; nothing is taken under it
  void *logger;
};

struct hutch_roster_state {
  pthread_mutex_t lock;   // protects what follows
  void *roster;           // the caches that a fork concerns
  void (*prepare)(void);  // what it does about them; NULL: there has been none
  void (*parent)(void);
  void (*child)(void);
  // Fields of the current fork.
  int32_t has_registry;
  int64_t until;  // when it stops waiting; CLOCK_MONOTONIC
};

static inline struct hutch_process_state *hutch_process_state(void) {
  static struct hutch_process_state state = {.lock = PTHREAD_MUTEX_INITIALIZER};
  return &state;
}

static inline struct hutch_logger_state *hutch_logger_state(void) {
  static struct hutch_logger_state state = {.lock = PTHREAD_MUTEX_INITIALIZER};
  return &state;
}

static inline struct hutch_roster_state *hutch_roster_state(void) {
  static struct hutch_roster_state state = {.lock = PTHREAD_MUTEX_INITIALIZER};
  return &state;
}

// The heap's state and arenas; see Heap.swift. All zero is an empty heap.
static inline void *hutch_heap(void) {
  static _Alignas(64) char heap[64 + 17 * 2560];
  return heap;
}

// The process's shared queue: a counted reference, or NULL; see QueueHandle.swift.
static inline void **hutch_shared_queue_place(void) {
  static void *handle;
  return &handle;
}
static inline void *hutch_shared_queue_handle(void) {
  return __atomic_load_n(hutch_shared_queue_place(), __ATOMIC_ACQUIRE);
}
// 0: it is not `old`, and stays.
static inline int hutch_set_shared_queue_handle(void *old, void *handle) {
  return __atomic_compare_exchange_n(hutch_shared_queue_place(), &old, handle, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
}
// 1 for the first call in a process and its children, else 0.
static inline int hutch_once_at_exit(void) {
  static int called;
  return !__atomic_exchange_n(&called, 1, __ATOMIC_RELAXED);
}
static inline long hutch_processors(void) { return sysconf(_SC_NPROCESSORS_ONLN); }

// Adds to the number of waiting forks and returns it; for Process.swift.
static inline int32_t hutch_waiting_forks(int32_t change) {
  return __atomic_add_fetch(&hutch_process_state()->waiting_forks, change, __ATOMIC_RELAXED);
}

static inline int hutch_errno(void) { return errno; }
static inline void hutch_set_errno(int value) { errno = value; }

// A full barrier in every thread of the process. What a thread stores by an atomic exchange before
// it loads is visible to the caller then, or its loads find all that the caller has stored.
static inline void hutch_thread_barrier(void) {
#if !defined(__x86_64__)
  // There an exchange does not keep the loads behind it from coming before its store.
  if (syscall(SYS_membarrier, 16 /* REGISTER_PRIVATE_EXPEDITED */, 0, 0) == 0)
    syscall(SYS_membarrier, 8 /* PRIVATE_EXPEDITED */, 0, 0);
#endif
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// Prefetches the cache line at this address, which need not be readable.
static inline void hutch_prefetch(const void *address) { __builtin_prefetch(address); }

// Copies at most HUTCH_COPY_AT_ONCE bytes without a call: so many of the first and so many of the
// last that together they are all. The last are stored first: the copy is soon read from its start,
// and a load of bytes of two stores has to wait for both.
enum { HUTCH_COPY_AT_ONCE = 128 };
__attribute__((always_inline))
static inline void hutch_copy_at_once(void *to, const void *from, size_t count) {
  typedef uint64_t i16 __attribute__((vector_size(16), aligned(1), may_alias));
  typedef uint64_t i8 __attribute__((aligned(1), may_alias));
  typedef uint32_t i4 __attribute__((aligned(1), may_alias));
  char *t = (char *)to, *tail = t + count;
  const char *f = (const char *)from, *end = f + count;
  if (count > 64) {
    const i16 *first = (const i16 *)f, *last = (const i16 *)(end - 64);
    i16 a = first[0], b = first[1], c = first[2], d = first[3];
    i16 w = last[0], x = last[1], y = last[2], z = last[3];
    i16 *front = (i16 *)t, *back = (i16 *)(tail - 64);
    back[0] = w, back[1] = x, back[2] = y, back[3] = z;
    front[0] = a, front[1] = b, front[2] = c, front[3] = d;
  } else if (count > 32) {
    const i16 *first = (const i16 *)f, *last = (const i16 *)(end - 32);
    i16 a = first[0], b = first[1], y = last[0], z = last[1];
    i16 *front = (i16 *)t, *back = (i16 *)(tail - 32);
    back[0] = y, back[1] = z, front[0] = a, front[1] = b;
  } else if (count >= 16) {
    i16 a = *(const i16 *)f, z = *(const i16 *)(end - 16);
    *(i16 *)(tail - 16) = z, *(i16 *)t = a;
  } else if (count >= 8) {
    i8 a = *(const i8 *)f, z = *(const i8 *)(end - 8);
    *(i8 *)(tail - 8) = z, *(i8 *)t = a;
  } else if (count >= 4) {
    i4 a = *(const i4 *)f, z = *(const i4 *)(end - 4);
    *(i4 *)(tail - 4) = z, *(i4 *)t = a;
  } else if (count > 0) {
    char a = f[0], m = f[count / 2], z = end[-1];
    t[0] = a, t[count / 2] = m, tail[-1] = z;
  }
}

// To the left, modulo 64 bits. One instruction, which the compiler does not find in two shifts.
static inline uint64_t hutch_rotated(uint64_t word, uint64_t bits) {
  return __builtin_rotateleft64(word, bits);
}

// Bits 2i and 2i + 1 of the result tell whether words[i] & mask equals wanted, for eight 64-bit
// words of which the lower halves count. 16-byte aligned. Optimised for size, the compiler would
// not inline it. Bits outside the mask may change meanwhile, so a build for ThreadSanitizer, which
// has HUTCH_THREAD_SANITIZER, reads word by word.
__attribute__((always_inline))
static inline uint32_t hutch_match8(const void *words, uint32_t wanted, uint32_t mask) {
#if defined(HUTCH_THREAD_SANITIZER)
  const uint64_t *w = (const uint64_t *)words;
  uint32_t found = 0;
  for (int i = 0; i < 8; i++)
    if ((((uint32_t)__atomic_load_n(w + i, __ATOMIC_RELAXED)) & mask) == wanted)
      found |= 3u << 2 * i;
  return found;
#elif defined(__SSE2__)
  typedef float f4 __attribute__((vector_size(16), aligned(16)));
  typedef uint32_t u4 __attribute__((vector_size(16), aligned(16)));
  typedef int i4 __attribute__((vector_size(16), aligned(16)));
  typedef char c16 __attribute__((vector_size(16), aligned(16)));
  const u4 *w = (const u4 *)words;
  u4 low = __builtin_shufflevector(w[0], w[1], 0, 2, 4, 6);
  u4 high = __builtin_shufflevector(w[2], w[3], 0, 2, 4, 6);
  u4 masks = {mask, mask, mask, mask};
  u4 wants = {wanted, wanted, wanted, wanted};
  return (uint32_t)__builtin_ia32_pmovmskb128((c16)__builtin_ia32_packssdw128(
      (i4)((low & masks) == wants), (i4)((high & masks) == wants)));
#else
  const uint64_t *w = (const uint64_t *)words;
  uint32_t found = 0;
  for (int i = 0; i < 8; i++)
    if ((((uint32_t)w[i]) & mask) == wanted) found |= 3u << 2 * i;
  return found;
#endif
}

// Bit i of the result tells whether halves[i] equals wanted, for 32 16-bit words. 16-byte aligned.
__attribute__((always_inline))
static inline uint32_t hutch_match32(const void *halves, uint32_t wanted) {
#if defined(__SSE2__)
  typedef short s8 __attribute__((vector_size(16), aligned(16)));
  typedef char c16 __attribute__((vector_size(16), aligned(16)));
  const s8 *h = (const s8 *)halves;
  short w = (short)wanted;
  s8 wants = {w, w, w, w, w, w, w, w};
  c16 low = __builtin_ia32_packsswb128(h[0] == wants, h[1] == wants);
  c16 high = __builtin_ia32_packsswb128(h[2] == wants, h[3] == wants);
  return (uint32_t)__builtin_ia32_pmovmskb128(low) |
         (uint32_t)__builtin_ia32_pmovmskb128(high) << 16;
#else
  const uint16_t *h = (const uint16_t *)halves;
  uint32_t found = 0;
  for (int i = 0; i < 32; i++) found |= (uint32_t)(h[i] == (uint16_t)wanted) << i;
  return found;
#endif
}

// Puts `first` before 32 16-bit words: those before the one with the number `last`, which is lost,
// move on by one. 16-byte aligned.
__attribute__((always_inline))
static inline void hutch_push32(void *halves, uint32_t first, uint32_t last) {
  typedef short s8 __attribute__((vector_size(16), aligned(16)));
  typedef short unaligned __attribute__((vector_size(16), aligned(2), may_alias));
  s8 *h = (s8 *)halves;
  short f = (short)first, l = (short)last;
  s8 number = {0, 1, 2, 3, 4, 5, 6, 7}, lasts = {l, l, l, l, l, l, l, l}, firsts = {f};
  s8 moved[4] = {__builtin_shufflevector(firsts, h[0], 0, 8, 9, 10, 11, 12, 13, 14)};
  for (int i = 1; i < 4; i++) moved[i] = *(const unaligned *)((const short *)halves + 8 * i - 1);
  for (int i = 0; i < 4; i++) {
    s8 stays = number > lasts;
    h[i] = (h[i] & stays) | (moved[i] & ~stays);
    number += 8;
  }
}

// For eight 64-bit words of a hash table with `lines` lines, at most 2^15, that are the line with
// the number `line`. A word's home is the line (tag * lines) >> 15, where the tag are its bits 5 to
// 19. Bit i of the result tells whether the home of words[i] is at least `back` lines before this
// line, around the end of the table; `back` is not 0. 16-byte aligned.
__attribute__((always_inline))
static inline uint32_t hutch_displaced8(const void *words, uint32_t lines, uint32_t line,
                                        uint32_t back) {
#if defined(__SSE2__)
  typedef int i4 __attribute__((vector_size(16), aligned(16)));
  typedef short s8 __attribute__((vector_size(16), aligned(16)));
  typedef char c16 __attribute__((vector_size(16), aligned(16)));
  const i4 *w = (const i4 *)words;
  i4 low = __builtin_shufflevector(w[0], w[1], 0, 2, 4, 6);
  i4 high = __builtin_shufflevector(w[2], w[3], 0, 2, 4, 6);
  // Twice the tag, as 16 bits with a sign, so that packing leaves them as they are.
  s8 twice = __builtin_ia32_packssdw128(low << 12 >> 16, high << 12 >> 16);
  short l = (short)lines, a = (short)line, b = (short)(back - 1);
  s8 even = {-2, -2, -2, -2, -2, -2, -2, -2}, all = {l, l, l, l, l, l, l, l};
  s8 at = {a, a, a, a, a, a, a, a}, less = {b, b, b, b, b, b, b, b};
  s8 distance = at - __builtin_ia32_pmulhuw128(twice & even, all);
  distance += (distance >> 15) & all;
  s8 found = distance > less;
  return (uint32_t)__builtin_ia32_pmovmskb128((c16)__builtin_ia32_packsswb128(found, found)) & 255;
#else
  const uint64_t *w = (const uint64_t *)words;
  uint32_t found = 0;
  for (int i = 0; i < 8; i++) {
    uint32_t home = (((uint32_t)w[i] >> 5 & 0x7FFF) * lines) >> 15;
    uint32_t distance = line >= home ? line - home : line + lines - home;
    found |= (uint32_t)(distance >= back) << i;
  }
  return found;
#endif
}

// A barrier for the compiler, not for the processor.
static inline void hutch_compiler_fence(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// The same number, of which the compiler knows nothing. A function that returns it can be called
// last, by a jump: of another constant the compiler would return a copy after a call.
static inline int32_t hutch_unknown(int32_t number) {
  __asm__("" : "+r"(number));
  return number;
}

static inline void hutch_spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Sleeps while *word is `value`, for at most this many nanoseconds, less than a second.
static inline void hutch_futex_wait(void *word, uint32_t value, int64_t nanoseconds) {
  struct timespec time = {0, nanoseconds};
  syscall(SYS_futex, word, 128 /* FUTEX_WAIT_PRIVATE */, value, &time, NULL, 0);
}

static inline void hutch_futex_wake_one(void *word) {
  syscall(SYS_futex, word, 129 /* FUTEX_WAKE_PRIVATE */, 1, NULL, NULL, 0);
}

// The same for a word in memory that processes share.
static inline void hutch_futex_wait_shared(void *word, uint32_t value, int64_t nanoseconds) {
  struct timespec time = {0, nanoseconds};
  syscall(SYS_futex, word, 0 /* FUTEX_WAIT */, value, &time, NULL, 0);
}

static inline void hutch_futex_wake_shared(void *word) {
  syscall(SYS_futex, word, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
}

static inline int hutch_openat(int directory, const char *path, int flags, mode_t mode) {
  return openat(directory, path, flags, mode);
}

// openat2 (Linux 5.6; glibc has no function for it) with RESOLVE_NO_SYMLINKS.
static inline int hutch_open_without_links(
    int directory, const char *path, int flags, mode_t mode) {
  struct {
    uint64_t flags, mode, resolve;
  } how = {(uint32_t)flags, flags & O_CREAT ? mode : 0, 0x04};
  return (int)syscall(437, directory, path, &how, sizeof how);
}

// `length` 0: to the end of the file.
static inline struct flock hutch_flock(short type, int64_t start, int64_t length) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

// Takes (type F_WRLCK, F_RDLCK) or releases (F_UNLCK) an open-file-description lock on
// the whole file, without waiting.
static inline int hutch_ofd_lock(int descriptor, short type) {
  struct flock lock = hutch_flock(type, 0, 0);
  return fcntl(descriptor, F_OFD_SETLK, &lock);
}

// The same on one byte of the file.
static inline int hutch_ofd_lock_byte(int descriptor, short type, int64_t byte) {
  struct flock lock = hutch_flock(type, byte, 1);
  return fcntl(descriptor, F_OFD_SETLK, &lock);
}

// The same open file under another number.
static inline int hutch_duplicate(int descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 3); }

// True if another open file has any lock on that byte.
static inline int hutch_ofd_is_locked(int descriptor, int64_t byte) {
  struct flock lock = hutch_flock(F_WRLCK, byte, 1);
  return fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// The same for all bytes of `lock`, which then has the first such lock; -1: an error.
static inline int hutch_ofd_first(int descriptor, struct flock *lock) {
  return fcntl(descriptor, F_OFD_GETLK, lock) != 0 ? -1 : lock->l_type != F_UNLCK;
}

// The bytes of addresses that the process may have; UINT64_MAX: any number.
static inline uint64_t hutch_most_addresses(void) {
  struct rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
           ? UINT64_MAX : (uint64_t)limit.rlim_cur;
}

// F_ADD_SEALS, with F_SEAL_SEAL, _SHRINK, _GROW and _WRITE: nothing can change the file.
static inline int hutch_seal(int descriptor) { return fcntl(descriptor, 1024 + 9, 15); }

static inline int hutch_is_regular(mode_t mode) { return S_ISREG(mode); }

#endif
