"""The store: what was profiled, asked, answered, planned, run and observed.

open_store    opens a file or a database of a server, makes or migrates it; `Store`
              holds a repository each for profiles, replays, rehearsals, questions,
              answers, plans, attempts, observations, shortages, calibrations and ends
              of pods
rows          the tables           migrations   how they came about
database      transactions         backend      what the two systems differ in
sqlite        the one place that knows SQLite; `postgresql` likewise
"""

from plimsoll_operator.store.answers import StoredAnswer as StoredAnswer
from plimsoll_operator.store.plans import StoredPlan as StoredPlan
from plimsoll_operator.store.pod_ends import StoredEnd as StoredEnd
from plimsoll_operator.store.profiles import StoredProfile as StoredProfile
from plimsoll_operator.store.store import Store as Store
from plimsoll_operator.store.store import open_store as open_store
