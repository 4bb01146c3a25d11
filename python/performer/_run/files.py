"""Files of a checkpoint, which come from others: nothing is believed, and nothing is read that is
longer than such a file can be."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

MOST_DEPTH = 32
_CHUNK = 1 << 20
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]', re.DOTALL)  # strings, and what is between


def read_bytes(path: Path, most: int) -> bytes:
    """A regular file of at most so many bytes."""
    if not path.is_file():
        raise ValueError(f"{path}: {'not a file' if path.exists() else 'missing'}")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path}: damaged: longer than the {most} bytes such a file can have")
    return content


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def parse_json(content: bytes, name: str, most_values: int = 1 << 20) -> Any:
    """Refuses what has two meanings: a key that occurs twice, and numbers that are not finite."""
    try:
        text = content.decode("utf-8")
        _check_size(text, most_values)
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_finite,
            parse_float=_float,
            parse_int=_whole,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: damaged: {error}") from error


def _check_size(text: str, most_values: int) -> None:
    """Before json makes objects, which take far more memory than their text; it also recurses."""
    depth, values = 0, 1
    for mark in _MARKS.finditer(text):
        sign = mark[0]
        if sign in ("[", "{"):
            depth += 1
        elif sign in ("]", "}"):
            depth -= 1
        values += sign in ("[", "{", ",", ":")
        if depth > MOST_DEPTH:
            raise ValueError(f"lists and objects are nested deeper than {MOST_DEPTH}")
        if values > most_values:
            raise ValueError(f"more than {most_values} values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise ValueError(f"the key {twice!r:.60} occurs twice")
    return found


def _finite(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _whole(word: str) -> int:
    if len(word) > 20:
        raise ValueError(f"{word:.30}... is longer than any whole number of 64 bits")
    return int(word)


def _float(word: str) -> float:
    value = float(word)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{word} is beyond the finite numbers")
    return value


def member(values: Any, key: str, kind: type | tuple[type, ...], name: str) -> Any:
    """values[key], which must be of that kind; a bool is no number."""
    if not isinstance(values, dict) or key not in values:
        raise ValueError(f"{name}: {key} is missing")
    value = values[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        words = " or ".join(item.__name__ for item in kinds)
        raise ValueError(f"{name}: {key} must be {words}, got {value!r:.60}")
    return value
