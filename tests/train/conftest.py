"""A small prepared corpus and a small run on it."""

from pathlib import Path

import pytest
import yaml

from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig


@pytest.fixture(scope="session")
def prepared(corpus_file: Path, vocabulary_file: Path, tmp_path_factory) -> Path:
    """Folder with train/ (3 stripes) and evaluation/ (10 samples)."""
    output = tmp_path_factory.mktemp("prepared") / "data"
    config = PipelineConfig(
        sources=[str(corpus_file)],
        vocab=str(vocabulary_file),
        output=str(output),
        parts=2,
        evaluation_documents=6,
        evaluation_samples=10,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=48, max_predictions=8, dupe_factor=4),
        stripes=3,
    )
    for _ in run_pipeline(config):
        pass
    return output


@pytest.fixture(scope="session")
def settings(prepared: Path) -> dict:
    """A run of a tiny model, as ``--config`` reads it."""
    words = (prepared / "train" / "vocab.txt").read_text().count("\n")
    return {
        "seed": 7,
        "model": {
            "vocab_size": words,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 64,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        "data": {
            "train": str(prepared / "train"),
            "evaluation": str(prepared / "evaluation"),
            "batch": 4,
            "width": 2,
            "evaluation_batch": 4,
        },
        "optimizer": {"learning_rate": 3e-3},
        "schedule": {"warmup_steps": 5, "training_steps": 100},
        "train": {
            "target_accuracy": 0.99,
            "max_samples": 160,
            "evaluation_interval": 80,
            "device": "cpu",
            "save": False,
        },
    }


@pytest.fixture
def write_config(settings: dict, tmp_path: Path):
    """Write the settings with changes (dotted keys) to a file; gives its path."""

    def write(**changes: object) -> Path:
        content = yaml.safe_load(yaml.safe_dump(settings))
        for key, value in changes.items():
            *groups, name = key.split("__")
            target = content
            for group in groups:
                target = target.setdefault(group, {})
            target[name] = value
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write
