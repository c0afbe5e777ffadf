"""Zeroing memory that is used again."""

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.sharing import chunk_start, enter, leave, share


@kernel
def clear(workers, chunks, array):
    """Set all elements to 0."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        array[chunk_start(chunk, chunks, array.size) : chunk_start(chunk + 1, chunks, array.size)] = 0
    leave(workers, seen)
