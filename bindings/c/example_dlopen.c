/*
 * example_dlopen.c - a program that uses Hutch if it is installed, and works without it
 *
 *   cc example_dlopen.c $(pkg-config --cflags hutch)     (hutch_dl.h is beside this file)
 *   example_dlopen DIRECTORY [LIBRARY]
 */
#include <stdio.h>

#include "hutch_dl.h"

int main(int count, char **arguments) {
  hutch_dl hutch;
  hutch_cache *cache;
  int64_t runs = 0;

  const char *why = hutch_dl_open(&hutch, count > 2 ? arguments[2] : NULL);
  if (why) {
    printf("no cache: %s\n", why);
    return 0;
  }
  printf("Hutch %s\n", hutch.version());
  if (hutch.open(count > 1 ? arguments[1] : NULL, NULL, &cache) < 0) return 1;
  hutch.increment(cache, "runs", 4, 1, 0, NULL, &runs);
  printf("run %lld\n", (long long)runs);
  return hutch.close(cache) == HUTCH_OK ? 0 : 1;
}
