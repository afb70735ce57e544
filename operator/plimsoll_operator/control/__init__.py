"""The loop on a cluster: one queue, a pass over a plan at a time, one replica decides.

Read docs/decisions/0015-cluster.md first.

    configuration   the variables that the operator is set up with
    work_queue      which plan is due, handled by one worker at a time
    watching        what kopf's watches bring
    observe         the state of one plan: objects, pods, store
    reporting       metrics, Events and log lines of a pass
    publishing      question, answer and reports, kept for pages
    reconcile       one pass over one plan
    loop            many passes, and what no watch brings
    initial_sync    all plans from three lists, when an operator begins
    app             all of it put together
"""
