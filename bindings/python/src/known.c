/* Objects of values that are read again. See fast.h.
 *
 * A read that finds the version of a known object needs no copy and no new object. It is an access
 * like any other: the library looks the key up and counts it.
 * A value that is read only once costs its place eight bytes, and no object is kept of it. */
#include "fast.h"

bool begin_to_know(fast *self) {
  self->known = PyMem_Calloc(PLACES, sizeof *self->known);
  return self->known != NULL;
}

void forget(fast *self) {
  for (int i = 0; self->known && i < PLACES; i++) {
    self->known[i].version = 0;
    Py_CLEAR(self->known[i].object);
  }
}

/* Whether C alone makes the object: of bytes, str or int. What Python makes may change, and may
   be made otherwise the next time. */
static bool is_fixed(PyObject *object, size_t size, const char *extended, size_t extended_size) {
  if (extended_size == 0) return PyBytes_CheckExact(object);
  if (PyUnicode_CheckExact(object)) return is_str(extended, extended_size);
  return PyLong_CheckExact(object) && is_int(size, extended, extended_size);
}

PyObject *learn(const fast *self, known *known, const char *room, const hutch_found *found) {
  PyObject *object = object_of_copy(self, room, found);
  /* 0: the version is not known. */
  if (!object || found->version == 0) return object;
  if (known->version != found->version) {
    Py_CLEAR(known->object);
    known->version = found->version;
  } else if (!known->object && found->size <= KNOWN_MOST &&
             is_fixed(object, found->size, room + found->size, found->extended_size)) {
    Py_INCREF(object);
    known->object = object;
  }
  return object;
}
