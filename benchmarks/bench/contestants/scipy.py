"""SciPy: the dense gradient of a sum over segments is a sparse matrix, transposed, times the upstream gradient.

The matrix, bags × rows in CSR form, is made before the clock starts. SciPy's product runs on one thread.
"""

from importlib import import_module
from typing import Any

import numpy as np

from bench import data
from bench.contest import Entry
from bench.work import Work

sparse: Any = None


def start(threads: int) -> None:
    """Load SciPy, which has no say in threads."""
    global sparse
    sparse = import_module("scipy.sparse")


def entry(work: Work) -> Entry:
    """SciPy's way to do `work`."""
    shape = work.bags
    ids, _, grad, offsets = data.batch(shape)
    ones = np.ones(shape.size, grad.dtype)
    matrix = sparse.csr_matrix((ones, ids, np.append(offsets, shape.size)), shape=(shape.bags, shape.rows))
    return Entry("scipy", lambda: matrix.T @ grad, lambda result: [result])
