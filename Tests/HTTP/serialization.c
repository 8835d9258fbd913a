/* What requests are written as, and what is accepted and decoded of responses. */
#include <sys/stat.h>
#include <unistd.h>

#include "http.h"

static hutch_http_session *session;

/* The echo of a request. */
static hutch_http_task *echo(hutch_http_request request) {
  if (request.url == NULL) request.url = url_of("wire", "/echo");
  return fetch(session, &request);
}

TEST(a_query_is_percent_encoded_behind_the_one_there_is) {
  session = new_session(NULL);
  hutch_http_header pairs[] = {{"a b", "c&d=e"}, {"\xc3\xa9", ""}, {"~", "100%\r\nX: y"}};
  const char *expected = "a%20b=c%26d%3De&%C3%A9=&~=100%25%0D%0AX%3A%20y HTTP/1.1\n";
  const char *urls[][2] = {{"/echo", "GET /echo?"}, {"/echo?x=1", "GET /echo?x=1&"},
                           {"/echo?", "GET /echo?"}, {"/echo?x=1#end?", "GET /echo?x=1&"}};
  for (int index = 0; index < 4; index++) {
    hutch_http_request request = get(url_of("wire", urls[index][0]));
    request.query = pairs;
    request.query_count = 3;
    hutch_http_task *task = echo(request);
    char line[200];
    snprintf(line, sizeof line, "%s%s", urls[index][1], expected);
    CHECK(body_has(task, line));
    CHECK(!body_has(task, "\nx: y"));
    hutch_http_task_release(task);
  }
  end_session(session);
}

TEST(a_form_is_a_body_of_its_type) {
  session = new_session(NULL);
  hutch_http_header pairs[] = {{"name", "Ann Lee"}, {"sum", "1+1=2"}};
  hutch_http_request request = get(NULL);
  request.form = pairs;
  request.form_count = 2;
  hutch_http_task *task = echo(request);
  CHECK(body_has(task, "POST /echo"));
  CHECK(body_has(task, "content-type: application/x-www-form-urlencoded\n"));
  CHECK(body_has(task, "\n\nname=Ann+Lee&sum=1%2B1%3D2"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(json_is_checked_before_it_is_sent) {
  session = new_session(NULL);
  hutch_http_request request = get(url_of("wire", "/echo"));
  request.flags = HUTCH_HTTP_JSON;
  const char *right[] = {"{}", " [1, -0.5e+3, \"\\u00e9\\n\", {\"a\": [true, false, null]}] ", "0",
                         "\"\xc3\xa9\xf0\x9f\x98\x80\""};
  for (int index = 0; index < 4; index++) {
    request.body = right[index];
    request.body_size = strlen(right[index]);
    hutch_http_task *task = echo(request);
    CHECK(body_has(task, "content-type: application/json\n") && body_has(task, right[index]));
    hutch_http_task_release(task);
  }
  const char *wrong[] = {"", "{", "[1,]", "{a: 1}", "01", "1.", "+1", "\"\x01\"", "\"\\x\"", "tru",
                         "1 2", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "'a'", "[1}",
                         "{\"a\" 1}", "1e", "-", "\"a"};
  for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) {
    hutch_http_task *task;
    request.body = wrong[index];
    request.body_size = strlen(wrong[index]);
    if (hutch_http_task_create(session, &request, &task) != HUTCH_INVALID_ARGUMENT)
      FAIL("%s is accepted", wrong[index]);
  }
  /* Deep beyond any use, and the stack is not used up. */
  hutch_http_task *task;
  char *deep = malloc(1000000);
  memset(deep, '[', 1000000);
  request.body = deep;
  request.body_size = 1000000;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  free(deep);
  end_session(session);
}

static int64_t read_nine(void *context, void *buffer, size_t size) {
  int *left = context;
  if (buffer == NULL) return *left = 9, 0;
  if (*left == 0 || size == 0) return 0;
  (*left)--;
  *(char *)buffer = 's';
  return 1;
}

TEST(multipart_is_streamed_from_bytes_files_and_functions) {
  session = new_session(NULL);
  int left = 9;
  path file = scratch("file");
  write_file(file.text, "in a file", 9);
  hutch_http_part parts[] = {
      {.name = "plain", .data = "text", .size = 4},
      {.name = "a\"b\r\nX: y", .file_name = "\xc3\xa9.txt", .media_type = "text/plain",
       .path = file.text},
      {.name = "stream", .read = read_nine, .read_size = 9},
      {.name = "empty"}};
  hutch_http_request request = get(NULL);
  request.parts = parts;
  request.part_count = 4;
  request.context = &left;
  hutch_http_task *task = echo(request);
  CHECK(body_has(task, "content-type: multipart/form-data; boundary=hutch-"));
  CHECK(body_has(task, "form-data; name=\"plain\"\r\n\r\ntext\r\n--hutch-"));
  CHECK(body_has(task, "name=\"a%22b%0D%0AX: y\"; filename=\"\xc3\xa9.txt\"\r\n"
                       "Content-Type: text/plain\r\n\r\nin a file\r\n--hutch-"));
  CHECK(body_has(task, "name=\"stream\"\r\n\r\nsssssssss\r\n--hutch-"));
  CHECK(body_has(task, "name=\"empty\"\r\n\r\n\r\n--hutch-"));
  CHECK(body_has(task, "--\r\n") && body_has(task, "content-length: "));
  hutch_http_task_release(task);
  /* Of a size that is not known: chunked, and again after a redirect. */
  left = 9;
  parts[2].read_size = HUTCH_HTTP_UNKNOWN_SIZE;
  request.url = url_of("wire", "/redirect?code=307&to=/echo");
  task = echo(request);
  CHECK(body_has(task, "transfer-encoding: chunked\n") && body_has(task, "sssssssss\r\n--hutch-"));
  hutch_http_task_release(task);
  end_session(session);
}

TEST(bad_bodies_are_refused) {
  session = new_session(NULL);
  hutch_http_task *task;
  hutch_http_header pair = {"a", "b"}, none = {"a", NULL};
  hutch_http_part part = {.name = "a", .data = "b", .size = 1};
  hutch_http_request request = get(url_of("wire", "/echo"));
  request.form = &pair;
  request.form_count = 1;
  request.parts = &part;
  request.part_count = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request.form = NULL;
  request.form_count = 0;
  part.media_type = "a\r\nb";
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  part = (hutch_http_part){.name = NULL};
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  part = (hutch_http_part){.name = "a", .data = "b", .size = 1, .path = "/none"};
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  part = (hutch_http_part){.name = "a", .path = "/none"};
  CHECK_STATUS(HUTCH_HTTP_UPLOAD, hutch_http_task_create(session, &request, &task));
  request = get(request.url);
  request.query = &none;
  request.query_count = 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request.query_count = SIZE_MAX;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  request = get(request.url);
  request.first_code = 300;
  request.last_code = 200;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  end_session(session);
}

/* -------------------------------------------------------------- responses */

static hutch_status result(hutch_http_request *request, const char *path, hutch_error *error) {
  request->url = url_of("wire", path);
  hutch_http_task *task = begin(session, request);
  hutch_status status = result_of(task);
  *error = error_of(task);
  hutch_http_task_release(task);
  return status;
}

TEST(responses_are_checked_for_code_and_media_type) {
  session = new_session(NULL);
  hutch_error error;
  hutch_http_request request = get(NULL);
  request.first_code = 200;
  request.last_code = 299;
  request.media_types = "application/json, text/*";
  const char *right[] = {"/say?hex=31&type=application/json", "/say?hex=31&type=TEXT/x;a=b",
                         "/say?code=204", "/say?hex=", "/empty"};
  for (int index = 0; index < 5; index++) {
    hutch_status status = result(&request, right[index], &error);
    if (status != HUTCH_OK) FAIL("%s: %s", right[index], error.words);
  }
  CHECK_EQUAL(HUTCH_HTTP_CODE, result(&request, "/say?code=404&hex=31&type=text/x", &error));
  CHECK(strcmp(error.words, "the response is not accepted: its code is 404") == 0);
  CHECK_EQUAL(HUTCH_HTTP_MEDIA_TYPE, result(&request, "/say?hex=31&type=image/png", &error));
  CHECK(strcmp(error.words, "the response is not accepted: its media type is image/png") == 0);
  CHECK_EQUAL(HUTCH_HTTP_MEDIA_TYPE, result(&request, "/say?hex=31", &error));
  CHECK_EQUAL(HUTCH_HTTP_MEDIA_TYPE, result(&request, "/say?hex=31&type=textual/x", &error));
  /* Both reasons. */
  CHECK_EQUAL(HUTCH_HTTP_CODE, result(&request, "/say?code=500&hex=31&type=image/png", &error));
  CHECK(strstr(error.words, "500, and its media type is image/png") != NULL);
  end_session(session);
}

static hutch_status never(void *context, hutch_http_task *task, const void *data, size_t size) {
  (void)context, (void)task, (void)data;
  FAIL("%zu bytes are passed on", size);
}

TEST(what_is_not_accepted_is_not_stored_nor_passed_on) {
  session = new_session(NULL);
  path file = scratch("file");
  write_file(file.text, "old", 3);
  hutch_http_request request = get(url_of("wire", "/say?hex=6e6f&type=text/html"));
  request.media_types = "application/json";
  request.download = file.text;
  hutch_http_task *task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_MEDIA_TYPE, result_of(task));
  CHECK(body_has(task, "no"));
  hutch_http_task_release(task);
  struct stat information;
  CHECK(stat(file.text, &information) == 0 && information.st_size == 3);
  CHECK(access(scratch("file.part").text, F_OK) != 0);
  /* A body without a byte needs no type. */
  request.url = url_of("wire", "/empty");
  hutch_http_task_release(fetch(session, &request));
  CHECK(stat(file.text, &information) == 0 && information.st_size == 0);
  request.url = url_of("wire", "/say?hex=6e6f&type=text/html");
  request.download = NULL;
  request.on_body = never;
  task = begin(session, &request);
  CHECK_EQUAL(HUTCH_HTTP_MEDIA_TYPE, result_of(task));
  CHECK(body_has(task, "no"));
  hutch_http_task_release(task);
  end_session(session);
}

static hutch_status refuse(void *context, const void *body, uint64_t size, void **object) {
  (void)body, (void)size, (void)object;
  ++*(int *)context;
  return HUTCH_WRONG_TYPE;
}

static hutch_status copy(void *context, const void *body, uint64_t size, void **object) {
  ++*(int *)context;
  *object = strndup(body, size);
  return HUTCH_OK;
}

/* The decoders' result for a body, or the failure. */
static hutch_status decoded(const hutch_http_decoder *decoders, size_t count, const char *path,
                            hutch_http_task **task, hutch_http_decoded *out) {
  hutch_http_request request = get(url_of("wire", path));
  request.decoders = decoders;
  request.decoder_count = count;
  *task = begin(session, &request);
  hutch_status status = result_of(*task);
  *out = (hutch_http_decoded){.struct_size = sizeof *out};
  CHECK_STATUS(status == HUTCH_OK ? HUTCH_OK : HUTCH_NOT_FOUND,
               hutch_http_task_decoded(*task, out));
  return status;
}

TEST(the_first_decoder_that_succeeds_wins) {
  session = new_session(NULL);
  hutch_http_task *task;
  hutch_http_decoded out;
  int refused = 0, copied = 0;
  hutch_http_decoder chain[] = {
      {.kind = HUTCH_HTTP_DECODE_JSON, .media_types = "application/json"},
      {.decode = refuse, .context = &refused},
      {.kind = HUTCH_HTTP_DECODE_TEXT, .media_types = "text/*"},
      {.decode = copy, .context = &copied}};
  CHECK_OK(decoded(chain, 4, "/say?hex=5b315d&type=application/json", &task, &out));
  CHECK_EQUAL(0, out.decoder);
  CHECK_BYTES("[1]", 3, out.text, out.text_size);
  CHECK_EQUAL(0, refused);
  hutch_http_task_release(task);
  CHECK_OK(decoded(chain, 4, "/say?hex=5b31&type=application/json", &task, &out));
  CHECK_EQUAL(3, out.decoder);
  CHECK(strcmp(out.object, "[1") == 0 && out.text == NULL);
  CHECK_EQUAL(1, refused);
  CHECK_EQUAL(1, copied);
  free(out.object);
  hutch_http_task_release(task);
  CHECK_EQUAL(HUTCH_HTTP_DECODE,
              decoded(chain, 3, "/say?hex=ff&type=text/plain", &task, &out));
  CHECK(strcmp(error_of(task).words,
               "the body could not be decoded: it is not of the types of a decoder, a function of "
               "the host has refused it, it is not UTF-8") == 0);
  CHECK_EQUAL(1, response_of(task).body_size);
  hutch_http_task_release(task);
  hutch_http_decoder bytes = {.kind = HUTCH_HTTP_DECODE_BYTES};
  CHECK_OK(decoded(&bytes, 1, "/say?hex=ff00", &task, &out));
  CHECK_BYTES("\xff\0", 2, out.text, out.text_size);
  hutch_http_task_release(task);
  /* A task without decoders. */
  hutch_http_request request = get(url_of("wire", "/echo"));
  task = fetch(session, &request);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_decoded(task, &out));
  hutch_http_task_release(task);
  bytes.kind = 9;
  request.decoders = &bytes;
  request.decoder_count = 1;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_task_create(session, &request, &task));
  bytes.kind = HUTCH_HTTP_DECODE_HOST;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  bytes.kind = HUTCH_HTTP_DECODE_BYTES;
  request.on_body = never;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_task_create(session, &request, &task));
  end_session(session);
}

TEST(text_is_converted_from_its_charset) {
  session = new_session(NULL);
  hutch_http_task *task;
  hutch_http_decoded out;
  hutch_http_decoder text = {.kind = HUTCH_HTTP_DECODE_TEXT};
  const char *bodies[][2] = {
      {"/say?hex=e9&type=text/plain;charset=iso-8859-1", "\xc3\xa9"},
      {"/say?hex=e900&type=text/plain;x=y;%20charset=%22utf-16le%22", "\xc3\xa9"},
      {"/say?hex=c3a9&type=text/plain;charset=UTF-8", "\xc3\xa9"},
      {"/say?hex=c3a9", "\xc3\xa9"}};
  for (int index = 0; index < 4; index++) {
    check_note(bodies[index][0]);
    CHECK_OK(decoded(&text, 1, bodies[index][0], &task, &out));
    CHECK_BYTES("\xc3\xa9", 2, out.text, out.text_size);
    hutch_http_task_release(task);
  }
  /* The converter keeps a letter that an accent could follow, and joins the two. */
  const char *kept[][2] = {{"/say?hex=6361&type=text/plain;charset=windows-1258", "ca"},
                           {"/say?hex=63613f61ec&type=text/plain;charset=windows-1258",
                            "ca?\xc3\xa1"}};
  for (int index = 0; index < 2; index++) {
    CHECK_OK(decoded(&text, 1, kept[index][0], &task, &out));
    CHECK_BYTES(kept[index][1], strlen(kept[index][1]), out.text, out.text_size);
    hutch_http_task_release(task);
  }
  const char *wrong[] = {"/say?hex=e9&type=text/plain;charset=utf-8",
                         "/say?hex=e9&type=text/plain;charset=none",
                         "/say?hex=e9&type=text/plain;charset=latin1//IGNORE",
                         "/say?hex=e9e9e9&type=text/plain;charset=utf-16"};
  for (int index = 0; index < 4; index++) {
    CHECK_EQUAL(HUTCH_HTTP_DECODE, decoded(&text, 1, wrong[index], &task, &out));
    hutch_http_task_release(task);
  }
  end_session(session);
}
