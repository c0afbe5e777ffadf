"""Pages as TensorFlow graphs.

Each block is a node of its name; what else a block needs stands below that name (``table/read``). What TensorFlow has
no place for (where a block stands, how a literal was written) is in attributes that begin with ``_rowgrad``, which
TensorFlow carries along and does not look at.

A session shows all blocks the variables as they were before the step. Here each variable is read once, by a copy, and
what updates it waits for that copy; so one run of the graph is one step, whatever is fetched.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.shapes import Shape
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._graphdef import protos
from rowgrad.blocks._graphdef.names import ATTRIBUTE_NAMES, GRAPH_OPS, INTEGER_DIV, PARTS, GraphOp
from rowgrad.blocks._graphdef.recipes import RECIPES, Part
from rowgrad.blocks._graphdef.tensors import NUMBER_OF, write_tensor
from rowgrad.blocks._groupfile import group_record
from rowgrad.blocks.literals import Literal, plain
from rowgrad.blocks.model import Block, Wire
from rowgrad.errors import PageError

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page

MOST_BYTES = 2**31 - 2**20  # a protocol buffer holds less than 2 GB
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
PRODUCER = 2474  # the version of graphs that TensorFlow 2.21 writes
WHY_NOT = {
    "save": "TensorFlow's Save writes files of another format. Take it off the page, or save the variables in Python.",
    "restore": "TensorFlow's Restore reads files of another format. Use a File block, whose contents go along.",
}


def to_graph(page: "Page") -> Any:
    """The GraphDef of `page`."""
    for problem in page.problems():
        raise problem
    return _Export(page).graph()


def tensor_names(page: "Page") -> dict[str, str]:
    """What to fetch from the exported graph for each output, ``block:pin``."""
    export = _Export(page)
    export.graph()
    return {f"{b.id}:{pin.name}": export.tensor(Wire(b.id, pin.name)) for b in page for pin in b.operator.outputs}


class _Export:
    def __init__(self, page: "Page") -> None:
        self.page = page
        self.def_ = protos.load().GraphDef()
        self.def_.versions.producer = PRODUCER
        self.taken: set[str] = set()
        # Groups are name scopes. What has the name of its own scope, or of none, comes first and keeps it.
        scoped = {block.id: _scoped(block) for block in page}
        self.nodes = {id: self._free(name) for id, name in sorted(scoped.items(), key=lambda item: item[0] != item[1])}
        self.tensors: dict[tuple[str, str], str] = {}
        self.initializers: list[str] = []
        self.bytes = 0
        # Names of nodes that others refer to are given before any node is written: pages may be in any order.
        for block in page:
            for position, pin in enumerate(block.operator.outputs):
                self.tensors[block.id, pin.name] = self._place(block, pin.name, position)

    def _place(self, block: Block, pin: str, position: int) -> str:
        if block.operator.role == "variable":
            return f"{self._free(f'{self.nodes[block.id]}/read')}:0"
        if block.operator.role == "batches":
            column = NOT_IN_NAMES.sub("_", pin)
            return f"{self._free(f'{self.nodes[block.id]}/{column}')}:0"
        if block.operator.updates and position:
            return f"{self._free(f'{self.nodes[block.id]}/{pin}')}:0"
        return f"{self.nodes[block.id]}:{position}"

    def tensor(self, wire: Wire) -> str:
        """The name of the tensor that `wire` carries."""
        return self.tensors[wire.block, wire.pin]

    def graph(self) -> Any:
        """The whole graph."""
        for block in self.page:
            begun = len(self.def_.node)
            self._add(block)
            main = next(node for node in self.def_.node[begun:] if node.name == self.nodes[block.id])
            if block.group:
                main.attr["_rowgrad_group"].s = block.group.encode()
            if main.name != block.id:
                main.attr["_rowgrad_id"].s = block.id.encode()
            main.attr["_rowgrad_at"].s = json.dumps([*map(_number, block.at)]).encode()
            defaults = {a.name: a.default for a in block.operator.attributes if a.kind != "value"}
            given = [name for name, default in defaults.items() if block.attributes.get(name, REQUIRED) == default]
            if given and block.operator.role == "operator":
                main.attr["_rowgrad_given"].s = ",".join(given).encode()
        if self.initializers or not len(self.page):
            self._node(self._free("init"), "NoOp", [f"^{name}" for name in self.initializers])
        first = self.def_.node[0].attr
        first["_rowgrad_page"].s = self.page.name.encode()
        notes = [[note.text, *map(_number, note.at)] for note in self.page.notes]
        if notes:
            first["_rowgrad_notes"].s = json.dumps(notes).encode()
        groups = [group_record(self.page, group) for group in self.page.groups.values()]
        if groups:
            first["_rowgrad_groups"].s = json.dumps(groups).encode()
        return self.def_

    # Blocks

    def _add(self, block: Block) -> None:
        match block.operator.role:
            case "const":
                value = block.attributes["value"]
                node = self._const(self.nodes[block.id], self.page.constant(block.id))
                node.attr["_rowgrad_literal"].s = _written(value, self.page.constant(block.id)).encode()
            case "file":
                node = self._const(self.nodes[block.id], np.asarray(self._file(block)))
                node.attr["_rowgrad_file"].s = json.dumps(dict(block.attributes)).encode()
            case "placeholder":
                self._placeholder(block)
            case "batches":
                self._batches(block)
            case "variable":
                self._variable(block)
            case "operator" if block.op in RECIPES:
                self._recipe(block)
            case "operator" if block.op == "ConcatOffset":
                self._concat_offset(block)
            case "operator" if block.op in PARTS:
                self._one_part(block)
            case "operator" | "map" | "print" | "assert" if block.op in GRAPH_OPS:
                self._operator(block, GRAPH_OPS[block.op])
            case role:
                why = WHY_NOT.get(role, "TensorFlow has no such operator; it is rowgrad's own.")
                raise PageError(f"{block.op} cannot go into a GraphDef: {why}", block=block.id, op=block.op,
                                code="not-in-tensorflow")  # fmt: skip

    def _file(self, block: Block) -> Array:
        from rowgrad._runtime.files import folder

        given = block.attributes
        return folder.read(self.page.folder, given.get("path"), given.get("part"), given.get("dtype"))

    def _placeholder(self, block: Block) -> None:
        signal = self.page.signal(f"{block.id}:output")
        node = self._node(self.nodes[block.id], "Placeholder", [], {"dtype": signal.dtype})
        _write_shape(node.attr["shape"].shape, signal.shape)

    def _batches(self, block: Block) -> None:
        """A graph has no files: each column is a placeholder, to which batches are fed."""
        main = self._node(self.nodes[block.id], "NoOp", [])
        if block.attributes.get("path") is not None:
            main.attr["_rowgrad_batches"].s = json.dumps(dict(block.attributes)).encode()
        for pin, signal in self.page.inferred(block.id).outputs.items():
            name = self.tensor(Wire(block.id, pin)).removesuffix(":0")
            if signal.dtype is None:
                raise PageError(f"the type of {pin} is not known: there is no file, or nothing is wired to the block.",
                                block=block.id, pin=pin, op=block.op, code="not-in-tensorflow")  # fmt: skip
            node = self._node(name, "Placeholder", [], {"dtype": signal.dtype})
            _write_shape(node.attr["shape"].shape, signal.shape)
            node.attr["_rowgrad_column"].s = json.dumps([main.name, pin]).encode()

    def _variable(self, block: Block) -> None:
        self._refuse_variables_before(block)
        signal = self.page.signal(f"{block.id}:ref")
        known = signal.shape is not None and all(isinstance(size, int) for size in signal.shape)
        node = self._node(
            self.nodes[block.id], "VariableV2", [], {"dtype": signal.dtype, "container": b"", "shared_name": b""}
        )
        _write_shape(node.attr["shape"].shape, signal.shape if known else None)
        # Identity would share the memory of the variable, and change with it in the middle of the step.
        read = self.tensor(Wire(block.id, "ref")).removesuffix(":0")
        self._node(read, "DeepCopy", [self.nodes[block.id]], {"T": signal.dtype})
        assign = self._free(f"{self.nodes[block.id]}/Assign")
        inputs = [self.nodes[block.id], *self._sources(block, "initial_value")]
        self._node(assign, "Assign", inputs, {"T": signal.dtype, "use_locking": True, "validate_shape": known})
        self.initializers.append(assign)

    def _refuse_variables_before(self, block: Block) -> None:
        seen: set[str] = set()
        stack = [wire.block for _, wire in block.wires()]
        while stack:
            id = stack.pop()
            if self.page[id].operator.role == "variable":
                raise PageError(f"its initial value depends on the variable {id}, which has none yet when the "
                                "variables of a graph get theirs. Give it a value of its own.", block=block.id,
                                pin="initial_value", op=block.op, code="not-in-tensorflow")  # fmt: skip
            if id not in seen:
                seen.add(id)
                stack.extend(wire.block for _, wire in self.page[id].wires())

    def _operator(self, block: Block, entry: GraphOp) -> None:
        inputs = [name for pin in entry.inputs for name in self._inputs(block, pin)]
        attributes: dict[str, Any] = {name: self._dtype(block, variable) for name, variable in entry.types.items()}
        settings = self.page.inferred(block.id).attributes
        kinds = {attribute.name: attribute.kind for attribute in block.operator.attributes}
        attributes |= {ATTRIBUTE_NAMES.get((block.op, name), name): _plain(settings[name], kinds[name])
                       for name in entry.attributes}  # fmt: skip
        for pin, name in entry.lists.items():
            signals = self.page.inferred(block.id).inputs[pin]
            assert isinstance(signals, list)
            attributes[name] = (
                _Types(signal.dtype for signal in signals) if name == self._of(block, pin) else (len(signals))
            )
        if not attributes.get("bad_indices_policy", True):  # older versions of TensorFlow do not know it
            del attributes["bad_indices_policy"]
        op = entry.op
        if block.op == "Gather":
            inputs.append(self._const(self._free(f"{self.nodes[block.id]}/axis"), np.array(0, np.int32)).name)
            attributes |= {"Taxis": "int32", "batch_dims": 0}
        if block.op == "Div" and np.dtype(dtypes.NUMPY[attributes["T"]]).kind in "iu":
            op = INTEGER_DIV
        if entry.counted:
            many = sum(pin.many for pin in block.operator.inputs if pin.name in entry.inputs)
            attributes[entry.counted] = (len(inputs) - len(entry.inputs)) // many + 1
        self._node(self.nodes[block.id], op, [*inputs, *self._controls(block)], attributes)
        self._states(block)

    def _of(self, block: Block, pin: str) -> str:
        """The type variable of a pin."""
        return next(each.dtype for each in block.operator.inputs if each.name == pin)

    def _concat_offset(self, block: Block) -> None:
        """TensorFlow's gives the offsets of all parts, the block that of one."""
        axis, *shapes = [name for pin in ("axis", "shapes") for name in self._sources(block, pin)]
        if self._dtype(block, "Taxis") == "int64":
            cast = self._free(f"{self.nodes[block.id]}/concat_dim")
            self._node(cast, "Cast", [axis], {"SrcT": "int64", "DstT": "int32", "Truncate": False})
            axis = cast
        dtype = self._dtype(block, "shape_type")
        offsets = self._free(f"{self.nodes[block.id]}/offsets")
        self._node(offsets, "ConcatOffset", [axis, *shapes], {"N": len(shapes), "shape_type": dtype})
        position = self.page.inferred(block.id).attributes["position"]
        self._node(self.nodes[block.id], "Identity", [f"{offsets}:{position}"], {"T": dtype})

    def _one_part(self, block: Block) -> None:
        """TensorFlow's Split and Unpack give all parts, the block one."""
        pins, which, _, count = PARTS[block.op]
        settings = self.page.inferred(block.id).attributes
        others = {name: value for name, value in settings.items() if name not in (which, count)}
        parts = self._free(f"{self.nodes[block.id]}/parts")
        dtype = self._dtype(block, "T")
        inputs = [name for pin in pins for name in self._sources(block, pin)]
        self._node(parts, block.op, inputs, {"T": dtype, count: settings[count], **others})
        self._node(self.nodes[block.id], "Identity", [f"{parts}:{settings[which]}"], {"T": dtype})

    def _recipe(self, block: Block) -> None:
        names = {
            part: self._free(f"{self.nodes[block.id]}/{part}") if part else self.nodes[block.id]
            for part in RECIPES[block.op]
        }
        constants: dict[int, str] = {}
        given = {pin.name: self._sources(block, pin.name)[0] for pin in block.operator.inputs}
        for part, recipe in RECIPES[block.op].items():
            inputs = [self._part_input(block, item, names, given, constants, recipe) for item in recipe.inputs]
            controls = [f"^{names[name]}" for name in recipe.controls]
            controls += self._controls(block) if any(str(item).startswith("@") for item in recipe.inputs) else []
            attributes = {
                name: self._dtype(block, str(value)) if value in block.operator.types else value
                for name, value in recipe.attributes.items()
            }
            self._node(names[part], recipe.op, [*inputs, *controls], attributes)
        self._states(block)

    def _part_input(self, block: Block, item: str | int, names: Mapping[str, str], given: Mapping[str, str],
                    constants: dict[int, str], recipe: Part) -> str:  # fmt: skip
        if isinstance(item, int):
            if item not in constants:
                dtype = "int32" if recipe.op == "GatherV2" else self._dtype(block, "T")
                name = self._free(f"{self.nodes[block.id]}/{'axis' if recipe.op == 'GatherV2' else 'one'}")
                constants[item] = self._const(name, np.array(item, dtypes.NUMPY[dtype])).name
            return constants[item]
        if item.startswith("$"):
            return given[item[1:]]
        return self._variable_of(block, item[1:]) if item.startswith("@") else names[item]

    # Inputs

    def _inputs(self, block: Block, pin: str) -> list[str]:
        return [self._variable_of(block, pin)] if pin in block.operator.updates else self._sources(block, pin)

    def _variable_of(self, block: Block, pin: str) -> str:
        wire = block.inputs[pin]
        assert isinstance(wire, Wire)
        return self.nodes[wire.block]

    def _sources(self, block: Block, pin: str) -> list[str]:
        """The tensors at a pin; literals become constants."""
        names = []
        sources = block.sources(pin)
        for position, source in enumerate(sources):
            if isinstance(source, Wire):
                names.append(self.tensor(source).removesuffix(":0"))
                continue
            number = f"_{position}" if len(sources) > 1 else ""
            array = np.asarray(self.page.inferred(block.id).literals[pin, position])
            node = self._const(self._free(f"{self.nodes[block.id]}/{pin}{number}"), self._fitting(block, pin, array))
            node.attr["_rowgrad_literal"].s = _written(source, self._fitting(block, pin, array)).encode()
            names.append(node.name)
        return names

    def _fitting(self, block: Block, pin: str, array: Array) -> Array:
        """A literal in the one type that the pin has in TensorFlow: counts may be wider on a page."""
        declared = next(p.dtype for p in block.operator.inputs if p.name == pin)
        wanted = dtypes.NUMPY.get(declared, array.dtype)
        if array.dtype == wanted or array.dtype.kind in "OUST":
            return array
        if not np.array_equal(array.astype(wanted), array):
            raise PageError(f"{array} is too large for TensorFlow, where it is {declared}.", block=block.id, pin=pin,
                            op=block.op, code="not-in-tensorflow")  # fmt: skip
        return array.astype(wanted)

    def _controls(self, block: Block) -> list[str]:
        """What has to run before `block` changes its variables: the copies that the others see."""
        wires = [block.inputs[pin] for pin in block.operator.updates]
        reads = [self.tensor(wire) for wire in wires if isinstance(wire, Wire)]
        return [f"^{read.removesuffix(':0')}" for read in reads]

    def _states(self, block: Block) -> None:
        """The new values of further variables, of which TensorFlow's operators give only the first."""
        for position, (pin, output) in enumerate(block.operator.updates.items()):
            if position:
                name = self.tensor(Wire(block.id, output)).removesuffix(":0")
                inputs = [self._variable_of(block, pin), f"^{self.nodes[block.id]}"]
                self._node(name, "Identity", inputs, {"T": self._dtype(block, "T")})

    def _dtype(self, block: Block, variable: str) -> str:
        """What a type variable stands for at `block`."""
        inferred = self.page.inferred(block.id)
        for pin in block.operator.inputs:
            if pin.dtype == variable:
                signal = inferred.inputs[pin.name]
                return str((signal[0] if isinstance(signal, list) else signal).dtype)
        return str(inferred.attributes[variable])

    # Nodes

    def _free(self, name: str) -> str:
        wanted, number = name, 0
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name

    def _const(self, name: str, array: Array) -> Any:
        self.bytes += array.nbytes
        if self.bytes > MOST_BYTES:
            raise PageError("the arrays of the page are more than the 2 GB that a GraphDef can hold.", block=name,
                            code="too-large")  # fmt: skip
        node = self._node(name, "Const", [], {"dtype": dtypes.name_of(array.dtype)})
        write_tensor(node.attr["value"].tensor, array)
        return node

    def _node(self, name: str, op: str, inputs: Iterable[str], attributes: Mapping[str, Any] | None = None) -> Any:
        node = self.def_.node.add(name=name, op=op)
        node.input.extend(inputs)
        for key, value in (attributes or {}).items():
            attr = node.attr[key]
            if isinstance(value, bool):
                attr.b = value
            elif isinstance(value, int):
                attr.i = value
            elif isinstance(value, bytes):
                attr.s = value
            elif isinstance(value, list | tuple):
                attr.list.SetInParent()
                if isinstance(value, _Types):
                    attr.list.type.extend(NUMBER_OF[str(each)] for each in value)
                elif value:
                    kinds = {int: attr.list.i, float: attr.list.f}
                    kinds.get(type(value[0]), attr.list.s).extend(value)
            else:
                attr.type = NUMBER_OF[str(value)]
        return node


def _scoped(block: Block) -> str:
    """The name of a block's node: in the name scope of its group."""
    return block.id if not block.group or block.id.startswith(f"{block.group}/") else f"{block.group}/{block.id}"


class _Types(tuple[Any, ...]):
    """A list of types, which an attribute holds apart from texts."""

    __slots__ = ()


def _plain(value: Any, kind: str) -> Any:
    """An attribute as a node holds it: texts are bytes there."""
    if kind == "list":
        return [each.encode() if isinstance(each, str) else each for each in value]
    return value.encode() if kind == "text" else value


def _write_shape(proto: Any, shape: Shape | None) -> None:
    proto.SetInParent()
    if shape is None:
        proto.unknown_rank = True
        return
    for size in shape:
        dim = proto.dim.add()
        dim.size = size if isinstance(size, int) else -1
        if isinstance(size, str):
            dim.name = size


def _written(literal: Literal, array: Array) -> str:
    """How a literal was written: with its type (or another, that fits into it), without, or as this JSON."""
    if literal.dtype is not None:
        return "typed" if literal.dtype == dtypes.name_of(array.dtype) else f"typed:{literal.dtype}"
    value = [*literal.value] if isinstance(literal.value, tuple) else literal.value
    return "untyped" if _text(value) == _text(plain(array)) else _text(value)


def _text(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):  # what is not finite, or complex, has a type in a page file
        return "typed"


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
