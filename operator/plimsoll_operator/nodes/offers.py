"""Reads the machines that can be had from a ConfigMap.

In: the ConfigMap that `spec.search.offers.configMap` names. Out: the offers of its
table. Called where a plan is observed. If a plan names a table, that is the whole list,
because an autoscaler makes nodes that no inventory knows; if not, the inventory is. A
table may lack prices: they are asked for with the objective (`require_sound`).
"""

from __future__ import annotations

from collections import Counter

from plimsoll_operator.api.manifest import TABLE_NAME
from plimsoll_operator.kube.api import Object
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.offer import Offer

BYTE_ORDER_MARK = "\ufeff"
"""Some editors open a file with it, and `kubectl create configmap` takes it along."""


def offers_in(config_map: Object) -> tuple[Offer, ...]:
    """The offers that a ConfigMap lists, all of one kind of device.

    Raises:
        InvalidInputError: it has no such table, or one that is wrong; names ConfigMap,
            line and column.
    """
    source = f"ConfigMap {config_map.get('metadata', {}).get('name', '')}"
    data: Object = config_map.get("data") or {}
    table: object = data.get(TABLE_NAME)
    if not isinstance(table, str):
        there = [*data, *(config_map.get("binaryData") or ())]
        rule = f"a table named {TABLE_NAME}, as text in UTF-8"
        raise InvalidFieldError(f"{source}: data", ", ".join(sorted(there)), rule)
    found = parse_offers(table.removeprefix(BYTE_ORDER_MARK), source).offers
    kinds = {offer.device_kind for offer in found}
    if len(kinds) > 1:
        rule = "one kind of device in a table, for a plan uses no two"
        column = f"{source}, DeviceKind"
        raise InvalidFieldError(column, ", ".join(sorted(kinds)), rule)
    listed = Counter(offer.identity for offer in found)
    twice = [one for one, times in listed.items() if times > 1]
    if twice:
        rule = "lines that differ in InstanceType, Region or terms"
        raise InvalidFieldError(source, " ".join(filter(None, twice[0])), rule)
    return found
