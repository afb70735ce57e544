"""The `plimsoll` command: one verb a module, tables for people, JSON for machines.

Reading order is import order, from the last to the first:

    errors      what can go wrong, and how it leaves the process
    options/    what is typed, as values and records; documents that are read
    state/      the state directory of a user, and what it holds of each plan
    output/     the terminal: tables, bars, the view of a run
    report/     the page of a plan
    verbs/      one module for each verb; a new verb is a new module
    command     the verbs as one command
    dispatch    runs one command line; errors become a line and an exit code
    __main__    entry point
"""
