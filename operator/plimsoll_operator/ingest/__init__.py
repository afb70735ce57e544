"""What pods tell the operator, over HTTP: profiles, replays, observations, ends.

Pods run code of users, so that all they tell is judged here before any of it is stored.
`server` is the table of contents; docs/decisions/0015-cluster.md says why it is so.

    identity     whose pod speaks: token, pod, Job, TrainingPlan
    objects      what those say
    remembered   what was asked of the API server a moment ago
    limits       how often and how much may be told
    bodies       bytes off the wire, never more than there is room for
    reports      what may be told, by whom, about what
    of_record    what an attempt was planned to be, and whether it is over
    records      what goes into the store
"""
