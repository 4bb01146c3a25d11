"""RunModel.embed: the vectors that `performer embed` writes."""

from pathlib import Path

import numpy
import pytest
import torch
from conftest import ROOT, answer
from small_recipes import TINY, one_layer, text_data
from training_runs import trained

import performer

PROTEINS = ["MKTAYIAKQRQISFVKSHFSRQLEERLG", "GG", "ACDEFGHIKLMNPQRSTVWY" * 3, "MX*J-b*", "GG"]
FIXTURE = ROOT / "tests/fixtures/642545a/run"


def of_program(run: Path, folder: Path, *options: object) -> tuple[numpy.ndarray, numpy.ndarray]:
    source = folder / "in.fasta"
    source.write_text("".join(f">p\n{protein}\n" for protein in PROTEINS))
    answer("embed", run, source, "-o", folder / "out.npz", "--overwrite", *options)
    with numpy.load(folder / "out.npz") as file:
        return file["embeddings"], file["lengths"]


@pytest.mark.parametrize("pool", ["mean", "mean-all", "first", "none"])
@pytest.mark.parametrize("batch_tokens", [1, 70, 16384])
def test_vectors_are_those_of_the_command(tmp_path: Path, pool: str, batch_tokens: int) -> None:
    expected, lengths = of_program(FIXTURE, tmp_path, "--pool", pool)
    found = performer.load(FIXTURE).embed(PROTEINS, pool=pool, batch_tokens=batch_tokens)
    if pool == "none":
        assert isinstance(found, list)
        assert [len(own) for own in found] == list(lengths)
        found = torch.cat(found)
    assert isinstance(found, torch.Tensor)
    assert not found.requires_grad
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1, 2, -1, -2, -3])
def test_layers_are_those_of_the_command(tmp_path: Path, layer: int) -> None:
    expected, _ = of_program(FIXTURE, tmp_path, "--layer", layer)
    found = performer.load(FIXTURE).embed(PROTEINS, layer=layer)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_layers_from_the_end_are_those_from_the_beginning(tmp_path: Path) -> None:
    zero, one = (of_program(FIXTURE, tmp_path, "--layer", n)[0] for n in (0, 1))
    assert numpy.array_equal(of_program(FIXTURE, tmp_path, "--layer", -3)[0], zero)
    assert numpy.array_equal(of_program(FIXTURE, tmp_path, "--layer", -2)[0], one)


@pytest.mark.parametrize(
    "settings",
    [
        ["model.causal=false", "data.objective=masked", "model.norm_position=post"],
        ["model.attention.kind=exact", "data.join=true"],
        ["model.reversible=true"],
    ],
)
def test_other_models(tmp_path: Path, settings: list[str]) -> None:
    run = trained(tmp_path, TINY, *settings)
    expected, _ = of_program(run, tmp_path)
    found = performer.load(run).embed(iter(PROTEINS))
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_texts_begin_as_the_model_was_trained(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one line of text\nand another one\n" * 20)
    run = trained(tmp_path, one_layer(text_data(tmp_path / "text.txt")))
    answer("embed", run, tmp_path / "text.txt", "-o", tmp_path / "out.npz", "--pool", "first")
    with numpy.load(tmp_path / "out.npz") as file:
        expected = torch.from_numpy(file["embeddings"])
    model = performer.load(run)
    found = model.embed(["one line of text", "and another one"] * 20, pool="first")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    start = torch.tensor([[model.tokens.start]])
    torch.testing.assert_close(found[0], model.hidden(start)[0, 0], rtol=1e-5, atol=1e-5)


def test_wrong_calls_say_what_is_needed() -> None:
    model = performer.load(FIXTURE)
    with pytest.raises(TypeError, match="sequences must be a list of texts, got one text"):
        model.embed("MKT")
    with pytest.raises(ValueError, match="layer must be from -3 to 2, got 3"):
        model.embed(["MKT"], layer=3)
    with pytest.raises(ValueError, match="pool must be one of mean, mean-all, first, none"):
        model.embed(["MKT"], pool="max")
    with pytest.raises(ValueError, match="without residues"):
        model.embed(["MKT", "--"])
    assert model.embed([]).shape == (0, 16)
