"""The lab's binaries, built from the Go module in kubelab/ and kept in the cache.

Out: a folder with `kubelab`, one link to it per program it holds (etcd, kubelet, ...),
`helm`, and kwok's own stage files as `kwok-stages.yaml`. Called by `prepare`, `up` and
the fixtures.

Measured on 2 cores: 6 to 7 minutes with empty Go caches, 7 to 13 s with Go's build
cache full, nothing when the folder is there. The flags below are settled: another
-trimpath or CGO_ENABLED compiles everything again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.lab import cache
from tests.lab.cache import Cached
from tests.lab.errors import LabError

MODULE = Path(__file__).parent / "kubelab"
PROGRAMS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kwok",
)
KUBERNETES_VERSION = "v1.36.3"
HELM_VERSION = "v3.21.4"
STAGES = (  # of the module sigs.k8s.io/kwok, below kustomize/stage
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


def _link_flags() -> tuple[str, str]:
    """The -ldflags of kubelab and of helm: no symbols, and the versions."""
    stamps = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": "1",
        "gitMinor": "36",
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    kubelab = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in stamps.items()
    ]
    helm = [f"-X helm.sh/helm/v3/internal/version.version={HELM_VERSION}"] + [
        f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
        for package in ("chartutil", "lint/rules")
        for part in ("Major=1", "Minor=36")
    ]
    return " ".join(["-s -w", *kubelab]), " ".join(["-s -w", *helm])


def find_binaries() -> Path | None:
    """Folder of the binaries if they are in the cache; needs no Go."""
    return cache.find(f"kubelab-{_sources_digest()}-go*")


def build_binaries() -> Cached:
    """Folder of the binaries, built now if need be.

    Raises:
        LabError: no Go, an old Go, a read-only cache folder, a failed build.
    """
    if not shutil.which("go") and (found := find_binaries()):
        return Cached(folder=found, made_in_s=None)
    return cache.make_once(f"kubelab-{_sources_digest()}-{_go_version()}", _build)


def _sources_digest() -> str:
    sources = [MODULE / "go.mod", MODULE / "go.sum", *sorted(MODULE.glob("*.go"))]
    return cache.digest(
        [
            *(
                part
                for path in sources
                for part in (path.name.encode(), path.read_bytes())
            ),
            *(flags.encode() for flags in _link_flags()),
            *(name.encode() for name in (*PROGRAMS, *STAGES)),
        ]
    )


def _go_version() -> str:
    """Version of Go on the PATH, such as go1.26.8, if it is new enough."""
    wanted = re.search(r"^go (\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert wanted, "go.mod names a version of Go"
    needed = wanted[1]
    if not shutil.which("go"):
        raise LabError(
            f"Go is not on the PATH: install Go {needed} or newer, "
            "then run `make lab` or `make test` again"
        )
    # From / and not from the module, where an old Go would refuse to answer.
    found = _go("env", "GOVERSION", cwd=Path("/")).strip()
    if _numbers(found) < _numbers(needed):
        raise LabError(
            f"{found} is too old, the lab needs Go {needed} or newer: install it, "
            "then run `make lab` or `make test` again"
        )
    return found


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def _build(folder: Path) -> None:
    kubelab_flags, helm_flags = _link_flags()
    _go("build", "-trimpath", "-ldflags", kubelab_flags, "-o", f"{folder}/kubelab", ".")
    _go(
        *("build", "-trimpath", "-ldflags", helm_flags),
        *("-o", f"{folder}/helm", "helm.sh/helm/v3/cmd/helm"),
    )
    for program in PROGRAMS:
        (folder / program).symlink_to("kubelab")
    # Taken along now, so that a warm start needs neither Go nor its module cache.
    kwok = Path(_go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").strip())
    stages = [(kwok / "kustomize/stage" / name).read_text() for name in STAGES]
    (folder / "kwok-stages.yaml").write_text("\n---\n".join(stages))


def _go(*arguments: str, cwd: Path = MODULE) -> str:
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        ["go", *arguments],
        cwd=cwd,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise LabError(
            f"`go {arguments[0]}` failed in {cwd}: {lines[-1]} "
            f"(run it there by hand to see all {len(lines)} lines)"
        )
    return done.stdout
