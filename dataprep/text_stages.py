"""The stages on text: documents and sentences.

Each reads the folder of the one before and leaves a folder with a manifest.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from dataprep.documents import Document, DocumentReader
from dataprep.engine import SERIAL, EngineConfig, Job, run_jobs, stage_inputs
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.parts import deal_parts
from dataprep.sentences import SentencesConfig, build_splitter
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
        jobs.append(Job(f"documents-{number:05d}", run, inputs))
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
        if counts[-1]["documents"] < 2:
            total = sum(count["documents"] for count in counts)
            raise ValueError(
                f"{sources[0]}: {total} documents for {len(targets)} parts, but a part needs two "
                "for next-sentence prediction; lower parts or give a larger corpus"
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

    This is the form of MLPerf's text parts.
    """
    build_splitter(config)  # refuses a wrong configuration before any work
    before = read_manifest(source, ("documents",))
    settings = {key: str(value) for key, value in asdict(config).items()}
    jobs = []
    for entry in before.files:
        target = folder / f"{Path(entry.file).stem}.txt"
        run = partial(_split_part, source / entry.file, target, config)
        inputs = stage_inputs("sentences", settings, 0, [entry.sha256])
        jobs.append(Job(target.name, run, inputs))
    entries = run_jobs(folder, jobs, engine)
    return Manifest("sentences", 0, settings, before.file_digests, entries).write(folder)


def _split_part(source: Path, target: Path, config: SentencesConfig) -> list[FileEntry]:
    split = build_splitter(config)
    counts: Counter[str] = Counter()
    with replacing(target) as temporary:
        with source.open(encoding="utf-8") as lines, temporary.open("w", encoding="utf-8") as out:
            for line in lines:
                sentences = split(json.loads(line)["text"])
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
