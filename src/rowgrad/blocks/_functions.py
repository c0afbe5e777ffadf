"""The groups of a page as functions of its script, for `_python`.

A group is a function where all of it can run at once: its inputs are arguments, and all its results are returned. One
that has to wait for something outside that needs something inside is written where it stands, block by block.
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from rowgrad.blocks._looking import fed_first
from rowgrad.blocks._spelling import Group as Brackets
from rowgrad.blocks._spelling import Names, call, labelled, lines_of
from rowgrad.blocks.groups import local
from rowgrad.blocks.model import Block, Wire

WIDTH = 116
NUMBER = "number"  # of a step: the argument that batches need

Lines = Callable[[Block], list[str]]


class Functions:
    """Writes blocks as lines, and the groups that they are in as functions."""

    def __init__(
        self, of: Mapping[str, str], names: Names, lines: Lines, known: Container[str],
        instances: Mapping[str, str] | None = None, accessor: Callable[[Wire], str] = str,
    ) -> None:  # fmt: skip
        self.of = of  # the names of blocks
        self.names = names
        self.lines = lines
        self.known = known  # names that every function sees
        self.written: list[str] = []
        self.instances = instances or {}  # groups that are the same as another
        self.accessor = accessor  # how an output is taken from what a block gives
        self.made: dict[str, _Made] = {}  # by definition, the function that was written for it

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
        definition = self.instances.get(group, group)
        if (again := self._again(definition, group, blocks)) is not None:
            return again
        fed = [self.of[wire.block] for block in blocks for _, wire in block.wires() if wire.block not in ids]
        # What instances have in common is given to them, constants too: each may have its own.
        is_shared = self.instances.get(group, group) in self.instances.values()
        arguments = [name for name in dict.fromkeys(fed) if is_shared or name not in self.known]
        if any(block.operator.role == "batches" for block in blocks):
            arguments.append(NUMBER)
        name = self.names.name(group.rpartition("/")[2])
        given = {self.of[wire.block]: (local(block.id, group), pin, place) for block in reversed(blocks)
                 for pin, place, wire in _places(block) if wire.block not in ids}  # fmt: skip
        kept = {local(block.id, group): block for block in blocks}
        order = [local(block.id, group) for block in blocks if self.of[block.id] in results]
        self.made.setdefault(definition, _Made(name, [given.get(argument) for argument in arguments], order, kept))
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

    def _again(self, definition: str, group: str, blocks: list[Block]) -> list[str] | None:
        """The call of the function of another instance; None where it would not do the same."""
        made = self.made.get(definition)
        here = {local(block.id, group): block for block in blocks}
        if made is None or here.keys() != made.blocks.keys():
            return None
        arguments = []
        for place in made.arguments:
            if place is None:
                arguments.append(NUMBER)
                continue
            name, pin, position = place
            theirs, ours = (list(blocks[name].sources(pin))[position] for blocks in (made.blocks, here))
            if not isinstance(ours, Wire) or not isinstance(theirs, Wire) or (
                self.accessor(ours).partition(self.of[ours.block])[2]
                != self.accessor(theirs).partition(self.of[theirs.block])[2]
            ):  # fmt: skip
                return None
            arguments.append(self.of[ours.block])
        if not self._same_inputs(made, here):
            return None
        returned = ", ".join(self.of[here[name].id] for name in made.results)
        return lines_of(labelled(f"{returned} = ", call(made.name, *arguments)), 4)

    def _same_inputs(self, made: "_Made", here: Mapping[str, Block]) -> bool:
        """Whether each wire from outside is the argument that the function has in its place."""
        inside = {block.id for block in made.blocks.values()}
        of_theirs: dict[str, str] = {}
        for name, block in made.blocks.items():
            for pin, place, wire in _places(block):
                if wire.block in inside:
                    continue
                source = list(here[name].sources(pin))[place]
                ours = self.of[source.block] if isinstance(source, Wire) else ""
                if of_theirs.setdefault(self.of[wire.block], ours) != ours:
                    return False
        return True


class _Made(NamedTuple):
    """A function that was written: where each argument is used first, what it gives, and the blocks in it."""

    name: str
    arguments: list[tuple[str, str, int] | None]
    results: list[str]
    blocks: Mapping[str, Block]


def _places(block: Block) -> list[tuple[str, int, Wire]]:
    return [(pin, place, source) for pin in block.inputs for place, source in enumerate(block.sources(pin))
            if isinstance(source, Wire)]  # fmt: skip


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
