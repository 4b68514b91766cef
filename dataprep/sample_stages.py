"""The stages on samples: from text parts to shards, from shards to sorted stripes.

Each reads the folder of the one before and leaves a folder with a manifest.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dataprep.blocks import SampleBlock
from dataprep.engine import SERIAL, EngineConfig, Job, run_jobs, stage_inputs
from dataprep.holdout import HoldOut
from dataprep.imports import ImportConfig, Widths, import_file, import_widths
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.parts import TextParts
from dataprep.presort import PresortConfig, presort
from dataprep.progress import advance
from dataprep.reference import ReferenceBuilder
from dataprep.reference_tokenization import ReferenceTokenizer
from dataprep.samples import SampleBuilder, SamplesConfig, TokenizedDocuments
from dataprep.shards import Shard, ShardHeader, ShardWriter
from dataprep.storage import file_sha256, naming_full_disk
from dataprep.tokenization import (
    VOCABULARY_NAME,
    SentenceTokenizer,
    Vocabulary,
    load_vocabulary,
    save_vocabulary,
)
from dataprep.tokenized import Tokenizer, tokenise_parts


@dataclass(frozen=True)
class Recipe:
    """What samples are made with.

    Args:
        vocabulary: of the tokens.
        lowercase: whether the text is lower-cased and its accents are stripped.
        config: lengths and probabilities.
        holdout: which documents are taken.
        seed: of all that is drawn.
        builder: fast or reference.
        share: make only so much of all samples, a uniform part of them; fast alone can.
    """

    vocabulary: Vocabulary
    lowercase: bool
    config: SamplesConfig
    holdout: HoldOut
    seed: int
    builder: str = "fast"
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.builder not in METHODS:
            raise ValueError(f"builder '{self.builder}'; choose one of: {', '.join(METHODS)}")

    @property
    def settings(self) -> dict[str, Any]:
        """The recipe without its seed, as the manifest records it."""
        return {
            **asdict(self.config),
            "vocabulary_sha256": self.vocabulary.sha256,
            "lowercase": self.lowercase,
            "held_out_sha256": self.holdout.sha256,
            "only_held_out": self.holdout.only_these,
            "builder": self.builder,
            "share": self.share,
        }

    def header(self, sources: dict[str, str]) -> ShardHeader:
        """The header of a shard made of these text parts (name -> sha256)."""
        return ShardHeader(
            vocabulary_sha256=self.vocabulary.sha256,
            vocabulary_size=len(self.vocabulary),
            max_seq_length=self.config.max_seq_length,
            max_predictions=self.config.max_predictions,
            builder=self.builder,
            seed=self.seed,
            held_out_sha256=self.holdout.sha256,
            only_held_out=self.holdout.only_these,
            sources=sources,
        )


def make_samples(
    parts: TextParts, folder: Path, recipe: Recipe, engine: EngineConfig = SERIAL
) -> Manifest:
    """Tokenise and make samples, a shard per text part; for held-out documents one shard of all.

    The evaluation draws its random second segments from all held-out documents, the training from
    those of the same part.
    """
    groups = [parts] if recipe.holdout.only_these else parts.each()
    jobs = []
    for number, group in enumerate(groups):
        target = folder / f"part-{number:05d}.h5"
        run = partial(_sample_part, group, target, recipe, number)
        inputs = stage_inputs("samples", recipe.settings, recipe.seed, [number, *group.digests])
        size = sum(path.stat().st_size for path in group.paths)
        jobs.append(Job(target.name, run, inputs, size))
    entries = run_jobs(folder, jobs, engine)
    return _finish_shards(
        folder,
        Manifest("samples", recipe.seed, recipe.settings, parts.sources, entries),
        recipe.vocabulary,
    )


def make_shard(parts: TextParts, target: Path, recipe: Recipe) -> FileEntry:
    """One shard of all text parts, beside nothing else; as the reference's script is called."""
    with naming_full_disk(target):
        return _sample_part(parts, target, recipe, 0)[0]


def _sample_part(parts: TextParts, target: Path, recipe: Recipe, number: int) -> list[FileEntry]:
    method = METHODS[recipe.builder]
    tokenizer = method.tokenizer(recipe.vocabulary, recipe.lowercase)
    counts: Counter[str] = Counter()
    documents = tokenise_parts(parts.paths, tokenizer, recipe.holdout, counts)
    counts["text_tokens"] = len(documents.tokens)
    counts["unknown_tokens"] = int((documents.tokens == recipe.vocabulary.id("[UNK]")).sum())
    _check_unknown(parts.paths[0], counts, recipe)
    try:
        builder = method.builder(documents, recipe, number)
    except ValueError as error:
        raise ValueError(f"{parts.paths[0]}: {error}") from None
    with ShardWriter(target, recipe.header(parts.sources)) as writer:
        for digest in documents.digests:
            writer.write_document(digest)
        for block in builder.blocks():
            writer.write_block(block)
            advance(samples=len(block))
    counts.update(builder.counts)
    return [replace(writer.entry, counts={**counts, **writer.entry.counts})]


def _check_unknown(path: Path, counts: Counter[str], recipe: Recipe) -> None:
    share = counts["unknown_tokens"] / max(counts["text_tokens"], 1)
    if share > recipe.config.max_unknown_share:
        raise ValueError(
            f"{path}: {share:.0%} of the tokens are [UNK] with this vocabulary, at most "
            f"{recipe.config.max_unknown_share:.0%} are allowed (max_unknown_share); give the "
            "vocabulary of the text's language, or set lowercase as it was made"
        )


class _Builder(Protocol):
    counts: Counter[str]

    def blocks(self) -> Iterator[SampleBlock]: ...


@dataclass(frozen=True)
class _Method:
    tokenizer: Callable[[Vocabulary, bool], Tokenizer]
    builder: Callable[[TokenizedDocuments, Recipe, int], _Builder]


def _fast(documents: TokenizedDocuments, recipe: Recipe, number: int) -> SampleBuilder:
    seed = (recipe.seed, number)
    return SampleBuilder(documents, recipe.vocabulary, recipe.config, seed, recipe.share)


def _reference(documents: TokenizedDocuments, recipe: Recipe, number: int) -> ReferenceBuilder:
    # MLPerf gives every part its own seed
    return ReferenceBuilder(documents, recipe.vocabulary, recipe.config, recipe.seed + number)


METHODS = {
    "fast": _Method(SentenceTokenizer, _fast),
    "reference": _Method(ReferenceTokenizer, _reference),
}


def make_import(
    sources: Sequence[Path],
    folder: Path,
    vocabulary: Vocabulary,
    config: ImportConfig,
    engine: EngineConfig = SERIAL,
) -> Manifest:
    """Import records that other programs wrote, a shard a file; like ``make_samples`` from then on.

    Raises:
        ValueError: see ``imports.import_widths`` and ``imports.import_file``.
    """
    widths = import_widths(sources, config)
    digests = [file_sha256(path) for path in sources]
    settings = {**asdict(config), "vocabulary_sha256": vocabulary.sha256, "builder": "imported"}
    jobs = []
    for number, (source, digest) in enumerate(zip(sources, digests, strict=True)):
        target = folder / f"part-{number:05d}.h5"
        run = partial(_import, source, target, vocabulary, widths, config)
        inputs = stage_inputs("import", settings, 0, [number, *widths, digest])
        jobs.append(Job(target.name, run, inputs, source.stat().st_size))
    entries = run_jobs(folder, jobs, engine)
    named = {path.name: digest for path, digest in zip(sources, digests, strict=True)}
    return _finish_shards(folder, Manifest("samples", 0, settings, named, entries), vocabulary)


def _import(
    source: Path, target: Path, vocabulary: Vocabulary, widths: Widths, config: ImportConfig
) -> list[FileEntry]:
    return [import_file(source, target, vocabulary, widths, config)]


def make_stripes(source: Path, folder: Path, config: PresortConfig, seed: int) -> Manifest:
    """Sort all samples of a folder of shards by length and deal them into stripes."""
    before = read_manifest(source, ("samples",))
    run = partial(presort, [source / entry.file for entry in before.files], folder, config, seed)
    inputs = stage_inputs(
        "presort", config.settings, seed, [entry.sha256 for entry in before.files]
    )
    entries = run_jobs(folder, [Job("presort", run, inputs)], SERIAL)
    return _finish_shards(
        folder,
        Manifest("presort", seed, config.settings, before.file_digests, entries),
        load_vocabulary(source / VOCABULARY_NAME),
    )


def _finish_shards(folder: Path, manifest: Manifest, vocabulary: Vocabulary) -> Manifest:
    """Add the vocabulary and what the shards of a folder have in common; write the manifest."""
    save_vocabulary(vocabulary, folder / VOCABULARY_NAME)
    lengths: Counter[int] = Counter()
    labels = np.zeros(len(vocabulary), np.int64)
    for entry in manifest.files:
        shard = Shard(folder / entry.file)
        values, counts = np.unique(shard.lengths(), return_counts=True)
        lengths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        labels += shard.label_counts()
    most_frequent = int(labels.argmax())
    return replace(
        manifest,
        shard_header={k: v for k, v in asdict(shard.header).items() if k != "sources"},
        lengths=dict(sorted(lengths.items())),
        most_frequent_label={
            "token": vocabulary.tokens[most_frequent],
            "share": float(labels[most_frequent] / max(labels.sum(), 1)),
        },
    ).write(folder)
