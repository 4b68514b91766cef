"""The loop: step, evaluate when due, stop on the target or the sample limit."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from bert.loss import PretrainStats
from optim.precision import PRECISIONS
from train.data import StepBatches
from train.distributed import DEVICES, World
from train.learner import Learner
from train.metrics import EvaluationRecord, Listener, StepRecord

# given an evaluation, False stops the run
OnEval = Callable[[EvaluationRecord], bool | None]


@dataclass(frozen=True)
class TrainConfig:
    """How long a run trains and when it evaluates.

    Args:
        target_accuracy: stop when the evaluation's MLM accuracy reaches this share, such as 0.72
        max_samples: stop unsuccessfully before more samples than this have been trained on
        evaluation_interval: evaluate each time so many more samples have been trained on
        device: auto, cpu or cuda
        dtype: of weights: float32 or float64
        precision: of forward and backward: fp32 (as the weights), bf16 or fp16 (autocast)
        not_finite: what a gradient that is not finite does: stop (the run) or skip (the step); with
            fp16 an overflow is always skipped
        max_skipped_steps: so many skipped steps in a row stop the run
        save: write a checkpoint at the end
    """

    target_accuracy: float = 0.72
    max_samples: int = 4_500_000
    evaluation_interval: int = 150_000
    device: str = "auto"
    dtype: str = "float32"
    precision: str = "fp32"
    not_finite: str = "stop"
    max_skipped_steps: int = 8
    save: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.target_accuracy < 1:
            hint = (
                f"; did you mean {self.target_accuracy / 100:g}?"
                if self.target_accuracy > 1
                else ""
            )
            raise ValueError(
                f"train.target_accuracy {self.target_accuracy} must lie between 0 and 1{hint}"
            )
        for name in ("max_samples", "evaluation_interval", "max_skipped_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} {getattr(self, name)} must be at least 1")
        for name, choices in (
            ("dtype", ("float32", "float64")),
            ("precision", PRECISIONS),
            ("device", DEVICES),
            ("not_finite", ("stop", "skip")),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"train.{name} '{value}'; choose one of: {', '.join(choices)}")
        if self.dtype == "float64" and self.precision != "fp32":
            raise ValueError(
                f"train.precision {self.precision} with train.dtype float64; choose float32 or fp32"
            )


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        reached: whether the target was reached.
        samples, steps: trained.
        seconds: from the start of training to its end.
        evaluations: all of them, in order.
    """

    reached: bool
    samples: int
    steps: int
    seconds: float
    evaluations: list[EvaluationRecord]

    @property
    def accuracy(self) -> float:
        """The last evaluation's MLM accuracy, 0 without one."""
        return self.evaluations[-1].mlm_accuracy if self.evaluations else 0.0


class Trainer:
    """Runs a learner over batches until the target, the sample limit or ``on_eval`` stops it.

    Args:
        config: when to evaluate and to stop.
        learner: what takes a step.
        batches: the steps of this rank.
        evaluate: statistics of the whole evaluation set, equal on all ranks.
        world: this rank.
        listeners: told of steps and evaluations.
        on_eval: asked on every rank after each evaluation; False on any of them stops all.
    """

    def __init__(
        self,
        config: TrainConfig,
        learner: Learner,
        batches: Iterable[StepBatches],
        evaluate: Callable[[], PretrainStats],
        world: World,
        *,
        listeners: Sequence[Listener] = (),
        on_eval: OnEval | None = None,
    ) -> None:
        self._config = config
        self._learner = learner
        self._batches = batches
        self._evaluate = evaluate
        self._world = world
        self._listeners = listeners
        self._on_eval = on_eval
        self._samples = 0
        self._steps = 0
        self._evaluations: list[EvaluationRecord] = []

    def train(self, global_batch: int) -> RunResult:
        """Train.

        Args:
            global_batch: the most samples of one step over all ranks.

        Raises:
            ValueError: the sample limit is less than one step; the data or the gradient is bad.
        """
        self._start = self._clock = time.perf_counter()
        evaluated_at = 0
        reached = False
        for batches in self._batches:
            self._train_step(batches)
            last = self._samples + global_batch > self._config.max_samples
            due = self._samples // self._config.evaluation_interval > evaluated_at
            if due or last:
                evaluated_at = self._samples // self._config.evaluation_interval
                reached, stop = self._evaluation()
                if reached or stop or last:
                    break
        return RunResult(
            reached=reached,
            samples=self._samples,
            steps=self._steps,
            seconds=time.perf_counter() - self._start,
            evaluations=self._evaluations,
        )

    def _train_step(self, batches: StepBatches) -> None:
        received = time.perf_counter()
        self._steps += 1
        update = self._learner.step(batches.micro_batches)
        times, clipped = self._learner.sync.report()
        tokens = sum(batch.tokens for batch in batches.micro_batches)
        sums = update.stats.to_vector()
        extra = torch.tensor([tokens, clipped], dtype=sums.dtype, device=sums.device)
        total = self._world.sum(torch.cat([sums, extra]))
        whole = PretrainStats.from_vector(total[:-2])
        samples = int(whole.nsp_count)
        self._samples += samples
        finished = time.perf_counter()
        seconds = finished - self._clock
        record = StepRecord(
            step=self._steps,
            epoch=batches.epoch,
            samples=self._samples,
            tokens=int(total[-2]),
            loss=whole.mlm_loss + whole.nsp_loss,
            mlm_loss=whole.mlm_loss,
            nsp_loss=whole.nsp_loss,
            learning_rate=update.learning_rate,
            grad_norm=update.grad_norm,
            skipped_steps=self._learner.skipped,
            loss_scale=self._learner.precision.scale,
            clipped_share=float(total[-1]) / self._world.size,
            seconds=finished - self._start,
            data_seconds=received - self._clock,
            backward_seconds=times.backward,
            all_reduce_seconds=times.all_reduce,
            exposed_seconds=times.exposed,
            step_seconds=seconds,
            samples_per_second=samples / seconds,
            tokens_per_second=float(total[-2]) / seconds,
        )
        for listener in self._listeners:
            listener.step_done(record)
        self._clock = time.perf_counter()

    def _evaluation(self) -> tuple[bool, bool]:
        """Evaluate; whether the target is reached, and whether ``on_eval`` wants to stop."""
        for listener in self._listeners:
            listener.evaluation_started(self._samples)
        started = time.perf_counter()
        stats = self._evaluate()
        finished = time.perf_counter()
        record = EvaluationRecord(
            step=self._steps,
            samples=self._samples,
            mlm_accuracy=stats.mlm_accuracy,
            mlm_loss=stats.mlm_loss,
            nsp_accuracy=stats.nsp_accuracy,
            eval_samples=int(stats.nsp_count),
            seconds=finished - self._start,
            evaluation_seconds=finished - started,
        )
        self._evaluations.append(record)
        for listener in self._listeners:
            listener.evaluation_done(record)
        refused = self._on_eval is not None and self._on_eval(record) is False
        stop = bool(self._world.sum(torch.tensor(int(refused))))
        self._clock = time.perf_counter()
        return record.mlm_accuracy >= self._config.target_accuracy, stop
