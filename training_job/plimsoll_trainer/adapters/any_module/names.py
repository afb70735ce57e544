"""Names of layers: the path of the module that most of a layer is in."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from plimsoll_trainer.adapters.any_module.parts import Part


def layer_names(parts: Sequence[Part]) -> list[str]:
    """Names in order, each once; without dots, so that none begins with another."""
    names: list[str] = []
    for part in parts:
        base = path_of(part).replace(".", "_")
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.append(name)
    return names


def path_of(part: Part) -> str:
    """The innermost module that all operators with tensors of their own are in."""
    own = [node for node in part.nodes if uses_tensors(node)]
    paths = [steps for node in own if (steps := steps_of(node))]
    common = common_steps(paths)
    return ".".join(common or next(iter(paths), [part.nodes[0].name]))


def common_steps(paths: Sequence[Sequence[str]]) -> list[str]:
    """Steps that all paths begin with."""
    common = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        common.append(steps[0])
    return common


def uses_tensors(node: fx.Node) -> bool:
    """Whether an operator takes a tensor of the module."""
    return any(one.op == "placeholder" for one in node.all_input_nodes)


def steps_of(node: fx.Node) -> list[str]:
    """Path of the innermost module that an operator is in, without the wrapper."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [str(path).split(".") for path, _ in stack.values()]
    return paths[-1][1:] if paths else []
