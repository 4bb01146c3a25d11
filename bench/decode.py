#!/usr/bin/env python3
"""Streaming decode on a GPU: time of a step, and its bytes as a share of copy bandwidth.

A step reads and writes the state, 8 M' (Dv + 2) bytes per head. Steps go round as many sets of
states as exceed the cache four times, at least three; times are of replays of one CUDA graph of a
round, beside them those of eager calls. `portable` is the same step without the decode kernel.

usage: decode.py [--heads 16 1024 16384] [--dim 64] [--features 256] [--dtype bf16] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

import performer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SEQUENCE_HEADS = 16  # heads of a sequence; fewer where there are fewer in all
CACHES = 4  # sets exceed the cache so many times
LEAST_SETS = 3
COPY_BYTES = 1 << 30
REPEATS = 15


@dataclass
class Row:
    heads: int
    kernel: str
    sets: int
    state_megabytes: float  # of one set
    graph_us: float  # a step
    eager_us: float
    gigabytes_per_second: float
    share_of_copy: float


def median_us(run: Callable[[], object], calls: int) -> float:
    """Median microseconds of one of the `calls` that `run` makes."""
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(1000 * begin.elapsed_time(end) / calls)
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes read and written per second."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2e6 * COPY_BYTES / median_us(lambda: target.copy_(source), 1)


class Streams:
    """`sets` sets of states, and a token for each."""

    def __init__(self, heads: int, dim: int, features: int, dtype: torch.dtype) -> None:
        per_sequence = min(SEQUENCE_HEADS, heads)
        batch = heads // per_sequence
        self.bytes = heads * features * (dim + 2) * 4
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self.sets = max(LEAST_SETS, -(-CACHES * cache // self.bytes))
        self.W = performer.draw_projection(features, dim).cuda()
        q, k, v = torch.randn(3, batch, per_sequence, 8, dim, device="cuda").to(dtype)
        self.tokens, self.states = [], []
        for _ in range(self.sets):
            _, state = performer.favor_attention(q, k, v, self.W, causal=True, return_state=True)
            self.states.append(state)
            token = torch.randn(3, batch, per_sequence, 1, dim, device="cuda").to(dtype)
            self.tokens.append(token.unbind(0))

    def round(self) -> None:
        for token, state in zip(self.tokens, self.states, strict=True):
            torch.ops.performer.favor_step_(
                *token, self.W, "positive", None, None, True, *(None,) * 5, *state[:3]
            )


def measure(streams: Streams, heads: int, copy: float) -> Row:
    streams.round()
    kernel = performer.last_kernel()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        streams.round()
    graph.replay()
    graph_us = median_us(graph.replay, streams.sets)
    rate = 2e6 * streams.bytes / graph_us
    return Row(
        heads,
        kernel,
        streams.sets,
        streams.bytes / 1e6,
        graph_us,
        median_us(streams.round, streams.sets),
        rate / 1e9,
        rate / copy,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[16, 1024, 16384])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of tokens")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()

    torch.manual_seed(0)
    rows = []
    with torch.no_grad():
        copy = copy_bandwidth()
        print(
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy / 1e9:.0f} GB/s"
        )
        print(f"d = {options.dim}, m = {options.features}, tokens {options.dtype}, state fp32")
        print(f"{'heads':>6} {'state MB':>9} {'sets':>4} {'graph us':>9} {'eager us':>9}", end="")
        print(f" {'GB/s':>6} {'of copy':>7}  kernel")
        for heads in options.heads:
            streams = Streams(heads, options.dim, options.features, DTYPES[options.dtype])
            for choice in ("auto", "portable"):
                os.environ["PERFORMER_CUDA_KERNELS"] = choice
                row = measure(streams, heads, copy)
                rows.append(row)
                print(
                    f"{row.heads:6} {row.state_megabytes:9.1f} {row.sets:4} {row.graph_us:9.2f} "
                    f"{row.eager_us:9.2f} {row.gigabytes_per_second:6.0f} {row.share_of_copy:7.0%}"
                    f"  {row.kernel}",
                    flush=True,
                )
            os.environ["PERFORMER_CUDA_KERNELS"] = "auto"
            del streams
    if options.json:
        report = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "copy_gigabytes_per_second": copy / 1e9,
            "dim": options.dim,
            "features": options.features,
            "dtype": options.dtype,
            "rows": [asdict(row) for row in rows],
        }
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
