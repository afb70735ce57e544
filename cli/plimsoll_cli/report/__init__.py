"""The report of a run: one HTML file, read by people, that needs nothing besides it.

page             the page: report_html
headline         the plan in words, how it went, the main figures
memory_chart     memory of every rank against the load line
placement        memory of devices over a step, where operators are placed
schedule_chart   one step, pass by pass
proof            why not fewer
choices          what else could be had
frontier         memory against speed
grid             other counts and micro-batches, and which of them none beats
run_charts       loss and step time
facts            attempts, versions, digests
charts           places along axes
templates/       HTML and CSS
"""
