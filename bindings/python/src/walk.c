/* Walks over all entries. See fast.h. */
#include "fast.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* So many entries are collected without the GIL, before their objects are made with it. */
enum { TOGETHER = 256 };

/* The sizes of a key and of extended data, which follow. */
typedef struct head {
  uint32_t key_size, extended_size;
} head;

/* The entries that a walk has collected: heads with their bytes, without gaps. */
typedef struct page {
  char *data;
  size_t size, capacity;
  bool is_cut; /* there was no memory for the rest */
} page;

static void page_add(page *page, const void *data, size_t size) {
  if (page->is_cut || size == 0) return;
  if (size > page->capacity - page->size) {
    size_t capacity = 2 * (page->size + size);
    char *grown = realloc(page->data, capacity);
    page->is_cut = !grown;
    if (!grown) return;
    page->data = grown;
    page->capacity = capacity;
  }
  memcpy(page->data + page->size, data, size);
  page->size += size;
}

/* Steps to the next entries. Without the GIL. HUTCH_NOT_FOUND: these are the last ones. */
static hutch_status collect(hutch_cursor *cursor, bool wants_extended, page *page) {
  page->size = 0;
  for (int i = 0; i < TOGETHER && !page->is_cut; i++) {
    const void *key;
    size_t size;
    hutch_value *value = NULL;
    hutch_status status = hutch.cursor_next(cursor, &key, &size);
    if (status != HUTCH_OK) return status;
    if (wants_extended) {
      status = hutch.cursor_value(cursor, &value);
      if (status == HUTCH_NOT_FOUND) continue; /* It went since the step. */
      if (status != HUTCH_OK) return status;
    }
    head head = {(uint32_t)size, value ? (uint32_t)hutch.value_extended_size(value) : 0};
    page_add(page, &head, sizeof head);
    page_add(page, key, size);
    if (value) page_add(page, hutch.value_extended(value), head.extended_size);
    hutch.value_release(value);
  }
  return HUTCH_OK;
}

/* The key of these bytes, as key_from_bytes has it, which is `others` for keys of no common kind.
   NULL: an exception. */
static PyObject *key_object(const char *data, Py_ssize_t size, PyObject *others) {
  unsigned char first = (unsigned char)*data;
  if (first < 0xfd) return PyUnicode_DecodeUTF8(data, size, "surrogateescape");
  if (first == 0xff) return PyBytes_FromStringAndSize(data + 1, size - 1);
  return PyObject_CallFunction(others, "y#", data, size);
}

/* Appends the keys of a page to a list, or pairs with the extended data. False: an exception. */
static bool append_all(PyObject *list, const page *page, bool wants_extended, PyObject *others) {
  if (page->is_cut) {
    PyErr_NoMemory();
    return false;
  }
  for (const char *at = page->data, *end = at + page->size; at < end;) {
    head head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    PyObject *object = key_object(at, head.key_size, others);
    at += head.key_size;
    if (object && wants_extended)
      object = Py_BuildValue("(Ny#)", object, at, (Py_ssize_t)head.extended_size);
    at += head.extended_size;
    int failed = object ? PyList_Append(list, object) : -1;
    Py_XDECREF(object);
    if (failed) return false;
  }
  return true;
}

PyObject *fast_all_keys(fast *self, PyObject *const *arguments, Py_ssize_t count) {
  if (!is_attached(self)) return NULL;
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "_all_keys(order, wants_extended, key_from_bytes)");
    return NULL;
  }
  bool is_ordered = arguments[0] != Py_None;
  unsigned long order = is_ordered ? PyLong_AsUnsignedLong(arguments[0]) : 0;
  int wants_extended = PyObject_IsTrue(arguments[1]);
  PyObject *list = PyErr_Occurred() ? NULL : PyList_New(0);
  if (!list) return NULL;
  hutch_cursor *cursor = NULL;
  page page = {NULL, 0, 0, false};
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = is_ordered ? hutch.cursor_create_ordered(self->cache, (uint32_t)order, &cursor)
                      : hutch.cursor_create(self->cache, &cursor);
  Py_END_ALLOW_THREADS
  bool is_good = is_fine(self, status);
  while (is_good && status == HUTCH_OK) {
    Py_BEGIN_ALLOW_THREADS
    status = collect(cursor, wants_extended, &page);
    Py_END_ALLOW_THREADS
    is_good = is_fine(self, status) && append_all(list, &page, wants_extended, arguments[2]);
  }
  Py_BEGIN_ALLOW_THREADS
  hutch.cursor_release(cursor);
  Py_END_ALLOW_THREADS
  free(page.data);
  if (is_good) return list;
  Py_DECREF(list);
  return NULL;
}
