"""What a cubin holds: the machine code of every kernel, read from its ELF sections."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

NO_BITS = 8  # a section without contents, such as shared memory


@dataclass
class Section:
    name: str
    kind: int
    size: int
    contents: bytes


def read_sections(cubin: Path) -> list[Section]:
    """The sections of a 64-bit ELF file."""
    data = cubin.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

    def header(index: int) -> tuple[int, int, int, int]:
        name, kind, _, _, offset, size = struct.unpack_from(
            "<IIQQQQ", data, table + index * entry_size
        )
        return name, kind, offset, size

    names = header(names_index)[2]
    sections = []
    for name, kind, offset, size in map(header, range(count)):
        begin = names + name
        text = data[begin : data.index(b"\0", begin)].decode()
        contents = b"" if kind == NO_BITS else data[offset : offset + size]
        sections.append(Section(text, kind, size, contents))
    return sections


def text_bytes(cubin: Path) -> int:
    """Bytes of machine code."""
    return sum(section.size for section in read_sections(cubin) if section.name.startswith(".text"))


def kernel_codes(cubin: Path) -> dict[str, str]:
    """Kernel -> hash of its instructions, constants, relocations and shared memory.

    Names and line numbers take no part: a kernel that was only renamed keeps its hash.
    """
    sections = read_sections(cubin)
    kernels = [s.name.removeprefix(".text.") for s in sections if s.name.startswith(".text.")]
    parts: dict[str, list[str]] = {kernel: [] for kernel in kernels}
    for section in sections:
        # .text.KERNEL, .nv.constant3.KERNEL, .nv.shared.KERNEL, .rela.text.KERNEL, ...
        kernel = next((k for k in kernels if section.name.endswith("." + k)), None)
        prefix = section.name.removesuffix("." + kernel) if kernel else ""
        if kernel is None or not prefix.startswith((".text", ".nv.constant", ".nv.shared", ".rel")):
            continue
        contents = section.contents
        if prefix.startswith(".rel"):  # offsets and kinds, without the numbers of symbols
            width = 24 if prefix.startswith(".rela") else 16
            contents = b"".join(
                contents[at : at + 12] + contents[at + 16 : at + width]
                for at in range(0, len(contents), width)
            )
        digest = hashlib.sha256(contents).hexdigest()
        parts[kernel].append(f"{prefix} {section.size} {digest}")
    return {
        kernel: hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
        for kernel, lines in parts.items()
    }
