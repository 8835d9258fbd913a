/* Downloads that continue: Range and If-Range, and never parts of two versions in one file. */
#include <sys/stat.h>
#include <unistd.h>

#include "http.h"

enum { WHOLE = 200000, CUT = 70000 };

static hutch_http_session *session;

/* A key of the server's that no other case has. */
static const char *key(void) {
  static char text[32];
  snprintf(text, sizeof text, "%d", (int)getpid());
  return text;
}

/* Asks the server for a path with the key, and returns the body. */
static const char *ask(const char *path, const char *more) {
  static char body[4096];
  char query[512];
  snprintf(query, sizeof query, "%s?key=%s%s", path, key(), more);
  hutch_http_request request = get(url_of("wire", query));
  hutch_http_task *task = fetch(session, &request);
  hutch_http_response response = response_of(task);
  snprintf(body, sizeof body, "%.*s", (int)response.body_size, (const char *)response.body);
  hutch_http_task_release(task);
  return body;
}

static off_t size_of(const char *name) {
  struct stat information;
  return stat(scratch(name).text, &information) == 0 ? information.st_size : -1;
}

/* The one code that the downloads accept; 0: any. */
static uint32_t accepted;

/* Downloads to a file with HUTCH_HTTP_RESUME. */
static void download(hutch_status expected) {
  char query[64];
  snprintf(query, sizeof query, "/part?key=%s", key());
  counts c = {0};
  hutch_http_request request = counted(url_of("wire", query), &c);
  path file = scratch("file");
  request.download = file.text;
  request.flags = HUTCH_HTTP_RESUME;
  request.first_code = request.last_code = accepted;
  hutch_http_task *task = begin(session, &request);
  hutch_status status = result_of(task);
  if (status != expected)
    FAIL("%s: %s", hutch_http_status_name(status), error_of(task).words);
  if (status == HUTCH_OK) CHECK_EQUAL(WHOLE, c.received);
  hutch_http_task_release(task);
}

/* The file is whole, of the version with this letter, and nothing is beside it. */
static void check_file(char letter) {
  CHECK_EQUAL(WHOLE, size_of("file"));
  CHECK_EQUAL(-1, size_of("file.part"));
  CHECK_EQUAL(-1, size_of("file.resume"));
  char *text = malloc(WHOLE);
  FILE *file = fopen(scratch("file").text, "r");
  CHECK(file != NULL && fread(text, 1, WHOLE, file) == WHOLE);
  fclose(file);
  for (int index = 0; index < WHOLE; index++)
    CHECK_EQUAL(index % 10 == 9 ? '\n' : letter, text[index]);
  free(text);
}

/* A connection is lost after CUT bytes of a version. */
static void lose(const char *validator) {
  char more[200];
  snprintf(more, sizeof more, "&cut=%d%s", CUT, validator);
  ask("/set", more);
  download(HUTCH_HTTP_LOST);
}

TEST(a_download_continues_after_a_lost_connection) {
  session = new_session(NULL);
  lose("&tag=%22v1%22");
  CHECK_EQUAL(CUT, size_of("file.part"));
  CHECK(size_of("file.resume") > 0);
  CHECK_EQUAL(-1, size_of("file"));
  /* And again: what was continued is lost once more. */
  ask("/set", "&tag=%22v1%22&cut=30000");
  download(HUTCH_HTTP_LOST);
  CHECK_EQUAL(CUT + 30000, size_of("file.part"));
  ask("/set", "&tag=%22v1%22");
  download(HUTCH_OK);
  check_file('a');
  CHECK(strcmp(ask("/asked", ""), "bytes=100000- \"v1\"\n") == 0);
  /* The next one is whole again. */
  download(HUTCH_OK);
  CHECK(strstr(ask("/asked", ""), "None None\n") != NULL);
  end_session(session);
}

TEST(the_rest_of_a_file_is_accepted_as_the_whole_is) {
  session = new_session(NULL);
  accepted = 200;
  lose("&tag=%22v1%22");
  ask("/set", "&tag=%22v1%22");
  download(HUTCH_OK);
  check_file('a');
  CHECK(strcmp(ask("/asked", ""), "bytes=70000- \"v1\"\n") == 0);
  end_session(session);
}

TEST(a_date_is_a_validator_if_it_is_a_minute_older) {
  session = new_session(NULL);
  lose("&date=Mon,+23+Nov+2026+11:58:00+GMT");
  ask("/set", "&date=Mon,+23+Nov+2026+11:58:00+GMT");
  download(HUTCH_OK);
  check_file('a');
  CHECK(strstr(ask("/asked", ""), "bytes=70000- Mon, 23 Nov 2026 11:58:00 GMT") != NULL);
  lose("&date=Mon,+23+Nov+2026+11:59:30+GMT");
  CHECK_EQUAL(-1, size_of("file.part"));
  end_session(session);
}

TEST(without_a_strong_validator_nothing_is_kept) {
  session = new_session(NULL);
  const char *validators[] = {"", "&tag=W/%22v1%22"};
  for (int index = 0; index < 2; index++) {
    lose(validators[index]);
    CHECK_EQUAL(-1, size_of("file.part"));
    CHECK_EQUAL(-1, size_of("file.resume"));
  }
  end_session(session);
}

TEST(another_version_is_downloaded_whole) {
  session = new_session(NULL);
  lose("&tag=%22v1%22");
  ask("/set", "&tag=%22v2%22&letter=b");
  download(HUTCH_OK);
  check_file('b');
  end_session(session);
}

TEST(an_answer_that_does_not_fit_the_part_begins_again) {
  session = new_session(NULL);
  const char *modes[] = {"ignore", "wrong_start", "wrong_tag", "no_range", "416"};
  for (int index = 0; index < 5; index++) {
    lose("&tag=%22v1%22");
    char more[100];
    snprintf(more, sizeof more, "&tag=%%22v1%%22&letter=c&mode=%s", modes[index]);
    ask("/set", more);
    check_note(modes[index]);
    download(HUTCH_OK);
    check_file('c');
    CHECK(strncmp(ask("/asked", ""), "bytes=70000-", 12) == 0);
    CHECK_EQUAL(0, unlink(scratch("file").text));
  }
  end_session(session);
}

TEST(parts_that_are_not_as_long_as_the_whole_are_refused) {
  session = new_session(NULL);
  lose("&tag=%22v1%22");
  ask("/set", "&tag=%22v1%22&mode=wrong_size");
  download(HUTCH_HTTP_BAD_RESPONSE);
  CHECK_EQUAL(-1, size_of("file"));
  CHECK_EQUAL(-1, size_of("file.part"));
  end_session(session);
}

static void cancel_soon(void *context, hutch_http_task *task,
                        const hutch_http_progress *progress) {
  (void)context;
  if (progress->received >= CUT) CHECK_OK(hutch_http_task_cancel(task, NULL));
}

TEST(a_download_continues_after_a_cancel) {
  hutch_http_configuration configuration = {.struct_size = sizeof configuration,
                                            .progress_interval = 1};
  session = new_session(&configuration);
  ask("/set", "&tag=%22v1%22&cut=70000&stall=1");
  char query[64];
  snprintf(query, sizeof query, "/part?key=%s", key());
  hutch_http_request request = get(url_of("wire", query));
  path file = scratch("file");
  request.download = file.text;
  request.flags = HUTCH_HTTP_RESUME;
  request.on_progress = cancel_soon;
  hutch_http_task *task = begin(session, &request);
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  hutch_http_task_release(task);
  CHECK_EQUAL(CUT, size_of("file.part"));
  ask("/set", "&tag=%22v1%22");
  download(HUTCH_OK);
  check_file('a');
  CHECK(strncmp(ask("/asked", ""), "bytes=70000-", 12) == 0);
  end_session(session);
}

TEST(a_damaged_record_or_another_url_begins_again) {
  session = new_session(NULL);
  path record = scratch("file.resume");
  for (int round = 0; round < 3; round++) {
    lose("&tag=%22v1%22");
    if (round == 0) {
      CHECK_EQUAL(0, truncate(record.text, size_of("file.resume") - 1));
    } else if (round == 1) {
      write_file(record.text, "hutch-resume 1\n", 15);
    } else {
      CHECK_EQUAL(0, unlink(record.text));
    }
    ask("/set", "&tag=%22v1%22&letter=d");
    download(HUTCH_OK);
    check_file('d');
    CHECK(strncmp(ask("/asked", ""), "None None", 9) == 0);
  }
  lose("&tag=%22v1%22");
  ask("/set", "&tag=%22v1%22&letter=e");
  char query[80];
  snprintf(query, sizeof query, "/part?key=%s&other=1", key());
  hutch_http_request request = get(url_of("wire", query));
  path file = scratch("file");
  request.download = file.text;
  request.flags = HUTCH_HTTP_RESUME;
  hutch_http_task_release(fetch(session, &request));
  check_file('e');
  end_session(session);
}

TEST(one_task_at_a_time_downloads_to_a_file) {
  session = new_session(NULL);
  ask("/set", "&tag=%22v1%22&cut=70000&stall=1");
  char query[64];
  snprintf(query, sizeof query, "/part?key=%s", key());
  counts c = {0};
  hutch_http_request request = counted(url_of("wire", query), &c);
  path file = scratch("file");
  request.download = file.text;
  request.flags = HUTCH_HTTP_RESUME;
  hutch_http_task *task = begin(session, &request);
  await_callback(task, &c.responses);
  download(HUTCH_BUSY);
  CHECK_OK(hutch_http_task_cancel(task, NULL));
  CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(an_error_of_the_server_leaves_the_part) {
  session = new_session(NULL);
  lose("&tag=%22v1%22");
  ask("/set", "&tag=%22v1%22&mode=503");
  char query[64];
  snprintf(query, sizeof query, "/part?key=%s", key());
  hutch_http_request request = get(url_of("wire", query));
  path file = scratch("file");
  request.download = file.text;
  request.flags = HUTCH_HTTP_RESUME;
  hutch_http_task *task = fetch(session, &request);
  CHECK_EQUAL(503, response_of(task).code);
  CHECK(body_has(task, "later"));
  hutch_http_task_release(task);
  CHECK_EQUAL(CUT, size_of("file.part"));
  ask("/set", "&tag=%22v1%22");
  download(HUTCH_OK);
  check_file('a');
  CHECK(strncmp(ask("/asked", ""), "bytes=70000-", 12) == 0);
  end_session(session);
}

TEST(only_a_plain_get_is_resumed) {
  session = new_session(NULL);
  hutch_http_task *task;
  hutch_http_header range = {"Range", "bytes=1-2"};
  hutch_http_request request = get(url_of("plain", "/ten"));
  request.flags = HUTCH_HTTP_RESUME;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  path file = scratch("file");
  request.download = file.text;
  request.headers = &range;
  request.header_count = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request.header_count = 0;
  request.body = "x";
  request.body_size = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  /* Without the flag, a range that the host asks for is what it gets. */
  request = get(request.url);
  request.download = file.text;
  request.headers = &range;
  request.header_count = 1;
  task = fetch(session, &request);
  CHECK_EQUAL(206, response_of(task).code);
  CHECK_EQUAL(2, size_of("file"));
  hutch_http_task_release(task);
  end_session(session);
}
