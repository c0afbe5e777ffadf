"""The catalogue of the operators that only pages have; `declare` adds one."""

from dataclasses import replace

from rowgrad._ops.catalogue import Operator, add

DECLARED: dict[str, Operator] = {}


def declare(operator: Operator) -> Operator:
    """Add `operator` to the catalogue of pages; as a function it is in `rowgrad.blocks.raw_ops`."""
    return add(replace(operator, module="blocks.raw_ops"), DECLARED)
