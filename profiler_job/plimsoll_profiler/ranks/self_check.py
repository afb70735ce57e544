"""Replays a toy and runs it for real: do they still agree on this torch?

`python -m plimsoll_profiler.ranks.self_check` runs a chain of two stages in two
processes on the emulated device, replays both ranks, and compares their peaks. It fails
when a new torch release keeps alive, or lets go of, something else than the replay
believes, or when caps on micro-batches in flight have no effect in it any more.
Each error is one line that names the release.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_profiler.errors import ReplayDisagreesError
from plimsoll_trainer.emulated.device import environment
from plimsoll_trainer.errors import described
from plimsoll_trainer.process.requirements import require_supported
from plimsoll_trainer.user_code.fingerprint import installed_version

NUM_RANKS = 2
TOLERANCE_BYTES = 1024
"""Scalars that only one side holds, such as the losses that a real step returns."""
TIMEOUT_S, POLL_S = 300.0, 0.05
"""For both ranks, which need seconds; most of them to load torch."""
INTERRUPTED = 130


def command_of(rank: int, store: Path) -> Sequence[str]:
    """Command of one rank, which prints its peak in bytes."""
    module = (sys.executable, "-m", "plimsoll_profiler.ranks.self_check")
    return (*module, "--rank", str(rank), "--store", str(store))


def real_peaks() -> list[int]:
    """Peak of each rank as it runs, bytes.

    Raises:
        ReplayDisagreesError: a rank died, or they do not end; the others are ended.
    """
    extra = environment(0) | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(NUM_RANKS):
                with (folder / f"{rank}").open("wb") as output:
                    process = subprocess.Popen(  # noqa: S603 - our own module
                        command_of(rank, folder / "store"),
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=os.environ | extra,
                    )
                ranks.append(process)
            wait_for(ranks, folder)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        return [int(last_line_of(rank, folder)) for rank in range(NUM_RANKS)]


def wait_for(ranks: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until all ranks are done.

    Raises:
        ReplayDisagreesError: one died, or time is up.
    """
    stops_s = time.monotonic() + TIMEOUT_S
    while None in (codes := [process.poll() for process in ranks]) or any(codes):
        for rank, code in enumerate(codes):
            if code:
                raise ReplayDisagreesError(
                    f"rank {rank} of a toy ended with exit status {code}: "
                    f"{last_line_of(rank, folder) or 'it said nothing'}"
                )
        if time.monotonic() > stops_s:
            raise ReplayDisagreesError(
                f"{NUM_RANKS} ranks of a toy did not end within {TIMEOUT_S:g} s"
            )
        time.sleep(POLL_S)


def last_line_of(rank: int, folder: Path) -> str:
    """Last line that a rank printed: its peak, or why it died."""
    text = (folder / f"{rank}").read_text(errors="replace").strip()
    if os.environ.get(DEBUG_VARIABLE):
        print(text, file=sys.stderr)
    return text.splitlines()[-1] if text else ""


def self_check() -> list[tuple[int, int]]:
    """Real and replayed peak of each rank, bytes.

    Raises:
        ReplayDisagreesError: they differ.
    """
    from plimsoll_profiler.ranks.toy import job, replayed_peaks  # noqa: PLC0415 - loads torch

    pairs = list(zip(real_peaks(), replayed_peaks(job()), strict=True))
    for rank, (real, replayed) in enumerate(pairs):
        if abs(real - replayed) > TOLERANCE_BYTES:
            raise ReplayDisagreesError(
                f"rank {rank} of a toy held {real} bytes, but its replay {replayed}: "
                "predictions for this torch are not to be trusted; use a release that "
                "Plimsoll is tested with"
            )
    return pairs


def check() -> ExitCode:
    """Check, and print the verdict, or what stood in its way, by release."""
    release = f"torch {installed_version('torch')}"
    try:
        require_supported()
        pairs = self_check()
    except PlimsollError as error:
        text = str(error)
        code = getattr(error, "exit_code", ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001 - a torch that nobody knows may raise any
        text, code = f"the check failed: {described(error)}", ExitCode.FAILED
    else:
        for rank, (real, replayed) in enumerate(pairs):
            print(f"rank {rank}: {real} bytes held, {replayed} replayed")
        print(f"{release}: replay and ranks agree")
        return ExitCode.DONE
    print(f"{release}: {text}", file=sys.stderr)
    return ExitCode(code)


def main() -> int:
    """Check, or be one of the two ranks."""
    parser = argparse.ArgumentParser(prog="plimsoll_profiler.ranks.self_check")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    options = parser.parse_args()
    try:
        if options.rank is None:
            return check()
        from plimsoll_profiler.ranks.toy import run_rank  # noqa: PLC0415 - loads torch

        print(run_rank(options.rank, options.store))
    except KeyboardInterrupt:
        return INTERRUPTED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
