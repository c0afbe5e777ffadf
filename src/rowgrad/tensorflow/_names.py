"""What the variables of a checkpoint are called, and which of them are an optimizer's state of which others.

TensorFlow 1 stores variables by name. TensorFlow 2 stores an object graph, and keys that are paths in it. Keras'
optimizers keep their state in lists beside a list of the variables; TensorFlow's own have slots in the graph.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rowgrad.tensorflow._protobuf import Damage, Message

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"
NAMELESS = ("", "Variable")  # the names of variables that were given none

# What TensorFlow 1 appends to a variable's name for its slots, and what they hold.
_APPENDED = {
    "Adagrad": "accumulator", "AdagradDA": "gradient_accumulator", "AdagradDA_1": "gradient_squared_accumulator",
    "Adam": "m", "Adam_1": "v", "Ftrl": "accumulator", "Ftrl_1": "linear", "Momentum": "momentum", "RMSProp": "rms",
    "RMSProp_1": "momentum", "Adadelta": "accum", "Adadelta_1": "accum_update", "ProximalAdagrad": "accumulator",
}  # fmt: skip


class Name(NamedTuple):
    """A variable's name; of a slot also whose it is, of which optimizer (its path), and what it is called there."""

    name: str
    variable: str | None = None
    optimizer: str | None = None
    slot: str | None = None


class _Node(NamedTuple):
    children: dict[str, int]
    attributes: list[tuple[str, str, str]]  # name, full name of the variable, key
    slots: list[tuple[int, str, int]]  # variable, name, slot


def plain(keys: Iterable[str]) -> dict[str, Name]:
    """The names of a checkpoint without an object graph: the keys."""
    names = {key: Name(key) for key in keys}
    for key in names:
        variable, _, appended = key.rpartition("/")
        if variable in names and appended in _APPENDED:
            names[key] = Name(key, variable, appended.removesuffix("_1"), _APPENDED[appended])
    return names


def of_graph(data: bytes, keys: Iterable[str]) -> dict[str, Name]:
    """The names of the variables with `keys` by the object graph, which is in the checkpoint as a string."""
    nodes = [_parse(message) for message in Message(data).messages(1)]
    for node in nodes:
        targets = [*node.children.values(), *(number for slot in node.slots for number in (slot[0], slot[2]))]
        if any(not 0 <= target < len(nodes) for target in targets):
            raise Damage("its object graph names an object that does not exist")
    wanted = set(keys)
    values = {
        number: (full, key)
        for number, node in enumerate(nodes)
        for name, full, key in node.attributes
        if name == VALUE and key in wanted
    }
    paths = _paths(nodes)
    slots = _slots(nodes, values, paths)
    times = Counter(full for number, (full, _) in values.items() if number not in slots)
    called = {
        number: full if times[full] == 1 and full not in NAMELESS else paths.get(number, key)
        for number, (full, key) in values.items()
        if number not in slots
    }
    twice = Counter(called.values())  # a name can be another's path
    called = {number: name if twice[name] == 1 else values[number][1] for number, name in called.items()}
    found = {key: Name(called[number]) for number, (_, key) in values.items() if number in called}
    for number, (variable, optimizer, slot) in slots.items():
        of = called[variable]
        found[values[number][1]] = Name(f"{of}@{optimizer}/{slot}", of, optimizer, slot)
    for number, node in enumerate(nodes):  # what objects that are not variables keep, such as look-up tables
        for name, _, key in node.attributes:
            if key in wanted and key not in found:
                found[key] = Name(f"{paths.get(number, number)}/{name}")
    return _unique({key: found.get(key, Name(key)) for key in wanted})


def _parse(message: Message) -> _Node:
    return _Node(
        {each.text(2): each.number(1) for each in message.messages(1)},
        [(each.text(1), each.text(2), each.text(3)) for each in message.messages(2)],
        [(each.number(1), each.text(2), each.number(3)) for each in message.messages(3)],
    )


def _paths(nodes: list[_Node]) -> dict[int, str]:
    """The shortest path to each object."""
    paths, queue = ({0: ""}, [0]) if nodes else ({}, [])
    for number in queue:
        for name, child in sorted(nodes[number].children.items()):
            if child not in paths:
                paths[child] = f"{paths[number]}/{name}" if paths[number] else name
                queue.append(child)
    return paths


def _slots(
    nodes: list[_Node], values: Mapping[int, tuple[str, str]], paths: Mapping[int, str]
) -> dict[int, tuple[int, str, str]]:
    """For each variable that is state: the variable it belongs to, the path of the optimizer, and its name there."""
    found: dict[int, tuple[int, str, str]] = {}
    for number, node in enumerate(nodes):
        optimizer = paths.get(number) or "optimizer"
        for variable, name, slot in node.slots:
            if slot in values and variable in values:
                found[slot] = variable, optimizer, name
        if "_variables" in node.children and "_iterations" in node.children:
            for slot, variable, name in _keras_slots(nodes, node, values):
                found.setdefault(slot, (variable, optimizer, name))
    return {slot: owner for slot, owner in found.items() if owner[0] not in found}


def _keras_slots(
    nodes: list[_Node], optimizer: _Node, values: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[int, int, str]]:
    """Keras 3 has lists of state beside a list of the variables; Keras 2 has names that contain the variables'."""
    own = set(nodes[optimizer.children["_variables"]].children.values())
    trained = (
        nodes[optimizer.children["_trainable_variables"]] if "_trainable_variables" in optimizer.children else None
    )
    by_name = {full: number for number, (full, _) in values.items() if number not in own}
    for title, child in optimizer.children.items():
        if title in ("_variables", "_trainable_variables"):
            continue
        for position, slot in nodes[child].children.items():
            if slot not in own or slot not in values:
                continue
            full = values[slot][0]
            variable = trained.children.get(position) if trained else None
            if variable in values:
                assert variable is not None
                name = slot_of(full, [values[variable][0]])
                yield slot, variable, name[1] if name else title.strip("_")
            elif name := slot_of(full, by_name):
                yield slot, by_name[name[0]], name[1]


def slot_of(full: str, variables: Iterable[str]) -> tuple[str, str] | None:
    """The variable and the slot that the name of an optimizer's variable is made of.

    Keras 3 has "adagrad/user_embeddings_accumulator" for "user/embeddings", Keras 2 "Adam/m/user/embeddings" or
    "Adam/user/embeddings/m".
    """
    rest = full.partition("/")[2]
    for variable in sorted(filter(None, variables), key=len, reverse=True):
        flat = variable.replace("/", "_") + "_"
        if rest.startswith(flat) and len(rest) > len(flat):
            return variable, rest.removeprefix(flat)
        if rest.startswith(f"{variable}/") and "/" not in (slot := rest.removeprefix(f"{variable}/")):
            return variable, slot
        if rest.endswith(f"/{variable}"):
            return variable, rest.removesuffix(f"/{variable}").rpartition("/")[2]
    return None


def _unique(names: dict[str, Name]) -> dict[str, Name]:
    """Names that are still there twice give way to keys, which are not."""
    times = Counter(name.name for name in names.values())
    return {key: name if times[name.name] == 1 else name._replace(name=key) for key, name in names.items()}
