"""The home on Kubernetes: objects in the place of folders, pods in that of processes.

Read docs/decisions/0015-cluster.md first. `api` is the only module that talks to the
API server on our own behalf; kopf does so for its watches.
"""
