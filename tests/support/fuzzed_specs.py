"""Faulty specs of TrainingPlans, drawn at random from a seed.

In: a seed. Out: specs as somebody might send them, most with one fault or several, of
which a schema sees some and nobody but the types or a cluster the others. Called by
tests/lab/test_fuzzed_specs_on_a_server.py, which sends them.

    edge       one field at, inside or outside of its bounds, odd or absent
    several    two to four places with values of any type
    unknown    fields that nobody knows, at one to three places
    unseen     what a schema has no words for: invisible characters, too much JSON
    template   what the API server keeps as it is: a pod template with odd places
    junk       any JSON document
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from plimsoll_operator.api.spec import TrainingPlanSpec
from tests.lab import kwok
from tests.support.api_values import (
    A_SPEC,
    ODD,
    ODD_TEXTS,
    UNKNOWN,
    Place,
    at,
    changed,
    edges,
    fields_of,
    places,
)

EXAMPLE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "examples" / "tiny-gpt.yaml").read_text()
)["spec"]
NEVER = {"profile": {"policy": "Never"}}
"""Policy with which a good spec is at its end at once, and starts nothing."""
OFFERS, CLAIM = A_SPEC["search"]["offers"]["configMap"], "checkpoints"
"""Names in good specs."""
A_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    "spec": {
        "nodeSelector": kwok.SELECTOR,
        "tolerations": [kwok.TOLERATION],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "first", "image": "a"}],
        "containers": [
            {
                "name": "trainer",
                "image": "torch",
                "command": ["python3"],
                "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            }
        ],
    },
}
"""With all that is looked into before a pod is made from it."""
FROM_EXAMPLE = EXAMPLE | NEVER
"""It finds its machines among the nodes."""
WHOLE = {
    **A_SPEC,
    "suspend": False,
    "checkpoint": A_SPEC["checkpoint"] | {"claimName": CLAIM},
    "launch": A_SPEC["launch"] | {"backend": "Job", "priorityClassName": ""},
    "template": A_TEMPLATE,
    **NEVER,
}
"""Every field, and good where the cluster has what it names."""
GOOD = {
    name: WHOLE[name]
    for name in ("workload", "training", "search", "template", "profile")
}
INVISIBLE = ("\u00a0", "\u00ad", "\u200b", "\u2028", "\u202e", "\ufeff", "\U000e0001")
"""Printable to a schema, which has words for control characters alone."""
TEXTS = (
    *(("checkpoint", name) for name in ("path", "resumeFrom")),
    ("search", "engine"),
)
"""Fields that take any text."""
LONG = (16_384, 20_000, 300_000)
"""Of JSON: what args may have, and more than they or a template may."""
MOST_DEPTH = 4
ABSENT = 0.05
Draw = Callable[[random.Random], Any]


def fuzzed(seed: int, number: int) -> Iterator[tuple[str, Any]]:
    """Yield so many specs, each after how it came about."""
    rng = random.Random(seed)  # noqa: S311 - specs, not secrets
    words, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    for word in rng.choices(words, weights, k=number):
        yield word, KINDS[word][1](rng)


def a_base(rng: random.Random) -> dict[str, Any]:
    """Draw a good spec."""
    return copy.deepcopy(rng.choice((A_SPEC, FROM_EXAMPLE, WHOLE)))


def an_edge(rng: random.Random) -> Any:
    """Draw a spec with one field that is odd or at its edge."""
    place, shape = rng.choice(FIELDS)
    if rng.random() < ABSENT:
        spec = copy.deepcopy(WHOLE)
        del at(spec, place[:-1])[place[-1]]
        return spec
    return changed(WHOLE, place, rng.choice([*edges(shape, at(A_SPEC, place)), *ODD]))


def several(rng: random.Random) -> Any:
    """Draw a spec with odd values at several places."""
    spec = a_base(rng)
    for _ in range(rng.randint(2, 4)):
        spec = changed(spec, a_place(rng, spec), odd(rng))
        if not isinstance(spec, dict):
            break
    return spec


def unknown(rng: random.Random) -> Any:
    """Draw a spec with fields that nobody knows."""
    spec = a_base(rng)
    for _ in range(rng.randint(1, 3)):
        holders = [one for one in places(spec) if isinstance(at(spec, one), dict)]
        name = rng.choice((UNKNOWN, "maxGpus", "", "a.b", "\u00e9", "x" * 300))
        spec = changed(spec, (*rng.choice(holders), name), odd(rng))
    return spec


def unseen(rng: random.Random) -> Any:
    """Draw a spec with a fault that no schema sees, and perhaps another one."""
    spec = a_base(rng)
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.1:
            arguments = {"a": "b" * rng.choice(LONG)}
            spec["workload"] = spec["workload"] | {"args": arguments}
        else:
            part, field = rng.choice(TEXTS)
            text = rng.choice(("a", "a b", "")) + rng.choice(INVISIBLE)
            spec[part] = spec.get(part, {}) | {field: text}
    return spec


def a_template(rng: random.Random) -> Any:
    """Draw a spec with a template that is odd at one place or several."""
    template = copy.deepcopy(A_TEMPLATE)
    for _ in range(rng.randint(1, 3)):
        chosen = a_place(rng, template)
        template = changed(template, chosen, odd(rng))
        if not chosen:
            break
    return copy.deepcopy(rng.choice((FROM_EXAMPLE, WHOLE))) | {"template": template}


def junk(rng: random.Random, depth: int = 0) -> Any:
    """Draw a JSON document."""
    kind = rng.randrange(6 if depth < MOST_DEPTH else 4)
    if kind < 4:
        return rng.choice((rng.choice(ODD), text(rng), rng.randint(-(2**53), 2**53)))
    size = rng.randint(0, 4)
    if kind == 4:
        return [junk(rng, depth + 1) for _ in range(size)]
    names = (*A_SPEC, *(text(rng) for _ in range(3)))
    return {rng.choice(names): junk(rng, depth + 1) for _ in range(size)}


def odd(rng: random.Random) -> Any:
    """Draw a value of any type."""
    return rng.choice((rng.choice(ODD), text(rng), junk(rng, MOST_DEPTH - 1)))


def text(rng: random.Random) -> str:
    """Draw a text of any script, or one that patterns may stumble over."""
    planes = ((0x20, 0x7E), (0x80, 0x2FFF), (0xE000, 0xFFFD), (0x1F300, 0xE01EF))
    marks = (chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(0, 12)))
    return rng.choice((rng.choice(ODD_TEXTS), "".join(marks), "x" * 3000))


def a_place(rng: random.Random, whole: Any) -> Place:
    """Draw a place in a document; its root is as likely as any other."""
    return rng.choice(list(places(whole)))


FIELDS = [
    (place, shape)
    for place, shape, _ in fields_of(TrainingPlanSpec)
    if place[0] != "profile"
]
"""But those that keep a good plan from starting anything."""
KINDS: dict[str, tuple[int, Draw]] = {
    "edge": (20, an_edge),
    "several": (15, several),
    "unknown": (8, unknown),
    "unseen": (27, unseen),
    "template": (25, a_template),
    "junk": (5, junk),
}
"""With how many of a hundred are of a kind."""
