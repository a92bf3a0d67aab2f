"""Operators that torch has on GPUs alone, or chooses otherwise there: written with operators that the CPU has."""

from __future__ import annotations

import warnings
from typing import Any, Callable, List, Optional, Tuple

import torch

from trainjob_gpu import attention

Tensor = torch.Tensor


def put_into_torch() -> None:
    """Register the kernels for GPUs."""
    library: Any = torch.library.Library("aten", "IMPL")
    for key, kernels in (("CUDA", KERNELS), ("SparseCsrCUDA", CPU_ONLY)):
        for name, kernel in kernels.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # where torch has the CPU's kernel in its place
                    library.impl(name, kernel, key)
            except RuntimeError:
                continue  # an operator that this release of torch does not have
    torch.cuda._standin_kernels = library  # type: ignore[attr-defined]  # they last as long as it does


# ---- choices by what a GPU has


def _plain_attention(*_: Any, **__: Any) -> int:
    return 0  # math: the fused kernels of a GPU have no counterpart on the CPU


def _no_library(*_: Any, **__: Any) -> bool:
    return False


# ---- products whose results are more precise than what is multiplied


def _factors(first: Tensor, second: Tensor, out_dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    wider = out_dtype == torch.float32 and first.dtype in (torch.float16, torch.bfloat16)
    if first.dtype != second.dtype or not (wider or out_dtype == first.dtype):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    return first.to(out_dtype), second.to(out_dtype)


def _mm(first: Tensor, second: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.mm(*_factors(first, second, out_dtype))


def _bmm(first: Tensor, second: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.bmm(*_factors(first, second, out_dtype))


def _addmm(
    added: Tensor, first: Tensor, second: Tensor, out_dtype: torch.dtype, beta: float = 1, alpha: float = 1
) -> Tensor:
    return torch.addmm(added.to(out_dtype), *_factors(first, second, out_dtype), beta=beta, alpha=alpha)


def _baddbmm(
    added: Tensor, first: Tensor, second: Tensor, out_dtype: torch.dtype, beta: float = 1, alpha: float = 1
) -> Tensor:
    return torch.baddbmm(added.to(out_dtype), *_factors(first, second, out_dtype), beta=beta, alpha=alpha)


def _into(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `kernel` as one that puts its result in `out`."""

    def into(*arguments: Any, out: Tensor, **options: Any) -> Tensor:
        result = kernel(*arguments, **options)
        return out.resize_(result.shape).copy_(result)

    return into


# ---- cuDNN's convolutions, called by name


def _cudnn_convolution(
    x: Tensor, weight: Tensor, padding: List[int], stride: List[int], dilation: List[int], groups: int, *_: bool
) -> Tensor:
    return torch.convolution(x, weight, None, stride, padding, dilation, False, [0] * len(padding), groups)


def _cudnn_convolution_transpose(
    x: Tensor,
    weight: Tensor,
    padding: List[int],
    output_padding: List[int],
    stride: List[int],
    dilation: List[int],
    groups: int,
    *_: bool,
) -> Tensor:
    return torch.convolution(x, weight, None, stride, padding, dilation, True, output_padding, groups)


# ---- a gradient that is known to be zero, and has no memory on the CPU


def _zeros(
    size: List[int],
    dtype: Optional[torch.dtype] = None,
    layout: Optional[torch.layout] = None,
    device: Optional[torch.device] = None,
    pin_memory: Optional[bool] = None,
) -> Tensor:
    return torch.zeros(size, dtype=dtype, layout=layout, device=device or "cuda", pin_memory=pin_memory)


# ---- exponentials of matrices, for which the CPU's 16 bits are too few


def _matrix_exp(x: Tensor) -> Any:
    return torch.linalg.matrix_exp(_precise(x).cpu()).to(x)


# ---- dropout, which keeps its mask on GPUs


def _dropout(x: Tensor, p: float, train: Optional[bool]) -> Tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)
    return torch.zeros_like(x) if p == 1 else x.mul(mask).mul_(1 / (1 - p)), mask


# ---- recurrent cells, which torch fuses on GPUs


def _lstm_cell(
    x: Tensor, hidden: Tensor, cell: Tensor, x_bias: Optional[Tensor] = None, hidden_bias: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor, Tensor]:
    gates = x + hidden
    if x_bias is not None and hidden_bias is not None:
        gates = gates + x_bias + hidden_bias
    enter, forget, fresh, leave = gates.chunk(4, 1)
    enter, forget, fresh, leave = enter.sigmoid(), forget.sigmoid(), fresh.tanh(), leave.sigmoid()
    following = forget * cell + enter * fresh
    return leave * following.tanh(), following, torch.cat([enter, forget, fresh, leave], 1)


def _lstm_cell_backward(
    grad_hidden: Optional[Tensor],
    grad_cell: Optional[Tensor],
    cell: Tensor,
    following: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    enter, forget, fresh, leave = workspace.chunk(4, 1)
    after = following.tanh()
    to_hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    to_cell = to_hidden * leave * (1 - after * after)
    if grad_cell is not None:
        to_cell = to_cell + grad_cell
    gates = torch.cat(
        [
            to_cell * fresh * enter * (1 - enter),
            to_cell * cell * forget * (1 - forget),
            to_cell * enter * (1 - fresh * fresh),
            to_hidden * after * leave * (1 - leave),
        ],
        1,
    )
    return gates, to_cell * forget, gates.sum(0) if has_bias else None


def _gru_cell(
    x: Tensor, hidden: Tensor, state: Tensor, x_bias: Optional[Tensor] = None, hidden_bias: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    if x_bias is not None and hidden_bias is not None:
        x, hidden = x + x_bias, hidden + hidden_bias
    of_x, of_hidden = x.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = (of_x[0] + of_hidden[0]).sigmoid(), (of_x[1] + of_hidden[1]).sigmoid()
    fresh = (of_x[2] + reset * of_hidden[2]).tanh()
    return fresh + update * (state - fresh), torch.cat([reset, update, fresh, state, of_hidden[2]], 1)


def _gru_cell_backward(
    grad: Tensor, workspace: Tensor, has_bias: bool
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
    reset, update, fresh, state, hidden = workspace.chunk(5, 1)
    to_fresh = grad * (1 - update) * (1 - fresh * fresh)
    to_update = grad * (state - fresh) * update * (1 - update)
    to_reset = to_fresh * hidden * reset * (1 - reset)
    to_x = torch.cat([to_reset, to_update, to_fresh], 1)
    to_hidden = torch.cat([to_reset, to_update, to_fresh * reset], 1)
    biases = (to_x.sum(0), to_hidden.sum(0)) if has_bias else (None, None)
    return (to_x, to_hidden, grad * update, *biases)


# ---- SyncBatchNorm's steps. Figures of a channel are float32 where the input has 16 bits.


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape([1, -1] + [1] * (like.dim() - 2))


def _all_but_channels(x: Tensor) -> List[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _precise(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _batch_norm_stats(x: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
    x = _precise(x)
    mean = x.mean(_all_but_channels(x))
    variance = (x - _per_channel(mean, x)).square().mean(_all_but_channels(x))
    return mean, (variance + eps).rsqrt()


def _batch_norm_gather_stats_with_counts(
    _x: Tensor,
    means: Tensor,
    inverse_stds: Tensor,
    running_mean: Optional[Tensor],
    running_variance: Optional[Tensor],
    momentum: float,
    eps: float,
    counts: Tensor,
) -> Tuple[Tensor, Tensor]:
    counts = counts.to(means.dtype).reshape(-1, 1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variances = inverse_stds.square().reciprocal() - eps
    variance = ((variances + (means - mean).square()) * counts).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
    if running_variance is not None:
        unbiased = variance * total / (total - 1)
        running_variance.mul_(1 - momentum).add_(unbiased.to(running_variance.dtype), alpha=momentum)
    return mean, (variance + eps).rsqrt()


def _batch_norm_gather_stats(
    x: Tensor,
    means: Tensor,
    inverse_stds: Tensor,
    running_mean: Optional[Tensor],
    running_variance: Optional[Tensor],
    momentum: float,
    eps: float,
    count: int,
) -> Tuple[Tensor, Tensor]:
    counts = torch.full((means.shape[0],), count, dtype=means.dtype, device=means.device)
    return _batch_norm_gather_stats_with_counts(
        x, means, inverse_stds, running_mean, running_variance, momentum, eps, counts
    )


def _batch_norm_elemt(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], mean: Tensor, inverse_std: Tensor, _eps: float
) -> Tensor:
    out = (_precise(x) - _per_channel(mean, x)) * _per_channel(inverse_std, x)
    if weight is not None:
        out = out * _per_channel(weight, x)
    if bias is not None:
        out = out + _per_channel(bias, x)
    return out.to(x.dtype)


def _batch_norm_backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    weight: Optional[Tensor],
    needs_input: bool,
    needs_weight: bool,
    needs_bias: bool,
) -> Tuple[Optional[Tensor], ...]:
    grad, x = _precise(grad), _precise(x)
    dims = _all_but_channels(x)
    total = grad.sum(dims)
    total_of_products = (grad * (x - _per_channel(mean, x))).sum(dims)
    dtype = total.dtype if weight is None else weight.dtype
    return (
        total if needs_input else None,
        total_of_products if needs_input else None,
        (total_of_products * inverse_std).to(dtype) if needs_weight and weight is not None else None,
        total.clone().to(dtype) if needs_bias and weight is not None else None,
    )


def _batch_norm_backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    weight: Optional[Tensor],
    total: Tensor,
    total_of_products: Tensor,
    counts: Tensor,
) -> Tensor:
    count = counts.sum().to(inverse_std.dtype)
    slope = total_of_products / count * inverse_std * inverse_std
    scale = inverse_std if weight is None else inverse_std * weight
    centred = _precise(x) - _per_channel(mean, x)
    out = _precise(grad) - _per_channel(total / count, x) - centred * _per_channel(slope, x)
    return (out * _per_channel(scale, x)).to(x.dtype)


def _not_on_gpus(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(
        "Could not run 'aten::_sparse_mm_reduce_impl' with arguments from the 'SparseCsrCUDA' backend: torch has "
        "torch.sparse.mm with a reduction on CPUs alone"
    )


CPU_ONLY = {"_sparse_mm_reduce_impl": _not_on_gpus}
KERNELS = {
    "_fused_sdp_choice": _plain_attention,
    "_scaled_dot_product_efficient_attention": attention.forward,
    "_scaled_dot_product_efficient_attention_backward": attention.backward,
    "_use_cudnn_ctc_loss": _no_library,
    "_use_cudnn_ctc_loss.Tensor": _no_library,
    "_use_miopen_ctc_loss": _no_library,
    "_use_miopen_ctc_loss.Tensor": _no_library,
    "mm.dtype": _mm,
    "mm.dtype_out": _into(_mm),
    "bmm.dtype": _bmm,
    "bmm.dtype_out": _into(_bmm),
    "addmm.dtype": _addmm,
    "addmm.dtype_out": _into(_addmm),
    "baddbmm.dtype": _baddbmm,
    "baddbmm.dtype_out": _into(_baddbmm),
    "cudnn_convolution": _cudnn_convolution,
    "cudnn_convolution_transpose": _cudnn_convolution_transpose,
    "_efficientzerotensor": _zeros,
    "linalg_matrix_exp": _matrix_exp,
    "native_dropout": _dropout,
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "batch_norm_stats": _batch_norm_stats,
    "batch_norm_gather_stats": _batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": _batch_norm_gather_stats_with_counts,
    "batch_norm_elemt": _batch_norm_elemt,
    "batch_norm_backward_reduce": _batch_norm_backward_reduce,
    "batch_norm_backward_elemt": _batch_norm_backward_elemt,
}
