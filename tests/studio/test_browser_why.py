"""Why this number? The chain of an element of each of the five gradient operators, against the naive form."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import naive
from rowgrad.blocks import Page
from studio.browser import Desk, expect

Desks = Callable[..., Desk]
F32 = np.float32
GRAD = F32([[1, 2, 3], [4, 4, 2], [3, 1, 5]])
INDICES, SEGMENTS = np.int32([0, 2, 0, 2, 2]), np.int32([0, 0, 1, 2, 2])  # the last two bring a row twice
ENTRIES = np.int64([[0, 0], [0, 3], [2, 0], [3, 0]])

# Operator, its inputs, the output that is asked about, and what the naive form gives for it.
CASES: dict[str, tuple[dict[str, Any], str, Callable[[dict[str, Any]], Any]]] = {
    "SparseSegmentSqrtNGrad": (
        {"grad": GRAD, "indices": INDICES, "segment_ids": SEGMENTS, "output_dim0": 3},
        "output",
        lambda given: naive.sparse_segment_sqrt_n_grad(**given),
    ),
    "SparseSegmentMeanGrad": (
        {"grad": GRAD, "indices": INDICES, "segment_ids": SEGMENTS, "output_dim0": 3},
        "output",
        lambda given: naive.sparse_segment_mean_grad(**given),
    ),
    "SparseSegmentMeanGradV2": (
        {"grad": GRAD, "indices": INDICES, "segment_ids": SEGMENTS, "dense_output_dim0": 3},
        "output",
        lambda given: naive.sparse_segment_mean_grad_v2(**given)[0],
    ),
    "SparseFillEmptyRowsGrad": (
        {"reverse_index_map": np.int64([0, 2]), "grad_values": F32([5, 7, 11, 13])},
        "d_default_value",
        lambda given: naive.sparse_fill_empty_rows_grad(**given)[1],
    ),
    "SparseSliceGrad": (
        {
            "backprop_val_grad": F32([7, 9]),
            "input_indices": ENTRIES,
            "input_start": np.int64([2, 0]),
            "output_indices": np.int64([[0, 0], [1, 0]]),
        },
        "val_grad",
        lambda given: naive.sparse_slice_grad(**given),
    ),
}


def probed(op: str, index: tuple[int, ...]) -> dict[str, np.float32]:
    """The chain of the naive form: each entry of the gradient that reaches an element, and by which factor.

    A one in one place, and zeros elsewhere, is what that entry alone brings.
    """
    given, _, form = CASES[op]
    name, gradient = next((name, value) for name, value in given.items() if getattr(value, "dtype", None) == F32)
    found = {}
    for place in np.ndindex(gradient.shape):
        one = np.zeros_like(gradient)
        one[place] = 1
        factor = np.asarray(form({**given, name: one}))[index]
        if factor:
            found[f"{name}[{', '.join(map(str, place))}]"] = factor
    return found


def ids_of(op: str, index: tuple[int, ...]) -> list[dict[str, int]]:
    """The ids that lead to an element, in plain loops: for each entry of the chain, positions in the inputs."""
    given = CASES[op][0]
    if op == "SparseFillEmptyRowsGrad":
        return [{} for k in range(len(given["grad_values"])) if k not in given["reverse_index_map"]]
    if op == "SparseSliceGrad":
        wanted = given["input_indices"][index[0]] - given["input_start"]
        return [{f"output_indices[{j}, {axis}]": int(at) for axis, at in enumerate(entry)}
                for j, entry in enumerate(given["output_indices"]) if (entry == wanted).all()]  # fmt: skip
    row = sorted(set(INDICES.tolist()))[index[0]] if op.endswith("V2") else index[0]
    return [{f"indices[{i}]": row, f"segment_ids[{i}]": int(SEGMENTS[i])} for i in range(len(INDICES))
            if INDICES[i] == row]  # fmt: skip


def factor_of(text: str) -> np.float32:
    """1/3 and 1/√3 as numbers; nothing is a factor of one."""
    found = re.fullmatch(r"1/(√?)(\d+)", text)
    return F32(1) if found is None else F32(1 / (math.sqrt(int(found[2])) if found[1] else int(found[2])))


@pytest.mark.parametrize("op", CASES)
def test_the_chain_of_every_element_is_that_of_the_naive_form(desks: Desks, op: str) -> None:
    given, pin, form = CASES[op]
    page = Page(f"why {op}")
    first = next(name for name, value in given.items() if getattr(value, "dtype", None) == F32)
    page.add("Const", "before", value=given[first], dtype="float32", at=(0, 0))
    literals = {
        name: {"value": value.tolist(), "dtype": str(value.dtype)} if isinstance(value, np.ndarray) else value
        for name, value in given.items()
        if name != first
    }
    page.add(op, "rows", **{first: "before:output"}, **literals, at=(380, 0))
    desk = desks(viewport={"width": 1600, "height": 900}).show(page).skip_tour()
    desk.run()
    wanted = np.asarray(form(given))
    desk.page.get_by_role("button", name=f"Enlarge {pin} of rows").click()
    desk.page.get_by_role("tab", name="Why this number?").click()
    for index in np.ndindex(wanted.shape):
        told = ask(desk, pin, index)
        assert float(told.locator(".why-value strong").inner_text()) == pytest.approx(float(wanted[index]), rel=1e-4)
        rows = [row.locator("td").all_inner_texts() for row in told.get_by_role("row").all()[1:]]
        factors: dict[str, np.float32] = {}
        total = F32(0)
        for entry, shown, times, product, so_far, _, _ in rows:
            source, at = re.fullmatch(r"(\w+)\[([\d, ]+)\]", entry).groups()
            value = given[source][tuple(map(int, at.split(", ")))]
            brought = F32(value * factor_of(times))
            total = F32(total + brought)
            factors[entry] = F32(factors.get(entry, F32(0)) + factor_of(times))
            assert float(shown) == pytest.approx(float(value), rel=1e-4)
            assert float(product or shown) == pytest.approx(float(brought), rel=1e-4)
            assert float(so_far or shown) == pytest.approx(float(total), rel=1e-4)
        # The entries and factors are those of the naive form, and, added in this order, give its bits.
        assert factors == probed(op, index)
        assert total == wanted[index]
        because = [dict(re.findall(r"(\w+\[[\d, ]+\]) = (\d+)", row[5])) for row in rows]
        assert because == [{name: str(id) for name, id in ids.items()} for ids in ids_of(op, index)]


def ask(desk: Desk, pin: str, index: tuple[int, ...]) -> Any:
    """Ask for an element of the block `rows`, and wait for what is told."""
    place = ", ".join(map(str, index))
    field = desk.page.get_by_role("textbox", name="Element")
    field.fill(place)
    field.press("Enter")
    name = f"rows:{pin}" + (f"[{place}]" if index else "")
    told = desk.page.get_by_role("region", name=f"Why {name}", exact=True)
    expect(told).to_be_visible()
    return told


def test_a_click_on_a_number_asks_and_the_chain_leads_back_and_on(desks: Desks) -> None:
    page = Page("chain")
    page.add("Const", "grad", value=GRAD, dtype="float32", at=(0, 0))
    page.add("SparseSegmentMeanGrad", "rows", grad="grad", indices=INDICES.tolist(), segment_ids=SEGMENTS.tolist(),
             output_dim0=3, at=(380, 0))  # fmt: skip
    desk = desks().show(page).skip_tour()
    desk.run()
    desk.result("rows").get_by_role("row").nth(2).get_by_role("cell").nth(1).click()
    told = desk.page.get_by_role("region", name="Why rows:output[2, 1]", exact=True)
    expect(told).to_contain_text("grad[0, 1] · 1/2 + grad[2, 1] · 1/2 + grad[2, 1] · 1/2")
    told.get_by_role("button", name="Why grad:output[0, 1]").click()
    back = desk.page.get_by_role("region", name="Why grad:output[0, 1]", exact=True)
    expect(back).to_contain_text("It goes into")
    back.get_by_role("button", name="rows:output[0, 1]", exact=True).click()
    expect(desk.page.get_by_role("region", name="Why rows:output[0, 1]", exact=True)).to_be_visible()
    desk.page.get_by_role("navigation", name="Path to this element").get_by_role(
        "button", name="rows:output[2, 1]"
    ).click()
    expect(told).to_be_visible()
    desk.page.get_by_role("textbox", name="Element").fill("9, 9")
    desk.page.get_by_role("button", name="Ask").click()
    expect(desk.page.get_by_text(re.compile("index|out of range|there are", re.I)).first).to_be_visible()
    desk.expected.append("400")
