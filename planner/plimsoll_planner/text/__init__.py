"""Plans, certificates and answers in words.

counts      numbers of things
rules       the rules of a certificate
unfit       a fixed plan that no search would choose
space       what a certificate searched
explain     an answer, count by count
plans       what a plan takes and costs
headline    an answer in one line
placements  an operator graph on its devices
"""
