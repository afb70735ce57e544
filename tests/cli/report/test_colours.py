"""Colours of the page: readable in light and in dark, and more than colours."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import pytest

from plimsoll_planner.memory.rank_peak import MemoryKind

CSS = (files("plimsoll_cli.report") / "templates" / "report.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
)
TEXT = 4.5
"""Least contrast of text, by WCAG 2.2, 1.4.3."""
DRAWN = 3.0
"""Least contrast of what is drawn, 1.4.11."""
LIGHTNESS = 1.25
"""Contrast of neighbours that their names and a gap tell apart as well."""


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_readable(scheme: dict[str, str]) -> None:
    """On the page, and in lines of tables that stand out."""
    for ink in ("ink", "soft", "load", "good", "bad", "open"):
        assert contrast(scheme[ink], scheme["paper"]) >= TEXT, ink
        assert contrast(scheme[ink], scheme["faint"]) >= TEXT, ink


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_names_in_bars_are_readable(scheme: dict[str, str]) -> None:
    """Every kind of memory has a rule, and its ink stands out from its ground."""
    kinds = [kind.split()[0] for kind in MemoryKind]
    for kind in (*kinds, "expected"):
        [rule] = re.findall(
            rf"\.k-{kind}(?:,[^{{]*)? \{{(.*?)\}}", CSS, re.MULTILINE | re.DOTALL
        )
        ground = re.search(r"background: var\(--([\w-]+)\)", rule)
        ink = re.search(r"[^-]color: var\(--([\w-]+)\)", rule)
        assert ground is not None
        assert ink is not None
        assert contrast(scheme[ground[1]], scheme[ink[1]]) >= TEXT, kind


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_neighbours_in_a_bar_differ_in_lightness_or_pattern(
    scheme: dict[str, str],
) -> None:
    """Who sees no colours tells them apart: state, activations and the rest."""
    patterned = {
        kind
        for kind in ("inputs", "boundaries", "received", "outside")
        if re.search(rf"\.k-{kind}\b[^{{]*\{{[^}}]*repeating-linear-gradient", CSS)
    }
    assert len(patterned) == 4
    kinds = [kind.split()[0] for kind in MemoryKind]
    for one, other in pairwise(kinds):
        if not patterned & {one, other}:
            assert contrast(scheme[one], scheme[other]) >= LIGHTNESS, (one, other)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_stand_out_from_the_page(scheme: dict[str, str]) -> None:
    """The load line, the curve of the loss and the passes of a step."""
    for drawn in ("load", "gradients", "backward"):
        assert contrast(scheme[drawn], scheme["paper"]) >= DRAWN, drawn
    assert contrast(scheme["forward"], scheme["backward"]) >= LIGHTNESS
