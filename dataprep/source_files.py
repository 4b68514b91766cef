"""The files that a list of paths, folders and patterns stands for."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

from dataprep.storage import as_path, is_local


def expand_sources(patterns: Sequence[str]) -> list[Path]:
    """The files of a list of sources: the patterns in their order, each one's files sorted.

    Args:
        patterns: each a file, a folder (all files below it), a URL of one, or a glob pattern
            (``*``, ``?``, ``[]``; ``**`` for folders at any depth), whose folders count as if they
            were named. A path that exists is no pattern. Hidden files and folders are passed over
            unless named.

    Returns:
        The files; those of one pattern in the order of their paths' characters, with ``/`` between
        folders, whatever the file system's own order is.

    Raises:
        ValueError: nothing given, a pattern without a file (named), a file that comes twice.
    """
    if not patterns:
        raise ValueError("sources: none given; name at least one file, folder or pattern")
    files: list[Path] = []
    came_from: dict[Path, str] = {}
    for pattern in patterns:
        found = sorted(set(_files(pattern)), key=str)
        if not found:
            raise ValueError(f"sources: '{pattern}' {_why_nothing(pattern)}")
        for path in found:
            real = path.resolve() if is_local(path) else path
            if real in came_from:
                raise ValueError(
                    f"sources: {path} comes twice, by '{came_from[real]}' and by '{pattern}'; "
                    "name it once"
                )
            came_from[real] = pattern
        files += found
    return files


def _files(pattern: str) -> Iterator[Path]:
    if "://" in pattern:
        yield from _remote_files(pattern)
        return
    exact = Path(pattern).exists()
    for path in [Path(pattern)] if exact else map(Path, glob.glob(pattern, recursive=True)):
        if path.is_dir():
            yield from (
                below
                for below in path.rglob("*")
                if below.is_file()
                and not any(part.startswith(".") for part in below.relative_to(path).parts)
            )
        elif path.is_file():
            yield path


def _remote_files(pattern: str) -> Iterator[Path]:
    root, _, rest = pattern.partition("://")[2].partition("/")
    path = as_path(pattern)
    if glob.has_magic(rest):
        yield from as_path(f"{pattern.partition('://')[0]}://{root}/").glob(rest)
    elif path.is_dir():
        yield from (below for below in path.rglob("*") if below.is_file())
    elif path.is_file():
        yield path


def _why_nothing(pattern: str) -> str:
    if Path(pattern).is_dir():
        return "is a folder without files; give one that holds some"
    if glob.has_magic(pattern):
        return "matches no file; check the pattern"
    return "is no file; check the path"
