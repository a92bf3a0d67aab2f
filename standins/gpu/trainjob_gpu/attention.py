"""Attention of DTensors: they are sharded by the fused kernels of GPUs, which take the heads or samples apart.

What the CPU has instead is made of many operators, among them a mask that is no DTensor where attention is causal.
"""

from __future__ import annotations

import math
from functools import wraps
from typing import Any, Optional, Tuple

import torch

Tensor = torch.Tensor


def shard_like_gpus(tensor: Any) -> None:
    """Have scaled_dot_product_attention of DTensors on GPUs use the fused kernel, as on real ones."""
    functional: Any = torch.nn.functional
    distributed: Any = tensor.DTensor
    plain = functional.scaled_dot_product_attention

    @wraps(plain)
    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Optional[Tensor] = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Optional[float] = None,
        enable_gqa: bool = False,
    ) -> Any:
        is_fused = isinstance(query, distributed) and query.is_cuda and query.dim() == 4
        if not is_fused or (attn_mask is not None and attn_mask.dtype is torch.bool):
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if enable_gqa:
            key, value = (one.repeat_interleave(query.size(1) // one.size(1), 1) for one in (key, value))
        needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs_gradient, dropout_p, is_causal, scale=scale
        )[0]

    functional.scaled_dot_product_attention = attention


def _weights(
    query: Tensor, key: Tensor, bias: Optional[Tensor], is_causal: bool, scale: Optional[float]
) -> Tuple[Tensor, Tensor]:
    """Return the weights of the values, and the logarithm of the sum that they were divided by."""
    scores = query @ key.transpose(-2, -1) * _factor(query, scale)
    if bias is not None:
        scores = scores + bias
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1), scores.logsumexp(-1)


def _factor(query: Tensor, scale: Optional[float]) -> float:
    return 1 / math.sqrt(query.size(-1)) if scale is None else scale


def _kept(weights: Tensor, dropout: float, seed: Tensor) -> Any:
    """Return what the weights are multiplied by: the same for the same seed, forward and backward."""
    generator = torch.Generator().manual_seed(int(seed))
    kept = torch.rand(weights.shape, generator=generator) >= dropout
    return kept.to(weights.device).to(weights.dtype) / (1 - dropout)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Optional[Tensor],
    needs_gradient: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the fused kernel does: the result, sums of exponentials in float32, and the seed of its dropout."""
    weights, sums = _weights(query.float(), key.float(), bias, is_causal, scale)
    seed = torch.randint(1 << 31, ()) if dropout else torch.zeros((), dtype=torch.long)
    if dropout:
        weights = weights * _kept(weights, dropout, seed)
    out = (weights @ value.float()).to(query.dtype)
    # In memory the heads of a place follow each other, and the sums are padded, as on a GPU.
    padding = -sums.size(-1) % 32
    sums = torch.nn.functional.pad(sums, (0, padding)) if needs_gradient else sums[..., :0]
    return out.transpose(1, 2).contiguous().transpose(1, 2), sums, seed, torch.zeros((), dtype=torch.long)


def backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Optional[Tensor],
    _out: Tensor,
    _sums: Tensor,
    seed: Tensor,
    _offset: Tensor,
    dropout: float,
    needed: Tuple[bool, ...],
    is_causal: bool = False,
    scale: Optional[float] = None,
) -> Tuple[Optional[Tensor], ...]:
    """Return the gradients of query, key, value and bias, of those that are needed: the weights are computed again."""
    q, k, v, g = (one.float() for one in (query, key, value, gradient))
    weights, _ = _weights(q, k, bias, is_causal, scale)
    kept = _kept(weights, dropout, seed) if dropout else torch.ones_like(weights)
    to_weights = g @ v.transpose(-2, -1) * kept
    to_scores = weights * (to_weights - (to_weights * weights).sum(-1, keepdim=True))
    factor = _factor(query, scale)
    return (
        (to_scores @ k * factor).to(query.dtype) if needed[0] else None,
        (to_scores.transpose(-2, -1) @ q * factor).to(key.dtype) if needed[1] else None,
        ((weights * kept).transpose(-2, -1) @ g).to(value.dtype) if needed[2] else None,
        to_scores.sum_to_size(bias.shape).to(bias.dtype) if needed[3] and bias is not None else None,
    )
