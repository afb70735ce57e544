"""The store: what was profiled, asked, answered, planned, run and observed.

rows, migrations       the tables, and how they came about
system                 what database systems differ in
sqlite, postgresql     the only places that know either
places                 which system a path or an address means
migrate                brings the tables to a revision
database               transactions, and the base of all repositories
documents              records out of columns
profiles, replays      one repository a table, and so on:
rehearsals, questions, answers, plans, attempts, revisions, observations, shortages,
pod_ends
calibrations           overheads, fitted to observations and shortages
store                  all repositories; `open_store`
learning               what attempts and rehearsals teach
"""
