"""performer.convert: FAVOR+ whose features are fitted to a model, without labels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from performer.transformers import _fit as fits
from performer.transformers import _work as works
from performer.transformers._fitted import FittedFeatures
from performer.transformers._options import Options
from performer.transformers._patch import Model, attach, find_places, kept_layers, remove, unpatch
from performer.transformers._register import NAME, register
from performer.transformers._texts import Batch, batches, tokenize

STAGES = ("calibrate", "attention", "model", "weights")
_RATES = {"attention": 2e-2, "model": 3e-3, "weights": 1e-4}
STEPS = {"attention": 600, "model": 1000, "weights": 1000}


def convert(
    model: Model,
    texts: Iterable[str] | Iterable[Sequence[int]],
    features: int = 64,
    near: int | None = None,
    tokenizer: Any = None,
    *,
    fit: Sequence[str] = ("calibrate", "attention", "model"),
    steps: int | dict[str, int] | None = None,
    length: int = 192,
    batch: int = 32,
    layers: Sequence[int] | None = None,
    keep_exact: Sequence[int] = (),
    seed: int = 0,
    progress: bool | Callable[[str], None] = True,
) -> Model:
    """performer.patch with features that are fitted to the model on texts, and returns the model.

    The features learn from the model with exact attention; one that is patched is unpatched. No
    labels are needed. Texts should be of the kind that the model will read; that matters more than
    the number of features.

    Args:
        texts: strings, with a tokenizer, or lists of tokens; a few thousand are enough.
        features, near, layers, keep_exact, seed: as in performer.patch.
        tokenizer: of transformers, or what answers tokenizer(text, truncation=True, max_length=n)
            with a dictionary that has input_ids.
        fit: the stages. calibrate: identities of sampled queries and keys, seconds. attention: each
            head's attention, on the exact model's queries and keys. model: the features, by the
            hidden states and the output of the whole model. weights: all weights as well.
        steps: of each stage, or of single ones by name; None is 600, 1,000 and 1,000.
        length: tokens of a text that are used.
        batch: texts of a step.
        progress: True tells on standard error; a function is given the lines.

    config.favor says that the features are fitted; save_pretrained writes them with the weights and
    performer.from_pretrained reads them. If a stage fails, the model is given back as it was,
    except for weights that "weights" has changed.

    Example:
        >>> model = performer.convert(model, texts, features=64, tokenizer=tokenizer)
        >>> model.save_pretrained("converted")
        >>> model = performer.from_pretrained("converted")
    """
    chosen = _stages(fit)
    counts = _counts(steps)
    rows = tokenize(texts, tokenizer, length)
    places = list(find_places(model))
    kept = kept_layers(len(places), layers, keep_exact)
    options = Options(features, near, seed, "positive", kept, fitted=True)
    say = _speaker(progress)
    any_model: Any = model
    training, device = any_model.training, next(any_model.parameters()).device
    given = [(p, p.requires_grad) for p in any_model.parameters()]
    if any_model.config._attn_implementation == NAME:
        unpatch(model)
    before = any_model.config._attn_implementation
    any_model.eval()
    for parameter, _ in given:
        parameter.requires_grad_(False)
    try:
        register()
        any_model.set_attn_implementation(NAME)
        work = works.Model(
            any_model, works.layers_of(places, options), _on(device, rows, batch, seed)
        )
        fitted = _run(work, options, chosen, counts, say)
    except BaseException:
        remove(any_model, places, before)
        raise
    finally:
        any_model.train(training)
        for parameter, wanted in given:
            parameter.requires_grad_(wanted)
    made: list[tuple[nn.Module, nn.Module]] = [
        (layer.place.module, each) for layer, each in zip(work.layers, fitted, strict=True)
    ]
    attach(model, made, options, before)
    return model


def _run(
    work: works.Model,
    options: Options,
    stages: Sequence[str],
    counts: dict[str, int],
    say: Callable[[str], None],
) -> list[FittedFeatures]:
    fitted = fits.start(work, options, "calibrate" in stages)
    for stage, run in (
        ("attention", fits.fit_attention),
        ("model", fits.fit_model),
        ("weights", fits.fit_weights),
    ):
        if stage in stages:
            run(work, fitted, counts[stage], _RATES[stage], say)
    for each in fitted:
        each.round_rows()
    return fitted


def _on(device: torch.device, rows: list[list[int]], size: int, seed: int) -> Iterator[Batch]:
    for made in batches(rows, size, seed):
        yield made.to(device)


def _stages(fit: Sequence[str]) -> Sequence[str]:
    for stage in fit:
        if stage not in STAGES:
            raise ValueError(f"convert: fit must be of {', '.join(STAGES)}, got {stage!r}")
    return fit


def _counts(steps: int | dict[str, int] | None) -> dict[str, int]:
    given = dict.fromkeys(STEPS, steps) if isinstance(steps, int) else dict(steps or {})
    for stage, count in given.items():
        if stage not in STEPS or count < 1:
            raise ValueError(
                f"convert: steps must be at least 1 for {', '.join(STEPS)}, got {stage!r}: {count}"
            )
    return {**STEPS, **given}


def _speaker(progress: bool | Callable[[str], None]) -> Callable[[str], None]:
    if callable(progress):
        return progress
    if not progress:
        return lambda text: None
    return lambda text: print(f"convert: {text}", file=sys.stderr, flush=True)
