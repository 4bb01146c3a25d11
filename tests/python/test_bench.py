"""`performer bench attention`: what it compares is right, and its results are well formed."""

import importlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import performer
from performer.bench import peers, plain, report, timing, truth
from performer.bench.__main__ import list_cases, parse
from performer.bench.case import Case, UnavailableError
from performer.bench.results import CaseResult, Row, ScalingRow, Timing
from performer.bench.scaling import thread_counts
from performer.bench.session import Entry, Plan, Session, allot
from performer.bench.systems import CPU_KERNELS, SYSTEMS, composed_kernels
from performer.bench.timing import Measure

ROOT = Path(__file__).parents[2]
DIRECTIONS = [False, True]


def small_case(*, causal=False, kernel="positive", dtype="fp32"):
    return Case(2, 2, 48, 16, 32, causal, kernel, dtype)


class Silent:
    def case(self, text):
        pass

    def step(self, text):
        pass


def run_session(*systems, case):
    session = Session(Plan(systems, ("forward", "forward_backward"), 2, 15), Silent())
    return session, session.run([case])[0]


@pytest.fixture(scope="module")
def command_result(tmp_path_factory):
    """One tiny run of the whole command: its JSON and its page."""
    page = tmp_path_factory.mktemp("bench") / "page.md"
    options = {"heads": 2, "lengths": 64, "dim": 16, "features": 32, "threads": 1, "rounds": 2}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "performer.bench", "attention", *flags, "--scaling", "--json"]
        + ["--out", str(page)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), page.read_text(encoding="utf-8")


def test_json_has_every_system_or_a_note_on_it(command_result):
    result, _ = command_result
    assert [case["case"]["causal"] for case in result["cases"]] == DIRECTIONS
    for case in result["cases"]:
        assert [row["system"] for row in case["rows"]] == [system.name for system in SYSTEMS]
        for row in case["rows"]:
            noted = any(note.startswith(row["title"]) for note in result["notes"])
            assert set(row["passes"]) == {"forward", "forward_backward"} or noted, row
        assert case["sgemm_gflops"] > 0 and case["fma_gflops"] > 0


def test_errors_are_those_of_the_precision(command_result):
    result, _ = command_result
    for row in (row for case in result["cases"] for row in case["rows"]):
        if row["system"] in ("performer", "composed", "compile", "exact"):
            assert row["error"] < 1e-6, row


def test_the_composed_system_runs_composed(command_result):
    result, _ = command_result
    rows = [row for case in result["cases"] for row in case["rows"] if row["system"] == "composed"]
    assert {p["kernel"] for row in rows for p in row["passes"].values()} == {"composed"}


def test_the_page_names_machine_torch_and_command(command_result):
    result, page = command_result
    assert result["machine"]["cpu"] in page and f"torch {torch.__version__}" in page
    assert f"`{result['command']}`" in page
    assert "--scaling" in result["command"]


def assert_tables_are_well_formed(page):
    lines = page.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("|---")]
    assert starts
    for start in starts:
        columns = lines[start].count("|")
        end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), None)
        assert end is None or end > start + 1
        assert {line.count("|") for line in lines[start - 1 : end]} == {columns}


def test_tables_are_well_formed(command_result):
    assert_tables_are_well_formed(command_result[1])


def test_what_was_not_measured_is_a_dash():
    row = Row("exact", "exact", 1e-7, {"forward": Timing(1.0, 3, 0.5, None, None)})
    scaling = [ScalingRow(small_case(), n, {"forward": 1 / n}, n, n) for n in (1, 2)]
    result = report.Report(
        "performer bench attention",
        {"cpu": "c", "cores": 1, "isa": "avx2", "threads": 1, "omp_wait_policy": None}
        | {"torch": "t", "performer": "p", "commit": None},
        15,
        [CaseResult(small_case(), 100.0, 200.0, [row, Row("absent", "absent")])],
        scaling,
        ["absent: not installed"],
    )
    page = report.to_markdown(result)
    assert_tables_are_well_formed(page)
    assert "| exact | 1.000 | – | 50.0% | – | – | – | 3 | 1.0e-07 | – |" in page
    assert "| 2 | 2.00 x | 2.00 x | 2.00 x |" in page
    assert "absent: not installed" in page and "absent: not installed" in report.to_text(result)


@pytest.mark.parametrize("name", ["performer_pytorch", "fast_transformers.attention"])
def test_an_absent_peer_says_how_to_install_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    prepare = peers.performer_pytorch if "pytorch" in name else peers.fast_transformers
    with pytest.raises(UnavailableError, match="pip install"):
        prepare(small_case(), performer.draw_projection(32, 16))


def test_a_system_that_fails_leaves_a_note_and_no_times(monkeypatch):
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    session, result = run_session("performer", "performer-pytorch", case=small_case())
    assert result.rows[1].passes == {} and result.rows[1].error is None
    assert len(session.notes) == 1 and "pip install performer-pytorch" in session.notes[0]
    assert set(result.rows[0].passes) == {"forward", "forward_backward"}


@pytest.mark.parametrize("causal", DIRECTIONS)
@pytest.mark.parametrize("kernel", ["positive", "relu"])
@pytest.mark.parametrize(
    ("system", "module"),
    [("performer-pytorch", "performer_pytorch"), ("fast-transformers", "fast_transformers")],
)
def test_peers_compute_the_attention_they_are_compared_by(
    monkeypatch, system, module, kernel, causal
):
    pytest.importorskip(module)
    if module == "performer_pytorch":  # it adds to features and sums, which its error shows
        code = importlib.import_module("performer_pytorch.performer_pytorch")
        for name in ("softmax_kernel", "causal_linear_attention_noncuda"):
            monkeypatch.setattr(code, name, partial(getattr(code, name), eps=0.0))
    _, result = run_session(system, case=small_case(kernel=kernel, causal=causal))
    assert result.rows[0].error < 1e-5


@pytest.mark.parametrize("causal", DIRECTIONS)
@pytest.mark.parametrize("kernel", plain.KERNELS)
def test_plain_and_ours_agree_with_the_rows_of_the_matrix(kernel, causal):
    q, k, v = torch.randn(3, 1, 2, 40, 8, dtype=torch.float64).unbind(0)
    W = performer.draw_projection(16, 8).double()
    q, k = (x.abs() for x in (q, k)) if kernel in ("gelu", "cos", "tanh") else (q, k)
    exact = truth.exact_rows((q, k, v), W, kernel, causal)
    if causal:
        chunks = (plain.chunked(x) for x in (q, k, v))
        composed = plain.causal(*chunks, W, kernel).flatten(2, 3)
    else:
        composed = plain.bidirectional(q, k, v, W, kernel)
    eps = None if kernel == "positive" else plain.EPS
    ours = performer.favor_attention(q, k, v, W, kernel, causal=causal, scale=8**-0.5, eps=eps)
    size = float(ours.abs().max())  # signed maps divide by little
    assert truth.relative_error(composed, exact, v) < 1e-10 * size
    assert truth.relative_error(ours, exact, v) < 1e-10 * size


def test_a_wrong_output_has_a_large_error():
    q, k, v = torch.randn(3, 1, 1, 40, 8).unbind(0)
    exact = truth.exact_rows((q, k, v), None, "positive", False)
    assert truth.relative_error(v, exact, v) > 0.5


def test_composed_kernels_are_chosen_inside_only(monkeypatch):
    monkeypatch.setenv(CPU_KERNELS, "avx2")
    with composed_kernels():
        assert os.environ[CPU_KERNELS] == "off"
    assert os.environ[CPU_KERNELS] == "avx2"
    monkeypatch.delenv(CPU_KERNELS)
    with composed_kernels():
        assert os.environ[CPU_KERNELS] == "off"
    assert CPU_KERNELS not in os.environ


def entry(seconds):
    return Entry(Row("x", "x"), "forward", Measure(lambda: None, seconds=[seconds]), 0, None, False)


def test_slow_systems_get_what_quick_ones_leave():
    quick, slow, slowest = entry(0.1), entry(2.0), entry(100.0)
    left = allot([slowest, slow, quick], 15, 30.0)
    assert [e.measure.rounds for e in (quick, slow, slowest)] == [15, 7, 0]
    assert left == pytest.approx(30.0 - 1.5 - 14.0)


def test_when_the_time_is_up_only_ours_is_measured():
    session = Session(Plan(("performer", "exact"), ("forward",), 2, 0), Silent())
    ours, exact = session.run([small_case()])[0].rows
    assert set(ours.passes) == {"forward"} and exact.passes == {}
    assert any("left out, the time was up" in note for note in session.notes)


def test_a_disturbed_case_is_named():
    session = Session(Plan((), (), 2, 15), Silent())
    session._note_disturbed([CaseResult(small_case(), rate, 200.0, []) for rate in (100, 90, 50)])
    assert [note.split(":")[0] for note in session.notes] == ["DISTURBED"]
    assert "sgemm ran at 50 of 100 GFLOP/s" in session.notes[0]


def test_calls_are_interleaved_and_spread():
    calls = []
    many = Measure(lambda: calls.append("many"), rounds=6)
    few = Measure(lambda: calls.append("few"), rounds=2)
    timing.interleave([many, few], 60, lambda turn, turns: None)
    assert calls == ["many", "many", "many", "few"] * 2
    assert len(many.seconds) == 6 and len(few.seconds) == 2


def test_rounds_end_when_the_time_is_up():
    measures = [Measure(lambda: None, rounds=5), Measure(lambda: None, rounds=5)]
    timing.interleave(measures, 0, lambda turn, turns: None)
    assert [len(m.seconds) for m in measures] == [1, 1]


def test_peak_memory_counts_what_was_freed_again():
    _, mib = timing.peak_mib(lambda: torch.ones(2**24).sum())  # 64 MiB
    if mib is None:
        pytest.skip("no record of peak memory on this system")
    assert 60 < mib < 80


def test_thread_counts():
    assert [thread_counts(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_the_probe_does_what_it_counts():
    flops, total, isa = torch.ops.performer.fma_probe(100)
    lanes = {"avx512": 16, "avx2": 8, "portable": 4}[isa]
    assert flops == 2 * 12 * lanes * 100 * torch.get_num_threads()
    # Every chain has come to the fixed point of x -> x / 2 + 1.
    assert total == pytest.approx(2 * 12 * lanes * torch.get_num_threads())
    with pytest.raises(RuntimeError, match=r"must be in 1 \.\.\. 1073741824, got 0"):
        torch.ops.performer.fma_probe(0)


def test_neither_direction_means_both():
    both = list_cases(parse(["--lengths", "64", "32"]))
    assert [(c.length, c.causal) for c in both] == [
        (32, False),
        (32, True),
        (64, False),
        (64, True),
    ]
    assert [c.causal for c in list_cases(parse(["--lengths", "64", "--causal"]))] == [True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "argument --rounds: must be a whole number from 1 to 1000000, got 0"),
        (["--features", "31"], "argument --features: must be even, got 31"),
        (["--out", "absent/page.md"], "argument --out: no folder absent"),
        (["--kernel", "softmax"], "argument --kernel: invalid choice: 'softmax'"),
    ],
)
def test_bad_options_are_one_line(capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and words in text and text.count("\n") == 1
