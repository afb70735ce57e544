"""Back ends of a cluster: what makes the pods of a child.

job   Indexed Jobs
"""
