"""The search: every tuple of the space, decided by a bound or by an exact programme.

Reading order is import order:

    partition                  exact cuts of a chain, given values of all stages
    space                      the tuples, and what decides some of them at sight
    cost_tables                arrays that are computed once and asked often
    tuple_bounds, tuple_search one tuple: its bounds, its plans
    verdicts                   one tuple: fits, fails or undecided, and by which rule
    explore                    all tuples: the best first, the slimmest within a rate
    choose                     the plan that the goal asks for
    nearest_miss, certify      why nothing smaller does
    build_plan, alternatives   the plan as it is launched, and what else could be had
    infeasible, overridden     no plan, or one that a person insists on
    answer                     all of it: `solve`
    timeline                   when every pass of a plan begins and ends
"""
