"""Results of slow commands, kept in the user's cache folder, where a fresh clone finds them."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path


def key_of(*parts: str | bytes) -> str:
    """A key of all that a result depends on: contents of files, flags, versions of tools."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class ResultCache:
    """Texts by key, in $XDG_CACHE_HOME/performer/NAME; what was used least recently goes first."""

    def __init__(self, name: str, limit: int = 16 << 20) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.folder = Path(home) / "performer" / name
        self.limit = limit  # bytes

    def get(self, key: str) -> str | None:
        entry = self.folder / key
        try:
            text = entry.read_text(encoding="utf-8")
            os.utime(entry)
        except OSError:
            return None
        return text

    def put(self, key: str, value: str) -> None:
        """Whole or not at all: others may read and write at the same time. Nothing where the folder
        cannot be written to: the next run computes again."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".") as folder:
                file = Path(folder) / "value"
                file.write_text(value, encoding="utf-8")
                file.replace(self.folder / key)
            self.prune()
        except OSError as error:
            print(f"{self.folder / key}: not kept: {error.strerror}", file=sys.stderr)

    def prune(self) -> None:
        """Down to the limit. A file that another process removed meanwhile is no matter."""
        entries = []
        for entry in self.folder.iterdir():
            if entry.name.startswith("."):
                continue  # being written
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            entries.append((status.st_mtime, status.st_size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self.limit:
                break
            entry.unlink(missing_ok=True)
            total -= size
