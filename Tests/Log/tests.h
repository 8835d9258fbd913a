// What the log store's test programs need of libc beside CSystem.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
