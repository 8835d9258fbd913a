/*
 * What another thread does between two steps of a call, at a step of this program's choosing.
 *
 * calloc is defined here, in the program, which the dynamic linker asks first: so a call of the
 * library stands still where it asks for memory, until another thread has done what it wants.
 */
#include "check.h"

void *__libc_calloc(size_t count, size_t size);

/* Until this many more of this thread's; 0: never. */
static _Thread_local int left;
static void (*other_does)(hutch_cache *cache);
static hutch_cache *others_cache;

static void do_it(void *unused, int index) {
  (void)unused, (void)index;
  other_does(others_cache);
}

void *calloc(size_t count, size_t size) {
  if (left > 0 && --left == 0) run_threads(1, do_it, NULL);
  return __libc_calloc(count, size);
}

/* --------------------------------------------------------------------- trims */

static void clear(hutch_cache *cache) { CHECK_OK(hutch_clear(cache)); }
static void remove_half(hutch_cache *cache) {
  for (uint32_t key = 0; key < 100; key += 2) CHECK_OK(hutch_remove(cache, &key, sizeof key));
}

/* A trim once asked twice for what is held: what it was to remove was less than nothing. */
TEST(others_remove_while_a_trim_begins) {
  static void (*const others[])(hutch_cache *cache) = {clear, remove_half};
  hutch_options options = unlimited_options();
  hutch_cache *cache = open_cache(NULL, &options);
  others_cache = cache;
  for (uint32_t kind = HUTCH_TRIM_TO_COST; kind <= HUTCH_TRIM_LEAST_FREQUENT; kind++) {
    for (int other = 0; other < 2; other++) {
      other_does = others[other];
      bool was_reached = true;
      for (int step = 1; was_reached; step++) {
        for (uint32_t key = 0; key < 100; key++) {
          hutch_put_options put = put_options();
          put.cost = 10 + key;
          CHECK_OK(hutch_put(cache, &key, sizeof key, "v", 1, &put, NULL));
        }
        hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = kind,
                                .amount = cost_of(cache) * 9 / 10};
        if (kind == HUTCH_TRIM_TO_COUNT) spec.amount = 90;
        left = step;
        CHECK_OK(hutch_trim(cache, &spec, NULL));
        was_reached = left == 0;
        left = 0;
        /* The trims by rank ask for memory, once or oftener. */
        CHECK(was_reached || step > 1 || kind < HUTCH_TRIM_LARGEST_FIRST);
        CHECK((kind == HUTCH_TRIM_TO_COUNT ? count_of(cache) : cost_of(cache)) <= spec.amount);
      }
    }
  }
  CHECK_OK(hutch_close(cache));
}
