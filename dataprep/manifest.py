"""The ``manifest.json`` of a stage's folder: what made it, from what, and what lies there.

A manifest is written last and by rename: a folder without one is unfinished, and no later stage
starts on it. It is metadata; reading it and calling ``stat`` on the files touches no training data.
"""

import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from dataprep.storage import replacing

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 2
_VERSIONED = ("bert-sprint", "h5py", "mwparserfromhell", "nltk", "numpy", "tokenizers")


@dataclass(frozen=True)
class FileEntry:
    """One file of a stage's folder.

    ``bytes`` and ``sha256`` are those of the file, or for shards the digest of their content;
    ``counts`` are what the stage counted while making it.
    """

    file: str
    bytes: int
    sha256: str
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` holds.

    ``settings`` are the stage's own, ``sources`` maps each source file to its sha256. ``lengths``
    (sample length -> samples), ``shard_header`` and ``most_frequent_label`` are there for folders
    of shards. ``versions`` are those of this package and of what may decide the result.
    """

    stage: str
    seed: int
    settings: dict[str, Any]
    sources: dict[str, str]
    files: list[FileEntry]
    shard_header: dict[str, Any] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    most_frequent_label: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The sums over all files of what the stage counted."""
        total: dict[str, int] = {}
        for entry in self.files:
            for name, count in entry.counts.items():
                total[name] = total.get(name, 0) + count
        return total

    @property
    def samples(self) -> int:
        """The number of samples of a folder of shards."""
        return sum(self.lengths.values())

    @property
    def file_digests(self) -> dict[str, str]:
        """The sha256 of each file."""
        return {entry.file: entry.sha256 for entry in self.files}

    def write(self, folder: Path) -> Self:
        """Write ``folder/manifest.json``, whole or not at all."""
        content = {"version": MANIFEST_VERSION, **asdict(self), "versions": _versions()}
        with replacing(folder / MANIFEST_NAME) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return self


def read_manifest(folder: Path, stages: tuple[str, ...] = ()) -> Manifest:
    """Read ``folder/manifest.json`` and compare the files it names with what ``stat`` says.

    Args:
        folder: a stage's folder.
        stages: the stages whose output is wanted; empty for any.

    Raises:
        ValueError: no manifest, another version or stage, a file missing or of another size.
    """
    path = folder / MANIFEST_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content.pop("version")
        if found != MANIFEST_VERSION:
            raise ValueError(
                f"{path}: manifest version {found}, this release reads {MANIFEST_VERSION}; "
                "prepare the data again"
            )
        content["files"] = [FileEntry(**entry) for entry in content["files"]]
        content["lengths"] = {int(k): int(v) for k, v in content["lengths"].items()}
        manifest = Manifest(**content)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{path}: no such file, so the folder is not a finished stage of dataprep; "
            "run the stage that makes it first"
        ) from None
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a manifest of dataprep ({error}); make it again") from None
    if stages and manifest.stage not in stages:
        raise ValueError(
            f"{path}: made by stage '{manifest.stage}', wanted: {' or '.join(stages)}; "
            "name the folder of that stage"
        )
    _check_files(folder, manifest)
    return manifest


def refuse_another_stage(folder: Path, stage: str) -> None:
    """Keep a stage from taking the place of what another one made.

    Raises:
        ValueError: the folder's manifest is that of another stage.
    """
    try:
        found = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))["stage"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # not a finished stage's folder
    if found != stage:
        raise ValueError(
            f"{folder}: holds what stage '{found}' made, '{stage}' would delete it; choose another "
            "output"
        )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _check_files(folder: Path, manifest: Manifest) -> None:
    for entry in manifest.files:
        path = folder / entry.file
        if Path(entry.file).name != entry.file:
            raise ValueError(f"{folder / MANIFEST_NAME}: file '{entry.file}' lies outside it")
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise ValueError(
                f"{path}: missing, though the manifest names it; run stage '{manifest.stage}' again"
            ) from None
        if size != entry.bytes:
            raise ValueError(
                f"{path}: {size} bytes, the manifest says {entry.bytes}; delete it and run stage "
                f"'{manifest.stage}' again"
            )
