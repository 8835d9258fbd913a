/*
 * fast.h - the accelerator of the Python package, in its parts
 *
 *   fast.c      the type Fast: the common calls of a cache
 *   life.c      the beginning and the end of a Fast
 *   module.c    the module and its state
 *   memoize.c   the type Memoized: a call of a memoized function
 *   hooks.c     a clock and a codec in Python; what guards the functions that C calls
 *   known.c     objects of values that are read again
 *   pin.c       the type Pinned: a value without a copy
 *   objects.c   Python objects in a cache's memory, by reference
 *   walk.c      the keys of all entries
 *   many.c      many values in one call
 *   codec.c     keys and values of the common kinds, as bytes and back
 *   json.c      values of JSON
 *   cbor.c      values of CBOR
 *
 * C takes the common kinds of keys, values and arguments. Every other call goes to the Python
 * function of SlowEntries of the same name, and every other value through the cache's Forms, so
 * that each rule of the package is in one place.
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
#include <string.h>

#include "hutch_dl.h"

/* The library's functions. Written once, by load(), under the GIL. */
extern hutch_dl hutch;

/* A function that takes its arguments as METH_FASTCALL gives them, in a PyMethodDef. */
#define HUTCH_METHOD(function) (PyCFunction)(void (*)(void))(function)

/* Code that hits do not need stands in functions of its own, and behind the code of hits. */
#define RARELY(condition) __builtin_expect(!!(condition), 0)
#define COLD __attribute__((noinline, cold))

/* ------------------------------------------------------------------ module */

/* The functions of SlowEntries for calls of other kinds, in this order. */
enum {
  GET, GETITEM, SET, SETITEM, DELITEM, CONTAINS, INCR, DECR, PIN, PUT_OBJECT, GET_OBJECT, SLOW
};

/* How many names of entries of dicts a state keeps. */
enum { NAMES = 64 };

/* The state of a module, and thereby of an interpreter. slow and check are NULL until a call of no
   common kind, or a failure, needs the modules of Python. */
typedef struct state {
  PyObject *complete; /* (): imports these modules and calls set_up. NULL: the interpreter ended */
  PyObject *slow[SLOW];
  PyObject *check;  /* (status): raises the exception of a status below 0 */
  PyObject *tagged; /* _cbor.tagged. NULL until a value needs it */
  PyObject *fast_type, *pinned_type;
  PyObject *names[NAMES]; /* str or NULL: see json.c */
} state;

extern PyType_Spec fast_spec, memoized_spec, pinned_spec;
extern PyMethodDef fast_methods[];

/* Whether this is the main interpreter. Only it gives the library functions and objects of Python:
   the library calls and releases them on any thread, by PyGILState_Ensure, which knows no other
   interpreter, and also after the end of a subinterpreter. */
static inline bool is_main_interpreter(void) {
  return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0;
}

/* Completes a state. False: an exception. */
bool is_complete(state *state);

/* Writes the library's line to Python's logging. */
void log_line(void *context, const hutch_log_record *record);

/* -------------------------------------------------------------------- Fast */

typedef struct fast {
  PyObject_HEAD
  hutch_cache *cache;  /* a reference of its own; NULL until attach */
  hutch_cache *memory; /* the view of its memory tier, or NULL */
  bool is_open;        /* _open has opened the cache, and this object is to close it */
  PyObject *module;    /* keeps state */
  state *state;
  /* A put can neither touch a disk nor wait for a listener, so it keeps the GIL. Once false, it
     stays false. */
  bool is_in_memory;
  bool is_natural; /* there is no serializer: C reads and writes values of JSON */
  bool codes_objects; /* objects are values: hutch/_object_codec.py makes them, with the GIL */
  bool keeps_pairs; /* a value is a tuple of its bytes and its extended data */
  struct known *known; /* PLACES of them, or NULL; lives as long as this object */
} fast;

struct key;

/* Calls a function with first, unless it is NULL, and arguments as METH_FASTCALL gives them. */
PyObject *call_with(PyObject *function, PyObject *first, PyObject *const *arguments,
                    Py_ssize_t count, PyObject *names);

/* Calls the method of SlowEntries with the original arguments and names. */
PyObject *slowly(fast *self, int which, PyObject *const *arguments, Py_ssize_t count,
                 PyObject *names);

/* Releases the GIL for a call of the library, unless `keeps` is true: the call can neither touch a
   disk nor wait, nor copy much. take_gil ends it. */
static inline PyThreadState *release_gil(bool keeps) {
  return keeps ? NULL : PyEval_SaveThread();
}
static inline void take_gil(PyThreadState *released) {
  if (released) PyEval_RestoreThread(released);
}

/* The result of a call (key, default) that has found nothing; NULL: an exception is set. */
PyObject *default_of(PyObject *const *arguments, Py_ssize_t count);

/* False, with an exception, if check raises one for the status. */
bool is_fine(fast *self, hutch_status status);

/* Raises the exception of an object that is_attached refuses. False. */
bool refuse(const fast *self);

/* False, with an exception, before the opening and after the end of the interpreter. */
static inline bool is_attached(const fast *self) {
  return (self->cache && self->state->complete) || refuse(self);
}

/* The methods of an object's life: see the words of fast_methods. */
PyObject *fast_attach(fast *self, PyTypeObject *type, PyObject *const *arguments,
                      Py_ssize_t count, PyObject *names);
PyObject *fast_open(fast *self, PyTypeObject *type, PyObject *const *arguments, Py_ssize_t count,
                    PyObject *names);
PyObject *fast_handle(fast *self, PyObject *unused);
PyObject *fast_close(fast *self, PyObject *unused);
PyObject *fast_let_go(fast *self, PyObject *unused);
PyObject *fast_code_objects(fast *self, PyObject *unused);
PyObject *fast_keep_pairs(fast *self, PyObject *unused);
void fast_dealloc(fast *self);

/* Sets the clock and the codec of an opening, as _open has got them; None: none. The library
   releases them. False: an exception, and there is nothing to release. */
bool set_hooks(hutch_options *options, PyObject *clock, PyObject *codec);

/* Releases an object that the library has, as its release function: on any thread, with the GIL or
   without. After the interpreter's end the object is left to the end of the process. */
void let_go(void *object);

PyObject *module_guard(PyObject *module, PyObject *pair);

/* The object under a key; NULL without an exception: no entry. */
PyObject *read_object(fast *self, const struct key *key);

/* See the words of fast_methods and of module_methods. */
PyObject *fast_put_object(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names);
PyObject *fast_get_object(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names);
PyObject *module_held(PyObject *module, PyObject *number);
PyObject *fast_all_keys(fast *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *fast_placed_keys(fast *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *fast_put_all(fast *self, PyObject *const *arguments, Py_ssize_t count,
                       PyObject *names);

/* The options of a put: arguments[2], if there is one, is expire, and names are expire and tag. The
   tag's bytes may be in `tag`. False: Python is to judge them. */
bool choices_of(PyObject *const *arguments, Py_ssize_t count, PyObject *names, struct key *tag,
                hutch_put_options *options);

/* A memoryview of a value, of which this takes the reference. */
PyObject *pinned_of(const fast *cache, hutch_value *value);

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

/* key_of, for the commonest keys a part of its caller. */
static inline bool key_of_any(PyObject *object, key *key) {
  Py_ssize_t size;
  if (RARELY(!PyUnicode_CheckExact(object))) return key_of(object, key);
  key->data = PyUnicode_AsUTF8AndSize(object, &size);
  key->size = (size_t)size;
  /* NULL, with an exception that key_of clears: surrogates. */
  return RARELY(!key->data) ? key_of(object, key) : size > 0;
}

/* False: no int of 64 bits; no exception is set. */
bool int64_of(PyObject *object, long long *number);

/* A text that grows: in room, then on the heap. */
typedef struct text {
  char *data;
  size_t size, capacity;
  char room[512];
} text;

void text_begin(text *text);
void text_end(text *text);
/* Makes room for so many more bytes. False: there is no memory; no exception is set. */
bool text_grow(text *text, size_t size);
/* False: as in text_grow. */
static inline bool text_add(text *text, const char *data, size_t size) {
  if (size > text->capacity - text->size && !text_grow(text, size)) return false;
  memcpy(text->data + text->size, data, size);
  text->size += size;
  return true;
}
bool text_add_int(text *text, long long number);
/* As repr writes it. */
bool text_add_float(text *text, double number);

/* The bytes of a value of another type than bytes, and the options that name its type; NULL: a
   subclass of bytes, or another buffer. */
typedef struct value {
  const char *data;
  size_t size;
  const hutch_put_options *options;
  PyObject *owned;       /* NULL, or the owner of the bytes: a new reference */
  text text;             /* the bytes, if C has written them */
  hutch_put_options own; /* the options, if Python has chosen them */
} value;

extern const hutch_put_options int_options;

/* Of any object but bytes. False: an exception. True: value_end ends the value. */
bool value_of(const fast *cache, PyObject *object, value *value);
void value_end(value *value);

/* The extended data of values. */
#define STR_TAG "py:str"
#define INT_TAG "py:int"
#define JSON_TAG "py:json"
#define CBOR_TAG "py:cbor"

/* Whether extended data are this tag. */
#define HAS_TAG(extended, size, tag) \
  ((size) == sizeof tag - 1 && memcmp(extended, tag, sizeof tag - 1) == 0)

/* Whether the value is a str: its bytes are UTF-8, to be decoded with these errors. */
#define STR_ERRORS "surrogatepass"
static inline bool is_str(const char *extended, size_t extended_size) {
  return HAS_TAG(extended, extended_size, STR_TAG);
}

/* Whether the value is an int: 8 bytes, of two's complement, the lowest first. */
static inline bool is_int(size_t size, const char *extended, size_t extended_size) {
  return size == 8 && HAS_TAG(extended, extended_size, INT_TAG);
}

/* Whether the package has written the value, as another kind than bytes. */
bool is_encoded(const char *extended, size_t extended_size);

/* The object that was put. NULL without an exception: the value cannot be read. */
PyObject *object_of(const fast *cache, const char *data, size_t size, const char *extended,
                    size_t extended_size);

/* object_of, of a value that a look has copied. */
PyObject *object_of_copy(const fast *cache, const char *room, const hutch_found *found);

/* ------------------------------------------------------------------- known */

/* The version of a value that was read, and the object that was made of it; object is NULL until
   the value is read again. An object stands for every later read of its version, because a cache
   never uses a version twice and because objects are of types that do not change. Only the GIL
   protects a place: what was read of it before a release of the GIL says nothing after it. */
typedef struct known {
  uint64_t version;
  PyObject *object;
} known;

/* log2 of the number of places, and the size of the largest value of an object that is kept. */
enum { PLACE_BITS = 11, PLACES = 1 << PLACE_BITS, KNOWN_MOST = 512 };

/* Begins to know objects. False: there is no memory; no exception is set. */
bool begin_to_know(fast *self);

/* Releases the objects. */
void forget(fast *self);

/* Makes the object of a value that a look has copied; keeps it if this version was the last one
   that the place has seen. */
PyObject *learn(const fast *self, known *known, const char *room, const hutch_found *found);

/* The place of a key's object, by its first and last bytes: keys of one place only take it from
   each other. NULL: there is none for such keys. */
static inline known *known_of(fast *self, const key *key) {
  uint64_t first, last;
  if (RARELY(!self->known) && !begin_to_know(self)) return NULL;
  if (key->size >= sizeof first) {
    memcpy(&first, key->data, sizeof first);
    memcpy(&last, key->data + key->size - sizeof last, sizeof last);
  } else if (key->size >= 4) {
    uint32_t start, end;
    memcpy(&start, key->data, sizeof start);
    memcpy(&end, key->data + key->size - sizeof end, sizeof end);
    first = start;
    last = end;
  } else {
    return NULL;
  }
  uint64_t mixed = ((first << 31 | first >> 33) + last) * 0x9e3779b97f4a7c15;
  return &self->known[mixed >> (64 - PLACE_BITS)];
}

/* ------------------------------------------------------------ JSON and CBOR */

/* Values that are nested deeper are rare, or contain themselves. */
enum { VALUE_DEEPEST = 40 };
/* A value with so many floats is CBOR, as _codec.py says. */
enum { MANY_FLOATS = 16 };

/* The text that json.dumps writes without blanks and escapes of ASCII. False: not of a common
   kind, or, if is_other is true then, a value that the package writes as CBOR; no exception is
   set. */
bool json_write(text *text, PyObject *object, bool *is_other);

/* The object that json.loads reads. NULL without an exception: not of a common kind. */
PyObject *json_read(state *state, const char *data, size_t size);

/* The bytes that _cbor.dumps writes, with the function _cbor.tagged. False without an exception:
   not of a common kind, or an object that has no form. */
bool cbor_write(text *text, PyObject *object, PyObject *tagged);

/* The object that _cbor_read.loads reads, with the functions of _cbor_read.MAKERS, and of
   MAKERS_OF_TEXT. NULL without an exception: not of a common kind, or bytes of no object. */
PyObject *cbor_read(state *state, const char *data, size_t size, PyObject *makers,
                    PyObject *makers_of_text);

/* A name of a dict's entry, of ASCII. Dicts of one program have few names: the state keeps the last
   one of each place, with its hash. */
PyObject *kept_name(state *state, unsigned place, const char *start, size_t length);

/* See the words of module_methods. */
PyObject *module_write(PyObject *module, PyObject *object);
PyObject *module_read_json(PyObject *module, PyObject *arguments);
PyObject *module_read_cbor(PyObject *module, PyObject *arguments);

#endif
