"""`performer data`: results, messages and exit codes of the real program."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "performer"
PROTEINS = ROOT / "data" / "proteins"


def run(*args: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [str(PROGRAM), "data", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def result_of(*args: object, stdin: bytes = b"") -> dict:
    done = run(*args, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def failure_of(code: int, *args: object, stdin: bytes = b"") -> str:
    done = run(*args, stdin=stdin)
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert done.stdout == b""
    assert message.count("\n") == 1, message
    return message


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_build_reads_plain_gzip_and_standard_input_alike(tmp_path: Path) -> None:
    text = b">a x\r\nACDE\r\n>b\nacd*\n"
    plain = write(tmp_path / "a.fasta", text)
    packed = write(tmp_path / "no_suffix", gzip.compress(text))
    hashes = {
        result_of("build", plain, "-o", tmp_path / "1.pds")["sha256"],
        result_of("build", packed, "-o", tmp_path / "2.pds")["sha256"],
        result_of("build", "-", "-o", tmp_path / "3.pds", stdin=text)["sha256"],
    }
    assert len(hashes) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "1.pds", "2.pds", "3.pds", "a.fasta", "no_suffix",
    ]  # fmt: skip


def test_build_counts_what_it_mends(tmp_path: Path) -> None:
    text = b">a\nAC-D\n>a\nA*CJ*\n>c\n\n>d\nACD\n"
    read = result_of("build", "-", "-o", tmp_path / "a.pds", "--deduplicate", stdin=text)["read"]
    assert read["gaps"] == 1
    assert read["inner_stops"] == 1
    assert read["end_stops"] == 1
    assert read["unknown"] == 1
    assert read["blank"] == 1
    assert read["duplicates"] == 1


def test_a_line_of_fifty_megabytes_is_one_sequence(tmp_path: Path) -> None:
    text = b">long\n" + b"MKV" * 17_000_000
    result = result_of("build", "-", "-o", tmp_path / "a.pds", stdin=text)
    assert result["lengths"]["max"] == 51_000_000


@pytest.mark.parametrize("command", ["build", "stats", "split"])
def test_bad_input_is_named_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    packed = gzip.compress(b">a\n" + bytes(range(65, 74)) * 1000)
    cases = {
        "empty.fasta": (b"", "there is no sequence in it"),
        "blank.fasta": (b">a\n>b\n\n", "there is no sequence in it"),
        "binary.fasta": (b"\x7fELF\x00\x01", "byte 0x7f at offset 0"),
        "nul.fasta": (b">a\nAC\x00D\n", "byte 0x00 at offset 5"),
        "cut.fasta.gz": (packed[:-9], "cut short"),
        "digits.fasta": (b">a\nACD\nAC7D\n", "digits.fasta:3:3: '7' is not an amino acid"),
        "headless.fasta": (b"ACD\n>a\nAC\n", "headless.fasta:1:1: text before the first '>'"),
    }
    folder = tmp_path / "in"
    folder.mkdir()
    out = tmp_path / "out"
    for name, (content, words) in cases.items():
        options = [] if command == "stats" else ["-o", out]
        message = failure_of(3, command, write(folder / name, content), *options)
        assert words in message
        assert not out.is_file()
    assert "cannot be opened" in failure_of(3, "stats", tmp_path / "missing.fasta")
    assert "the folder holds no file" in failure_of(3, "stats", tmp_path)


def test_wrong_usage_exits_with_two(tmp_path: Path) -> None:
    fasta = write(tmp_path / "a.fasta", b">a\nAC\n")
    failure_of(2, "build", fasta)
    failure_of(2, "build", fasta, "-o", tmp_path / "a.pds", "--nonsense")
    assert "is the input too" in failure_of(2, "build", fasta, "-o", fasta)
    assert "--valid and --test" in failure_of(2, "split", fasta, "-o", tmp_path, "--valid", 2)
    assert "--families" in failure_of(2, "split", fasta, "-o", tmp_path, "--held-out", "PF1")
    assert fasta.read_bytes() == b">a\nAC\n"


def test_a_built_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    fasta = write(tmp_path / "a.fasta", b">a\nAC\n")
    built = write(tmp_path / "a.pds", b"mine")
    said = failure_of(2, "build", fasta, "-o", built)
    assert "a.pds: already exists; name another file, or pass --overwrite" in said
    assert built.read_bytes() == b"mine"
    result_of("build", fasta, "-o", built, "--overwrite")
    assert built.read_bytes() != b"mine"


def test_an_output_that_cannot_be_written_exits_with_five(tmp_path: Path) -> None:
    fasta = write(tmp_path / "a.fasta", b">a\nAC\n")
    failure_of(5, "build", fasta, "-o", tmp_path / "no" / "folder" / "a.pds")


def test_a_damaged_built_file_exits_with_four(tmp_path: Path) -> None:
    built = tmp_path / "a.pds"
    result_of("build", "-", "-o", built, stdin=b">a\nACDEFGHIKL\n")
    content = built.read_bytes()
    for position in (8, 35, 50, len(content) - 3):
        damaged = bytearray(content)
        damaged[position] ^= 4
        path = write(tmp_path / "b.pds", bytes(damaged))
        assert "b.pds: " in failure_of(4, "stats", path)
    assert "cut short" in failure_of(4, "stats", write(tmp_path / "b.pds", content[:-1]))


def files_need_no_name(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


def test_a_killed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    output = tmp_path / "a.pds"
    command = [str(PROGRAM), "data", "build", "-", "-o", str(output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as build:
        assert build.stdin is not None
        build.stdin.write(b">a\nMKVLACDEFG\n" * 200_000)  # more than a pipe holds: it is at work
        build.kill()
    assert list(tmp_path.iterdir()) == [] or not files_need_no_name(tmp_path)
    result_of("build", "-", "-o", output, stdin=b">a\nMKV\n")
    assert list(tmp_path.iterdir()) == [output]


def test_names_that_are_not_utf8_do_not_break_json(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.fasta"
    Path(os.fsdecode(path)).write_bytes(b">caf\xe9\nMKV\n")
    command = [str(PROGRAM).encode(), b"data", b"stats", b"--json", path]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parts"][0]["name"].endswith("caf\ufffd.fasta")


def test_dna_read_as_proteins_is_warned_of(tmp_path: Path) -> None:
    genes = write(tmp_path / "genes.fna", b">g\n" + b"ACGTN" * 50 + b"\n")
    done = run("stats", genes)
    assert done.returncode == 0
    assert b"look like DNA or RNA" in done.stderr


def test_what_follows_gzip_data_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b">a\nMKV\n") + gzip.compress(b">b\nMKV\n")
    done = run("stats", "--json", write(tmp_path / "a.gz", packed + bytes(512)))
    assert json.loads(done.stdout)["parts"][0]["lengths"]["count"] == 2
    done = run("stats", "--json", write(tmp_path / "b.gz", packed + b"trailing"))
    assert done.returncode == 3
    assert b"b.gz: what follows the gzip data" in done.stderr


def test_stats_and_the_letters_have_one_uniform_baseline(tmp_path: Path) -> None:
    fasta = write(tmp_path / "a.fasta", b">a\nMKV\n")
    assert result_of("stats", fasta)["uniform"]["perplexity"] == 25
    assert b"letters alone, without EOS" in run("stats", fasta).stdout


def test_stats_take_folders_and_patterns_as_recipes_do(tmp_path: Path) -> None:
    for name in ("a.fasta", "b.fasta"):
        write(tmp_path / name, b">x\nACDE\n")
    for given in (tmp_path, tmp_path / "*.fasta"):
        names = [part["name"] for part in result_of("stats", given)["parts"]]
        assert names == [str(tmp_path / "a.fasta"), str(tmp_path / "b.fasta")]


def test_stats_of_the_shipped_proteins(tmp_path: Path) -> None:
    files = [PROTEINS / f"{split}.fasta.gz" for split in ("train", "valid", "test", "ood")]
    parts = result_of("stats", *files)["parts"]
    assert [part["lengths"]["count"] for part in parts] == [10326, 511, 919, 926]
    assert [part["lengths"]["total"] for part in parts] == [3867148, 205576, 331743, 325747]
    # Close to those of the whole set: 9.77 % and 17.98 on test, 9.11 % and 18.14 on ood.
    assert parts[2]["empirical"]["accuracy"] == pytest.approx(0.0977, abs=0.002)
    assert parts[2]["empirical"]["perplexity"] == pytest.approx(17.98, abs=0.1)
    assert parts[3]["empirical"]["perplexity"] == pytest.approx(18.14, abs=0.1)
    assert sum(parts[0]["letters"].values()) == 3867148
    built = tmp_path / "test.pds"
    result_of("build", files[2], "-o", built)
    assert result_of("stats", built)["parts"][0]["lengths"] == parts[2]["lengths"]


def test_split_holds_the_shipped_families_out(tmp_path: Path) -> None:
    joined = b"".join((PROTEINS / f"{s}.fasta.gz").read_bytes() for s in ("test", "ood"))
    options = ["--families", PROTEINS / "families.tsv.gz"]
    held_out = ["--held-out", PROTEINS / "ood_families.tsv"]
    out = tmp_path / "out"
    parts = result_of("split", "-", "-o", out, *options, *held_out, stdin=joined)["parts"]
    counts = {part["name"]: part["lengths"]["count"] for part in parts}
    assert counts["ood"] == 926
    assert counts["train"] + counts["valid"] + counts["test"] == 919
    assert sorted(p.name for p in out.iterdir()) == [
        "ood.fasta", "test.fasta", "train.fasta", "valid.fasta",
    ]  # fmt: skip
    again = result_of("split", out / "train.fasta", "-o", tmp_path / "again", *options, *held_out)
    assert [p["lengths"]["count"] for p in again["parts"]] == [counts["train"], 0, 0, 0]
    assert "the paper's Pfam families" in failure_of(3, "split", "-", "-o", out, *options)


def test_split_leaves_no_part_of_an_earlier_one(tmp_path: Path) -> None:
    fasta = PROTEINS / "test.fasta.gz"
    out = tmp_path / "out"
    result_of("split", fasta, "-o", out, "--valid", 0.3, "--test", 0.3)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    said = failure_of(2, "split", fasta, "-o", out, "--valid", 0, "--test", 0)
    assert f"{out}/train.fasta: already exists" in said
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    (out / "notes.txt").write_text("of somebody")
    all_train = ("--valid", 0, "--test", 0, "--overwrite")
    result_of("split", fasta, "-o", out, *all_train)
    assert sorted(p.name for p in out.iterdir()) == ["notes.txt", "train.fasta"]
    result_of("split", fasta, "-o", out, *all_train, "--format", "pds")
    assert sorted(p.name for p in out.iterdir()) == ["notes.txt", "train.pds"]
    own = out / "test.fasta"
    own.write_bytes(gzip.decompress(fasta.read_bytes()))
    assert "is the input of the split" in failure_of(2, "split", own, "-o", out, *all_train)
    assert own.exists()


def test_tokenizer_is_trained_and_says_what_it_costs(tmp_path: Path) -> None:
    book = ROOT / "data" / "books" / "persuasion.txt.gz"
    head = gzip.decompress(book.read_bytes())[:60_000]
    text = write(tmp_path / "head.txt", head)
    result = result_of("tokenizer", text, "-o", tmp_path / "a.model", "--vocabulary", 600)
    assert result["vocabulary"] == 600
    assert result["words"] == len(head.split())
    assert 1 < result["word_multiplier"] < 4
    message = failure_of(3, "tokenizer", text, "-o", tmp_path / "b.model", "--vocabulary", 90_000)
    assert "--vocabulary" in message
    assert not (tmp_path / "b.model").exists()
