"""What a run finds in its folder and has not made stays as it is."""

from pathlib import Path

from conftest import run_program
from training_runs import train


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of somebody else")
    return path


def test_a_run_leaves_alone_what_others_have_put_into_its_folder(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    names = (".tmp-mine/x", ".old-notes/x", ".old-single", "checkpoints/.tmp-step-1/x")
    foreign = [write(out / name) for name in names]
    # As eval names its table while it writes it, where files cannot be nameless.
    foreign.append(write(out / ".tmp-scores.tsv-4711"))
    for flags in ((), ("--restart",)):
        done = run_program("train", recipe, "--out", out, "--set", "train.steps=2", *flags)
        assert done.returncode == 0, done.stderr
        assert all(path.read_text() == "of somebody else" for path in foreign), flags


def test_a_restart_removes_what_runs_have_made_and_nothing_else(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=2")
    foreign = [write(out / "checkpoints/llama/w.bin"), write(out / "events.out.tfevents.1.host")]
    done = run_program("train", recipe, "--out", out, "--restart", "--set", "train.steps=1")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["llama", "step-000000001"]
    assert all(path.exists() for path in foreign)


def test_a_restart_names_what_stands_in_its_way(recipe: Path, tmp_path: Path) -> None:
    for name in ("best/keep", "latest/keep", "checkpoints/step-000000007"):
        out = tmp_path / name.partition("/")[0]
        train(recipe, out, "train.steps=1", "train.valid_every=0")
        (out / "latest").rename(tmp_path / "aside")
        (out / "best").unlink(missing_ok=True)
        if not name.startswith("latest"):
            (tmp_path / "aside").rename(out / "latest")
        foreign = write(out / name)
        done = run_program("train", recipe, "--out", out, "--restart")
        assert done.returncode == 5, done.stderr
        in_the_way = foreign.parent if foreign.name == "keep" else foreign
        assert f"{in_the_way}: is no f" in done.stderr
        assert foreign.exists()
        assert (out / "checkpoints/step-000000001/manifest.json").exists()
