// sqlite3.h, its variadic function in the one shape that the engine needs, and a struct whose
// address has to be that of its first field.
#ifndef HUTCH_CSQLITE_H
#define HUTCH_CSQLITE_H

#include <sqlite3.h>

// A switch of the connection (SQLITE_DBCONFIG_*), on or off.
static inline int hutch_sqlite_switch(sqlite3 *connection, int option, int on) {
  return sqlite3_db_config(connection, option, on, (int *)0);
}

// The methods of an open log, and the state of its buffer (Disk/ManifestLogBuffer.swift), whose
// bytes follow.
typedef struct hutch_log_buffer {
  sqlite3_io_methods methods;    // the first field: the file has this address
  const sqlite3_io_methods *own; // SQLite's methods of the file
  sqlite3_int64 start;           // where in the file the bytes belong
  int used;                      // how many there are
  int is_buffering;
  int ends_commit; // the next page is the last one of a commit
} hutch_log_buffer;

#endif
