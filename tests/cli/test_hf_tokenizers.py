"""`data tokenize` against the package `tokenizers`: the same ids, and the same text back."""

import json
from pathlib import Path

import pytest
from conftest import run_program
from hf_folders import KINDS, byte_level
from odd_texts import odd_texts
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers


def tokenize(folder: Path, inputs: list[object], *flags: str) -> list[object]:
    """What the program prints for lines of JSON."""
    lines = "".join(json.dumps(value) + "\n" for value in inputs)
    done = run_program("data", "tokenize", folder, *flags, input=lines)
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(printed) == len(inputs)
    return printed


def expect_equal(inputs: list[object], ours: list[object], theirs: list[object]) -> None:
    wrong = [(i, a, b) for i, a, b in zip(inputs, ours, theirs, strict=True) if a != b]
    assert not wrong, f"{len(wrong)} of {len(inputs)} differ, the first for {wrong[0]}"


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_text_are_those_of_the_package(kind: str, tmp_path: Path) -> None:
    tokenizer = KINDS[kind](tmp_path / kind)
    texts = odd_texts()
    encoded = [tokenizer.encode(text).ids for text in texts]
    expect_equal(texts, tokenize(tmp_path / kind, texts, "--strings"), encoded)
    bare = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    expect_equal(texts, tokenize(tmp_path / kind, texts, "--strings", "--bare"), bare)
    decoded = [tokenizer.decode(ids) for ids in encoded]
    expect_equal(encoded, tokenize(tmp_path / kind, encoded, "--decode"), decoded)


def every_letter() -> list[list[str]]:
    """All code points that have a meaning, a thousand a text."""
    planes = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200), 0xF0000, 0x10FFFD]
    return [list(map(chr, planes[i : i + 1000])) for i in range(0, len(planes), 1000)]


def test_every_letter_is_cleaned_split_and_made_small_as_the_package_does(tmp_path: Path) -> None:
    pieces = {c for text in every_letter() for c in text}
    lower, parts = normalizers.Lowercase(), normalizers.NFD()
    made = {c: lower.normalize_str(parts.normalize_str(c)) for c in pieces}
    words = sorted({part for c, whole in made.items() if whole != c for part in whole})
    names = ["[UNK]", "[CLS]", "[SEP]", "ab", "a", "##a", "##b"]
    names += [name for word in words if word not in "ab" for name in (word, f"##{word}")]
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in names), newline="\n")
    tokenizer = Tokenizer(models.WordPiece(dict(zip(names, range(len(names)), strict=True))))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = [" ".join(f"a{c}b {c}" for c in text) for text in every_letter()]
    theirs = [tokenizer.encode(text).ids for text in texts]
    expect_equal(texts, tokenize(folder, texts, "--strings", "--bare"), theirs)


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "qwen3.5", "digits"])
def test_every_letter_is_in_the_class_that_expressions_see(kind: str, tmp_path: Path) -> None:
    tokenizer = KINDS[kind](tmp_path / kind)
    model = json.loads(tokenizer.to_str())
    # A merge of any byte with letters, digits and symbols before or behind it shows a split.
    vocabulary, merges = model["model"]["vocab"], []
    singles = [token for token in vocabulary if len(token) == 1]
    for left in [*"a1.Ġ", *singles]:
        for right in singles if left in "a1.Ġ" else "a1.":
            if [left, right] not in merges:
                merges.append([left, right])
                vocabulary.setdefault(left + right, len(vocabulary))
    names = [token["content"] for token in model["added_tokens"]]
    order = [token for token in vocabulary if token not in names]
    model["model"]["vocab"] = {token: i for i, token in enumerate([*names, *order])}
    model["model"]["merges"] = merges
    model["post_processor"] = None
    for i, token in enumerate(model["added_tokens"]):
        token["id"] = i
    (tmp_path / kind / "tokenizer.json").write_text(json.dumps(model))
    tokenizer = Tokenizer.from_str(json.dumps(model))
    texts = ["".join(f"a{c}a1{c}1.{c}. {c} {c}\n" for c in text) for text in every_letter()]
    theirs = [tokenizer.encode(text).ids for text in texts]
    expect_equal(texts, tokenize(tmp_path / kind, texts, "--strings"), theirs)


def test_normal_forms_of_every_letter_and_order_of_marks_agree(tmp_path: Path) -> None:
    texts = ["".join(f"{c}\u0334a\u0345{c}\u0301 {c}" for c in text) for text in every_letter()]
    parts = normalizers.NFD()
    texts += [parts.normalize_str(text) for text in texts]
    for name, form in (("NFC", normalizers.NFC()), ("NFD", parts)):
        tokenizer = byte_level(tmp_path / name, pre_tokenizers.Digits(), form)
        model = json.loads(tokenizer.to_str())
        model["model"]["merges"] = []
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(model))
        tokenizer = Tokenizer.from_str(json.dumps(model))
        theirs = [tokenizer.encode(text).ids for text in texts]
        expect_equal(texts, tokenize(tmp_path / name, texts, "--strings"), theirs)
