/* Responses that cost much, have no end, or come while a callback runs; and what is left of an
   older response. */
#include "rig.h"

/* -------------------------------------------------------------- many headers */

/* The work for a response must not grow with the square of its headers: the session has one
   thread, and 60,000 of them would keep it for minutes. */
TEST(a_response_with_very_many_headers_comes_and_is_not_stored) {
  static const struct { const char *query; bool is_stored; } rows[] = {
      {"line=X-Any:+1&n=990", true},
      {"line=X-Any:+1&n=1010", false},
      {"line=a:", false},
      {"line=Vary:+a", false},
      {"line=Connection:+a", false},
      {"line=Cache-Control:+no-cache%3D%22a%22", false},
      /* These are one header. */
      {"line=+b", true}};
  rig r = start("many_headers", 0);
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    check_note(rows[index].query);
    const char *path = kept("/short_headers?%s%s", rows[index].query, "");
    hutch_http_request request = get(url_of("wire", path));
    for (int turn = 0; turn < 2; turn++) {
      hutch_http_task *task = fetch(r.session, &request);
      hutch_http_response response = response_of(task);
      const char *value;
      CHECK(response.code == 200 && response.body_size == 4);
      CHECK_OK(hutch_http_task_header(task, "x-first", 0, &value));
      CHECK_EQUAL('1', value[0]);
      CHECK_EQUAL(turn == 1 && rows[index].is_stored, response.from_cache);
      hutch_http_task_release(task);
    }
  }
  check_note(NULL);
  stop(&r);
}

TEST(a_304_with_very_many_headers_confirms_and_removes) {
  rig r = start("many_in_304", 0);
  char text[30000] = "200 OK\nCache-Control: max-age=1\nETag: \"1\"\n\nold\n====\n"
                     "304 Not Modified\nETag: \"1\"\nCache-Control: max-age=100\n";
  size_t size = strlen(text);
  for (int line = 0; line < 1500; line++)
    size += (size_t)snprintf(text + size, sizeof text - size, "X-%d: 1\n", line);
  strcat(text, "\n\n====\n200 OK\n\nnew");
  tell(&r, text);
  expect(&r, NULL, 200, "old", false);
  seconds += 2;
  expect(&r, NULL, 200, "old", true);
  expect(&r, NULL, 200, "new", false);
  stop(&r);
}
