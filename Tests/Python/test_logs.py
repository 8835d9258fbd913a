"""What goes wrong, told to the standard logging."""

from __future__ import annotations

import logging


import hutch
import pytest
from processes import finished


@pytest.fixture(autouse=True)
def as_it_begins():
    yield
    hutch.log(logging.WARNING)


def fail(cache):
    with pytest.raises(ValueError):
        cache.load("k", lambda key: int("x"))


def test_information_is_not_logged_unless_asked_for(cache, caplog):
    caplog.set_level(logging.DEBUG)
    fail(cache)
    assert not caplog.records


def test_a_value_that_the_disk_does_not_take_is_a_warning(directory, caplog):
    with hutch.Cache(directory, disk=hutch.TierLimits(max_entry=1000)) as cache:
        assert cache.set("k", b"x" * 5000)
    (record,) = caplog.records
    assert record.name == "hutch" and record.levelno == logging.WARNING
    words = "a value was not stored on disk: it is too large"
    assert record.getMessage() == f"{directory}: {words}"


def test_a_program_that_has_set_up_no_logging_is_warned(directory):
    program = """
import shutil, sys, hutch
cache = hutch.Cache(sys.argv[1])
cache["a"] = 1
shutil.rmtree(sys.argv[1])
while cache.stats().disk.state == hutch.State.UP:
    cache["b"] = 2
# The line may be another thread's, which the close waits for.
cache.close()
"""
    done = finished("-c", program, directory)
    assert done.returncode == 0, done.stderr
    assert f"{directory}: the disk tier is out of service" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_fails_is_logged(cache, caplog):
    caplog.set_level(logging.DEBUG)
    hutch.log()
    fail(cache)
    (record,) = caplog.records
    assert record.name == "hutch" and record.levelno == logging.INFO
    assert record.getMessage() == f"{cache.directory or 'memory'}: a loader has failed"
    hutch.log(logging.WARNING)
    fail(cache)
    hutch.log(logging.CRITICAL)
    fail(cache)
    hutch.log(None)
    fail(cache)
    assert len(caplog.records) == 1


def test_a_directory_that_goes_is_logged(directory, caplog):
    caplog.set_level(logging.DEBUG)
    hutch.log(logging.WARNING)
    with hutch.Cache(directory) as cache:
        cache["a"] = 1
        directory.rename(directory.with_name("away"))
        while cache.stats().disk.state == hutch.State.UP:
            cache["b"] = 2
        # The thread that finds it gone sets the state first, and then logs.
        while not any("out of service" in record.getMessage() for record in caplog.records):
            cache.maintain()
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        directory.with_name("away").rename(directory)
        while cache.stats().disk.state != hutch.State.UP:
            cache.maintain()


def test_a_handler_that_raises_is_reported(cache, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    reported = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)

    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("no")

    handler = Broken()
    logging.getLogger("hutch").addHandler(handler)
    try:
        hutch.log()
        fail(cache)
    finally:
        logging.getLogger("hutch").removeHandler(handler)
    assert [type(told.exc_value) for told in reported] == [RuntimeError]
