"""Commands that make something: the stages, imports and exports, a vocabulary."""

from typing import Any, Literal

from dataprep.documents import DocumentReader
from dataprep.engine import EngineConfig
from dataprep.holdout import HoldOut, draw_holdout, list_holdout, read_holdout
from dataprep.imports import ImportConfig, export_hdf5
from dataprep.inspection import shard_paths, summary
from dataprep.manifest import Manifest
from dataprep.parts import TextParts, given_parts, stage_parts
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.presort import PresortConfig
from dataprep.report import report
from dataprep.sample_stages import Recipe, make_import, make_samples, make_shard, make_stripes
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.source_files import expand_sources
from dataprep.storage import as_path
from dataprep.text_stages import make_documents, make_sentences
from dataprep.tokenization import load_vocabulary
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


def _text_parts(text: str) -> TextParts:
    path = as_path(text)
    if (path / "manifest.json").is_file():
        return stage_parts(path)
    return given_parts(expand_sources([text]))


def _say(manifest: Manifest) -> None:
    print(*summary(manifest), sep="\n", flush=True)
