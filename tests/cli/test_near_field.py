"""A near field in recipes, and another attention for a trained model's weights."""

from pathlib import Path
from typing import Any

import pytest
from conftest import answer, run_program
from small_recipes import TINY
from training_runs import checkpoint, digests, flags_of, metrics, train, trained

FAVOR = ("model.attention.kind=favor", "model.attention.features=32")


@pytest.fixture(scope="module")
def exact_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exact")
    return trained(folder, TINY, "model.attention.kind=exact", "optimizer.rate=0.01")


@pytest.fixture(scope="module")
def near_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("near"), TINY, "model.attention.near=4")


def loss(run: Path, *settings: str) -> float:
    (result,) = answer("eval", run, "--split", "valid", *flags_of(settings))["splits"].values()
    return float(result["loss"])


def refusal(*words: object) -> str:
    done = run_program(*words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def generated(run: Path, *settings: str) -> list[str]:
    options = ("--n", 2, "--length", 20, "--temperature", 0, "--no-stop")
    return [s["text"] for s in answer("generate", run, *options, *flags_of(settings))["sequences"]]


def test_a_run_with_a_near_field_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TINY)
    near = ("model.attention.near=4", "train.valid_every=0")
    train(recipe, tmp_path / "whole", *near)
    train(recipe, tmp_path / "parts", *near, "train.steps=6")
    train(recipe, tmp_path / "parts", *near)
    assert metrics(tmp_path / "parts")[-1] == metrics(tmp_path / "whole")[-1]
    weights = [
        digests(checkpoint(tmp_path / run))["model.safetensors"] for run in ("whole", "parts")
    ]
    assert weights[0] == weights[1]


def test_another_near_field_is_another_run(tmp_path: Path, near_run: Path) -> None:
    recipe = near_run.parent / "recipe.toml"
    said = refusal("train", recipe, "--out", near_run, *flags_of(("model.attention.near=8",)))
    assert "model.attention.near is 4 there and 8 here" in said


def test_local_attention_alone_trains_and_says_so(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TINY)
    said = train(recipe, tmp_path / "a", "model.attention.features=0", "model.attention.near=4")
    assert "2 heads, favor near 4 alone" in said
    said = train(recipe, tmp_path / "b", "model.attention.near=4", "train.steps=1")
    assert "2 heads, favor positive, 8 orthogonal features beyond near 4" in said


def test_exact_weights_are_scored_with_another_attention(exact_run: Path) -> None:
    exact = loss(exact_run)
    assert loss(exact_run, *FAVOR, "model.attention.near=32") == pytest.approx(exact, abs=1e-5)
    local = ("model.attention.kind=favor", "model.attention.features=0")
    assert loss(exact_run, *local, "model.attention.near=32") == pytest.approx(exact, abs=1e-5)
    others = {loss(exact_run, *FAVOR), loss(exact_run, *FAVOR, "model.attention.near=2"), exact}
    assert len(others) == 3
    named = loss(exact_run, *FAVOR[1:], 'model.layer_kinds=["favor","exact"]')
    assert named not in others


def test_results_name_the_attention_they_are_of(exact_run: Path) -> None:
    settings = flags_of((*FAVOR, "model.attention.near=8"))
    command = ("eval", exact_run, "--split", "valid", *settings)
    assert answer(*command)["set"] == [*FAVOR, "model.attention.near=8"]
    assert "set" not in answer(*command[:4])
    said = run_program(*command).stdout
    assert f"with {FAVOR[0]}, {FAVOR[1]}, model.attention.near=8\n" in said


def test_projections_are_those_of_the_runs_seed(exact_run: Path) -> None:
    assert loss(exact_run, *FAVOR) == loss(exact_run, *FAVOR, "model.attention.seed=0")
    assert loss(exact_run, *FAVOR) != loss(exact_run, *FAVOR, "model.attention.seed=1")


def test_weights_and_files_stay_as_they_are(exact_run: Path) -> None:
    before = digests(checkpoint(exact_run))
    loss(exact_run, *FAVOR)
    generated(exact_run, *FAVOR)
    assert digests(checkpoint(exact_run)) == before


def test_generation_takes_the_near_field_and_another_attention(
    exact_run: Path, near_run: Path
) -> None:
    exact = generated(exact_run)
    wide = ("model.attention.kind=favor", "model.attention.near=64")
    assert generated(exact_run, *wide) == exact  # all that is generated is near
    assert all(len(text) == 20 for text in generated(near_run))
    assert len(generated(near_run, "model.attention.features=0")) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.layers=3"], "another attention (model.attention.*, model.layer_kinds), got model"),
        (["train.steps=3"], "got train.steps, which its weights depend on"),
        (["model.atention.near=3"], "unknown key model.atention.near; did you mean"),
        (["model.attention.kind=lsh"], "layer 0 was trained as exact attention"),
        ([*FAVOR, "model.attention.kernel=relu", "model.attention.near=4"], "got relu"),
        ([*FAVOR, "model.attention.projection_norm=sqrt_d", "model.attention.near=4"], "sqrt_d"),
        ([*FAVOR, "model.attention.near=-1"], "must be at least 0, got -1"),
        (["model.attention.near=4"], "no layer is of kind favor"),
        (['model.layer_kinds=["exact","favor"]', FAVOR[0]], "has no effect beside"),
    ],
)
def test_what_the_weights_do_not_fit_is_refused(
    exact_run: Path, settings: list[str], said: str
) -> None:
    for command in ("eval", "generate"):
        assert said in refusal(command, exact_run, *flags_of(tuple(settings)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.attention.kernel=relu"], "model.attention.near: needs a kernel that estimates"),
        (["model.attention.kernel=loglinear"], "the kernel loglinear has no norm terms"),
        (["model.attention.projection_norm=sqrt_d"], "sqrt_d underestimates exp(q.k)"),
    ],
)
def test_recipes_whose_far_field_is_of_another_kernel_are_refused(
    recipe: Path, tmp_path: Path, settings: list[str], said: str
) -> None:
    near = flags_of(("model.attention.near=4", *settings))
    assert said in refusal("train", recipe, "--out", tmp_path / "run", *near)


def test_the_plan_counts_the_near_field(recipe: Path) -> None:
    def plan(*settings: str) -> dict[str, Any]:
        return answer("train", recipe, "--dry-run", *flags_of(settings))

    without, near = plan(), plan("model.attention.near=8")
    assert near["break_even_length"] == without["break_even_length"] + 3 * 8
    assert near["flops_per_token"] > without["flops_per_token"]
    assert near["parameters"] == without["parameters"]
    alone = plan("model.attention.near=8", "model.attention.features=0")
    assert alone["break_even_length"] == 3 * 8


def test_masked_models_are_given_one_too(tmp_path: Path) -> None:
    data = "data/proteins/valid.fasta.gz"
    settings = ("data.objective=masked", "model.causal=false", f"data.valid={data}")
    run = trained(tmp_path, TINY, *settings, "model.attention.kind=exact", "train.steps=2")
    assert loss(run, *FAVOR, "model.attention.near=32") == pytest.approx(loss(run), abs=1e-5)
