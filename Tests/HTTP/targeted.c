/* CDN-Cache-Control (RFC 9213) in caches that work for the origin servers, and in others. */
#include "rig.h"

#define CDN HUTCH_HTTP_CACHE_CDN

TEST(a_targeted_field_decides_in_place_of_others) {
  ROWS(targeted,
       {"max-age", "CDN-Cache-Control: max-age=3600", 9, NULL, 1, CDN},
       {"past max-age", "CDN-Cache-Control: max-age=3600", 3601, NULL, 2, CDN},
       {"with SHARED", "CDN-Cache-Control: max-age=3600", 9, NULL, 1, CDN | SHARED},
       {"longer than Cache-Control", "Cache-Control: max-age=1\nCDN-Cache-Control: max-age=60", 9,
        NULL, 1, CDN},
       {"shorter", "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=1", 9, NULL, 2, CDN},
       {"shorter than s-maxage", "Cache-Control: s-maxage=60\nCDN-Cache-Control: max-age=1", 9,
        NULL, 2, CDN},
       {"0 and Expires", "Date: {date+0}\nExpires: {date+99}\nCDN-Cache-Control: max-age=0", 1,
        NULL, 2, CDN},
       {"a past Expires", "Date: {date+0}\nExpires: {date-99}\nCDN-Cache-Control: max-age=60", 1,
        NULL, 1, CDN},
       {"Expires without max-age", "Date: {date+0}\nExpires: {date+99}\nCDN-Cache-Control: public",
        1, NULL, 2, CDN},
       {"a heuristic", "Date: {date+0}\nLast-Modified: {date-999}\nCDN-Cache-Control: public\n"
        "Cache-Control: max-age=0", 9, NULL, 1, CDN},
       {"no-store there", "Cache-Control: no-store\nCDN-Cache-Control: max-age=60", 9, NULL, 1,
        CDN},
       {"private there", "Cache-Control: private\nCDN-Cache-Control: max-age=60", 9, NULL, 1, CDN},
       {"no-store here", "Cache-Control: max-age=60\nCDN-Cache-Control: no-store", 1, NULL, 2,
        CDN},
       {"no-cache here", "Cache-Control: max-age=60\nCDN-Cache-Control: no-cache, max-age=60", 1,
        NULL, 2, CDN},
       {"private here", "Cache-Control: max-age=60\nCDN-Cache-Control: private", 1, NULL, 2, CDN},
       {"s-maxage", "CDN-Cache-Control: max-age=1, s-maxage=60", 9, NULL, 1, CDN},
       {"older than that", "Age: 61\nCDN-Cache-Control: max-age=60", 1, NULL, 2, CDN},
       {"any code", "599 Code\nCDN-Cache-Control: max-age=60", 9, NULL, 1, CDN},
       {"max-stale", "CDN-Cache-Control: max-age=1", 9, "Cache-Control: max-stale", 1, CDN},
       {"must-revalidate", "CDN-Cache-Control: max-age=1, must-revalidate", 9,
        "Cache-Control: max-stale", 2, CDN},
       {"must-revalidate there", "Cache-Control: must-revalidate\nCDN-Cache-Control: max-age=1", 9,
        "Cache-Control: max-stale", 1, CDN},
       {"the request decides too", "CDN-Cache-Control: max-age=60", 9,
        "Cache-Control: max-age=5", 2, CDN});
}

TEST(a_targeted_field_is_for_the_caches_of_a_cdn_only) {
  ROWS(others,
       {"a private cache", "CDN-Cache-Control: max-age=60", 9, NULL, 2, 0},
       {"a shared cache", "CDN-Cache-Control: max-age=60", 9, NULL, 2, SHARED},
       {"no-store in a private cache", "Cache-Control: max-age=60\nCDN-Cache-Control: no-store", 9,
        NULL, 1, 0},
       {"no-store in a shared cache", "Cache-Control: max-age=60\nCDN-Cache-Control: no-store", 9,
        NULL, 1, SHARED},
       {"no such field", "Cache-Control: max-age=60", 9, NULL, 1, CDN},
       {"a cache of a CDN is shared", "Cache-Control: private, max-age=60", 9, NULL, 2, CDN});
  /* One directory, and sessions of two kinds. */
  rig r = start("kinds", CDN);
  tell(&r, "200 OK\nCDN-Cache-Control: max-age=60\nCache-Control: max-age=5\n\nbody");
  expect(&r, NULL, 200, "body", false);
  seconds += 9;
  hutch_http_task *task = ask(&r, NULL);
  CHECK(read_answer(task).from_cache);
  CHECK(header_is(task, "CDN-Cache-Control", "max-age=60"));
  CHECK(header_is(task, "Cache-Control", "max-age=5"));
  CHECK(header_is(task, "Cache-Status", "hutch; hit; ttl=51"));
  hutch_http_task_release(task);
  end_session(r.session);
  r.configuration.cache_flags = 0;
  r.session = new_session(&r.configuration);
  expect(&r, NULL, 200, "body", false);
  stop(&r);
}

TEST(a_malformed_targeted_field_is_ignored) {
  static const struct { const char *field; bool is_ignored; } rows[] = {
      {"max-age=60", false},
      {"max-age=60, no-such, x=\"a, \\\" \\\\ b\", y=:YWJj:, z=(1 \"b\" c;d=e);f, t=a/b:c", false},
      {"x=1.5 ,\tmax-age=000000000000060", false},
      {"max-age=60;ext=\"1\"; other;a=?1;b=*", false},
      {"*a.b-c_9=?0, max-age=99999999999", false},
      {"max-age=1, max-age=60", false},
      {"no-store=?0, max-age=60", false},
      {"max-age=60\nCDN-Cache-Control: x", false},
      {"x\nCDN-Cache-Control: max-age=60", false},
      {"", true},
      {"max-age=60, &&&&&", true},
      {"max-age=60,", true},
      {", max-age=60", true},
      {"x,, max-age=60", true},
      {"x max-age=60", true},
      {"max-age =60", true},
      {"max-age= 60", true},
      {"Max-Age=60", true},
      {"max-age=60;", true},
      {"max-age=60; A", true},
      {"max-age=60s", true},
      {"max-age=60.", true},
      {"max-age=--60", true},
      {"max-age=-", true},
      {"max-age=1000000000000000", true},
      {"x=1.2345, max-age=60", true},
      {"x=1234567890123.4, max-age=60", true},
      {"x=\"a, max-age=60", true},
      {"x=\"a\\b\", max-age=60", true},
      {"x=\"\\", true},
      {"x=:YW-j:, max-age=60", true},
      {"x=:YWJj, max-age=60", true},
      {"x=?2, max-age=60", true},
      {"x=?, max-age=60", true},
      {"x=(1 2, max-age=60", true},
      {"x=(1,2), max-age=60", true},
      {"x=(1\"a\"), max-age=60", true},
      {"x=, max-age=60", true},
      {"x=@1659578233, max-age=60", true},
      {"x=\xC3\xA9, max-age=60", true},
      {"max-age=60\nCDN-Cache-Control: (", true}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    /* Without the field the response is stale, and with it fresh. */
    char text[256], name[32];
    snprintf(text, sizeof text, "Cache-Control: max-age=5\nCDN-Cache-Control: %s",
             rows[index].field);
    row one = {rows[index].field, text, 9, NULL, rows[index].is_ignored ? 2 : 1, CDN};
    snprintf(name, sizeof name, "dictionary_%zu", index);
    check_rows(name, &one, 1);
  }
  /* A value of another type makes the response stale, but nothing else is ignored. */
  ROWS(types,
       {"a string", "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=\"60\"", 1, NULL, 2,
        CDN},
       {"a fraction", "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=60.5", 1, NULL, 2,
        CDN},
       {"negative", "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=-60", 1, NULL, 2, CDN},
       {"nothing", "Cache-Control: max-age=60\nCDN-Cache-Control: max-age", 1, NULL, 2, CDN},
       {"a name", "Cache-Control: max-age=60\nCDN-Cache-Control: no-store=x, max-age=60", 1, NULL,
        2, CDN});
}
