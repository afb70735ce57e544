"""Plans, certificates and answers in words.

rules      the rules of a certificate
unfit      a fixed plan that no search would choose
explain    an answer, count by count
plans      what a plan takes and costs
headline   an answer in one line
placements an operator graph on its devices
"""
