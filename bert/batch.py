"""Batch: one packed micro-batch. The shape letters are explained in ``bert``.

There is no padding, unless a static shape is asked for: then filler follows the samples, tokens
that no sample owns and masked positions that no loss counts. Where a batch has filler, T and M of
its tensors include it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

NO_LABEL = -100  # of filler; torch's cross entropy passes it over
Integers = npt.NDArray[np.integer[Any]]


class Sample(NamedTuple):
    """One pre-training sample as the data gives it, [CLS] and [SEP] included.

    Attributes:
        tokens: vocabulary ids, any integer dtype, at least one.
        second_segment_start: position of the first token of segment B (after the first [SEP]).
        mlm_positions: positions of the masked tokens within the sample, in any order.
        mlm_labels: the original ids at ``mlm_positions``.
        next_sentence_label: 0 where segment B follows segment A, 1 where it is a random one.
    """

    tokens: Integers
    second_segment_start: int
    mlm_positions: Integers
    mlm_labels: Integers
    next_sentence_label: int


class FlatSamples(NamedTuple):
    """B samples laid end to end, all of any integer dtype; fields as in ``Sample``.

    Attributes:
        tokens: [T] of all samples.
        lengths: [B] tokens of each sample.
        second_segment_start: [B].
        mlm_positions, mlm_labels: [M] of all samples.
        masks: [B] masked tokens of each sample.
        next_sentence_labels: [B].
    """

    tokens: Integers
    lengths: Integers
    second_segment_start: Integers
    mlm_positions: Integers
    masks: Integers
    mlm_labels: Integers
    next_sentence_labels: Integers


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples laid end to end. ``lengths`` is the only truth about where one ends.

    Attributes:
        tokens_T: int64 vocabulary ids.
        positions_T: int64 position of each token within its sample.
        segments_T: int64 segment of each token, 0 or 1.
        cu_seqlens: int32 [B+1], where each sample starts in T, then T itself.
        mlm_positions_M: int64 indices into T of the masked tokens.
        mlm_labels_M: int64 original ids of the masked tokens.
        nsp_labels_B: int64, 0 is next, 1 is random.
        lengths: the B lengths on the host, so that no kernel has to wait for the device.
        filler_tokens, filler_masks: how much of T and M, at their ends, is filler.
        dropout_seed: what dropout draws from when the model trains on it; None: from torch's global
            generator, wherever that stands.
    """

    tokens_T: Tensor
    positions_T: Tensor
    segments_T: Tensor
    cu_seqlens: Tensor
    mlm_positions_M: Tensor
    mlm_labels_M: Tensor
    nsp_labels_B: Tensor
    lengths: tuple[int, ...]
    filler_tokens: int = 0
    filler_masks: int = 0
    dropout_seed: int | None = None

    @property
    def samples(self) -> int:
        """B, without a device synchronisation."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """The samples' tokens, without a device synchronisation."""
        return self.tokens_T.shape[0] - self.filler_tokens

    @property
    def masked(self) -> int:
        """The samples' masked tokens, without a device synchronisation."""
        return self.mlm_labels_M.shape[0] - self.filler_masks

    @property
    def counts(self) -> Tensor:
        """float64 [2] on the CPU: masked tokens, samples; what the two losses are divided by."""
        return torch.tensor([self.masked, self.samples], dtype=torch.float64)

    def filled(self, tokens: int, masked: int) -> "Batch":
        """The same batch in a static shape: filler added until T and M are these.

        Raises:
            ValueError: it holds more than that.
        """
        more_tokens, more_masks = tokens - self.tokens, masked - self.masked
        if more_tokens < 0 or more_masks < 0:
            raise ValueError(
                f"a micro-batch of {self.tokens} tokens, {self.masked} of them masked, does not "
                f"fit a budget of {tokens} and {masked}; raise data.token_budget"
            )
        end = self.tokens
        return replace(
            self,
            tokens_T=F.pad(self.tokens_T[:end], (0, more_tokens)),
            positions_T=F.pad(self.positions_T[:end], (0, more_tokens)),
            segments_T=F.pad(self.segments_T[:end], (0, more_tokens)),
            mlm_positions_M=F.pad(self.mlm_positions_M[: self.masked], (0, more_masks)),
            mlm_labels_M=F.pad(self.mlm_labels_M[: self.masked], (0, more_masks), value=NO_LABEL),
            filler_tokens=more_tokens,
            filler_masks=more_masks,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on ``device``; ``non_blocking`` overlaps only from pinned memory."""
        return replace(
            self,
            **{
                name: tensor.to(device, non_blocking=non_blocking)
                for name, tensor in self._tensors().items()
            },
        )

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked host memory (needs an accelerator)."""
        return replace(
            self, **{name: tensor.pin_memory() for name, tensor in self._tensors().items()}
        )

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Tell the allocator that ``stream`` uses the tensors, which another one has filled."""
        for tensor in self._tensors().values():
            tensor.record_stream(stream)

    def _tensors(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def pack(samples: Sequence[Sample]) -> Batch:
    """Lay samples end to end, shortest first.

    The sort is stable and by length, so that equal lengths become neighbours, which the
    ``grouped`` attention kernel makes use of.

    Args:
        samples: at least one sample; the order matters among equal lengths only.

    Returns:
        A Batch on the CPU.

    Raises:
        ValueError: no samples, a sample without tokens, a masked position outside its sample, or
            not one label for each masked position.
    """
    if not samples:
        raise ValueError("pack: 0 samples given, a batch needs at least 1; skip empty batches")
    ordered = sorted(samples, key=lambda sample: len(sample.tokens))
    return pack_flat(
        FlatSamples(
            tokens=np.concatenate([sample.tokens for sample in ordered]),
            lengths=np.array([len(sample.tokens) for sample in ordered]),
            second_segment_start=np.array([sample.second_segment_start for sample in ordered]),
            mlm_positions=np.concatenate([sample.mlm_positions for sample in ordered]),
            masks=np.array([len(sample.mlm_positions) for sample in ordered]),
            mlm_labels=np.concatenate([sample.mlm_labels for sample in ordered]),
            next_sentence_labels=np.array([sample.next_sentence_label for sample in ordered]),
        )
    )


def pack_flat(samples: FlatSamples) -> Batch:
    """The batch of samples that are laid end to end already; of no sample: an empty batch.

    Training on an empty batch gives losses of 0 and gradients of 0.

    Returns:
        A Batch on the CPU, its samples in the given order.

    Raises:
        ValueError: as ``pack``.
    """
    lengths, masks = (values.astype(np.int64) for values in (samples.lengths, samples.masks))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    positions_T = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    mlm_positions_M = samples.mlm_positions.astype(np.int64)
    _check(lengths, masks, mlm_positions_M, samples.mlm_labels)

    def tensor(values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values.astype(np.int64))

    return Batch(
        tokens_T=tensor(samples.tokens),
        positions_T=torch.from_numpy(positions_T),
        segments_T=tensor(positions_T >= np.repeat(samples.second_segment_start, lengths)),
        cu_seqlens=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
        mlm_positions_M=torch.from_numpy(mlm_positions_M + np.repeat(starts, masks)),
        mlm_labels_M=tensor(samples.mlm_labels),
        nsp_labels_B=tensor(samples.next_sentence_labels),
        lengths=tuple(lengths.tolist()),
    )


def _check(
    lengths: Integers, masked: Integers, mlm_positions_M: Integers, mlm_labels_M: Integers
) -> None:
    """Refuse what would index into a neighbouring sample or shift the labels of those after it."""
    if (lengths == 0).any():
        raise ValueError("pack: a sample has 0 tokens, at least 1 is needed; drop empty samples")
    if len(mlm_labels_M) != len(mlm_positions_M):
        raise ValueError(
            f"pack: {len(mlm_labels_M)} labels for {len(mlm_positions_M)} masked positions; "
            "give one label for each"
        )
    outside = (mlm_positions_M < 0) | (mlm_positions_M >= np.repeat(lengths, masked))
    if outside.any():
        raise ValueError(
            f"pack: masked position {mlm_positions_M[outside][0]} lies outside its sample of "
            f"{np.repeat(lengths, masked)[outside][0]} tokens; positions count from the "
            "sample's own start"
        )
