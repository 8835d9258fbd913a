/* Keys and values of the common kinds. hutch/_codec.py documents their bytes. */
#include "fast.h"

#include <stdlib.h>

/* A longer copy releases the GIL. */
enum { LONG_COPY = 256 * 1024 };
/* CPython keeps the UTF-8 of a str that is not ASCII in the str: used for short ones only. */
enum { LONG_TEXT = 4096 };

#define HUTCH_KIND(tag)                                                                        \
  {.struct_size = sizeof(hutch_put_options), .extended = tag, .extended_size = sizeof tag - 1}
static const hutch_put_options str_options = HUTCH_KIND(STR_TAG);
const hutch_put_options int_options = HUTCH_KIND(INT_TAG);
static const hutch_put_options json_options = HUTCH_KIND(JSON_TAG);
static const hutch_put_options cbor_options = HUTCH_KIND(CBOR_TAG);

static bool give_up(void) {
  PyErr_Clear();
  return false;
}

/* ------------------------------------------------------------------- texts */

void text_begin(text *text) {
  text->data = text->room;
  text->size = 0;
  text->capacity = sizeof text->room;
}

void text_end(text *text) {
  if (text->data != text->room) free(text->data);
}

bool text_grow(text *text, size_t size) {
  size_t capacity = 2 * (text->size + size);
  bool is_on_heap = text->data != text->room;
  char *data = realloc(is_on_heap ? text->data : NULL, capacity);
  if (!data) return false;
  if (!is_on_heap) memcpy(data, text->room, text->size);
  text->data = data;
  text->capacity = capacity;
  return true;
}

bool text_add_int(text *text, long long number) {
  char room[24], *end = room + sizeof room, *at = end;
  unsigned long long digits = number < 0 ? 0 - (unsigned long long)number
                                         : (unsigned long long)number;
  do *--at = (char)('0' + digits % 10);
  while (digits /= 10);
  if (number < 0) *--at = '-';
  return text_add(text, at, (size_t)(end - at));
}

bool text_add_float(text *text, double number) {
  char *digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
  if (!digits) return give_up();
  bool is_added = text_add(text, digits, strlen(digits));
  PyMem_Free(digits);
  return is_added;
}

/* -------------------------------------------------------------------- keys */

bool int64_of(PyObject *object, long long *number) {
  int overflow;
  if (!PyLong_CheckExact(object)) return false;
  *number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (*number == -1 && PyErr_Occurred()) return give_up();
  return !overflow;
}

bool key_of(PyObject *object, key *key) {
  if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size;
    key->data = PyUnicode_AsUTF8AndSize(object, &size);
    /* Surrogates, which stand for bytes that are not UTF-8. */
    if (!key->data) return give_up();
    key->size = (size_t)size;
    return size > 0;
  }
  key->data = key->room;
  if (PyLong_CheckExact(object)) {
    long long number;
    if (!int64_of(object, &number)) return false;
    unsigned long long digits = number < 0 ? 0 - (unsigned long long)number
                                           : (unsigned long long)number;
    char *end = key->room + KEY_ROOM, *at = end;
    do *--at = "0123456789abcdef"[digits & 15];
    while (digits >>= 4);
    if (number < 0) *--at = '-';
    *--at = (char)0xfe;
    key->data = at;
    key->size = (size_t)(end - at);
    return true;
  }
  if (PyBytes_CheckExact(object)) {
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &data, &size) < 0) return give_up();
    if (size >= KEY_ROOM) return false;
    key->room[0] = (char)0xff;
    memcpy(key->room + 1, data, (size_t)size);
    key->size = (size_t)size + 1;
    return true;
  }
  return false;
}

/* ------------------------------------------------------------------ values */

static bool str_value(PyObject *object, value *value) {
  char *data;
  Py_ssize_t size;
  if (PyUnicode_GetLength(object) <= LONG_TEXT) {
    value->data = PyUnicode_AsUTF8AndSize(object, &size);
    if (!value->data) return give_up();
  } else {
    value->owned = PyUnicode_AsUTF8String(object);
    if (!value->owned) return give_up();
    PyBytes_AsStringAndSize(value->owned, &data, &size);
    value->data = data;
  }
  value->size = (size_t)size;
  value->options = &str_options;
  return true;
}

static bool int_value(PyObject *object, value *value) {
  long long number;
  if (!int64_of(object, &number)) return false;
  for (int i = 0; i < 8; i++) value->text.room[i] = (char)((unsigned long long)number >> (8 * i));
  value->data = value->text.room;
  value->size = 8;
  value->options = &int_options;
  return true;
}

/* The options of extended data that the package does not know. */
static void set_extended(value *value, const char *extended, Py_ssize_t size) {
  value->own = (hutch_put_options){.struct_size = sizeof value->own,
                                   .extended = extended,
                                   .extended_size = (size_t)size};
  value->options = &value->own;
}

/* The bytes that the cache's Forms make. False: an exception. */
static bool formed_value(const fast *cache, PyObject *object, value *value) {
  Py_ssize_t size, extended_size;
  const char *extended;
  PyObject *forms = PyObject_GetAttrString((PyObject *)cache, "_forms");
  value->owned = forms ? PyObject_CallMethod(forms, "encode", "(O)", object) : NULL;
  Py_XDECREF(forms);
  if (!value->owned ||
      !PyArg_ParseTuple(value->owned, "y#z#", &value->data, &size, &extended, &extended_size)) {
    Py_CLEAR(value->owned);
    return false;
  }
  value->size = (size_t)size;
  value->options = NULL;
  if (extended) set_extended(value, extended, extended_size);
  return true;
}

/* Of a tuple of bytes and extended data. False: it is none. */
static bool pair_value(PyObject *object, value *value) {
  if (!PyTuple_CheckExact(object) || PyTuple_Size(object) != 2) return false;
  PyObject *bytes = PyTuple_GetItem(object, 0), *extended = PyTuple_GetItem(object, 1);
  if (!PyBytes_CheckExact(bytes) || !PyBytes_CheckExact(extended)) return false;
  value->data = PyBytes_AsString(bytes);
  value->size = (size_t)PyBytes_Size(bytes);
  set_extended(value, PyBytes_AsString(extended), PyBytes_Size(extended));
  return true;
}

/* The function _cbor.tagged, which the state keeps. NULL: an exception. */
static PyObject *tagged_of(state *state) {
  if (state->tagged) return state->tagged;
  PyObject *module = PyImport_ImportModule("hutch._cbor");
  if (module) state->tagged = PyObject_GetAttrString(module, "tagged");
  Py_XDECREF(module);
  return state->tagged;
}

/* Writes an object as the package does without a serializer. Its options, or NULL: not of a common
   kind; or an exception is set. */
static const hutch_put_options *write_natural(state *state, text *text, PyObject *object) {
  bool is_other;
  if (json_write(text, object, &is_other)) return &json_options;
  if (!is_other) return NULL;
  text->size = 0;
  PyObject *tagged = tagged_of(state);
  return tagged && cbor_write(text, object, tagged) ? &cbor_options : NULL;
}

/* False: not of a common kind, or an exception is set. */
static bool natural_value(state *state, PyObject *object, value *value) {
  value->options = write_natural(state, &value->text, object);
  if (!value->options) {
    text_end(&value->text);
    text_begin(&value->text);
    return false;
  }
  value->data = value->text.data;
  value->size = value->text.size;
  return true;
}

/* False: not of a common kind, or an exception is set. */
static bool common_value(const fast *cache, PyObject *object, value *value) {
  if (PyUnicode_CheckExact(object)) return str_value(object, value);
  if (PyLong_CheckExact(object)) return int_value(object, value);
  if (cache->keeps_pairs) return pair_value(object, value);
  return cache->is_natural && natural_value(cache->state, object, value);
}

bool value_of(const fast *cache, PyObject *object, value *value) {
  value->owned = NULL;
  text_begin(&value->text);
  return common_value(cache, object, value) ||
         (!PyErr_Occurred() && formed_value(cache, object, value));
}

PyObject *module_write(PyObject *module, PyObject *object) {
  text text;
  text_begin(&text);
  PyObject *pair = NULL;
  const hutch_put_options *options = write_natural(PyModule_GetState(module), &text, object);
  if (options) {
    pair = Py_BuildValue("y#y", text.data, (Py_ssize_t)text.size, options->extended);
  } else if (!PyErr_Occurred()) {
    Py_INCREF(Py_None);
    pair = Py_None;
  }
  text_end(&text);
  return pair;
}

static PyObject *read_or(PyObject *object, PyObject *instead) {
  if (object || PyErr_Occurred()) return object;
  Py_INCREF(instead);
  return instead;
}

PyObject *module_read_json(PyObject *module, PyObject *arguments) {
  const char *data;
  Py_ssize_t size;
  PyObject *instead;
  if (!PyArg_ParseTuple(arguments, "y#O", &data, &size, &instead)) return NULL;
  return read_or(json_read(PyModule_GetState(module), data, (size_t)size), instead);
}

PyObject *module_read_cbor(PyObject *module, PyObject *arguments) {
  const char *data;
  Py_ssize_t size;
  PyObject *makers, *of_text, *instead;
  if (!PyArg_ParseTuple(arguments, "y#O!O!O", &data, &size, &PyDict_Type, &makers, &PyDict_Type,
                        &of_text, &instead))
    return NULL;
  state *state = PyModule_GetState(module);
  return read_or(cbor_read(state, data, (size_t)size, makers, of_text), instead);
}

void value_end(value *value) {
  Py_XDECREF(value->owned);
  text_end(&value->text);
}

static PyObject *bytes_of(const char *data, size_t size) {
  if (size < LONG_COPY) return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
  if (!bytes) return NULL;
  char *copy = PyBytes_AsString(bytes);
  Py_BEGIN_ALLOW_THREADS
  memcpy(copy, data, size);
  Py_END_ALLOW_THREADS
  return bytes;
}

bool is_encoded(const char *extended, size_t extended_size) {
  return extended_size >= 3 && memcmp(extended, "py:", 3) == 0;
}

PyObject *object_of(const fast *cache, const char *data, size_t size, const char *extended,
                    size_t extended_size) {
  if (extended_size == 0) return bytes_of(data, size);
  if (cache->keeps_pairs)
    return Py_BuildValue("(Ny#)", bytes_of(data, size), extended, (Py_ssize_t)extended_size);
  if (is_str(extended, extended_size)) {
    PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, STR_ERRORS);
    if (text || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return text;
    PyErr_Clear();
  }
  if (is_int(size, extended, extended_size)) {
    unsigned long long number = 0;
    for (int i = 0; i < 8; i++) number |= (unsigned long long)(unsigned char)data[i] << (8 * i);
    return PyLong_FromLongLong((long long)number);
  }
  if (cache->is_natural && HAS_TAG(extended, extended_size, JSON_TAG)) {
    PyObject *object = json_read(cache->state, data, size);
    if (object || PyErr_Occurred()) return object;
  }
  PyObject *forms = PyObject_GetAttrString((PyObject *)cache, "_forms");
  PyObject *bytes = forms ? bytes_of(data, size) : NULL;
  PyObject *pair = bytes ? PyObject_CallMethod(forms, "read", "Oy#", bytes, extended,
                                               (Py_ssize_t)extended_size)
                         : NULL;
  Py_XDECREF(bytes);
  Py_XDECREF(forms);
  if (!pair || pair == Py_None) {
    Py_XDECREF(pair);
    return NULL;
  }
  PyObject *object = PyTuple_GetItem(pair, 0);
  Py_XINCREF(object);
  Py_DECREF(pair);
  return object;
}

PyObject *object_of_copy(const fast *cache, const char *room, const hutch_found *found) {
  /* The commonest of object_of: bytes and str. */
  Py_ssize_t size = (Py_ssize_t)found->size;
  if (found->extended_size == 0) return PyBytes_FromStringAndSize(room, size);
  if (is_str(room + found->size, found->extended_size)) {
    PyObject *text = PyUnicode_DecodeUTF8(room, size, STR_ERRORS);
    if (text) return text;
    PyErr_Clear(); /* object_of tells. */
  }
  return object_of(cache, room, found->size, room + found->size, found->extended_size);
}
