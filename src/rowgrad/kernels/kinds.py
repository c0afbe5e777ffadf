"""The three ways to pool a segment, as kernels know them."""

SUM, MEAN, SQRT_N = 0, 1, 2
