"""All stages in a row, and what happens when something is wrong with a source or a folder."""

import hashlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dataprep.engine import EngineConfig
from dataprep.holdout import draw_holdout
from dataprep.inspection import samples_of_step, show_sample
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.order import OrderConfig
from dataprep.parts import document_md5, read_parts, stage_parts
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import Shard
from dataprep.text_stages import make_documents, make_sentences
from dataprep.verification import verify_folder

ROOT = Path(__file__).resolve().parents[2]
TWO = EngineConfig("processes", workers=2)


def settings(corpus: Path, vocabulary: Path, output: Path, **changes: object) -> PipelineConfig:
    config = PipelineConfig(
        sources=[str(corpus)],
        vocab=str(vocabulary),
        output=str(output),
        parts=3,
        evaluation_documents=6,
        evaluation_samples=10,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=2),
        stripes=3,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != ".receipts"
    }


@pytest.fixture(scope="module")
def prepared(corpus_file: Path, vocabulary_file: Path, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("prepared") / "data"
    for _ in run_pipeline(settings(corpus_file, vocabulary_file, output)):
        pass
    return output


def test_two_workers_and_a_second_run_give_the_same_bytes(
    prepared: Path, corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    for _ in run_pipeline(settings(corpus_file, vocabulary_file, tmp_path / "data", engine=TWO)):
        pass
    assert digests(tmp_path / "data") == digests(prepared)


def test_nothing_is_made_twice(prepared: Path, corpus_file: Path, vocabulary_file: Path) -> None:
    stripe = prepared / "train" / "stripe-00000.h5"
    shard = prepared / "samples" / "train" / "part-00000.h5"
    before = [path.stat().st_mtime_ns for path in (stripe, shard)]
    for _ in run_pipeline(settings(corpus_file, vocabulary_file, prepared)):
        pass
    assert [path.stat().st_mtime_ns for path in (stripe, shard)] == before


def test_a_missing_part_alone_is_made_again_and_other_settings_make_all_again(
    corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    config = settings(corpus_file, vocabulary_file, tmp_path / "data")
    for _ in run_pipeline(config):
        pass
    before = digests(tmp_path / "data")
    kept, lost = (tmp_path / "data" / "samples" / "train" / f"part-0000{i}.h5" for i in (0, 1))
    made = kept.stat().st_mtime_ns
    lost.unlink()
    for _ in run_pipeline(config):
        pass
    assert digests(tmp_path / "data") == before
    assert kept.stat().st_mtime_ns == made
    for _ in run_pipeline(replace(config, parts=2, seed=1)):
        pass
    after = digests(tmp_path / "data")
    assert after["train/stripe-00000.h5"] != before["train/stripe-00000.h5"]
    assert "sentences/part-00002.txt" not in after


def test_no_evaluation_document_is_trained_on(prepared: Path) -> None:
    held_out = set((prepared / "holdout" / "evaluation.md5").read_text().split())
    documents = list(read_parts(sorted((prepared / "sentences").glob("*.txt"))))
    assert len(held_out) == 6
    assert held_out < {document_md5(sentences) for sentences in documents}
    counts = read_manifest(prepared / "samples" / "train").counts
    assert (counts["documents"], counts["documents_not_taken"]) == (34, 6)
    words = {name: tokens_of(prepared / "samples" / name) for name in ("train", "evaluation")}
    vocabulary = (prepared / "train" / "vocab.txt").read_text().split("\n")
    for sentences in documents:
        # a document's own five-token runs are its fingerprint: the corpus is random
        ids = [vocabulary.index(word) for word in " ".join(sentences).split()]
        runs = {tuple(ids[i : i + 5]) for i in range(len(ids) - 5)}
        if len(runs) < 20:
            continue
        name, other = ("evaluation", "train")[:: 1 if document_md5(sentences) in held_out else -1]
        assert len(runs & words[name]) > 0.6 * len(runs)
        assert len(runs & words[other]) < 0.01 * len(runs)


def tokens_of(folder: Path) -> set[tuple[int, ...]]:
    runs: set[tuple[int, ...]] = set()
    for path in sorted(folder.glob("*.h5")):
        shard = Shard(path)
        for row in range(len(shard)):
            sample = shard.sample(row)
            tokens = sample.tokens.copy()
            tokens[sample.mlm_positions] = sample.mlm_labels
            ids = tokens.tolist()
            runs |= {tuple(ids[i : i + 5]) for i in range(len(ids) - 5)}
    return runs


def test_copies_of_a_held_out_document_are_held_out_too(tmp_path: Path) -> None:
    documents = [[f"sentence {i} of document {d} ." for i in range(4)] for d in range(9)]
    text = "\n\n".join("\n".join(sentences) for sentences in [*documents, *documents])
    source = tmp_path / "sentences"
    source.mkdir()
    (source / "part-00000.txt").write_text(text + "\n")
    entry = FileEntry("part-00000.txt", len(text) + 1, "00")
    Manifest("sentences", 0, {}, {}, [entry]).write(source)
    draw_holdout(stage_parts(source), tmp_path / "holdout", documents=3, seed=1)
    held_out = set((tmp_path / "holdout" / "evaluation.md5").read_text().split())
    assert len(held_out) == 3
    assert sum(document_md5(sentences) in held_out for sentences in documents) == 3


def test_stripes_hold_every_sample_once_sorted_and_dealt(prepared: Path) -> None:
    def content(folder: Path) -> list[tuple[bytes, ...]]:
        return sorted(
            (sample.tokens.tobytes(), sample.mlm_positions.tobytes(), sample.mlm_labels.tobytes())
            for path in folder.glob("*.h5")
            for shard in [Shard(path)]
            for sample in map(shard.sample, range(len(shard)))
        )

    assert content(prepared / "train") == content(prepared / "samples" / "train")
    manifest = read_manifest(prepared / "train", ("presort",))
    stripes = [Shard(prepared / "train" / entry.file).lengths() for entry in manifest.files]
    dealt = [int(stripes[i % 3][i // 3]) for i in range(manifest.samples)]
    assert dealt == sorted(dealt)
    assert sorted(dealt) == [
        length for length, count in manifest.lengths.items() for _ in range(count)
    ]
    assert len({path.read_bytes() for path in (prepared / "train").glob("*.h5")}) == 3


def test_the_evaluation_set_has_the_wanted_size(prepared: Path) -> None:
    assert read_manifest(prepared / "evaluation").samples == 10


def test_more_evaluation_samples_than_there_are_name_the_setting(
    prepared: Path, corpus_file: Path, vocabulary_file: Path
) -> None:
    config = settings(corpus_file, vocabulary_file, prepared, evaluation_samples=10_000)
    with pytest.raises(ValueError, match="evaluation_samples 10000: the held-out documents give"):
        list(run_pipeline(config))


def test_a_vocabulary_does_not_take_the_place_of_its_text(tmp_path: Path) -> None:
    source = tmp_path / "corpus.txt"
    source.write_text("some text\n")
    done = dataprep("vocabulary", "--sources", f"[{source}]", "--output", source)
    assert done.returncode == 2 and "is one of the sources; choose another file" in done.stderr
    assert source.read_text() == "some text\n"


def test_a_source_inside_the_output_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "corpus.txt"
    source.write_text("some text\n\nmore text\n")
    with pytest.raises(ValueError, match="corpus.txt: is a source inside the output"):
        make_documents([source], tmp_path, "text", 1)


def test_inspect_shows_a_sample_in_words(prepared: Path) -> None:
    lines = list(show_sample(prepared / "train", 0))
    assert "masked" in lines[0] and lines[1].startswith("A: [CLS]") and "[SEP]" in lines[2]
    with pytest.raises(ValueError, match="no sample 10; it holds 0 to 9"):
        list(show_sample(prepared / "evaluation", 10))


def test_verify_finds_a_changed_byte(
    corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    for _ in run_pipeline(settings(corpus_file, vocabulary_file, tmp_path)):
        pass
    assert len(list(verify_folder(tmp_path / "train"))) == 6
    path = tmp_path / "train" / "stripe-00001.h5"
    content = bytearray(path.read_bytes())
    sample = Shard(path).sample(3).tokens.tobytes()
    content[content.index(sample)] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"stripe-00001\.h5: content digest"):
        list(verify_folder(tmp_path / "train"))


def test_a_stage_never_starts_on_an_unfinished_folder(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    with pytest.raises(ValueError, match="not a finished stage"):
        make_sentences(tmp_path / "documents", tmp_path / "sentences", SentencesConfig())


# --- the command line -----------------------------------------------------------------------------


def dataprep(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dataprep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_stages_one_by_one_give_what_run_gives(
    prepared: Path, corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    common = ["--max_seq_length", 64, "--max_predictions", 10]
    holdout = tmp_path / "holdout" / "evaluation.md5"
    for arguments in (
        ["documents", "--sources", f'["{corpus_file}"]', "--output", tmp_path / "documents",
         "--parts", 3],
        ["sentences", "--input", tmp_path / "documents", "--output", tmp_path / "sentences",
         "--sentences.splitter", "lines"],
        ["holdout", "--input", tmp_path / "sentences", "--output", tmp_path / "holdout",
         "--documents", 6],
        ["samples", "--input", tmp_path / "sentences", "--output", tmp_path / "samples",
         "--vocab", vocabulary_file, "--holdout", holdout, *common,
         "--dupe_factor", 2],
        ["presort", "--input", tmp_path / "samples", "--output", tmp_path / "train",
         "--stripes", 3],
        ["inspect", tmp_path / "train"],
        ["inspect", tmp_path / "train" / "stripe-00000.h5", "--sample", 1],
        ["verify", tmp_path / "train", "--samples", tmp_path / "samples", "--holdout", holdout],
        ["stats", tmp_path / "train", "--png", tmp_path / "lengths.png"],
        ["export", "--input", tmp_path / "train", "--output", tmp_path / "train.h5"],
    ):  # fmt: skip
        done = dataprep(*arguments)
        assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "train") == digests(prepared / "train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "corpus.txt"),
        (b" \n\t\n", "corpus.txt"),
        (b"good text .\n\nbad \xff\xfe text\n", "offset 17, line 3"),
    ],
)
def test_a_bad_source_is_one_line_and_leaves_nothing(
    tmp_path: Path, vocabulary_file: Path, content: bytes, message: str
) -> None:
    source = tmp_path / "corpus.txt"
    source.write_bytes(content)
    config = tmp_path / "data.yaml"
    config.write_text(
        f"sources: [{source}]\nvocab: {vocabulary_file}\noutput: {tmp_path / 'out'}\n"
    )
    done = dataprep("run", "--config", config)
    assert done.returncode == 2
    assert done.stderr.startswith("python -m dataprep: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr and "corpus.txt" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sourcess: [a]\n", r"data.yaml:1: unknown key 'sourcess'; did you mean 'sources'?"),
        ("sources: [a]\nsources: [b]\n", "data.yaml:2: key 'sources' is given twice"),
        (
            "samples:\n  max_seq_length: long\n",
            "data.yaml:2: samples.max_seq_length: Expected a int",
        ),
        ("samples: 3\n", "data.yaml:1: 'samples' is a group, not a single value"),
        ("max_seq_length: 64\n", "did you mean 'samples.max_seq_length'?"),
        ("parts: [1\n", "data.yaml:2: not YAML"),
        ("just text\n", "no settings in it"),
        ("parts: 3\n", "missing: --sources, --vocab, --output"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "data.yaml").write_text(text)
    done = dataprep("run", "--config", tmp_path / "data.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert message in done.stderr


def test_unknown_stages_and_options_are_named() -> None:
    done = dataprep("sampels")
    assert done.returncode == 2 and "no command 'sampels'; commands: run, documents" in done.stderr
    done = dataprep("inspect", "x", "--sampel", 1)
    assert (
        done.returncode == 2 and "unknown option '--sampel'; did you mean 'sample'" in done.stderr
    )
    done = dataprep("--help")
    assert done.returncode == 0 and "presort" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dataprep", "--help"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    process.stdout.close()
    with process.stderr as errors:
        said = errors.read()
    assert (process.wait(60), said) == (128 + signal.SIGPIPE, b"")


def test_help_names_every_setting() -> None:
    done = dataprep("run", "--help")
    assert done.returncode == 0
    for name in ("--evaluation_documents", "--samples.dupe_factor", "--sentences.splitter"):
        assert name in done.stdout
    assert "how often the corpus is gone through" in " ".join(done.stdout.split())


def test_no_source_and_the_same_source_twice(
    corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    for sources, message in (
        ([], "sources: none given"),
        ([str(corpus_file)] * 2, "comes twice"),
        (["no such *.txt"], "'no such \\*.txt' matches no file"),
    ):
        config = settings(corpus_file, vocabulary_file, tmp_path / "data", sources=sources)
        with pytest.raises(ValueError, match=message):
            next(run_pipeline(config))


def test_terminated_it_leaves_no_temporary_file(
    corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "large.txt"
    source.write_text("\n".join([corpus_file.read_text()] * 3000))
    folder = tmp_path / "documents"
    arguments = ["documents", "--sources", f'["{source}"]', "--output", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "dataprep", *arguments], cwd=ROOT)
    try:
        limit = time.monotonic() + 60
        while not list(folder.glob("*.tmp-*")):
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert not folder.exists() or not list(folder.iterdir())


def test_one_document_is_refused_with_the_reason(tmp_path: Path, vocabulary_file: Path) -> None:
    source = tmp_path / "one.txt"
    source.write_text("the city .\nthe river .\nthe war .\n")
    done = dataprep(
        "run", "--sources", f'["{source}"]', "--vocab", vocabulary_file,
        "--output", tmp_path / "out", "--parts", 1,
    )  # fmt: skip
    assert done.returncode == 2
    assert "1 documents for 1 parts, but a part needs two" in done.stderr


def test_nothing_is_dropped_without_a_count(
    corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "corpus.txt"
    copies = "the river city .\nthe war .\n"
    invisible = "\u200b\u200c\n"
    source.write_text(f"{corpus_file.read_text()}\n{copies}\n{copies}\n{invisible}\nqqq the .\n")
    for _ in run_pipeline(settings(source, vocabulary_file, tmp_path / "data", parts=1)):
        pass
    folders = [tmp_path / "data" / "samples" / name for name in ("train", "evaluation")]
    counts = [read_manifest(folder).counts for folder in folders]
    total = {name: sum(count.get(name, 0) for count in counts) for name in counts[0]}
    assert total["documents_without_tokens"] == 1
    assert total["sentences_without_tokens"] == 1
    assert total["documents_copied"] == 1
    assert total["unknown_tokens"] == 1
    assert total["documents"] == 43


@pytest.mark.parametrize("scheme", ["presorted", "random", "exchange", "packed"])
def test_the_samples_of_a_step_lie_where_inspection_says(prepared: Path, scheme: str) -> None:
    config, seen = OrderConfig(scheme), []
    for rank in (0, 1):
        found = samples_of_step(prepared / "train", config, 4, 3, 1, 0, 2, rank, 2)
        assert {sample.slot for sample in found} == {rank, rank + 2}
        for sample in found:
            assert len(Shard(sample.file).sample(sample.row).tokens) == sample.length
            stripe = int(sample.file.stem.rsplit("-", 1)[1])
            assert sample.place == sample.row * 3 + stripe
        seen += [sample.place for sample in found]
    assert len(seen) == len(set(seen)) >= 12


@pytest.mark.parametrize(
    ("step", "rank", "ranks", "message"),
    [
        (10**6, 0, 2, r"step 1000000 must lie in 0 to \d+"),
        (0, 2, 2, "rank 2 must lie in 0 to 1"),
        (0, 0, 3, "width 4 is not a multiple of the 3 ranks"),
    ],
)
def test_a_step_or_rank_that_does_not_exist(
    prepared: Path, step: int, rank: int, ranks: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        samples_of_step(prepared / "train", OrderConfig(), 4, 3, 1, 0, step, rank, ranks)
