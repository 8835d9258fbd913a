/* Codecs, checksums on read, and durability. */
#define _GNU_SOURCE
#include "check.h"

#include <sqlite3.h>
#include <unistd.h>

#define LARGE 300000

/* A codec that stores each run of one byte as the byte and its length, behind a byte of its
   own, and does as it is told for tests. */
typedef struct codec {
  _Atomic int encodes, decodes, released;
  _Atomic int fails;          /* what both answer; 0: they work */
  _Atomic int wants_too_much; /* decode asks for a byte more than there is */
  hutch_cache *cache;
  hutch_status within;        /* what hutch_flush answers within the codec */
} codec;

static hutch_status encode(void *context, const void *input, size_t size, hutch_buffer *output) {
  codec *c = context;
  c->encodes++;
  if (c->cache) c->within = hutch_flush(c->cache);
  if (c->fails) return c->fails;
  const unsigned char *in = input;
  size_t room = 1, used = 1;
  unsigned char *out = hutch_buffer_resize(output, room);
  CHECK(out);
  out[0] = 0xC0;
  for (size_t i = 0; i < size;) {
    unsigned char run = 1;
    while (i + run < size && run < 255 && in[i + run] == in[i]) run++;
    if (used + 2 > room) {
      room = 2 * room + 2;
      CHECK(out = hutch_buffer_resize(output, room));
      CHECK(out[0] == 0xC0);
    }
    out[used++] = in[i];
    out[used++] = run;
    i += run;
  }
  CHECK(hutch_buffer_resize(output, used));
  return HUTCH_OK;
}

static hutch_status decode(void *context, const void *input, size_t size, hutch_buffer *output) {
  codec *c = context;
  c->decodes++;
  if (c->fails) return c->fails;
  const unsigned char *in = input;
  CHECK(size >= 1 && in[0] == 0xC0);
  size_t sum = 0;
  for (size_t i = 1; i + 1 < size; i += 2) sum += in[i + 1];
  if (c->wants_too_much) CHECK(!hutch_buffer_resize(output, sum + 1));
  if (c->wants_too_much) CHECK(!hutch_buffer_resize(output, (size_t)-1));
  unsigned char *out = hutch_buffer_resize(output, sum);
  CHECK(out);
  for (size_t i = 1; i + 1 < size; out += in[i + 1], i += 2) memset(out, in[i], in[i + 1]);
  return HUTCH_OK;
}

static void release(void *context) { ((codec *)context)->released++; }

static hutch_options with_codec(codec *c, uint32_t id) {
  hutch_options options = unlimited_options();
  options.codec_id = id;
  options.codec_encode = encode;
  options.codec_decode = decode;
  options.codec_context = c;
  options.codec_release = release;
  return options;
}

static hutch_cache *open_coded(codec *c, uint32_t id) {
  hutch_options options = with_codec(c, id);
  return open_cache(scratch("cache").text, &options);
}

/* Easy for the codec, and different for each size. */
static void *easy(size_t size) {
  unsigned char *data = malloc(size + 1);
  for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(i / 200 + size);
  return data;
}

static hutch_status put_easy(hutch_cache *cache, const char *key, size_t size) {
  void *data = easy(size);
  hutch_status status = hutch_put(cache, KEY(key), data, size, NULL, NULL);
  free(data);
  return status;
}

static void check_easy(hutch_cache *cache, const char *key, size_t size) {
  void *data = easy(size);
  hutch_value *value = get_value(cache, key);
  CHECK_BYTES(data, size, hutch_value_data(value), hutch_value_size(value));
  hutch_value_release(value);
  CHECK_EQUAL(size, info_of(cache, key).size);
  free(data);
}

TEST(a_codec_stands_between_the_tiers) {
  static const size_t sizes[] = {0, 1, 20480, 20481, LARGE, 9000000};
  codec c = {0};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    hutch_cache *cache = open_coded(&c, 7);
    hutch_cache *memory = tier_of(cache, HUTCH_TIER_MEMORY);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_OK(put_easy(cache, "key", sizes[i]));
    CHECK_EQUAL(1, c.encodes);
    check_easy(memory, "key", sizes[i]);
    CHECK_EQUAL(0, c.decodes);
    check_easy(disk, "key", sizes[i]);
    CHECK_EQUAL(1, c.decodes);
    CHECK_EQUAL(0, info_of(disk, "key").checksum);
    hutch_cache_release(memory);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
    CHECK_EQUAL(1, c.released);
    cache = open_coded(&c, 7);
    check_easy(cache, "key", sizes[i]);
    CHECK_EQUAL(2, c.decodes);
    hutch_value *value = NULL;
    CHECK_OK(hutch_pop(cache, KEY("key"), &value));
    CHECK_EQUAL(sizes[i], hutch_value_size(value));
    hutch_value_release(value);
    CHECK_EQUAL(0, count_of(cache));
    CHECK_OK(hutch_close(cache));
    c = (codec){0};
  }
}

TEST(what_is_stored_is_what_the_codec_made) {
  codec c = {0};
  hutch_cache *cache = open_coded(&c, 7);
  CHECK_OK(put_easy(cache, "key", LARGE));
  /* 200 of a kind become two bytes, which need no file. */
  size_t size;
  CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_path(cache, KEY("key"), NULL, 0, &size));
  CHECK_OK(hutch_close(cache));
  CHECK(bytes_below(scratch("cache").text) < 100000);
  sqlite3 *database;
  sqlite3_stmt *statement;
  path manifest = scratch("cache/manifest.sqlite");
  CHECK(sqlite3_open_v2(manifest.text, &database, SQLITE_OPEN_READONLY, NULL) == 0);
  CHECK(sqlite3_prepare_v2(database, "SELECT codec, size, length(value) FROM entries", -1,
                           &statement, NULL) == 0);
  CHECK(sqlite3_step(statement) == SQLITE_ROW);
  CHECK_EQUAL(7, sqlite3_column_int(statement, 0));
  CHECK_EQUAL(LARGE, sqlite3_column_int(statement, 1));
  CHECK_EQUAL(1 + 2 * (LARGE / 200), sqlite3_column_int(statement, 2));
  sqlite3_finalize(statement);
  sqlite3_close(database);
}

TEST(files_and_pieces_pass_through_the_codec_too) {
  codec c = {0};
  hutch_cache *cache = open_coded(&c, 7);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  void *data = filled(LARGE, 1);
  write_file(scratch("source").text, data, LARGE);
  CHECK_OK(hutch_put_file(disk, KEY("file"), scratch("source").text, HUTCH_FILE_LINK, NULL, NULL));
  hutch_writer *writer = NULL;
  CHECK_OK(hutch_writer_begin(disk, KEY("pieces"), 0, NULL, &writer));
  CHECK_OK(hutch_writer_append(writer, data, LARGE / 2));
  CHECK_OK(hutch_writer_append(writer, (char *)data + LARGE / 2, LARGE / 2));
  CHECK_OK(hutch_writer_commit(writer, NULL));
  hutch_writer_release(writer);
  CHECK_EQUAL(2, c.encodes);
  const char *keys[] = {"file", "pieces"};
  for (int i = 0; i < 2; i++) {
    hutch_value *value = get_value(disk, keys[i]);
    CHECK_BYTES(data, LARGE, hutch_value_data(value), hutch_value_size(value));
    hutch_value_release(value);
    /* A descriptor reads the value; the file is not it. */
    size_t size;
    int file;
    char *read_back = malloc(LARGE);
    CHECK_STATUS(HUTCH_WRONG_TYPE, hutch_path(disk, KEY(keys[i]), NULL, 0, &size));
    CHECK(strstr(hutch_error_words(), "codec"));
    CHECK_OK(hutch_open_fd(disk, KEY(keys[i]), &file));
    CHECK(read(file, read_back, LARGE) == LARGE);
    CHECK_BYTES(data, LARGE, read_back, LARGE);
    close(file);
    free(read_back);
  }
  free(data);
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

TEST(an_entry_of_another_codec_is_a_miss_and_is_kept) {
  codec c = {0}, other = {0};
  hutch_cache *cache = open_cache(scratch("cache").text, NULL);
  CHECK_OK(put_text(cache, "plain", "value"));
  CHECK_OK(hutch_close(cache));
  cache = open_coded(&c, 7);
  CHECK_TEXT(cache, "plain", "value");
  CHECK_OK(put_easy(cache, "small", 100));
  CHECK_OK(put_easy(cache, "other", 100));
  CHECK_OK(hutch_close(cache));
  for (int i = 0; i < 2; i++) {
    hutch_options options = with_codec(&other, 8);
    cache = open_cache(scratch("cache").text, i ? NULL : &options);
    CHECK_MISSING(cache, "small");
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_contains(cache, KEY("small")));
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(cache, KEY("small")));
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    CHECK_STATUS(HUTCH_NOT_FOUND, hutch_remove(disk, KEY("small")));
    hutch_cache_release(disk);
    CHECK_TEXT(cache, "plain", "value");
    CHECK_OK(hutch_add(cache, KEY("other"), KEY("newer"), NULL, NULL));
    CHECK_EQUAL(0, stats_of(cache).disk.damaged);
    CHECK_OK(hutch_remove(cache, KEY("other")));
    CHECK_OK(hutch_close(cache));
  }
  CHECK_EQUAL(0, other.decodes);
  cache = open_coded(&c, 7);
  check_easy(cache, "small", 100);
  CHECK_OK(hutch_close(cache));
}

TEST(a_codec_that_fails) {
  codec c = {0};
  hutch_cache *cache = open_coded(&c, 7);
  hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
  CHECK_OK(put_easy(cache, "key", 100));
  c.fails = HUTCH_UNSUPPORTED;
  hutch_put_result result = new_result();
  CHECK_STATUS(HUTCH_PARTIAL, hutch_put(cache, KEY("new"), KEY("v"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.memory);
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_STATUS(HUTCH_IO, hutch_put(disk, KEY("new"), KEY("v"), NULL, &result));
  CHECK_EQUAL(HUTCH_OUTCOME_FAILED, result.disk);
  CHECK_MISSING(cache, "new");
  hutch_value *value = NULL;
  CHECK_STATUS(HUTCH_IO, hutch_get(disk, KEY("key"), &value));
  CHECK_STATUS(HUTCH_IO, hutch_pop(disk, KEY("key"), &value));
  CHECK(!value);
  c.fails = 0;
  check_easy(disk, "key", 100);
  /* What it calls damaged is removed, and so is what is not as large as it should be. */
  for (int i = 0; i < 2; i++) {
    CHECK_OK(put_easy(disk, "key", 100));
    if (i) c.wants_too_much = 1;
    else c.fails = HUTCH_CORRUPT;
    CHECK_MISSING(disk, "key");
    c.fails = c.wants_too_much = 0;
    CHECK_MISSING(disk, "key");
    CHECK_EQUAL(i + 1, stats_of(disk).disk.damaged);
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, c.released);
}

TEST(a_codec_is_a_callback_of_its_cache) {
  codec c = {0};
  c.cache = open_coded(&c, 7);
  CHECK_OK(put_text(c.cache, "key", "value"));
  CHECK_STATUS(HUTCH_DEADLOCK, c.within);
  CHECK_OK(hutch_close(c.cache));
}

TEST(a_codec_that_is_none_is_refused_and_released) {
  for (int i = 0; i < 4; i++) {
    codec c = {0};
    hutch_options options = with_codec(&c, i == 0 ? 0 : 7);
    if (i == 1) options.codec_encode = NULL;
    if (i == 2) options.codec_decode = NULL;
    if (i == 3) options.policy = 77;
    hutch_cache *cache;
    CHECK_STATUS(i == 3 ? HUTCH_UNSUPPORTED : HUTCH_INVALID_ARGUMENT,
                 hutch_open(scratch("cache").text, &options, &cache));
    CHECK_EQUAL(1, c.released);
  }
  CHECK(!hutch_buffer_resize(NULL, 1));
  codec c = {0}, d = {0};
  hutch_cache *cache = open_coded(&c, 7), *second;
  hutch_options options = with_codec(&d, 8);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(scratch("cache").text, &options, &second));
  CHECK(!second && strstr(hutch_error_words(), "another codec"));
  CHECK_EQUAL(1, d.released);
  CHECK_EQUAL(0, c.released);
  /* One that sets none has the cache's. */
  CHECK_OK(hutch_open(scratch("cache").text, NULL, &second));
  CHECK_OK(put_text(second, "of the second", "value"));
  CHECK_OK(hutch_close(second));
  CHECK_OK(hutch_close(cache));
  CHECK_EQUAL(1, c.released);
  cache = open_cache(scratch("plain").text, NULL);
  d = (codec){0};
  options = with_codec(&d, 8);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_open(scratch("plain").text, &options, &second));
  CHECK_EQUAL(1, d.released);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------- checksums */

static void change_a_byte(hutch_cache *cache, const char *key) {
  path file;
  size_t size;
  CHECK_OK(hutch_path(cache, KEY(key), file.text, sizeof file.text, &size));
  FILE *stream = fopen(file.text, "r+");
  CHECK(stream && fseek(stream, 100, SEEK_SET) == 0 && fputc(0x55, stream) == 0x55);
  fclose(stream);
}

TEST(checksums_are_compared_or_not) {
  for (uint32_t checksums = HUTCH_CHECKSUMS_DEFAULT; checksums <= HUTCH_CHECKSUMS_NEVER;
       checksums++) {
    hutch_options options = unlimited_options();
    options.checksums = checksums;
    hutch_cache *cache = open_cache(scratch("cache").text, &options);
    hutch_cache *disk = tier_of(cache, HUTCH_TIER_DISK);
    void *data = easy(LARGE);
    CHECK_OK(hutch_put(disk, KEY("key"), data, LARGE, NULL, NULL));
    CHECK(info_of(disk, "key").checksum != 0);
    change_a_byte(disk, "key");
    if (checksums == HUTCH_CHECKSUMS_NEVER) {
      hutch_value *value = get_value(disk, "key");
      CHECK_EQUAL(0x55, ((const unsigned char *)hutch_value_data(value))[100]);
      hutch_value_release(value);
    } else {
      CHECK_MISSING(disk, "key");
    }
    free(data);
    hutch_cache_release(disk);
    CHECK_OK(hutch_close(cache));
  }
}

/* --------------------------------------------------------------- durability */

static int durability_in(const char *manifest) {
  sqlite3 *database;
  sqlite3_stmt *statement;
  CHECK(sqlite3_open_v2(manifest, &database, SQLITE_OPEN_READWRITE, NULL) == 0);
  CHECK(sqlite3_prepare_v2(database, "SELECT durability FROM meta", -1, &statement, NULL) == 0);
  CHECK(sqlite3_step(statement) == SQLITE_ROW);
  int found = sqlite3_column_int(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(database);
  return found;
}

TEST(every_durability_keeps_what_is_put) {
  for (uint32_t durability = HUTCH_DURABILITY_DEFAULT; durability <= HUTCH_DURABILITY_SYNC;
       durability++) {
    hutch_options options = unlimited_options();
    options.durability = durability;
    char name[] = "cache0";
    name[5] += durability;
    hutch_cache *cache = open_cache(scratch(name).text, &options), *second;
    CHECK_OK(put_text(cache, "small", "value"));
    CHECK_OK(put_size(cache, "large", LARGE));
    write_file(scratch("source").text, "0123456789", 10);
    hutch_writer *writer = NULL;
    void *data = easy(LARGE);
    CHECK_OK(hutch_writer_begin(cache, KEY("pieces"), 0, NULL, &writer));
    CHECK_OK(hutch_writer_append(writer, data, LARGE));
    CHECK_OK(hutch_writer_commit(writer, NULL));
    hutch_writer_release(writer);
    write_file(scratch("source").text, data, LARGE);
    CHECK_OK(hutch_put_file(cache, KEY("link"), scratch("source").text, HUTCH_FILE_LINK, NULL,
                            NULL));
    free(data);
    /* A stronger one holds; a weaker one differs. The manifest has the weakest. */
    bool is_weaker = durability == HUTCH_DURABILITY_SYNC;
    options.durability = is_weaker ? HUTCH_DURABILITY_POWER : HUTCH_DURABILITY_SYNC;
    CHECK_STATUS(is_weaker ? HUTCH_OPTIONS_DIFFER : HUTCH_OK,
                 hutch_open(scratch(name).text, &options, &second));
    CHECK_OK(put_text(second, "second", "value"));
    CHECK_OK(hutch_close(second));
    CHECK_OK(hutch_close(cache));
    char manifest[] = "cache0/manifest.sqlite";
    manifest[5] += durability;
    if (!on_log()) {
      CHECK_EQUAL(durability ? durability : HUTCH_DURABILITY_PROCESS,
                  durability_in(scratch(manifest).text));
    }
    cache = open_cache(scratch(name).text, NULL);
    CHECK_TEXT(cache, "small", "value");
    check_easy(cache, "pieces", LARGE);
    check_easy(cache, "link", LARGE);
    CHECK_EQUAL(5, count_of(cache));
    CHECK_OK(hutch_close(cache));
  }
}
