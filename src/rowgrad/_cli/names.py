"""Finding operators by the names people type: `SparseSliceGrad`, `sparse_slice_grad`, in any case."""

import difflib

from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad._ops import Operator
from rowgrad._ops.callables import by_function
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS


def in_order(*, blocks: bool = False) -> list[Operator]:
    """All operators, family by family; with `blocks`, also what only pages have."""
    families = list(FAMILIES)
    return sorted((BLOCKS if blocks else OPERATORS).values(), key=lambda operator: families.index(operator.family))


def find(name: str, *, blocks: bool = False) -> list[Operator]:
    """The operators called `name`, the one with the fewest inputs first; with `blocks`, also what only pages have.

    The name of an operator finds that one; the name of a function finds all operators behind it (two, where its last
    input is optional). An operator without a function is found by its name in snake case too.
    """
    wanted = name.replace("-", "_").casefold().removeprefix("blocks.").removeprefix("raw_ops.")
    functions = by_function()
    called = (BLOCKS if blocks else OPERATORS).values()
    named = {key.casefold(): operator for operator in called for key in (operator.raw_name, operator.name)}
    if wanted in named:
        return [named[wanted]]
    if wanted in functions:
        return functions[wanted]
    if wanted.replace("_", "") in named:
        return [named[wanted.replace("_", "")]]
    if not blocks and (page_only := {block.casefold(): block for block in BLOCKS}.get(wanted)):
        raise Problem(
            f"{page_only} is a block of pages, not a function.",
            f"rowgrad ops {page_only} describes it.",
            code=BAD_USAGE,
        )
    raise Problem(f"there is no operator called {name!r}.", _suggestion(wanted), code=BAD_USAGE)


def complete(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin with what was typed, with their summaries, for the shell's completion."""
    begin = incomplete.casefold()
    return [(op.name, op.summary) for op in in_order(blocks=True) if op.name.casefold().startswith(begin)]


def _suggestion(wanted: str) -> str:
    # Underscores and case are matters of style, not of likeness.
    plain = {operator.name.casefold(): operator.name for operator in OPERATORS.values()}
    close = difflib.get_close_matches(wanted.replace("_", ""), plain, n=3, cutoff=0.5)
    if not close:
        return "rowgrad ops lists all operators."
    return f"did you mean {' or '.join(plain[name] for name in close)}? rowgrad ops lists all operators."
