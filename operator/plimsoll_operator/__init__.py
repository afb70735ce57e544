"""The loop: what there is, what to do next, and doing it.

It never imports torch; trainer and profiler run as processes or pods of their own.

    names             the API group and every label; names that must not change
    local_inventory   what this machine offers, as an offer
    errors            what can go wrong, and who catches it
"""
