"""MLPerf's published files: told apart from others, and turned into the settings of a run."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from launch import ROOT

from dataprep import official
from dataprep.official import Download, expected, find_download, settings_for
from dataprep.pipeline import PipelineConfig


def published(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.md5(content).hexdigest()


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of downloads, with three parts, and what would then be the published files."""
    folder = tmp_path / "my downloads"
    (folder / "results4").mkdir(parents=True)
    names = {"vocab.txt": "", "eval.txt": ""}
    names |= {f"part-{i:05d}-of-00003": "results4/" for i in range(3)}
    for name, where in names.items():
        (folder / where / name).write_bytes(f"content of {name}\n".encode())
    files = {name: published(f"content of {name}\n".encode()) for name in names}
    monkeypatch.setattr(official, "PARTS", 3)
    monkeypatch.setattr(official, "FILES", files)
    return folder


def test_whole_files_become_a_run_of_the_reference(downloads: Path, tmp_path: Path) -> None:
    download = find_download(downloads)
    assert [path.name for path in download.parts] == [f"part-{i:05d}-of-00003" for i in range(3)]
    config = PipelineConfig(**settings_for(download, tmp_path / "out"))
    assert (config.format, config.builder, config.evaluation_samples) == ("parts", "reference", 1e4)
    assert config.samples.max_seq_length == 512 and config.samples.dupe_factor == 10
    assert config.evaluation_sources == [str(downloads / "eval.txt")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"content of vocab.tx?\n", r"vocab.txt: md5 .*, the published file has .*"),
        ("eval.txt", b"short", r"eval.txt: 5 bytes, the published file has 20; get it again"),
        ("results4/part-00001-of-00003", None, r"1 of 3 text parts are missing, the first part-"),
        ("eval.txt", None, "eval.txt is missing beside the text parts"),
        ("vocab.txt", None, "vocab.txt is missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    downloads: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (downloads / name).unlink()
    else:
        (downloads / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        settings_for(find_download(downloads), downloads)


def test_without_parts_the_dump_is_read(tmp_path: Path) -> None:
    files = {"vocab.txt": tmp_path / "vocab.txt", official.DUMP: tmp_path / official.DUMP}
    settings = settings_for(Download(files, []), tmp_path / "out")
    assert (settings["format"], settings["sources"]) == ("mediawiki", [str(files[official.DUMP])])
    with pytest.raises(ValueError, match="neither 500 text parts nor enwiki-20200101"):
        settings_for(Download({"vocab.txt": tmp_path}, []), tmp_path)
    lines = "\n".join(expected(Download(files, []), 16))
    assert "million samples" in lines and "open division" in lines


def test_expected_for_the_published_parts(tmp_path: Path) -> None:
    parts = []
    for number in range(500):
        path = tmp_path / str(number)
        path.touch()
        os.truncate(path, 24_500_000)  # without taking disk
        parts.append(path)
    lines = "\n".join(expected(Download({}, parts), workers=32))
    assert "about 156.7 million samples of 12.2 GB of text" in lines
    assert "disk: 214 GB, and 214 GB more while sorting" in lines


def test_the_script_checks_first(shared_data: Path, tmp_path: Path) -> None:
    """Its first lines, with the real vocabulary and nothing else."""
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    vocabulary = shared_data / "vocab" / "bert-uncased-vocab.txt"
    (downloads / "vocab.txt").write_bytes(vocabulary.read_bytes())
    script = ROOT / "run_scripts" / "prepare_data.sh"
    # an environment that is set up already: this one
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (environment / ".installed-demo").touch()
    done = subprocess.run(
        [str(script), str(downloads), str(tmp_path / "out")],
        capture_output=True, text=True, env={**os.environ, "VENV": str(environment)},
        timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "vocab.txt: as published" in done.stdout
    assert "neither 500 text parts nor enwiki-20200101" in done.stderr
    assert not (tmp_path / "out").exists()


def test_settings_can_be_written_and_read_again(downloads: Path, tmp_path: Path) -> None:
    settings = settings_for(find_download(downloads), tmp_path)
    assert yaml.safe_load(yaml.safe_dump(settings)) == settings
