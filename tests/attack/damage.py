"""Ways to damage a file: each takes a path and a random generator and says what it did."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path


def flip(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return grow(path, draw)
    at, bit = draw.randrange(len(data)), draw.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at} flipped"


def cut(path: Path, draw: random.Random) -> str:
    data = path.read_bytes()
    keep = draw.randrange(len(data)) if data else 0
    path.write_bytes(data[:keep])
    return f"cut to {keep} of {len(data)} bytes"


def empty(path: Path, draw: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def grow(path: Path, draw: random.Random) -> str:
    more = draw.randbytes(draw.choice((1, 8, 5000)))
    with path.open("ab") as file:
        file.write(more)
    return f"{len(more)} random bytes appended"


def zero(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return grow(path, draw)
    begin = draw.randrange(len(data))
    end = min(len(data), begin + draw.choice((1, 16, 4096)))
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    return f"bytes {begin} to {end} zeroed"


def noise(path: Path, draw: random.Random) -> str:
    size = path.stat().st_size
    path.write_bytes(draw.randbytes(size))
    return "all bytes random"


def swap(path: Path, draw: random.Random) -> str:
    others = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
    if not others:
        return cut(path, draw)
    other = draw.choice(others)
    shutil.copyfile(other, path)
    return f"replaced by {other.name}"


def folder(path: Path, draw: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "replaced by a folder"


def pipe(path: Path, draw: random.Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return "replaced by a pipe that nobody writes"


def loop(path: Path, draw: random.Random) -> str:
    path.unlink()
    path.symlink_to(path.name)
    return "replaced by a link to itself"


def remove(path: Path, draw: random.Random) -> str:
    path.unlink()
    return "removed"


Damage = Callable[[Path, random.Random], str]
# Bits and lengths are what disks and networks damage: more often than what only people do.
DAMAGES: tuple[Damage, ...] = (
    *(flip, cut, zero, flip, cut, zero, flip),
    *(empty, grow, noise, swap, folder, pipe, loop, remove),
)
