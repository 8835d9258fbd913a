/* The beginning and the end of a Fast. See fast.h.
 *
 * A Fast has a reference of its own, which keeps its handle valid while a thread is in the middle
 * of a call. It is given up with the object. _open has another one, that of the opening: _close
 * ends it, or else the end of the object. */
#include "fast.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

bool refuse(const fast *self) {
  PyErr_SetString(PyExc_ValueError,
                  self->cache ? "the interpreter has ended" : "the cache has not been opened");
  return false;
}

/* Whether an object of this class can begin. False: an exception. */
static bool may_begin(const fast *self, PyTypeObject *type) {
  state *state = PyType_GetModuleState(type);
  if (!self->cache && hutch.look && state->complete) return true;
  PyErr_SetString(PyExc_RuntimeError, self->cache ? "the cache has been opened already"
                                                  : "the module is not set up");
  return false;
}

static void begin(fast *self, PyTypeObject *type, hutch_cache *cache, bool is_in_memory,
                  bool is_natural, bool is_whole) {
  self->module = PyType_GetModule(type);
  Py_INCREF(self->module);
  self->state = PyType_GetModuleState(type);
  self->is_in_memory = is_in_memory;
  self->is_natural = is_natural;
  self->cache = hutch.cache_retain(cache);
  /* Without the view an entry in memory is found as one on disk is. */
  if (is_whole && !is_in_memory) (void)hutch.tier(cache, HUTCH_TIER_MEMORY, &self->memory);
}

PyObject *fast_attach(fast *self, PyTypeObject *type, PyObject *const *arguments,
                      Py_ssize_t count, PyObject *names) {
  void *handle = count == 4 && !names ? PyLong_AsVoidPtr(arguments[0]) : NULL;
  int is_in_memory = handle ? PyObject_IsTrue(arguments[1]) : -1;
  int is_natural = handle ? PyObject_IsTrue(arguments[2]) : -1;
  int is_whole = handle ? PyObject_IsTrue(arguments[3]) : -1;
  if (is_in_memory < 0 || is_natural < 0 || is_whole < 0) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "_attach(handle, is_in_memory, is_natural, is_whole)");
    return NULL;
  }
  if (!may_begin(self, type)) return NULL;
  begin(self, type, handle, is_in_memory, is_natural, is_whole);
  Py_RETURN_NONE;
}

/* A field of hutch_options that is a number. */
typedef struct field {
  const char *name;
  size_t offset, size;
} field;

#define FIELD(name) {#name, offsetof(hutch_options, name), sizeof ((hutch_options *)0)->name}
#define LIMITS(tier)                                                                           \
  FIELD(tier.cost), FIELD(tier.count), FIELD(tier.max_entry), FIELD(tier.time_to_live),        \
      FIELD(tier.time_to_idle), FIELD(tier.min_free)
static const field fields[] = {
    FIELD(flags), FIELD(policy), FIELD(storage), FIELD(durability), FIELD(sharing),
    FIELD(workers), FIELD(inline_threshold), LIMITS(memory), LIMITS(disk),
    FIELD(on_memory_warning), FIELD(on_background), FIELD(low_water), FIELD(write_policy),
    FIELD(checksums), FIELD(queue_length), FIELD(close_deadline), FIELD(disk_policy),
    FIELD(queue)};

/* Sets the fields that a dict names. False: an exception. */
static bool set_options(hutch_options *options, PyObject *settings) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(settings, &at, &name, &value);) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    unsigned long long number = text ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyErr_Occurred()) return false;
    const field *field = fields, *end = fields + sizeof fields / sizeof *fields;
    while (field < end && strcmp(field->name, text) != 0) field++;
    if (field == end) {
      PyErr_Format(PyExc_ValueError, "hutch_options has no number named %s", text);
      return false;
    }
    /* The Python code has checked that it fits. */
    uint32_t half = (uint32_t)number;
    memcpy((char *)options + field->offset, field->size == 4 ? (void *)&half : (void *)&number,
           field->size);
  }
  return true;
}

PyObject *fast_open(fast *self, PyTypeObject *type, PyObject *const *arguments, Py_ssize_t count,
                    PyObject *names) {
  int is_natural = count == 5 && !names ? PyObject_IsTrue(arguments[4]) : -1;
  if (is_natural < 0) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "_open(path, settings, clock, codec, is_natural)");
    return NULL;
  }
  const char *path = NULL;
  if (arguments[0] != Py_None && !(path = PyBytes_AsString(arguments[0]))) return NULL;
  hutch_options options = {.struct_size = sizeof options};
  if (arguments[1] != Py_None && !set_options(&options, arguments[1])) return NULL;
  if (!may_begin(self, type)) return NULL;
  if (arguments[2] != Py_None || arguments[3] != Py_None) {
    if (!is_main_interpreter()) Py_RETURN_FALSE; /* ctypes refuses them. */
    if (!set_hooks(&options, arguments[2], arguments[3])) return NULL;
  }
  hutch_cache *cache = NULL;
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hutch.open(path, &options, &cache);
  if (status != HUTCH_OK) (void)hutch.close(cache);
  Py_END_ALLOW_THREADS
  if (status != HUTCH_OK) Py_RETURN_FALSE;
  begin(self, type, cache, !path, is_natural, true);
  self->is_open = true;
  Py_RETURN_TRUE;
}

PyObject *fast_handle(fast *self, PyObject *unused) {
  (void)unused;
  return is_attached(self) ? PyLong_FromVoidPtr(self->cache) : NULL;
}

PyObject *fast_close(fast *self, PyObject *unused) {
  (void)unused;
  if (!self->is_open) Py_RETURN_NONE;
  self->is_open = false;
  forget(self);
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hutch.close(self->cache);
  Py_END_ALLOW_THREADS
  if (status == HUTCH_DEADLOCK) self->is_open = true;
  return PyLong_FromLong(status);
}

PyObject *fast_let_go(fast *self, PyObject *unused) {
  (void)unused;
  self->is_in_memory = false;
  Py_RETURN_NONE;
}

PyObject *fast_code_objects(fast *self, PyObject *unused) {
  (void)unused;
  self->codes_objects = true;
  Py_RETURN_NONE;
}

PyObject *fast_keep_pairs(fast *self, PyObject *unused) {
  (void)unused;
  self->keeps_pairs = true;
  Py_RETURN_NONE;
}

static void *close_on_a_thread(void *cache) {
  (void)hutch.close(cache);
  return NULL;
}

/* How long the end of an object waits for the close of its cache. */
enum { LONGEST_WAIT = 1 };

/* The garbage collector runs anywhere: within an import, or where the program holds a lock. The
 * close waits for threads of the library. One of them may be in a callback that waits for just that
 * lock, so a close on this thread could wait for ever. */
static void close_in_the_end(hutch_cache *cache) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, close_on_a_thread, cache) != 0) {
    (void)hutch.close(cache);
    return;
  }
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LONGEST_WAIT;
  if (pthread_timedjoin_np(thread, NULL, &until) != 0) pthread_detach(thread);
}

void fast_dealloc(fast *self) {
  PyTypeObject *type = Py_TYPE(self);
  hutch_cache *cache = self->cache;
  if (cache) {
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    Py_BEGIN_ALLOW_THREADS
    if (self->is_open) close_in_the_end(cache);
    /* The last reference may close the cache. */
    if (self->memory) hutch.cache_release(self->memory);
    hutch.cache_release(cache);
    Py_END_ALLOW_THREADS
    PyErr_Restore(kind, error, trace);
  }
  forget(self);
  PyMem_Free(self->known);
  Py_XDECREF(self->module);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}
