"""`python -m plimsoll_trainer.export`: weights of a checkpoint in the model's format.

In: an entry point with its arguments, a checkpoint, a folder that is not there yet.
Out: the folder, and one line of JSON that names both. Called by `plimsoll
export-weights`; exit codes are those of training.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.errors import exit_code_of
from plimsoll_trainer.process.requirements import require_supported
from plimsoll_trainer.reporting.console import say
from plimsoll_trainer.user_code.arguments import parse_arguments


def main(words: Sequence[str] | None = None) -> int:
    """Export; return the exit code."""
    options = parser().parse_args(words)
    try:
        require_supported()
        export(options)
    except PlimsollError as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        say(None, str(error))
        return exit_code_of(error)
    return ExitCode.DONE


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m plimsoll_trainer.export")
    made.add_argument("--entrypoint", required=True, metavar="module:function")
    made.add_argument("--args", default="{}", help="a JSON object")
    made.add_argument("--checkpoint", type=Path, required=True, metavar="DIR")
    made.add_argument("--to", type=Path, required=True, metavar="DIR")
    return made


def export(options: argparse.Namespace) -> None:
    """Load the workload, and write the weights."""
    # Torch is loaded after what can be refused without it.
    from plimsoll_trainer.checkpoint.exported import checkpoint_at, export_weights  # noqa: PLC0415
    from plimsoll_trainer.user_code.entrypoint import load_workload  # noqa: PLC0415

    folder = checkpoint_at(options.checkpoint)
    workload = load_workload(options.entrypoint, parse_arguments(options.args))
    export_weights(workload, folder, options.to)
    report = {"checkpoint": str(folder), "weights": str(options.to)}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    sys.exit(main())
