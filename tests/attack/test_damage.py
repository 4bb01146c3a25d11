"""Every file of a run, damaged in every way: it is named, or nothing changes.

PERFORMER_DAMAGES: how many damaged files (default 30).
"""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from attacked import Ending, attack, complaint_about, report
from damage import DAMAGES, Damage, pipe
from small_recipes import TINY
from training_runs import digests, metrics

DAMAGED = int(os.environ.get("PERFORMER_DAMAGES", "30"))
SHORT = ("train.steps=6", "train.checkpoint_every=2", "train.valid_every=3")
LONGER = ("train.steps=8", *SHORT[1:])
PROTEINS = ">a\nACDEFGHIKLMNPQRSTVWYACDEFGHIKLMN\n>b\nMKVLAAGIVGLLLAQWERTYPASDFGHKLCVNM\n"


def write_recipe(folder: Path) -> Path:
    """A run of proteins from a built set, all of it in one folder."""
    (folder / "train.fasta").write_text(PROTEINS)
    done = attack("data", "build", folder / "train.fasta", "-o", folder / "train.pds")
    assert done.code == 0, done.stderr
    recipe = folder / "tiny.toml"
    text = TINY.replace("data/proteins/valid.fasta.gz", "train.pds")
    recipe.write_text(text.replace("data/proteins/test.fasta.gz", "train.pds"))
    return recipe


class Victim:
    """A run and what its commands answer as long as nothing is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        recipe = write_recipe(folder)
        done = self.train(folder, SHORT)
        assert done.code == 0, done.stderr
        assert recipe.exists()
        self.files = sorted(
            p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.suffix != ".fasta"
        )
        self.wanted = {
            "eval": self.answer("eval", folder),
            "generate": self.answer("generate", folder),
        }
        straight = folder.parent / "straight"
        shutil.copytree(folder, straight)
        assert self.train(straight, LONGER).code == 0
        self.wanted["train"] = self.state(straight)

    def train(self, folder: Path, settings: tuple[str, ...]) -> Ending:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        return attack("train", "tiny.toml", "--out", "run", *flags, folder=folder)

    def command(self, name: str, folder: Path) -> Ending:
        if name == "train":
            return self.train(folder, LONGER)
        flags = {
            "eval": ("--split", "valid", "--max-batches", "1", "--json"),
            "generate": ("--n", "1", "--length", "12", "--json"),
        }[name]
        return attack(name, "run", *flags, folder=folder)

    def answer(self, name: str, folder: Path) -> Any:
        done = self.command(name, folder)
        assert done.code == 0, done.stderr
        return self.result(name, folder, done)

    def result(self, name: str, folder: Path, done: Ending) -> Any:
        """What must not change in silence."""
        if name == "train":
            return self.state(folder)
        told = json.loads(done.stdout)
        if name == "generate":
            return [s["text"] for s in told["sequences"]]
        valid = told["splits"]["valid"]
        return {key: valid[key] for key in ("loss", "accuracy", "samples", "targets")}

    def state(self, folder: Path) -> Any:
        """Checkpoint and metrics at the end of a training."""
        run = folder / "run"
        latest = run / "checkpoints" / (run / "latest").read_text().split()[0]
        try:
            return digests(latest), metrics(run)
        except ValueError:  # a line that is no JSON any more: the run must have named the file
            return digests(latest), (run / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    folder = tmp_path_factory.mktemp("victim") / "good"
    folder.mkdir()
    return Victim(folder)


def complaint(victim: Victim, name: str, folder: Path, file: Path) -> str:
    done = victim.command(name, folder)
    wrong = complaint_about(done, [file.name])
    if wrong or done.code != 0:
        return wrong
    if victim.result(name, folder, done) == victim.wanted[name] or warned_of(file, done):
        return ""
    return f"another result in silence: {done.last_line}"


def warned_of(file: Path, done: Ending) -> bool:
    # Every start tells what it reads and every end what it wrote: only these lines complain.
    lines = done.stderr.splitlines()
    return any(file.name in line for line in lines if line.startswith(("warning: ", "performer: ")))


def damage_for(file: Path, number: int) -> Damage:
    # The run's own files are never pipes; recipes and data may be, and then wait for a writer.
    own = file.parts[0] == "run"
    return random.Random(number).choice([d for d in DAMAGES if own or d is not pipe])


def test_a_damaged_file_is_named_or_changes_nothing(victim: Victim, tmp_path: Path) -> None:
    complaints = []
    for number in range(DAMAGED):
        file = victim.files[number % len(victim.files)]
        folder = tmp_path / "copy"
        for name in ("eval", "generate", "train"):
            draw = random.Random(number)
            shutil.copytree(victim.folder, folder)
            what = damage_for(file, number)(folder / file, draw)
            wrong = complaint(victim, name, folder, file)
            if wrong:
                complaints.append(f"{number}: {file} {what}: {name} {wrong}")
            shutil.rmtree(folder)
    assert not complaints, report(complaints)
