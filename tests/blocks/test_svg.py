"""The picture of a page: everything is in it, nothing lies on anything, and it can be opened again."""

import re
from functools import partial
from itertools import combinations, pairwise

import ml_dtypes
import numpy as np
import pytest
from drawn import SVG, five_gradients, forward_and_backward, parsed, pooled_mean, random_page, texts, titles

from rowgrad._runtime import dtypes
from rowgrad.blocks import Page, Session, looks, svg, values
from rowgrad.blocks._picture import heatmap
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.svg import page_in_svg
from rowgrad.errors import FileError
from shared_texts import out_of_range


def drawn(page, session=None):
    """The tree of the picture of `page`."""
    return parsed(page.to_svg(session))


def run(page, **feeds):
    """A session that has run."""
    session = Session(page)
    session.run(feeds=feeds or None)
    return session


def shown(value, **attributes):
    """The texts in a picture of a constant and its result."""
    page = Page("one result")
    page.add("Const", id="it", value=value, **attributes)
    return texts(drawn(page, run(page)))


# What is in it


@pytest.mark.parametrize("make", [pooled_mean, five_gradients, forward_and_backward])
@pytest.mark.parametrize("with_results", [False, True])
def test_every_block_pin_and_wire_is_there(make, with_results):
    page = make()
    tree = drawn(page, run(page) if with_results else None)
    assert {element.get("id") for element in tree.iter(f"{SVG}g") if "rg-block" in element.get("class", "")} == {
        f"block-{block.id}" for block in page
    }
    assert set(titles(tree, "rg-input")) == {
        f"{pin.name} input of {block.id}" for block in page for pin in block.operator.inputs
    }
    assert set(titles(tree, "rg-output")) == {
        f"{pin.name} output of {block.id}" for block in page for pin in block.operator.outputs
    }
    wires = [f"{wire} → {block.id}:{pin}, {page.signal(wire)}" for block in page for pin, wire in block.wires()]
    assert titles(tree, "rg-wire") == wires
    words = texts(tree)
    assert page.name in words
    for block in page:
        assert block.id in words
        assert block.op in words


def test_literals_attributes_and_labels_are_written():
    page = pooled_mean()
    page.add("SparseSegmentMean", data=np.zeros((64, 16), np.float32), indices=[0], segment_ids=[0],
             sparse_gradient=True)  # fmt: skip
    words = texts(drawn(page))
    assert words.count("[0, 1, 2]") == 1
    assert "3" in words
    assert "float32 [64, 16]" in words
    assert "sparse_gradient = True" in words
    assert "value = [[1, 2, 3], [4, 4, 2], [3, 1, 5]]" in words
    assert words.count("float32 [3, 3]") == 2  # one on the wire, one at the output that has none


def test_literals_that_do_not_fit_tell_their_type():
    page = five_gradients()
    words = texts(drawn(page))
    assert "float32 [4]" in words and "int64 [3, 2]" in words
    assert not [word for word in words if word.endswith("…")]


def test_pins_of_many_inputs_tell_what_is_typed_in():
    page = Page()
    page.add("Neg", x=1.0)
    page.add("AddN", inputs=["Neg", 2.0, 3.0])
    page.add("AddN", id="more", inputs=[float(number) for number in range(20)])
    words = texts(drawn(page))
    assert "2, 3" in words and "20 literals" in words


def test_sizes_that_have_names_are_written_without_their_block():
    page = five_gradients()
    words = texts(drawn(page))
    assert "float32 [U, 3]" in words
    assert any("SparseSegmentMeanGradV2.U" in title for title in titles(drawn(page), "rg-signal"))


def test_an_output_with_several_wires_is_labelled_once():
    page = Page()
    page.add("Const", id="x", value=[1.0, 2.0, 3.0, 4.0])
    for _ in range(3):
        page.add("Neg", x="x")
    page.add("AddN", inputs=["Neg", "Neg_1", "Neg_2"])
    assert [title for title in titles(drawn(page), "rg-signal") if title.startswith("x:")] == [
        "x:output is float32 [4]"
    ]


def test_missing_inputs_are_marked():
    page = Page()
    page.add("Add", x=1.0)
    tree = drawn(page)
    assert "y input, missing of Add" in titles(tree, "rg-input")
    assert "missing" in texts(tree)


def test_it_tells_those_who_do_not_see_it():
    page = pooled_mean()
    tree = drawn(page, run(page))
    assert tree.get("role") == "img"
    assert tree.get("aria-label") == "pooled mean: 2 blocks"
    assert tree.findtext(f"{SVG}title") == "pooled mean: 2 blocks"
    told = tree.findtext(f"{SVG}desc")
    assert "SparseSegmentMeanGrad (SparseSegmentMeanGrad): grad from grad:output; gives output float32 [3, 3]" in told


def test_it_needs_nothing_from_elsewhere():
    page = forward_and_backward()
    picture = page.to_svg(run(page)).replace("http://www.w3.org/2000/svg", "")
    for word in ("http", "href", "<script", "url(", "@import", "javascript"):
        assert word not in picture


def test_an_empty_page():
    tree = drawn(Page("nothing yet"), Session(Page()))
    assert texts(tree)[:2] == ["nothing yet", "0 blocks · rowgrad"]


def test_notes_are_slips_of_paper_that_lie_on_nothing():
    page = pooled_mean()
    page.note(
        "A note <on> this page:\n\nof three lines, and the last of them is so long that it has to be broken", (30, 60)
    )
    page.note("Another", (300, 55))
    tree = drawn(page, run(page))
    words = texts(tree)
    assert "A note <on> this page:" in words and "Another" in words
    cards, notes = svg.placed(page, {})
    pieces = [*cards.values(), *notes]
    assert len(notes) == 2
    assert on_each_other({str(i): (p.x, p.y, p.right, p.bottom) for i, p in enumerate(pieces)}) == []
    assert "Note: Another" in tree.findtext(f"{SVG}desc")
    alone = Page()
    alone.note("alone", (0, 0))
    assert "alone" in texts(drawn(alone))


# Results


def test_small_results_are_numbers():
    page = pooled_mean()
    words = texts(drawn(page, run(page)))
    assert words.count("0.333333") == 3
    assert words.count("1.66667") == 3


@pytest.mark.parametrize(
    ("value", "attributes", "expected"),
    [
        (2.5, {}, ["2.5"]),
        ([True, False], {}, ["True", "False"]),
        (np.array([1 + 2j, -0.5j]), {}, ["1+2j", "-0-0.5j"]),
        (np.array([0.1, 3], ml_dtypes.bfloat16), {}, ["0.100098", "3"]),
        ([1, -2], {"dtype": "qint8"}, ["1", "-2"]),
        (np.array([np.nan, np.inf, -np.inf, 1]), {}, ["nan", "inf", "-inf", "1"]),
        (["a", 'b "c"'], {"dtype": "string"}, ['"a"', '"b "c""']),
        (np.zeros((0, 4), np.float32), {}, ["empty"]),
        (np.arange(12.0).reshape(2, 3, 2), {}, ["0,0", "1,2", "11"]),
        (np.arange(20), {}, ["16", "19"]),
        (2**53 + 1, {"dtype": "int64"}, ["9007199254740993"]),
    ],
)
def test_results_of_every_kind(value, attributes, expected):
    words = shown(value, **attributes)
    for word in expected:
        assert word in words


@pytest.mark.parametrize("dtype", [*dtypes.NUMPY])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (100,), (9, 9), (2, 70, 5), (0,), (4, 0, 2)])
def test_every_type_and_shape_can_be_drawn(dtype, shape):
    size = int(np.prod(shape))
    target = dtypes.NUMPY[dtype]
    base = target[0] if target.names else target
    array = (np.arange(size) % 100).astype(base).view(target).reshape(shape)
    words = shown(array)
    assert f"{dtype} [{', '.join(map(str, shape))}]" in words


def test_large_results_are_heat_maps_with_legend_and_summary():
    words = shown(np.arange(200, dtype=np.int64).reshape(10, 20) - 50)
    assert {"-50", "0", "149"} <= set(words)
    assert "min -50 · max 149 · mean 49.5" in words
    words = shown(np.ones((1000, 300), np.float32))
    assert "64 × 64 cells, means of up to 16 × 5" in words
    assert "min 1 · max 1 · mean 1" in words
    assert "12 of 144 are True" in shown(np.eye(12, dtype=bool))
    assert "500 cells, means of" not in " ".join(shown(np.ones(500)))
    assert "64 cells, means of up to 8" in shown(np.ones(500))


def test_cells_are_means_and_odd_ones_are_marked():
    matrix = np.zeros((128, 64))
    matrix[:2] = [[1.0], [3.0]]
    matrix[10, 7] = np.nan
    matrix[20, 8] = np.inf
    found = values.grid(matrix)
    assert found.cells.shape == (64, 64) and found.each == (2, 1) and not found.sampled
    assert (found.cells[0] == 2).all()
    assert np.argwhere(np.isnan(found.cells)).tolist() == [[5, 7], [10, 8]]
    picture = "".join(heatmap.heat_map(matrix).parts)
    assert looks.ODD in picture and "M7 6l1 -1" in picture
    assert "2 not finite" in values.statistics(matrix)
    all_odd = "".join(heatmap.heat_map(np.full((20, 20), np.nan)).parts)
    assert "400 not finite" in all_odd


@pytest.mark.parametrize("size", [63, 64, 65, 127, 1000])
def test_means_weigh_every_element_once(size):
    values_in = np.random.default_rng(0).normal(size=(size, 3))
    found = values.grid(values_in).cells
    edges = [i * size // min(size, 64) for i in range(min(size, 64) + 1)]
    expected = [values_in[a:b].mean(0) for a, b in pairwise(edges)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_very_large_results_are_sampled(monkeypatch):
    monkeypatch.setattr(values, "MOST_READ", 1000)
    matrix = np.arange(5000.0).repeat(2).reshape(5000, 2)
    found = values.grid(matrix)
    assert found.sampled and found.cells.shape == (64, 2)
    assert (np.diff(found.cells[:, 0]) > 0).all()
    assert ", sampled" in "".join(heatmap.heat_map(matrix).parts)


def test_the_scale_has_zero_in_the_middle():
    assert heatmap.colour(0) == "#f7f7f7"
    assert heatmap.colour(-1) == "#08306b" and heatmap.colour(1) == "#7f2704"
    assert heatmap.colour(-9) == heatmap.colour(-1)


def test_long_lists_of_strings_are_cut():
    words = shown([f"item {number}" for number in range(30)])
    assert '"item 7"' in words and '"item 8"' not in words
    assert "and 22 more" in words


def failing_page():
    page = Page("failing")
    page.add("Const", id="grad", value=[[1, 2], [4, 4]], dtype="float32")
    page.add("Placeholder", id="ids", dtype="int32", shape=["n"])
    page.add("SparseSegmentMeanGrad", grad="grad:output", indices="ids", segment_ids=[0, 1, 1], output_dim0=3)
    page.add("Square", x="SparseSegmentMeanGrad")
    page.add("Exp", x="Square")
    page.add("Neg", x="grad")
    return page


def test_failed_and_skipped_blocks_say_so():
    page = failing_page()
    tree = drawn(page, run(page, ids=[0, 1, 7]))
    words = " ".join(texts(tree))
    assert out_of_range("indices", 2, 7, 3, "", "").partition(" (")[0] in words
    assert words.count("skipped: needs SparseSegmentMeanGrad") == 2
    assert "3 done · 1 failed · 2 skipped" in words
    classes = {e.get("id"): e.get("class") for e in tree.iter(f"{SVG}g") if e.get("id")}
    assert classes["block-SparseSegmentMeanGrad"] == "rg-block rg-failed"
    assert classes["block-Exp"] == "rg-block rg-skipped"


def test_stale_and_waiting_blocks_say_so():
    page = pooled_mean()
    session = run(page)
    page.change("grad", value=[[1, 1, 1]] * 3, dtype="float32")
    page.add("Neg", x="grad")
    words = texts(drawn(page, session))
    assert words.count("stale") == 2
    assert "not run yet" in words
    assert "stale" not in texts(drawn(pooled_mean(), run(pooled_mean())))


# Geometry


def boxes(page, session=None):
    """Where the cards are, and the labels beside them."""
    cards, _ = svg.placed(page, dict(session.results()) if session else {})
    return {id: (card.x, card.y, card.right, card.bottom) for id, card in cards.items()}


def on_each_other(found):
    return [
        (a, b)
        for (a, (l1, t1, r1, b1)), (b, (l2, t2, r2, b2)) in combinations(found.items(), 2)
        if l1 < r2 and l2 < r1 and t1 < b2 and t2 < b1
    ]


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_card_lies_on_another(seed, scattered):
    page = random_page(seed, scattered=scattered)
    session = run(page)
    assert on_each_other(boxes(page)) == []
    assert on_each_other(boxes(page, session)) == []
    drawn(page, session)


TIDY = [pooled_mean, five_gradients, forward_and_backward, *(partial(random_page, seed) for seed in range(4))]


@pytest.mark.parametrize("make", [*TIDY, *(partial(random_page, seed, scattered=True) for seed in range(4))])
def test_labels_lie_on_no_card(make):
    page = make()
    session = run(page)
    cards, _ = svg.placed(page, dict(session.results()))
    for card in cards.values():
        for pin, label in card.labels.items():
            y = card.y + card.pins_out[pin]
            x, end = card.right + 1, card.right + svg.label_width(label)
            for other in cards.values():
                assert not (other.x < end and other.right > x and other.y < y + 8 and other.bottom > y - 8)


def points_of(path):
    """Points along the data of a path, which is made of M, H and C."""
    x = y = 0.0
    for kind, numbers in re.findall(r"([MHC])([^MHC]*)", path):
        values_in = [float(n) for n in numbers.split()]
        if kind == "M":
            x, y = values_in
        elif kind == "H":
            yield from ((x + (values_in[0] - x) * t, y) for t in np.linspace(0, 1, 50))
            x = values_in[0]
        else:
            (x1, y1, x2, y2, x3, y3) = values_in
            for t in np.linspace(0, 1, 50):
                a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
                yield a * x + b * x1 + c * x2 + d * x3, a * y + b * y1 + c * y2 + d * y3
            x, y = x3, y3


@pytest.mark.parametrize("make", TIDY)
def test_wires_begin_and_end_at_their_pins_and_pass_no_card(make):
    page = make()
    session = run(page)
    cards, _ = svg.placed(page, dict(session.results()))
    paths = [e.get("d") for e in drawn(page, session).iter(f"{SVG}path") if e.get("class") == "rg-wire"]
    wires = [(block.id, pin, wire) for block in page for pin, wire in block.wires()]
    for (id, pin, wire), path in zip(wires, paths, strict=True):
        way = list(points_of(path))
        source, target = cards[wire.block], cards[id]
        assert way[0] == pytest.approx((source.right, source.y + source.pins_out[wire.pin]), abs=0.1)
        assert way[-1] == pytest.approx((target.x - 5, target.y + target.pins_in[pin]), abs=0.1)
        for x, y in way:
            assert not [c.block.id for c in cards.values() if c.x < x - 1 < c.right - 2 and c.y + 1 < y < c.bottom - 1]


def test_everything_is_in_view():
    page = forward_and_backward()
    session = run(page)
    left, top, wide, high = map(float, drawn(page, session).get("viewBox").split())
    for x, y, right, bottom in boxes(page, session).values():
        assert left + 16 <= x and top + 16 <= y and right <= left + wide - 16 and bottom <= top + high - 16


def test_blocks_stand_where_the_page_has_them_if_there_is_room():
    page = Page()
    page.add("Const", id="a", value=1.0, at=(10, 20))
    page.add("Neg", id="b", x="a", at=(500, 300))
    page.add("Neg", id="c", x="b", at=(120.5, 700))
    assert {id: box[:2] for id, box in boxes(page, run(page)).items()} == {
        "a": (10, 20),
        "b": (500, 300),
        "c": (120.5, 700),
    }


def test_large_results_push_what_is_below_and_beside():
    page = Page()
    page.add("Const", id="a", value=np.random.default_rng(0).normal(size=(8, 8)), at=(0, 0))
    page.add("Const", id="below", value=1.0, at=(0, 150))
    page.add("Neg", id="beside", x="a", at=(340, 0))
    page.add("Neg", id="corner", x="below", at=(340, 150))
    before = boxes(page)
    after = boxes(page, run(page))
    assert on_each_other(after) == []
    assert after["below"][1] > before["below"][1] and after["beside"][0] > before["beside"][0]
    assert after["corner"][:2] == (after["beside"][0], after["below"][1])  # still in line


def test_far_places_do_not_blow_up_the_picture():
    page = Page()
    page.add("Const", id="a", value=1.0, at=(-1e8, -1e8))
    page.add("Neg", id="b", x="a", at=(1e8, 9e8))
    tree = drawn(page)
    assert float(tree.get("width")) < 5000 and float(tree.get("height")) < 5000


# Safety


HOSTILE = '</text><script>alert("1")</script>&amp;\'"<!--]]>\x00\x07\u202e\ufffe'


def test_hostile_texts_are_escaped():
    page = Page(HOSTILE)
    page.add("Const", id="text", value=[HOSTILE, "line\nbreak\ttab", "x" * 5000], dtype="string")
    page.add("Placeholder", id="fed", dtype="string")
    session = run(page, fed=HOSTILE)
    picture = page.to_svg(session)
    tree = parsed(picture)
    assert "<script" not in picture and "\x00" not in picture and "\u202e" not in "".join(texts(tree))
    assert not list(tree.iter(f"{SVG}script"))
    assert Page.from_json(page_in_svg(picture)) == page


def test_long_names_are_shortened_and_kept_in_the_title():
    page = Page("n" * 500)
    long = page.add("Const", id="a_long_name/" * 16, value=1.0)
    page.add("Neg", x=long)
    tree = drawn(page)
    assert max(map(len, texts(tree))) < 80
    assert f"{long.id} (Const)" in titles(tree, "rg-block")
    assert all(right - x <= 330 for x, _, right, _ in boxes(page).values())


def test_drawing_changes_nothing():
    page = failing_page()
    session = run(page, ids=[0, 1, 2])
    page.change("grad", value=[[0, 0], [1, 1]], dtype="float32")
    before = page.to_json(), repr(session.results()), {id: r.stale for id, r in session.results().items()}
    page.to_svg(session)
    assert (page.to_json(), repr(session.results()), {id: r.stale for id, r in session.results().items()}) == before


def test_the_same_page_gives_the_same_bytes():
    first, second = forward_and_backward(), forward_and_backward()
    assert first.to_svg(run(first)) == second.to_svg(run(second))


# The page inside


@pytest.mark.parametrize("make", [pooled_mean, five_gradients, forward_and_backward, Page, lambda: random_page(2)])
def test_the_page_comes_back(make):
    page = make()
    text = page_in_svg(page.to_svg())
    assert text == page.to_json()
    assert Page.from_json(text) == page


def test_characters_that_xml_has_not_come_back():
    page = Page("odd \uffff \x01 𝄞")
    picture = page.to_svg()
    picture.encode()
    assert Page.from_json(page_in_svg(picture)).name == page.name


def test_pictures_without_a_page():
    assert page_in_svg('<svg xmlns="http://www.w3.org/2000/svg"/>') is None
    assert page_in_svg('<svg><metadata id="other">{}</metadata></svg>') is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><svg>&b;</svg>', "document type"),
        ('<!DOCTYPE svg SYSTEM "file:///etc/passwd"><svg/>', "document type"),
        ("<svg>&undefined;</svg>", "incomplete"),
        ("<svg><g></svg>", "incomplete"),
        ("", "incomplete"),
        ("<html></html>", "not SVG"),
    ],
)
def test_damaged_and_hostile_pictures_are_refused(text, said):
    with pytest.raises(FileError, match=said):
        page_in_svg(text)


def test_pictures_that_are_too_large_are_refused(monkeypatch):
    picture = pooled_mean().to_svg()
    monkeypatch.setattr(svg, "MOST_BYTES", 1000)
    with pytest.raises(FileError, match="too large"):
        page_in_svg(picture)
    assert "metadata" not in pooled_mean().to_svg()


# Looks


def test_every_type_and_family_has_a_look():
    assert set(looks.PINS) == {*dtypes.NUMPY, "string"}
    shapes = {looks.pin_look(name).shape for name in ("float32", "int32", "bool", "string", "complex64", "qint8", None)}
    assert len(shapes) == 7
    for operator in BLOCKS.values():
        assert looks.tint(operator.family) in looks.TINTS.values()


def brightness(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first, second):
    high, low = sorted((brightness(first), brightness(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_texts_can_be_read():
    for tint in looks.TINTS.values():
        assert contrast(looks.INK, tint.header) >= 7
        assert contrast(looks.DIM, tint.header) >= 4.5
    for ink in (looks.DIM, looks.ERROR, looks.STALE):
        assert contrast(ink, looks.CARD) >= 4.5
    assert contrast(looks.STALE, looks.TINTS["sparse_segment_grad"].header) >= 4.0


def test_an_open_group_has_a_frame_and_a_collapsed_one_is_a_card():
    page = forward_and_backward()
    page.group(["gradients"], "outer")
    session = run(page)
    frames = [e for e in drawn(page, session).iter(f"{SVG}g") if e.get("class") == "rg-frame"]
    assert [frame.find(f"{SVG}title").text for frame in frames] == ["group outer", "group outer/gradients, derived"]
    page.collapse("outer")
    picture = drawn(page, session)
    ids = [e.get("id") for e in picture.iter(f"{SVG}g") if e.get("id", "").startswith("block-")]
    assert "block-outer" in ids
    assert not any("gradients" in id for id in ids)
    assert Page.from_json(svg.page_in_svg(page.to_svg(session))) == page
