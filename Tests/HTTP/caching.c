/* Fetching through the cache: RFC 9111, RFC 5861, RFC 9211. docs/http-caching.md lists which
   requirement each case tests. */
#include "rig.h"

/* --------------------------------------------------------------- freshness */

TEST(freshness_follows_from_max_age_and_expires) {
  ROWS(freshness,
       {"max-age, fresh", "Cache-Control: max-age=100\nDate: {date+0}", 99, NULL, 1, 0},
       {"max-age, stale", "Cache-Control: max-age=100\nDate: {date+0}", 100, NULL, 2, 0},
       {"no Date", "Cache-Control: max-age=100", 99, NULL, 1, 0},
       {"max-age before Expires", "Cache-Control: max-age=100\nExpires: {date-10}", 50, NULL, 1, 0},
       {"max-age 0 before Expires", "Cache-Control: max-age=0\nExpires: {date+99}", 1, NULL, 2, 0},
       {"Expires, fresh", "Date: {date+0}\nExpires: {date+50}", 49, NULL, 1, 0},
       {"Expires, stale", "Date: {date+0}\nExpires: {date+50}", 50, NULL, 2, 0},
       {"Expires counts from Date", "Date: {date-40}\nExpires: {date+10}", 11, NULL, 2, 0},
       {"Expires is 0", "Date: {date+0}\nExpires: 0\nLast-Modified: {date-90000}", 1, NULL, 2, 0},
       {"RFC 850", "Date: {date+0}\nExpires: Monday, 18-Jan-27 08:00:00 GMT", 9, NULL, 1, 0},
       {"asctime", "Date: {date+0}\nExpires: Mon Jan 18 08:00:00 2027", 9, NULL, 1, 0},
       {"another zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2027 08:00:00 EST", 9, NULL, 2, 0},
       {"s-maxage, private", "Cache-Control: s-maxage=9, max-age=50", 20, NULL, 1, 0},
       {"s-maxage, shared", "Cache-Control: s-maxage=50, max-age=9", 20, NULL, 1, SHARED},
       {"s-maxage is over", "Cache-Control: s-maxage=9, max-age=50", 20, NULL, 2, SHARED},
       {"Age", "Cache-Control: max-age=100\nAge: 90", 9, NULL, 1, 0},
       {"Age, stale", "Cache-Control: max-age=100\nAge: 90", 10, NULL, 2, 0},
       {"first Age", "Cache-Control: max-age=100\nAge: 90, 0", 10, NULL, 2, 0},
       {"an older Date", "Cache-Control: max-age=100\nDate: {date-90}", 10, NULL, 2, 0},
       {"a Date ahead", "Cache-Control: max-age=100\nDate: {date+90}", 99, NULL, 1, 0});
}

TEST(cache_control_is_read_as_a_list) {
  ROWS(directives,
       {"case", "cAcHe-CoNtRoL: MaX-aGe=100", 9, NULL, 1, 0},
       {"quoted", "Cache-Control: max-age=\"100\"", 9, NULL, 1, 0},
       {"in a quoted string", "Cache-Control: x=\"max-age=100, y\"", 9, NULL, 2, 0},
       {"behind a quoted string", "Cache-Control: x=\"a, \\\" b\", max-age=100", 9, NULL, 1, 0},
       {"two lines", "Cache-Control: public\nCache-Control: max-age=100", 9, NULL, 1, 0},
       {"unknown ones", "Cache-Control: a, b=1, max-age=100", 9, NULL, 1, 0},
       {"empty members", "Cache-Control: , ,max-age=100,", 9, NULL, 1, 0},
       {"twice, the least", "Cache-Control: max-age=100, max-age=1", 9, NULL, 2, 0},
       {"malformed", "Cache-Control: max-age=100x\nExpires: {date+99}", 1, NULL, 2, 0},
       {"negative", "Cache-Control: max-age=-1", 1, NULL, 2, 0},
       {"a fraction", "Cache-Control: max-age=100.5", 1, NULL, 2, 0},
       {"empty", "Cache-Control: max-age=", 1, NULL, 2, 0},
       {"a space", "Cache-Control: max-age =100", 1, NULL, 2, 0},
       {"huge", "Cache-Control: max-age=99999999999999999999999", 99999, NULL, 1, 0});
}

TEST(a_heuristic_makes_some_codes_fresh) {
  ROWS(heuristic,
       {"a tenth", "Date: {date+0}\nLast-Modified: {date-1000}", 99, NULL, 1, 0},
       {"no more", "Date: {date+0}\nLast-Modified: {date-1000}", 100, NULL, 2, 0},
       {"at most a day", "Date: {date+0}\nLast-Modified: {date-9999999}", 86400, NULL, 2, 0},
       {"nothing to go by", "Date: {date+0}", 1, NULL, 2, 0},
       {"404", "404 Not Found\nDate: {date+0}\nLast-Modified: {date-1000}", 50, NULL, 1, 0},
       {"201", "201 Created\nDate: {date+0}\nLast-Modified: {date-1000}", 50, NULL, 2, 0},
       {"201 if public",
        "201 Created\nCache-Control: public\nDate: {date+0}\nLast-Modified: {date-1000}", 50, NULL,
        1, 0},
       {"201 if explicit", "201 Created\nCache-Control: max-age=100", 50, NULL, 1, 0},
       {"599 if explicit", "599 Odd\nCache-Control: max-age=100", 50, NULL, 1, 0});
}

TEST(what_must_not_be_stored_is_not) {
  ROWS(storing,
       {"no-store", "Cache-Control: no-store, max-age=100", 1, NULL, 2, 0},
       {"must-understand", "Cache-Control: must-understand, no-store, max-age=100", 1, NULL, 1, 0},
       {"must-understand, unknown code",
        "299 Odd\nCache-Control: must-understand, no-store, max-age=100", 1, NULL, 2, 0},
       {"private", "Cache-Control: private, max-age=100", 1, NULL, 1, 0},
       {"private, shared cache", "Cache-Control: private, max-age=100", 1, NULL, 2, SHARED},
       {"a part", "206 Partial Content\nContent-Range: bytes 0-3/9\nCache-Control: max-age=100", 1,
        NULL, 2, 0},
       {"Vary: *", "Cache-Control: max-age=100\nVary: *", 1, NULL, 2, 0},
       {"302 without freshness", "302 Found", 1, NULL, 2, 0},
       {"no-cache", "Cache-Control: no-cache, max-age=100", 1, NULL, 2, 0},
       {"no-cache of no header", "Cache-Control: no-cache=\"\", max-age=100", 1, NULL, 2, 0},
       {"Pragma of a response", "Pragma: no-cache\nCache-Control: max-age=100", 1, NULL, 1, 0});
}

TEST(a_request_with_no_store_leaves_nothing) {
  rig r = start("request_no_store", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
  expect(&r, "Cache-Control: no-store", 200, "body", false);
  expect(&r, NULL, 200, "body", false);
  expect(&r, NULL, 200, "body", true);
  stop(&r);
}

TEST(authorization_is_not_for_others) {
  static const struct { const char *control; uint32_t flags; int expected; } rows[] = {
      {"max-age=100", 0, 1},          {"max-age=100", SHARED, 2},
      {"max-age=100, public", SHARED, 1}, {"s-maxage=100", SHARED, 1},
      {"max-age=100, must-revalidate", SHARED, 1}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[64], text[128];
    snprintf(name, sizeof name, "authorization_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: %s\n\nbody", rows[index].control);
    rig r = start(name, rows[index].flags);
    tell(&r, text);
    expect(&r, "Authorization: Basic YTpi", 200, "body", false);
    answer_to(&r, NULL, 0);
    CHECK_EQUAL(rows[index].expected, asked(&r));
    stop(&r);
  }
}

TEST(a_validation_with_credentials_is_not_for_others) {
  rig r = start("authorization_304", SHARED);
  tell(&r, "200 OK\nCache-Control: public, max-age=10\nETag: \"1\"\n\none\n====\n"
           "304 Same\nCache-Control: max-age=100\nETag: \"1\"\n\n");
  expect(&r, "Authorization: Basic YTpi", 200, "one", false);
  seconds += 11;
  expect(&r, "Authorization: Basic YTpi", 200, "one", true);
  CHECK_EQUAL(2, asked(&r));
  expect(&r, NULL, 200, "one", true);
  CHECK_EQUAL(3, asked(&r));
  expect(&r, NULL, 200, "one", true);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}

TEST(requests_have_directives_too) {
  ROWS(request,
       {"no-cache", "Cache-Control: max-age=100", 1, "Cache-Control: no-cache", 2, 0},
       {"Pragma", "Cache-Control: max-age=100", 1, "Pragma: no-cache", 2, 0},
       {"max-age", "Cache-Control: max-age=100", 10, "Cache-Control: max-age=9", 2, 0},
       {"max-age is not over", "Cache-Control: max-age=100", 10, "Cache-Control: max-age=10", 1, 0},
       {"max-age=0", "Cache-Control: max-age=100", 0, "Cache-Control: max-age=0", 2, 0},
       {"min-fresh", "Cache-Control: max-age=100", 10, "Cache-Control: min-fresh=91", 2, 0},
       {"min-fresh is there", "Cache-Control: max-age=100", 10, "Cache-Control: min-fresh=90", 1,
        0},
       {"max-stale", "Cache-Control: max-age=100", 120, "Cache-Control: max-stale=20", 1, 0},
       {"max-stale is over", "Cache-Control: max-age=100", 121, "Cache-Control: max-stale=20", 2,
        0},
       {"any max-stale", "Cache-Control: max-age=100", 9999, "Cache-Control: max-stale", 1, 0},
       {"must-revalidate", "Cache-Control: max-age=9, must-revalidate", 10,
        "Cache-Control: max-stale", 2, 0},
       {"proxy-revalidate", "Cache-Control: max-age=9, proxy-revalidate", 10,
        "Cache-Control: max-stale", 1, 0},
       {"proxy-revalidate, shared", "Cache-Control: max-age=9, proxy-revalidate", 10,
        "Cache-Control: max-stale", 2, SHARED},
       {"s-maxage, shared", "Cache-Control: s-maxage=9", 10, "Cache-Control: max-stale", 2, SHARED},
       {"only-if-cached", "Cache-Control: max-age=100", 10, "Cache-Control: only-if-cached", 1, 0},
       {"only-if-cached, stale", "Cache-Control: max-age=100", 110,
        "Cache-Control: only-if-cached", 1, 0});
  rig r = start("only_if_cached", 0);
  tell(&r, "200 OK\n\nbody");
  expect(&r, "Cache-Control: only-if-cached", 504, "", false);
  CHECK_EQUAL(0, asked(&r));
  stop(&r);
}

/* -------------------------------------------------------------- validation */

TEST(a_validation_updates_what_is_stored) {
  rig r = start("validation", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10\nETag: \"1\"\nLast-Modified: {date-5}\nX-Old: old\n"
           "X-Both: 1\nContent-Type: text/plain\n\nbody\n====\n"
           "304 Not Modified\nCache-Control: max-age=50\nETag: \"1\"\nX-Both: 2\nX-New: new\n"
           "Content-Length: 0\n\n\n====\n200 OK\nETag: \"2\"\n\nother");
  expect(&r, NULL, 200, "body", false);
  seconds += 11;
  hutch_http_task *task = ask(&r, NULL);
  CHECK(asked_with(&r, "if-none-match: \"1\"\n") && asked_with(&r, "if-modified-since: "));
  answer a = read_answer(task);
  CHECK_EQUAL(200, a.code);
  CHECK(a.from_cache && a.requests == 1 && strcmp(a.body, "body") == 0);
  CHECK(header_is(task, "X-Old", "old") && header_is(task, "X-Both", "2") &&
        header_is(task, "X-New", "new") && header_is(task, "Content-Length", "4"));
  CHECK(header_is(task, "Age", "0"));
  CHECK(header_is(task, "Cache-Status", "hutch; fwd=stale; fwd-status=304; ttl=50"));
  const char *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-Both", 1, &value));
  hutch_http_task_release(task);
  seconds += 49;
  task = ask(&r, NULL);
  CHECK(read_answer(task).from_cache && header_is(task, "X-Both", "2") &&
        header_is(task, "Age", "49"));
  hutch_http_task_release(task);
  CHECK_EQUAL(2, asked(&r));
  seconds += 2;
  expect(&r, NULL, 200, "other", false);
  stop(&r);
}

TEST(a_304_of_another_version_is_asked_again) {
  rig r = start("other_version", 0);
  tell(&r, "200 OK\nCache-Control: max-age=0\nETag: \"1\"\n\none\n====\n"
           "304 Not Modified\nETag: \"2\"\n\n\n====\n200 OK\nETag: \"2\"\n\ntwo");
  expect(&r, NULL, 200, "one", false);
  expect(&r, NULL, 200, "two", false);
  CHECK_EQUAL(3, asked(&r));
  CHECK(!asked_with(&r, "if-none-match"));
  stop(&r);
}

TEST(headers_of_a_connection_are_not_stored) {
  rig r = start("connection", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10\nConnection: X-Own, keep-alive\nX-Own: 1\n"
           "Keep-Alive: timeout=9\nX-Kept: 1\n\nbody");
  expect(&r, NULL, 200, "body", false);
  hutch_http_task *task = ask(&r, NULL);
  CHECK(read_answer(task).from_cache && header_is(task, "X-Kept", "1"));
  CHECK(!header_is(task, "X-Own", "1") && !header_is(task, "Keep-Alive", "timeout=9"));
  hutch_http_task_release(task);
  stop(&r);
}

TEST(conditions_of_the_host_are_answered) {
  rig r = start("conditions", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\nDate: {date+0}\n"
           "Last-Modified: {date-10}\n\nbody");
  expect(&r, NULL, 200, "body", false);
  expect(&r, "If-None-Match: W/\"1\"", 304, "", true);
  expect(&r, "If-None-Match: \"0\", \"1\"", 304, "", true);
  expect(&r, "If-None-Match: *", 304, "", true);
  expect(&r, "If-None-Match: \"2\"", 200, "body", true);
  expect(&r, "If-Modified-Since: Fri, 15 Jan 2027 08:00:00 GMT", 304, "", true);
  expect(&r, "If-Modified-Since: Fri, 15 Jan 2027 07:59:00 GMT", 200, "body", true);
  CHECK_EQUAL(1, asked(&r));
  seconds += 100;
  tell(&r, "304 Not Modified\nETag: \"1\"\n\n");
  expect(&r, "If-None-Match: \"1\"", 304, "", false);
  CHECK(asked_with(&r, "if-none-match: \"1\"\n"));
  stop(&r);
}

TEST(ranges_are_answered_from_a_whole_body) {
  rig r = start("ranges", 0);
  tell(&r, "206 Partial Content\nCache-Control: max-age=100\nContent-Range: bytes 0-1/10\n\n01"
           "\n====\n200 OK\nCache-Control: max-age=100\n\n0123456789");
  expect(&r, "Range: bytes=0-1", 206, "01", false);
  expect(&r, NULL, 200, "0123456789", false);
  hutch_http_task *task = ask(&r, "Range: bytes=2-4");
  CHECK(header_is(task, "Content-Range", "bytes 2-4/10"));
  answer a = read_answer(task);
  CHECK(a.from_cache && a.code == 206 && strcmp(a.body, "234") == 0);
  hutch_http_task_release(task);
  expect(&r, "Range: bytes=7-", 206, "789", true);
  expect(&r, "Range: bytes=7-99", 206, "789", true);
  expect(&r, "Range: bytes=-2", 206, "89", true);
  expect(&r, "Range: bytes=10-", 416, "", true);
  expect(&r, "Range: bytes=0-1,3-4", 200, "0123456789", true);
  expect(&r, "Range: lines=0-1", 200, "0123456789", true);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(a_head_is_answered_by_a_get) {
  rig r = start("head", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\nbody");
  expect(&r, NULL, 200, "body", false);
  hutch_http_request request = request_of(&r);
  request.method = "HEAD";
  hutch_http_task *task = fetch(r.session, &request);
  CHECK(header_is(task, "Content-Length", "4"));
  answer a = read_answer(task);
  CHECK(a.from_cache && a.code == 200 && !*a.body);
  hutch_http_task_release(task);
  seconds += 101;
  tell(&r, "200 OK\nETag: \"2\"\n\nother");
  hutch_http_task_release(fetch(r.session, &request));
  CHECK(asked_with(&r, "HEAD ") && asked_with(&r, "if-none-match: \"1\"\n"));
  CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
  stop(&r);
}

/* -------------------------------------------------------------------- vary */

TEST(vary_tells_requests_apart) {
  rig r = start("vary", 0);
  const char *head = "200 OK\nCache-Control: max-age=100\nVary: X-Kind, x-other\n\n";
  char text[512];
  snprintf(text, sizeof text, "%sone\n====\n%stwo\n====\n%snone\n====\n%sfour", head, head, head,
           head);
  tell(&r, text);
  expect(&r, "X-Kind: 1", 200, "one", false);
  expect(&r, "X-Kind: 2", 200, "two", false);
  expect(&r, NULL, 200, "none", false);
  expect(&r, "X-Kind: 1", 200, "one", true);
  expect(&r, "X-Kind: 2", 200, "two", true);
  expect(&r, NULL, 200, "none", true);
  expect(&r, "X-Else: 1", 200, "none", true);
  expect(&r, "X-Other: 1", 200, "four", false);
  CHECK_EQUAL(4, asked(&r));
  stop(&r);
}

/* ------------------------------------------------------------------- stale */

TEST(a_stale_response_answers_while_it_is_validated) {
  rig r = start("while_revalidate", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-while-revalidate=20\nETag: \"1\"\n\none\n"
           "====\n200 OK\nCache-Control: max-age=10\n\ntwo");
  expect(&r, NULL, 200, "one", false);
  seconds += 30;
  expect(&r, NULL, 200, "one", true);
  /* A session that ends finishes what it does behind. */
  end_session(r.session);
  r.session = new_session(&r.configuration);
  CHECK_EQUAL(2, asked(&r));
  CHECK(asked_with(&r, "if-none-match: \"1\"\n"));
  expect(&r, NULL, 200, "two", true);
  seconds += 31;
  expect(&r, NULL, 200, "two", false);
  stop(&r);
}

TEST(a_stale_response_answers_in_place_of_an_error) {
  rig r = start("if_error", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-if-error=20\n\none\n====\n"
           "503 Busy\n\nbusy\n====\nclose\n\n\n====\nclose\n\n\n====\n500 Broken\n\nbroken");
  expect(&r, NULL, 200, "one", false);
  seconds += 30;
  expect(&r, NULL, 200, "one", true);
  CHECK_EQUAL(2, asked(&r));
  expect(&r, NULL, 200, "one", true);
  int count = asked(&r);
  CHECK(count >= 3);
  seconds += 1;
  hutch_http_request request = request_of(&r);
  hutch_http_task *task = begin(r.session, &request);
  result_of(task);
  hutch_http_task_release(task);
  expect(&r, NULL, 500, "broken", false);
  expect(&r, "Cache-Control: stale-if-error=99", 200, "one", true);
  stop(&r);
  r = start("if_error_not", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-if-error=20, must-revalidate\n\none\n====\n"
           "503 Busy\n\nbusy");
  expect(&r, NULL, 200, "one", false);
  seconds += 11;
  expect(&r, NULL, 503, "busy", false);
  stop(&r);
}

TEST(no_stale_response_answers_in_place_of_a_validation_that_fails) {
  rig r = start("validation_fails", 0);
  tell(&r, "200 OK\nCache-Control: max-age=10, stale-if-error=20\n\none\n====\n"
           "503 Busy\n\nbusy\n====\nclose\n\n");
  expect(&r, NULL, 200, "one", false);
  CHECK_EQUAL(503, answer_to(&r, NULL, HUTCH_HTTP_CACHE_VALIDATE).code);
  hutch_http_request request = request_of(&r);
  request.cache_mode = HUTCH_HTTP_CACHE_VALIDATE;
  status_of(&r.configuration, &request, HUTCH_HTTP_LOST);
  expect(&r, NULL, 200, "one", true);
  stop(&r);
}

/* ------------------------------------------------------------ invalidation */

TEST(other_methods_remove_what_they_change) {
  static const char *methods[] = {"POST", "PUT", "DELETE", "PATCH", "X-OWN"};
  for (int index = 0; index < 5; index++) {
    char name[64];
    snprintf(name, sizeof name, "unsafe_%d", index);
    rig r = start(name, 0);
    hutch_http_request request = request_of(&r);
    request.method = methods[index];
    tell(&r, "200 OK\nCache-Control: max-age=100\n\none\n====\n500 Broken\n\n\n====\n"
             "200 OK\n\nchanged\n====\n200 OK\n\ntwo");
    expect(&r, NULL, 200, "one", false);
    hutch_http_task_release(fetch(r.session, &request));
    expect(&r, NULL, 200, "one", true);
    hutch_http_task_release(fetch(r.session, &request));
    expect(&r, NULL, 200, "two", false);
    stop(&r);
  }
}

TEST(location_and_content_location_are_removed_too) {
  rig r = start("located", 0), other = r;
  other.name = "locating";
  char text[256];
  static const char *heads[] = {"Location: /located", "Content-Location: located"};
  for (int index = 0; index < 2; index++) {
    tell(&r, "200 OK\nCache-Control: max-age=100\n\none");
    answer_to(&r, NULL, HUTCH_HTTP_CACHE_RELOAD);
    snprintf(text, sizeof text, "201 Created\n%s\n\n", heads[index]);
    tell(&other, text);
    expect(&r, NULL, 200, "one", true);
    hutch_http_request request = request_of(&other);
    request.method = "POST";
    hutch_http_task_release(fetch(r.session, &request));
    expect(&r, NULL, 200, "one", false);
  }
  /* Another origin has no say. */
  snprintf(text, sizeof text, "201 Created\nLocation: http://localhost:%s/located\n\n",
           told("origin"));
  tell(&other, text);
  hutch_http_request request = request_of(&other);
  request.method = "POST";
  hutch_http_task_release(fetch(r.session, &request));
  expect(&r, NULL, 200, "one", true);
  stop(&r);
}

/* ------------------------------------------------------------------- modes */

TEST(modes_choose_between_the_cache_and_the_network) {
  rig r = start("modes", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\none\n====\n"
           "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\ntwo\n====\n"
           "304 Not Modified\nETag: \"1\"\n\n\n====\n200 OK\n\nfour");
  CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
  CHECK_EQUAL(0, asked(&r));
  CHECK(!answer_to(&r, NULL, HUTCH_HTTP_CACHE_ELSE_LOAD).from_cache);
  CHECK(!answer_to(&r, NULL, HUTCH_HTTP_CACHE_RELOAD).from_cache);
  CHECK(asked_with(&r, "cache-control: no-cache\n") && !asked_with(&r, "if-none-match"));
  answer a = answer_to(&r, NULL, HUTCH_HTTP_CACHE_VALIDATE);
  CHECK(a.from_cache && a.requests == 1 && strcmp(a.body, "two") == 0);
  seconds += 1000;
  CHECK(answer_to(&r, NULL, HUTCH_HTTP_CACHE_ELSE_LOAD).from_cache);
  CHECK(answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).from_cache);
  CHECK_EQUAL(3, asked(&r));
  CHECK(!answer_to(&r, NULL, HUTCH_HTTP_CACHE_NONE).from_cache);
  CHECK(strcmp(answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).body, "two") == 0);
  hutch_http_request request = request_of(&r);
  request.cache_mode = 7;
  hutch_http_task *task;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(r.session, &request, &task));
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .cache_mode = HUTCH_HTTP_CACHE_ONLY};
  hutch_http_session *session;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_session_create(&configuration, &session));
  stop(&r);
}

/* The cache does not answer these. */
TEST(only_what_is_stored_means_that_no_request_is_made) {
  rig r = start("only", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\none");
  expect(&r, NULL, 200, "one", false);
  const char *headers[] = {"If-Match: \"1\"", "If-Range: \"1\"", "Host: elsewhere.test"};
  for (int index = 0; index < 3; index++) {
    answer a = answer_to(&r, headers[index], HUTCH_HTTP_CACHE_ONLY);
    CHECK(a.code == 504 && a.requests == 0);
  }
  hutch_http_request request = request_of(&r);
  request.cache_mode = HUTCH_HTTP_CACHE_ONLY;
  hutch_http_task *task = fetch(r.plain, &request);
  CHECK_EQUAL(504, response_of(task).code);
  hutch_http_task_release(task);
  request.cache_mode = 0;
  request.body = "two";
  request.body_size = 3;
  r.configuration.cache_mode = HUTCH_HTTP_CACHE_ONLY;
  hutch_http_session *session = new_session(&r.configuration);
  task = fetch(session, &request);
  CHECK_EQUAL(504, response_of(task).code);
  hutch_http_task_release(task);
  end_session(session);
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}

TEST(a_redirect_is_stored_and_followed) {
  rig r = start("moved", 0), target = r;
  target.name = "moved_to";
  tell(&r, "301 Moved\nLocation: /moved_to\nCache-Control: max-age=100\n\ngone");
  tell(&target, "200 OK\nCache-Control: max-age=100\n\nthere");
  expect(&r, NULL, 200, "there", false);
  answer a = answer_to(&r, NULL, 0);
  CHECK(a.from_cache && a.requests == 0 && strcmp(a.body, "there") == 0);
  hutch_http_request request = request_of(&r);
  request.flags = HUTCH_HTTP_NO_REDIRECTS;
  hutch_http_task *task = fetch(r.session, &request);
  a = read_answer(task);
  CHECK(a.from_cache && a.code == 301 && strcmp(a.body, "gone") == 0);
  hutch_http_task_release(task);
  stop(&r);
}

static hutch_status gather(void *context, hutch_http_task *task, const void *data, size_t size) {
  (void)task;
  strncat(context, data, size);
  return HUTCH_OK;
}

TEST(streams_and_downloads_are_stored_and_answered) {
  rig r = start("streams", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
  char text[64] = "";
  hutch_http_request request = request_of(&r);
  request.on_body = gather;
  request.context = text;
  hutch_http_task_release(fetch(r.session, &request));
  hutch_http_task_release(fetch(r.session, &request));
  CHECK(strcmp(text, "bodybody") == 0);
  path file = scratch("download");
  request = request_of(&r);
  request.download = file.text;
  hutch_http_task_release(fetch(r.session, &request));
  FILE *stream = fopen(file.text, "r");
  CHECK(stream && fgets(text, sizeof text, stream) && strcmp(text, "body") == 0);
  fclose(stream);
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}

TEST(a_response_that_is_not_accepted_is_not_stored) {
  rig r = start("not_accepted", 0);
  tell(&r, "404 Not Found\nCache-Control: max-age=100\n\nnone");
  hutch_http_request request = request_of(&r);
  request.first_code = 200;
  request.last_code = 299;
  hutch_http_task *task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_HTTP_CODE, result_of(task));
  hutch_http_task_release(task);
  CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
  stop(&r);
}

TEST(sessions_share_a_directory) {
  rig r = start("directory", 0);
  hutch_cache_release(r.cache);
  end_session(r.session);
  path directory = scratch("cache");
  hutch_options options = {.struct_size = sizeof options, .clock = the_time};
  for (int round = 0; round < 2; round++) {
    CHECK_OK(hutch_open(directory.text, &options, &r.cache));
    r.configuration.cache = r.cache;
    r.session = new_session(&r.configuration);
    if (round == 0) tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
    expect(&r, NULL, 200, "body", round == 1);
    end_session(r.session);
    CHECK_OK(hutch_close(r.cache));
  }
  /* A closed cache stores nothing, and harms no request. */
  CHECK_OK(hutch_open(directory.text, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.session = new_session(&r.configuration);
  CHECK_OK(hutch_close(r.cache));
  r.cache = NULL;
  expect(&r, NULL, 200, "body", false);
  stop(&r);
}

TEST(cache_status_says_what_the_cache_did) {
  rig r = start("status", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nCache-Status: edge; hit\nAge: 7\n\nbody");
  hutch_http_task *task = ask(&r, NULL);
  const char *value;
  CHECK(header_is(task, "Cache-Status", "edge; hit"));
  CHECK_OK(hutch_http_task_header(task, "Cache-Status", 1, &value));
  CHECK(strcmp(value, "hutch; fwd=miss") == 0);
  hutch_http_task_release(task);
  seconds += 3;
  task = ask(&r, NULL);
  CHECK(header_is(task, "Age", "10") && header_is(task, "Cache-Status", "edge; hit"));
  CHECK_OK(hutch_http_task_header(task, "Cache-Status", 1, &value));
  CHECK(strcmp(value, "hutch; hit; ttl=90") == 0);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Cache-Status", 2, &value));
  hutch_http_task_release(task);
  seconds += 100;
  task = ask(&r, "Cache-Control: only-if-cached");
  CHECK(header_is(task, "Cache-Status", "hutch; detail=only-if-cached"));
  hutch_http_task_release(task);
  task = ask(&r, NULL);
  CHECK_OK(hutch_http_task_header(task, "Cache-Status", 1, &value));
  CHECK(strcmp(value, "hutch; fwd=stale") == 0);
  hutch_http_task_release(task);
  stop(&r);
}

TEST(one_url_has_one_key) {
  rig r = start("key", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
  expect(&r, NULL, 200, "body", false);
  char url[256];
  snprintf(url, sizeof url, "HTTP://ann:secret@127.0.0.1:%s/key#part", told("origin"));
  hutch_http_request request = get(url);
  hutch_http_task *task = fetch(r.session, &request);
  CHECK(read_answer(task).from_cache);
  hutch_http_task_release(task);
  hutch_http_header query = {"a", "b"};
  request.query = &query;
  request.query_count = 1;
  task = fetch(r.session, &request);
  CHECK(!read_answer(task).from_cache);
  hutch_http_task_release(task);
  CHECK_OK(hutch_contains(r.cache, url, snprintf(url, sizeof url, "GET http://127.0.0.1:%s/key",
                                                 told("origin"))));
  stop(&r);
}

TEST(damaged_values_are_misses) {
  rig r = start("damaged", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nVary: X-Kind\nETag: \"1\"\n\nbody");
  expect(&r, NULL, 200, "body", false);
  char key[256];
  int size = snprintf(key, sizeof key, "GET %s", request_of(&r).url);
  hutch_value *value;
  CHECK_OK(hutch_get(r.cache, key, size, &value));
  size_t length = hutch_value_size(value);
  unsigned char *bytes = malloc(length);
  for (size_t index = 0; index < length * 3; index++) {
    memcpy(bytes, hutch_value_data(value), length);
    size_t count = length;
    if (index >= length * 2)
      count = index - length * 2; /* cut */
    else
      bytes[index % length] ^= index < length ? 0xFF : 0x01;
    CHECK_OK(hutch_put(r.cache, key, size, bytes, count, NULL, NULL));
    answer a = answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY);
    CHECK(a.code >= 200);
  }
  free(bytes);
  hutch_value_release(value);
  stop(&r);
}

/* -------------------------------------------------------------- coalescing */

#define CALLERS 64

TEST(many_tasks_for_one_url_make_one_request) {
  rig r = start("coalesced", 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_request request = request_of(&r);
  hutch_http_task *tasks[CALLERS];
  for (int index = 0; index < CALLERS; index++) tasks[index] = begin(r.session, &request);
  let_begin(&r);
  /* A follower goes, and the others stay. */
  CHECK_OK(hutch_http_task_cancel(tasks[7], NULL));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(tasks[7]));
  go(&r);
  for (int index = 0; index < CALLERS; index++) {
    if (index != 7) {
      CHECK_EQUAL(HUTCH_OK, result_of(tasks[index]));
      CHECK(strcmp(read_answer(tasks[index]).body, "body") == 0);
    }
    hutch_http_task_release(tasks[index]);
  }
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}

TEST(the_next_task_leads_if_the_first_is_cancelled) {
  rig r = start("leads", 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_request request = request_of(&r);
  hutch_http_task *tasks[3];
  for (int index = 0; index < 3; index++) tasks[index] = begin(r.session, &request);
  let_begin(&r);
  CHECK_OK(hutch_http_task_cancel(tasks[0], NULL));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(tasks[0]));
  go(&r);
  for (int index = 1; index < 3; index++) CHECK_EQUAL(HUTCH_OK, result_of(tasks[index]));
  for (int index = 0; index < 3; index++) hutch_http_task_release(tasks[index]);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(what_may_not_be_shared_is_asked_for_each) {
  static const struct { const char *control; int expected; } rows[] = {
      {"Cache-Control: no-store", 4}, {"Cache-Control: no-cache", 4}, {"X-No: freshness", 1}};
  for (int index = 0; index < 3; index++) {
    char name[64], text[128];
    snprintf(name, sizeof name, "not_shared_%d", index);
    snprintf(text, sizeof text, "hold 200 OK\n%s\n\nbody", rows[index].control);
    rig r = start(name, 0);
    tell(&r, text);
    hutch_http_request request = request_of(&r);
    hutch_http_task *tasks[4];
    for (int task = 0; task < 4; task++) tasks[task] = begin(r.session, &request);
    let_begin(&r);
    go(&r);
    for (int task = 0; task < 4; task++) {
      CHECK_EQUAL(HUTCH_OK, result_of(tasks[task]));
      CHECK(strcmp(read_answer(tasks[task]).body, "body") == 0);
      hutch_http_task_release(tasks[task]);
    }
    CHECK_EQUAL(rows[index].expected, asked(&r));
    stop(&r);
  }
}
