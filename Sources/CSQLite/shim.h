// sqlite3.h, and its variadic function in the one shape that the engine needs.
#ifndef HUTCH_CSQLITE_H
#define HUTCH_CSQLITE_H

#include <sqlite3.h>

// A switch of the connection (SQLITE_DBCONFIG_*), on or off.
static inline int hutch_sqlite_switch(sqlite3 *connection, int option, int on) {
  return sqlite3_db_config(connection, option, on, (int *)0);
}

#endif
