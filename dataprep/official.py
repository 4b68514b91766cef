"""The files that MLPerf publishes for BERT: are they whole, and what does preparing them take?

Sizes and md5s are those of MLCommons' download page and of the reference's README (training v5.0).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DUMP = "enwiki-20200101-pages-articles-multistream.xml.bz2"
CHECKPOINT = "model.ckpt-28252"
EVALUATION = "eval.txt"
PARTS = 500

# name -> bytes, md5
FILES: dict[str, tuple[int, str]] = {
    "vocab.txt": (231_508, "64800d5d8528ce344256daf115d4965e"),
    "bert_config.json": (314, "7f59165e21b7d566db610ff6756c926b"),
    f"{CHECKPOINT}.data-00000-of-00001": (4_034_713_312, "50797acd537880bfb5a7ade80d976129"),
    f"{CHECKPOINT}.index": (17_371, "f97de3ae180eb8d479555c939d50d048"),
    f"{CHECKPOINT}.meta": (24_740_228, "dbd16c731e8a8113bc08eeed0326b8e7"),
    DUMP: (17_751_214_669, "00d47075e0f583fb7c0791fac1c57cb3"),
    EVALUATION: (32_851_144, "2a220f790517261547b1b45ed3ada07a"),
    f"part-00000-of-00{PARTS}": (27_150_902, "a64a7c31eff5cd38ae6d94f7a6229dab"),
    f"part-00499-of-00{PARTS}": (21_873_644, "b3b087ad24e3770d879a351664cebc5a"),
}

_SAMPLES_A_BYTE = 156.7e6 / (PARTS * 24.5e6)  # of text parts at dupe factor 10
_BYTES_A_SAMPLE = 107e9 / 156.7e6  # of a shard
# one core of a 2023 server, see docs/performance.md
_SAMPLES_A_SECOND = {"reference": 1000, "fast": 4000}
_PRESORT_SAMPLES_A_SECOND = 20_000
_MEGABYTES_A_WORKER = 700


@dataclass(frozen=True)
class Download:
    """What was found in a folder of downloads.

    Attributes:
        files: official name -> path; all have the published size and md5.
        parts: the text parts, in their order.
    """

    files: dict[str, Path]
    parts: list[Path]


def find_download(folder: Path) -> Download:
    """Find the official files anywhere below a folder and check them.

    Raises:
        ValueError: no such folder, a file that is not the published one, or missing text parts.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; name the one with what you downloaded")
    found = {path.name: path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: found[name] for name in FILES if name in found}
    for name, path in files.items():
        _check(path, *FILES[name])
    names = [f"part-{number:05d}-of-{PARTS:05d}" for number in range(PARTS)]
    missing = [name for name in names if name not in found]
    if len(missing) not in (0, PARTS):
        raise ValueError(f"{folder}: {len(missing)} of {PARTS} text parts are missing, the first "
                         f"{missing[0]}; download them")  # fmt: skip
    return Download(files, [found[name] for name in names if not missing])


def _check(path: Path, size: int, md5: str) -> None:
    found = path.stat().st_size
    if found != size:
        raise ValueError(f"{path}: {found:,} bytes, the published file has {size:,}; get it again")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != md5:
        raise ValueError(f"{path}: md5 {digest}, the published file has {md5}; get it again")


def expected(download: Download, workers: int) -> Iterator[str]:
    """What preparing it takes, in lines; figures of docs/performance.md, to the order."""
    builder = "reference" if download.parts else "fast"
    text = sum(path.stat().st_size for path in download.parts) or PARTS * 24_500_000
    samples = text * _SAMPLES_A_BYTE
    hours = samples / _SAMPLES_A_SECOND[builder] / workers / 3600
    sorting = samples / _PRESORT_SAMPLES_A_SECOND / 3600
    disk = samples * _BYTES_A_SAMPLE
    yield f"about {samples / 1e6:.1f} million samples of {text / 1e9:.1f} GB of text"
    if not download.parts:
        yield "extraction of the dump: about 6 CPU-hours for each million articles"
    yield f"time: samples {hours:.1f} h with {workers} workers, presort {sorting:.1f} h"
    yield f"disk: {2 * disk / 1e9:.0f} GB, and {disk / 1e9:.0f} GB more while sorting"
    memory = workers * _MEGABYTES_A_WORKER / 1000
    yield f"memory: {memory:.1f} GB for {workers} workers, 2 GB to sort"
