"""How well does a converted model of sentence embeddings find what belongs together?

python experiments/retrieval.py build DOCS.tsv.gz OUT [--books BOOK.txt.gz ...]
python experiments/retrieval.py score OUT EXACT CHECKPOINT ... [--program build/performer]

`build` makes the tests out of documents, one a line in columns `split` and `text` (with \\n for
line feeds), such as rendered manual pages: 200 and 405 documents that are not of the split `train`,
each cut into its even and its odd sentences. A query is one half, the answer the other half of the
same document among all. It also writes text to fit on: the documents of `train` (manual.txt), the
books (books.txt) and both (mixed.txt). All choices are by SHA-256 of the text.

`score` embeds both tests with `performer embed` and prints the share of queries whose nearest
neighbour by cosine is the answer, and the mean cosine of an embedding to that of EXACT.
"""

import argparse
import csv
import gzip
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy

TESTS = {"first": (0, 200), "second": (200, 605)}
SHORTEST, LONGEST = 1000, 900  # characters of a document, at least; of a half, at most


def plain(column: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], column)


def halves(text: str) -> tuple[str, str]:
    sentences = re.split(r"(?<=[.;:]) ", " ".join(text.split()))
    return " ".join(sentences[::2])[:LONGEST], " ".join(sentences[1::2])[:LONGEST]


def read_documents(path: Path) -> tuple[list[str], list[str]]:
    """Of the train split, and of all others; in an order by hash."""
    csv.field_size_limit(1 << 24)
    train: list[str] = []
    others: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            (train if row["split"] == "train" else others).append(plain(row["text"]))
    for texts in (train, others):
        texts.sort(key=lambda text: hashlib.sha256(text.encode()).digest())
    return train, others


def build(given: argparse.Namespace) -> None:
    train, others = read_documents(given.documents)
    given.out.mkdir(parents=True, exist_ok=True)
    long_enough = [text for text in others if len(text) >= SHORTEST and all(halves(text))]
    for name, (begin, end) in TESTS.items():
        pairs = [halves(text) for text in long_enough[begin:end]]
        rows = [half for side in zip(*pairs, strict=True) for half in side]
        (given.out / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    manual = "\n".join(train) + "\n"
    books = "".join(gzip.decompress(path.read_bytes()).decode() for path in given.books)
    (given.out / "manual.txt").write_text(manual)
    if books:
        (given.out / "books.txt").write_text(books)
        (given.out / "mixed.txt").write_text(manual + books)


def vectors(given: argparse.Namespace, checkpoint: Path, test: str) -> numpy.ndarray:
    out = given.folder / f"{checkpoint.name}.{test}.npz"
    command = [given.program, "embed", checkpoint, given.folder / f"{test}.txt", "-o", out]
    command += ["--pool", "mean-all", "--length", str(given.length), "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    with numpy.load(out) as file:
        rows = file["embeddings"].astype(numpy.float64)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


def score(given: argparse.Namespace) -> None:
    exact = {test: vectors(given, given.exact, test) for test in TESTS}
    print("checkpoint               top-1 of 200   top-1 of 405   cosine to exact")
    for checkpoint in [given.exact, *given.checkpoints]:
        found, cosines = [], []
        for test, reference in exact.items():
            own = reference if checkpoint == given.exact else vectors(given, checkpoint, test)
            queries, answers = numpy.split(own, 2)
            nearest = (queries @ answers.T).argmax(1)
            found.append(100 * (nearest == numpy.arange(len(answers))).mean())
            cosines.append((own * reference).sum(1))
        cosine = numpy.concatenate(cosines).mean()
        print(f"{checkpoint.name:24} {found[0]:10.1f} % {found[1]:12.1f} % {cosine:12.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Retrieval by embeddings, exact and converted.")
    commands = parser.add_subparsers(required=True)
    builder = commands.add_parser("build")
    builder.add_argument("documents", type=Path)
    builder.add_argument("out", type=Path)
    builder.add_argument("--books", type=Path, nargs="*", default=[])
    builder.set_defaults(work=build)
    scorer = commands.add_parser("score")
    scorer.add_argument("folder", type=Path, help="what build made")
    scorer.add_argument("exact", type=Path, help="the model with its exact attention")
    scorer.add_argument("checkpoints", type=Path, nargs="+")
    scorer.add_argument("--program", default="build/performer")
    scorer.add_argument("--length", type=int, default=192, help="tokens of a text")
    scorer.set_defaults(work=score)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
