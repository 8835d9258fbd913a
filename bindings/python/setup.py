"""Builds the package, with the library inside if there is one to be had.

libhutch comes from the first of these that is there:

1. the file that the environment variable HUTCH_LIBRARY names;
2. build/libhutch.so of the checkout that this folder is part of;
3. the system, where its loader looks: then the package uses that one, and has none inside.

The accelerator, hutch._fast, is compiled if there is a C compiler with Python.h: one file for
CPython 3.9 and newer. A wheel with either inside is for one platform, and is tagged so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1] if len(HERE.parents) > 1 else HERE
IS_CHECKOUT = (CHECKOUT / "include" / "hutch.h").is_file()
# Those of a source distribution are within it.
HEADERS = [HERE / "src" / "include"]
if IS_CHECKOUT:
    HEADERS = [CHECKOUT / "include", CHECKOUT / "bindings" / "c"]
SONAME = "libhutch.so.0"

REMEDY = f"""
hutch needs its library, {SONAME}, and there is none here. Do one of these, then try again:
  - in a checkout: scripts/build, which makes build/libhutch.so (it needs Swift and CMake);
  - install the library so that the system's loader finds it (see ldconfig);
  - set HUTCH_LIBRARY to the path of a libhutch.so.
"""


def library_inside() -> Path | None:
    """The library to put into the package; None: the system has it. SystemExit: there is none."""
    chosen = os.environ.get("HUTCH_LIBRARY")
    if chosen:
        path = Path(chosen)
        if not path.is_file():
            raise SystemExit(f"HUTCH_LIBRARY is {chosen}, which is no file")
        return path.resolve()
    if IS_CHECKOUT and (CHECKOUT / "build" / "libhutch.so").is_file():
        return (CHECKOUT / "build" / "libhutch.so").resolve()
    try:
        ctypes.CDLL(SONAME)
    except OSError:
        raise SystemExit(REMEDY) from None
    return None


class BuildPy(build_py):
    """The modules, and the library, stripped."""

    def run(self) -> None:
        # First: nothing is installed that could not be imported.
        library = None if self.editable_mode else library_inside()
        super().run()
        target = Path(self.build_lib, "hutch", "libhutch.so")
        target.unlink(missing_ok=True)
        if library is None:
            return
        self.mkpath(str(target.parent))
        shutil.copyfile(library, target)
        target.chmod(0o755)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        inside = Path(self.build_lib, "hutch", "libhutch.so")
        return super().get_outputs(include_bytecode) + ([str(inside)] if inside.exists() else [])


class BinaryDistribution(Distribution):
    """Has something in it that is for one platform."""

    def has_ext_modules(self) -> bool:
        return True


class BdistWheel(bdist_wheel):
    """For CPython's stable ABI, or without the accelerator for any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        build = self.get_finalized_command("build_ext")
        if any(Path(path).is_file() for path in build.get_outputs()):
            return "cp39", "abi3", platform
        return "py3", "none", platform


class Sdist(sdist):
    """With the headers, which are elsewhere in the checkout."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir, "src", "include")
        self.mkpath(str(target))
        for folder in HEADERS:
            for header in folder.glob("*.h"):
                shutil.copy(header, target)


SOURCES = sorted(path.name for path in (HERE / "src").glob("*.c"))

setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel, "sdist": Sdist},
    ext_modules=[
        Extension(
            "hutch._fast",
            [f"src/{name}" for name in SOURCES],
            depends=["src/fast.h", *(str(each) for path in HEADERS for each in path.glob("*.h"))],
            include_dirs=list(map(str, HEADERS)),
            extra_compile_args=["-std=c11", "-O2", "-g0", "-fno-plt", "-fvisibility=hidden"],
            extra_link_args=["-Wl,-s"],
            py_limited_api=True,
            optional=True,
        )
    ],
)
