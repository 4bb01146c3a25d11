"""Hostile gzip, PNG, idx, .pds, safetensors and tokenizer files: as in hostile_text.py."""

import struct
import zlib

import formats
from hostile_text import Files


def bomb(letter: bytes, megabytes: int) -> bytes:
    """One FASTA record that unpacks to so much, a thousandth of it packed."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [squeezer.compress(b">a\n")]
    packed += [squeezer.compress(letter * (1 << 20)) for _ in range(megabytes)]
    return b"".join(packed) + squeezer.flush()


def gzip_files(good: bytes, megabytes: int) -> Files:
    packed = formats.gzip_member(good)
    return {
        "cut": (packed[:-9], True),
        "cut in its head": (packed[:5], True),
        "mark alone": (b"\x1f\x8b", True),
        "noise": (packed[:10] + bytes(range(256)), True),
        "wrong sum": (packed[:-8] + b"\0" * 8, True),
        "joined": (packed + packed, None),
        "joined with an empty one": (formats.gzip_member(b"") + packed, None),
        "followed by noise": (packed + b"noise", True),
        "followed by zeros": (packed + bytes(512), None),
        "followed by zeros and noise": (packed + bytes(512) + b"noise", True),
        "empty inside": (formats.gzip_member(b""), True),
        "one long record": (bomb(b"M", megabytes), megabytes > 1024 or None),
        "one long gap": (bomb(b"-", min(megabytes, 256)), True),
        "blank lines": (bomb(b"\n", min(megabytes, 256)), True),
    }


def png_files() -> Files:
    end = formats.chunk(b"IEND", b"")
    row = b"\0" + bytes(8)
    good = formats.png(8, 8, row * 8)

    def head(*fields: int) -> bytes:
        return formats.png_head(*fields) + good[33:]

    return {
        "wide": (head(2**31 - 1, 1), True),
        "huge": (head(2**31 - 1, 2**31 - 1), True),
        "bomb": (head(16_384, 16_384), True),
        "no pixels": (head(0, 0), True),
        "wrong sum": (good[:40] + bytes([good[40] ^ 1]) + good[41:], True),
        "cut": (good[:-20], True),
        "mark alone": (formats.PNG_MARK, True),
        "no data": (formats.png_head(8, 8) + end, True),
        "short data": (formats.png(8, 8, row * 3), True),
        "long data": (formats.png(8, 8, row * 80), None),
        "unknown filter": (formats.png(8, 8, (b"\x09" + bytes(8)) * 8), True),
        "depth 3": (head(8, 8, 3), True),
        "color 5": (head(8, 8, 8, 5), True),
        "interlaced": (head(8, 8, 8, 0, 1), None),
        "interlace 9": (head(8, 8, 8, 0, 9), True),
        "16 bits": (formats.png(8, 8, (b"\0" + bytes(16)) * 8, depth=16), None),
        "palette missing": (head(8, 8, 8, 3), True),
        "palette short": (
            formats.png_head(8, 8, 8, 3)
            + formats.chunk(b"PLTE", b"rgb")
            + formats.chunk(b"IDAT", good[41:-16])
            + end,
            True,
        ),
        "text bomb": (
            formats.png_head(8, 8) + formats.chunk(b"zTXt", b"a\0\0" + bytes(99)) + good[33:],
            None,
        ),
        "length of a chunk": (good[:33] + b"\xff\xff\xff\xff" + good[37:], True),
        "other size": (formats.png(9, 8, (b"\0" + bytes(9)) * 8), True),
        "ppm too long": (b"P6 99999999999999999999 1 255\n", True),
        "ppm with ten digits": (b"P6 8 8 2550000000\n" + bytes(192), True),
        "ppm too much": (b"P5 8 8 255\n" + bytes(65), True),
        "ppm negative": (b"P6 -8 8 255\n" + bytes(192), True),
        "ppm short": (b"P6 8 8 255\nab", True),
        "ppm header alone": (b"P6", True),
        "ppm comment": (b"P6 #" + b"#" * 1_000_000, True),
    }


def idx_files() -> Files:
    top = 2**32 - 1
    return {
        "empty": (b"", True),
        "mark alone": (b"\0\0\x08\x03", True),
        "none": (formats.idx((0, 8, 8), b""), True),
        "no rows": (formats.idx((1, 0, 8), b""), True),
        "overflow": (formats.idx((top, top, top), b""), True),
        "overflow to little": (formats.idx((2**31, 2**31, 4), bytes(64)), True),
        "short": (formats.idx((2, 8, 8), bytes(99)), True),
        "long": (formats.idx((2, 8, 8), bytes(199)), True),
        "floats": (struct.pack(">HBB3I", 0, 13, 3, 1, 8, 8) + bytes(256), True),
        "200 dimensions": (struct.pack(">HBB", 0, 8, 200) + bytes(900), True),
        "packed": (formats.gzip_member(formats.idx((2, 8, 8), bytes(128))), None),
    }


def pds_files(good: bytes) -> Files:
    header = formats.pds_header()
    most = 2**63

    def counts(*values: int) -> bytes:
        return good[:-64] + formats.pds_footer(header, values, b"", b"")

    return {
        "empty": (b"", True),
        "mark alone": (formats.PDS_MARK, True),
        "header alone": (header, True),
        "cut": (good[:-1], True),
        "longer": (good + b"\0", True),
        "many sequences": (counts(most, 8, 40, 48), True),
        "many tokens": (counts(1, most, 40, 48), True),
        "most tokens": (counts(1, 2 * most - 1, 40, 48), True),
        "index beyond": (counts(1, 8, most, 48), True),
        "checksums beyond": (counts(1, 8, 40, 2 * most - 8), True),
        "index in the header": (counts(1, 8, 0, 8), True),
        "nothing": (counts(0, 0, 32, 32), True),
        "newer": (formats.pds([b"\4\5"], version=2), True),
        "other letters": (formats.pds([b"\4\5"], vocabulary=26), True),
        "tokens outside": (formats.pds([b"\4\xff"]), True),
        "special tokens": (formats.pds([b"\0\1\2"]), True),
        "empty sequence": (formats.pds([b"", b"\4"]), True),
        "wrong sum": (good[:33] + bytes([good[33] ^ 1]) + good[34:], True),
        "zeros": (bytes(4096), True),
    }


def safetensors_files(good: bytes) -> Files:
    """In place of a run's weights, with a manifest that fits."""
    (size,) = struct.unpack("<Q", good[:8])
    header, data = good[8 : 8 + size], good[8 + size :]

    def text(old: bytes, new: bytes) -> bytes:
        return formats.safetensors(header.replace(old, new, 1), data)

    return {
        "empty": (b"", True),
        "length beyond": (b"\xff" * 8 + good[8:], True),
        "length 2^63": (struct.pack("<Q", 2**63) + good[8:], True),
        "length 0": (bytes(8) + good[8:], True),
        "deep": (formats.safetensors(b'{"a":' * 100_000), True),
        "deep list": (formats.safetensors(b'{"a":{"shape":' + b"[" * 100_000), True),
        "other dtype": (text(b'"F32"', b'"I32"'), True),
        "unknown dtype": (text(b'"F32"', b'"X99"'), True),
        "negative shape": (text(b'"shape":[', b'"shape":[-1,'), True),
        "huge shape": (text(b'"shape":[', b'"shape":[9223372036854775807,'), True),
        "overlap": (text(b'"data_offsets":[0,', b'"data_offsets":[4,'), True),
        "no tensors": (formats.safetensors({}), True),
        "cut": (good[:-4], True),
        "longer": (good + bytes(4), True),
        "NaN": (formats.safetensors(header, b"\0\0\xc0\x7f" + data[4:]), True),
        "infinite": (formats.safetensors(header, data[:-4] + b"\0\0\x80\x7f"), True),
        "all ones": (formats.safetensors(header, b"\xff" * len(data)), True),
    }


def tokenizer_files(good: bytes) -> Files:
    """In place of a SentencePiece model: protocol buffers."""
    return {
        "empty": (b"", True),
        "text": (b"a text\n" * 100, True),
        "zeros": (bytes(4096), True),
        "noise": (bytes(range(256)) * 99, True),
        "cut": (good[: len(good) // 2], True),
        "cut by one": (good[:-1], True),
        "long field": (b"\x0a\xff\xff\xff\xff\x0f" + good, True),
        "deep groups": (b"\x0b" * 100_000, True),
        "one piece": (b"\x0a\x03\x0a\x01a", True),
        "no pieces": (good[good.rfind(b"\x12") :], True),
        "equal pieces": (good + b"\x0a\x0a\x0a\x03abc\x15\0\0\0\0" * 2, None),
    }
