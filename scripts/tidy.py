#!/usr/bin/env python3
"""Runs clang-tidy over the library's sources, and not again over what has not changed.

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

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def clang_command(command: str) -> list[str]:
    """The compiler's command without what only g++ understands: its precompiled header."""
    words = shlex.split(command)
    words = words[next(i for i, word in enumerate(words) if word.endswith("c++")) :]
    kept, skip = [], False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
        elif word == "-include" and "cmake_pch" in following:
            skip = True
        elif word not in ("-Winvalid-pch", "-fpch-preprocess"):
            kept.append(word)
    return kept


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


def check(source: Path, database: Path) -> str:
    """The complaints about one source; empty when there are none."""
    result = subprocess.run(
        ["clang-tidy", "--quiet", "-p", database, source],
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
        arguments = clang_command(entry["command"])
        entries.append({**entry, "arguments": arguments})
        del entries[-1]["command"]
        key = content_key(source, arguments, tool.stdout)
        if not (passed / key).exists():
            pending[source] = key
    (database / "compile_commands.json").write_text(json.dumps(entries))

    failures = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = pool.map(lambda source: check(source, database), pending)
        for number, (source, text) in enumerate(zip(pending, complaints, strict=True), start=1):
            print(f"[{number}/{len(pending)}] {source.relative_to(ROOT)}", flush=True)
            if text:
                print(text, flush=True)
                failures += 1
            else:
                (passed / pending[source]).touch()
    print(f"tidy: {failures} of {len(entries)} files with complaints, {len(pending)} checked anew")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
