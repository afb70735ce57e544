"""Logs, metrics and health of the operator.

logs           one line an event, with the plan it is about
plan_metrics   numbers of each plan
metrics        what happened, counted
health         the routes for probes and for Prometheus
"""
