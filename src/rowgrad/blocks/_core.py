"""The changes of a page, each checked before it is made.

`Page` adds groups, gradients, files and exports to it. Derived groups (see `_derived`) are brought up to date here,
because they change with the blocks that they are derived from.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rowgrad._ops import Operator
from rowgrad._runtime import texts
from rowgrad._runtime.files import folder
from rowgrad.blocks import _layout as layout
from rowgrad.blocks import groups as grouping
from rowgrad.blocks._looking import FARTHEST, ID, LONGEST_NOTE, MOST_BLOCKS, Looking, Note, alone, fed_first, no_wire
from rowgrad.blocks._sources import constant, renamed, sort_out, without
from rowgrad.blocks.groups import Group, is_in
from rowgrad.blocks.inference import Inferred, Signal, infer_block
from rowgrad.blocks.model import Block, Source, Wire, as_wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError, RowgradError


class Core(Looking):
    """A page that checks every change."""

    # Changing

    @alone
    def refresh(self) -> None:
        """Read the types and shapes of changed files again, and infer those that depend on them.

        Sessions do this before they run. Types that no longer match are left as they were; running reports them.
        """
        files = [block for block in self if block.operator.role in ("file", "batches")]
        changed = [block.id for block in files if self._files.get(block.id) != self._file_state(block)]
        if changed:
            try:
                with self.changing():
                    self._recheck(changed)
            except RowgradError:
                self._files |= {id: self._file_state(self[id]) for id in changed}

    def _file_state(self, block: Block) -> Any:
        name = block.attributes.get("path")
        try:
            found = folder.inside(self.folder, name).stat()
        except (RowgradError, OSError):
            return (name, None)
        return (name, found.st_mtime_ns, found.st_size, found.st_ino)

    @alone
    def add(self, /, op: str, id: str | None = None, *, at: tuple[float, float] | None = None, group: str = "",
            **given: Any) -> Block:  # fmt: skip
        """Add a block; inputs and attributes by name.

        Parameters
        ----------
        op : str
            An operator of the catalogue.
        id : str, optional
            Its name on this page; by default the operator's, numbered if it is taken.
        at : pair of numbers, optional
            Its position; by default to the right of the blocks that feed it.
        group : str, optional
            The group that it is added to.
        **given
            For an input: a wire (``"block:pin"``, a block, or ``block["pin"]``) or a literal (numbers, lists, arrays,
            or ``{"value": …, "dtype": …}``, which also writes a text). Inputs may be left out and wired later.

        Returns
        -------
        Block

        Raises
        ------
        PageError
            The operator, a pin or an attribute does not exist, or what is given does not fit. Nothing is added.
        """
        operator = _operator(op)
        if group:
            self._refuse_derived(self._group(group).name)
        id = self._new_id(f"{group}/{op}" if group else op) if id is None else self._free_id(id)
        if len(self) >= MOST_BLOCKS:
            raise PageError(f"a page holds at most {MOST_BLOCKS} blocks.", code="too-large", block=id)
        inputs, attributes = sort_out(self, id, operator, given)
        attributes = {name: value for name, value in attributes.items() if value is not None}
        block = Block(id, op, inputs, attributes, _place(id, at) if at is not None else (0, 0), group)
        inferred = self._infer(block)
        if at is None:
            feeding = [layout.column_of(self[wire.block].at[0]) + 1 for _, wire in block.wires()]
            block = replace(block, at=self._columns.place(max(feeding, default=0), block))
        else:
            self._columns.occupy(block)
        self._check_updates(block)
        waiting = any(found.problem is not None or (found.recipe is not None and found.recipe.kind == grouping.INSTANCE)
                      for found in self._groups.values())  # fmt: skip
        with self.changing() if waiting else nullcontext():
            self._blocks[id] = block
            self._inferred[id] = inferred
            if waiting:
                self._recheck(())  # it may be what a derived group needs, or part of a definition
        return block

    @alone
    def change(self, id: str, /, **given: Any) -> Block:
        """Set inputs and attributes of a block; None resets an attribute to its default.

        For a derived group, set what it is derived from: y and xs, or loss, variables, optimizer and its settings.
        """
        if self._is_group(id):
            from rowgrad.blocks._derived import change_recipe

            with self.changing():
                change_recipe(self, self._group(id), given)
            return grouping.GroupBlock(id, "Group", {}, {}, self._groups[id].at)
        block = self[id]
        self._refuse_derived(block.group, id)
        inputs, attributes = sort_out(self, id, block.operator, given)
        kept = {name: value for name, value in {**block.attributes, **attributes}.items() if value is not None}
        with self.changing():
            block = replace(block, attributes=kept)
            self._exchange(replace(block, inputs=_ordered(block, {**block.inputs, **inputs})))
        return self[id]

    @alone
    def connect(self, source: "str | Wire | Block", target: str) -> None:
        """Connect an output, ``block:pin``, to an input, ``block:pin``; an input that takes many gets one more wire."""
        wire = self.wire(source)
        if (instance := self._instance_input(target)) is not None:
            self.change(instance[0], **{instance[1]: wire})
            return
        for inner in self._group_targets(target):
            with self.changing():
                self.connect(wire, inner)
        if self._group_targets(target):
            return
        id, pin = self._target(target)
        many = next(p.many for p in self[id].operator.inputs if p.name == pin)
        before = self[id].inputs.get(pin, ())
        self.change(id, **{pin: [*(before if isinstance(before, tuple) else ()), wire] if many else wire})

    @alone
    def disconnect(self, target: str) -> None:
        """Remove the wire or literal of an input, ``block:pin``."""
        if (instance := self._instance_input(target)) is not None:
            self.change(instance[0], **{instance[1]: None})
            return
        inside = self._group_targets(target)
        with self.changing():
            for inner in inside:
                self.disconnect(inner)
        if inside:
            return
        id, pin = self._target(target)
        block = self[id]
        self._refuse_derived(block.group, id)
        if pin in block.inputs:
            with self.changing():
                self._exchange(replace(block, inputs={k: v for k, v in block.inputs.items() if k != pin}))

    @alone
    def remove(self, id: str) -> None:
        """Remove a block with its wires, or a group with its blocks."""
        if self._is_group(id):
            from rowgrad.blocks._grouping import keep_instances

            with self.changing():
                keep_instances(self, id)
                self._remove(id, set(self.members(id)))
            return
        self._refuse_derived(self[id].group, id)
        with self.changing():
            self._remove(id, {id})

    def _remove(self, id: str, gone: set[str]) -> None:
        """Take blocks away, and the group `id`, if it is one."""
        with self.changing():
            self._groups = {name: group for name, group in self._groups.items() if not is_in(name, id)}
            users = {user.id for user in self if user.id not in gone and not self._is_derived(user.group)
                     and any(wire.block in gone for _, wire in user.wires())}  # fmt: skip
            for user in users:
                self._blocks[user] = replace(self[user], inputs=without(self[user].inputs, gone))
            self._delete(gone)
            self._recheck(users)

    @alone
    def drop(self, ids: Iterable[str]) -> None:
        """Remove blocks that no remaining block depends on."""
        dropped = {self[id].id for id in ids}
        if used := next((wire for block in self for _, wire in block.wires()
                         if wire.block in dropped and block.id not in dropped), None):  # fmt: skip
            raise PageError("wires lead from it to others.", block=used.block, pin=used.pin, code="in-use")
        for id in dropped:
            self._refuse_derived(self[id].group)
        with self.changing():
            self._delete(dropped)
            self._recheck(())

    def _delete(self, ids: Iterable[str]) -> None:
        for id in ids:
            del self._blocks[id], self._inferred[id]
        self._numbers.clear()
        self._forget_empty_groups()

    def _forget_empty_groups(self) -> None:
        if self._groups:
            held = {block.group for block in self} | {name for name in self._groups if self._is_derived(name)}
            self._groups = {name: group for name, group in self._groups.items()
                            if any(is_in(other, name) for other in held)}  # fmt: skip

    @alone
    def rename(self, id: str, new: str) -> None:
        """Give a block or a group another name; wires follow."""
        if self._is_group(id):
            from rowgrad.blocks._grouping import rename_group

            rename_group(self, id, new)
            return
        self._refuse_derived(self[id].group, id)
        if new != id:
            self._free_id(new)
            with self.changing():
                self._rename({id: new})

    def _rename(self, new: Mapping[str, str]) -> None:
        """Give blocks other ids, on all wires and in all recipes; copies of them are called alike."""
        from rowgrad.blocks._instances import follow_names

        new = follow_names(self, new)

        def moved(wire: Wire) -> Wire:
            return Wire(new[wire.block], wire.pin) if wire.block in new else wire

        blocks = {}
        for block in self:
            if any(wire.block in new for _, wire in block.wires()):
                block = replace(block, inputs={pin: renamed(source, moved) for pin, source in block.inputs.items()})
            if block.id in new:
                block = replace(block, id=new[block.id])
            blocks[block.id] = block
        self._blocks = blocks
        for group in self._groups.values():
            if group.recipe is not None:
                outputs = {role: moved(wire) for role, wire in group.outputs.items()}
                self._groups[group.name] = replace(group, recipe=group.recipe.rewired(moved), outputs=outputs)
        self._numbers.clear()
        self._inferred = {}
        self._recheck(blocks)

    @alone
    def move(self, id: str, x: float, y: float) -> None:
        """Move a block, or a group with its blocks."""
        if self._is_group(id):
            from rowgrad.blocks._grouping import move_group

            move_group(self, self._groups[id], _place(id, (x, y)))
            return
        self._blocks[id] = replace(self[id], at=_place(id, (x, y)))
        self._columns.occupy(self._blocks[id])

    @alone
    def note(self, text: str, at: tuple[float, float], id: str | None = None) -> "Note | None":
        """Add a note, or replace the one called `id`; an empty text removes it."""
        if id is None:
            id = next(name for n in range(len(self._notes) + 1) if (name := f"note{n}") not in self._notes)
        if not isinstance(text, str) or len(text) > LONGEST_NOTE:
            raise PageError(f"a note is a text of at most {LONGEST_NOTE} characters.", code="bad-note", value=id)
        texts.check(text, "the note", PageError)
        texts.check(id, "the name of the note", PageError)
        if text:
            self._notes[id] = Note(id, text, _place(id, at))
        else:
            self._notes.pop(id, None)
        return self._notes.get(id)

    @alone
    def reorder(self, ids: Iterable[str]) -> None:
        """Order blocks as in `ids`, in lists and in the file; the others come after."""
        first = [id for id in ids if id in self]
        self._blocks = {id: self._blocks[id] for id in dict.fromkeys([*first, *self._blocks])}

    @alone
    def tidy(self, ids: Iterable[str] | None = None) -> None:
        """Arrange blocks in columns, each right of what feeds it: all, or `ids` below the others."""
        for id, at in layout.arranged(self, ids).items():
            self._blocks[id] = replace(self._blocks[id], at=at)
        self._columns = layout.Columns()
        for block in self:
            self._columns.occupy(block)

    # Inside

    def _target(self, target: str) -> tuple[str, str]:
        if not isinstance(target, str):
            raise no_wire(target)
        id, pin = as_wire(target)
        block = self[id]
        names = [p.name for p in block.operator.inputs]
        if pin not in names:
            raise PageError(
                f"{block.op} has no input {pin}; it has: {', '.join(names) or 'none'}.",
                block=id, pin=pin, code="unknown-pin", op=block.op,
            )  # fmt: skip
        return id, str(pin)

    def _new_id(self, op: str) -> str:
        number = self._numbers.get(op, 0)
        while (id := f"{op}_{number}" if number else op) in self._blocks:
            number += 1
        self._numbers[op] = number
        return id

    def _free_id(self, id: str) -> str:
        if not isinstance(id, str) or not ID.fullmatch(id) or len(id) > 200:
            raise PageError(
                f"{id!r} is not a valid name for a block; allowed: letters, digits and _ . / -, beginning with a "
                "letter, a digit or a dot.", code="bad-id", value=id,
            )  # fmt: skip
        if id in self._blocks:
            raise PageError(f"there is a block {id!r} already; names are unique on a page.", code="duplicate-id",
                            block=id)  # fmt: skip
        if id in self._groups:
            raise PageError(
                f"there is a group {id!r}; a block cannot be called the same.", code="duplicate-id", block=id
            )
        for name in self._groups:
            if id.startswith(f"{name}/"):
                self._refuse_derived(name, id)  # the names in a derived group are its own
        return id

    def _declare(self, new: Group) -> None:
        """Add a group; outer ones come before those in them."""
        self._groups[new.name] = new
        self._groups = dict(sorted(self._groups.items(), key=lambda item: item[0].count("/")))

    def _refuse_derived(self, group: str, id: str | None = None) -> None:
        if self._is_derived(group):
            recipe = self._groups[group].recipe
            assert recipe is not None
            how = "an instance of" if recipe.kind == grouping.INSTANCE else "derived from"
            raise PageError(f"the group {group} is {how} {recipe.y.block} and cannot be edited; "
                            f"page.detach({group!r}) turns it into ordinary blocks first.", code="derived",
                            block=id or group)  # fmt: skip

    def _instance_input(self, target: Any) -> tuple[str, str] | None:
        """The group and the pin, if ``group:pin`` is an input of an instance."""
        name, pin = as_wire(target) if isinstance(target, str) else ("", None)
        recipe = self._groups[name].recipe if name in self._groups else None
        return (name, pin) if recipe is not None and recipe.kind == grouping.INSTANCE and pin is not None else None

    def _group_targets(self, target: Any) -> list[str]:
        """The pins inside a group that its input ``group:pin`` stands for; none if it is no group."""
        name, pin = as_wire(target) if isinstance(target, str) else ("", None)
        if name not in self._groups:
            return []
        found = {entry.name: entry.targets for entry in grouping.pins(self, name).inputs}
        if pin not in found:
            raise PageError(f"the group {name} has no input {pin}; it has: {', '.join(found) or 'none'}.", block=name,
                            pin=pin, code="unknown-pin")  # fmt: skip
        return [f"{id}:{inner}" for id, inner in found[pin]]

    def _infer(self, block: Block) -> Inferred:
        held = None
        if block.operator.role in ("file", "batches"):
            self._files[block.id] = self._file_state(block)
        if block.operator.role == "batches":
            from rowgrad.blocks._batching import infer

            return infer(self, block)
        try:
            if block.operator.role == "const":
                held = constant(block)
            elif block.operator.role == "file":
                held = folder.read(self.folder, block.attributes.get("path"), block.attributes.get("part"),
                                   block.attributes.get("dtype"))  # fmt: skip
        except RowgradError as error:
            if error.code == "no-such-file" and block.operator.role == "file":
                return infer_block(block, self.signal)  # a page can be read where its data is not; running will tell
            pin = "value" if block.operator.role == "const" else "path"
            raise PageError.of(error, block.id, block.op, error.argument or pin) from error
        return infer_block(block, self.signal, held)

    def _check_updates(self, block: Block) -> None:
        """An update must be of a variable, and of one that nothing else updates."""
        for pin in block.operator.updates:
            source = block.inputs.get(pin)
            if source is None:
                continue
            if not isinstance(source, Wire) or self[source.block].operator.role != "variable":
                raise PageError("it must be wired from a Variable, whose value it updates.", block=block.id, pin=pin,
                                code="not-a-variable", op=block.op)  # fmt: skip
            for other in self:
                if other.id != block.id and any(other.inputs.get(name) == source for name in other.operator.updates):
                    raise PageError(f"{source.block} is updated by {other.id} already; a step has one update for each.",
                                    block=block.id, pin=pin, code="updated-twice", op=block.op)  # fmt: skip

    def _exchange(self, block: Block) -> None:
        self._refuse_cycle(block)
        self._check_updates(block)
        self._blocks[block.id] = block
        self._recheck([block.id])

    def _refuse_cycle(self, block: Block) -> None:
        from rowgrad.blocks._instances import needs

        recipes = {group.name: group.recipe for group in self._groups.values() if group.recipe is not None}
        for pin, wire in block.wires():
            seen: set[str] = set()
            stack = [wire.block]
            while stack:
                id = stack.pop()
                if id == block.id:
                    raise PageError(f"a wire from {wire} would close a cycle.", block=block.id, pin=pin, code="cycle",
                                    op=block.op)  # fmt: skip
                if id in seen:
                    continue
                seen.add(id)
                if id in self:
                    stack.extend(other.block for _, other in self[id].wires())
                # All of a derived group depends on what it is derived from, also a block that is not there just now.
                owner = self[id].group if id in self else _owner_by_name(id, recipes)
                if owner in recipes:
                    stack.extend(needs(self, recipes[owner]))

    def _evaluation(self) -> list[str]:
        """Ordinary blocks and derived groups, each after those that it depends on."""
        from rowgrad.blocks._instances import needs

        recipes = {group.name: group.recipe for group in self._groups.values() if group.recipe is not None}
        if not recipes:
            return self.order()
        blocks = dict(self._blocks)
        owner = {id: block.group if block.group in recipes else id for id, block in blocks.items()}

        def feeding(node: str) -> list[str]:
            if node not in recipes:
                return [owner[wire.block] for _, wire in blocks[node].wires() if wire.block in owner]
            # A block of another derived group that is not there now may be there when that is derived anew.
            return [found for id in needs(self, recipes[node])
                    if (found := owner.get(id) or _owner_by_name(id, recipes)) and found != node]  # fmt: skip

        return fed_first(dict.fromkeys([*owner.values(), *recipes]), feeding)

    def _recheck(self, changed: Iterable[str]) -> None:
        """Infer the blocks that have changed and, where their outputs are not what they were, those that follow.

        Derived groups are derived anew on the way, each after what it depends on.
        """
        dirty = set(changed)
        for id in self._evaluation():
            if id in self._groups:
                from rowgrad.blocks._derived import refresh

                dirty |= refresh(self, self._groups[id])
                continue
            block = self._blocks[id]
            if id in dirty or any(wire.block in dirty for _, wire in block.wires()):
                before = self._inferred.get(id)
                self._inferred[id] = self._infer(block)
                if before is not None and _same_outputs(before, self._inferred[id]):
                    dirty.discard(id)
                else:
                    dirty.add(id)


def _owner_by_name(id: str, groups: Iterable[str]) -> str | None:
    return next((name for name in groups if id.startswith(f"{name}/")), None)


def _operator(op: str) -> Operator:
    if not isinstance(op, str) or op not in BLOCKS:
        close = [name for name in BLOCKS if name.casefold() == str(op).casefold()]
        hint = f" Did you mean {close[0]}?" if close else ""
        raise PageError(f"there is no operator {op!r} in the catalogue.{hint}", code="unknown-operator", value=op)
    return BLOCKS[op]


def _place(id: str, at: Any) -> tuple[float, float]:
    """Where a block or a note is to stand: two numbers that a picture can be drawn with."""
    if isinstance(at, tuple | list) and len(at) == 2:
        x, y = at
        if all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < FARTHEST for n in (x, y)):
            return (x, y)
    raise PageError(f"it cannot be at {at!r}; a position is two numbers.", block=id, code="bad-place", value=at)


def _ordered(block: Block, inputs: Mapping[str, Source]) -> dict[str, Source]:
    return {pin.name: inputs[pin.name] for pin in block.operator.inputs if pin.name in inputs}


def _same_outputs(left: Inferred, right: Inferred) -> bool:
    def known(signal: Signal) -> Any:
        value = None if signal.value is None else signal.value.tolist()
        return (signal.dtype, signal.shape, value)

    return {k: known(v) for k, v in left.outputs.items()} == {k: known(v) for k, v in right.outputs.items()}
