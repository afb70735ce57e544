"""The search: every tuple of the space, decided by a bound or by an exact programme.

Reading order is import order:

    searched                   refuses what the search does not look at
    partition                  exact cuts of a chain, given values of all stages
    walked_cuts                the cuts of the shortest walked step
    variants                   the ways in which tensor groups split layers
    space                      the tuples, and what decides some of them at sight
    known_seconds              offers that nobody knows the speed of, left out
    grouping                   where the stages of a very long chain may begin
    alike                      offers of like machines, which are searched once
    numbers                    which number of every interval a bound is made from
    option_store               options of runs of layers, for as long as there is room
    variant_tables             arrays of one variant, computed once and asked often
    cost_tables                those of all variants, and what they have in common
    placement                  runs of layers that may stand on the stages
    tuple_context              what is around one tuple: devices, links, choices
    family_bounds, periods     bounds of many tuples at once
    least_peaks                least memory of a tuple at any speed; whether to offload
    added_by_recomputing       seconds that stages recompute to fit
    choice_bounds              step bounds over the numbers in flight
    tuple_bounds               bounds of one tuple
    stage_options              what a stage does to fit, and how long that takes
    plan_caps, cut_bounds      numbers in flight for given cuts, and their bounds
    found, plans_within        plans of given cuts, within a capacity
    next_fit, grouped_plans    cuts and numbers in flight for a period, and their bound
    tuple_search               plans of one tuple: fastest, least memory
    host_need                  memory of the machine that a tuple lacks
    verdicts                   one tuple: fits, fails or undecided, and by which rule
    explore                    all tuples: the best first
    gaps                       how far a plan may be from the best
    choose                     the plan that the goal asks for
    nearest_miss, certify      why nothing smaller does
    front                      plans that no other one beats in everything
    build_plan, alternatives   the plan as it is launched, and what else could be had
    infeasible, overridden     no plan, or one that a person insists on
    placed_tuples,
    placed_numbers,
    placed_verdicts,
    placed_answer              operators in the place of layers, on devices one by one
    answer                     all of it: `solve`
    frontier                   memory against speed, for as many GPUs as a plan has
    grid                       other numbers of GPUs, times other micro-batches
    replayed                   an answer held against the replay of its ranks
    least_placements,
    least_memory_plans         what must run out of memory if a proof holds
    baselines                  what people do without a planner, judged alike
    usual_plans                plans that people use, judged by the same model
    breakdown                  what a predicted peak consists of, kind by kind
    planned                    a plan that was written down, as the search has it
    revised_search             plans in the place of one that runs
    largest                    the largest value of a question that still fits
    timeline                   when every pass of a plan begins and ends
"""
