"""`performer bench attention`: its options, and that its results are well formed."""

import json

import pytest
import torch
from bench_cases import DIRECTIONS, run_bench, small_case

from performer_bench import report
from performer_bench.options import parse
from performer_bench.results import CaseResult, Row, ScalingRow, Timing
from performer_bench.scaling import thread_counts
from performer_bench.systems import systems_of
from performer_bench.tasks import list_cases, list_tasks


@pytest.fixture(scope="module")
def command_result(tmp_path_factory):
    """One tiny run of the whole command: its JSON and its page."""
    page = tmp_path_factory.mktemp("bench") / "page.md"
    options = {"heads": 2, "lengths": 64, "dim": 16, "features": 32, "threads": 1, "rounds": 2}
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = run_bench("attention.py", *flags, "--scaling", "--json", "--out", page)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), page.read_text(encoding="utf-8")


def test_json_has_every_system_or_a_note_on_it(command_result):
    result, _ = command_result
    assert [case["case"]["causal"] for case in result["cases"]] == DIRECTIONS
    for case in result["cases"]:
        names = [system.name for system in systems_of("cpu")]
        assert [row["system"] for row in case["rows"]] == names
        for row in case["rows"]:
            noted = any(note.startswith(row["title"]) for note in result["notes"])
            assert set(row["passes"]) == {"forward", "forward_backward"} or noted, row
        assert case["sgemm_gflops"] > 0 and case["fma_gflops"] > 0


def test_json_keeps_the_names_that_readers_know(command_result):
    result, _ = command_result
    parts = ["command", "machine", "rounds", "cases", "scaling", "notes"]
    assert list(result) == parts
    case = result["cases"][0]
    assert set(case) == {"case", "sgemm_gflops", "fma_gflops", "rows"}
    assert set(case["rows"][0]) == {"system", "title", "error", "passes"}
    fields = {"us", "rounds", "sgemm_share", "mib", "kernel"}
    assert set(case["rows"][0]["passes"]["forward"]) == fields
    scaled = {"case", "threads", "seconds", "sgemm_gflops", "fma_gflops"}
    assert set(result["scaling"][0]) == scaled


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
    prose = " ".join(page.split())  # its lines are wrapped
    assert result["machine"]["cpu"] in prose and f"torch {torch.__version__}" in prose
    assert f"`{result['command']}`" in prose
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
    machine = {"cpu": "c", "cores": 1, "isa": "avx2", "threads": 1, "omp_wait_policy": None}
    result = report.Report(
        "cpu",
        "performer bench attention",
        "at most {calls} calls",
        machine | {"torch": "t", "performer": "p", "commit": None},
        15,
        [CaseResult(small_case(), {"sgemm": 100, "fma": 200}, [row, Row("absent", "absent")])],
        scaling,
        ["absent: not installed"],
    )
    page = report.to_page(result)
    text = page.markdown()
    assert_tables_are_well_formed(text)
    assert "| exact | 1.000 | – | 50.0% | – | – | – | 3 | 1.0e-07 | – |" in text
    assert "| 2 | 2.00 x | 2.00 x | 2.00 x |" in text
    assert "at most 16 calls." in text
    assert "absent: not installed" in text and "absent: not installed" in page.text()


def test_a_page_of_a_gpu_is_well_formed_too():
    timing = Timing(2e-3, 25, 0.25, 10.0, "cuda/hopper/bf16/positive/causal", 3e-3)
    rows = [Row("performer", "performer", 1e-3, {"forward": timing}, 2e-3), Row("flash", "flash")]
    cases = [CaseResult(small_case(causal=causal), {"gemm": 8e5}, rows) for causal in DIRECTIONS]
    machine = {"gpu": "g", "torch": "t", "performer": "p", "commit": None}
    result = report.Report("cuda", "command", "graphs", machine, 1, cases, [], [])
    text = report.to_page(result).markdown()
    assert_tables_are_well_formed(text)
    figures = "2,000 | – | 3,000 | – | 25.0% | – | 1.0e-03 | 2.0e-03"
    assert f"| performer | 48 | 2 | 2 | 16 | 32 | fp32 | {figures} |" in text
    assert "## Bidirectional" in text and "800 TFLOP/s" in text
    (first, *_) = report.to_json(result)["cases"]
    assert first["gemm_gflops"] == 8e5
    assert first["rows"][0]["passes"]["forward"]["gemm_share"] == 0.25
    assert first["rows"][0]["gradient_error"] == 2e-3


def test_thread_counts():
    assert [thread_counts(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


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
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
        (["--systems", "cudnn"], "argument --systems: invalid choice: 'cudnn'"),
        (["--device", "cuda", "--rounds", "3"], "unrecognized arguments: --rounds 3"),
    ],
)
def test_bad_options_are_one_line(capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and words in text and text.count("\n") == 1
    assert text.startswith("performer: bench attention: ")


@pytest.mark.parametrize("option", ["--batch", "--lengths", "--dim", "--threads", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e18", "1000000000000000000", "²"])
def test_a_number_out_of_range_is_one_line(capsys, option, value):
    with pytest.raises(SystemExit) as stopped:
        parse([f"{option}={value}"])
    output = capsys.readouterr()
    assert stopped.value.code == 2 and output.out == ""
    assert output.err.count("\n") == 1 and option in output.err


def tasks_of(*arguments):
    return list_tasks(parse(["--device", "cuda", *arguments]))


def names_at(tasks, length, causal, dim=64):
    (systems,) = (
        {system.name for system in task.systems}
        for task in tasks
        if (task.case.length, task.case.causal, task.case.dim) == (length, causal, dim)
        and (task.case.features, task.case.dtype) == (256, "bf16")
    )
    return systems


def test_a_gpu_has_65536_tokens_a_case_and_peers_where_they_are_worth_it():
    tasks = tasks_of()
    grid = [task.case for task in tasks if task.case.heads == 8]
    assert {case.batch * case.length for case in grid} == {65536}
    assert names_at(tasks, 1024, False) == {"performer", "cudnn", "flash"}
    fla = {"fla-chunk", "fla-fused_chunk"}
    every = {"performer", "compile", "cudnn", "flash"}
    assert names_at(tasks, 4096, False) == every
    assert names_at(tasks, 4096, True) == every | fla
    assert names_at(tasks, 65536, True) == every - {"flash"} | fla
    assert names_at(tasks, 1 << 20, True) == {"performer", "cudnn"} | fla
    assert names_at(tasks, 4096, False, dim=128) == {"performer"}
    (wide,) = (t for t in tasks if (t.case.dim, t.case.features, t.case.causal) == (128, 128, True))
    assert [system.name for system in wide.systems] == ["performer", "cudnn"]


def test_options_of_a_gpu_narrow_what_is_run():
    quick = tasks_of("--quick", "--parts", "lengths", "--causal")
    assert {task.case.causal for task in quick} == {True}
    assert not any(system.compiled for task in quick for system in task.systems)
    asked = tasks_of("--parts", "lengths", "--lengths", "32768", "--systems", "compile", "flash")
    assert [system.name for system in asked[0].systems] == ["compile", "flash"]


def test_without_a_gpu_the_bench_says_so_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    done = run_bench("attention.py", "--device", "cuda")
    assert done.returncode == 1
    assert done.stderr == "performer: bench: --device cuda: torch sees no CUDA device\n"
