"""What a conversion of a causal model costs: a byte-level Transformer, trained here, then swapped.

python experiments/byte_model.py --train a.txt.gz b.txt.gz --held-out c.txt.gz d.txt.gz --out runs/b
       [--device cuda] [--steps train swap fit attention state recall]

  train      configs/text/books.toml on the training books; the same command resumes
  swap       the trained weights with FAVOR+, a near field alone, and both: perplexity a byte
  fit        the same with features fitted by `performer convert RUN OUT --fit`, on the training
             books, without labels
  attention  the error of attention on the model's own q, k and v, by near and m, with the same W
  state      generation by state against full recomputation, token by token
  recall     configs/recall/far.toml: exact, FAVOR+ beside a near field, the near field alone

Tables are printed and written to OUT as TSV files; lines that are there already are kept, so a
broken run goes on where it was. --full says what the models of docs/results were made with: hours
on two cores, minutes on a GPU; without it the recipe's own settings hold.
"""

import argparse
import gzip
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from near_error import BLOCKS, FEATURES, errors

import performer

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "performer"
STEPS = ("train", "swap", "fit", "attention", "state", "recall")
FULL = ("train.steps=20000", "train.batch=32", "schedule.warmup=500")
PROMPT = "It was "
MARGIN = 1e-4  # between the two best logits, above which both ways must choose the same


def run(options: argparse.Namespace, *words: object) -> dict[str, Any]:
    """The JSON that a command of the program prints."""
    command = [PROGRAM, *words, "--device", options.device, "--threads", options.threads, "--json"]
    print("$ performer", *words, file=sys.stderr, flush=True)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


class Table:
    """Rows by their first `keys` columns, in a TSV file that grows line by line."""

    def __init__(self, path: Path, columns: tuple[str, ...], keys: int) -> None:
        self.path, self.columns, self.keys = path, columns, keys
        self.rows: dict[tuple[str, ...], list[str]] = {}
        if path.exists():
            for line in path.read_text().splitlines()[1:]:
                cells = line.split("\t")
                self.rows[tuple(cells[:keys])] = cells
        else:
            path.write_text("\t".join(columns) + "\n")

    def has(self, *key: object) -> bool:
        return tuple(map(str, key)) in self.rows

    def add(self, *cells: object) -> None:
        row = [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells]
        self.rows[tuple(row[: self.keys])] = row
        with self.path.open("a") as file:
            file.write("\t".join(row) + "\n")

    def show(self) -> None:
        print("\n| " + " | ".join(self.columns) + " |")
        print("|---" * len(self.columns) + "|")
        for row in self.rows.values():
            print("| " + " | ".join(row) + " |")
        print(flush=True)


def train(o: argparse.Namespace) -> None:
    books = json.dumps([str(book) for book in o.train])
    settings = [f"data.train={books}", *(FULL if o.full else ()), *o.set]
    flags = [word for setting in settings for word in ("--set", setting)]
    run(o, "train", ROOT / "configs/text/books.toml", "--out", o.out / "exact", *flags)


def perplexities(o: argparse.Namespace) -> Table:
    return Table(o.out / "perplexity.tsv", ("system", "book", "perplexity", "over_exact_%"), 2)


def measure(o: argparse.Namespace, table: Table, name: str, model: Path, *flags: str) -> None:
    for book in o.held_out:
        if table.has(name, book.name):
            continue
        rows = ("--max-batches", o.rows // o.batch, "--batch", o.batch)
        (result,) = run(o, "eval", model, "--data", book, *rows, *flags)["splits"].values()
        value = math.exp(result["loss"])
        exact = float(table.rows[("exact", book.name)][2]) if name != "exact" else value
        table.add(name, book.name, value, f"{100 * (value / exact - 1):.2f}")


def swap(o: argparse.Namespace) -> None:
    table = perplexities(o)
    m = o.features
    systems = [("pure", 0, m)]
    systems += [(f"near {b} alone", b, 0) for b in o.near]
    systems += [(f"near {b}, raw", b, m) for b in o.near]
    measure(o, table, "exact", o.out / "exact")
    for name, near, features in systems:
        settings = {"kind": "favor", "near": near, "features": features}
        flags = [f"--set=model.attention.{key}={value}" for key, value in settings.items()]
        measure(o, table, name, o.out / "exact", *flags)
    table.show()


def fit(o: argparse.Namespace) -> None:
    table = perplexities(o)
    measure(o, table, "exact", o.out / "exact")
    text = o.out / "fit.txt"
    if not text.exists():
        text.write_bytes(b"".join(map(read, o.train)))
    for near in [*o.near, *([0] if o.fit_pure else [])]:
        folder = o.out / f"fitted-{near}"
        if not folder.exists():
            words = ("--features", o.features, "--near", near, "--fit", text)
            size = ("--fit-steps", o.fit_steps, "--fit-rows", o.fit_rows, "--fit-length", 512)
            run(o, "convert", o.out / "exact", folder, *words, *size)
        name = f"near {near}, fitted" if near else "pure, fitted"
        measure(o, table, name, folder)
    table.show()


def read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def held_out_tokens(o: argparse.Namespace, length: int) -> torch.Tensor:
    """[1, L], from the middle of the first held-out book."""
    text = read(o.held_out[0])
    begin = len(text) // 2
    return torch.tensor(list(text[begin : begin + length]))[None]


def attention(o: argparse.Namespace) -> None:
    model = performer.load(o.out / "exact")
    seen: list[tuple[torch.Tensor, ...]] = []
    for block in model.blocks():
        core = block.attention.core
        core.register_forward_pre_hook(lambda _, given: seen.append(given[:3]))
    with torch.no_grad():
        model.hidden(held_out_tokens(o, 512))
    q, k, v = (torch.cat(parts, 1).double() for parts in zip(*seen, strict=True))
    columns = ("near", "m", "heads", "mean_error", "worst_head")
    table = Table(o.out / "attention_error.tsv", columns, 2)
    for near in BLOCKS:
        for m in FEATURES:
            if (near == 0 and m == 0) or table.has(near, m):
                continue
            error = errors((q, k, v), m, near, causal=True, draws=3 if m else 1).mean(0)
            table.add(near, m, len(error), float(error.mean()), float(error.max()))
    table.show()


def state(o: argparse.Namespace) -> None:
    """Greedy text by state; then the whole of it at once, through another path of the code."""
    columns = ("system", "tokens", "compared", "differ", "tokens_per_second")
    table = Table(o.out / "state.tsv", columns, 2)
    near = o.near[0]
    raw, fitted = o.out / f"raw-{near}", o.out / f"fitted-{near}"
    if not raw.exists():
        run(o, "convert", o.out / "exact", raw, "--features", o.features, "--near", near)
    for folder in (raw, fitted) if fitted.exists() else (raw,):
        if table.has(folder.name, o.length):
            continue
        words = ("--prompt", PROMPT, "--n", 1, "--length", o.length, "--no-stop")
        done = run(o, "generate", folder, *words, "--temperature", 0)
        text = done["sequences"][0]["text"].encode("utf-8", "replace")
        compared, differ = recompute(folder, text)
        table.add(folder.name, o.length, compared, differ, float(done["tokens_per_second"]))
    table.show()


def recompute(folder: Path, text: bytes) -> tuple[int, int]:
    """How many bytes have a margin, and how many of those are not the most likely ones."""
    model = performer.load(folder)
    tokens = torch.tensor([model.tokens.start, *text])
    with torch.no_grad():
        logits = model(tokens[None])[0, len(PROMPT) : -1, :256].double()
    best = logits.topk(2).values
    sure = best[:, 0] - best[:, 1] > MARGIN
    wrong = logits.argmax(-1) != tokens[len(PROMPT) + 1 :]
    return int(sure.sum()), int((sure & wrong).sum())


def recall(o: argparse.Namespace) -> None:
    columns = ("system", "accuracy_%", "loss")
    table = Table(o.out / "recall.tsv", columns, 1)
    systems = {
        "exact": ("exact", ["model.attention.kind=exact"]),
        "FAVOR+ m = 1024 beside near 4": ("both", []),
        "near 4 alone": ("near", ["model.attention.features=0"]),
    }
    for name, (short, settings) in systems.items():
        if table.has(name):
            continue
        folder = o.out / f"recall-{short}"
        flags = [word for setting in settings for word in ("--set", setting)]
        run(o, "train", ROOT / "configs/recall/far.toml", "--out", folder, *flags)
        result = run(o, "eval", folder, "--split", "valid", "--max-batches", 20)["splits"]["valid"]
        table.add(name, f"{100 * result['accuracy']:.2f}", float(result["loss"]))
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", type=Path, nargs="+", default=[], help="books to train on")
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], help="others")
    parser.add_argument("--out", type=Path, default=Path("runs/byte_model"))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--full", action="store_true", help="20,000 steps of 32 rows")
    parser.add_argument("--set", action="append", default=[], help="of training, as of `performer`")
    parser.add_argument("--features", type=int, default=64, help="m (default 64: twice the width)")
    parser.add_argument("--near", type=int, nargs="+", default=[64, 32])
    parser.add_argument("--rows", type=int, default=1024, help="rows of 512 bytes of a book scored")
    parser.add_argument("--batch", type=int, default=8, help="of scoring")
    parser.add_argument("--fit-steps", type=int, default=400)
    parser.add_argument("--fit-rows", type=int, default=32)
    parser.add_argument("--fit-pure", action="store_true", help="fit without a near field, too")
    parser.add_argument("--length", type=int, default=2000, help="bytes that `state` generates")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.steps:
        globals()[name](options)


if __name__ == "__main__":
    main()
