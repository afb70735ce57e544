"""The `plimsoll` command: one verb a thing, tables for people, JSON for machines.

__main__       the command and its exit codes
command        all verbs, and the options that come before them
run            runs one command line; errors become a line and an exit code
profile        plimsoll profile: what the layers of a workload cost
plan           plimsoll plan: the fewest devices for a profile, and the proof
explain        plimsoll explain: why this count and not fewer
compare        plimsoll compare: the usual cuts beside the exact ones
offers         plimsoll offers: which machines there are, and at what price
questions      options and files of plan, explain and compare, as records
answer_tables  what they draw
output         tables, JSON, and bytes as people read them
errors         what can go wrong, and how it leaves the process
"""
