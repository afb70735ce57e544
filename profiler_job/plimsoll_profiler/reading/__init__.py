"""How models of `transformers` and `torchvision` are read, without profiling them.

tasks       which family a model is of, by its name
readings    one model: its layers, what they share, how tensor groups split them
survey      all kinds of the installed releases
"""
