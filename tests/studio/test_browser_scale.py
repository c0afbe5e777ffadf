"""Five hundred blocks: they load, can be panned and dragged, and those out of sight cost nothing. Times are printed."""

import re
import time
from collections.abc import Callable

from rowgrad.blocks import Page
from studio.browser import Desk, expect

MOST_NODES = 15_000  # elements of the document, whatever the page holds
FRAMES = """() => {
    window.frames_taken = [];
    let last = performance.now();
    const each = (now) => {
        frames_taken.push(now - last);
        last = now;
        window.frame_watch = requestAnimationFrame(each);
    };
    window.frame_watch = requestAnimationFrame(each);
}"""
TAKEN = "() => { cancelAnimationFrame(frame_watch); return frames_taken.slice(1).sort((left, right) => left - right); }"


def _five_hundred() -> Page:
    """Fifty chains of ten blocks."""
    page = Page("five hundred")
    with page.changing():
        for row in range(50):
            page.add("Const", f"c{row}", value=[float(row), 1.0], dtype="float32", at=(0, 260 * row))
            for column in range(1, 10):
                before = f"b{row}_{column - 1}" if column > 1 else f"c{row}"
                page.add("Square", f"b{row}_{column}", x=before, at=(340 * column, 260 * row))
    return page


def _dom_nodes(desk: Desk) -> int:
    return int(desk.page.evaluate("() => document.querySelectorAll('*').length"))


def _frames(desk: Desk, name: str) -> None:
    taken = desk.page.evaluate(TAKEN)
    half, most = (taken[int(len(taken) * part)] for part in (0.5, 0.95))
    print(f"{name}: {len(taken)} frames; half within {half:.0f} ms, 95 % within {most:.0f}, all within {taken[-1]:.0f}")


def test_five_hundred_blocks(desks: Callable[..., Desk]) -> None:
    desk = desks()
    _five_hundred().save(desk.server.folder / "many.page.json")
    begun = time.perf_counter()
    desk.open(open="many.page.json")
    expect(desk.page.get_by_text("500 blocks, 450 wires")).to_be_visible()
    expect(desk.block("c25")).to_be_visible()
    print(f"\n500 blocks are there after {time.perf_counter() - begun:.2f} s; {_dom_nodes(desk)} elements")
    assert _dom_nodes(desk) < MOST_NODES

    # Near enough to work: to the first block.
    desk.page.get_by_role("tab", name="On this page").click()
    desk.page.get_by_role("button", name=re.compile("^Go to c0 ")).click()
    expect(desk.block("c0")).to_be_in_viewport()
    expect(desk.field("c0", "value")).to_be_visible()
    assert _dom_nodes(desk) < MOST_NODES

    box = desk.canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 40
    at = desk.block("c0").bounding_box()
    assert at is not None
    desk.page.evaluate(FRAMES)
    desk.page.mouse.move(x, y)
    desk.page.mouse.down()
    desk.page.mouse.move(x - 100, y - 60, steps=30)
    desk.page.mouse.up()
    _frames(desk, "panning")
    moved = desk.block("c0").bounding_box()
    assert moved is not None and abs(moved["x"] - at["x"] + 100) < 5 and abs(moved["y"] - at["y"] + 60) < 5

    head = (moved["x"] + moved["width"] / 2, moved["y"] + 14)
    desk.page.evaluate(FRAMES)
    desk.page.mouse.move(*head)
    desk.page.mouse.down()
    desk.page.mouse.move(head[0] + 100, head[1] + 80, steps=40)
    desk.page.mouse.up()
    _frames(desk, "dragging")
    expect(desk.tool("Undo")).to_be_enabled()
    assert desk.blocks()["c0"]["at"] != [0, 0]

    begun = time.perf_counter()
    desk.run()
    print(f"run after {time.perf_counter() - begun:.2f} s; {_dom_nodes(desk)} elements")
    desk.tool("Fit").click()
    expect(desk.block("b30_9")).to_be_in_viewport()
    assert _dom_nodes(desk) < MOST_NODES
    print(f"from afar: {_dom_nodes(desk)} elements")
