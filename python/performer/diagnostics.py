"""Which implementation ran last, so that nothing falls back in silence."""

import threading

import torch


class _Composed(threading.local):
    last = False  # the last call of this thread computed its features in Python


_composed = _Composed()


def note_composed(composed: bool) -> None:
    """Records whether this call ran a Python feature map. A traced call leaves no note."""
    if not torch.compiler.is_compiling():
        _composed.last = composed


def last_kernel() -> str:
    """The path of this thread's last eager favor_attention or favor_step.

    Such as "cpu/avx512/fp32/positive/causal"; "composed" for plain tensor operations, a Python
    feature map among them; "" before the first call.
    """
    if _composed.last:
        return "composed"
    name: str = torch.ops.performer.last_kernel()
    return name
