"""Tokens of service accounts that expire when a test wants them to.

In: a token that the API server gave out, for ten minutes at least. Out: the same claims
with another end, signed by the lab's own key, which that server believes.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.lab.cluster import Cluster

FORGIVEN_S: Final = 60
"""For so long after its end the API server takes a token all the same."""


def signing_key(cluster: Cluster) -> Path:
    """Key that tokens of a lab are signed with."""
    return cluster.state / "certs/apiserver.key"


def lasting(cluster: Cluster, token: str, life_s: float) -> str:
    """Token that is taken for some seconds more; for none, if below 0."""
    return resigned(token, signing_key(cluster), int(time.time() + life_s) - FORGIVEN_S)


def resigned(token: str, key: Path, expires_s: int) -> str:
    """Token that expires at another time, signed anew."""
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    head = part(json.dumps({"alg": "RS256"}).encode())
    text = f"{head}.{part(json.dumps(claims | {'exp': expires_s}).encode())}"
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", key],
        input=text.encode(),
        capture_output=True,
        check=True,
    ).stdout
    return f"{text}.{part(signed)}"


def part(content: bytes) -> str:
    """Part of a token."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
