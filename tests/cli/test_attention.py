"""`performer attention`: maps, heads and residues, against the operators' own maps."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from conftest import ROOT, Run, answer, run_program
from small_recipes import TINY
from training_runs import trained

import performer

PROTEIN = "MKTAYIAKQRQISFVKSHFSRQLEERLG"
CAUSAL = ROOT / "tests/fixtures/642545a/run"
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
OPTIONS = {
    "masked": ["data.objective=masked", "model.causal=false", "optimizer.rate=0.05"],
    "causal": ["optimizer.rate=0.05"],
    "near": ["model.causal=false", "data.objective=masked", "model.attention.near=8"],
    "exact": ["model.attention.kind=exact", "optimizer.rate=0.05"],
    "relu": ["model.attention.kernel=relu", "model.attention.features=0"],
}


@pytest.fixture(scope="module", params=OPTIONS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("run"), TINY, *OPTIONS[request.param])


def table(path: Path) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


@torch.no_grad()
def maps_in_python(run: Path, protein: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each layer: the weights [H, L, L] that the model uses, and exact softmax."""
    model = performer.load(run)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def look(core: Any, args: Any) -> None:
        q, k, _, mask = args
        o = core.options if hasattr(core, "options") else None
        exact = performer.exact_attention_map(q, k, causal=model.options.causal)[0]
        if o is None:
            seen.append((exact, exact))
            return
        own = performer.attention_map(
            q, k, core.projection, feature_map=o.kernel, causal=model.options.causal, near=o.near
        )
        seen.append((own[0], exact))

    for block in model.layers:
        block.attention.core.register_forward_pre_hook(look)
    space = model.tokens
    model(torch.tensor([[space.start, *space.encode(protein), space.eos]]))
    return seen


def matrix(rows: list[dict[str, str]], layer: int, head: int, name: str, key: str) -> Any:
    own = [r for r in rows if (r["layer"], r["head"], r["map"]) == (str(layer), str(head), name)]
    side = int(len(own) ** 0.5)
    return torch.tensor([float(r[key]) for r in own]).reshape(side, side)


def test_maps_are_those_of_the_operators(tmp_path: Path, run: Path) -> None:
    out = tmp_path / "maps.tsv"
    answer(
        "attention", run, "--sequence", PROTEIN, "--maps", out, "--exact", "--tiles", 8,
        "--window", "3-9",
    )  # fmt: skip
    rows = table(out)
    length, tile = len(PROTEIN) + 2, 4
    assert {(r["row_begin"], r["row_end"]) for r in rows if r["map"] == "tiles"} == {
        (str(b), str(min(b + tile, length))) for b in range(0, length, tile)
    }
    for layer, pair in enumerate(maps_in_python(run, PROTEIN)):
        for key, found in zip(("weight", "exact"), pair, strict=True):
            blocks = torch.arange(length) // tile
            one = torch.nn.functional.one_hot(blocks).float()
            for head in range(2):
                pooled = (one.T @ found[head] @ one) / one.sum(0)[:, None]
                ours = matrix(rows, layer, head, "tiles", key)
                torch.testing.assert_close(ours, pooled, rtol=1e-4, atol=2e-6)
                assert torch.allclose(ours.sum(1), torch.ones(len(ours)), atol=1e-4)
                window = matrix(rows, layer, head, "window", key)
                torch.testing.assert_close(window, found[head, 3:10, 3:10], rtol=1e-4, atol=2e-6)


def test_scores_and_residues_are_sums_over_the_maps(tmp_path: Path, run: Path) -> None:
    out = tmp_path / "residues.tsv"
    told = answer("attention", run, "--sequence", PROTEIN, "--residues", out, "--layer", 1)
    assert {head["layer"] for head in told["heads"]} == {1}
    (maps, _) = maps_in_python(run, PROTEIN)[1]
    length = len(PROTEIN) + 2
    causal = performer.load(run).options.causal
    even = torch.ones(length, length)
    even = (even.tril() if causal else even) / (even.tril() if causal else even).sum(1)[:, None]
    near = torch.ones(length, length).triu(-1).tril(1)
    for head, own in zip(told["heads"], maps, strict=True):
        excess = (own - even) / length
        assert head["diagonal"] == pytest.approx(float((excess * near).sum()), abs=1e-5)
        assert head["vertical"] == pytest.approx(float(excess.sum(0).abs().sum() / 2), abs=1e-5)
    letters = numpy.array(list(f"^{PROTEIN}$"))
    for row in table(out):
        pair = numpy.ix_(letters == row["from"], letters == row["to"])
        weight, expected = (float(m.numpy()[pair].sum()) for m in (maps.sum(0), 2 * even))
        if expected == 0:
            assert row["attention"] == "nan"
        else:
            assert float(row["attention"]) == pytest.approx(weight / expected, rel=1e-4)


def test_blosum62_is_the_file_of_ncbi(tmp_path: Path) -> None:
    out = tmp_path / "residues.tsv"
    answer("attention", CAUSAL, ROOT / "data/proteins/P00974.fasta", "--residues", out)
    lines = (ROOT / "data/proteins/blosum62.txt").read_text().splitlines()
    _, names, *rest = (line.split() for line in lines)
    known = {(own[0], b): v for own in rest for b, v in zip(names, own[1:], strict=True)}
    rows = table(out)
    assert len(rows) == 400
    assert all(known[row["from"], row["to"]] == row["blosum62"] for row in rows)


def test_the_correlation_is_pearsons_and_p_counts_renamings(tmp_path: Path) -> None:
    out = tmp_path / "residues.tsv"
    told = answer("attention", CAUSAL, ROOT / "data/proteins/P00974.fasta", "--residues", out)
    ratio, score = (numpy.full((20, 20), numpy.nan) for _ in range(2))
    for row in table(out):
        place = RESIDUES.index(row["from"]), RESIDUES.index(row["to"])
        ratio[place], score[place] = float(row["attention"]), float(row["blosum62"])
    ratio = (ratio + ratio.T) / 2
    upper = numpy.triu(numpy.ones((20, 20), bool), 1) & numpy.isfinite(ratio)
    found = told["residues"]
    assert found["pairs"] == upper.sum() > 50
    expected = numpy.corrcoef(ratio[upper], score[upper])[0, 1]
    assert found["correlation_with_blosum62"] == pytest.approx(expected, abs=1e-4)
    generator, higher = numpy.random.default_rng(0), 0
    for _ in range(2000):
        names = generator.permutation(20)
        higher += numpy.corrcoef(ratio[upper], score[names][:, names][upper])[0, 1] >= expected
    assert found["p_value"] == pytest.approx((1 + higher) / 2001, abs=0.05)


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_files_are_written_and_hostile_ids_are_text(tmp_path: Path) -> None:
    source = tmp_path / "in.fasta"
    source.write_text(f">first\nMKT\n><script>alert(1)</script>\n{PROTEIN}\n")
    page, picture = tmp_path / "page.html", tmp_path / "maps.png"
    told = answer(
        "attention", CAUSAL, source, "--record", 2, "-o", page, "--png", picture, "--exact"
    )
    assert told["id"] == "<script>alert(1)</script>"
    assert told["residues"]["sequences"] == 2
    html = page.read_text()
    assert "&lt;script>alert(1)" in html or "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert 'src="data:image/png;base64,iVBORw0KGgo' in html
    width, height = png_size(picture)
    assert width > height / 2 > 20
    assert zlib.crc32(picture.read_bytes()) != 0


def test_long_sequences_need_no_map_of_all_tokens(tmp_path: Path, program: Run) -> None:
    protein = "".join(RESIDUES[(7 * i * i + i) % 20] for i in range(20_000))  # L x L is 1.6 GB
    source = tmp_path / "long.fasta"
    source.write_text(f">long\n{protein}\n")
    done = program(
        "attention", CAUSAL, source, "--window", "10000-10050", "--maps", tmp_path / "maps.tsv",
        "--tiles", 32, limit="-v 2500000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [r for r in table(tmp_path / "maps.tsv") if r["map"] == "tiles"]
    for layer in range(2):
        sums = matrix(rows, layer, 1, "tiles", "weight").sum(1)
        assert torch.allclose(sums, torch.ones(32), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "a file or --sequence is needed, and not both"),
        (["--sequence", "MKT", "--layer", "2"], "--layer: the model has 0 to 1, got 2"),
        (["--sequence", "MKT", "--head", "5"], "--head: the model has 0 to 1, got 5"),
        (["--sequence", "MKT", "--window", "3"], "--window: two numbers of tokens as in 100-200"),
        (["--sequence", "MKT", "--window", "3-9"], "at most 512 tokens out of 0 to 4 of this"),
        (["--sequence", "MKT", "--record", "2"], "--record: the input has 1 sequences, got 2"),
        (["--sequence", "MKT", "--png", "README.md"], "README.md: already exists"),
    ],
)
def test_a_wrong_call_is_one_line(program: Run, options: list[str], words: str) -> None:
    done = program("attention", CAUSAL, *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_without_files_it_prints_the_scores(program: Run) -> None:
    done = run_program("attention", CAUSAL, "--sequence", PROTEIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("layer\thead\tdiagonal\tvertical\n0\t0\t")
    assert len(done.stdout.splitlines()) == 5
