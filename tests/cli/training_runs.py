"""Runs of `performer train` and what they leave behind, for the tests of training."""

import hashlib
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

from conftest import PROGRAM, ROOT, run_program

TIME_KEYS = {"time", "seconds", "tokens_per_second", "crc32c"}


def train(recipe: Path, out: Path, *settings: str, code: int = 0) -> str:
    flags = flags_of(settings)
    done = run_program("train", recipe, "--out", out, *flags)
    assert done.returncode == code, done.stderr
    return done.stderr


def trained(folder: Path, recipe: str, *settings: str) -> Path:
    """The run of a recipe's text, in a folder that both may lie in."""
    path = folder / "recipe.toml"
    path.write_text(recipe)
    train(path, folder / "run", *settings)
    return folder / "run"


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in r.items() if k not in TIME_KEYS} for r in records]


def checkpoint(out: Path) -> Path:
    return out / "checkpoints" / (out / "latest").read_text().split()[0]


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def kill_when(
    recipe: Path, out: Path, *settings: str, after_steps: int, flags: tuple[str, ...] = ()
) -> None:
    """Runs the training and kills it without warning once it has told of so many steps."""
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), *flags_of(settings), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        read_steps(process.stderr, after_steps)
        process.kill()


def read_steps(stderr: IO[str], count: int) -> None:
    """Reads on until so many steps were told of, or the program has ended."""
    while count > 0 and (line := stderr.readline()):
        count -= line.startswith("step ")


def small_fasta(folder: Path, count: int) -> Path:
    generator = random.Random(7)
    path = folder / "small.fasta"
    with path.open("w") as file:
        for i in range(count):
            sequence = "".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=40))
            file.write(f">s{i}\n{sequence}\n")
    return path


def flags_of(settings: tuple[str, ...]) -> list[str]:
    return [flag for setting in settings for flag in ("--set", setting)]


def stop_when(
    recipe: Path, out: Path, *settings: str, said: str, number: int = signal.SIGTERM
) -> tuple[int, str]:
    """Sends the signal once standard error holds `said`; the exit code and all that was said."""
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), *flags_of(settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    heard = ""
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            heard += line
            if said in heard:
                break
        process.send_signal(number)
        heard += process.stderr.read()
    return process.returncode, heard


def steps_with_checkpoints(out: Path) -> list[int]:
    return sorted(int(p.name.split("-")[1]) for p in (out / "checkpoints").iterdir())


def reseal(folder: Path, version: int | None = None) -> None:
    """Makes manifest.json and the pointers fit the folder's files again, as a saver would have."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["version"] = version or manifest["version"]
    del manifest["sha256"]
    for entry in manifest["files"]:
        data = (folder / entry["name"]).read_bytes()
        entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    body = json.dumps(manifest, separators=(",", ":"))
    manifest["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    text = json.dumps(manifest, indent=1) + "\n"
    (folder / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    for name in ("latest", "best"):
        pointer = folder.parent.parent / name
        if pointer.exists() and pointer.read_text().split()[0] == folder.name:
            lines = f"{folder.name}\n{digest}\n"
            pointer.write_text(lines + hashlib.sha256(lines.encode()).hexdigest() + "\n")
