#!/usr/bin/env python3
"""Rules about the project, as tests: rules.py RULE --library libhutch.so [--swift swiftc].

What the library exports and needs, what the header fixes for ever, who may know whom in
Sources/Hutch. Prints what breaks the rule; exit status 0 if nothing does.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from seam import seen_outside, uses

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
HEADERS = [INCLUDE / "hutch.h", INCLUDE / "hutch_tasks.h"]
DL_HEADER = ROOT / "bindings" / "c" / "hutch_dl.h"
LAYOUT = Path(__file__).with_name("layout.txt")
# What a header must compile with, and the library's names. Tests/HTTP/rules.py has others.
SOURCES = ['#include "hutch.h"', '#include "hutch_tasks.h"', '#include "hutch_dl.h"',
           '#define HUTCH_DL_NAMES\n#include "hutch_dl.h"']
LIBRARY = "libhutch.so.0"
NODE = "HUTCH_0"
MAY_NEED = {"libsqlite3.so.0"}
MUST_NEED = "libsqlite3.so.0"

# The oldest systems that we promise have glibc 2.34.
GLIBC = (2, 34)
# It has 598,384 bytes; at most 600,000 are allowed, and 500,000 are wanted.
LARGEST_LIBRARY = 598_500
LONGEST_FILE = {"Sources": 500, "bindings": 500}
TOP_LEVEL = {"Sources", "include", "Tests", "bindings", "docs", "scripts", ".ci", "Package.swift",
             "CMakeLists.txt", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore",
             ".swift-format"}
LONGEST_LINE = {"Sources": 100, "include": 100}

# Each folder of Sources/Hutch may use what is declared in these.
MAY_KNOW = {
    "ABI": {"Cache", "Memory", "Storage", "Tasks", "Model", "System"},
    "Cache": {"Memory", "Storage", "Tasks", "Model", "System"},
    "Memory": {"Model", "System"},
    "Storage": {"Model", "System"},
    "Disk": {"Storage", "Model", "System"},
    "Log": {"Storage", "Model", "System"},
    "Stores": {"Disk", "Log", "Storage", "Model", "System"},
    "Tasks": {"Model", "System"},
    "Model": {"System"},
    "System": set(),
}
# What a folder may name of the public header: plain structs and status codes below the boundary.
MAY_NAME = {
    "ABI": r"\w+",
    "Model": r"hutch_(?:tier_stats|check_report|copy_report)|HUTCH_STATE_\w+",
    "System": r"HUTCH_[A-Z_]+",
}


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def different(what, expected, actual):
    """What is missing of `expected`, and what is in `actual` beside it."""
    problems = [f"{what}: {item} is missing" for item in sorted(set(expected) - set(actual))]
    return problems + [f"{what}: {item} is new" for item in sorted(set(actual) - set(expected))]


# ------------------------------------------------------------------- header


def header_text():
    """The headers without comments and preprocessor lines."""
    whole = "\n".join(header.read_text() for header in HEADERS)
    text = re.sub(r"/\*.*?\*/", " ", whole, flags=re.S)
    return re.sub(r"^#.*$", "", text, flags=re.M)


def declared_functions():
    return re.findall(r"HUTCH_API\b[^;(]*?\b(hutch_\w+)\s*\(", header_text())


def declared_structs():
    """Struct names with the names of their fields, in order."""
    structs = {}
    for body, name in re.findall(
        r"typedef struct hutch_\w+\s*\{(.*?)\}\s*(hutch_\w+);", header_text(), flags=re.S
    ):
        fields = []
        for declaration in filter(None, (line.strip() for line in body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)", declaration)
            name_of = pointer or re.search(r"(\w+)\s*(?:\[\w+\])?$", declaration)
            fields.append(name_of.group(1))
        structs[name] = fields
    return structs


def declared_numbers():
    """Every macro that has a value, but for the version's, and every enumerator."""
    macros = re.findall(r"^#define (HUTCH_(?!VERSION|ABI_VERSION|API|H\b|HTTP_H\b|STR\b|CHECK_VERSION)\w+)",
                        HEADERS[0].read_text(), flags=re.M)
    bodies = re.findall(r"enum\s*\{(.*?)\}", header_text(), flags=re.S)
    return macros + re.findall(r"\b(HUTCH_\w+)", " ".join(bodies))


def compiled(source):
    """What a C program over the header prints."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "print.c")
        file.write_text(
            "#include <stdio.h>\n#include <stddef.h>\n" + f"#include <{HEADERS[-1].name}>\n"
            "int main(void) {\n" + source + "return 0;\n}\n"
        )
        program = Path(folder, "print")
        run("cc", "-std=c11", f"-I{INCLUDE}", "-o", str(program), str(file))
        return run(str(program))


def layout_of_structs():
    lines = []
    for struct, fields in declared_structs().items():
        lines.append(f'printf("struct {struct} size %zu\\n", sizeof({struct}));')
        for field in fields:
            lines.append(
                f'printf("field {struct}.{field} at %zu size %zu\\n", '
                f"offsetof({struct}, {field}), sizeof((({struct} *)0)->{field}));"
            )
    return compiled("\n".join(lines) + "\n").splitlines()


def numbers_of_header():
    names = declared_numbers()
    lines = [f'printf("number {name} %lld\\n", (long long){name});' for name in names]
    return compiled("\n".join(lines) + "\n").splitlines()


def checked_in(*kinds):
    return [line for line in LAYOUT.read_text().splitlines() if line.split(" ")[0] in kinds]


def layout(_):
    """Sizes and offsets are the ones in layout.txt: fields are added at the end, on purpose."""
    return different("layout.txt", checked_in("struct", "field"), layout_of_structs())


def numbers(_):
    """Enumerators and constants have the values in layout.txt, for ever."""
    return different("layout.txt", checked_in("number"), numbers_of_header())


def dl_header(_):
    """hutch_dl.h has every function of the headers, in its table and among its names."""
    text = DL_HEADER.read_text()
    functions = declared_functions()
    table = ["hutch_" + name for name in re.findall(r"\bX\((\w+)\)", text)]
    names = re.findall(r"^#define (hutch_\w+) hutch_dl_table\.(\w+)$", text, flags=re.M)
    problems = different("table", functions, table)
    problems += different("names", functions, [name for name, _ in names])
    problems += [f"{name} is {member}" for name, member in names if name != f"hutch_{member}"]
    return problems


def headers(options):
    """The headers compile alone, without a warning, as C11 and C++17, with gcc and clang."""
    clang = shutil.which("clang") or str(Path(os.path.realpath(options.swift)).parent / "clang")
    problems = []
    for compiler in ("gcc", clang):
        for language, standard in (("c", "c11"), ("c++", "c++17")):
            for source in SOURCES:
                result = subprocess.run(
                    [compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra",
                     "-pedantic", "-Werror", f"-I{INCLUDE}", f"-I{DL_HEADER.parent}",
                     "-fsyntax-only", "-"],
                    input=source + "\n", capture_output=True, text=True,
                )
                if result.returncode != 0:
                    problems.append(f"{compiler} -std={standard}: {source}\n{result.stderr}")
    return problems


# ------------------------------------------------------------------ library


def stripped(options, folder):
    copy = Path(folder, "libhutch.so")
    run("strip", "--strip-all", "-o", str(copy), options.library)
    return copy


def exports(options):
    """The stripped library exports the functions of the header, under its node, and no more."""
    with tempfile.TemporaryDirectory() as folder:
        symbols = run("nm", "-D", "--defined-only", str(stripped(options, folder)))
    exported = [line.split()[-1] for line in symbols.splitlines() if line.split()[-2] != "A"]
    return different("exports", [f"{name}@@{NODE}" for name in declared_functions()], exported)


def dynamic_section(options):
    text = run("readelf", "-dW", options.library)
    return re.findall(r"\((\w+)\)\s+(.*)", text)


def is_of_build(text, options):
    """The path by which a library in the build finds the other one there; an install drops it."""
    return LIBRARY != "libhutch.so.0" and str(Path(options.library).resolve().parent) in text


def dependencies(options):
    """libc, libm, SQLite and the loader, found where the system looks."""
    section = dynamic_section(options)
    needed = {re.search(r"\[(.*)\]", text).group(1) for tag, text in section if tag == "NEEDED"}
    allowed = MAY_NEED | {"libc.so.6", "libm.so.6"}
    allowed |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    problems = [f"needs {name}" for name in sorted(needed - allowed)]
    problems += [f"{tag} {text}" for tag, text in section
                 if tag in ("RPATH", "RUNPATH") and not is_of_build(text, options)]
    return problems + ([] if MUST_NEED in needed else [f"does not need {MUST_NEED}"])


def names(options):
    """Soname and version node, and the flag that keeps the library loaded."""
    section = dynamic_section(options)
    problems = []
    if ("SONAME", f"Library soname: [{LIBRARY}]") not in section:
        problems.append(f"the soname is not {LIBRARY}")
    if not any(tag == "FLAGS_1" and "NODELETE" in text for tag, text in section):
        problems.append("NODELETE is not set")
    versions = run("readelf", "-VW", options.library).partition("Version definition")[2]
    nodes = set(re.findall(r"Name: (\S+)", versions.partition("Version needs")[0]))
    return problems + different("version nodes", {LIBRARY, NODE}, nodes)


def glibc(options):
    """Nothing of a glibc newer than the oldest that is promised."""
    symbols = run("nm", "-D", "--undefined-only", options.library)
    versions = re.findall(r"(\S+)@GLIBC_([\d.]+)", symbols)
    problems = [f"{name} needs glibc {version}" for name, version in versions
                if tuple(int(part) for part in version.split(".")) > GLIBC]
    return problems if versions else ["no symbol of glibc is needed: nm says nothing"]


def size(options):
    """A few hundred kilobytes."""
    with tempfile.TemporaryDirectory() as folder:
        length = stripped(options, folder).stat().st_size
    print(f"stripped: {length} bytes")
    return [] if length < LARGEST_LIBRARY else [f"{length} bytes are too many"]


def place(options):
    """Both functions that hutch.ld names are where it says: a name of another is left out there."""
    sections = run("readelf", "-SW", options.library)
    found = re.search(r"(\d+)\] \.text\.puts .*", sections)
    symbols = run("readelf", "-sW", options.library)
    functions = re.findall(rf"FUNC .* {found.group(1)} (\S+)$", symbols, re.M) if found else []
    if len(functions) != 2:
        return [f".text.puts has {functions}"]
    return [] if found.group(0).split()[-1] == "64" else [f"it lies at {found.group(0)}"]


def inputs(options):
    """A change of a file that the engine imports builds the library again."""
    library = Path(options.library).resolve()
    told = run("ninja", "-C", str(library.parent), "-t", "query", library.name)
    built_of = {line.strip("| ") for line in told.split("outputs:")[0].splitlines()}
    folders = [INCLUDE, ROOT / "Sources" / "CSystem", ROOT / "Sources" / "CSQLite"]
    files = [str(file) for folder in folders for file in sorted(folder.iterdir())
             if file.name != "hutch_http.h"]  # the other library's
    return [f"{file} is no input of {library.name}" for file in files if file not in built_of]


# ------------------------------------------------------------------ sources


def swift_files(folder):
    return sorted((ROOT / "Sources" / "Hutch" / folder).rglob("*.swift"))


def code_of(file):
    """Swift without comments, and without the text of strings (what is interpolated goes too)."""
    token = r'//[^\n]*|/\*.*?\*/|"""(?:\\.|.)*?"""|"(?:\\.|[^"\\\n])*"'
    return re.sub(token, " ", file.read_text(), flags=re.S)


DECLARATION = re.compile(r"\b(?:class|struct|enum|protocol|actor|typealias)\s+([A-Z]\w*)")


def top_level(code):
    """The code outside all braces, where a type is everybody's."""
    depth, kept = 0, []
    for part in re.split(r"([{}])", code):
        if part == "{":
            depth += 1
        elif part == "}":
            depth -= 1
        elif depth == 0:
            kept.append(part)
    return " ".join(kept)


def folders(_):
    """ABI knows Cache, which knows Memory, Storage and Tasks, which know Model and System: never
    back. Disk and Log know Storage, and Stores alone knows them (see `seam`)."""
    codes = {name: {file: code_of(file) for file in swift_files(name)} for name in MAY_KNOW}
    problems = [f"Sources/Hutch/{folder.name} is in no folder's list"
                for folder in (ROOT / "Sources" / "Hutch").iterdir()
                if folder.is_dir() and folder.name not in MAY_KNOW]
    types = {name: set(DECLARATION.findall(" ".join(map(top_level, files.values()))))
             for name, files in codes.items()}
    if not types["System"] or not types["Cache"]:
        return ["no types found: is this the source tree?"]
    for name, allowed in MAY_KNOW.items():
        own = set(DECLARATION.findall(" ".join(codes[name].values())))
        known = own.union(*(types[other] for other in allowed))
        for file, code in codes[name].items():
            words = set(re.findall(r"\b[A-Z]\w*", code)) - known
            for other in MAY_KNOW.keys() - allowed - {name}:
                problems += [f"{file.relative_to(ROOT)} names {word} of {other}"
                             for word in sorted(words & types[other])]
    return problems


# The folders below the seam, and the code that takes their place where the rest is compiled
# without them.
STORES = {"Disk", "Log", "Stores"}
OTHER_STORE = """
func openStorage(
  _ directory: Directory, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage { throw Failure(.unsupported, "there is no store") }
func holdsStorage(_ directory: Directory) throws(Failure) -> Bool { false }
func destroyStorage(_ directory: Directory) throws(Failure) -> Bool { false }
extension Failure { var detail: UnsafePointer<CChar>? { nil } }
"""


def seam(options):
    """All other folders know a store by the protocol alone. By names; HUTCH_LONG: they compile
    without the stores."""
    files = [file for name in MAY_KNOW.keys() - STORES for file in swift_files(name)]
    codes = {file: code_of(file) for file in files}
    stores = [code_of(file) for name in STORES for file in swift_files(name)]
    flat = " ".join(" ".join(stores).split())
    heads = re.findall(r"(?:func|var) .*?(?= \{)", " ".join(OTHER_STORE.split()))
    problems = [f"the stores have no {head}" for head in heads if head not in flat]
    own = set(DECLARATION.findall(flat))
    seam_names = {head.split()[1].split("(")[0].rstrip(":") for head in heads}
    for name, call in (seen for code in stores for seen in seen_outside(code, own)):
        if call is None:
            problems.append(f"a store adds {name} to what is not its own")
        elif name not in seam_names:
            problems += [f"{file.relative_to(ROOT)} uses {name} of a store"
                         for file, code in codes.items() if uses(code, name, call)]
    if problems or not os.environ.get("HUTCH_LONG"):
        return problems
    maps = [ROOT / "include", ROOT / "Sources" / "CSystem"]
    with tempfile.TemporaryDirectory() as folder:
        stub = Path(folder, "OtherStore.swift")
        stub.write_text(OTHER_STORE)
        result = subprocess.run(
            [options.swift, "-typecheck", "-parse-as-library", "-swift-version", "6", "-wmo",
             "-enable-experimental-feature", "Embedded",
             "-enable-experimental-feature", "RawLayout", "-module-name", "hutch",
             *(part for name in maps
               for part in ("-Xcc", f"-fmodule-map-file={name / 'module.modulemap'}")),
             "-I", str(maps[0]), *map(str, files), str(stub)],
            capture_output=True, text=True,
        )
    return [line for line in result.stderr.splitlines() if "error:" in line] or (
        [result.stderr] if result.returncode else [])


def imports(_):
    """SQLite is named in Disk only; of the public header, each folder names what it may."""
    header = set()
    for name in ("hutch.h", "hutch_tasks.h"):
        text = re.sub(r"/\*.*?\*/", " ", (ROOT / "include" / name).read_text(), flags=re.S)
        header |= set(re.findall(r"\b(?:hutch|HUTCH)_\w+", text))
    problems = []
    for name in MAY_KNOW:
        for file in swift_files(name):
            code = code_of(file)
            for word in sorted(header & set(re.findall(r"\w+", code))):
                if not re.fullmatch(MAY_NAME.get(name, ""), word):
                    problems.append(f"{file.relative_to(ROOT)} names {word}")
            if name != "Disk" and re.search(r"\bimport\s+CSQLite\b|\b(sqlite3_|SQLITE_)", code):
                problems.append(f"{file.relative_to(ROOT)} names SQLite")
    return problems


def tracked_files():
    """What git tracks or would, or without git every file outside build and hidden folders."""
    try:
        listed = run("git", "ls-files", "-coz", "--exclude-standard", cwd=ROOT).split("\0")
        files = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        files = [file for file in ROOT.rglob("*")
                 if not any(part.startswith((".", "build", "__pycache__")) for part in file.parts)]
    return [file for file in files if file.is_file()]


def lengths(_):
    """A file for an idea, and lines that fit beside each other on a screen."""
    problems = []
    for file in tracked_files():
        most = LONGEST_FILE.get(file.relative_to(ROOT).parts[0])
        if most is not None:
            count = file.read_bytes().count(b"\n")
            if count > most:
                problems.append(f"{file.relative_to(ROOT)} has {count} lines")
        widest = LONGEST_LINE.get(file.relative_to(ROOT).parts[0])
        if widest is not None:
            problems += [f"{file.relative_to(ROOT)}:{number} has {len(line)} columns"
                         for number, line in enumerate(file.read_text().splitlines(), 1)
                         if len(line) > widest]
    return problems


def paths(_):
    """No file names a place of the sources or of the toolchain (but for this rule)."""
    machines = re.compile(rb"(?<![\w./$}])/(?:" + b"work|opt/swift|root|home|Users" + rb")/")
    problems = []
    for file in tracked_files():
        content = file.read_bytes()
        if b"\0" in content or file == Path(__file__).resolve():
            continue
        problems += [f"{file.relative_to(ROOT)}:{number}: {line.decode(errors='replace'):.120}"
                     for number, line in enumerate(content.split(b"\n"), 1)
                     if machines.search(line)]
    return problems


def tree(_):
    """The top level has what it is to have, and no file is the output of a program."""
    files = tracked_files()
    problems = [f"{name} is not for the top level"
                for name in sorted({file.relative_to(ROOT).parts[0] for file in files} - TOP_LEVEL)]
    return problems + [f"{file.relative_to(ROOT)} is no text"
                       for file in files if b"\0" in file.read_bytes()]


# --------------------------------------------------------------------- main


def update():
    """Writes layout.txt anew, unless something that was there has changed."""
    lines = layout_of_structs() + numbers_of_header()
    kept = checked_in("field", "number") if LAYOUT.exists() else []
    # What is reserved is there to become something.
    gone = [line for line in kept if line not in lines and ".reserved " not in line]
    if gone:
        sys.exit("these are promised and may not change:\n" + "\n".join(gone))
    head = [line for line in LAYOUT.read_text().splitlines() if line.startswith("#")]
    LAYOUT.write_text("\n".join(head + lines) + "\n")


def traps(options):
    """The mistakes that scripts/traps puts back have not lost their place in the sources."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "traps", "--check"],
                          capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


RULES = [exports, dependencies, names, glibc, size, place, inputs, layout, numbers, dl_header,
         headers, folders, seam, imports, lengths, paths, tree, traps]


def main():
    rules = {rule.__name__: rule for rule in RULES}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rule", choices=[*rules, "update"])
    parser.add_argument("--library", help="libhutch.so as it was built")
    parser.add_argument("--swift", default="swiftc", help="the toolchain's swiftc")
    options = parser.parse_args()
    if options.rule == "update":
        return update()
    problems = rules[options.rule](options)
    print("\n".join(problems) if problems else f"{options.rule}: kept")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
