"""What the MLPerf log says of the optimisation: keys and values in its order."""

import math
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What the log says of the optimisation.

    Args:
        seed: of weights, dropout and order.
        global_batch_size: samples of one step over all ranks.
        gradient_accumulation_steps: micro-batches of one rank in one step.
        max_predictions_per_seq: most masked tokens of a sample.
        training_steps: at which the schedule reaches its end.
        warmup_steps: of the schedule.
        start_warmup_step: the step number at which warm-up begins, 0 or negative.
        opt_name: such as ``lamb`` or ``adamw``.
        base_learning_rate: the schedule's peak.
        epsilon, beta_1, beta_2, weight_decay: of the optimizer.
        poly_power: exponent of the schedule's decay, 1 for a linear one.

    Raises:
        ValueError: a number is not finite, a batch size or an accumulation less than 1.
    """

    seed: int
    global_batch_size: int
    gradient_accumulation_steps: int
    max_predictions_per_seq: int
    training_steps: int
    warmup_steps: int
    start_warmup_step: int
    opt_name: str
    base_learning_rate: float
    epsilon: float
    beta_1: float
    beta_2: float
    weight_decay: float
    poly_power: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "opt_name" and not math.isfinite(value):
                raise ValueError(f"hyperparameter {field.name} {value} must be a finite number")
        for name in ("global_batch_size", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"hyperparameter {name} {getattr(self, name)} must be at least 1")

    def events(self) -> list[tuple[str, Any]]:
        """Keys and values in the order of the log.

        Older rules ask for ``opt_epsilon`` where newer ones ask for ``opt_lamb_epsilon``, and the
        ``opt_lamb_`` names stand for any optimizer.
        """
        return [
            ("seed", self.seed),
            ("global_batch_size", self.global_batch_size),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
            ("max_predictions_per_seq", self.max_predictions_per_seq),
            ("opt_learning_rate_training_steps", self.training_steps),
            ("num_warmup_steps", self.warmup_steps),
            ("opt_name", self.opt_name),
            ("opt_base_learning_rate", self.base_learning_rate),
            ("opt_epsilon", self.epsilon),
            ("opt_lamb_epsilon", self.epsilon),
            ("opt_lamb_beta_1", self.beta_1),
            ("opt_lamb_beta_2", self.beta_2),
            ("opt_lamb_weight_decay_rate", self.weight_decay),
            ("opt_learning_rate_warmup_steps", self.warmup_steps),
            ("opt_lamb_learning_rate_decay_poly_power", self.poly_power),
            ("start_warmup_step", self.start_warmup_step),
        ]
