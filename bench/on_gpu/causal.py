"""Causal FAVOR+ against fused causal softmax attention, plain PyTorch and another linear kernel."""

import torch
from torch.nn.attention import SDPBackend

import performer
from on_gpu import fla
from on_gpu.measure import HEADS, TOKENS, Bench, warm
from on_gpu.systems import COMPOSED, System, composed, favor, has_fla, softmax
from on_gpu.table import Table
from on_gpu.timing import Clock

LENGTHS = (1024, 2048, 4096, 16_384, 65_536)
SHAPES = ((64, 128), (64, 64), (32, 256), (128, 128))  # d, m
COMPILED = (4096, 65_536)  # plain PyTorch: each length is compiled for itself
MILLION = 1 << 20
FLA_SECONDS = 60.0
ROWS_SECONDS = 25.0  # that all rows without compilation take


class Peers:
    """Compiled before anything is timed, in other processes where that can be."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kernels = fla.Compilation() if has_fla() else None
        self.fla_note = "" if has_fla() else "not installed: pip install fla-core einops"
        self.fla: list[System] = []
        self.composed: dict[int, System | None] = {}

    def compile(self) -> None:
        for length in COMPILED:
            # The first one is always there.
            if self.composed and self._clock.left < ROWS_SECONDS + 30:
                self.composed[length] = None
                continue
            system = composed(64, 256, causal=True)
            warm(system, length)
            self.composed[length] = system
        if self._kernels is None:
            return
        W = performer.draw_projection(256, 64).cuda()
        fla.warm_parts(W, TOKENS, HEADS)
        seconds = min(FLA_SECONDS, self._clock.left - ROWS_SECONDS)
        if self._kernels.wait(seconds):
            fla.tune_quickly()
            self.fla = [fla.system(kind, W) for kind in fla.KINDS]
        else:
            self.fla_note = f"not run: its kernels were not compiled within {seconds:.0f} s"


def peer_rows(bench: Bench, peers: Peers, length: int, heads: int, tokens: int) -> None:
    if length in peers.composed:
        system = peers.composed[length]
        if system is None:
            bench.absent(COMPOSED, length, 64, 256, heads, "not run: no time left to compile")
        else:
            bench.row(system, length)
    for system in peers.fla:
        bench.row(system, length, heads=heads, tokens=tokens)
    if peers.fla_note:
        bench.absent("torch.compile + FLA", length, 64, 256, heads, peers.fla_note)


def measure(table: Table, peers: Peers | None, clock: Clock) -> None:
    bench = Bench(table, "causal, bf16")
    ours = favor(64, 256, HEADS, causal=True)
    cudnn = softmax(SDPBackend.CUDNN_ATTENTION, causal=True)
    flash = softmax(SDPBackend.FLASH_ATTENTION, causal=True)
    for length in LENGTHS:
        bench.row(ours, length)
        if length == 4096:
            bench.row(ours, length, graph=False)
        bench.row(cudnn, length)
        if length <= 16_384:
            bench.row(flash, length)
        if peers is not None:
            peer_rows(bench, peers, length, HEADS, TOKENS)
    for dim, features in SHAPES:
        bench.row(favor(dim, features, HEADS, causal=True), 4096, dim)
        if dim != 64:
            bench.row(cudnn, 4096, dim)
    bench.row(favor(64, 256, HEADS, True, "FAVOR+, fp32"), 4096, dtype=torch.float32)
    bench.row(favor(64, 256, 1, causal=True), MILLION, heads=1, tokens=MILLION)
    if peers is not None:
        peer_rows(bench, peers, MILLION, 1, MILLION)
    if clock.left > 8:
        bench.row(cudnn, MILLION, heads=1, tokens=MILLION)
    else:
        bench.absent(cudnn.name, MILLION, 64, 0, 1, "not run: no time left")
