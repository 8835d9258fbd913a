/*
 * hits - gets that hit, for hits.py: run under callgrind, which counts what is called within
 * hutch_get, hutch_get_into, hutch_look and hutch_contains.
 */
#include "hutch.h"

#include <stdint.h>
#include <stdlib.h>

enum { ENTRIES = 2000, ROUNDS = 3 };

int main(int argc, char **argv) {
  hutch_options options = {.struct_size = sizeof options};
  if (argc > 1) options.policy = (uint32_t)atoi(argv[1]);
  hutch_cache *cache;
  if (hutch_open(NULL, &options, &cache) != HUTCH_OK) return 2;
  char value[100] = {0};
  for (uint32_t i = 0; i < ENTRIES; i++)
    if (hutch_put(cache, &i, sizeof i, value, sizeof value, NULL, NULL) != HUTCH_OK) return 2;
  for (int round = 0; round < ROUNDS; round++)
    for (uint32_t i = 0; i < ENTRIES; i++) {
      size_t size;
      hutch_value *pinned;
      if (hutch_get_into(cache, &i, sizeof i, value, sizeof value, &size) != HUTCH_OK) return 3;
      if (hutch_get(cache, &i, sizeof i, &pinned) != HUTCH_OK) return 3;
      hutch_value_release(pinned);
      hutch_found found = {.struct_size = sizeof found};
      if (hutch_look(cache, &i, sizeof i, 0, value, sizeof value, &found) != HUTCH_OK) return 3;
      if (found.value || hutch_contains(cache, &i, sizeof i) != HUTCH_OK) return 3;
    }
  return hutch_close(cache) == HUTCH_OK ? 0 : 4;
}
