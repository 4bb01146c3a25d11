"""Medians of CUDA graph replays."""

import time
from collections.abc import Callable
from statistics import median

import torch

Run = Callable[[], object]
SLOW_MS = 250.0  # a call longer than this is timed once, as it is


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


def milliseconds(run: Run, graph: bool = True, budget_ms: float = 150.0) -> float:
    """Median time of one call: of graphs of up to 10 calls each, or of calls from the host."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # allocates, compiles, tunes
        single = _elapsed(run)
        if single > SLOW_MS:
            return _elapsed(run)
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
    return median(_elapsed(replay) / calls for _ in range(repeats))


class Clock:
    """Seconds that a bench may still take."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()
