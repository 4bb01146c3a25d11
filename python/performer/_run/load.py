"""performer.load: a run of the program as an nn.Module."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from performer._run.checkpoint import open_checkpoint
from performer._run.files import member
from performer._run.model import RunModel
from performer._run.options import Options, read_options
from performer._run.safetensors import Entry, read_header, read_tensors
from performer._run.tokens import read_token_space


def load(run: str | os.PathLike[str], checkpoint: str | int | None = None) -> RunModel:
    """The model of a run that `performer train` has written, with the same logits.

    Every file is verified against the checkpoint's manifest first; weights come from safetensors,
    random projections from the recipe and the draw number.

    Args:
        run: the run's folder, or that of one checkpoint.
        checkpoint: of a run: "best", "latest" or the number of a step; None is the best one where
            validation has named it, else the latest.

    Returns:
        A RunModel in eval mode, float32 on the CPU.

    Example:
        >>> model = performer.load("runs/first")
        >>> tokens = model.encode("MKTAYIAKQR")
        >>> start = torch.tensor([model.tokens.start])
        >>> logits = model(torch.cat([start, tokens])[None])  # [1, 11, V]
    """
    found = open_checkpoint(Path(run), checkpoint)
    options = read_options(
        found.json("config.json"), found.version, str(found.folder / "config.json")
    )
    trainer = found.json("trainer.json")
    draw = member(trainer, "draw", int, str(found.folder / "trainer.json"))
    space = read_token_space(found.json("tokenizer.json"), str(found.folder / "tokenizer.json"))
    path = found.folder / "model.safetensors"
    entries = read_header(path)
    model = _build(options, entries, path)
    tensors = read_tensors(path, entries)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    model.redraw(draw)
    model.tokens, model.step = space, found.step
    return model.eval()


def _build(options: Options, entries: dict[str, Entry], path: Path) -> RunModel:
    """Without memory for its weights, after the file's header has shown the same sizes."""
    if options.model.layers > len(entries):
        raise ValueError(
            f"{path}: {len(entries)} tensors cannot be a model of {options.model.layers} layers"
        )
    with torch.device("meta"):
        model = RunModel(options)
    expected: dict[str, Tensor] = model.state_dict()
    for name, tensor in expected.items():
        if name not in entries:
            raise ValueError(f"{path}: checkpoint of another model: {name} is not in the file")
        if entries[name].shape != tuple(tensor.shape):
            raise ValueError(
                f"{path}: checkpoint of another model: {name} is {list(entries[name].shape)} in "
                f"the file, {list(tensor.shape)} in the model"
            )
    for name in entries:
        if name not in expected:
            raise ValueError(f"{path}: checkpoint of another model: {name:.80} is only in the file")
    _check_projections_fit(options, path)
    return model


def _check_projections_fit(options: Options, path: Path) -> None:
    """They are drawn, so the file's size says nothing about theirs."""
    layers = sum(kind == "favor" for kind in options.kinds)
    width = options.key_heads * options.head_dim
    needed = 4 * layers * options.attention.features * width
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise MemoryError(
            f"{path}: random projections of {layers} layers take {needed >> 20} MiB, "
            f"this machine has {there >> 20}"
        )
