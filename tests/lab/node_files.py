"""The configuration files and flags of a lab with real nodes. Called by nodes.py.

JSON wherever YAML is asked for: it is YAML, and the standard library writes it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.lab.host_packages import container_spec
from tests.lab.slots import Slot

COREFILE = """\
.:53 {{
    bind {address}
    errors
    ready {address}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig} lab
        pods insecure
        ttl 1
    }}
    # A name of the outside does not exist. Without this line it gives SERVFAIL, which
    # the C library reports as a temporary failure, to be tried again.
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd-{node}"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  # Where root lacks CAP_SYS_RESOURCE (most containers), every pod fails without this:
  # "runc create failed ... can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{state}/container.json"
"""


def write_shared(slot: Slot) -> None:
    """Write what all nodes share: DNS, service addresses, the pods' bridge, torch."""
    state = slot.state
    kubeconfig = f"{state}/kubeconfig"
    corefile = COREFILE.format(address=slot.bridge_address, kubeconfig=kubeconfig)
    (state / "Corefile").write_text(corefile)
    (state / "container.json").write_text(json.dumps(container_spec()))
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": "node0",  # one is enough: all nodes share a network
        "clusterCIDR": str(slot.pods),
        "clientConnection": {"kubeconfig": kubeconfig},
        # Zero leaves the kernel's settings alone: a network namespace cannot set them.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "healthzBindAddress": "",
        "metricsBindAddress": "",
    }
    (state / "kube-proxy.json").write_text(json.dumps(proxy))
    (state / "cni").mkdir()
    (state / "cni/pods.conflist").write_text(json.dumps(_pod_network(slot)))


def write_node(slot: Slot, node: int) -> None:
    """Write the files of one node's containerd and kubelet.

    Each kubelet has a containerd of its own: it kills pods that it does not know.
    """
    folder = slot.state / f"node{node}"
    folder.mkdir()
    containerd = CONTAINERD.format(folder=folder, node=node, state=slot.state)
    (folder / "containerd.toml").write_text(containerd)
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(slot, node, folder)))


def kubelet_flags(slot: Slot, node: int) -> list[str]:
    """Flags of a kubelet that its configuration file has no place for."""
    folder = slot.state / f"node{node}"
    return [
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={slot.state}/kubeconfig",
        f"--hostname-override=node{node}",
        f"--node-ip={slot.node_address(node)}",
        f"--root-dir={folder}/kubelet",
        f"--cert-dir={folder}/pki",
    ]


def _kubelet(slot: Slot, node: int, folder: Path) -> dict[str, object]:
    address = slot.node_address(node)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzBindAddress": address,
        "authentication": {
            "anonymous": {"enabled": True},
            "webhook": {"enabled": False},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{slot.cgroup(node)}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [slot.bridge_address],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "podLogsDir": f"{folder}/pod-logs",
        "volumePluginDir": f"{folder}/volume-plugins",
        "failSwapOn": False,
        # The disk is the machine's: how full it is must not decide over a test.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def _pod_network(slot: Slot) -> dict[str, object]:
    """CNI configuration: all nodes on one bridge, and one address store."""
    ranges = [[{"subnet": str(slot.pods), "gateway": slot.bridge_address}]]
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/pod-addresses",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
