"""The groups of a page as functions of its script, for `_python`.

A group is a function where all of it can run at once: its inputs are arguments, and all its results are returned. One
that has to wait for something outside that needs something inside is written where it stands, block by block.
"""

from collections.abc import Callable, Container, Mapping

from rowgrad.blocks._looking import fed_first
from rowgrad.blocks._spelling import Group as Brackets
from rowgrad.blocks._spelling import Names, call, labelled, lines_of
from rowgrad.blocks.model import Block

WIDTH = 116
NUMBER = "number"  # of a step: the argument that batches need

Lines = Callable[[Block], list[str]]


class Functions:
    """Writes blocks as lines, and the groups that they are in as functions."""

    def __init__(self, of: Mapping[str, str], names: Names, lines: Lines, known: Container[str]) -> None:
        self.of = of  # the names of blocks
        self.names = names
        self.lines = lines
        self.known = known  # names that every function sees
        self.written: list[str] = []

    def body(self, blocks: list[Block], within: str = "") -> list[str]:
        """The lines of `blocks`, which are all in the group `within`."""
        inside = {block.id: block for block in blocks}
        child = {id: _child(block.group, within) or id for id, block in inside.items()}
        if not _runs_at_once(inside, child):
            child = {id: id for id in inside}
        feeding = _feeding(inside, child)
        lines: list[str] = []
        for node in fed_first(dict.fromkeys(child.values()), feeding):
            if node in inside and child[node] == node:
                lines += self.lines(inside[node])
            else:
                lines += self._call(node, [block for id, block in inside.items() if child[id] == node])
        return lines

    def _call(self, group: str, blocks: list[Block]) -> list[str]:
        """The call of a group's function, which is written before."""
        ids = {block.id for block in blocks}
        body = self.body(blocks, group)
        results = [self.of[block.id] for block in blocks if self.lines(block) and block.operator.outputs]
        if not results:
            return body
        fed = [self.of[wire.block] for block in blocks for _, wire in block.wires() if wire.block not in ids]
        arguments = [name for name in dict.fromkeys(fed) if name not in self.known]
        if any(block.operator.role == "batches" for block in blocks):
            arguments.append(NUMBER)
        name = self.names.name(group.rpartition("/")[2])
        heading = lines_of(Brackets(f"def {name}(", tuple(arguments), "):"))
        returned = ", ".join(results)
        last = [f"    return {returned}"]
        if len(returned) > WIDTH - 12:
            last = ["    return (", *(f"        {result}," for result in results), "    )"]
        self.written += ["", "", *heading, f'    """The group {group}."""', *body, *last]
        if len(returned) <= 60:
            return lines_of(labelled(f"{returned} = ", call(name, *arguments)), 4)
        first, *rest = lines_of(labelled(") = ", call(name, *arguments)), 4)
        return ["    (", *(f"        {result}," for result in results), first, *rest]


def _child(group: str, within: str) -> str | None:
    """The group directly in `within` that a block of `group` is in."""
    if group == within:
        return None
    inner = group.removeprefix(f"{within}/") if within else group
    first = inner.partition("/")[0]
    return f"{within}/{first}" if within else first


def _feeding(blocks: Mapping[str, Block], child: Mapping[str, str]) -> Callable[[str], list[str]]:
    feeds: dict[str, dict[str, None]] = {node: {} for node in child.values()}
    for id, block in blocks.items():
        for _, wire in block.wires():
            if wire.block in child and child[wire.block] != child[id]:
                feeds[child[id]][child[wire.block]] = None
    return lambda node: list(feeds[node])


def _runs_at_once(blocks: Mapping[str, Block], child: Mapping[str, str]) -> bool:
    """Whether groups can be taken as one step each: no wires lead out of one and back into it."""
    feeding = _feeding(blocks, child)
    place = {node: at for at, node in enumerate(fed_first(dict.fromkeys(child.values()), feeding))}
    return all(place[other] < place[node] for node in place for other in feeding(node))
