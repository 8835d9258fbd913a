/* options.object_codec: objects in both tiers, as themselves and as their bytes. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

/* ------------------------------------------------------------------ helpers */

/* What a host keeps: a text. */
typedef struct document {
  char text[64];
  bool is_decoded;
} document;

/* The codec's context; everything is counted. */
typedef struct coder {
  _Atomic int encodes, decodes, released, contexts;
  _Atomic int answer;        /* of the codec's functions */
  _Atomic int asking, asked; /* decode waits until so many threads ask */
  hutch_cache *asks;         /* decode asks this cache for the same object */
} coder;

static _Atomic int released;

static hutch_status encode(void *context, void *object, hutch_buffer *output) {
  coder *c = context;
  document *d = object;
  atomic_fetch_add(&c->encodes, 1);
  if (c->answer) return c->answer;
  size_t size = strlen(d->text);
  void *room = hutch_buffer_resize(output, size);
  if (!room) return HUTCH_NO_MEMORY;
  memcpy(room, d->text, size);
  return HUTCH_OK;
}

static hutch_status decode(void *context, hutch_value *value, void **object) {
  coder *c = context;
  atomic_fetch_add(&c->decodes, 1);
  if (c->answer) return c->answer;
  if (c->asks) {
    hutch_object *same;
    CHECK_STATUS(HUTCH_DEADLOCK,
                 hutch_get_object(c->asks, hutch_value_key(value), hutch_value_key_size(value),
                                  &same));
    CHECK(!same);
  }
  while (atomic_load(&c->asking) < atomic_load(&c->asked)) nap();
  document *d = calloc(1, sizeof *d);
  memcpy(d->text, hutch_value_data(value), hutch_value_size(value));
  d->is_decoded = true;
  *object = d;
  return HUTCH_OK;
}

static void release_document(void *object) {
  free(object);
  atomic_fetch_add(&released, 1);
}

static void release_context(void *context) { atomic_fetch_add(&((coder *)context)->contexts, 1); }

static hutch_object_codec codec_of(coder *c) {
  return (hutch_object_codec){.struct_size = sizeof(hutch_object_codec), .encode = encode,
                              .decode = decode, .release = release_document, .context = c,
                              .context_release = release_context};
}

static hutch_cache *open_with(const char *directory, coder *c, hutch_options options) {
  hutch_object_codec codec = codec_of(c);
  options.object_codec = &codec;
  return open_cache(directory, &options);
}

static document *new_document(const char *text) {
  document *d = calloc(1, sizeof *d);
  strcpy(d->text, text);
  return d;
}

static document *put(hutch_cache *cache, const char *key, const char *text, uint32_t policy) {
  hutch_put_options options = put_options();
  options.write_policy = policy;
  document *d = new_document(text);
  CHECK_OK(hutch_put_object(cache, KEY(key), d, release_document, &options));
  return d;
}

/* The pointer alone: valid as long as the entry has the object. */
static document *get(hutch_cache *cache, const char *key) {
  hutch_object *object = NULL;
  hutch_status status = hutch_get_object(cache, KEY(key), &object);
  CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  CHECK_EQUAL(status == HUTCH_OK, object != NULL);
  document *d = hutch_object_pointer(object);
  hutch_object_release(object);
  return d;
}

static void check_document(hutch_cache *cache, const char *key, const char *text) {
  hutch_object *object = NULL;
  CHECK_OK(hutch_get_object(cache, KEY(key), &object));
  document *d = hutch_object_pointer(object);
  if (strcmp(d->text, text) != 0) FAIL("%s has %s", key, d->text);
  hutch_object_release(object);
}

static void await_released(int count) {
  while (atomic_load(&released) < count) usleep(200);
  CHECK_EQUAL(count, released);
}

static void empty_memory(hutch_cache *cache) {
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COUNT};
  CHECK_OK(hutch_trim(memory, &spec, NULL));
  CHECK_EQUAL(0, count_of(memory));
  hutch_cache_release(memory);
}

/* -------------------------------------------------------------- both tiers */

TEST(an_object_is_itself_in_memory_and_bytes_on_disk) {
  coder c = {0};
  path directory = scratch("cache");
  hutch_cache *cache = open_with(directory.text, &c, default_options());
  document *d = put(cache, "key", "text", 0);
  CHECK(get(cache, "key") == d && get(cache, "key") == d);
  CHECK_EQUAL(1, c.encodes);
  CHECK_EQUAL(0, c.decodes);
  CHECK_TEXT(cache, "key", "text");
  check_where(cache, "key", true, true);
  CHECK_EQUAL(1, count_of(cache));
  CHECK_EQUAL(4, info_of(cache, "key").size);

  empty_memory(cache);
  await_released(1);
  document *again = get(cache, "key");
  CHECK(again->is_decoded && strcmp(again->text, "text") == 0);
  CHECK(get(cache, "key") == again);
  CHECK_EQUAL(1, c.decodes);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(2, released);
  CHECK_EQUAL(1, c.contexts);

  cache = open_with(directory.text, &c, default_options());
  check_document(cache, "key", "text");
  check_document(cache, "key", "text");
  CHECK_EQUAL(2, c.decodes);
  CHECK_EQUAL(1, c.encodes);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(3, released);
}

TEST(a_cache_in_memory_has_objects_and_their_bytes) {
  coder c = {0};
  hutch_cache *cache = open_with(NULL, &c, unlimited_options());
  document *d = put(cache, "key", "text", 0);
  CHECK(get(cache, "key") == d);
  CHECK_TEXT(cache, "key", "text");
  CHECK_OK(put_text(cache, "other", "bytes"));
  check_document(cache, "other", "bytes");
  check_document(cache, "other", "bytes");
  CHECK_EQUAL(1, c.decodes);
  CHECK(!get(cache, "none"));
  CHECK_EQUAL(2, count_of(cache));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(2, released);
}

typedef struct asking {
  hutch_cache *cache;
  coder *c;
  hutch_object *found[16];
} asking;

static void ask(void *context, int index) {
  asking *a = context;
  atomic_fetch_add(&a->c->asking, 1);
  CHECK_OK(hutch_get_object(a->cache, KEY("key"), &a->found[index]));
}

TEST(an_object_is_made_once_for_all_who_ask) {
  coder c = {.asked = 16};
  hutch_cache *cache = open_with(scratch("cache").text, &c, default_options());
  (void)put(cache, "key", "text", HUTCH_WRITE_DISK);
  await_released(1);
  asking a = {.cache = cache, .c = &c};
  run_threads(16, ask, &a);
  CHECK_EQUAL(1, c.decodes);
  for (int i = 0; i < 16; i++) {
    CHECK(hutch_object_pointer(a.found[i]) == hutch_object_pointer(a.found[0]));
    hutch_object_release(a.found[i]);
  }
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(2, released);
}

TEST(a_failure_is_that_of_all_who_ask) {
  coder c = {.asked = 2, .answer = HUTCH_CORRUPT};
  hutch_cache *cache = open_with(NULL, &c, unlimited_options());
  CHECK_OK(put_text(cache, "key", "text"));
  hutch_object *object;
  CHECK_STATUS(HUTCH_CORRUPT, hutch_get_object(cache, KEY("key"), &object));
  CHECK(!object && strstr(hutch_error_words(), "could not decode"));
  c.answer = HUTCH_TIMED_OUT; /* not one of those that are kept */
  CHECK_STATUS(HUTCH_IO, hutch_get_object(cache, KEY("key"), &object));
  CHECK_TEXT(cache, "key", "text");
  c.answer = 0;
  c.asked = 0;
  c.asks = cache;
  check_document(cache, "key", "text");
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------------ write policies */

TEST(every_write_policy_stores_objects) {
  coder c = {0};
  hutch_options options = default_options();
  options.sharing = HUTCH_SHARING_EXCLUSIVE;
  hutch_cache *cache = open_with(scratch("cache").text, &c, options);
  for (uint32_t policy = HUTCH_WRITE_THROUGH; policy <= HUTCH_WRITE_ON_EVICTION; policy++) {
    bool in_memory = policy != HUTCH_WRITE_DISK;
    bool on_disk = policy == HUTCH_WRITE_THROUGH || policy == HUTCH_WRITE_DISK;
    c.decodes = released = 0;
    document *d = put(cache, "key", "text", policy);
    check_where(cache, "key", in_memory, on_disk);
    if (in_memory) CHECK(get(cache, "key") == d);
    empty_memory(cache);
    await_released(1);
    if (policy == HUTCH_WRITE_MEMORY) {
      CHECK(!get(cache, "key"));
    } else {
      check_where(cache, "key", false, true);
      check_document(cache, "key", "text");
      CHECK_EQUAL(1, c.decodes);
    }
    CHECK_EQUAL(policy == HUTCH_WRITE_MEMORY ? HUTCH_NOT_FOUND : HUTCH_OK,
                hutch_remove_object(cache, KEY("key")));
    check_where(cache, "key", false, false);
    await_released(policy == HUTCH_WRITE_MEMORY ? 1 : 2);
  }
  /* An object that is made of an entry whose write is deferred leaves it deferred. */
  hutch_put_options deferred = put_options();
  deferred.write_policy = HUTCH_WRITE_ON_EVICTION;
  CHECK_OK(hutch_put(cache, KEY("late"), "bytes", 5, &deferred, NULL));
  check_document(cache, "late", "bytes");
  check_where(cache, "late", true, false);
  empty_memory(cache);
  check_where(cache, "late", false, true);
  CHECK_OK(hutch_close(cache));
}

TEST(views_have_objects_of_their_tier) {
  coder c = {0};
  hutch_cache *cache = open_with(scratch("cache").text, &c, default_options());
  hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY), *disk = tier_of(cache, HUTCH_TIER_DISK);
  document *d = put(memory, "m", "memory", 0);
  CHECK(get(memory, "m") == d && get(cache, "m") == d && !get(disk, "m"));
  (void)put(disk, "d", "disk", 0);
  await_released(1);
  CHECK(!get(memory, "d"));
  check_document(disk, "d", "disk");
  check_document(disk, "d", "disk");
  CHECK_EQUAL(2, c.decodes);
  check_where(cache, "d", false, true);
  hutch_cache_release(memory);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- failures */

TEST(a_failure_loses_nothing) {
  coder c = {0};
  hutch_cache *cache = open_with(scratch("cache").text, &c, default_options());
  document *old = put(cache, "key", "old", 0);
  int answers[][2] = {{HUTCH_IO, HUTCH_IO}, {HUTCH_WRONG_TYPE, HUTCH_WRONG_TYPE},
                      {HUTCH_NO_MEMORY, HUTCH_NO_MEMORY}, {5, HUTCH_IO}, {-1000, HUTCH_IO}};
  for (int i = 0; i < 5; i++) {
    c.answer = answers[i][0];
    document *d = new_document("new");
    CHECK_STATUS(answers[i][1], hutch_put_object(cache, KEY("key"), d, release_document, NULL));
    CHECK_EQUAL(i + 1, released); /* on this thread, before the return */
    CHECK(strstr(hutch_error_words(), "could not encode"));
  }
  CHECK(get(cache, "key") == old);
  empty_memory(cache);
  await_released(6);
  hutch_object *object;
  CHECK_STATUS(HUTCH_IO, hutch_get_object(cache, KEY("key"), &object));
  CHECK_TEXT(cache, "key", "old");
  c.answer = 0;
  check_document(cache, "key", "old");
  CHECK_OK(hutch_close(cache));
}

TEST(an_object_that_memory_does_not_take_is_on_disk) {
  coder c = {0};
  hutch_options options = default_options();
  options.memory.max_entry = 100;
  hutch_cache *cache = open_with(scratch("cache").text, &c, options);
  hutch_put_options costly = put_options();
  costly.cost = 1000;
  document *d = new_document("large");
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put_object(cache, KEY("key"), d, release_document, &costly));
  await_released(1);
  check_where(cache, "key", false, true);
  check_document(cache, "key", "large");
  check_where(cache, "key", false, true);
  await_released(2);
  CHECK_OK(hutch_close(cache));
}

/* ------------------------------------------------------- what becomes of them */

TEST(an_object_shares_what_becomes_of_its_value) {
  coder c = {0};
  hutch_cache *caches[] = {open_with(NULL, &c, unlimited_options()),
                           open_with(scratch("cache").text, &c, default_options())};
  for (int i = 0; i < 2; i++) {
    hutch_cache *cache = caches[i];
    released = c.decodes = 0;
    (void)put(cache, "key", "12345678", 0);
    CHECK_OK(hutch_put(cache, KEY("key"), "87654321", 8, NULL, NULL));
    await_released(1);
    check_document(cache, "key", "87654321");
    CHECK_EQUAL(1, c.decodes);
    int64_t sum;
    CHECK_OK(hutch_increment(cache, KEY("key"), 1, 0, NULL, &sum)); /* of the bytes */
    await_released(2);
    check_document(cache, "key", "97654321");

    document *d = put(cache, "key", "touched", 0);
    CHECK_OK(hutch_touch(cache, KEY("key"), HUTCH_HOUR, 0));
    CHECK(get(cache, "key") == d);
    CHECK(info_of(cache, "key").expires != 0);
    CHECK_OK(hutch_touch(cache, KEY("key"), HUTCH_FOREVER, 0));
    await_released(3);
    CHECK(get(cache, "key") == d);
    hutch_object *held;
    CHECK_OK(hutch_get_object(cache, KEY("key"), &held));
    CHECK_OK(hutch_remove(cache, KEY("key")));
    CHECK(!get(cache, "key"));
    CHECK(strcmp(d->text, "touched") == 0);
    CHECK_EQUAL(3, released);
    hutch_object_release(held);
    await_released(4);

    hutch_put_options tagged = put_options();
    tagged.tag = "tag";
    tagged.tag_size = 3;
    tagged.extended = "extended";
    tagged.extended_size = 8;
    d = new_document("tagged");
    CHECK_OK(hutch_put_object(cache, KEY("key"), d, release_document, &tagged));
    CHECK_EQUAL(8, info_of(cache, "key").extended_size);
    CHECK(get(cache, "key") == d);
    CHECK_OK(hutch_remove_tagged(cache, "tag", 3, NULL));
    await_released(5);
    (void)put(cache, "key", "cleared", 0);
    CHECK_OK(hutch_clear(cache));
    await_released(6);
    CHECK(!get(cache, "key"));
    CHECK_OK(hutch_close(cache));
  }
  CHECK_EQUAL(2, c.contexts);
}

TEST(objects_count_for_the_limits) {
  coder c = {0};
  hutch_options options = unlimited_options();
  options.memory.count = 3;
  hutch_cache *cache = open_with(scratch("cache").text, &c, options);
  char key[8];
  for (int i = 0; i < 10; i++) {
    snprintf(key, sizeof key, "%d", i);
    (void)put(cache, key, key, 0);
  }
  await_released(7);
  for (int i = 0; i < 10; i++) {
    snprintf(key, sizeof key, "%d", i);
    check_document(cache, key, key);
  }
  CHECK_EQUAL(3, stats_of(cache).memory.count);
  CHECK_EQUAL(10, count_of(cache));
  CHECK_OK(hutch_close(cache));
}

typedef struct heard {
  int added, removed;
  char text[16];
} heard;

static void hear(void *context, const hutch_event *event) {
  heard *h = context;
  if (event->kind == HUTCH_EVENT_DID_ADD) {
    h->added++;
    snprintf(h->text, sizeof h->text, "%.*s", (int)hutch_value_size(event->value),
             (const char *)hutch_value_data(event->value));
  } else if (event->kind == HUTCH_EVENT_DID_REMOVE) {
    h->removed++;
  }
}

TEST(objects_make_the_events_of_values) {
  coder c = {0};
  hutch_cache *cache = open_with(scratch("cache").text, &c, default_options());
  heard h = {0};
  CHECK_OK(hutch_set_listener(cache, HUTCH_EVENT_DID_ADD | HUTCH_EVENT_DID_REMOVE, hear, &h, NULL));
  (void)put(cache, "key", "text", 0);
  CHECK_EQUAL(1, h.added);
  CHECK(strcmp(h.text, "text") == 0);
  empty_memory(cache);
  check_document(cache, "key", "text"); /* is no write */
  CHECK_EQUAL(1, h.added);
  int removed = h.removed;
  CHECK_OK(hutch_remove_object(cache, KEY("key")));
  CHECK_EQUAL(removed + 1, h.removed);
  CHECK_OK(hutch_close(cache));
}

/* Bytes to bytes, on top of which the object's bytes go. */
static hutch_status flip(void *context, const void *input, size_t size, hutch_buffer *output) {
  (void)context;
  unsigned char *room = hutch_buffer_resize(output, size);
  if (!room) return HUTCH_NO_MEMORY;
  for (size_t i = 0; i < size; i++) room[i] = ((const unsigned char *)input)[i] ^ 0xff;
  return HUTCH_OK;
}

TEST(objects_go_through_the_codec_of_the_disk) {
  coder c = {0};
  hutch_options options = default_options();
  options.codec_id = 7;
  options.codec_encode = options.codec_decode = flip;
  hutch_cache *cache = open_with(scratch("cache").text, &c, options);
  (void)put(cache, "key", "text", 0);
  empty_memory(cache);
  check_document(cache, "key", "text");
  CHECK_OK(hutch_close(cache));
}

/* -------------------------------------------------------------------- options */

TEST(object_codecs_that_are_refused) {
  coder c = {0}, other = {0};
  hutch_object_codec codec = codec_of(&c);
  hutch_options options = default_options();
  hutch_cache *cache = NULL, *second = NULL;
  path directory = scratch("cache");
  options.object_codec = &codec;
  codec.encode = NULL;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(directory.text, &options, &cache));
  CHECK_EQUAL(1, c.contexts);
  codec = codec_of(&c);
  codec.decode = NULL;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &cache));
  CHECK_EQUAL(2, c.contexts);
  codec = codec_of(&c);
  codec.struct_size = 3;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(NULL, &options, &cache));
  CHECK_EQUAL(2, c.contexts);
  codec = codec_of(&c);
  options.durability = 99;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_open(NULL, &options, &cache));
  CHECK_EQUAL(3, c.contexts);
  options.durability = 0;

  CHECK_OK(hutch_open(directory.text, &options, &cache));
  CHECK_OK(hutch_open(directory.text, &options, &second)); /* a like one */
  CHECK_EQUAL(4, c.contexts);
  CHECK_OK(hutch_close(second));
  codec = codec_of(&other);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(directory.text, &options, &second));
  CHECK_EQUAL(1, other.contexts);
  options.object_codec = NULL;
  CHECK_OK(hutch_open(directory.text, &options, &second));
  (void)put(second, "key", "text", 0);
  check_document(cache, "key", "text");
  CHECK_OK(hutch_close(second));

  hutch_options told = {.struct_size = sizeof told};
  CHECK_OK(hutch_get_options(cache, &told));
  CHECK(told.object_codec->encode == encode && told.object_codec->decode == decode
        && told.object_codec->context == &c && !told.object_codec->context_release);
  second = open_cache(NULL, &told);
  (void)put(second, "key", "text", 0);
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(5, c.contexts);
}

/* ------------------------------------------------------------------ processes */

TEST(other_processes_replace_objects) {
  coder c = {0};
  hutch_cache *cache = open_with(scratch("cache").text, &c, default_options());
  document *d = put(cache, "key", "parent", 0);
  CHECK(get(cache, "key") == d);
  pid_t child = fork_now();
  if (child == 0) {
    /* The parent's object, of which this process has a copy. */
    check_document(cache, "key", "parent");
    CHECK_EQUAL(0, c.decodes);
    (void)put(cache, "key", "child", 0);
    check_document(cache, "key", "child");
    empty_memory(cache);
    check_document(cache, "key", "child");
    CHECK_EQUAL(1, c.decodes);
    CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(2, released);
    CHECK_EQUAL(1, c.contexts);
    end_child();
  }
  await_child(child);
  check_document(cache, "key", "child");
  CHECK_EQUAL(1, c.decodes);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(2, released);
  CHECK_EQUAL(1, c.contexts);
}
