"""Ranks of a plan without the others: replayed without data, or rehearsed on a device.

planned_work        the workload of a plan, held to the code that is here
rank_replay         a rank's real stage and schedule on tensors without data
placed_replay       a rank of a placement likewise
side_by_side        several at a time, in forks
replay_process      the replayer: started, and what its end means
replayer            the process that replays a plan
toy                 a chain of two stages that is run and replayed
self_check          the replay against real processes
other_processes     what others use of a GPU
rehearsal           a rank with real tensors, alone on one device
rehearser           the process that does so
"""
