/*
 * large.c - large values through the disk tier against plain files
 *
 *   cc -O2 large.c $(pkg-config --cflags --libs hutch) -o large && ./large DIRECTORY
 *
 * put: hutch_put of the disk view against open, write, close, rename of a new file, one for
 * each key. get: hutch_get of the disk view, bytes read in and their checksum compared,
 * against open, fstat, malloc, read, close. fd: hutch_open_fd and the same read. All from
 * the page cache, one thread, durability process. Rounds take turns; the medians of their
 * times, and plain's divided by ours.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <hutch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, KEYS = 4 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "%s failed\n", what);
  exit(1);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times) {
  qsort(times, ROUNDS, sizeof *times, compare);
  return times[ROUNDS / 2];
}

static void plain_put(const char *directory, int key, const char *data, size_t size) {
  char temporary[4200], name[4200];
  snprintf(temporary, sizeof temporary, "%s/plain-%d.tmp", directory, key);
  snprintf(name, sizeof name, "%s/plain-%d", directory, key);
  int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
  expect(file >= 0, "open");
  for (size_t done = 0; done < size;) {
    ssize_t count = write(file, data + done, size - done);
    expect(count > 0, "write");
    done += (size_t)count;
  }
  close(file);
  expect(rename(temporary, name) == 0, "rename");
}

static void read_all(int file, size_t size) {
  struct stat status;
  expect(file >= 0 && fstat(file, &status) == 0 && (size_t)status.st_size == size, "open");
  char *data = malloc(size);
  for (size_t done = 0; done < size;) {
    ssize_t count = read(file, data + done, size - done);
    expect(count > 0, "read");
    done += (size_t)count;
  }
  free(data);
  close(file);
}

static void plain_get(const char *directory, int key, size_t size) {
  char name[4200];
  snprintf(name, sizeof name, "%s/plain-%d", directory, key);
  read_all(open(name, O_RDONLY), size);
}

int main(int count, char **arguments) {
  expect(count == 2, "large DIRECTORY: the arguments");
  static const size_t sizes[] = {100 << 10, 1 << 20, 16 << 20};
  char path[4200];
  snprintf(path, sizeof path, "%s/cache", arguments[1]);
  hutch_options options = {.struct_size = sizeof options};
  options.disk.cost = options.disk.max_entry = HUTCH_NO_LIMIT;
  hutch_cache *cache, *disk;
  expect(hutch_open(path, &options, &cache) == HUTCH_OK, "hutch_open");
  expect(hutch_tier(cache, HUTCH_TIER_DISK, &disk) == HUTCH_OK, "hutch_tier");
  printf("%10s %14s %14s %8s\n", "", "plain MB/s", "hutch MB/s", "ratio");
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    size_t size = sizes[s];
    char *data = malloc(size);
    for (size_t i = 0; i < size; i++) data[i] = (char)(i * 2654435761u >> 24);
    double plain[2][ROUNDS], ours[3][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      double times[6];
      times[0] = now();
      for (int key = 0; key < KEYS; key++) plain_put(arguments[1], key, data, size);
      times[1] = now();
      for (int key = 0; key < KEYS; key++)
        expect(hutch_put(disk, &key, sizeof key, data, size, NULL, NULL) == HUTCH_OK, "put");
      times[2] = now();
      for (int key = 0; key < KEYS; key++) plain_get(arguments[1], key, size);
      times[3] = now();
      for (int key = 0; key < KEYS; key++) {
        hutch_value *value;
        expect(hutch_get(disk, &key, sizeof key, &value) == HUTCH_OK, "get");
        hutch_value_release(value);
      }
      times[4] = now();
      for (int key = 0; key < KEYS; key++) {
        int file;
        expect(hutch_open_fd(disk, &key, sizeof key, &file) == HUTCH_OK, "fd");
        read_all(file, size);
      }
      times[5] = now();
      plain[0][round] = times[1] - times[0];
      ours[0][round] = times[2] - times[1];
      plain[1][round] = times[3] - times[2];
      ours[1][round] = times[4] - times[3];
      ours[2][round] = times[5] - times[4];
    }
    static const char *const names[] = {"put", "get", "fd"};
    double get = median(plain[1]), put = median(plain[0]);
    for (int i = 0; i < 3; i++) {
      double base = i ? get : put, mine = median(ours[i]);
      double megabytes = (double)size * KEYS / 1e6;
      printf("%s %5zu KB %13.0f %14.0f %8.2f\n", names[i], size >> 10, megabytes / base,
             megabytes / mine, base / mine);
    }
    free(data);
  }
  hutch_cache_release(disk);
  return hutch_close(cache) != HUTCH_OK;
}
