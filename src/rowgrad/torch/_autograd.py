"""Gradients to any order: the rules of the catalogue, applied to tensors by the operators of `torch.ops.rowgrad`.

Those are differentiable themselves, so PyTorch can go back through a gradient as often as one likes. A rule is an
expression in Python's syntax; it is compiled once, and evaluated with the operators as functions.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function

from rowgrad._ops import Operator
from rowgrad._ops.gradients import mentioned, parse, rules
from rowgrad.errors import DTypeError
from rowgrad.torch._schema import DTYPES, NAMES, Role, roles, settings, snake_case, supported
from rowgrad.torch._sizes import ON_NUMBERS, ON_TENSORS, holds_tensors


@cache
def _code(rule: str) -> CodeType:
    return compile(ast.Expression(parse(rule)), f"<rule {rule}>", "eval")


def _only_rows(rule: str) -> frozenset[str]:
    """The names that a rule mentions only to count their rows."""
    nodes = list(ast.walk(parse(rule)))
    counted = [node.args[0].id for node in nodes
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "rows"
               and isinstance(node.args[0], ast.Name)]  # fmt: skip
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    return frozenset(name for name in counted if names.count(name) == counted.count(name))


class _Rows:
    """A tensor of which a rule only counts the rows: the tensor itself need not be kept."""

    __slots__ = ("rows",)

    def __init__(self, rows: Any) -> None:
        self.rows = rows


def _rows(value: Any) -> Any:
    return value.rows if isinstance(value, _Rows) else value.shape[0]


@cache
def applied(operator: Operator) -> Callable[..., Any]:
    """`operator` as rules call it: on tensors, on sizes, and with numbers in the place of tensors."""
    overload = getattr(torch.ops.rowgrad, snake_case(operator.name)).default
    on_numbers, on_tensors = ON_NUMBERS.get(operator.name), ON_TENSORS.get(operator.name)
    pin_roles = roles(operator)
    fields = tuple(zip(operator.inputs, pin_roles, strict=True))
    plain = operator.function is not None and not operator.attributes
    result = operator.result

    def apply(*values: Any, **attributes: Any) -> Any:
        if plain:
            results = overload(*values)
            return results if result is None else result(*results)
        if on_numbers is not None and not holds_tensors(values):
            return on_numbers(*values, **attributes)
        if on_tensors is not None:
            return on_tensors(*values, **attributes)
        given = {name: DTYPES.get(value, value) for name, value in attributes.items()}
        results = overload(*(_tensors(fields, values)), **given)
        return results if result is None else result(*results)

    return apply


def _tensors(fields: tuple[Any, ...], values: tuple[Any, ...]) -> list[Any]:
    """Arguments by the roles of their pins; a number takes the type of the tensors that share its type variable."""
    like = {pin.dtype: value for (pin, role), value in zip(fields, values, strict=True) if holds_tensors((value,))}
    example = next(iter(like.values()))
    example = example[0] if isinstance(example, list | tuple) else example
    found = []
    for (pin, role), value in zip(fields, values, strict=True):
        if role is Role.TENSOR and not isinstance(value, torch.Tensor):
            dtype = like[pin.dtype].dtype if pin.dtype in like else torch.int64
            value = torch.full((), value, dtype=dtype, device=example.device)
        elif role is Role.SIZES and value and isinstance(value[0], list):
            value = [number for pair in value for number in pair]
        found.append(value)
    return found


@cache
def _namespace() -> dict[str, Any]:
    return {"rows": _rows, **{operator.name: applied(operator) for operator in supported()}}


class Gradient:
    """The backward of one operator: what is kept of a call, and the rules for each input."""

    def __init__(self, operator: Operator, on_cpu: Callable[..., Any]) -> None:
        self.operator = operator
        self.on_cpu = on_cpu
        self.roles = roles(operator)
        self.inputs = tuple(pin.name for pin in operator.inputs)
        self.outputs = tuple(pin.name for pin in operator.outputs)
        self.differentiable = tuple(i for i, name in enumerate(self.inputs) if name in operator.gradient)
        stated = [rule for rule in operator.gradient.values() for rule in ((rule,) if isinstance(rule, str) else rule)]
        names = frozenset[str]().union(*map(mentioned, stated))
        whole = frozenset[str]().union(*(mentioned(rule) - _only_rows(rule) for rule in stated))
        if "part" in names:  # it stands for each of the tensors of a pin that takes many
            whole |= {pin.name for pin in operator.inputs if pin.many}
        self.kept_inputs = tuple(i for i, name in enumerate(self.inputs) if name in whole)
        self.counted = tuple(i for i, name in enumerate(self.inputs) if name in names - whole)
        self.kept_outputs = tuple(i for i, name in enumerate(self.outputs) if name in whole)
        self.types = tuple(variable for variable in operator.types if variable in names)
        self.several = sum(f"d_{name}" in names for name in self.outputs) > 1

    def kernel(self) -> Callable[..., Any]:
        """The kernel for PyTorch's autograd keys: it records the call where a gradient is wanted, and goes on below."""
        overload = getattr(torch.ops.rowgrad, snake_case(self.operator.name)).default
        redispatch, below = overload.redispatch, torch._C._after_autograd_keyset
        cpu, kernels, on_cpu = torch._C.DispatchKey.CPU, below.remove(torch._C.DispatchKey.ADInplaceOrView), self.on_cpu
        positions, has_lists = self.differentiable, Role.TENSORS in self.roles
        keep, back = self.keep, self.back

        def forward(ctx: Any, call: tuple[Any, ...], *_: Any) -> Any:
            keyset, values, attributes = call
            if (keyset & kernels).highestPriorityTypeId() == cpu:
                results = on_cpu(*values, **attributes)
                keep(ctx, values, attributes, results)
                return results
            # PyTorch runs this without gradients, but under `torch.func` the levels below have their own to record.
            nested = torch._C._are_functorch_transforms_active()
            with torch.set_grad_enabled(nested), torch._C._AutoDispatchBelowAutograd():
                results = redispatch(keyset & below, *values, **attributes)
            keep(ctx, values, attributes, results)
            return results

        def backward(ctx: Any, *flowing: Any) -> Any:
            return (None, *back(ctx, flowing))

        name = f"{self.operator.name}Backward"
        function = type(name, (torch.autograd.Function,), {"forward": staticmethod(forward),
                                                           "backward": staticmethod(backward)})  # fmt: skip
        # Not `function.apply`: that is for functions that are called above the dispatcher, and would have `torch.func`
        # transform the call once more. Here it has been transformed, as for PyTorch's own operators.
        record = super(torch.autograd.Function, function).apply  # type: ignore[misc]

        def kernel(keyset: Any, *values: Any, **attributes: Any) -> Any:
            if torch.is_grad_enabled():
                tensors = [values[i] for i in positions]
                if has_lists:
                    tensors = [x for value in tensors for x in (value if isinstance(value, list) else (value,))]
                for tensor in tensors:
                    if tensor.requires_grad:
                        call = (keyset, values, attributes)
                        if not torch._C._are_functorch_transforms_active():
                            return record(call, *tensors)
                        with enable_single_level_autograd_function():
                            return record(call, *tensors)
                nested = torch._C._are_functorch_transforms_active()
                if not nested and any(isinstance(value, torch.Tensor) and value.requires_grad for value in values):
                    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():  # no gradient flows back from here
                        return redispatch(keyset & below, *values, **attributes)
            if (keyset & kernels).highestPriorityTypeId() == cpu:
                # Nothing (a mode, a transform) stands between here and the kernel: the dispatcher need not be asked.
                return on_cpu(*values, **attributes)
            with torch._C._AutoDispatchBelowAutograd():
                return redispatch(keyset & below, *values, **attributes)

        return kernel

    def keep(self, ctx: Any, inputs: tuple[Any, ...], attributes: dict[str, Any], output: Any) -> None:
        """Put aside what the rules mention."""
        ctx.set_materialize_grads(False)
        outputs = output if self.operator.result is not None else (output,)
        names: dict[str, Any] = {self.inputs[i]: _Rows(inputs[i].shape[0]) for i in self.counted}
        tensors: list[Any] = []
        places: list[Any] = []
        for i in self.kept_inputs:
            value, role = inputs[i], self.roles[i]
            if role is Role.TENSOR:
                places.append((self.inputs[i], len(tensors), None))
                tensors.append(value)
            elif role is Role.TENSORS:
                places.append((self.inputs[i], len(tensors), len(value)))
                tensors.extend(value)
            else:
                names[self.inputs[i]] = self._numbers(i, value)
        for i in self.kept_outputs:
            places.append((self.outputs[i], len(tensors), None))
            tensors.append(outputs[i])
        ctx.save_for_backward(*tensors)
        if self.operator.attributes:
            names |= settings(self.operator, attributes)
        if self.types:
            names |= self._type_names(inputs)
        lengths = [len(inputs[i]) for i in self.differentiable] if Role.TENSORS in self.roles else None
        likes = [(o.shape, o.dtype, o.device) for o in outputs] if self.several else None
        ctx.known = (names, places, lengths, likes)

    def _numbers(self, position: int, value: Any) -> Any:
        pairs = self.operator.inputs[position].shape == "[rank, 2]"
        return [list(pair) for pair in zip(value[::2], value[1::2], strict=True)] if pairs else value

    def _type_names(self, inputs: tuple[Any, ...]) -> dict[str, str]:
        found = {}
        for pin, role, value in zip(self.operator.inputs, self.roles, inputs, strict=True):
            if pin.dtype in self.types:
                first = value[0] if role is Role.TENSORS else value
                found[pin.dtype] = NAMES[first.dtype] if isinstance(first, torch.Tensor) else "int64"
        return found

    def back(self, ctx: Any, flowing: tuple[Any, ...]) -> list[Any]:
        """The gradients of the differentiable inputs, one after the other; where nothing flows, None."""
        fixed, places, lengths, likes = ctx.known
        names = self._names(fixed, places, ctx.saved_tensors)
        reached = []
        for i, gradient in enumerate(flowing):
            name = self.outputs[i]
            if gradient is not None:
                self._refuse_complex(gradient)
                names[f"d_{name}"] = gradient
                reached.append(name)
            elif likes is not None:
                shape, dtype, device = likes[i]
                names[f"d_{name}"] = torch.zeros(shape, dtype=dtype, device=device)
        needed = ctx.needs_input_grad[1:]
        if lengths is None:
            return [self._sum(self.inputs[i], tuple(reached), names) if wanted else None
                    for i, wanted in zip(self.differentiable, needed, strict=True)]  # fmt: skip
        found: list[Any] = []
        for i, length in zip(self.differentiable, lengths, strict=True):
            parts = names.get(self.inputs[i], [None] * length)
            for position, part in enumerate(parts):
                at_part = {**names, "part": part, "position": position}
                wanted = needed[len(found)]
                found.append(self._sum(self.inputs[i], tuple(reached), at_part) if wanted else None)
        return found

    @staticmethod
    def _names(fixed: Mapping[str, Any], places: list[Any], tensors: tuple[Any, ...]) -> dict[str, Any]:
        names = dict(fixed)
        for name, position, extra in places:
            if extra is None:
                names[name] = tensors[position]
            else:
                names[name] = list(tensors[position : position + extra])
        return names

    def _sum(self, name: str, reached: tuple[str, ...], names: dict[str, Any]) -> Any:
        terms = [eval(_code(rule), _namespace(), names) for rule in _rules(self.operator, name, reached)]
        if not terms:
            return None
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _refuse_complex(self, gradient: Any) -> None:
        if gradient.is_complex() and self.operator.function is None:
            raise DTypeError(
                "gradients of this operator are for real numbers; complex ones would need conjugates. "
                "Split the numbers into their parts, or use PyTorch's own operator.",
                code="wrong-dtype",
                value=str(gradient.dtype),
                op=self.operator.name,
            )


@cache
def _rules(operator: Operator, name: str, reached: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(rules(operator, name, frozenset(reached)))
