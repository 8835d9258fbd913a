/* hutch_submit: the calls of a cache as tasks, each against the call of its name. */
#include "check.h"

#include <unistd.h>

/* What a completion told, with copies of what is valid during the call only. */
typedef struct told {
  atomic_int completed;
  hutch_completion last;
  hutch_entry_info info;
  hutch_batch *batch;
  char text[64];
  char path[4096];
} told;

static void complete(void *context, const hutch_completion *completion) {
  told *t = context;
  t->last = *completion;
  if (completion->info) t->info = *completion->info;
  if (completion->batch) t->batch = hutch_batch_retain(completion->batch);
  if (completion->path) snprintf(t->path, sizeof t->path, "%s", completion->path);
  if (completion->value) {
    size_t size = hutch_value_size(completion->value);
    CHECK(size < sizeof t->text);
    memcpy(t->text, hutch_value_data(completion->value), size);
    t->text[size] = 0;
  }
  atomic_fetch_add(&t->completed, 1);
}

static hutch_call call_of(uint32_t operation, const char *key) {
  return (hutch_call){.struct_size = sizeof(hutch_call), .operation = operation, .key = key,
                      .key_size = key ? strlen(key) : 0};
}

static hutch_task_options telling(told *t) {
  *t = (told){0};
  return (hutch_task_options){.struct_size = sizeof(hutch_task_options), .complete = complete,
                              .context = t};
}

/* Makes the call as a task, and waits for it. */
static told made(hutch_cache *cache, const hutch_call *call, hutch_status expected) {
  static told t;
  hutch_task_options options = telling(&t);
  hutch_task *task;
  CHECK_OK(hutch_submit(cache, call, &options, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_EQUAL(1, t.completed);
  CHECK_EQUAL(call->operation, t.last.operation);
  CHECK_STATUS(expected, t.last.status);
  CHECK((t.last.status < 0) == (t.last.error != NULL));
  return t;
}

static void set_value(hutch_call *call, const char *value) {
  call->value = value;
  call->value_size = strlen(value);
}

TEST_EACH_KIND(conditional_puts) {
  hutch_call call = call_of(HUTCH_OPERATION_REPLACE, "key");
  set_value(&call, "one");
  made(f->cache, &call, HUTCH_NOT_FOUND);
  call.operation = HUTCH_OPERATION_ADD;
  uint64_t version = made(f->cache, &call, HUTCH_OK).last.version;
  CHECK_EQUAL(info_of(f->cache, "key").version, version);
  CHECK_EQUAL(version, made(f->cache, &call, HUTCH_EXISTS).last.version);
  call.operation = HUTCH_OPERATION_REPLACE;
  set_value(&call, "two");
  uint64_t next = made(f->cache, &call, HUTCH_OK).last.version;
  CHECK(next > version);
  CHECK_TEXT(f->cache, "key", "two");
  call.operation = HUTCH_OPERATION_COMPARE_AND_SWAP;
  set_value(&call, "three");
  call.version = version;
  CHECK_EQUAL(next, made(f->cache, &call, HUTCH_CONFLICT).last.version);
  call.version = next;
  hutch_put_options put = put_options();
  put.cost = 7;
  put.extended = "more";
  put.extended_size = 4;
  call.put_options = &put;
  made(f->cache, &call, HUTCH_OK);
  CHECK_TEXT(f->cache, "key", "three");
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK(info.cost == 7 && info.extended_size == 4);
}

TEST_EACH_KIND(increment_touch_and_pop) {
  hutch_call call = call_of(HUTCH_OPERATION_INCREMENT, "counter");
  call.delta = 3;
  call.initial = 10;
  CHECK_EQUAL(13, made(f->cache, &call, HUTCH_OK).last.number);
  CHECK_EQUAL(16, made(f->cache, &call, HUTCH_OK).last.number);
  call.delta = INT64_MAX;
  CHECK_EQUAL(0, made(f->cache, &call, HUTCH_OVERFLOW).last.number);

  CHECK_OK(put_text(f->cache, "key", "value"));
  call = call_of(HUTCH_OPERATION_TOUCH, "key");
  call.time_to_live = HUTCH_HOUR;
  made(f->cache, &call, HUTCH_OK);
  CHECK_EQUAL(f->clock.now + HUTCH_HOUR, info_of(f->cache, "key").expires);
  call.key = "none";
  call.key_size = 4;
  made(f->cache, &call, HUTCH_NOT_FOUND);

  call = call_of(HUTCH_OPERATION_POP, "key");
  told t = made(f->cache, &call, HUTCH_OK);
  CHECK(t.last.value && strcmp(t.text, "value") == 0);
  CHECK_MISSING(f->cache, "key");
  CHECK(!made(f->cache, &call, HUTCH_NOT_FOUND).last.value);
}

static int32_t count_it(void *context, const void *key, size_t size, const hutch_entry_info *info) {
  (void)key, (void)size;
  told *t = context;
  t->info.size += info->size;
  return 0;
}

TEST_EACH_KIND(info_counts_and_walks) {
  hutch_call call = call_of(HUTCH_OPERATION_INFO, "key");
  CHECK(!made(f->cache, &call, HUTCH_NOT_FOUND).last.info);
  CHECK_OK(put_text(f->cache, "key", "value"));
  CHECK_OK(put_text(f->cache, "other", "12345678"));
  told t = made(f->cache, &call, HUTCH_OK);
  hutch_entry_info info = info_of(f->cache, "key");
  CHECK(t.last.info);
  CHECK_BYTES(&info, sizeof info, &t.info, sizeof t.info);
  call = call_of(HUTCH_OPERATION_COUNT, NULL);
  CHECK_EQUAL(2, made(f->cache, &call, HUTCH_OK).last.count);
  call = call_of(HUTCH_OPERATION_COST, NULL);
  CHECK_EQUAL(cost_of(f->cache), made(f->cache, &call, HUTCH_OK).last.count);
  call = call_of(HUTCH_OPERATION_EACH, NULL);
  call.visitor = count_it;
  CHECK_EQUAL(13, made(f->cache, &call, HUTCH_OK).info.size);
}

static atomic_int walked;

static int32_t has_no_context(void *context, const void *key, size_t key_size,
                              const hutch_entry_info *info) {
  (void)key, (void)key_size, (void)info;
  CHECK(!context);
  walked++;
  return 0;
}

/* Options that end before a field have none. */
TEST(a_walk_has_no_context_if_its_options_have_no_room_for_one) {
  hutch_cache *cache = open_cache(NULL, NULL);
  CHECK_OK(put_text(cache, "key", "value"));
  told t;
  hutch_task_options options = telling(&t);
  options.struct_size = offsetof(hutch_task_options, context);
  options.complete = NULL;
  hutch_call call = call_of(HUTCH_OPERATION_EACH, NULL);
  call.visitor = has_no_context;
  CHECK_OK(hutch_submit(cache, &call, &options, NULL));
  CHECK_OK(hutch_wait_all(cache, HUTCH_FOREVER));
  CHECK_EQUAL(1, walked);
  CHECK_OK(hutch_close(cache));
}

static void complete_with_words(void *context, const hutch_completion *completion) {
  complete(context, completion);
  CHECK(completion->error && completion->error->words[0]);
  CHECK_STATUS(HUTCH_TOO_LARGE, completion->error->status);
}

/* The completion has the error of the key that failed, which its thread's last error is not. */
TEST(a_failure_of_one_of_many_keys) {
  hutch_options given = default_options();
  given.memory.max_entry = 1000;
  hutch_cache *cache = open_cache(NULL, &given);
  static char large[5000];
  const void *keys[] = {"a", "b", "c"}, *values[] = {"1", large, "3"};
  size_t key_sizes[] = {1, 1, 1}, value_sizes[] = {1, sizeof large, 1};
  hutch_call call = call_of(HUTCH_OPERATION_PUT_MANY, NULL);
  call.keys = keys;
  call.key_sizes = key_sizes;
  call.values = values;
  call.value_sizes = value_sizes;
  call.count = 3;
  static told t;
  hutch_task_options options = telling(&t);
  options.complete = complete_with_words;
  hutch_task *task;
  CHECK_OK(hutch_submit(cache, &call, &options, &task));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_EQUAL(1, t.completed);
  CHECK_STATUS(HUTCH_OK, t.last.status);
  CHECK_STATUS(HUTCH_TOO_LARGE, hutch_batch_status(t.batch, 1));
  hutch_batch_release(t.batch);
  CHECK_TEXT(cache, "c", "3");
  CHECK_OK(hutch_close(cache));
}

/* The arguments are copied at the submission. */
TEST_EACH_KIND(many_keys) {
  char first[] = "first", second[] = "second", value[] = "value";
  const void *keys[] = {first, second, first};
  size_t key_sizes[] = {5, 6, 5};
  const void *values[] = {value, NULL, "again"};
  size_t value_sizes[] = {5, 0, 5};
  char extended[] = "type";
  hutch_put_options put = put_options();
  put.extended = extended;
  put.extended_size = 4;
  hutch_call call = call_of(HUTCH_OPERATION_PUT_MANY, NULL);
  call.keys = keys;
  call.key_sizes = key_sizes;
  call.values = values;
  call.value_sizes = value_sizes;
  call.count = 3;
  call.put_options = &put;
  CHECK_OK(hutch_suspend(f->cache));
  static told t;
  hutch_task_options options = telling(&t);
  hutch_task *task;
  CHECK_OK(hutch_submit(f->cache, &call, &options, &task));
  memset(first, 'x', 5), memset(second, 'x', 6), memset(value, 'x', 5), memset(extended, 'x', 4);
  memset(keys, 0, sizeof keys), memset(value_sizes, 0, sizeof value_sizes);
  CHECK_OK(hutch_resume(f->cache));
  CHECK_OK(hutch_task_wait(task, HUTCH_FOREVER));
  hutch_task_release(task);
  CHECK_STATUS(HUTCH_OK, t.last.status);
  CHECK_EQUAL(3, hutch_batch_count(t.batch));
  hutch_put_result result = new_result();
  CHECK_OK(hutch_batch_put_result(t.batch, 0, &result));
  CHECK(result.version != 0);
  hutch_batch_release(t.batch);
  CHECK_TEXT(f->cache, "first", "again");
  CHECK_TEXT(f->cache, "second", "");
  CHECK_EQUAL(4, info_of(f->cache, "first").extended_size);

  const void *asked[] = {"first", "none", "second"};
  size_t sizes[] = {5, 4, 6};
  call = call_of(HUTCH_OPERATION_GET_MANY, NULL);
  call.keys = asked;
  call.key_sizes = sizes;
  call.count = 3;
  told got = made(f->cache, &call, HUTCH_OK);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_status(got.batch, 1));
  hutch_value *found = hutch_batch_value(got.batch, 0);
  CHECK_BYTES("again", 5, hutch_value_data(found), hutch_value_size(found));
  hutch_batch_release(got.batch);
  call.operation = HUTCH_OPERATION_REMOVE_MANY;
  got = made(f->cache, &call, HUTCH_OK);
  CHECK_STATUS(HUTCH_NOT_FOUND, hutch_batch_status(got.batch, 1));
  CHECK_OK(hutch_batch_status(got.batch, 2));
  hutch_batch_release(got.batch);
  CHECK_EQUAL(0, count_of(f->cache));
}

TEST(files_and_paths) {
  hutch_options given = unlimited_options();
  hutch_cache *cache = open_cache(scratch("cache").text, &given);
  size_t size = 3 << 20;
  void *data = filled(size, 5);
  path source = scratch("source");
  write_file(source.text, data, size);
  hutch_call call = call_of(HUTCH_OPERATION_PUT_FILE, "file");
  call.path = source.text;
  call.use = HUTCH_FILE_MOVE;
  told t = made(cache, &call, HUTCH_OK);
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, t.last.disk);
  CHECK(access(source.text, F_OK) != 0);
  made(cache, &call, HUTCH_IO);
  call = call_of(HUTCH_OPERATION_PATH, "file");
  t = made(cache, &call, HUTCH_OK);
  char expected[4096];
  size_t length;
  CHECK_OK(hutch_path(cache, KEY("file"), expected, sizeof expected, &length));
  CHECK(t.last.path && strcmp(t.path, expected) == 0);
  call.key = "none";
  call.key_size = 4;
  CHECK(!made(cache, &call, HUTCH_NOT_FOUND).last.path);
  CHECK_OK(hutch_close(cache));
  free(data);
}

/* Of one key in the order of submission; a later write that is done first wins. */
TEST_EACH_KIND(calls_on_a_key_keep_their_order) {
  CHECK_OK(hutch_suspend(f->cache));
  static told told_of[4];
  hutch_call call = call_of(HUTCH_OPERATION_INCREMENT, "key");
  call.delta = 1;
  for (int i = 0; i < 2; i++) {
    hutch_task_options options = telling(&told_of[i]);
    CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  }
  call.operation = HUTCH_OPERATION_POP;
  hutch_task_options options = telling(&told_of[2]);
  CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  call.operation = HUTCH_OPERATION_ADD;
  set_value(&call, "late");
  options = telling(&told_of[3]);
  CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  CHECK_OK(hutch_resume(f->cache));
  CHECK_OK(hutch_wait_all(f->cache, HUTCH_FOREVER));
  CHECK_EQUAL(1, told_of[0].last.number);
  CHECK_EQUAL(2, told_of[1].last.number);
  CHECK_STATUS(HUTCH_OK, told_of[2].last.status);
  CHECK_STATUS(HUTCH_OK, told_of[3].last.status);
  CHECK_TEXT(f->cache, "key", "late");

  CHECK_OK(hutch_suspend(f->cache));
  call.operation = HUTCH_OPERATION_REPLACE;
  set_value(&call, "older");
  options = telling(&told_of[0]);
  CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  CHECK_OK(put_text(f->cache, "key", "newer"));
  CHECK_OK(hutch_resume(f->cache));
  CHECK_OK(hutch_wait_all(f->cache, HUTCH_FOREVER));
  CHECK_STATUS(HUTCH_SUPERSEDED, told_of[0].last.status);
  CHECK_TEXT(f->cache, "key", "newer");
}

/* A close carries out what writes, and cancels what reads. */
TEST(the_close_of_the_cache) {
  path directory = scratch("cache");
  hutch_options given = default_options();
  hutch_cache *cache = open_cache(directory.text, &given);
  CHECK_OK(hutch_suspend(cache));
  static told counted, touched, walked, put;
  hutch_call call = call_of(HUTCH_OPERATION_INCREMENT, "counter");
  call.delta = 5;
  hutch_task_options options = telling(&counted);
  CHECK_OK(hutch_submit(cache, &call, &options, NULL));
  call = call_of(HUTCH_OPERATION_TOUCH, "none");
  options = telling(&touched);
  CHECK_OK(hutch_submit(cache, &call, &options, NULL));
  call = call_of(HUTCH_OPERATION_EACH, NULL);
  call.visitor = count_it;
  options = telling(&walked);
  CHECK_OK(hutch_submit(cache, &call, &options, NULL));
  const void *keys[] = {"many"};
  size_t sizes[] = {4};
  call = call_of(HUTCH_OPERATION_PUT_MANY, NULL);
  call.keys = call.values = keys;
  call.key_sizes = call.value_sizes = sizes;
  call.count = 1;
  options = telling(&put);
  CHECK_OK(hutch_submit(cache, &call, &options, NULL));
  CHECK_OK(hutch_close(cache));
  CHECK_STATUS(HUTCH_OK, counted.last.status);
  CHECK_STATUS(HUTCH_NOT_FOUND, touched.last.status);
  CHECK_STATUS(HUTCH_CANCELLED, walked.last.status);
  CHECK_STATUS(HUTCH_OK, put.last.status);
  hutch_batch_release(put.batch);
  cache = open_cache(directory.text, &given);
  CHECK_TEXT(cache, "many", "many");
  int64_t sum;
  CHECK_OK(hutch_increment(cache, KEY("counter"), 1, 0, NULL, &sum));
  CHECK_EQUAL(6, sum);
  CHECK_OK(hutch_close(cache));
}

TEST(bad_calls_are_refused) {
  hutch_cache *cache = open_cache(NULL, NULL);
  hutch_call call = call_of(HUTCH_OPERATION_INFO, "key");
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_submit(NULL, &call, NULL, NULL));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_submit(cache, NULL, NULL, NULL));
  for (uint32_t operation = 0; operation < 40; operation++) {
    call = call_of(operation, NULL);
    if (operation == HUTCH_OPERATION_COUNT || operation == HUTCH_OPERATION_COST) continue;
    bool is_known = operation >= HUTCH_OPERATION_INFO && operation <= HUTCH_OPERATION_PATH;
    bool is_many = operation >= HUTCH_OPERATION_GET_MANY && operation <= HUTCH_OPERATION_REMOVE_MANY;
    if (is_many) call.count = 1;
    CHECK_STATUS(is_known ? HUTCH_INVALID_ARGUMENT : HUTCH_UNSUPPORTED,
                 hutch_submit(cache, &call, NULL, NULL));
  }
  call = call_of(HUTCH_OPERATION_GET_MANY, NULL);
  call.count = HUTCH_MANY_MAX + 1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_submit(cache, &call, NULL, NULL));
  call = call_of(HUTCH_OPERATION_TOUCH, "key");
  call.time_to_live = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_submit(cache, &call, NULL, NULL));
  call = call_of(HUTCH_OPERATION_PUT_FILE, "key");
  call.path = "file";
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_submit(cache, &call, NULL, NULL));
  call = call_of(HUTCH_OPERATION_INFO, "key");
  hutch_task_options options = {.struct_size = sizeof options, .identifier = "i",
                                .identifier_size = 1};
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_submit(cache, &call, &options, NULL));
  CHECK_OK(hutch_close(cache));
  cache = open_cache(NULL, NULL);
  CHECK_OK(hutch_cache_retain(cache) == cache ? HUTCH_OK : HUTCH_IO);
  CHECK_OK(hutch_close(cache));
  CHECK_STATUS(HUTCH_CLOSED, hutch_submit(cache, &call, NULL, NULL));
  hutch_cache_release(cache);
}

/* A file's task, and a counter's, that a later put has overtaken. */
TEST_EACH_KIND(a_later_write_overtakes_the_calls_that_wait) {
  path source = scratch("source");
  write_file(source.text, "file", 4);
  CHECK_OK(hutch_suspend(f->cache));
  static told told_of[4];
  hutch_call calls[] = {call_of(HUTCH_OPERATION_INCREMENT, "key"),
                        call_of(HUTCH_OPERATION_PUT_FILE, "key"),
                        call_of(HUTCH_OPERATION_POP, "key"), call_of(HUTCH_OPERATION_TOUCH, "key")};
  calls[1].path = source.text;
  calls[1].use = HUTCH_FILE_COPY;
  for (int i = 0; i < 4; i++) {
    hutch_task_options options = telling(&told_of[i]);
    CHECK_OK(hutch_submit(f->cache, &calls[i], &options, NULL));
  }
  CHECK_OK(put_text(f->cache, "key", "newest"));
  CHECK_OK(hutch_resume(f->cache));
  CHECK_OK(hutch_wait_all(f->cache, HUTCH_FOREVER));
  /* The newest value is no counter. */
  CHECK_STATUS(HUTCH_WRONG_TYPE, told_of[0].last.status);
  CHECK_STATUS(HUTCH_SUPERSEDED, told_of[1].last.status);
  CHECK_STATUS(HUTCH_SUPERSEDED, told_of[2].last.status);
  CHECK_STATUS(HUTCH_OK, told_of[3].last.status);
  CHECK_TEXT(f->cache, "key", "newest");
}

/* A put that was submitted after a call of its key is the later one. */
TEST_EACH_KIND(a_call_does_not_overtake_the_tasks_behind_it) {
  path source = scratch("source");
  write_file(source.text, "file", 4);
  CHECK_OK(hutch_suspend(f->cache));
  static told told_of[3];
  hutch_call call = call_of(HUTCH_OPERATION_PUT_FILE, "key");
  call.path = source.text;
  call.use = HUTCH_FILE_COPY;
  hutch_task_options options = telling(&told_of[0]);
  CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  call.operation = HUTCH_OPERATION_POP;
  options = telling(&told_of[1]);
  CHECK_OK(hutch_submit(f->cache, &call, &options, NULL));
  options = telling(&told_of[2]);
  CHECK_OK(hutch_put_async(f->cache, KEY("key"), KEY("last"), NULL, &options, NULL));
  CHECK_OK(hutch_resume(f->cache));
  CHECK_OK(hutch_wait_all(f->cache, HUTCH_FOREVER));
  for (int i = 0; i < 3; i++) CHECK_STATUS(HUTCH_OK, told_of[i].last.status);
  CHECK(strcmp(told_of[1].text, "file") == 0);
  CHECK_TEXT(f->cache, "key", "last");
}
