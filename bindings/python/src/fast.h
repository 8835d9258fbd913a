/*
 * fast.h - the accelerator of the Python package, in two parts
 *
 *   fast.c    the type Fast and the module
 *   codec.c   keys and values of the common kinds, as bytes and back
 *
 * C takes the common kinds of keys, values and arguments. Every other call goes to the Python
 * function of SlowEntries of the same name, so that each rule of the package is in one place.
 * One binary serves CPython 3.9 and newer: 3.9 also exports the functions used here that the
 * limited API has since 3.10.
 *
 * A call keeps the GIL where memory answers, since a release costs up to 5 ms beside a thread that
 * computes. It releases the GIL where it may touch the disk, wait or copy much.
 */
#ifndef HUTCH_FAST_H
#define HUTCH_FAST_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdbool.h>

#include "hutch_dl.h"

/* The library's functions. Written once, by load(), under the GIL. */
extern hutch_dl hutch;

/* ------------------------------------------------------------------- codec */

enum { KEY_ROOM = 256 };

/* A key's bytes: in the object, which must live as long, or in room. */
typedef struct key {
  const char *data;
  size_t size;
  char room[KEY_ROOM];
} key;

/* False: not of a common kind; no exception is set. */
bool key_of(PyObject *object, key *key);

/* A value's bytes and, unless it is a bytes object, the options that name its type. */
typedef struct value {
  const char *data;
  size_t size;
  const hutch_put_options *options;
  PyObject *owned; /* NULL, or the owner of the bytes: a new reference */
  char room[8];
} value;

/* False: not of a common kind; no exception is set. */
bool value_of(PyObject *object, value *value);

/* The object that was put. decode: decodes the kinds that C does not, for a cache. NULL without
   an exception: the value cannot be read. */
PyObject *object_of(const char *data, size_t size, const char *extended, size_t extended_size,
                    PyObject *decode, PyObject *cache);

#endif
