"""Presets of MLPerf's reference convergence points, written from one table.

    python -m benchmarks.reference_presets [FOLDER]

Writes FOLDER/rcp_gbsN.yaml (FOLDER: configs) for each global batch size N. The numbers are those of
``rcps_bert.json`` for training 5.0.0, in mlcommons/logging: LAMB from the official checkpoint to an
MLM accuracy of 0.720.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

TARGET_ACCURACY = 0.72


@dataclass(frozen=True)
class ReferencePoint:
    """One convergence point, and the ranks that a preset cuts it into.

    Attributes:
        ranks, batch: their product is the global batch size; the cut is ours, not the reference's.
        learning_rate: of the schedule's peak.
        steps: the step at which the schedule reaches 0.
        warmup, start: length of the warm-up, and the step at which its line is 0.
        betas: decay of the first and second moment.
        weight_decay: of the weights.
        samples: that the reference needed, on average.
    """

    ranks: int
    batch: int
    learning_rate: str
    steps: int
    warmup: int
    start: int
    betas: tuple[str, str]
    weight_decay: str
    samples: int

    @property
    def global_batch(self) -> int:
        """Samples per step."""
        return self.ranks * self.batch


POINTS = (
    ReferencePoint(8, 32, "3.5e-4", 13700, 0, 0, ("0.9", "0.999"), "0.01", 2_549_220),
    ReferencePoint(8, 56, "4.25e-4", 6700, 0, 0, ("0.9", "0.999"), "0.01", 2_414_421),
    ReferencePoint(32, 48, "0.002", 2254, 0, 0, ("0.66", "0.996"), "0.01", 2_776_278),
    ReferencePoint(64, 48, "0.002", 1141, 100, 0, ("0.66", "0.998"), "0.01", 2_764_499),
    ReferencePoint(64, 72, "0.0035", 700, 0, 0, ("0.62", "0.9"), "0.01", 2_798_080),
    ReferencePoint(256, 32, "0.00288293", 600, 287, -76, ("0.88", "0.88"), "0.0166629", 4_186_112),
    ReferencePoint(384, 32, "0.0031", 500, 300, -100, ("0.80", "0.925"), "0.0166629", 4_465_067),
    ReferencePoint(512, 32, "0.0033", 600, 290, -100, ("0.75", "0.9"), "0.0166629", 5_505_422),
)

TEMPLATE = """\
# Made by: python -m benchmarks.reference_presets
# MLPerf reference convergence point, training 5.0.0, global batch size {gbs}: LAMB,
# {samples:,} samples to {target:.3f} on average. The width is ours; any number of ranks that
# divides it takes the same steps.
model:  # BERT-large; GELU as the TensorFlow reference computes it
  hidden_size: 1024
  num_hidden_layers: 24
  num_attention_heads: 16
  intermediate_size: 4096
  hidden_dropout_prob: 0.1
  attention_probs_dropout_prob: 0.1
  gelu: tanh
init:
  tf1_checkpoint: data/mlperf/checkpoint
data:
  train: data/mlperf/train
  evaluation: data/mlperf/evaluation
  width: {ranks}
  batch: {batch}
optimizer:
  name: lamb
  learning_rate: {learning_rate}
  beta_1: {beta_1}
  beta_2: {beta_2}
  epsilon: 1e-6
  weight_decay: {weight_decay}
schedule:
  name: polynomial
  first_step: 0  # as the TensorFlow reference counts
  start_warmup_step: {start}
  warmup_steps: {warmup}
  training_steps: {steps}
sync:
  clip: global_after
  max_norm: 1.0
train:
  target_accuracy: {target}
  max_samples: {max_samples}  # the end of the schedule
  evaluation_interval: {interval}
  device: cuda
mlperf:
  division: closed
"""


def evaluation_interval(global_batch: int) -> int:
    """Samples between two evaluations, by MLPerf's rule for BERT, in exact integers.

    floor(0.05 (230.23 GBS + 3,000,000) / 25,000) 25,000.
    """
    return 5 * (23_023 * global_batch + 300_000_000) // (10_000 * 25_000) * 25_000


def preset(point: ReferencePoint) -> str:
    """The YAML of one point."""
    return TEMPLATE.format(
        **vars(point),
        gbs=point.global_batch,
        beta_1=point.betas[0],
        beta_2=point.betas[1],
        target=TARGET_ACCURACY,
        max_samples=point.steps * point.global_batch,
        interval=evaluation_interval(point.global_batch),
    )


def presets() -> dict[str, str]:
    """File name -> content."""
    return {f"rcp_gbs{point.global_batch}.yaml": preset(point) for point in POINTS}


def main(arguments: list[str]) -> int:
    """Write all presets; returns the exit code."""
    folder = Path(arguments[0] if arguments else "configs")
    for name, content in presets().items():
        (folder / name).write_text(content, encoding="utf-8")
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
