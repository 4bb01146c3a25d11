"""patch and unpatch: FAVOR+ in a loaded transformers model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from torch import nn

from performer.transformers._features import ExactHere, RandomFeatures, is_causal_layer
from performer.transformers._options import FIELD, Options
from performer.transformers._register import NAME, register

Model = TypeVar("Model", bound=nn.Module)

_BEFORE = "_attention_before_favor"  # of a patched model: the implementation that it had


class Place(NamedTuple):
    """An attention module of a model."""

    name: str
    module: nn.Module
    layer: int


class Shape(NamedTuple):
    """Of an attention module."""

    heads: int
    key_heads: int
    head_dim: int


def patch(
    model: Model,
    features: int = 64,
    near: int | None = None,
    layers: Sequence[int] | None = None,
    keep_exact: Sequence[int] = (),
    seed: int = 0,
    *,
    feature_map: str = "positive",
) -> Model:
    """Gives a loaded transformers model FAVOR+ attention, and returns it.

    BERT, MiniLM, ESM-2, GPT-2, Llama and every other model whose attention goes through
    transformers' AttentionInterface. The weights stay as they are; performer.convert fits the
    features to them.

    Args:
        features: random features of each head.
        near: tokens of a block of exact attention; None is 64 for causal models and 0 for others.
        layers: those that change; None is all.
        keep_exact: those that do not.
        seed: of the random projections, which are functions of (seed, layer).
        feature_map: as in performer.favor_attention.

    config.favor holds these options, so that save_pretrained keeps them, and
    performer.from_pretrained reads them.

    Example:
        >>> model = performer.patch(AutoModel.from_pretrained(folder), features=128)
        >>> performer.unpatch(model)  # exact attention again
    """
    places = list(find_places(model))
    chosen = kept_layers(len(places), layers, keep_exact)
    options = Options(features, near, seed, feature_map, chosen)
    made = [(place.module, make_features(place, options)) for place in places]
    attach(model, made, options)
    return model


def attach(
    model: Any,
    made: Sequence[tuple[nn.Module, nn.Module]],
    options: Options,
    before: str | None = None,
) -> None:
    """Puts features into their modules, and says in the configs what they are. before: the
    attention that unpatch gives back; None is the present one."""
    before = before or model.config._attn_implementation
    register()
    for module, features in made:
        module.add_module(FIELD, features)
    for config in configs_of(model, [module for module, _ in made]):
        setattr(config, FIELD, options.as_config())
    if before != NAME:
        setattr(model, _BEFORE, before)
        model.set_attn_implementation(NAME)


def unpatch(model: Model) -> Model:
    """Takes FAVOR+ out of a model again and gives it back the attention that it had."""
    any_model: Any = model
    places = [place for place in find_places(model) if FIELD in place.module._modules]
    if not places:
        raise ValueError(f"unpatch: {type(model).__name__} must be a patched model, it is not")
    remove(any_model, places, any_model.__dict__.pop(_BEFORE, None) or "sdpa")
    return model


def remove(model: Any, places: Sequence[Place], before: str) -> None:
    """Takes what attach has put into a model out of it again, as far as it is there."""
    for place in places:
        place.module._modules.pop(FIELD, None)
    for config in configs_of(model, [place.module for place in places]):
        if hasattr(config, FIELD):
            delattr(config, FIELD)
    model.set_attn_implementation(before)


def find_places(model: Any) -> Iterator[Place]:
    """The attention modules, in order; a module that does not number itself is numbered here."""
    if not hasattr(model, "set_attn_implementation") or not hasattr(model, "config"):
        raise TypeError(
            f"patch: model must be a transformers model (PreTrainedModel), got "
            f"{type(model).__name__}; performer.FavorAttention serves models of your own"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"patch: {type(model).__name__} is an encoder and a decoder, whose layers attend to "
            f"each other; FAVOR+ replaces self-attention alone"
        )
    found = [item for item in model.named_modules() if _uses_the_interface(item[1])]
    if not found:
        raise ValueError(
            f"patch: {type(model).__name__} has no attention that goes through transformers' "
            f"AttentionInterface, so nothing can take its place"
        )
    for number, (name, module) in enumerate(found):
        layer = getattr(module, "layer_idx", None)
        yield Place(name, module, number if layer is None else layer)


def _uses_the_interface(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def configs_of(model: Any, modules: Sequence[nn.Module]) -> list[Any]:
    """Of the model and of its attention, each once; for many models they are one."""
    configs = {id(model.config): model.config}
    for module in modules:
        config = getattr(module, "config", None)
        if config is not None:
            configs[id(config)] = config
    return list(configs.values())


def make_features(place: Place, options: Options) -> nn.Module:
    """Random features for a module, on its device; a mark where it keeps exact attention."""
    if place.layer in options.keep_exact:
        return ExactHere()
    shape = shape_of(place.module)
    causal = is_causal_layer(place.module)
    features = RandomFeatures(options, shape[:2], shape.head_dim, place.layer, causal)
    return features.to(next(place.module.parameters()).device)


def shape_of(module: Any) -> Shape:
    """By the names that transformers uses."""
    config = getattr(module, "config", None)
    heads = _first(module, "num_heads", "num_attention_heads", "n_heads")
    heads = heads or _first(config, "num_attention_heads", "n_heads", "n_head")
    head_dim = _first(module, "head_dim", "attention_head_size", "head_size")
    if head_dim is None and heads and _first(config, "hidden_size", "dim"):
        head_dim = _first(config, "hidden_size", "dim") // heads
    if heads is None or head_dim is None:
        raise ValueError(
            f"patch: {type(module).__name__} says neither num_heads and head_dim nor where they "
            f"come from, so its features cannot be drawn"
        )
    groups = _first(module, "num_key_value_groups") or 1
    return Shape(heads, heads // groups, head_dim)


def _first(owner: Any, *names: str) -> Any:
    values = (getattr(owner, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def kept_layers(
    count: int, layers: Sequence[int] | None, keep_exact: Sequence[int]
) -> tuple[int, ...]:
    """The layers that keep exact attention, of `count`."""
    for name, given in (("layers", layers or ()), ("keep_exact", keep_exact)):
        for layer in given:
            if not 0 <= layer < count:
                raise ValueError(f"patch: {name} must be layers from 0 to {count - 1}, got {layer}")
    changed = set(range(count) if layers is None else layers) - set(keep_exact)
    if not changed:
        raise ValueError("patch: at least one layer must change, all of them keep exact attention")
    return tuple(sorted(set(range(count)) - changed))
