"""The stages on text: documents and sentences.

Each reads the folder of the one before and leaves a folder with a manifest.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dataprep.documents import Document, DocumentReader
from dataprep.engine import SERIAL, EngineConfig, Job, run_jobs, stage_inputs
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.parts import deal_parts
from dataprep.progress import advance
from dataprep.punkt_training import train_punkt
from dataprep.sentences import PUNKT_FILES, SentencesConfig, build_splitter
from dataprep.storage import file_sha256, replacing


def make_documents(
    sources: Sequence[Path],
    folder: Path,
    format: str,
    parts: int | None = None,
    engine: EngineConfig = SERIAL,
) -> Manifest:
    """Read the documents of dumps or texts and deal them to parts, one JSON object a line.

    Neighbouring sources are read together until there are no more groups than parts; each group is
    a job, and deals its documents round-robin to its share of the parts.

    Args:
        sources: files, in this order.
        folder: of the parts.
        format: of the sources, see ``documents.DOCUMENT_FORMATS``.
        parts: how many; each is one job of the next stages. By default one for each 32 MiB of
            sources.
        engine: runs the groups.

    Raises:
        ValueError: a source is unreadable or empty; fewer than two documents a part.
    """
    if not sources:
        raise ValueError("sources: none given; name at least one dump or text file")
    for path in sources:
        if not path.is_file():
            raise ValueError(f"{path}: no such file; give a dump or a text file as source")
        if folder.resolve() in path.resolve().parents:
            raise ValueError(f"{path}: is a source inside the output {folder}; choose another one")
    groups = deal_parts([path.stat().st_size for path in sources], parts)
    digests = {str(path): file_sha256(path) for path in sources}
    settings = {"format": format, "parts": sum(group.parts for group in groups)}
    jobs, first = [], 0
    for number, group in enumerate(groups):
        members = [sources[i] for i in group.sources]
        targets = [folder / f"part-{first + i:05d}.jsonl" for i in range(group.parts)]
        first += group.parts
        run = partial(_deal_documents, members, targets, format)
        names = [digests[str(path)] for path in members]
        inputs = stage_inputs("documents", [format, targets[0].name, group.parts], 0, names)
        size = sum(path.stat().st_size for path in members)
        jobs.append(Job(f"documents-{number:05d}", run, inputs, size))
    entries = run_jobs(folder, jobs, engine)
    return Manifest("documents", 0, settings, digests, entries).write(folder)


def _deal_documents(
    sources: Sequence[Path], targets: Sequence[Path], format: str
) -> list[FileEntry]:
    counts: list[Counter[str]] = [Counter() for _ in targets]
    with ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in targets]
        with ExitStack() as files:
            streams = [files.enter_context(p.open("w", encoding="utf-8")) for p in temporaries]
            for number, document in enumerate(_documents(sources, format, counts[0])):
                line = json.dumps(asdict(document), ensure_ascii=False)
                streams[number % len(targets)].write(line + "\n")
                counts[number % len(targets)]["documents"] += 1
                advance(documents=1)
        if counts[-1]["documents"] < 2:
            total = sum(count["documents"] for count in counts)
            remedy = "lower parts or give a larger corpus" if total > 1 else "give a larger corpus"
            raise ValueError(
                f"{sources[0]}: {total} documents for {len(targets)} parts, but a part needs two "
                f"for next-sentence prediction; {remedy}"
            )
        return [
            text_entry(path.name, temporary, count)
            for path, temporary, count in zip(targets, temporaries, counts, strict=True)
        ]


def _documents(sources: Sequence[Path], format: str, counts: Counter[str]) -> Iterator[Document]:
    for source in sources:
        reader = DocumentReader(source, format)
        yield from reader
        dropped = {name: n for name, n in reader.counts.items() if name != "documents"}
        counts.update(dropped)


def make_sentences(
    source: Path, folder: Path, config: SentencesConfig, engine: EngineConfig = SERIAL
) -> Manifest:
    """Split documents into sentences, one a line, an empty line between documents.

    This is the form of MLPerf's text parts. Where punkt needs a model and none is given, one is
    trained on the documents first, into the folder ``punkt`` of this one.
    """
    before = read_manifest(source, ("documents",))
    settings: dict[str, Any] = {"splitter": config.splitter}
    if config.splitter == "punkt" and config.punkt_dir is None:
        config = replace(config, punkt_dir=folder / "punkt")
        settings["punkt_megabytes"] = config.punkt_megabytes
        _make_punkt([source / e.file for e in before.files], before, folder / "punkt", config)
    build_splitter(config)  # refuses a wrong configuration before any work
    if config.punkt_dir is not None:
        settings["punkt_sha256"] = [file_sha256(config.punkt_dir / name) for name in PUNKT_FILES]
    jobs = []
    for entry in before.files:
        target = folder / f"{Path(entry.file).stem}.txt"
        run = partial(_split_part, source / entry.file, target, config)
        inputs = stage_inputs("sentences", settings, 0, [entry.sha256])
        jobs.append(Job(target.name, run, inputs, entry.bytes))
    entries = run_jobs(folder, jobs, engine)
    return Manifest("sentences", 0, settings, before.file_digests, entries).write(folder)


def _make_punkt(
    sources: Sequence[Path], before: Manifest, folder: Path, config: SentencesConfig
) -> None:
    run = partial(_train_punkt, sources, folder, config.punkt_megabytes)
    digests = [entry.sha256 for entry in before.files]
    inputs = stage_inputs("punkt", config.punkt_megabytes, 0, digests)
    size = sum(entry.bytes for entry in before.files)
    run_jobs(folder, [Job("punkt", run, inputs, size)], SERIAL)


def _train_punkt(sources: Sequence[Path], folder: Path, megabytes: float) -> list[FileEntry]:
    train_punkt((text for source in sources for text in _texts(source)), folder, megabytes)
    return [text_entry(name, folder / name, Counter()) for name in PUNKT_FILES]


def _texts(source: Path) -> Iterator[str]:
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            text: str = json.loads(line)["text"]
            advance(bytes=len(line), documents=1)
            yield text


def _split_part(source: Path, target: Path, config: SentencesConfig) -> list[FileEntry]:
    split = build_splitter(config)
    counts: Counter[str] = Counter()
    with replacing(target) as temporary:
        with temporary.open("w", encoding="utf-8") as out:
            for sentences in map(split, _texts(source)):
                if not sentences:
                    counts["documents_without_sentences"] += 1
                    continue
                if counts["documents"]:
                    out.write("\n")
                out.writelines(f"{sentence}\n" for sentence in sentences)
                counts.update(documents=1, sentences=len(sentences))
        return [text_entry(target.name, temporary, counts)]


def text_entry(name: str, path: Path, counts: Counter[str]) -> FileEntry:
    """The entry of a text file that will be called ``name``."""
    return FileEntry(name, path.stat().st_size, file_sha256(path), dict(counts))
