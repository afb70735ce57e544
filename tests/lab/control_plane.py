"""Level 1: the real control plane, on loopback and without root.

etcd, kube-apiserver with RBAC, kube-controller-manager, kube-scheduler, and kwok for
nodes that exist on paper only. Called by keeper.py, and by nodes.py, which runs the
same programs inside its namespaces and adds kubelets.

Measured on 2 cores: ready in 3 to 5 s.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.processes import PortTakenError, Processes, answers
from tests.support.ports import free_ports

NODE_GRACE_S = 20
"""After so long without a word a node is taken for dead; Kubernetes' default is 50."""
PORT_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Listen:
    """Address that the control plane listens at."""

    host: str
    api_port: int = 6443
    etcd_port: int = 2379
    peer_port: int = 2380
    service_range: str

    @property
    def api_url(self) -> str:
        """Address of the API server."""
        return f"https://{self.host}:{self.api_port}"


def start_on_loopback(processes: Processes) -> Listen:
    """Start a control plane on free ports of 127.0.0.1."""
    services = str(processes.slot.services)
    for _ in range(PORT_ATTEMPTS):
        api, etcd, peer = free_ports(3)
        listen = Listen(
            host="127.0.0.1",
            api_port=api,
            etcd_port=etcd,
            peer_port=peer,
            service_range=services,
        )
        try:
            start_api(processes, listen)
        except PortTakenError:  # someone bound one between our look and their start
            processes.stop("etcd", "kube-apiserver")
            continue
        start_controllers(processes, listen)
        return listen
    raise LabError(
        f"no free ports on 127.0.0.1 after {PORT_ATTEMPTS} attempts: "
        "see who takes them with `ss -ltnp`, then start the lab again"
    )


def start_api(processes: Processes, listen: Listen) -> None:
    """Start etcd and the API server, and wait until it serves."""
    state = processes.slot.state
    write_credentials(state, listen)
    processes.start_binary("etcd", *etcd_flags(state, listen))
    processes.start_binary("kube-apiserver", *apiserver_flags(state, listen))
    processes.wait_until(
        "the API server",
        lambda: answers(f"{listen.api_url}/readyz", state=state) is not None,
    )


def start_controllers(processes: Processes, listen: Listen) -> None:
    """Start what acts on objects, and wait until a pod could be created."""
    state = processes.slot.state
    kubeconfig = state / "kubeconfig"
    processes.start_binary(
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={state}/certs/apiserver.crt",
        f"--node-monitor-grace-period={NODE_GRACE_S}s",
        "--leader-elect=false",
        "--secure-port=0",
    )
    processes.start_binary(
        "kube-scheduler",
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
    )
    processes.start_binary(
        "kwok",
        f"--kubeconfig={kubeconfig}",
        f"--config={processes.binaries}/kwok-stages.yaml",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--server-address=",
    )
    account = f"{listen.api_url}/api/v1/namespaces/default/serviceaccounts/default"
    processes.wait_until(
        "the default ServiceAccount",
        lambda: answers(account, state=state) is not None,
    )


def write_credentials(state: Path, listen: Listen) -> None:
    """Write the administrator's token, for the API server and for clients."""
    token = secrets.token_hex(16)
    (state / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (state / "admin.json").write_text(json.dumps({"token": token}))
    cluster = {
        "server": listen.api_url,
        # Holds the authority besides the certificate it signed.
        "certificate-authority": f"{state}/certs/apiserver.crt",
    }
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
        "current-context": "lab",
    }
    (state / "kubeconfig").write_text(json.dumps(kubeconfig))


def etcd_flags(state: Path, listen: Listen) -> list[str]:
    """Flags of etcd: one member, and no waiting for a disk."""
    clients = f"http://127.0.0.1:{listen.etcd_port}"
    return [
        f"--data-dir={state}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls=http://127.0.0.1:{listen.peer_port}",
    ]


def apiserver_flags(state: Path, listen: Listen) -> list[str]:
    """Flags of the API server."""
    flags = [
        f"--etcd-servers=http://127.0.0.1:{listen.etcd_port}",
        f"--bind-address={listen.host}",
        f"--advertise-address={listen.host}",
        f"--secure-port={listen.api_port}",
        f"--service-cluster-ip-range={listen.service_range}",
        f"--cert-dir={state}/certs",
        # It makes that key for its certificate at first start; it signs tokens as well
        # as any other key would, and spares the lab a tool that makes keys.
        f"--service-account-key-file={state}/certs/apiserver.key",
        f"--service-account-signing-key-file={state}/certs/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={state}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
    ]
    if listen.host == "127.0.0.1":
        # A Service cannot point to loopback, the API server would complain for ever.
        flags.append("--endpoint-reconciler-type=none")
    return flags
