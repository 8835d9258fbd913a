/* Many values in one call. See fast.h. */
#include "fast.h"

#include <stdint.h>
#include <stdlib.h>

/* So many puts are a call of the library: its bound, and the one of _many.py. */
enum { AT_ONCE = 1024 };
/* Values of more kinds than these, which are not common, are Python's. */
enum { KINDS = 16 };

/* A put. Bytes that an object of the lists has stay there; others are in the room at `at`, those of
   the key before those of the value. */
typedef struct pair {
  const char *key, *data; /* NULL: in the room */
  size_t at, key_size, size;
  Py_ssize_t index; /* in the lists */
  int kind;         /* of the extended data: see kinds */
} pair;

/* All puts of a call. */
typedef struct many {
  pair *pairs;
  Py_ssize_t count;
  text room;
  int kind_count;
  struct {
    size_t at, size; /* the extended data, in room; a size of 0: none */
  } kinds[KINDS];
} many;

static bool add(many *many, const char *data, size_t size) {
  if (text_add(&many->room, data, size)) return true;
  PyErr_NoMemory();
  return false;
}

/* The kind of these extended data; KINDS: there are too many others. -1: an exception. */
static int kind_of(many *many, const hutch_put_options *options) {
  const char *extended = options ? options->extended : NULL;
  size_t size = extended ? options->extended_size : 0;
  int kind = 0;
  for (; kind < many->kind_count; kind++)
    if (many->kinds[kind].size == size &&
        (size == 0 || memcmp(many->room.data + many->kinds[kind].at, extended, size) == 0))
      return kind;
  if (kind == KINDS) return kind;
  many->kinds[kind].at = many->room.size;
  many->kinds[kind].size = size;
  many->kind_count++;
  return size == 0 || add(many, extended, size) ? kind : -1;
}

/* 1: the put is added; 0: Python is to judge it; -1: an exception. */
static int add_put(fast *self, many *many, PyObject *name, PyObject *object, Py_ssize_t index) {
  key key;
  value value;
  pair pair = {.at = 0, .index = index};
  if (!key_of_any(name, &key) || key.size > HUTCH_KEY_MAX) return 0;
  bool is_bytes = PyBytes_CheckExact(object);
  if (is_bytes) {
    value.owned = NULL;
    value.data = PyBytes_AsString(object);
    value.size = (size_t)PyBytes_Size(object);
    value.options = NULL;
    text_begin(&value.text);
  } else if (!value_of(self, object, &value)) {
    return -1;
  }
  if (PyUnicode_CheckExact(name)) pair.key = key.data;
  if (is_bytes || (PyUnicode_CheckExact(object) && !value.owned)) pair.data = value.data;
  pair.kind = kind_of(many, value.options);
  pair.at = many->room.size;
  pair.key_size = key.size;
  pair.size = value.size;
  int result = pair.kind < 0 ? -1 : pair.kind < KINDS;
  if (result == 1 && ((!pair.key && !add(many, key.data, key.size)) ||
                      (!pair.data && !add(many, value.data, value.size))))
    result = -1;
  if (result == 1) many->pairs[many->count++] = pair;
  value_end(&value);
  return result;
}

/* Encodes all keys and values, before one is stored. 1: all are encoded; 0: Python is to judge one
   of them, and to store all; -1: an exception. */
static int encode_all(fast *self, PyObject *keys, PyObject *values, many *many) {
  Py_ssize_t count = PyList_Size(keys);
  int added = 1;
  for (Py_ssize_t i = 0; added == 1 && i < count; i++)
    added = add_put(self, many, PyList_GetItem(keys, i), PyList_GetItem(values, i), i);
  return added;
}

/* The arguments of hutch_put_many. */
typedef struct part {
  Py_ssize_t count;
  const void *keys[AT_ONCE], *data[AT_ONCE];
  size_t key_sizes[AT_ONCE], sizes[AT_ONCE];
  Py_ssize_t indexes[AT_ONCE];
} part;

/* Calls failed(batch, keys) if a put of the part has failed. False: an exception. */
static bool tell(const part *part, hutch_batch *batch, PyObject *all, PyObject *failed) {
  Py_ssize_t first = 0;
  while (first < part->count && hutch.batch_status(batch, (size_t)first) >= HUTCH_OK) first++;
  if (first == part->count) return true;
  PyObject *keys = PyList_New(part->count);
  for (Py_ssize_t i = 0; keys && i < part->count; i++) {
    PyObject *name = PyList_GetItem(all, part->indexes[i]);
    Py_INCREF(name);
    PyList_SetItem(keys, i, name);
  }
  PyObject *address = PyLong_FromVoidPtr(batch);
  PyObject *answer =
      keys && address ? PyObject_CallFunctionObjArgs(failed, address, keys, NULL) : NULL;
  Py_XDECREF(keys);
  Py_XDECREF(address);
  Py_XDECREF(answer);
  return answer != NULL;
}

/* Stores a part, which is empty afterwards. False: an exception, perhaps of a signal's handler. */
static bool put_part(fast *self, part *part, const hutch_put_options *options, PyObject *keys,
                     PyObject *failed) {
  hutch_batch *batch = NULL;
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hutch.put_many(self->cache, part->keys, part->key_sizes, part->data, part->sizes,
                          (size_t)part->count, options, &batch);
  Py_END_ALLOW_THREADS
  bool is_good = is_fine(self, status) && tell(part, batch, keys, failed) &&
                 PyErr_CheckSignals() == 0;
  hutch.batch_release(batch);
  part->count = 0;
  return is_good;
}

/* Stores the puts of a kind. False: an exception. */
static bool put_kind(fast *self, const many *many, int kind, part *part,
                     hutch_put_options *options, PyObject *keys, PyObject *failed) {
  options->extended = many->kinds[kind].size > 0 ? many->room.data + many->kinds[kind].at : NULL;
  options->extended_size = many->kinds[kind].size;
  for (Py_ssize_t i = 0; i < many->count; i++) {
    const pair *pair = many->pairs + i;
    if (pair->kind != kind) continue;
    const char *room = many->room.data + pair->at;
    part->keys[part->count] = pair->key ? pair->key : room;
    part->key_sizes[part->count] = pair->key_size;
    part->data[part->count] = pair->data ? pair->data : room + (pair->key ? 0 : pair->key_size);
    part->sizes[part->count] = pair->size;
    part->indexes[part->count++] = pair->index;
    if (part->count == AT_ONCE && !put_part(self, part, options, keys, failed)) return false;
  }
  return part->count == 0 || put_part(self, part, options, keys, failed);
}

PyObject *fast_put_all(fast *self, PyObject *const *arguments, Py_ssize_t count,
                       PyObject *names) {
  key tag;
  hutch_put_options options = {.struct_size = sizeof options};
  if (!is_attached(self)) return NULL;
  if (count < 3 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
      PyList_Size(arguments[0]) != PyList_Size(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "_put_all(keys, values, failed, expire=None, *, tag=None)");
    return NULL;
  }
  PyObject *keys = arguments[0], *failed = arguments[2];
  /* Those of set, behind two arguments. */
  if (!choices_of(arguments + 1, count - 1, names, &tag, &options)) Py_RETURN_FALSE;
  many *many = calloc(1, sizeof *many);
  part *part = calloc(1, sizeof *part);
  if (many) {
    text_begin(&many->room);
    many->pairs = malloc(((size_t)PyList_Size(keys) + 1) * sizeof *many->pairs);
  }
  int encoded = -1;
  if (many && many->pairs && part)
    encoded = encode_all(self, keys, arguments[1], many);
  else
    PyErr_NoMemory();
  bool is_good = encoded >= 0;
  for (int kind = 0; is_good && encoded && kind < many->kind_count; kind++)
    is_good = put_kind(self, many, kind, part, &options, keys, failed);
  if (many) {
    text_end(&many->room);
    free(many->pairs);
  }
  free(many);
  free(part);
  return is_good ? PyBool_FromLong(encoded) : NULL;
}
