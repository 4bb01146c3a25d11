#!/usr/bin/env python3
"""Compiles every CUDA kernel with nvcc, for each architecture, and checks what ptxas says of it.

Needs no GPU and no torch. The portable kernels for sm_80 and newer, Hopper's for sm_90a. Fails
where the compiler fails, where a Hopper or decode kernel spills registers, where wgmma is
serialised, and where the machine code that is shipped outgrows its budget. What has not changed is
not compiled again.

usage: nvcc.py [BUILD_FOLDER]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidy import our_files

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src/performer/kernels/cuda"
PORTABLE = ("80", "90", "100", "120")
HOPPER = ("90a",)
SHIPPED = ("80", "90", "90a")  # cmake/cuda.cmake
MACHINE_CODE_LIMIT = 20_000_000
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT / 'src'}", "-Xptxas", "-v"]
JOBS = 2

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
        return self.architecture in HOPPER

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


def text_bytes(cubin: Path) -> int:
    """The .text sections of a 64-bit ELF file."""
    data = cubin.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

    def section(index: int) -> tuple[int, int, int]:
        name, _, _, _, offset, length = struct.unpack_from("<IIQQQQ", data, table + index * size)
        return name, offset, length

    names = section(names_index)[1]
    sections = [section(index) for index in range(count)]
    return sum(length for name, _, length in sections if data[names + name :].startswith(b".text"))


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
                [*command, "-o", str(cubin), str(ROOT / unit.source)],
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
    return unit


def cached(unit: Unit, store: Path, tool: str) -> tuple[Unit, bool]:
    """The unit compiled, now or, with equal content, before; whether before."""
    number = f"arch=compute_{unit.architecture},code=sm_{unit.architecture}"
    command = ["nvcc", *FLAGS, "-gencode", number, "-cubin"]
    digest = hashlib.sha256(json.dumps([command, tool, parse_version()]).encode())
    for path in sorted(our_files(ROOT / unit.source)):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    entry = store / f"{digest.hexdigest()}.json"
    if entry.exists():
        fields = json.loads(entry.read_text())
        kernels = [Kernel(**kernel) for kernel in fields.pop("kernels")]
        return Unit(**fields, kernels=kernels), True
    compile_unit(unit, command)
    if not unit.error:
        entry.write_text(json.dumps(asdict(unit)))
    return unit, False


def parse_version() -> str:
    """Reports of another version of this file are of no use."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def all_units() -> list[Unit]:
    units = []
    for source in sorted(KERNELS.rglob("*.cu")):
        architectures = HOPPER if "hopper" in source.parts else PORTABLE
        name = str(source.relative_to(ROOT))
        units += [Unit(name, architecture) for architecture in architectures]
    return units


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


def main() -> int:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc: SKIPPED, no nvcc on PATH: the CUDA kernels were not compiled")
        return 0
    store = (Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build") / "nvcc"
    store.mkdir(parents=True, exist_ok=True)
    tool = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    with ThreadPoolExecutor(JOBS) as pool:
        results = []
        for unit, before in pool.map(lambda unit: cached(unit, store, tool), all_units()):
            if not before:
                print(
                    f"nvcc: {unit.source} sm_{unit.architecture} {unit.cpu_seconds:.1f} s",
                    flush=True,
                )
            results.append((unit, before))
    units = [unit for unit, _ in results]
    print_table(units)

    shipped = sum(unit.machine_code for unit in units if unit.architecture in SHIPPED)
    problems = [problem for unit in units for problem in unit.problems()]
    if shipped > MACHINE_CODE_LIMIT:
        problems.append(f"{shipped:,} bytes of machine code, more than {MACHINE_CODE_LIMIT:,}")
    print("\n".join(problems))
    fresh = [unit for unit, before in results if not before]
    print(
        f"nvcc: {len(problems)} problems in {len(units)} units, {len(fresh)} compiled anew, "
        f"{sum(unit.cpu_seconds for unit in fresh):.0f} CPU seconds now, "
        f"{sum(unit.cpu_seconds for unit in units):.0f} in all, "
        f"{shipped:,} bytes of machine code shipped"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
