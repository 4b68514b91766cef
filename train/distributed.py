"""World: which rank this is and how it talks to the others.

The only reader of the environment variables that a launcher such as torchrun sets.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dataprep.errors import describe
from optim.communication import leave_group

T = TypeVar("T")
DEVICES = ("auto", "cpu", "cuda")


class AgreedError(ValueError):
    """An error that all ranks raise alike, so that one of them reports it for all."""


@dataclass(frozen=True)
class World:
    """One rank of a run.

    Attributes:
        rank: 0 <= rank < size.
        size: R, the number of ranks.
        device: where this rank computes.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the log and the run folder."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a CPU or device tensor over all ranks, in place."""
        dist.all_reduce(tensor)
        return tensor

    def from_main(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def agree(self, work: Callable[[], T]) -> T:
        """Do something on every rank; if it fails on one, it fails on all, and none waits.

        Raises:
            AgreedError: the first failing rank's ValueError or OSError.
        """
        result: list[T] = []
        error = None
        try:
            result.append(work())
        except (ValueError, OSError) as raised:
            error = describe(raised)
        errors: list[str | None] = [None] * self.size
        dist.all_gather_object(errors, error)
        failed = [(rank, text) for rank, text in enumerate(errors) if text is not None]
        if failed:
            rank, text = failed[0]
            raise AgreedError(text if len(failed) == self.size else f"rank {rank}: {text}")
        return result[0]

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()


def launched_rank() -> int:
    """This process's rank as the launcher says, also before the ranks have met."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def join_world(device: str = "auto", timeout_seconds: float = 600.0) -> Iterator[World]:
    """Join the ranks that a launcher started, or be the only one; leave them at the end.

    Args:
        device: ``auto`` takes CUDA where there is one.
        timeout_seconds: how long a rank waits for another before it gives up.

    Raises:
        ValueError: no such device, or the launcher's variables are incomplete.
    """
    chosen = _device(device)
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_seconds)
    launched = "RANK" in os.environ
    if launched:
        missing = [
            name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
        ]
        if missing:
            raise ValueError(
                f"RANK is set but {', '.join(missing)} not; start with torchrun, or unset RANK"
            )
        dist.init_process_group(backend, timeout=timeout)
    else:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        leave_group()


def _device(name: str) -> torch.device:
    if name not in DEVICES:
        raise ValueError(f"train.device '{name}'; choose one of: {', '.join(DEVICES)}")
    available = torch.cuda.is_available()
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    if not available:
        raise ValueError("train.device cuda, but torch finds no CUDA device; choose cpu or auto")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device
