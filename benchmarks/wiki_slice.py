"""A real presorted dataset, prepared once: part of a Wikipedia slice at a given sample length."""

import sys
from pathlib import Path

from benchmarks.dataprep_corpus import MEGABYTE, make_text_parts
from dataprep.manifest import MANIFEST_NAME, read_manifest
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.samples import SamplesConfig


def prepare(corpus: Path, vocabulary: Path, folder: Path, megabytes: int, length: int) -> Path:
    """The folder of training stripes; made if it is not there yet.

    Args:
        corpus: WikiExtractor's output: a file, a folder of them or a tar file.
        vocabulary: BERT's vocab.txt.
        folder: where all stages are kept.
        megabytes: of text to take.
        length: max_seq_length of the samples.

    Raises:
        ValueError: no such corpus or vocabulary, too little text, or stripes of another release.
    """
    stripes = folder / f"{megabytes}mb-{length}" / "train"
    if (stripes / MANIFEST_NAME).exists():
        read_manifest(stripes, ("presort",))
        return stripes
    print(f"preparing {megabytes} MB of {corpus} in {stripes.parent} ...", file=sys.stderr)
    text = stripes.parent / "text"
    text.mkdir(parents=True, exist_ok=True)
    size = megabytes * MEGABYTE
    parts = make_text_parts(corpus, text, size, max(size // 8, 1))
    config = PipelineConfig(
        sources=[str(path) for path in parts.paths],
        vocab=str(vocabulary),
        output=str(stripes.parent),
        format="parts",
        evaluation_documents=100,
        evaluation_samples=100,
        samples=SamplesConfig(max_seq_length=length, dupe_factor=1),
    )
    for _ in run_pipeline(config):
        pass
    return stripes
