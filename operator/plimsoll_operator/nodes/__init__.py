"""The machines that plans may use: nodes of a cluster, or this machine.

this_machine   CUDA devices, or emulated devices in the memory of this machine
labels         what nodes are labelled with, and by whom
taints         which taints keep pods off a node
inventory      nodes as offers
offers         a table of offers in a ConfigMap
placement      the node affinity that a plan needs
affinity       which nodes an affinity admits
host_memory    how much memory of the host pods may ask for
machines       all that, looked up for one plan
"""
