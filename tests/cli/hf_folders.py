"""Small tokenizers of every kind that is read, made by the package `tokenizers`."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA = rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{SYMBOLS}|{SPACES}"
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN_MARKS = QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)


def lines() -> list[str]:
    book = gzip.decompress((ROOT / "data/books/persuasion.txt.gz").read_bytes()).decode()
    more = ["naïve café ÀÉÎ 日本 中文 ١٢٣ 👍 déjà-vu 1,234.5", "[brackets] 'tis we'll x's"] * 20
    return book[:150_000].splitlines() + more


def saved(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def word_piece(folder: Path, *, lower: bool = True, **bert: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, **bert)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1500, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(lines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return saved(tokenizer, folder)


def byte_level(
    folder: Path,
    split: pre_tokenizers.PreTokenizer | None,
    normalizer: normalizers.Normalizer | None = None,
    **bpe: bool,
) -> Tokenizer:
    """`split`: None is GPT-2's own."""
    tokenizer = Tokenizer(models.BPE(**bpe))
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    tokenizer.pre_tokenizer = own if split is None else pre_tokenizers.Sequence([split, own])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines(), trainer)
    return saved(tokenizer, folder)


def by_pattern(expression: str, behavior: str = "isolated") -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(expression), behavior, invert=behavior == "removed")


def gpt2(folder: Path) -> Tokenizer:
    tokenizer = byte_level(folder, None)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def llama3(folder: Path) -> Tokenizer:
    tokenizer = byte_level(folder, by_pattern(LLAMA), ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin_of_text|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)]
            ),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def roberta(folder: Path) -> Tokenizer:
    tokenizer = byte_level(folder, None)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True)])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def added(folder: Path) -> Tokenizer:
    """Added tokens with every setting, under a normalizer that changes some of them."""
    tokenizer = word_piece(folder)
    tokenizer.add_tokens(
        [
            AddedToken("Monday", normalized=True),
            AddedToken("Été", normalized=True, single_word=True),
            AddedToken("the dog", normalized=True, lstrip=True),
            AddedToken("Hello", normalized=False),
            AddedToken("<both>", normalized=False, lstrip=True, rstrip=True),
            AddedToken("x<", normalized=False, single_word=True),
            AddedToken("  ", normalized=False, rstrip=True),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def llama2(folder: Path, *, metaspace: str = "", split: bool = False) -> Tokenizer:
    """Byte fallback; `metaspace`: by a pre-tokenizer with this scheme, not by a normalizer."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    space = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=split)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=metaspace)
    else:
        tokenizer.normalizer = space
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=names, show_progress=False)
    by_words = [word for line in lines() for word in line.split(" ")]
    tokenizer.train_from_iterator(lines() if metaspace else by_words, trainer)
    model = json.loads(tokenizer.to_str())
    model["added_tokens"] = [t for t in model["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(model))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return saved(tokenizer, folder)


def unknown_letters(folder: Path) -> Tokenizer:
    """Letters without a token: each one unknown, not fused."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>"], show_progress=False, limit_alphabet=40
    )
    tokenizer.train_from_iterator(lines(), trainer)
    return saved(tokenizer, folder)


KINDS: dict[str, Callable[[Path], Tokenizer]] = {
    "bert": word_piece,
    "bert-cased": lambda folder: word_piece(folder, lower=False),
    "bert-accents": lambda folder: word_piece(folder, strip_accents=False),
    "bert-unclean": lambda f: word_piece(f, clean_text=False, handle_chinese_chars=False),
    "added": added,
    "gpt2": gpt2,
    "roberta": roberta,
    "llama3": llama3,
    "qwen2": lambda folder: byte_level(folder, by_pattern(QWEN), normalizers.NFC()),
    "qwen3.5": lambda folder: byte_level(folder, by_pattern(QWEN_MARKS, "removed")),
    "digits": lambda folder: byte_level(folder, pre_tokenizers.Digits(individual_digits=True)),
    "digit-runs": lambda folder: byte_level(folder, pre_tokenizers.Digits()),
    "llama2": llama2,
    "metaspace-first": lambda folder: llama2(folder, metaspace="first"),
    "metaspace-always": lambda folder: llama2(folder, metaspace="always", split=True),
    "metaspace-never": lambda folder: llama2(folder, metaspace="never", split=True),
    "unknown-letters": unknown_letters,
}
