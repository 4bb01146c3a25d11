"""A language model that generates with a state: the prompt in one pass, then steps of one token.

It learns this very file, letter by letter, for a few seconds, and then goes on from a prompt. A
step costs the same at every position: the state holds all that was read, and never grows.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import performer

WIDTH, LAYERS, LENGTH, BATCH, STEPS = 64, 2, 128, 8, 240
PROMPT, NEW = "def ", 40


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        # rotary: queries and keys know their distance; layer: each draws features of its own.
        self.attention = performer.FavorAttention(
            WIDTH, num_heads=4, num_features=64, causal=True, rotary=True, layer=number
        )
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(
        self, x: Tensor, state: performer.FavorState | None, position: int
    ) -> tuple[Tensor, performer.FavorState]:
        """All tokens [B, L, E] at once; behind a state the next one, [B, 1, E], which `position`
        others came before. The next state is new, and the old one stays as it was."""
        if state is None:
            y, state = self.attention(self.norm(x), return_state=True)
        else:
            y, state = self.attention.step(self.norm(x), state, position)
        x = x + y
        return x + self.feed_forward(x), state


class Model(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, WIDTH)
        self.layers = nn.ModuleList(Layer(number) for number in range(LAYERS))
        self.head = nn.Linear(WIDTH, letters)

    def forward(
        self, tokens: Tensor, states: list[performer.FavorState] | None = None, position: int = 0
    ) -> tuple[Tensor, list[performer.FavorState]]:
        """[B, L] -> logits [B, L, V], and a state per layer."""
        x, after = self.embedding(tokens), []
        for number, layer in enumerate(self.layers):
            x, state = layer(x, None if states is None else states[number], position)
            after.append(state)
        return self.head(x), after


def train(model: Model, text: Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - LENGTH, (BATCH, 1))
        rows = text[starts + torch.arange(LENGTH + 1)]  # [B, L + 1]
        logits, _ = model(rows[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 80 == 0:
            print(f"step {step:3d}: loss {loss:.3f}")


@torch.no_grad()
def generate(model: Model, prompt: Tensor, count: int) -> Tensor:
    """[1, L] -> [1, L + count], the likeliest letter each time."""
    logits, states = model(prompt)
    tokens = prompt
    for _ in range(count):
        token = logits[:, -1:].argmax(-1)
        logits, states = model(token, states, tokens.shape[1])
        tokens = torch.cat([tokens, token], 1)
    return tokens


def main() -> None:
    torch.manual_seed(0)
    source = Path(__file__).read_text(encoding="utf-8")
    letters = sorted(set(source))
    text = torch.tensor([letters.index(letter) for letter in source])
    model = Model(len(letters))
    train(model, text)
    prompt = torch.tensor([[letters.index(letter) for letter in PROMPT]])
    tokens = generate(model, prompt, NEW)
    print(repr("".join(letters[i] for i in tokens[0])))

    # Steps see what one pass over everything sees.
    with torch.no_grad():
        whole, states = model(tokens)
    again = whole[0, len(PROMPT) - 1 : -1].argmax(-1)
    same = (again == tokens[0, len(PROMPT) :]).float().mean()
    print(f"one pass over all {tokens.shape[1]} letters chooses {same:.0%} of them again")
    print(f"a state has {states[0].nbytes:,} bytes, at any length")


if __name__ == "__main__":
    main()
