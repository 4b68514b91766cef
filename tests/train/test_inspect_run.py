"""Which samples a run trained on, as its folder tells afterwards."""

import itertools
from contextlib import closing
from pathlib import Path

import pytest
import torch
from launch import records, run

from dataprep.order import OrderConfig
from dataprep.run_step import samples_of_run
from dataprep.shards import Shard
from train.data import DataConfig, Dataset, TrainingBatches
from train.distributed import World

ORDER = {"scheme": "exchange", "remainder": "keep"}


@pytest.fixture
def finished(write_config, prepared: Path, tmp_path: Path) -> Path:
    """The folder of a run on two ranks of two slots each."""
    samples = Dataset(prepared / "train").samples + 300
    config = write_config(
        data__width=4, data__batch=32, data__order=ORDER, train__max_samples=samples
    )
    done = run(config, tmp_path / "run", ranks=2)
    assert len(records(tmp_path / "run", "step")) >= 5, done.stderr
    return tmp_path / "run"


def test_the_samples_of_every_step_are_those_that_the_run_trained_on(
    finished: Path, prepared: Path
) -> None:
    dataset = Dataset(prepared / "train")
    dataset.open()
    config = DataConfig("", "", batch=32, width=4, order=OrderConfig(**ORDER))  # type: ignore[arg-type]
    steps = records(finished, "step")
    assert {step["epoch"] for step in steps} >= {0, 1}
    named: list[list[tuple[int, ...]]] = [[] for _ in steps]
    trained: list[list[tuple[int, ...]]] = [[] for _ in steps]
    for rank in (0, 1):
        batches = TrainingBatches(dataset, config, World(rank, 2, torch.device("cpu")), seed=7)
        with closing(batches):
            for i, step in enumerate(itertools.islice(batches, len(steps))):
                for micro in step.micro_batches:
                    parts = micro.tokens_T.split(list(micro.lengths))
                    trained[i] += [tuple(part.tolist()) for part in parts if len(part)]
        for i in range(len(steps)):
            for one in samples_of_run(finished, prepared / "train", i + 1, rank):
                named[i].append(tuple(Shard(one.file).sample(one.row).tokens.tolist()))
    for step, ours, theirs in zip(steps, named, trained, strict=True):
        assert sorted(ours) == sorted(theirs)
        assert sum(map(len, ours)) == step["tokens"]


def test_what_the_run_did_not_train_on_is_refused(finished: Path, prepared: Path) -> None:
    for step in (0, 10**6):
        with pytest.raises(ValueError, match=rf"no step {step}; it has trained \d+ steps"):
            samples_of_run(finished, prepared / "train", step, 0)
    with pytest.raises(ValueError, match="rank 2 must lie in 0 to 1"):
        samples_of_run(finished, prepared / "train", 1, 2)
    with pytest.raises(ValueError, match="not a run folder"):
        samples_of_run(prepared, prepared / "train", 1, 0)


def test_other_stripes_than_those_of_the_run_are_refused(
    write_config, prepared: Path, tmp_path: Path
) -> None:
    run(write_config(train__max_samples=24), tmp_path / "run")
    with pytest.raises(ValueError, match=r"step 1 would have \d+ tokens, the run trained on \d+"):
        samples_of_run(tmp_path / "run", prepared / "evaluation", 1, 0)
