/*
 * value_tool - writes and checks values that only a seed and a number decide
 *
 *   value_tool LIBRARY write DIRECTORY SEED COUNT   put value-0 .. value-(COUNT-1)
 *   value_tool LIBRARY check DIRECTORY SEED COUNT   the directory holds exactly those
 *   value_tool LIBRARY loop DIRECTORY SEED FIRST    overwrite and remove until killed
 *   value_tool LIBRARY get DIRECTORY KEY            one value to stdout; KEY in hexadecimal
 *
 * The other half of Tests/Python/values.py, which makes the same values: what one
 * process wrote through one binding, another reads through the other. The library
 * is opened by dlopen, as a program would that finds it at run time.
 *
 * Exit status: 0 done, 1 a difference or a failed call (said on stderr), 2 usage.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hutch.h"

#define FUNCTIONS(X) \
  X(hutch_status_name) X(hutch_last_error) X(hutch_open) X(hutch_close) \
  X(hutch_put) X(hutch_get) X(hutch_get_into) X(hutch_remove) X(hutch_count) \
  X(hutch_value_data) X(hutch_value_size) X(hutch_value_release)

/* Called as api.hutch_put(...): this program is not linked with the library. */
static struct {
#define MEMBER(name) __typeof__(name) *name;
  FUNCTIONS(MEMBER)
} api;

static void load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  /* POSIX lets dlsym's result be a function; ISO C has no cast that says so. */
#define LOOK_UP(name) \
  *(void **)&api.name = dlsym(library, #name); \
  if (!api.name) { \
    fprintf(stderr, "no %s in %s\n", #name, path); \
    exit(1); \
  }
  FUNCTIONS(LOOK_UP)
}

static void check(hutch_status status, const char *call) {
  if (status == HUTCH_OK) return;
  hutch_error error = {.struct_size = sizeof error};
  api.hutch_last_error(&error);
  fprintf(stderr, "%s: %s: %s\n", call, api.hutch_status_name(status), error.words);
  exit(1);
}

/* ------------------------------------------------------------------ values */

enum {
  PERIOD = 1000003, /* prime, so that no page or block of a value equals its neighbour */
  LARGEST = 8 << 20,
  LOOP_KEYS = 16,
  LOOP_INLINE_THRESHOLD = 4096
};

/* SplitMix64's step (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators). */
static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

static uint64_t draw(uint64_t seed, uint64_t number, uint64_t purpose) {
  return mix(mix(mix(seed) + number) + purpose);
}

static unsigned char noise[PERIOD + 8];

static void make_noise(uint64_t seed) {
  for (size_t i = 0; i * 8 < PERIOD; i++) {
    uint64_t word = mix(seed + i);
    for (size_t k = 0; k < 8; k++) noise[i * 8 + k] = (unsigned char)(word >> (8 * k));
  }
}

/* Value number n: the number itself as far as it fits, then noise from a place of its own. */
static unsigned char *make_value(uint64_t seed, uint64_t number, size_t size) {
  unsigned char *value = malloc(size ? size : 1);
  if (!value) abort();
  size_t place = (size_t)(draw(seed, number, 1) % PERIOD);
  for (size_t done = 0; done < size;) {
    size_t part = PERIOD - place < size - done ? PERIOD - place : size - done;
    memcpy(value + done, noise + place, part);
    done += part;
    place = 0;
  }
  for (size_t k = 0; k < 8 && k < size; k++) value[k] = (unsigned char)(number >> (8 * k));
  return value;
}

/* 0 bytes to 8 MiB, every power of two about as often; half of them lean to the small. */
static size_t exchange_size(uint64_t seed, uint64_t number) {
  if (number == 0) return 0;
  if (number == 1) return LARGEST;
  uint64_t random = draw(seed, number, 2);
  uint64_t bits = random % 24, other = (random >> 16) % 24;
  if ((random >> 32 & 1) && other < bits) bits = other;
  return (size_t)(draw(seed, number, 3) % (UINT64_C(1) << bits));
}

/* 8 bytes to 128 KiB, on both sides of LOOP_INLINE_THRESHOLD. */
static size_t loop_size(uint64_t seed, uint64_t number) {
  uint64_t bits = draw(seed, number, 2) % 18;
  return 8 + (size_t)(draw(seed, number, 3) % (UINT64_C(1) << bits));
}

static int loop_removes(uint64_t seed, uint64_t number) { return draw(seed, number, 4) % 8 == 0; }

/* ------------------------------------------------------------------- modes */

static hutch_cache *open_cache(const char *directory) {
  hutch_options options = {.struct_size = sizeof options};
  options.inline_threshold = LOOP_INLINE_THRESHOLD;
  options.disk = (hutch_tier_limits){HUTCH_NO_LIMIT, HUTCH_NO_LIMIT, HUTCH_NO_LIMIT,
                                     HUTCH_FOREVER, HUTCH_FOREVER, HUTCH_NO_LIMIT, {0}};
  hutch_cache *cache;
  check(api.hutch_open(directory, &options, &cache), "hutch_open");
  return cache;
}

static void write_values(hutch_cache *cache, uint64_t seed, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    char key[32];
    size_t key_size = (size_t)snprintf(key, sizeof key, "value-%" PRIu64, i);
    size_t size = exchange_size(seed, i);
    unsigned char *value = make_value(seed, i, size);
    check(api.hutch_put(cache, key, key_size, value, size, NULL, NULL), "hutch_put");
    free(value);
  }
}

static void check_values(hutch_cache *cache, uint64_t seed, uint64_t count) {
  uint64_t held = 0;
  check(api.hutch_count(cache, &held), "hutch_count");
  if (held != count) {
    fprintf(stderr, "%" PRIu64 " entries, not %" PRIu64 "\n", held, count);
    exit(1);
  }
  unsigned char *copy = malloc(LARGEST);
  if (!copy) abort();
  for (uint64_t i = 0; i < count; i++) {
    char key[32];
    size_t key_size = (size_t)snprintf(key, sizeof key, "value-%" PRIu64, i);
    size_t size = exchange_size(seed, i);
    unsigned char *expected = make_value(seed, i, size);
    hutch_value *value;
    check(api.hutch_get(cache, key, key_size, &value), key);
    if (api.hutch_value_size(value) != size ||
        memcmp(api.hutch_value_data(value), expected, size) != 0) {
      fprintf(stderr, "%s differs\n", key);
      exit(1);
    }
    api.hutch_value_release(value);
    size_t copied = 0;
    check(api.hutch_get_into(cache, key, key_size, copy, LARGEST, &copied), key);
    if (copied != size || memcmp(copy, expected, size) != 0) {
      fprintf(stderr, "%s differs when copied\n", key);
      exit(1);
    }
    free(expected);
  }
  free(copy);
}

/* Tells each operation that is done by its number, 8 bytes, little-endian, on stdout. */
static void loop(hutch_cache *cache, uint64_t seed, uint64_t first) {
  for (uint64_t number = first;; number++) {
    char key[32];
    size_t key_size = (size_t)snprintf(key, sizeof key, "key-%" PRIu64, number % LOOP_KEYS);
    if (loop_removes(seed, number)) {
      hutch_status status = api.hutch_remove(cache, key, key_size);
      if (status != HUTCH_NOT_FOUND) check(status, "hutch_remove");
    } else {
      size_t size = loop_size(seed, number);
      unsigned char *value = make_value(seed, number, size);
      check(api.hutch_put(cache, key, key_size, value, size, NULL, NULL), "hutch_put");
      free(value);
    }
    unsigned char done[8];
    for (size_t k = 0; k < 8; k++) done[k] = (unsigned char)(number >> (8 * k));
    if (write(STDOUT_FILENO, done, sizeof done) != (ssize_t)sizeof done) exit(1);
  }
}

static void get(hutch_cache *cache, const char *hexadecimal) {
  unsigned char key[HUTCH_KEY_MAX];
  size_t key_size = 0;
  unsigned int byte;
  while (key_size < sizeof key && sscanf(hexadecimal + 2 * key_size, "%2x", &byte) == 1)
    key[key_size++] = (unsigned char)byte;
  hutch_value *value;
  check(api.hutch_get(cache, key, key_size, &value), "hutch_get");
  size_t size = api.hutch_value_size(value);
  if (fwrite(api.hutch_value_data(value), 1, size, stdout) != size || fflush(stdout)) exit(1);
  api.hutch_value_release(value);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: value_tool LIBRARY write|check|loop DIRECTORY SEED COUNT|FIRST\n"
                    "       value_tool LIBRARY get DIRECTORY KEY\n");
    return 2;
  }
  load(argv[1]);
  const char *mode = argv[2];
  uint64_t seed = strtoull(argv[4], NULL, 0);
  uint64_t number = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
  make_noise(seed);
  hutch_cache *cache = open_cache(argv[3]);
  if (!strcmp(mode, "write")) {
    write_values(cache, seed, number);
  } else if (!strcmp(mode, "check")) {
    check_values(cache, seed, number);
  } else if (!strcmp(mode, "loop")) {
    loop(cache, seed, number);
  } else if (!strcmp(mode, "get")) {
    get(cache, argv[4]);
  } else {
    fprintf(stderr, "no mode %s\n", mode);
    return 2;
  }
  check(api.hutch_close(cache), "hutch_close");
  return 0;
}
