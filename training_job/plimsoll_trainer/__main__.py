"""`python -m plimsoll_trainer`: one rank of a training job, under torchrun or alone."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from contextlib import suppress

from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.devices.allocator import allocator_environment
from plimsoll_trainer.errors import NotSavedError, exit_code_of
from plimsoll_trainer.process.admission import Place, admit
from plimsoll_trainer.process.options import Options, parse
from plimsoll_trainer.process.requirements import require_supported
from plimsoll_trainer.process.restart import be_device_of
from plimsoll_trainer.process.stopping import StopSignal
from plimsoll_trainer.reporting.console import say

INTERRUPTED = 130
"""As shells report Ctrl-C."""


def main() -> int:
    """Train; return the exit code."""
    options = parse()
    stop = StopSignal()
    stop.listen()
    rank: int | None = None
    try:
        place = Place.from_environment()
        rank = place.rank
        return train(options, place, stop)
    except NotSavedError as error:  # as asked: there is nothing to look for
        say(rank, str(error))
        return error.exit_code
    except PlimsollError as error:
        if options.debug or os.environ.get(DEBUG_VARIABLE):
            with suppress(OSError):  # a full disk behind a log
                traceback.print_exc()
        say(rank, str(error))
        return exit_code_of(error)
    except KeyboardInterrupt:
        say(rank, "interrupted")
        return INTERRUPTED


def train(options: Options, place: Place, stop: StopSignal) -> ExitCode:
    """Read the plan, load torch, train; a signal is caught while torch loads."""
    require_supported()
    admitted = admit(options, place)
    be_device_of(admitted, stop)
    if admitted.plan.offers[0].device_kind is DeviceKind.CUDA:
        os.environ.update(allocator_environment(os.environ))
    gc.disable()  # torch makes 300,000 objects that stay: a sixth of its time to load
    from plimsoll_trainer.process.failures import explain  # noqa: PLC0415
    from plimsoll_trainer.process.run import run  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    try:
        return run(admitted, stop)
    except PlimsollError:  # explained, with its cause
        raise
    except Exception as error:
        raise explain(error, Phase.BUILD, None) from error


def leave(code: int) -> None:
    """End at once: threads and groups that wait for a dead rank must not hold us."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
