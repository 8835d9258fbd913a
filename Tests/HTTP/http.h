/*
 * http.h - what the tests of libhutch_http share
 *
 * The servers of servers.py run for all cases; the environment variable HUTCH_HTTP_SERVERS
 * names their directory.
 */
#ifndef HTTP_H
#define HTTP_H

#include "check.h"
#include "hutch_http.h"

/* Text that stays until the end of the process: the format has at most two strings. */
const char *kept(const char *format, const char *a, const char *b);

/* What servers.txt says of a name. */
const char *told(const char *name);

/* The URL of a path on one of the servers: plain, h2c, good, wrong, old, own, asks, wire,
   origin, and "nobody", a port without a server. Kept until the end of the process. */
const char *url_of(const char *server, const char *path);

/* A file in the directory of the servers: "authority.pem", say. Kept likewise. */
const char *file_of(const char *name);

hutch_http_session *new_session(const hutch_http_configuration *configuration);
/* Ends it, waits, and releases it. */
void end_session(hutch_http_session *session);

hutch_http_request get(const char *url);

/* Makes the task of a request and resumes it. */
hutch_http_task *begin(hutch_http_session *session, const hutch_http_request *request);
/* Waits for the end and returns the status. */
hutch_status result_of(hutch_http_task *task);
/* Waits until a callback of the task has set this; the test fails if the task ends before. */
void await_callback(hutch_http_task *task, const _Atomic int *is_made);
/* begin and result_of. */
hutch_http_task *fetch(hutch_http_session *session, const hutch_http_request *request);

hutch_http_response response_of(hutch_http_task *task);
hutch_error error_of(hutch_http_task *task);
bool body_has(hutch_http_task *task, const char *text);
uint32_t state_of(hutch_http_task *task);

/* A request with a new session ends with this status. Returns its words. */
const char *status_of(const hutch_http_configuration *configuration,
                      const hutch_http_request *request, hutch_status expected);

/* Counts callbacks and keeps what the last one said. */
typedef struct counts {
  _Atomic int completions, releases, responses, progresses, redirects, challenges;
  _Atomic hutch_status status;
  _Atomic uint64_t received, sent, expected;
  _Atomic pthread_t thread;
  char words[232];
} counts;

void count_completion(void *context, const hutch_http_completion *completion);
void count_release(void *context);
void count_response(void *context, hutch_http_task *task);
void count_progress(void *context, hutch_http_task *task, const hutch_http_progress *progress);

/* The request with these callbacks. */
hutch_http_request counted(const char *url, counts *c);

#endif
