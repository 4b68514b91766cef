"""Micro-batches through an NVIDIA DALI pipeline, the same to the bit as without it.

An external source hands DALI the numbers of each micro-batch in the narrowest type they fit;
DALI stays ahead with threads of its own, copies them to the device where there is one, and widens
them there, so that a quarter of the bytes crosses the bus. Needs the extra ``dali``.
"""

from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from numpy.typing import NDArray

from bert.batch import Batch, FlatSamples, pack_flat

# field of a Batch -> what it travels as, and its type in the Batch
_NARROW = {
    "tokens_T": (np.uint16, torch.int64),
    "positions_T": (np.uint16, torch.int64),
    "segments_T": (np.uint8, torch.int64),
    "cu_seqlens": (np.int32, torch.int32),
    "mlm_positions_M": (np.int32, torch.int64),
    "mlm_labels_M": (np.uint16, torch.int64),
    "nsp_labels_B": (np.uint8, torch.int64),
}
_AHEAD = 2  # micro-batches that DALI keeps ready


def dali_installed() -> bool:
    """Whether DALI is there, without loading it."""
    return find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None


def check_dali() -> None:
    """Refuse what needs DALI where it is not.

    Raises:
        ValueError: it is not installed.
    """
    if not dali_installed():
        raise ValueError(
            "data.loader dali: NVIDIA DALI is not installed; pip install 'bert-sprint[dali]', or "
            "set data.loader native"
        )


def assemble_with_dali(
    micro_batches: Iterator[FlatSamples], device: torch.device
) -> Iterator[Batch]:
    """Each micro-batch on the device, through a pipeline."""
    check_dali()
    lengths: deque[tuple[int, ...]] = deque()  # stay on the host, in the same order

    def narrow() -> Iterator[list[NDArray[Any]]]:
        for samples in micro_batches:
            batch = pack_flat(samples)
            lengths.append(batch.lengths)
            yield [getattr(batch, name).numpy().astype(kind) for name, (kind, _) in _NARROW.items()]

    pipeline = _pipeline(narrow(), device)
    while True:
        try:
            outputs = pipeline.run()
        except StopIteration:
            return
        tensors: dict[str, Any] = dict(zip(_NARROW, map(_tensor, outputs), strict=True))
        yield Batch(**tensors, lengths=lengths.popleft())


def _pipeline(source: Iterator[list[NDArray[Any]]], device: torch.device) -> Any:
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    wide = {torch.int64: types.INT64, torch.int32: types.INT32}
    gpu = device.type == "cuda"
    pipeline = Pipeline(
        batch_size=1,
        num_threads=1,
        device_id=(device.index or 0) if gpu else None,
        prefetch_queue_depth=_AHEAD,
    )
    with pipeline:
        fields = fn.external_source(
            source=source, num_outputs=len(_NARROW), batch=False, cycle=None
        )
        if gpu:
            fields = [field.gpu() for field in fields]
        kinds = [wide[kind] for _, kind in _NARROW.values()]
        widened = [fn.cast(field, dtype=kind) for field, kind in zip(fields, kinds, strict=True)]
        pipeline.set_outputs(*widened)
    pipeline.build()
    return pipeline


def _tensor(output: Any) -> torch.Tensor:
    """A copy: DALI uses the memory of an output again."""
    return torch.utils.dlpack.from_dlpack(output[0]).clone()
