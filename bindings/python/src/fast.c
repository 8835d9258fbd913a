/* The type Fast, the first base of hutch.Entries, and its module. See fast.h. */
#include "fast.h"

#include <string.h>

hutch_dl hutch;

/* The functions of SlowEntries for calls of other kinds, in this order. */
enum { GET, GETITEM, SET, SETITEM, DELITEM, CONTAINS, SLOW };
static const char *const slow_names[SLOW] = {"get",         "__getitem__", "set",
                                             "__setitem__", "__delitem__", "__contains__"};

/* The state of a module, and thereby of an interpreter. */
typedef struct state {
  PyObject *slow[SLOW];
  PyObject *check;  /* (status): raises the exception of a status below 0 */
  PyObject *decode; /* (cache, bytes, extended): (the object,), or None: it cannot be read */
} state;

/* A look copies values up to this size to the stack; a larger one comes by reference. */
enum { ROOM = 1024 };
/* A larger put releases the GIL. */
enum { LONG_PUT = 64 * 1024 };

typedef struct fast {
  PyObject_HEAD
  hutch_cache *cache; /* a reference of its own; NULL until attach */
  PyObject *module;   /* keeps state */
  state *state;
  /* A put can neither touch a disk nor wait for a listener, so it keeps the GIL. Once false, it
     stays false. */
  bool is_in_memory;
} fast;

static state *state_of(PyObject *module) { return PyModule_GetState(module); }

/* ----------------------------------------------------------- the slow calls */

static bool is_attached(const fast *self) {
  if (self->cache && self->state->decode) return true;
  PyErr_SetString(PyExc_ValueError,
                  self->cache ? "the interpreter has ended" : "the cache has not been opened");
  return false;
}

/* Calls the method of SlowEntries with the original arguments and names. */
static PyObject *slowly(fast *self, int which, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *names) {
  PyObject *result = NULL, *keywords = NULL;
  Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  PyObject *all = PyTuple_New(count + 1);
  if (!all) return NULL;
  Py_INCREF(self);
  PyTuple_SetItem(all, 0, (PyObject *)self);
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(all, i + 1, arguments[i]);
  }
  if (named > 0) {
    keywords = PyDict_New();
    if (!keywords) goto end;
    for (Py_ssize_t i = 0; i < named; i++)
      if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), arguments[count + i]) < 0) goto end;
  }
  result = PyObject_Call(self->state->slow[which], all, keywords);
end:
  Py_XDECREF(keywords);
  Py_DECREF(all);
  return result;
}

/* False, with an exception, if check raises one for the status. */
static bool is_fine(fast *self, hutch_status status) {
  if (status == HUTCH_OK || status == HUTCH_NOT_FOUND) return true;
  /* Called at once on this thread, whose last error is still that of this call. */
  PyObject *answer = PyObject_CallFunction(self->state->check, "i", (int)status);
  Py_XDECREF(answer);
  return answer != NULL;
}

/* ------------------------------------------------------------------- reads */

/* The object under a key; NULL without an exception: no entry. */
static PyObject *read_object(fast *self, const key *key) {
  char room[ROOM];
  hutch_found found = {.struct_size = sizeof found};
  hutch_status status = hutch.look(self->cache, key->data, key->size, HUTCH_LOOK_AT_ONCE, room,
                                   sizeof room, &found);
  if (status == HUTCH_WOULD_BLOCK) {
    Py_BEGIN_ALLOW_THREADS
    status = hutch.look(self->cache, key->data, key->size, 0, room, sizeof room, &found);
    Py_END_ALLOW_THREADS
  }
  if (status != HUTCH_OK) {
    (void)is_fine(self, status);
    return NULL;
  }
  if (!found.value)
    return object_of(room, found.size, room + found.size, found.extended_size,
                     self->state->decode, (PyObject *)self);
  PyObject *object =
      object_of(hutch.value_data(found.value), found.size, hutch.value_extended(found.value),
                found.extended_size, self->state->decode, (PyObject *)self);
  hutch.value_release(found.value);
  return object;
}

static PyObject *fast_get(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  key key;
  if (!is_attached(self)) return NULL;
  if (names || count < 1 || count > 2 || !key_of(arguments[0], &key))
    return slowly(self, GET, arguments, count, names);
  PyObject *object = read_object(self, &key);
  if (object || PyErr_Occurred()) return object;
  object = count == 2 ? arguments[1] : Py_None;
  Py_INCREF(object);
  return object;
}

static PyObject *fast_getitem(fast *self, PyObject *name) {
  key key;
  if (!is_attached(self)) return NULL;
  if (!key_of(name, &key)) return slowly(self, GETITEM, &name, 1, NULL);
  PyObject *object = read_object(self, &key);
  if (object || PyErr_Occurred()) return object;
  /* A tuple is never a key of a common kind: it would be taken for the exception's arguments. */
  PyErr_SetObject(PyExc_KeyError, name);
  return NULL;
}

static int fast_contains(fast *self, PyObject *name) {
  key key;
  if (!is_attached(self)) return -1;
  if (!key_of(name, &key)) {
    PyObject *answer = slowly(self, CONTAINS, &name, 1, NULL);
    int is_there = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return is_there;
  }
  hutch_status status;
  if (self->is_in_memory) {
    status = hutch.contains(self->cache, key.data, key.size);
  } else {
    Py_BEGIN_ALLOW_THREADS
    status = hutch.contains(self->cache, key.data, key.size);
    Py_END_ALLOW_THREADS
  }
  return is_fine(self, status) ? status == HUTCH_OK : -1;
}

/* ------------------------------------------------------------------ writes */

/* 1: stored; 0: not of a common kind; -1: an exception. */
static int put(fast *self, PyObject *name, PyObject *object) {
  key key;
  value value;
  hutch_status status;
  if (!is_attached(self)) return -1;
  if (!key_of(name, &key) || !value_of(object, &value)) return 0;
  if (self->is_in_memory && value.size <= LONG_PUT) {
    status = hutch.put(self->cache, key.data, key.size, value.data, value.size, value.options,
                       NULL);
  } else {
    Py_BEGIN_ALLOW_THREADS
    status = hutch.put(self->cache, key.data, key.size, value.data, value.size, value.options,
                       NULL);
    Py_END_ALLOW_THREADS
  }
  int result = is_fine(self, status) ? 1 : -1;
  Py_XDECREF(value.owned);
  return result;
}

static PyObject *fast_set(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  int stored = names || count != 2 ? 0 : put(self, arguments[0], arguments[1]);
  if (stored == 1) Py_RETURN_TRUE;
  if (stored == 0 && is_attached(self)) return slowly(self, SET, arguments, count, names);
  return NULL;
}

static int fast_setitem(fast *self, PyObject *name, PyObject *object) {
  int stored = object ? put(self, name, object) : 0;
  if (stored != 0) return stored < 0 ? -1 : 0;
  if (!is_attached(self)) return -1;
  PyObject *arguments[] = {name, object};
  PyObject *answer = slowly(self, object ? SETITEM : DELITEM, arguments, object ? 2 : 1, NULL);
  Py_XDECREF(answer);
  return answer ? 0 : -1;
}

/* -------------------------------------------------------------------- life */

static PyObject *fast_attach(fast *self, PyTypeObject *type, PyObject *const *arguments,
                             Py_ssize_t count, PyObject *names) {
  void *handle = count == 2 && !names ? PyLong_AsVoidPtr(arguments[0]) : NULL;
  int is_in_memory = handle ? PyObject_IsTrue(arguments[1]) : -1;
  if (is_in_memory < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "_attach(handle, is_in_memory)");
    return NULL;
  }
  state *state = PyType_GetModuleState(type);
  if (self->cache || !hutch.look || !state->decode) {
    PyErr_SetString(PyExc_RuntimeError, "attached already, or the module is not set up");
    return NULL;
  }
  self->module = PyType_GetModule(type);
  Py_INCREF(self->module);
  self->state = state;
  self->is_in_memory = is_in_memory;
  self->cache = hutch.cache_retain(handle);
  Py_RETURN_NONE;
}

static PyObject *fast_let_go(fast *self, PyObject *unused) {
  (void)unused;
  self->is_in_memory = false;
  Py_RETURN_NONE;
}

static void fast_dealloc(fast *self) {
  PyTypeObject *type = Py_TYPE(self);
  hutch_cache *cache = self->cache;
  if (cache) {
    /* The last reference may close the cache. */
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    Py_BEGIN_ALLOW_THREADS
    hutch.cache_release(cache);
    Py_END_ALLOW_THREADS
    PyErr_Restore(kind, error, trace);
  }
  Py_XDECREF(self->module);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

#define METHOD(function) (PyCFunction)(void (*)(void))(function)
static PyMethodDef fast_methods[] = {
    {"get", METHOD(fast_get), METH_FASTCALL | METH_KEYWORDS,
     "get($self, key, default=None)\n--\n\n"
     "The value of key, or default. What is found on disk is brought into memory."},
    {"set", METHOD(fast_set), METH_FASTCALL | METH_KEYWORDS,
     "set($self, key, value, expire=None, *, idle=None, cost=None, suffix=None,\n"
     "    write_policy=None, tag=None)\n--\n\n"
     "Store value under key, in place of what was there. Always True.\n\n"
     "TooLargeError, NoSpaceError: no tier took it, and older values are gone."},
    {"_attach", METHOD(fast_attach), METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "Work on the cache with this handle, of which a reference is taken."},
    {"_let_go_of_the_gil", METHOD(fast_let_go), METH_NOARGS,
     "From now on a put may wait for a thread of Python."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fast_slots[] = {
    {Py_tp_dealloc, (void *)fast_dealloc},
    {Py_tp_methods, fast_methods},
    {Py_mp_subscript, (void *)fast_getitem},
    {Py_mp_ass_subscript, (void *)fast_setitem},
    {Py_sq_contains, (void *)fast_contains},
    {Py_tp_doc, "The common calls of hutch.Entries, in C."},
    {0, NULL},
};

static PyType_Spec fast_spec = {
    .name = "hutch._fast.Fast",
    .basicsize = sizeof(fast),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = fast_slots,
};

/* ------------------------------------------------------------------ module */

/* load(path): loads the library's functions. The first path of a process counts. */
static PyObject *module_load(PyObject *module, PyObject *path) {
  (void)module;
  const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
  if (!text) return NULL;
  const char *why = hutch.look ? NULL : hutch_dl_open(&hutch, text);
  if (why) {
    PyErr_SetString(PyExc_ImportError, why);
    return NULL;
  }
  Py_RETURN_NONE;
}

/* set_up(SlowEntries, check, decode): the functions for calls of other kinds. */
static PyObject *module_set_up(PyObject *module, PyObject *arguments) {
  state *state = state_of(module);
  PyObject *kind, *check, *decode;
  if (!PyArg_ParseTuple(arguments, "OOO", &kind, &check, &decode)) return NULL;
  for (int i = 0; i < SLOW; i++) {
    PyObject *function = PyObject_GetAttrString(kind, slow_names[i]);
    if (!function) return NULL;
    Py_XDECREF(state->slow[i]);
    state->slow[i] = function;
  }
  Py_INCREF(check);
  Py_XDECREF(state->check);
  state->check = check;
  Py_INCREF(decode);
  Py_XDECREF(state->decode);
  state->decode = decode;
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"load", module_load, METH_O, "Find the library's functions in the file of this name."},
    {"set_up", module_set_up, METH_VARARGS, "Where the calls of no common kind go."},
    {NULL, NULL, 0, NULL},
};

static int module_execute(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &fast_spec, NULL);
  if (!type) return -1;
  if (PyModule_AddObject(module, "Fast", type) < 0) {
    Py_DECREF(type);
    return -1;
  }
  return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  state *state = state_of(module);
  if (!state) return 0;
  for (int i = 0; i < SLOW; i++) Py_VISIT(state->slow[i]);
  Py_VISIT(state->check);
  Py_VISIT(state->decode);
  return 0;
}

static int module_clear(PyObject *module) {
  state *state = state_of(module);
  if (!state) return 0;
  for (int i = 0; i < SLOW; i++) Py_CLEAR(state->slow[i]);
  Py_CLEAR(state->check);
  Py_CLEAR(state->decode);
  return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "hutch._fast",
    .m_doc = "The common calls of a cache, in C. Optional: see hutch._accelerator.",
    .m_size = sizeof(state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&definition); }
