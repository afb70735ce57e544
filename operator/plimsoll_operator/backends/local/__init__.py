"""The back end of one machine: processes in the place of pods, and its loop.

    state_dir        where everything of it lies
    checkpoints      which checkpoint is the newest, and how large it is
    task_processes   what runs now, by a mark that every process of a task carries
    rank_reports     what the ranks of a worker group report while they train
    observe          the state of one plan: store and processes
    backend          processes, started and ended as the executor asks
    proof            one device fewer, run: every mesh dies of memory
    loop             observe, decide, act, wait; until nothing is left to do

Whoever runs the loop may be killed at any moment: processes go on, and the next one who
runs it finds them by their mark.
"""
