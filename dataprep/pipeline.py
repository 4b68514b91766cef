"""All stages in a row: from sources to the stripes of a training and an evaluation set."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dataprep.engine import EngineConfig
from dataprep.holdout import HELD_OUT_LIST, draw_holdout, list_holdout, read_holdout
from dataprep.manifest import Manifest
from dataprep.parts import TextParts, given_parts, stage_parts
from dataprep.presort import PresortConfig
from dataprep.sample_stages import Recipe, make_samples, make_stripes
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.source_files import expand_sources
from dataprep.storage import as_path
from dataprep.text_stages import make_documents, make_sentences
from dataprep.tokenization import load_vocabulary

_BYTES_A_TOKEN = 3.1  # of a sample, by the text it is made of: random segments use text again


@dataclass(frozen=True)
class PipelineConfig:
    """From sources to the stripes of a training and an evaluation set.

    Args:
        sources: dumps or text files, folders or patterns of them, read in this order
        vocab: BERT's vocab.txt
        output: the folder that gets a folder per stage
        format: of the sources: auto, mediawiki, wikiextractor, jsonl, text, or parts (a sentence a
            line, an empty line between documents: taken as they are, each a part)
        parts: into how many parts the documents are dealt; a part is the unit of parallel work;
            null for one each 32 MiB of sources
        builder: of samples: fast, or reference (the very samples of the public script)
        lowercase: lower-case the text and strip accents, as for BERT uncased
        seed: of everything that is drawn
        engine: how stages are run; the result does not depend on it
        evaluation_documents: how many different documents are drawn and held out
        evaluation_list: hold out the documents of this list of md5s instead
        evaluation_sources: take the evaluation set from these text parts instead, such as MLPerf's
            eval.txt; should their documents occur in the sources, they are not trained on
        evaluation_samples: how many samples of theirs make up the evaluation set; null for all
        sentences: how documents are split
        samples: how samples are made
        training_samples: take only so many, uniformly over documents and lengths, and with fast
            make not many more; null for all
        stripes: files of the training set, and of the evaluation set
        memory_mb: the most memory that sorting takes for its arrays, in MiB
    """

    sources: list[str]
    vocab: str
    output: str
    format: str = "auto"
    parts: int | None = None
    builder: str = "fast"
    lowercase: bool = True
    seed: int = 12345
    engine: EngineConfig = field(default_factory=EngineConfig)
    evaluation_documents: int = 10_000
    evaluation_list: str | None = None
    evaluation_sources: list[str] | None = None
    evaluation_samples: int | None = 10_000
    sentences: SentencesConfig = field(default_factory=SentencesConfig)
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    training_samples: int | None = None
    stripes: int = 8
    memory_mb: int = 2048

    def __post_init__(self) -> None:
        if self.evaluation_list is not None and self.evaluation_sources is not None:
            raise ValueError("evaluation_list and evaluation_sources are both given; leave one out")


def run_pipeline(config: PipelineConfig) -> Iterator[Manifest]:
    """Run all stages; yields each one's manifest when its folder is complete."""
    vocabulary = load_vocabulary(as_path(config.vocab))
    root, seed = as_path(config.output), config.seed
    sources = expand_sources(config.sources)
    if config.format == "parts":
        parts = given_parts(sources)
    else:
        yield make_documents(
            sources, root / "documents", config.format, config.parts, config.engine
        )
        yield make_sentences(
            root / "documents", root / "sentences", config.sentences, config.engine
        )
        parts = stage_parts(root / "sentences")
    held_out, evaluation = root / "holdout" / HELD_OUT_LIST, parts
    if config.evaluation_list is not None:
        held_out = as_path(config.evaluation_list)
    elif config.evaluation_sources is not None:
        evaluation = given_parts(expand_sources(config.evaluation_sources))
        yield list_holdout(evaluation, root / "holdout")
    else:
        yield draw_holdout(parts, root / "holdout", config.evaluation_documents, seed)
    for name, taken in (("evaluation", evaluation), ("train", parts)):
        holdout = read_holdout(held_out, only_these=name == "evaluation")
        recipe = Recipe(vocabulary, config.lowercase, config.samples, holdout, seed, config.builder)
        shards = root / "samples" / name
        if name == "train" and config.training_samples is not None:
            samples = _make_enough(taken, shards, recipe, config.engine, config.training_samples)
            order = PresortConfig(config.stripes, config.training_samples, "random")
        else:
            samples = make_samples(taken, shards, recipe, config.engine)
            wanted = config.evaluation_samples if name == "evaluation" else None
            if wanted is not None and wanted > samples.samples:
                raise ValueError(
                    f"evaluation_samples {wanted}: the held-out documents give {samples.samples}; "
                    "give at most so many, or null for all"
                )
            order = PresortConfig(config.stripes, wanted)
        yield samples
        yield make_stripes(shards, root / name, replace(order, memory_mb=config.memory_mb), seed)


def _make_enough(
    parts: TextParts, folder: Path, recipe: Recipe, engine: EngineConfig, wanted: int
) -> Manifest:
    """Make at least ``wanted`` samples, where there are so many, but not many times as many."""
    if recipe.builder == "fast":
        text = sum(path.stat().st_size for path in parts.paths) * recipe.config.dupe_factor
        # the least number of samples: all of them long
        least = text / (_BYTES_A_TOKEN * recipe.config.max_seq_length)
        recipe = replace(recipe, share=min(1.0, wanted / max(least, 1)))
    while True:
        manifest = make_samples(parts, folder, recipe, engine)
        if manifest.samples >= wanted or recipe.share == 1:
            return manifest
        recipe = replace(recipe, share=min(1.0, 2 * recipe.share))
