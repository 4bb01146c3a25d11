"""performer.from_pretrained: models with fitted features out of their folders."""

from __future__ import annotations

import os
from typing import Any

import transformers
from torch import nn

from performer.transformers._features import ExactHere, is_causal_layer
from performer.transformers._fitted import FittedFeatures
from performer.transformers._options import FIELD, Options, read_options
from performer.transformers._patch import attach, find_places, make_features, shape_of
from performer.transformers._register import NAME, register

_WHERE = ("cache_dir", "local_files_only", "revision", "subfolder", "token")


def from_pretrained(folder: str | os.PathLike[str], model_class: Any = None, **options: Any) -> Any:
    """A model that performer.patch or performer.convert has changed, as save_pretrained wrote it.

    Args:
        folder: what transformers' from_pretrained takes.
        model_class: a model class or an Auto class of transformers; None is the class that the
            folder's config names.
        options: of transformers' from_pretrained, such as dtype or device_map.

    transformers alone makes modules by the config, which knows no features: it would leave fitted
    ones out. Random features need no help: attn_implementation="favor" draws them again.

    Example:
        >>> model = performer.from_pretrained("converted", dtype=torch.bfloat16)
    """
    where = {name: options[name] for name in _WHERE if name in options}
    config = options.pop("config", None)
    config = config or transformers.AutoConfig.from_pretrained(folder, **where)
    chosen = read_options(config.get_text_config())
    if getattr(config, FIELD, None) is None and config.get_text_config() is config:
        raise ValueError(
            f"from_pretrained: {folder} has no config.favor, so it is an exact model; load it by "
            f"transformers and take performer.patch or performer.convert"
        )
    register()
    original = _class_of(config, model_class)
    makes = _with_features(original, chosen) if chosen.fitted else original
    model = makes.from_pretrained(folder, config=config, attn_implementation=NAME, **options)
    model.__class__ = original
    if not chosen.fitted:
        made = [(place.module, make_features(place, chosen)) for place in find_places(model)]
        attach(model, made, chosen)
    return model


def _class_of(config: Any, model_class: Any) -> Any:
    if model_class is None:
        names = getattr(config, "architectures", None) or []
        if len(names) != 1 or not hasattr(transformers, str(names[0])):
            raise ValueError(
                f"from_pretrained: config.architectures must name one class of transformers, got "
                f"{names!r:.80}; pass model_class="
            )
        model_class = getattr(transformers, names[0])
    mapping = getattr(model_class, "_model_mapping", None)
    return model_class if mapping is None else mapping[type(config)]


def _with_features(original: Any, chosen: Options) -> Any:
    """The class with modules for the features, for as long as it takes to load weights."""

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807
        original.__init__(self, *arguments, **named)
        for place in find_places(self):
            place.module.add_module(FIELD, _empty(place.module, place.layer, chosen))

    strict = {*(original._keep_in_fp32_modules_strict or ()), FIELD}
    body = {
        "__init__": __init__,
        "__module__": original.__module__,
        "_keep_in_fp32_modules_strict": strict,
    }
    return type(original.__name__, (original,), body)


def _empty(module: nn.Module, layer: int, chosen: Options) -> nn.Module:
    if layer in chosen.keep_exact:
        return ExactHere()
    near = chosen.near_of(is_causal_layer(module))
    return FittedFeatures.empty(shape_of(module), chosen.features, near)
