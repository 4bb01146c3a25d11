"""Models of transformers, taken over and given back: both programs must compute the same."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import ROOT, answer, run_program
from foreign_models import MODELS, outputs, save, tokens_of
from safetensors.torch import load_file, save_file

FORWARD = ROOT / "build/tests/forward"
CAUSAL = [name for name in MODELS if name.startswith(("gpt2", "llama", "mistral", "qwen2"))]
CLOSE = 1e-4
ESM_VOCABULARY = "\n".join(
    ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
)


Input = tuple[torch.Tensor, torch.Tensor | None]


def forward_all(checkpoint: Path, inputs: list[Input]) -> list[dict[str, torch.Tensor]]:
    """What our program gives for tokens and masks."""
    files: list[Path] = []
    for i, (tokens, mask) in enumerate(inputs):
        given = {"tokens": tokens} if mask is None else {"tokens": tokens, "mask": mask.byte()}
        files += [checkpoint.parent / f"{way}{i}.safetensors" for way in ("in", "out")]
        save_file(given, files[-2])
    done = subprocess.run(
        [FORWARD, checkpoint, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [load_file(file) for file in files[1::2]]


def forward(checkpoint: Path, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    return forward_all(checkpoint, [(tokens, None)])[0]


def convert(*args: object) -> dict[str, Any]:
    return answer("convert", *args)


def exact(source: Path, name: str = "exact") -> Path:
    out = source.parent / name
    done = convert(source, out, "--attention", "exact", "--check")
    assert done["attention"] == "exact"
    assert done["checked"]
    return out


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], real: Any = None) -> None:
    assert set(theirs) == set(ours) - {"streamed"}
    for name, want in theirs.items():
        difference = (ours[name] - want).abs().amax(-1)
        if real is not None:
            difference = difference[real.bool()]
        assert difference.max() < CLOSE, name
        assert want.std() > 0.1, "a model that says something"


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_computes_the_same(name: str, tmp_path: Path) -> None:
    theirs = save(name, tmp_path / "theirs")
    ours = exact(tmp_path / "theirs")
    inputs: list[Input] = []
    for length in (1, 7, 40):
        tokens = tokens_of(3, length)
        mask = torch.ones_like(tokens)
        if length > 1:
            mask[1, length // 2 :] = 0
            mask[2, -1] = 0
        inputs += [(tokens, None), (tokens, mask)]
    for (tokens, m), got in zip(inputs, forward_all(ours, inputs), strict=True):
        assert_same(got, outputs(theirs, tokens, m), m)


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_the_one_that_came(name: str, tmp_path: Path) -> None:
    theirs = save(name, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    done = convert("--export", exact(tmp_path / "theirs"), tmp_path / "again")
    assert done["exact"]
    again, report = type(theirs).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values()), report
    before, after = theirs.state_dict(), again.eval().state_dict()
    assert set(before) == set(after)
    for key, value in before.items():
        assert torch.equal(value, after[key]), key
    tokens = tokens_of(2, 20)
    assert_same(outputs(again, tokens), outputs(theirs, tokens))


@pytest.mark.parametrize("name", [n for n in CAUSAL if n != "gpt2_base"])
@pytest.mark.parametrize("attention", ["exact", "favor", "local"])
def test_a_stream_equals_the_whole(name: str, attention: str, tmp_path: Path) -> None:
    save(name, tmp_path / "theirs")
    flags = {
        "exact": ("--attention", "exact"),
        "favor": ("--features", 16, "--near", 4, "--keep-exact", 1),
        "local": ("--features", 0, "--near", 5),
    }[attention]
    convert(tmp_path / "theirs", tmp_path / "ours", *flags)
    got = forward(tmp_path / "ours", tokens_of(2, 40))
    assert (got["streamed"] - got["logits"]).abs().max() < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_are_read_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    half = save("llama", tmp_path / "float").to(dtype)
    half.save_pretrained(tmp_path / "half")
    theirs = type(half).from_pretrained(tmp_path / "half", dtype=torch.float32).eval()
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "half"), tokens), outputs(theirs, tokens))


def rename(folder: Path, new_name: Any) -> None:
    file = folder / "model.safetensors"
    save_file({new_name(k): v for k, v in load_file(file).items()}, file, {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("bert_mlm", "bert."), ("gpt2", "transformer."), ("llama", "model."), ("esm", "esm.")],
)
def test_files_may_lack_the_prefix(name: str, prefix: str, tmp_path: Path) -> None:
    theirs = save(name, tmp_path / "theirs")
    rename(tmp_path / "theirs", lambda key: key.removeprefix(prefix))
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "theirs"), tokens), outputs(theirs, tokens))


def test_files_of_a_model_without_a_head_may_have_the_prefix(tmp_path: Path) -> None:
    theirs = save("bert_base", tmp_path / "theirs")
    rename(tmp_path / "theirs", lambda key: "bert." + key)
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "theirs"), tokens), outputs(theirs, tokens))


def test_norms_may_have_their_first_names(tmp_path: Path) -> None:
    theirs = save("bert_mlm", tmp_path / "theirs")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def renamed(key: str) -> str:
        for today, then in old.items():
            key = key.replace(today, then)
        return key

    rename(tmp_path / "theirs", renamed)
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "theirs"), tokens), outputs(theirs, tokens))


def add(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    file = folder / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, {"format": "pt"})


def test_tied_weights_may_be_there_twice_if_they_are_equal(tmp_path: Path) -> None:
    theirs = save("gpt2", tmp_path / "theirs")
    head = theirs.lm_head.weight.detach().clone()
    add(tmp_path / "theirs", {"lm_head.weight": head, "transformer.h.0.attn.bias": torch.ones(3)})
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "theirs"), tokens), outputs(theirs, tokens))
    head[7, 3] += 1
    add(tmp_path / "theirs", {"lm_head.weight": head})
    done = run_program("convert", tmp_path / "theirs", tmp_path / "other")
    assert done.returncode == 4
    assert "lm_head.weight" in done.stderr
    assert "though by config.json they are one" in done.stderr


def test_frequencies_of_each_layer_must_agree(tmp_path: Path) -> None:
    theirs = save("esm", tmp_path / "theirs")
    file = tmp_path / "theirs/model.safetensors"
    tensors = load_file(file)
    (star,) = [key for key in tensors if "inv_freq" in key]
    stored = tensors.pop(star)
    layers = {star.replace("*", str(i)): stored.clone() for i in range(3)}
    save_file({**tensors, **layers}, file, {"format": "pt"})
    tokens = tokens_of(2, 9)
    assert_same(forward(exact(tmp_path / "theirs"), tokens), outputs(theirs, tokens))
    layers[star.replace("*", "1")][2] *= 1.5
    save_file({**tensors, **layers}, file, {"format": "pt"})
    done = run_program("convert", tmp_path / "theirs", tmp_path / "other")
    assert done.returncode == 4
    assert "inv_freq" in done.stderr


def test_features_take_the_place_of_exact_attention(tmp_path: Path) -> None:
    theirs = save("bert_mlm", tmp_path / "theirs")
    done = convert(tmp_path / "theirs", tmp_path / "ours", "--features", 512, "--keep-exact", "0,2")
    assert done["layer_kinds"] == ["exact", "favor", "exact"]
    assert (done["features"], done["near"], done["causal"]) == (512, 0, False)
    tokens = tokens_of(2, 40)
    ours = forward(tmp_path / "ours", tokens)["hidden"]
    want = outputs(theirs, tokens)["hidden"]
    error = (ours - want).norm() / want.norm()
    assert 1e-3 < error < 0.3
    near = convert(tmp_path / "theirs", tmp_path / "near", "--near", 64)
    assert near["near"] == 64
    close = forward(tmp_path / "near", tokens)["hidden"]
    assert (close - want).abs().max() < CLOSE, "40 tokens lie in one block"
    exported = convert("--export", tmp_path / "ours", tmp_path / "again")
    assert not exported["exact"]
    again = type(theirs).from_pretrained(tmp_path / "again").eval()
    assert torch.equal(outputs(again, tokens)["hidden"], want)


def test_causal_models_are_near_unless_told_otherwise(tmp_path: Path) -> None:
    save("gpt2", tmp_path / "theirs")
    done = run_program("convert", tmp_path / "theirs", tmp_path / "ours", "--features", 32)
    assert done.returncode == 0
    assert "causal: near = 64: each token attends exactly to its own block" in done.stderr
    assert "attention: favor, 32 features a head, near = 64" in done.stdout
    far = run_program("convert", tmp_path / "theirs", tmp_path / "far", "--near", 0)
    assert "causal without a near field" in far.stderr


def test_a_converted_model_generates_and_scores_numbers(tmp_path: Path) -> None:
    theirs = save("llama_tied", tmp_path / "theirs")
    ours = exact(tmp_path / "theirs")
    prompt = [3, 11, 5, 20]
    with torch.no_grad():
        want = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=60
        )[0, len(prompt) :].tolist()
    said = answer(
        "generate", ours, "--prompt", " ".join(map(str, prompt)) + " ", "--n", 1, "--length", 12,
        "--temperature", 0, "--no-stop",
    )  # fmt: skip
    assert 60 not in want
    assert 2 not in want, "which ends a sequence there"
    assert [int(t) for t in said["sequences"][0]["text"].split()] == prompt + want
    text = tmp_path / "numbers.txt"
    text.write_text(" ".join(str(5 + i % 40) for i in range(400)))
    scored = answer("eval", ours, "--data", text, "--length", 64)["splits"]["numbers.txt"]
    assert scored["loss"] > 0
    wrong = run_program("generate", ours, "--prompt", "3 eleven")
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert 'must be numbers from 0 to 60 with blanks between, got "eleven"' in wrong.stderr
    bare = run_program("generate", ours)
    assert bare.returncode == 2
    assert "give a --prompt" in bare.stderr
    no_split = run_program("eval", ours)
    assert no_split.returncode == 2


def test_hidden_states_alone_have_no_loss(tmp_path: Path) -> None:
    save("gpt2_base", tmp_path / "theirs")
    ours = exact(tmp_path / "theirs")
    text = tmp_path / "numbers.txt"
    text.write_text("1 2 3 4 5 6 7 8")
    done = run_program("eval", ours, "--data", text)
    assert done.returncode == 2
    assert "model.head: none gives hidden states, which have no loss" in done.stderr


def test_a_checkpoint_remembers_where_it_came_from(tmp_path: Path) -> None:
    save("esm", tmp_path / "theirs")
    (tmp_path / "theirs/vocab.txt").write_text(ESM_VOCABULARY)
    first = convert(tmp_path / "theirs", tmp_path / "first")
    again = convert(str(tmp_path / "theirs") + "/", tmp_path / "again")
    assert first["source"] == again["source"]
    assert first["source"].startswith("theirs sha256:")
    source = json.loads((tmp_path / "first/source.json").read_text())
    assert set(source["files"]) == {"config.json", "model.safetensors"}
    assert (tmp_path / "first/source-vocab.txt").read_text() == ESM_VOCABULARY
    recipe = json.loads((tmp_path / "first/config.json").read_text())
    assert recipe["source"] == first["source"]
    convert("--export", tmp_path / "first", tmp_path / "back")
    assert (tmp_path / "back/vocab.txt").read_text() == ESM_VOCABULARY
    assert transformers.AutoConfig.from_pretrained(tmp_path / "back").model_type == "esm"
    add(tmp_path / "theirs", {"esm.contact_head.regression.bias": torch.ones(1)})
    assert convert(tmp_path / "theirs", tmp_path / "third")["source"] != first["source"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    save("gpt2", tmp_path / "theirs")
    out = tmp_path / "ours"
    out.mkdir()
    done = run_program("convert", tmp_path / "theirs", out)
    assert done.returncode == 2
    assert "is there already; name a new folder" in done.stderr
    bad = tmp_path / "theirs/model.safetensors"
    tensors = load_file(bad)
    tensors["transformer.ln_f.weight"][3] = float("nan")
    save_file(tensors, bad)
    done = run_program("convert", tmp_path / "theirs", tmp_path / "other")
    assert done.returncode == 4
    assert 'tensor "transformer.ln_f.weight" holds NaN or infinity' in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ours", "theirs"]
    full = run_program("convert", tmp_path / "theirs", "/proc/nowhere")
    assert full.returncode == 5


def test_a_run_that_was_trained_here_does_not_go_back(tmp_path: Path) -> None:
    run = ROOT / "tests/fixtures/642545a/run"
    done = run_program("convert", "--export", run, tmp_path / "out")
    assert done.returncode == 3
    assert "was not converted from a folder in Hugging Face's layout" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--attention", "exact", "--near", 8), "--near: has no effect with --attention exact"),
        (("--export", "--features", 8), "--features: has no effect with --export"),
        (("--export", "--check"), "--check: has no effect with --export"),
        (("--keep-exact", "3"), "--keep-exact: the layers are 0 to 2, got 3"),
        (("--features", 0), "needs a projection"),
        (("--attention", "linear"), "--attention"),
    ],
)
def test_flags_that_mean_nothing_are_refused(
    flags: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    save("bert_base", tmp_path / "theirs")
    done = run_program("convert", tmp_path / "theirs", tmp_path / "ours", *flags)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
