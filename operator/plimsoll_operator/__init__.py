"""The loop: what there is, what to do next, and doing it.

It never imports torch; trainer and profiler run as processes or pods of their own. The
rooms, the lowest first; `pyproject.toml` holds who may import whom:

    names       the API group and every label; names that must not change
    errors      what can go wrong, and who catches it
    api         TrainingPlan as types
    rules       the reconcile rules: pure decisions
    kube        the API server
    telemetry   metrics, logs, probes
    store       tables
    nodes       machines
    objects     Kubernetes objects of a plan
    solving     the search, and what it has answered
    backends    carrying out decisions, in pods or in processes of this machine
    ingest      reports of pods
    control     the loop on a cluster
"""
