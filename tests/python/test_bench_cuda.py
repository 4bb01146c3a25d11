"""What the bench does on a GPU, with a CPU and a clock in its place."""

from contextlib import nullcontext

import pytest
import torch
from bench_cases import DIRECTIONS, run_session, small_case

from performer_bench import ahead, case, cuda, cuda_ceilings, fla_compile, truth
from performer_bench.cuda import Cuda
from performer_bench.systems import SYSTEMS
from performer_bench.tasks import Task
from performer_bench.timing import Measure


class Stand:
    """A stream, an event or a graph of a device that is not there."""

    now = 0.0

    def __init__(self, *args, **kwargs):
        self.at = 0.0

    def wait_stream(self, other):
        pass

    def record(self):
        Stand.now += 1e-4  # no clock: a busy machine takes longer, and then fewer rounds
        self.at = Stand.now

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return max(1e-6, 1e3 * (end.at - self.at))


class Graph(Stand):
    """Captures that a call was made; replays nothing."""

    replays = 0

    def replay(self):
        Graph.replays += 1


@pytest.fixture
def device(monkeypatch):
    """torch.cuda as the bench uses it."""
    stand = {
        "Stream": Stand,
        "Event": Stand,
        "CUDAGraph": Graph,
        "current_stream": Stand,
        "stream": lambda stream: nullcontext(),
        "graph": lambda graph, stream: nullcontext(),
        "synchronize": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 0,
        "max_memory_allocated": lambda: 3 << 20,
        "get_device_name": lambda: "a stand-in",
    }
    for name, what in stand.items():
        monkeypatch.setattr(torch.cuda, name, what)
    Graph.replays = 0


class Machine(Cuda):
    """The GPU's timing of tensors that are on the CPU."""

    device = "cpu"

    def ceilings(self, rounds):
        class Ceilings:
            measures, seconds, rates = [], 0.0, {"gemm": 100.0}

        return Ceilings()


def test_calls_are_captured_up_to_ten_times_and_replayed(device):
    calls = []
    times = cuda.milliseconds(lambda: calls.append(1))
    assert len(calls) == 2 + 10  # to warm up, to tell the time, and captured
    assert len(times) == 25 and Graph.replays == 26  # the first replay is not timed


def test_eager_calls_are_made_each_time(device):
    calls = []
    times = cuda.milliseconds(lambda: calls.append(1), graph=False)
    assert len(times) == 25 and Graph.replays == 0
    assert len(calls) == 2 + 26 * 10


def test_a_slow_call_is_timed_once_as_it_is(device, monkeypatch):
    monkeypatch.setattr(cuda, "SLOW_MS", 0.0)
    calls = []
    assert len(cuda.milliseconds(lambda: calls.append(1))) == 1
    assert len(calls) == 3 and Graph.replays == 0


def test_a_call_that_fails_says_why_and_the_others_are_timed(device):
    def fail():
        raise RuntimeError("no kernel\nlong story")

    good, bad = Measure(lambda: None), Measure(fail)
    Cuda().time([bad, good], 1, lambda turn, turns: None)
    assert bad.failure == "failed: no kernel" and good.failure is None
    assert len(good.seconds) == 25
    assert cuda.why(torch.cuda.OutOfMemoryError("CUDA out of memory")) == "out of memory"


@pytest.mark.parametrize("causal", DIRECTIONS)
def test_a_session_with_graphs_has_eager_times_and_errors_of_gradients(device, monkeypatch, causal):
    monkeypatch.setattr("performer_bench.session.RowCheck", truth.GradientCheck)
    _, result = run_session("performer", "exact", case=small_case(causal=causal), machine=Machine())
    ours, exact = result.rows
    assert ours.gradient_error < 1e-5 and exact.gradient_error < 1e-5
    for timing in ours.passes.values():
        assert timing.eager_us > 0 and timing.mib == 3 and timing.rounds == 25
    assert all(timing.eager_us is None for timing in exact.passes.values())


def test_copies_and_products_are_rates_of_the_clock(monkeypatch):
    monkeypatch.setattr(cuda_ceilings, "GEMM", 64)
    monkeypatch.setattr(cuda_ceilings, "GIB", 1 << 12)
    for name in ("randn", "empty"):
        make = getattr(torch, name)
        on_cpu = lambda *sizes, device, make=make, **k: make(*sizes, **k)  # noqa: E731
        monkeypatch.setattr(torch, name, on_cpu)

    def clock(run, graph=True):
        run()
        return [2.0]  # ms

    ceilings = cuda_ceilings.CudaCeilings(clock)
    assert ceilings.rates == {"gemm": pytest.approx(2 * 64**3 / 2e-3 / 1e9)}
    assert len(ceilings.copies) == 9
    assert ceilings.copies["kernel, 1 GiB"] == pytest.approx(2 * 4096 / 2e-3 / 1e12)
    assert cuda_ceilings.copy_seconds(clock, 4096) == 2e-3


def tasks_of(*names):
    systems = tuple(system for system in SYSTEMS if system.name in names)
    return [Task(small_case(causal=True), systems)]


def test_only_the_first_length_is_compiled_when_time_is_short(monkeypatch):
    monkeypatch.setattr(ahead, "warm", lambda system, case: system.name)
    monkeypatch.setattr(ahead.fla, "missing", lambda: "not installed")
    tasks = tasks_of("performer", "compile") * 2
    tasks[1] = Task(small_case(), tasks[1].systems)
    found = ahead.compile_ahead(tasks, 5)
    assert found.attentions == {("compile", tasks[0].case): "compile"}
    (reason,) = found.reasons.values()
    assert reason == "not run: no time left to compile"
    assert len(ahead.compile_ahead(tasks, 1000).attentions) == 2


def test_fla_that_is_not_compiled_in_time_is_left_out(monkeypatch):
    class Workers:
        def wait(self, seconds):
            return False

    monkeypatch.setattr(ahead, "Compilation", Workers)
    monkeypatch.setattr(ahead.fla, "missing", lambda: None)
    monkeypatch.setattr(ahead.fla, "warm_parts", lambda W, tokens, heads: None)
    monkeypatch.setattr(ahead, "draw_inputs", lambda c, device: case.draw_inputs(c))
    found = ahead.compile_ahead(tasks_of("fla-chunk", "fla-fused_chunk"), 50)
    assert {name for name, _ in found.reasons} == {"fla-chunk", "fla-fused_chunk"}
    assert all("not compiled within 20 s" in reason for reason in found.reasons.values())


def test_workers_that_do_not_end_are_ended(monkeypatch, capsys):
    monkeypatch.setattr(fla_compile, "WORKERS", 2)
    code = "import sys, time; sys.exit('no GPU') if sys.argv[1] == '1' else time.sleep(60)"
    assert not fla_compile.Compilation(("-c", code)).wait(1.0)
    assert "FLA, worker 1: no GPU" in capsys.readouterr().err


def test_workers_that_end_in_time_are_waited_for(monkeypatch):
    monkeypatch.setattr(fla_compile, "WORKERS", 2)
    assert fla_compile.Compilation(("-c", "pass")).wait(60.0)
