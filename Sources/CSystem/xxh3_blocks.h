// XXH3's sums by instructions that not every processor has, and that Swift cannot express.
#ifndef HUTCH_XXH3_BLOCKS_H
#define HUTCH_XXH3_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <sys/platform/x86.h>

// True if hutch_add_blocks can be called. The loader has determined it.
static inline int hutch_has_wide_vectors(void) { return x86_cpu_active(x86_cpu_AVX2); }

typedef uint64_t hutch_lanes __attribute__((vector_size(32)));

#define HUTCH_ADD(sum, bytes, secret, copy)                      \
  do {                                                           \
    hutch_lanes part, key;                                       \
    memcpy(&part, bytes, 32);                                    \
    if (copy) memcpy(copy, &part, 32);                           \
    memcpy(&key, secret, 32);                                    \
    key ^= part;                                                 \
    sum += (key & 0xFFFFFFFF) * (key >> 32);                     \
    sum += __builtin_shufflevector(part, part, 1, 0, 3, 2);      \
  } while (0)
#define HUTCH_SCRAMBLE(sum, secret)                                    \
  do {                                                                 \
    hutch_lanes key;                                                   \
    memcpy(&key, secret, 32);                                          \
    key ^= sum ^ sum >> 47;                                            \
    sum = (key & 0xFFFFFFFF) * prime + ((key >> 32) * prime << 32);    \
  } while (0)

// Adds blocks of 16 stripes of 64 bytes to the eight sums, and scrambles them after each
// (Checksum.swift). The sums must be in registers even if the optimiser optimises for
// size. target: NULL, or where the bytes are copied to; each is loaded once, so the sum is that of
// the copy, whatever becomes of the original meanwhile.
__attribute__((target("avx2"))) static inline void hutch_add_blocks(
    void *sums, const void *bytes, size_t blocks, const void *secret, void *target) {
  const uint64_t prime = 0x9E3779B1;
  const char *data = bytes, *keys = secret;
  char *copy = target;
  hutch_lanes low, high;
  memcpy(&low, sums, 32);
  memcpy(&high, (char *)sums + 32, 32);
  while (blocks-- > 0) {
    if (copy) {
      // A page ahead, of bytes that no cache has: 10 KB to 1 MB took the least time so.
      size_t ahead = blocks >= 4 ? 4096 : 0;
      for (int stripe = 0; stripe < 16; stripe++, data += 64, copy += 64) {
        __builtin_prefetch(data + ahead);
        HUTCH_ADD(low, data, keys + 8 * stripe, copy);
        HUTCH_ADD(high, data + 32, keys + 8 * stripe + 32, copy + 32);
      }
    } else {
      for (int stripe = 0; stripe < 16; stripe++, data += 64) {
        HUTCH_ADD(low, data, keys + 8 * stripe, (char *)NULL);
        HUTCH_ADD(high, data + 32, keys + 8 * stripe + 32, (char *)NULL);
      }
    }
    HUTCH_SCRAMBLE(low, keys + 128);
    HUTCH_SCRAMBLE(high, keys + 160);
  }
  memcpy(sums, &low, 32);
  memcpy((char *)sums + 32, &high, 32);
}

// As hutch_add_blocks with a target, by stores that go past the processor's caches: for a large
// copy to memory that is not in them, which would be read first. The bytes are loaded twice.
__attribute__((target("avx2"))) static inline void hutch_stream_blocks(
    void *sums, const void *bytes, size_t blocks, const void *secret, void *target) {
  const uint64_t prime = 0x9E3779B1;
  const char *data = bytes, *keys = secret;
  // Such a store has to be aligned, and writes a whole line.
  size_t before = -(uintptr_t)target & 63;
  char *line = (char *)target + before, *end = (char *)target + blocks * 1024;
  memcpy(target, bytes, before);
  hutch_lanes low, high;
  memcpy(&low, sums, 32);
  memcpy(&high, (char *)sums + 32, 32);
  for (size_t block = 0; block < blocks; block++) {
    for (int stripe = 0; stripe < 16; stripe++, data += 64) {
      __builtin_prefetch(data + 1536);
      if (end - line >= 64) {
        hutch_lanes first, second;
        memcpy(&first, data + before, 32);
        memcpy(&second, data + before + 32, 32);
        __builtin_nontemporal_store(first, (hutch_lanes *)line);
        __builtin_nontemporal_store(second, (hutch_lanes *)(line + 32));
        line += 64;
      }
      HUTCH_ADD(low, data, keys + 8 * stripe, (char *)NULL);
      HUTCH_ADD(high, data + 32, keys + 8 * stripe + 32, (char *)NULL);
    }
    HUTCH_SCRAMBLE(low, keys + 128);
    HUTCH_SCRAMBLE(high, keys + 160);
  }
  memcpy(line, (const char *)bytes + (line - (char *)target), (size_t)(end - line));
  memcpy(sums, &low, 32);
  memcpy((char *)sums + 32, &high, 32);
  // They come before all stores that follow.
  __builtin_ia32_sfence();
}
#undef HUTCH_ADD
#undef HUTCH_SCRAMBLE
#else
static inline int hutch_has_wide_vectors(void) { return 0; }
static inline void hutch_add_blocks(
    void *sums, const void *bytes, size_t blocks, const void *secret, void *target) {}
static inline void hutch_stream_blocks(
    void *sums, const void *bytes, size_t blocks, const void *secret, void *target) {}
#endif
#endif
