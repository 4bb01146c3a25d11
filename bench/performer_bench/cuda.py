"""A CUDA device: medians of graph replays, and of calls from the host beside them."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from performer_bench import host
from performer_bench.cuda_ceilings import CudaCeilings, copy_seconds
from performer_bench.timing import MIB, Machine, Measure, OnTurn, T

Run = Callable[[], object]
SLOW_MS = 250.0  # a call longer than this is timed once, as it is
COPY_BYTES = 1 << 30


class Cuda(Machine):
    device = "cuda"
    product = "gemm"
    method = "medians of CUDA graph replays"

    def __init__(self) -> None:
        self._ceilings: CudaCeilings | None = None  # once for all cases: it takes seconds

    def describe(self) -> dict[str, Any]:
        copies = {} if self._ceilings is None else {"copy_tb_s": self._ceilings.copies}
        return {"gpu": torch.cuda.get_device_name(), **copies, **host.versions()}

    def ceilings(self, rounds: int) -> CudaCeilings:
        if self._ceilings is None:
            self._ceilings = CudaCeilings(milliseconds)
        return self._ceilings

    def first(self, measure: Measure[T]) -> tuple[T, float | None]:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with measure.context():
            start = time.perf_counter()
            result = measure.call()
            torch.cuda.synchronize()
            measure.seconds.append(time.perf_counter() - start)
        return result, max(0, torch.cuda.max_memory_allocated() - before) / MIB

    def time(self, measures: Sequence[Measure[Any]], seconds: float, on_turn: OnTurn) -> None:
        """One after the other: nothing else runs on the device. Each takes its own time."""
        for n, measure in enumerate(measures):
            on_turn(n, len(measures))
            try:
                with measure.context():
                    measure.seconds = [
                        ms / 1e3 for ms in milliseconds(measure.call, not measure.eager)
                    ]
            except Exception as error:  # a peer may fail in any way
                measure.failure = why(error)
                torch.cuda.synchronize()

    def figure(self, measure: Measure[Any]) -> float:
        return median(measure.seconds)

    def beside(self, measure: Measure[T]) -> Measure[T] | None:
        return Measure(measure.call, measure.context, eager=True)

    def cache_bytes(self) -> int:
        size: int = torch.cuda.get_device_properties(0).L2_cache_size
        return size

    def copy_rate(self) -> float:
        return 2 * COPY_BYTES / copy_seconds(milliseconds, COPY_BYTES)


def why(error: Exception) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"failed: {lines[0][:100]}"


def _elapsed(run: Run) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _capture(run: Run, calls: int, stream: torch.cuda.Stream) -> Run:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            run()
    return graph.replay


def milliseconds(run: Run, graph: bool = True, budget_ms: float = 150.0) -> list[float]:
    """Times of a call: of graphs of up to 10 calls each, or of calls from the host."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # allocates, compiles, tunes
        single = _elapsed(run)
        if single > SLOW_MS:
            return [_elapsed(run)]
    torch.cuda.current_stream().wait_stream(stream)
    calls = int(min(10, max(1, 20 / single)))
    if graph:
        replay = _capture(run, calls, stream)
    else:

        def replay() -> None:
            for _ in range(calls):
                run()

    replay()
    repeats = int(min(25, max(3, budget_ms / (calls * single))))
    return [_elapsed(replay) / calls for _ in range(repeats)]
