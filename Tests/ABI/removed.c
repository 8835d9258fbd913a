/* A directory that is removed while a cache has it open: all at once, or half of it. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* On a clock of the host's and without threads: maintenance is done when the test asks for it. */
static hutch_cache *open_quiet(test_clock *clock, hutch_options *options) {
  *options = unlimited_options();
  options->flags |= HUTCH_OPEN_NO_THREADS;
  use_clock(options, clock);
  return open_cache(scratch("cache").text, options);
}

static path in_cache(const char *name) { return in_directory(scratch("cache").text, name); }

/* Removes what is in the directory, but for the names that begin with one of these. */
static void remove_all_but(const char *const *spared) {
  DIR *directory = opendir(scratch("cache").text);
  CHECK(directory);
  for (struct dirent *entry; (entry = readdir(directory));) {
    bool stays = entry->d_name[0] == '.';
    for (const char *const *name = spared; *name; name++)
      stays = stays || strncmp(entry->d_name, *name, strlen(*name)) == 0;
    if (!stays) remove_tree(in_cache(entry->d_name).text);
  }
  closedir(directory);
}

static int names_in(const char *path) {
  int count = 0;
  DIR *directory = opendir(path);
  CHECK(directory);
  for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

/* Nothing of it can be kept, whether a program has left something in the directory or not. */
TEST(a_cache_whose_directory_was_removed_closes_well) {
  for (int i = 0; i < 8; i++) {
    bool is_noticed = i & 1, has_folder = i & 2, has_file = i & 4;
    test_clock clock = {0};
    hutch_options options;
    hutch_cache *cache = open_quiet(&clock, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(put_size(cache, "large", 100000));
    remove_tree(scratch("cache").text);
    if (has_folder || has_file) CHECK(mkdir(scratch("cache").text, 0700) == 0);
    if (has_file) write_file(in_cache("notes").text, "x", 1);
    if (is_noticed) let_notice(cache);
    CHECK_OK(hutch_close(cache));
    if (has_folder || has_file) remove_tree(scratch("cache").text);
  }
}

/* The directory is the same one, and everything that was in it has gone. */
TEST(a_cache_whose_files_were_removed_closes_well) {
  for (int i = 0; i < 4; i++) {
    test_clock clock = {0};
    hutch_options options;
    hutch_cache *cache = open_quiet(&clock, &options);
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(put_size(cache, "large", 100000));
    remove_all_but((const char *const[]){NULL});
    /* What a removal leaves that a process has been beside. */
    if (i & 1) write_file(in_cache("hutch-checkpoint").text, "x", 1);
    if (i & 2) let_notice(cache);
    CHECK_OK(hutch_close(cache));
    /* And it is a new cache's then. */
    cache = open_quiet(&clock, &options);
    CHECK_MISSING(cache, "key");
    CHECK_OK(put_text(cache, "key", "value"));
    CHECK_OK(hutch_close(cache));
    CHECK_OK(hutch_destroy(scratch("cache").text));
    CHECK(access(scratch("cache").text, F_OK) != 0);
  }
}

/* It is there, and was not ended. */
TEST(a_cache_whose_directory_was_moved_does_not_close_well) {
  test_clock clock = {0};
  hutch_options options;
  hutch_cache *cache = open_quiet(&clock, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK(rename(scratch("cache").text, scratch("away").text) == 0);
  CHECK_STATUS(HUTCH_IO, hutch_close(cache));
}

/* The removal has come half way. It has deleted all that the library could make anew, and has yet
   to delete what it has listed. */
TEST(maintenance_makes_no_file_in_a_directory_that_is_being_removed) {
  test_clock clock = {0};
  hutch_options options;
  hutch_cache *cache = open_quiet(&clock, &options);
  hutch_put_options soon = put_options();
  soon.time_to_live = HUTCH_SECOND;
  char *large = filled(100000, 1);
  CHECK_OK(hutch_put(cache, KEY("large"), large, 100000, &soon, NULL));
  free(large);
  CHECK_OK(put_text(cache, "key", "value"));
  const char *const last[] = {"manifest.sqlite", "hutch-index", "hutch-log", "content", NULL};
  remove_all_but(last);
  int left = names_in(scratch("cache").text);
  clock.now += 2 * HUTCH_SECOND;
  /* By this clock counting does the maintenance: the large value expires, and its file goes. */
  count_of(cache);
  CHECK_OK(hutch_maintain(cache, 0));
  CHECK_EQUAL(left, names_in(scratch("cache").text));
  remove_all_but((const char *const[]){NULL});
  CHECK(rmdir(scratch("cache").text) == 0);
  CHECK_OK(hutch_close(cache));
}

static void make_left_overs(void) {
  for (const char *const *name =
         (const char *const[]){"", "trash", "content", "content/01", "content/02", NULL};
       *name; name++)
    CHECK(mkdir(in_cache(*name).text, 0700) == 0);
  for (const char *const *name = (const char *const[]){
         "hutch-checkpoint", "hutch-index.new", "hutch-log.new", "hutch-stub.new", "hutch.shared",
         "hutch-0123456789abcdef.new", "trash/hutch-0123456789abcdef.txt",
         "content/01/hutch-0123456789abcdef", NULL};
       *name; name++)
    write_file(in_cache(*name).text, "x", 1);
}

TEST(a_directory_with_left_overs_alone_is_used_again) {
  make_left_overs();
  test_clock clock = {0};
  hutch_options options;
  hutch_cache *cache = open_quiet(&clock, &options);
  CHECK_OK(put_text(cache, "key", "value"));
  CHECK_OK(put_size(cache, "large", 100000));
  /* By this clock counting does all the maintenance that there is. */
  count_of(cache);
  CHECK(access(in_cache("content/01/hutch-0123456789abcdef").text, F_OK) != 0);
  CHECK(access(in_cache("trash/hutch-0123456789abcdef.txt").text, F_OK) != 0);
  CHECK_OK(hutch_close(cache));
  cache = open_quiet(&clock, &options);
  CHECK_TEXT(cache, "key", "value");
  CHECK_EQUAL(100000, info_of(cache, "large").size);
  CHECK_SOUND(cache);
  CHECK_OK(hutch_close(cache));
  CHECK_OK(hutch_destroy(scratch("cache").text));
  CHECK(access(scratch("cache").text, F_OK) != 0);
}

TEST(a_file_of_another_program_among_left_overs_is_respected) {
  const char *const others[] = {"notes", "trash/notes", "content/notes", "content/01/notes",
                                "content/0123456789abcdef", "hutch-log", "hutch-notes", NULL};
  hutch_options options = unlimited_options();
  for (const char *const *name = others; *name; name++) {
    make_left_overs();
    write_file(in_cache(*name).text, "mine", 4);
    uint64_t before = digest_of(scratch("cache").text);
    hutch_cache *cache = NULL;
    CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("cache").text, &options, &cache));
    CHECK_EQUAL(before, digest_of(scratch("cache").text));
    remove_tree(scratch("cache").text);
  }
  /* A folder of such a name that is a link leads to another program's files. */
  make_left_overs();
  remove_tree(in_cache("trash").text);
  CHECK(mkdir(scratch("elsewhere").text, 0700) == 0);
  CHECK(symlink(scratch("elsewhere").text, in_cache("trash").text) == 0);
  hutch_cache *cache = NULL;
  CHECK_STATUS(HUTCH_BAD_DIRECTORY, hutch_open(scratch("cache").text, &options, &cache));
}

/* --------------------------------------------------------- again and again */

enum { TIMES = 80 };

static int open_descriptors(void) { return names_in("/proc/self/fd"); }

/* The tier comes back each time, and keeps nothing open of a directory that went long ago. */
TEST(a_directory_may_go_any_number_of_times) {
  for (int is_removed = 0; is_removed < 2; is_removed++) {
    test_clock clock = {0};
    hutch_options options;
    hutch_cache *cache = open_quiet(&clock, &options);
    path directory = scratch("cache"), away = scratch("away");
    int most = open_descriptors() + 16;
    for (int i = 0; i < TIMES; i++) {
      hutch_put_result result = new_result();
      CHECK_OK(hutch_put(cache, &i, sizeof i, &i, sizeof i, NULL, &result));
      CHECK_EQUAL(HUTCH_OUTCOME_STORED, result.disk);
      CHECK_OK(hutch_maintain(cache, 0));
      CHECK(open_descriptors() <= most);
      CHECK(rename(directory.text, away.text) == 0);
      let_notice(cache);
      (void)put_text(cache, "noticed by a database", "value");
      if (is_removed) {
        CHECK(mkdir(directory.text, 0700) == 0);
        remove_tree(away.text);
      } else {
        CHECK(rename(away.text, directory.text) == 0);
      }
      CHECK_OK(hutch_check(cache, 0, NULL));
    }
    CHECK_EQUAL(TIMES + 1, count_of(cache));
    CHECK_OK(hutch_close(cache));
    remove_tree(directory.text);
  }
}
