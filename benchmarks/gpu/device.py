"""The device that is measured, and what runs there.

In: `cuda` or `cpu`. Out: facts, and the offer that plans are made for. A GPU is asked
in a process of its own, so that this one never takes any of its memory.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import EMULATED_PRODUCT, Offer
from plimsoll_planner.units import product_name
from plimsoll_trainer.errors import NoGpuError

EMULATED_BYTES = 2**30
MOST_STAGES = 8
ASK_GPU = """
import json, torch
free, total = torch.cuda.mem_get_info()
print(json.dumps({
    "product": torch.cuda.get_device_name(),
    "capacity_bytes": total,
    "cuda": torch.version.cuda,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    "capability": list(torch.cuda.get_device_capability()),
}))
"""
ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredDevice:
    """The device that is measured."""

    kind: DeviceKind
    product: str
    capacity_bytes: int
    versions: dict[str, str]

    @property
    def name(self) -> str:
        """Product and torch, by which results of devices are kept apart."""
        return f"{self.product}, torch {self.versions['torch']}"

    def offer(self, capacity_bytes: int = 0) -> Offer:
        """One node of such devices, as large as they are or as given."""
        return Offer(
            name=self.product,
            device_kind=self.kind,
            device_product=self.product,
            device_memory_bytes=capacity_bytes or self.capacity_bytes,
            devices_per_node=MOST_STAGES,
        )


def find_device(name: str) -> MeasuredDevice:
    """The device of this machine.

    Args:
        name: `cuda` or `cpu`.

    Raises:
        NoGpuError: there is none.
    """
    versions = {"python": platform.python_version()}
    versions |= {package: version(package) for package in ("torch", "numpy")}
    if name == "cpu":
        return MeasuredDevice(
            kind=DeviceKind.EMULATED,
            product=EMULATED_PRODUCT,
            capacity_bytes=EMULATED_BYTES,
            versions=versions,
        )
    found = ask_gpu()
    versions |= {"cuda": str(found["cuda"]), "nccl": str(found["nccl"])}
    versions["driver"] = driver()
    return MeasuredDevice(
        kind=DeviceKind.CUDA,
        product=product_name(str(found["product"])),
        capacity_bytes=int(str(found["capacity_bytes"])),
        versions=versions,
    )


def ask_gpu() -> dict[str, object]:
    """Facts of the first GPU, by torch.

    Raises:
        NoGpuError: it does not find one.
    """
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            (sys.executable, "-c", ASK_GPU),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise NoGpuError(f"the GPU does not answer within {TIMEOUT_S:g} s") from None
    answers = done.stdout.splitlines()
    if done.returncode or not answers:
        line = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise NoGpuError(
            f"torch finds no GPU that works ({line}): run this where one is, or try it "
            "on emulated devices with make gpu DEVICE=cpu"
        )
    answer: dict[str, object] = json.loads(answers[-1])
    return answer


def driver() -> str:
    """Version of the driver; `unknown` where it does not say."""
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own program
            ASK_DRIVER, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0]
