"""TrainingPlan as types: what a person writes, and what is told back.

Here `spec` and `status`; `record` for JSON in camel case, `quantities` for amounts,
`search_fields` for the fields of a spec that have a row in the planner's table.
"""
