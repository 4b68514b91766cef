"""Run a function on several gloo ranks, with a file store and a time limit."""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from optim.communication import leave_group


def on_ranks(
    size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 200
) -> list:
    """What ``function(rank, *arguments)`` returns on each rank; it must be importable.

    Raises:
        AssertionError: a rank failed or did not end in time; all are ended first.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_work, args=(rank, size, folder, function, arguments))
            for rank in range(size)
        ]
        for process in ranks:
            process.start()
        limit = time.monotonic() + timeout
        for process in ranks:
            process.join(max(0.0, limit - time.monotonic()))
        codes = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
            process.join()
        assert codes == [0] * size, f"exit codes of the ranks (None: no end in time): {codes}"
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _work(rank: int, size: int, folder: str, function: Callable, arguments: tuple) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    try:
        torch.save(function(rank, *arguments), Path(folder) / f"{rank}.pt")
    finally:
        leave_group()
    # what outlives the process group can abort the process when the interpreter ends
    assert "pt_gloo_runloop" not in _threads(), "something still holds the process group"


def _threads() -> set[str]:
    names = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # ended meanwhile
            names.add(path.read_text().strip())
    return names
