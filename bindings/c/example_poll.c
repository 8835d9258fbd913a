/*
 * example_poll.c - gets within an event loop: example_poll DIRECTORY
 *
 *   cc example_poll.c $(pkg-config --cflags --libs hutch)
 *
 * The loop waits for the completions of a cache together with its other events, and makes
 * them on its own thread.
 */
#include <hutch_tasks.h>
#include <poll.h>
#include <stdio.h>

enum { COUNT = 100 };

typedef struct totals {
  int found, missing, failed;
} totals;

/* One completion, on the loop's thread. The library owns the value: retain it to keep it. */
static void count_one(void *context, const hutch_completion *completion) {
  totals *t = context;
  if (completion->status == HUTCH_OK) t->found++;
  else if (completion->status == HUTCH_NOT_FOUND) t->missing++;
  else {
    t->failed++;
    fprintf(stderr, "%s\n", completion->error ? completion->error->words
                                              : hutch_status_text(completion->status));
  }
}

static int complain(void) {
  fprintf(stderr, "%s\n", hutch_error_words());
  return 1;
}

int main(int count, char **arguments) {
  hutch_cache *cache;
  hutch_port *port;
  if (hutch_open(count > 1 ? arguments[1] : NULL, NULL, &cache) != HUTCH_OK) return complain();
  if (hutch_port_create(&port) != HUTCH_OK) return complain();

  totals t = {0, 0, 0};
  hutch_task_options options = {.struct_size = sizeof options, .complete = count_one,
                                .context = &t, .port = port};
  for (uint32_t i = 0; i < COUNT; i += 2)
    if (hutch_put(cache, &i, sizeof i, HUTCH_STR("even"), NULL, NULL) != HUTCH_OK)
      return complain();
  for (uint32_t i = 0; i < COUNT; i++)
    if (hutch_get_async(cache, &i, sizeof i, &options, NULL) != HUTCH_OK) return complain();

  /* The descriptor is readable while completions wait. */
  struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
  uint64_t made = 0;
  while (made < COUNT) {
    uint64_t drained = 0;
    if (poll(&descriptor, 1, -1) < 0) continue;
    if (hutch_port_drain(port, 0, &drained) != HUTCH_OK) return complain();
    made += drained;
  }
  printf("%d found, %d missing, %d failed\n", t.found, t.missing, t.failed);

  hutch_port_release(port);
  return hutch_close(cache) == HUTCH_OK && t.found == COUNT / 2 && t.failed == 0 ? 0 : 1;
}
