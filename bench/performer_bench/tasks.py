"""Which systems meet in which cases: the one list, for both devices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from performer_bench.case import Case
from performer_bench.systems import System, systems_of

LENGTHS = {"cpu": (1024, 4096, 16384, 65536), "cuda": (1024, 2048, 4096, 16384, 65536)}
# Of a GPU's bench: every length, other widths and float32, one head of a million tokens, and
# sequences of many lengths.
PARTS = ("lengths", "widths", "million", "packed")
TOKENS = 65_536  # of a case on a GPU
WIDTHS_LENGTH = 4096
WIDTHS = {  # by causality: d, m
    False: ((64, 128), (64, 64), (32, 256), (128, 128), (128, 256), (64, 512)),
    True: ((64, 128), (64, 64), (32, 256), (128, 128)),
}
MILLION = 1 << 20
# What a GPU's bench leaves out unless it is asked for by name: the composed operator; by causality
# the flash kernel beyond a length, being slower than cuDNN's, and torch.compile but at these
# lengths, each compiled for itself.
FLASH_UP_TO = {False: 4096, True: 16384}
COMPILED_AT = {False: (4096,), True: (4096, 65536)}


@dataclass(frozen=True)
class Task:
    case: Case
    systems: tuple[System, ...]


def directions(options: argparse.Namespace) -> list[bool]:
    """Whether causal; neither flag means both."""
    return [options.causal] if options.causal != options.bidirectional else [False, True]


def list_cases(options: argparse.Namespace) -> list[Case]:
    """Short ones first."""
    return [
        Case(
            options.batch or max(1, TOKENS // length),
            options.heads,
            length,
            options.dim,
            options.features,
            causal,
            options.kernel,
            options.dtype,
        )
        for length in sorted(set(options.lengths))
        for causal in directions(options)
    ]


def list_tasks(options: argparse.Namespace) -> list[Task]:
    named = options.systems
    chosen = [s for s in systems_of(options.device) if named is None or s.name in named]
    if options.device == "cpu":
        return [Task(case, tuple(chosen)) for case in list_cases(options)]
    if options.quick:
        chosen = [system for system in chosen if not system.compiled]
    tasks = []
    if "lengths" in options.parts:
        for case in list_cases(options):
            takes = tuple(s for s in chosen if named is not None or is_worth(s, case))
            tasks.append(Task(case, takes))
    for causal in directions(options):
        if "widths" in options.parts:
            tasks += width_tasks(options, chosen, causal)
        if "million" in options.parts and causal:
            case = replace(list_cases(options)[0], batch=1, heads=1, length=MILLION, causal=True)
            tasks.append(Task(case, tuple(s for s in chosen if is_worth(s, case))))
    tasks = [Task(t.case, tuple(s for s in t.systems if can(s, t.case))) for t in tasks]
    return [task for task in tasks if task.systems]


def width_tasks(
    options: argparse.Namespace, chosen: Sequence[System], causal: bool
) -> Iterator[Task]:
    """Ours at other widths and in float32, and cuDNN where the width of a head is another."""
    base = replace(list_cases(options)[0], length=WIDTHS_LENGTH, causal=causal)
    base = replace(base, batch=options.batch or TOKENS // WIDTHS_LENGTH)
    ours = tuple(system for system in chosen if system.ours)
    for dim, features in WIDTHS[causal]:
        peers = [s for s in chosen if s.name == "cudnn" and causal and dim != options.dim]
        yield Task(replace(base, dim=dim, features=features), (*ours, *peers))
    yield Task(replace(base, dtype="fp32"), ours)


def can(system: System, case: Case) -> bool:
    return case.causal or system.bidirectional


def is_worth(system: System, case: Case) -> bool:
    if system.name == "composed":
        return False
    if system.name == "flash":
        return case.length <= FLASH_UP_TO[case.causal]
    if system.name == "compile":
        return case.length in COMPILED_AT[case.causal]
    return True
