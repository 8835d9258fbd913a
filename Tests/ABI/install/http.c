/* A program that knows of libhutch_http what is installed. No server is needed: what the cache of
   the session has answers. */
#include <hutch_http.h>
#include <stdio.h>

int main(void) {
  hutch_cache *cache;
  hutch_http_session *session;
  hutch_http_task *task;
  hutch_http_configuration configuration = {.struct_size = sizeof configuration};
  hutch_http_request request = {.struct_size = sizeof request, .url = "http://localhost/"};
  hutch_http_response response = {.struct_size = sizeof response};
  if (hutch_open("cache", NULL, &cache) != HUTCH_OK) return 1;
  configuration.cache = cache;
  configuration.cache_mode = HUTCH_HTTP_CACHE_ONLY;
  if (hutch_http_session_create(&configuration, &session) != HUTCH_OK) return 2;
  if (hutch_http_task_create(session, &request, &task) != HUTCH_OK) return 3;
  if (hutch_http_task_resume(task) != HUTCH_OK) return 4;
  if (hutch_http_task_wait(task, HUTCH_FOREVER) != HUTCH_OK) return 5;
  if (hutch_http_task_response(task, &response) != HUTCH_OK || response.code != 504) return 6;
  puts("value");
  hutch_http_task_release(task);
  hutch_http_session_release(session);
  return hutch_close(cache);
}
