"""A model of sentence embeddings with FAVOR+ in place of its attention, fitted without labels.

    python examples/python/convert_embeddings.py FOLDER TEXTS OUT

FOLDER holds an encoder of the package transformers with its tokenizer, such as all-MiniLM-L6-v2;
TEXTS has a text a line, of the kind that the model is for; OUT receives the converted model. Every
tenth line is kept for the comparison: the cosine of an embedding with the exact model's. Two cores
take about half an hour for MiniLM and the steps below; more steps come closer.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import cosine_similarity

import performer

LENGTH = 192  # tokens


def embed(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    """The mean of the last hidden states of each text: [texts, E]."""
    rows = []
    with torch.no_grad():
        for first in range(0, len(texts), 16):
            batch = tokenizer(
                texts[first : first + 16],
                padding=True,
                truncation=True,
                max_length=LENGTH,
                return_tensors="pt",
            )
            hidden = model(**batch).last_hidden_state
            real = batch["attention_mask"].unsqueeze(-1)
            rows.append((hidden * real).sum(1) / real.sum(1))
    return torch.cat(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="FAVOR+ for a model of sentence embeddings.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--attention-steps", type=int, default=200)
    parser.add_argument("--model-steps", type=int, default=600)
    given = parser.parse_args()
    lines = [line.strip() for line in given.texts.read_text(encoding="utf-8").splitlines()]
    texts = [line for line in lines if line]
    held_out = texts[::10]
    learned = [text for i, text in enumerate(texts) if i % 10]

    tokenizer = transformers.AutoTokenizer.from_pretrained(given.folder)
    model = transformers.AutoModel.from_pretrained(given.folder).eval()
    exact = embed(model, tokenizer, held_out)

    def compare(name: str) -> None:
        cosine = cosine_similarity(embed(model, tokenizer, held_out), exact).mean()
        print(f"{name}: cosine {cosine:.4f} on {len(held_out)} held-out texts")

    performer.patch(model, given.features)
    compare("random features")
    steps = {"attention": given.attention_steps, "model": given.model_steps}
    performer.convert(
        model, learned, given.features, tokenizer=tokenizer, steps=steps, length=LENGTH, batch=8
    )
    compare("fitted features")
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    model = performer.from_pretrained(given.out)
    compare(f"loaded from {given.out}")


if __name__ == "__main__":
    main()
