/* Keys and values of the common kinds. hutch/_codec.py documents their bytes. */
#include "fast.h"

#include <stdio.h>
#include <string.h>

/* A longer copy releases the GIL. */
enum { LONG_COPY = 256 * 1024 };
/* CPython keeps the UTF-8 of a str that is not ASCII in the str: used for short ones only. */
enum { LONG_TEXT = 4096 };

static const char str_tag[] = "py:str", int_tag[] = "py:int";

static const hutch_put_options str_options = {
    .struct_size = sizeof str_options, .extended = str_tag, .extended_size = sizeof str_tag - 1};
static const hutch_put_options int_options = {
    .struct_size = sizeof int_options, .extended = int_tag, .extended_size = sizeof int_tag - 1};

static bool give_up(void) {
  PyErr_Clear();
  return false;
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
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || (number == -1 && PyErr_Occurred())) return give_up();
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

bool value_of(PyObject *object, value *value) {
  char *data;
  Py_ssize_t size;
  value->owned = NULL;
  if (PyBytes_CheckExact(object)) {
    if (PyBytes_AsStringAndSize(object, &data, &size) < 0) return give_up();
    value->data = data;
    value->size = (size_t)size;
    value->options = NULL;
    return true;
  }
  if (PyUnicode_CheckExact(object)) {
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
  if (PyLong_CheckExact(object)) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || (number == -1 && PyErr_Occurred())) return give_up();
    for (int i = 0; i < 8; i++) value->room[i] = (char)((unsigned long long)number >> (8 * i));
    value->data = value->room;
    value->size = sizeof value->room;
    value->options = &int_options;
    return true;
  }
  return false;
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

static bool is(const char *extended, size_t size, const char *tag, size_t tag_size) {
  return size == tag_size && memcmp(extended, tag, tag_size) == 0;
}

PyObject *object_of(const char *data, size_t size, const char *extended, size_t extended_size,
                    PyObject *decode, PyObject *cache) {
  if (extended_size == 0) return bytes_of(data, size);
  if (is(extended, extended_size, str_tag, sizeof str_tag - 1)) {
    PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "surrogatepass");
    if (text || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return text;
    PyErr_Clear();
  }
  if (size == 8 && is(extended, extended_size, int_tag, sizeof int_tag - 1)) {
    unsigned long long number = 0;
    for (int i = 0; i < 8; i++) number |= (unsigned long long)(unsigned char)data[i] << (8 * i);
    return PyLong_FromLongLong((long long)number);
  }
  PyObject *bytes = bytes_of(data, size);
  if (!bytes) return NULL;
  PyObject *pair =
      PyObject_CallFunction(decode, "OOy#", cache, bytes, extended, (Py_ssize_t)extended_size);
  Py_DECREF(bytes);
  if (!pair || pair == Py_None) {
    Py_XDECREF(pair);
    return NULL;
  }
  PyObject *object = PyTuple_GetItem(pair, 0);
  Py_XINCREF(object);
  Py_DECREF(pair);
  return object;
}
