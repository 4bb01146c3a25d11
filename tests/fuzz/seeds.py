#!/usr/bin/env python3
"""Writes the hand-made part of the corpora, small files that reach each branch of a reader.

What a fuzzer found lies beside them under the name of its hash. usage: seeds.py
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "attack"))

import formats  # noqa: E402

FASTA = b">a one\nACDE\nFGHI*\n\n>b\r\nmkv-l.XB\r\n>empty\n>c\tthree\nMK*VJ"
TSV = b"text\tlabel\tsplit\none\\ttwo\tcat\ttrain\n\nthree\\\\\tdog\tvalid\r\nfour\\n\tcat\ttest"
TENSOR = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}
EMPTY = {"dtype": "I64", "shape": [0, 3], "data_offsets": [8, 8]}
FILES = [{"name": "model.safetensors", "bytes": 3, "sha256": "ab" * 32}]
MANIFEST = {"format": "performer-checkpoint", "version": 1, "step": 3, "files": FILES}
RECIPE = b"""# a recipe
[data]
task = "text"
train = 'a.txt'
length = 64
mask_probability = 1.5e-1
[optimizer]
rate = 1e-3
decay_vectors = true
[train]
steps = 0x10
precision = "bf16"
"""

PNGS = {
    "gray": formats.png(3, 2, b"\0abc\1\1\2\3"),
    "color": formats.png(1, 2, b"\0rgb\2\1\1\1", color=2),
    "alpha": formats.png(1, 1, b"\0rgba", color=6),
    "deep": formats.png(1, 1, b"\0\1\2", depth=16),
    "bits": formats.png(9, 1, b"\0\x55\x80", depth=1),
    "interlaced": formats.png_head(1, 1, interlace=1) + formats.png(1, 1, b"\0a")[33:],
    "palette": formats.png_head(2, 1, color=3)
    + formats.chunk(b"PLTE", b"rgbRGB")
    + formats.chunk(b"tRNS", b"\x7f")
    + formats.png(2, 1, b"\0\0\1")[33:],
    "pnm": b"P6 # color\n1 2\n255\nrgbRGB",
}


def folder(text: str, **files: object) -> bytes:
    """Files by their letters and a text, as hf_fuzz.cpp takes them."""
    parts = [
        letter + (file if isinstance(file, str) else json.dumps(file, ensure_ascii=False))
        for letter, file in files.items()
    ]
    return "\0".join([*parts, text]).encode()


def numbered(tokens: str) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens.split())}


SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORD_PIECE = {
    "version": "1.0",
    "added_tokens": [{"id": 1, "content": "[MASK]", "special": True, "lstrip": True}],
    "normalizer": {"type": "BertNormalizer", "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "vocab": numbered("[UNK] [MASK] [CLS] [SEP] a ##b c . 中")},
}
BYTE_LEVEL = {
    "added_tokens": [
        {"id": 6, "content": "<x>", "special": True, "normalized": False, "single_word": True},
        {"id": 7, "content": "É ", "rstrip": True, "normalized": True},
    ],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated"},
            {"type": "Digits", "individual_digits": False},
            {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False},
        ],
    },
    "post_processor": {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel"},
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<x>"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"<x>": {"ids": [6]}},
            },
        ],
    },
    "decoder": {"type": "ByteLevel"},
    "model": {
        "ignore_merges": True,
        "vocab": numbered("a b Ġ ab Ġab Ã"),
        "merges": ["a b", "Ġ ab"],
    },
}
BYTE_FALLBACK = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "model": {
        "type": "BPE",
        "unk_token": "?",
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": numbered("? ▁ a ▁a <0xC3> <0xA9>"),
        "merges": [["▁", "a"]],
    },
}
METASPACE = {
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
    "decoder": {"type": "Metaspace", "replacement": "▁"},
    "model": {"type": "BPE", "vocab": numbered("▁ a b ▁a"), "merges": [["▁", "a"]]},
}

SIZES = {
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def model(kind: str, architecture: str, **values: object) -> bytes:
    values = {"model_type": kind, "architectures": [architecture], **SIZES, **values}
    return json.dumps(values).encode()


MODELS = {
    "bert": model("bert", "BertForMaskedLM", max_position_embeddings=5, hidden_act="gelu_new"),
    "esm": model(
        "esm",
        "EsmForMaskedLM",
        position_embedding_type="rotary",
        token_dropout=True,
        mask_token_id=3,
        vocab_list=None,
    )
    + b" ",  # with frequencies of its own
    "gpt2": model(
        "gpt2",
        "GPT2LMHeadModel",
        n_embd=8,
        n_layer=2,
        n_head=2,
        n_positions=5,
        tie_word_embeddings=False,
    ),
    "llama": model(
        "llama",
        "LlamaForCausalLM",
        num_key_value_heads=1,
        head_dim=6,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "qwen2": model("qwen2", "Qwen2Model", layer_types=["full_attention"] * 2, rope_scaling=None),
    "index": b'{"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}',
    "escaping": b'{"weight_map": {"a": "../m.safetensors"}}',
}

SEEDS: dict[str, dict[str, bytes]] = {
    "hf": {
        "word_piece": folder("ab, Áb中 [MASK]c\n", t=WORD_PIECE),
        "byte_level": folder("<x> ab'S é  12345\r\n\n x<x>", t=BYTE_LEVEL),
        "byte_fallback": folder("a é 中 a", t=BYTE_FALLBACK),
        "metaspace": folder("a b  a", t=METASPACE),
        "bert": folder(
            "A ab [MASK] éa",
            v="[UNK]\n[CLS]\r\n[SEP]\n[MASK]\na\n##b\n",
            c={"do_lower_case": True, "tokenizer_class": "BertTokenizer"},
        ),
        "esm": folder("MK <mask>J\x1cX", v="<cls>\n<pad>\n<eos>\n<unk>\nM\nK\n<mask>"),
        "gpt2": folder(
            "ab a<|endoftext|>",
            j=numbered("a b Ġ ab <|endoftext|>"),
            m="#version: 0.2\na b\n",
            c={"add_prefix_space": True, "pad_token": {"content": "b"}},
        ),
        "unigram": folder("a", t={"model": {"type": "Unigram", "vocab": [["a", -1.5]]}}),
    },
    "fasta": {
        "plain": FASTA,
        "gzip": formats.gzip_member(FASTA),
        "blank": b"\n\n \n",
        "bzip2": b"BZh91AY&SY",
        "bzip2_cut": b"BZh",
    },
    "tsv": {
        "plain": TSV,
        "gzip": formats.gzip_member(TSV[:40]) + formats.gzip_member(TSV[40:]),
        "narrow": b"label\r\n",
    },
    "png": PNGS,
    "pretrained": MODELS,
    "toml": {
        "recipe": RECIPE,
        "dotted": b"train.steps = 0x10\ndata.seed=7",  # its last line is read as --set too
        "nested": b"data.length = 3\ntrain = {steps = 4, batch = [[1], [2]]}\n",
        "unknown": b'[optimizer]\n"ra te" = """\n1"""\nrat = 1979-05-27T07:32:00Z\n',
    },
    "json": {
        "manifest": formats.sealed(MANIFEST).encode(),
        "latest": formats.sealed_pointer(12).encode(),
        "other": b'{"a": [1, -2.5e3, null, true], "b\\u00e9": {"c": "\\ud83d\\ude00"}}',
    },
    "safetensors": {
        "two": formats.safetensors({"a": TENSOR, "b": EMPTY}, bytes(8)),
        "metadata": formats.safetensors(
            {"__metadata__": {"format": "pt"}, "half": {**TENSOR, "dtype": "BF16", "shape": [4]}},
            bytes(8),
        ),
        "bare": formats.safetensors({}),
    },
    "pds": {
        "three": formats.pds([b"\4\5\6", b"\7", b"\x0b\x1c\x0c\x04"]),
        "one": formats.pds([b"\4" * 8]),
        "newer": formats.pds([b"\4"], version=2),
    },
}


def main() -> None:
    for target, files in SEEDS.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
