/* The group 'library' of hutch.h: versions, names, and the last error. */
#include "check.h"

#include <errno.h>

TEST(the_version_is_the_headers) {
  char composed[32];
  snprintf(composed, sizeof composed, "%d.%d.%d", HUTCH_VERSION_MAJOR, HUTCH_VERSION_MINOR,
           HUTCH_VERSION_PATCH);
  CHECK(strcmp(composed, HUTCH_VERSION_STRING) == 0);
  CHECK(strcmp(hutch_version(), HUTCH_VERSION_STRING) == 0);
  CHECK_EQUAL(HUTCH_ABI_VERSION, hutch_abi_version());
}

TEST(every_status_has_its_name) {
#define NAMED(status) CHECK(strcmp(hutch_status_name(status), #status) == 0)
  NAMED(HUTCH_OK);
  NAMED(HUTCH_NOT_FOUND);
  NAMED(HUTCH_EXISTS);
  NAMED(HUTCH_CONFLICT);
  NAMED(HUTCH_PARTIAL);
  NAMED(HUTCH_SUPERSEDED);
  NAMED(HUTCH_OPTIONS_DIFFER);
  NAMED(HUTCH_WOULD_BLOCK);
  NAMED(HUTCH_BUFFER_TOO_SMALL);
  NAMED(HUTCH_CANCELLED);
  NAMED(HUTCH_INVALID_ARGUMENT);
  NAMED(HUTCH_NO_MEMORY);
  NAMED(HUTCH_CLOSED);
  NAMED(HUTCH_FORKED);
  NAMED(HUTCH_BUSY);
  NAMED(HUTCH_IO);
  NAMED(HUTCH_NO_SPACE);
  NAMED(HUTCH_TOO_LARGE);
  NAMED(HUTCH_CORRUPT);
  NAMED(HUTCH_NEWER_FORMAT);
  NAMED(HUTCH_UNSUPPORTED);
  NAMED(HUTCH_WRONG_TYPE);
  NAMED(HUTCH_OVERFLOW);
  NAMED(HUTCH_DEADLOCK);
  NAMED(HUTCH_BAD_DIRECTORY);
  NAMED(HUTCH_TIER_DOWN);
  NAMED(HUTCH_TIMED_OUT);
  NAMED(HUTCH_LOAD_FAILED);
  const hutch_status unknown[] = {10, 1000, INT32_MAX, -19, -1000, INT32_MIN};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    CHECK(strcmp(hutch_status_name(unknown[i]), "HUTCH_UNKNOWN") == 0);
}

TEST(every_status_has_a_text_of_its_own) {
  for (hutch_status one = HUTCH_LOAD_FAILED; one <= HUTCH_CANCELLED; one++) {
    CHECK(strlen(hutch_status_text(one)) > 3);
    for (hutch_status other = HUTCH_LOAD_FAILED; other < one; other++)
      CHECK(strcmp(hutch_status_text(one), hutch_status_text(other)) != 0);
  }
  CHECK(strcmp(hutch_status_text(INT32_MIN), hutch_status_text(77)) == 0);
  /* It may be this process, and a directory has options also while no one has it open. */
  CHECK(!strstr(hutch_status_text(HUTCH_BUSY), "process"));
  CHECK(!strstr(hutch_status_text(HUTCH_OPTIONS_DIFFER), "is open"));
}

TEST(the_header_has_a_version_to_ask_for) {
#if !HUTCH_CHECK_VERSION(0, 1, 0) || HUTCH_CHECK_VERSION(0, 1, 1) || HUTCH_CHECK_VERSION(1, 0, 0)
  FAIL("this is not version 0.1.0");
#endif
}

TEST(a_literal_is_a_pointer_and_a_size) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(hutch_put(cache, HUTCH_STR("key\0more"), HUTCH_STR(""), NULL, NULL));
  CHECK_OK(hutch_contains(cache, "key\0more", 8));
  CHECK_OK(hutch_close(cache));
}

TEST(a_thread_begins_without_a_failure) {
  CHECK(hutch_error_words()[0] == '\0');
  hutch_error error = last_error();
  CHECK_EQUAL(HUTCH_OK, error.status);
  CHECK_EQUAL(0, error.system_error);
  CHECK_EQUAL(0, error.sqlite_error);
  CHECK(error.words[0] == '\0');
  CHECK_EQUAL(sizeof error, error.struct_size);
}

/* A failure of a kind that little else in these tests has. */
static void overflow(hutch_cache *cache) {
  CHECK_OK(hutch_increment(cache, KEY("full"), 0, INT64_MAX, NULL, NULL));
  CHECK_STATUS(HUTCH_OVERFLOW, hutch_increment(cache, KEY("full"), 1, 0, NULL, NULL));
}

TEST(the_last_failure_is_kept_and_answers_leave_it) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_contains(cache, NULL, 0));
  CHECK_EQUAL(HUTCH_INVALID_ARGUMENT, last_error().status);
  overflow(cache);
  hutch_error error = last_error();
  CHECK_EQUAL(HUTCH_OVERFLOW, error.status);
  CHECK(error.words[0] != '\0' && memchr(error.words, '\0', sizeof error.words));

  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_MISSING(cache, "nothing");
  CHECK_STATUS(HUTCH_EXISTS, hutch_add(cache, KEY("key"), KEY("other"), NULL, NULL));
  CHECK_EQUAL(HUTCH_OVERFLOW, last_error().status);
  CHECK_OK(hutch_close(cache));
}

TEST(a_failure_of_the_system_tells_its_errno) {
  path file = scratch("file");
  write_file(file.text, "x", 1);
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("file/below").text, NULL, &cache));
  CHECK(last_error().system_error > 0);
}

static void fails_once(void *context, int index) {
  (void)index;
  CHECK_EQUAL(HUTCH_OK, last_error().status);
  overflow(context);
  CHECK_EQUAL(HUTCH_OVERFLOW, last_error().status);
}

TEST(each_thread_has_its_own_last_failure) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_contains(cache, NULL, 0));
  run_threads(1, fails_once, cache);
  CHECK_EQUAL(HUTCH_INVALID_ARGUMENT, last_error().status);
  CHECK_OK(hutch_close(cache));
}

static int32_t fails_within(void *context, const void *key, size_t key_size,
                            const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_contains(context, NULL, 0));
  return 0;
}

TEST(a_failure_within_a_callback_leaves_the_last_one) {
  hutch_cache *cache = open_cache(NULL, NULL);
  overflow(cache);
  CHECK_OK(hutch_each(cache, fails_within, cache));
  CHECK_EQUAL(HUTCH_OVERFLOW, last_error().status);
  CHECK_OK(hutch_close(cache));
}

/* One callback within another, each with failures of its own. */
typedef struct nested {
  hutch_cache *cache;
  int depth;
} nested;

static int32_t fails_in_depth(void *context, const void *key, size_t key_size,
                              const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  nested *n = context;
  hutch_cache *none = NULL;
  hutch_status before = last_error().status;
  n->depth++;
  CHECK_EQUAL(n->depth == 1 ? HUTCH_OVERFLOW : HUTCH_BAD_DIRECTORY, before);
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("file").text, NULL, &none));
  hutch_error error = last_error();
  CHECK_EQUAL(HUTCH_BAD_DIRECTORY, error.status);
  CHECK_EQUAL(ENOTDIR, error.system_error);
  CHECK(strstr(error.words, "Not a directory"));
  if (n->depth == 1) {
    CHECK_OK(hutch_each(n->cache, fails_in_depth, n));
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_contains(n->cache, NULL, 0));
    CHECK_OK(hutch_each(n->cache, fails_within, n->cache));
    CHECK_EQUAL(HUTCH_INVALID_ARGUMENT, last_error().status);
    CHECK_EQUAL(0, last_error().system_error);
  } else {
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_remove(n->cache, NULL, 0));
  }
  n->depth--;
  return 0;
}

TEST(a_callback_has_the_words_of_its_own_failures) {
  nested n = {.cache = open_cache(NULL, NULL)};
  write_file(scratch("file").text, "x", 1);
  overflow(n.cache);
  hutch_error before = last_error();
  CHECK_OK(hutch_each(n.cache, fails_in_depth, &n));
  hutch_error after = last_error();
  CHECK(memcmp(&before, &after, sizeof before) == 0);
  CHECK_OK(hutch_close(n.cache));
}

TEST(bad_calls_of_hutch_last_error_are_not_recorded) {
  hutch_cache *cache = open_cache(NULL, NULL);
  overflow(cache);
  hutch_error unset = {.struct_size = 0};
  CHECK(hutch_last_error(NULL) == HUTCH_INVALID_ARGUMENT);
  CHECK(hutch_last_error(&unset) == HUTCH_INVALID_ARGUMENT);
  CHECK_EQUAL(HUTCH_OVERFLOW, last_error().status);
  CHECK_OK(hutch_close(cache));
}
