"""Whole files of the formats that the program reads, byte by byte: what an attacker would write."""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
VOCABULARY = 29  # of proteins: 4 special tokens, 25 letters
FIRST_LETTER = 4
PNG_MARK = b"\x89PNG\r\n\x1a\n"
PDS_MARK, PDS_END = b"PERFPDS\n", b"PDS-END\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG, with its checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_head(width: int, height: int, depth: int = 8, color: int = 0, interlace: int = 0) -> bytes:
    values = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return PNG_MARK + chunk(b"IHDR", values)


def png(width: int, height: int, rows: bytes, depth: int = 8, color: int = 0) -> bytes:
    """rows: for each row a byte of its filter, then its pixels."""
    head = png_head(width, height, depth, color)
    return head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def idx(shape: Sequence[int], values: bytes) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values


def gzip_member(data: bytes) -> bytes:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return squeezer.compress(data) + squeezer.flush()


def aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def pds_header(version: int = 1, vocabulary: int = VOCABULARY) -> bytes:
    start = PDS_MARK + struct.pack("<II12x", version, vocabulary)
    return start + struct.pack("<I", zlib.crc32(start))


def pds_footer(header: bytes, counts: Sequence[int], index: bytes, checksums: bytes) -> bytes:
    """counts: sequences, tokens, where the index and where the checksums begin."""
    crcs = header[-4:] + struct.pack("<II8x", zlib.crc32(index), zlib.crc32(checksums))
    end = PDS_END + struct.pack("<4Q", *counts) + crcs
    return end + struct.pack("<I", zlib.crc32(end))


def pds(sequences: Sequence[bytes], **header_fields: int) -> bytes:
    """Sequences are tokens, less than one block of 64 KiB together."""
    header = pds_header(**header_fields)
    tokens = b"".join(sequences)
    ends = [sum(map(len, sequences[: i + 1])) for i in range(len(sequences))]
    index = struct.pack(f"<{len(ends)}Q", *ends)
    checksums = struct.pack("<I", zlib.crc32(tokens))
    body = aligned(header + tokens)
    counts = len(ends), len(tokens), len(body), len(body) + len(index)
    return body + index + aligned(checksums) + pds_footer(header, counts, index, checksums)


def safetensors(header: dict[str, object] | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def sealed(body: dict[str, object]) -> str:
    """A manifest's text with the hash of itself, as the program writes it."""
    short = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(short.encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}, indent=1) + "\n"


def sealed_pointer(step: int) -> str:
    """`latest` for a checkpoint of this step, with the hash of itself."""
    lines = f"step-{step:09d}\n{'ab' * 32}\n"
    return lines + hashlib.sha256(lines.encode()).hexdigest() + "\n"
