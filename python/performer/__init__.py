"""FAVOR+ attention of linear cost."""

import torch

from performer._library import load as _load

__version__ = _load()


def last_kernel() -> str:
    """Which implementation the last operator call of this thread ran."""
    return str(torch.ops.performer.last_kernel())
