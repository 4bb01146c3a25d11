"""A checkpoint folder of which every byte was verified against its manifest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from performer._run.files import member, parse_json, read_bytes, sha256_of, sha256_of_file

FORMAT = "performer-checkpoint"
LAST_VERSION = 4  # of the format, that this package reads

_MOST = {"config.json": 1 << 22, "trainer.json": 1 << 20, "tokenizer.json": 1 << 26}
_MOST_VALUES = 1 << 22  # more than a task may have classes
_ALWAYS = ("model.safetensors", "trainer.safetensors", "config.json", "trainer.json")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_STEP = re.compile(r"step-[0-9]{9,18}")


class Checkpoint(NamedTuple):
    folder: Path
    version: int
    step: int

    def json(self, name: str) -> Any:
        path = self.folder / name
        return parse_json(read_bytes(path, _MOST[name]), str(path), _MOST_VALUES)


def open_checkpoint(path: Path, which: str | int | None = None) -> Checkpoint:
    """`path` is a checkpoint folder or a run's; of a run, `which` is best, latest or a step, and
    None the best one where validation has named it, else the latest."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such folder; name a run or a checkpoint folder")
    if not any((path / name).exists() for name in ("best", "latest", "checkpoints")):
        if not (path / "manifest.json").exists():
            raise FileNotFoundError(f"{path}: neither a checkpoint nor a run that has saved one")
        if which is not None:
            raise ValueError(f"{path}: is a checkpoint itself; name its run to choose {which!r}")
        return verify(path)
    if isinstance(which, int):
        folder = path / "checkpoints" / f"step-{which:09d}"
        if not folder.is_dir():
            steps = sorted(entry.name for entry in (path / "checkpoints").glob("step-*"))
            raise FileNotFoundError(f"{path}: no checkpoint of step {which}; there are {steps}")
        return verify(folder)
    if which is None:
        which = "best" if (path / "best").exists() else "latest"
    if which not in ("best", "latest"):
        raise ValueError(f"{path}: checkpoint must be best, latest or a step, got {which!r}")
    return _pointed(path, which)


def _pointed(run: Path, pointer: str) -> Checkpoint:
    """A pointer file: the checkpoint's name, the hash of its manifest, the hash of both lines."""
    path = run / pointer
    lines = read_bytes(path, 1 << 10).decode("utf-8", "replace").split("\n")
    intact = len(lines) == 4 and sha256_of("\n".join([*lines[:2], ""]).encode()) == lines[2]
    if not intact or not _STEP.fullmatch(lines[0]):
        raise ValueError(f"{path}: damaged: its text does not match its own hash")
    folder = run / "checkpoints" / lines[0]
    if not folder.is_dir():
        raise ValueError(f"{folder}: missing, though {path} names it")
    if sha256_of(read_bytes(folder / "manifest.json", 1 << 20)) != lines[1]:
        raise ValueError(f"{path}: names another checkpoint than the one in {folder}")
    return verify(folder)


def verify(folder: Path) -> Checkpoint:
    """The folder holds exactly the files of its manifest, with their sizes and hashes."""
    path = folder / "manifest.json"
    manifest = parse_json(read_bytes(path, 1 << 20), str(path))
    name = str(path)
    version = _check_seal(manifest, name)
    files = {}
    for entry in member(manifest, "files", list, name):
        file = member(entry, "name", str, name)
        if not _NAME.fullmatch(file) or file in files or file == "manifest.json":
            raise ValueError(f"{name}: lists a file name that no checkpoint has: {file!r:.60}")
        files[file] = (member(entry, "bytes", int, name), member(entry, "sha256", str, name))
    for file in _ALWAYS:
        if file not in files:
            raise ValueError(f"{name}: does not list {file}")
    _check_files(folder, files)
    return Checkpoint(folder, version, member(manifest, "step", int, name))


def _check_seal(manifest: Any, name: str) -> int:
    """The format's version; the manifest's last member is the hash of the others' text."""
    seal = member(manifest, "sha256", str, name)
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    if sha256_of(text.encode()) != seal:
        raise ValueError(f"{name}: damaged: its text does not match its own hash")
    version = member(manifest, "version", int, name)
    if manifest.get("format") != FORMAT or not 1 <= version <= LAST_VERSION:
        raise ValueError(
            f"{name}: checkpoint format {manifest.get('format')!r:.60} of version {version}; "
            f"this package reads {FORMAT} of 1 to {LAST_VERSION}"
        )
    return version


def _check_files(folder: Path, files: dict[str, tuple[int, str]]) -> None:
    for file, (size, _) in files.items():  # sizes first: they cost nothing
        path = folder / file
        if not path.is_file():
            raise ValueError(f"{path}: missing")
        if path.stat().st_size != size:
            raise ValueError(
                f"{path}: damaged: {path.stat().st_size} bytes, {size} in the manifest"
            )
    for entry in folder.iterdir():
        if entry.name not in files and entry.name != "manifest.json":
            raise ValueError(f"{entry}: not listed in the checkpoint's manifest.json")
    for file, (_, digest) in files.items():
        if sha256_of_file(folder / file) != digest:
            raise ValueError(f"{folder / file}: damaged: its hash is not the one in the manifest")
