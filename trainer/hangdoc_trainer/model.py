"""A decoder-only transformer whose depth determines its size, as in nanochat: rotary positions, RMS norm without
weights, squared ReLU, untied output."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

VOCABULARY = 257
"""256 bytes, and a token for the start of a document."""


@dataclass(frozen=True)
class Shape:
    """The model's size."""

    depth: int
    dim: int
    heads: int
    sequence: int

    @classmethod
    def of(cls, depth: int, aspect_ratio: int, head_dim: int, sequence: int) -> "Shape":
        """The shape for a depth: dim = depth * aspect_ratio, rounded up to whole heads."""
        dim = -(-depth * aspect_ratio // head_dim) * head_dim
        return cls(depth, dim, dim // head_dim, sequence)


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.size(-1),))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos + right * sin, right * cos - left * sin), dim=-1)


class Block(nn.Module):
    """Attention and a feed-forward net."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.dim, 3 * shape.dim, bias=False)
        self.out = nn.Linear(shape.dim, shape.dim, bias=False)
        self.up = nn.Linear(shape.dim, 4 * shape.dim, bias=False)
        self.down = nn.Linear(4 * shape.dim, shape.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`x` is (batch, time, dim)."""
        batch, time, dim = x.shape
        q, k, v = self.qkv(_norm(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = _norm(_rotate(q, cos, sin)), _norm(_rotate(k, cos, sin))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, dim))
        hidden: Tensor = self.up(_norm(x))
        result: Tensor = x + self.down(F.relu(hidden).square())
        return result


class GPT(nn.Module):
    """The model. `forward` returns the mean loss, or the logits if there are no targets."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(VOCABULARY, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.head = nn.Linear(shape.dim, VOCABULARY, bias=False)
        half = shape.dim // shape.heads // 2
        angles = torch.outer(torch.arange(shape.sequence * 4), 10_000 ** -(torch.arange(half) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for block in self.blocks:
            assert isinstance(block, Block)  # noqa: S101
            nn.init.zeros_(block.out.weight)
            nn.init.zeros_(block.down.weight)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """`tokens` and `targets` are (batch, time) of int64."""
        assert isinstance(self.cos, Tensor) and isinstance(self.sin, Tensor)  # noqa: S101
        cos, sin = self.cos[: tokens.size(1)], self.sin[: tokens.size(1)]
        x = _norm(self.embed(tokens))
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: Tensor = self.head(_norm(x)).float()
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def parameters(model: nn.Module) -> int:
    """The exact number of parameters."""
    return sum(p.numel() for p in model.parameters())
