/* Parts of bodies in the cache: RFC 9111, sections 3.3 and 3.4. */
#include "rig.h"

#define PART(from, to, tag)                                                     \
  "206 Partial Content\nContent-Range: bytes " #from "-" #to "/10\nCache-Control: max-age=100\n" \
  "ETag: " tag "\n\n"
#define WHOLE "0123456789"

TEST(a_part_of_a_whole_body_is_answered) {
  static const struct { const char *range, *body; int code; } rows[] = {
      {"bytes=2-5", "2345", 206},  {"bytes=5-", "56789", 206},   {"bytes=-1", "9", 206},
      {"bytes=-99", WHOLE, 206},   {"bytes=0-99", WHOLE, 206},   {"bytes=10-", "", 416},
      {"bytes=2-1", WHOLE, 200},   {"bytes=0-0,2-2", WHOLE, 200}, {"items=0-1", WHOLE, 200}};
  rig r = start("part_of_whole", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\n\n" WHOLE);
  expect(&r, NULL, 200, WHOLE, false);
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char header[64];
    snprintf(header, sizeof header, "Range: %s", rows[index].range);
    check_note(rows[index].range);
    expect(&r, header, rows[index].code, rows[index].body, true);
  }
  CHECK_EQUAL(1, asked(&r));
  stop(&r);
}

TEST(a_stored_part_answers_for_its_own_bytes) {
  rig r = start("stored_part", 0);
  tell(&r, PART(2, 7, "\"1\"") "234567\n====\n404 No\n\nno");
  expect(&r, "Range: bytes=2-7", 206, "234567", false);
  expect(&r, "Range: bytes=2-7", 206, "234567", true);
  hutch_http_task *task = ask(&r, "Range: bytes=3-5");
  CHECK(read_answer(task).from_cache);
  CHECK(header_is(task, "Content-Range", "bytes 3-5/10"));
  CHECK(header_is(task, "ETag", "\"1\""));
  const char *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Content-Range", 1, &value));
  CHECK(body_has(task, "345"));
  hutch_http_task_release(task);
  expect(&r, "Range: bytes=-3", 404, "no", false);
  stop(&r);
  /* Other bytes, the whole, other conditions and a stale part are not answered by it. */
  static const struct { const char *header; int64_t passed; } rows[] = {
      {"Range: bytes=0-3", 0}, {"Range: bytes=7-8", 0}, {"Range: bytes=3-", 0},
      {"Range: bytes=3-5", 100}, {"Range: items=3-5", 0}, {"Range: bytes=3-4,6-6", 0},
      {"X-No: range", 0}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    check_note(rows[index].header);
    r = start("stored_part", 0);
    tell(&r, PART(2, 7, "\"1\"") "234567\n====\n404 No\n\nno");
    expect(&r, "Range: bytes=2-7", 206, "234567", false);
    CHECK_EQUAL(504, answer_to(&r, "Range: bytes=0-3", HUTCH_HTTP_CACHE_ONLY).code);
    CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
    seconds += rows[index].passed;
    expect(&r, rows[index].header, 404, "no", false);
    stop(&r);
  }
}

TEST(a_part_with_every_byte_is_the_whole) {
  static const char *tags[] = {"\nETag: \"1\"", "\nETag: W/\"1\"", ""};
  for (int index = 0; index < 3; index++) {
    char text[256];
    snprintf(text, sizeof text,
             "206 Partial Content\nContent-Range: bytes 0-9/10\nCache-Control: max-age=100%s\n\n"
             WHOLE, tags[index]);
    rig r = start("every_byte", 0);
    tell(&r, text);
    expect(&r, "Range: bytes=0-", 206, WHOLE, false);
    hutch_http_task *task = ask(&r, NULL);
    answer a = read_answer(task);
    CHECK(a.code == 200 && a.from_cache && strcmp(a.body, WHOLE) == 0);
    CHECK(header_is(task, "Content-Length", "10"));
    const char *value;
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Content-Range", 0, &value));
    hutch_http_task_release(task);
    expect(&r, "Range: bytes=3-5", 206, "345", true);
    CHECK_EQUAL(1, asked(&r));
    stop(&r);
  }
}

TEST(a_part_is_stored_if_it_was_asked_for_and_says_where_it_is) {
  static const struct { const char *what, *answer, *header; } rows[] = {
      {"not asked for", PART(0, 3, "\"1\"") "0123", "X-No: range"},
      {"no Content-Range", "206 Part\nCache-Control: max-age=100\n\n0123", "Range: bytes=0-3"},
      {"no size", "206 Part\nContent-Range: bytes 0-3/*\nCache-Control: max-age=100\n\n0123",
       "Range: bytes=0-3"},
      {"another length", PART(0, 5, "\"1\"") "0123", "Range: bytes=0-5"},
      {"behind the end", PART(8, 11, "\"1\"") "0123", "Range: bytes=8-11"},
      {"several parts", "206 Part\nContent-Type: multipart/byteranges; boundary=x\n"
       "Cache-Control: max-age=100\n\n0123", "Range: bytes=0-1,3-4"},
      {"no-store", "206 Part\nContent-Range: bytes 0-3/10\nCache-Control: no-store\n\n0123",
       "Range: bytes=0-3"}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32];
    snprintf(name, sizeof name, "no_part_%zu", index);
    check_note(rows[index].what);
    rig r = start(name, 0);
    tell(&r, rows[index].answer);
    answer_to(&r, rows[index].header, 0);
    CHECK_EQUAL(0, count_of(r.cache));
    stop(&r);
  }
}

TEST(a_stored_part_is_completed_by_the_rest_of_the_same_version) {
  rig r = start("completed", 0);
  tell(&r, PART(0, 3, "\"1\"") "0123\n====\n"
           "206 Partial Content\nContent-Range: bytes 4-9/10\nETag: \"1\"\nX-New: 1\n"
           "Cache-Control: max-age=50\n\n456789");
  expect(&r, "Range: bytes=0-3", 206, "0123", false);
  seconds += 10;
  hutch_http_task *task = ask(&r, NULL);
  CHECK(asked_with(&r, "range: bytes=4-\n") && asked_with(&r, "if-range: \"1\"\n"));
  answer a = read_answer(task);
  CHECK_EQUAL(200, a.code);
  CHECK(strcmp(a.body, WHOLE) == 0);
  CHECK_EQUAL(1, a.requests);
  CHECK(header_is(task, "Content-Length", "10") && header_is(task, "X-New", "1"));
  CHECK(header_is(task, "Cache-Status", "hutch; fwd=partial; fwd-status=206; ttl=50"));
  const char *value;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_header(task, "Content-Range", 0, &value));
  hutch_http_task_release(task);
  expect(&r, NULL, 200, WHOLE, true);
  expect(&r, "Range: bytes=3-4", 206, "34", true);
  CHECK_EQUAL(2, asked(&r));
  stop(&r);
  /* The first bytes are missing. */
  r = start("completed_before", 0);
  tell(&r, PART(6, 9, "\"1\"") "6789\n====\n" PART(0, 5, "\"1\"") "012345");
  expect(&r, "Range: bytes=6-", 206, "6789", false);
  expect(&r, NULL, 200, WHOLE, true);
  CHECK(asked_with(&r, "range: bytes=0-5\n"));
  stop(&r);
}

TEST(parts_of_two_versions_are_never_put_together) {
  static const struct { const char *what, *answer; int requests; } rows[] = {
      {"another tag", PART(4, 9, "\"2\"") "EFGHIJ", 2},
      {"a weak tag", PART(4, 9, "W/\"1\"") "EFGHIJ", 2},
      {"no tag",
       "206 Partial Content\nContent-Range: bytes 4-9/10\nCache-Control: max-age=100\n\nEFGHIJ", 2},
      {"another range", PART(5, 9, "\"1\"") "FGHIJ", 2},
      {"another size",
       "206 Partial Content\nContent-Range: bytes 4-9/11\nETag: \"1\"\n\nEFGHIJ", 2},
      {"too few bytes", PART(4, 9, "\"1\"") "EFGHI", 2},
      {"too many bytes", PART(4, 9, "\"1\"") "EFGHIJK", 2},
      {"no Content-Range", "206 Partial Content\nETag: \"1\"\n\nEFGHIJ", 2},
      {"compressed",
       "206 Partial Content\nContent-Range: bytes 4-9/10\nETag: \"1\"\nContent-Encoding: gzip\n\n"
       "EFGHIJ", 2},
      {"no such range", "416 No\nContent-Range: bytes */4\n\nno", 2},
      {"304", "304 Not Modified\nETag: \"1\"\n\n", 2},
      {"the whole", "200 OK\nCache-Control: max-age=100\nETag: \"2\"\n\nABCDEFGHIJ", 1}};
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    char name[32], text[1024];
    snprintf(name, sizeof name, "two_versions_%zu", index);
    snprintf(text, sizeof text,
             PART(0, 3, "\"1\"") "0123\n====\n%s\n====\n"
             "200 OK\nCache-Control: max-age=100\nETag: \"2\"\n\nABCDEFGHIJ", rows[index].answer);
    check_note(rows[index].what);
    rig r = start(name, 0);
    tell(&r, text);
    expect(&r, "Range: bytes=0-3", 206, "0123", false);
    answer a = answer_to(&r, NULL, 0);
    CHECK_EQUAL(200, a.code);
    CHECK(strcmp(a.body, "ABCDEFGHIJ") == 0);
    CHECK_EQUAL(rows[index].requests, a.requests);
    CHECK(!a.from_cache);
    CHECK(rows[index].requests == 1 || !asked_with(&r, "range:"));
    expect(&r, NULL, 200, "ABCDEFGHIJ", true);
    stop(&r);
  }
  check_note(NULL);
  /* Without a strong validator, or with a hole, the whole is asked for. */
  static const char *const parts[] = {PART(0, 3, "W/\"1\"") "0123", PART(2, 5, "\"1\"") "2345",
                                      PART(0, 3, "1") "0123"};
  for (size_t index = 0; index < sizeof parts / sizeof *parts; index++) {
    char name[32], text[512];
    snprintf(name, sizeof name, "no_rest_%zu", index);
    snprintf(text, sizeof text, "%s\n====\n200 OK\n\n" WHOLE, parts[index]);
    rig r = start(name, 0);
    tell(&r, text);
    answer_to(&r, index == 1 ? "Range: bytes=2-5" : "Range: bytes=0-3", 0);
    expect(&r, NULL, 200, WHOLE, false);
    CHECK(!asked_with(&r, "range:"));
    stop(&r);
  }
}

TEST(parts_that_touch_become_one) {
  rig r = start("touching", 0);
  tell(&r, PART(0, 3, "\"1\"") "0123\n====\n" PART(2, 5, "\"1\"") "2345\n====\n"
           PART(6, 9, "\"1\"") "6789");
  expect(&r, "Range: bytes=0-3", 206, "0123", false);
  expect(&r, "Range: bytes=2-5", 206, "2345", false);
  expect(&r, "Range: bytes=0-5", 206, "012345", true);
  expect(&r, "Range: bytes=6-9", 206, "6789", false);
  expect(&r, NULL, 200, WHOLE, true);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
  /* Of another version, or far away: the newer one is kept. */
  r = start("not_touching", 0);
  tell(&r, PART(0, 3, "\"1\"") "0123\n====\n" PART(2, 5, "\"2\"") "CDEF\n====\n"
           PART(8, 9, "\"2\"") "IJ\n====\n404 No\n\nno");
  expect(&r, "Range: bytes=0-3", 206, "0123", false);
  expect(&r, "Range: bytes=2-5", 206, "CDEF", false);
  expect(&r, "Range: bytes=3-4", 206, "DE", true);
  expect(&r, "Range: bytes=8-9", 206, "IJ", false);
  expect(&r, "Range: bytes=8-8", 206, "I", true);
  expect(&r, "Range: bytes=0-1", 404, "no", false);
  stop(&r);
}

TEST(a_part_of_the_stored_version_updates_the_whole) {
  rig r = start("updated_by_part", 0);
  tell(&r, "200 OK\nCache-Control: max-age=1\nETag: \"1\"\nX-A: 1\n\n" WHOLE "\n====\n"
           "206 Partial Content\nContent-Range: bytes 0-3/10\nCache-Control: max-age=100\n"
           "ETag: \"1\"\nX-A: 2\n\n0123");
  expect(&r, NULL, 200, WHOLE, false);
  seconds += 5;
  expect(&r, "Range: bytes=0-3", 206, "0123", false);
  hutch_http_task *task = ask(&r, NULL);
  answer a = read_answer(task);
  CHECK(a.from_cache && strcmp(a.body, WHOLE) == 0 && header_is(task, "X-A", "2"));
  CHECK(header_is(task, "Content-Length", "10"));
  hutch_http_task_release(task);
  stop(&r);
}

static void lose(rig *r) {
  hutch_http_request request = request_of(r);
  hutch_http_task *task = begin(r->session, &request);
  CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(task));
  hutch_http_task_release(task);
}

TEST(a_response_that_was_cut_is_continued) {
  rig r = start("cut", 0);
  tell(&r, "cut 4 200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE "\n====\n"
           "cut 3 206 Partial Content\nContent-Range: bytes 4-9/10\nCache-Control: max-age=100\n"
           "ETag: \"1\"\n\n456789\n====\n" PART(7, 9, "\"1\"") "789");
  lose(&r);
  /* What is stored is not the whole. */
  CHECK_EQUAL(504, answer_to(&r, NULL, HUTCH_HTTP_CACHE_ONLY).code);
  expect(&r, "Range: bytes=1-2", 206, "12", true);
  lose(&r);
  CHECK(asked_with(&r, "range: bytes=4-\n"));
  expect(&r, NULL, 200, WHOLE, true);
  CHECK(asked_with(&r, "range: bytes=7-\n"));
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
  static const char *const answers[] = {
      "cut 4 200 OK\nCache-Control: max-age=100\n\n" WHOLE,
      "cut 4 200 OK\nCache-Control: no-store\nETag: \"1\"\n\n" WHOLE,
      "cut 4 404 No\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE,
      "cut 0 200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE,
      "cut 4 200 OK\nCache-Control: max-age=100\nETag: \"1\"\nContent-Encoding: gzip\n\n" WHOLE};
  for (size_t index = 0; index < sizeof answers / sizeof *answers; index++) {
    char name[32];
    snprintf(name, sizeof name, "cut_%zu", index);
    r = start(name, 0);
    tell(&r, answers[index]);
    lose(&r);
    CHECK_EQUAL(0, count_of(r.cache));
    stop(&r);
  }
}

TEST(a_part_keeps_what_vary_names) {
  rig r = start("part_vary", 0);
  tell(&r, "cut 4 200 OK\nCache-Control: max-age=100\nETag: \"1\"\nVary: X-Kind\n\n" WHOLE
           "\n====\n200 OK\nVary: X-Kind\n\nother\n====\n" PART(4, 9, "\"1\"") "456789");
  hutch_http_request request = request_of(&r);
  hutch_http_header kind = {"X-Kind", "1"};
  request.headers = &kind;
  request.header_count = 1;
  hutch_http_task *task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(task));
  hutch_http_task_release(task);
  expect(&r, "X-Kind: 2", 200, "other", false);
  CHECK(!asked_with(&r, "range:"));
  expect(&r, "X-Kind: 1", 200, WHOLE, true);
  expect(&r, "X-Kind: 1", 200, WHOLE, true);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}

TEST(a_part_of_the_stored_version_may_change_vary) {
  rig r = start("part_new_vary", 0);
  tell(&r, "200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE "\n====\n"
           "206 Partial Content\nContent-Range: bytes 0-1/10\nCache-Control: max-age=100\n"
           "ETag: \"1\"\nVary: X-Kind\n\n01\n====\n200 OK\n\nother");
  expect(&r, NULL, 200, WHOLE, false);
  hutch_http_header headers[] = {{"Range", "bytes=0-1"}, {"X-Kind", "1"}};
  hutch_http_request request = request_of(&r);
  request.headers = headers;
  request.header_count = 2;
  request.cache_mode = HUTCH_HTTP_CACHE_RELOAD;
  hutch_http_task_release(fetch(r.session, &request));
  expect(&r, "X-Kind: 2", 200, "other", false);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}

TEST(a_range_that_is_not_there_says_nothing_of_the_whole) {
  rig r = start("no_such_range", 0);
  tell(&r, "416 No\nCache-Control: max-age=100\nContent-Range: bytes */10\n\nno\n====\n"
           "200 OK\nCache-Control: max-age=100\n\n" WHOLE);
  expect(&r, "Range: bytes=10-", 416, "no", false);
  expect(&r, NULL, 200, WHOLE, false);
  expect(&r, NULL, 200, WHOLE, true);
  stop(&r);
}

TEST(a_rest_that_came_with_credentials_is_not_for_others) {
  rig r = start("rest_authorization", SHARED);
  tell(&r, "cut 4 200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE "\n====\n"
           PART(4, 9, "\"1\"") "456789");
  lose(&r);
  expect(&r, "Authorization: Basic YTpi", 200, WHOLE, true);
  CHECK_EQUAL(2, asked(&r));
  expect(&r, NULL, 200, WHOLE, true);
  CHECK_EQUAL(3, asked(&r));
  expect(&r, NULL, 200, WHOLE, true);
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}

TEST(a_rest_that_is_not_to_be_stored_and_is_cut_is_not_kept) {
  rig r = start("rest_no_store", 0);
  tell(&r, "cut 4 200 OK\nCache-Control: max-age=100\nETag: \"1\"\n\n" WHOLE "\n====\n"
           "cut 2 206 Partial Content\nContent-Range: bytes 4-9/10\nCache-Control: no-store\n"
           "ETag: \"1\"\n\n456789\n====\n" PART(4, 9, "\"1\"") "456789");
  lose(&r);
  lose(&r);
  expect(&r, NULL, 200, WHOLE, true);
  CHECK(asked_with(&r, "range: bytes=4-\n"));
  CHECK_EQUAL(3, asked(&r));
  stop(&r);
}
