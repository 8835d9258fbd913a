"""Which of diskcache's own tests do not pass against hutch.diskcache, and why.

Only these may fail, and each of them must: one that passes is to leave the list.
"""

SQL = "looks into SQLite, which is not beneath this module in the same way: "
FILES = "looks into the files of diskcache's directory: "

DIFFERENT = {
    "test_core.py::test_pragma_error": SQL + "a mock of the connection that fails a PRAGMA",
    "test_core.py::test_set_timeout": SQL + "a mock of the connection",
    "test_core.py::test_add_timeout": SQL + "a mock of the connection",
    "test_core.py::test_custom_eviction_policy": SQL + "a policy written in SQL",
    "test_core.py::test_check": SQL + "damages rows by UPDATE",
    "test_core.py::test_integrity_check": SQL + "damages the file cache.db",
    "test_core.py::test_get_keyerror4": FILES + "a mock of open in diskcache.core",
    "test_core.py::test_disk_write_os_error": FILES + "a mock of open in diskcache.core",
    "test_core.py::test_cleanup_dirs": FILES + "counts folders of values",
    "test_doctest.py::test_tutorial": "docs/tutorial.rst is not in the sdist",
}

PICKLED = {
    "test_core.py::test_getsetdel": "an io.BytesIO as a key, which only a pickle can be",
    "test_fanout.py::test_getsetdel": "an io.BytesIO as a key, which only a pickle can be",
}
"""Pass with disk=PickleDisk, and so they are run with it."""

EMPTY = {
    "test_core.py::test_pragmas": "swallows what its threads raise",
    "test_core.py::test_close_error": "mocks an attribute that has another meaning here",
    "test_core.py::test_rsync": "returns if there is no rsync",
    "test_fanout.py::test_rsync": "returns if there is no rsync",
    "test_doctest.py::test_core": "these modules have no examples in their docstrings",
    "test_doctest.py::test_djangocache": "these modules have no examples in their docstrings",
    "test_doctest.py::test_fanout": "these modules have no examples in their docstrings",
    "test_doctest.py::test_persistent": "these modules have no examples in their docstrings",
    "test_doctest.py::test_recipes": "these modules have no examples in their docstrings",
}
"""Pass without having asked much of this module."""
