"""bench/near.py: near fields beside none, on the CPU."""

import json

import pytest
from bench_cases import run_bench


def test_the_command_compares_near_fields_with_none(tmp_path):
    sizes = ["--heads", 2, "--dim", 16, "--lengths", 200, "--features", 32, "--near", 64, 16]
    page = tmp_path / "page.md"
    done = run_bench("near.py", *sizes, "--rounds", 2, "--json", "--out", page)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["causal"], row["near"]) for row in rows] == [
        (causal, near) for causal in (True, False) for near in (0, 16, 64)
    ]
    for none, row in zip((rows[0],) * 3 + (rows[3],) * 3, rows, strict=True):
        assert row["kernel"].endswith("/near") == (row["near"] > 0)
        for name in ("forward", "forward_backward"):
            assert row["us"][name] > 0
            assert row["of_none"][name] == pytest.approx(row["us"][name] / none["us"][name])
    assert "| bidirectional | 200 | 32 | 64 |" in page.read_text(encoding="utf-8")


def test_a_bad_option_is_one_line():
    done = run_bench("near.py", "--near", "0")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("near.py: argument --near: must be a whole number from 1 to 4096")
