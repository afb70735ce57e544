"""The store: what was profiled, asked, answered, planned, run and observed.

open_store    opens a file or a database of a server, makes or migrates it; `Store`
              holds a repository each for profiles, replays, rehearsals, questions,
              answers, plans, attempts, observations, shortages, calibrations and ends
              of pods
rows          the tables           migrations   how they came about
database      transactions         system       what the two systems differ in
places        which system is meant; `sqlite` and `postgresql` know one each
"""
