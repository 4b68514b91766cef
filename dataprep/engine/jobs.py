"""A job: one call of a stage's function, which makes some files of the stage's folder."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataprep.manifest import FileEntry
from dataprep.progress import Meter

_STAGE_VERSION = 4  # raised when a stage makes something else of the same inputs


@dataclass(frozen=True)
class Job:
    """One call of a stage's function.

    Args:
        name: of the job within the stage; names its receipt and, in errors, the job.
        run: makes the files in the folder and describes them; picklable.
        inputs: all that decides the result (settings, seed, digests of sources); JSON types.
        bytes: of its sources, for the progress.
    """

    name: str
    run: Callable[[], list[FileEntry]]
    inputs: Mapping[str, Any]
    bytes: int = 0

    @property
    def fingerprint(self) -> str:
        """The digest of the inputs."""
        return hashlib.sha256(json.dumps(self.inputs, sort_keys=True).encode()).hexdigest()


# runs jobs that make files in a folder; yields each when it is done, in any order, and tells the
# meter what the others have done meanwhile
Engine = Callable[[Path, Sequence[Job], Meter], Iterator[tuple[Job, list[FileEntry]]]]


def stage_inputs(stage: str, settings: Any, seed: int, sources: Sequence[Any]) -> dict[str, Any]:
    """What decides the result of a job: the stage, its settings, the digests of its sources."""
    return {
        "stage": stage,
        "version": _STAGE_VERSION,
        "settings": settings,
        "seed": seed,
        "sources": list(sources),
    }
