/* What the RFCs of caching recommend to a cache beyond what they require. docs/http-caching.md
   lists which requirement each case tests. */
#include "rig.h"

static hutch_http_task *ask_compressed(rig *r, const char *name, const char *value) {
  hutch_http_header header = {name, value};
  hutch_http_request request = request_of(r);
  request.flags = HUTCH_HTTP_COMPRESSED;
  request.headers = &header;
  request.header_count = name ? 1 : 0;
  return fetch(r->session, &request);
}

TEST(dates_are_read_whatever_the_case) {
  ROWS(case,
       {"weekday", "Date: {date+0}\nExpires: MON, 18 Jan 2077 08:00:00 GMT", 1, NULL, 1, 0},
       {"month", "Date: {date+0}\nExpires: Mon, 18 JAN 2077 08:00:00 GMT", 1, NULL, 1, 0},
       {"zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 gmT", 1, NULL, 1, 0},
       {"RFC 850", "Date: {date+0}\nExpires: monday, 18-jan-77 08:00:00 gmt", 1, NULL, 1, 0},
       {"asctime", "Date: {date+0}\nExpires: mon jan 18 08:00:00 2077", 1, NULL, 1, 0},
       {"another zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 UTC", 1, NULL, 2, 0},
       {"no month", "Date: {date+0}\nExpires: Mon, 18 Jam 2077 08:00:00 GMT", 1, NULL, 2, 0},
       {"half a zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 GM", 1, NULL, 2, 0},
       {"more", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 GMT0", 1, NULL, 2, 0});
}

/* -------------------------------------------------------------- validation */

TEST(a_fresh_response_that_is_immutable_is_not_validated) {
  rig r = start("immutable", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100, immutable\nETag: \"1\"\n\none\n====\n"
           "304 Not Modified\nETag: \"1\"\n\n\n====\n"
           "200 OK\nCache-Control: max-age=100, Immutable\nETag: \"2\"\n\ntwo\n====\n"
           "304 Not Modified\nETag: \"2\"\n\n");
  expect(&r, NULL, 200, "one", false);
  seconds += 99;
  answer a = answer_to(&r, NULL, HUTCH_HTTP_CACHE_VALIDATE);
  CHECK(a.from_cache && strcmp(a.body, "one") == 0);
  CHECK_EQUAL(1, asked(&r));
  /* Stale: the promise has ended. */
  seconds += 2;
  CHECK(answer_to(&r, NULL, HUTCH_HTTP_CACHE_VALIDATE).from_cache);
  CHECK_EQUAL(2, asked(&r));
  CHECK(asked_with(&r, "if-none-match: \"1\"\n"));
  /* The host insists. */
  CHECK(!answer_to(&r, NULL, HUTCH_HTTP_CACHE_RELOAD).from_cache);
  CHECK_EQUAL(3, asked(&r));
  answer b = answer_to(&r, "Cache-Control: no-cache", 0);
  CHECK(b.from_cache && strcmp(b.body, "two") == 0);
  CHECK_EQUAL(4, asked(&r));
  stop(&r);
}

TEST(a_validation_asks_the_caches_on_the_way_too) {
  rig r = start("on_the_way", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\none\n====\n"
           "304 Not Modified\nETag: \"1\"\n\n");
  expect(&r, NULL, 200, "one", false);
  CHECK(!asked_with(&r, "cache-control:"));
  CHECK(answer_to(&r, NULL, HUTCH_HTTP_CACHE_VALIDATE).from_cache);
  CHECK(asked_with(&r, "cache-control: max-age=0\n") && asked_with(&r, "if-none-match: \"1\"\n"));
  /* What the host says stays as it is. */
  CHECK(answer_to(&r, "Cache-Control: max-age=7", HUTCH_HTTP_CACHE_VALIDATE).from_cache);
  CHECK(asked_with(&r, "cache-control: max-age=7\n"));
  CHECK(!asked_with(&r, "cache-control: max-age=0"));
  CHECK_EQUAL(3, asked(&r));
  /* A response that has become stale is validated by the next cache that has a fresh one. */
  seconds += 200;
  expect(&r, NULL, 200, "one", true);
  CHECK_EQUAL(4, asked(&r));
  CHECK(!asked_with(&r, "cache-control:"));
  stop(&r);
}

/* ------------------------------------------------------------------ codings */

TEST(a_range_is_asked_for_without_compression) {
  rig r = start("range_plain", 0);
  tell(&r, "206 Partial Content\nContent-Range: bytes 2-5/10\nETag: \"1\"\n"
           "Vary: Accept-Encoding\nCache-Control: max-age=100\n\n2345\n====\n"
           "206 Partial Content\nContent-Range: bytes 0-1/10\nETag: \"1\"\n"
           "Vary: Accept-Encoding\nCache-Control: max-age=100\n\n01\n====\n"
           "206 Partial Content\nContent-Range: bytes 6-9/10\nETag: \"1\"\n"
           "Vary: Accept-Encoding\nCache-Control: max-age=100\n\n6789");
  static const struct { const char *range, *body; bool from_cache; } rows[] = {
      {"bytes=2-5", "2345", false}, {"bytes=2-5", "2345", true}, {"bytes=3-4", "34", true},
      {"bytes=0-1", "01", false},   {"bytes=0-3", "0123", true}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    check_note(rows[index].range);
    hutch_http_task *task = ask_compressed(&r, "Range", rows[index].range);
    answer a = read_answer(task);
    CHECK_EQUAL(206, a.code);
    CHECK(strcmp(a.body, rows[index].body) == 0);
    CHECK_EQUAL(rows[index].from_cache, a.from_cache);
    hutch_http_task_release(task);
    CHECK(!asked_with(&r, "accept-encoding:"));
  }
  check_note(NULL);
  /* The whole, of which the rest is asked for. */
  hutch_http_task *task = ask_compressed(&r, NULL, NULL);
  answer a = read_answer(task);
  CHECK(a.code == 200 && strcmp(a.body, "0123456789") == 0);
  hutch_http_task_release(task);
  CHECK_EQUAL(3, asked(&r));
  CHECK(asked_with(&r, "range: bytes=6-\n"));
  stop(&r);
}

TEST(a_body_of_an_unknown_coding_comes_as_it_is) {
  static const struct { const char *coding, *body; } rows[] = {
      {"rot13", "obql"}, {"gzip, rot13", "obql"}, {"UTF-8", "body"}, {"identity", "body"}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[256];
    snprintf(name, sizeof name, "coding_%zu", index);
    snprintf(text, sizeof text, "200 OK\nCache-Control: max-age=100\nContent-Encoding: %s\n\n%s",
             rows[index].coding, rows[index].body);
    check_note(rows[index].coding);
    rig r = start(name, 0);
    tell(&r, text);
    for (int time = 0; time < 2; time++) {
      hutch_http_task *task = ask_compressed(&r, NULL, NULL);
      answer a = read_answer(task);
      CHECK_EQUAL(200, a.code);
      CHECK(strcmp(a.body, rows[index].body) == 0);
      CHECK_EQUAL(time == 1, a.from_cache);
      CHECK(header_is(task, "Content-Encoding", rows[index].coding));
      hutch_http_task_release(task);
    }
    CHECK_EQUAL(1, asked(&r));
    stop(&r);
    check_note(NULL);
  }
}

/* -------------------------------------------------------------- what libcurl sends */

TEST(a_user_in_the_url_is_an_authorization) {
  for (int is_vary = 0; is_vary < 2; is_vary++) {
    rig r = start(is_vary ? "user_vary" : "user", SHARED);
    tell(&r, is_vary ? "200 OK\nCache-Control: max-age=100, public\nVary: Authorization\n\nbody"
                     : "200 OK\nCache-Control: max-age=100, public\n\nbody");
    const char *users[] = {"ann:a@", "bob:b@", "ann:a@", ""};
    for (int index = 0; index < 4; index++) {
      check_note(users[index]);
      hutch_http_request request = request_of(&r);
      char url[256];
      snprintf(url, sizeof url, "http://%s%s", users[index], strstr(request.url, "://") + 3);
      request.url = url;
      hutch_http_task *task = fetch(r.session, &request);
      answer a = read_answer(task);
      hutch_http_task_release(task);
      CHECK_EQUAL(!is_vary && index > 0, a.from_cache);
      if (!a.from_cache) CHECK_EQUAL(index < 3, asked_with(&r, "authorization: Basic "));
    }
    check_note(NULL);
    CHECK_EQUAL(is_vary ? 4 : 1, asked(&r));
    stop(&r);
  }
}

TEST(a_cookie_of_the_jar_is_told_apart_from_none) {
  rig r = start("jar", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nVary: Cookie\nSet-Cookie: a=1\n\nbody");
  r.configuration.flags = HUTCH_HTTP_COOKIES;
  hutch_http_session *other = r.session;
  r.session = new_session(&r.configuration);
  CHECK(!answer_to(&r, NULL, HUTCH_HTTP_CACHE_NONE).from_cache);
  hutch_http_session *own = r.session;
  r.session = other;
  expect(&r, NULL, 200, "body", false);
  expect(&r, NULL, 200, "body", true);
  r.session = own;
  expect(&r, NULL, 200, "body", false);
  CHECK(asked_with(&r, "cookie: a=1\n"));
  CHECK_EQUAL(3, asked(&r));
  end_session(other);
  stop(&r);
}
