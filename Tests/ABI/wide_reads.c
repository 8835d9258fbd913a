/*
 * A part of libhutch where ThreadSanitizer instruments the code that ships, which compares 16 bytes
 * at a time with words that others may change: bits outside its mask (hutch_match8 in system.h).
 * ThreadSanitizer takes such a read for a plain one. Here it is two atomic ones without an order: a
 * race with a plain write is still seen, and an atomic write is none.
 */
#include <stdint.h>

int64_t __tsan_atomic64_load(const volatile int64_t *word, int order);

void __tsan_read16(void *address);

void __tsan_read16(void *address) {
  const int64_t *words = address;
  for (int i = 0; i < 2; i++) __tsan_atomic64_load(words + i, __ATOMIC_RELAXED);
}
