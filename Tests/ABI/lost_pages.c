/* What a loss of power leaves of the SQLite store. The program stands before libc: it records what
   is written to the manifest, its log and hutch.shared, and what is synced of that. At any call a
   state of the disk is laid out in another directory: what was synced, and any part of the rest,
   in units of 512 or 4,096 bytes, each as it was at any time since. It is opened as after a boot.

   The manifest says what must be there. With clean = 1, or with a stronger durability than
   HUTCH_DURABILITY_PROCESS, the state is that after some call, and the database is whole. Else it
   may be torn: then it costs entries, and shows no wrong one. */
#define _GNU_SOURCE
#include "check.h"
#include "lost_disk.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------- sessions */

/* What the bytes of a value say, and how many there are. */
static size_t value_of(uint32_t key, uint32_t round, uint8_t *bytes) {
  uint64_t state = (uint64_t)key << 32 | round;
  uint64_t number = next_random(&state);
  size_t size = 8 + number % (number % 16 == 0 ? 20000 : 2000);
  fill(bytes, size, state);
  memcpy(bytes, &key, 4);
  memcpy(bytes + 4, &round, 4);
  return size;
}

static const char *key_of(uint32_t key) {
  static char text[16];
  snprintf(text, sizeof text, "key %u", key);
  return text;
}

static hutch_cache *open_it(const char *directory, hutch_cache **disk) {
  hutch_options options = unlimited_options();
  use_clock(&options, &w->clock);
  options.flags |= HUTCH_OPEN_NO_THREADS;
  options.storage = HUTCH_STORAGE_MIXED;
  chain kind = w->chain == MIXED ? (chain)below(MIXED) : w->chain;
  options.durability = HUTCH_DURABILITY_PROCESS + (uint32_t)kind;
  hutch_cache *cache = open_cache(directory, &options);
  *disk = tier_of(cache, HUTCH_TIER_DISK);
  return cache;
}

/* Moves the log into the database and cuts it. */
static void make_checkpoint(hutch_cache *disk) {
  hutch_trim_spec spec = {.struct_size = sizeof spec, .kind = HUTCH_TRIM_TO_COST,
                          .amount = cost_of(disk) - 1};
  uint64_t removed = 0;
  struct stat status;
  if (stat(in_directory(w->directory.text, names[LOG]).text, &status) != 0) return;
  if (status.st_size == 0) return;
  CHECK_OK(hutch_trim(disk, &spec, &removed));
  CHECK_EQUAL(0, removed);
}

static void change_one(hutch_cache *disk) {
  static uint8_t bytes[32768];
  promise *p = &w->promise;
  uint32_t kind = below(200), key = below(KEYS);
  change c = {.key = key};
  if (kind == 0) c.key = KEYS;
  else if (kind > 30) c.round = ++w->round;
  w->changes[p->begun] = c;
  p->rests = false;
  p->begun++;
  if (c.key == KEYS) {
    CHECK_OK(hutch_clear(disk));
  } else if (c.round == 0) {
    hutch_status status = hutch_remove(disk, KEY(key_of(key)));
    CHECK(status == HUTCH_OK || status == HUTCH_NOT_FOUND);
  } else {
    size_t size = value_of(key, c.round, bytes);
    CHECK_OK(hutch_put(disk, KEY(key_of(key)), bytes, size, NULL, NULL));
  }
  p->ended = p->begun;
}

static void read_one(hutch_cache *disk) {
  hutch_value *value = NULL;
  if (hutch_get(disk, KEY(key_of(below(KEYS))), &value) == HUTCH_OK) hutch_value_release(value);
}

static void run_session(void) {
  hutch_cache *disk, *cache = open_it(w->directory.text, &disk);
  w->clock.now += HUTCH_HOUR;
  uint32_t kind = below(4), calls = kind == 0 ? 0 : kind == 1 ? below(8) : below(200);
  uint32_t reads = below(20);
  for (uint32_t i = 0; i < reads; i++) read_one(disk);
  /* The times of the accesses alone fill a log. */
  for (uint32_t rounds = below(8) == 0 ? 12 : below(3); rounds > 0; rounds--) {
    for (uint32_t i = 0; i < reads * 4; i++) read_one(disk);
    CHECK_OK(hutch_flush(disk));
    if (rounds % 4 == 1) CHECK_OK(hutch_maintain(disk, 0));
  }
  if (below(4) == 0) make_checkpoint(disk);
  for (uint32_t i = 0; i < calls && w->promise.begun < MOST_CALLS; i++) {
    change_one(disk);
    if (below(8) == 0) read_one(disk);
    if (below(32) == 0) CHECK_OK(hutch_maintain(disk, 0));
    if (below(32) == 0) make_checkpoint(disk);
  }
  if (below(4) == 0) {
    w->promise.rests = false;
    _exit(KILLED);
  }
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
  w->promise.closed = w->promise.ended;
  w->promise.rests = true;
}

/* Another process, for its parent to wait for. Its answer is how it ended. */
static int run_apart(void (*body)(uint32_t), uint32_t argument) {
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body(argument);
    _exit(GOES_ON);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) >= LOSS);
  return WEXITSTATUS(status);
}

static void run_sessions(uint32_t count) {
  records = true;
  w->until_kill = below(2) ? UINT32_MAX : below(400);
  for (uint32_t i = 0; i < count; i++) run_session();
}

/* -------------------------------------------------------------------- looks */

typedef struct mark {
  bool is_there, is_clean, is_synced, is_whole;
} mark;

static int64_t ask(sqlite3 *database, const char *sql) {
  sqlite3_stmt *statement = NULL;
  int64_t answer = -1;
  if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK &&
      sqlite3_step(statement) == SQLITE_ROW) {
    const unsigned char *text = sqlite3_column_text(statement, 0);
    answer = text && strcmp((const char *)text, "ok") == 0 ? 1 : sqlite3_column_int64(statement, 0);
  }
  sqlite3_finalize(statement);
  return answer;
}

/* What the manifest says of itself, and what SQLite says of it. */
static mark look_at(const char *directory) {
  mark m = {0};
  path name = in_directory(directory, names[DATABASE]);
  if (access(name.text, F_OK) != 0) return m;
  sqlite3 *database;
  CHECK(sqlite3_open_v2(name.text, &database, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  m.is_clean = ask(database, "SELECT clean FROM meta") > 0;
  m.is_synced = ask(database, "SELECT durability FROM meta") > HUTCH_DURABILITY_PROCESS;
  m.is_there = ask(database, "SELECT has_limits FROM meta") > 0;
  m.is_whole = ask(database, "PRAGMA integrity_check(1)") == 1;
  CHECK(sqlite3_close(database) == SQLITE_OK);
  unlink(in_directory(directory, "manifest.sqlite-shm").text);
  return m;
}

static bool had(uint32_t key, uint32_t round, uint32_t begun) {
  if (w->base[key] == round) return true;
  for (uint32_t i = 0; i < begun; i++)
    if (w->changes[i].key == key && w->changes[i].round == round) return true;
  return false;
}

/* Each value that is found is one that the key has had. Returns how many there are. */
static uint32_t read_all(hutch_cache *disk, uint32_t begun, uint64_t *version) {
  static uint8_t expected[32768];
  uint32_t count = 0;
  for (uint32_t key = 0; key < KEYS; key++) {
    hutch_value *value = NULL;
    hutch_status status = hutch_get(disk, KEY(key_of(key)), &value);
    w->found[key] = 0;
    if (status == HUTCH_NOT_FOUND) continue;
    CHECK_OK(status);
    uint32_t said[2];
    CHECK(hutch_value_size(value) >= sizeof said);
    memcpy(said, hutch_value_data(value), sizeof said);
    CHECK_EQUAL(key, said[0]);
    size_t size = value_of(key, said[1], expected);
    CHECK_BYTES(expected, size, hutch_value_data(value), hutch_value_size(value));
    CHECK(had(key, said[1], begun));
    uint64_t own = info_of_value(value).version;
    if (own > *version) *version = own;
    hutch_value_release(value);
    w->found[key] = said[1];
    count++;
  }
  return count;
}

/* What was found is the state after one of the calls from `first` on. Each bit of `made` says
   whether one of the calls that were killed has been made. */
static bool is_state_if(uint32_t made, uint32_t first, uint32_t begun) {
  uint32_t state[KEYS];
  memcpy(state, w->base, sizeof state);
  for (uint32_t i = 0;; i++) {
    if (i >= first && memcmp(state, w->found, sizeof state) == 0) return true;
    if (i == begun) return false;
    const change *c = &w->changes[i];
    bool counts = !c->was_killed || made & 1;
    if (c->was_killed) made >>= 1;
    if (counts && c->key == KEYS) memset(state, 0, sizeof state);
    else if (counts) state[c->key] = c->round;
  }
}

static bool is_state_after(uint32_t first, uint32_t begun) {
  for (uint32_t made = 0; made < 1u << PROCESSES; made++)
    if (is_state_if(made, first, begun)) return true;
  return false;
}

static void check_state(uint32_t number) {
  path directory = state_path(number);
  promise p = w->promises[number];
  char words[200];
  mark m = look_at(directory.text);
  bool is_strict = p.rests || w->chain == POWER_ || w->chain == SYNC_ ||
                   (m.is_there && (m.is_clean || m.is_synced));
  snprintf(words, sizeof words,
           "boot %ju, chain %d, state %u, there %d, clean %d, synced %d, whole %d, rests %d",
           (uintmax_t)w->boot, (int)w->chain, number, m.is_there, m.is_clean, m.is_synced,
           m.is_whole, p.rests);
  check_note(words);
  if (is_strict && m.is_there) CHECK(m.is_whole);
  if (is_strict) w->strict++;
  else if (!m.is_whole) w->torn++;
  hutch_cache *disk, *cache = open_it(directory.text, &disk);
  uint64_t version = 0;
  uint32_t count = read_all(disk, p.begun, &version);
  if (is_strict) {
    CHECK_EQUAL(count, count_of(disk));
    CHECK(is_state_after(w->chain == SYNC_ ? p.ended : p.closed, p.begun));
    CHECK_SOUND(disk);
  } else {
    if (count == 0) w->lost++;
    /* A repair may show further damage. */
    for (int i = 0; i < 3; i++) {
      hutch_check_report r = report_of(disk, 0);
      if (r.damaged + r.counters + r.manifest == 0) break;
    }
    CHECK_SOUND(disk);
    read_all(disk, p.begun, &version);
  }
  w->is_torn = !is_strict;
  CHECK_OK(put_text(disk, "another", "value"));
  CHECK(info_of(disk, "another").version > version);
  CHECK_OK(hutch_maintain(disk, 0));
  CHECK_OK(hutch_remove(disk, KEY("another")));
  hutch_cache_release(disk);
  CHECK_OK(hutch_close(cache));
}

/* ---------------------------------------------------------------------- runs */

static void copy_file(const char *from, const char *to) {
  int number = open(from, O_RDONLY);
  if (number < 0) return;
  struct stat status;
  CHECK(fstat(number, &status) == 0);
  void *bytes = malloc((size_t)status.st_size + 1);
  CHECK(bytes && read(number, bytes, (size_t)status.st_size) == status.st_size);
  write_file(to, bytes, (size_t)status.st_size);
  free(bytes);
  close(number);
}

static void copy_directory(const char *from, const char *to) {
  remove_tree(to);
  CHECK(mkdir(to, 0700) == 0);
  for (int i = 0; i < NAMES; i++)
    copy_file(in_directory(from, names[i]).text, in_directory(to, names[i]).text);
  write_file(in_directory(to, "hutch.lock").text, "", 0);
}

static void write_boot_id(int half) {
  char id[64];
  snprintf(id, sizeof id, "%08jx-0000-4000-8000-00000000000%d\n", (uintmax_t)w->boot, half);
  write_file(w->boot_id.text, id, strlen(id));
}

/* All that is in the directory is on the disk. */
static void boot(void) {
  w->boot++;
  write_boot_id(1);
  w->used = sizeof *w;
  w->files = NULL;
  w->states = 0;
  w->promise = (promise){0};
  for (int i = 0; i < NAMES; i++) {
    path name = in_directory(w->directory.text, names[i]);
    struct stat status;
    w->names[i].count = 0;
    if (stat(name.text, &status) != 0) {
      note_name(i, NULL);
      continue;
    }
    file *f = add_file(status.st_ino);
    grow(f, (size_t)status.st_size);
    int number = open(name.text, O_RDONLY);
    CHECK(number >= 0 && read(number, f->bytes, f->size) == (ssize_t)f->size);
    close(number);
    note_name(i, f);
  }
}

static void run_boot(void) {
  boot();
  w->until_loss = below(1u << (1 + below(12)));
  int end = GOES_ON;
  for (int i = 0; i < PROCESSES && end != LOSS; i++) {
    end = run_apart(run_sessions, 1 + below(4));
    promise *p = &w->promise;
    if (end == KILLED) p->rests = false;
    if (end == KILLED && p->begun > p->ended) w->changes[p->ended++].was_killed = true;
  }
  if (end != LOSS) {
    records = true;
    lay_out_state();
    records = false;
  }
  /* The next boot goes on with the last state as it was, or checked, if it may have been torn. */
  uint32_t last = w->states - 1;
  path next = scratch("next");
  copy_directory(state_path(last).text, next.text);
  remove_tree(w->directory.text);
  write_boot_id(2);
  for (uint32_t i = 0; i <= last; i++) {
    run_apart(check_state, i);
    if (i == last && w->is_torn) copy_directory(state_path(i).text, next.text);
    remove_tree(state_path(i).text);
  }
  CHECK(rename(next.text, w->directory.text) == 0);
  memcpy(w->base, w->found, sizeof w->base);
}

TEST(a_loss_of_power_at_any_moment_costs_what_it_may) {
  w = shared_memory(ARENA);
  w->random = seed();
  w->directory = scratch("cache");
  w->boot_id = scratch("boot_id");
  int chains = repeats(4);
  for (int i = 0; i < chains; i++) {
    remove_tree(w->directory.text);
    CHECK(mkdir(w->directory.text, 0700) == 0);
    memset(w->base, 0, sizeof w->base);
    w->chain = i % 2 == 0 ? PROCESS_ : (chain)below(CHAINS);
    /* What a state of the disk costs is no matter of a sanitizer. */
    for (int boots = 0; boots < (SANITIZED_BY > 1 ? 3 : 10); boots++) run_boot();
  }
  printf("%u states that must be whole, %u torn, %u without an entry\n", w->strict, w->torn,
         w->lost);
  CHECK(w->strict > 0);
}
