"""The optimizers beside those of FBGEMM's table-batched embeddings on the CPU, to rounding.

Its other optimizers need a GPU, and so does weight decay: version 1.8 takes the setting on a CPU and leaves it out.
"""

import warnings
from typing import Any

import numpy as np
import pytest

from optional import framework
from rowgrad import optim

torch = framework("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of parts that only GPUs have
    framework("fbgemm_gpu")
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

ROWS, WIDTH, BAGS, LENGTH = 30, 12, 8, 5
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (optim.SGD(0.1), {"optimizer": EmbOptimType.EXACT_SGD}),
    "adagrad": (optim.Adagrad(0.1, eps=1e-6), {"optimizer": EmbOptimType.EXACT_ADAGRAD, "eps": 1e-6}),
    "row-wise adagrad": (
        optim.RowWiseAdagrad(0.1, eps=1e-6),
        {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "eps": 1e-6},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_beside_fbgemm(case: str) -> None:
    ours, settings = CASES[case]
    theirs = SplitTableBatchedEmbeddingBagsCodegen(
        [(ROWS, WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)], learning_rate=ours.lr, **settings
    )
    rng = np.random.default_rng(0)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    (weight,) = theirs.split_embedding_weights()
    weight.copy_(torch.tensor(table))
    state = ours.init(table)
    for _ in range(5):
        ids, grad = rng.integers(0, ROWS, BAGS * LENGTH), rng.standard_normal((BAGS, WIDTH)).astype(np.float32)
        output = theirs(torch.tensor(ids), torch.arange(0, BAGS * LENGTH + 1, LENGTH))
        output.backward(torch.tensor(grad))
        ours.step_pooled(table, grad, ids, np.arange(BAGS).repeat(LENGTH), state, combiner="sum")
        np.testing.assert_allclose(table, weight.detach().numpy(), rtol=2e-5, atol=2e-6)
