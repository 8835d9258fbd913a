/* The judge of histories.c: it tells each kind of lie from the truth beside it. */
#include "judge.h"

/* A fact from one moment to another, of key 0. */
static fact *testify(history *h, fact_kind kind, uint64_t begins, uint64_t ends,
                     uint64_t version, uint32_t tiers) {
  fact *f = begin_fact(h, "test", 0);
  f->kind = kind;
  f->begin = begins;
  f->version = version;
  f->tiers = tiers;
  f->end = ends;
  return f;
}

static void tell(history *h, uint32_t kind, uint64_t version, uint32_t tiers) {
  h->events[h->event_count++] =
      (told_event){.kind = kind, .tiers = tiers, .version = version, .value = version};
}

#define CHECK_VERDICT(h, is_true)              \
  do {                                         \
    char *verdict = judge(h, 1);               \
    CHECK((verdict == NULL) == (is_true));     \
    free(verdict);                             \
    free_history(h);                           \
  } while (0)

TEST(the_judge_knows_lies_from_truth) {
  enum { BOTH = JUDGE_BOTH };
  for (int lie = 0; lie < 2; lie++) {
    /* Two puts, and then the older; or during the second. */
    history *h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_WROTE, 3, lie ? 4 : 9, 2, BOTH);
    testify(h, FACT_FOUND, 5, 6, 1, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Nothing, with a removal or without. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_REMOVED, 3, 9, 0, lie ? JUDGE_MEMORY : BOTH);
    testify(h, FACT_MISSED, 5, 6, 0, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Nothing, after an eviction from both tiers or one of them. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_MISSED, 5, 6, 0, BOTH);
    tell(h, HUTCH_EVENT_DID_REMOVE, 1, JUDGE_MEMORY);
    if (!lie) tell(h, HUTCH_EVENT_DID_REMOVE, 1, JUDGE_DISK);
    CHECK_VERDICT(h, !lie);
    /* Removed, and found by a get that began after it; or before its end. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_REMOVED, 3, lie ? 4 : 6, 0, BOTH);
    testify(h, FACT_FOUND, 5, 7, 1, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Not there any more, and there again; or put again. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_REMOVED, 3, 9, 0, BOTH);
    testify(h, FACT_MISSED, 4, 5, 0, BOTH);
    testify(h, FACT_WROTE, 6, 7, 2, BOTH);
    testify(h, FACT_FOUND, 6, 7, lie ? 1 : 2, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Seen, and then an older one. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 20, 1, BOTH);
    testify(h, FACT_WROTE, 1, 20, 2, BOTH);
    testify(h, FACT_FOUND, 3, 4, lie ? 2 : 1, BOTH);
    testify(h, FACT_FOUND, 5, 6, lie ? 1 : 2, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Taken by one; by two at once. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_FOUND, 3, 6, 1, BOTH)->took = true;
    testify(h, FACT_FOUND, 4, 5, 1, BOTH)->took = lie;
    CHECK_VERDICT(h, !lie);
    /* A swap over another version than it says. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 9, 1, BOTH);
    testify(h, FACT_WROTE, 1, 9, 2, BOTH);
    testify(h, FACT_WROTE, 1, 9, 3, BOTH)->swapped = lie ? 1 : 2;
    CHECK_VERDICT(h, !lie);
    /* Dead, and found. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH)->lifetime = 10;
    testify(h, FACT_FOUND, 3, 4, 1, BOTH)->clock_begin = lie ? 10 : 9;
    CHECK_VERDICT(h, !lie);
    /* Refused: what was there is gone, and nothing older comes back. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH);
    testify(h, FACT_WROTE, 3, 4, 2, 0);
    testify(h, lie ? FACT_FOUND : FACT_MISSED, 5, 6, 1, BOTH);
    CHECK_VERDICT(h, !lie);
    /* Memory lets go what it owes to the disk tier; which says that it has it, and does not. */
    h = new_history(10, 10);
    fact *owing = testify(h, FACT_WROTE, 1, 2, 1, JUDGE_MEMORY);
    owing->owed = JUDGE_DISK;
    owing->may_be_refused = !lie;
    owing->value = 1;
    testify(h, FACT_REMOVED, 3, 4, 0, JUDGE_MEMORY);
    testify(h, FACT_MISSED, 5, 6, 0, JUDGE_DISK);
    testify(h, FACT_MISSED, 5, 6, 0, BOTH);
    CHECK_VERDICT(h, !lie);
    /* A tier that the event does not name. */
    h = new_history(10, 10);
    testify(h, FACT_WROTE, 1, 2, 1, BOTH)->value = 1;
    tell(h, HUTCH_EVENT_DID_ADD, 1, lie ? JUDGE_MEMORY : BOTH);
    CHECK_VERDICT(h, !lie);
  }
}
