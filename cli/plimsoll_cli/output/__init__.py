"""Output on a terminal.

console         the terminal: lines, JSON, what is under way
scales          numbers in their units, and round ones along an axis
tables          tables of any width; bytes and FLOP in their cells
rate_floor      the rate that was asked for, against plans beside the answer
answer_tables   plans, alternatives and combinations as tables
placement_table devices on which operators are placed, in the place of stages
usual_table     plans that people use, beside ours
largest_lines   the largest value that fits, or the fewest devices
profiling       a bar while a profile is made
memory_bars     a bar for each rank, up to its load line
frontier_table  memory against speed, point by point
frontier_plot   the same as a picture of letters
grid_table      other counts and micro-batches, cell by cell
grid_search     a line while these are searched
plan_page       what `run` and `describe` print of a plan
run_view        how a run goes on, line by line
"""
