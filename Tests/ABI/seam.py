"""What a folder of Swift declares for the others, and who uses it: for the rule seam."""

import re

# What a line declares, and the first parameter of a function.
MEMBER = re.compile(r"^[ \t]*((?:[@\w]+(?:\([^)\n]*\))?[ \t]+)*)(func|var|let|case|class|struct|enum|"
                    r"typealias|init|subscript)\b[ \t]*([^\s(:<=]*)(?:\(\s*(\w*))?", re.M)
# Names that Swift's own types have too: a use is a call with that parameter.
COMMON = {"count", "end"}


def seen_outside(code, own):
    """What the code declares outside its own types, and not as private: names, and how each is
    called; of what has no name, None. Types outside all braces are for the rule folders."""
    depth, extended = 0, None
    for part in re.split(r"([{}])", code):
        if part in ("{", "}"):
            depth += 1 if part == "{" else -1
            continue
        if depth == 0:
            header = re.search(r"((?:\w+[ \t]+)*)\bextension\s+(\w+)(\s*:)?[^}]*$", part)
            extended = header and header[2] not in own and "private" not in header[1]
            if extended and header[3]:
                yield f"a conformance of {header[2]}", None
        if depth == 0 or depth == 1 and extended:
            for attributes, kind, name, label in MEMBER.findall(part):
                if kind in ("init", "subscript"):
                    yield kind, None
                elif "private" not in attributes and (depth or name not in own):
                    yield name, r"\(\s*" + (rf"{label}\s*:" if label else r"\)")


def uses(code, name, call):
    """Whether the code uses the name, which it may have declared for something of its own."""
    if name not in code:
        return False
    own = re.search(rf"\b(?:func|let|var)\s+{name}\b|\b{name}:\s*[A-Z]", code)
    end = call if name in COMMON else ""
    return bool(re.search((r"\." if own else r"\b") + rf"{name}\b{end}", code))
