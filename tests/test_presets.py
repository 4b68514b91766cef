"""Every preset loads through its program's parser and holds the published values."""

import math
from pathlib import Path

import pytest
from launch import ROOT

from benchmarks.reference_presets import POINTS, evaluation_interval, presets
from dataprep.commandline import build_parser, parse
from dataprep.pipeline import PipelineConfig
from optim.schedule import build_rate
from run_pretraining import read_config
from train.run_config import RunConfig

CONFIGS = ROOT / "configs"
DATA_PRESETS = {"tiny_cpu_data"}
QUICKSTART = "tiny_cpu"
RUN_PRESETS = sorted({path.stem for path in CONFIGS.glob("*.yaml")} - DATA_PRESETS)
SAMSUNG_RATE, SAMSUNG_END = 3.9299421615882676e-4, 4.94549100544884e-5
SAMSUNG_BETAS = (0.8003575444254268, 0.8174653681457493)

# name: GPUs, samples on each, optimizer, rate, betas, epsilon, decay, steps, warm-up, its start,
# GELU, division, samples between evaluations
PUBLISHED = {
    "samsung_v2.0_1024x16": (
        1024, 16, "adamw", SAMSUNG_RATE, SAMSUNG_BETAS, 1e-9, 0.0028861703130042965,
        299, 82, -16, "erf", "open", 325_000,
    ),
    "samsung_v2.0_1368x12": (
        1368, 12, "adamw", SAMSUNG_RATE, SAMSUNG_BETAS, 1e-9, 0.0028861703130042965,
        299, 82, -16, "erf", "open", 325_000,
    ),
    "nvidia_lamb_8gpu_gbs448": (
        8, 56, "lamb", 4.25e-4, (0.9, 0.999), 1e-6, 0.01, 6700, 0, 0, "erf", "closed", 150_000,
    ),
    "nvidia_lamb_64gpu": (
        64, 72, "lamb", 0.00258, (0.6, 0.7), 1e-6, 0.1,
        700, 200330, -200000, "erf", "closed", 200_000,
    ),
    "nvidia_lamb_1024gpu": (
        1024, 4, "lamb", 0.00255, (0.71, 0.88), 1e-6, 0.0166629,
        820, 256, -76, "erf", "closed", 175_000,
    ),
}  # fmt: skip
# global batch: rate, steps, warm-up, its start, betas, decay, samples between evaluations
REFERENCE_POINTS = {
    256: (3.5e-4, 13700, 0, 0, (0.9, 0.999), 0.01, 150_000),
    448: (4.25e-4, 6700, 0, 0, (0.9, 0.999), 0.01, 150_000),
    1536: (0.002, 2254, 0, 0, (0.66, 0.996), 0.01, 150_000),
    3072: (0.002, 1141, 100, 0, (0.66, 0.998), 0.01, 175_000),
    4608: (0.0035, 700, 0, 0, (0.62, 0.9), 0.01, 200_000),
    8192: (0.00288293, 600, 287, -76, (0.88, 0.88), 0.0166629, 225_000),
    12288: (0.0031, 500, 300, -100, (0.80, 0.925), 0.0166629, 275_000),
    16384: (0.0033, 600, 290, -100, (0.75, 0.9), 0.0166629, 325_000),
}


def load(name: str) -> RunConfig:
    """A preset as run_pretraining.py reads it."""
    return read_config(["--config", str(CONFIGS / f"{name}.yaml")])


def rate(config: RunConfig, step: int) -> float:
    """The learning rate of a step, counted from 1."""
    return build_rate(config.schedule)(step, config.optimizer.learning_rate)


def test_every_preset_is_checked() -> None:
    reference = {f"rcp_gbs{size}" for size in REFERENCE_POINTS}
    assert set(RUN_PRESETS) == {QUICKSTART, *PUBLISHED, *reference}
    listed = (CONFIGS / "README.md").read_text(encoding="utf-8")
    for name in {*DATA_PRESETS, QUICKSTART, *PUBLISHED}:
        assert f"`{name}.yaml`" in listed


@pytest.mark.parametrize("name", sorted(DATA_PRESETS))
def test_data_presets_load(name: str) -> None:
    parser = build_parser("test", "test")
    parser.add_class_arguments(PipelineConfig)
    settings = parse(parser, ["--config", str(CONFIGS / f"{name}.yaml")]).as_dict()
    settings.pop("config")
    PipelineConfig(**settings)


@pytest.mark.parametrize("name", RUN_PRESETS)
def test_run_presets_load_and_say_what_may_not_be_guessed(name: str, tmp_path: Path) -> None:
    config = load(name)
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    for line in ("  gelu: ", "  division: ", "  target_accuracy: "):
        assert line in text
    assert text.startswith("#")
    assert not Path(config.data.train).is_absolute()
    assert config.seed is None and config.run_folder is None
    resolved = tmp_path / "config.yaml"
    resolved.write_text(config.to_yaml(), encoding="utf-8")
    assert read_config(["--config", str(resolved)]) == config


@pytest.mark.parametrize("name", sorted(set(RUN_PRESETS) - {QUICKSTART}))
def test_published_presets_are_the_benchmarks_model_and_target(name: str) -> None:
    config = load(name)
    model = config.model
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (1024, 24, 16)
    assert (model.intermediate_size, model.vocab_size) == (4096, 30522)
    assert (model.max_position_embeddings, model.type_vocab_size) == (512, 2)
    assert (model.hidden_dropout_prob, model.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.train.target_accuracy == 0.72
    assert config.data.accumulation == 1
    assert config.data.width is not None
    size = config.data.global_batch(config.data.width)
    assert config.train.max_samples == size * config.schedule.training_steps
    interval = math.floor(0.05 * (230.23 * size + 3_000_000) / 25_000) * 25_000
    assert config.train.evaluation_interval == interval == evaluation_interval(size)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(name: str) -> None:
    config = load(name)
    optimizer, schedule = config.optimizer, config.schedule
    assert optimizer.bias_correction
    assert PUBLISHED[name] == (
        config.data.width,
        config.data.batch,
        optimizer.name,
        optimizer.learning_rate,
        (optimizer.beta_1, optimizer.beta_2),
        optimizer.epsilon,
        optimizer.weight_decay,
        schedule.training_steps,
        schedule.warmup_steps,
        schedule.start_warmup_step,
        config.model.gelu,
        config.mlperf.division,
        config.train.evaluation_interval,
    )


@pytest.mark.parametrize("size", REFERENCE_POINTS)
def test_reference_points(size: int) -> None:
    config = load(f"rcp_gbs{size}")
    optimizer, schedule = config.optimizer, config.schedule
    assert REFERENCE_POINTS[size] == (
        optimizer.learning_rate,
        schedule.training_steps,
        schedule.warmup_steps,
        schedule.start_warmup_step,
        (optimizer.beta_1, optimizer.beta_2),
        optimizer.weight_decay,
        config.train.evaluation_interval,
    )
    assert config.data.global_batch(config.data.width or 0) == size
    assert (optimizer.name, optimizer.epsilon, optimizer.bias_correction) == ("lamb", 1e-6, True)
    assert (config.model.gelu, config.mlperf.division) == ("tanh", "closed")
    assert (schedule.name, schedule.first_step, schedule.power) == ("polynomial", 0, 1.0)


def test_the_files_are_what_the_table_gives() -> None:
    assert len(presets()) == len(POINTS) == len(REFERENCE_POINTS)
    for name, content in presets().items():
        assert (CONFIGS / name).read_text(encoding="utf-8") == content, (
            f"{name}: run python -m benchmarks.reference_presets"
        )


@pytest.mark.parametrize("name", ["samsung_v2.0_1024x16", "samsung_v2.0_1368x12"])
def test_samsungs_published_rates(name: str) -> None:
    config = load(name)
    assert rate(config, 65) == pytest.approx(3.88e-4, abs=5e-7)
    assert rate(config, 66) == pytest.approx(4.50e-4, abs=5e-7)
    assert rate(config, 178) > SAMSUNG_END
    assert [rate(config, step) for step in (179, 200, 299)] == [SAMSUNG_END] * 3


def test_nvidias_rates() -> None:
    few, many = load("nvidia_lamb_64gpu"), load("nvidia_lamb_1024gpu")
    assert rate(few, 1) == pytest.approx(0.00258 * 200001 / 200330, rel=1e-12)
    assert rate(few, 330) == pytest.approx(0.00258 * (1 - 330 / 700), rel=1e-12)
    assert rate(many, 179) == pytest.approx(0.00255 * 255 / 256, rel=1e-12)
    assert rate(many, 180) == pytest.approx(0.00255 * (1 - 180 / 820), rel=1e-12)
    assert rate(load("nvidia_lamb_8gpu_gbs448"), 1) == 4.25e-4


def test_evaluation_intervals_of_the_rules() -> None:
    known = {256: 150_000, 2048: 150_000, 4096: 175_000, 8192: 225_000, 16384: 325_000}
    assert {size: evaluation_interval(size) for size in known} == known
