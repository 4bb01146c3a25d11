#!/usr/bin/env python3
"""Checks that no library we load beside torch exports a symbol that torch's libraries have too.

The dynamic loader binds equal names to one definition, whatever their types: a 32-byte variable of
one library then lies in the 4 bytes of another. So the rule has no exceptions for weak symbols or
templates: what both sides need is a library that torch itself loads (libstdc++, libgomp), or hidden
(cmake/exports.map). Two copies of one library, such as two OpenMP runtimes, are refused as well.

usage: check_symbols.py BUILD_FOLDER | FILE...
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

# Made by the linker in each file, and never looked up across files.
LINKER = {"_init", "_fini", "_edata", "_end", "__bss_start", "__data_start", "data_start", "_start"}
NEEDED = re.compile(r"^\s*(\S+) => (\S+) \(0x", re.MULTILINE)
MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
STEM = re.compile(
    r"^(lib.+?)(?:-[0-9a-f]{6,}|-[\d.]+)?\.so"
)  # libgomp-a34b3233.so.1 is libgomp too


class Collision(NamedTuple):
    symbol: str
    ours: Path
    our_size: int
    theirs: Path
    their_size: int

    def __str__(self) -> str:
        return (
            f"{self.symbol}: {self.our_size} bytes in {self.ours}, "
            f"{self.their_size} bytes in {self.theirs}"
        )


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded_by(file: Path) -> set[Path]:
    """`file` and all libraries that the loader takes for it, directly or not."""
    text = output_of("ldd", file)
    if missing := MISSING.findall(text):
        raise SystemExit(f"symbols: {file}: not found: {', '.join(missing)}")
    return {file.resolve(), *(Path(path).resolve() for _, path in NEEDED.findall(text))}


def loaded_by_torch(folder: Path) -> set[Path]:
    """What a Python process with torch has loaded; `folder` holds libc10.so."""
    libraries = loaded_by(folder / "libtorch.so")
    binding = folder / "libtorch_python.so"
    return libraries | loaded_by(binding) if binding.exists() else libraries


def exported(file: Path) -> dict[str, int]:
    """Symbols that `file` defines for others, with their sizes. Versions do not count."""
    symbols = {}
    for line in output_of("nm", "-D", "--defined-only", "--format=posix", file).splitlines():
        name, kind, *numbers = line.split()
        if kind != "A" and name not in LINKER:  # A: the name of a version
            symbols[name.split("@")[0]] = int(numbers[1], 16) if len(numbers) > 1 else 0
    return symbols


def find_collisions(ours: set[Path], theirs: set[Path]) -> list[Collision]:
    owner = {name: (file, size) for file in theirs for name, size in exported(file).items()}
    return [
        Collision(name, file, size, *owner[name])
        for file in sorted(ours)
        for name, size in sorted(exported(file).items())
        if name in owner
    ]


def find_copies(libraries: set[Path]) -> list[list[Path]]:
    """Libraries of one name that are different files."""
    by_stem: defaultdict[str, list[Path]] = defaultdict(list)
    for library in sorted(libraries):
        if stem := STEM.match(library.name):
            by_stem[stem[1]].append(library)
    return [files for files in by_stem.values() if len(files) > 1]


def check(file: Path) -> tuple[list[str], int]:
    """What is wrong with `file` and what it loads, and how many libraries were compared."""
    loaded = loaded_by(file)
    torch = next((path.parent for path in loaded if path.name == "libc10.so"), None)
    if torch is None:
        raise SystemExit(f"symbols: {file} does not load torch: there is nothing to compare with")
    theirs = loaded_by_torch(torch)
    ours = loaded - theirs
    problems = [str(collision) for collision in find_collisions(ours, theirs)]
    problems += [f"loaded twice: {' and '.join(map(str, c))}" for c in find_copies(ours | theirs)]
    return problems, len(ours)


def main() -> int:
    files = [Path(argument) for argument in sys.argv[1:]]
    if len(files) == 1 and files[0].is_dir():
        files = [files[0] / name for name in ("libperformer.so", "performer")]
    if not files:
        raise SystemExit(__doc__)
    failed = False
    for file in files:
        problems, count = check(file)
        failed |= bool(problems)
        for problem in problems:
            print(f"symbols: {file}: {problem}")
        if not problems:
            print(f"symbols: {file}: {count} libraries share no symbol with torch's")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
