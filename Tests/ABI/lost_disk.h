/*
 * lost_disk.h - the disk of lost_pages.c
 *
 * The program stands before libc: it records what the library and SQLite write to the manifest, its
 * log and hutch.shared, and what they sync. At a call `step` lays out what a loss of power might
 * leave, in a directory of its own. Nothing is really synced.
 */
#ifndef LOST_DISK_H
#define LOST_DISK_H

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the disk */

/* A write, a change of the size (no bytes), or bytes that the truncation to `at` takes. */
typedef struct record {
  struct record *next;
  off_t at;
  size_t size;
  uint8_t bytes[];
} record;

/* `bytes`: as they were at the last sync. */
typedef struct file {
  struct file *next;
  ino_t inode; /* 0: it has been unlinked */
  size_t size, room;
  uint8_t *bytes;
  record *first, **last;
  record *memory; /* of a file that is written as memory */
  uint32_t records;
} file;

enum { DATABASE, LOG, SHARED, NAMES, MOST_CHANGES = 4096 };

static const char *const names[NAMES] = {"manifest.sqlite", "manifest.sqlite-wal", "hutch.shared"};

/* The files that have had a name since the directory's last sync. */
typedef struct history {
  uint32_t count;
  file *files[MOST_CHANGES];
} history;

enum { KEYS = 60, MOST_CALLS = 20000, MOST_STATES = 12, PROCESSES = 6 };

/* `key` is KEYS: a clear. `round` is 0: the key was removed. */
typedef struct change {
  uint32_t key, round;
  bool was_killed; /* it may have been made, or not */
} change;

/* What was promised when the power went. */
typedef struct promise {
  uint32_t begun;  /* calls that have begun */
  uint32_t ended;  /* calls that have ended */
  uint32_t closed; /* calls before the last close */
  bool rests;      /* since that close nothing but reads, in the same boot */
} promise;

typedef enum chain { PROCESS_, POWER_, SYNC_, MIXED, CHAINS } chain;

/* What the processes of a run have in common. */
typedef struct world {
  uint64_t random;
  test_clock clock;
  path directory, boot_id;
  chain chain;
  uint64_t boot;
  /* Of this boot. */
  file *files;
  history names[NAMES];
  uint32_t until_loss, until_kill;
  uint32_t base[KEYS], found[KEYS];
  change changes[MOST_CALLS];
  promise promise;
  uint32_t round;
  uint32_t states;
  promise promises[MOST_STATES];
  /* Over all boots. */
  bool is_torn; /* the last state, which had to be checked */
  uint32_t strict, torn, lost;
  size_t used;
} world;

enum { ARENA = 128 << 20, FULL = 96 << 20, LOSS = 50, KILLED, GOES_ON };

static world *w;
/* True within a session of the library: calls are recorded. */
static bool records;

static void *take(size_t size) {
  size_t at = (w->used + 15) & ~(size_t)15;
  w->used = at + size;
  CHECK(w->used <= ARENA);
  return (uint8_t *)w + at;
}

static uint32_t below(uint32_t bound) { return (uint32_t)(next_random(&w->random) % bound); }

static int name_of(const char *file) {
  const char *slash = strrchr(file, '/');
  if (slash) file = slash + 1;
  for (int i = 0; i < NAMES; i++)
    if (strcmp(names[i], file) == 0) return i;
  return NAMES;
}

static void note_name(int name, file *f) {
  history *h = &w->names[name];
  CHECK(h->count < MOST_CHANGES);
  h->files[h->count++] = f;
}

static file *add_file(ino_t inode) {
  file *f = take(sizeof *f);
  *f = (file){.next = w->files, .inode = inode};
  f->last = &f->first;
  return w->files = f;
}

static file *file_of_inode(ino_t inode) {
  file *f = w->files;
  while (f && f->inode != inode) f = f->next;
  return f;
}

/* NULL: a file that does not matter. */
static file *file_of(int number) {
  struct stat status;
  if (!records || fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) return NULL;
  file *f = file_of_inode(status.st_ino);
  if (f) return f;
  path link;
  snprintf(link.text, sizeof link.text, "/proc/self/fd/%d", number);
  char target[4096];
  ssize_t size = readlink(link.text, target, sizeof target - 1);
  if (size <= 0) return NULL;
  target[size] = 0;
  int name = name_of(target);
  const char *end = size > 4 ? target + size - 4 : "";
  if (name == NAMES && strcmp(end, ".new") != 0) return NULL;
  f = add_file(status.st_ino);
  if (name != NAMES) note_name(name, f);
  return f;
}

static void grow(file *f, size_t size) {
  if (size > f->room) {
    size_t room = size * 2;
    uint8_t *bytes = take(room);
    if (f->size > 0) memcpy(bytes, f->bytes, f->size);
    f->bytes = bytes;
    f->room = room;
  }
  if (size > f->size) memset(f->bytes + f->size, 0, size - f->size);
  f->size = size;
}

static void apply(file *f, const record *r) {
  size_t end = (size_t)r->at + r->size;
  if (r->size == 0 || end > f->size) grow(f, end);
  memcpy(f->bytes + r->at, r->bytes, r->size);
}

static record *note(file *f, const void *bytes, size_t size, off_t at) {
  record *r = take(sizeof *r + size);
  *r = (record){NULL, at, size};
  memcpy(r->bytes, bytes, size);
  *f->last = r;
  f->last = &r->next;
  f->records++;
  return r;
}

static void sync_file(file *f) {
  for (record *r = f->first; r; r = r->next) apply(f, r);
  f->first = NULL;
  f->last = &f->first;
  f->memory = NULL;
  f->records = 0;
}

/* A new manifest is written in a moment. Each of its units reaches the disk as it is at the end, or
   not at all. */
static void forget_versions(file *f) {
  if (f->records == 0) return;
  sync_file(f);
  note(f, f->bytes, f->size, 0);
  f->size = 0;
}

static void sync_names(void) {
  for (int i = 0; i < NAMES; i++) {
    history *h = &w->names[i];
    h->files[0] = h->files[h->count - 1];
    h->count = 1;
  }
}

/* ---------------------------------------------------------- a loss of power */

/* For each unit of a file, how many of its records have reached the disk. */
typedef struct fate {
  uint32_t kind, cut;
} fate;

static uint32_t reached(const fate *how, uint32_t all) {
  switch (how->kind) {
    case 0: return 0;
    case 1: return all;
    case 2: return below(all + 1);
    case 3: return below(2) ? all : 0;
    case 4: return below(8) ? all : below(all + 1);
    default: return below(8) ? how->cut : all;
  }
}

static void lay_out_file(const file *f, const char *to) {
  size_t most = f->size, unit = below(2) ? 512 : 4096;
  for (const record *r = f->first; r; r = r->next)
    if ((size_t)r->at + r->size > most) most = (size_t)r->at + r->size;
  size_t units = most / unit + 1;
  uint8_t *bytes = calloc(units, unit);
  uint32_t *cuts = calloc(units, sizeof *cuts);
  CHECK(bytes && cuts);
  if (f->size > 0) memcpy(bytes, f->bytes, f->size);
  fate how = {below(6), below(f->records + 1)};
  for (size_t i = 0; i < units; i++) cuts[i] = reached(&how, f->records);
  uint32_t size_cut = reached(&how, f->records), number = 0;
  size_t size = f->size, whole = size;
  for (const record *r = f->first; r; r = r->next, number++) {
    size_t at = (size_t)r->at, end = at + r->size;
    bool is_cut = r->size == 0 && at < whole;
    /* The blocks that a file gets after it was cut are not those that it had. */
    if (is_cut && number >= size_cut) break;
    if (is_cut) memset(bytes + at, 0, units * unit - at);
    whole = r->size == 0 || end > whole ? end : whole;
    if (number < size_cut) size = whole;
    for (size_t i = at / unit; i * unit < end; i++) {
      if (number >= cuts[i]) continue;
      size_t from = i * unit < at ? at : i * unit, past = (i + 1) * unit;
      memcpy(bytes + from, r->bytes + from - at, (past < end ? past : end) - from);
    }
  }
  write_file(to, bytes, size);
  free(bytes);
  free(cuts);
}

static file *current_file(int name) {
  return w->names[name].files[w->names[name].count - 1];
}

static void look_at_memory(void) {
  file *f = current_file(SHARED);
  int number = f ? open(in_directory(w->directory.text, names[SHARED]).text, O_RDONLY) : -1;
  if (number < 0) return;
  static uint8_t bytes[1 << 20];
  ssize_t size = read(number, bytes, sizeof bytes);
  CHECK(size >= 0 && size < (ssize_t)sizeof bytes);
  if (f->memory) memcpy(f->memory->bytes, bytes, f->memory->size);
  else if (size > 0) f->memory = note(f, bytes, (size_t)size, 0);
  close(number);
}

static void lay_out(const char *to) {
  CHECK(mkdir(to, 0700) == 0);
  write_file(in_directory(to, "hutch.lock").text, "", 0);
  look_at_memory();
  for (int i = 0; i < NAMES; i++) {
    history *h = &w->names[i];
    const file *f = h->files[below(2) ? below(h->count) : h->count - 1];
    if (f) lay_out_file(f, in_directory(to, names[i]).text);
  }
}

static path state_path(uint32_t number) {
  char name[32];
  snprintf(name, sizeof name, "state-%u", number);
  return scratch(name);
}

static void lay_out_state(void) {
  records = false;
  w->promises[w->states] = w->promise;
  lay_out(state_path(w->states).text);
  w->states++;
  records = true;
}

/* Before each call that changes a file or syncs it. */
static void step(bool syncs) {
  if (!records) return;
  int error = errno;
  if (w->states < MOST_STATES - 1 && below(syncs ? 8 : 128) == 0) lay_out_state();
  if (w->until_loss-- == 0 || w->used > FULL) {
    lay_out_state();
    _exit(LOSS);
  }
  if (w->until_kill-- == 0) _exit(KILLED);
  errno = error;
}

/* ------------------------------------------------------------------ the calls */

ssize_t pwrite64(int number, const void *bytes, size_t size, off64_t at);
ssize_t pwrite64(int number, const void *bytes, size_t size, off64_t at) {
  file *f = file_of(number);
  if (f) step(false);
  ssize_t done = syscall(SYS_pwrite64, number, bytes, size, at);
  if (f && done > 0) note(f, bytes, (size_t)done, at);
  return done;
}

ssize_t pwrite(int number, const void *bytes, size_t size, off_t at) {
  return pwrite64(number, bytes, size, at);
}

int ftruncate64(int number, off64_t size);
int ftruncate64(int number, off64_t size) {
  file *f = file_of(number);
  if (f) step(false);
  int code = (int)syscall(SYS_ftruncate, number, size);
  if (f && code == 0) note(f, "", 0, size);
  return code;
}

int ftruncate(int number, off_t size) { return ftruncate64(number, size); }

/* Of hutch.shared only, which is new or has the size already. */
int posix_fallocate(int number, off_t at, off_t size) {
  file *f = file_of(number);
  if (f) step(false);
  struct stat status;
  if (fstat(number, &status) != 0) return errno;
  if (status.st_size < at + size && syscall(SYS_ftruncate, number, at + size) != 0) return errno;
  if (f) note(f, "", 0, at + size);
  return 0;
}

static int sync_any(int number) {
  struct stat status;
  if (!records || fstat(number, &status) != 0) return 0;
  step(true);
  file *f = file_of_inode(status.st_ino);
  if (S_ISDIR(status.st_mode)) sync_names();
  else if (f) sync_file(f);
  step(true);
  return 0;
}

int fsync(int number) { return sync_any(number); }
int fdatasync(int number) { return sync_any(number); }

int syncfs(int number) {
  (void)number;
  if (!records) return 0;
  step(true);
  for (file *f = w->files; f; f = f->next) sync_file(f);
  sync_names();
  step(true);
  return 0;
}

static void before_unlink(int name) {
  if (!records || name == NAMES) return;
  step(false);
  records = false;
  if (name == SHARED) look_at_memory();
  records = true;
}

static void after_unlink(int name) {
  if (!records || name == NAMES) return;
  file *f = current_file(name);
  if (!f) return;
  f->inode = 0;
  note_name(name, NULL);
}

int unlinkat(int in, const char *file, int flags) {
  int name = flags == 0 ? name_of(file) : NAMES;
  before_unlink(name);
  int code = (int)syscall(SYS_unlinkat, in, file, flags);
  if (code == 0) after_unlink(name);
  return code;
}

int unlink(const char *file) { return unlinkat(AT_FDCWD, file, 0); }

int renameat(int from_in, const char *from, int to_in, const char *to) {
  int old = name_of(from), new = name_of(to);
  struct stat status;
  bool is_there = fstatat(from_in, from, &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (old != NAMES || new != NAMES) step(false);
  int code = (int)syscall(SYS_renameat2, from_in, from, to_in, to, 0);
  if (!records || code != 0 || !is_there) return code;
  if (old != NAMES) note_name(old, NULL);
  if (new == NAMES) return code;
  file *f = file_of_inode(status.st_ino);
  if (f) forget_versions(f);
  note_name(new, f);
  return code;
}

/* Of what openat is given beside the flags only the mode of a new file counts. */
int openat(int in, const char *file, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (w && strcmp(file, "/proc/sys/kernel/random/boot_id") == 0) file = w->boot_id.text;
  return (int)syscall(SYS_openat, in, file, flags, mode);
}

#endif
