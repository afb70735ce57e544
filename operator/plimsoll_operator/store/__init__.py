"""The store: what was profiled, asked, answered, planned, run and observed.

open_store    opens a file, makes or migrates it; `Store` holds a repository each
              for profiles, replays, questions, answers, plans, attempts,
              observations, shortages and calibrations
rows          the tables           migrations   how they came about
database      transactions         sqlite       the one place that knows SQLite
"""

from plimsoll_operator.store.answers import StoredAnswer as StoredAnswer
from plimsoll_operator.store.plans import StoredPlan as StoredPlan
from plimsoll_operator.store.profiles import StoredProfile as StoredProfile
from plimsoll_operator.store.store import Store as Store
from plimsoll_operator.store.store import open_store as open_store
