"""What travels between ranks during the backward pass, and how long it takes.

A hook, in torch's sense (``DistributedDataParallel.register_comm_hook``), gets a bucket of
gradients when backward has filled it, starts exactly one collective, and returns its future.
Behaviour is added by wrapping: ``timer.wrap(clipping.wrap(wire_hook(...)))``.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

Future = torch.futures.Future[Tensor]
# torch asks for the name ``bucket``
Hook = Callable[[Any, GradBucket], Future]

_WIRES: dict[str, tuple[torch.dtype, Hook]] = {
    "fp32": (torch.float32, default_hooks.allreduce_hook),
    "fp16": (torch.float16, default_hooks.fp16_compress_hook),
    "bf16": (torch.bfloat16, default_hooks.bf16_compress_hook),
}


def wire_hook(wire: str, device: str) -> Hook:
    """The hook that averages a bucket over the ranks in the number format of a wire.

    ``fp32`` sends gradients as they are; ``fp16`` and ``bf16`` cast, send half the bytes, and cast
    back.

    Raises:
        ValueError: no such wire, or bf16 without NCCL, whose all-reduce alone knows that format.
    """
    check_wire(wire, device)
    return _WIRES[wire][1]


def check_wire(wire: str, device: str) -> None:
    """Refuse a wire that ranks on this type of device cannot carry; see ``wire_hook``."""
    if wire not in _WIRES:
        raise ValueError(f"sync.wire '{wire}'; choose one of: {', '.join(_WIRES)}")
    if wire == "bf16" and device != "cuda":
        raise ValueError(
            "sync.wire bf16 needs NCCL, and this run's ranks talk through gloo; choose fp16 or fp32"
        )


def average(tensor: Tensor, wire: str) -> None:
    """Average a tensor over all ranks in place with one blocking all-reduce.

    Divided before the sum, as the hooks do, so that fp16 does not overflow.
    """
    sent = tensor.to(_WIRES[wire][0]) if wire != "fp32" else tensor
    sent.div_(dist.get_world_size())
    dist.all_reduce(sent)
    if sent is not tensor:
        tensor.copy_(sent)


def leave_group() -> None:
    """Destroy the process group when gloo's threads are idle; all of this rank's work is done.

    A thread that has sent a bucket still needs the interpreter to drop the bucket's Python objects.
    A group destroyed meanwhile waits for the thread and keeps the interpreter from it, for good;
    one that is never destroyed may have the thread abort the interpreter's end.
    """
    calm, limit = 0, time.monotonic() + 10.0
    while calm < 3 and time.monotonic() < limit:
        time.sleep(0.005)  # gives the interpreter to whoever waits for it
        calm = calm + 1 if _gloo_threads_sleep() else 0
    dist.destroy_process_group()


def _gloo_threads_sleep() -> bool:
    for path in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # has ended
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if "gloo" in name and rest.split()[0] != "S":
                return False
    return True


@dataclass
class StepTimes:
    """Where the time of one step's gradients went, in seconds.

    Attributes:
        backward: from the start of the last micro-batch's backward pass to its last gradient.
        all_reduce: during which at least one all-reduce was under way.
        exposed: from the last gradient until the last all-reduce had ended: not hidden.
        buckets: how many were sent.
    """

    backward: float = 0.0
    all_reduce: float = 0.0
    exposed: float = 0.0
    buckets: int = 0


@dataclass
class CommunicationTimer:
    """Times the buckets of one backward pass on the host's clock.

    On CUDA the host only queues work, so there the figures show what the host waits for.
    """

    _begin: float = 0.0
    _starts: list[float] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)

    def wrap(self, hook: Hook) -> Hook:
        """The same hook, with its start and end noted."""

        def timed(state: Any, bucket: GradBucket) -> Future:
            self._starts.append(time.perf_counter())
            return hook(state, bucket).then(self._ended)

        return timed

    def _ended(self, future: Future) -> Tensor:
        self._ends.append(time.perf_counter())
        return future.value()

    def begin(self) -> None:
        """The backward pass whose buckets are sent starts now."""
        self._starts.clear()
        self._ends.clear()
        self._begin = time.perf_counter()

    def blocking(self, reduce: Callable[[], None]) -> None:
        """Time a reduction that nothing overlaps."""
        self._starts.append(time.perf_counter())
        reduce()
        self._ends.append(time.perf_counter())

    def times(self) -> StepTimes:
        """Of the pass that has just ended; all of its buckets have arrived."""
        last_gradient = self._starts[-1]
        return StepTimes(
            backward=last_gradient - self._begin,
            all_reduce=_covered(sorted(zip(self._starts, sorted(self._ends), strict=True))),
            exposed=max(0.0, max(self._ends) - last_gradient),
            buckets=len(self._starts),
        )

    def timeline(self) -> dict[str, Any]:
        """Of the pass that has just ended, in seconds since its begin, for figures.

        ``gradients_ready`` is when the last gradient was there, ``all_reduces`` are the start and
        end of each.
        """
        spans = zip(self._starts, sorted(self._ends), strict=True)
        return {
            "gradients_ready": self._starts[-1] - self._begin,
            "all_reduces": [(start - self._begin, end - self._begin) for start, end in spans],
        }


def _covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of intervals, sorted by their starts."""
    total, reached = 0.0, float("-inf")
    for start, end in intervals:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
