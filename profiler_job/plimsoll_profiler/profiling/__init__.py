"""The profile of a workload, from the outside: this side needs no torch.

request             what to profile, and how
document_process    a process of ours: started, read, and what its end means
prober_process      the prober: started and asked
line_fit            lines over the micro-batch
carried             values that layers carry past others
kinds               what probes have found of each kind of layer
assemble            the profile from all probes
findings            probes that are left, and what the others have found
several_probers     a trace that several probers share
graphs              operators of a step, from the grapher
profiler            asks, survives the prober's death, assembles
"""
