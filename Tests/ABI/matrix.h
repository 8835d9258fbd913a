/*
 * matrix.h - every public function, to be called from within a callback
 *
 * A place is where the calls are made from: what they are to use, and what they are to answer
 * there. matrix.c has the callbacks, matrix_calls.c the functions.
 */
#ifndef MATRIX_H
#define MATRIX_H

#include "check.h"

typedef struct place {
  const char *callback;  /* its name, for reports */
  hutch_cache *cache;    /* to be called: a cache or a view of it */
  uint32_t tier;         /* of the view; 0: the whole */
  const char *directory; /* NULL: it is in memory */
  bool is_own;           /* the callback is the cache's: what waits for it answers DEADLOCK */
  bool is_closed;        /* the cache is: its calls answer CLOSED */
  bool is_down;          /* its disk tier is, or may be: what that answers is not compared */
  hutch_queue *queue;    /* a queue; of the cache, or of the host's */
  bool is_own_queue;     /* the callback is made for a task of it */
  hutch_buffer *buffer;  /* a codec's; or NULL */
} place;

/* Calls every function, one after the other. A call that has not come back after a minute
   ends the process, and names callback and function. */
void call_everything(const place *where);

/* For the end of a case, when every cache and queue is closed: each context that a call has
   handed over has been released. */
void check_everything_released(void);

/* A path that no file and no directory has had. */
path new_path(void);

#endif
