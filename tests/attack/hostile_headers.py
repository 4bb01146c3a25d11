"""safetensors files with random faults in their headers, and what the Python package lets pass that
this tree's reader refuses."""

import json
import math
import random
import re
import struct
from typing import Any

from hostile_text import mutated

# Bits of one number.
DTYPES = {
    **{"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8},
    **{"U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8},
    **{"F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}


def good_header(draw: random.Random) -> tuple[str, int]:
    """Tensors side by side, named in any order, and the size of their bytes."""
    members = []
    end = 0
    for i in range(draw.choice((0, 1, 1, 2, 3, 5))):
        dtype = draw.choice(list(DTYPES))
        shape = [draw.choice((0, 1, 2, 3, 8)) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
        if math.prod(shape) * DTYPES[dtype] % 8:
            shape.append(4)
        begin, end = end, end + math.prod(shape) * DTYPES[dtype] // 8
        fields = [f'"dtype":"{dtype}"', f'"shape":{shape}', f'"data_offsets":{[begin, end]}']
        draw.shuffle(fields)
        members.append(f'"t{i}":{{{",".join(fields)}}}')
    if draw.random() < 0.4:
        members.append('"__metadata__":{"format":"pt","x":"\u00fc\\n"}')
    draw.shuffle(members)
    return "{" + ",".join(members).replace(" ", "") + "}", end


STRING, LIST, OBJECT = r'"[^"]*"', r"\[[^][]*\]", r"\{[^{}]*\}"
PARTS = (
    *(r"\d+", r"\d+", r"\d+", STRING, LIST, OBJECT, r"[][{},:]"),
    *(rf"{STRING}:{value}" for value in (STRING, LIST, LIST, OBJECT)),
)
ODD = (
    *map(str, (0, 1, -1, 65, 2**31, 2**61, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30)),
    *("2.0", "2e0", "-0", "0.0", "1e999", "01", "+1", "NaN", "null", "true", "", "'a'", "/**/0"),
    *('"\\ud800"', '"\\u0041"', '"\\x41"', '"\x01"', '"\0"', '"', '""', '"\ufeff"'),
    f'"{"x" * 300}"',
    *('"F31"', '"f32"', '"t0"', '"__metadata__"', *(f'"{name}"' for name in DTYPES)),
    *("[]", "[0]", "[[0]]", "[0,0]", "[0,1]", "[0,0,0]", str([1] * 65), f"[0,{2**63},{2**62}]"),
    *("{}", '{"U8":null}', '["U8",[0],[0,0]]'),
    '"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}',
    *('"x":1', '"__metadata__":null', '"__metadata__":{}', '"__metadata__":{"a":1}'),
)


def changed(text: str, draw: random.Random) -> str:
    """One part of a header is another one, away, twice or elsewhere."""
    found = list(re.finditer(draw.choice(PARTS), text))
    if not found:
        return draw.choice(ODD)
    first, second = sorted((draw.choice(found), draw.choice(found)), key=re.Match.start)
    part, before, after = first[0], text[: first.start()], text[first.end() :]
    match draw.randrange(7):
        case 0 | 1:
            return before + draw.choice(ODD) + after
        case 2 if part.isdigit():
            return before + str(int(part) + draw.choice((-1, 1, 4))) + after
        case 3:
            return before.removesuffix(",") + after
        case 4:
            return f"{before}{part},{part}{after}"
        case 5:
            return f"{before}{part}{draw.choice((' ', chr(9), ',' + draw.choice(ODD)))}{after}"
    if first is second or first.end() > second.start():
        return text
    between = text[first.end() : second.start()]
    return before + second[0] + between + part + text[second.end() :]


def hostile_file(seed: int) -> bytes:
    draw = random.Random(seed)
    header, size = good_header(draw)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        header = changed(header, draw)
    text = header.encode()
    kind = draw.randrange(16)
    if kind == 0:
        text = mutated(text, draw)
    elif kind == 1:
        text = draw.choice((b" ", b"\n", b"\xef\xbb\xbf", b"\0", b"[")) + text
    elif kind <= 4:
        text += draw.choice((b" ", b"\t\n", b"\0", b"}", b"{}", b" " * 7, b","))
    length = len(text)
    if kind == 5:
        length += draw.choice((-1, 1, 8, -length, -length - 1, 10**8, 2**62))
    elif kind == 6:
        size = max(0, size + draw.choice((-1, 1, 8)))
    file = struct.pack("<Q", length % 2**64) + text + bytes(size)
    return file[: draw.randrange(len(file))] if kind == 7 else file


class Pairs(list[tuple[str, Any]]):
    """The members of an object that was read."""


def tensor_passes_by(fields: Any) -> str:
    if not isinstance(fields, Pairs):
        return "a tensor that is no object"
    names = dict(fields)
    if set(names) != {"dtype", "shape", "data_offsets"}:
        return "a field of no known name"
    if not isinstance(names["dtype"], str):
        return "a dtype that is no string"
    shape = names["shape"]
    bits = DTYPES[names["dtype"]]
    for side in shape:
        bits *= side or 1
    if bits >= 2**63:
        return "an empty shape beyond all memory"
    return "more than 64 dimensions" if len(shape) > 64 else ""


def passes_by(file: bytes) -> str:
    """Why this tree refuses a file that the package takes: what the format's description rules out
    ("{" first, names once), accidents of how the package reads JSON, and sizes beyond all memory.
    Empty: for nothing."""
    (length,) = struct.unpack("<Q", file[:8])
    text = file[8 : 8 + length]
    if not text.startswith(b"{"):
        return "space before the header"
    doubled = []

    def pairs(members: list[tuple[str, Any]]) -> Pairs:
        doubled.extend(members[len(dict(members)) :])
        return Pairs(members)

    header = json.loads(text, object_pairs_hook=pairs)
    if doubled:
        return "a name twice"
    for name, value in header:
        if name == "__metadata__":
            if not isinstance(value, Pairs):
                return "metadata that is no object"
        elif reason := tensor_passes_by(value):
            return reason
    return ""
