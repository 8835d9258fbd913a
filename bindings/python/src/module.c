/* The module hutch._fast and its state. See fast.h. */
#include "fast.h"

hutch_dl hutch;

static const char *const slow_names[SLOW] = {"get",         "__getitem__",  "set",  "__setitem__",
                                             "__delitem__", "__contains__", "incr", "decr", "pin",
                                             "put_object",  "get_object"};

static state *state_of(PyObject *module) { return PyModule_GetState(module); }

/* load(path): loads the library's functions. The first path of a process counts. */
static PyObject *module_load(PyObject *module, PyObject *path) {
  (void)module;
  const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
  if (!text) return NULL;
  const char *why = hutch.look ? NULL : hutch_dl_open(&hutch, text);
  if (!why) Py_RETURN_NONE;
  PyErr_SetString(PyExc_ImportError, why);
  memset(&hutch, 0, sizeof hutch);
  return NULL;
}

/* begin(complete, logs): a cache can be opened now. logs: the library's warnings go to Python's
   logging, unless the program has set its own level. The process has one logger, which a
   subinterpreter leaves as it is. */
static PyObject *module_begin(PyObject *module, PyObject *arguments) {
  state *state = state_of(module);
  PyObject *complete;
  int logs;
  if (!PyArg_ParseTuple(arguments, "Op", &complete, &logs)) return NULL;
  Py_INCREF(complete);
  Py_XDECREF(state->complete);
  state->complete = complete;
  if (logs && is_main_interpreter())
    (void)hutch.set_default_logger(HUTCH_LOG_WARNING, log_line, NULL, NULL);
  Py_RETURN_NONE;
}

bool is_complete(state *state) {
  if (state->check) return true;
  PyObject *answer = PyObject_CallObject(state->complete, NULL);
  Py_XDECREF(answer);
  if (answer && !state->check) PyErr_SetString(PyExc_RuntimeError, "set_up was not called");
  return answer && state->check;
}

void log_line(void *context, const hutch_log_record *record) {
  (void)context;
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *kind = NULL, *interrupt = NULL, *trace = NULL, *answer = NULL;
  PyObject *logs = PyImport_ImportModule("hutch._logs");
  /* The import runs Python's code, in which a KeyboardInterrupt is raised that came before or that
     another callback has left: see _callbacks.report. It is neither the line's nor the import's. */
  if (!logs && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Fetch(&kind, &interrupt, &trace);
    PyErr_NormalizeException(&kind, &interrupt, &trace);
    logs = PyImport_ImportModule("hutch._logs");
  }
  if (logs)
    answer = PyObject_CallMethod(logs, "tell", "IIiKyy", record->level, record->tiers,
                                 (int)record->status, (unsigned long long)record->left_out,
                                 record->directory, record->words);
  if (!answer) PyErr_WriteUnraisable(logs);
  Py_XDECREF(answer);
  if (logs && interrupt) {
    answer = PyObject_CallMethod(logs, "interrupt", "O", interrupt);
    if (!answer) PyErr_WriteUnraisable(logs);
    Py_XDECREF(answer);
  }
  Py_XDECREF(kind);
  Py_XDECREF(interrupt);
  Py_XDECREF(trace);
  Py_XDECREF(logs);
  PyGILState_Release(gil);
}

/* set_up(SlowEntries, check): the functions for calls of other kinds. */
static PyObject *module_set_up(PyObject *module, PyObject *arguments) {
  state *state = state_of(module);
  PyObject *kind, *check;
  if (!PyArg_ParseTuple(arguments, "OO", &kind, &check)) return NULL;
  for (int i = 0; i < SLOW; i++) {
    PyObject *function = PyObject_GetAttrString(kind, slow_names[i]);
    if (!function) return NULL;
    Py_XDECREF(state->slow[i]);
    state->slow[i] = function;
  }
  Py_INCREF(check);
  Py_XDECREF(state->check);
  state->check = check;
  Py_RETURN_NONE;
}

/* adopt(type): gives a subclass of Fast the methods as its own. CPython calls a method faster
   whose class is exactly that of the object. */
static PyObject *module_adopt(PyObject *module, PyObject *type) {
  if (!PyType_Check(type) ||
      !PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)state_of(module)->fast_type)) {
    PyErr_SetString(PyExc_TypeError, "not a subclass of Fast");
    return NULL;
  }
  for (PyMethodDef *method = fast_methods; method->ml_name; method++) {
    if (method->ml_flags & METH_METHOD) continue; /* it asks its class for the module */
    PyObject *own = PyDescr_NewMethod((PyTypeObject *)type, method);
    int failed = own ? PyObject_SetAttrString(type, method->ml_name, own) : -1;
    Py_XDECREF(own);
    if (failed) return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"load", module_load, METH_O, "Find the library's functions in the file of this name."},
    {"begin", module_begin, METH_VARARGS, "What completes the module, when a call needs it."},
    {"set_up", module_set_up, METH_VARARGS, "Where the calls of no common kind go."},
    {"adopt", module_adopt, METH_O, "Make the methods of Fast this class's own."},
    {"guard", module_guard, METH_O,
     "guard((function, instead)): calls function; if it raises, instead((function, exception),\n"
     "*arguments)."},
    {"held", module_held, METH_O,
     "The object of the accelerator with this number: (it,), or () in another interpreter."},
    {"write", module_write, METH_O,
     "The bytes of a value of JSON or CBOR, and its extended data; None: _codec is to write it."},
    {"read_json", module_read_json, METH_VARARGS,
     "read_json(data, instead): the value of JSON; instead: _codec is to read it."},
    {"read_cbor", module_read_cbor, METH_VARARGS,
     "read_cbor(data, makers, makers_of_text, instead): the value of CBOR; instead: _cbor_read is\n"
     "to read it."},
    {NULL, NULL, 0, NULL},
};

/* A new type, which the module also has under a name: a new reference. NULL: an exception. */
static PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyObject_SetAttrString(module, name, type) < 0) Py_CLEAR(type);
  return type;
}

static int module_execute(PyObject *module) {
  state *state = state_of(module);
  state->fast_type = add_type(module, "Fast", &fast_spec);
  state->pinned_type = state->fast_type ? add_type(module, "Pinned", &pinned_spec) : NULL;
  PyObject *memoized = state->pinned_type ? add_type(module, "Memoized", &memoized_spec) : NULL;
  Py_XDECREF(memoized);
  return memoized ? 0 : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  state *state = state_of(module);
  if (!state) return 0;
  for (int i = 0; i < SLOW; i++) Py_VISIT(state->slow[i]);
  Py_VISIT(state->complete);
  Py_VISIT(state->check);
  Py_VISIT(state->tagged);
  Py_VISIT(state->fast_type);
  Py_VISIT(state->pinned_type);
  return 0;
}

static int module_clear(PyObject *module) {
  state *state = state_of(module);
  if (!state) return 0;
  for (int i = 0; i < SLOW; i++) Py_CLEAR(state->slow[i]);
  for (int i = 0; i < NAMES; i++) Py_CLEAR(state->names[i]);
  Py_CLEAR(state->complete);
  Py_CLEAR(state->check);
  Py_CLEAR(state->tagged);
  Py_CLEAR(state->fast_type);
  Py_CLEAR(state->pinned_type);
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
