"""The binding declares what the headers declare: every function, number and field."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import hutch
from hutch import _errors, _many, _options, _settings, _trim
import pytest
from conftest import ROOT
from hutch import _library, _units
from hutch import _structs as s

HEADER = "".join(
    (ROOT / "include" / name).read_text() for name in ("hutch.h", "hutch_tasks.h")
)

STRUCTS = {
    "hutch_error": s.Error,
    "hutch_tier_limits": s.TierLimits,
    "hutch_cache_limits": s.CacheLimits,
    "hutch_object_codec": s.ObjectCodec,
    "hutch_options": s.Options,
    "hutch_entry_info": s.EntryInfo,
    "hutch_put_options": s.PutOptions,
    "hutch_found": s.Found,
    "hutch_put_result": s.PutResult,
    "hutch_load_options": s.LoadOptions,
    "hutch_tier_stats": s.TierStats,
    "hutch_cache_stats": s.CacheStats,
    "hutch_trim_spec": s.TrimSpec,
    "hutch_check_report": s.CheckReport,
    "hutch_copy_report": s.CopyReport,
    "hutch_event": s.Event,
    "hutch_completion": s.Completion,
    "hutch_call": s.Call,
    "hutch_task_options": s.TaskOptions,
    "hutch_queue_options": s.QueueOptions,
    "hutch_log_record": s.LogRecord,
}


def test_every_function_is_in_the_table_once_and_in_order():
    declared = re.findall(r"^HUTCH_API [^;(]*?\b(hutch_\w+)\(", HEADER, re.M)
    assert declared == [name for name, _, _ in _library.FUNCTIONS]


def test_every_parameter_is_in_the_table():
    for name, argtypes, _ in _library.FUNCTIONS:
        (parameters,) = re.findall(rf"^HUTCH_API [^;(]*?\b{name}\(([^;]*)\);", HEADER, re.M)
        # A callback has parentheses of its own.
        parameters = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", parameters)
        count = 0 if parameters == "void" else parameters.count(",") + 1
        assert count == len(argtypes), name


def test_every_struct_of_the_header_is_known():
    assert set(re.findall(r"^} (hutch_\w+);", HEADER, re.M)) == set(STRUCTS)


def test_structs_have_the_layout_that_the_compiler_gives_them(tmp_path: Path):
    lines = []
    expected = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            where = f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", {where});')
            place = getattr(struct, field)
            expected.append(f"{name}.{field} {place.offset} {place.size}")
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stdio.h>\n#include "hutch_tasks.h"\nint main(void) {\n'
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{ROOT / 'include'}", source, "-o", program], check=True)
    assert subprocess.check_output([program], text=True).splitlines() == expected


def _enumerators(prefix: str) -> dict:
    # Statuses of failures are below 0: HUTCH_TIER_DOWN is no tier.
    found = re.findall(rf"^  HUTCH_{prefix}(\w+) = (\d+)", HEADER, re.M)
    return {name: int(number) for name, number in found}


def test_statuses():
    first = HEADER.index("typedef int32_t hutch_status;")
    block = HEADER[first : HEADER.index("};", first)]
    found = re.findall(r"HUTCH_(\w+) = (-?\d+)", block)
    assert {name: int(number) for name, number in found} == {
        status.name: int(status) for status in hutch.Status
    }


@pytest.mark.parametrize("status", hutch.Status)
def test_each_status_has_its_name_and_each_failure_its_class(status):
    assert _library.lib.hutch_status_name(status) == f"HUTCH_{status.name}".encode()
    if status < 0:
        with pytest.raises(hutch.Error) as caught:
            _errors.check(status)
        assert type(caught.value) is not hutch.Error
        assert caught.value.status is status
        assert caught.value.name == f"HUTCH_{status.name}"


def test_a_number_that_is_no_status():
    assert _library.lib.hutch_status_name(12345) == b"HUTCH_UNKNOWN"
    with pytest.raises(hutch.Error) as caught:
        _errors.check(-12345)
    assert caught.value.status == -12345


@pytest.mark.parametrize(
    "prefix, kind",
    [
        ("TIER_", hutch.Tier),
        ("STATE_", hutch.State),
        ("OUTCOME_", hutch.Outcome),
        ("EVENT_", hutch.EventKind),
        ("CAUSE_", hutch.Cause),
    ],
)
def test_enumerations(prefix, kind):
    # Through its members: ALL is an alias, which iteration leaves out.
    members = kind.__members__.items()
    assert _enumerators(prefix) == {name: int(member) for name, member in members}


def test_storage_kinds_and_constants():
    kinds = _enumerators("STORAGE_")
    assert kinds.pop("DEFAULT") == _settings._CHOICES["storage"][None]
    assert {name.lower(): number for name, number in kinds.items()} == {
        name: number for name, number in _settings._CHOICES["storage"].items() if name
    }
    assert "#define HUTCH_FOREVER INT64_MAX" in HEADER and _units.FOREVER == 2**63 - 1
    assert f"#define HUTCH_KEY_MAX {_many._LONGEST_KEY}" in HEADER
    assert _many._AT_ONCE <= int(re.search(r"HUTCH_MANY_MAX (\d+)", HEADER)[1])
    assert "#define HUTCH_NO_LIMIT UINT64_MAX" in HEADER
    assert _units.limit_size(hutch.NO_LIMIT) == 2**64 - 1
    assert "#define HUTCH_MAX_ENTRY_QUARTER (UINT64_MAX - 1)" in HEADER
    assert hutch.MAX_ENTRY_QUARTER == 2**64 - 2


@pytest.mark.parametrize(
    "prefix, table",
    [
        ("POLICY_", _settings._CHOICES["policy"]),
        ("SHARING_", _settings._CHOICES["sharing"]),
        ("WRITE_", _settings.WRITE_POLICIES),
        ("DURABILITY_", _settings._CHOICES["durability"]),
        ("SHRINK_", _settings._SHRINK),
        ("NOTIFY_", _options.NOTIFICATIONS),
    ],
)
def test_choices_by_name(prefix, table):
    choices = {name.lower(): number for name, number in _enumerators(prefix).items()}
    assert choices.pop("default", None) == table.get(None)
    assert choices == {name: number for name, number in table.items() if name}


def test_kinds_of_trims():
    kinds = {name.lower(): number for name, number in _enumerators("TRIM_").items()}
    assert kinds == _trim.KINDS


def test_versions():
    assert re.search(r'HUTCH_VERSION_STRING "(.*)"', HEADER)[1] == hutch.__version__
    number = int(re.search(r"HUTCH_ABI_VERSION (\d+)", HEADER)[1])
    assert _library.lib.hutch_abi_version() == number == _library.ABI_VERSION
    project = (ROOT / "bindings" / "python" / "pyproject.toml").read_text()
    assert f'version = "{hutch.__version__}"' in project


def test_a_handle_of_another_kind_is_refused():
    value = s.ValuePointer()
    for wrong in (value, 1, b"x", ctypes.c_void_p(1)):
        with pytest.raises(ctypes.ArgumentError):
            _library.lib.hutch_flush(wrong)
