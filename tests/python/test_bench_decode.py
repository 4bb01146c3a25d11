"""bench/decode.py: steps behind states, on the CPU."""

import json

import pytest
from bench_cases import Silent, run_bench

from performer_bench import host
from performer_bench.cpu import Cpu
from performer_bench.streams import Streams, Widths, measure_steps


class Small(Cpu):
    def cache_bytes(self):
        return 1 << 14


def test_sets_of_states_exceed_the_cache_four_times():
    streams = Streams(Small(), 2, Widths(8, 16, "fp32"))
    assert streams.bytes == 2 * 16 * (8 + 2) * 4
    assert streams.sets * streams.bytes >= 4 << 14 > (streams.sets - 1) * streams.bytes
    assert Streams(Small(), 20, Widths(64, 256, "fp32")).sets == 3
    assert Streams(Small(), 20, Widths(64, 256, "fp32")).heads == 16  # whole sequences


def test_a_step_is_measured_with_the_kernel_and_without(monkeypatch):
    machine = Small()
    streams = Streams(machine, 2, Widths(8, 16, "bf16"))
    before = streams.states[0].kv.clone()
    fused, composed = measure_steps(machine, streams, 1e9, Silent())
    assert composed.kernel == "composed" and fused.kernel.startswith("cpu/")
    assert not before.equal(streams.states[0].kv)  # in place
    for row in (fused, composed):
        assert row.eager_us is None and row.step_us > 0
        assert row.gigabytes_per_second == pytest.approx(2e-3 * streams.bytes / row.step_us)
        assert row.share_of_copy == pytest.approx(row.gigabytes_per_second)


def test_the_command_writes_json_and_a_page(tmp_path):
    sizes = ["--heads", 16, "--dim", 16, "--features", 128]
    done = run_bench("decode.py", *sizes, "--json", "--out", tmp_path / "page.md")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["heads"] for row in result["rows"]] == [16, 16]
    assert result["copy_gigabytes_per_second"] > 0 and result["dim"] == 16
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert result["rows"][0]["kernel"] in page and host.cpu_model() in page


def test_a_bad_option_is_one_line():
    done = run_bench("decode.py", "--heads", "0")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("decode.py: argument --heads: must be a whole number")
