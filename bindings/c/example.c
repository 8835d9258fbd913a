/*
 * example.c - the calls that most programs need: example DIRECTORY
 *
 *   cc example.c $(pkg-config --cflags --libs hutch)
 */
#include <hutch.h>
#include <stdio.h>

/* The words of the last failure: what was tried, and why it could not be done. */
static int complain(void) {
  fprintf(stderr, "%s\n", hutch_error_words());
  return 1;
}

int main(int count, char **arguments) {
  const char *directory = count > 1 ? arguments[1] : NULL; /* NULL: in memory only */
  hutch_cache *cache;
  hutch_value *value;

  if (hutch_open(directory, NULL, &cache) != HUTCH_OK) return complain();

  /* Keys and values are bytes. When the call returns, the value survives a kill. */
  if (hutch_put(cache, HUTCH_STR("greeting"), HUTCH_STR("hello"), NULL, NULL) != HUTCH_OK)
    return complain();

  /* A value is a counted reference to bytes that never change. */
  if (hutch_get(cache, HUTCH_STR("greeting"), &value) == HUTCH_OK) {
    printf("%.*s\n", (int)hutch_value_size(value), (const char *)hutch_value_data(value));
    hutch_value_release(value);
  }

  /* A program sets only the fields that differ from the default: here, a minute to live. */
  hutch_put_options minute = {.struct_size = sizeof minute, .time_to_live = HUTCH_MINUTE};
  if (hutch_put(cache, HUTCH_STR("token"), HUTCH_STR("s3cret"), &minute, NULL) != HUTCH_OK)
    return complain();

  /* A counter starts at 0. In a directory it counts the runs of this program. */
  int64_t runs;
  if (hutch_increment(cache, HUTCH_STR("runs"), 1, 0, NULL, &runs) != HUTCH_OK)
    return complain();
  printf("run %lld\n", (long long)runs);

  return hutch_close(cache) == HUTCH_OK ? 0 : 1;
}
