"""What goes wrong, told to the standard logging."""

from __future__ import annotations

import logging

import hutch
import pytest


@pytest.fixture(autouse=True)
def off():
    yield
    hutch.log(None)


def fail(cache):
    with pytest.raises(ValueError):
        cache.load("k", lambda key: int("x"))


def test_nothing_is_logged_unless_asked_for(cache, caplog):
    caplog.set_level(logging.DEBUG)
    fail(cache)
    assert not caplog.records


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
        cache.maintain()
        assert any("out of service" in record.getMessage() for record in caplog.records)
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
