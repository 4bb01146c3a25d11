#!/usr/bin/env python3
"""Runs clang-tidy over the library's sources, and not again over what has not changed.

Nearly all of the time goes into torch's headers, so sources of one folder are checked together, as
one unit that includes them.

usage: tidy.py BUILD_FOLDER
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UNIT_SIZE = 12
# At the beginning of a line: a function, a constant, a type.
LOCAL_NAME = re.compile(
    r"^(?:struct|class|enum class|(?:[\w:<>&*,]+ )+\**&?)\s*(\w+)", re.MULTILINE
)
ALIAS = re.compile(r"^using (\w+) =", re.MULTILINE)
CONSTANT = re.compile(r"^constexpr (?:[\w:<>&*,]+ )+(\w+)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def clang_command(command: str) -> list[str]:
    """The compiler's command without what only g++ has: its precompiled header, its omp.h."""
    words = shlex.split(command)
    words = words[next(i for i, word in enumerate(words) if word.endswith("c++")) :]
    kept, skip = [], False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
        elif word == "-include" and "cmake_pch" in following:
            skip = True
        elif word not in ("-Winvalid-pch", "-fpch-preprocess", "-fopenmp"):
            kept.append(word)
    return kept


def unit_command(first: Path, unit: Path, commands: dict[Path, dict[str, Any]]) -> list[str]:
    """The command of a unit's first source, for the unit."""
    return [str(unit) if word == str(first) else word for word in commands[first]["arguments"]]


def our_files(source: Path, seen: set[Path] | None = None) -> set[Path]:
    """`source` and all of our headers that it includes, directly or not."""
    seen = set() if seen is None else seen
    seen.add(source)
    for name in INCLUDE.findall(source.read_text(encoding="utf-8")):
        for header in (ROOT / "src" / name, ROOT / name, source.parent / name):
            if header.is_file() and header not in seen:
                our_files(header, seen)
    return seen


def content_key(source: Path, command: list[str], tool: str) -> str:
    digest = hashlib.sha256(json.dumps([command, tool]).encode())
    for path in [ROOT / ".clang-tidy", *sorted(our_files(source))]:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def local_names(source: Path) -> set[str]:
    """Names that `source` keeps to itself, and that no other source of its unit may have too."""
    text = source.read_text(encoding="utf-8")
    inside = "".join(part.split("}  // namespace\n")[0] for part in text.split("namespace {\n")[1:])
    return {
        *LOCAL_NAME.findall(inside),
        *ALIAS.findall(text),
        *CONSTANT.findall(text),
    }


def make_units(sources: list[Path], commands: dict[Path, dict[str, Any]]) -> list[list[Path]]:
    """Sources of a folder and an instruction set in few units without clashing names."""
    units: list[tuple[tuple[Path, frozenset[str]], set[str], list[Path]]] = []
    for source in sources:
        names = local_names(source)
        arguments = commands[source]["arguments"]
        kind = source.parent, frozenset(word for word in arguments if word.startswith("-m"))
        for other, taken, members in units:
            if other == kind and len(members) < UNIT_SIZE and not taken & names:
                taken |= names
                members.append(source)
                break
        else:
            units.append((kind, names, [source]))
    return [members for _, _, members in units]


def write_unit(number: int, members: list[Path], database: Path) -> Path:
    unit = database / f"unit_{number}.cpp"
    unit.write_text("".join(f'#include "{source}"  // NOLINT\n' for source in members))
    return unit


def check(unit: Path, database: Path) -> str:
    """The complaints about one unit; empty when there are none."""
    result = subprocess.run(
        ["clang-tidy", "--quiet", "-p", database, unit],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    tool = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True)
    database, passed = build / "tidy", build / "tidy" / "passed"
    passed.mkdir(parents=True, exist_ok=True)

    entries, pending = [], {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if ROOT / "src" not in source.parents:  # tests, and the precompiled header in the build
            continue
        if source.suffix == ".cu":  # nvcc's own language: scripts/nvcc.py
            continue
        arguments = clang_command(entry["command"])
        entries.append({**entry, "arguments": arguments})
        del entries[-1]["command"]
        key = content_key(source, arguments, tool.stdout)
        if not (passed / key).exists():
            pending[source] = key

    commands = {Path(entry["file"]): entry for entry in entries}
    units = make_units(list(pending), commands)
    files = [write_unit(number, members, database) for number, members in enumerate(units)]
    unit_entries = [
        {
            **commands[members[0]],
            "file": str(file),
            "arguments": unit_command(members[0], file, commands),
        }
        for file, members in zip(files, units, strict=True)
    ]
    (database / "compile_commands.json").write_text(json.dumps(unit_entries))

    failures = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = pool.map(lambda file: check(file, database), files)
        for number, (members, text) in enumerate(zip(units, complaints, strict=True), start=1):
            names = ", ".join(str(source.relative_to(ROOT / "src/performer")) for source in members)
            print(f"[{number}/{len(units)}] {names}", flush=True)
            if text:
                print(text, flush=True)
                failures += 1
            for source in members if not text else ():
                (passed / pending[source]).touch()
    print(
        f"tidy: {failures} of {len(units)} units with complaints, {len(pending)} files checked anew"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
