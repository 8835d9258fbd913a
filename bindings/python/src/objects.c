/* Python objects in a cache's memory: references, neither copied nor encoded.
 *
 * The library has the address of each object, which is an even number, and a reference to it.
 * hutch/_objects.py gives it odd numbers for the objects that it puts, so that each side knows its
 * own. Only the main interpreter puts objects, and only it finds them: see fast.h. */
#include "fast.h"

#include <stdint.h>

/* Borrowed. NULL without an exception: this is another interpreter than the object's. */
static PyObject *held_object(void *pointer) { return is_main_interpreter() ? pointer : NULL; }

PyObject *fast_put_object(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  key key;
  if (!is_attached(self)) return NULL;
  if (names || count != 2 || self->codes_objects || !is_main_interpreter() ||
      !key_of(arguments[0], &key))
    return slowly(self, PUT_OBJECT, arguments, count, names);
  Py_INCREF(arguments[1]);
  /* A put that fails releases the object too. */
  PyThreadState *released = release_gil(self->is_in_memory);
  hutch_status status = hutch.put_object(self->cache, key.data, key.size, arguments[1], let_go,
                                         NULL);
  take_gil(released);
  if (!is_fine(self, status)) return NULL;
  Py_RETURN_NONE;
}

PyObject *fast_get_object(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  key key;
  hutch_object *object;
  if (!is_attached(self)) return NULL;
  if (names || count < 1 || count > 2 || self->codes_objects || !key_of(arguments[0], &key))
    return slowly(self, GET_OBJECT, arguments, count, names);
  hutch_status status = hutch.get_object(self->cache, key.data, key.size, &object);
  if (!is_fine(self, status)) return NULL;
  PyObject *found = NULL;
  if (status == HUTCH_OK) {
    void *pointer = hutch.object_pointer(object);
    bool is_ours = ((uintptr_t)pointer & 1) == 0;
    if (is_ours) {
      found = held_object(pointer);
      Py_XINCREF(found);
    }
    hutch.object_release(object);
    if (!is_ours) return slowly(self, GET_OBJECT, arguments, count, names);
  }
  return found ? found : default_of(arguments, count);
}

PyObject *module_held(PyObject *module, PyObject *number) {
  (void)module;
  void *pointer = PyLong_AsVoidPtr(number);
  if (!pointer) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not the number of an object");
    return NULL;
  }
  PyObject *found = held_object(pointer);
  if (!found) return PyTuple_New(0);
  PyObject *one = PyTuple_New(1);
  if (!one) return NULL;
  Py_INCREF(found);
  PyTuple_SetItem(one, 0, found);
  return one;
}
