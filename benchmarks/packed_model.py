"""Packed against padded: our model beside transformers' on the same samples, in one process.

    python -m benchmarks.packed_model [--repeats 10] [--json]

Both do forward and backward of a pre-training micro-batch, in turn, batch by batch; the ratio is
taken pair by pair. Tokens are real ones for both. Needs the extra ``test`` (transformers).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bert.batch import Batch, Sample, pack
from bert.config import BertConfig
from bert.loss import PretrainStats
from bert.model import BertForPreTraining
from dataprep.lengths import LengthHistogram
from dataprep.order import Presorted

CASES = {
    # name: (hidden, layers, heads, samples, longest, dropout)
    "MiniLM 4 x 128": (384, 6, 12, 4, 128, 0.0),
    "MiniLM 4 x 128, dropout": (384, 6, 12, 4, 128, 0.1),
    "MiniLM 8 x up to 512": (384, 6, 12, 8, 512, 0.0),
}


def lengths_of(samples: int, longest: int, seed: int) -> list[int]:
    """Sample lengths of one step: a quarter full ones, the others spread evenly."""
    counts = dict.fromkeys(range(16, longest), 1)
    counts[longest] = longest // 3
    plan = Presorted(LengthHistogram(counts), width=1, batch=samples, seed=seed, epoch=0)
    lengths: list[int] = plan.lengths(0, np.arange(1))[0].tolist()
    return lengths


def make_batch(lengths: list[int], vocab_size: int, seed: int) -> Batch:
    """Random tokens of these lengths, 15 % masked."""
    draw = np.random.default_rng(seed)
    samples = []
    for length in lengths:
        tokens = draw.integers(5, vocab_size, length)
        masked = np.sort(draw.choice(np.arange(1, length), max(1, length * 15 // 100), False))
        samples.append(Sample(tokens, length // 2, masked, tokens[masked], int(draw.integers(2))))
    return pack(samples)


def padded_inputs(batch: Batch) -> dict[str, torch.Tensor]:
    """The same batch as transformers takes it: [B, S] with a mask; labels -100 where unmasked."""
    shape = (batch.samples, max(batch.lengths))
    ids, segments = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    mask, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, -100)
    flat = torch.full((batch.tokens,), -100)
    flat[batch.mlm_positions_M] = batch.mlm_labels_M
    start = 0
    for row, length in enumerate(batch.lengths):
        part = slice(start, start + length)
        ids[row, :length] = batch.tokens_T[part]
        segments[row, :length] = batch.segments_T[part]
        labels[row, :length] = flat[part]
        mask[row, :length] = 1
        start += length
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
        "labels": labels,
        "next_sentence_label": batch.nsp_labels_B,
    }


def compare(case: str, repeats: int) -> dict[str, Any]:
    """Measure one case."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertForPreTraining as TheirModel

    hidden, layers, heads, samples, longest, dropout = CASES[case]
    shape: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    ours = BertForPreTraining(BertConfig(**shape))
    theirs = TheirModel(TheirConfig(**shape))
    seconds: dict[str, list[float]] = {"packed": [], "padded": []}
    tokens = padded = 0
    for repeat in range(repeats + 1):
        batch = make_batch(lengths_of(samples, longest, repeat), 30522, repeat)
        inputs = padded_inputs(batch)
        pair = (
            _timed(partial(_packed_loss, ours, batch), ours),
            _timed(partial(_padded_loss, theirs, inputs), theirs),
        )
        if repeat == 0:
            continue  # the first pair allocates
        tokens += batch.tokens
        padded += inputs["input_ids"].numel()
        for name, value in zip(seconds, pair, strict=True):
            seconds[name].append(value)
    ratios = [b / a for a, b in zip(seconds["packed"], seconds["padded"], strict=True)]
    return {
        "case": case,
        "packed_tokens_per_second": tokens / sum(seconds["packed"]),
        "padded_tokens_per_second": tokens / sum(seconds["padded"]),
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "real_share_of_padded": tokens / padded,
    }


def _packed_loss(model: BertForPreTraining, batch: Batch) -> torch.Tensor:
    stats: PretrainStats = model(batch)
    return stats.loss(batch.counts)


def _padded_loss(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(**inputs).loss
    return loss


def _timed(loss: Callable[[], torch.Tensor], model: torch.nn.Module) -> float:
    model.zero_grad()
    start = time.perf_counter()
    torch.autograd.backward(loss())
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packed_model", description=__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="pairs of batches a case")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        print(f"measuring {case} ...", file=sys.stderr)
        rows.append(compare(case, options.repeats))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    table = Table("case", "packed tokens/s", "padded tokens/s", "ratio (min - max)", "real tokens")
    for row in rows:
        table.add_row(
            row["case"],
            f"{row['packed_tokens_per_second']:,.0f}",
            f"{row['padded_tokens_per_second']:,.0f}",
            f"{row['ratio_median']:.2f} ({row['ratio_min']:.2f} - {row['ratio_max']:.2f})",
            f"{row['real_share_of_padded']:.0%}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
