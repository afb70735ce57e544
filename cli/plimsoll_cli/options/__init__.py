"""Words of the command line, as values and records.

types               words of the command line as values: numbers, memory, models
home                the folder of plans, profiles and checkpoints
question            the options of a question, made of the table of search fields
files               documents that are read and written
offers              offers of this machine, and of a file
named_devices       machines by the name of their device
machines            the machines that a plan may use
manifest            the manifest, from a file or from stdin
model               a profile, or the model that one is made of
unknown             quantities that `solve` looks for, and questions
grid                other counts and micro-batches beside an answer
emitted             the question as a manifest
problem             profile, files and options as a `Problem`; its errors name options
"""
