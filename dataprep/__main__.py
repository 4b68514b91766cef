"""The command line: ``python -m dataprep STAGE --help``."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from dataprep.commandline import build_parser, parse, run_command
from dataprep.engine import EngineConfig
from dataprep.holdout import draw_holdout, read_holdout
from dataprep.inspection import show_sample, summary, verify_folder
from dataprep.manifest import Manifest, read_manifest
from dataprep.parts import stage_parts
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.presort import PresortConfig
from dataprep.sample_stages import Recipe, make_samples, make_stripes
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.storage import as_path
from dataprep.text_stages import make_documents, make_sentences
from dataprep.tokenization import load_vocabulary

DEFAULT_ENGINE = EngineConfig()


def documents_command(
    sources: list[str], output: str, format: str = "auto", parts: int = 8
) -> None:
    """Read dumps or plain text and deal the documents to parts.

    Args:
        sources: MediaWiki dumps (XML or .bz2), or plain text with empty lines between documents
        output: folder of the parts
        format: auto, mediawiki or text
        parts: how many parts; each is a unit of work of the next stages
    """
    _report(make_documents([as_path(source) for source in sources], as_path(output), format, parts))


def sentences_command(
    input: str,
    output: str,
    sentences: SentencesConfig = SentencesConfig(),
    engine: EngineConfig = DEFAULT_ENGINE,
) -> None:
    """Split documents into sentences, one a line.

    Args:
        input: folder of stage documents
        output: folder of the text parts
        sentences: how to split
        engine: how the parts are run; the result does not depend on it
    """
    _report(make_sentences(as_path(input), as_path(output), sentences, engine))


def holdout_command(input: str, output: str, documents: int = 10_000, seed: int = 12345) -> None:
    """Draw the documents that are kept for the evaluation.

    Args:
        input: folder of stage sentences
        output: folder of evaluation.md5
        documents: how many different documents
        seed: of the draw
    """
    _report(draw_holdout(stage_parts(as_path(input)), as_path(output), documents, seed))


def samples_command(  # noqa: PLR0913 - one argument an option
    input: str,
    output: str,
    vocabulary: str,
    holdout: str,
    only_held_out: bool = False,
    lowercase: bool = True,
    samples: SamplesConfig = SamplesConfig(),
    seed: int = 12345,
    engine: EngineConfig = DEFAULT_ENGINE,
) -> None:
    """Tokenise and make samples: sentence pairs with static masks.

    Args:
        input: folder of stage sentences
        output: folder of the shards
        vocabulary: BERT's vocab.txt
        holdout: evaluation.md5 of stage holdout
        only_held_out: make the samples of the held-out documents, not of the others
        lowercase: lower-case the text and strip accents
        samples: lengths and probabilities
        seed: of pairs and masks
        engine: how the parts are run; the result does not depend on it
    """
    chosen = read_holdout(as_path(holdout), only_held_out)
    recipe = Recipe(load_vocabulary(as_path(vocabulary)), lowercase, samples, chosen, seed)
    _report(make_samples(stage_parts(as_path(input)), as_path(output), recipe, engine))


def presort_command(
    input: str, output: str, stripes: int = 8, samples: int | None = None, seed: int = 12345
) -> None:
    """Shuffle, sort by length and deal into stripes.

    Args:
        input: folder of stage samples
        output: folder of the stripes
        stripes: K, how many files; independent of the ranks
        samples: take only so many, evenly over the source; null takes all
        seed: of the shuffle
    """
    config = PresortConfig(stripes, samples)
    _report(make_stripes(as_path(input), as_path(output), config, seed))


def inspect_command(folder: str, sample: int | None = None) -> None:
    """Say what a stage's folder holds, or show one sample.

    Args:
        folder: of any stage
        sample: show the sample at this place of the folder's order, in words
    """
    if sample is None:
        _report(read_manifest(as_path(folder)))
        return
    print(*show_sample(as_path(folder), sample), sep="\n")


def verify_command(folder: str) -> None:
    """Read a stage's files whole and compare them with the manifest's digests.

    Args:
        folder: of any stage
    """
    for line in verify_folder(as_path(folder)):
        print(line, flush=True)


def pipeline_command(**settings: Any) -> None:
    """Run all stages; what is already there with the same inputs and settings is kept."""
    for manifest in run_pipeline(PipelineConfig(**settings)):
        _report(manifest)


COMMANDS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    # name: (what is called, whose signature gives the options)
    "documents": (documents_command, documents_command),
    "sentences": (sentences_command, sentences_command),
    "holdout": (holdout_command, holdout_command),
    "samples": (samples_command, samples_command),
    "presort": (presort_command, presort_command),
    "run": (pipeline_command, PipelineConfig),
    "inspect": (inspect_command, inspect_command),
    "verify": (verify_command, verify_command),
}


def _report(manifest: Manifest) -> None:
    print(*summary(manifest), sep="\n", flush=True)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    stages = [
        f"  {name:{width}}  {(call.__doc__ or '').splitlines()[0]}"
        for name, (call, _) in COMMANDS.items()
    ]
    heading = "usage: python -m dataprep STAGE [--config FILE] [options]; STAGE --help lists them"
    return "\n".join([heading, "", *stages])


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, *options = arguments
    if name not in COMMANDS:
        raise ValueError(f"no stage '{name}'; stages: {', '.join(COMMANDS)}")
    call, signature = COMMANDS[name]
    parser = build_parser(f"python -m dataprep {name}", (call.__doc__ or "").splitlines()[0])
    if isinstance(signature, type):
        parser.add_class_arguments(signature)
    else:
        parser.add_function_arguments(signature)
    chosen = parse(parser, options).as_dict()
    chosen.pop("config", None)
    call(**chosen)
    return 0


def _terminate(number: int, frame: FrameType | None) -> None:
    """Turn the signal into an exception, so that temporary files go."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run_command("python -m dataprep", lambda: main(sys.argv[1:])))
