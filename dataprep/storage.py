"""Where folders lie: on a local file system, or under a URL that fsspec knows.

A remote folder behaves like a local path: what must be local, such as an HDF5 file, is written to a
temporary file that is then uploaded, or fetched before it is opened.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast


def as_path(text: str) -> Path:
    """A path, or for ``scheme://...`` an object that behaves like one.

    Raises:
        ValueError: a URL without the packages for it, or of an unknown scheme.
    """
    if "://" not in text:
        return Path(text)
    try:
        from upath import UPath
    except ImportError:
        raise ValueError(f"{text}: a URL needs pip install 'bert-sprint[spark]'") from None
    try:
        path = UPath(text)
        _ = path.fs  # connects
    except (ValueError, ImportError, OSError) as error:
        raise ValueError(f"{text}: {error}; give a path or a URL that fsspec can open") from None
    return cast(Path, path)


def is_local(path: Path) -> bool:
    """Whether the operating system can open a path."""
    return isinstance(path, Path)


@contextlib.contextmanager
def fetched(path: Path) -> Iterator[Path]:
    """A local file with the content of ``path``, deleted at the end if it had to be fetched."""
    if is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / path.name
        _remote(path).fs.get_file(_remote(path).path, str(local))
        yield local


@contextlib.contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Name what was being written when the disk was full: the error of the system does not.

    Raises:
        ValueError: no space is left.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # the latter is h5py's, on closing a file
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise ValueError(
            f"{path}: no space left on its disk; free some and run again, or choose another output"
        ) from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a local temporary name; it takes the place of ``path`` on success, else is deleted.

    Raises:
        ValueError: ``path`` is a folder.
    """
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_local(path):
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / path.name
            yield local
            _upload(local, path)
        return
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with naming_full_disk(path):
            yield temporary
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _upload(local: Path, path: Path) -> None:
    """Under another name first, so that a file of this name is always whole."""
    remote = _remote(path)
    temporary = f"{remote.path}.tmp-{os.getpid()}"
    try:
        remote.fs.put_file(str(local), temporary)
        if remote.fs.exists(remote.path):
            remote.fs.rm_file(remote.path)
        remote.fs.mv(temporary, remote.path)
    except BaseException:
        with contextlib.suppress(Exception):
            remote.fs.rm_file(temporary)
        raise


@contextlib.contextmanager
def only_user(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine from working in a folder at the same time.

    Raises:
        ValueError: another one does.
    """
    if not is_local(folder):
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{folder}: another process prepares it; wait for it, or choose another output"
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove_stale(folder: Path) -> None:
    """Delete temporary files of processes that ended before they could rename them."""
    if not is_local(folder):  # nobody knows whether a process of another machine still runs
        return
    for path in folder.glob("*.tmp-*"):
        process = path.name.rpartition("-")[2]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            path.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _remote(path: Path) -> Any:
    """A path of a remote file system, which has ``fs`` and ``path``."""
    return path
