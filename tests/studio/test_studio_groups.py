"""Groups over the protocol: one block with pins, results, wires and undo; what is derived is refused by name."""

import pytest


@pytest.fixture
def chain(empty):
    """a → square → neg → exp"""
    empty.do("add", op="Const", at=[0, 0], attrs={"value": [1.0, 2.0], "dtype": "float32"})
    source = "Const:output"
    for column, op in enumerate(("Square", "Neg", "Exp")):
        empty.do("add", op=op, at=[300 * column, 200], inputs={"x": source})
        source = f"{op}:y"
    return empty


def test_a_collapsed_group_is_one_block(chain):
    assert chain.do("group", blocks=["Square", "Neg"], name="pair") == {"group": "pair"}
    assert chain.blocks["Square"]["group"] == "pair" and "pair" not in chain.blocks
    chain.do("collapse", group="pair")
    assert {"Const", "pair", "Exp"} == set(chain.blocks) == set(chain.page["order"])
    card = chain.blocks["pair"]
    assert card["op"] == "Group" and card["inputs"] == {"x": "Const:output"} and card["pins"]["role"] == "group"
    assert [pin["name"] for pin in card["pins"]["outputs"]] == ["Neg"]
    assert chain.blocks["Exp"]["inputs"] == {"x": "pair:Neg"}
    chain.do("run")
    assert chain.results["pair"]["status"] == "done" and "Neg" not in chain.results
    assert chain.results["pair"]["outputs"]["Neg"]["cells"] == [["-1"], ["-4"]]
    output = chain.client.get(f"/api/documents/{chain.document}/output?block=pair&pin=Neg&as=csv")
    assert output.body.decode().split() == ["-1", "-4"]
    chain.do("open", group="pair")
    assert "pair" not in chain.blocks and chain.results["Neg"]["status"] == "done"


def test_wires_and_moves_of_a_group(chain):
    chain.do("group", blocks=["Square", "Neg"], name="pair")
    chain.do("collapse", group="pair")
    chain.do("move", places={"pair": [50, 600]})
    assert chain.blocks["pair"]["at"] == [50, 600]
    chain.do("add", op="Const", at=[0, 0], attrs={"value": [3.0], "dtype": "float32"})
    assert "pair:x" in chain.do("fits", source="Const_1:output")["pins"]
    assert "pair:Neg" in chain.do("fits", target="Exp:x")["pins"]
    assert chain.do("fits", target="pair:x")["operators"]
    chain.do("connect", source="Const_1:output", target="pair:x")
    assert chain.blocks["pair"]["inputs"] == {"x": "Const_1:output"}
    chain.do("disconnect", target="pair:x")
    assert chain.blocks["pair"]["inputs"] == {} and chain.blocks["pair"]["missing"] == ["x"]
    assert [problem["block"] for problem in chain.page["problems"]] == ["pair"]
    for _ in range(6):
        chain.do("undo")
    assert not chain.page["groups"] and set(chain.blocks) == {"Const", "Square", "Neg", "Exp"}


def test_a_failure_inside_is_told_by_the_group(chain):
    chain.do(
        "add", op="SparseSegmentSum", at=[0, 0], inputs={"data": "Const:output", "indices": [7], "segment_ids": [0]}
    )
    chain.do("group", blocks=["SparseSegmentSum", "Square"], name="bad")
    chain.do("collapse", group="bad")
    chain.do("run")
    assert chain.results["bad"]["status"] == "failed" and "7" in chain.results["bad"]["error"]["message"]


def test_a_group_is_kept_and_used_again(chain, folder):
    chain.do("group", blocks=["Square", "Neg"], name="pair")
    assert chain.do("save_group", group="pair") == {"path": "blocks/pair.page.json"}
    assert chain.refused("save_group", group="pair")["code"] == "exists"
    chain.do("save_group", group="pair", overwrite=True)
    name = chain.do("insert", path="blocks/pair.page.json", at=[0, 900])["group"]
    assert chain.blocks[name]["op"] == "Group"
    copy = chain.do("copy_group", group=name, at=[0, 1200])["group"]
    assert copy != name and chain.blocks[copy]["at"] == [0, 1200]
    chain.do("remove", blocks=[name, copy, "Exp"])
    assert set(chain.blocks) == {"Const", "Square", "Neg"}
    assert chain.refused("insert", path="../else.page.json", at=[0, 0])["code"] == "outside"


@pytest.mark.parametrize(
    ("verb", "given", "code"),
    [
        ("group", {"blocks": []}, None),
        ("group", {"blocks": ["none"]}, "unknown-block"),
        ("ungroup", {"group": "none"}, None),
        ("collapse", {"group": "Square"}, None),
        ("train", {"loss": "Exp:y", "optimizer": "None"}, None),
        ("train", {"loss": "Exp:y", "optimizer": "Adagrad"}, None),
        ("set_group", {"group": "none", "set": {"lr": 1}}, None),
        ("rewire", {"source": "Const:output", "target": "Exp:x", "to": "Neg:x"}, "unknown-wire"),
        ("reroute", {"source": "Const:output", "target": "Exp:x", "at": [0, 0]}, "unknown-wire"),
    ],
)
def test_what_makes_no_sense_is_refused(chain, verb, given, code):
    problem = chain.refused(verb, **given)
    assert "bug in the studio" not in problem["message"]
    assert code is None or problem["code"] == code


def test_what_is_derived_follows_and_is_not_edited(chain):
    chain.do("add", op="ReduceSum", at=[0, 0], inputs={"input": "Exp:y", "axis": [0]})
    name = chain.do("add_gradients", y="ReduceSum:output", xs=["Const:output"])["group"]
    chain.do("run")
    first = chain.results[name]["outputs"]["d_Const"]["cells"]
    chain.do("change", block="Const", set={"value": [2.0, 2.0]})
    assert chain.results[name]["stale"]
    chain.do("run")
    assert chain.results[name]["outputs"]["d_Const"]["cells"] != first
    chain.do("open", group=name)
    inner = next(id for id, block in chain.blocks.items() if block["group"] == name)
    assert chain.refused("remove", blocks=[inner])["code"] == "derived"
    assert chain.refused("ungroup", group=name)["code"] == "derived"
    chain.do("detach", group=name)
    chain.do("remove", blocks=[inner])


def test_several_blocks_change_in_one_step(chain):
    chain.do("add", op="Const", at=[0, 0], attrs={"value": [5.0, 6.0], "dtype": "float32"})
    chain.do("change", block="Const", also=["Const_1"], set={"value": [7.0, 8.0]})
    assert [chain.blocks[id]["attrs"]["value"] for id in ("Const", "Const_1")] == [[7.0, 8.0]] * 2
    assert chain.refused("change", block="Const", also=["Square"], set={"value": [1.0]})
    chain.do("undo")
    assert [chain.blocks[id]["attrs"]["value"] for id in ("Const", "Const_1")] == [[1.0, 2.0], [5.0, 6.0]]


def test_tidy_arranges_what_is_seen(chain):
    chain.do("group", blocks=["Square", "Neg"], name="pair")
    chain.do("collapse", group="pair")
    chain.do("move", places={"pair": [9000, 9000]})
    chain.do("tidy")
    xs = [chain.blocks[id]["at"][0] for id in ("Const", "pair", "Exp")]
    assert xs == sorted(set(xs)) and max(xs) < 2000
