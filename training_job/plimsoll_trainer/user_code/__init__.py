"""The code of a user: found, identified and called.

arguments       of an entry point, from the command line
source_files    the files that an entry point imports
model_files     configurations that its arguments name
fingerprint     which code on which versions that is
entrypoint      from `module:function` to a workload
"""
