"""The `plimsoll` command: one verb a thing, tables for people, JSON for machines.

__main__     the command and its exit codes
plan         plimsoll plan: the fewest devices for a profile, and the proof
explain      plimsoll explain: why this count and not fewer
compare      plimsoll compare: the usual cuts beside the exact ones
questions    options and files of these three, as records
answer_tables  what they draw
offers       plimsoll offers: which machines there are, and at what price
output       the choice between a table and JSON
errors       what can go wrong, and how it leaves the process
"""
