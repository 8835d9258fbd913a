#!/usr/bin/env python3
"""The rules of Tests/ABI/rules.py for libhutch_http: rules.py RULE --library libhutch_http.so."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ABI"))
import rules  # noqa: E402

rules.HEADERS = [rules.INCLUDE / "hutch_http.h"]
rules.LAYOUT = Path(__file__).with_name("layout.txt")
rules.LIBRARY = "libhutch_http.so.0"
rules.NODE = "HUTCH_HTTP_0"
rules.MAY_NEED = {"libhutch.so.0", "libcurl.so.4"}
rules.LARGEST_LIBRARY = 157_200
rules.MUST_NEED = "libcurl.so.4"
rules.SOURCES = ['#include "hutch_http.h"']

if __name__ == "__main__":
    sys.exit(rules.main())
