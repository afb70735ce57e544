"""The rules of a certificate in words: what decided a combination, and what that means.

In: rules. Out: lines of text. Called where a certificate is shown to people.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_planner.records.certificate import Rule

RULE_NAMES = {
    Rule.BATCH_DOES_NOT_DIVIDE: "batch does not divide",
    Rule.OUTSIDE_LIMITS: "outside the limits",
    Rule.ENGINE_CANNOT_RUN: "engine cannot run it",
    Rule.POD_SHAPE: "too few nodes",
    Rule.TENSOR_GROUP: "tensor group larger than a node",
    Rule.STATES_EXCEED: "states too large",
    Rule.LAYER_EXCEEDS: "a layer too large",
    Rule.MEMORY_RELAXED: "least memory of any batch too large",
    Rule.PEAK_EXCEEDS: "least memory too large",
    Rule.HOST_MEMORY: "host memory too small",
    Rule.RATE_BOUND: "too slow",
    Rule.RATE_AT_EQUAL_ERROR: "too slow at equal relative error",
    Rule.DOMINATED: "smaller micro-batch too large",
    Rule.SEARCHED: "searched",
    Rule.REPLAYED: "replayed",
    Rule.PLACED: "placed",
    Rule.PLACEMENT_BOUND: "no placement can fit",
    Rule.NOT_PLACED: "no placement found",
    Rule.NOT_SEARCHED: "not searched",
}
"""Words for people in the place of a rule's value, which JSON has."""
RULES = {
    Rule.BATCH_DOES_NOT_DIVIDE: "replicas x micro-batch does not divide the batch",
    Rule.OUTSIDE_LIMITS: "limits or what was fixed leave it no mesh or micro-batch",
    Rule.ENGINE_CANNOT_RUN: "fewer micro-batches than stages; the engine needs as many",
    Rule.POD_SHAPE: "more nodes are needed than there are",
    Rule.TENSOR_GROUP: "ranks that share each layer stay in one node, and are more "
    "than the devices that it has",
    Rule.STATES_EXCEED: "what stages keep between two steps exceeds the memory alone",
    Rule.LAYER_EXCEEDS: "one layer exceeds the memory alone",
    Rule.MEMORY_RELAXED: "the least memory, at any speed, of all replicas and "
    "micro-batches at once exceeds it",
    Rule.PEAK_EXCEEDS: "the plan of the least memory, at any speed, exceeds it still",
    Rule.HOST_MEMORY: "optimizer state on the host takes more than its memory: each "
    "device may use an equal share of its machine's, and none where nobody states that "
    "memory or the link to it",
    Rule.RATE_BOUND: "no plan that fits can reach the rate floor",
    Rule.RATE_AT_EQUAL_ERROR: "too slow if one factor is the error of all seconds, "
    "which proves nothing: measure the profile on the device, or ask for a number of "
    "samples/s",
    Rule.DOMINATED: "a smaller micro-batch needs no more memory, and exceeds it",
    Rule.SEARCHED: "all cuts, recomputed layers and choices of stages were searched",
    Rule.REPLAYED: "the replay of its plan decided it",
    Rule.PLACED: "a placement of its operators fits, by exact peaks",
    Rule.PLACEMENT_BOUND: "states, or operators with what they read and return, exceed "
    "the memory wherever they stand",
    Rule.NOT_PLACED: "heuristics found no placement that fits and is as fast as asked, "
    "which proves nothing",
    Rule.NOT_SEARCHED: "the work limit cut it off",
}
PLACING = (Rule.PLACED, Rule.PLACEMENT_BOUND, Rule.NOT_PLACED)
"""Rules of operators that are placed one by one."""
COMBINATION = "a combination is an offer, stages, replicas and a micro-batch"
OF_PLACEMENTS = "a combination is an offer, devices, replicas and a micro-batch"
WITH_TENSOR = (
    "a combination is an offer, stages, replicas, a tensor degree (with `sp`: sequence "
    "parallel as well) and a micro-batch"
)


def advice_text(rules: Iterable[Rule]) -> str:
    """What would decide combinations that are open, by the rules of their count."""
    if Rule.NOT_PLACED in rules:
        return "no placement that fits was found, and no bound says that there is none"
    return "narrow the intervals by a measured profile"


def combination_text(*, has_tensor: bool, is_placed: bool = False) -> str:
    """Parts of a combination, or of a tuple as the search has it."""
    if is_placed:
        return OF_PLACEMENTS
    return WITH_TENSOR if has_tensor else COMBINATION


def rule_lines(rules: Iterable[Rule], *, has_tensor: bool = False) -> list[str]:
    """Meaning of the rules that occur, and of tensor degrees if there are any."""
    found = set(rules)
    lines = (f"  {RULE_NAMES[rule]}: {RULES[rule]}" for rule in Rule if rule in found)
    is_placed = not found.isdisjoint(PLACING)
    parts = combination_text(has_tensor=has_tensor, is_placed=is_placed)
    return [f"{parts}; decided by:", *lines]
