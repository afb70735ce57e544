"""Reports of pods over HTTP: profiles, replays, rehearsals, observations, ends.

Pods run code of users, so every report is judged before any of it is stored. `server`
is the table of contents; docs/decisions/0015-cluster.md has the reasons.

    limits              how often and how much may be reported
    assignments         what tokens, pods and Jobs say of who reports
    identity            whose pod reports: token, pod, Job, TrainingPlan
    bodies              bytes off the wire, never more than there is room for
    recorded_attempts   what an attempt was planned to be, and whether it is over
    offered_revisions   plans in the place of the one that runs
    reports             what may be reported, by whom, about what
    server              the routes, and what goes into the store
"""
