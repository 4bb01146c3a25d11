#!/usr/bin/env python3
"""Compiles every CUDA kernel with nvcc, for each architecture, and checks what ptxas says of it.

Needs no GPU and no torch. The portable kernels for sm_80 and newer, Hopper's for sm_90a. Fails
where the compiler fails, where a Hopper or decode kernel spills registers, where wgmma is
serialised, where the machine code that is shipped outgrows its budget, and where a source is in no
list of CMake. What has not changed is not compiled again, whichever clone compiled it.

BUILD_FOLDER/nvcc.json tells every kernel's registers, memory and a hash of its machine code.
Against such a report of another tree, --same-as finds the kernels whose machine code changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cubin import kernel_codes, text_bytes
from result_cache import ResultCache, key_of
from tidy import our_files

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src/performer/kernels/cuda"
# Architectures by list of CMake: what cmake/cuda.cmake ships, and what else must compile.
SHIPPED: dict[str, tuple[str, ...]] = {"PORTABLE": ("80", "90"), "HOPPER": ("90a",)}
OTHERS: dict[str, tuple[str, ...]] = {"PORTABLE": ("100", "120"), "HOPPER": ()}
MACHINE_CODE_LIMIT = 20_000_000
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Isrc", "-Xptxas", "-v"]
JOBS = 2
PARSERS = ("nvcc.py", "cubin.py")

LIST = re.compile(r"performer_cuda_kernels\((PORTABLE|HOPPER)\s([^)]*)\)")
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(.*)")
SHARED = re.compile(r"(\d+) bytes smem")
# Functions split or wgmma serialised: the products no longer overlap.
SERIALISED = re.compile(r"C7508|C7510|C7512|wgmma.*seriali[sz]|seriali[sz].*wgmma", re.IGNORECASE)


@dataclass
class Kernel:
    name: str  # as the linker knows it
    registers: int = 0
    shared: int = 0  # bytes, without what a launch adds
    spilled: int = 0  # bytes stored
    code: str = ""  # hash of its machine code


@dataclass
class Unit:
    """One source for one architecture."""

    source: str
    architecture: str
    cpu_seconds: float = 0
    machine_code: int = 0  # bytes
    kernels: list[Kernel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # ptxas lines that must not be there
    error: str = ""

    @property
    def hopper(self) -> bool:
        return self.architecture in SHIPPED["HOPPER"]

    @property
    def shipped(self) -> bool:
        return any(self.architecture in architectures for architectures in SHIPPED.values())

    def problems(self) -> list[str]:
        where = f"{self.source} for sm_{self.architecture}"
        if self.error:
            return [f"{where} does not compile:\n{self.error}"]
        found = [f"{where}: {note}" for note in self.notes]
        if self.hopper or Path(self.source).parent.name == "decode":
            found += [
                f"{where}: {demangle(kernel.name)} spills {kernel.spilled} bytes"
                for kernel in self.kernels
                if kernel.spilled
            ]
        return found


def demangle(name: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None:
        return name
    command = [tool, "--no-params", name]
    full = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return re.sub(r"\(anonymous namespace\)::|performer::kernels::(cuda::)?|^void ", "", full)


def parse(unit: Unit, log: str) -> None:
    """Fills in what ptxas -v reported."""
    for line in log.splitlines():
        if match := ENTRY.search(line):
            unit.kernels.append(Kernel(match[1]))
        elif SERIALISED.search(line):
            unit.notes.append(line.strip())
        elif not unit.kernels:
            continue
        elif match := SPILLS.search(line):
            unit.kernels[-1].spilled = max(unit.kernels[-1].spilled, int(match[2]))
        elif match := USED.search(line):
            unit.kernels[-1].registers = int(match[1])
            shared = SHARED.search(match[2])
            unit.kernels[-1].shared = int(shared[1]) if shared else 0


def compile_unit(unit: Unit, command: list[str]) -> Unit:
    with tempfile.TemporaryDirectory(prefix="performer-nvcc-") as folder:
        cubin, log = Path(folder) / "unit.cubin", Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "-o", str(cubin), unit.source],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        unit.cpu_seconds = usage.ru_utime + usage.ru_stime
        text = log.read_text(errors="replace")
        if process.returncode != 0:
            unit.error = text
            return unit
        parse(unit, text)
        unit.machine_code = text_bytes(cubin)
        codes = kernel_codes(cubin)
        for kernel in unit.kernels:
            kernel.code = codes[kernel.name]
    return unit


def cached(unit: Unit, cache: ResultCache, tool: str) -> tuple[Unit, bool]:
    """The unit compiled, now or, with equal content, before; whether before."""
    number = f"arch=compute_{unit.architecture},code=sm_{unit.architecture}"
    command = ["nvcc", *FLAGS, "-gencode", number, "-cubin"]
    # Results of other versions of the scripts are of no use.
    scripts = [Path(__file__).with_name(name).read_text() for name in PARSERS]
    parts = [json.dumps(command), tool, *scripts]
    for path in sorted(our_files(ROOT / unit.source)):
        parts += [str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")]
    key = key_of(*parts)
    if (found := cache.get(key)) is not None:
        fields = json.loads(found)
        kernels = [Kernel(**kernel) for kernel in fields.pop("kernels")]
        return Unit(**fields, kernels=kernels), True
    compile_unit(unit, command)
    if not unit.error:
        cache.put(key, json.dumps(asdict(unit)))
    return unit, False


def listed_sources() -> dict[str, list[Path]]:
    """The sources by the list of CMake that names them; an error where one is in none."""
    text = (KERNELS / "CMakeLists.txt").read_text()
    lists = {kind: [KERNELS / name for name in names.split()] for kind, names in LIST.findall(text)}
    listed = {source for sources in lists.values() for source in sources}
    if different := listed ^ set(KERNELS.rglob("*.cu")):
        names = ", ".join(str(source.relative_to(KERNELS)) for source in sorted(different))
        raise SystemExit(f"nvcc: {KERNELS / 'CMakeLists.txt'} and its folder differ in: {names}")
    return lists


def all_units(*, others: bool) -> list[Unit]:
    units = []
    for kind, sources in listed_sources().items():
        architectures = SHIPPED[kind] + (OTHERS[kind] if others else ())
        for source in sorted(sources):
            units += [Unit(str(source.relative_to(ROOT)), number) for number in architectures]
    return units


def compile_all(units: list[Unit], tool: str) -> tuple[list[Unit], list[Unit]]:
    """All units with their results, and those that were compiled now."""
    cache = ResultCache("nvcc")
    results, fresh = [], []
    with ThreadPoolExecutor(JOBS) as pool:
        for unit, before in pool.map(lambda unit: cached(unit, cache, tool), units):
            results.append(unit)
            if before:
                continue
            fresh.append(unit)
            what = f"{unit.source} sm_{unit.architecture}"
            print(f"nvcc: {what} {unit.cpu_seconds:.1f} s", flush=True)
    return results, fresh


def changed_kernels(units: list[Unit], report: Path) -> list[str]:
    """Kernels of `units` with machine code that the report has not, for the same architecture."""
    known = Counter(
        (unit["architecture"], kernel["code"])
        for unit in json.loads(report.read_text())
        for kernel in unit["kernels"]
    )
    changed = []
    for unit in units:
        for kernel in unit.kernels:
            code = unit.architecture, kernel.code
            if known[code] == 0:
                changed.append(f"{demangle(kernel.name)} of sm_{unit.architecture}")
            known[code] -= 1
    return changed


def print_table(units: list[Unit]) -> None:
    print(f"{'sm':5} {'registers':>9} {'shared':>7} {'spilled':>7}  kernel")
    for unit in units:
        short = unit.source.removeprefix("src/performer/kernels/cuda/")
        print(
            f"{short}, sm_{unit.architecture}: {unit.machine_code:,} bytes of machine code, ",
            end="",
        )
        print(f"{unit.cpu_seconds:.1f} CPU seconds")
        for kernel in unit.kernels:
            print(
                f"{unit.architecture:5} {kernel.registers:9} {kernel.shared:7} "
                f"{kernel.spilled:7}  {demangle(kernel.name)}"
            )


def find_problems(units: list[Unit], shipped: int) -> list[str]:
    problems = [problem for unit in units for problem in unit.problems()]
    if shipped > MACHINE_CODE_LIMIT:
        problems.append(f"{shipped:,} bytes of machine code, more than {MACHINE_CODE_LIMIT:,}")
    return problems


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compiles every CUDA kernel and checks it.")
    parser.add_argument("build", type=Path, nargs="?", default=ROOT / "build")
    parser.add_argument("--all", action="store_true", help="also the architectures not shipped")
    parser.add_argument("--same-as", type=Path, metavar="REPORT", help="nvcc.json of another tree")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc: SKIPPED, no nvcc on PATH: the CUDA kernels were not compiled")
        return 0
    tool = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    units, fresh = compile_all(all_units(others=options.all), tool)
    print_table(units)
    options.build.mkdir(parents=True, exist_ok=True)
    report = json.dumps([asdict(unit) for unit in units], indent=1)
    (options.build / "nvcc.json").write_text(report + "\n")

    shipped = sum(unit.machine_code for unit in units if unit.shipped)
    problems = find_problems(units, shipped)
    if options.same_as:
        changed = changed_kernels(units, options.same_as)
        problems += [f"other machine code than before: {kernel}" for kernel in changed]
        count = sum(len(unit.kernels) for unit in units)
        print(f"nvcc: {count - len(changed)} of {count} kernels have the machine code of before")
    print("\n".join(problems))
    print(
        f"nvcc: {len(problems)} problems in {len(units)} units, {len(fresh)} compiled anew, "
        f"{sum(unit.cpu_seconds for unit in fresh):.0f} CPU seconds now, "
        f"{sum(unit.cpu_seconds for unit in units):.0f} in all, "
        f"{shipped:,} bytes of machine code shipped"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
