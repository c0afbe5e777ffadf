"""Where blocks stand: columns in the order of wires, nothing on anything, new blocks below."""

from itertools import combinations

import pytest
from drawn import five_gradients, forward_and_backward, pooled_mean, random_page

from rowgrad.blocks import Page
from rowgrad.blocks import _layout as layout


def overlaps(page: Page) -> list[tuple[str, str]]:
    """Pairs of blocks that share a column and would lie on each other, with the room for results."""
    return [
        (a.id, b.id)
        for a, b in combinations(page, 2)
        if layout.column_of(a.at[0]) == layout.column_of(b.at[0])
        and a.at[1] < b.at[1] + layout.room(b) - 1
        and b.at[1] < a.at[1] + layout.room(a) - 1
    ]


PAGES = {
    "pooled_mean": pooled_mean,
    "five_gradients": five_gradients,
    "forward_and_backward": forward_and_backward,
    **{f"random {seed}": lambda seed=seed: random_page(seed) for seed in range(8)},
}


@pytest.mark.parametrize("name", PAGES)
def test_tidy_pages_run_from_left_to_right_without_overlap(name):
    page = PAGES[name]()
    page.tidy()
    assert overlaps(page) == []
    for block in page:
        for _, wire in block.wires():
            assert page[wire.block].at[0] + layout.WIDEST < block.at[0]


def test_sources_stand_next_to_their_use():
    page = Page()
    page.add("Const", id="first", value=1.0)
    page.add("Neg", id="a", x="first")
    page.add("Neg", id="b", x="a")
    page.add("Const", id="late", value=2.0)
    page.add("Add", id="sum", x="b", y="late")
    page.tidy()
    assert page["sum"].at[0] - page["late"].at[0] == layout.COLUMN


def test_a_chain_is_level():
    page = Page()
    page.add("Neg", id="a", x=1.0)
    for before, after in zip("abcd", "bcde", strict=True):
        page.add("Neg", id=after, x=before)
    page.tidy()
    assert len({block.at[1] for block in page}) == 1


def test_crossings_are_untangled():
    page = Page()
    for name in "abcdef":
        page.add("Const", id=name, value=1.0)
    for name in "fedcba":  # added the other way round
        page.add("Neg", id=f"{name}2", x=name)
    page.add("AddN", id="sum", inputs=[f"{name}2" for name in "abcdef"])
    page.tidy()
    left = sorted("abcdef", key=lambda name: page[name].at[1])
    right = sorted("abcdef", key=lambda name: page[f"{name}2"].at[1])
    assert left == right


def test_what_is_not_wired_together_stands_side_by_side():
    page = Page()
    for _ in range(30):
        page.add("Const", value=1.0)
    page.tidy()
    assert overlaps(page) == []
    assert 3 <= len({block.at[0] for block in page}) <= 12
    assert [block.id for block in sorted(page, key=lambda b: (b.at[1], b.at[0]))] == [block.id for block in page]


def test_some_blocks_are_arranged_below_the_others():
    page = pooled_mean()
    page.tidy()
    before = {block.id: block.at for block in page}
    page.add("Neg", id="n1", x="SparseSegmentMeanGrad")
    page.add("Neg", id="n2", x="n1")
    page.tidy(["n1", "n2"])
    assert {id: page[id].at for id in before} == before
    lowest = max(page[id].at[1] + layout.room(page[id]) - layout.GAP for id in before)
    assert page["n1"].at[1] >= lowest and page["n2"].at[1] >= lowest
    assert page["n1"].at[0] == layout.MARGIN and page["n2"].at[0] == layout.MARGIN + layout.COLUMN


def test_gradients_stand_below_what_they_are_of():
    page = forward_and_backward()
    forward = [page[id] for id in ("table", "pooled", "score", "error")]
    backward = [block for block in page if block not in forward]
    assert backward
    assert min(block.at[1] for block in backward) > max(block.at[1] + layout.height(block) for block in forward)
    assert overlaps(page) == []


def test_the_same_page_is_arranged_the_same_way():
    first, second = random_page(3), random_page(3)
    assert layout.arranged(first) == layout.arranged(second)
    first.tidy()
    assert layout.arranged(first) == layout.arranged(second)  # wherever the blocks stood before


def test_an_empty_page_and_no_blocks():
    assert layout.arranged(Page()) == {}
    assert layout.arranged(pooled_mean(), []) == {}


def test_a_thousand_blocks_in_one_chain_and_in_a_thicket():
    chain = Page()
    chain.add("Neg", id="b0", x=1.0)
    for number in range(1, 1000):
        chain.add("Neg", id=f"b{number}", x=f"b{number - 1}")
    places = layout.arranged(chain)
    assert len(places) == 1000 and len({y for _, y in places.values()}) == 1
    thicket = random_page(1, 1000)
    assert overlaps(thicket) == []
