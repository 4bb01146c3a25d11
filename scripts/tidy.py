#!/usr/bin/env python3
"""Runs clang-tidy over the library's sources, and not again over what has not changed.

Nearly all of the time goes into torch's headers, so sources are checked as they are compiled:
several of a target as one unit.

usage: tidy.py BUILD_FOLDER
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from result_cache import ResultCache, key_of

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
MEMBER = re.compile(r"^#include \"(/[^\"]+)\"", re.MULTILINE)  # of a unit that CMake wrote


@dataclass
class Unit:
    """What the compiler is given at once, and the sources in it."""

    file: Path
    sources: list[Path]
    directory: str
    arguments: list[str]

    @property
    def names(self) -> str:
        return ", ".join(str(source.relative_to(ROOT / "src/performer")) for source in self.sources)


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


def find_units(build: Path) -> list[Unit]:
    """All units of src, by the build's list of commands: no tests, no precompiled header, and no
    CUDA, whose language is nvcc's (scripts/nvcc.py)."""
    units = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = Path(entry["file"])
        if file.suffix == ".cu":
            continue
        text = file.read_text(encoding="utf-8") if file.parent.name == "Unity" else ""
        sources = [Path(name) for name in MEMBER.findall(text)] or [file]
        if ROOT / "src" in sources[0].parents:
            arguments = clang_command(entry["command"])
            units.append(Unit(file, sources, entry["directory"], arguments))
    return units


def our_files(source: Path, seen: set[Path] | None = None) -> set[Path]:
    """`source` and all of our headers that it includes, directly or not."""
    seen = set() if seen is None else seen
    seen.add(source)
    for name in INCLUDE.findall(source.read_text(encoding="utf-8")):
        for header in (ROOT / "src" / name, ROOT / name, source.parent / name):
            if header.is_file() and header not in seen:
                our_files(header, seen)
    return seen


def content_key(unit: Unit, tool: str) -> str:
    """Of all that clang-tidy reads, but for the system's headers; the same in every checkout."""
    words = [word.replace(str(ROOT), "") for word in unit.arguments]
    files = sorted({file for source in unit.sources for file in our_files(source)})
    parts = [ROOT / ".clang-tidy", ROOT / "requirements.txt", *files]
    named = [part for path in parts for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    return key_of(tool, json.dumps(words), *named)


def check(unit: Unit, database: Path) -> str:
    """The complaints about one unit; empty when there are none."""
    result = subprocess.run(
        ["clang-tidy", "--quiet", "-p", database, unit.file],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    tool = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True)
    database = build / "tidy"
    database.mkdir(exist_ok=True)
    passed = ResultCache("tidy")

    units = find_units(build)
    commands = [
        {"file": str(unit.file), "directory": unit.directory, "arguments": unit.arguments}
        for unit in units
    ]
    (database / "compile_commands.json").write_text(json.dumps(commands))
    keys = {unit.file: content_key(unit, tool.stdout) for unit in units}
    pending = [unit for unit in units if passed.get(keys[unit.file]) is None]

    failures = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = pool.map(lambda unit: check(unit, database), pending)
        for number, (unit, text) in enumerate(zip(pending, complaints, strict=True), start=1):
            print(f"[{number}/{len(pending)}] {unit.names}", flush=True)
            if text:
                print(text, flush=True)
                failures += 1
            else:
                passed.put(keys[unit.file], unit.names)
    print(f"tidy: {failures} of {len(pending)} units with complaints, {len(units)} in all")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
