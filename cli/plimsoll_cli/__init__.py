"""The `plimsoll` command: one verb a thing, tables for people, JSON for machines.

__main__     the command and its exit codes
offers       plimsoll offers: which machines there are, and at what price
output       the choice between a table and JSON
errors       what can go wrong, and how it leaves the process
"""
