"""Sources of plans: the state directory of a user, or a cluster.

In: options of a verb. Out: a `Place`, which makes a `PlanSource`. Called by get,
describe, explain and report, whose pages know nothing of where a plan runs. The module
of a source is loaded when it is used: one machine needs no client of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from plimsoll_cli.options.home import home_option
from plimsoll_cli.options.types import PATH

if TYPE_CHECKING:
    from plimsoll_cli.state.run_record import RunRecord
    from plimsoll_cli.state.shown_plan import ShownPlan

OF_A_CLUSTER = {
    "namespace": "--namespace",
    "all_namespaces": "--all-namespaces",
    "context": "--context",
    "kubeconfig": "--kubeconfig",
}
"""Options that mean nothing without `--cluster`, by their parameters."""

Verb = TypeVar("Verb", bound=Callable[..., Any])


class PlanSource(Protocol):
    """Plans that can be read."""

    @property
    def nothing(self) -> str:
        """Line for a list without a plan: where, and what to do next."""
        ...

    @property
    def spans_namespaces(self) -> bool:
        """Whether plans of one name may be several."""
        ...

    async def plans(self) -> tuple[ShownPlan, ...]:
        """All plans, the newest first."""
        ...

    async def find(self, name: str) -> tuple[ShownPlan, RunRecord]:
        """A plan and its record.

        Raises:
            NoSuchPlanError: there is none; names the nearest one.
            PlimsollError: it cannot be read.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Options that choose a source, which is made when it is read."""

    home: Path
    cluster: bool
    namespace: str
    context: str
    kubeconfig: str
    all_namespaces: bool = False

    def source(self) -> PlanSource:
        """The source that is asked for.

        Raises:
            ClusterError: no cluster is named.
        """
        # Imported here, for each of them loads what the other one does not need.
        if not self.cluster:
            from plimsoll_cli.state.gather import HomeSource  # noqa: PLC0415

            return HomeSource(self.home.absolute())
        from plimsoll_cli.state.cluster import cluster_source  # noqa: PLC0415

        return cluster_source(
            kubeconfig=self.kubeconfig,
            context=self.context,
            namespace=self.namespace,
            everywhere=self.all_namespaces,
        )


CLUSTER_OPTIONS = (
    click.option(
        "--cluster",
        is_flag=True,
        help="Read the plans of a cluster, not of this machine.",
    ),
    click.option(
        "--namespace",
        "-n",
        default="",
        help="Namespace on the cluster.  [default: that of the context]",
    ),
    click.option(
        "--context",
        default="",
        help="Context of the kubeconfig.  [default: the current one]",
    ),
    click.option(
        "--kubeconfig",
        type=PATH,
        help="File that names clusters.  [default: KUBECONFIG, or ~/.kube/config]",
    ),
)
everywhere_option = click.option(
    "--all-namespaces",
    "-A",
    is_flag=True,
    help="List the plans of all namespaces of the cluster.",
)


def place_options(verb: Verb) -> Verb:
    """Add the options that choose a source; the verb gets them as its `place`."""

    @wraps(verb)
    def with_place(**given: Any) -> Any:
        names = ("home", "cluster", *OF_A_CLUSTER)
        asked = {name: given.pop(name) for name in names if name in given}
        kubeconfig = asked.pop("kubeconfig")
        require_one_place(click.get_current_context(), is_cluster=asked["cluster"])
        return verb(**given, place=Place(**asked, kubeconfig=str(kubeconfig or "")))

    wrapped: Any = with_place
    for option in (*reversed(CLUSTER_OPTIONS), home_option):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return] # click keeps no type


def require_one_place(context: click.Context, *, is_cluster: bool) -> None:
    """Refuse options of one machine and of a cluster beside each other.

    Raises:
        UsageError: names the option that is too much.
    """
    if not is_cluster:
        for parameter, option in OF_A_CLUSTER.items():
            if context.params.get(parameter):
                text = f"{option} is of a cluster: add --cluster"
                raise click.UsageError(text, context)
    elif context.get_parameter_source("home") is ParameterSource.COMMANDLINE:
        text = "--home is of this machine: leave it away, or read no cluster"
        raise click.UsageError(text, context)
    if context.params.get("namespace") and context.params.get("all_namespaces"):
        text = "--namespace names one, and --all-namespaces asks for all of them"
        raise click.UsageError(text, context)
