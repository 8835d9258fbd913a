/* Values of CBOR, in the forms of hutch/_cbor.py. Python's functions read and write the rare
   ones. */
#include "fast.h"

/* The major types of CBOR. */
enum { UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAGGED, SIMPLE };
/* The tags that need no function of Python. */
enum { SET_TAG = 258, TUPLE_TAG = 1213464577, FROZENSET_TAG = 1213464578 };
/* Those of a datetime: aware, by an offset; and naive, or by a zone. */
enum { ZONED_TAG = 0, NAIVE_TAG = 1213464579 };
/* The lengths of the texts of datetimes: to the second, to the microsecond; and of an offset. */
enum { TO_SECONDS = 19, TO_MICROSECONDS = 26, OFFSET = 6 };
/* The simple values, and the size of a double with its head. */
enum { FALSE = 20, TRUE = 21, NONE = 22, DOUBLE = 27, DOUBLE_SIZE = 9 };
/* A longer value of bytes is copied once less by Python. */
enum { LONG_BYTES = 256 * 1024 };

/* ------------------------------------------------------------------ writing */

typedef struct writer {
  text *text;
  PyObject *tagged; /* _cbor.tagged, for objects of other types */
} writer;

static bool add_head(text *text, int kind, uint64_t number) {
  char head[9];
  int log = number <= 0xff ? 0 : number <= 0xffff ? 1 : number <= 0xffffffff ? 2 : 3;
  int size = number < 24 ? 0 : 1 << log;
  head[0] = (char)(kind << 5 | (size == 0 ? (int)number : 24 + log));
  for (int i = size; i > 0; i--, number >>= 8) head[i] = (char)number;
  return text_add(text, head, (size_t)size + 1);
}

static bool add_double(text *text, double number) {
  char item[DOUBLE_SIZE] = {(char)(SIMPLE << 5 | DOUBLE)};
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  for (int i = DOUBLE_SIZE - 1; i > 0; i--, bits >>= 8) item[i] = (char)bits;
  return text_add(text, item, sizeof item);
}

static bool write_value(writer *writer, PyObject *object, int depth);

/* An item of a list or a dict. A function of Python may take it from there meanwhile. */
static bool write_item(writer *writer, PyObject *item, int depth) {
  Py_XINCREF(item);
  bool is_written = item && write_value(writer, item, depth);
  Py_XDECREF(item);
  return is_written;
}

static bool write_list(writer *writer, PyObject *list, int depth) {
  Py_ssize_t count = PyList_Size(list);
  bool is_written = add_head(writer->text, ARRAY, (uint64_t)count);
  for (Py_ssize_t i = 0; is_written && i < count; i++)
    is_written = write_item(writer, PyList_GetItem(list, i), depth);
  return is_written && PyList_Size(list) == count;
}

static bool write_tuple(writer *writer, PyObject *tuple, int depth) {
  Py_ssize_t count = PyTuple_Size(tuple);
  bool is_written = add_head(writer->text, TAGGED, TUPLE_TAG) &&
                    add_head(writer->text, ARRAY, (uint64_t)count);
  for (Py_ssize_t i = 0; is_written && i < count; i++)
    is_written = write_value(writer, PyTuple_GetItem(tuple, i), depth);
  return is_written;
}

static bool write_dict(writer *writer, PyObject *dict, int depth) {
  Py_ssize_t count = PyDict_Size(dict), at = 0, written = 0;
  PyObject *name, *item;
  bool is_written = add_head(writer->text, MAP, (uint64_t)count);
  for (; is_written && PyDict_Next(dict, &at, &name, &item); written++) {
    Py_INCREF(item);
    is_written = write_item(writer, name, depth) && write_value(writer, item, depth);
    Py_DECREF(item);
  }
  return is_written && written == count && PyDict_Size(dict) == count;
}

static bool write_set(writer *writer, PyObject *set, int depth) {
  PyObject *items = PyObject_GetIter(set), *item;
  Py_ssize_t count = PySet_Size(set), written = 0;
  int tag = PyFrozenSet_CheckExact(set) ? FROZENSET_TAG : SET_TAG;
  bool is_written = items && add_head(writer->text, TAGGED, (uint64_t)tag) &&
                    add_head(writer->text, ARRAY, (uint64_t)count);
  for (; is_written && (item = PyIter_Next(items)); written++) {
    is_written = write_value(writer, item, depth);
    Py_DECREF(item);
  }
  Py_XDECREF(items);
  return is_written && !PyErr_Occurred() && written == count;
}

static bool write_bytes(writer *writer, int kind, const char *data, Py_ssize_t size) {
  return add_head(writer->text, kind, (uint64_t)size) &&
         text_add(writer->text, data, (size_t)size);
}

/* An object that Python knows a tag and a content for. */
static bool write_tagged(writer *writer, PyObject *object, int depth) {
  PyObject *pair = PyObject_CallFunctionObjArgs(writer->tagged, object, NULL);
  bool is_written = pair && PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2;
  if (is_written) {
    long long tag;
    PyObject *first = PyTuple_GetItem(pair, 0);
    is_written = int64_of(first, &tag) && add_head(writer->text, TAGGED, (uint64_t)tag) &&
                 write_value(writer, PyTuple_GetItem(pair, 1), depth);
  }
  Py_XDECREF(pair);
  return is_written;
}

/* An int of at most 64 bits and a sign. */
static bool write_short(writer *writer, PyObject *object, int kind) {
  uint64_t number = PyLong_AsUnsignedLongLong(object);
  if (!PyErr_Occurred()) return add_head(writer->text, kind, number);
  PyErr_Clear();
  return false;
}

static bool write_int(writer *writer, PyObject *object, int depth) {
  long long number;
  if (int64_of(object, &number))
    return add_head(writer->text, number < 0 ? NEGATIVE : UNSIGNED,
                    (uint64_t)(number < 0 ? ~number : number));
  if (write_short(writer, object, UNSIGNED)) return true;
  PyObject *inverse = PyNumber_Invert(object);
  if (!inverse) return false;
  bool is_written = write_short(writer, inverse, NEGATIVE);
  Py_DECREF(inverse);
  return is_written || write_tagged(writer, object, depth + 1);
}

static bool write_value(writer *writer, PyObject *object, int depth) {
  if (depth > VALUE_DEEPEST) return false;
  if (PyFloat_CheckExact(object)) return add_double(writer->text, PyFloat_AsDouble(object));
  if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(object, &size);
    if (data) return write_bytes(writer, TEXT, data, size);
    PyErr_Clear(); /* surrogates */
  }
  if (PyLong_CheckExact(object)) return write_int(writer, object, depth);
  if (object == Py_None) return add_head(writer->text, SIMPLE, NONE);
  if (object == Py_True) return add_head(writer->text, SIMPLE, TRUE);
  if (object == Py_False) return add_head(writer->text, SIMPLE, FALSE);
  if (PyDict_CheckExact(object)) return write_dict(writer, object, depth + 1);
  if (PyList_CheckExact(object)) return write_list(writer, object, depth + 1);
  if (PyTuple_CheckExact(object)) return write_tuple(writer, object, depth + 1);
  if (PyBytes_CheckExact(object)) {
    Py_ssize_t size = PyBytes_Size(object);
    return size <= LONG_BYTES && write_bytes(writer, BYTES, PyBytes_AsString(object), size);
  }
  if (PyFrozenSet_CheckExact(object) || Py_IS_TYPE(object, &PySet_Type))
    return write_set(writer, object, depth + 1);
  return write_tagged(writer, object, depth + 1);
}

/* Whether to leave the value to Python, which finds the same fault again; else the exception stays:
   a KeyboardInterrupt, or the lack of room on the stack. */
static void leave_to_python(void) {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception) &&
      !PyErr_ExceptionMatches(PyExc_RecursionError))
    PyErr_Clear();
}

bool cbor_write(text *text, PyObject *object, PyObject *tagged) {
  writer writer = {.text = text, .tagged = tagged};
  if (write_value(&writer, object, 0)) return true;
  leave_to_python();
  return false;
}

/* ------------------------------------------------------------------ reading */

typedef struct reader {
  const unsigned char *at, *end;
  state *state;
  PyObject *makers; /* _cbor_read.MAKERS: a function for each tag */
  PyObject *makers_of_text;
} reader;

/* The number of so many bytes, which are there. */
static uint64_t take_number(reader *reader, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; i++) number = number << 8 | *reader->at++;
  return number;
}

static bool read_number(reader *reader, unsigned code, uint64_t *number) {
  size_t size = code < 24 ? 0 : (size_t)1 << (code - 24);
  if (code > 27 || (size_t)(reader->end - reader->at) < size) return false;
  *number = size == 0 ? code : take_number(reader, size);
  return true;
}

static PyObject *read_value(reader *reader, int depth);

/* No function of Python that makes an item sees the list before it is full. */
static PyObject *read_list(reader *reader, uint64_t count, int depth) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  if (!list) return NULL;
  PyObject_GC_UnTrack(list);
  for (Py_ssize_t i = 0; i < (Py_ssize_t)count; i++) {
    PyObject *item = read_value(reader, depth);
    if (item && PyList_SetItem(list, i, item) == 0) continue;
    Py_DECREF(list);
    return NULL;
  }
  PyObject_GC_Track(list);
  return list;
}

/* The key of a dict's entry. */
static PyObject *read_key(reader *reader, int depth) {
  size_t left = (size_t)(reader->end - reader->at), size = left > 0 ? *reader->at & 31u : 0;
  if (left > size && *reader->at >> 5 == TEXT && size < 24) {
    unsigned place = 0, all = 0;
    const unsigned char *start = reader->at + 1;
    for (size_t i = 0; i < size; i++) {
      place = place * 31 + start[i];
      all |= start[i];
    }
    if (all < 0x80) {
      reader->at = start + size;
      return kept_name(reader->state, place, (const char *)start, size);
    }
  }
  return read_value(reader, depth);
}

static PyObject *read_dict(reader *reader, uint64_t count, int depth) {
  PyObject *dict = PyDict_New();
  for (uint64_t i = 0; dict && i < count; i++) {
    PyObject *key = read_key(reader, depth);
    PyObject *item = key ? read_value(reader, depth) : NULL;
    int failed = item ? PyDict_SetItem(dict, key, item) : -1;
    Py_XDECREF(key);
    Py_XDECREF(item);
    if (failed) Py_CLEAR(dict);
  }
  if (dict && (uint64_t)PyDict_Size(dict) != count) Py_CLEAR(dict); /* a key twice */
  return dict;
}

/* The function that a table has for a tag; NULL: there is none, or an exception. */
static PyObject *maker_of(PyObject *makers, uint64_t tag) {
  PyObject *number = PyLong_FromUnsignedLongLong(tag);
  PyObject *make = number ? PyDict_GetItemWithError(makers, number) : NULL;
  Py_XDECREF(number);
  Py_XINCREF(make);
  return make;
}

/* Whether a text is a datetime as isoformat writes it, with an offset if `size` is longer. */
static bool is_datetime(const char *text, size_t size, bool is_zoned) {
  size_t length = is_zoned ? size - OFFSET : size;
  if (length != TO_SECONDS && length != TO_MICROSECONDS) return false;
  if (is_zoned && text[length] != '+' && text[length] != '-') return false;
  for (size_t i = TO_SECONDS + 1; i < length; i++)
    if (text[i] < '0' || text[i] > '9') return false;
  return text[13] == ':' && text[16] == ':' && (length == TO_SECONDS || text[19] == '.');
}

/* A datetime without a fold and a zone, of its text: as Python makes it, in a third of the time.
   NULL without an exception: it is another one, and nothing was read. */
static PyObject *read_datetime(reader *reader, uint64_t tag) {
  bool is_zoned = tag == ZONED_TAG;
  /* Behind the head of a list of three there are the text, a fold of 0 and None. */
  size_t before = is_zoned ? 0 : 1, after = is_zoned ? 0 : 2;
  size_t left = (size_t)(reader->end - reader->at);
  const unsigned char *at = reader->at + before;
  if (left < before + 2 || (!is_zoned && *reader->at != (ARRAY << 5 | 3))) return NULL;
  size_t size = *at & 31, head = size == 24 ? 2 : 1, least = TO_SECONDS + (is_zoned ? OFFSET : 0);
  if (*at >> 5 != TEXT || size > 24) return NULL;
  if (head == 2) size = at[1];
  const char *text = (const char *)at + head;
  if (size < least || left < before + head + size + after) return NULL;
  if (!is_zoned && (text[size] != 0 || (unsigned char)text[size + 1] != (SIMPLE << 5 | NONE)))
    return NULL;
  if (!is_datetime(text, size, is_zoned)) return NULL;
  PyObject *make = maker_of(reader->makers_of_text, NAIVE_TAG);
  if (!make) return NULL;
  reader->at = (const unsigned char *)text + size + after;
  PyObject *made = PyObject_CallFunction(make, "s#", text, (Py_ssize_t)size);
  Py_DECREF(make);
  return made;
}

static PyObject *read_tagged(reader *reader, uint64_t tag, int depth) {
  if (tag == NAIVE_TAG || tag == ZONED_TAG) {
    PyObject *datetime = read_datetime(reader, tag);
    if (datetime || PyErr_Occurred()) return datetime;
  }
  PyObject *content = read_value(reader, depth), *made = NULL;
  if (!content) return NULL;
  if (tag == TUPLE_TAG || tag == SET_TAG || tag == FROZENSET_TAG) {
    if (PyList_CheckExact(content))
      made = tag == TUPLE_TAG ? PyList_AsTuple(content)
             : tag == SET_TAG ? PySet_New(content)
                          : PyFrozenSet_New(content);
  } else {
    bool is_text = PyUnicode_CheckExact(content);
    PyObject *make = is_text ? maker_of(reader->makers_of_text, tag) : NULL;
    if (!make && !PyErr_Occurred()) make = maker_of(reader->makers, tag);
    if (make) made = PyObject_CallFunctionObjArgs(make, content, NULL);
    Py_XDECREF(make);
  }
  Py_DECREF(content);
  return made;
}

static PyObject *read_simple(reader *reader, unsigned code) {
  if (code == FALSE || code == TRUE) return PyBool_FromLong(code == TRUE);
  if (code == NONE) {
    Py_INCREF(Py_None);
    return Py_None;
  }
  if (code != DOUBLE || reader->end - reader->at < DOUBLE_SIZE - 1) return NULL;
  uint64_t bits = take_number(reader, sizeof bits);
  double number;
  memcpy(&number, &bits, sizeof number);
  return PyFloat_FromDouble(number);
}

static PyObject *read_value(reader *reader, int depth) {
  if (depth > VALUE_DEEPEST || reader->at == reader->end) return NULL;
  unsigned kind = *reader->at >> 5, code = *reader->at & 31;
  reader->at++;
  if (kind == SIMPLE) return read_simple(reader, code);
  uint64_t number;
  if (!read_number(reader, code, &number)) return NULL;
  if (kind == UNSIGNED) return PyLong_FromUnsignedLongLong(number);
  if (kind == NEGATIVE)
    return number <= INT64_MAX ? PyLong_FromLongLong(~(long long)number) : NULL;
  if (kind == TAGGED) return read_tagged(reader, number, depth + 1);
  /* Each item takes at least a byte. */
  if (number > (uint64_t)(reader->end - reader->at)) return NULL;
  if (kind == ARRAY) return read_list(reader, number, depth + 1);
  if (kind == MAP) return read_dict(reader, number, depth + 1);
  const char *data = (const char *)reader->at;
  reader->at += number;
  return kind == TEXT ? PyUnicode_DecodeUTF8(data, (Py_ssize_t)number, NULL)
                      : PyBytes_FromStringAndSize(data, (Py_ssize_t)number);
}

PyObject *cbor_read(state *state, const char *data, size_t size, PyObject *makers,
                    PyObject *makers_of_text) {
  const unsigned char *start = (const unsigned char *)data;
  reader reader = {.at = start, .end = start + size, .state = state, .makers = makers,
                   .makers_of_text = makers_of_text};
  PyObject *object = read_value(&reader, 0);
  if (object && reader.at != reader.end) Py_CLEAR(object);
  if (!object) leave_to_python();
  return object;
}
