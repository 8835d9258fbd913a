#!/usr/bin/env python3
"""An origin server for the tests of caching: origin.py PORT.

    PUT /tell/NAME   what /NAME answers: responses with "====" between them, one for each request
                     in turn, the last one for all that follow. Each is a code, header lines, an
                     empty line, a body. "{date+10}" is a date, 10 seconds after the tests' time.
                     The code "close" ends the connection without a response. "hold" before the
                     code waits for /go/NAME; "cut N" before it ends the connection after N bytes of
                     the body. "early" before it sends a response with code 103 first. "zipped"
                     before it sends 100,000 times the body, compressed, and once more after
                     another /go/NAME; that counts as a request.
    GET /count/NAME  how many requests there were for /NAME, and the last one as it came
    GET /go/NAME     lets those go that are held
"""

import re
import socket
import sys
import threading
import zlib
from email.utils import formatdate

from wire import PATIENCE, Request, respond

START = 1_800_000_000  # the time at which the tests' clocks begin


class Resource:
    def __init__(self):
        # Protects what follows, but for `gate`.
        self.lock = threading.Lock()
        self.answers = ["404 Not Found\nCache-Control: no-store\n\nnone"]
        self.count = 0
        self.last = ""
        self.gate = threading.Event()


resources = {}
resources_lock = threading.Lock()


def resource(name):
    with resources_lock:
        return resources.setdefault(name, Resource())


def dated(text):
    return re.sub(r"\{date([+-]\d+)\}",
                  lambda found: formatdate(START + int(found[1]), usegmt=True), text)


def answer(request, send):
    """False: the connection ends."""
    verb, _, name = request.path[1:].partition("/")
    if verb == "tell":
        told = resource(name)
        with told.lock:
            told.answers = request.body.decode().split("\n====\n")
            told.count = 0
            told.gate.clear()
        respond(send)
        return True
    if verb == "count":
        with resource(name).lock:
            respond(send, f"{resource(name).count}\n{resource(name).last}".encode())
        return True
    if verb == "go":
        resource(name).gate.set()
        respond(send)
        return True
    asked = resource(verb)
    with asked.lock:
        text = asked.answers[min(asked.count, len(asked.answers) - 1)]
        asked.count += 1
        asked.last = request.line + "\n" + "".join(
            f"{name}: {value}\n" for name, value in request.headers)
    head, _, body = dated(text).partition("\n\n")
    code, *lines = head.split("\n")
    if code.startswith("hold "):
        asked.gate.wait(PATIENCE)
        code = code[5:]
    if code == "close":
        return False
    if code.startswith("cut "):
        _, size, code = code.split(" ", 2)
        head = [f"HTTP/1.1 {code}", *lines, f"Content-Length: {len(body)}", "", ""]
        send("\r\n".join(head).encode("latin-1") + body[:int(size)].encode("latin-1"))
        return False
    if code.startswith("zipped "):
        asked.gate.clear()
        packer = zlib.compressobj(wbits=31)
        pieces = [packer.compress(body.encode() * 100_000) + packer.flush(zlib.Z_SYNC_FLUSH),
                  packer.compress(body.encode()) + packer.flush()]
        head = [f"HTTP/1.1 {code[7:]}", *lines, "Content-Encoding: gzip",
                f"Content-Length: {len(pieces[0]) + len(pieces[1])}", "", ""]
        send("\r\n".join(head).encode("latin-1") + pieces[0])
        asked.gate.wait(PATIENCE)
        try:
            send(pieces[1])
        finally:
            with asked.lock:
                asked.count += 1
        return True
    if code.startswith("early "):
        send(b"HTTP/1.1 103 Early Hints\r\nCache-Control: max-age=9\r\nX-Early: 1\r\n\r\n")
        code = code[6:]
    if code.startswith("304"):
        send("\r\n".join([f"HTTP/1.1 {code}", *lines, "", ""]).encode("latin-1"))
    elif request.method == "HEAD":
        lines.append(f"Content-Length: {len(body)}")
        send("\r\n".join([f"HTTP/1.1 {code}", *lines, "", ""]).encode("latin-1"))
    else:
        respond(send, body.encode("latin-1"), code, *lines)
    return True


def serve(connection):
    with connection, connection.makefile("rb") as file:
        try:
            while True:
                request = Request(file)
                if not request.line or not answer(request, connection.sendall):
                    return
        except OSError:
            pass


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True, backlog=512)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
