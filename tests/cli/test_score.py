"""`performer score`: likelihoods of sequences and mutations, against plain Python."""

import gzip
import hashlib
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, Run, answer, run_program
from small_recipes import TINY, one_layer, text_data
from training_runs import trained

import performer

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
PROTEIN = "MKTAYIAKQRQISFVKSHFSRQLEERLG"
CAUSAL = ROOT / "tests/fixtures/642545a/run"  # two layers of width 16
HOSTILE_IDS = ["../../etc/passwd", "<script>alert(1)</script>", "twice", "twice", "/", "Ünïcode"]
MUTANTS = ["K2A", "K2A:T3G", "A4A", "G28W", "K2A"]  # one of them twice


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = TINY.replace('task = "protein"', 'task = "protein"\nobjective = "masked"')
    recipe = recipe.replace('positions = "rotary"', 'positions = "rotary"\ncausal = false')
    return trained(tmp_path_factory.mktemp("masked"), recipe, "optimizer.rate=0.05")


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.fasta"
    path.write_text(f">P1 of a description\n{PROTEIN}\n")
    return path


def some(path: Path, ids: list[str], most: int = 40) -> list[str]:
    letters = random.Random(3)
    proteins = ["".join(letters.choices(RESIDUES, k=letters.randint(1, most))) for _ in ids]
    path.write_text("".join(f">{n} x\n{p}\n" for n, p in zip(ids, proteins, strict=True)))
    return proteins


def rows_of(text: str) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def table(*args: object) -> list[dict[str, str]]:
    done = run_program("score", *args)
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)


def framed(model: Any, protein: str) -> torch.Tensor:
    s = model.tokens
    return torch.tensor([s.start, *s.encode(protein), s.eos])


@torch.no_grad()
def log_p(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens[None])[0].double().log_softmax(-1)


def one_pass(model: Any, protein: str) -> torch.Tensor:
    """[L, V]: row i is of residue i."""
    found = log_p(model, framed(model, protein))
    return found[:-2] if model.options.causal else found[1:-1]


def each_masked(model: Any, protein: str) -> torch.Tensor:
    found = []
    for place in range(1, len(protein) + 1):
        tokens = framed(model, protein)
        tokens[place] = model.tokens.mask
        found.append(log_p(model, tokens)[place])
    return torch.stack(found)


def of_own(found: torch.Tensor, model: Any, protein: str) -> float:
    return float(found.gather(1, model.encode(protein)[:, None]).sum())


def exact(model: Any, protein: str) -> float:
    """log p of all residues and of EOS, from left to right."""
    tokens = framed(model, protein)
    return float(log_p(model, tokens)[:-1].gather(1, tokens[1:, None]).sum())


def mutant_of(protein: str, mutations: str) -> str:
    letters = list(protein)
    for mutation in mutations.split(":"):
        letters[int(mutation[1:-1]) - 1] = mutation[-1]
    return "".join(letters)


def marginal(found: torch.Tensor, model: Any, mutations: str) -> float:
    """ESM-1v: log p(new) - log p(wild type) where the wild type stands, added up."""
    total = 0.0
    for mutation in mutations.split(":"):
        new, old = model.encode(mutation[-1]), model.encode(mutation[0])
        own = found[int(mutation[1:-1]) - 1]
        total += float(own[new] - own[old])
    return total


@pytest.mark.parametrize("method", ["pseudo", "masked", "wildtype", ""])
def test_sequences_of_a_masked_model_are_as_in_python(
    tmp_path: Path, masked: Path, method: str
) -> None:
    proteins = some(tmp_path / "in.fasta", [f"P{i}" for i in range(8)])
    rows = table(masked, tmp_path / "in.fasta", *(["--method", method] if method else []))
    model = performer.load(masked)
    for row, protein in zip(rows, proteins, strict=True):
        found = (one_pass if method == "wildtype" else each_masked)(model, protein)
        expected = of_own(found, model, protein)
        assert float(row["log_likelihood"]) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert int(row["targets"]) == int(row["residues"]) == len(protein)
        perplexity = torch.tensor(-expected / len(protein)).exp()
        assert float(row["perplexity"]) == pytest.approx(float(perplexity), rel=1e-5)


def test_sequences_of_a_causal_model_are_exact_and_as_eval_has_them(tmp_path: Path) -> None:
    source = tmp_path / "in.fasta"
    proteins = some(source, [f"P{i}" for i in range(8)], most=30)
    rows = table(CAUSAL, source)
    model = performer.load(CAUSAL)
    for row, protein in zip(rows, proteins, strict=True):
        expected = exact(model, protein)
        assert float(row["log_likelihood"]) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert int(row["targets"]) == len(protein) + 1
    out = tmp_path / "eval.tsv"
    answer("eval", CAUSAL, "--data", source, "--length", 32, "--per-sequence", out)
    for row, other in zip(rows, rows_of(out.read_text()), strict=True):
        loss = -float(row["log_likelihood"]) / int(row["targets"])
        assert loss == pytest.approx(float(other["loss"]), abs=2e-6)


def test_texts_begin_as_the_model_was_trained(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one line of text\nand another one\n" * 20)
    run = trained(tmp_path, one_layer(text_data(tmp_path / "text.txt")), "optimizer.rate=0.05")
    (tmp_path / "in.txt").write_text("one line\n")
    (row,) = table(run, tmp_path / "in.txt")
    model = performer.load(run)
    assert model.tokens.start != model.tokens.bos
    assert float(row["log_likelihood"]) == pytest.approx(exact(model, "one line"), rel=1e-5)


def mutations_file(path: Path, lines: list[str], header: str = "mutant") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.mark.parametrize("method", ["masked", "wildtype", "pseudo"])
def test_mutations_are_as_esm_1v_defines_them(
    tmp_path: Path, masked: Path, one: Path, method: str
) -> None:
    wanted = MUTANTS
    source = mutations_file(tmp_path / "m.csv", wanted)
    rows = table(masked, one, "--mutations", source, "--method", method)
    assert [row["mutant"] for row in rows] == wanted
    model = performer.load(masked)
    for row in rows:
        if method == "pseudo":
            new = mutant_of(PROTEIN, row["mutant"])
            expected = of_own(each_masked(model, new), model, new)
            expected -= of_own(each_masked(model, PROTEIN), model, PROTEIN)
        else:
            found = (each_masked if method == "masked" else one_pass)(model, PROTEIN)
            expected = marginal(found, model, row["mutant"])
        assert float(row["score"]) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("method", ["pseudo", "wildtype"])
def test_mutations_in_a_causal_model(tmp_path: Path, one: Path, method: str) -> None:
    source = mutations_file(tmp_path / "m.csv", MUTANTS)
    options = ["--method", method] if method == "wildtype" else []  # pseudo is the default
    model = performer.load(CAUSAL)
    for row in table(CAUSAL, one, "--mutations", source, *options):
        expected = exact(model, mutant_of(PROTEIN, row["mutant"])) - exact(model, PROTEIN)
        if method == "wildtype":
            expected = marginal(one_pass(model, PROTEIN), model, row["mutant"])
        assert float(row["score"]) == pytest.approx(expected, abs=3e-5)


@pytest.mark.parametrize("method", ["masked", "wildtype"])
def test_a_scan_is_every_mutation_at_every_position(
    tmp_path: Path, masked: Path, one: Path, method: str
) -> None:
    scan = table(masked, one, "--scan", "--method", method, "--offset", 10)
    assert [row["residue"] for row in scan] == list(PROTEIN)
    assert [int(row["position"]) for row in scan] == list(range(10, 10 + len(PROTEIN)))
    every = [f"{r['residue']}{r['position']}{to}" for r in scan for to in RESIDUES]
    source = mutations_file(tmp_path / "m.csv", every)
    rows = table(masked, one, "--mutations", source, "--method", method, "--offset", 10)
    assert [float(row["score"]) for row in rows] == [float(r[to]) for r in scan for to in RESIDUES]
    assert all(float(row[row["residue"]]) == 0 for row in scan)
    assert len({row["A"] for row in scan}) > 5


def test_ids_say_which_sequence_and_other_columns_do_not_matter(
    tmp_path: Path, masked: Path
) -> None:
    (tmp_path / "in.fasta").write_text(">a\nMKT\n>b,1\nAAA\n")
    lines = ['"x, ""y""",A3G,"b,1"', "2,K2A,a"]
    source = mutations_file(tmp_path / "m.csv", lines, "note,mutant,id")
    rows = table(masked, tmp_path / "in.fasta", "--mutations", source)
    assert [(r["sequence"], r["id"], r["mutant"]) for r in rows] == [
        ("2", "b,1", "A3G"),
        ("1", "a", "K2A"),
    ]
    tabbed = tmp_path / "m.tsv"
    tabbed.write_text("id\tmutant\r\nb,1\tA3G\r\na\tK2A\r\n")
    assert table(masked, tmp_path / "in.fasta", "--mutations", tabbed) == rows


def test_order_duplicates_and_hostile_ids_are_kept(tmp_path: Path, masked: Path) -> None:
    source = tmp_path / "in.fasta"
    some(source, HOSTILE_IDS)
    told = answer("score", masked, source, "-o", tmp_path / "out.tsv")
    rows = rows_of((tmp_path / "out.tsv").read_text())
    assert [row["id"] for row in rows] == HOSTILE_IDS
    assert told["sequences"] == len(HOSTILE_IDS)
    assert told["method"] == "pseudo"
    assert {p.name for p in tmp_path.iterdir()} == {"in.fasta", "out.tsv"}
    total = sum(float(row["log_likelihood"]) for row in rows)
    assert told["log_likelihood"] == pytest.approx(total, abs=1e-4)


def test_gzip_and_standard_input_are_read(masked: Path, one: Path, program: Run) -> None:
    packed = one.with_suffix(".gz")
    packed.write_bytes(gzip.compress(one.read_bytes()))
    first = program("score", masked, packed)
    assert first.returncode == 0, first.stderr
    for name in ("-", "stdin"):
        done = program("score", masked, name, input=one.read_text())
        assert done.stdout == first.stdout


def test_a_sequence_has_the_same_score_alone_and_beside_others(
    tmp_path: Path, masked: Path
) -> None:
    some(tmp_path / "in.fasta", [f"P{i}" for i in range(8)])
    together = table(masked, tmp_path / "in.fasta")
    alone = table(masked, tmp_path / "in.fasta", "--batch-tokens", 1)
    for a, b in zip(together, alone, strict=True):
        assert float(a["log_likelihood"]) == pytest.approx(float(b["log_likelihood"]), abs=1e-4)


@pytest.mark.parametrize("kind", [[], ["--scan"], ["--mutations"]])
def test_what_was_interrupted_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, masked: Path, one: Path, program: Run, kind: list[str]
) -> None:
    if kind == ["--mutations"]:
        every = [f"{PROTEIN[i]}{i + 1}{to}" for i in range(len(PROTEIN)) for to in "ACD"]
        kind = [*kind, str(mutations_file(tmp_path / "m.csv", every)), "--method", "pseudo"]
    if not kind:
        some(one, [f"P{i}" for i in range(20)])
    arguments = ("score", masked, one, "--batch-tokens", 100, *kind, "-o")
    answer(*arguments, tmp_path / "whole.tsv")
    stopped = program(*arguments, tmp_path / "cut.tsv", limit="-f 2")  # two KiB
    assert stopped.returncode == 5, stopped.stderr
    assert not (tmp_path / "cut.tsv").exists()
    told = answer(*arguments, tmp_path / "cut.tsv")
    assert 0 < told["passes_from_before"] < told["passes"]
    digests = [hashlib.sha256((tmp_path / f"{n}.tsv").read_bytes()) for n in ("whole", "cut")]
    assert digests[0].digest() == digests[1].digest()
    assert not (tmp_path / "cut.tsv.partial").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("K3A", 'm.csv:2: K3A: position 3 of "P1" is T, the mutation expects K; --offset says'),
        ("G29A", 'm.csv:2: G29A: "P1" has positions 1 to 28; --offset says'),
        ("K0A", "has positions 1 to 28"),
        ("K2", 'a mutation is written A24G (residue, position, new residue), several as A24G:K30R; '
               'got "K2"'),
        ("K2A:", 'got ""'),
        ("K2B", 'got "K2B"'),
        ("K99999999999999999999A", "a mutation is written A24G"),
        ("K2A:K2R", 'm.csv:2: "K2A:K2R" changes position 2 twice'),
        ("K2A,", "m.csv:2: 2 fields, the header has 1"),
        ('"K2A', "a quote is opened and not closed"),
    ],
)  # fmt: skip
def test_a_wrong_mutation_is_one_line(
    tmp_path: Path, masked: Path, one: Path, program: Run, line: str, words: str
) -> None:
    source = mutations_file(tmp_path / "m.csv", [line])
    done = program(
        "score", masked, one, "--mutations", source, "-o", tmp_path / "out.tsv", "--json"
    )
    assert done.returncode == 3, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 2  # which checkpoint it is, and what is wrong
    assert not list(tmp_path.glob("out*"))


def test_the_id_of_a_mutation_must_be_clear(tmp_path: Path, masked: Path, program: Run) -> None:
    some(tmp_path / "in.fasta", ["twice", "twice", "once"])
    for header, line, words in [
        ("mutant", "K2A", "has 3 sequences; a column id must say which one"),
        ("mutant,id", "K2A,twice", '2 sequences of in.fasta have the id "twice"'),
        ("mutant,id", "K2A,<b>", 'no sequence of in.fasta has the id "<b>"'),
        ("variant,id", "K2A,once", "a header with a column mutant (A24G, A24G:K30R) is needed"),
    ]:
        source = mutations_file(tmp_path / "m.csv", [line], header)
        done = program("score", masked, tmp_path / "in.fasta", "--mutations", source)
        assert done.returncode == 3, done.stderr
        assert words in done.stderr.replace(f"{tmp_path}/", "")
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json"], "--json needs -o FILE"),
        (["--method", "best"], "masked, wildtype or pseudo, got 'best'"),
        (["--scan", "--mutations", "m.csv"], "--scan and --mutations are two tables"),
        (["--scan", "--method", "pseudo"], "take masked or wildtype"),
        (["-o", "{one}"], "already exists; name another file, or pass --overwrite"),
    ],
)
def test_a_wrong_call_is_one_line(
    masked: Path, one: Path, program: Run, options: list[str], words: str
) -> None:
    done = program("score", masked, one, *(o.replace("{one}", str(one)) for o in options))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_models_that_cannot_score_say_why(tmp_path: Path, one: Path, program: Run) -> None:
    done = program("score", CAUSAL, one, "--method", "masked")
    assert done.returncode == 2
    assert "the model is causal and knows no mask" in done.stderr
    (tmp_path / "text.txt").write_text("one line of text\nand another one\n" * 20)
    text = trained(tmp_path, one_layer(text_data(tmp_path / "text.txt")))
    done = program("score", text, one, "--scan")
    assert done.returncode == 2
    assert "mutations are of residues, and the model reads bytes" in done.stderr
