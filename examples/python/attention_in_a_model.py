"""FAVOR+ as a layer of a model: which of four speakers keeps saying what?

In every row each speaker has a favourite word, and says it half of the time. Every position learns
to name the favourite of its own speaker, which only attention to the other words of that speaker
can tell. The cost grows linearly with LENGTH; try 8192.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import performer

WORDS, SPEAKERS = 16, 4
LENGTH, WIDTH, BATCH, STEPS = 512, 64, 16, 60


class Block(nn.Module):
    """A Transformer's layer; FavorAttention stands where nn.MultiheadAttention would."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = performer.FavorAttention(width, num_heads=4, num_features=64)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:  # [B, L, E]
        x = x + self.attention(self.norms[0](x))
        y: Tensor = x + self.feed_forward(self.norms[1](x))
        return y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.speakers = nn.Embedding(SPEAKERS, WIDTH)
        self.block = Block(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor, speakers: Tensor) -> Tensor:  # [B, L], [B, L] -> [B, L, V]
        logits: Tensor = self.head(self.block(self.words(words) + self.speakers(speakers)))
        return logits


def draw_rows() -> tuple[Tensor, Tensor, Tensor]:
    """Words, their speakers, and the favourites of these: [B, L] each."""
    speakers = torch.randint(SPEAKERS, (BATCH, LENGTH))
    favourites = torch.randint(WORDS, (BATCH, SPEAKERS)).gather(1, speakers)
    others = torch.randint(WORDS, (BATCH, LENGTH))
    words = torch.where(torch.rand(BATCH, LENGTH) < 0.5, favourites, others)
    return words, speakers, favourites


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, STEPS + 1):
        words, speakers, favourites = draw_rows()
        logits = model(words, speakers)
        loss = cross_entropy(logits.flatten(0, 1), favourites.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 20 == 0:
            right = (logits.argmax(-1) == favourites).float().mean()
            print(f"step {step:3d}: loss {loss:.3f}, {right:.0%} of positions right")


if __name__ == "__main__":
    main()
