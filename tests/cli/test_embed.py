"""`performer embed`: vectors of sequences, whatever the file, the ids and the interruptions."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
from conftest import ROOT, Run, answer
from safetensors import safe_open

MODEL = ROOT / "tests/fixtures/642545a/run"  # two layers of width 16
WIDTH = 16
HOSTILE_IDS = ["../../etc/passwd", "<script>alert(1)</script>", "twice", "twice", "/", "Ünïcode"]


def fasta(path: Path, ids: list[str], seed: int = 0, most: int = 60) -> Path:
    letters = random.Random(seed)
    lengths = [1 + letters.randrange(most) for _ in ids]
    records = [
        f">{name} of a description\n{''.join(letters.choices('ACDEFGHIKLMNPQRSTVWY', k=length))}\n"
        for name, length in zip(ids, lengths, strict=True)
    ]
    path.write_text("".join(records))
    return path


def load(path: Path) -> dict[str, Any]:
    """The arrays and ids of any of the formats, by name."""
    if path.suffix == ".npz":
        with numpy.load(path) as file:
            found = {name: file[name] for name in file.files}
        return {**found, "ids": list(found["ids"]), "about": json.loads(found["about.json"])}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            found = {name: file[name][:] for name in file}
            about = json.loads(file.attrs["about"])
        return {**found, "ids": [name.decode() for name in found["ids"]], "about": about}
    with safe_open(path, "np") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    text, ends = found["ids"].tobytes(), [0, *found["id_ends"]]
    ids = [text[a:b].decode() for a, b in zip(ends, ends[1:], strict=False)]
    return {**found, "ids": ids, "about": about}


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    return fasta(tmp_path / "in.fasta", [f"P{i}" for i in range(40)])


@pytest.mark.parametrize("ending", ["npz", "safetensors", "h5"])
@pytest.mark.parametrize("pool", ["mean", "none"])
def test_every_format_holds_the_same_vectors_in_the_order_of_the_input(
    tmp_path: Path, proteins: Path, ending: str, pool: str
) -> None:
    told = answer("embed", MODEL, proteins, "-o", tmp_path / f"a.{ending}", "--pool", pool)
    assert told["sequences"] == 40
    found = load(tmp_path / f"a.{ending}")
    answer("embed", MODEL, proteins, "-o", tmp_path / "b.npz", "--pool", pool)
    other = load(tmp_path / "b.npz")
    assert found["ids"] == [f"P{i}" for i in range(40)]
    assert found["about"]["pool"] == pool
    rows = int(found["lengths"].sum()) if pool == "none" else 40
    assert found["embeddings"].shape == (rows, WIDTH)
    assert numpy.array_equal(found["embeddings"], other["embeddings"])
    assert numpy.array_equal(found["lengths"], other["lengths"])
    if pool == "none":
        assert numpy.array_equal(found["ends"], found["lengths"].cumsum())


def test_the_mean_is_that_of_the_residues(tmp_path: Path, proteins: Path) -> None:
    answer("embed", MODEL, proteins, "-o", tmp_path / "mean.npz")
    answer("embed", MODEL, proteins, "-o", tmp_path / "each.npz", "--pool", "none")
    mean, each = load(tmp_path / "mean.npz"), load(tmp_path / "each.npz")
    begin = 0
    for i, end in enumerate(each["ends"]):
        expected = each["embeddings"][begin:end].mean(0)
        assert numpy.allclose(mean["embeddings"][i], expected, atol=1e-6)
        begin = end


def test_a_sequence_has_the_same_vector_alone_and_beside_others(
    tmp_path: Path, proteins: Path
) -> None:
    answer("embed", MODEL, proteins, "-o", tmp_path / "all.npz")
    answer("embed", MODEL, proteins, "-o", tmp_path / "one.npz", "--batch-tokens", 1)
    together, alone = load(tmp_path / "all.npz"), load(tmp_path / "one.npz")
    assert numpy.allclose(together["embeddings"], alone["embeddings"], atol=1e-5)


def test_layers_differ_and_the_last_one_comes_with_its_norm(tmp_path: Path, proteins: Path) -> None:
    for layer in (0, 1, 2, -1):
        answer("embed", MODEL, proteins, "-o", tmp_path / f"{layer}.npz", "--layer", layer)
    zero, one, two, last = (load(tmp_path / f"{n}.npz")["embeddings"] for n in (0, 1, 2, -1))
    assert not numpy.allclose(zero, one, atol=1e-3)
    assert not numpy.allclose(one, two, atol=1e-3)
    assert not numpy.allclose(two, last, atol=1e-3)


def test_ids_are_data_alone(tmp_path: Path) -> None:
    source = fasta(tmp_path / "in.fasta", HOSTILE_IDS)
    before = {p.name for p in tmp_path.iterdir()}
    for ending in ("npz", "safetensors", "h5"):
        answer("embed", MODEL, source, "-o", tmp_path / f"a.{ending}")
        assert load(tmp_path / f"a.{ending}")["ids"] == HOSTILE_IDS
    made = {p.name for p in tmp_path.iterdir()} - before
    assert made == {"a.npz", "a.safetensors", "a.h5"}


def test_gzip_and_standard_input_are_read(tmp_path: Path, proteins: Path, program: Run) -> None:
    packed = tmp_path / "in.fasta.gz"
    packed.write_bytes(gzip.compress(proteins.read_bytes()))
    answer("embed", MODEL, packed, "-o", tmp_path / "packed.npz")
    done = program(
        "embed", MODEL, "stdin", "-o", tmp_path / "piped.npz", input=proteins.read_text()
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "packed.npz").read_bytes() == (tmp_path / "piped.npz").read_bytes()


def test_what_was_interrupted_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, proteins: Path, program: Run
) -> None:
    arguments = ("embed", MODEL, proteins, "--batch-tokens", 64, "-o")
    answer(*arguments, tmp_path / "whole.npz")
    stopped = program(*arguments, tmp_path / "cut.npz", limit="-f 2")  # two KiB
    assert stopped.returncode == 5, stopped.stderr
    assert "cut.npz.partial" in stopped.stderr
    assert not (tmp_path / "cut.npz").exists()
    told = answer(*arguments, tmp_path / "cut.npz")
    assert 0 < told["sequences_from_before"] < 40
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / "cut.npz.partial").exists()


def test_a_damaged_record_is_made_again(tmp_path: Path, proteins: Path, program: Run) -> None:
    arguments = ("embed", MODEL, proteins, "--batch-tokens", 64, "-o")
    answer(*arguments, tmp_path / "whole.npz")
    assert program(*arguments, tmp_path / "a.npz", limit="-f 2").returncode == 5
    partial = tmp_path / "a.npz.partial"
    content = bytearray(partial.read_bytes())
    content[len(content) - 200] ^= 1
    partial.write_bytes(content)
    told = answer(*arguments, tmp_path / "a.npz")
    assert told["sequences_from_before"] > 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_what_was_begun_for_something_else_is_refused(
    tmp_path: Path, proteins: Path, program: Run
) -> None:
    arguments = ("embed", MODEL, proteins, "--batch-tokens", 64, "-o", tmp_path / "a.npz")
    assert program(*arguments, limit="-f 2").returncode == 5
    other = program(*arguments, "--layer", 1)
    assert other.returncode == 2
    assert "layer was -1, is 1; pass --restart to begin anew" in other.stderr
    assert program(*arguments, "--layer", 1, "--restart").returncode == 0


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (["-o", "a.txt"], 2, "the ending says the format: .npz, .safetensors, .h5 or .hdf5"),
        (["-o", "{tmp}/a.npz", "--pool", "max"], 2, "mean, mean-all, first or none, got 'max'"),
        (["-o", "{tmp}/a.npz", "--layer", "3"], 2, "layers 0 (the embeddings) to 2"),
        (["-o", "{tmp}/no/folder/a.npz"], 5, "no/folder/a.npz.partial"),
    ],
)
def test_a_wrong_call_is_one_line(
    tmp_path: Path, proteins: Path, program: Run, change: list[str], code: int, words: str
) -> None:
    done = program("embed", MODEL, proteins, *(c.replace("{tmp}", str(tmp_path)) for c in change))
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_output_that_is_there_stays(tmp_path: Path, proteins: Path, program: Run) -> None:
    (tmp_path / "a.npz").write_text("mine")
    done = program("embed", MODEL, proteins, "-o", tmp_path / "a.npz")
    assert done.returncode == 2
    assert "already exists" in done.stderr
    assert (tmp_path / "a.npz").read_text() == "mine"
    assert (
        program("embed", MODEL, proteins, "-o", tmp_path / "a.npz", "--overwrite").returncode == 0
    )
