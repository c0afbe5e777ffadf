"""A classifier from an empty page, as a person draws it: from a CSV, in batches, trained, evaluated and charted.

Every gesture is counted: a click, a drag, a dropped file, a line that is typed. No array of data is typed.
"""

import re

import numpy as np

from studio.browser import Desk, drop, expect, middle

MOST = 40
WORDS, KINDS = 30, 3


def _tickets() -> bytes:
    """Tickets of three kinds, each with words of its own, and a few of all."""
    random = np.random.default_rng(3)
    lines = ["words,label"]
    for _ in range(240):
        kind = int(random.integers(KINDS))
        own = random.integers(kind * 10, kind * 10 + 10, 4)
        lines.append(f"{' '.join(map(str, [*own, random.integers(WORDS)]))},{kind}")
    return "\n".join(lines).encode()


class Hand:
    """Does what a person does, and counts it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.gestures = 0

    def click(self, what) -> None:
        self.gestures += 1
        what.click()

    def drop(self, name: str, content: bytes) -> None:
        self.gestures += 1
        drop(self.desk, name, content)

    def wire(self, source, target) -> None:
        self.gestures += 1
        self.desk.wire(source, target)
        expect(self.desk.status).to_contain_text("Wired")

    def line(self, field, text: str) -> None:
        """Type a line, and Enter."""
        self.gestures += 1
        field.fill(text)
        field.press("Enter")

    def grow(self, pin, right: float, down: float, typed: str, block: str) -> None:
        """Drag a wire to empty space, and choose what it leads to; `block` is what comes."""
        x, y = middle(pin)
        self.gestures += 1
        self.desk.drag(pin, x + right, y + down)
        search = self.desk.dialog("Add a block").get_by_role("combobox", name="Search operators")
        self.line(search, typed)
        expect(self.desk.block(block)).to_be_focused()  # and in sight


def test_a_classifier_is_drawn_trained_and_evaluated_with_few_gestures(desks) -> None:
    desk = desks(viewport={"width": 1920, "height": 1080}, reduced_motion="reduce").open().skip_tour()
    hand = Hand(desk)
    name = desk.page.evaluate("() => `tickets-${Date.now()}.csv`")
    hand.drop(name, _tickets())
    hand.click(desk.dialog(f"Data from {name}").get_by_role("button", name="Add to the page"))
    expect(desk.output("Batches", "words_segments")).to_be_visible()
    x, y = middle(desk.block("Batches").get_by_text("Batches", exact=True))
    hand.gestures += 1
    desk.drag(desk.block("Batches").get_by_text("Batches", exact=True), x - 260, y - 160)

    hand.grow(desk.output("Batches", "words"), 200, -40, "SparseSegmentMean", "SparseSegmentMean")
    hand.wire(desk.output("Batches", "words_segments"), desk.input("SparseSegmentMean", "segment_ids"))
    hand.grow(desk.input("SparseSegmentMean", "data"), -90, 230, "Variable", "Variable")
    hand.grow(desk.input("Variable", "initial_value"), -100, 50, "random normal", "StatelessRandomNormal")
    hand.line(desk.field("StatelessRandomNormal", "shape"), f"[{WORDS}, 8]")
    hand.grow(desk.output("SparseSegmentMean"), 100, 0, "MatMul", "MatMul")
    hand.grow(desk.input("MatMul", "b"), -40, 230, "Variable", "Variable_1")
    hand.grow(desk.input("Variable_1", "initial_value"), -20, 70, "random normal", "StatelessRandomNormal_1")
    hand.line(desk.field("StatelessRandomNormal_1", "shape"), f"[8, {KINDS}]")
    hand.click(desk.tool("Fit"))
    loss = "SparseSoftmaxCrossEntropyWithLogits"
    hand.grow(desk.output("MatMul", "product"), 60, 60, "sparse softmax loss", loss)
    hand.wire(desk.output("Batches", "label"), desk.input(loss, "labels"))
    hand.grow(desk.output(loss, "loss"), 20, 220, "ReduceMean", "ReduceMean")
    hand.line(desk.field("ReduceMean", "axis"), "0")

    hand.click(desk.tool("Train"))
    expect(desk.dialog("Train").get_by_role("combobox", name="Loss")).to_have_value("ReduceMean:output")
    hand.line(desk.dialog("Train").get_by_role("textbox", name="lr"), "0.5")
    expect(desk.block("training")).to_be_visible()
    hand.click(desk.tool("Loop"))
    hand.line(desk.dialog("Loop").get_by_role("textbox", name="Steps"), "200")
    expect(desk.status).to_contain_text("On the examples held out", timeout=120_000)

    assert hand.gestures < MOST, hand.gestures
    chart = desk.page.get_by_role("figure", name="Recorded values")
    first, last = re.search(r"([\d.e-]+) in step 1, ([\d.e-]+) in step 200", chart.inner_text()).groups()
    held_out = re.search(r"held out: ([\d.e-]+)", chart.inner_text())
    assert held_out is not None
    assert float(first) > 0.8 and float(last) < 0.4 and float(held_out[1]) < 0.5  # three kinds by chance: 1.1
    expect(desk.problems).to_contain_text("No problems")
    expect(desk.page.get_by_text("stale", exact=True)).to_have_count(0)
    print(f"\n{hand.gestures} gestures; loss {first} to {last}, held out {held_out[1]}")
