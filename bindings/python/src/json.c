/* Values of JSON. Python's json module writes and reads the rare ones. */
#include "fast.h"

/* A longer number is rare. */
enum { LONGEST_NUMBER = 48 };
/* An integer of so many digits is exact in a double. */
enum { LONGEST_EXACT = 15 };
/* A longer string is looked through in pieces of this size. */
enum { LONG_STRING = 32 };
/* A longer name of a dict's entry is rare. */
enum { LONGEST_NAME = 32 };

/* The first byte that is not of a string's plain text. */
static const char *skip_plain(const char *at, const char *end) {
  const char *near = end - at > LONG_STRING ? at + LONG_STRING : end;
  while (at < near && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20) at++;
  if (at < near || near == end) return at;
  /* Of a long string many bytes at once. */
  const char *quote = memchr(at, '"', (size_t)(end - at));
  if (quote) end = quote;
  while (end - at >= LONG_STRING) {
    unsigned others = 0;
    for (int i = 0; i < LONG_STRING; i++)
      others |= (unsigned)(at[i] == '\\') | (unsigned)((unsigned char)at[i] < 0x20);
    if (others) break;
    at += LONG_STRING;
  }
  while (at < end && *at != '\\' && (unsigned char)*at >= 0x20) at++;
  return at;
}

/* ------------------------------------------------------------------ writing */

typedef struct writer {
  text *text;
  int floats;    /* how many were met */
  bool is_other; /* a value that has no form in JSON was met, or too many floats */
} writer;

static bool write_string(text *text, PyObject *object) {
  Py_ssize_t size;
  const char *data = PyUnicode_AsUTF8AndSize(object, &size);
  if (!data) {
    PyErr_Clear(); /* surrogates */
    return false;
  }
  if (!text_add(text, "\"", 1)) return false;
  const char *end = data + size, *plain = data;
  for (const char *at = data; (at = skip_plain(at, end)) < end; at++) {
    unsigned char byte = (unsigned char)*at;
    char escape[6] = {'\\', 0, '0', '0', "01"[byte >> 4 & 1], "0123456789abcdef"[byte & 15]};
    size_t length = 2;
    switch (byte) {
      case '"': case '\\': escape[1] = (char)byte; break;
      case '\b': escape[1] = 'b'; break;
      case '\t': escape[1] = 't'; break;
      case '\n': escape[1] = 'n'; break;
      case '\f': escape[1] = 'f'; break;
      case '\r': escape[1] = 'r'; break;
      default: escape[1] = 'u'; length = 6;
    }
    if (!text_add(text, plain, (size_t)(at - plain)) || !text_add(text, escape, length))
      return false;
    plain = at + 1;
  }
  return text_add(text, plain, (size_t)(end - plain)) && text_add(text, "\"", 1);
}

/* The value is one of CBOR. */
static bool refuse_value(writer *writer) {
  writer->is_other = true;
  return false;
}

static bool write_float(writer *writer, PyObject *object) {
  double number = PyFloat_AsDouble(object);
  if (++writer->floats == MANY_FLOATS) return refuse_value(writer);
  return number - number == 0 && text_add_float(writer->text, number);
}

/* Whether a list begins with too many floats. It is told before they are written. */
static bool is_of_floats(PyObject *list, Py_ssize_t count) {
  if (count < MANY_FLOATS) return false;
  for (Py_ssize_t i = 0; i < MANY_FLOATS; i++)
    if (!PyFloat_CheckExact(PyList_GetItem(list, i))) return false;
  return true;
}

/* Runs no code of Python: no list or dict changes meanwhile. */
static bool write_value(writer *writer, PyObject *object, int depth) {
  text *text = writer->text;
  if (depth > VALUE_DEEPEST) return false;
  if (PyUnicode_CheckExact(object)) return write_string(text, object);
  if (object == Py_None) return text_add(text, "null", 4);
  if (object == Py_True) return text_add(text, "true", 4);
  if (object == Py_False) return text_add(text, "false", 5);
  if (PyLong_CheckExact(object)) {
    long long number;
    return int64_of(object, &number) && text_add_int(text, number);
  }
  if (PyFloat_CheckExact(object)) return write_float(writer, object);
  if (PyList_CheckExact(object)) {
    Py_ssize_t count = PyList_Size(object);
    if (is_of_floats(object, count)) return refuse_value(writer);
    if (!text_add(text, "[", 1)) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
      if (i > 0 && !text_add(text, ",", 1)) return false;
      if (!write_value(writer, PyList_GetItem(object, i), depth + 1)) return false;
    }
    return text_add(text, "]", 1);
  }
  if (PyDict_CheckExact(object)) {
    PyObject *name, *item;
    Py_ssize_t at = 0;
    bool is_first = true;
    if (!text_add(text, "{", 1)) return false;
    while (PyDict_Next(object, &at, &name, &item)) {
      if (!PyUnicode_CheckExact(name)) return refuse_value(writer);
      if (!is_first && !text_add(text, ",", 1)) return false;
      is_first = false;
      if (!write_string(text, name) || !text_add(text, ":", 1) ||
          !write_value(writer, item, depth + 1))
        return false;
    }
    return text_add(text, "}", 1);
  }
  return refuse_value(writer);
}

bool json_write(text *text, PyObject *object, bool *is_other) {
  writer writer = {.text = text};
  bool is_written = write_value(&writer, object, 0);
  *is_other = writer.is_other;
  return is_written;
}

/* ------------------------------------------------------------------ reading */

typedef struct reader {
  const char *at, *end;
  state *state;
} reader;

static bool is_blank(unsigned char byte) {
  /* Most bytes need one comparison. */
  return byte <= ' ' && (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r');
}

static void skip_blanks(reader *reader) {
  while (reader->at < reader->end && is_blank((unsigned char)*reader->at)) reader->at++;
}

/* Skips blanks before the byte and behind it. */
static bool accept(reader *reader, char byte) {
  skip_blanks(reader);
  if (reader->at == reader->end || *reader->at != byte) return false;
  reader->at++;
  skip_blanks(reader);
  return true;
}

static bool accept_word(reader *reader, const char *word, size_t size) {
  if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size) != 0)
    return false;
  reader->at += size;
  return true;
}

static size_t skip_digits(reader *reader) {
  const char *start = reader->at;
  while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') reader->at++;
  return (size_t)(reader->at - start);
}

/* The integer of a text: that of its beginning, and these digits. */
static long long with_digits(long long number, const char *digits, size_t count) {
  for (size_t i = 0; i < count; i++) number = number * 10 + (digits[i] - '0');
  return number;
}

/* The number of so many digits before a point and behind it, at most LONGEST_EXACT together: the
   quotient of two integers that a double holds exactly, which is rounded correctly (W. Clinger,
   How to read floating point numbers accurately, 1990). */
static double short_decimal(const char *digits, size_t whole, size_t fraction) {
  static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  long long number = with_digits(0, digits, whole);
  return (double)with_digits(number, digits + whole + 1, fraction) / powers[fraction];
}

static PyObject *read_number(reader *reader) {
  const char *start = reader->at;
  bool is_negative = *start == '-';
  if (is_negative) reader->at++;
  const char *digits = reader->at;
  size_t whole = skip_digits(reader), fraction = 0;
  if (whole == 0 || (whole > 1 && *digits == '0')) return NULL;
  bool is_float = false, is_short = false;
  if (reader->at < reader->end && *reader->at == '.') {
    is_float = true;
    reader->at++;
    fraction = skip_digits(reader);
    if (fraction == 0) return NULL;
    is_short = whole + fraction <= LONGEST_EXACT;
  }
  if (reader->at < reader->end && (*reader->at == 'e' || *reader->at == 'E')) {
    is_float = true;
    is_short = false;
    reader->at++;
    if (reader->at < reader->end && (*reader->at == '+' || *reader->at == '-')) reader->at++;
    if (skip_digits(reader) == 0) return NULL;
  }
  if (!is_float) {
    if (whole > 18) return NULL;
    long long number = with_digits(0, digits, whole);
    return PyLong_FromLongLong(is_negative ? -number : number);
  }
  if (is_short) {
    double number = short_decimal(digits, whole, fraction);
    return PyFloat_FromDouble(is_negative ? -number : number);
  }
  char number[LONGEST_NUMBER + 1];
  size_t size = (size_t)(reader->at - start);
  if (size > LONGEST_NUMBER) return NULL;
  memcpy(number, start, size);
  number[size] = 0;
  double result = PyOS_string_to_double(number, NULL, NULL);
  return PyErr_Occurred() ? NULL : PyFloat_FromDouble(result);
}

/* Behind the quotation mark. */
static PyObject *read_string(reader *reader) {
  const char *start = reader->at, *end = reader->end, *at = skip_plain(start, end);
  if (at < end && *at == '"') {
    reader->at = at + 1;
    return PyUnicode_DecodeUTF8(start, at - start, "surrogatepass");
  }
  text text;
  text_begin(&text);
  PyObject *result = NULL;
  for (;;) {
    if (!text_add(&text, start, (size_t)(at - start)) || at == end) break;
    if (*at == '"') {
      reader->at = at + 1;
      result = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "surrogatepass");
      break;
    }
    if (*at != '\\' || ++at == end) break;
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = memchr(letters, *at, sizeof letters - 1);
    /* \u is left to Python: it may be a half of a pair. */
    if (!letter || !text_add(&text, &meanings[letter - letters], 1)) break;
    start = ++at;
    while (at < end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20) at++;
  }
  text_end(&text);
  return result;
}

static PyObject *read_value(reader *reader, int depth);

static PyObject *read_list(reader *reader, int depth) {
  PyObject *list = PyList_New(0);
  if (!list) return NULL;
  if (accept(reader, ']')) return list;
  for (;;) {
    PyObject *item = read_value(reader, depth);
    if (!item) break;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    if (failed) break;
    if (accept(reader, ',')) continue;
    if (accept(reader, ']')) return list;
    break;
  }
  Py_DECREF(list);
  return NULL;
}

PyObject *kept_name(state *state, unsigned place, const char *start, size_t length) {
  PyObject **kept = &state->names[place % NAMES];
  if (*kept) {
    Py_ssize_t size;
    const char *name = PyUnicode_AsUTF8AndSize(*kept, &size);
    if (name && (size_t)size == length && memcmp(name, start, length) == 0) {
      Py_INCREF(*kept);
      return *kept;
    }
  }
  PyObject *name = PyUnicode_DecodeUTF8(start, (Py_ssize_t)length, NULL);
  if (name) {
    PyObject *before = *kept;
    Py_INCREF(name);
    *kept = name;
    Py_XDECREF(before);
  }
  return name;
}

/* The name of a dict's entry. */
static PyObject *read_name(reader *reader) {
  const char *start = reader->at, *at = start, *end = reader->end;
  unsigned place = 0;
  while (at < end && *at != '"' && *at != '\\' && (signed char)*at >= 0x20)
    place = place * 31 + (unsigned char)*at++;
  size_t length = (size_t)(at - start);
  if (at == end || *at != '"' || length > LONGEST_NAME) return read_string(reader);
  reader->at = at + 1;
  return kept_name(reader->state, place, start, length);
}

static PyObject *read_dict(reader *reader, int depth) {
  PyObject *dict = PyDict_New();
  if (!dict) return NULL;
  if (accept(reader, '}')) return dict;
  for (;;) {
    if (reader->at == reader->end || *reader->at++ != '"') break;
    PyObject *name = read_name(reader);
    if (!name) break;
    PyObject *item = accept(reader, ':') ? read_value(reader, depth) : NULL;
    int failed = item ? PyDict_SetItem(dict, name, item) : -1;
    Py_XDECREF(item);
    Py_DECREF(name);
    if (failed) break;
    if (accept(reader, ',')) continue;
    if (accept(reader, '}')) return dict;
    break;
  }
  Py_DECREF(dict);
  return NULL;
}

static PyObject *constant(PyObject *object) {
  Py_INCREF(object);
  return object;
}

/* The reader stands behind blanks. */
static PyObject *read_value(reader *reader, int depth) {
  if (depth > VALUE_DEEPEST || reader->at == reader->end) return NULL;
  switch (*reader->at) {
    case '"': reader->at++; return read_string(reader);
    case '[': accept(reader, '['); return read_list(reader, depth + 1);
    case '{': accept(reader, '{'); return read_dict(reader, depth + 1);
    case 'n': return accept_word(reader, "null", 4) ? constant(Py_None) : NULL;
    case 't': return accept_word(reader, "true", 4) ? constant(Py_True) : NULL;
    case 'f': return accept_word(reader, "false", 5) ? constant(Py_False) : NULL;
    case '-': case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9': return read_number(reader);
    default: return NULL;
  }
}

PyObject *json_read(state *state, const char *data, size_t size) {
  reader reader = {.at = data, .end = data + size, .state = state};
  skip_blanks(&reader);
  PyObject *object = read_value(&reader, 0);
  if (object) {
    skip_blanks(&reader);
    if (reader.at == reader.end) return object;
    Py_DECREF(object);
    return NULL;
  }
  /* A fault of the text, which Python will name. */
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_ValueError)) PyErr_Clear();
  return NULL;
}
