"""Plain numbers that operators and kernels agree on."""

# The three ways to pool a segment.
SUM, MEAN, SQRT_N = 0, 1, 2

# The ways to change a row of a table.
DESCENT, MOMENTUM, NESTEROV, ADAGRAD, ROW_WISE_ADAGRAD, ADAM, PARTIAL_ROW_WISE_ADAM, LAMB = 0, 1, 2, 3, 4, 5, 6, 7
# Those of TensorFlow, whose steps are in `steps`.
FTRL, FTRL_POWER, TF_MOMENTUM, TF_NESTEROV, RMSPROP, RMSPROP_MOMENTUM, CENTRED, CENTRED_MOMENTUM = range(8, 16)
ADADELTA, ADAGRAD_DA, PROXIMAL_ADAGRAD, PROXIMAL_DESCENT = range(16, 20)

# The kernel for small calls takes this many entries and segments, and this much room to work in.
SMALL = 512
SMALL_WORK = 3 * SMALL + 64

# What kernels over many tables return if all is well, but PyTorch's team let the caller wait.
LATE = -1

# Looking up rows: a table up to this many bytes is in the caches, and fetching its rows first costs more than it saves;
# the rows of a larger one are fetched so many entries before they are needed.
CACHED_TABLE = 1 << 16
AHEAD, MOST_AHEAD = 16, 32
PER_AHEAD = 1 << 12  # entries for each row ahead: the longer a call, the less of the table is in the nearest caches

# Bytes of work that pay for waking one more thread, and chunks per thread, so that an uneven one does no harm.
GRAIN = 1 << 18
CHUNKS_PER_THREAD = 4
# A dense gradient and what is added to it, in grains: up to so many, one thread that adds entries as they come is
# faster than several that sort them, for the caches hold the result.
CACHED_GRAINS = 32


def ahead_of(table_bytes: int, entries: int) -> int:
    """How many entries before they are needed rows of a table are fetched; 0 if they are in the caches anyway."""
    return min(max(entries // PER_AHEAD, AHEAD), MOST_AHEAD) if table_bytes > CACHED_TABLE else 0
