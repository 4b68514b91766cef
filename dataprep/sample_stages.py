"""The stages on samples: from text parts to shards, from shards to sorted stripes.

Each reads the folder of the one before and leaves a folder with a manifest.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dataprep.engine import SERIAL, EngineConfig, Job, run_jobs, stage_inputs
from dataprep.holdout import HoldOut
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.parts import TextParts, document_md5, read_parts
from dataprep.presort import PresortConfig, presort
from dataprep.samples import SampleBuilder, SamplesConfig, TokenizedDocuments
from dataprep.shards import Shard, ShardHeader, ShardWriter
from dataprep.tokenization import (
    VOCABULARY_NAME,
    Vocabulary,
    build_tokenizer,
    load_vocabulary,
    save_vocabulary,
)

_ENCODE_BATCH = 4096  # sentences tokenised at once


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
    """

    vocabulary: Vocabulary
    lowercase: bool
    config: SamplesConfig
    holdout: HoldOut
    seed: int
    builder: str = "fast"

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
        jobs.append(Job(target.name, run, inputs))
    entries = run_jobs(folder, jobs, engine)
    return _finish_shards(
        folder,
        Manifest("samples", recipe.seed, recipe.settings, parts.sources, entries),
        recipe.vocabulary,
    )


def make_shard(parts: TextParts, target: Path, recipe: Recipe) -> FileEntry:
    """One shard of all text parts, beside nothing else; as the reference's script is called."""
    return _sample_part(parts, target, recipe, 0)[0]


def _sample_part(parts: TextParts, target: Path, recipe: Recipe, number: int) -> list[FileEntry]:
    counts: Counter[str] = Counter()
    documents = _tokenise(parts.paths, recipe, counts)
    try:
        builder = SampleBuilder(documents, recipe.vocabulary, recipe.config, (recipe.seed, number))
    except ValueError as error:
        raise ValueError(f"{parts.paths[0]}: {error}") from None
    with ShardWriter(target, recipe.header(parts.sources)) as writer:
        for digest in documents.digests:
            writer.write_document(digest)
        for sample in builder.build():
            writer.write(sample)
    counts.update(builder.counts)
    return [replace(writer.entry, counts={**counts, **writer.entry.counts})]


def _tokenise(sources: Sequence[Path], recipe: Recipe, counts: Counter[str]) -> TokenizedDocuments:
    tokenizer = build_tokenizer(recipe.vocabulary, recipe.lowercase)
    unknown = recipe.vocabulary.id("[UNK]")
    tokens: list[np.ndarray[Any, np.dtype[np.uint16]]] = []
    sentence_sizes: list[int] = []
    document_sizes: list[int] = []
    digests: list[str] = []
    seen: set[str] = set()
    for sentences in read_parts(sources):
        digest = document_md5(sentences)
        if not recipe.holdout.takes(digest):
            counts["documents_not_taken"] += 1
            continue
        encoded = []
        for start in range(0, len(sentences), _ENCODE_BATCH):
            encoded += tokenizer.encode_batch_fast(
                sentences[start : start + _ENCODE_BATCH], add_special_tokens=False
            )
        ids = [np.array(one.ids, np.uint16) for one in encoded if one.ids]
        counts["sentences_without_tokens"] += len(sentences) - len(ids)
        if not ids:
            counts["documents_without_tokens"] += 1
            continue
        counts["documents_copied"] += digest in seen
        seen.add(digest)
        counts["unknown_tokens"] += sum(int((one == unknown).sum()) for one in ids)
        tokens += ids
        sentence_sizes += [len(one) for one in ids]
        document_sizes.append(len(ids))
        digests.append(digest)
    counts.update(documents=len(digests), sentences=len(sentence_sizes))
    return TokenizedDocuments(
        tokens=np.concatenate(tokens) if tokens else np.zeros(0, np.uint16),
        sentence_starts=np.cumsum([0, *sentence_sizes]),
        document_starts=np.cumsum([0, *document_sizes]),
        digests=digests,
    )


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
