"""What a conversion works on: the model, the layers that change, and their exact attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from performer.transformers._features import ExactHere, is_causal_layer
from performer.transformers._options import FIELD, Options
from performer.transformers._patch import Place
from performer.transformers._texts import Batch


class Recorder(ExactHere):
    """Exact attention that keeps its last queries and keys, scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.y = torch.empty(0)

    def see(self, q: Tensor, k: Tensor, scale: float) -> None:
        root = scale**0.5
        self.x, self.y = q.detach().float() * root, k.detach().float() * root


class Layer(NamedTuple):
    """A layer that changes: where it is, and both of its attentions."""

    place: Place
    recorder: Recorder
    causal: bool


class Model(NamedTuple):
    """What a fit works on. `batches` are without end, on the model's device."""

    module: Any
    layers: list[Layer]
    batches: Iterator[Batch]

    @property
    def causal(self) -> bool:
        return any(layer.causal for layer in self.layers)

    def run(self, batch: Batch) -> Any:
        cache = {"use_cache": False} if self.causal else {}
        return self.module(**batch.inputs(), output_hidden_states=True, **cache)


def layers_of(places: Sequence[Place], options: Options) -> list[Layer]:
    """Those that change; the others are given their mark."""
    layers = []
    for place in places:
        if place.layer in options.keep_exact:
            place.module.add_module(FIELD, ExactHere())
        else:
            layers.append(Layer(place, Recorder(), is_causal_layer(place.module)))
    return layers


@contextmanager
def using(layers: Sequence[Layer], features: Sequence[nn.Module]) -> Iterator[None]:
    """These features in these layers, for a while."""
    before = [layer.place.module._modules.get(FIELD) for layer in layers]
    for layer, module in zip(layers, features, strict=True):
        layer.place.module.add_module(FIELD, module)
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            if old is None:
                layer.place.module._modules.pop(FIELD, None)
            else:
                layer.place.module.add_module(FIELD, old)


def exact_output(model: Model, batch: Batch) -> Any:
    """Of exact attention; each layer's recorder then holds its queries and keys."""
    with torch.no_grad(), using(model.layers, [layer.recorder for layer in model.layers]):
        return model.run(batch)
