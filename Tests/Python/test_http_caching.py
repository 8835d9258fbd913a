"""What a session of hutch.http stores, and what it answers from that."""

from __future__ import annotations

import hutch
import pytest
from http_servers import origin, server  # noqa: F401, which skips this module without the library
from hutch import http


@pytest.fixture
def session():
    with hutch.Cache() as cache, http.Session(timeout=30, cache=cache) as made:
        yield made


def test_a_fresh_immutable_response_is_not_validated(session, origin):
    url, tell, asked = origin
    tell("py_immutable", "200 OK\nCache-Control: max-age=1000, immutable\nETag: \"1\"\n\none")
    session.get(url("py_immutable"))
    assert session.get(url("py_immutable"), cache_mode="validate").text == "one"
    assert asked("py_immutable") == 1
    session.get(url("py_immutable"), cache_mode="reload")
    assert asked("py_immutable") == 2


def test_a_range_is_stored_and_answers(session, origin):
    url, tell, asked = origin
    tell("py_range", "206 Part\nContent-Range: bytes 2-5/10\nETag: \"1\"\n"
         "Cache-Control: max-age=1000\n\n2345")
    for given, text in (("bytes=2-5", "2345"), ("bytes=2-5", "2345"), ("bytes=-7", None)):
        response = session.get(url("py_range"), headers={"Range": given})
        assert response.status_code == 206 and (text is None or response.text == text)
    assert asked("py_range") == 2


def test_a_body_of_an_unknown_coding_is_given_as_it_came(session, origin):
    url, tell, asked = origin
    tell("py_coding", "200 OK\nCache-Control: max-age=1000\nContent-Encoding: rot13\n\nobql")
    for from_cache in (False, True):
        response = session.get(url("py_coding"))
        assert (response.content, response.from_cache) == (b"obql", from_cache)
        assert response.headers["content-encoding"] == "rot13"
    assert asked("py_coding") == 1


def test_the_cache_of_a_cdn_obeys_its_own_field(origin):
    url, tell, asked = origin
    tell("py_cdn", "200 OK\nCache-Control: no-store\nCDN-Cache-Control: max-age=1000\n\none")
    for options, expected in (({"cdn_cache": True}, True), ({"shared_cache": True}, False),
                              ({}, False)):
        with hutch.Cache() as cache, http.Session(cache=cache, **options) as session:
            session.get(url("py_cdn"))
            assert session.get(url("py_cdn")).from_cache is expected
    with pytest.raises(http.InvalidRequest):
        http.Session(cdn_cache=True)
