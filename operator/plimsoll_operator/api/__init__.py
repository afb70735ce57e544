"""TrainingPlan as types: what a person writes, and what is told back.

Here `spec` and `status`; `record` for JSON in camel case, `quantities` for amounts.
"""
