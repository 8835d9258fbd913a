/* The group 'many' of hutch.h, on every kind of handle. */
#include "check.h"

enum { MOST = 300 };

/* Keys "k0".. with values "v0"..; the pointers are into the struct. */
typedef struct many {
  char key_text[MOST][16], value_text[MOST][16];
  const void *keys[MOST], *values[MOST];
  size_t key_sizes[MOST], value_sizes[MOST];
} many;

static many *make_many(const char *value) {
  many *m = malloc(sizeof *m);
  for (int i = 0; i < MOST; i++) {
    m->key_sizes[i] = (size_t)sprintf(m->key_text[i], "k%d", i);
    m->value_sizes[i] = (size_t)sprintf(m->value_text[i], "%s%d", value, i);
    m->keys[i] = m->key_text[i];
    m->values[i] = m->value_text[i];
  }
  return m;
}

static hutch_status put_all(hutch_cache *cache, many *m, size_t count, hutch_batch **batch) {
  return hutch_put_many(cache, m->keys, m->key_sizes, m->values, m->value_sizes, count, NULL,
                        batch);
}

TEST_EACH_KIND(many_values_are_put_got_and_removed) {
  many *m = make_many("v");
  hutch_batch *batch;
  CHECK_OK(put_all(f->cache, m, MOST, &batch));
  CHECK_EQUAL(MOST, hutch_batch_count(batch));
  uint64_t last = 0;
  for (size_t i = 0; i < MOST; i++) {
    hutch_put_result result = new_result();
    CHECK_OK(hutch_batch_status(batch, i));
    CHECK_OK(hutch_batch_put_result(batch, i, &result));
    CHECK(result.version > last);
    last = result.version;
    CHECK(!hutch_batch_value(batch, i));
  }
  hutch_batch_release(batch);
  CHECK_EQUAL(MOST, count_of(f->cache));

  CHECK_OK(hutch_get_many(f->cache, m->keys, m->key_sizes, MOST, &batch));
  CHECK_OK(hutch_clear(f->cache));
  for (size_t i = 0; i < MOST; i++) {
    CHECK_OK(hutch_batch_status(batch, i));
    hutch_value *value = hutch_batch_value(batch, i);
    CHECK_BYTES(m->values[i], m->value_sizes[i], hutch_value_data(value),
                hutch_value_size(value));
  }
  hutch_value *kept = hutch_value_retain(hutch_batch_value(batch, 7));
  CHECK(hutch_batch_retain(batch) == batch);
  hutch_batch_release(batch);
  CHECK_OK(hutch_batch_status(batch, 0));
  hutch_batch_release(batch);
  CHECK_BYTES("v7", 2, hutch_value_data(kept), hutch_value_size(kept));
  hutch_value_release(kept);

  CHECK_OK(put_all(f->cache, m, MOST, &batch));
  hutch_batch_release(batch);
  CHECK_OK(hutch_remove(f->cache, KEY("k5")));
  CHECK_OK(hutch_remove_many(f->cache, m->keys, m->key_sizes, MOST - 1, &batch));
  for (size_t i = 0; i < MOST - 1; i++) {
    CHECK_STATUS(i == 5 ? HUTCH_NOT_FOUND : HUTCH_OK, hutch_batch_status(batch, i));
  }
  hutch_batch_release(batch);
  CHECK_EQUAL(1, count_of(f->cache));
  CHECK_TEXT(f->cache, "k299", "v299");
  free(m);
}

TEST_EACH_KIND(a_key_that_repeats_is_treated_in_its_turn) {
  const void *keys[] = {"a", "b", "a"}, *values[] = {"1", "2", "3"};
  const size_t sizes[] = {1, 1, 1};
  hutch_batch *batch;
  CHECK_OK(hutch_put_many(f->cache, keys, sizes, values, sizes, 3, NULL, &batch));
  hutch_batch_release(batch);
  CHECK_TEXT(f->cache, "a", "3");
  CHECK_EQUAL(2, count_of(f->cache));
  CHECK_OK(hutch_remove_many(f->cache, keys, sizes, 3, &batch));
  CHECK_OK(hutch_batch_status(batch, 0));
  CHECK_OK(hutch_batch_status(batch, 1));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_status(batch, 2));
  hutch_batch_release(batch);
  CHECK_EQUAL(0, count_of(f->cache));
}

TEST_EACH_KIND(one_that_fails_leaves_its_neighbours_alone) {
  hutch_cache_limits limits = limits_of(f->whole);
  limits.memory.max_entry = limits.disk.max_entry = 20000;
  CHECK_OK(hutch_set_limits(f->whole, &limits));
  char *large = filled(30000, 1);
  const void *keys[] = {"a", "b", "c"}, *values[] = {"1", large, NULL};
  const size_t key_sizes[] = {1, 1, 1}, sizes[] = {1, 30000, 0};
  hutch_batch *batch;
  CHECK_OK(hutch_put_many(f->cache, keys, key_sizes, values, sizes, 3, NULL, &batch));
  CHECK_OK(hutch_batch_status(batch, 0));
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_batch_status(batch, 1));
  CHECK_OK(hutch_batch_status(batch, 2));
  hutch_put_result result = new_result();
  CHECK_OK(hutch_batch_put_result(batch, 1, &result));
  CHECK_EQUAL(k == DISK_VIEW || k == MEMORY_VIEW ? HUTCH_OUTCOME_REMOVED : HUTCH_OUTCOME_TOO_LARGE,
              k == DISK_VIEW ? result.memory : k == MEMORY_VIEW ? result.disk : result.memory);
  CHECK_STATUS(HUTCH_TOO_LARGE, last_error().status);
  hutch_batch_release(batch);
  CHECK_TEXT(f->cache, "a", "1");
  CHECK_MISSING(f->cache, "b");
  CHECK_TEXT(f->cache, "c", "");
  free(large);
}

TEST_EACH_KIND(infos_of_many_are_as_one_by_one) {
  many *m = make_many("value");
  hutch_batch *batch;
  hutch_put_options options = put_options();
  options.time_to_live = HUTCH_HOUR;
  options.extended = "more";
  options.extended_size = 4;
  CHECK_OK(hutch_put_many(f->cache, m->keys, m->key_sizes, m->values, m->value_sizes, 9, &options,
                          &batch));
  hutch_batch_release(batch);
  CHECK_OK(hutch_info_many(f->cache, m->keys, m->key_sizes, 10, &batch));
  for (size_t i = 0; i < 9; i++) {
    hutch_entry_info info = {.struct_size = sizeof info};
    CHECK_OK(hutch_batch_info(batch, i, &info));
    hutch_entry_info one = info_of(f->cache, m->key_text[i]);
    CHECK_BYTES(&one, sizeof one, &info, sizeof info);
    CHECK_EQUAL(4, info.extended_size);
    CHECK_EQUAL(info.created + HUTCH_HOUR, info.expires);
  }
  hutch_entry_info info = {.struct_size = sizeof info};
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_status(batch, 9));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_info(batch, 9, &info));
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_put_result(batch, 0, &result));
  hutch_batch_release(batch);
  free(m);
}

TEST(a_batch_outlives_its_cache) {
  const void *keys[] = {"a"}, *values[] = {"1"};
  const size_t sizes[] = {1};
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = open_cache(i == 0 ? NULL : scratch("cache").text, NULL);
    hutch_batch *batch, *none = (hutch_batch *)keys;
    CHECK_OK(hutch_put_many(cache, keys, sizes, values, sizes, 1, NULL, &batch));
    hutch_batch_release(batch);
    CHECK_OK(hutch_get_many(cache, keys, sizes, 1, &batch));
    hutch_cache_retain(cache);
    CHECK_OK(hutch_close(cache));
    CHECK_STATUS(HUTCH_CLOSED, hutch_get_many(cache, keys, sizes, 1, &none));
    CHECK(!none);
    hutch_cache_release(cache);
    CHECK_BYTES("1", 1, hutch_value_data(hutch_batch_value(batch, 0)), 1);
    hutch_batch_release(batch);
  }
}

TEST_EACH_KIND(bad_batches_change_nothing) {
  const void *keys[] = {"a", "b"}, *no_keys[] = {"a", NULL}, *values[] = {"1", "2"};
  const void *no_values[] = {"1", NULL};
  const size_t sizes[] = {1, 1}, empty[] = {1, 0}, huge[] = {1, SIZE_MAX};
  hutch_batch *batch;
#define INVALID(call)                              \
  do {                                             \
    batch = (hutch_batch *)keys;                   \
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, call);    \
    CHECK(!batch);                                 \
  } while (0)
  INVALID(hutch_put_many(f->cache, no_keys, sizes, values, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, empty, values, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, huge, values, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, sizes, no_values, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, sizes, values, huge, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, sizes, NULL, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, NULL, sizes, values, sizes, 2, NULL, &batch));
  INVALID(hutch_put_many(f->cache, keys, NULL, values, sizes, 2, NULL, &batch));
  INVALID(hutch_get_many(f->cache, keys, sizes, SIZE_MAX, &batch));
  INVALID(hutch_get_many(f->cache, keys, sizes, HUTCH_MANY_MAX + 1, &batch));
  INVALID(hutch_remove_many(f->cache, no_keys, sizes, 2, &batch));
  INVALID(hutch_info_many(f->cache, keys, empty, 2, &batch));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_get_many(f->cache, keys, sizes, 2, NULL));
  CHECK_EQUAL(0, count_of(f->cache));

  CHECK_OK(hutch_get_many(f->cache, NULL, NULL, 0, &batch));
  CHECK_EQUAL(0, hutch_batch_count(batch));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_batch_status(batch, 0));
  CHECK(!hutch_batch_value(batch, 0));
  hutch_batch_release(batch);
  CHECK_EQUAL(0, hutch_batch_count(NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_batch_status(NULL, 0));
  CHECK(!hutch_batch_value(NULL, 0) && !hutch_batch_retain(NULL));
  hutch_batch_release(NULL);
}

typedef struct race {
  hutch_cache *cache;
  many *m[4];
} race;

static void put_and_get(void *context, int index) {
  race *r = context;
  for (int round = 0; round < repeats(8); round++) {
    hutch_batch *batch;
    CHECK_OK(put_all(r->cache, r->m[index], MOST, &batch));
    hutch_batch_release(batch);
    CHECK_OK(hutch_get_many(r->cache, r->m[index]->keys, r->m[index]->key_sizes, MOST, &batch));
    for (size_t i = 0; i < MOST; i++) {
      CHECK_OK(hutch_batch_status(batch, i));
      CHECK(hutch_value_size(hutch_batch_value(batch, i)) >= 2);
    }
    hutch_batch_release(batch);
  }
}

TEST_EACH_KIND(batches_of_several_threads_do_not_lose_each_others_keys) {
  const char *names[] = {"a", "b", "c", "d"};
  race r = {f->cache, {NULL}};
  for (int i = 0; i < 4; i++) r.m[i] = make_many(names[i]);
  run_threads(4, put_and_get, &r);
  CHECK_EQUAL(MOST, count_of(f->cache));
  for (int i = 0; i < 4; i++) free(r.m[i]);
}
