"""Commands other than train, killed at any moment, end as if nothing had been, and leave no rest.

PERFORMER_KILLS: how many kills of each (default 6); PERFORMER_DAMAGES: ten times as many as damaged
journals (default 80).
"""

import json
import os
import random
import shutil
import struct
from pathlib import Path

import h5py
import pytest
from attacked import attack, complaint_about, killed, report
from conftest import PROGRAM, ROOT, run_program
from damage import DAMAGES

KILLS = int(os.environ.get("PERFORMER_KILLS", "6"))
DAMAGED = int(os.environ.get("PERFORMER_DAMAGES", "80")) // 10
MODEL = ROOT / "tests/fixtures/642545a/run"
LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    draw = random.Random(3)
    path = tmp_path / "in.fasta"
    records = (f">P{i}\n{''.join(draw.choices(LETTERS, k=40 + i % 20))}\n" for i in range(200))
    path.write_text("".join(records))
    return path


def embed(source: Path, out: Path) -> list[str]:
    flags = ("--batch-tokens", "64", "--pool", "none")
    return [str(PROGRAM), "embed", str(MODEL), str(source), "-o", str(out), *flags]


def content(path: Path) -> object:
    if path.suffix != ".h5":
        return path.read_bytes()
    with h5py.File(path) as file:  # which keeps the time of its writing, too
        return {name: file[name][:].tolist() for name in file}


@pytest.mark.parametrize("ending", ["npz", "safetensors", "h5"])
def test_vectors_are_those_of_an_undisturbed_command(
    ending: str, proteins: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / f"whole.{ending}", tmp_path / f"out.{ending}"
    assert run_program(*embed(proteins, whole)[1:]).returncode == 0
    before = names(tmp_path)
    draw = random.Random(5)
    kills = 0
    while kills < (KILLS + 2) // 3:
        for _ in range(3):
            kills += killed(embed(proteins, out), draw, most=1.0)
            if out.exists():
                break
        if not out.exists():
            done = run_program(*embed(proteins, out)[1:])
            assert done.returncode == 0, done.stderr
            assert names(tmp_path) == before | {out.name}, f"after {kills} kills"
        assert content(out) == content(whole), f"after {kills} kills"
        out.unlink()
        (tmp_path / f"out.{ending}.partial").unlink(missing_ok=True)
        assert names(tmp_path) == before, f"after {kills} kills"


def test_a_damaged_journal_is_named_or_changes_nothing(proteins: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.npz", tmp_path / "good/out.npz"
    out.parent.mkdir()
    shutil.copy(proteins, out.parent)
    assert run_program(*embed(proteins, whole)[1:]).returncode == 0
    assert run_program(*embed(proteins, out)[1:], limit="-f 64").returncode == 5
    complaints = []
    for number in range(DAMAGED):
        folder = tmp_path / "copy"
        shutil.copytree(out.parent, folder)
        draw = random.Random(number)
        what = draw.choice(DAMAGES)(folder / "out.npz.partial", draw)
        done = attack(*embed(proteins, folder / "out.npz")[1:])
        wrong = complaint_about(done, ["out.npz.partial"])
        if done.code == 0 and (folder / "out.npz").read_bytes() != whole.read_bytes():
            wrong = "other vectors"
        if wrong:
            complaints.append(f"{number}: {what}: {wrong}")
        shutil.rmtree(folder)
    assert not complaints, report(complaints)


def gpt2(folder: Path) -> None:
    """A model of one layer in Hugging Face's layout: zeros, which are weights like others."""
    folder.mkdir()
    config = {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 99},
        **{"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16, "eos_token_id": 0},
        **{"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    block = {
        **{"ln_1.weight": [32], "ln_1.bias": [32], "ln_2.weight": [32], "ln_2.bias": [32]},
        **{"attn.c_attn.weight": [32, 96], "attn.c_attn.bias": [96]},
        **{"attn.c_proj.weight": [32, 32], "attn.c_proj.bias": [32]},
        **{"mlp.c_fc.weight": [32, 128], "mlp.c_fc.bias": [128]},
        **{"mlp.c_proj.weight": [128, 32], "mlp.c_proj.bias": [32]},
    }
    shapes = {f"transformer.h.0.{name}": shape for name, shape in block.items()}
    shapes |= {"transformer.wte.weight": [99, 32], "transformer.wpe.weight": [16, 32]}
    shapes |= {"transformer.ln_f.weight": [32], "transformer.ln_f.bias": [32]}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def test_a_converted_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    gpt2(tmp_path / "theirs")
    command = [str(PROGRAM), "convert", str(tmp_path / "theirs")]
    done = run_program(*command[1:], tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    wanted = {p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir()}
    before = names(tmp_path)
    out = tmp_path / "out"
    draw = random.Random(9)
    kills = 0
    while kills < KILLS:
        kills += killed([*command, str(out)], draw, most=0.5)
        if not out.exists() and draw.randrange(2):
            assert run_program(*command[1:], out).returncode == 0
            assert names(tmp_path) == before | {"out"}, f"after {kills} kills"
        if out.exists():
            assert {p.name: p.read_bytes() for p in out.iterdir()} == wanted
            shutil.rmtree(out)
