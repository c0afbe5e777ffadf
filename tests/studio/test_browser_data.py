"""Data: a file is dropped or picked, its columns are chosen from a preview."""

import re
from collections.abc import Callable

from studio.browser import Desk, drop, expect

Desks = Callable[..., Desk]


def test_a_dropped_table_shows_its_columns(desk: Desk) -> None:
    drop(desk, "dropped.csv", b"size,price,name\n1,2.5,one\n2,3.5,two\n")
    dialog = desk.dialog("Data from dropped.csv")
    expect(dialog.get_by_role("columnheader", name=re.compile("size"))).to_contain_text("whole numbers")
    expect(dialog.get_by_role("cell", name="3.5")).to_be_visible()
    dialog.get_by_role("checkbox", name="Column name").uncheck()
    whole = dialog.get_by_role("radio", name=re.compile("^Whole"))
    if whole.count():
        whole.check()
    dialog.get_by_role("button", name="Add to the page").click()
    expect(desk.block("File")).to_be_visible()
    desk.run()
    assert desk.numbers("File") == [[1, 2]]
    assert desk.numbers("File_1") == [[2.5, 3.5]]


def test_a_file_is_picked_from_the_folder(desk: Desk) -> None:
    (desk.server.folder / "picked.csv").write_text("a,b\n1,2\n3,4\n")
    desk.tool("Add data").click()
    desk.dialog("Add data").get_by_role("button", name=re.compile("^picked.csv")).click()
    expect(desk.dialog("Data from picked.csv").get_by_role("checkbox", name="Column a")).to_be_checked()
    desk.page.keyboard.press("Escape")
    expect(desk.page.get_by_role("dialog")).to_have_count(0)
    desk.tool("Add data").click()
    with desk.page.expect_file_chooser() as chooser:
        desk.dialog("Add data").get_by_label("File from elsewhere").click()
    chooser.value.set_files([{"name": "else.csv", "mimeType": "text/csv", "buffer": b"c\n5\n"}])
    expect(desk.dialog("Data from else.csv").get_by_role("cell", name="5")).to_be_visible()
