"""Starts this process again as the emulated device that its plan is for.

A library is preloaded by the loader alone, as a process begins. So a rank that reads a
plan of emulated devices replaces itself, before torch is loaded: same process, same
arguments, same place under torchrun. A SIGTERM on the way waits for what comes after.

    plan for emulated devices, not started as one  ->  environment, start again
    started as one already                         ->  go on, with --device-memory
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.emulated.device import (
    CAP_VARIABLE,
    EmulatedDevice,
    environment,
    is_emulated_device,
)
from plimsoll_trainer.process.admission import Admitted
from plimsoll_trainer.process.stopping import StopSignal


def be_device_of(admitted: Admitted, stop: StopSignal) -> None:
    """Become the device that the plan is for, if it is an emulated one.

    Raises:
        NoEmulatedDeviceError: the library cannot be built.
    """
    plan, given = admitted.plan, admitted.options.device_memory
    if plan.offers[0].device_kind is not DeviceKind.EMULATED:
        return
    if is_emulated_device():
        if given:
            EmulatedDevice().set_cap(given)
    elif CAP_VARIABLE not in os.environ:  # else the loader could not preload it
        stage = plan.stage_of(admitted.place.rank)
        planned = plan.offers[stage.offer].device_memory_bytes
        start_again(environment(given or planned), stop)


def start_again(extra: Mapping[str, str], stop: StopSignal) -> NoReturn:
    """This process, replaced by one of the same command line with more variables.

    The new one is asked to stop if this one was.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if stop.is_set:
        signal.raise_signal(signal.SIGTERM)  # waits until the next process listens
    sys.stdout.flush()
    sys.stderr.flush()
    words = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, words, os.environ | dict(extra))  # noqa: S606 - ourselves
