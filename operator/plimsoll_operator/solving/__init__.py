"""The search: its questions, its answers, and the processes that it runs in.

solve_cache      questions and answers, kept in the store
revise_cache     plans that run, and whether to revise them
search_thread    beside the loop of one machine
search_process   one process that searches
solver           searches of many plans, in such processes
"""
