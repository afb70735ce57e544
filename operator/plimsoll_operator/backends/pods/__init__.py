"""Back ends of a cluster: what makes the pods of a child.

    pod_backend   what all of them share: pods, and what stands beside them
    job           Indexed Jobs
    admission     whether a plan can be launched, asked before any work

Another one is a module here, a line in `admission.BACKENDS`, rights in the chart, and
whoever observes its objects as `objects.jobs` does those of Jobs.
"""
