"""bench/models.py: what it runs and leaves out, with the program and with one in its place."""

import json
import sys

import pytest
from bench_cases import ROOT, Silent, run_bench

from performer_bench import models
from performer_bench.kernel_times import kernel_ms, kernel_times
from performer_bench.models import Model, Plan, Program, Run

REGULAR = "configs/bench/regular.toml"
MODEL = Model(REGULAR, (), False, 6, 512, 8, 2048)
ANSWER = {"step_ms": 20.0, "tokens_per_second": 100.0, "memory_mib": 10.0}


@pytest.fixture
def stand_in(tmp_path):
    """A program that answers as `performer bench model` would, after writing its arguments."""

    def make(body="", device="cpu"):
        path = tmp_path / "performer"
        path.write_text(
            f"#!{sys.executable}\nimport json, sys, time\n"
            f"open({str(tmp_path / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
            f"{body}\nprint(json.dumps({ANSWER}))\n"
        )
        path.chmod(0o755)
        return Program(path, device, "bf16", Silent())

    return make


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def run_of(system, length=4096):
    return Run(MODEL, system, length, 2, 10)


def test_the_program_itself_says_how_large_a_model_is():
    program = Program(ROOT / "build" / "performer", "cpu", "fp32", Silent())
    model = program.describe(REGULAR, ["model.layers=3", "model.dim=64"])
    assert (model.layers, model.dim, model.heads, model.ff_dim) == (3, 64, 8, 2048)
    assert not model.causal and model.title == "regular (8, 3, 2048, 64)"
    with pytest.raises(models.ProgramError, match="model.layer "):
        program.describe(REGULAR, ["model.layer =3"])


def test_settings_of_system_length_and_model_reach_the_program(stand_in, tmp_path):
    result = stand_in().measure(run_of("relu"), None)
    assert result.figures == ANSWER
    (call,) = calls(tmp_path)
    assert call.startswith(f"bench model {REGULAR} --set model.attention.kind=favor")
    for words in ("kernel=relu", "data.length=4096", "model.max_length=4096", "train.batch=2"):
        assert f"{words} " in call
    assert call.endswith("--set train.precision=bf16 --device cpu --steps 10 --json")


def test_a_run_that_fails_or_takes_too_long_is_a_note(stand_in):
    failed = stand_in("sys.exit('first line\\nout of memory')").measure(run_of("softmax"), None)
    assert failed.figures is None and failed.note == "exit 1: out of memory"
    slow = stand_in("time.sleep(60)").measure(run_of("softmax"), 1)
    assert slow.figures is None and slow.note == "not within 1 s"


def test_on_a_gpu_exact_attention_names_its_backend(stand_in, tmp_path):
    words = "aten::_scaled_dot_product_cudnn_attention"
    program = stand_in(f"print({words!r}, file=sys.stderr)", device="cuda")
    assert program.measure(run_of("exact"), None).backend == "cudnn_attention"
    assert program.measure(run_of("softmax"), None).backend == ""
    assert [("--profile" in call) for call in calls(tmp_path)] == [True, False]


def test_exact_attention_comes_last_and_ends_with_its_time(stand_in, tmp_path):
    program, systems = stand_in(), ("exact", "identity")
    plan = Plan(systems, (64, 128), 256, 10, None, 100.0)
    results = list(models.measure_model(program, MODEL, plan))
    assert [r.run.system for r in results] == ["identity", "identity", "exact", "exact"]
    assert [r.run.rows for r in results] == [4, 2, 4, 2]
    assert ["--steps 3" in call for call in calls(tmp_path)] == [False, False, True, True]
    spent = Plan(systems, (64,), 256, 10, None, 4.0)
    (_, exact) = models.measure_model(program, MODEL, spent)
    assert exact.figures is None and exact.note == "not run: exact attention had its 4 s"


def test_the_time_of_exact_attention_is_spent_by_what_it_takes(stand_in):
    plan = Plan(("exact",), (64, 128, 256), 256, 10, None, 6.0)
    notes = [r.note for r in models.measure_model(stand_in("time.sleep(1.1)"), MODEL, plan)]
    assert notes == ["", *["not run: exact attention had its 6 s"] * 2]


def test_one_sequence_is_doubled_until_it_does_not_fit(stand_in):
    program = stand_in("'data.length=524288' in sys.argv and sys.exit('out of memory')")
    results = list(models.longest_sequence(program, MODEL, "softmax"))
    assert [r.run.length for r in results] == [131072, 262144, 524288]
    assert [r.figures is None for r in results] == [False, False, True]


def attention_file(folder):
    case = {"causal": False, "length": 4096, "heads": 8, "dim": 64, "features": 256}
    rows = [
        {"system": name, "passes": {"forward_backward": {"us": us}}}
        for name, us in (("performer", 0.002), ("cudnn", 0.01), ("flash", 0.02))
    ]
    path = folder / "attention.json"
    path.write_text(json.dumps({"cases": [{"case": case, "rows": rows}]}))
    return path


def test_kernels_are_layers_times_what_the_attention_bench_measured(tmp_path):
    times = kernel_times(attention_file(tmp_path))
    tokens = 2 * 4096
    softmax = kernel_ms(times, run_of("softmax"))
    assert softmax == pytest.approx(0.002e-3 * 6 * 8 * tokens)
    exact = kernel_ms(times, run_of("exact"))
    assert exact == pytest.approx(0.01e-3 * 6 * 8 * tokens)
    assert kernel_ms(times, run_of("relu")) is None
    assert kernel_ms(times, run_of("softmax", length=1024)) is None


def test_the_command_runs_small_models_end_to_end(tmp_path):
    small = ["model.layers=1", "model.dim=16", "model.heads=2", "model.ff_dim=32"]
    settings = [word for setting in small for word in ("--set", setting)]
    sizes = ["--lengths", 32, "--tokens", 64, "--steps", 1, "--systems", "identity", "softmax"]
    page = tmp_path / "page.md"
    done = run_bench("models.py", *sizes, *settings, "--json", "--out", page)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["run"]["system"] for run in runs] == ["identity", "softmax"]
    assert all(run["figures"]["step_ms"] > 0 for run in runs)
    head, *_ = (line for line in page.read_text().splitlines() if "regular" in line)
    assert head.startswith("| regular (2, 1, 32, 16) | 32 | 2 | identity | ")
    assert " | 1.00 | 0.0 | – | " in head


def test_what_the_program_refuses_is_one_line(tmp_path):
    done = run_bench("models.py", "--set", "model.layer=3")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "model.layer" in done.stderr
    done = run_bench("models.py", "--program", tmp_path / "absent")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no file" in done.stderr
