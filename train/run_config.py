"""RunConfig: the dataclasses of all parts, composed once."""

from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from bert.config import BertConfig
from optim.optimizers import OptimizerConfig
from optim.schedule import ScheduleConfig
from optim.sync import SyncConfig
from train.data import DataConfig
from train.mlperf_log import MLPerfConfig
from train.trainer import TrainConfig


@dataclass(frozen=True)
class InitConfig:
    """Where the weights come from; with neither checkpoint, from the seed.

    Args:
        checkpoint: a Hugging Face checkpoint, model.safetensors or its folder
        tf1_checkpoint: a TensorFlow 1 checkpoint such as MLPerf's, its prefix or its folder
    """

    checkpoint: str | None = None
    tf1_checkpoint: str | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.tf1_checkpoint is not None:
            raise ValueError(
                f"init.checkpoint {self.checkpoint} and init.tf1_checkpoint {self.tf1_checkpoint}: "
                "weights come from one of them; set the other to null"
            )


@dataclass(frozen=True)
class RunConfig:
    """A run of BERT pre-training.

    Args:
        data: what is read
        run_folder: where log, metrics and checkpoint go; must not exist; null: runs/DATE-TIME
        seed: of weights, dropout and order; null draws a fresh one, which is logged
        model: the shape and the arithmetic of BERT
        init: the weights before the first step
        optimizer: what takes a step
        schedule: of the learning rate
        sync: how ranks agree on a gradient
        train: when to evaluate and when to stop
        mlperf: what the MLPerf log says of the submission
    """

    data: DataConfig
    run_folder: str | None = None
    seed: int | None = None
    model: BertConfig = field(default_factory=BertConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    mlperf: MLPerfConfig = field(default_factory=MLPerfConfig)

    def __post_init__(self) -> None:
        if self.seed is not None and not 0 <= self.seed < 1 << 32:
            raise ValueError(f"seed {self.seed} must lie between 0 and {(1 << 32) - 1}, or be null")

    def to_yaml(self) -> str:
        """All settings as YAML that ``--config`` reads."""
        content: dict[str, Any] = asdict(self)
        return yaml.safe_dump(content, sort_keys=False)
