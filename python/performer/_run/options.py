"""The section `model` of a checkpoint's config.json."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from performer._run.files import member

KINDS = ("favor", "exact", "linear", "identity", "mean")

# What checkpoints of older programs lack: the first version that has the key, and what those
# programs acted by.
_LATER = (
    (3, "attention.rounding", "none"),
    (3, "attention.near", 0),
    (4, "kv_heads", 0),
    (4, "head_width", 0),
    (4, "norm_eps", 1e-5),
    (4, "embedding_norm", False),
    (4, "qkv_bias", True),
    (4, "attention_output_bias", True),
    (4, "ff_bias", True),
    (4, "rotary_base", 10000.0),
    (4, "rotary_frequencies", "base"),
    (4, "token_types", 0),
    (4, "token_dropout", -1),
    (4, "head_transform", False),
    (4, "logits_bias", False),
)
# Keys of kinds that are refused, and of training alone.
_IGNORED = {
    "": ("dropout", "checkpointing", "attention", "layer_kinds"),
    "attention.": (
        "redraw_interval", "linformer_k", "linformer_projection", "linformer_delta",
        "lsh_hashes", "lsh_chunk", "lsh_buckets",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class AttentionOptions:
    """A line for each key that the model here understands; what it does not name is refused."""

    kind: str = field(metadata={"known": KINDS})
    kernel: str
    features: int = field(metadata={"most": 1 << 16})
    near: int = field(metadata={"most": 1 << 12})
    projection: str
    projection_norm: str
    rounding: str
    per_head: bool
    renormalize: bool
    eps: float
    scale: float
    seed: int = field(metadata={"most": 2**63 - 1})


@dataclass(frozen=True)
class ModelOptions:
    """As AttentionOptions."""

    vocabulary: int = field(metadata={"least": 1, "most": 1 << 28})
    max_length: int = field(metadata={"least": 1, "most": 1 << 31})
    layers: int = field(metadata={"least": 1, "most": 1 << 14})
    dim: int = field(metadata={"least": 1, "most": 1 << 20})
    heads: int = field(metadata={"least": 1, "most": 1 << 20})
    ff_dim: int = field(metadata={"least": 1, "most": 1 << 20})
    causal: bool
    norm: str = field(metadata={"known": ("layer", "rms")})
    norm_position: str = field(metadata={"known": ("pre", "post")})
    activation: str = field(metadata={"known": ("relu", "gelu", "gelu_tanh", "swiglu")})
    positions: str = field(metadata={"known": ("learned", "sinusoidal", "rotary", "none")})
    tied: bool
    reversible: bool
    head: str = field(metadata={"known": ("lm", "classify", "match", "none")})
    classes: int = field(metadata={"most": 1 << 28})
    kv_heads: int = field(metadata={"most": 1 << 20})
    head_width: int = field(metadata={"most": 1 << 16})
    norm_eps: float
    embedding_norm: bool
    qkv_bias: bool
    attention_output_bias: bool
    ff_bias: bool
    rotary_base: float
    rotary_frequencies: str = field(metadata={"known": ("base", "stored")})
    token_types: int = field(metadata={"most": 1 << 20})
    token_dropout: int = field(metadata={"least": -1, "most": 1 << 28})
    head_transform: bool
    logits_bias: bool


@dataclass(frozen=True)
class Options:
    """A model, and the kind of attention of each layer."""

    model: ModelOptions
    attention: AttentionOptions
    kinds: tuple[str, ...]

    @property
    def head_dim(self) -> int:
        return self.model.head_width or self.model.dim // self.model.heads

    @property
    def key_heads(self) -> int:
        return self.model.kv_heads or self.model.heads


def read_options(config: Any, version: int, name: str) -> Options:
    """`config`: all of config.json, of a checkpoint of that version, which errors call `name`."""
    section = dict(member(config, "model", dict, name))
    section["attention"] = dict(member(section, "attention", dict, f"{name}: model"))
    for since, place, value in _LATER:
        owner, _, key = place.rpartition(".")
        if version < since:
            (section[owner] if owner else section).setdefault(key, value)
    model = ModelOptions(**_values(ModelOptions, section, "", name))
    attention = AttentionOptions(
        **_values(AttentionOptions, section["attention"], "attention.", name)
    )
    kinds = member(section, "layer_kinds", list, f"{name}: model")
    kinds = tuple(kinds or [attention.kind] * model.layers)
    if len(kinds) != model.layers or not all(kind in KINDS for kind in kinds):
        raise ValueError(
            f"{name}: model.layer_kinds must be {model.layers} of {', '.join(KINDS)}, "
            f"got {str(list(kinds)):.80}"
        )
    if model.dim % model.heads and not model.head_width:
        raise ValueError(f"{name}: model.heads must divide {model.dim}, got {model.heads}")
    if model.heads % (model.kv_heads or 1):
        raise ValueError(f"{name}: model.kv_heads must divide {model.heads}, got {model.kv_heads}")
    return Options(model, attention, kinds)


def _values(owner: Any, section: dict[str, Any], prefix: str, name: str) -> dict[str, Any]:
    known = {item.name: item for item in fields(owner)}
    for key in section:
        if key not in known and key not in _IGNORED[prefix]:
            raise ValueError(
                f"{name}: model.{prefix}{key:.60} is an option that performer.load does not know, "
                f"so the model would not be the same; the program of that version runs it"
            )
    kinds: dict[str, Any] = {"int": int, "bool": bool, "str": str, "float": (int, float)}
    values = {}
    for key, item in known.items():
        value = member(section, key, kinds[str(item.type)], f"{name}: model.{prefix}".rstrip("."))
        _check_range(value, item.metadata, f"{name}: model.{prefix}{key}")
        values[key] = value
    return values


def _check_range(value: Any, limits: Any, name: str) -> None:
    known = limits.get("known")
    if known is not None and value not in known:
        raise ValueError(
            f"{name}: performer.load knows {', '.join(map(str, known))}, got {value!r:.40}; "
            f"`performer eval` and `performer generate` run the others"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = limits.get("least", 0), limits.get("most", 1 << 40)
        if not least <= value <= most:
            raise ValueError(f"{name}: must be from {least} to {most}, got {value}")
