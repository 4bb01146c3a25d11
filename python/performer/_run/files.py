"""Files of a checkpoint, which come from others: nothing is believed, and nothing is read that is
longer than such a file can be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

MOST_DEPTH = 32
_CHUNK = 1 << 20


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


def parse_json(content: bytes, name: str) -> Any:
    """Refuses what has two meanings: a key that occurs twice, and numbers that are not finite."""
    try:
        text = content.decode("utf-8")
        _check_depth(text)
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: damaged: {error}") from error


def _check_depth(text: str) -> None:
    """Brackets outside strings; json itself recurses."""
    depth, inside, escaped = 0, False, False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            if depth > MOST_DEPTH:
                raise ValueError(f"lists and objects are nested deeper than {MOST_DEPTH}")
        elif character in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


def _finite(word: str) -> float:
    raise ValueError(f"{word} is no number")


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
