"""Profiles for tests, probed without starting torch anew for each.

All but the process is real: the workload is loaded, probed and assembled as by
`plimsoll_profiler.profiling.profiler.profile`, on a rank of `tests.support.ranks` that
was forked under the emulated device, or, for CUDA or without workspaces, in the test's
own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.findings import Findings
from plimsoll_profiler.profiling.profiler import ask_all
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.user_code.fingerprint import fingerprint_of
from tests.support.ranks import Died, try_ranks

GPT = "tests.support.workloads:a_gpt"


def a_request(entrypoint: str = GPT, **fields: Any) -> ProfileRequest:
    """Ask for a traced profile of a small GPT for the emulated device."""
    defaults: dict[str, Any] = {
        "arguments": '{"depth": 2}' if entrypoint == GPT else "{}",
        "device_kind": DeviceKind.EMULATED,
        "source": Source.TRACED,
    }
    return ProfileRequest(entrypoint=entrypoint, **(defaults | fields))


def profile_here(request: ProfileRequest) -> ModelProfile:
    """Profile in this process."""
    arguments = parse_arguments(request.arguments)
    fingerprint = fingerprint_of(request.entrypoint, request.arguments)
    workload = load_workload(request.entrypoint, arguments)
    sizes, degrees = sorted(request.micro_batches), request.tensor_degrees
    prober = Prober(workload, sizes, degrees)
    with open_bench(request.device_kind, request.source) as bench:
        found = Findings(request=request, frame=prober.frame(fingerprint, bench))
        ask_all(partial(prober.probe, bench=bench), found, ignore)
    return assemble(request, found.frame, found.results)


def profile_on_device(**fields: Any) -> ModelProfile | Died:
    """Profile as an emulated device; `Died` holds what was raised there."""
    request = a_request(**({"source": Source.MEASURED} | fields))
    [made] = try_ranks(profile_here, [request.device_memory_bytes], request)
    return made


def ignore(done: int, total: int, what: str) -> None:
    """Show no progress."""
