"""TensorFlow's embedding look-ups over rowgrad's kernels: its own functions, with another pooling under them.

All of them (sparse, ragged, safe, those of feature columns) end in one function of TensorFlow, which `patch` replaces.
What the kernels do not have goes on to TensorFlow's: tables in several parts, `max_norm`, weights of 16-bit tables, and
tables that are not on a CPU.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any

import tensorflow as tf

from rowgrad._ops import OPERATORS
from rowgrad._ops.combiners import COMBINERS
from rowgrad.errors import InvalidArgumentError
from rowgrad.tensorflow._differentiable import apply
from rowgrad.tensorflow._functions import FUNCTIONS

MODULE, NAME = "tensorflow.python.ops.embedding_ops", "embedding_lookup_sparse_impl"
SMALL = 2048  # ids; `patch` leaves smaller look-ups to TensorFlow (measured: rowgrad is ahead from 1,024 to 4,096 on)
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)

_lock = threading.Lock()
_users = 0  # of the replaced function
_everywhere = 0  # of those, the ones that mean all of the process
_here: ContextVar[bool] = ContextVar("here", default=False)


@contextmanager
def patch() -> Iterator[None]:
    """Within it, TensorFlow's own embedding look-ups use rowgrad's kernels, in all of the process.

    These are `tf.nn.embedding_lookup_sparse`, `tf.nn.safe_embedding_lookup_sparse`, their forms for ragged ids, and
    what is made of them. Look-ups of fewer than 2,048 ids are left to TensorFlow, which is faster there. Results and
    gradients are TensorFlow's; without weights to the bit. A `tf.function` keeps what it was traced with.

    Raises
    ------
    InvalidArgumentError
        This TensorFlow has not the function that is replaced.

    Examples
    --------
    A model that looks rows up with `tf.nn.embedding_lookup_sparse` needs no other change::

        with rowgrad.tensorflow.patch():
            model.fit(batches)
    """
    global _everywhere
    with _replaced():
        with _lock:
            _everywhere += 1
        try:
            yield
        finally:
            with _lock:
                _everywhere -= 1


@contextmanager
def _replaced() -> Iterator[None]:
    """The function is TensorFlow's own again when the last that needs it has ended."""
    global _users
    module = import_module(MODULE)
    with _lock:
        if _users == 0:
            found = getattr(module, NAME, None)
            if found is None:
                raise InvalidArgumentError(
                    f"this TensorFlow, {tf.__version__}, has no {MODULE}.{NAME}. Call the functions of "
                    "rowgrad.tensorflow, such as sparse_segment_mean.",
                    code="unknown-tensorflow",
                )
            setattr(module, NAME, _pooling(found))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                setattr(module, NAME, getattr(module, NAME).__wrapped__)


def _pooling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    @tf.autograph.experimental.do_not_convert
    def pool(
        params: Any, segment_ids: Any, sp_weights: Any, ids: Any, combiner: str, ignore_weights: bool, max_norm: Any,
        *rest: Any, **named: Any,
    ) -> Any:  # fmt: skip
        table = params[0] if len(params) == 1 and max_norm is None else None
        weights = None if ignore_weights else sp_weights.values
        is_asked = _here.get() or (_everywhere and not _is_small(ids))
        if is_asked and table is not None and _fits(table, weights):
            return _pooled(table, ids, segment_ids, weights, combiner)
        return theirs(params, segment_ids, sp_weights, ids, combiner, ignore_weights, max_norm, *rest, **named)

    pool.__wrapped__ = theirs
    found: Callable[..., Any] = pool
    return found


def _is_small(ids: Any) -> bool:
    """Whether so few ids are looked up that TensorFlow, which calls no Python for it, is done before."""
    size = getattr(ids, "shape", [None])[0]
    return size is not None and size < SMALL


def _fits(table: Any, weights: Any) -> bool:
    dtype = tf.as_dtype(table.dtype)
    if dtype not in FLOATS or "GPU" in str(getattr(table, "device", "")):
        return False
    return weights is None or dtype in (tf.float32, tf.float64)


def _pooled(table: Any, ids: Any, segment_ids: Any, weights: Any, combiner: str) -> Any:
    segment_ids = tf.convert_to_tensor(segment_ids)
    if weights is None:
        return FUNCTIONS[COMBINERS[combiner].function](table, ids, segment_ids)
    table = tf.convert_to_tensor(table)
    weights = tf.cast(weights, table.dtype)
    total = tf.math.segment_sum(tf.square(weights) if combiner == "sqrtn" else weights, segment_ids)
    operator = OPERATORS["SparseSegmentWeightedSum"]
    found = apply(operator, (table, weights, ids, segment_ids, tf.shape(total, tf.int64)[0]))
    if combiner == "sum":
        return found
    total = tf.reshape(tf.sqrt(total) if combiner == "sqrtn" else total, [-1, *[1] * (found.shape.rank - 1)])
    return tf.math.divide_no_nan(found, total)


def _of(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    @tf.autograph.experimental.do_not_convert
    def look_up(*args: Any, **kwargs: Any) -> Any:
        with _replaced():
            token = _here.set(True)
            try:
                return theirs(*args, **kwargs)
            finally:
                _here.reset(token)

    look_up.__module__ = "rowgrad.tensorflow"
    look_up.__doc__ = (
        f"`tf.nn.{theirs.__name__.removesuffix('_v2')}` with rowgrad's kernels: the same arguments and results.\n\n"
        "The gradient of a table is a `tf.IndexedSlices` with each row once, ascending."
    )
    look_up.__name__ = look_up.__qualname__ = theirs.__name__.removesuffix("_v2")
    found: Callable[..., Any] = look_up
    return found


embedding_lookup_sparse = _of(tf.nn.embedding_lookup_sparse)
safe_embedding_lookup_sparse = _of(tf.nn.safe_embedding_lookup_sparse)
