"""Kubeconfigs for servers that tests run themselves."""

from __future__ import annotations

import json
from pathlib import Path


def a_kubeconfig(folder: Path, server: str) -> Path:
    """Write a kubeconfig whose token is in a file beside it."""
    named = {
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(named))
    give(folder, "old")
    return file


def give(folder: Path, token: str) -> None:
    """Write another token."""
    (folder / "token").write_text(token)
