/* What a cache of HTTP does at the edges: odd ages, dates and tags, named headers, updates by 304
   and HEAD, blanks in Vary. docs/http-caching.md lists which requirement each case tests. */
#include "rig.h"

/* --------------------------------------------------------------- freshness */

TEST(an_age_that_is_no_number_is_ignored) {
  ROWS(age,
       {"letters", "Cache-Control: max-age=3600\nAge: abc", 1, NULL, 1, 0},
       {"negative", "Cache-Control: max-age=3600\nAge: -7200", 1, NULL, 1, 0},
       {"a fraction", "Cache-Control: max-age=3600\nAge: 7200.0", 1, NULL, 1, 0},
       {"old, then 0", "Cache-Control: max-age=3600\nAge: 7200, 0", 1, NULL, 2, 0},
       {"0, then old", "Cache-Control: max-age=3600\nAge: 0, 7200", 1, NULL, 1, 0},
       {"two lines, old first", "Cache-Control: max-age=3600\nAge: 7200\nAge: 0", 1, NULL, 2, 0},
       {"two lines, 0 first", "Cache-Control: max-age=3600\nAge: 0\nAge: 7200", 1, NULL, 1, 0},
       {"2^31 - 1", "Cache-Control: max-age=3600\nAge: 2147483647", 1, NULL, 2, 0},
       {"2^31", "Cache-Control: max-age=3600\nAge: 2147483648", 1, NULL, 2, 0},
       {"2^64", "Cache-Control: max-age=3600\nAge: 18446744073709551616", 1, NULL, 2, 0});
}

TEST(max_age_is_a_number_and_nothing_else) {
  ROWS(max_age,
       {"leading zeros", "Cache-Control: max-age=0003600", 9, NULL, 1, 0},
       {"a letter before", "Cache-Control: max-age=a3600", 9, NULL, 2, 0},
       {"a letter behind", "Cache-Control: max-age=3600a", 9, NULL, 2, 0},
       {"single quotes", "Cache-Control: max-age='3600'", 9, NULL, 2, 0},
       {"a space behind the equals sign", "Cache-Control: max-age= 3600", 9, NULL, 2, 0},
       {"2^31 + 1", "Cache-Control: max-age=2147483649", 99999, NULL, 1, 0},
       {"fresh, then stale", "Cache-Control: max-age=1800, max-age=1", 9, NULL, 2, 0},
       {"stale, then fresh", "Cache-Control: max-age=1, max-age=1800", 9, NULL, 2, 0},
       {"two lines", "Cache-Control: max-age=1800\nCache-Control: max-age=1", 9, NULL, 2, 0},
       {"another name", "Cache-Control: x-max-age=3600", 9, NULL, 2, 0},
       {"beside an extension", "Cache-Control: foobar, max-age=3600, x=\"y\"", 9, NULL, 1, 0},
       {"beside a bad Expires", "Cache-Control: max-age=3600\nExpires: 0", 9, NULL, 1, 0},
       {"s-maxage is longer", "Cache-Control: max-age=1, s-maxage=3600", 9, NULL, 1, SHARED},
       {"immutable", "Cache-Control: max-age=3600, immutable", 9, NULL, 1, 0},
       {"immutable and stale", "Cache-Control: max-age=3, immutable", 9, NULL, 2, 0});
}

TEST(dates_that_are_none_mean_the_past) {
  ROWS(expires,
       {"now", "Date: {date+0}\nExpires: {date+0}", 1, NULL, 2, 0},
       {"past", "Date: {date+0}\nExpires: {date-30}", 1, NULL, 2, 0},
       {"far ahead", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 GMT", 99999, NULL, 1, 0},
       {"in dashes", "Date: {date+0}\nExpires: Mon, 18-Jan-2077 08:00:00 GMT", 1, NULL, 2, 0},
       {"no comma", "Date: {date+0}\nExpires: Mon 18 Jan 2077 08:00:00 GMT", 1, NULL, 2, 0},
       {"two digits", "Date: {date+0}\nExpires: Mon, 18 Jan 77 08:00:00 GMT", 1, NULL, 2, 0},
       {"no zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00", 1, NULL, 2, 0},
       {"periods", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08.00.00 GMT", 1, NULL, 2, 0},
       {"day 0", "Date: {date+0}\nExpires: Mon, 00 Jan 2077 08:00:00 GMT", 1, NULL, 2, 0},
       {"hour 24", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 24:00:00 GMT", 1, NULL, 2, 0},
       {"two lines, the first counts", "Date: {date+0}\nExpires: {date+1}\nExpires: {date+99}", 9,
        NULL, 2, 0},
       {"a Date that is none", "Date: today\nExpires: {date+50}", 9, NULL, 1, 0},
       {"an old Date", "Cache-Control: max-age=3600\nDate: {date-7200}", 1, NULL, 2, 0});
}

TEST(any_code_is_stored_if_it_says_how_long) {
  static const int codes[] = {200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404,
                              405, 410, 414, 499, 500, 501, 502, 503, 504, 599};
  for (size_t index = 0; index < sizeof codes / sizeof *codes; index++) {
    char fresh[128], stale[128];
    snprintf(fresh, sizeof fresh, "%d Code\nCache-Control: max-age=100", codes[index]);
    snprintf(stale, sizeof stale, "%d Code\nCache-Control: max-age=0", codes[index]);
    row rows[] = {{"fresh", fresh, 9, NULL, 1, 0}, {"stale", stale, 9, NULL, 2, 0}};
    char name[32];
    snprintf(name, sizeof name, "code_%d", codes[index]);
    /* The body of a 204 would be taken for the next response. */
    if (codes[index] != 204) check_rows(name, rows, 2);
  }
}

TEST(codes_that_are_not_named_need_more_than_a_heuristic) {
  static const struct { int code; bool is_stored; } rows[] = {
      {200, true},  {203, true},  {300, true},  {301, true},  {404, true},  {405, true},
      {410, true},  {414, true},  {501, true},  {201, false}, {202, false}, {302, false},
      {307, false}, {400, false}, {403, false}, {500, false}, {502, false}, {503, false},
      {504, false}, {599, false}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char text[128], name[32];
    snprintf(text, sizeof text, "%d Code\nDate: {date+0}\nLast-Modified: {date-99999}",
             rows[index].code);
    row one = {"heuristic", text, 9, NULL, rows[index].is_stored ? 1 : 2, 0};
    snprintf(name, sizeof name, "heuristic_%d", rows[index].code);
    check_rows(name, &one, 1);
  }
}

TEST(pragma_of_a_request_is_a_list) {
  ROWS(pragma,
       {"no-cache", "Cache-Control: max-age=100", 1, "Pragma: no-cache", 2, 0},
       {"in a list", "Cache-Control: max-age=100", 1, "Pragma: a, No-Cache", 2, 0},
       {"another", "Cache-Control: max-age=100", 1, "Pragma: foo", 1, 0});
}

TEST(an_interim_response_is_not_the_response) {
  rig r = start("interim", 0);
  tell(&r, "early 200 OK\nCache-Control: max-age=100\n\nbody");
  expect(&r, NULL, 200, "body", false);
  seconds += 50;
  hutch_http_task *task = ask(&r, NULL);
  const char *value;
  CHECK(read_answer(task).from_cache);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-Early", 0, &value));
  hutch_http_task_release(task);
  stop(&r);
}

/* ------------------------------------------------------------ what is stored */

TEST(headers_that_a_directive_names_are_not_stored) {
  static const struct { const char *control; uint32_t flags; bool has_a, has_b; } rows[] = {
      {"no-cache=\"X-A\"", 0, false, true},
      {"no-cache=\"x-a, X-B\"", 0, false, false},
      {"no-cache=X-A", 0, false, true},
      {"private=\"X-A\"", SHARED, false, true},
      {"private=\"X-A\"", 0, true, true}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[256];
    snprintf(name, sizeof name, "named_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=100, %s\nX-A: 1\nX-B: 2\n\nbody",
             rows[index].control);
    check_note(rows[index].control);
    rig r = start(name, rows[index].flags);
    tell(&r, text);
    hutch_http_task *task = ask(&r, NULL);
    CHECK(header_is(task, "X-A", "1") && header_is(task, "X-B", "2"));
    hutch_http_task_release(task);
    task = ask(&r, NULL);
    CHECK(read_answer(task).from_cache);
    CHECK_EQUAL(rows[index].has_a, header_is(task, "X-A", "1"));
    CHECK_EQUAL(rows[index].has_b, header_is(task, "X-B", "2"));
    hutch_http_task_release(task);
    stop(&r);
    check_note(NULL);
  }
}

TEST(a_newer_response_with_no_store_removes_the_older_one) {
  rig r = start("newer_no_store", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\none\n====\n"
           "200 OK\nCache-Control: no-store\n\ntwo\n====\n200 OK\n\nthree");
  expect(&r, NULL, 200, "one", false);
  expect(&r, NULL, 200, "one", true);
  expect(&r, "Cache-Control: no-cache", 200, "two", false);
  expect(&r, NULL, 200, "three", false);
  stop(&r);
}

TEST(a_stored_response_without_a_date_gets_the_time_when_it_came) {
  static const struct { int64_t time; const char *date; } rows[] = {
      {0, "Fri, 15 Jan 2027 08:00:00 GMT"},
      {35395200 - 1, "Mon, 28 Feb 2028 23:59:59 GMT"},
      {35395200, "Tue, 29 Feb 2028 00:00:00 GMT"},
      {35395200 + 86400, "Wed, 01 Mar 2028 00:00:00 GMT"},
      {30297600 - 1, "Fri, 31 Dec 2027 23:59:59 GMT"},
      {30297600, "Sat, 01 Jan 2028 00:00:00 GMT"}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32];
    snprintf(name, sizeof name, "date_%zu", index);
    rig r = start(name, 0);
    seconds = START + rows[index].time;
    tell(&r, "200 OK\nCache-Control: max-age=100\n\nbody");
    expect(&r, NULL, 200, "body", false);
    seconds += 5;
    hutch_http_task *task = ask(&r, NULL);
    const char *value = "none";
    hutch_http_task_header(task, "Date", 0, &value);
    if (strcmp(value, rows[index].date) != 0) FAIL("%s instead of %s", value, rows[index].date);
    hutch_http_task_release(task);
    stop(&r);
  }
}

static answer post(rig *r, const char *answers) {
  tell(r, answers);
  hutch_http_request request = request_of(r);
  request.method = "POST";
  request.body = "x";
  request.body_size = 1;
  hutch_http_task *task = fetch(r->session, &request);
  answer a = read_answer(task);
  hutch_http_task_release(task);
  return a;
}

TEST(a_response_to_post_answers_a_get_if_it_names_its_url) {
  static const struct { const char *headers; int code; } rows[] = {
      {"Cache-Control: max-age=100\nContent-Location: /posted", 200},
      {"Cache-Control: max-age=100", 504},
      {"Cache-Control: max-age=100\nContent-Location: /other", 504},
      {"Content-Location: /posted\nLast-Modified: {date-99999}", 504},
      {"Cache-Control: no-store, max-age=100\nContent-Location: /posted", 504}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char text[256];
    snprintf(text, sizeof text, "200 OK\n%s\n\nposted", rows[index].headers);
    rig r = start("posted", 0);
    CHECK_EQUAL(200, post(&r, text).code);
    CHECK_EQUAL(rows[index].code, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
    stop(&r);
  }
}

/* ---------------------------------------------------------------- conditions */

/* A condition of the host is answered with this code from what a first request has stored. */
static void check_stored(const char *name, const char *text, const char *header, int code) {
  check_note(header);
  rig r = start(name, 0);
  tell(&r, text);
  expect(&r, NULL, 200, "body", false);
  answer a = answer_to(&r, header, 0);
  CHECK_EQUAL(code, a.code);
  CHECK(a.from_cache);
  stop(&r);
  check_note(NULL);
}

TEST(tags_of_the_host_are_compared_as_they_are_written) {
  static const struct { const char *tag, *asked; int code; } rows[] = {
      {"\"abc\"", "\"abc\"", 304},          {"\"abc\"", "W/\"abc\"", 304},
      {"W/\"abc\"", "\"abc\"", 304},        {"\"abc\"", "\"x\", \"abc\"", 304},
      {"\"abc\"", "\"abc\", \"x\"", 304},   {"\"abc\"", "\"x\",\"abc\",\"y\"", 304},
      {"\"abc\"", "*", 304},                {"\"abc\"", "abc", 200},
      {"\"abc\"", "w/\"abc\"", 200},        {"\"abc\"", "W\"abc\"", 200},
      {"\"abc\"", "\"abd\"", 200},          {"\"a,b\"", "\"x\", \"a,b\"", 304},
      {"\"a\u00fd\"", "\"a\xfd\"", 304},    {"abc", "\"abc\"", 200}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[256], header[256];
    snprintf(name, sizeof name, "tags_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=100\nETag: %s\n\nbody",
             rows[index].tag);
    snprintf(header, sizeof header, "If-None-Match: %s", rows[index].asked);
    check_stored(name, text, header, rows[index].code);
  }
}

TEST(dates_of_the_host_are_compared_with_the_last_change) {
  static const struct { const char *headers, *asked; int code; } rows[] = {
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "Fri, 15 Jan 2027 07:00:00 GMT", 304},
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "Fri, 15 Jan 2027 07:00:01 GMT", 304},
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "Fri, 15 Jan 2027 06:59:59 GMT", 200},
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "Friday, 15-Jan-27 07:00:00 GMT", 304},
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "Fri Jan 15 07:00:00 2027", 304},
      {"Last-Modified: Friday, 15-Jan-27 07:00:00 GMT", "Fri, 15 Jan 2027 07:00:00 GMT", 304},
      {"Last-Modified: Fri, 15 Jan 2027 07:00:00 GMT", "yesterday", 200},
      /* Without it, from Date, and without that, from when the response came. */
      {"Date: Fri, 15 Jan 2027 07:30:00 GMT", "Fri, 15 Jan 2027 07:30:00 GMT", 304},
      {"Date: Fri, 15 Jan 2027 07:30:00 GMT", "Fri, 15 Jan 2027 07:29:59 GMT", 200},
      {"X-None: 1", "Fri, 15 Jan 2027 08:00:01 GMT", 304},
      {"X-None: 1", "Fri, 15 Jan 2027 07:59:59 GMT", 200}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[256], header[256];
    snprintf(name, sizeof name, "since_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=9999\n%s\n\nbody",
             rows[index].headers);
    snprintf(header, sizeof header, "If-Modified-Since: %s", rows[index].asked);
    check_stored(name, text, header, rows[index].code);
  }
}

TEST(validators_are_sent_as_they_came) {
  static const char *const tags[] = {"\"abc\"", "W/\"abc\"", "abc"};
  for (size_t index = 0; index < sizeof tags / sizeof *tags; index++) {
    char name[32], text[256], line[64];
    snprintf(name, sizeof name, "sent_%zu", index);
    snprintf(text, sizeof text,
             "200 OK\nCache-Control: max-age=1\nETag: %s\n\nbody\n====\n304 Not Modified\n\n",
             tags[index]);
    snprintf(line, sizeof line, "if-none-match: %s\n", tags[index]);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, NULL, 200, "body", false);
    seconds += 5;
    expect(&r, NULL, 200, "body", true);
    CHECK(asked_with(&r, line));
    stop(&r);
  }
}

TEST(a_weak_tag_of_a_304_confirms_the_same_text) {
  rig r = start("weak_304", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nbody\n====\n"
           "304 Not Modified\nETag: W/\"1\"\nCache-Control: max-age=100\n\n\n====\n"
           "200 OK\n\nother");
  expect(&r, NULL, 200, "body", false);
  seconds += 5;
  expect(&r, NULL, 200, "body", true);
  expect(&r, NULL, 200, "body", true);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(a_304_for_the_condition_of_the_host_updates_what_is_stored) {
  rig r = start("own_condition", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nbody\n====\n"
           "304 Not Modified\nETag: \"1\"\nCache-Control: max-age=100\n\n");
  expect(&r, NULL, 200, "body", false);
  seconds += 5;
  expect(&r, "If-None-Match: \"1\"", 304, "", false);
  expect(&r, NULL, 200, "body", true);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
}

TEST(a_304_may_forbid_to_store_and_may_change_vary) {
  rig r = start("no_store_304", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nbody\n====\n"
           "304 Not Modified\nETag: \"1\"\nCache-Control: no-store\n\n\n====\n200 OK\n\nother");
  expect(&r, NULL, 200, "body", false);
  seconds += 5;
  expect(&r, NULL, 200, "body", true);
  expect(&r, NULL, 200, "other", false);
  CHECK(!asked_with(&r, "if-none-match"));
  stop(&r);
  r = start("vary_304", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nbody\n====\n"
           "304 Not Modified\nETag: \"1\"\nCache-Control: max-age=100\nVary: X-Kind\n\n\n====\n"
           "200 OK\n\nother");
  expect(&r, "X-Kind: 1", 200, "body", false);
  seconds += 5;
  expect(&r, "X-Kind: 1", 200, "body", true);
  expect(&r, "X-Kind: 1", 200, "body", true);
  expect(&r, "X-Kind: 2", 200, "other", false);
  stop(&r);
}

TEST(a_304_updates_all_headers_but_those_of_the_body) {
  rig r = start("update_304", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\nX-A: 1\nX-B: 1\nSet-Cookie: a=1\n"
           "Content-Type: text/plain\nContent-Encoding: identity\nContent-Language: en\n"
           "Date: {date+0}\n\nbody\n====\n"
           "304 Not Modified\nETag: \"1\"\nCache-Control: max-age=100\nX-A: 2\nX-C: 3\n"
           "Set-Cookie: a=2\nContent-Type: text/html\nContent-Encoding: gzip\n"
           "Content-Language: de\nContent-Length: 999\nContent-Range: bytes 0-1/9\n"
           "Connection: X-D\nX-D: 4\nDate: {date+5}\n\n");
  expect(&r, NULL, 200, "body", false);
  seconds += 5;
  expect(&r, NULL, 200, "body", true);
  hutch_http_task *task = ask(&r, NULL);
  CHECK(read_answer(task).from_cache);
  CHECK(header_is(task, "X-A", "2") && header_is(task, "X-B", "1") && header_is(task, "X-C", "3"));
  CHECK(header_is(task, "Set-Cookie", "a=2") && header_is(task, "Content-Language", "de"));
  CHECK(header_is(task, "Content-Type", "text/html"));
  CHECK(header_is(task, "Content-Encoding", "identity") && header_is(task, "Content-Length", "4"));
  CHECK(header_is(task, "Date", "Fri, 15 Jan 2027 08:00:05 GMT"));
  const char *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "X-D", 0, &value));
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Content-Range", 0, &value));
  hutch_http_task_release(task);
  stop(&r);
}

static void head(rig *r, int code) {
  hutch_http_request request = request_of(r);
  request.method = "HEAD";
  hutch_http_task *task = fetch(r->session, &request);
  CHECK_EQUAL(code, response_of(task).code);
  hutch_http_task_release(task);
}

TEST(a_head_updates_what_is_stored_or_removes_it) {
  static const struct { const char *head; int code; bool is_fresh; } rows[] = {
      {"200 OK\nETag: \"1\"\nX-A: 2\nCache-Control: max-age=100\n\nbody", 200, true},
      {"200 OK\nX-A: 2\nCache-Control: max-age=100\n\nbody", 200, true},
      {"200 OK\nETag: \"2\"\nX-A: 2\nCache-Control: max-age=100\n\nbody", 200, false},
      {"200 OK\nETag: \"1\"\nX-A: 2\nCache-Control: max-age=100\n\nlonger body", 200, false},
      {"410 Gone\n\nbody", 410, false}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[512];
    snprintf(name, sizeof name, "head_%zu", index);
    snprintf(text, sizeof text,
             "200 OK\nCache-Control: max-age=1\nETag: \"1\"\nX-A: 1\n\nbody\n====\n%s\n====\n"
             "200 OK\n\nother", rows[index].head);
    check_note(rows[index].head);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, NULL, 200, "body", false);
    seconds += 5;
    head(&r, rows[index].code);
    hutch_http_task *task = ask(&r, NULL);
    answer a = read_answer(task);
    CHECK_EQUAL(rows[index].is_fresh, a.from_cache);
    CHECK(strcmp(a.body, rows[index].is_fresh ? "body" : "other") == 0);
    CHECK(!a.from_cache || header_is(task, "X-A", "2"));
    hutch_http_task_release(task);
    stop(&r);
    check_note(NULL);
  }
}

/* ---------------------------------------------------------------------- Vary */

TEST(vary_ignores_how_a_list_is_written) {
  static const struct { const char *vary, *first, *second; bool is_same; } rows[] = {
      {"X-Kind", "X-Kind: 1, 2", "X-Kind: 1,2", true},
      {"X-Kind", "X-Kind: 1, 2", "X-Kind:  1 ,  2 ", true},
      {"X-Kind", "X-Kind: 1, 2", "X-Kind: 2, 1", false},
      {"X-Kind", "X-Kind: a", "X-Kind: A", false},
      {"X-Kind", "X-Kind: \"a, b\"", "X-Kind: \"a,b\"", false},
      {"x-kind", "X-KIND: a", "x-kind: a", true},
      {"Accept-Language", "Accept-Language: en, DE", "Accept-Language: EN,de", true},
      {"Accept-Language", "Accept-Language: en, de", "Accept-Language: de, en", true},
      {"Accept-Language", "Accept-Language: en;q=0.8, de", "Accept-Language: de,EN; q=0.8", true},
      {"Accept-Language", "Accept-Language: en;q=0.8, de", "Accept-Language: de;q=0.8, en", false},
      {"Accept-Language", "Accept-Language: en, en-GB", "Accept-Language: en-gb, en", true},
      {"Accept-Language", "Accept-Language: en, de, fr", "Accept-Language: fr, de", false},
      {"Accept-Encoding", "Accept-Encoding: gzip, br, zstd", "Accept-Encoding: zstd,gzip,BR", true},
      {"Accept-Charset", "Accept-Charset: utf-8, x", "Accept-Charset: X, utf-8", true},
      {"Accept", "Accept: text/a, text/b", "Accept: text/b, text/a", false},
      {"Accept-Language", "Accept-Language: en", "X-Other: 1", false}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[256];
    snprintf(name, sizeof name, "written_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=100\nVary: %s\n\nbody",
             rows[index].vary);
    check_note(rows[index].second);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, rows[index].first, 200, "body", false);
    expect(&r, rows[index].second, 200, "body", rows[index].is_same);
    stop(&r);
    check_note(NULL);
  }
}

TEST(a_star_in_vary_matches_nothing_however_it_is_written) {
  ROWS(star,
       {"*", "Cache-Control: max-age=100\nVary: *", 1, NULL, 2, 0},
       {"*, *", "Cache-Control: max-age=100\nVary: *, *", 1, NULL, 2, 0},
       {"two lines", "Cache-Control: max-age=100\nVary: *\nVary: *", 1, NULL, 2, 0},
       {"*, Foo", "Cache-Control: max-age=100\nVary: *, Foo", 1, NULL, 2, 0},
       {"Foo, *", "Cache-Control: max-age=100\nVary: Foo, *", 1, NULL, 2, 0},
       {"an empty member", "Cache-Control: max-age=100\nVary: , *", 1, NULL, 2, 0},
       {"an empty line", "Cache-Control: max-age=100\nVary:\nVary: *", 1, NULL, 2, 0},
       {"empty", "Cache-Control: max-age=100\nVary:", 1, NULL, 1, 0},
       {"no name", "Cache-Control: max-age=100\nVary: a b", 1, NULL, 2, 0});
}

TEST(variants_of_a_url_do_not_throw_each_other_away) {
  rig r = start("variants", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nVary: X-Kind\n\nbody");
  char header[32];
  for (int round = 0; round < 2; round++)
    for (int kind = 0; kind < 16; kind++) {
      snprintf(header, sizeof header, "X-Kind: %d", kind);
      expect(&r, header, 200, "body", round == 1);
    }
  CHECK_EQUAL(16, asked(&r));
  /* One more, and the oldest goes. */
  expect(&r, "X-Kind: 16", 200, "body", false);
  expect(&r, "X-Kind: 1", 200, "body", true);
  expect(&r, "X-Kind: 0", 200, "body", false);
  CHECK_EQUAL(1, count_of(r.cache));
  stop(&r);
}

/* -------------------------------------------------------------- invalidation */

TEST(a_method_that_is_not_known_removes_what_is_stored) {
  static const struct { const char *method; const char *code; bool is_removed; } rows[] = {
      {"PUT", "200 OK", true},     {"DELETE", "204 Gone", true}, {"POST", "303 See", true},
      {"M-SEARCH", "200 OK", true}, {"POST", "404 No", false},   {"POST", "500 No", false},
      {"OPTIONS", "200 OK", false}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[128];
    snprintf(name, sizeof name, "method_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=100\n\nbody\n====\n%s\n\n",
             rows[index].code);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, NULL, 200, "body", false);
    hutch_http_request request = request_of(&r);
    request.method = rows[index].method;
    hutch_http_task_release(fetch(r.session, &request));
    CHECK_EQUAL(rows[index].is_removed ? 504 : 200,
                answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
    stop(&r);
  }
}

/* ---------------------------------------------------------------- coalescing */

TEST(sixty_four_callers_of_one_slow_url_make_one_request) {
  enum { CALLERS = 64 };
  rig r = start("sixty_four", 0);
  tell(&r, "hold 200 OK\nCache-Control: max-age=100\n\nbody");
  hutch_http_request request = request_of(&r);
  hutch_http_task *tasks[CALLERS];
  for (int index = 0; index < CALLERS; index++) tasks[index] = begin(r.session, &request);
  while (asked(&r) == 0) continue;
  go(&r);
  for (int index = 0; index < CALLERS; index++) {
    CHECK_EQUAL(HUTCH_OK, result_of(tasks[index]));
    CHECK(strcmp(read_answer(tasks[index]).body, "body") == 0);
    hutch_http_task_release(tasks[index]);
  }
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}
