/* A program that knows of Hutch what is installed. */
#include <hutch.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  hutch_cache *cache;
  hutch_value *value;
  if (strcmp(hutch_version(), HUTCH_VERSION_STRING) != 0) return 1;
  if (hutch_open("cache", NULL, &cache) != HUTCH_OK) return 2;
  if (hutch_put(cache, "key", 3, "value", 5, NULL, NULL) != HUTCH_OK) return 3;
  if (hutch_get(cache, "key", 3, &value) != HUTCH_OK) return 4;
  printf("%.*s\n", (int)hutch_value_size(value), (const char *)hutch_value_data(value));
  hutch_value_release(value);
  return hutch_close(cache);
}
