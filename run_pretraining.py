"""Start a run of BERT pre-training; ``--help`` lists every setting.

One process:    python run_pretraining.py --config configs/tiny_cpu.yaml
Several ranks:  torchrun --standalone --nproc-per-node 2 run_pretraining.py --config ...
"""

import signal
import sys
import time
from types import FrameType

from dataprep.commandline import EXIT_USER_ERROR, build_parser, parse, run_command
from train.distributed import AgreedError, join_world, launched_rank
from train.pretrain import pretrain
from train.run_config import RunConfig

PROGRAM = "run_pretraining.py"


def main() -> int:
    """Exit code 0: target reached; 1: not reached; 2: a setting or the data is wrong."""
    config = read_config(sys.argv[1:])
    signal.signal(signal.SIGTERM, _terminate)
    with join_world(config.train.device) as world:
        result = pretrain(config, world)
    return 0 if result.reached else 1


def read_config(arguments: list[str]) -> RunConfig:
    """The run's configuration from ``--config`` files and options, the later ones winning."""
    parser = build_parser(PROGRAM, "MLPerf-style BERT pre-training.")
    parser.add_class_arguments(RunConfig)
    try:
        settings = parse(parser, arguments).as_dict()
        settings.pop("config")
        return RunConfig(**settings)
    except ValueError as error:
        raise AgreedError(str(error)) from error


def start() -> int:
    """Run ``main``; an error that all ranks share is reported by rank 0 alone.

    The others then wait a little: a launcher ends all ranks when the first one has ended, and that
    must not be before rank 0 has spoken.
    """
    rank = launched_rank()
    if rank == 0:
        return run_command(PROGRAM, main)
    try:
        return run_command(f"{PROGRAM} [rank {rank}]", main, unreported=AgreedError)
    except AgreedError:
        time.sleep(15)
        return EXIT_USER_ERROR


def _terminate(number: int, frame: FrameType | None) -> None:
    """Turn the signal into an exception, so that the log still gets its run_stop."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(start())
