"""Folders without a tokenizer.json, against what transformers makes of the same files."""

import json
from pathlib import Path

import pytest
from hf_folders import gpt2, word_piece
from odd_texts import odd_texts
from test_hf_tokenizers import expect_equal, tokenize
from tokenizers import Tokenizer
from transformers import BertTokenizer, EsmTokenizer, GPT2Tokenizer, RobertaTokenizer

ESM = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
)
SEQUENCES = [
    "MKTAYIAKQR",
    "MKT AYI\nAKQR",
    "mkt",
    "MJKL JJ j J",
    "<mask>MK<mask> <mask> A",
    "M.K-T<null_1>X<cls>A<eos> <unk>",
    "M\x1cK\x1f\x85J\u00a0J\u3000L \x1c ",
    "<MASK> <mas k>",
]


def write_vocabulary(folder: Path, tokenizer: Tokenizer, **config: object) -> Path:
    """vocab.txt, or vocab.json and merges.txt, of a trained tokenizer in a folder of its own."""
    folder.mkdir()
    tokenizer.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "config",
    [{}, {"do_lower_case": False}, {"strip_accents": False, "tokenize_chinese_chars": False}],
)
def test_the_vocabulary_of_bert(config: dict[str, bool], tmp_path: Path) -> None:
    trained = word_piece(tmp_path / "trained")
    mask = {"__type": "AddedToken", "content": "[MASK]", "lstrip": True, "normalized": False}
    mask |= {"rstrip": False, "single_word": False, "special": True}
    named = {"tokenizer_class": "BertTokenizerFast", "mask_token": mask}
    folder = write_vocabulary(tmp_path / "bert", trained, **config, **named)
    theirs = BertTokenizer.from_pretrained(folder)
    texts = odd_texts()
    encoded = [theirs(text)["input_ids"] for text in texts]
    expect_equal(texts, tokenize(folder, texts, "--strings"), encoded)
    decoded = [theirs.decode(ids, skip_special_tokens=True) for ids in encoded]
    expect_equal(encoded, tokenize(folder, encoded, "--decode"), decoded)


@pytest.mark.parametrize("space", [False, True])
def test_the_vocabulary_and_merges_of_gpt2(space: bool, tmp_path: Path) -> None:
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": space}
    folder = write_vocabulary(tmp_path / "gpt2", gpt2(tmp_path / "trained"), **config)
    theirs = GPT2Tokenizer.from_pretrained(folder)
    texts = odd_texts()
    encoded = [theirs(text)["input_ids"] for text in texts]
    expect_equal(texts, tokenize(folder, texts, "--strings"), encoded)
    decoded = [theirs.decode(ids, skip_special_tokens=True) for ids in encoded]
    expect_equal(encoded, tokenize(folder, encoded, "--decode"), decoded)


def test_the_vocabulary_and_merges_of_roberta(tmp_path: Path) -> None:
    folder = write_vocabulary(
        tmp_path / "roberta", gpt2(tmp_path / "trained"), tokenizer_class="RobertaTokenizer"
    )
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = json.loads((folder / "vocab.json").read_text())
    vocabulary.update({name: len(vocabulary) + i for i, name in enumerate(names)})
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    theirs = RobertaTokenizer.from_pretrained(folder)
    texts = odd_texts()
    encoded = [theirs(text)["input_ids"] for text in texts]
    expect_equal(texts, tokenize(folder, texts, "--strings"), encoded)


@pytest.mark.parametrize("config", [{}, {"tokenizer_class": "EsmTokenizer"}])
def test_the_vocabulary_of_esm(config: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(ESM.split()))
    if config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = EsmTokenizer(str(tmp_path / "vocab.txt"))
    texts = SEQUENCES + odd_texts()
    encoded = [theirs(text)["input_ids"] for text in texts]
    expect_equal(texts, tokenize(tmp_path, texts, "--strings"), encoded)
    # Residues stand side by side, where transformers puts spaces between.
    decoded = [
        "".join(theirs.convert_ids_to_tokens(ids, skip_special_tokens=True)) for ids in encoded
    ]
    expect_equal(encoded, tokenize(tmp_path, encoded, "--decode"), decoded)
