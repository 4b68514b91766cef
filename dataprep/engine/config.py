"""The settings of an engine."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EngineConfig:
    """How the jobs of a stage are run; the bytes they make do not depend on it.

    Args:
        name: serial (in this process), processes (several on this machine) or spark (on a cluster)
        workers: with processes, how many at once
        master: with spark, the master's URL, such as local[2] or spark://host:7077
    """

    name: Literal["serial", "processes", "spark"] = "processes"
    workers: int = 1
    master: str = "local[*]"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers {self.workers} must be at least 1")
