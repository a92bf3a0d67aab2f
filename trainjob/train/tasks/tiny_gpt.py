"""tiny-gpt: a small transformer decoder that predicts the next byte of a text (after Radford et al., 2019)."""

from __future__ import annotations

import math
from typing import Dict

import torch
from torch import nn
from torch.nn import functional

from trainjob.contract.errors import UserError
from trainjob.train.tasks.base import DataPlace, TaskData

_FIRST_WEIGHTS = 0.02  # their standard deviation


class DecoderBlock(nn.Module):
    """Causal self-attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, context, width) → (n, context, width)."""
        hidden = hidden + self.dropout(self.projection(self._attend(self.norm1(hidden))))
        inner = functional.gelu(self.expand(self.norm2(hidden)))
        result: torch.Tensor = hidden + self.dropout(self.contract(inner))
        return result

    def _attend(self, hidden: torch.Tensor) -> torch.Tensor:
        samples, context, width = hidden.shape
        parts = self.attention(hidden).view(samples, context, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # each (n, heads, context, width ÷ heads)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(context, context, dtype=torch.bool, device=hidden.device).triu(1)
        shares = functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        attended: torch.Tensor = (shares @ values).transpose(1, 2).reshape(samples, context, width)
        return attended


class Gpt(nn.Module):
    """Embeddings of tokens and positions, blocks, a norm, and a linear layer onto the vocabulary."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(DecoderBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=_FIRST_WEIGHTS)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for name, parameter in self.blocks.named_parameters():
            # The sum over all shortcuts begins as long as one of them.
            if name.endswith(("projection.weight", "contract.weight")):
                nn.init.normal_(parameter, std=_FIRST_WEIGHTS / math.sqrt(2 * layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, context) → (n, context, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.blocks(self.dropout(self.tokens(tokens) + self.positions(positions)))
        result: torch.Tensor = self.head(self.norm(hidden))
        return result


class TinyGpt:
    """`context` tokens at a time, of a `vocabulary` of 256 where tokens are bytes."""

    decays_norms_and_biases = False

    def __init__(
        self,
        vocabulary: int = 256,
        context: int = 64,
        width: int = 96,
        layers: int = 3,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        if min(vocabulary, context, width, layers, heads) < 1 or width % heads or not 0 <= dropout < 1:
            raise UserError(
                "tiny-gpt takes sizes ≥ 1, a width that its heads divide and 0 ≤ dropout < 1, and was given "
                "vocabulary=%s context=%s width=%s layers=%s heads=%s dropout=%s"
                % (vocabulary, context, width, layers, heads, dropout),
                "Correct it with --set, as in --set width=96 --set heads=4",
            )
        self.vocabulary, self.context, self.width = vocabulary, context, width
        self.layers, self.heads, self.dropout = layers, heads, dropout

    def build_model(self) -> nn.Module:
        """Return the net: (n, context) → (n, context, vocabulary)."""
        return Gpt(self.vocabulary, self.context, self.width, self.layers, self.heads, self.dropout)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return the tokens that the job names: python-docs, the topics of Python's own help, or prepared ones."""
        return place.token_data(self.context, self.vocabulary)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of a token, in nats."""
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Return the share of tokens that are predicted."""
        return {"accuracy": (outputs.argmax(-1) == targets).to(torch.float32).mean()}
