/* Calls at random, of which those that the library makes to the system fail at random: each answers
   with a status, every context is released once, and what is in the directories is whole. */
#define _GNU_SOURCE
#include "failing.h"
#include "fuzz.h"

/* Which calls fail, and how often: one in so many. */
static int kinds;
static unsigned long how_many;

static void begin(void) { begin_random_faults(kinds, how_many, any()); }

static void end(void) {
  CHECK(fault.fired);
  end_faults();
}

static void call_while(int failing, unsigned long one_of) {
  kinds = failing;
  how_many = one_of;
  call_at_random(begin, end);
}

TEST(any_call_while_the_system_refuses_now_and_then) { call_while(~ZEROES, 100); }
TEST(any_call_without_memory) { call_while(MEMORY | PAGES, 10); }
