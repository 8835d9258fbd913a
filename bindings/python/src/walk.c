/* Walks over all entries. See fast.h. */
#include "fast.h"

#include <stdint.h>
#include <stdlib.h>

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
  text text;
  bool is_cut; /* there was no memory for the rest */
} page;

static void page_add(page *page, const void *data, size_t size) {
  if (size > 0 && !page->is_cut) page->is_cut = !text_add(&page->text, data, size);
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

/* A walk under way: what is left of it, and what it has collected. */
typedef struct walk {
  hutch_cursor *cursor;
  hutch_status status;
  page page;
  PyObject *key_from_bytes; /* the function of _codec; NULL until a key of no common kind */
} walk;

/* The key of these bytes, as key_from_bytes has it. NULL: an exception. */
static PyObject *key_object(walk *walk, const char *data, Py_ssize_t size) {
  unsigned char first = (unsigned char)*data;
  if (first < 0xfd) return PyUnicode_DecodeUTF8(data, size, "surrogateescape");
  if (first == 0xff) return PyBytes_FromStringAndSize(data + 1, size - 1);
  if (!walk->key_from_bytes) {
    PyObject *codec = PyImport_ImportModule("hutch._codec");
    if (codec) walk->key_from_bytes = PyObject_GetAttrString(codec, "key_from_bytes");
    Py_XDECREF(codec);
  }
  if (!walk->key_from_bytes) return NULL;
  return PyObject_CallFunction(walk->key_from_bytes, "y#", data, size);
}

/* Appends the keys of a page to a list, or pairs with what is wanted beside them. False: an
   exception. */
static bool append_all(PyObject *list, walk *walk, long wanted) {
  if (walk->page.is_cut) {
    PyErr_NoMemory();
    return false;
  }
  for (const char *at = walk->page.text.data, *end = at + walk->page.text.size; at < end;) {
    head head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    PyObject *object = key_object(walk, at, head.key_size);
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

/* False: an exception. In any case walk_end ends the walk. */
static bool walk_begin(fast *self, bool is_ordered, unsigned long order, walk *walk) {
  walk->cursor = NULL;
  walk->key_from_bytes = NULL;
  walk->page.is_cut = false;
  text_begin(&walk->page.text);
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
  text_end(&walk->page.text);
  Py_XDECREF(walk->key_from_bytes);
}

PyObject *fast_all_keys(fast *self, PyObject *const *arguments, Py_ssize_t count) {
  if (!is_attached(self)) return NULL;
  if (count < 2 || count > 3) {
    PyErr_SetString(PyExc_TypeError, "_all_keys(order, wanted, most=None)");
    return NULL;
  }
  bool is_ordered = arguments[0] != Py_None;
  unsigned long order = is_ordered ? PyLong_AsUnsignedLong(arguments[0]) : 0;
  long wanted = PyErr_Occurred() ? KEYS_ALONE : PyLong_AsLong(arguments[1]);
  Py_ssize_t most = PY_SSIZE_T_MAX;
  if (count == 3 && arguments[2] != Py_None) most = PyLong_AsSsize_t(arguments[2]);
  PyObject *list = PyErr_Occurred() ? NULL : PyList_New(0);
  if (!list) return NULL;
  walk walk;
  bool is_good = walk_begin(self, is_ordered, order, &walk);
  while (is_good && walk.status == HUTCH_OK && most > 0) {
    Py_ssize_t next = most < TOGETHER ? most : TOGETHER;
    walk.page.text.size = 0;
    is_good = walk_on(self, wanted, next, &walk) && append_all(list, &walk, wanted);
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
  for (size_t at = 0; at < page->text.size; entries++) {
    memcpy(&head, page->text.data + at, sizeof head);
    at += sizeof head + head.key_size + head.extended_size;
  }
  placed *all = page->is_cut ? NULL : malloc((entries + 1) * sizeof *all);
  *count = 0;
  for (size_t at = 0; all && at < page->text.size;) {
    memcpy(&head, page->text.data + at, sizeof head);
    const char *extended = page->text.data + at + sizeof head + head.key_size;
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
static PyObject *keys_and_numbers(walk *walk, const placed *all, size_t count) {
  PyObject *keys = PyList_New(0), *numbers = PyList_New(0);
  bool is_good = keys && numbers;
  for (size_t i = 0; is_good && i < count; i++) {
    head head;
    const char *at = walk->page.text.data + all[i].at;
    memcpy(&head, at, sizeof head);
    PyObject *key = key_object(walk, at + sizeof head, head.key_size);
    PyObject *number = key ? PyLong_FromUnsignedLongLong(all[i].number) : NULL;
    /* A list with places that are still NULL would be seen by key_from_bytes, through gc. */
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
  Py_ssize_t offset = count == 2 ? PyLong_AsSsize_t(arguments[1]) : -1;
  char *form = NULL;
  Py_ssize_t form_size = 0;
  if (offset < 0 || PyBytes_AsStringAndSize(arguments[0], &form, &form_size) < 0) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "_placed_keys(form, offset)");
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
    both = all ? keys_and_numbers(&walk, all, found) : PyErr_NoMemory();
    free(all);
  }
  walk_end(&walk);
  return both;
}
