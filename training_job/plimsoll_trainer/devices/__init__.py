"""The device of a rank.

allocator   setting of torch's allocator, before torch is loaded
device      how a device is opened, and how full it is
peaks       how full it was, by phase
"""
