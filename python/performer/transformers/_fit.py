"""The stages of a conversion: sampled identities, each layer's attention, the whole model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from performer.transformers import _objectives as objectives
from performer.transformers._fitted import FittedFeatures
from performer.transformers._identities import (
    Samples,
    best_scaling,
    centre_and_balance,
    fold,
    for_heads,
    no_identities,
)
from performer.transformers._options import Options
from performer.transformers._patch import find_places, shape_of
from performer.transformers._work import Layer, Model, Recorder, exact_output, using

_SAMPLED = 4096  # queries and keys of a layer, for the identities
_ROWS = 48  # queries of a text that a step compares, with all its keys
_OUTPUT = 4.0  # weight of the output beside the hidden states
_CLIP = 1.0

Say = Callable[[str], None]


def start(model: Model, options: Options, calibrate: bool) -> list[FittedFeatures]:
    """Random features as parameters, with the identities of sampled queries and keys or without."""
    parts: list[list[Samples]] = [[] for _ in model.layers]
    seen = 0
    while seen < _SAMPLED:
        batch = next(model.batches)
        exact_output(model, batch)
        seen += int(batch.real.sum())
        for found, layer in zip(parts, model.layers, strict=True):
            found.append(_real_rows(layer.recorder, batch.real))
    made = []
    for found, layer in zip(parts, model.layers, strict=True):
        samples = Samples(
            *(torch.cat(side, 1)[:, :_SAMPLED].cpu() for side in zip(*found, strict=True))
        )
        identities = centre_and_balance(samples) if calibrate else no_identities(samples)
        scaling = best_scaling(samples, identities)
        scaling = scaling if calibrate else torch.zeros_like(scaling)
        near = options.near_of(layer.causal)
        folded = fold(identities, scaling, options.features, options.seed, layer.place.layer)
        heads = shape_of(layer.place.module).heads
        features = FittedFeatures(for_heads(folded, heads, near), near)
        made.append(features.to(layer.recorder.x.device))
    return made


def _real_rows(recorder: Recorder, real: Tensor) -> Samples:
    """[B, H, L, D] -> [H, N, D] for queries and keys."""
    x, y = (side.transpose(1, 2)[real].transpose(0, 1) for side in (recorder.x, recorder.y))
    return Samples(x, y)


def attention_loss(layer: Layer, features: FittedFeatures, real: Tensor, rows: Tensor) -> Tensor:
    """KL of each head between exact attention and the features', on what the recorder saw: [H].
    rows: the queries that count, places in [0, L)."""
    x, y = layer.recorder.x[:, :, rows], layer.recorder.y
    exact, estimate = objectives.logits(x, y), objectives.log_weights(x, y, features.values())
    if features.near:
        near = objectives.near_pairs(real, features.near)[:, :, rows]
        estimate = torch.where(near, exact, estimate)
    pairs = objectives.visible(real, layer.causal)[:, :, rows]
    return objectives.attention_divergence(exact, estimate, pairs, real[:, rows])


def model_loss(model: Model, exact: Any, seen: Any, real: Tensor) -> Tensor:
    """Of the converted model as a whole."""
    hidden, target = seen.hidden_states[1:], exact.hidden_states[1:]
    loss = objectives.hidden_error(hidden, target, real)
    if model.causal and getattr(seen, "logits", None) is not None:
        return loss + objectives.logits_divergence(seen.logits, exact.logits, real)
    return loss + _OUTPUT * objectives.embedding_error(hidden[-1], target[-1], real)


def fit_attention(
    model: Model, features: Sequence[FittedFeatures], steps: int, rate: float, say: Say
) -> None:
    """All layers at once, on the exact model's queries and keys."""
    generator = torch.Generator().manual_seed(steps)

    def loss() -> Tensor:
        batch = next(model.batches)
        exact_output(model, batch)
        rows = torch.randperm(batch.real.shape[1], generator=generator)[:_ROWS]
        rows = rows.to(batch.real.device)
        losses = [
            attention_loss(layer, each, batch.real, rows)
            for layer, each in zip(model.layers, features, strict=True)
        ]
        return torch.cat(losses).mean()

    parameters = [p for each in features for p in each.parameters()]
    # Every head has a loss of its own: the mean over heads divides their gradients alike, which
    # Adam does not see.
    descend(parameters, loss, Descent(steps, rate, None), lambda text: say(f"attention: {text}"))


def fit_model(
    model: Model, features: Sequence[FittedFeatures], steps: int, rate: float, say: Say
) -> None:
    """The features alone, by the converted model as a whole."""

    def loss() -> Tensor:
        batch = next(model.batches)
        exact = exact_output(model, batch)
        with using(model.layers, features):
            return model_loss(model, exact, model.run(batch), batch.real)

    parameters = [p for each in features for p in each.parameters()]
    descend(parameters, loss, Descent(steps, rate, _CLIP), lambda text: say(f"model: {text}"))


def fit_weights(
    model: Model, features: Sequence[FittedFeatures], steps: int, rate: float, say: Say
) -> None:
    """Features and all weights; a copy of the model stays as it was, to be learned from."""
    copy = deepcopy(model.module)
    places = {place.name: place for place in find_places(copy)}
    teacher = model._replace(
        module=copy,
        layers=[layer._replace(place=places[layer.place.name]) for layer in model.layers],
    )

    def loss() -> Tensor:
        batch = next(model.batches)
        exact = exact_output(teacher, batch)
        with using(model.layers, features):
            return model_loss(model, exact, model.run(batch), batch.real)

    own = [p for p in model.module.parameters() if p.is_floating_point()]
    parameters = [*own, *(p for each in features for p in each.parameters())]
    for parameter in own:
        parameter.requires_grad_(True)
    descend(parameters, loss, Descent(steps, rate, _CLIP), lambda text: say(f"weights: {text}"))


class Descent(NamedTuple):
    """Adam with a rate that falls to 0; clip: of the norm of all gradients."""

    steps: int
    rate: float
    clip: float | None


def descend(
    parameters: Sequence[nn.Parameter], loss: Callable[[], Tensor], descent: Descent, say: Say
) -> None:
    steps, rate, clip = descent
    optimizer = torch.optim.Adam(parameters, lr=rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.enable_grad():
            value = loss()
            if not bool(value.isfinite()):
                raise ValueError(f"convert: the loss of step {step + 1} is {value.item()}")
            optimizer.zero_grad(set_to_none=True)
            value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if step % max(steps // 10, 1) == 0 or step == steps - 1:
            say(f"step {step + 1}/{steps}  loss {value.item():.4f}")
    optimizer.zero_grad(set_to_none=True)
