/* Reachability: what a monitor tells of links, addresses and routes, and of one host. The cases
   change the network in a namespace of their own. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"

/* A quiet machine needs some milliseconds for each step. */
#define LONG_WAIT 30

/* What a monitor has told. */
typedef struct reports {
  pthread_mutex_t lock; /* protects what follows */
  pthread_cond_t changed;
  uint32_t states[1024];
  int count, releases;
} reports;

#define NO_REPORTS {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static void report(void *context, uint32_t state) {
  reports *r = context;
  pthread_mutex_lock(&r->lock);
  CHECK(r->count < 1024);
  r->states[r->count++] = state;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
}

static void count_end(void *context) {
  reports *r = context;
  pthread_mutex_lock(&r->lock);
  r->releases++;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
}

/* Waits until *number, a field of r, is at least this large. */
static void await_number(reports *r, const int *number, int least) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LONG_WAIT;
  pthread_mutex_lock(&r->lock);
  while (*number < least)
    if (pthread_cond_timedwait(&r->changed, &r->lock, &until) == ETIMEDOUT)
      FAIL("only %d reports, the last is %u", r->count, r->count ? r->states[r->count - 1] : 9);
  pthread_mutex_unlock(&r->lock);
}

/* The report of this number, from 0, is this state. */
static void check_report(reports *r, int number, uint32_t state) {
  await_number(r, &r->count, number + 1);
  CHECK_EQUAL(state, r->states[number]);
}

static hutch_http_reachability_options options_of(reports *r, const char *url) {
  return (hutch_http_reachability_options){.struct_size = sizeof(hutch_http_reachability_options),
                                           .url = url,
                                           .on_change = report,
                                           .context = r,
                                           .release = count_end};
}

static hutch_http_reachability *start(const hutch_http_reachability_options *options) {
  hutch_http_reachability *monitor;
  hutch_status status = hutch_http_reachability_start(options, &monitor);
  if (status != HUTCH_OK) FAIL("%d: %s", status, hutch_http_error_words());
  return monitor;
}

/* Stops a monitor that has told so many states, and releases it. */
static void end(hutch_http_reachability *monitor, reports *r, int count) {
  uint32_t state;
  CHECK_OK(hutch_http_reachability_stop(monitor));
  CHECK_EQUAL(1, r->releases);
  CHECK_EQUAL(count, r->count);
  CHECK_OK(hutch_http_reachability_state(monitor, &state));
  CHECK_EQUAL(r->states[count - 1], state);
  hutch_http_reachability_release(monitor);
  CHECK_EQUAL(1, r->releases);
}

static void write_text(const char *path, const char *text) {
  int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) check_skip(path);
  close(file);
}

/* From here on this process has a network without any link that is up. */
static void own_network(void) {
  if (unshare(CLONE_NEWNET) == 0) return;
  char map[64];
  snprintf(map, sizeof map, "0 %d 1", getuid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    printf("network namespaces: %s\n", strerror(errno));
    check_skip("this system permits no network namespace");
  }
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", map);
}

/* ip, with these arguments. */
static void ip(const char *arguments) {
  char command[256];
  snprintf(command, sizeof command, "PATH=$PATH:/usr/sbin:/sbin ip %s", arguments);
  if (system(command) != 0) FAIL("ip %s", arguments);
}

/* A link that is up, with a cable to hutch1, where packets are lost. */
static void make_cable(void) {
  ip("link add hutch0 type veth peer name hutch1");
  ip("link set hutch1 up");
  ip("link set hutch0 up");
}

/* The same with an address of IPv4 and the neighbour 192.0.2.1. */
static void make_link(void) {
  make_cable();
  ip("addr add 192.0.2.2/24 dev hutch0");
  ip("neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev hutch0");
}

/* A socket that listens on a port of every address; 0: any. */
static int listening(uint16_t *port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
  socklen_t size = sizeof address;
  int one = 1, made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(made >= 0);
  CHECK(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  CHECK(bind(made, (struct sockaddr *)&address, size) == 0);
  CHECK(listen(made, 64) == 0);
  CHECK(getsockname(made, (struct sockaddr *)&address, &size) == 0);
  *port = ntohs(address.sin_port);
  return made;
}

TEST(each_change_of_routes_links_and_addresses_is_told_in_order) {
  reports r = NO_REPORTS;
  own_network();
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  /* None of these leads to the internet, so none is told: the next report is the route's. */
  ip("link set lo up");
  make_link();
  ip("route add 198.51.100.0/24 via 192.0.2.1");
  ip("route add default via 192.0.2.1");
  check_report(&r, 1, HUTCH_HTTP_REACHABLE);
  ip("route del default");
  check_report(&r, 2, HUTCH_HTTP_UNREACHABLE);
  ip("route add default via 192.0.2.1");
  check_report(&r, 3, HUTCH_HTTP_REACHABLE);
  ip("link set hutch0 down");
  check_report(&r, 4, HUTCH_HTTP_UNREACHABLE);
  ip("link set hutch0 up");
  ip("route add default via 192.0.2.1");
  check_report(&r, 5, HUTCH_HTTP_REACHABLE);
  ip("addr del 192.0.2.2/24 dev hutch0");
  check_report(&r, 6, HUTCH_HTTP_UNREACHABLE);
  ip("link del hutch0");
  end(monitor, &r, 7);
}

TEST(a_route_that_leads_nowhere_does_not_count) {
  reports r = NO_REPORTS;
  own_network();
  ip("link set lo up");
  ip("route add default dev lo");
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  ip("route del default");
  make_link();
  ip("route add default via 192.0.2.1 metric 9");
  check_report(&r, 1, HUTCH_HTTP_REACHABLE);
  ip("route add unreachable default metric 1");
  check_report(&r, 2, HUTCH_HTTP_UNREACHABLE);
  end(monitor, &r, 3);
}

TEST(the_route_of_a_tunnel_counts) {
  reports r = NO_REPORTS;
  own_network();
  make_link();
  ip("route add default via 192.0.2.1 table 100");
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  ip("rule add table 100");
  check_report(&r, 1, HUTCH_HTTP_REACHABLE);
  ip("rule del table 100");
  check_report(&r, 2, HUTCH_HTTP_UNREACHABLE);
  ip("route add 0.0.0.0/1 via 192.0.2.1");
  ip("route add 128.0.0.0/1 via 192.0.2.1");
  check_report(&r, 3, HUTCH_HTTP_REACHABLE);
  end(monitor, &r, 4);
}

TEST(a_link_without_a_carrier_leads_nowhere) {
  reports r = NO_REPORTS;
  own_network();
  make_link();
  ip("route add default via 192.0.2.1");
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  /* A link may run a moment after it is up only. */
  await_number(&r, &r.count, 1);
  int first = r.states[0] == HUTCH_HTTP_REACHABLE ? 0 : 1;
  check_report(&r, first, HUTCH_HTTP_REACHABLE);
  ip("link set hutch1 down");
  check_report(&r, first + 1, HUTCH_HTTP_UNREACHABLE);
  ip("link set hutch1 up");
  check_report(&r, first + 2, HUTCH_HTTP_REACHABLE);
  end(monitor, &r, first + 3);
}

TEST(a_route_of_ipv6_counts_with_an_address_for_it) {
  reports r = NO_REPORTS;
  own_network();
  if (access("/proc/net/if_inet6", F_OK) != 0) check_skip("this system has no IPv6");
  make_cable();
  ip("-6 addr replace fe80::2/64 dev hutch0 nodad");
  ip("-6 route add default via fe80::1 dev hutch0");
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  ip("-6 addr add 2001:db8::2/64 dev hutch0 nodad");
  check_report(&r, 1, HUTCH_HTTP_REACHABLE);
  ip("-6 addr del 2001:db8::2/64 dev hutch0");
  check_report(&r, 2, HUTCH_HTTP_UNREACHABLE);
  end(monitor, &r, 3);
}

TEST(after_many_changes_the_last_state_is_told) {
  reports r = NO_REPORTS;
  own_network();
  make_link();
  FILE *batch = fopen("batch", "w");
  CHECK(batch != NULL);
  for (int index = 0; index < 400; index++)
    fprintf(batch, "route %s default via 192.0.2.1\n", index % 2 == 0 ? "add" : "del");
  CHECK(fclose(batch) == 0);
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  ip("-batch batch");
  /* Whatever the monitor saw of these, this route is there in the end. */
  ip("route add default via 192.0.2.1");
  uint32_t state = HUTCH_HTTP_UNREACHABLE;
  for (int round = 0; state != HUTCH_HTTP_REACHABLE; round++) {
    CHECK(round < LONG_WAIT * 1000);
    usleep(1000);
    CHECK_OK(hutch_http_reachability_state(monitor, &state));
  }
  CHECK_OK(hutch_http_reachability_stop(monitor));
  CHECK_EQUAL(1, r.releases);
  for (int index = 1; index < r.count; index++) CHECK(r.states[index] != r.states[index - 1]);
  hutch_http_reachability_release(monitor);
}

TEST(a_probe_tells_whether_a_port_listens) {
  reports r = NO_REPORTS;
  uint16_t port = 0;
  char url[64];
  int server = listening(&port);
  snprintf(url, sizeof url, "https://127.0.0.1:%d/path?query", port);
  hutch_http_reachability_options options = options_of(&r, url);
  options.interval = 5 * HUTCH_MILLISECOND;
  hutch_http_reachability *monitor = start(&options);
  memset(url, 'x', sizeof url); /* The URL has been copied. */
  check_report(&r, 0, HUTCH_HTTP_REACHABLE);
  close(server);
  check_report(&r, 1, HUTCH_HTTP_UNREACHABLE);
  server = listening(&port);
  check_report(&r, 2, HUTCH_HTTP_REACHABLE);
  close(server);
  check_report(&r, 3, HUTCH_HTTP_UNREACHABLE);
  end(monitor, &r, 4);
}

TEST(a_change_of_the_network_begins_a_probe) {
  reports r = NO_REPORTS;
  own_network();
  uint16_t port = 0;
  char url[64];
  int server = listening(&port);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
  hutch_http_reachability_options options = options_of(&r, url);
  options.interval = HUTCH_FOREVER;
  options.timeout = 100 * HUTCH_MILLISECOND; /* Without lo, the packets are lost. */
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  ip("link set lo up");
  check_report(&r, 1, HUTCH_HTTP_REACHABLE);
  ip("link set lo down");
  check_report(&r, 2, HUTCH_HTTP_UNREACHABLE);
  ip("link set lo up");
  check_report(&r, 3, HUTCH_HTTP_REACHABLE);
  end(monitor, &r, 4);
  close(server);
}

TEST(a_probe_without_an_answer_ends_at_its_timeout) {
  reports r = NO_REPORTS;
  own_network();
  make_link();
  ip("route add default via 192.0.2.1");
  hutch_http_reachability_options options = options_of(&r, "http://198.51.100.1");
  options.timeout = 50 * HUTCH_MILLISECOND;
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_UNREACHABLE);
  end(monitor, &r, 1);
  /* A stop does not wait for the probe. */
  reports silent = NO_REPORTS;
  options = options_of(&silent, "http://198.51.100.1");
  options.timeout = HUTCH_FOREVER;
  monitor = start(&options);
  CHECK_OK(hutch_http_reachability_stop(monitor));
  CHECK_EQUAL(0, silent.count);
  CHECK_EQUAL(1, silent.releases);
  hutch_http_reachability_release(monitor);
}

static atomic_int entered, left;

static void report_slowly(void *context, uint32_t state) {
  entered++;
  usleep(100000);
  left++;
  report(context, state);
}

TEST(a_stop_waits_for_the_callback_that_runs) {
  reports r = NO_REPORTS;
  hutch_http_reachability_options options = options_of(&r, url_of("nobody", ""));
  options.on_change = report_slowly;
  hutch_http_reachability *monitor = start(&options);
  while (entered == 0) usleep(1000);
  CHECK_OK(hutch_http_reachability_stop(monitor));
  CHECK_EQUAL(1, left);
  CHECK_EQUAL(1, r.releases);
  CHECK_OK(hutch_http_reachability_stop(monitor));
  hutch_http_reachability_release(monitor);
}

static hutch_http_reachability *_Atomic stopped;

static void stop_here(void *context, uint32_t state) {
  while (stopped == NULL) usleep(1000);
  CHECK_OK(hutch_http_reachability_stop(stopped));
  report(context, state);
}

TEST(a_stop_within_the_callback_makes_it_the_last) {
  reports r = NO_REPORTS;
  uint16_t port = 0;
  char url[64];
  int server = listening(&port);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
  hutch_http_reachability_options options = options_of(&r, url);
  options.interval = HUTCH_MILLISECOND;
  options.on_change = stop_here;
  stopped = start(&options);
  check_report(&r, 0, HUTCH_HTTP_REACHABLE);
  close(server);
  await_number(&r, &r.releases, 1);
  CHECK_OK(hutch_http_reachability_stop(stopped));
  CHECK_EQUAL(1, r.count);
  hutch_http_reachability_release(stopped);
}

/* What the monitor's thread does when it ends, after all functions of the library. */
static pthread_key_t ending;
static _Atomic int ended;

static void end_slowly(void *value) {
  (void)value;
  usleep(50000);
  ended++;
}

static void report_and_mark(void *context, uint32_t state) {
  CHECK_EQUAL(0, pthread_setspecific(ending, context));
  report(context, state);
}

/* A process may exit then, which frees what libraries keep for threads. */
TEST(a_monitor_that_was_stopped_has_no_thread) {
  CHECK_EQUAL(0, pthread_key_create(&ending, end_slowly));
  uint16_t port = 0;
  char url[64];
  int server = listening(&port);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
  reports r = NO_REPORTS;
  hutch_http_reachability_options options = options_of(&r, url);
  options.on_change = report_and_mark;
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_REACHABLE);
  CHECK_OK(hutch_http_reachability_stop(monitor));
  CHECK_EQUAL(1, ended);
  CHECK_OK(hutch_http_reachability_stop(monitor));
  hutch_http_reachability_release(monitor);
  close(server);
}

TEST(options_of_a_newer_header_give_their_context_back) {
  reports r = NO_REPORTS;
  hutch_http_reachability *monitor;
  struct {
    hutch_http_reachability_options options;
    uint64_t more;
  } newer = {options_of(&r, NULL), 1};
  newer.options.struct_size = sizeof newer;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_reachability_start(&newer.options, &monitor));
  CHECK(monitor == NULL);
  CHECK_EQUAL(1, r.releases);
}

TEST(the_last_release_stops_a_monitor) {
  reports r = NO_REPORTS;
  hutch_http_reachability_options options = options_of(&r, NULL);
  hutch_http_reachability *monitor = start(&options);
  CHECK(hutch_http_reachability_retain(monitor) == monitor);
  hutch_http_reachability_release(monitor);
  CHECK_EQUAL(0, r.releases);
  hutch_http_reachability_release(monitor);
  CHECK_EQUAL(1, r.releases);
  hutch_http_reachability_release(NULL);
  CHECK(hutch_http_reachability_retain(NULL) == NULL);
  /* And without a callback. */
  hutch_http_reachability_release(start(NULL));
}

TEST(what_is_malformed_is_refused_and_the_context_given_back) {
  reports r = NO_REPORTS;
  uint32_t state;
  hutch_http_reachability *monitor;
  hutch_http_reachability_options options = options_of(&r, NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_start(&options, NULL));
  const char *bad[] = {"", "example.org", "ftp://example.org", "http://", "http://a b/",
                       "http://a\r\n/", "http://a:99999/"};
  for (size_t index = 0; index < sizeof bad / sizeof *bad; index++) {
    options.url = bad[index];
    CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_start(&options, &monitor));
    CHECK(monitor == NULL);
  }
  options = options_of(&r, NULL);
  options.timeout = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_start(&options, &monitor));
  options = options_of(&r, NULL);
  options.interval = -1;
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_start(&options, &monitor));
  options = options_of(&r, NULL);
  options.flags = 1;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_reachability_start(&options, &monitor));
  struct {
    hutch_http_reachability_options known;
    uint64_t more;
  } newer = {.known = options_of(&r, NULL), .more = 1};
  newer.known.struct_size = sizeof newer;
  CHECK_STATUS(HUTCH_UNSUPPORTED, hutch_http_reachability_start(&newer.known, &monitor));
  CHECK_EQUAL(12, r.releases);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_state(NULL, &state));
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_stop(NULL));
  monitor = start(NULL);
  CHECK_STATUS(HUTCH_INVALID_ARGUMENT, hutch_http_reachability_state(monitor, NULL));
  hutch_http_reachability_release(monitor);
}

TEST(a_child_of_a_fork_has_its_own_monitors_only) {
  reports r = NO_REPORTS;
  hutch_http_reachability_options options = options_of(&r, url_of("plain", ""));
  hutch_http_reachability *monitor = start(&options);
  check_report(&r, 0, HUTCH_HTTP_REACHABLE);
  pid_t child = fork_now();
  if (child == 0) {
    uint32_t state;
    CHECK_STATUS(HUTCH_FORKED, hutch_http_reachability_state(monitor, &state));
    CHECK_STATUS(HUTCH_FORKED, hutch_http_reachability_stop(monitor));
    hutch_http_reachability_release(monitor);
    CHECK_EQUAL(0, r.releases);
    reports own = NO_REPORTS;
    options.context = &own;
    monitor = start(&options);
    check_report(&own, 0, HUTCH_HTTP_REACHABLE);
    end(monitor, &own, 1);
    end_child();
  }
  await_child(child);
  end(monitor, &r, 1);
}
