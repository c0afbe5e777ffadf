import pytest

from rowgrad._cli import names
from rowgrad._cli.problems import Problem
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS


@pytest.mark.parametrize(
    "typed", ["SparseSliceGrad", "sparseslicegrad", "sparse_slice_grad", "SPARSE_SLICE_GRAD", "sparse-slice-grad"]
)
def test_any_spelling(typed):
    assert [operator.name for operator in names.find(typed)] == ["SparseSliceGrad"]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_operator_is_found_by_its_names(operator):
    assert names.find(operator.name) == [operator]
    assert operator in names.find(operator.call_name)


@pytest.mark.parametrize("typed", ["ApplyAdam", "apply_adam", "raw_ops.ApplyAdam", "apply-adam"])
def test_operators_without_a_function(typed):
    assert [operator.name for operator in names.find(typed)] == ["ApplyAdam"]


@pytest.mark.parametrize("block", [name for name in BLOCKS if name not in OPERATORS])
def test_blocks_of_pages_are_no_operators(block):
    assert [found.name for found in names.find(block, blocks=True)] == [block]
    with pytest.raises(Problem) as caught:
        names.find(block.lower())
    assert caught.value.message == f"{block} is a block of pages, not a function."
    assert (block, BLOCKS[block].summary) in names.complete(block)


def test_a_function_finds_all_operators_behind_it():
    found = [operator.name for operator in names.find("sparse_segment_mean")]
    assert found == ["SparseSegmentMean", "SparseSegmentMeanWithNumSegments"]


def test_a_misspelt_name_gets_suggestions():
    with pytest.raises(Problem) as caught:
        names.find("sparse_segmnt_mean_grd")
    assert "'sparse_segmnt_mean_grd'" in caught.value.message
    assert "SparseSegmentMeanGrad" in caught.value.hint
    assert caught.value.code == 2


def test_a_name_like_no_other_gets_the_list():
    with pytest.raises(Problem) as caught:
        names.find("zzz")
    assert caught.value.hint == "rowgrad ops lists all operators."


def test_in_order_has_each_once_and_families_together():
    assert [operator.name for operator in names.in_order()] == list(OPERATORS)
    order = names.in_order(blocks=True)
    assert sorted(operator.name for operator in order) == sorted(BLOCKS)
    families = [operator.family for operator in order]
    assert list(dict.fromkeys(families)) == list(FAMILIES)
    assert families == sorted(families, key=list(FAMILIES).index)


def test_completion():
    assert ("SparseSlice", OPERATORS["SparseSlice"].summary) in names.complete("sparsesl")
    assert names.complete("x") == []
