"""Reports of a rank, to people and to whoever started it.

console         lines for people: what went wrong, progress
report_sink     the report file, written from a thread
reports         what stands in it, and when
"""
