"""Files that were made to hurt: each is refused by name, or read as what it is.

PERFORMER_HOSTILE: how many files (default: every family once). PERFORMER_BOMB: megabytes that the
bombs unpack to (default 64, so that the tests are quick; 10240 shows the bound on one record).
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import hostile_binary
import hostile_text
import pytest
from attacked import Ending, attack, complaint_about, report
from conftest import ROOT
from formats import gzip_member, pds, png
from hostile_text import Files, mutated
from small_recipes import TINY, labelled_rows, one_layer, pixel_data
from training_runs import checkpoint, reseal, train

WANTED = int(os.environ.get("PERFORMER_HOSTILE", "0"))
BOMB = int(os.environ.get("PERFORMER_BOMB", "64"))
FASTA = b">a\nACDEFGHIKLMNPQRSTVWY\n>b two\nMKVLAAGIVGLLLA\n"
TABLE = b"text\tlabel\tsplit\none two\tcat\ttrain\nthree four\tdog\ttrain\nfive\tcat\ttrain\n"
TEXT = "All happy families are alike; each unhappy family is unhappy in its own way.\n" * 400
# Runs the program on a file of these bytes in an empty folder; the name that it must tell.
Use = Callable[[Path, bytes], tuple[Ending, str]]


def images_recipe(data: Path) -> str:
    return one_layer(pixel_data(data, 65), train="steps = 1\nbatch = 1")


def trained(folder: Path, recipe: str) -> Ending:
    (folder / "recipe.toml").write_text(recipe)
    return attack("train", "recipe.toml", "--out", "run", folder=folder)


def use_data(name: str) -> Use:
    def use(folder: Path, data: bytes) -> tuple[Ending, str]:
        (folder / name).write_bytes(data)
        return attack("data", "stats", name, folder=folder), name

    return use


def use_build(folder: Path, data: bytes) -> tuple[Ending, str]:
    (folder / "in.fasta").write_bytes(data)
    done = attack("data", "build", "in.fasta", "-o", "out.pds", "--overwrite", folder=folder)
    left = sorted(p.name for p in folder.iterdir() if p.name not in ("in.fasta", "out.pds"))
    assert not left, f"data build leaves {left}"
    return done, "in.fasta"


def use_recipe(folder: Path, data: bytes) -> tuple[Ending, str]:
    (folder / "in.toml").write_bytes(data)
    done = attack("train", "in.toml", "--dry-run", folder=folder)
    # What a recipe asks for may be refused by the name of the key; files that are not there are.
    return done, {2: "", 3: "data."}.get(done.code or 0, "in.toml")


def use_table(folder: Path, data: bytes) -> tuple[Ending, str]:
    (folder / "train.tsv").write_bytes(data)
    return trained(folder, labelled_rows(folder)), "train.tsv"


def use_images(folder: Path, data: bytes) -> tuple[Ending, str]:
    images = folder / "images"
    images.mkdir()
    (images / "a.png").write_bytes(png(8, 8, (b"\0" + bytes(8)) * 8))
    (images / "b.png").write_bytes(data)
    return trained(folder, images_recipe(images)), "b.png"


def use_idx(folder: Path, data: bytes) -> tuple[Ending, str]:
    (folder / "in.idx").write_bytes(data)
    return trained(folder, images_recipe(folder / "in.idx")), "in.idx"


def use_tokenizer(folder: Path, data: bytes) -> tuple[Ending, str]:
    (folder / "in.model").write_bytes(data)
    (folder / "text.txt").write_text(TEXT)
    text = TINY.replace('"protein"', '"text"').replace("data/proteins/valid.fasta.gz", "text.txt")
    text = text.replace("data/proteins/test.fasta.gz", "text.txt")
    recipe = text.replace("length = 32", 'length = 32\ntokenizer = "in.model"')
    return trained(folder, recipe.replace("steps = 12", "steps = 1")), "in.model"


class InRun:
    """A file of a run's checkpoint, its manifest made to fit: hashes keep nobody out."""

    def __init__(self, run: Path, name: str, command: str = "eval") -> None:
        self.run, self.name, self.command = run, name, command
        self.good = (checkpoint(run) / name).read_bytes()

    def __call__(self, folder: Path, data: bytes) -> tuple[Ending, str]:
        copy = folder / "run"
        shutil.copytree(self.run, copy)
        (checkpoint(copy) / self.name).write_bytes(data)
        if self.name != "manifest.json":
            reseal(checkpoint(copy))
        if self.command == "train":
            # What a recipe does not fit is refused by the checkpoint's name.
            done = attack(
                "train", self.run.parent / "once.toml", "--init", copy, "--out", copy / "x"
            )
            return done, "--init" if done.code == 2 else self.name
        flags = ("--split", "valid", "--max-batches", "1")
        return attack("eval", copy, *flags), self.name


def complaint(use: Use, folder: Path, data: bytes, bad: bool | None) -> str:
    folder.mkdir()
    ending, name = use(folder, data)
    shutil.rmtree(folder)
    wrong = complaint_about(ending, [name] if name else [])
    if not wrong and bad and ending.code == 0:
        return "accepted"
    if not wrong and ending.code != 0 and ending.stderr.count("performer: ") != 1:
        return f"more than one message: {ending.stderr[-300:]!r}"
    return wrong


def attack_with(use: Use, files: Files, good: bytes, folder: Path) -> None:
    """Each file of the family, then random changes of a good one."""
    complaints = []
    for name, (data, bad) in files.items():
        if wrong := complaint(use, folder / "victim", data, bad):
            complaints.append(f"{name}: {wrong}")
    for seed in range(max(0, WANTED // FAMILIES - len(files))):
        data = mutated(good, random.Random(seed))
        if wrong := complaint(use, folder / "victim", data, None):
            complaints.append(f"mutation {seed}: {wrong}")
    assert not complaints, report(complaints)


FAMILIES = 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "tiny.toml").write_text(TINY)
    once = TINY.replace("steps = 12", "steps = 1").replace("valid_every = 4", "valid_every = 0")
    (folder / "once.toml").write_text(once)
    train(folder / "tiny.toml", folder / "run", "train.steps=2", "train.valid_every=1")
    return folder / "run"


def test_fasta(tmp_path: Path) -> None:
    attack_with(use_data("in.fasta"), hostile_text.fasta_files(FASTA), FASTA, tmp_path)


def test_fasta_that_is_built(tmp_path: Path) -> None:
    attack_with(use_build, hostile_text.fasta_files(FASTA), FASTA, tmp_path)


def test_gzip(tmp_path: Path) -> None:
    files = hostile_binary.gzip_files(FASTA, BOMB)
    attack_with(use_data("in.fasta.gz"), files, gzip_member(FASTA), tmp_path)


def test_pds(tmp_path: Path) -> None:
    good = pds([b"\4\5\6\7\x0b\x0c\x0d\x0e"])
    attack_with(use_data("in.pds"), hostile_binary.pds_files(good), good, tmp_path)


def test_toml(tmp_path: Path) -> None:
    good = TINY.replace('"data/', f'"{ROOT}/data/').encode()
    attack_with(use_recipe, hostile_text.toml_files(good), good, tmp_path)


def test_tsv(tmp_path: Path) -> None:
    attack_with(use_table, hostile_text.tsv_files(TABLE), TABLE, tmp_path)


def test_png(tmp_path: Path) -> None:
    good = png(8, 8, (b"\0" + bytes(8)) * 8)
    attack_with(use_images, hostile_binary.png_files(), good, tmp_path)


def test_idx(tmp_path: Path) -> None:
    files = hostile_binary.idx_files()
    attack_with(use_idx, files, files["packed"][0], tmp_path)


def test_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    made = attack(
        *("data", "tokenizer", "text.txt", "-o", "good.model", "--vocabulary", "300"),
        folder=tmp_path,
    )
    good = (tmp_path / "good.model").read_bytes() if made.code == 0 else b"\x0a\x03\x0a\x01a" * 99
    attack_with(use_tokenizer, hostile_binary.tokenizer_files(good), good, tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "tokenizer.json", "trainer.json"])
def test_json_of_a_run(name: str, run: Path, tmp_path: Path) -> None:
    use = InRun(run, name)
    files = hostile_text.json_files(use.good)
    if name == "trainer.json":  # for those who go on with the training: eval may pass it by
        files = {n: (data, None) for n, (data, _) in files.items()}
    attack_with(use, files, use.good, tmp_path)


def test_weights_of_a_run(run: Path, tmp_path: Path) -> None:
    use = InRun(run, "model.safetensors")
    attack_with(use, hostile_binary.safetensors_files(use.good), use.good, tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_runs_that_others_begin_with(name: str, run: Path, tmp_path: Path) -> None:
    use = InRun(run, name, "train")
    kind = hostile_text.json_files if name.endswith("json") else hostile_binary.safetensors_files
    attack_with(use, kind(use.good), use.good, tmp_path)
