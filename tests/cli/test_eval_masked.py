"""`performer eval` of imported encoders, on the lines of a text."""

import json
from pathlib import Path

import hf_folders
import pytest
import torch
import transformers
from conftest import answer, run_program
from tokenizers import Tokenizer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = ("the", "and", "was", "with", "her", "had", "that", "she", "not", "his") * 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tokenizer, object]:
    folder = tmp_path_factory.mktemp("masked") / "theirs"
    tokenizer = hf_folders.word_piece(folder)
    named = {"tokenizer_class": "BertTokenizer", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    torch.manual_seed(3)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "intermediate_size": 48, **SIZES}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    done = run_program("convert", folder, folder.with_name("ours"), "--attention", "exact")
    assert done.returncode == 0, done.stderr
    return folder.with_name("ours"), tokenizer, model


def table(model: Path, text: Path) -> list[dict[str, str]]:
    path = text.with_suffix(".tsv")
    answer("eval", model, "--data", text, "--per-sequence", path)
    head, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_a_word_alone_is_predicted_between_its_special_tokens(tmp_path, made) -> None:
    ours, tokenizer, theirs = made
    text = tmp_path / "words.txt"
    text.write_text("\n".join(WORDS) + "\n")
    rows = table(ours, text)
    assert len(rows) == len(WORDS)
    masked = 0
    for word, row in zip(WORDS, rows, strict=True):
        begin, token, end = tokenizer.encode(word).ids
        mask = tokenizer.token_to_id("[MASK]")
        with torch.no_grad():
            logits = theirs(torch.tensor([[begin, mask, end]])).logits[0, 1]
        loss = -logits.log_softmax(-1)[token].item()
        assert (row["residues"], row["targets"]) == ("1", "1")
        masked += abs(float(row["loss"]) - loss) < 1e-4
    assert 0.6 * len(WORDS) < masked < len(WORDS)  # 80 % become the mask, the others do not


def test_lines_are_counted_by_their_tokens(tmp_path, made) -> None:
    ours, tokenizer, _ = made
    text = tmp_path / "lines.txt"
    lines = ["She was not to be seen.", "", "naïve café", "x " * 700]
    text.write_text("\n".join(lines) + "\n")
    rows = table(ours, text)
    kept = [line for line in lines if line]
    counts = [len(tokenizer.encode(line, add_special_tokens=False).ids) for line in kept]
    assert [int(row["residues"]) for row in rows] == counts
    assert [row["id"] for row in rows] == ["1", "3", "4"]
    assert int(rows[2]["left_out"]) == 700 + 1 - 512  # [CLS] stands first


def test_a_tokenizer_without_a_mask_is_told(tmp_path, made) -> None:
    folder = tmp_path / "theirs"
    hf_folders.word_piece(folder)
    made[2].save_pretrained(folder)
    assert run_program("convert", folder, tmp_path / "ours").returncode == 0
    text = tmp_path / "words.txt"
    text.write_text("the\n")
    done = run_program("eval", tmp_path / "ours", "--data", text)
    assert done.returncode == 2, done.stderr
    assert "its tokenizer names no mask" in done.stderr
