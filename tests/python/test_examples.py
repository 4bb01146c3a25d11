"""The programs of examples/python do what they say."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from small_transformers import bert

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "python" / name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(text):
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]


def test_a_model_learns_what_only_attention_can_tell():
    text = run("attention_in_a_model.py")
    assert losses(text)[-1] < 0.1 < 2 < losses(text)[0]
    assert re.search(r"(9\d|100)% of positions right\n$", text)


def test_a_model_generates_with_a_state_what_one_pass_would_choose():
    text = run("generate_with_a_state.py")
    assert losses(text)[-1] < 0.7 * losses(text)[0]
    assert "'def " in text
    (again,) = re.findall(r"chooses (\d+)% of them again", text)
    assert int(again) >= 95


def test_a_model_of_embeddings_is_converted(tmp_path):
    words = [f"{letter}{number}" for letter in "abcdefgh" for number in range(5)]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    transformers.BertTokenizer(vocab=str(vocabulary)).save_pretrained(tmp_path / "model")
    bert(vocab_size=45).save_pretrained(tmp_path / "model")
    generator = random.Random(4)
    lines = [" ".join(generator.choices(words, k=30)) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    text = run(
        "convert_embeddings.py",
        *(tmp_path / name for name in ("model", "texts.txt", "out")),
        *("--attention-steps", "20", "--model-steps", "20"),
    )
    plain, fitted, loaded = map(float, re.findall(r"cosine ([\d.]+) on 6", text))
    assert fitted > plain and loaded == fitted


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_listed_and_tested(example):
    assert f"`python/{example.name}`" in (ROOT / "examples" / "README.md").read_text()
    assert example.name in Path(__file__).read_text()
