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
