/*
 * example.c - the calls that most programs need: example DIRECTORY
 *
 *   cc example.c $(pkg-config --cflags --libs hutch)
 */
#include <hutch.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
  const char *directory = count > 1 ? arguments[1] : NULL; /* NULL: in memory only */
  hutch_cache *cache;
  hutch_value *value;

  if (hutch_open(directory, NULL, &cache) < 0) {
    hutch_error error = {.struct_size = sizeof error};
    hutch_last_error(&error);
    fprintf(stderr, "%s: %s\n", hutch_status_name(error.status), error.words);
    return 1;
  }

  /* Keys and values are bytes. When the call returns, the value survives a kill. */
  hutch_put(cache, "greeting", 8, "hello", 5, NULL, NULL);

  /* A value is a counted reference to bytes that never change. */
  if (hutch_get(cache, "greeting", 8, &value) == HUTCH_OK) {
    printf("%.*s\n", (int)hutch_value_size(value), (const char *)hutch_value_data(value));
    hutch_value_release(value);
  }

  /* Of every struct only what differs from the default is set: here, a minute to live. */
  hutch_put_options minute = {.struct_size = sizeof minute, .time_to_live = HUTCH_MINUTE};
  hutch_put(cache, "token", 5, "s3cret", 6, &minute, NULL);

  /* A counter: made from 0 if it is missing. In a directory it counts the runs. */
  int64_t runs;
  hutch_increment(cache, "runs", 4, 1, 0, NULL, &runs);
  printf("run %lld\n", (long long)runs);

  return hutch_close(cache) == HUTCH_OK ? 0 : 1;
}
