/* Walks over all entries. See fast.h. */
#include "fast.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* So many entries are collected without the GIL, before their objects are made with it; or, where
   all of them are collected before that, between two looks for a signal. */
enum { TOGETHER = 256, FAR_TOGETHER = 16384 };

/* What a walk collects beside the keys: nothing, the extended data, or the sizes of the values. */
enum { KEYS_ALONE, WITH_EXTENDED, WITH_SIZES };

/* The sizes of a key and of what follows it: extended data, or the size of the value. */
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

/* Adds the next `most` entries to the page, or those that are left. Without the GIL.
   HUTCH_NOT_FOUND: these are the last ones. */
static hutch_status collect(hutch_cursor *cursor, long wanted, Py_ssize_t most, page *page) {
  while (most > 0 && !page->is_cut) {
    const void *key;
    size_t size;
    hutch_value *value = NULL;
    hutch_entry_info info = {.struct_size = sizeof info};
    hutch_status status = hutch.cursor_next(cursor, &key, &size);
    if (status != HUTCH_OK) return status;
    if (wanted == WITH_EXTENDED) status = hutch.cursor_value(cursor, &value);
    if (wanted == WITH_SIZES) status = hutch.cursor_info(cursor, &info);
    if (status == HUTCH_NOT_FOUND) continue; /* It went since the step. */
    if (status != HUTCH_OK) return status;
    const void *more = value ? hutch.value_extended(value) : &info.size;
    head head = {(uint32_t)size, wanted == WITH_SIZES ? sizeof info.size : 0};
    if (value) head.extended_size = (uint32_t)hutch.value_extended_size(value);
    page_add(page, &head, sizeof head);
    page_add(page, key, size);
    page_add(page, more, head.extended_size);
    hutch.value_release(value);
    most--;
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

/* Appends the keys of a page to a list, or pairs with what is wanted beside them. False: an
   exception. */
static bool append_all(PyObject *list, const page *page, long wanted, PyObject *others) {
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
    uint64_t value_size = 0;
    if (wanted == WITH_SIZES) memcpy(&value_size, at, sizeof value_size);
    if (object && wanted == WITH_SIZES)
      object = Py_BuildValue("(NK)", object, (unsigned long long)value_size);
    else if (object && wanted == WITH_EXTENDED)
      object = Py_BuildValue("(Ny#)", object, at, (Py_ssize_t)head.extended_size);
    at += head.extended_size;
    int failed = object ? PyList_Append(list, object) : -1;
    Py_XDECREF(object);
    if (failed) return false;
  }
  return true;
}

/* A walk under way: what is left of it, and what it has collected. */
typedef struct walk {
  hutch_cursor *cursor;
  hutch_status status;
  page page;
} walk;

/* False: an exception. In any case walk_end ends the walk. */
static bool walk_begin(fast *self, bool is_ordered, unsigned long order, walk *walk) {
  memset(walk, 0, sizeof *walk);
  Py_BEGIN_ALLOW_THREADS
  walk->status = is_ordered
                     ? hutch.cursor_create_ordered(self->cache, (uint32_t)order, &walk->cursor)
                     : hutch.cursor_create(self->cache, &walk->cursor);
  Py_END_ALLOW_THREADS
  return is_fine(self, walk->status);
}

/* Collects more of the page. False: an exception, perhaps of a signal's handler. */
static bool walk_on(fast *self, long wanted, Py_ssize_t most, walk *walk) {
  Py_BEGIN_ALLOW_THREADS
  walk->status = collect(walk->cursor, wanted, most, &walk->page);
  Py_END_ALLOW_THREADS
  return is_fine(self, walk->status) && PyErr_CheckSignals() == 0;
}

static void walk_end(walk *walk) {
  Py_BEGIN_ALLOW_THREADS
  hutch.cursor_release(walk->cursor);
  Py_END_ALLOW_THREADS
  free(walk->page.data);
}

PyObject *fast_all_keys(fast *self, PyObject *const *arguments, Py_ssize_t count) {
  if (!is_attached(self)) return NULL;
  if (count < 3 || count > 4) {
    PyErr_SetString(PyExc_TypeError, "_all_keys(order, wanted, key_from_bytes, most=None)");
    return NULL;
  }
  bool is_ordered = arguments[0] != Py_None;
  unsigned long order = is_ordered ? PyLong_AsUnsignedLong(arguments[0]) : 0;
  long wanted = PyErr_Occurred() ? KEYS_ALONE : PyLong_AsLong(arguments[1]);
  Py_ssize_t most = PY_SSIZE_T_MAX;
  if (count == 4 && arguments[3] != Py_None) most = PyLong_AsSsize_t(arguments[3]);
  PyObject *list = PyErr_Occurred() ? NULL : PyList_New(0);
  if (!list) return NULL;
  walk walk;
  bool is_good = walk_begin(self, is_ordered, order, &walk);
  while (is_good && walk.status == HUTCH_OK && most > 0) {
    Py_ssize_t next = most < TOGETHER ? most : TOGETHER;
    walk.page.size = 0;
    is_good = walk_on(self, wanted, next, &walk) &&
              append_all(list, &walk.page, wanted, arguments[2]);
    most -= next;
  }
  walk_end(&walk);
  if (is_good) return list;
  Py_DECREF(list);
  return NULL;
}

/* ------------------------------------------------------------------ places */

/* An entry of a page: its number, and where it is. */
typedef struct placed {
  uint64_t number;
  size_t at;
} placed;

static int compare(const void *left, const void *right) {
  uint64_t a = ((const placed *)left)->number, b = ((const placed *)right)->number;
  return (a > b) - (a < b);
}

/* The entries of a page whose extended data begin with `form` and have a number at `offset`, by
   their numbers. NULL: there is no memory, or the page is cut. */
static placed *in_order(const page *page, const char *form, size_t form_size, size_t offset,
                        size_t *count) {
  size_t entries = 0;
  head head;
  for (size_t at = 0; at < page->size; entries++) {
    memcpy(&head, page->data + at, sizeof head);
    at += sizeof head + head.key_size + head.extended_size;
  }
  placed *all = page->is_cut ? NULL : malloc((entries + 1) * sizeof *all);
  *count = 0;
  for (size_t at = 0; all && at < page->size;) {
    memcpy(&head, page->data + at, sizeof head);
    const char *extended = page->data + at + sizeof head + head.key_size;
    if (head.extended_size >= offset + sizeof(uint64_t) && head.extended_size >= form_size &&
        memcmp(extended, form, form_size) == 0) {
      all[*count].at = at;
      memcpy(&all[(*count)++].number, extended + offset, sizeof(uint64_t));
    }
    at += sizeof head + head.key_size + head.extended_size;
  }
  if (all) qsort(all, *count, sizeof *all, compare);
  return all;
}

/* The keys and the numbers in this order. NULL: an exception. */
static PyObject *keys_and_numbers(const page *page, const placed *all, size_t count,
                                  PyObject *others) {
  PyObject *keys = PyList_New(0), *numbers = PyList_New(0);
  bool is_good = keys && numbers;
  for (size_t i = 0; is_good && i < count; i++) {
    head head;
    memcpy(&head, page->data + all[i].at, sizeof head);
    PyObject *key = key_object(page->data + all[i].at + sizeof head, head.key_size, others);
    PyObject *number = key ? PyLong_FromUnsignedLongLong(all[i].number) : NULL;
    /* A list with places that are still NULL would be seen by `others`, through gc. */
    is_good = key && number && PyList_Append(keys, key) == 0 &&
              PyList_Append(numbers, number) == 0;
    Py_XDECREF(key);
    Py_XDECREF(number);
  }
  PyObject *both = is_good ? PyTuple_Pack(2, keys, numbers) : NULL;
  Py_XDECREF(keys);
  Py_XDECREF(numbers);
  return both;
}

PyObject *fast_placed_keys(fast *self, PyObject *const *arguments, Py_ssize_t count) {
  if (!is_attached(self)) return NULL;
  Py_ssize_t offset = count == 3 ? PyLong_AsSsize_t(arguments[1]) : -1;
  char *form = NULL;
  Py_ssize_t form_size = 0;
  if (offset < 0 || PyBytes_AsStringAndSize(arguments[0], &form, &form_size) < 0) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "_placed_keys(form, offset, key_from_bytes)");
    return NULL;
  }
  walk walk;
  PyObject *both = NULL;
  bool is_good = walk_begin(self, false, 0, &walk);
  while (is_good && walk.status == HUTCH_OK && !walk.page.is_cut)
    is_good = walk_on(self, WITH_EXTENDED, FAR_TOGETHER, &walk);
  if (is_good) {
    placed *all;
    size_t found;
    Py_BEGIN_ALLOW_THREADS
    all = in_order(&walk.page, form, (size_t)form_size, (size_t)offset, &found);
    Py_END_ALLOW_THREADS
    both = all ? keys_and_numbers(&walk.page, all, found, arguments[2]) : PyErr_NoMemory();
    free(all);
  }
  walk_end(&walk);
  return both;
}
