"""FAVOR+ against fused softmax attention, every token seeing every other."""

import torch
from torch.nn.attention import SDPBackend

from on_gpu.measure import HEADS, Bench
from on_gpu.systems import System, favor, softmax
from on_gpu.table import Table

LENGTHS = (1024, 2048, 4096, 16_384, 65_536)
SHAPES = ((64, 128), (64, 64), (32, 256), (128, 128), (128, 256), (64, 512))  # d, m
COMPILED = 4096


def measure(table: Table, composed: System | None) -> None:
    bench = Bench(table, "bidirectional, bf16")
    ours = favor(64, 256, HEADS, causal=False)
    cudnn = softmax(SDPBackend.CUDNN_ATTENTION, causal=False)
    flash = softmax(SDPBackend.FLASH_ATTENTION, causal=False)
    for length in LENGTHS:
        bench.row(ours, length)
        if length in (1024, 4096):
            bench.row(ours, length, graph=False)
        bench.row(cudnn, length)
        if length <= 4096:
            bench.row(flash, length)
        if composed is not None and length == COMPILED:
            bench.row(composed, length)
    for dim, features in SHAPES:
        bench.row(favor(dim, features, HEADS, causal=False), 4096, dim)
    bench.row(favor(64, 256, HEADS, False, "FAVOR+, fp32"), 4096, dtype=torch.float32)
