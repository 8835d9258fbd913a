/*
 * fuzz.h - every public function, called at random with right and with wrong arguments
 *
 * fuzz.c has the threads and the callbacks; fuzz_calls.c has the calls. A wrong argument
 * is one that a careless host may pass: NULL, a size that no object has, a number that is not
 * defined, a struct of another header. No pointer is wrong.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "check.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define ROOM 4200 /* of a struct: more than the largest that the library accepts */

/* Calls at random, by several threads. When all of them play, one calls `begin`, and `end` is called
   when none does any more; NULL: neither. Then all that the calls have made is given up: every
   context is released once, and the directories are whole. Returns how many files belonged to no
   entry. */
uint64_t call_at_random(void (*begin)(void), void (*end)(void));

/* What one thread calls with: references of its own. A call that is made within a callback uses
   those of another hand, since a reference must not be released while a call uses it. */
typedef struct hand {
  struct hand *within; /* for the calls within its callbacks; NULL: none yet */
  struct hand *next;   /* in the list of those that callbacks have */
  uint64_t random;
  int depth;
  atomic_bool is_used; /* by a callback */
  hutch_cache *caches[6];
  hutch_value *values[6];
  hutch_cursor *cursors[2];
  hutch_writer *writers[3];
  hutch_loading *loadings[6];
  hutch_object *objects[6];
  hutch_batch *batches[3];
  hutch_task *tasks[6];
  hutch_queue *queues[3];
  hutch_group *groups[3];
  hutch_port *ports[3];
} hand;

/* The calling thread's. */
extern _Thread_local hand *me;

uint64_t any(void);
uint64_t below(uint64_t count);
bool one_in(uint64_t count);

/* The place of one of the hand's references, mostly of one that is there. */
#define PLACE(pool) (me->pool + place_of((void *const *)me->pool, LENGTH(me->pool)))
#define HELD(pool) (*PLACE(pool))
size_t place_of(void *const *pool, size_t count);
/* Puts a new reference into a place of the hand, and releases the one that was there. */
#define KEEP(pool, got, release)                 \
  do {                                           \
    __typeof__(got) new_ = (got), old_ = new_;   \
    if (!new_) break;                            \
    size_t place_ = below(LENGTH(me->pool));     \
    old_ = me->pool[place_];                     \
    me->pool[place_] = new_;                     \
    release(old_);                               \
  } while (0)

/* A context of the host's, which the library releases exactly once. */
void *new_context(void);
void release_context(void *context);

/* One call at random. */
void call_something(void);
/* Of a callback: perhaps some calls. */
void call_within(void);
/* True once the case ends: callbacks keep nothing and call nothing. */
extern atomic_bool is_over;

/* The directories that caches are opened in. */
extern path directories[3];
/* The bytes of all keys and values. */
extern unsigned char content[140000];

/* Releases all that a hand has. */
void let_go(void);

hutch_status load_something(void *context, const void *key, size_t key_size,
                            hutch_loading *loading);
int32_t see_progress(void *context, uint64_t done, uint64_t total);
int32_t visit(void *context, const void *key, size_t key_size, const hutch_entry_info *info);
void complete(void *context, const hutch_completion *completion);
void merge(void *into, void *from);
hutch_status work(void *context, hutch_task *task);
void listen(void *context, const hutch_event *event);
void write_line(void *context, const hutch_log_record *record);
int64_t tell_time(void *context);
hutch_status encode(void *context, const void *input, size_t size, hutch_buffer *output);
hutch_status decode(void *context, const void *input, size_t size, hutch_buffer *output);
extern const hutch_object_codec object_codec;

/* How a call stores: options of any kind in that room, or NULL. */
hutch_put_options *any_put_options(char room[ROOM]);
/* A value to put. */
typedef struct part {
  const void *data;
  size_t size;
} part;
part any_value(void);

#endif
