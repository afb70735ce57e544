"""The loop at home: one machine, processes in the place of pods.

    folders     where everything of a home lies
    tasks       what a child is asked to do, and what is written down of its life
    keeper      the process that keeps one child: starts, waits, writes down its end
    children    what runs now, by a mark that every process of a child carries
    commands    the command lines of profiling, replaying and training
    endings     what the exit codes of a child's processes mean
    reports     what the ranks of a gang tell while they train
    eyes        a look at one plan: store and children
    backend     processes, started and ended as the executor asks
    proof       one device fewer, run: every mesh dies of memory
    loop        look, decide, act, wait; until nothing is left to do

Whoever runs the loop may be killed at any moment: children go on, and the next one who
runs it finds them by their mark.
"""
