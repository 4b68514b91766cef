"""Which files a list of sources stands for, and in which order."""

from pathlib import Path

import pytest

from dataprep.source_files import expand_sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files at several depths, in names whose order differs from that of their creation."""
    for name in ("b/wiki_1", "b/wiki_00", "a b/x.txt", "B.txt", "a.txt", ".hidden", ".git/config"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path


def names(folder: Path, *patterns: str) -> list[str]:
    files = expand_sources([str(folder / pattern) for pattern in patterns])
    return [path.relative_to(folder).as_posix() for path in files]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([""], ["B.txt", "a b/x.txt", "a.txt", "b/wiki_00", "b/wiki_1"]),
        (["b"], ["b/wiki_00", "b/wiki_1"]),
        (["*.txt"], ["B.txt", "a.txt"]),
        (["**/*.txt"], ["B.txt", "a b/x.txt", "a.txt"]),
        (["?", "a b"], ["b/wiki_00", "b/wiki_1", "a b/x.txt"]),
        (["b/wiki_[01]", "a.txt"], ["b/wiki_1", "a.txt"]),
        (["a b/x.txt"], ["a b/x.txt"]),
        (["a *"], ["a b/x.txt"]),
        ([".hidden"], [".hidden"]),
    ],
)
def test_files_in_a_defined_order(folder: Path, patterns: list[str], expected: list[str]) -> None:
    assert names(folder, *patterns) == expected


def test_a_path_that_exists_is_no_pattern(folder: Path) -> None:
    (folder / "[b]").mkdir()
    (folder / "[b]" / "part*").write_text("x")
    assert names(folder, "[b]") == names(folder, "[b]/part*") == ["[b]/part*"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("part-*", r"part-\*' matches no file; check the pattern"),
        ("my files/*.xml", r"my files/\*.xml' matches no file"),
        ("none.txt", "none.txt' is no file; check the path"),
        ("empty", "empty' is a folder without files"),
    ],
)
def test_a_pattern_without_a_file_is_named(folder: Path, pattern: str, message: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match=message) as error:
        names(folder, "a.txt", pattern)
    assert "\n" not in str(error.value)


def test_no_source() -> None:
    with pytest.raises(ValueError, match="sources: none given"):
        expand_sources([])


@pytest.mark.parametrize("again", ["b/wiki_1", "b/*", "", "b/../b/wiki_1", "link"])
def test_a_file_that_comes_twice(folder: Path, again: str) -> None:
    (folder / "link").symlink_to(folder / "b" / "wiki_1")
    with pytest.raises(ValueError, match="comes twice, by '.*wiki_1' and by '.*'; name it once"):
        names(folder, "b/wiki_1", again)
