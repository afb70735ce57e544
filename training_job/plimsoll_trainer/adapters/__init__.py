"""Workloads from what people have already."""
