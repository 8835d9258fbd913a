"""Responses that are wrong in any way, for the fuzzer of fuzz.c. The same seed makes the same
bytes."""

import random

DATES = ["Mon, 18 Jan 2027 08:00:00 GMT", "Monday, 18-Jan-27 08:00:00 GMT",
         "Mon Jan 18 08:00:00 2027", "Fri, 15 Jan 2027 08:00:00 GMT", "0", "-1", "",
         "Mon, 99 Foo 9999 99:99:99 GMT", "Mon, 18 Jan 99999999 08:00:00 GMT",
         "Thu, 01 Jan 0001 00:00:00 GMT", "now"]
NUMBERS = ["0", "1", "10", "100", "4", "-1", "1.5", "", '"10"', "9223372036854775807",
           "18446744073709551616", "9" * 60, "0x10", "10 20", "10,20", "١"]
TAGS = ['"1"', 'W/"1"', "1", '"', '"a", "b"', "W/", '"\xff"', '"' + "x" * 3000 + '"', "*", ""]
NAMES = ["X-Kind", "x-kind", "*", "X-Kind, *", "Accept-Encoding", "Cookie", "bad name", ",,", "",
         "X-Kind " * 50, ", ".join(f"X-{n}" for n in range(300))]
DIRECTIVES = ["max-age", "s-maxage", "no-store", "no-cache", "private", "public", "immutable",
              "must-revalidate", "stale-if-error", "stale-while-revalidate", "must-understand",
              "MAX-AGE", "x", '"max-age"', "=", "no-cache=\"ETag\"", "private=\"a", "max-age=1;"]
CODES = ["200 OK", "200", "204 No Content", "206 Partial Content", "304 Not Modified", "404 None",
         "500 No", "301 Moved", "302 Found", "401 No", "407 No", "416 No", "100 Continue",
         "103 Early", "000 Zero", "999 Odd", "20 Short", "2000 Long", "-20 No", "xyz", ""]


def directive(dice):
    name = dice.choice(DIRECTIVES)
    return f"{name}={dice.choice(NUMBERS)}" if dice.random() < 0.5 else name


def header(dice, length):
    kind = dice.randrange(16)
    if kind < 3:
        directives = [directive(dice) for _ in range(dice.randrange(1, 4))]
        return "Cache-Control: " + ", ".join(directives)
    if kind == 3:
        return dice.choice(["Expires", "Date", "Last-Modified"]) + ": " + dice.choice(DATES)
    if kind == 4:
        return "ETag: " + dice.choice(TAGS)
    if kind == 5:
        return "Age: " + dice.choice(NUMBERS)
    if kind == 6:
        return "Vary: " + dice.choice(NAMES)
    if kind == 7:
        return "Set-Cookie: " + dice.choice(
            ["a=b", "a", "=", "a=b; Max-Age=" + dice.choice(NUMBERS), "a=\x00b", "a=" + "y" * 5000,
             "__Host-a=b; Path=x"])
    if kind == 8:
        return "Content-Length: " + dice.choice(NUMBERS + [str(length)] * 5)
    if kind == 9:
        return "Content-Range: " + dice.choice(
            ["bytes 0-3/4", "bytes 2-1/4", "bytes */4", "x 0-3/4", "bytes 0-3/*",
             "bytes 0-" + "9" * 30 + "/4"])
    if kind == 10:
        return "Transfer-Encoding: " + dice.choice(["chunked", "gzip", "chunked, chunked", "x", ""])
    if kind == 11:
        return "Content-Encoding: " + dice.choice(["gzip", "br", "identity", "x", "gzip, gzip"])
    if kind == 12:
        return dice.choice(["Location", "Content-Location"]) + ": " + dice.choice(
            ["/echo", "", "//", "http://", "http://[", "ftp://a/", "/\x00", "/%zz", "/a b",
             "http://a:99999999/", "?" * 5000])
    if kind == 13:
        return dice.choice(["X-Folded: a\r\n b", " first", "\tX: y", "X-Nul: a\x00b", ":", "X",
                            "X-Cr: a\rInjected: 1", "X-Lf: a\nInjected: 1", "X : y", "é: ü"])
    if kind == 14:
        return dice.choice(["Connection: close, ETag", "Connection: keep-alive", "Upgrade: h2c",
                            "WWW-Authenticate: Digest realm=\"", "Proxy-Authenticate: Basic",
                            "WWW-Authenticate: Basic realm=" + "z" * 2000,
                            "Content-Type: text/plain; charset=\"", "Pragma: no-cache"])
    return "".join(chr(dice.randrange(256)) for _ in range(dice.randrange(40)))


def chunked(dice, body):
    text = bytearray()
    while body:
        size = dice.randrange(1, len(body) + 1)
        said = dice.choice([f"{size:x}"] * 12
                           + ["-1", "zz", "f" * 20, f"{size:x};" + "e" * 300, ""])
        text += said.encode() + b"\r\n" + body[:size] + dice.choice([b"\r\n"] * 12 + [b"", b"\n"])
        body = body[size:]
    return bytes(text) + dice.choice([b"0\r\n\r\n"] * 4 + [
        b"0\r\nX-Trailer: late\r\n\r\n", b"0\r\nHTTP/1.1 200 OK\r\n\r\n", b"0\r\n", b""])


def response(seed):
    """The bytes of a response, after which the connection ends."""
    dice = random.Random(seed)
    body = bytes(dice.randrange(256) for _ in range(dice.choice([0, 4, 4, 60, 5000])))
    code = dice.choice(["200 OK"] * 30 + CODES)
    version = dice.choice(["HTTP/1.1"] * 20
                          + ["HTTP/1.0", "HTTP/0.9", "HTTP/2", "HTTP/1.99", "X/1"])
    if dice.random() < 0.1:
        code = "206 Partial Content"
    lines = [f"{version} {code}"]
    if code.startswith("206"):
        last = len(body) - 1
        size = dice.choice([last + 9, "*"])
        lines += [f"Content-Range: bytes {dice.choice([0, 0, 2])}-{last}/{size}",
                  f"ETag: {dice.choice(TAGS)}"]
    if dice.random() < 0.5:
        lines.append("Cache-Control: max-age=100")
    lines += [header(dice, len(body)) for _ in range(dice.randrange(7))]
    framing = dice.random()
    if framing < 0.5:
        lines.insert(dice.randrange(1, len(lines) + 1), f"Content-Length: {len(body)}")
    elif framing < 0.8:
        lines.append("Transfer-Encoding: chunked")
        body = chunked(dice, body)
    end = dice.choice(["\r\n"] * 9 + ["\n"])
    if dice.random() < 0.1:
        lines.insert(0, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n")
    text = bytearray(end.join([*lines, "", ""]).encode("latin-1", "replace") + body)
    if dice.random() < 0.4:
        for _ in range(dice.choice([1, 1, 2, 8])):
            place = dice.randrange(len(text))
            change = dice.randrange(5)
            if change == 0:
                text[place] = dice.choice([0, 9, 10, 13, 32, 34, 44, 58, 127, 255])
            elif change == 1:
                text[place:place] = bytes([dice.randrange(256)]) * dice.choice([1, 1, 2, 3000])
            elif change == 2:
                del text[place:place + dice.choice([1, 2, 20])]
            elif change == 3:
                text[place:place] = text[dice.randrange(len(text)):][:dice.randrange(1, 60)]
            else:
                text[place] ^= 1 << dice.randrange(8)
            if not text:
                break
    if dice.random() < 0.1:
        del text[dice.randrange(len(text) + 1):]
    return bytes(text)
