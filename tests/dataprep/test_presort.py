"""The sorted stripes: one order whatever the memory, every sample once, nothing left behind."""

import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dataprep.blocks import Sample, SampleBlock, concatenate, offsets_of
from dataprep.picks import Picks
from dataprep.presort import PresortConfig, keys_of, open_files, presort
from dataprep.shards import Shard, ShardHeader, ShardWriter
from dataprep.spill import Buckets

ROOT = Path(__file__).resolve().parents[2]
HEADER = ShardHeader("ab" * 32, 1000, 128, 20, "fast", 1, "ef" * 32, False, {"a.txt": "cd" * 32})


def random_block(draw: np.random.Generator, count: int, longest: int = 60) -> SampleBlock:
    lengths = draw.integers(5, longest, count)
    masks = draw.integers(1, 4, count)
    total = int(masks.sum())
    return SampleBlock(
        tokens=draw.integers(0, 1000, int(lengths.sum())).astype(np.uint16),
        token_offsets=offsets_of(lengths),
        second_segment_start=(lengths // 2).astype(np.uint16),
        next_sentence_label=draw.integers(0, 2, count).astype(np.uint8),
        mlm_positions=draw.integers(1, 4, total).astype(np.uint16),
        mlm_ids=draw.integers(0, 1000, total).astype(np.uint16),
        mlm_offsets=offsets_of(masks),
    )


def write_block(path: Path, block: SampleBlock) -> Path:
    with ShardWriter(path, HEADER) as writer:
        writer.write_block(block)
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, draw = tmp_path_factory.mktemp("sources"), np.random.default_rng(5)
    sizes = [700, 0, 1, 299, 1000]
    return [
        write_block(folder / f"part-{i}.h5", random_block(draw, size))
        for i, size in enumerate(sizes)
    ]


def samples_of(paths: list[Path]) -> list[tuple[bytes | int, ...]]:
    return [
        tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in shard.sample(row))
        for shard in map(Shard, paths)
        for row in range(len(shard))
    ]


def stripes_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("stripe-*.h5"))


def in_order(folder: Path) -> list[tuple[bytes | int, ...]]:
    stripes = [samples_of([path]) for path in stripes_of(folder)]
    total = sum(map(len, stripes))
    return [stripes[place % len(stripes)][place // len(stripes)] for place in range(total)]


def test_it_is_the_plain_sort_by_length_and_key(sources: list[Path], tmp_path: Path) -> None:
    presort(sources, tmp_path, PresortConfig(7), seed=3)
    samples = samples_of(sources)
    keys = keys_of(np.arange(len(samples)), 3).tolist()
    order = sorted(range(len(samples)), key=lambda i: (len(samples[i][0]), keys[i]))
    assert in_order(tmp_path) == [samples[i] for i in order]


def test_the_shuffle_within_a_length_is_global_and_seeded() -> None:
    places = np.arange(10_000)
    keys = keys_of(places, 1)
    assert len(set(keys.tolist())) == len(places)
    ranks = np.argsort(np.argsort(keys))
    assert abs(np.corrcoef(ranks, places)[0, 1]) < 0.04
    assert abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) < 0.04
    assert abs(np.corrcoef(ranks, np.argsort(np.argsort(keys_of(places, 2))))[0, 1]) < 0.04


@pytest.mark.parametrize("size", [2_000, 30_000, 10_000_000])
def test_the_memory_does_not_show_in_the_result(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    config = PresortConfig(3)
    expected = presort(sources, tmp_path / "a", config, seed=3)
    monkeypatch.setattr(PresortConfig, "bucket_bytes", size)
    assert presort(sources, tmp_path / "b", config, seed=3) == expected
    assert config.settings == PresortConfig(3, memory_mb=100).settings


def test_case_12_the_multiset_is_kept_and_no_two_stripes_are_alike(
    sources: list[Path], tmp_path: Path
) -> None:
    entries = presort(sources, tmp_path, PresortConfig(8), seed=3)
    assert Counter(samples_of(stripes_of(tmp_path))) == Counter(samples_of(sources))
    assert len({entry.sha256 for entry in entries}) == 8
    assert [entry.counts["samples"] for entry in entries] == [250] * 8
    assert Shard(stripes_of(tmp_path)[0]).header == replace(HEADER, seed=3)


def test_case_17_same_seed_same_digests_another_seed_or_other_data_others(
    sources: list[Path], tmp_path: Path
) -> None:
    made = [
        presort(paths, tmp_path / name, PresortConfig(2), seed)
        for name, paths, seed in (
            ("a", sources, 3),
            ("b", sources, 3),
            ("c", sources, 4),
            ("d", sources[:-1], 3),
        )
    ]
    assert made[0] == made[1]
    assert made[0] != made[2] and made[0] != made[3]


def test_case_1_peak_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    draw, config = np.random.default_rng(1), PresortConfig(4, memory_mb=64)
    block = random_block(draw, 20_000, longest=1000)
    paths = [write_block(tmp_path / f"part-{i}.h5", block) for i in range(6)]
    assert sum(path.stat().st_size for path in paths) > 110 << 20
    tracemalloc.start()
    try:
        presort(paths, tmp_path / "out", config, seed=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < config.memory_mb << 20
    lengths = [Shard(path).lengths() for path in stripes_of(tmp_path / "out")]
    dealt = np.stack(lengths, axis=1).ravel().astype(int)
    assert len(dealt) == 120_000 and (np.diff(dealt) >= 0).all()


def test_case_22_too_little_memory_is_one_line_before_any_work(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PresortConfig, "bucket_bytes", 100)
    with pytest.raises(ValueError, match=r"memory_mb 2048 is too little for 0\.\d GB .* at least"):
        presort(sources, tmp_path / "out", PresortConfig(4), seed=1)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="memory_mb 63 must be at least 64 for 8 stripes"):
        PresortConfig(memory_mb=63)


def test_five_hundred_stripes_under_a_low_soft_limit(sources: list[Path], tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        presort(sources, tmp_path, PresortConfig(500), seed=1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [len(Shard(path)) for path in stripes_of(tmp_path)] == [4] * 500
    assert Counter(samples_of(stripes_of(tmp_path))) == Counter(samples_of(sources))


def test_more_stripes_than_files_may_be_open_are_refused() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("the hard limit of open files is infinite")
    refused = pytest.raises(ValueError, match=rf"the limit is {hard} .* take at most \d+ stripes")
    with refused, open_files(hard + 8):
        pass


def test_what_does_not_fit_together_is_one_line(sources: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="2000 samples do not fill 2001 stripes"):
        presort(sources, out, PresortConfig(2001), seed=1)
    with pytest.raises(ValueError, match="2001 samples wanted, the source holds 2000; lower it"):
        presort(sources, out, PresortConfig(1, samples=2001), seed=1)
    with pytest.raises(ValueError, match="needs a shard"):
        presort([], out, PresortConfig(1), seed=1)
    with ShardWriter(tmp_path / "other.h5", replace(HEADER, vocabulary_sha256="00")):
        pass
    with pytest.raises(ValueError, match=r"other\.h5: made with another vocabulary"):
        presort([*sources, tmp_path / "other.h5"], out, PresortConfig(1), seed=1)
    with pytest.raises(ValueError, match="pick 'first'; choose stride or random"):
        PresortConfig(pick="first")  # type: ignore[arg-type]
    assert not out.exists()


def test_a_failure_leaves_nothing(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def fail(self: ShardWriter, block: SampleBlock) -> None:
        written.append(len(block))
        if len(written) == 3:
            raise OSError("disk full")

    monkeypatch.setattr(ShardWriter, "write_block", fail)
    with pytest.raises(OSError, match="disk full"):
        presort(sources, tmp_path, PresortConfig(4), seed=1)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_at_the_end_leaves_no_stripe(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ShardWriter._finish

    def fail_on_the_second(self: ShardWriter) -> None:
        if list(tmp_path.glob("*.h5")):
            raise OSError("disk full")
        finish(self)

    monkeypatch.setattr(ShardWriter, "_finish", fail_on_the_second)
    with pytest.raises(OSError, match="disk full"):
        presort(sources, tmp_path, PresortConfig(4), seed=1)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_nothing(sources: list[Path], tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from dataprep import presort as module
def stay(spill, buckets, writers):
    print("dealing", flush=True)
    time.sleep(60)
module._deal = stay
paths = [Path(name) for name in sys.argv[2:]]
module.presort(paths, Path(sys.argv[1]), module.PresortConfig(4), 1)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "out"), *map(str, sources)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == "dealing\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert os.listdir(tmp_path / "out") == []


# --- subsets --------------------------------------------------------------------------------------


def test_stride_is_record_floor_of_i_n_over_samples(sources: list[Path], tmp_path: Path) -> None:
    presort(sources, tmp_path, PresortConfig(1, samples=30), seed=1)
    samples = samples_of(sources)
    expected = Counter(samples[i * 2000 // 30] for i in range(30))
    assert Counter(samples_of(stripes_of(tmp_path))) == expected
    for total, wanted in ((1000, 7), (1000, 999), (17, 1), (5, 5)):
        picks = Picks(total, wanted, random=False, seed=1)
        parts = [picks.between(a, min(a + 3, total)) for a in range(0, total, 3)]
        assert np.concatenate(parts).tolist() == [i * total // wanted for i in range(wanted)]


def test_random_picks_are_uniform_exact_and_do_not_depend_on_the_blocks() -> None:
    total, wanted = 700_000, 70_000
    picks = Picks(total, wanted, random=True, seed=1)
    whole = picks.between(0, total)
    assert len(whole) == len(set(whole.tolist())) == wanted
    pieces = [picks.between(a, min(a + 99_999, total)) for a in range(0, total, 99_999)]
    assert np.array_equal(np.concatenate(pieces), whole)
    with pytest.raises(ValueError, match="1000000000 samples, at most 999999999; take pick stride"):
        Picks(10**9, 5, random=True, seed=1)
    # 20 bins of 3,500 expected: six standard deviations are 340
    bins = np.histogram(whole, 20, (0, total))[0]
    assert abs(bins - wanted / 20).max() < 340
    other = Picks(total, wanted, random=True, seed=2).between(0, total)
    shared = len(np.intersect1d(whole, other))
    assert abs(shared - wanted**2 / total) < 500


def test_case_21_a_random_subset_has_the_lengths_of_the_whole(
    sources: list[Path], tmp_path: Path
) -> None:
    config = PresortConfig(2, samples=1000, pick="random")
    entries = presort(sources, tmp_path, config, seed=1)
    taken = Counter(samples_of(stripes_of(tmp_path)))
    assert sum(entry.counts["samples"] for entry in entries) == taken.total() == 1000
    assert taken <= Counter(samples_of(sources))
    lengths = np.concatenate([Shard(path).lengths() for path in sources])
    mean = np.mean([len(sample[0]) // 2 for sample in samples_of(stripes_of(tmp_path))])
    # the standard error of a mean of 1,000 of 2,000 lengths of deviation 16 is 0.36
    assert abs(mean - lengths.mean()) < 2


# --- blocks and buckets ---------------------------------------------------------------------------


def test_a_shard_reads_and_writes_blocks(tmp_path: Path) -> None:
    block = random_block(np.random.default_rng(2), 40)
    shard = Shard(write_block(tmp_path / "a.h5", block))
    with ShardWriter(tmp_path / "b.h5", HEADER) as writer:
        for row in range(40):
            writer.write(shard.sample(row))
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    halves = concatenate([shard.block(0, 13), shard.block(13, 40)])
    turned = halves.take(np.arange(39, -1, -1))
    for row in (0, 12, 13, 39):
        one = turned.take(np.array([39 - row]))
        label, start = one.next_sentence_label[0], one.second_segment_start[0]
        again = Sample(one.tokens, int(start), one.mlm_positions, one.mlm_ids, int(label))
        for a, b in zip(again, shard.sample(row), strict=True):
            assert np.array_equal(a, b)


def test_buckets_follow_the_order_and_keep_the_limit() -> None:
    sizes = np.zeros(100, np.int64)
    sizes[[5, 6, 7, 50, 99]] = [10, 80, 20, 1000, 30]
    buckets = Buckets(sizes, 100)
    lengths = np.repeat([5, 6, 7, 50, 99], 1000)
    keys = np.tile(np.sort(keys_of(np.arange(1000), 1)), 5)
    found = buckets.of(lengths, keys)
    assert (np.diff(found) >= 0).all() and found.max() == buckets.count - 1
    assert [np.unique(found[lengths == x]).tolist() for x in (5, 6, 7, 99)] == [[0], [0], [1], [12]]
    assert np.unique(found[lengths == 50]).tolist() == list(range(2, 12))
    assert np.bincount(found[lengths == 50], minlength=12)[2:].min() > 60
