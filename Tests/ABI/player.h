/* player.h - a thread that calls a cache at random, for histories.c */
#ifndef PLAYER_H
#define PLAYER_H

#include "judge.h"

/* Few, so that the threads meet. A key is one byte. */
enum { KEYS = 10, INLINE_SIZE = 200 };

/* What a round is played with. */
typedef struct round {
  bool disk, limited, ages, listened, views;
  uint32_t policy, storage, write_policy, sharing;
} round;

typedef struct table {
  const round *r;
  history *h;
  hutch_cache *cache, *memory, *disk;
  test_clock clock;
  uint64_t seed;
  _Atomic int under_way; /* tasks */
  _Atomic bool listener_has_gone;
} table;

/* A thread's place at the table. */
typedef struct player {
  table *t;
  uint64_t random;
  uint64_t newest[KEYS]; /* versions that it has met, to swap over */
} player;

/* Makes so many calls. */
void play(player *p, int calls);

/* One get, by whichever view. */
void get_key(player *p, uint8_t key);

/* A listener; its context is the table. */
void note_event(void *context, const hutch_event *event);

#endif
