"""The devices by name."""

import sys

import torch

from performer_bench.cpu import Cpu
from performer_bench.cuda import Cuda
from performer_bench.timing import Machine


def open_machine(device: str) -> Machine:
    """Ends the program in one line where there is no such device."""
    if device == "cpu":
        return Cpu()
    if not torch.cuda.is_available():
        sys.exit("performer: bench: --device cuda: torch sees no CUDA device")
    return Cuda()
