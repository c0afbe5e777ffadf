"""The model of docs/wide_and_deep.md gives TensorFlow's ids, losses and weights, as recorded."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from optional import framework

ROOT = Path(__file__).parents[2]


def test_the_moved_model_is_tensorflows() -> None:
    framework("torch")
    recorded = json.loads((ROOT / "tests/data/features-tensorflow-2.21.json").read_text())["wide_and_deep"]
    names: dict[str, Any] = {}
    text = (ROOT / "docs/wide_and_deep.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(code, "wide_and_deep.md", "exec"), names)
    for kind in ("wide_ids", "deep_ids"):
        assert {name: ids.tolist() for name, ids in names[kind].items()} == recorded[kind]
    np.testing.assert_allclose(names["losses"], recorded["losses"], rtol=2e-6)
    for name, weights in recorded["wide"].items():
        found = names["wide"][name].weight.detach().numpy()[:, 0]
        np.testing.assert_array_equal(found == 0, np.array(weights) == 0)
        np.testing.assert_allclose(found, weights, rtol=1e-4, atol=1e-6)
