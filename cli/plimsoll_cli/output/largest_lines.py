"""The answer of `solve`: how large a value may be, for people and for machines.

In: `Found`. Out: lines, or plain data. Called by the verb `solve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_cli.options.unknown import SCALES, End, Unknown

ENDS = {
    End.AT_MOST: "--at-most allows",
    End.MAX_MICRO_BATCH: "--max-micro-batch allows",
    End.USUAL: "is tried without --at-most",
    End.MODEL: "the model takes",
}
"""Who gave a limit: the most that ..."""
RATE = "the rate that was asked for"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The largest value that fits, or the fewest devices."""

    unknown: Unknown
    fits: int | None
    """At the rate that was asked for, if any was."""
    fits_at_any_speed: int | None
    fails: int | None
    """At any speed; of devices the most that fail, at the rate."""
    grain: int
    limit: int
    end: End
    refusal: str = ""
    """Why the model takes no larger value."""
    has_floor: bool = False
    """Whether a rate was asked for."""
    batch: int
    """Samples of a step, with what fits; if nothing does, with the least value."""
    machines: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "for": self.unknown.value,
            "fits": self.fits,
            "fits_at_any_speed": self.fits_at_any_speed,
            "fails": self.fails,
            "grain": self.grain,
            "limit": self.limit,
            "ended_by": self.end.value,
            "batch": self.batch,
            "machines": list(self.machines),
        }


def lines_of(found: Found) -> list[str]:
    """The answer for people."""
    parts = [*fitting(found), *beyond(found)]
    refused = [f"it refuses more: {found.refusal}"] if found.refusal else []
    return ["; ".join(parts), *refused]


def fitting(found: Found) -> list[str]:
    """The largest value that fits, and the rate that it reaches."""
    slow, fits = found.fits_at_any_speed, found.fits
    if slow is None:
        is_sure = found.fails == found.grain
        return ["none fits" if is_sure else "none fits for sure"]
    scale = SCALES[found.unknown]
    if fits is None:
        fit = f"{scale.text(slow)} fit{s(slow)}"
        return [f"none is proven to reach {RATE}", f"at some speed {fit}{most(found)}"]
    at_rate = f" and reach{'es' if fits == 1 else ''} {RATE}" if found.has_floor else ""
    text = f"{scale.text(fits)} fit{s(fits)}{at_rate}"
    if fits == slow:
        return [text + most(found)]
    return [
        text,
        f"more, up to {slow:,}{most(found)}, fit and are not proven to reach it",
    ]


def most(found: Found) -> str:
    """That no more is allowed, if all that is allowed fits."""
    is_most = found.fails is None and found.fits_at_any_speed == found.limit
    return f", the most that {ENDS[found.end]}" if is_most else ""


def beyond(found: Found) -> list[str]:
    """Values above: that fail, that nothing is proven about, that were not tried."""
    low, high = found.fits_at_any_speed, found.fails
    steps = [f"multiples of {found.grain:,} were tried (--grain)"]
    steps = steps if found.grain > 1 else []
    if high is None:
        if low == found.limit:
            return steps
        limit = f"up to {found.limit:,}, the most that {ENDS[found.end]}, none fails"
        return [f"{limit} for sure"]
    fail = f"{high:,} fail{s(high)}"
    if high - (low or 0) == found.grain:
        return [fail, *steps]
    between = "below" if low is None else "between them"
    return [fail, f"{between} nothing is proven"]


def s(value: int) -> str:
    """Ending of a verb whose subject is a number of things."""
    return "s" if value == 1 else ""
