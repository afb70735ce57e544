"""The `plimsoll` command: one verb a thing, tables for people, JSON for machines.

__main__       the command and its exit codes
command        all verbs, and the options that come before them
dispatch       runs one command line; errors become a line and an exit code
profile        plimsoll profile: what the layers of a workload cost
plan           plimsoll plan: the fewest devices for a profile, and the proof
explain        plimsoll explain: why this count and not fewer
compare        plimsoll compare: the usual cuts beside the exact ones
offers         plimsoll offers: which machines there are, and at what price
question_options, option_types    the options of plan and compare, and their values
questions      what was typed, as records
option_names   errors about records, in options
files          documents that are read and written
answer_tables  what plan, explain and compare draw
output         tables of any width, JSON, and bytes as people read them
errors         what can go wrong, and how it leaves the process
"""
