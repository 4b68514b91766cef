"""All stages in a row: from sources to the stripes of a training and an evaluation set."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from dataprep.engine import EngineConfig
from dataprep.manifest import Manifest
from dataprep.presort import PresortConfig
from dataprep.sample_stages import Recipe, make_samples, make_stripes, read_holdout
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.storage import as_path
from dataprep.text_stages import HELD_OUT_LIST, make_documents, make_holdout, make_sentences
from dataprep.tokenization import load_vocabulary


@dataclass(frozen=True)
class PipelineConfig:
    """From sources to the stripes of a training and an evaluation set.

    Args:
        sources: dumps or text files, read in this order
        vocabulary: BERT's vocab.txt
        output: the folder that gets a folder per stage
        format: of the sources: auto, mediawiki or text
        parts: into how many parts the documents are dealt; a part is the unit of parallel work;
            null for one each 32 MiB of sources
        lowercase: lower-case the text and strip accents, as for BERT uncased
        seed: of everything that is drawn
        engine: how stages are run; the result does not depend on it
        evaluation_documents: how many different documents are held out
        evaluation_samples: how many samples of theirs make up the evaluation set; null for all
        sentences: how documents are split
        samples: how samples are made
        stripes: files of the training set, and of the evaluation set
    """

    sources: list[str]
    vocabulary: str
    output: str
    format: str = "auto"
    parts: int | None = None
    lowercase: bool = True
    seed: int = 12345
    engine: EngineConfig = field(default_factory=EngineConfig)
    evaluation_documents: int = 10_000
    evaluation_samples: int | None = 10_000
    sentences: SentencesConfig = field(default_factory=SentencesConfig)
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    stripes: int = 8


def run_pipeline(config: PipelineConfig) -> Iterator[Manifest]:
    """Run all stages; yields each one's manifest when its folder is complete."""
    vocabulary = load_vocabulary(as_path(config.vocabulary))
    root, seed = as_path(config.output), config.seed
    sources = [as_path(source) for source in config.sources]
    yield make_documents(sources, root / "documents", config.format, config.parts, config.engine)
    yield make_sentences(root / "documents", root / "sentences", config.sentences, config.engine)
    yield make_holdout(root / "sentences", root / "holdout", config.evaluation_documents, seed)
    held_out = root / "holdout" / HELD_OUT_LIST
    for name, samples in (("train", None), ("evaluation", config.evaluation_samples)):
        chosen = read_holdout(held_out, only_these=name == "evaluation")
        recipe = Recipe(vocabulary, config.lowercase, config.samples, chosen, seed)
        shards = root / "samples" / name
        yield make_samples(root / "sentences", shards, recipe, config.engine)
        yield make_stripes(shards, root / name, PresortConfig(config.stripes, samples), seed)
