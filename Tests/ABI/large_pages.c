/*
 * large_pages - a kernel whose pages of memory have 16 or 64 KiB, as on aarch64 they may.
 *
 * The calls that know of pages are defined here, in the program, which the dynamic linker asks
 * first. They do what those of such a kernel do: an address or an offset within a page is refused,
 * and a size counts up to the end of its last page. So what is given back to the system may be more
 * than was meant.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ------------------------------------------------------------- the kernel */

enum { REAL = 4096 };
static size_t page = REAL;

static size_t whole(size_t size) { return (size + page - 1) & ~(page - 1); }
static bool is_within_page(uintptr_t place) { return place & (page - 1); }

static long refused(void) {
  errno = EINVAL;
  return -1;
}

long sysconf(int name) {
  static _Atomic(void *) next;
  if (name == _SC_PAGESIZE) return (long)page;
  if (!next) next = dlsym(RTLD_NEXT, "sysconf");
  void *there = next;
  long (*call)(int);
  memcpy(&call, &there, sizeof call);
  return call(name);
}

int getpagesize(void) { return (int)page; }

static void *mapped(void *at, size_t size, int access, int flags, int file, off_t offset) {
  return (void *)syscall(SYS_mmap, at, size, access, flags, file, offset);
}

void *mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
  if (is_within_page((uintptr_t)offset)) return (void *)refused();
  if (flags & MAP_FIXED) {
    if (is_within_page((uintptr_t)at)) return (void *)refused();
    return mapped(at, whole(size), access, flags, file, offset);
  }
  /* Addresses that begin with a page, of more that do not. */
  size_t all = whole(size) + page;
  char *addresses =
      mapped(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) return MAP_FAILED;
  char *start = addresses + (-(uintptr_t)addresses & (page - 1)), *end = start + whole(size);
  if (start > addresses) syscall(SYS_munmap, addresses, start - addresses);
  if (end < addresses + all) syscall(SYS_munmap, end, addresses + all - end);
  void *result = mapped(start, whole(size), access, flags | MAP_FIXED, file, offset);
  int error = errno;
  if (result == MAP_FAILED) syscall(SYS_munmap, start, whole(size));
  errno = error;
  return result;
}

int munmap(void *start, size_t size) {
  if (is_within_page((uintptr_t)start)) return (int)refused();
  return (int)syscall(SYS_munmap, start, whole(size));
}

int madvise(void *start, size_t size, int advice) {
  if (is_within_page((uintptr_t)start)) return (int)refused();
  return (int)syscall(SYS_madvise, start, whole(size), advice);
}

int msync(void *start, size_t size, int flags) {
  if (is_within_page((uintptr_t)start)) return (int)refused();
  return (int)syscall(SYS_msync, start, whole(size), flags);
}

int mincore(void *start, size_t size, unsigned char *answers) {
  if (is_within_page((uintptr_t)start)) return (int)refused();
  for (size_t at = 0; at < size; at += page) {
    unsigned char there[(64 << 10) / REAL];
    if (syscall(SYS_mincore, (char *)start + at, page, there) != 0) return -1;
    answers[at / page] = there[0];
  }
  return 0;
}

/* In a process for each size, since the first cache of a process looks. */
static void with_large_pages(void (*body)(void)) {
  for (size_t size = 16 << 10; size <= 64 << 10; size *= 4) {
    pid_t child = fork_now();
    if (child == 0) {
      page = size;
      body();
      end_child();
    }
    await_child(child);
  }
}

/* ------------------------------------------------------------------ values */

/* Of a key: its size, and its bytes. */
static size_t size_of(uint64_t key, size_t most) {
  uint64_t state = key;
  size_t size = (size_t)1 << next_random(&state) % 17;
  return (size + next_random(&state) % size) % most;
}

static void put_key(hutch_cache *cache, uint64_t key, size_t most) {
  size_t size = size_of(key, most);
  void *value = filled(size, key);
  CHECK_OK(hutch_put(cache, &key, sizeof key, value, size, NULL, NULL));
  free(value);
}

/* Whether the key is there; its value is whole. */
static bool has_key(hutch_cache *cache, uint64_t key, size_t most) {
  hutch_value *found = NULL;
  hutch_status status = hutch_get(cache, &key, sizeof key, &found);
  if (status == HUTCH_NOT_FOUND) return false;
  CHECK_OK(status);
  size_t size = size_of(key, most);
  void *value = filled(size, key);
  CHECK_BYTES(value, size, hutch_value_data(found), hutch_value_size(found));
  free(value);
  hutch_value_release(found);
  return true;
}

/* ------------------------------------------------------------------- cases */

enum { LIMIT = 12 << 20, KEYS = 1500 };

static void churn_in_memory(void) {
  hutch_options options = unlimited_options();
  options.memory.cost = LIMIT;
  hutch_cache *cache = open_cache(NULL, &options);
  uint64_t state = seed();
  int found = 0;
  for (int i = 0; i < 12000; i++) {
    uint64_t key = next_random(&state) % KEYS;
    /* The sizes change now and then, so that holes are given back. */
    size_t most = i / 2000 % 2 ? 100 : 100000;
    if (i % 2000 == 0) CHECK_OK(hutch_clear(cache));
    if (i % 2) put_key(cache, key, most);
    else found += has_key(cache, key, most);
  }
  CHECK(found > 1000);
  CHECK_OK(hutch_close(cache));
}

TEST(a_tier_in_memory_keeps_values_whole) { with_large_pages(churn_in_memory); }

static uint32_t storage;

static hutch_options options_of_directory(uint64_t limit) {
  hutch_options options = unlimited_options();
  options.storage = storage;
  options.disk.cost = limit;
  options.inline_threshold = 0;
  return options;
}

/* Another process reads and writes meanwhile, and the directory is opened again. */
static void keep_a_directory(void) {
  path directory = scratch(page == 64 << 10 ? "64 KiB" : "16 KiB");
  hutch_options options = options_of_directory(HUTCH_NO_LIMIT);
  options.durability = HUTCH_DURABILITY_POWER;
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint64_t key = 0; key < KEYS; key++) put_key(cache, key, 20000);
  pid_t child = fork_now();
  if (child == 0) {
    for (uint64_t key = 0; key < KEYS; key++) CHECK(has_key(cache, key, 20000));
    for (uint64_t key = KEYS; key < 2 * KEYS; key++) put_key(cache, key, 20000);
    CHECK_OK(hutch_flush(cache));
    CHECK_OK(hutch_close(cache));
    end_child();
  }
  await_child(child);
  for (uint64_t key = 0; key < 2 * KEYS; key++) CHECK(has_key(cache, key, 20000));
  CHECK_OK(hutch_flush(cache));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(directory.text, &options);
  CHECK_EQUAL(2 * KEYS, count_of(tier_of(cache, HUTCH_TIER_DISK)));
  for (uint64_t key = 0; key < 2 * KEYS; key++) CHECK(has_key(cache, key, 20000));
  CHECK_EQUAL(2 * KEYS, CHECK_SOUND(cache));
  CHECK_OK(hutch_close(cache));
}

TEST(a_log_is_kept) {
  storage = HUTCH_STORAGE_LOG;
  with_large_pages(keep_a_directory);
}

TEST(a_database_is_kept) {
  storage = HUTCH_STORAGE_MIXED;
  with_large_pages(keep_a_directory);
}

/* A segment has a page at least, so that none is mapped with a part of another one. */
static void evict_from_a_small_log(void) {
  path directory = scratch(page == 64 << 10 ? "64 KiB" : "16 KiB");
  hutch_options options = options_of_directory(2 << 20);
  options.memory.cost = 1 << 20;
  hutch_cache *cache = open_cache(directory.text, &options);
  for (uint64_t key = 0; key < 4 * KEYS; key++) put_key(cache, key, 10000);
  uint64_t count = CHECK_SOUND(cache), found = 0;
  CHECK(count > 200);
  CHECK(cost_of(tier_of(cache, HUTCH_TIER_DISK)) <= 2 << 20);
  for (uint64_t key = 0; key < 4 * KEYS; key++) found += has_key(cache, key, 10000);
  CHECK(found >= count);
  CHECK_OK(hutch_close(cache));
  struct stat log;
  CHECK(stat(in_directory(directory.text, "hutch-log").text, &log) == 0);
  CHECK(log.st_size % (off_t)page == 0);
}

TEST(a_small_log_evicts) {
  storage = HUTCH_STORAGE_LOG;
  with_large_pages(evict_from_a_small_log);
}
