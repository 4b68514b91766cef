"""What the command line can do: a function a command; its signature gives the options."""

from typing import Any, Literal

import yaml
from rich.console import Console

from dataprep.digest import canonical_digest
from dataprep.documents import DocumentReader
from dataprep.engine import EngineConfig
from dataprep.holdout import HoldOut, draw_holdout, list_holdout, read_holdout
from dataprep.imports import ImportConfig, export_hdf5
from dataprep.inspection import shard_paths, show_sample, summary
from dataprep.manifest import Manifest, read_manifest
from dataprep.official import expected, find_download, settings_for
from dataprep.parts import TextParts, given_parts, stage_parts
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.presort import PresortConfig
from dataprep.report import report
from dataprep.sample_stages import Recipe, make_import, make_samples, make_shard, make_stripes
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import Shard
from dataprep.source_files import expand_sources
from dataprep.statistics import draw_histogram, length_table, statistics_lines, statistics_of
from dataprep.storage import as_path, replacing
from dataprep.text_stages import make_documents, make_sentences
from dataprep.tokenization import load_vocabulary
from dataprep.verification import verify_folder
from dataprep.vocabulary_training import train_vocabulary

DEFAULT_ENGINE = EngineConfig()
DEFAULT_IMPORT = ImportConfig()


def documents_command(
    sources: list[str],
    output: str,
    format: str = "auto",
    parts: int | None = None,
    engine: EngineConfig = DEFAULT_ENGINE,
) -> None:
    """Read dumps or texts and deal the documents to parts.

    Args:
        sources: files, folders or patterns, read in this order
        output: folder of the parts
        format: auto, mediawiki (XML dump), wikiextractor, jsonl or text (empty lines between
            documents); all but auto also hold for .bz2
        parts: how many parts; each is a unit of work of the next stages; null for one each 32 MiB
        engine: how the sources are run; the result does not depend on it
    """
    paths = expand_sources(sources)
    _say(make_documents(paths, as_path(output), format, parts, engine))


def sentences_command(
    input: str,
    output: str,
    sentences: SentencesConfig = SentencesConfig(),
    engine: EngineConfig = DEFAULT_ENGINE,
) -> None:
    """Split documents into sentences, one a line.

    Args:
        input: folder of stage documents
        output: folder of the text parts
        sentences: how to split
        engine: how the parts are run; the result does not depend on it
    """
    _say(make_sentences(as_path(input), as_path(output), sentences, engine))


def holdout_command(
    input: str, output: str, documents: int | None = 10_000, seed: int = 12345
) -> None:
    """List the documents that are kept for the evaluation, by md5.

    Args:
        input: folder of stage sentences, or text parts: a file, a folder or a pattern
        output: folder of evaluation.md5
        documents: how many different documents to draw; null lists all, as of MLPerf's eval.txt
        seed: of the draw
    """
    parts = _text_parts(input)
    if documents is None:
        _say(list_holdout(parts, as_path(output)))
    else:
        _say(draw_holdout(parts, as_path(output), documents, seed))


def samples_command(  # noqa: PLR0913 - one argument an option
    input: str,
    output: str,
    vocab: str,
    holdout: str | None = None,
    only_held_out: bool = False,
    builder: Literal["fast", "reference"] = "fast",
    lowercase: bool = True,
    seed: int = 12345,
    engine: EngineConfig = DEFAULT_ENGINE,
    **samples: Any,
) -> None:
    """Tokenise and make samples: sentence pairs with static masks.

    Args:
        input: folder of stage sentences, or text parts: a file, a folder or a pattern
        output: folder of the shards, or one .h5 file for the samples of all the text
        vocab: BERT's vocab.txt
        holdout: evaluation.md5 of stage holdout, or another list of md5s
        only_held_out: make the samples of the held-out documents, not of the others
        builder: fast, or reference (the very samples of the public script)
        lowercase: lower-case the text and strip accents
        seed: of pairs and masks
        engine: how the parts are run; the result does not depend on it
    """
    chosen = HoldOut() if holdout is None else read_holdout(as_path(holdout), only_held_out)
    vocabulary, config = load_vocabulary(as_path(vocab)), SamplesConfig(**samples)
    recipe = Recipe(vocabulary, lowercase, config, chosen, seed, builder)
    parts, target = _text_parts(input), as_path(output)
    if target.suffix == ".h5":
        entry = make_shard(parts, target, recipe)
        _say(Manifest("samples", seed, recipe.settings, parts.sources, [entry]))
    else:
        _say(make_samples(parts, target, recipe, engine))


def import_command(
    sources: list[str],
    output: str,
    vocab: str,
    records: ImportConfig = DEFAULT_IMPORT,
    engine: EngineConfig = DEFAULT_ENGINE,
) -> None:
    """Import TFRecord or HDF5 files of samples that other programs wrote.

    Args:
        sources: files, folders or patterns, in this order; each becomes a shard
        output: folder of the shards
        vocab: the vocabulary that they were made with
        records: what they are
        engine: how the files are run; the result does not depend on it
    """
    vocabulary = load_vocabulary(as_path(vocab))
    manifest = make_import(expand_sources(sources), as_path(output), vocabulary, records, engine)
    _say(manifest)
    for entry in manifest.files:
        print(f"  {entry.file}: {entry.counts['samples']:,} samples, content sha256 {entry.sha256}")


def export_command(input: str, output: str, compression: Literal["gzip"] | None = None) -> None:
    """Write samples as HDF5 of variable length, as other programs read it.

    Args:
        input: folder of samples or stripes, or one of its files
        output: the file
        compression: gzip, or null for none
    """
    entry = export_hdf5(shard_paths(as_path(input)), as_path(output), compression)
    print(f"{output}: {entry.counts['samples']:,} samples, sha256 {entry.sha256}")


def presort_command(input: str, output: str, seed: int = 12345, **presort: Any) -> None:
    """Shuffle, sort by length and deal into stripes, in bounded memory.

    Args:
        input: folder of stage samples, or of stage import
        output: folder of the stripes
        seed: of the shuffle
    """
    _say(make_stripes(as_path(input), as_path(output), PresortConfig(**presort), seed))


def vocabulary_command(
    sources: list[str], output: str, size: int = 30_522, lowercase: bool = True
) -> None:
    """Train a WordPiece vocabulary on the documents of dumps or texts.

    Args:
        sources: files, folders or patterns
        output: the vocab.txt
        size: the most tokens, special ones included
        lowercase: lower-case the text and strip accents
    """
    paths, target = expand_sources(sources), as_path(output)
    if any(target.exists() and target.samefile(path) for path in paths):
        raise ValueError(f"output '{output}': is one of the sources; choose another file")
    texts = (document.text for path in paths for document in DocumentReader(path))
    vocabulary = train_vocabulary(texts, size, lowercase, target)
    print(f"{output}: {len(vocabulary):,} tokens, sha256 {vocabulary.sha256}")


def run_all_command(**settings: Any) -> None:
    """Run all stages; what is already there with the same inputs and settings is kept."""
    config = PipelineConfig(**settings)
    for manifest in run_pipeline(config):
        _say(manifest)
    print(*report(as_path(config.output)), sep="\n", flush=True)


def inspect_command(path: str, sample: int | None = None, vocab: str | None = None) -> None:
    """Say what a stage's folder holds, or show a sample in words, masks marked.

    Args:
        path: folder of any stage, or a file of samples
        sample: its place in the folder's order, or its row in the file; of a file the first
        vocab: the vocabulary; null for the vocab.txt beside the samples
    """
    found = as_path(path)
    if sample is None and not found.is_file():
        _say(read_manifest(found))
    else:
        given = None if vocab is None else as_path(vocab)
        print(*show_sample(found, sample or 0, given), sep="\n")


def digest_command(path: str) -> None:
    """Print the digest of samples as MLPerf's reference would write them.

    Args:
        path: folder of samples or stripes, or one of its files
    """
    shards = [Shard(file) for file in shard_paths(as_path(path))]
    samples = (shard.sample(row) for shard in shards for row in range(len(shard)))
    header = shards[0].header
    records, sha256 = canonical_digest(samples, header.max_seq_length, header.max_predictions)
    print(f"records {records} sha256 {sha256}")


def verify_command(folder: str, samples: str | None = None, holdout: str | None = None) -> None:
    """Read a stage's files whole: are digests, counts and every sample right?

    Args:
        folder: of any stage
        samples: for stripes, the folder they were made of: each sample is there exactly once
        holdout: evaluation.md5: none of its documents is trained on
    """
    source = None if samples is None else as_path(samples)
    listed = None if holdout is None else as_path(holdout)
    for line in verify_folder(as_path(folder), source, listed):
        print(line, flush=True)


def stats_command(folder: str, png: str | None = None) -> None:
    """Print the lengths of samples as a table, and what they are made of.

    Args:
        folder: of samples or stripes
        png: also draw the lengths into this file
    """
    statistics = statistics_of(as_path(folder))
    print(*statistics_lines(statistics), sep="\n")
    Console().print(length_table(statistics.histogram))
    if png is not None:
        draw_histogram(statistics.histogram, as_path(png))
        print(png)


def report_command(folder: str) -> None:
    """What came in, was dropped, cut and made, by the folders of a finished run.

    Args:
        folder: the output of run
    """
    print(*report(as_path(folder)), sep="\n")


def official_command(folder: str, workers: int = 1, output: str | None = None) -> None:
    """Check MLPerf's published files and say what preparing them takes.

    Args:
        folder: with all that was downloaded, at any depth
        workers: processes at once
        output: write the settings for `run` into run.yaml of this folder, for its own output
    """
    download = find_download(as_path(folder))
    for name, path in download.files.items():
        print(f"{name}: as published ({path})")
    settings = settings_for(download, as_path(output or "data/mlperf"))
    print(*expected(download, workers), sep="\n")
    if output is not None:
        with replacing(as_path(output) / "run.yaml") as temporary:
            temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def _text_parts(text: str) -> TextParts:
    path = as_path(text)
    if (path / "manifest.json").is_file():
        return stage_parts(path)
    return given_parts(expand_sources([text]))


def _say(manifest: Manifest) -> None:
    print(*summary(manifest), sep="\n", flush=True)
