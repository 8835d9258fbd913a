/* Large bodies: streamed into a file of the cache and out of it, and given as a descriptor. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

#define MEGA (UINT64_C(1) << 20)
#define PIECE (256 * UINT64_C(1024)) /* in which a large body is read */

static long greatest_memory(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss / 1024;
}

static rig start_in(const char *name, const char *directory) {
  hutch_options options = unlimited_options();
  options.clock = the_time;
  rig r = {.configuration = {.struct_size = sizeof r.configuration, .max_body = 100000},
           .name = name};
  CHECK_OK(hutch_open(directory, &options, &r.cache));
  r.configuration.cache = r.cache;
  r.session = new_session(&r.configuration);
  r.plain = new_session(NULL);
  return r;
}

/* What a host reads: bytes that are all the same. */
typedef struct reader {
  rig *r;
  const char *key;
  uint64_t size;
  char byte;
  bool was_early; /* it read before the response was stored */
} reader;

static hutch_status read_piece(void *context, hutch_http_task *task, const void *data,
                               size_t size) {
  reader *one = context;
  const char *bytes = data;
  (void)task;
  CHECK(size > 0 && bytes[0] == one->byte && memcmp(bytes, bytes + 1, size - 1) == 0);
  if (one->size == 0 && one->key)
    one->was_early = hutch_contains(one->r->cache, one->key, strlen(one->key)) != HUTCH_OK;
  one->size += size;
  return HUTCH_OK;
}

static hutch_http_task *stream(rig *r, hutch_http_request request, reader *one) {
  request.on_body = read_piece;
  request.context = one;
  return fetch(r->session, &request);
}

static void check_descriptor(hutch_http_task *task, uint64_t size, char byte) {
  int32_t descriptor;
  uint64_t offset, told;
  CHECK_OK(hutch_http_task_open_body(task, &descriptor, &offset, &told));
  CHECK_EQUAL(size, told);
  struct stat information;
  CHECK(fstat(descriptor, &information) == 0 &&
        (uint64_t)information.st_size >= offset + size);
  char bytes[2];
  CHECK_EQUAL(1, pread(descriptor, bytes, 1, offset));
  CHECK_EQUAL(byte, bytes[0]);
  CHECK_EQUAL(1, pread(descriptor, bytes, 1, offset + size - 1));
  CHECK_EQUAL(byte, bytes[0]);
  close(descriptor);
}

static void check_no_descriptor(hutch_http_task *task) {
  int32_t descriptor;
  uint64_t offset, size;
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_http_task_open_body(task, &descriptor, &offset, &size));
  CHECK_EQUAL(-1, descriptor);
}

TEST(a_body_of_100_mb_is_streamed_through_the_cache_in_bounded_memory) {
  const uint64_t size = 100 * MEGA;
  path directory = scratch("cache"), file = scratch("file");
  rig r = start_in("large", directory.text);
  hutch_http_request request = get(url_of("wire", "/large?n=104857600&stored=1"));
  hutch_http_task_release(control(&r, "GET", "count", NULL));
  long before = greatest_memory();
  reader first = {&r, kept("GET %s%s", request.url, ""), 0, 'z', false};
  hutch_http_task *task = stream(&r, request, &first);
  CHECK_EQUAL(size, first.size);
  CHECK(first.was_early);
  CHECK(!response_of(task).from_cache);
  check_descriptor(task, size, 'z');
  hutch_http_task_release(task);
  /* Out of the cache: to the host, to a file, a part of it. */
  request.cache_mode = HUTCH_HTTP_CACHE_ONLY;
  reader second = {&r, NULL, 0, 'z', false};
  task = stream(&r, request, &second);
  CHECK_EQUAL(size, second.size);
  CHECK(response_of(task).from_cache);
  check_descriptor(task, size, 'z');
  /* The descriptor outlives the entry. */
  CHECK_OK(hutch_clear(r.cache));
  check_descriptor(task, size, 'z');
  hutch_http_task_release(task);
  request.cache_mode = 0;
  request.download = file.text;
  task = fetch(r.session, &request);
  CHECK(!response_of(task).from_cache);
  hutch_http_task_release(task);
  task = fetch(r.session, &request);
  CHECK(response_of(task).from_cache);
  struct stat information;
  CHECK(stat(file.text, &information) == 0 && (uint64_t)information.st_size == size);
  hutch_http_task_release(task);
#ifndef HUTCH_SANITIZED
  CHECK(greatest_memory() - before < 24);
#endif
  (void)before;
  /* In memory it is as much too large as it would be without the cache. The descriptor is there. */
  request.download = NULL;
  task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_TOO_LARGE, result_of(task));
  check_descriptor(task, size, 'z');
  hutch_http_task_release(task);
  hutch_http_header range = {"Range", "bytes=104857590-"};
  request.headers = &range;
  request.header_count = 1;
  task = fetch(r.session, &request);
  CHECK_EQUAL(206, response_of(task).code);
  CHECK(response_of(task).from_cache);
  CHECK_BYTES("zzzzzzzzzz", 10, response_of(task).body, response_of(task).body_size);
  check_no_descriptor(task);
  hutch_http_task_release(task);
  stop(&r);
}

/* Answers with two variants: "1" has 2 MB of the letter, and "2" is small. */
static void tell_variants(rig *r) {
  const char *head = "200 OK\nCache-Control: max-age=10\nVary: X-Kind\nETag: \"1\"\n\n";
  size_t room = 2 * MEGA + 1024;
  char *text = malloc(room);
  CHECK(text != NULL);
  size_t size = (size_t)snprintf(text, room, "%s", head);
  memset(text + size, 'L', 2 * MEGA);
  snprintf(text + size + 2 * MEGA, room - size - 2 * MEGA,
           "\n====\n200 OK\nCache-Control: max-age=10\nVary: X-Kind\n\nsmall\n====\n"
           "304 Not Modified\nETag: \"1\"\nX-New: 1\nCache-Control: max-age=50\nVary: X-Kind\n\n");
  tell(r, text);
  free(text);
}

static void expect_large(rig *r, bool from_cache) {
  hutch_http_request request = request_of(r);
  hutch_http_header kind = {"X-Kind", "1"};
  request.headers = &kind;
  request.header_count = 1;
  reader one = {r, NULL, 0, 'L', false};
  hutch_http_task *task = stream(r, request, &one);
  CHECK_EQUAL(2 * MEGA, one.size);
  CHECK_EQUAL(from_cache, response_of(task).from_cache);
  check_descriptor(task, 2 * MEGA, 'L');
  hutch_http_task_release(task);
}

/* Suspends its task after each piece, and keeps what it has read. */
typedef struct slow_reader {
  _Atomic uint64_t size;
  _Atomic int responses;
  bool at_response;
} slow_reader;

static hutch_status read_slowly(void *context, hutch_http_task *task, const void *data,
                                size_t size) {
  slow_reader *one = context;
  (void)data;
  one->size += size;
  CHECK_OK(hutch_http_task_suspend(task));
  return HUTCH_OK;
}

static void suspend_at_response(void *context, hutch_http_task *task) {
  slow_reader *one = context;
  one->responses++;
  if (one->at_response) CHECK_OK(hutch_http_task_suspend(task));
}

TEST(a_reader_that_suspends_its_task_gets_one_piece_of_a_stored_body_at_a_time) {
  const uint64_t size = 3 * MEGA;
  path directory = scratch("cache");
  rig r = start_in("slow", directory.text);
  hutch_http_request request = get(url_of("wire", "/large?n=3145728&stored=1&confirmed=1"));
  reader first = {&r, NULL, 0, 'z', false};
  hutch_http_task_release(stream(&r, request, &first));
  request.on_body = read_slowly;
  request.on_response = suspend_at_response;
  hutch_http_header always = {"Cache-Control", "no-cache"};
  for (int way = 0; way < 4; way++) {
    slow_reader slow = {.at_response = way != 0};
    request.context = &slow;
    /* From the cache at once; and after the server has answered, on a connection that is kept. */
    request.headers = &always;
    request.header_count = way == 2;
    request.idle_timeout = way == 3 ? 50 * HUTCH_MILLISECOND : 0;
    hutch_http_task *task = begin(r.session, &request);
    if (slow.at_response) {
      await_callback(task, &slow.responses);
      /* The session has done what it had to do before. */
      hutch_http_request other = get(url_of("wire", "/echo"));
      hutch_http_task_release(fetch(r.session, &other));
      CHECK_EQUAL(0, slow.size);
      CHECK_OK(hutch_http_task_resume(task));
    }
    for (uint64_t piece = 1; piece < size / PIECE; piece++) {
      while (slow.size < piece * PIECE) usleep(100);
      hutch_http_request other = get(url_of("wire", way == 3 ? "/wait?ms=60" : "/echo"));
      hutch_http_task_release(fetch(r.session, &other));
      CHECK_EQUAL(piece * PIECE, slow.size);
      CHECK_EQUAL(HUTCH_HTTP_SUSPENDED, state_of(task));
      CHECK_OK(hutch_http_task_resume(task));
    }
    CHECK_EQUAL(HUTCH_OK, result_of(task));
    CHECK_EQUAL(size, slow.size);
    CHECK(response_of(task).from_cache);
    hutch_http_task_release(task);
  }
  /* Within a body, a cancel and the end of the session end it. */
  for (int way = 0; way < 2; way++) {
    slow_reader slow = {0};
    request.context = &slow;
    request.header_count = 0;
    request.idle_timeout = 0;
    hutch_http_task *task = begin(r.session, &request);
    while (state_of(task) != HUTCH_HTTP_SUSPENDED) usleep(100);
    if (way == 0) CHECK_OK(hutch_http_task_cancel(task, NULL));
    else CHECK_OK(hutch_http_session_end(r.session, HUTCH_HTTP_FINISH));
    CHECK_EQUAL(HUTCH_CANCELLED, result_of(task));
    CHECK_EQUAL(PIECE, slow.size);
    hutch_http_task_release(task);
  }
  stop(&r);
}

TEST(a_large_variant_and_a_small_one_do_not_throw_each_other_away) {
  path directory = scratch("cache");
  rig r = start_in("large_variants", directory.text);
  tell_variants(&r);
  expect_large(&r, false);
  expect(&r, "X-Kind: 2", 200, "small", false);
  for (int round = 0; round < 2; round++) {
    expect_large(&r, true);
    expect(&r, "X-Kind: 2", 200, "small", true);
  }
  CHECK_EQUAL(2, asked(&r));
  /* A validation updates the large one. */
  seconds += 11;
  expect_large(&r, true);
  CHECK_EQUAL(3, asked(&r));
  expect_large(&r, true);
  seconds += 30;
  expect_large(&r, true);
  CHECK_EQUAL(3, asked(&r));
  CHECK_EQUAL(504, answer_to(&r, "X-Kind: 3", HUTCH_HTTP_CACHE_ONLY).code);
  CHECK_EQUAL(200, answer_to(&r, "X-Kind: 2", HUTCH_HTTP_CACHE_ONLY).code);
  /* As another process would find it. */
  end_session(r.session);
  CHECK_OK(hutch_close(r.cache));
  rig again = start_in("large_variants", directory.text);
  expect_large(&again, true);
  CHECK_EQUAL(200, answer_to(&again, "X-Kind: 2", HUTCH_HTTP_CACHE_ONLY).code);
  end_session(r.plain);
  stop(&again);
}

TEST(a_response_without_a_body_has_no_descriptor) {
  path directory = scratch("cache");
  rig r = start_in("large_none", directory.text);
  tell_variants(&r);
  expect_large(&r, false);
  hutch_http_header headers[] = {{"X-Kind", "1"}, {"If-None-Match", "\"1\""}};
  hutch_http_request request = request_of(&r);
  request.headers = headers;
  for (int condition = 0; condition < 2; condition++) {
    request.method = condition ? "GET" : "HEAD";
    request.header_count = 1 + condition;
    hutch_http_task *task = fetch(r.session, &request);
    hutch_http_response response = response_of(task);
    CHECK(response.from_cache && response.code == (condition ? 304 : 200));
    check_no_descriptor(task);
    hutch_http_task_release(task);
  }
  stop(&r);
}

TEST(a_large_body_that_was_cut_or_cancelled_is_not_stored) {
  path directory = scratch("cache");
  rig r = start_in("large_cut", directory.text);
  char *text = malloc(3 * MEGA);
  CHECK(text != NULL);
  size_t size = (size_t)snprintf(text, 3 * MEGA,
                                 "cut 1500000 200 OK\nCache-Control: max-age=10\nETag: \"1\"\n\n");
  memset(text + size, 'L', 2 * MEGA);
  text[size + 2 * MEGA] = 0;
  tell(&r, text);
  free(text);
  hutch_http_request request = request_of(&r);
  reader one = {&r, NULL, 0, 'L', false};
  request.on_body = read_piece;
  request.context = &one;
  hutch_http_task *task = begin(r.session, &request);
  CHECK_EQUAL(HUTCH_HTTP_LOST, result_of(task));
  check_no_descriptor(task);
  hutch_http_task_release(task);
  CHECK_EQUAL(0, count_of(r.cache));
  stop(&r);
}

TEST(large_values_of_any_bytes_are_misses) {
  uint64_t state = seed();
  path directory = scratch("cache");
  rig r = start_in("large_damaged", directory.text);
  tell_variants(&r);
  expect_large(&r, false);
  char key[256];
  int key_size = snprintf(key, sizeof key, "GET %s", request_of(&r).url);
  hutch_value *value;
  CHECK_OK(hutch_get(r.cache, key, key_size, &value));
  size_t size = hutch_value_size(value);
  unsigned char *bytes = malloc(size);
  CHECK(bytes != NULL);
  hutch_cache *disk = tier_of(r.cache, HUTCH_TIER_DISK);
  for (int round = 0; round < 60 * scale() / SANITIZED_BY; round++) {
    memcpy(bytes, hutch_value_data(value), size);
    for (int left = 1 + (int)(next_random(&state) % 3); left > 0; left--)
      bytes[next_random(&state) % 200] = (unsigned char)(next_random(&state) % 3
                                                             ? next_random(&state)
                                                             : 0xFF);
    size_t count = next_random(&state) % 4 ? size : size - next_random(&state) % (size / 2);
    CHECK_OK(hutch_put(disk, key, key_size, bytes, count, NULL, NULL));
    hutch_http_header headers[2] = {{"X-Kind", "1"}, {"Range", "bytes=5-9"}};
    hutch_http_request request = request_of(&r);
    request.cache_mode = HUTCH_HTTP_CACHE_ONLY;
    request.headers = headers;
    request.header_count = 2;
    hutch_http_task *task = begin(r.session, &request);
    hutch_status status = result_of(task);
    /* A code that is no longer 200 has no parts, so the whole is too large. */
    CHECK(status == HUTCH_OK || status == HUTCH_TOO_LARGE);
    CHECK(response_of(task).code >= 200 && response_of(task).code <= 999);
    hutch_http_task_release(task);
  }
  hutch_cache_release(disk);
  hutch_value_release(value);
  free(bytes);
  stop(&r);
}
