/*
 * judge.h - whether a history of calls is one that a cache may have
 *
 * Several threads call a cache, and each call leaves facts: what it has written, found, not
 * found or removed, between which moments. Afterwards the judge looks at all of them together.
 * Moments are numbers from one counter, drawn before a call and after it; of two calls one was
 * first if it ended before the other began, else their order is not known.
 *
 * What is judged is the promise of hutch.h: a get answers with the newest completed version of
 * its key, or with nothing only if exactly that version was removed, has expired, was evicted or
 * refused; of the last two the cache's events tell. A version that was stored and has been seen
 * is never followed by an older one, and one that was not there any more does not come back, unless the
 * disk tier has evicted it. What a put says of each tier is what its event says.
 */
#ifndef JUDGE_H
#define JUDGE_H

#include "check.h"

enum { JUDGE_MEMORY = HUTCH_TIER_MEMORY, JUDGE_DISK = HUTCH_TIER_DISK, JUDGE_BOTH = 3 };

typedef enum fact_kind {
  FACT_NONE,
  FACT_WROTE,   /* a version, in these tiers; none: refused, and what was there is gone */
  FACT_MADE,    /* a value that a load gave to its callers; not stored */
  FACT_FOUND,   /* a version, by its number or its value */
  FACT_MISSED,  /* nothing, in these tiers */
  FACT_REMOVED, /* what these tiers had, or may have had; key ALL_KEYS: of every key */
  FACT_TOUCHED,
} fact_kind;

enum { ALL_KEYS = 255 };

typedef struct fact {
  _Atomic uint64_t end; /* 0: the call has not ended */
  uint64_t begin;
  fact_kind kind;
  uint32_t tiers;
  uint32_t owed;  /* wrote: a tier that is to have it when the other lets it go */
  bool may_be_refused; /* wrote: by the tier that is owed it */
  bool guesses;        /* wrote: the call was not told which tiers */
  bool through_view; /* removed: not of the whole */
  bool took;         /* found: and no other call can have, as by a pop or a swap */
  uint8_t key;
  const char *call;
  uint64_t version; /* 0: not known */
  size_t size;      /* wrote: of the value */
  uint64_t value;   /* a number that only one write has; 0: not known */
  uint64_t swapped;  /* wrote: over this version and no other; 0: over any */
  int64_t lifetime;  /* of what was written; 0: no end; -1: not known */
  int64_t clock_begin, clock_end;
  hutch_status status;
} fact;

/* What a listener was told of an entry. */
typedef struct told_event {
  uint32_t kind, cause, tiers;
  uint8_t key;
  uint64_t version, value, moment;
} told_event;

typedef struct history {
  _Atomic uint64_t moment;
  fact *facts;
  _Atomic size_t fact_count;
  size_t fact_room;
  told_event *events;
  _Atomic size_t event_count;
  size_t event_room;
  bool shares; /* HUTCH_SHARING_SHARED */
} history;

history *new_history(size_t facts, size_t events);
void free_history(history *h);

uint64_t next_moment(history *h);

/* Room for a fact of a call that begins now; and for one more of the same call. */
fact *begin_fact(history *h, const char *call, uint8_t key);
fact *more_of(history *h, const fact *f);

/* Judges the keys 0..<keys. NULL: nothing to say against it; else what, to be freed. */
char *judge(history *h, int keys);

#endif
