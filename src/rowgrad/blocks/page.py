"""Pages: blocks and wires, checked with every change.

A page is always sound: what does not fit is refused when it is drawn, and the page stays as it was. A block may be
incomplete, with unconnected pins; `problems` lists those. Blocks are immutable and are exchanged as a whole, so a
session can run on what it has seen while the page goes on changing.

What all of that rests on is `Core`; here is what is made of it, each in a module of its own.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowgrad.blocks import groups as grouping
from rowgrad.blocks._core import Core
from rowgrad.blocks._looking import ID, LONGEST_NOTE, MOST_BLOCKS, Note, State, alone
from rowgrad.blocks.groups import GRADIENTS, TRAINING, Group, GroupPins, Recipe
from rowgrad.blocks.model import Block, Wire
from rowgrad.errors import PageError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session

__all__ = ["ID", "LONGEST_NOTE", "MOST_BLOCKS", "Gradients", "Note", "Page", "State"]


class Gradients(dict[str, Any]):
    """The gradients that `Page.add_gradients` has added, by variable; `group` is the name of their group."""

    group: str = ""


class Page(Core):
    """A page of blocks.

    Parameters
    ----------
    name : str
        The name of the page.
    folder : str or path, optional
        The folder of the files that it uses; `load` and `save` set it.

    Examples
    --------
    >>> from rowgrad.blocks import Page, Session
    >>> page = Page("pooled mean")
    >>> _ = page.add("Const", id="grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32")
    >>> _ = page.add("SparseSegmentMeanGrad", grad="grad:output", indices=[0, 1, 2], segment_ids=[2, 2, 2],
    ...              output_dim0=3)
    >>> print(page.signal("SparseSegmentMeanGrad:output"))
    float32 [3, 3]
    >>> print(Session(page).run()["SparseSegmentMeanGrad"].output)
    [[1.         0.33333334 1.6666667 ]
     [1.         0.33333334 1.6666667 ]
     [1.         0.33333334 1.6666667 ]]
    """

    def _repr_svg_(self) -> str | None:
        """The picture of the page, in notebooks; of a very large page, none."""
        from rowgrad.blocks._notebook import MOST_BLOCKS

        return self.to_svg() if len(self.view()) <= MOST_BLOCKS else None

    # Groups

    @alone
    def group(self, ids: Iterable[str], name: str | None = None) -> Group:
        """Put blocks and groups of the same parent into a new group called `name`."""
        from rowgrad.blocks import _grouping

        return _grouping.group(self, ids, name)

    @alone
    def ungroup(self, name: str) -> None:
        """Remove a group, but not its blocks."""
        from rowgrad.blocks import _grouping

        _grouping.ungroup(self, name)

    @alone
    def put(self, ids: Iterable[str], group: str) -> None:
        """Move blocks into a group; with an empty name, out of all groups."""
        from rowgrad.blocks import _grouping

        _grouping.put(self, ids, group)

    @alone
    def collapse(self, name: str) -> None:
        """Show a group as one card with pins."""
        from rowgrad.blocks import _grouping

        _grouping.flag(self, name, True)

    @alone
    def open(self, name: str) -> None:
        """Show the blocks of a group."""
        from rowgrad.blocks import _grouping

        _grouping.flag(self, name, False)

    @alone
    def detach(self, name: str) -> None:
        """Turn a derived group into ordinary blocks, which can be edited and no longer follow the forward half."""
        from rowgrad.blocks import _grouping

        _grouping.detach(self, name)

    @alone
    def pins(self, name: str) -> GroupPins:
        """The pins of a group: the wires that cross its border, and its unconnected pins."""
        self._group(name)
        return grouping.pins(self, name)

    @alone
    def view(self) -> "Page":
        """The page as displayed, with each collapsed group as one block. It cannot be run."""
        shown = Page(self.name, folder=self.folder)
        grouping.show(self, shown)
        shown._notes = dict(self._notes)
        return shown

    @alone
    def extract(self, name: str) -> "Page":
        """Return a group as a separate page, to save or insert elsewhere; its inputs become placeholders."""
        from rowgrad.blocks import _grouping

        self._group(name)
        page = Page(name.rpartition("/")[2], folder=self.folder)
        _grouping.extract(self, name, page)
        return page

    @alone
    def insert(
        self, /, other: "Page", name: str | None = None, *, at: tuple[float, float] | None = None, **inputs: Any
    ) -> Group:
        """Insert another page as a group.

        Its placeholders are the inputs of the group: those given by name are wired, the pins of the others are left
        unconnected.
        """
        from rowgrad.blocks import _grouping

        wished = "".join(c if c.isalnum() and c.isascii() else "_" for c in other.name).strip("_") or "group"
        chosen = _grouping.free_name(self, "", wished) if name is None else _grouping.check_name(self, name)
        return _grouping.insert(self, other, chosen, at, inputs)

    @alone
    def add_instance(
        self, /, of: str, name: str | None = None, *, at: tuple[float, float] | None = None, **inputs: Any
    ) -> Group:
        """Add a group that is the same as the group `of`, and follows every change of it.

        Parameters
        ----------
        of : str
            The definition: an ordinary group of the page.
        name : str, optional
            The name of the instance; by default the last part of `of`, numbered.
        **inputs
            Wires for the pins of the group, by name (see `pins`). The other pins are wired as in the definition.
            Later, ``page.change(name, pin=wire)`` or `connect` change them.

        Returns
        -------
        Group
            It is derived: `detach` makes ordinary blocks of it.
        """
        from rowgrad.blocks._instances import instance_recipe

        recipe = instance_recipe(self, of, inputs)
        group = self._add_derived(recipe, name or of.rpartition("/")[2], is_given=name is not None)
        if at is not None:
            self.move(group.name, *at)
        return self._groups[group.name]

    # Gradients and training: groups that follow the forward half

    @alone
    def add_gradients(
        self, y: "str | Wire | Block", xs: "Iterable[str | Wire | Block]", name: str | None = None
    ) -> Gradients:
        """Add a group that computes the gradient of the sum of `y` with respect to each of `xs`.

        The group is derived: it follows every change of the forward half, and cannot be edited itself. `detach` makes
        ordinary blocks of it.

        Returns
        -------
        Gradients
            A dict: for each of `xs`, as it was given, the output with its gradient, ``"block:pin"``; a `RowGradient` of
            two such outputs if every path to it is a pooled look-up with `sparse_gradient` set. Its `group` is the name
            of the group.
        """
        from rowgrad.blocks._derived import gradients

        given = list(xs)
        wires = [self.wire(x) for x in given]
        recipe = Recipe(GRADIENTS, self.wire(y), tuple(dict.fromkeys(wires)))
        group = self._add_derived(recipe, name or GRADIENTS, is_given=name is not None)
        found = gradients(group)
        result = Gradients({str(x): found[wire] for x, wire in zip(given, wires, strict=True)})
        result.group = group.name
        return result

    @alone
    def add_training(
        self,
        /,
        loss: "str | Wire | Block",
        variables: "Iterable[str | Wire | Block] | None" = None,
        optimizer: str = "Adagrad",
        name: str | None = None,
        **settings: Any,
    ) -> Group:
        """Add a group that trains variables: gradients of `loss`, slots and updates, derived as gradients are.

        Parameters
        ----------
        loss : output
            The output to minimize; its sum, if it has several elements.
        variables : outputs of Variable blocks, optional
            The variables to train; by default all floating-point variables that the loss depends on.
        optimizer : str
            One of `rowgrad.blocks.OPTIMIZERS`, in any case; ``"SGD"`` is gradient descent.
        **settings
            The numbers of the optimizer (``lr=0.1``), initial values of its slots (``accum=0.1``) and its attributes
            (``use_nesterov=True``). A number may also be a wire.

        Returns
        -------
        Group
        """
        from rowgrad.blocks._training import check_recipe, trainable

        source = self.wire(loss)
        wires = trainable(self, source) if variables is None else [self.wire(variable) for variable in variables]
        recipe = check_recipe(self, Recipe(TRAINING, source, tuple(dict.fromkeys(wires)), optimizer, settings))
        if not recipe.xs:
            raise PageError(f"{source} does not depend on a variable.", block=source.block, code="not-a-variable")
        return self._add_derived(recipe, name or TRAINING, is_given=name is not None)

    def gradients(self, name: str) -> Gradients:
        """The current gradients of a derived group, by variable."""
        from rowgrad.blocks._derived import gradients

        if (group := self._group(name)).recipe is None:
            raise PageError("it is not a derived group.", block=name, code="not-derived")
        found = Gradients({str(x): gradient for x, gradient in gradients(group).items()})
        found.group = name
        return found

    def _add_derived(self, recipe: Recipe, name: str, *, is_given: bool) -> Group:
        from rowgrad.blocks import _grouping
        from rowgrad.blocks._derived import add_derived

        chosen = _grouping.free_name(self, "", name)
        if is_given and chosen != _grouping.check_name(self, name):
            raise PageError(f"the name {name!r} begins the names of other blocks.", code="duplicate-id", block=name)
        with self.changing():
            return add_derived(self, recipe, chosen)

    # Files and exports

    def save(self, path: str | Path) -> None:
        """Write the page to a file atomically; large arrays are written to files beside it."""
        from rowgrad.blocks import pagefile

        pagefile.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Page":
        """Read a page from a file."""
        from rowgrad.blocks import pagefile

        return pagefile.load(Path(path))

    def to_json(self) -> str:
        """Return the page as the text of a page file, including all arrays."""
        from rowgrad.blocks import pagefile

        return pagefile.to_json(self)

    @classmethod
    def from_json(cls, text: str, *, folder: str | Path | None = None) -> "Page":
        """Read a page from the text of a page file."""
        from rowgrad.blocks import pagefile

        return pagefile.from_json(text, folder=Path(folder) if folder is not None else None)

    def to_python(self) -> str:
        """Return a script that computes the same results bit for bit, without pages and sessions."""
        from rowgrad.blocks._python import to_python

        return to_python(self)

    def to_graphdef(self, text: bool = False) -> bytes | str:
        """Return the page as a TensorFlow GraphDef, binary or text, for TensorFlow or `from_graphdef`."""
        from rowgrad.blocks._graphdef import to_graphdef

        return to_graphdef(self, text=text)

    @classmethod
    def from_graphdef(cls, data: bytes | str, name: str | None = None, *, folder: str | Path | None = None) -> "Page":
        """Read a page from a GraphDef, binary or text; `name` is the name of the page.

        Graphs hold the contents of files as constants; those that equal a file in `folder` become files again.
        """
        from rowgrad.blocks._graphdef import from_graphdef

        return from_graphdef(data, name, Path(folder) if folder is not None else None)

    def to_svg(self, session: "Session | None" = None) -> str:
        """Draw the page as SVG, with the results of `session`, if given; the picture can be opened as a page again."""
        from rowgrad.blocks.svg import to_svg

        return to_svg(self, session)

    def to_png(self, session: "Session | None" = None, scale: float = 2) -> bytes:
        """Draw the page as PNG, with `scale` pixels per unit; needs ``pip install 'rowgrad[png]'``."""
        from rowgrad.blocks.png import to_png

        return to_png(self, session, scale)
