/* Calls at random, with any arguments, by several threads and from within every callback: each
   answers with a status, every context is released once, and what is in the directories is whole.
   The calls are in fuzz_calls.c. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <unistd.h>

_Thread_local hand *me;
path directories[3];
unsigned char content[140000];
atomic_bool is_over;
/* Those of callbacks. */
static _Atomic(hand *) hands;
static atomic_int made, released;
static _Atomic int64_t shift;

uint64_t any(void) { return next_random(&me->random); }
uint64_t below(uint64_t count) { return any() % count; }
bool one_in(uint64_t count) { return below(count) == 0; }

size_t place_of(void *const *pool, size_t count) {
  size_t at = below(count);
  if (one_in(30)) return at;
  for (size_t i = 0; i < count; i++)
    if (pool[(at + i) % count]) return (at + i) % count;
  return at;
}

/* --------------------------------------------------------------- contexts */

void *new_context(void) {
  atomic_int *left = malloc(sizeof *left);
  CHECK(left);
  atomic_init(left, 1);
  atomic_fetch_add(&made, 1);
  return left;
}

static void check_context(void *context) { CHECK(!context || atomic_load((atomic_int *)context) == 1); }

static void give_up(void *context) {
  CHECK(atomic_fetch_sub((atomic_int *)context, 1) == 1);
  free(context);
  atomic_fetch_add(&released, 1);
}

void release_context(void *context) {
  give_up(context);
  call_within();
}

/* -------------------------------------------------------------- callbacks */

static hand *new_hand(uint64_t random, int depth) {
  hand *h = calloc(1, sizeof *h);
  CHECK(h);
  h->random = random;
  h->depth = depth;
  h->next = atomic_load(&hands);
  while (!atomic_compare_exchange_weak(&hands, &h->next, h)) {}
  return h;
}

/* A thread of the library's has a hand from its first callback on. */
static void enter(void) {
  if (!me) me = new_hand((uint64_t)(uintptr_t)&me, 0);
}

/* The case ends when no hand is in use, or a callback sees here that it does. */
static bool take_hand(void) {
  enter();
  atomic_store(&me->is_used, true);
  if (!atomic_load(&is_over)) return true;
  atomic_store(&me->is_used, false);
  return false;
}
static void put_hand_back(void) { atomic_store(&me->is_used, false); }

void call_within(void) {
  enter();
  if (atomic_load(&is_over) || me->depth >= 2 || !one_in(4)) return;
  hand *outer = me;
  if (!outer->within) outer->within = new_hand(any(), outer->depth + 1);
  me = outer->within;
  if (take_hand()) {
    for (uint64_t left = 1 + below(2); left > 0; left--) call_something();
    put_hand_back();
  }
  me = outer;
}

int32_t see_progress(void *context, uint64_t done, uint64_t total) {
  check_context(context);
  (void)done, (void)total;
  call_within();
  return one_in(10);
}

int32_t visit(void *context, const void *key, size_t key_size, const hutch_entry_info *info) {
  check_context(context);
  CHECK(key && key_size > 0 && info->struct_size == sizeof *info);
  call_within();
  return one_in(20);
}

hutch_status load_something(void *context, const void *key, size_t key_size,
                            hutch_loading *loading) {
  check_context(context);
  CHECK(key && key_size > 0 && loading);
  call_within();
  char room[ROOM];
  part value = any_value();
  switch (below(8)) {
    case 0: hutch_loading_fail(loading, (int32_t)any(), one_in(2) ? NULL : "why"); break;
    case 1: return HUTCH_IO;
    case 2: hutch_loading_abandon(loading); break;
    case 3:
      /* It is answered later, or given up. */
      if (!take_hand()) break;
      KEEP(loadings, hutch_loading_retain(loading), hutch_loading_release);
      put_hand_back();
      return HUTCH_WOULD_BLOCK;
    case 4: break;
    case 5: return (hutch_status)any();
    default: hutch_loading_fulfil(loading, value.data, value.size, any_put_options(room));
  }
  return HUTCH_OK;
}

void complete(void *context, const hutch_completion *completion) {
  enter();
  check_context(context);
  CHECK_EQUAL(sizeof *completion, completion->struct_size);
  CHECK(completion->task || completion->operation == HUTCH_OPERATION_GROUP);
  if (!take_hand()) return;
  KEEP(values, hutch_value_retain(completion->value), hutch_value_release);
  KEEP(batches, hutch_batch_retain(completion->batch), hutch_batch_release);
  KEEP(tasks, hutch_task_retain(completion->task), hutch_task_release);
  put_hand_back();
  call_within();
}

void merge(void *into, void *from) {
  check_context(into);
  check_context(from);
  call_within();
}

hutch_status work(void *context, hutch_task *task) {
  check_context(context);
  CHECK(task);
  call_within();
  return one_in(3) ? (hutch_status)any() : HUTCH_OK;
}

void listen(void *context, const hutch_event *event) {
  check_context(context);
  CHECK_EQUAL(sizeof *event, event->struct_size);
  call_within();
}

void write_line(void *context, const hutch_log_record *record) {
  check_context(context);
  CHECK(record->words[0]);
  call_within();
}

int64_t tell_time(void *context) {
  check_context(context);
  return INT64_C(1800000000) * HUTCH_SECOND + atomic_fetch_add(&shift, HUTCH_MILLISECOND);
}

/* The codec's first byte is 7. */
hutch_status encode(void *context, const void *input, size_t size, hutch_buffer *output) {
  enter();
  check_context(context);
  if (one_in(50)) return (hutch_status)any();
  unsigned char *bytes = hutch_buffer_resize(output, size + 1);
  if (!bytes) return HUTCH_NO_MEMORY;
  bytes[0] = 7;
  for (size_t i = 0; i < size; i++) bytes[i + 1] = ((const unsigned char *)input)[i] ^ 0x55;
  return HUTCH_OK;
}

hutch_status decode(void *context, const void *input, size_t size, hutch_buffer *output) {
  enter();
  check_context(context);
  const unsigned char *bytes = input;
  if (one_in(50)) return (hutch_status)any();
  if (size == 0 || bytes[0] != 7) return HUTCH_CORRUPT;
  unsigned char *value = hutch_buffer_resize(output, size - 1);
  if (!value) return HUTCH_NO_MEMORY;
  for (size_t i = 1; i < size; i++) value[i - 1] = bytes[i] ^ 0x55;
  return HUTCH_OK;
}

static hutch_status encode_object(void *context, void *object, hutch_buffer *output) {
  (void)context;
  enter();
  check_context(object);
  if (one_in(20)) return (hutch_status)any();
  void *bytes = hutch_buffer_resize(output, 24);
  if (!bytes) return HUTCH_NO_MEMORY;
  memset(bytes, 3, 24);
  return HUTCH_OK;
}

static hutch_status decode_object(void *context, hutch_value *value, void **object) {
  (void)context;
  enter();
  CHECK(hutch_value_data(value));
  if (one_in(20)) return (hutch_status)any();
  *object = new_context();
  return HUTCH_OK;
}

const hutch_object_codec object_codec = {.struct_size = sizeof object_codec,
                                         .encode = encode_object, .decode = decode_object,
                                         .release = give_up};

/* ------------------------------------------------------------------- case */

enum { PLAYERS = 3 };
static atomic_int playing;
static void (*when_all_play)(void);

static void play(void *context, int index) {
  hand *mine = (hand *)context + index;
  me = mine;
  if (atomic_fetch_add(&playing, 1) == PLAYERS - 1 && when_all_play) when_all_play();
  int calls = 8000 * scale() / SANITIZED_BY;
  for (int n = 0; n < calls; n++) call_something();
}

static void let_go_of(hand *h) {
  while (atomic_load(&h->is_used)) nap();
  me = h;
  let_go();
}

uint64_t call_at_random(void (*begin)(void), void (*end)(void)) {
  uint64_t state = seed();
  fill(content, sizeof content, state);
  for (int i = 0; i < 3; i++) directories[i] = scratch((char[]){(char)('a' + i), 0});
  hand players[PLAYERS];
  memset(players, 0, sizeof players);
  for (int i = 0; i < PLAYERS; i++) players[i].random = next_random(&state);
  atomic_store(&is_over, false);
  atomic_store(&playing, 0);
  when_all_play = begin;
  run_threads(PLAYERS, play, players);
  if (end) end();

  atomic_store(&is_over, true);
  for (int i = 0; i < PLAYERS; i++) let_go_of(&players[i]);
  for (hand *h = atomic_load(&hands); h; h = h->next) let_go_of(h);
  me = &players[0];
  /* The process's own: its queue may be suspended, and it may have a logger. */
  hutch_queue *queue = NULL;
  CHECK_OK(hutch_shared_queue(&queue));
  while (hutch_queue_resume(queue) == HUTCH_OK) {}
  hutch_queue_release(queue);
  CHECK_OK(hutch_set_default_logger(HUTCH_LOG_ERROR, NULL, NULL, NULL));
  /* The last tasks may still be running. */
  while (atomic_load(&released) < atomic_load(&made)) nap();
  uint64_t orphans = 0;
  for (int i = 0; i < 3; i++) {
    hutch_cache *cache = NULL;
    hutch_options options = {.struct_size = sizeof options, .flags = HUTCH_OPEN_NONEMPTY};
    CHECK(hutch_open(directories[i].text, &options, &cache) >= 0);
    hutch_check_report report = report_of(cache, 0);
    CHECK_EQUAL(0, report.damaged + report.counters + report.manifest);
    orphans += report.orphans;
    CHECK_OK(hutch_close(cache));
  }
  CHECK_EQUAL(made, released);
  return orphans;
}

TEST(any_call_with_any_arguments_from_anywhere) { CHECK_EQUAL(0, call_at_random(NULL, NULL)); }
