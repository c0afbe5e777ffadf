"""Finding operators by the names people type: `SparseSliceGrad`, `sparse_slice_grad`, in any case."""

import difflib

from rowgrad.cli.problems import BAD_USAGE, Problem
from rowgrad.ops import FAMILIES, OPERATORS, Operator
from rowgrad.ops.callables import by_function


def in_order() -> list[Operator]:
    """All operators, family by family."""
    families = list(FAMILIES)
    return sorted(OPERATORS.values(), key=lambda operator: families.index(operator.family))


def find(name: str) -> list[Operator]:
    """The operators called `name`, the one with the fewest inputs first.

    The name of an operator finds that one; the name of a function finds all operators behind it (two, where its last
    input is optional).
    """
    wanted = name.replace("-", "_").casefold()
    for operator in OPERATORS.values():
        if operator.name.casefold() == wanted:
            return [operator]
    functions = by_function()
    if wanted in functions:
        return functions[wanted]
    raise Problem(f"there is no operator called {name!r}.", _suggestion(wanted), code=BAD_USAGE)


def complete(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin with what was typed, with their summaries, for the shell's completion."""
    begin = incomplete.casefold()
    return [(op.name, op.summary) for op in in_order() if op.name.casefold().startswith(begin)]


def _suggestion(wanted: str) -> str:
    # Underscores and case are matters of style, not of likeness.
    plain = {operator.name.casefold(): operator.name for operator in OPERATORS.values()}
    close = difflib.get_close_matches(wanted.replace("_", ""), plain, n=3, cutoff=0.5)
    if not close:
        return "rowgrad ops lists all operators."
    return f"did you mean {' or '.join(plain[name] for name in close)}? rowgrad ops lists all operators."
