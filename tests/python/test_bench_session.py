"""Who is called how often in a run of the bench, and what its clocks measure."""

import sys

import pytest
import torch
from bench_cases import run_session, small_case

from performer_bench import cpu
from performer_bench.entry import Entry, allot
from performer_bench.packed import measure_packed, packed_table, random_lengths
from performer_bench.progress import Progress
from performer_bench.results import CaseResult, Row, disturbed
from performer_bench.timing import Measure


def test_a_system_that_fails_leaves_a_note_and_no_times(monkeypatch):
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    session, result = run_session("performer", "performer-pytorch", case=small_case())
    assert result.rows[1].passes == {} and result.rows[1].error is None
    assert len(session.notes) == 1 and "pip install performer-pytorch" in session.notes[0]
    assert set(result.rows[0].passes) == {"forward", "forward_backward"}


def entry(seconds):
    return Entry(Row("x", "x"), "forward", Measure(lambda: None, seconds=[seconds]), 0, None, False)


def test_slow_systems_get_what_quick_ones_leave():
    quick, slow, slowest = entry(0.1), entry(2.0), entry(100.0)
    left = allot([slowest, slow, quick], 15, 30.0)
    assert [e.measure.rounds for e in (quick, slow, slowest)] == [15, 7, 0]
    assert left == pytest.approx(30.0 - 1.5 - 14.0)


def test_when_the_time_is_up_only_ours_is_measured():
    session, result = run_session(
        "performer", "exact", case=small_case(), passes=("forward",), budget=0
    )
    ours, exact = result.rows
    assert set(ours.passes) == {"forward"} and exact.passes == {}
    assert any("left out, the time was up" in note for note in session.notes)


def test_a_disturbed_case_is_named():
    rates = [{"sgemm": rate, "fma": 200.0} for rate in (100, 90, 50)]
    notes = disturbed([CaseResult(small_case(), rate, []) for rate in rates])
    assert [note.split(":")[0] for note in notes] == ["DISTURBED"]
    assert "sgemm ran at 50 of 100 GFLOP/s" in notes[0]


def test_calls_are_interleaved_and_spread():
    calls = []
    many = Measure(lambda: calls.append("many"), rounds=6)
    few = Measure(lambda: calls.append("few"), rounds=2)
    cpu.interleave([many, few], 60, lambda turn, turns: None)
    assert calls == ["many", "many", "many", "few"] * 2
    assert len(many.seconds) == 6 and len(few.seconds) == 2


def test_rounds_end_when_the_time_is_up():
    measures = [Measure(lambda: None, rounds=5), Measure(lambda: None, rounds=5)]
    cpu.interleave(measures, 0, lambda turn, turns: None)
    assert [len(m.seconds) for m in measures] == [1, 1]


def test_peak_memory_counts_what_was_freed_again():
    _, mib = cpu.peak_mib(lambda: torch.ones(2**24).sum())  # 64 MiB
    if mib is None:
        pytest.skip("no record of peak memory on this system")
    assert 60 < mib < 80


def test_packed_sequences_are_set_beside_a_batch_of_the_same_tokens():
    lengths = random_lengths(sequences=4, longest=40)
    assert sum(lengths) % 4 == 0 and len(set(lengths)) > 1
    rows = measure_packed(cpu.Cpu(), small_case(causal=True), lengths, Progress())
    assert [row.of_batch["forward"] for row in rows][0] == 1
    assert all(row.us["forward_backward"] > 0 and row.tokens == sum(lengths) for row in rows)
    assert [cells[1] for cells in packed_table(rows).rows] == [row.layout for row in rows]
