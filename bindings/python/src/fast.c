/* The type Fast, the first base of hutch.Entries. See fast.h. */
#include "fast.h"

/* A look copies values up to this size to the stack; a larger one comes by reference. */
enum { ROOM = 1024 };
/* A larger put releases the GIL. */
enum { LONG_PUT = 64 * 1024 };

/* ----------------------------------------------------------- the slow calls */

PyObject *call_with(PyObject *function, PyObject *first, PyObject *const *arguments,
                    Py_ssize_t count, PyObject *names) {
  PyObject *result = NULL, *keywords = NULL;
  Py_ssize_t named = names ? PyTuple_Size(names) : 0, at = 0;
  PyObject *all = PyTuple_New(count + (first != NULL));
  if (!all) return NULL;
  if (first) {
    Py_INCREF(first);
    PyTuple_SetItem(all, at++, first);
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(all, at++, arguments[i]);
  }
  if (named > 0) {
    keywords = PyDict_New();
    if (!keywords) goto end;
    for (Py_ssize_t i = 0; i < named; i++)
      if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), arguments[count + i]) < 0) goto end;
  }
  result = PyObject_Call(function, all, keywords);
end:
  Py_XDECREF(keywords);
  Py_DECREF(all);
  return result;
}

PyObject *slowly(fast *self, int which, PyObject *const *arguments, Py_ssize_t count,
                 PyObject *names) {
  if (!is_complete(self->state)) return NULL;
  return call_with(self->state->slow[which], (PyObject *)self, arguments, count, names);
}

bool is_fine(fast *self, hutch_status status) {
  if (status == HUTCH_OK || status == HUTCH_NOT_FOUND) return true;
  /* This thread's last error is still that of the call: nothing that fails comes between. */
  if (!is_complete(self->state)) return false;
  PyObject *answer = PyObject_CallFunction(self->state->check, "i", (int)status);
  Py_XDECREF(answer);
  return answer != NULL;
}

/* ------------------------------------------------------------------- reads */

/* Looks without the GIL, on disk. `flags`: HUTCH_LOOK_OR_SIZES or 0. */
static COLD hutch_status look_on_disk(const fast *self, const key *key, uint32_t flags,
                                      char *room, size_t capacity, hutch_found *found) {
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hutch.look(self->cache, key->data, key->size, flags, room, capacity, found);
  Py_END_ALLOW_THREADS
  return status;
}

/* Looks with the GIL, in memory. `flags`: HUTCH_LOOK_KNOWN or 0. */
static inline hutch_status look_at_once(const fast *self, const key *key, uint32_t flags,
                                        char *room, size_t capacity, hutch_found *found) {
  found->struct_size = sizeof *found;
  return hutch.look(self->cache, key->data, key->size, HUTCH_LOOK_AT_ONCE | flags, room, capacity,
                    found);
}

/* The object of a value that a look has found and not copied. */
static COLD PyObject *object_of_reference(fast *self, const hutch_found *found) {
  PyObject *object = object_of(self, hutch.value_data(found->value), found->size,
                               hutch.value_extended(found->value), found->extended_size);
  hutch.value_release(found->value);
  return object;
}

/* The object of a value on disk. One of bytes that does not fit into room is copied once, into the
   object, if the library gives its size first. NULL without an exception: no entry. */
static COLD PyObject *read_from_disk(fast *self, const key *key, char *room) {
  hutch_found found = {.struct_size = sizeof found};
  hutch_status status = look_on_disk(self, key, HUTCH_LOOK_OR_SIZES, room, ROOM, &found);
  PyObject *bytes = NULL, *object = NULL;
  if (status == HUTCH_BUFFER_TOO_SMALL) {
    size_t size = found.size;
    if (found.extended_size == 0 && size <= PY_SSIZE_T_MAX) {
      bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
      if (!bytes) return NULL;
      room = PyBytes_AsString(bytes);
    } else {
      size = ROOM;
    }
    status = look_on_disk(self, key, 0, room, size, &found);
    if (bytes && status == HUTCH_OK && !found.value && found.size == size &&
        found.extended_size == 0)
      return bytes;
  }
  if (status == HUTCH_OK)
    object = found.value ? object_of_reference(self, &found) : object_of_copy(self, room, &found);
  else if (status != HUTCH_NOT_FOUND)
    (void)is_fine(self, status);
  Py_XDECREF(bytes);
  return object;
}

/* read_object, for the callers here a part of themselves. The rare cases are calls, so that a hit
   saves few registers. */
static inline PyObject *read_found(fast *self, const key *key) {
  char room[ROOM];
  hutch_found found;
  known *known = known_of(self, key);
  bool is_known = known && known->object;
  found.version = is_known ? known->version : 0;
  hutch_status status =
      look_at_once(self, key, is_known ? HUTCH_LOOK_KNOWN : 0, room, sizeof room, &found);
  if (RARELY(status == HUTCH_WOULD_BLOCK)) return read_from_disk(self, key, room);
  if (status != HUTCH_OK) {
    if (RARELY(status != HUTCH_NOT_FOUND)) (void)is_fine(self, status);
    return NULL;
  }
  if (RARELY(found.value != NULL)) return object_of_reference(self, &found);
  if (!known) return object_of_copy(self, room, &found);
  /* Not is_known: if the cache has a clock in Python, the place may be another's by now. Then the
     look has copied the value. */
  if (known->object && known->version == found.version) {
    Py_INCREF(known->object);
    return known->object;
  }
  return learn(self, known, room, &found);
}

PyObject *read_object(fast *self, const key *key) { return read_found(self, key); }

COLD PyObject *default_of(PyObject *const *arguments, Py_ssize_t count) {
  if (PyErr_Occurred()) return NULL;
  PyObject *object = count == 2 ? arguments[1] : Py_None;
  Py_INCREF(object);
  return object;
}

static PyObject *fast_get(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  key key;
  if (RARELY(!is_attached(self))) return NULL;
  if (RARELY(names || count < 1 || count > 2) || RARELY(!key_of_any(arguments[0], &key)))
    return slowly(self, GET, arguments, count, names);
  PyObject *object = read_found(self, &key);
  return object ? object : default_of(arguments, count);
}

/* The exception of an item that a read has not given. */
static COLD PyObject *no_item(PyObject *name) {
  /* A tuple is never a key of a common kind: it would be taken for the exception's arguments. */
  if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, name);
  return NULL;
}

static COLD PyObject *getitem_slowly(fast *self, PyObject *name) {
  return slowly(self, GETITEM, &name, 1, NULL);
}

static PyObject *fast_getitem(fast *self, PyObject *name) {
  key key;
  if (RARELY(!is_attached(self))) return NULL;
  if (RARELY(!key_of_any(name, &key))) return getitem_slowly(self, name);
  PyObject *object = read_found(self, &key);
  return object ? object : no_item(name);
}

/* The handle that asks memory alone; NULL: there is none. */
static inline hutch_cache *memory_of(const fast *self) {
  return self->is_in_memory ? self->cache : self->memory;
}

static COLD int contains_slowly(fast *self, PyObject *name) {
  PyObject *answer = slowly(self, CONTAINS, &name, 1, NULL);
  int is_there = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return is_there;
}

/* Without the GIL: the disk may be asked. */
static COLD int contains_below(fast *self, const char *data, size_t size) {
  hutch_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hutch.contains(self->cache, data, size);
  Py_END_ALLOW_THREADS
  return is_fine(self, status) ? status == HUTCH_OK : -1;
}

static inline int contains_bytes(fast *self, const char *data, size_t size) {
  hutch_cache *memory = memory_of(self);
  hutch_status status = memory ? hutch.contains(memory, data, size) : HUTCH_NOT_FOUND;
  if (status == HUTCH_OK) return 1;
  if (RARELY(!self->is_in_memory)) return contains_below(self, data, size);
  return RARELY(status != HUTCH_NOT_FOUND) && !is_fine(self, status) ? -1 : 0;
}

/* Of a key of another kind than a str without surrogates. */
static COLD int contains_of_any(fast *self, PyObject *name) {
  key key;
  PyErr_Clear(); /* of surrogates, which key_of judges */
  if (!key_of(name, &key)) return contains_slowly(self, name);
  return contains_bytes(self, key.data, key.size);
}

/* A str needs no struct key. */
static int fast_contains(fast *self, PyObject *name) {
  Py_ssize_t size;
  const char *data;
  if (RARELY(!is_attached(self))) return -1;
  if (RARELY(!PyUnicode_CheckExact(name)) ||
      RARELY(!(data = PyUnicode_AsUTF8AndSize(name, &size))) || RARELY(size == 0))
    return contains_of_any(self, name);
  return contains_bytes(self, data, (size_t)size);
}

static Py_ssize_t fast_length(fast *self) {
  uint64_t count = 0;
  hutch_status status;
  if (!is_attached(self)) return -1;
  if (self->is_in_memory) {
    status = hutch.count(self->cache, &count);
  } else {
    Py_BEGIN_ALLOW_THREADS
    status = hutch.count(self->cache, &count);
    Py_END_ALLOW_THREADS
  }
  return is_fine(self, status) ? (Py_ssize_t)count : -1;
}

/* The exception of a pin of another kind than bytes, which Python makes. */
static COLD PyObject *no_bytes(void) {
  PyObject *pins = PyImport_ImportModule("hutch._pins");
  PyObject *answer = pins ? PyObject_CallMethod(pins, "refuse", NULL) : NULL;
  Py_XDECREF(answer);
  Py_XDECREF(pins);
  return NULL;
}

static PyObject *fast_pin(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  key key;
  hutch_found found;
  if (!is_attached(self)) return NULL;
  if (names || count < 1 || count > 2 || !key_of(arguments[0], &key))
    return slowly(self, PIN, arguments, count, names);
  hutch_status status = look_at_once(self, &key, 0, NULL, 0, &found);
  if (status == HUTCH_WOULD_BLOCK) status = look_on_disk(self, &key, 0, NULL, 0, &found);
  if (status == HUTCH_NOT_FOUND) return default_of(arguments, count);
  if (!is_fine(self, status)) return NULL;
  /* Empty bytes fit into no room. */
  if (!found.value) return PyMemoryView_FromMemory("", 0, 0x100 /* PyBUF_READ */);
  if (is_encoded(hutch.value_extended(found.value), found.extended_size)) {
    hutch.value_release(found.value);
    return no_bytes(); /* Another look would be another hit. */
  }
  return pinned_of(self, found.value);
}

/* ------------------------------------------------------------------ writes */

static hutch_status put_value(const fast *self, const key *key, const char *data, size_t size,
                              const hutch_put_options *options) {
  PyThreadState *released = release_gil(self->is_in_memory && size <= LONG_PUT);
  hutch_status status = hutch.put(self->cache, key->data, key->size, data, size, options, NULL);
  take_gil(released);
  return status;
}

/* Seconds as nanoseconds, as _units.nanoseconds has them. False: Python is to judge it. */
static bool duration_of(PyObject *seconds, int64_t *nanoseconds) {
  long long whole;
  int64_t result;
  if (PyFloat_CheckExact(seconds)) {
    double exact = PyFloat_AsDouble(seconds) * 1e9;
    if (!(exact >= 0 && exact < 9e18)) return false;
    result = (int64_t)exact;
    if ((double)result < exact) result++;
  } else {
    if (!int64_of(seconds, &whole) || whole < 0 || whole > INT64_MAX / 1000000000) return false;
    result = whole * 1000000000;
  }
  *nanoseconds = result > 0 ? result : 1;
  return true;
}

bool choices_of(PyObject *const *arguments, Py_ssize_t count, PyObject *names, key *tag,
                hutch_put_options *options) {
  Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  if (count < 2 || count > 3) return false;
  if (count == 3 && arguments[2] != Py_None &&
      !duration_of(arguments[2], &options->time_to_live))
    return false;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(names, i), *choice = arguments[count + i];
    if (PyUnicode_CompareWithASCIIString(name, "expire") == 0) {
      if (count == 3) return false;
      if (choice != Py_None && !duration_of(choice, &options->time_to_live)) return false;
    } else if (PyUnicode_CompareWithASCIIString(name, "tag") == 0) {
      if (choice == Py_None) continue;
      if (!key_of(choice, tag) || tag->size > HUTCH_TAG_MAX) return false;
      options->tag = tag->data;
      options->tag_size = tag->size;
    } else {
      return false;
    }
  }
  return true;
}

/* 1: stored; 0: the key is not of a common kind; -1: an exception. `choices`: NULL, or options
   without extended data. */
static int put(fast *self, PyObject *name, PyObject *object, const hutch_put_options *choices) {
  key key;
  if (!is_attached(self)) return -1;
  if (!key_of_any(name, &key)) return 0;
  if (PyBytes_CheckExact(object)) {
    size_t size = (size_t)PyBytes_Size(object);
    const char *data = PyBytes_AsString(object);
    return is_fine(self, put_value(self, &key, data, size, choices)) ? 1 : -1;
  }
  value value;
  if (!value_of(self, object, &value)) return -1;
  hutch_put_options all;
  if (choices && value.options) {
    all = *choices;
    all.extended = value.options->extended;
    all.extended_size = value.options->extended_size;
    choices = &all;
  } else if (!choices) {
    choices = value.options;
  }
  hutch_status status = put_value(self, &key, value.data, value.size, choices);
  int result = is_fine(self, status) ? 1 : -1;
  value_end(&value);
  return result;
}

/* 1: stored; 0: Python is to judge an argument; -1: an exception. */
static COLD int put_chosen(fast *self, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *names) {
  key tag;
  hutch_put_options options = {.struct_size = sizeof options};
  if (!choices_of(arguments, count, names, &tag, &options)) return 0;
  return put(self, arguments[0], arguments[1], &options);
}

static PyObject *fast_set(fast *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names) {
  int stored = names || count != 2 ? put_chosen(self, arguments, count, names)
                                   : put(self, arguments[0], arguments[1], NULL);
  if (stored == 1) Py_RETURN_TRUE;
  if (stored == 0 && is_attached(self)) return slowly(self, SET, arguments, count, names);
  return NULL;
}

static int fast_setitem(fast *self, PyObject *name, PyObject *object) {
  int stored = object ? put(self, name, object, NULL) : 0;
  if (stored != 0) return stored < 0 ? -1 : 0;
  if (!is_attached(self)) return -1;
  PyObject *arguments[] = {name, object};
  PyObject *answer = slowly(self, object ? SETITEM : DELITEM, arguments, object ? 2 : 1, NULL);
  Py_XDECREF(answer);
  return answer ? 0 : -1;
}

/* ---------------------------------------------------------------- counters */

/* incr or decr with arguments (key, delta, default), of which the last may be left out. */
static PyObject *count(fast *self, int which, PyObject *const *arguments, Py_ssize_t given,
                       PyObject *names) {
  key key;
  long long delta = 1, initial = 0;
  int64_t result = 0;
  if (!is_attached(self)) return NULL;
  if (names || given < 1 || given > 3 || !key_of(arguments[0], &key) ||
      (given > 1 && !int64_of(arguments[1], &delta)) ||
      (given > 2 && !int64_of(arguments[2], &initial)) || delta == INT64_MIN)
    return slowly(self, which, arguments, given, names);
  if (which == DECR) delta = -delta;
  PyThreadState *released = release_gil(self->is_in_memory);
  hutch_status status = hutch.increment(self->cache, key.data, key.size, delta, initial,
                                        &int_options, &result);
  take_gil(released);
  return is_fine(self, status) ? PyLong_FromLongLong(result) : NULL;
}

static PyObject *fast_incr(fast *self, PyObject *const *arguments, Py_ssize_t given,
                           PyObject *names) {
  return count(self, INCR, arguments, given, names);
}

static PyObject *fast_decr(fast *self, PyObject *const *arguments, Py_ssize_t given,
                           PyObject *names) {
  return count(self, DECR, arguments, given, names);
}

PyMethodDef fast_methods[] = {
    {"get", HUTCH_METHOD(fast_get), METH_FASTCALL | METH_KEYWORDS,
     "get($self, key, default=None)\n--\n\n"
     "The value of key, or default. A value found on disk is brought into memory."},
    {"set", HUTCH_METHOD(fast_set), METH_FASTCALL | METH_KEYWORDS,
     "set($self, key, value, expire=None, *, idle=None, cost=None, suffix=None,\n"
     "    write_policy=None, tag=None)\n--\n\n"
     "Store value under key, in place of the older value. Always True.\n\n"
     "TooLargeError, NoSpaceError: no tier took it, and older values are gone."},
    {"incr", HUTCH_METHOD(fast_incr), METH_FASTCALL | METH_KEYWORDS,
     "incr($self, key, delta=1, default=0, *, expire=None, idle=None, tag=None)\n--\n\n"
     "Add delta to an int, atomically, and return the sum.\n\n"
     "A missing counter is made from default, with expire, idle and tag; default=None:\n"
     "KeyError. An existing counter keeps its durations and its tag.\n"
     "WrongTypeError: the value is not an int of 64 bits. CounterOverflowError: the sum does\n"
     "not fit; nothing changed."},
    {"decr", HUTCH_METHOD(fast_decr), METH_FASTCALL | METH_KEYWORDS,
     "decr($self, key, delta=1, default=0, *, expire=None, idle=None, tag=None)\n--\n\n"
     "Like incr, with delta subtracted."},
    {"pin", HUTCH_METHOD(fast_pin), METH_FASTCALL | METH_KEYWORDS,
     "pin($self, key, default=None)\n--\n\n"
     "A read-only memoryview of a value of bytes, which is not copied; or default.\n\n"
     "The view shows the same bytes as long as it exists, whatever becomes of the entry\n"
     "and of the cache, and keeps them in memory. WrongTypeError: the value is not bytes."},
    {"put_object", HUTCH_METHOD(fast_put_object), METH_FASTCALL | METH_KEYWORDS,
     "put_object($self, key, value, expire=None, *, idle=None, cost=None, tag=None)\n--\n\n"
     "Keep a reference to any Python object, in memory only, in place of the older one.\n\n"
     "Objects have keys of their own: put_object and set of one key do not see\n"
     "each other. Objects count in len and cost, obey the limits of the memory\n"
     "tier, and clear and remove_tagged remove them; iteration skips them. After its\n"
     "entry is removed, a thread of the library soon drops the object.\n"
     "TooLargeError: cost is above the tier's max_entry."},
    {"get_object", HUTCH_METHOD(fast_get_object), METH_FASTCALL | METH_KEYWORDS,
     "get_object($self, key, default=None)\n--\n\n"
     "The object under the key, itself; or default."},
    {"_attach", HUTCH_METHOD(fast_attach), METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "Work on the cache with this handle, of which a reference is taken."},
    {"_open", HUTCH_METHOD(fast_open), METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "Open a directory, or with None a cache in memory. settings: numbers of hutch_options by\n"
     "their names, or None. False: the opening has failed, or is of a cache with other options,\n"
     "and was undone; or this interpreter cannot have a clock or a codec."},
    {"_handle", HUTCH_METHOD(fast_handle), METH_NOARGS,
     "The handle, as a number. The object keeps it valid."},
    {"_close", HUTCH_METHOD(fast_close), METH_NOARGS,
     "End the opening of _open. The status of hutch_close; None: it has ended before."},
    {"_code_objects", HUTCH_METHOD(fast_code_objects), METH_NOARGS,
     "Objects are the values of their keys."},
    {"_keep_pairs", HUTCH_METHOD(fast_keep_pairs), METH_NOARGS,
     "A value is a tuple of its bytes and its extended data, as the cache's Forms say."},
    {"_all_keys", HUTCH_METHOD(fast_all_keys), METH_FASTCALL,
     "A list of all keys, or of pairs of keys and extended data (wanted is 1), or sizes of values\n"
     "(2), by an order of hutch.h or None; only of the first, if there is a number of them."},
    {"_placed_keys", HUTCH_METHOD(fast_placed_keys), METH_FASTCALL,
     "Lists of the keys and the numbers of the entries whose extended data begin with a form, by\n"
     "the numbers: 8 bytes at an offset of the extended data."},
    {"_put_all", HUTCH_METHOD(fast_put_all), METH_FASTCALL | METH_KEYWORDS,
     "_put_all($self, keys, values, failed, expire=None, *, tag=None)\n--\n\n"
     "Store lists of keys and values, after all of them were encoded. False: one is not of a\n"
     "common kind, and none is stored. failed(batch, keys): some of these keys have failed in a\n"
     "batch of the library, which has this address."},
    {"_let_go_of_the_gil", HUTCH_METHOD(fast_let_go), METH_NOARGS,
     "From now on a put may wait for a thread of Python."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fast_slots[] = {
    {Py_tp_dealloc, (void *)fast_dealloc},
    {Py_tp_methods, fast_methods},
    {Py_mp_subscript, (void *)fast_getitem},
    {Py_mp_ass_subscript, (void *)fast_setitem},
    {Py_mp_length, (void *)fast_length},
    {Py_sq_contains, (void *)fast_contains},
    {Py_tp_doc, "The common calls of hutch.Entries, in C."},
    {0, NULL},
};

PyType_Spec fast_spec = {
    .name = "hutch._fast.Fast",
    .basicsize = sizeof(fast),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = fast_slots,
};
