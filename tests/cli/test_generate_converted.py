"""`performer generate` of converted models: spaces between prompt and text, and where it ends."""

import json
from pathlib import Path

import hf_folders
import pytest
import torch
import transformers
from conftest import answer, run_program
from tokenizers import Tokenizer


def says(token: int, folder: Path, vocabulary: int = 40, **config: object) -> Path:
    """Converts a model that answers everything with one token, and whatever lies in `folder`."""
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    made = transformers.GPT2Config(vocab_size=vocabulary, **sizes, **config)
    model = transformers.GPT2LMHeadModel(made)
    with torch.no_grad():
        model.transformer.wte.weight[token] *= 10
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.copy_(model.transformer.wte.weight[token])
    kept = folder / "generation_config.json"
    text = kept.read_text() if kept.exists() else None
    model.save_pretrained(folder)
    kept.unlink(missing_ok=True)
    if text is not None:
        kept.write_text(text)
    done = run_program("convert", folder, folder.with_name("ours"), "--features", 8)
    assert done.returncode == 0, done.stderr
    return folder.with_name("ours")


def generated(model: Path, prompt: str, *flags: object) -> str:
    said = answer("generate", model, "--prompt", prompt, "--n", 1, "--temperature", 0, *flags)
    (sequence,) = said["sequences"]
    return str(sequence["text"])


def last_token(tokenizer: Tokenizer, text: str) -> int:
    return int(tokenizer.encode(text, add_special_tokens=False).ids[-1])


@pytest.mark.parametrize("kind", ["word_piece", "llama2", "gpt2"])
@pytest.mark.parametrize("prompt", ["the cat", "the cat "])
def test_the_prompt_and_what_follows_are_one_text(tmp_path: Path, kind: str, prompt: str) -> None:
    folder = tmp_path / "theirs"
    tokenizer = getattr(hf_folders, kind)(folder)
    token = last_token(tokenizer, "one the" if kind != "llama2" else "the")
    ours = says(token, folder, tokenizer.get_vocab_size())
    before = tokenizer.encode(prompt, add_special_tokens=False).ids
    want = tokenizer.decode([*before, token, token])
    got = generated(ours, prompt, "--length", 2)
    assert got.startswith(prompt)
    assert got.split() == want.split() and "  " not in got.removeprefix(prompt)
    if kind == "word_piece":
        assert got == "the cat the the"


def test_numbers_have_blanks_between(tmp_path: Path) -> None:
    ours = says(7, tmp_path / "theirs", eos_token_id=5)
    assert generated(ours, "3 4", "--length", 3) == "3 4 7 7 7"
    assert generated(ours, "3 4 ", "--length", 3) == "3 4 7 7 7"


@pytest.mark.parametrize(
    ("config", "own", "made"),
    [
        (5, None, 3),
        ([5, 7], None, 0),
        (5, [9, 7], 0),  # generation_config.json is heard first
        ([5, 7], 9, 3),
        ([5, 7], [], 3),
        (5, [7, 400], 0),  # 400 is no token of it
    ],
)
def test_any_of_several_tokens_ends_a_sequence(
    tmp_path: Path, config: object, own: object, made: int
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    if own is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": own}))
    ours = says(7, folder, eos_token_id=config)
    said = answer("generate", ours, "--prompt", "3", "--n", 1, "--temperature", 0, "--length", 3)
    assert said["sequences"][0]["tokens"] == made
    on = ("--length", 3, "--no-stop", "--temperature", 0, "--prompt", "3", "--n", 1)
    (sequence,) = answer("generate", ours, *on)["sequences"]
    assert sequence["tokens"] == 3
    assert ("7" in sequence["text"].split()) == (made == 3)


def test_ends_that_are_no_tokens_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "generation_config.json").write_text('{"eos_token_id": "seven"}')
    ours = says(7, folder)
    done = run_program("generate", ours, "--prompt", "3")
    assert done.returncode == 4, done.stderr
    assert "generation_config.json" in done.stderr and "eos_token_id" in done.stderr
