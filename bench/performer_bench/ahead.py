"""What has to be compiled for a GPU, before anything is timed: in other processes where it can."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from performer_bench import fla
from performer_bench.case import Attention, Case, draw_inputs, make_call
from performer_bench.fla_compile import Compilation, tune_quickly
from performer_bench.systems import System
from performer_bench.tasks import TOKENS, Task

FLA_SECONDS = 60.0
ROWS_SECONDS = 30.0  # that all rows without compilation take
COMPILE_SECONDS = 30.0  # of one length under torch.compile, forward and backward
RECOMPILATIONS = 64  # more than there are lengths and passes


@dataclass
class Ahead:
    """By system and case: attentions that are compiled, and why others are not."""

    attentions: dict[tuple[str, Case], Attention] = field(default_factory=dict)
    reasons: dict[tuple[str, Case], str] = field(default_factory=dict)


def compile_ahead(tasks: Sequence[Task], seconds: float) -> Ahead:
    """`seconds`: that the whole bench may take."""
    end = time.monotonic() + seconds
    torch._dynamo.config.recompile_limit = RECOMPILATIONS
    ahead = Ahead()
    pairs = [(s, task.case) for task in tasks for s in task.systems if s.compiled]
    others = [(system, case) for system, case in pairs if system.name.startswith("fla")]
    # They run while this process compiles the rest.
    workers = Compilation() if others and fla.missing() is None else None
    for system, case in pairs:
        if (system, case) in others:
            continue
        key = (system.name, case)
        # The first one is always there.
        if ahead.attentions and end - time.monotonic() < ROWS_SECONDS + COMPILE_SECONDS:
            ahead.reasons[key] = "not run: no time left to compile"
        else:
            ahead.attentions[key] = warm(system, case)
    if workers is not None:
        case = others[0][1]
        fla.warm_parts(draw_inputs(case, "cuda").W[0], TOKENS, case.heads)
        limit = min(FLA_SECONDS, end - time.monotonic() - ROWS_SECONDS)
        if workers.wait(limit):
            tune_quickly()
        else:
            reason = f"not run: its kernels were not compiled within {limit:.0f} s"
            ahead.reasons.update({(s.name, case): reason for s, case in others})
    return ahead


def warm(system: System, case: Case) -> Attention:
    """Compiled for what will be timed."""
    inputs = draw_inputs(case, "cuda")
    attention = system.prepare(case, inputs.W)
    for backward in (False, True):
        make_call(attention, inputs, backward)()
    return attention
