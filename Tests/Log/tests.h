// What the log store's test programs need of libc beside CSystem.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
// The types of both are CSystem's then, whichever of the two modules is read first.
#include "../../Sources/CSystem/system.h"

/* The address behind the call of this function in the program: which of its stores this one is. A
   store is inlined where it is made, so two places of the source have two addresses. */
__attribute__((noinline)) static uintptr_t log_store_place(void) {
  __asm__ volatile(""); /* Two calls in one function are not the same. */
  return (uintptr_t)__builtin_return_address(0);
}

/* What the kernel's clock shows; the program has a clock_gettime of its own. */
static inline void log_real_time(int clock, struct timespec *time) {
  extern long syscall(long number, ...);
  syscall(SYS_clock_gettime, clock, time);
}

/* The program has a renameat of its own. */
static inline long log_rename(int folder, const char *from, int other, const char *to) {
  extern long syscall(long number, ...);
  return syscall(SYS_renameat2, folder, from, other, to, 0);
}

/* A write to a pipe that no process reads fails. */
static inline void log_ignore_broken_pipes(void) { signal(SIGPIPE, SIG_IGN); }
