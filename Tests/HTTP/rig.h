/*
 * rig.h - what the tests of caching share: a session with a cache, on a clock that stands still,
 * and a resource of the origin server (origin.py)
 */
#ifndef RIG_H
#define RIG_H

#include "http.h"

#define START INT64_C(1800000000) /* as in origin.py */

/* The time of the caches, in Unix seconds. */
extern _Atomic int64_t seconds;
int64_t the_time(void *context);

/* A session with a cache, and a resource of the origin server. */
typedef struct rig {
  hutch_cache *cache;
  hutch_http_session *session, *plain;
  hutch_http_configuration configuration;
  const char *name; /* of the resource */
} rig;

rig start(const char *name, uint32_t cache_flags);
void stop(rig *r);

/* A request to the origin that is about the resource: PUT tell, GET count, GET go. */
hutch_http_task *control(rig *r, const char *method, const char *verb, const char *body);
/* What the origin answers from now on. */
void tell(rig *r, const char *answers);
/* The origin answers what it holds. */
void go(rig *r);
/* How many requests the origin has had since then. */
int asked(rig *r);
/* Returns when all tasks of the session that were made before have begun, and the origin has had a
   request. */
void let_begin(rig *r);
/* Whether the last of them had this line, in small letters up to the colon. */
bool asked_with(rig *r, const char *line);

hutch_http_request request_of(rig *r);
/* A GET with at most one header, "Name: value". */
hutch_http_task *ask_in(rig *r, const char *header, uint32_t mode);
hutch_http_task *ask(rig *r, const char *header);

typedef struct answer {
  int code;
  bool from_cache;
  int requests;
  char body[64];
} answer;

answer read_answer(hutch_http_task *task);
answer answer_to(rig *r, const char *header, uint32_t mode);
void expect(rig *r, const char *header, int code, const char *body, bool from_cache);
bool header_is(hutch_http_task *task, const char *name, const char *expected);

typedef struct row {
  const char *what;
  const char *headers;  /* of the response */
  int64_t passed;       /* seconds until the second request */
  const char *request;  /* a header of the second request, or NULL */
  int expected;         /* requests that the origin gets */
  uint32_t flags;
} row;

/* Each row with a resource of its own. The response is "200 OK" unless the headers begin with a
   digit. */
void check_rows(const char *name, const row *rows, size_t count);

#define ROWS(name, ...)                                     \
  do {                                                      \
    static const row rows[] = {__VA_ARGS__};                \
    check_rows(#name, rows, sizeof rows / sizeof *rows);    \
  } while (0)

#define SHARED HUTCH_HTTP_CACHE_SHARED

#endif
