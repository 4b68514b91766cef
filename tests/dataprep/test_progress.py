"""What a stage says while it works."""

from collections import Counter

from dataprep.progress import Meter, advance, reporting


def test_the_line_counts_and_tells_the_time_left() -> None:
    meter = Meter("samples", jobs=4, total_bytes=40_000_000)
    meter.advance(Counter(bytes=6_000_000, documents=1200, samples=3000))
    meter.advance(Counter(bytes=4_000_000, documents=800))
    meter.job_done()
    assert meter.line(20.0) == (
        "samples: 1 of 4 jobs, 2,000 documents, 3,000 samples, 10 of 40 MB, 0.50 MB/s, 60 s left"
    )
    assert meter.line(2000.0).endswith("0.01 MB/s, 1.7 h left")
    assert Meter("presort", 1, 0).line(5.0) == "presort: 0 of 1 jobs"


def test_what_is_advanced_is_reported_whole_and_only_while_somebody_listens() -> None:
    heard: Counter[str] = Counter()
    advance(documents=1)
    with reporting(heard.update):
        for _ in range(100):
            advance(documents=1, bytes=10)
    advance(documents=1)
    assert heard == {"documents": 100, "bytes": 1000}


def test_in_a_file_it_is_a_line_now_and_then(capsys, monkeypatch) -> None:
    monkeypatch.setattr("dataprep.progress._SECONDS_BETWEEN_LINES", 0.0)
    with Meter("sentences", 1, 10_000_000) as meter:
        meter.advance(Counter(bytes=5_000_000, documents=7))
    assert capsys.readouterr().err.startswith("sentences: 0 of 1 jobs, 7 documents, 5 of 10 MB")
