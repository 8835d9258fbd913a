/*
 * Stops a thread of the test at a step of the library: before a step of SQLite, and before the
 * thread takes its turn among processes or gives it up. The functions are defined here, in the
 * program that includes this file, which the dynamic linker asks first. The program defines
 * STOPS_AGAIN: whether a stop stays set for the steps that follow.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What this thread does before its next step of SQLite, and before its next turn begins or ends.
   NULL while it is done. */
static _Thread_local void (*at_step)(void), (*at_turn)(void);

static void stop(void (**at)(void)) {
  void (*what)(void) = *at;
  if (!what) return;
  *at = NULL;
  what();
  if (STOPS_AGAIN) *at = what;
}

int sqlite3_step(void *statement);
int sqlite3_step(void *statement) {
  static int (*real)(void *statement);
  if (!real) {
    void *found = dlsym(dlopen("libsqlite3.so.0", RTLD_NOW), "sqlite3_step");
    CHECK(found);
    memcpy(&real, &found, sizeof real);
  }
  stop(&at_step);
  return real(statement);
}

#define CONTROL(name)                                                                   \
  int name(int file, int command, ...) {                                                \
    va_list list;                                                                       \
    va_start(list, command);                                                            \
    void *argument = va_arg(list, void *);                                              \
    va_end(list);                                                                       \
    if (command == F_OFD_SETLK || command == F_OFD_SETLKW) stop(&at_turn);              \
    return (int)syscall(SYS_fcntl, file, command, argument);                            \
  }
CONTROL(fcntl)
CONTROL(fcntl64)
