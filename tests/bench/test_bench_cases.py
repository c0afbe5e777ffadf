"""The cases are what the benchmark says they are, and their inputs are what they claim to be."""

import numpy as np
import pytest

from bench import groups, lookups
from bench.case import OURS, PEERS, Case, matching, missing, peer_of, short, title_of
from bench.groups import layer, operators, recommender
from bench.lookups import remembered


@pytest.mark.parametrize("size", groups.SIZES)
def test_every_case_has_a_name_a_place_and_contestants_that_exist(size):
    cases = groups.all_cases(size)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    places = [(case.group, case.table, case.row, case.column) for case in cases]
    assert len(set(places)) == len(places)
    for case in cases:
        assert next(iter(case.entries)) == OURS
        assert case.limits.keys() <= case.entries.keys() - {OURS}
        assert case.contestants([]).keys() == {name for name in case.entries if peer_of(name) is None}
    assert list(dict.fromkeys(case.group for case in cases)) == list(groups.GROUPS)


def test_quick_is_a_part_of_normal_and_full_is_more():
    quick, normal, full = ({case.name for case in groups.all_cases(size)} for size in groups.SIZES)
    assert quick < normal
    assert len(full) > 2 * len(normal)


def test_the_recommender_is_the_table_of_five_models():
    cases = {case.name: case for case in recommender.cases("normal")}
    assert len(recommender.MODELS[0].tables) == 26
    assert (min(recommender.MODELS[0].tables), max(recommender.MODELS[0].tables)) == (3, 500_000)
    titles = [model.title for model in recommender.MODELS]
    assert titles == [
        "batch 128, width 16, 1–20 ids",
        "batch 512, width 64, 1–20 ids",
        "batch 2048, width 16, 1 id",
        "batch 2048, width 64, 1–8 ids",
        "batch 8192, width 32, 1–4 ids",
    ]
    forward = cases["recommender/128-w16/zipf/forward/2-threads"]
    assert (forward.limits, forward.intel) == ({"torch": 1.8, "fbgemm": 2.2}, 5.5)
    step = cases["recommender/8192-w32/zipf/sgd/2-threads"]
    assert (step.limits, step.intel) == ({"torch": 4.0, "fbgemm": 2.8}, 2.2)
    assert cases["recommender/512-w64/zipf/adagrad/2-threads"].limits == {"fbgemm": 2.0}
    assert cases["recommender/512-w64/uniform/sgd/2-threads"].limits == {"torch": 2.5, "fbgemm": 2.5}
    one = cases["recommender/2048-w16/zipf/forward/1-threads"]
    assert (one.limits, one.threads, one.intel) == ({"torch": 1.4, "fbgemm": 1.3}, 1, None)


def test_one_layer_varies_each_axis():
    found = layer.shapes("normal")
    for axis, numbers in layer.AXES.items():
        assert {getattr(shape, axis) for shape in found} == set(numbers)
    assert len(layer.shapes("full")) == np.prod([len(numbers) for numbers in layer.AXES.values()])
    small = {case.column: case.most_us for case in layer.cases("normal") if case.most_us}
    assert small == {"forward": 15, "step": 60, "fused step": 60}


def test_the_operators_have_every_size():
    names = {case.name for case in operators.cases("normal")}
    for entries in (32, 500, 5000, 50_000):
        assert {
            f"operators/{operator}/{entries}x{width}" for operator in operators.SEGMENT for width in (8, 64)
        } <= names
        assert {f"operators/{operator}/{entries}" for operator in operators.SPARSE} <= names


def test_matching_takes_parts_and_wildcards():
    cases = [Case("g", key, "t", "r", "c", {}) for key in ("a/forward", "b/forward", "b/step")]
    assert matching(cases, "") == cases
    assert matching(cases, "g/b") == cases[1:]
    assert matching(cases, "g/?/for*") == cases[:2]
    assert matching(cases, "nothing") == []


def test_ways_of_a_peer_belong_to_it():
    assert (peer_of("torch"), peer_of("torch, same arrays"), peer_of("one thread")) == ("torch", "torch", None)
    assert (title_of("torch, same arrays"), title_of("one thread")) == ("PyTorch, same arrays", "one thread")
    case = Case("g", "k", "t", "r", "c", dict.fromkeys((OURS, "torch", "torch, same arrays", "fbgemm", "one thread")))
    assert list(case.contestants(["torch"])) == [OURS, "torch", "torch, same arrays", "one thread"]


def test_missing_peers_are_found(monkeypatch):
    monkeypatch.setattr("bench.case.util.find_spec", lambda module: None if module == "fbgemm_gpu" else object())
    assert missing(PEERS) == ["fbgemm"]


def test_short_numbers():
    assert [short(number) for number in (100, 1000, 12_500, 100_000, 10_000_000)] == [
        "100",
        "1k",
        "12500",
        "100k",
        "10M",
    ]


def test_zipf_has_a_head_and_uniform_has_none():
    zipf = lookups.ids(np.random.default_rng(1), 1000, 100_000, "zipf")
    expected = 1 / np.sum(np.arange(1, 1001) ** -1.2)
    assert np.mean(zipf == 0) == pytest.approx(expected, rel=0.05)
    assert np.mean(zipf == 1) == pytest.approx(expected * 2**-1.2, rel=0.05)
    uniform = lookups.ids(np.random.default_rng(1), 1000, 100_000, "uniform")
    assert np.bincount(uniform, minlength=1000).max() < 200
    assert max(zipf.max(), uniform.max()) < 1000
    assert zipf.dtype == uniform.dtype == np.int64


def test_offsets_and_segments():
    ends = lookups.offsets(np.random.default_rng(1), 1000, 1, 20)
    assert (ends[0], len(ends), set(np.diff(ends))) == (0, 1001, set(range(1, 21)))
    assert np.array_equal(np.bincount(lookups.segments(ends)), np.diff(ends))
    assert lookups.offsets(np.random.default_rng(1), 3, 5, 5).tolist() == [0, 5, 10, 15]


def test_what_is_remembered_is_the_last_result_only():
    made = []
    kept = remembered(lambda number: made.append(number) or object())
    first = kept(1)
    assert kept(1) is first
    kept(2)
    assert kept(1) is not first
    assert made == [1, 2, 1]
    remembered.forget()
    kept(1)
    assert made == [1, 2, 1, 1]


def test_matrices_are_sorted_have_empty_rows_and_a_window():
    fill = operators.arguments("SparseFillEmptyRows", 2000)
    assert np.all(np.diff(fill["indices"] @ [fill["dense_shape"][1], 1]) > 0)
    assert np.all(fill["indices"] < fill["dense_shape"])
    assert len(np.unique(fill["indices"][:, 0])) < fill["dense_shape"][0]
    full = operators.arguments(operators.NO_EMPTY_ROW, 2000)
    assert len(np.unique(full["indices"][:, 0])) == full["dense_shape"][0] == 2000
    window = operators.arguments("SparseSliceGrad", 2000)
    assert 0.1 < len(window["backprop_val_grad"]) / 2000 < 0.4


def test_read_only_arrays_are_read_only():
    shape = operators.Shape(32, 8, 4, 8)
    assert not operators.arguments(operators.READ_ONLY, shape)["grad"].flags.writeable
    assert operators.arguments("SparseSegmentMeanGradV2", shape)["grad"].flags.writeable
