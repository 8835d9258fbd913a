/* The type Memoized: a memoized function, whose hits are in C. hutch/_call_keys.py documents the
   keys of calls. */
#include <stddef.h>

#include "fast.h"

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

/* Of 3.12's limited API; with the same values and types since 3.9. */
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif
#if Py_LIMITED_API < 0x030C0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#endif

/* Longer arguments have a digest in their place, which Python makes. */
enum { LONGEST_ARGUMENTS = 1000 };
/* Arguments that are nested deeper are rare. */
enum { DEEPEST = 20 };
/* Calls with more keywords are rare. */
enum { MOST_KEYWORDS = 16 };

typedef struct memoized {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *dict, *weak;
  fast *cache;
  PyObject *name;    /* a str, whose UTF-8 is prefix */
  const char *prefix;
  Py_ssize_t prefix_size;
  PyObject *ignored; /* NULL, or a frozenset of positions and names */
  PyObject *whole;   /* the function of Python that does a call of another kind */
  PyObject *load;    /* the function of Python that does a call whose result is not there */
  Py_ssize_t hits;
  char is_typed;
} memoized;

/* --------------------------------------------------------------------- keys */

static bool add_repr(text *text, PyObject *object) {
  PyObject *repr = PyObject_Repr(object);
  Py_ssize_t size;
  const char *data = repr ? PyUnicode_AsUTF8AndSize(repr, &size) : NULL;
  if (!data) PyErr_Clear();
  bool is_added = data && text_add(text, data, (size_t)size);
  Py_XDECREF(repr);
  return is_added;
}

/* A str as repr writes it. */
static bool add_str(text *text, PyObject *object) {
  Py_ssize_t size;
  const char *data = PyUnicode_AsUTF8AndSize(object, &size);
  if (!data) PyErr_Clear();
  if (!data || size > LONGEST_ARGUMENTS) return false;
  for (Py_ssize_t i = 0; i < size; i++) {
    unsigned char byte = (unsigned char)data[i];
    if (byte < 0x20 || byte > 0x7e || byte == '\'' || byte == '\\') return add_repr(text, object);
  }
  return text_add(text, "'", 1) && text_add(text, data, (size_t)size) && text_add(text, "'", 1);
}

static bool add_float(text *text, double number, bool is_typed) {
  const double most = 9007199254740992.0; /* 2**53: each float beyond is an integer */
  if (is_typed || number - number != 0) return text_add_float(text, number);
  if (number < -most || number > most) return false;
  bool is_integer = number == (double)(long long)number;
  return is_integer ? text_add_int(text, (long long)number) : text_add_float(text, number);
}

/* The literal of an argument. False: not of a common kind; no exception is set. */
static bool add_literal(text *text, PyObject *object, bool is_typed, int depth) {
  if (depth > DEEPEST) return false;
  if (PyUnicode_CheckExact(object)) return add_str(text, object);
  if (PyLong_CheckExact(object)) {
    long long number;
    return int64_of(object, &number) && text_add_int(text, number);
  }
  if (object == Py_None) return text_add(text, "None", 4);
  if (object == Py_True || object == Py_False) {
    bool is_true = object == Py_True;
    if (!is_typed) return text_add(text, is_true ? "1" : "0", 1);
    return is_true ? text_add(text, "True", 4) : text_add(text, "False", 5);
  }
  if (PyFloat_CheckExact(object)) return add_float(text, PyFloat_AsDouble(object), is_typed);
  if (PyBytes_CheckExact(object)) return add_repr(text, object);
  if (PyTuple_CheckExact(object)) {
    Py_ssize_t count = PyTuple_Size(object);
    if (!text_add(text, "(", 1)) return false;
    for (Py_ssize_t i = 0; i < count; i++)
      if (!add_literal(text, PyTuple_GetItem(object, i), is_typed, depth + 1) ||
          !text_add(text, ",", 1))
        return false;
    return text_add(text, ")", 1);
  }
  if (PyList_CheckExact(object)) {
    if (!text_add(text, "[", 1)) return false;
    for (Py_ssize_t i = 0; i < PyList_Size(object); i++)
      if ((i > 0 && !text_add(text, ", ", 2)) ||
          !add_literal(text, PyList_GetItem(object, i), is_typed, depth + 1))
        return false;
    return text_add(text, "]", 1);
  }
  return false;
}

/* Whether a parameter does not count. -1: an exception. */
static int is_ignored(const memoized *self, PyObject *name) {
  return self->ignored ? PySet_Contains(self->ignored, name) : 0;
}

static bool add_separator(text *text, size_t start) {
  return text->size == start || text_add(text, ", ", 2);
}

static bool add_positions(const memoized *self, text *text, PyObject *const *arguments,
                          Py_ssize_t count) {
  size_t start = text->size;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (self->ignored) {
      PyObject *place = PyLong_FromSsize_t(i);
      int skips = place ? is_ignored(self, place) : -1;
      Py_XDECREF(place);
      if (skips < 0) PyErr_Clear();
      if (skips < 0) return false;
      if (skips) continue;
    }
    if (!add_separator(text, start) || !add_literal(text, arguments[i], self->is_typed, 0))
      return false;
  }
  return true;
}

/* The order of UTF-8 is that of the code points, in which Python sorts. */
static bool add_keywords(const memoized *self, text *text, size_t start, PyObject *names,
                         PyObject *const *values) {
  struct keyword {
    const char *name;
    Py_ssize_t size;
    PyObject *value;
  } sorted[MOST_KEYWORDS];
  Py_ssize_t count = PyTuple_Size(names), counted = 0;
  if (count > MOST_KEYWORDS) return false;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    struct keyword new = {.value = values[i]};
    new.name = PyUnicode_AsUTF8AndSize(name, &new.size);
    int skips = new.name ? is_ignored(self, name) : -1;
    if (skips < 0) PyErr_Clear();
    if (skips < 0) return false;
    if (skips) continue;
    if (PyUnicode_IsIdentifier(name) != 1) return false; /* It is written as a literal. */
    Py_ssize_t place = counted++;
    /* Both names end with NUL, and have none within. */
    while (place > 0 && strcmp(sorted[place - 1].name, new.name) > 0) {
      sorted[place] = sorted[place - 1];
      place--;
    }
    sorted[place] = new;
  }
  for (Py_ssize_t i = 0; i < counted; i++)
    if (!add_separator(text, start) ||
        !text_add(text, sorted[i].name, (size_t)sorted[i].size) || !text_add(text, "=", 1) ||
        !add_literal(text, sorted[i].value, self->is_typed, 0))
      return false;
  return true;
}

/* The bytes of the key of a call. False: not of a common kind; no exception is set. */
static bool call_key(const memoized *self, text *text, PyObject *const *arguments,
                     Py_ssize_t count, PyObject *names) {
  if (!text_add(text, self->prefix, (size_t)self->prefix_size) || !text_add(text, "(", 1))
    return false;
  size_t start = text->size;
  return add_positions(self, text, arguments, count) &&
         (!names || add_keywords(self, text, start, names, arguments + count)) &&
         text->size - start <= LONGEST_ARGUMENTS && text_add(text, ")", 1);
}

/* -------------------------------------------------------------------- calls */

static PyObject *memoized_call(PyObject *object, PyObject *const *arguments, size_t flags,
                               PyObject *names) {
  memoized *self = (memoized *)object;
  Py_ssize_t count = (Py_ssize_t)(flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
  if (!self->cache || !is_attached(self->cache)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the function has been collected");
    return NULL;
  }
  text text;
  text_begin(&text);
  PyObject *function = self->whole, *result = NULL;
  if (call_key(self, &text, arguments, count, names)) {
    key key = {.data = text.data, .size = text.size};
    result = read_object(self->cache, &key);
    function = self->load;
  }
  text_end(&text);
  if (result) self->hits++;
  if (result || PyErr_Occurred()) return result;
  return call_with(function, NULL, arguments, count, names);
}

static PyObject *memoized_get(PyObject *self, PyObject *instance, PyObject *owner) {
  (void)owner;
  if (!instance || instance == Py_None) {
    Py_INCREF(self);
    return self;
  }
  /* PyMethod_New is not in the limited API. */
  PyObject *types = PyImport_ImportModule("types");
  PyObject *method = types ? PyObject_CallMethod(types, "MethodType", "OO", self, instance) : NULL;
  Py_XDECREF(types);
  return method;
}

/* --------------------------------------------------------------------- life */

/* Memoized(cache, name, typed, ignored, whole, load) */
static PyObject *memoized_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  PyObject *cache, *name, *ignored, *whole, *load;
  int is_typed;
  if (keywords && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "Memoized takes no keywords");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "OUpOOO", &cache, &name, &is_typed, &ignored, &whole, &load))
    return NULL;
  state *state = PyType_GetModuleState(type);
  if (!state || !PyObject_TypeCheck(cache, (PyTypeObject *)state->fast_type)) {
    PyErr_SetString(PyExc_TypeError, "not a cache");
    return NULL;
  }
  Py_ssize_t prefix_size, count = PyObject_Size(ignored);
  const char *prefix = PyUnicode_AsUTF8AndSize(name, &prefix_size);
  if (!prefix || count < 0) return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  memoized *self = (memoized *)allocate(type, 0);
  if (!self) return NULL;
  self->call = memoized_call;
  Py_INCREF(cache);
  self->cache = (fast *)cache;
  Py_INCREF(name);
  self->name = name;
  self->prefix = prefix;
  self->prefix_size = prefix_size;
  if (count > 0) {
    Py_INCREF(ignored);
    self->ignored = ignored;
  }
  Py_INCREF(whole);
  self->whole = whole;
  Py_INCREF(load);
  self->load = load;
  self->is_typed = (char)is_typed;
  return (PyObject *)self;
}

static int memoized_traverse(memoized *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->dict);
  Py_VISIT(self->cache);
  Py_VISIT(self->ignored);
  Py_VISIT(self->whole);
  Py_VISIT(self->load);
  return 0;
}

/* The cache goes first: a call after this fails, and reads nothing that has gone. */
static int memoized_clear(memoized *self) {
  Py_CLEAR(self->cache);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->ignored);
  Py_CLEAR(self->whole);
  Py_CLEAR(self->load);
  return 0;
}

static void memoized_dealloc(memoized *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (self->weak) PyObject_ClearWeakRefs((PyObject *)self);
  memoized_clear(self);
  Py_XDECREF(self->name);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *memoized_repr(PyObject *self) {
  PyObject *name = PyObject_GetAttrString(self, "__qualname__");
  if (!name) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
    PyErr_Clear(); /* of a callable object, or a partial */
    return PyUnicode_FromFormat("<memoized function at %p>", self);
  }
  PyObject *repr = PyUnicode_FromFormat("<function %U at %p>", name, self);
  Py_DECREF(name);
  return repr;
}

/* As a function: by its name when it is pickled, and itself when it is copied. */
static PyObject *memoized_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *memoized_copy(PyObject *self, PyObject *unused) {
  (void)unused;
  Py_INCREF(self);
  return self;
}

static PyMethodDef memoized_methods[] = {
    {"__reduce__", memoized_reduce, METH_NOARGS, NULL},
    {"__copy__", memoized_copy, METH_NOARGS, NULL},
    {"__deepcopy__", memoized_copy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef memoized_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(memoized, call), Py_READONLY, NULL},
    {"__dictoffset__", Py_T_PYSSIZET, offsetof(memoized, dict), Py_READONLY, NULL},
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(memoized, weak), Py_READONLY, NULL},
    {"_hits", Py_T_PYSSIZET, offsetof(memoized, hits), 0, "The hits that C has counted."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef memoized_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot memoized_slots[] = {
    {Py_tp_new, (void *)memoized_new},
    {Py_tp_dealloc, (void *)memoized_dealloc},
    {Py_tp_traverse, (void *)memoized_traverse},
    {Py_tp_clear, (void *)memoized_clear},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)memoized_get},
    {Py_tp_repr, (void *)memoized_repr},
    {Py_tp_methods, memoized_methods},
    {Py_tp_members, memoized_members},
    {Py_tp_getset, memoized_getset},
    {0, NULL},
};

PyType_Spec memoized_spec = {
    .name = "hutch._fast.Memoized",
    .basicsize = sizeof(memoized),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = memoized_slots,
};
