/* A clock and a codec in Python, and the guard of each function that C calls. See fast.h.
 *
 * The objects that the library calls raise nothing, and report what the user's functions raise:
 * see hutch/_clock.py and hutch/_codec_hook.py. */
#include "fast.h"

void let_go(void *context) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject *)context);
  PyGILState_Release(gil);
}

static int64_t read_clock(void *context) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *answer = PyObject_CallObject(context, NULL);
  int64_t now = answer ? (int64_t)PyLong_AsUnsignedLongLongMask(answer) : 0;
  if (PyErr_Occurred()) PyErr_WriteUnraisable(context);
  Py_XDECREF(answer);
  PyGILState_Release(gil);
  return now;
}

/* The bytes that a conversion has made; or it has made a status. */
static hutch_status output_of(PyObject *made, hutch_buffer *output) {
  char *data;
  Py_ssize_t size;
  if (PyLong_Check(made)) return (hutch_status)PyLong_AsLong(made);
  if (PyBytes_AsStringAndSize(made, &data, &size) < 0) return HUTCH_IO;
  void *room = hutch.buffer_resize(output, (size_t)size);
  if (!room) return HUTCH_NO_MEMORY;
  memcpy(room, data, (size_t)size);
  return HUTCH_OK;
}

static hutch_status convert(PyObject *codec, int way, const void *input, size_t size,
                            hutch_buffer *output) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *made = PyObject_CallFunction(PyTuple_GetItem(codec, way), "y#", size ? input : "",
                                         (Py_ssize_t)size);
  hutch_status status = made ? output_of(made, output) : HUTCH_IO;
  if (PyErr_Occurred()) PyErr_WriteUnraisable(codec);
  Py_XDECREF(made);
  PyGILState_Release(gil);
  return status;
}

static hutch_status encode(void *context, const void *input, size_t size, hutch_buffer *output) {
  return convert(context, 1, input, size, output);
}

static hutch_status decode(void *context, const void *input, size_t size, hutch_buffer *output) {
  return convert(context, 2, input, size, output);
}

bool set_hooks(hutch_options *options, PyObject *clock, PyObject *codec) {
  if (codec != Py_None) {
    PyObject *id = PyTuple_GetItem(codec, 0);
    unsigned long long number = id ? PyLong_AsUnsignedLongLong(id) : 0;
    if (PyErr_Occurred()) return false;
    options->codec_id = (uint32_t)number;
    options->codec_encode = encode;
    options->codec_decode = decode;
    options->codec_context = codec;
    options->codec_release = let_go;
    Py_INCREF(codec);
  }
  if (clock != Py_None) {
    options->clock = read_clock;
    options->clock_context = clock;
    options->clock_release = let_go;
    Py_INCREF(clock);
  }
  return true;
}

/* pair: the function, and what is called in its place if it raises, with a tuple of it and its
   exception, and with its arguments. The interpreter runs a signal's handler before the first
   instruction of a function, and so before the try block of any function in Python. */
static PyObject *guarded(PyObject *pair, PyObject *const *arguments, Py_ssize_t count) {
  PyObject *function = PyTuple_GetItem(pair, 0), *kind, *error, *trace;
  PyObject *result = call_with(function, NULL, arguments, count, NULL);
  if (result) return result;
  PyErr_Fetch(&kind, &error, &trace);
  PyErr_NormalizeException(&kind, &error, &trace);
  if (trace) (void)PyException_SetTraceback(error, trace);
  PyObject *failed = PyTuple_Pack(2, function, error);
  if (failed) result = call_with(PyTuple_GetItem(pair, 1), failed, arguments, count, NULL);
  Py_XDECREF(failed);
  Py_DECREF(kind);
  Py_DECREF(error);
  Py_XDECREF(trace);
  return result;
}

static PyMethodDef guarded_method = {"guarded", HUTCH_METHOD(guarded), METH_FASTCALL, NULL};

PyObject *module_guard(PyObject *module, PyObject *pair) {
  (void)module;
  if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
    return PyCFunction_NewEx(&guarded_method, pair, NULL);
  PyErr_SetString(PyExc_TypeError, "guard((function, instead))");
  return NULL;
}
