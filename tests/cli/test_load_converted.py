"""performer.load of models that `performer convert` has made: the same numbers in Python."""

import math
from pathlib import Path

import pytest
import torch
from conftest import answer, run_program
from foreign_models import MODELS, outputs, save, tokens_of
from small_recipes import one_layer, text_data
from torch.nn.functional import cross_entropy
from training_runs import trained

import performer

WORDS = "It is a truth universally acknowledged, that a single man\nmust be in want of a wife.\n\n"


def converted(folder: Path, name: str, *how: object) -> Path:
    done = run_program("convert", folder / "theirs", folder / name, *how)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    theirs = save(name, tmp_path / "theirs")
    ours = performer.load(converted(tmp_path, "ours", "--attention", "exact"))
    tokens = tokens_of(2, 19)
    mask = torch.arange(19) < torch.tensor([19, 11])[:, None]
    for real in (None, mask):
        want = outputs(theirs, tokens, real)
        rows = torch.ones_like(mask) if real is None else real
        with torch.no_grad():
            torch.testing.assert_close(
                ours.hidden(tokens, real)[rows], want["hidden"][rows], rtol=1e-4, atol=1e-4
            )
            if "logits" in want:
                got = ours(tokens, real)[rows]
                torch.testing.assert_close(got, want["logits"][rows], rtol=1e-4, atol=1e-4)
    if "logits" not in want:
        with pytest.raises(ValueError, match="no output layer"):
            ours(tokens)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_features_are_those_of_the_program(tmp_path: Path, name: str) -> None:
    save(name, tmp_path / "theirs")
    ours = converted(tmp_path, "ours", "--features", 24, "--near", 4, "--keep-exact", 1)
    tokens = tokens_of(1, 40)[0]
    text = tmp_path / "numbers.txt"
    text.write_text(" ".join(map(str, tokens.tolist())))
    (result,) = answer("eval", ours, "--data", text, "--length", 48)["splits"].values()
    model = performer.load(ours)
    row = torch.cat([torch.tensor([model.tokens.eos]), tokens, torch.tensor([model.tokens.eos])])
    with torch.no_grad():
        loss = cross_entropy(model(row[None, :-1])[0].double(), row[1:])
    assert result["targets"] == 41
    assert math.isclose(float(loss), result["loss"], abs_tol=1e-5)


@pytest.mark.parametrize("near", [0, 4])
def test_fitted_features_are_those_of_the_program(tmp_path: Path, near: int) -> None:
    text = tmp_path / "text.txt"
    text.write_text(WORDS * 8)
    recipe = one_layer(text_data(text), model='positions = "rotary"', train="steps = 20")
    trained(tmp_path, recipe, "model.attention.kind=exact", "optimizer.rate=0.02")
    (tmp_path / "run").rename(tmp_path / "theirs")
    size = ("--features", 8, "--fit-steps", 4, "--fit-rows", 2, "--fit-length", 32)
    ours = converted(tmp_path, "ours", "--near", near, "--fit", text, *size)
    short = tmp_path / "short.txt"
    short.write_text(WORDS[:30])
    (result,) = answer("eval", ours, "--data", short)["splits"].values()
    model = performer.load(ours)
    end = torch.tensor([model.tokens.eos])
    row = torch.cat([end, model.encode(WORDS[:30]), end])
    with torch.no_grad():
        loss = cross_entropy(model(row[None, :-1])[0].double(), row[1:])
    assert math.isclose(float(loss), result["loss"], abs_tol=1e-5)
    if near:  # as if it were a part of every bias
        features = model.layers[0].attention.core.features
        features.query_offset += 1
        shifted = model(row[None])
        features.query_offset -= 1
        features.query_bias += 1
        torch.testing.assert_close(model(row[None]), shifted)
