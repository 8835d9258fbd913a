/* The verdict on a history. See judge.h. */
#include "judge.h"

history *new_history(size_t facts, size_t events) {
  history *h = calloc(1, sizeof *h);
  CHECK(h);
  h->facts = calloc(facts, sizeof *h->facts);
  h->events = calloc(events, sizeof *h->events);
  CHECK(h->facts && h->events);
  h->fact_room = facts;
  h->event_room = events;
  return h;
}

void free_history(history *h) {
  free(h->facts);
  free(h->events);
  free(h);
}

uint64_t next_moment(history *h) { return atomic_fetch_add(&h->moment, 1) + 1; }

fact *begin_fact(history *h, const char *call, uint8_t key) {
  size_t at = atomic_fetch_add(&h->fact_count, 1);
  CHECK(at < h->fact_room);
  fact *f = &h->facts[at];
  f->call = call;
  f->key = key;
  f->begin = next_moment(h);
  return f;
}

fact *more_of(history *h, const fact *f) {
  size_t at = atomic_fetch_add(&h->fact_count, 1);
  CHECK(at < h->fact_room);
  fact *more = &h->facts[at];
  more->call = f->call;
  more->key = f->key;
  more->begin = f->begin;
  more->clock_begin = f->clock_begin;
  return more;
}

/* ------------------------------------------------------------- one key's facts */

/* A version, what was told of it, and the fact of its write. */
typedef struct write {
  const fact *f;
  uint64_t version, value;
  uint32_t tiers; /* that stored it */
  uint32_t left;  /* that are told to have let it go */
  bool is_stored, is_refused;
  bool was_evicted; /* from disk */
} write;

typedef struct trial {
  history *h;
  int key;
  write *writes; /* by version */
  size_t write_count;
  const fact **reads, **removals, **touches;
  size_t read_count, removal_count, touch_count;
  char *verdict;
} trial;

static uint64_t end_of(const fact *f) { return atomic_load(&((fact *)f)->end); }

static void describe(char *text, size_t room, const fact *f) {
  snprintf(text, room, "  %ju..%ju %s of key %d, %s: version %ju, value %jx, tiers %u\n",
           (uintmax_t)f->begin, (uintmax_t)end_of(f), f->call, f->key,
           hutch_status_name(f->status), (uintmax_t)f->version, (uintmax_t)f->value, f->tiers);
}

/* What the calls on the key were about that time. */
static void show_neighbours(const trial *t, const fact *first, const fact *second) {
  uint64_t from = second && second->begin < first->begin ? second->begin : first->begin;
  size_t count = atomic_load(&t->h->fact_count);
  fprintf(stderr, "all calls on the key from then on:\n");
  for (size_t i = 0; i < count; i++) {
    const fact *f = &t->h->facts[i];
    if (f->kind == FACT_NONE || (f->key != t->key && f->key != ALL_KEYS)) continue;
    if (end_of(f) < from || f->begin > end_of(first)) continue;
    char text[256];
    describe(text, sizeof text, f);
    fprintf(stderr, "%d%s", (int)f->kind, text);
  }
}

/* Only the first lie counts. */
static void accuse(trial *t, const char *why, const fact *first, const fact *second) {
  if (t->verdict) return;
  char one[256] = "", two[256] = "";
  describe(one, sizeof one, first);
  if (second) describe(two, sizeof two, second);
  show_neighbours(t, first, second);
  size_t room = 8192;
  t->verdict = malloc(room);
  CHECK(t->verdict);
  size_t used = (size_t)snprintf(t->verdict, room, "%s\n%s%s", why, one, two);
  /* What was told of it. */
  size_t count = atomic_load(&t->h->event_count);
  for (size_t i = 0; i < count && used < room - 200; i++) {
    const told_event *e = &t->h->events[i];
    if (e->key != t->key || (e->version != first->version &&
                             (!second || e->version != second->version)))
      continue;
    used += (size_t)snprintf(t->verdict + used, room - used,
                             "  event at %ju: kind %u, cause %u, tiers %u, version %ju\n",
                             (uintmax_t)e->moment, e->kind, e->cause, e->tiers,
                             (uintmax_t)e->version);
  }
}

static int by_version(const void *a, const void *b) {
  uint64_t x = ((const write *)a)->version, y = ((const write *)b)->version;
  return (x > y) - (x < y);
}

static write *write_of(const trial *t, const fact *read) {
  for (size_t i = 0; i < t->write_count; i++) {
    write *w = &t->writes[i];
    if (read->value ? w->value == read->value : w->version == read->version) return w;
  }
  return NULL;
}

static void gather(trial *t) {
  size_t count = atomic_load(&t->h->fact_count);
  t->writes = calloc(count + 1, sizeof *t->writes);
  t->reads = calloc(count + 1, sizeof *t->reads);
  t->removals = calloc(count + 1, sizeof *t->removals);
  t->touches = calloc(count + 1, sizeof *t->touches);
  CHECK(t->writes && t->reads && t->removals && t->touches);
  for (size_t i = 0; i < count; i++) {
    const fact *f = &t->h->facts[i];
    if (f->kind == FACT_NONE || (f->key != t->key && f->key != ALL_KEYS)) continue;
    switch (f->kind) {
      case FACT_WROTE:
      case FACT_MADE:
        t->writes[t->write_count++] =
            (write){.f = f, .version = f->version, .value = f->value, .tiers = f->tiers,
                    .is_stored = f->kind == FACT_WROTE && f->tiers != 0,
                    .is_refused = f->kind == FACT_WROTE && f->tiers == 0};
        break;
      case FACT_REMOVED: t->removals[t->removal_count++] = f; break;
      case FACT_TOUCHED: t->touches[t->touch_count++] = f; break;
      default: t->reads[t->read_count++] = f;
    }
  }
}

/* Gives each write its version, where the call did not say it, and what was told of it. */
static void hear(trial *t) {
  size_t count = atomic_load(&t->h->event_count);
  for (size_t i = 0; i < count; i++) {
    const told_event *e = &t->h->events[i];
    if (e->key != t->key || e->kind != HUTCH_EVENT_DID_ADD || !e->value) continue;
    for (size_t j = 0; j < t->write_count; j++) {
      write *w = &t->writes[j];
      if (w->value != e->value) continue;
      if (w->version && w->version != e->version)
        accuse(t, "the event of a write has another version than the call said", w->f, NULL);
      /* A load is not told which tiers took its value. */
      if (!w->is_stored)
        accuse(t, "a write that was not stored is told as an addition", w->f, NULL);
      w->version = e->version;
      if (e->cause == HUTCH_CAUSE_WRITTEN_BACK) {
        if (!(w->f->owed & e->tiers))
          accuse(t, "a write is told as written back that was owed to no tier", w->f, NULL);
        w->tiers |= e->tiers;
        continue;
      }
      if (w->is_stored && !w->f->guesses && w->tiers != e->tiers)
        accuse(t, "the event of a write has other tiers than the call said", w->f, NULL);
      w->tiers = e->tiers | (w->tiers & w->f->owed);
    }
  }
  for (size_t i = 0; i < t->write_count; i++)
    if (!t->writes[i].version && t->writes[i].is_stored)
      accuse(t, "nothing has told the version of a write", t->writes[i].f, NULL);
  qsort(t->writes, t->write_count, sizeof *t->writes, by_version);
  for (size_t i = 1; i < t->write_count; i++)
    if (t->writes[i].version && t->writes[i].version == t->writes[i - 1].version)
      accuse(t, "two writes have one version", t->writes[i - 1].f, t->writes[i].f);
  for (size_t i = 0; i < count; i++) {
    const told_event *e = &t->h->events[i];
    if (e->key != t->key || e->kind != HUTCH_EVENT_DID_REMOVE) continue;
    write wanted = {.version = e->version};
    write *w = bsearch(&wanted, t->writes, t->write_count, sizeof wanted, by_version);
    if (w && e->cause == HUTCH_CAUSE_EVICTED && e->tiers & JUDGE_DISK) w->was_evicted = true;
    if (w) w->left |= e->tiers;
  }
}

/* ------------------------------------------------------------------- verdicts */

/* The newest version that was stored, or refused, before this moment. */
static const write *newest_before(const trial *t, uint64_t moment, bool counts_refused) {
  for (size_t i = t->write_count; i-- > 0;) {
    const write *w = &t->writes[i];
    if (end_of(w->f) < moment && (w->is_stored || (counts_refused && w->is_refused))) return w;
  }
  return NULL;
}

static bool was_touched(const trial *t, const write *w, const fact *read) {
  for (size_t i = 0; i < t->touch_count; i++)
    if (t->touches[i]->begin < end_of(read) && end_of(t->touches[i]) > w->f->begin) return true;
  return false;
}

static void judge_found(trial *t, const fact *read) {
  const write *w = write_of(t, read);
  if (!w) {
    accuse(t, "a value is found that was never put", read, NULL);
    return;
  }
  if (read->version && w->version && read->version != w->version)
    accuse(t, "a value is found with another version than it was put with", read, w->f);
  if (w->f->begin > end_of(read))
    accuse(t, "a value is found before it was put", read, w->f);
  if (w->is_refused) accuse(t, "a value is found that was refused", read, w->f);
  const write *newest = newest_before(t, read->begin, true);
  if (newest && w->version && newest->version > w->version)
    accuse(t, "an older value is found than the newest completed one", read, newest->f);
  for (size_t i = 0; i < t->removal_count; i++) {
    const fact *r = t->removals[i];
    if (r->through_view && (r->tiers != JUDGE_MEMORY || (w->tiers | w->f->owed) != JUDGE_MEMORY))
      continue;
    if (end_of(w->f) < r->begin && end_of(r) < read->begin)
      accuse(t, "a value is found that was removed", read, r);
  }
  if (w->f->lifetime > 0 && read->clock_begin >= w->f->clock_end + w->f->lifetime &&
      !was_touched(t, w, read))
    accuse(t, "a value is found that has expired", read, w->f);
  for (size_t i = 0; i < t->read_count; i++) {
    const fact *other = t->reads[i];
    if (other->took && read->took && other != read && write_of(t, other) == w)
      accuse(t, "two calls took one value", read, other);
    if (end_of(other) >= read->begin) continue;
    if (other->kind == FACT_FOUND) {
      const write *seen = write_of(t, other);
      if (seen && seen->is_stored && w->version && seen->version > w->version)
        accuse(t, "an older value is found after a newer one was", read, other);
    } else if (other->tiers == JUDGE_BOTH && end_of(w->f) < other->begin && !w->was_evicted) {
      /* Of an evicted one, who read it before may bring a copy into memory afterwards. */
      accuse(t, "a value is found that was not there any more", read, other);
    }
  }
}

/* No write has come between the version that a swap was over and its own. */
static void judge_swap(trial *t, const write *w) {
  for (size_t i = 0; i < t->write_count; i++) {
    const write *other = &t->writes[i];
    if (other->is_stored && other->version > w->f->swapped && other->version < w->version)
      accuse(t, "a swap was over another version than it says", w->f, other->f);
  }
}

/* Whether the version may have gone from these tiers before this read's end. */
static bool may_be_gone(const trial *t, const write *w, const fact *read) {
  if (w->f->lifetime && read->clock_end >= w->f->clock_begin + w->f->lifetime) return true;
  /* The time at which a tier is given what it is owed is not known. */
  if (read->tiers == w->f->owed) return true;
  uint32_t there = w->tiers & read->tiers & ~w->left;
  if (!w->f->may_be_refused) there |= w->f->owed & read->tiers & ~w->left;
  for (size_t i = 0; i < t->removal_count; i++) {
    const fact *r = t->removals[i];
    if (r->begin < end_of(read) && end_of(r) > w->f->begin) there &= ~r->tiers;
  }
  return there == 0;
}

static void judge_missed(trial *t, const fact *read) {
  /* Where processes share, memory has copies that may go whenever something is written. */
  if (t->h->shares && read->tiers == JUDGE_MEMORY) return;
  const write *newest = newest_before(t, read->begin, false);
  if (!newest) return;
  for (size_t i = 0; i < t->write_count; i++) {
    const write *w = &t->writes[i];
    if (w->version < newest->version || w->f->begin > end_of(read)) continue;
    if (w->is_refused || (w->is_stored && may_be_gone(t, w, read))) return;
  }
  accuse(t, "nothing is found, and the newest version has not gone", read, newest->f);
}

char *judge(history *h, int keys) {
  char *verdict = NULL;
  for (int key = 0; key < keys && !verdict; key++) {
    trial t = {.h = h, .key = key};
    gather(&t);
    hear(&t);
    for (size_t i = 0; i < t.read_count && !t.verdict; i++) {
      if (t.reads[i]->kind == FACT_FOUND) judge_found(&t, t.reads[i]);
      else judge_missed(&t, t.reads[i]);
    }
    for (size_t i = 0; i < t.write_count && !t.verdict; i++)
      if (t.writes[i].f->swapped) judge_swap(&t, &t.writes[i]);
    verdict = t.verdict;
    free(t.writes);
    free(t.reads);
    free(t.removals);
    free(t.touches);
  }
  return verdict;
}
