"""What the numbers of a model mean: tokenizer.json of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from performer._run.files import member

_LETTERS = "ACDEFGHIKLMNPQRSTVWYXBUZO"
_FIRST_LETTER = 4
_KINDS = ("protein", "bytes", "sentencepiece", "hf", "ids", "pixels", "recall")
_DROPPED = " \t\r\n-."


class TokenSpace(NamedTuple):
    """Specials are -1 where there is no such token; `start` is what generation begins with."""

    kind: str
    vocabulary: int
    pad: int
    bos: int
    eos: int
    mask: int
    start: int
    first_regular: int
    regular: int
    classes: tuple[str, ...]

    def encode(self, text: str | bytes) -> list[int]:
        """Without BOS and EOS."""
        if self.kind == "bytes":
            return list(text.encode() if isinstance(text, str) else text)
        if self.kind != "protein":
            raise ValueError(
                f"encode: {self.kind} tokens are not encoded here; pass the numbers themselves"
            )
        return _encode_protein(text if isinstance(text, str) else text.decode("utf-8", "replace"))

    def decode(self, tokens: Iterable[int]) -> str:
        """Specials are left out."""
        inside = range(self.first_regular, self.first_regular + self.regular)
        kept = [int(token) for token in tokens if int(token) in inside]
        if self.kind == "bytes":
            return bytes(kept).decode("utf-8", "replace")
        if self.kind == "protein":
            return "".join(_LETTERS[token - _FIRST_LETTER] for token in kept)
        if self.kind in ("sentencepiece", "hf"):
            raise ValueError(f"decode: {self.kind} tokens are not decoded here")
        return " ".join(str(token) for token in kept)


def _encode_protein(text: str) -> list[int]:
    x = _FIRST_LETTER + _LETTERS.index("X")
    tokens = []
    for letter in text:
        upper = letter.upper() if letter.isascii() else letter
        if upper in _DROPPED:
            continue
        if upper in ("*", "J"):  # a stop inside, leucine or isoleucine
            tokens.append(x)
        elif upper in _LETTERS:
            tokens.append(_FIRST_LETTER + _LETTERS.index(upper))
        else:
            raise ValueError(f"encode: {letter!r} is not an amino acid; allowed are {_LETTERS}")
    return tokens


def read_token_space(values: Any, name: str) -> TokenSpace:
    kind = member(values, "kind", str, name)
    if kind not in _KINDS:
        raise ValueError(f"{name}: kind must be one of {', '.join(_KINDS)}, got {kind!r:.40}")
    vocabulary = member(values, "vocabulary", int, name)
    numbers = {
        key: member(values, key, int, name)
        for key in ("pad", "bos", "eos", "mask", "start", "first_regular", "regular")
    }
    classes = tuple(str(item) for item in member(values, "classes", list, name))
    space = TokenSpace(kind=kind, vocabulary=vocabulary, classes=classes, **numbers)
    specials = (space.pad, space.bos, space.eos, space.mask, space.start)
    inside = 0 <= space.first_regular <= vocabulary - space.regular and space.regular >= 1
    if not inside or not all(-1 <= token < vocabulary for token in specials):
        raise ValueError(f"{name}: damaged: a token lies outside the vocabulary of {vocabulary}")
    if kind == "protein" and (space.first_regular, space.regular) != (_FIRST_LETTER, len(_LETTERS)):
        raise ValueError(f"{name}: damaged: {space.regular} residues, there are {len(_LETTERS)}")
    if kind == "bytes" and (space.first_regular, space.regular) != (0, 256):
        raise ValueError(f"{name}: damaged: {space.regular} bytes, there are 256")
    return space
