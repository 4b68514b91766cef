"""Micro-batches on their way to the device, beside what it computes."""

from dataclasses import replace
from typing import NamedTuple

import torch

from bert.batch import Batch
from train.data.steps import StepBatches


class Sent(NamedTuple):
    """A step under way; ``arrived`` is None where nothing is copied."""

    batches: StepBatches
    arrived: torch.cuda.Event | None


class DeviceCopy:
    """Copies to a CUDA device from pinned memory, on a stream of its own; elsewhere nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def send(self, batches: StepBatches) -> Sent:
        """Start the copy, in any thread."""
        if self._stream is None:
            return Sent(batches, None)
        with torch.cuda.stream(self._stream):
            copied = [self._copied(batch) for batch in batches.micro_batches]
            return Sent(replace(batches, micro_batches=copied), self._stream.record_event())

    def _copied(self, batch: Batch) -> Batch:
        if batch.tokens_T.is_cuda:  # DALI has copied it
            return batch
        return batch.pin_memory().to(self._device, non_blocking=True)

    def receive(self, sent: Sent) -> StepBatches:
        """Let the computation that follows wait for the copy, not the host."""
        if sent.arrived is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_event(sent.arrived)
            for batch in sent.batches.micro_batches:
                batch.record_stream(computing)
        return sent.batches
