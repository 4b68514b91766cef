"""A run, from configuration to result: initialise before the clock, train on it."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from secrets import randbits
from typing import Any

import torch
from rich.console import Console

from bert.model import BertForPreTraining
from bert.pretrained import LoadReport, check_config, load_huggingface
from bert.tf1_checkpoint import check_tf1_config, load_tf1, tf1_names
from dataprep.order.budget import Budget
from optim.clipping import build_clipping
from optim.communication import check_wire
from optim.optimizers import build_optimizer
from optim.precision import Precision
from optim.schedule import Schedule
from optim.sync import GradSync, build_sync
from train.checkpoint import save_checkpoint
from train.dali import check_dali
from train.data import DataConfig, Dataset, EvaluationBatches, TrainingBatches, synthetic_batch
from train.distributed import World
from train.evaluation import Evaluator
from train.exchange import build_exchange
from train.hyperparameters import Hyperparameters
from train.learner import Learner
from train.metrics import EpochLog, Listener, MetricsFile
from train.mlperf_log import MLPerfLog
from train.progress import LiveView
from train.run_config import RunConfig
from train.run_folder import RunFolder, default_path
from train.trainer import OnEval, RunResult, Trainer


def pretrain(config: RunConfig, world: World, on_eval: OnEval | None = None) -> RunResult:
    """Train until the evaluation reaches the target or the samples are used up.

    Args:
        config: of the run.
        world: this rank; every rank calls with the same configuration.
        on_eval: asked after each evaluation; returning False stops the run.

    Raises:
        ValueError: a setting or the data is wrong; if it shows before the clock starts, nothing is
            left behind.
    """
    config = replace(config, **world.from_main(_drawn(config)))
    training, evaluation = world.agree(lambda: _datasets(config, world))
    world.agree(lambda: check_wire(config.sync.wire, world.device.type))
    folder = world.agree(lambda: RunFolder(Path(str(config.run_folder)), writes=world.is_main))
    log = MLPerfLog(config.mlperf, folder.log)
    with folder.discarded_on_error(), log.initialisation():
        model = world.agree(lambda: build_model(config, world))
        precision = Precision(config.train.precision, world.device.type)
        sync = world.agree(lambda: build_sync(config.sync, model, precision))
        batches, budget = world.agree(lambda: _batches(config, world, training))
        # the largest batch comes first: what does not fit fails here
        largest = synthetic_batch(config.model, budget.tokens, budget.longest)
        sync.settle(largest.to(world.device))
        optimizer = build_optimizer(config.optimizer, sync.parameters())
        schedule = Schedule(config.schedule, optimizer)
        learner = Learner(
            sync,
            optimizer,
            schedule,
            build_clipping(config.sync.clip, config.sync.max_norm),
            precision,
            may_skip=config.train.not_finite == "skip",
            max_skipped=config.train.max_skipped_steps,
        )
        log.hyperparameters(
            _hyperparameters(config, world, training), tf1_names(config.model).values()
        )
        folder.describe(
            config, {**_facts(config, world, model, evaluation), "budget": asdict(budget)}
        )
    with log.run() as run:
        with folder.discarded_on_error():  # a run without a step leaves nothing
            world.agree(lambda: _open(config.data, training, evaluation))
        with _listeners(config, folder, sync, batches) as listeners:
            trainer = Trainer(
                config.train,
                learner,
                batches,
                Evaluator(model, EvaluationBatches(evaluation, config.data, world), world),
                world,
                listeners=[run, *listeners],
                on_eval=on_eval,
            )
            result = trainer.train(batches.most_samples)
            run.stop(success=result.reached)
    batches.close()
    if config.train.save:
        folder.save(lambda path: save_checkpoint(path, model, optimizer, result))
    world.barrier()
    return result


def build_model(config: RunConfig, world: World) -> BertForPreTraining:
    """The model with its first weights, the same on all ranks.

    Raises:
        ValueError: the checkpoint is unreadable or of another model.
    """
    seed = _seed(config)
    generator = torch.Generator().manual_seed(seed)
    model = BertForPreTraining(config.model, generator).to(getattr(torch, config.train.dtype))
    source, load = _checkpoint(config)
    if source is not None:
        report = load(model, source)
        _refuse_more_layers(report, source, config.model.num_hidden_layers)
        if world.is_main:
            print(
                f"weights: {len(report.loaded)} tensors from {source}; "
                f"fresh: {', '.join(report.fresh) or 'none'}; "
                f"not used: {', '.join(_beside_the_model(report)) or 'none'}",
                file=sys.stderr,
            )
    return model.to(world.device)


def _beside_the_model(report: LoadReport) -> list[str]:
    """Weights in the file that the model has no place for; optimizer state is none."""
    unknown: Sequence[str] = getattr(report, "unknown", report.ignored)
    return list(unknown)


def _refuse_more_layers(report: LoadReport, source: str, layers: int) -> None:
    numbers = [re.search(r"layer[._](\d+)[./]", name) for name in _beside_the_model(report)]
    found = max((int(number[1]) + 1 for number in numbers if number), default=0)
    if found > layers:
        raise ValueError(
            f"{source}: has {found} layers, model.num_hidden_layers is {layers}; set it to {found}"
        )


def _checkpoint(config: RunConfig) -> tuple[str | None, Callable[..., LoadReport]]:
    """Where the first weights lie, if anywhere, and what reads them."""
    if config.init.tf1_checkpoint is not None:
        return config.init.tf1_checkpoint, load_tf1
    return config.init.checkpoint, load_huggingface


def _drawn(config: RunConfig) -> dict[str, Any]:
    """The settings that null leaves to the run."""
    return {
        "seed": randbits(32) if config.seed is None else config.seed,
        "run_folder": config.run_folder or str(default_path()),
    }


def _seed(config: RunConfig) -> int:
    assert config.seed is not None, "pretrain draws it first"
    return config.seed


def _datasets(config: RunConfig, world: World) -> tuple[Dataset, Dataset]:
    """Both datasets, from their manifests alone, and all that can be refused by now."""
    training, evaluation = Dataset(Path(config.data.train)), Dataset(Path(config.data.evaluation))
    for dataset in (training, evaluation):
        dataset.check_model(config.model.vocab_size, config.model.max_position_embeddings)
    if not training.header.is_trained_for(evaluation.header):
        raise ValueError(
            f"{evaluation.folder}: not the evaluation set that was held out of {training.folder} "
            "(documents, vocabulary or lengths differ); prepare both together"
        )
    if config.data.loader == "dali":
        check_dali()
    if config.data.preload:
        training.check_preload(config.data.preload_limit_mb)
    global_batch = TrainingBatches(training, config.data, world, _seed(config)).most_samples
    if config.train.max_samples < global_batch:
        raise ValueError(
            f"train.max_samples {config.train.max_samples} is less than one step of "
            f"{global_batch} samples; raise it or lower data.batch"
        )
    for path, name, check in (
        (config.init.checkpoint, "config.json", check_config),
        (config.init.tf1_checkpoint, "bert_config.json", check_tf1_config),
    ):
        if path is None:
            continue
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        if (folder / name).exists():
            check(config.model, path)
    return training, evaluation


def _open(config: DataConfig, training: Dataset, evaluation: Dataset) -> None:
    training.open(config.preload)
    evaluation.open()


def _batches(config: RunConfig, world: World, training: Dataset) -> tuple[TrainingBatches, Budget]:
    """The steps of the run, with what moves samples between ranks; and its largest micro-batch."""
    batches = TrainingBatches(training, config.data, world, _seed(config))
    # without filler the first epoch tells enough
    budget = batches.budget(config.train.max_samples if config.data.token_budget else 1)
    exchange = build_exchange(
        batches.order(0),
        config.data.slots(world.size),
        world,
        training.histogram,
        training.header.max_predictions,
    )
    static = None if config.data.token_budget is None else budget
    batches = TrainingBatches(
        training, config.data, world, _seed(config), exchange=exchange, static=static
    )
    return batches, budget


def _hyperparameters(config: RunConfig, world: World, training: Dataset) -> Hyperparameters:
    slots_per_rank = config.data.slots(world.size) // world.size
    return Hyperparameters(
        seed=_seed(config),
        global_batch_size=config.data.global_batch(world.size),
        gradient_accumulation_steps=slots_per_rank * config.data.accumulation,
        max_predictions_per_seq=training.header.max_predictions,
        training_steps=config.schedule.training_steps,
        warmup_steps=config.schedule.warmup_steps,
        start_warmup_step=config.schedule.start_warmup_step,
        opt_name=config.optimizer.name,
        base_learning_rate=config.optimizer.learning_rate,
        epsilon=config.optimizer.epsilon,
        beta_1=config.optimizer.beta_1,
        beta_2=config.optimizer.beta_2,
        weight_decay=config.optimizer.weight_decay,
        poly_power=config.schedule.power,
    )


def _facts(
    config: RunConfig, world: World, model: BertForPreTraining, evaluation: Dataset
) -> dict[str, Any]:
    label = evaluation.manifest.most_frequent_label
    return {
        "target_accuracy": config.train.target_accuracy,
        "baseline": {"label": label["token"], "accuracy": label["share"]},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "ranks": world.size,
    }


@contextmanager
def _listeners(
    config: RunConfig, folder: RunFolder, sync: GradSync, batches: TrainingBatches
) -> Iterator[list[Listener]]:
    """What shows and records the run: on rank 0 the live view and the metrics file."""
    if not folder.writes:
        yield []
        return
    view = LiveView(config.train.max_samples, config.train.target_accuracy, Console(stderr=True))
    with closing(MetricsFile(folder.metrics)) as metrics, view:
        metrics.describe("sync", {**asdict(config.sync), "buckets": sync.buckets})
        metrics.describe(
            "order",
            {**asdict(config.data.order), "width": batches.width, "batch": config.data.batch},
        )
        yield [metrics, EpochLog(metrics, batches.describe), view]
