"""The peak of this rank by phase of its life.

`PeakWatch` is the trainer's `on_phase`: at the end of a phase it reads the peak of the
device and starts anew. Everything in the first step counts as the first step, for
buffers and optimizer state come into being there; later steps keep their phases apart.
"""

from __future__ import annotations

from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.devices.device import Device, UsedBytes

STEP_PHASES = (Phase.BACKWARD, Phase.GRADIENT_NORM, Phase.OPTIMIZER_STEP)
"""The phases of one step, in order; forward and backward alternate, so are one."""


class PeakWatch:
    """Gathers the peak of each phase."""

    def __init__(self, device: Device) -> None:
        """Watch a device from now on."""
        self._device = device
        self._in_first_step = True
        self._found: dict[Phase, UsedBytes] = {}
        self.under_way = Phase.BUILD
        """Phase that an error now belongs to."""

    def begin_anew(self) -> None:
        """Forget all peaks: what follows is by another plan."""
        self._found, self._in_first_step = {}, True
        self._device.trim()
        self._device.read_peak()

    def begin(self, phase: Phase) -> None:
        """Note the phase that follows, if it is not one of a step."""
        self.under_way = phase

    def __call__(self, phase: Phase) -> None:
        """Read the peak of the phase that ends now."""
        is_step = phase in STEP_PHASES
        place = Phase.FIRST_STEP if is_step and self._in_first_step else phase
        used = self._device.read_peak()
        self._found[place] = used.most(self._found.get(place, used))
        self.under_way = Phase.FORWARD
        if is_step and phase is not STEP_PHASES[-1]:
            self.under_way = STEP_PHASES[STEP_PHASES.index(phase) + 1]
        if phase is STEP_PHASES[-1]:
            self._in_first_step = False

    @property
    def capacity_bytes(self) -> int:
        """Of the device; 0: unlimited."""
        return self._device.capacity_bytes

    @property
    def device_bytes(self) -> dict[Phase, int]:
        """Peak of the whole device by phase: what decides whether a rank fits."""
        return {phase: used.device for phase, used in self._found.items()}

    def observed(self) -> tuple[ObservedPeak, ...]:
        """Peaks as a report carries them."""
        return tuple(
            ObservedPeak(
                phase=phase,
                allocated_bytes=used.allocated,
                reserved_bytes=used.reserved,
                device_bytes=used.device,
            )
            for phase, used in self._found.items()
        )
