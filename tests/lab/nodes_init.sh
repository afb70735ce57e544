#!/bin/sh
# First process (pid 1) inside the namespaces of a lab with real nodes. It makes the
# lab's view of the file system and its network, reports by writing `inside`, and then
# only collects orphans; nodes.py starts everything else in here.
#
# usage: nodes_init.sh STATE LINK HOST_ADDRESS BRIDGE_ADDRESS/LENGTH NODE_ADDRESS...
set -eu
state=$1 link=$2 host=$3 bridge=$4
shift 4

mount --make-rshared /
# Fixed paths of kubelet, containerd and CNI, whatever their flags say. Theirs vanish
# with the namespace; the host's are out of sight.
for folder in /run /var/lib; do mount -t tmpfs tmpfs "$folder"; done
mkdir -p /run/netns /var/lib/kubelet /var/lib/cni
mkdir -p "$state/var-log"
mount --bind "$state/var-log" /var/log

# An image that nobody has must fail at once: ask the cluster's DNS, which knows no
# registry. The file may be a link to a place below /run, which is empty now.
echo "nameserver ${bridge%/*}" >"$state/resolv.conf"
resolver=$(readlink -m /etc/resolv.conf)
mkdir -p "$(dirname "$resolver")"
[ -e "$resolver" ] || : >"$resolver"
mount --bind "$state/resolv.conf" "$resolver"

ip link set lo up
while ! ip link show "$link" >/dev/null 2>&1; do sleep 0.02; done
for address in "$@"; do ip address add "$address/24" dev "$link"; done
ip link set "$link" up
ip route add default via "$host"
ip link add pods type bridge
ip address add "$bridge" dev pods
ip link set pods up
echo 1 >/proc/sys/net/ipv4/ip_forward

: >"$state/inside"
while :; do sleep 3600 & wait $!; done
