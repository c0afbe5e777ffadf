"""Pages as Python: a script that gives the same bits, without pages and sessions.

One line a block, in the order in which a session runs them. What a session does by itself is written out: constants
are arrays at the top, placeholders and variables are arguments of `step`, and the new values of variables take effect
when a step is over.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._batching import SETTINGS, shares_of
from rowgrad.blocks._functions import NUMBER, Functions
from rowgrad.blocks._spelling import (
    UNPACK,
    Expression,
    Group,
    Names,
    array_text,
    call,
    labelled,
    lines_of,
    listed,
    mapped,
    same_bits,
    spelled,
    values_of,
)
from rowgrad.blocks.groups import INSTANCE
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.model import Block, Wire, upstream
from rowgrad.errors import RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page

INLINE = 60  # characters of a literal that stands where it is used; longer ones stand at the top
TAKEN = (
    "HERE", "Path", "argparse", "array", "arguments", "base64", "batches", "feeds", "folder", "initial_values", "main",
    "ml_dtypes", "name", "np", NUMBER, "parser", "path", "read_feeds", "results", "rowgrad", "step", UNPACK, "updates",
    "variables", "wanted", "write",
)  # fmt: skip


def to_python(page: "Page") -> str:
    """The script of `page`."""
    for problem in page.problems():
        raise problem
    return _Script(page).text()


class _Script:
    def __init__(self, page: "Page") -> None:
        self.page = page
        self.order = [page[id] for id in page.order()]
        self.names = Names(TAKEN)
        self.of = {block.id: self.names.name(block.id, block.op) for block in page}
        self.top: list[str] = []  # constants and long literals
        self.kept: dict[tuple[str, str, int], str] = {}  # the names of long literals
        self.placeholders = [block for block in page if block.operator.role == "placeholder"]
        self.variables = [block for block in page if block.operator.role == "variable"]
        self.batches = [block for block in page if block.operator.role == "batches"]
        constants = {self.of[block.id] for block in page if block.operator.role == "const"}
        instances = {group.name: group.recipe.y.block for group in page.groups.values()
                     if group.recipe is not None and group.recipe.kind == INSTANCE}  # fmt: skip
        self.functions = Functions(self.of, self.names, self._lines, constants, instances, self._output)
        self.initial = self._needed(wire.block for block in self.variables for _, wire in block.wires())

    # The parts of the script

    def text(self) -> str:
        """All of it."""
        for block in self.order:
            if block.operator.role == "const":
                self._keep(self.of[block.id], block.attributes["value"], self.page.constant(block.id))
        functions = [*self._initial_values(), *self._step(), *self._main()]
        body = "\n".join([*self.top, *functions, ""])
        return "\n".join([*self._head(), *_imports(body), body])

    def _head(self) -> list[str]:
        name = "".join(c if c.isprintable() else repr(c)[1:-1] for c in self.page.name.replace("\n", " "))
        name = name.replace("\\", "\\\\").replace('"', '\\"').strip() or "A page"
        count = f"{len(self.page)} block{'s' * (len(self.page) != 1)}"
        beside = " It reads files in its folder." if self._names_files() else ""
        feeds = "".join(f" --feed {block.id}=FILE.npy" for block in self.placeholders)
        return [f'"""{name}', "", f"Written by rowgrad from a page of {count}; it needs NumPy and rowgrad.{beside}", "",
                f"    python SCRIPT.py{feeds} --loop 1 --out results.npz", '"""', ""]  # fmt: skip

    def _names_files(self) -> bool:
        sources = [s for b in self.order for s in (*b.inputs.values(), *b.attributes.values())]
        roles = {block.operator.role for block in self.order}
        return bool(roles & {"file", "save", "restore", "batches"}) or any(
            isinstance(s, Literal) and s.file for s in sources
        )

    def _initial_values(self) -> list[str]:
        if not self.variables:
            return []
        fed = [self.of[block.id] for block in self.placeholders if block.id in self.initial]
        lines = _definition("initial_values", fed, "The variables before the first step.")
        for block in self.order:
            if block.id in self.initial:
                lines += self._lines(block)
        values = []
        for block in self.variables:
            name = self.of[block.id]
            value = name if block.id in self.initial else self._source(block, "initial_value", 0)
            values.append((spelled(name), value))
        return [*lines, *lines_of(labelled("return ", mapped(values)), 4)]

    def _step(self) -> list[str]:
        held = [*self.placeholders, *self.variables]
        what = ", and the new values of variables" if self.variables else ""
        given = [*(self.of[block.id] for block in held), *([NUMBER] if self.batches else [])]
        body = self.functions.body([block for block in self.order if block not in held])
        lines = [*self.functions.written, *_definition("step", given, f"One step: what each block gives{what}."), *body]
        wires = [Wire(block.id, pin.name) for block in self.order for pin in block.operator.outputs]
        results = mapped((spelled(str(wire)), self._output(wire)) for wire in wires)
        if not self.variables:
            return [*lines, *lines_of(labelled("return ", results), 4)]
        updates = {wire.block: Wire(block.id, output) for block in self.order for wire, output in _updates(block)}
        changed = [block.id for block in self.variables if block.id in updates]
        new = mapped((spelled(self.of[id]), self._output(updates[id])) for id in changed)
        lines += lines_of(labelled("results = ", results), 4)
        return [*lines, *lines_of(labelled("updates = ", new), 4), "    return results, updates"]

    def _main(self) -> list[str]:
        add = "    parser.add_argument"
        lines = [
            *_definition("main", [], "Run the steps, and show what the last one gives."),
            "    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)",
            f'{add}("--loop", type=int, default=1, metavar="N", help="how many steps to run")',
            f'{add}("--out", metavar="FILE.npz", help="write all results to this file")',
        ]
        if self.placeholders:
            kinds = [(spelled(b.id), spelled(self.page.signal(f"{b.id}:output").dtype)) for b in self.placeholders]
            lines = [*READ_FEEDS, *lines_of(labelled("wanted = ", mapped(kinds)), 4), *READ_FEEDS_BODY, *lines]
            lines += [f'{add}("--feed", action="append", default=[], metavar="NAME=FILE", help="a placeholder")',
                      "    arguments = parser.parse_args()",
                      "    feeds = read_feeds(parser, arguments.feed)"]  # fmt: skip
        else:
            lines.append("    arguments = parser.parse_args()")
        given = ["*feeds"] * bool(self.placeholders)
        if self.variables:
            first = [f"feeds[{i}]" for i, block in enumerate(self.placeholders) if block.id in self.initial]
            lines.append(f"    variables = initial_values({', '.join(first)})")
            given = [*given, "**variables", *([f"{NUMBER}={NUMBER}"] if self.batches else [])]
            step = [f"        results, updates = step({', '.join(given)})", "        variables |= updates"]
        else:
            given = [*given, *([NUMBER] if self.batches else [])]
            step = [f"        results = step({', '.join(given)})"]
        if any(block.attributes.get("epochs") is not None for block in self.batches):
            step = [
                "        try:",
                f"    {step[0]}",
                "        except batches.EndOfData:",
                "            break",
                *step[1:],
            ]
        number = NUMBER if self.batches else "_"
        return [*lines, "    results = {}", f"    for {number} in range(arguments.loop):", *step, *SHOW]

    # Blocks

    def _lines(self, block: Block) -> list[str]:
        """The line of a block in a function; that of a variable where it gets its initial value."""
        expression: Expression
        match block.operator.role:
            case "const" | "placeholder":
                return []
            case "variable":
                expression = self._source(block, "initial_value", 0)
            case "file":
                given = {name: block.attributes.get(name) for name in ("path", "part", "dtype")}
                extra = [f"dtype={spelled(given['dtype'])}"] if given["dtype"] is not None else []
                expression = call("folder.read", "HERE", spelled(given["path"]), spelled(given["part"]), *extra)
            case "restore":
                words = [self._word(block, pin) for pin in ("file_pattern", "tensor_name")]
                expression = call("folder.read", "HERE", *words)
            case "batches":
                expression = self._batch(block)
            case "print":
                told = [self._source(block, "data", position) for position in range(len(block.sources("data")))]
                message = spelled(self.page.inferred(block.id).attributes["message"])
                expression = self._source(block, "input", 0)
                return [*lines_of(call("print", message, *told), 4),
                        *lines_of(labelled(f"{self.of[block.id]} = ", expression), 4)]  # fmt: skip
            case "assert":
                told = [self._source(block, "data", position) for position in range(len(block.sources("data")))]
                condition = self._source(block, "condition", 0)
                return lines_of(labelled("assert ", call("bool", condition)._replace(closing=f"), {listed(told)}")), 4)
            case "save":
                return lines_of(call("folder.write", "HERE", self._word(block, "filename"), self._saved(block)), 4)
            case _:
                expression = self._call(block)
        return lines_of(labelled(f"{self.of[block.id]} = ", expression), 4)

    def _call(self, block: Block) -> Expression:
        short = _short_literals(self.page, block)
        arguments = []
        for pin in block.operator.inputs:
            found = [
                spelled(short[pin.name, position])
                if (pin.name, position) in short
                else self._source(block, pin.name, position)
                for position in range(len(block.sources(pin.name)))
            ]
            arguments.append(labelled(f"{pin.name}=", listed(found) if pin.many else found[0]))
        for attribute in block.operator.attributes:
            value = self.page.inferred(block.id).attributes[attribute.name]
            if attribute.passed and value != attribute.default:
                arguments.append(labelled(f"{attribute.name}=", spelled(value)))
        return call(f"rowgrad.{block.operator.call_name}", *arguments)

    def _batch(self, block: Block) -> Expression:
        """The batch of a step. What is read from a file is read once, at the top."""
        given = self.page.inferred(block.id).attributes
        words = [spelled(given["columns"]), *([spelled(given["ragged"])] if given["ragged"] else [])]
        settings = [labelled(f"{name}=", _split_shares(given[name]) if name == "splits" else spelled(given[name]))
                    for name in SETTINGS if name in block.attributes]  # fmt: skip
        if given["path"] is None:
            arrays = [self._source(block, "data", position) for position in range(len(block.sources("data")))]
            made = call("batches.Batches", call("batches.of_arrays", listed(arrays), *words), *settings)
            return made._replace(closing=f").batch({NUMBER})")
        place = (block.id, "path", 0)
        if place not in self.kept:
            self.kept[place] = self.names.name(f"{self.of[block.id]}_batches")
            read = call("batches.read", "HERE", spelled(given["path"]), *words)
            self.top += lines_of(labelled(f"{self.kept[place]} = ", call("batches.Batches", read, *settings)))
        return f"{self.kept[place]}.batch({NUMBER})"

    def _saved(self, block: Block) -> Expression:
        data = [self._source(block, "data", position) for position in range(len(block.sources("data")))]
        names = self.page.inferred(block.id).inputs["tensor_names"].value
        if names is not None and len(names) == len(data):
            return mapped(zip(map(spelled, map(str, names.tolist())), data, strict=True))
        keys = call("map", "str", self._source(block, "tensor_names", 0))
        return call("dict", call("zip", keys, listed(data), "strict=True"))

    def _word(self, block: Block, pin: str) -> Expression:
        """The text at a pin."""
        value = self.page.inferred(block.id).inputs[pin].value
        return spelled(value.item()) if value is not None else f"{self._source(block, pin, 0)}.item()"

    # Values

    def _output(self, wire: Wire) -> str:
        name = self.of[wire.block]
        if self.page[wire.block].operator.role == "batches":
            return f"{name}[{spelled(wire.pin)}]"
        return f"{name}.{wire.pin}" if self.page[wire.block].operator.result else name

    def _source(self, block: Block, pin: str, position: int) -> Expression:
        """What is at a pin: an output, or a literal with its type; a long one stands at the top."""
        source = block.sources(pin)[position]
        if isinstance(source, Wire):
            return self._output(source)
        array = np.asarray(self.page.inferred(block.id).literals[pin, position])
        place = (block.id, pin, position)
        if place not in self.kept:
            text = array_text(array)
            if source.file is None and len(str(text)) <= INLINE:
                return text
            number = f"_{position}" if len(block.sources(pin)) > 1 else ""
            self.kept[place] = self.names.name(f"{self.of[block.id]}_{pin}{number}")
            self._keep(self.kept[place], source, array)
        return self.kept[place]

    def _keep(self, name: str, literal: Literal, array: Array) -> None:
        """Write a constant at the top."""
        is_file = literal.file is not None and literal.dtype == dtypes.name_of(array.dtype)
        text = call("folder.read", "HERE", spelled(literal.file), "None") if is_file else array_text(array)
        self.top += lines_of(labelled(f"{name} = ", text))

    def _needed(self, ids: Iterable[str]) -> set[str]:
        """`ids` and all that feeds them."""
        return set(upstream(self.page.__getitem__, ids))


def _split_shares(splits: Any) -> Expression:
    return mapped((spelled(name), spelled(share)) for name, share in (shares_of(splits) or {}).items())


def _updates(block: Block) -> Iterator[tuple[Wire, str]]:
    """The variables that a block updates, each with the output that is the new value."""
    for pin, output in block.operator.updates.items():
        source = block.inputs[pin]
        if isinstance(source, Wire):
            yield source, output


def _short_literals(page: "Page", block: Block) -> dict[tuple[str, int], Any]:
    """The literals that need no type where they stand, because the operator reads them so by itself.

    Found by asking it: its pins fit what they would be given, with and without types.
    """
    literals = page.inferred(block.id).literals
    short = {}
    typed = set()
    for (pin, position), array in literals.items():
        source = block.sources(pin)[position]
        assert isinstance(source, Literal)
        if source.dtype is not None:
            typed.add((pin, position))
        value = source.value if source.dtype is None else values_of(np.asarray(array))
        if source.file is None and len(str(spelled(value))) <= INLINE:
            short[pin, position] = value
    expected = _fitted(page, block, {})
    while short:
        try:
            found = _fitted(page, block, short)
        except RowgradError:
            return {}
        wrong = [place for place in short if not same_bits(found[place], expected[place])]
        if not wrong:
            break
        # Those that were written with a type first: with it, they may give the others theirs.
        for place in [place for place in wrong if place in typed] or wrong:
            del short[place]
    return short


def _fitted(page: "Page", block: Block, short: dict[tuple[str, int], Any]) -> dict[tuple[str, int], Array]:
    """What the operator makes of its literals; of wires only the type matters."""
    literals = page.inferred(block.id).literals

    def value(pin: str, position: int, source: Wire | Literal) -> Any:
        if not isinstance(source, Wire):
            return short.get((pin, position), literals[pin, position])
        dtype = str(page.signal(source).dtype)
        return np.empty(0, object if dtype == "string" else dtypes.NUMPY[dtype])

    pins = block.operator.inputs
    given = [[value(pin.name, i, source) for i, source in enumerate(block.sources(pin.name))] for pin in pins]
    fitted = block.operator._fit(tuple(v if pin.many else v[0] for pin, v in zip(pins, given, strict=True)))
    return {
        (pin.name, position): np.asarray(item)
        for pin, found in zip(pins, fitted, strict=True)
        for position, item in enumerate(found if pin.many else [found])
    }


# What is the same in every script


def _definition(name: str, parameters: list[str], what: str) -> list[str]:
    return ["", "", *lines_of(Group(f"def {name}(", tuple(parameters), "):")), f'    """{what}"""']


def _imports(body: str) -> Iterator[str]:
    yield "import argparse"
    if f"{UNPACK}(" in body:
        yield "import base64"
    yield from ("from pathlib import Path", "")
    if "ml_dtypes." in body:
        yield "import ml_dtypes"
    if "np." in body or f"{UNPACK}(" in body:
        yield "import numpy as np"
    if "rowgrad.blocks." in body:
        yield "import rowgrad.blocks"
    elif "rowgrad." in body:
        yield "import rowgrad"
    if "batches." in body:
        yield "from rowgrad.blocks import batches"
    yield f"from rowgrad._runtime.files import {'folder, ' * ('folder.' in body)}write"
    if "HERE" in body:
        yield from ("", "HERE = Path(__file__).parent")
    if f"{UNPACK}(" in body:
        yield from UNPACK_DEFINITION
    if not body.startswith("\n"):
        yield ""


UNPACK_DEFINITION = (
    "",
    "",
    f"def {UNPACK}(dtype, shape, *lines):",
    '    """An array from its bytes, in base64."""',
    '    return np.frombuffer(base64.b64decode("".join(lines)), dtype).reshape(shape)',
    "",
)
READ_FEEDS = _definition("read_feeds", ["parser", "given"], "What is given for the placeholders, in their order.")
READ_FEEDS_BODY = (
    "    feeds = {}",
    "    for item in given:",
    '        name, _, path = item.partition("=")',
    "        if name not in wanted:",
    "            parser.error(f\"there is no placeholder {name!r}; there are: {', '.join(wanted)}\")",
    "        try:",
    "            feeds[name] = folder.read(Path(path).parent, Path(path).name, None, dtype=wanted[name])",
    "        except rowgrad.RowgradError as error:",
    "            parser.error(str(error))",
    "    for name in wanted:",
    "        if name not in feeds:",
    '            parser.error(f"nothing is fed to {name}: --feed {name}=FILE.npy")',
    "    return [feeds[name] for name in wanted]",
)
SHOW = (
    "    for name, array in results.items():",
    '        print(f"{name}: {array.dtype} {list(array.shape)}")',
    "        print(array)",
    "    if arguments.out:",
    "        write(Path(arguments.out), results)",
    "",
    "",
    'if __name__ == "__main__":',
    "    main()",
)
