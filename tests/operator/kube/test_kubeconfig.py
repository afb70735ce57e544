"""Which cluster and namespace a person means, as kubectl would take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube import kubeconfig
from plimsoll_operator.kube.kubeconfig import VARIABLE, target_of


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod, no variable, no file of kubectl's own."""
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path / "account")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)


def a_file(path: Path, current: str = "one", **contexts: str) -> str:
    """Write a kubeconfig with contexts and their namespaces."""
    named = contexts or {"one": "team", "two": ""}
    content: dict[str, Any] = {
        "clusters": [{"name": "a", "cluster": {"server": "https://a.example"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "a", "user": "u", "namespace": space}}
            for name, space in named.items()
        ],
        "current-context": current,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_current_context_names_cluster_and_namespace(tmp_path: Path) -> None:
    """Unless others are named; a context without a namespace means `default`."""
    path = a_file(tmp_path / "config")
    found = target_of(path)
    assert (found.kubeconfig, found.context, found.namespace) == (path, "one", "team")
    assert target_of(path, "two").namespace == "default"
    assert target_of(path, "two", "mine").namespace == "mine"
    assert str(found) == f"the cluster of context one in {path}"


def test_files_are_looked_for_where_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is named, else those of the variable, else that of the user."""
    a_file(tmp_path / "home/.kube/config", current="mine", mine="home")
    assert target_of().namespace == "home"
    listed = [a_file(tmp_path / "x"), a_file(tmp_path / "y", current="z", z="last")]
    monkeypatch.setenv(VARIABLE, ":".join([*listed, str(tmp_path / "none")]))
    assert target_of(context="z").namespace == "last"
    assert target_of(context="one").namespace == "team"
    assert target_of(listed[0]).kubeconfig == listed[0]


def test_a_pod_without_a_file_means_its_own_cluster(tmp_path: Path) -> None:
    """And its own namespace."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "namespace").write_text("jobs\n")
    found = target_of()
    assert (found.kubeconfig, found.namespace) == ("", "jobs")
    assert str(found) == "the cluster of this pod"
    with pytest.raises(ClusterError, match="no kubeconfig"):
        target_of(context="one")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "no kubeconfig: while parsing"),
        ("text", "it has not the fields that kubectl writes"),
        ("", "it has not the fields that kubectl writes"),
        ("kind: Config", "has no current context: name one with --context, of none"),
    ],
)
def test_a_file_that_is_none_is_named(
    tmp_path: Path, content: str, message: str
) -> None:
    """With what is wrong with it."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ClusterError, match=message) as said:
        target_of(str(path))
    assert str(path) in str(said.value)


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    """A context with all of the file, a file with what to do next."""
    with pytest.raises(ClusterError, match=r"no context x in .*: it has one, two"):
        target_of(a_file(tmp_path / "config"), "x")
    with pytest.raises(
        ClusterError, match=r"no kubeconfig ~/\.kube/config, which would"
    ):
        target_of()
