"""How models of `transformers` are read, without profiling them.

readings    one model: its layers, what they share, how tensor groups split them
survey      all kinds of the installed release
"""
