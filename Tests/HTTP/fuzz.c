/* Responses, stored values, URLs and headers of any bytes. A seed is printed; HUTCH_SEED repeats
   it, and HUTCH_LONG makes more rounds. */
#include <strings.h>
#include <sys/resource.h>

#include "http.h"

#define MAX_BODY 3000
#define MAX_HEADERS 8000

static _Atomic int64_t seconds = INT64_C(1800000000);

static int64_t the_time(void *context) {
  (void)context;
  return seconds * HUTCH_SECOND;
}

static hutch_cache *open_with_clock(const char *directory) {
  hutch_options options = {.struct_size = sizeof options, .clock = the_time};
  hutch_cache *cache;
  CHECK_OK(hutch_open(directory, &options, &cache));
  return cache;
}

/* --------------------------------------------------------------- responses */

/* What any response must be, whatever the server sent. Returns whether the cache may have it. */
static bool check_response(hutch_http_task *task, hutch_status status) {
  hutch_http_response response = {.struct_size = sizeof response};
  if (hutch_http_task_response(task, &response) != HUTCH_OK) return false;
  CHECK(response.code >= 0 && response.code <= 999);
  CHECK(response.body_size <= MAX_BODY);
  size_t size = 0;
  bool may_be_stored = true, is_understood = false;
  const char *length = NULL;
  bool is_encoded = false;
  for (uint64_t index = 0; index < response.header_count; index++) {
    hutch_http_header header;
    CHECK_OK(hutch_http_task_header_at(task, index, &header));
    size += strlen(header.name) + strlen(header.value);
    CHECK(header.name[0] != 0 && strpbrk(header.name, " \t\r\n:") == NULL);
    CHECK(strpbrk(header.value, "\r\n") == NULL);
    if (strcasecmp(header.name, "Cache-Control") == 0 && strcasecmp(header.value, "no-store") == 0)
      may_be_stored = false;
    if (strcasestr(header.value, "must-understand")) is_understood = true;
    if (strcasecmp(header.name, "Vary") == 0 && strcmp(header.value, "*") == 0)
      may_be_stored = false;
    if (strcasecmp(header.name, "Content-Length") == 0) length = header.value;
    if (strcasecmp(header.name, "Transfer-Encoding") == 0 ||
        strcasecmp(header.name, "Content-Encoding") == 0)
      is_encoded = true;
  }
  /* And what the cache adds. */
  CHECK(size <= MAX_HEADERS + 200);
  bool has_body = response.code >= 200 && response.code != 204 && response.code != 304;
  if (status == HUTCH_OK && length && !is_encoded && has_body && length[0] &&
      strspn(length, "0123456789") == strlen(length) && strlen(length) < 15)
    CHECK_EQUAL(atoll(length), response.body_size);
  return (may_be_stored || is_understood) && status == HUTCH_OK;
}

typedef struct answer {
  int32_t code;
  uint64_t size;
  char body[MAX_BODY];
} answer;

static answer keep(hutch_http_task *task) {
  hutch_http_response response = response_of(task);
  answer k = {.code = response.code, .size = response.body_size};
  if (response.body_size) memcpy(k.body, response.body, response.body_size);
  return k;
}

/* A resource whose versions are mutated responses: each is asked for up to three times, when a
   stored one is fresh, and when it is stale. first_header: of the first request, and of all if it
   is not about a part. */
static void fuzz_responses(uint32_t cache_flags, uint32_t request_flags,
                           hutch_http_header first_header, uint64_t *state, int rounds) {
  bool is_part = strcmp(first_header.name, "Range") == 0;
  hutch_cache *cache = open_with_clock(NULL);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache,
                                            .cache_flags = cache_flags, .max_body = MAX_BODY,
                                            .max_headers = MAX_HEADERS,
                                            .flags = HUTCH_HTTP_COOKIES,
                                            .idle_timeout = 20 * HUTCH_SECOND};
  hutch_http_session *session = new_session(&configuration);
  for (int round = 0; round < rounds; round++) {
    char path[64], key[200], note[64];
    unsigned long long number = next_random(state) >> 20;
    snprintf(note, sizeof note, "response %llu, flags %u", number, request_flags);
    check_note(note);
    snprintf(path, sizeof path, "/mutated?seed=%llu", number);
    hutch_http_request request = get(url_of("wire", path));
    request.flags = request_flags;
    request.headers = &first_header;
    int key_size = snprintf(key, sizeof key, "GET %s", request.url);
    answer first = {0};
    bool is_stored = false;
    for (int turn = 0; turn < 3; turn++) {
      request.header_count = turn == 0 || !is_part;
      request.cache_mode = turn == 1 ? HUTCH_HTTP_CACHE_ELSE_LOAD : 0;
      if (turn == 2) seconds += next_random(state) % 2 ? 50 : 50000;
      hutch_http_task *task = begin(session, &request);
      hutch_status status = result_of(task);
      if (status != HUTCH_OK && status != HUTCH_TOO_LARGE && status > HUTCH_HTTP_NO_HOST)
        FAIL("%s: %s", hutch_http_status_name(status), error_of(task).words);
      bool may_be_stored = check_response(task, status);
      if (is_part) {
        is_stored = hutch_contains(cache, key, key_size) == HUTCH_OK;
      } else if (status == HUTCH_OK && response_of(task).from_cache) {
        CHECK(is_stored);
        answer now = keep(task);
        CHECK_EQUAL(first.code, now.code);
        CHECK_BYTES(first.body, first.size, now.body, now.size);
      } else if (turn == 0) {
        is_stored = hutch_contains(cache, key, key_size) == HUTCH_OK;
        hutch_http_response response = {.struct_size = sizeof response};
        hutch_http_task_response(task, &response);
        if (is_stored && response.redirects > 0) {
          /* What is stored is the redirect, and not what it led to. */
          CHECK_OK(hutch_remove(cache, key, key_size));
          is_stored = false;
        }
        if (is_stored && status != HUTCH_OK) {
          /* A part; or a redirect, whose target made the task fail. */
          hutch_http_request again = request;
          again.cache_mode = HUTCH_HTTP_CACHE_ONLY;
          again.flags |= HUTCH_HTTP_NO_REDIRECTS;
          hutch_http_task *stored = fetch(session, &again);
          int32_t code = response_of(stored).code;
          CHECK(code == 504 || (code >= 300 && code < 400));
          hutch_http_task_release(stored);
          CHECK_OK(hutch_remove(cache, key, key_size));
          is_stored = false;
        }
        CHECK(may_be_stored || !is_stored);
        if (is_stored) first = keep(task);
      }
      hutch_http_task_release(task);
      if (!is_stored) break;
    }
    if (round % 16 == 15) CHECK_OK(hutch_clear(cache));
  }
  check_note(NULL);
  /* The session is as good as before. */
  hutch_http_request request = get(url_of("wire", "/say?hex=6f6b"));
  hutch_http_task *task = fetch(session, &request);
  CHECK(body_has(task, "ok"));
  hutch_http_task_release(task);
  end_session(session);
  hutch_cache_release(cache);
}

TEST(mutated_responses_store_nothing_wrong) {
  uint64_t state = seed();
  int rounds = 120 * scale() / SANITIZED_BY;
  hutch_http_header kind = {"X-Kind", "1"}, range = {"Range", "bytes=0-3"};
  fuzz_responses(0, 0, kind, &state, rounds);
  fuzz_responses(0, HUTCH_HTTP_COMPRESSED, kind, &state, rounds);
  fuzz_responses(HUTCH_HTTP_CACHE_SHARED, HUTCH_HTTP_NO_REDIRECTS, kind, &state, rounds);
  fuzz_responses(0, 0, range, &state, rounds);
}

static long greatest_memory(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss / 1024;
}

TEST(floods_cost_bounded_memory) {
  static const char *const floods[] = {"headers",  "line",     "interim",    "chunks", "extension",
                                       "trailers", "redirect", "validation", "status"};
  hutch_cache *cache = open_with_clock(NULL);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache,
                                            .max_body = 100000, .redirects = 5,
                                            .idle_timeout = 20 * HUTCH_SECOND};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_request request = get(url_of("wire", "/echo"));
  hutch_http_task_release(fetch(session, &request));
  uint64_t count = count_of(cache);
  long before = greatest_memory();
  for (size_t index = 0; index < sizeof floods / sizeof *floods; index++) {
    char path[64];
    check_note(floods[index]);
    snprintf(path, sizeof path, "/flood?of=%s", floods[index]);
    request.url = url_of("wire", path);
    hutch_http_task *task = begin(session, &request);
    hutch_status status = result_of(task);
    /* What is too much is not read to its end. */
    hutch_http_metrics metrics = {.struct_size = sizeof metrics};
    CHECK_OK(hutch_http_task_metrics(task, &metrics));
    CHECK(metrics.bytes_received < 4 << 20);
    CHECK_EQUAL(strcmp(floods[index], "redirect") == 0, status == HUTCH_OK);
    CHECK_EQUAL(count, count_of(cache));
    hutch_http_task_release(task);
  }
  check_note(NULL);
#ifndef HUTCH_SANITIZED
  CHECK(greatest_memory() - before < 24);
#endif
  (void)before;
  end_session(session);
  hutch_cache_release(cache);
}

/* ----------------------------------------------------------- stored values */

/* Any bytes, many of which are not far from those of a value. */
static size_t mutate(unsigned char *bytes, size_t size, size_t room, uint64_t *state) {
  if (next_random(state) % 8 == 0) {
    size = next_random(state) % room;
    fill(bytes, size, next_random(state));
    if (size >= 4 && next_random(state) % 2) memcpy(bytes, "HHC1", 4);
  }
  for (int left = 1 + (int)(next_random(state) % 6); left > 0 && size > 8; left--) {
    static const uint64_t sizes[] = {0, 1, 8, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, INT64_MAX,
                                     UINT64_MAX, (uint64_t)1 << 63, 40, 44, 1000};
    size_t place = next_random(state) % (size - 8);
    /* Most numbers are in the first bytes. */
    if (next_random(state) % 2) place %= 64;
    uint64_t number = sizes[next_random(state) % (sizeof sizes / sizeof *sizes)];
    switch (next_random(state) % 6) {
      case 0: bytes[place] = (unsigned char)next_random(state); break;
      case 1: bytes[place] ^= (unsigned char)(1u << next_random(state) % 8); break;
      case 2: memcpy(bytes + place, &number, 4); break;
      case 3: memcpy(bytes + place, &number, 8); break;
      case 4:
        memmove(bytes + place, bytes + size / 2, size - (place > size / 2 ? place : size / 2));
        break;
      default: size = place;
    }
  }
  return size;
}

TEST(stored_values_of_any_bytes_are_misses) {
  uint64_t state = seed();
  path directory = scratch("cache");
  hutch_cache *cache = open_with_clock(directory.text);
  hutch_http_configuration configuration = {.struct_size = sizeof configuration, .cache = cache};
  hutch_http_session *session = new_session(&configuration);
  hutch_http_header kind = {"X-Kind", "1"};
  hutch_http_request request = get(url_of("wire", "/say?hex=626f6479&type=text/plain&control=1"));
  request.headers = &kind;
  request.header_count = 1;
  char key[200];
  int key_size = snprintf(key, sizeof key, "GET %s", request.url);
  for (int variant = 1; variant <= 2; variant++) {
    kind.value = variant == 1 ? "1" : "2";
    hutch_http_task_release(fetch(session, &request));
  }
  hutch_value *value = get_value(cache, key);
  size_t size = hutch_value_size(value), room = size + 512;
  unsigned char *bytes = malloc(room);
  CHECK(bytes != NULL);
  static const char *const headers[][2] = {
      {"X-Kind", "2"}, {"Range", "bytes=1-2"}, {"If-None-Match", "\"1\""}, {"Accept", "x"}};
  for (int round = 0; round < 600 * scale() / SANITIZED_BY; round++) {
    memset(bytes, 0, room);
    memcpy(bytes, hutch_value_data(value), size);
    size_t count = mutate(bytes, size, room, &state);
    CHECK_OK(hutch_put(cache, key, key_size, bytes, count, NULL, NULL));
    if (round % 200 == 199) {
      /* It is read from the disk. */
      end_session(session);
      CHECK_OK(hutch_close(cache));
      cache = configuration.cache = open_with_clock(directory.text);
      session = new_session(&configuration);
    }
    size_t one = next_random(&state) % (sizeof headers / sizeof *headers);
    kind = (hutch_http_header){headers[one][0], headers[one][1]};
    request.cache_mode =
        next_random(&state) % 8 ? HUTCH_HTTP_CACHE_ONLY : HUTCH_HTTP_CACHE_BY_PROTOCOL;
    hutch_http_task *task = fetch(session, &request);
    hutch_http_response response = response_of(task);
    CHECK(response.code >= 200 && response.code <= 999 && response.body_size <= count + 4);
    for (uint64_t index = 0; index < response.header_count; index++) {
      hutch_http_header header;
      CHECK_OK(hutch_http_task_header_at(task, index, &header));
      CHECK(header.name[0] != 0 && strpbrk(header.name, " \t\r\n:") == NULL);
      CHECK(strpbrk(header.value, "\r\n") == NULL);
    }
    hutch_http_task_release(task);
  }
  free(bytes);
  hutch_value_release(value);
  end_session(session);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- requests */

/* Text with what would end a line or a request. */
static void any_text(char *text, size_t room, uint64_t *state) {
  static const char *const pieces[] = {
      "\r\n", "\n", "\r", "\r\nX-Injected: 1", "\r\n\r\nGET / HTTP/1.1", " ", "\t", "a", "%0d%0a",
      "\x7f", "\xc3\xa9", "\x01", ":", "/", "?", "#", "@", "[", "]", "\\", "..", "%", "%00", "\xff",
      ";"};
  size_t size = 0;
  for (int left = (int)(next_random(state) % 6); left > 0; left--) {
    const char *piece = pieces[next_random(state) % (sizeof pieces / sizeof *pieces)];
    size_t more = strlen(piece);
    if (size + more + 2 > room) break;
    memcpy(text + size, piece, more);
    size += more;
    if (next_random(state) % 2) text[size++] = (char)(1 + next_random(state) % 255);
  }
  text[size] = 0;
}

static int lines_of(hutch_http_task *task) {
  hutch_http_response response = response_of(task);
  int lines = 0;
  for (uint64_t index = 0; index < response.body_size; index++)
    lines += ((const char *)response.body)[index] == '\n';
  return lines;
}

TEST(no_text_of_the_host_adds_a_line_to_a_request) {
  uint64_t state = seed();
  hutch_http_session *session = new_session(NULL);
  hutch_http_header header = {"X-Any", "1"};
  hutch_http_request request = get(url_of("wire", "/echo"));
  request.headers = &header;
  request.header_count = 1;
  hutch_http_task *task = fetch(session, &request);
  int expected = lines_of(task), sent = 0;
  hutch_http_task_release(task);
  for (int round = 0; round < 400 * scale() / SANITIZED_BY; round++) {
    char text[128], name[160] = "X-Any", value[160] = "1", url[256], method[160] = "GET";
    any_text(text, sizeof text, &state);
    snprintf(url, sizeof url, "%s", url_of("wire", "/echo"));
    hutch_http_header query = {"a", text};
    request.query_count = 0;
    switch (next_random(&state) % 5) {
      case 0: snprintf(name, sizeof name, "X-Any%s", text); break;
      case 1: snprintf(value, sizeof value, "1%s", text); break;
      case 2: snprintf(url, sizeof url, "%s?%s", url_of("wire", "/echo"), text); break;
      case 3: snprintf(method, sizeof method, "GET%s", text); break;
      default:
        request.query = &query;
        request.query_count = 1;
    }
    header = (hutch_http_header){name, value};
    request.url = url;
    request.method = method;
    hutch_status status = hutch_http_task_create(session, &request, &task);
    if (status != HUTCH_OK) {
      CHECK_EQUAL(HUTCH_INVALID_ARGUMENT, status);
      continue;
    }
    CHECK_OK(hutch_http_task_resume(task));
    CHECK_EQUAL(HUTCH_OK, result_of(task));
    CHECK_EQUAL(200, response_of(task).code);
    CHECK_EQUAL(expected, lines_of(task));
    sent++;
    hutch_http_task_release(task);
  }
  CHECK(sent > 0);
  end_session(session);
}
