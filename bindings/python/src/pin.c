/* The type Pinned: a reference to a value, whose bytes a memoryview shows without a copy. */
#include "fast.h"

/* Of 3.11's limited API; with the same layout and numbers since 3.9. */
#if Py_LIMITED_API < 0x030B0000
typedef struct bufferinfo {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;
int PyBuffer_FillInfo(Py_buffer *, PyObject *, void *, Py_ssize_t, int, int);
#define Py_bf_getbuffer 1
#endif

typedef struct pinned {
  PyObject_HEAD
  hutch_value *value;
} pinned;

static int pinned_buffer(pinned *self, Py_buffer *view, int flags) {
  static char none[1];
  size_t size = hutch.value_size(self->value);
  void *data = size > 0 ? (void *)hutch.value_data(self->value) : none;
  return PyBuffer_FillInfo(view, (PyObject *)self, data, (Py_ssize_t)size, 1, flags);
}

static void pinned_dealloc(pinned *self) {
  PyTypeObject *type = Py_TYPE(self);
  hutch.value_release(self->value);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

PyObject *pinned_of(const fast *cache, hutch_value *value) {
  PyTypeObject *type = (PyTypeObject *)cache->state->pinned_type;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  pinned *self = (pinned *)allocate(type, 0);
  if (!self) {
    hutch.value_release(value);
    return NULL;
  }
  self->value = value;
  PyObject *view = PyMemoryView_FromObject((PyObject *)self);
  Py_DECREF(self);
  return view;
}

static PyType_Slot pinned_slots[] = {
    {Py_tp_dealloc, (void *)pinned_dealloc},
    {Py_bf_getbuffer, (void *)pinned_buffer},
    {Py_tp_doc, "A value of a cache. Keeps its bytes."},
    {0, NULL},
};

PyType_Spec pinned_spec = {
    .name = "hutch._fast.Pinned",
    .basicsize = sizeof(pinned),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pinned_slots,
};
