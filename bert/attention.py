"""Attention over packed samples: one signature, several kernels.

Every kernel computes softmax(Q Kᵀ / √H) V for each head of each sample on its own (Vaswani et al.
2017, arXiv 1706.03762), with inverted dropout on the softmax as BERT has it (Devlin et al. 2019,
arXiv 1810.04805): a probability is zeroed with chance ``dropout_p`` and otherwise divided by
1 − ``dropout_p``. The kernels differ in how they find the samples, never in the result; with
dropout they draw their random numbers in different orders, so they agree in distribution only.
"""

from itertools import groupby
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class AttentionKernel(Protocol):
    """The one signature.

    Args:
        query_TNH, key_TNH, value_TNH: projections of the packed tokens, same dtype and device.
        cu_seqlens: int32 [B+1], where each sample starts in T, then T itself.
        lengths: the same boundaries as B lengths on the host.
        dropout_p: chance in [0, 1) to drop an attention probability; 0 outside training.

    Returns:
        context_TNH, in the order of the queries.
    """

    def __call__(
        self,
        query_TNH: Tensor,
        key_TNH: Tensor,
        value_TNH: Tensor,
        cu_seqlens: Tensor,
        lengths: tuple[int, ...],
        dropout_p: float,
    ) -> Tensor: ...


def grouped(
    query_TNH: Tensor,
    key_TNH: Tensor,
    value_TNH: Tensor,
    cu_seqlens: Tensor,
    lengths: tuple[int, ...],
    dropout_p: float,
) -> Tensor:
    """One dense attention for each run of neighbouring samples of equal length.

    No padding is computed and nothing is copied on the way in: a run is a view. Sort by length
    (``pack`` does) to have few runs. Works on any device.

    Dropout: honoured, by ``scaled_dot_product_attention``. On a CPU it takes PyTorch's unfused
    path, which keeps the S × S probabilities of a run in memory; without dropout it is fused.
    """
    runs = [(length, len(list(run))) for length, run in groupby(lengths)] or [_EMPTY_RUN]
    sizes = [length * samples for length, samples in runs]
    pieces = zip(
        runs,
        *(torch.split(packed, sizes) for packed in (query_TNH, key_TNH, value_TNH)),
        strict=True,
    )
    contexts = []
    for (length, samples), *query_key_value in pieces:
        query, key, value = (
            piece.unflatten(0, (samples, length)).transpose(1, 2) for piece in query_key_value
        )
        context_BNSH = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p)
        contexts.append(context_BNSH.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts) if len(contexts) > 1 else contexts[0]


def padded(
    query_TNH: Tensor,
    key_TNH: Tensor,
    value_TNH: Tensor,
    cu_seqlens: Tensor,
    lengths: tuple[int, ...],
    dropout_p: float,
) -> Tensor:
    """The naive version: pad to the longest sample, mask the padding, attend, drop the padding.

    The reference that the other kernels are tested against, and the shortest way to see what
    they compute. Its cost grows with B·S² however short most samples are.

    Dropout: honoured, by ``scaled_dot_product_attention``, over the padded probabilities.
    """
    longest = max(lengths, default=1)
    starts_B = cu_seqlens[:-1].long()
    lengths_B = cu_seqlens.diff().long()
    steps_S = torch.arange(longest, device=query_TNH.device)
    real_BS = steps_S < lengths_B[:, None]
    # A padded slot reads the last real token of its sample: finite values that the mask hides.
    source_BS = starts_B[:, None] + torch.minimum(steps_S, lengths_B[:, None] - 1)
    query, key, value = (
        packed[source_BS].transpose(1, 2) for packed in (query_TNH, key_TNH, value_TNH)
    )
    context_BNSH = F.scaled_dot_product_attention(
        query, key, value, attn_mask=real_BS[:, None, None, :], dropout_p=dropout_p
    )
    return context_BNSH.transpose(1, 2)[real_BS]


# No samples of one token: a batch of no sample still passes through, with gradients of 0.
_EMPTY_RUN = (1, 0)

ATTENTION_KERNELS: dict[str, AttentionKernel] = {"grouped": grouped, "padded": padded}


def build_attention(name: str) -> AttentionKernel:
    """The kernel called ``name``.

    Raises:
        ValueError: there is no such kernel; the message lists those there are.
    """
    if name not in ATTENTION_KERNELS:
        raise ValueError(
            f"attention {name!r} is not a kernel; choose one of: {', '.join(ATTENTION_KERNELS)}"
        )
    return ATTENTION_KERNELS[name]
