"""What clipping does to the overlap of backward and all-reduce, on a real slow link.

    python -m benchmarks.gradient_overlap --rate 100mbit,400mbit [--json] [--figure FILE.png]

Two ranks, one thread each, in two network namespaces joined by a shaped link (root and iproute2
needed; says so and ends otherwise). Every mode takes one step in turn, for at least ten rounds, in
the same two processes; times are medians, ratios are taken round by round.

- step: one forward and backward with its reduction and clipping
- compute: the same without any communication
- communication: the flat gradient all-reduced alone
- exposed: from the step's last gradient to the end of its last all-reduce, what the backward pass
  does not hide
- limit: max(compute, communication), the least a step can take
- hidden: 1 - exposed / that of rank_before
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gradient_overlap.figures import (
    TIMELINE_MODES,
    draw,
    median_timeline,
    print_table,
    rows_of,
)
from benchmarks.shaped_link import Host, shaped_link, unavailable


def measure(rate: str, repeats: int, tokens: int) -> dict[str, Any]:
    """Run two ranks over a link of this rate; what rank 0 measured."""
    with shaped_link(rate) as hosts, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "seconds.json"
        ranks = [
            _start(rank, host, hosts[0].address, [str(repeats), str(tokens), str(target)])
            for rank, host in enumerate(hosts)
        ]
        try:
            for process in ranks:
                if process.wait(timeout=1800) != 0:
                    raise ValueError(f"a rank ended with code {process.returncode}; see above")
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        content: dict[str, Any] = json.loads(target.read_text())
        return content


def _start(rank: int, host: Host, master: str, options: list[str]) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-m", "benchmarks.gradient_overlap.rank"]
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": host.interface,
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        host.command([*arguments, str(rank), master, *options]), env=environment, stdout=sys.stderr
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradient_overlap")
    parser.add_argument("--rate", default="100mbit,400mbit", help="of the link, comma-separated")
    parser.add_argument("--repeats", type=int, default=12, help="rounds, at least 10 to quote")
    parser.add_argument("--tokens", type=int, default=8192, help="of a rank's step")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--figure", type=Path, help="PNG of one step's timeline at the first rate")
    options = parser.parse_args()
    reason = unavailable()
    if reason:
        print(f"skipped: no shaped link here: {reason}", file=sys.stderr)
        return 0
    rows: list[dict[str, Any]] = []
    for number, rate in enumerate(options.rate.split(",")):
        print(f"measuring at {rate} ...", file=sys.stderr)
        try:
            measured = measure(rate, options.repeats, options.tokens)
        except subprocess.CalledProcessError as error:
            why = str(error.stderr).strip().splitlines()[0]
            print(f"--rate {rate}: tc refuses it ({why}); write such as 100mbit", file=sys.stderr)
            return 2
        rows += rows_of(rate, measured["seconds"], measured["exposed"])
        if options.figure and number == 0:
            timelines = {
                mode: median_timeline(
                    measured["seconds"][f"{mode} fp32"], measured["timelines"][mode]
                )
                for mode in TIMELINE_MODES
            }
            draw(rate, timelines, options.figure)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
