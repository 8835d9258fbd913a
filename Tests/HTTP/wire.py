#!/usr/bin/env python3
"""A server that does what the path of a request says, byte by byte: wire.py PORT.

It stalls, cuts, lies about lengths, dribbles, redirects in circles. Each connection has a thread;
each behaviour is bounded in bytes and in time.
"""

import hashlib
import random
import socket
import sys
import threading
import time
from urllib.parse import parse_qsl, urlsplit

import mutate

PATIENCE = 20  # seconds that a stalled connection is kept


class Request:
    def __init__(self, file):
        self.line = file.readline(65536).decode("latin-1").strip()
        self.headers = []
        while True:
            line = file.readline(65536).decode("latin-1").strip("\r\n")
            if not line:
                break
            name, _, value = line.partition(":")
            self.headers.append((name.strip().lower(), value.strip()))
        self.body = b""
        if not self.line:
            return
        self.method, self.target, _ = self.line.split(" ", 2)
        url = urlsplit(self.target)
        self.path, self.query = url.path, dict(parse_qsl(url.query))
        if self.get("transfer-encoding") == "chunked":
            while True:
                size = int(file.readline(100), 16)
                self.body += file.read(size)
                file.readline(10)
                if size == 0:
                    break
        else:
            self.body = file.read(int(self.get("content-length") or 0))

    def get(self, name):
        return next((value for key, value in self.headers if key == name), None)


def respond(send, body=b"", code="200 OK", *headers):
    head = [f"HTTP/1.1 {code}", f"Content-Length: {len(body)}", *headers]
    send(("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + body)


def echo(request, send):
    lines = [request.line] + [f"{name}: {value}" for name, value in request.headers]
    respond(send, "\n".join(lines).encode("latin-1") + b"\n\n" + request.body, "200 OK",
            "Content-Type: text/plain", "X-Two: 1", "x-two: 2", "X-Empty:")


def folded(request, send):
    respond(send, b"", "200 OK", "X-Folded: a\r\n  b")


BASIC = "Basic YW5uOnMzY3JldA=="  # ann:s3cret
DIGEST = 'Digest realm="safe", qop="auth", nonce="0815", algorithm=MD5'


def has_digest(request, header):
    """RFC 7616 with MD5 and qop=auth; the user is "ann", the password "s3cret"."""
    given = request.get(header) or ""
    if not given.startswith("Digest "):
        return False
    parts = {key.strip(): value.strip(' "') for key, value in
             (part.split("=", 1) for part in given[7:].split(","))}
    def md5(text):
        return hashlib.md5(text.encode()).hexdigest()
    first = md5("ann:safe:s3cret")
    second = md5(f"{request.method}:{parts['uri']}")
    wanted = md5(f"{first}:{parts['nonce']}:{parts['nc']}:{parts['cnonce']}:auth:{second}")
    return parts["response"] == wanted and parts["username"] == "ann"


def digest_of(request, send):
    if has_digest(request, "authorization"):
        return respond(send, b"welcome " + request.body)
    respond(send, b"no", "401 Unauthorized",
            "WWW-Authenticate: " + request.query.get("before", "") + DIGEST)


def basic(request, send):
    if request.get("authorization") == BASIC:
        return respond(send, b"welcome " + request.body)
    respond(send, b"no", "401 Unauthorized", "WWW-Authenticate: " + request.query.get("before", "")
            + 'Basic realm="safe"' + request.query.get("behind", ""))


def redirect(request, send):
    respond(send, b"moved", f"{request.query.get('code', '302')} Moved",
            f"Location: {request.query['to']}")


def count_down(request, send):
    left = int(request.query["n"])
    respond(send, b"", "302 Found", f"Location: /steps?n={left - 1}" if left else "Location: /echo")


def circle(request, send):
    respond(send, b"again", "302 Found", "Location: /circle")


def endless_redirect(request, send):
    send(b"HTTP/1.1 302 Found\r\nLocation: /echo\r\nConnection: close\r\n\r\n")
    for _ in range(1000):
        send(b"x" * 65536)


def stall(request, send):
    time.sleep(PATIENCE)


def stall_within(request, send):
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    time.sleep(PATIENCE)


def cut(request, send):
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10)
    return False


def cut_chunk(request, send):
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nshort")
    return False


def cut_headers(request, send):
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Con")
    return False


def bad_brotli(request, send):
    respond(send, b"\xd9!\xfc\x9b\xddt=o" * 8, "200 OK", "Content-Encoding: br")


def controls(request, send):
    respond(send, b"", "200 OK", "X-Cr: a\rInjected: 1", "X-Other: \x01b\x7f\tc")


def redirect_trailers(request, send):
    send(b"HTTP/1.1 302 Found\r\nLocation: /echo\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"5\r\nmoved\r\n0\r\nHTTP/1.1 200 OK\r\nX-Trailer: late\r\n\r\n")


def shut(request, send):
    return False


def lie(request, send):
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0123456789HTTP/1.1 500 No\r\n\r\n")
    return False


def garbage(request, send):
    send(b"\x00\xff\x01 not HTTP at all\r\n\r\n")
    return False


def bad_chunk(request, send):
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\nbody\r\n0\r\n\r\n")
    return False


def bad_length(request, send):
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nbody")
    return False


def length(request, send):
    send(f"HTTP/1.1 200 OK\r\nContent-Length: {request.query['of']}\r\n\r\nbody".encode())
    return False


def two_lengths(request, send):
    first, second = request.query["of"].split("-")
    send(f"HTTP/1.1 200 OK\r\nContent-Length: {first}\r\nContent-Length: {second}\r\n"
         "\r\nbody!!".encode()[:-2])
    return False


def bad_name(request, send):
    send(b"HTTP/1.1 200 OK\r\nbad name: 1\r\nContent-Length: 0\r\n\r\n")
    return False


def dribble(request, send):
    """Byte by byte, in chunks of one byte."""
    for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Slow: yes\r\n\r\n":
        send(bytes([byte]))
    for byte in b"dribbled":
        send(b"1\r\n")
        send(bytes([byte]) + b"\r\n")
    send(b"0\r\nX-Trailer: late\r\n\r\n")


def many_headers(request, send):
    send(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000)
                                          for n in range(int(request.query["n"])))
         + b"Content-Length: 0\r\n\r\n")


def short_headers(request, send):
    """As many short lines as there is room for, or `n` of them. The response may be stored."""
    line = request.query["line"].encode() + b"\r\n"
    send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=100\r\nContent-Length: 4\r\nX-First: 1\r\n"
         + line * int(request.query.get("n", 250000 // len(line))) + b"\r\nbody")


def events(request, send):
    """A first one, and none that follows."""
    send(f"HTTP/1.1 200 OK\r\nContent-Type: {request.query['type']}\r\n\r\nfirst".encode())
    time.sleep(PATIENCE)
    return False


def large(request, send):
    left = int(request.query["n"])
    if "confirmed" in request.query and request.get("if-none-match"):
        return send(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
    more = b'Cache-Control: max-age=100\r\nETag: "1"\r\n' if "stored" in request.query else b""
    send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (left, more))
    piece = b"z" * 65536
    while left > 0:
        send(piece[:left])
        left -= len(piece)


def endless(request, send):
    """No length at all, and 64 MB."""
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(1024):
        send(b"e" * 65536)
    return False


def early(request, send):
    send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    respond(send, b"final", "200 OK", "X-Final: yes")


def wait(request, send):
    time.sleep(int(request.query["ms"]) / 1000)
    respond(send, request.query.get("say", "").encode())


def cookie(request, send):
    respond(send, (request.get("cookie") or "none").encode(), "200 OK",
            f"Set-Cookie: {request.query['set']}; Path=/; Max-Age=3600"
            if "set" in request.query else "X-No: cookie")


def random_bytes(request, send):
    """Headers and a body in which some bytes are any."""
    dice = random.Random(int(request.query["seed"]))
    text = bytearray(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: b\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
    for _ in range(dice.randrange(1, 5)):
        text[dice.randrange(9, len(text))] = dice.choice([0, 10, 13, 58, 255, dice.randrange(256)])
    send(bytes(text))
    return False


def mutated(request, send):
    send(mutate.response(request.query["seed"]))
    return False


def flood(request, send):
    """Without an end: bytes of one kind, 64 MB of them."""
    head = b"HTTP/1.1 200 OK\r\n"
    chunk = head + b"Transfer-Encoding: chunked\r\n\r\n"
    first, more = {
        "headers": (head, b"X-More: " + b"h" * 80 + b"\r\n"),
        "line": (head + b"X-Long: ", b"l" * 90),
        "interim": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        "chunks": (chunk, b"1\r\nc\r\n"),
        "extension": (chunk + b"1;", b"e" * 90),
        "trailers": (chunk + b"1\r\nc\r\n0\r\n", b"X-Trailer: " + b"t" * 80 + b"\r\n"),
        "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /echo\r\n\r\n", b"r" * 90),
        "validation": (b"HTTP/1.1 304 Not Modified\r\n", b"X-More: " + b"v" * 80 + b"\r\n"),
        "status": (b"", b"s" * 90),
    }[request.query["of"]]
    send(first)
    more *= 65536 // len(more)
    for _ in range(1024):
        send(more)
    return False


def say(request, send):
    """The body of a request, as the type and with the code that the query says."""
    body = request.body or bytes.fromhex(request.query.get("hex", ""))
    respond(send, body, f"{request.query.get('code', '200')} As Told",
            *([f"Content-Type: {request.query['type']}"] if "type" in request.query else []),
            *(["Cache-Control: max-age=100", "Vary: X-Kind", 'ETag: "1"']
              if "control" in request.query else []))


def empty(request, send):
    """A body without a byte, whose headers do not say so."""
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


RESOURCES = {}  # key: what /set said of it, and the last Range and If-Range


def set_resource(request, send):
    RESOURCES[request.query["key"]] = dict(request.query, asked="")
    respond(send)


def asked(request, send):
    respond(send, RESOURCES[request.query["key"]]["asked"].encode())


def part(request, send):
    """200,000 bytes that follow from the letter. /set says: tag, date (Last-Modified), cut (bytes
    after which the connection ends) and stall, and mode: how a Range is answered."""
    resource = RESOURCES[request.query["key"]]
    whole = (resource.get("letter", "a").encode() * 9 + b"\n") * 20000
    resource["asked"] += f"{request.get('range')} {request.get('if-range')}\n"
    mode = resource.get("mode", "right")
    validator = []
    if "tag" in resource:
        validator.append(f"ETag: {resource['tag']}")
    if "date" in resource:
        validator += [f"Last-Modified: {resource['date']}", "Date: Mon, 23 Nov 2026 12:00:00 GMT"]
    current = resource.get("tag") or resource.get("date")
    code, body = "200 OK", whole
    if mode == "503":
        return respond(send, b"later", "503 Service Unavailable")
    if request.get("range") and mode == "416":
        return respond(send, b"no", "416 Range Not Satisfiable", "Content-Range: bytes */7")
    if request.get("range") and mode != "ignore" and (
            request.get("if-range") == current or mode != "right"):
        start = int(request.get("range")[6:-1]) + (mode == "wrong_start")
        size = len(whole) + (mode == "wrong_size")
        code, body = "206 Partial Content", whole[start:]
        validator.append(f"Content-Range: bytes {start}-{len(whole) - 1}/{size}")
        if mode == "wrong_tag":
            validator[0] = 'ETag: "other"'
        if mode == "no_range":
            validator.pop()
    head = [f"HTTP/1.1 {code}", f"Content-Length: {len(body)}", *validator]
    body = body[:int(resource.get("cut", len(body)))]
    send(("\r\n".join(head) + "\r\n\r\n").encode() + body)
    if "stall" in resource:
        time.sleep(PATIENCE)
    return "cut" not in resource


BEHAVIOURS = {
    "/echo": echo, "/folded": folded, "/basic": basic, "/digest": digest_of, "/redirect": redirect,
    "/steps": count_down, "/circle": circle, "/endless_redirect": endless_redirect,
    "/stall": stall, "/stall_within": stall_within, "/cut": cut, "/cut_chunk": cut_chunk,
    "/cut_headers": cut_headers,
    "/controls": controls, "/bad_brotli": bad_brotli, "/redirect_trailers": redirect_trailers,
    "/shut": shut, "/lie": lie, "/garbage": garbage, "/bad_chunk": bad_chunk,
    "/bad_length": bad_length, "/bad_name": bad_name, "/dribble": dribble,
    "/length": length, "/two_lengths": two_lengths, "/many_headers": many_headers, "/large": large,
    "/short_headers": short_headers, "/events": events,
    "/endless": endless, "/early": early,
    "/wait": wait, "/cookie": cookie, "/random": random_bytes, "/mutated": mutated, "/flood": flood,
    "/say": say, "/empty": empty, "/set": set_resource, "/asked": asked, "/part": part,
}


def pump(source, target):
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def tunnel(request, connection):
    """The tunnel of a proxy: to localhost for a user with basic, to 127.0.0.1 with digest, and
    to no other host. False: the connection has been used for one."""
    host, _, port = request.target.rpartition(":")
    name = "proxy-authorization"
    allowed = {"localhost": request.get(name) == BASIC, "127.0.0.1": has_digest(request, name)}
    if host not in allowed:
        return respond(connection.sendall, b"no such host", "404 Not Found")
    if not allowed[host]:
        asks = DIGEST if host == "127.0.0.1" else 'Basic realm="safe"'
        return respond(connection.sendall, b"no", "407 No", "Proxy-Authenticate: " + asks)
    with socket.create_connection(("127.0.0.1", int(port))) as server:
        # The name of a header that no server may send.
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Proxy: 1\r\nX Proxy: 1\r\n\r\n")
        threading.Thread(target=pump, args=(server, connection), daemon=True).start()
        pump(connection, server)
    return False


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = connection.makefile("rb")
    try:
        while True:
            request = Request(file)
            if not request.line:
                break
            if request.method == "CONNECT":
                if tunnel(request, connection) is False:
                    break
                continue
            behaviour = BEHAVIOURS.get(request.path)
            if behaviour is None:
                respond(connection.sendall, b"no such path", "404 Not Found",
                        "Content-Type: text/plain")
            elif behaviour(request, connection.sendall) is False:
                break
    except (OSError, ValueError):
        pass
    finally:
        file.close()
        connection.close()


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True, backlog=2048)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
