"""Level 2: real kubelets on containerd, with pod network, DNS and service addresses.

Called by keeper.py, as root. Everything runs in mount, network and process namespaces
of its own, so that killing one process ends it all and leaves no mount, rule or shim:

    host 10.242.S.1 --link-- 10.242.S.2  API server, node0's kubelet
                             10.242.S.3  node1's kubelet
                             bridge 10.243.(16 S).1/20: gateway of all pods, CoreDNS

S is the number of the slot. The host has routes through the link, so tests reach the
API server, every pod and every service address directly. Pods have no way out.

Measured on 2 cores with the three images of images.py: see README.md.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab import cgroups, control_plane, images, node_files, packages
from tests.lab.control_plane import Listen
from tests.lab.errors import LabError
from tests.lab.processes import Processes, answers

INIT = Path(__file__).parent / "nodes_init.sh"
DNS_READY_PORT = 8181
DEVICE_PLUGINS = "var/lib/kubelet/device-plugins/kubelet.sock"
"""Where a kubelet listens for device plugins, whatever its flags say."""


def require() -> Path:
    """Archive of images, once all that nodes need is there.

    Raises:
        LabError: not root, packages missing, images not made.
    """
    if os.geteuid():
        raise LabError("real nodes need root: run `sudo make test` (or `make lab` so)")
    if names := packages.missing():
        raise LabError(
            f"packages are missing ({' '.join(names)}): run `sudo make test`, which "
            "installs them, or `apt-get install` them"
        )
    if not (archive := images.find_images()):
        raise LabError("the nodes' images are not made: run `sudo make test`")
    return archive


def start(processes: Processes, *, num_nodes: int) -> dict[str, Any]:
    """Start control plane and nodes; return what clients want to know of them."""
    archive = require()
    slot = processes.slot
    nodes = range(num_nodes)
    listen = Listen(host=slot.node_address(0), service_range=str(slot.services))
    plugins = _enter_namespaces(processes, num_nodes) / DEVICE_PLUGINS
    node_files.write_shared(slot)
    for node in nodes:
        node_files.write_node(slot, node)
        cgroups.make(slot.cgroup(node))
        config = slot.state / f"node{node}/containerd.toml"
        processes.start(f"containerd-{node}", "containerd", "--config", config)
        # Unpacking takes as long as the control plane's start: do both at once.
        processes.start(
            f"import-{node}", "sh", "-c", _import(slot.state, node, archive)
        )
    control_plane.start_api(processes, listen)
    processes.start_binary("coredns", "-conf", f"{slot.state}/Corefile")
    processes.start_binary("kube-proxy", f"--config={slot.state}/kube-proxy.json")
    control_plane.start_controllers(processes, listen)
    for node in nodes:
        imported = partial(processes.is_done, f"import-{node}")
        processes.wait_until(f"the images of node{node}", imported)
    # Not before all imports are done: a kubelet looks at every mount when it starts,
    # and dies of one that an import, also of another node, has meanwhile undone.
    for node in nodes:
        is_remade = partial(_is_remade, plugins, _changed_ns(plugins))
        processes.start_binary(f"kubelet-{node}", *node_files.kubelet_flags(slot, node))
        # In turn: each removes the socket of the one before and makes its own, and dies
        # where another makes one in between.
        processes.wait_until(f"the kubelet of node{node}", is_remade)
    dns = f"http://{slot.bridge_address}:{DNS_READY_PORT}/ready"
    processes.wait_until("the cluster's DNS", lambda: answers(dns) is not None)
    processes.wait_until(
        "all nodes Ready", lambda: _num_ready(slot.state, listen) == num_nodes
    )
    return {"nodes": [f"node{node}" for node in nodes]}


def _changed_ns(socket: Path) -> int | None:
    """When a socket was made; None while there is none."""
    try:
        return socket.stat().st_ctime_ns
    except FileNotFoundError:
        return None


def _is_remade(socket: Path, former_ns: int | None) -> bool:
    """Whether a socket is there and another than the former."""
    return _changed_ns(socket) not in (former_ns, None)


def _enter_namespaces(processes: Processes, num_nodes: int) -> Path:
    """Make the namespaces and the link to them, for all that is started from now on.

    Returns:
        The root of the file system inside.
    """
    slot = processes.slot
    init = processes.start(
        "namespaces",
        *("unshare", "--mount", "--net", "--pid", "--mount-proc"),
        *("--propagation=private", "--fork", "--kill-child"),
        *(str(INIT), str(slot.state), slot.node_link, slot.host_address),
        f"{slot.bridge_address}/{slot.pods.prefixlen}",
        *(slot.node_address(node) for node in range(num_nodes)),
    )
    ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{init.pid}/ns/net")
    processes.wait_until(
        "a network namespace", lambda: theirs.readlink() != ours.readlink()
    )
    peer = f"peer name {slot.node_link} netns {init.pid}"
    _ip(f"link add {slot.host_link} type veth {peer}")
    _ip(f"address add {slot.host_address}/24 dev {slot.host_link}")
    _ip(f"link set {slot.host_link} up")
    for network in (slot.pods, slot.services):
        _ip(f"route add {network} via {slot.node_address(0)}")
    processes.wait_until("the namespaces", (slot.state / "inside").exists)
    space = f"/proc/{init.pid}/ns"
    processes.inside = (
        *("nsenter", f"--mount={space}/mnt", f"--net={space}/net"),
        f"--pid={space}/pid_for_children",
    )
    return Path(f"/proc/{init.pid}/root")


def _ip(arguments: str) -> None:
    done = subprocess.run(
        ["ip", *shlex.split(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(
            f"`ip {arguments}` failed: {done.stderr.strip()} "
            "(does something else use 10.241.0.0 to 10.243.255.255 here?)"
        )


def _import(state: Path, node: int, archive: Path) -> str:
    """Script that waits for a node's containerd and gives it the images."""
    ctr = f"ctr --address {state}/node{node}/containerd.sock --namespace k8s.io"
    return (
        f"until {ctr} version >/dev/null 2>&1; do sleep 0.05; done; "
        f"exec {ctr} images import {shlex.quote(str(archive))}"
    )


def _num_ready(state: Path, listen: Listen) -> int:
    body = answers(f"{listen.api_url}/api/v1/nodes", state=state)
    conditions = [
        condition
        for node in json.loads(body or '{"items": []}')["items"]
        for condition in node["status"].get("conditions", ())
    ]
    return sum(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
