"""What every call needs and no operator knows about: arrays of frameworks, types, memory, threads, limits, files.

Nothing here is public. It may import `_kernels` and `errors`, nothing above.
"""
