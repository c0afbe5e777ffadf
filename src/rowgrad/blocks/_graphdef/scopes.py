"""Groups of a graph: those that rowgrad wrote into it, or else its name scopes."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rowgrad.blocks._derived import derive, same_block
from rowgrad.blocks._graphdef.reading import Node
from rowgrad.blocks._groupfile import RECIPES, add_groups, read_groups, read_recipe
from rowgrad.blocks._grouping import check_name
from rowgrad.blocks.groups import Group
from rowgrad.blocks.page import Page
from rowgrad.errors import PageError


def group_blocks(page: Page, nodes: Mapping[str, Node]) -> None:
    """Put the blocks of `page` into groups; `nodes` are those that they were made of."""
    text = next((mark for node in nodes.values() if (mark := node.mark("groups")) is not None), None)
    if text is not None:
        _as_written(page, nodes, text)
    elif not any(node.mark("page") is not None for node in nodes.values()):
        _by_scopes(page, nodes)


def _as_written(page: Page, nodes: Mapping[str, Node], text: str) -> None:
    try:
        with page.changing():
            records = read_groups(json.loads(text))
            add_groups(page, records)
            for id, node in nodes.items():
                if (name := node.mark("group")) in page.groups:
                    page._blocks[id] = replace(page[id], group=str(name))
            for record in records.values():
                if any(kind in record for kind in RECIPES):
                    _derive(page, record)
            page._forget_empty_groups()
    except (PageError, ValueError, RecursionError, TypeError):
        return  # somebody else has written it; the blocks are what counts


def _derive(page: Page, record: Mapping[str, Any]) -> None:
    """Let a group be derived again, if its blocks are still those that would be derived."""
    name = record["name"]
    group = replace(page.groups[name], recipe=read_recipe(page, record))
    found = derive(page, group)
    ids = page.members(name)
    same = found.problem is None and set(found.blocks) == set(ids)
    if same and all(same_block(page[id], found.blocks[id]) for id in ids):
        page._groups[name] = replace(group, outputs=found.outputs)
        page._recheck(())


def _by_scopes(page: Page, nodes: Mapping[str, Node]) -> None:
    """The name scopes that have several blocks."""
    scopes = Counter(
        "/".join(parts[:depth]) for id in nodes for parts in [id.split("/")] for depth in range(1, len(parts))
    )
    for name in sorted((name for name, count in scopes.items() if count > 1), key=lambda name: name.count("/")):
        parent = name.rpartition("/")[0]
        try:
            check_name(page, name)
        except PageError:
            continue
        if not parent or parent in page.groups:
            inside = [page[id] for id in nodes if id.startswith(f"{name}/")]
            page._declare(Group(name, (min(block.at[0] for block in inside), min(block.at[1] for block in inside))))
            for block in inside:
                page._blocks[block.id] = replace(block, group=name)
