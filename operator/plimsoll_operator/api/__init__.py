"""TrainingPlan as types: what a person writes, and what is reported back.

quantities      amounts as Kubernetes writes them
record          records in camel case
search_fields   fields of a spec that have a row in the planner's table
spec            what a person asks for
status          what is reported back
reasons         the reasons of conditions, and their meanings
manifest        a file with one TrainingPlan
manifest_text   such a file, from what was asked on a command line
sentences       the sentences below fields, as data
schema          the schema of all that
definition      the CustomResourceDefinition
"""
