"""Gradients to any order: the rules of the catalogue, applied to tensors by the operators of `torch.ops.rowgrad`.

Those are differentiable themselves, so PyTorch can go back through a gradient as often as one likes. Derivatives
forward (`jvp`) are the transposed rules.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

from rowgrad._ops import Operator, size_lists
from rowgrad._ops.catalogue import Rule
from rowgrad._ops.gradients import Namespace, each, evaluate, mentioned, rules
from rowgrad._ops.rule_text import needed
from rowgrad._ops.transposing import Tools, push_forward
from rowgrad.torch._bags import has_tangent
from rowgrad.torch._schema import DTYPES, NAMES, Role, roles, settings, snake_case, supported


class _Rows:
    """A tensor of which a rule only counts the rows: the tensor itself need not be kept."""

    __slots__ = ("rows",)

    def __init__(self, rows: Any) -> None:
        self.rows = rows


def _rows(value: Any) -> Any:
    return value.rows if isinstance(value, _Rows) else value.shape[0]


def _applied(operator: Operator) -> Callable[..., Any]:
    """`operator` as rules call it: types are given by name, several results are a named tuple."""
    overload = getattr(torch.ops.rowgrad, snake_case(operator.name)).default
    result = operator.result

    def apply(*values: Any, **attributes: Any) -> Any:
        results = overload(*values, **{name: DTYPES.get(value, value) for name, value in attributes.items()})
        return results if result is None else result(*results)

    return apply


# The dense operators that rules call, which PyTorch differentiates itself.
DENSE = {
    **size_lists.FUNCTIONS,
    "Mul": torch.mul,
    "Div": torch.div,
    "Sub": torch.sub,
    "OnesLike": torch.ones_like,
    "ZerosLike": torch.zeros_like,
    "Reshape": torch.reshape,
    "Transpose": torch.permute,
    "Gather": lambda params, indices: params[indices],
    "GatherNd": lambda params, indices: params[tuple(indices.unbind(-1))],
    "ReduceSum": lambda values, axes: values.sum(axes) if axes else values,
}
OP = Namespace({operator.name: operator for operator in supported()}, _applied, _rows, DENSE)
TOOLS = Tools(OP, lambda value: NAMES[value.dtype], torch.zeros_like)


class Gradient:
    """The backward of one operator: what is kept of a call, and the rules for each input."""

    def __init__(self, operator: Operator, on_cpu: Callable[..., Any]) -> None:
        self.operator = operator
        self.on_cpu = on_cpu
        self.roles = roles(operator)
        self.inputs = tuple(pin.name for pin in operator.inputs)
        self.outputs = tuple(pin.name for pin in operator.outputs)
        self.differentiable = tuple(i for i, name in enumerate(self.inputs) if name in operator.gradient)
        stated = [rule for found in operator.gradient.values() for rule in each(found)]
        names = frozenset[str]().union(*map(mentioned, stated))
        whole = frozenset[str]().union(*map(needed, stated))
        self.kept_inputs = tuple(i for i, name in enumerate(self.inputs) if name in whole)
        self.counted = tuple(i for i, name in enumerate(self.inputs) if name in names - whole)
        self.kept_outputs = tuple(i for i, name in enumerate(self.outputs) if name in whole)
        self.types = tuple(variable for variable in operator.types if variable in names)
        self.many = frozenset(i for i, role in enumerate(self.roles) if role is Role.TENSORS)
        self.several = sum(f"d_{name}" in names for name in self.outputs) > 1

    def kernel(self) -> Callable[..., Any]:
        """The kernel for PyTorch's autograd keys: it records the call where a gradient is wanted, and goes on below."""
        overload = getattr(torch.ops.rowgrad, snake_case(self.operator.name)).default
        redispatch, below = overload.redispatch, torch._C._after_autograd_keyset
        cpu, kernels, on_cpu = torch._C.DispatchKey.CPU, below.remove(torch._C.DispatchKey.ADInplaceOrView), self.on_cpu
        keep, back, differentiable = self.keep, self.back, self.parts

        def forward(ctx: Any, call: tuple[Any, ...], *_: Any) -> Any:
            keyset, values, attributes, changing = call
            if (keyset & kernels).highestPriorityTypeId() == cpu:
                results = on_cpu(*values, **attributes)
                keep(ctx, values, attributes, results, changing)
                return results
            # PyTorch runs this without derivatives, but under `torch.func` the levels below have their own to record.
            nested = torch._C._are_functorch_transforms_active()
            with torch.set_grad_enabled(nested), _forward_mode(nested), torch._C._AutoDispatchBelowAutograd():
                results = redispatch(keyset & below, *values, **attributes)
            keep(ctx, values, attributes, results, changing)
            return results

        def backward(ctx: Any, *flowing: Any) -> Any:
            return (None, *back(ctx, flowing))

        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            (inputs, attributes, outputs), ctx.call = ctx.call, None
            with _forward_mode(torch._C._are_functorch_transforms_active()):
                return self.forth(inputs, attributes, outputs, tangents)

        name = f"{self.operator.name}Backward"
        function = type(name, (torch.autograd.Function,), {"forward": staticmethod(forward),
                                                           "backward": staticmethod(backward),
                                                           "jvp": staticmethod(jvp)})  # fmt: skip
        # Not `function.apply`: that is for functions that are called above the dispatcher, and would have `torch.func`
        # transform the call once more. Here it has been transformed, as for PyTorch's own operators.
        record = super(torch.autograd.Function, function).apply  # type: ignore[misc]

        def kernel(keyset: Any, *values: Any, **attributes: Any) -> Any:
            tensors = differentiable(values)
            for tensor in tensors:
                if has_tangent(tensor):
                    # What requires no gradient is recorded too: that is how PyTorch finds `jvp`.
                    call = (keyset, values, attributes, True)
                    with enable_single_level_autograd_function():
                        return record(call, *tensors)
            if torch.is_grad_enabled():
                for tensor in tensors:
                    if tensor.requires_grad:
                        call = (keyset, values, attributes, False)
                        if not torch._C._are_functorch_transforms_active():
                            return record(call, *tensors)
                        with enable_single_level_autograd_function():
                            return record(call, *tensors)
                nested = torch._C._are_functorch_transforms_active()
                if not nested and any(map(_requires_grad, values)):
                    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():  # no gradient flows back from here
                        return redispatch(keyset & below, *values, **attributes)
            if (keyset & kernels).highestPriorityTypeId() == cpu:
                # Nothing (a mode, a transform) stands between here and the kernel: the dispatcher need not be asked.
                return on_cpu(*values, **attributes)
            with torch._C._AutoDispatchBelowAutograd():
                return redispatch(keyset & below, *values, **attributes)

        return kernel

    def parts(self, values: tuple[Any, ...]) -> list[Any]:
        """The tensors that a gradient may flow back to, one after the other."""
        if not self.many:
            return [values[i] for i in self.differentiable]
        return [part for i in self.differentiable for part in (values[i] if i in self.many else (values[i],))]

    def _by_pin(self, found: Any, values: tuple[Any, ...]) -> dict[str, Any]:
        """What there is for each of `parts`, by the names of the inputs; a list for one that takes many."""
        rest = iter(found)
        return {self.inputs[i]: [next(rest) for _ in values[i]] if i in self.many else next(rest)
                for i in self.differentiable}  # fmt: skip

    def keep(self, ctx: Any, inputs: tuple[Any, ...], attributes: dict[str, Any], output: Any, changing: bool) -> None:
        """Put aside what the rules mention; if inputs are changing, everything until `jvp`, which comes next."""
        ctx.set_materialize_grads(False)
        outputs = output if self.operator.result is not None else (output,)
        names: dict[str, Any] = {self.inputs[i]: _Rows(inputs[i].shape[0]) for i in self.counted}
        tensors: list[Any] = []
        places: list[tuple[str, int | None]] = []  # the name, and how many tensors it has, None for one
        for i in self.kept_inputs:
            if self.roles[i] is Role.TENSOR:
                places.append((self.inputs[i], None))
                tensors.append(inputs[i])
            elif self.roles[i] is Role.TENSORS:
                places.append((self.inputs[i], len(inputs[i])))
                tensors.extend(inputs[i])
            else:
                names[self.inputs[i]] = inputs[i]
        for i in self.kept_outputs:
            places.append((self.outputs[i], None))
            tensors.append(outputs[i])
        ctx.save_for_backward(*tensors)
        if self.operator.attributes:
            names |= settings(self.operator, attributes)
        if self.types:
            names |= self._type_names(inputs)
        likes = [(o.shape, o.dtype, o.device) for o in outputs] if self.several else None
        counts = [len(inputs[i]) if i in self.many else None for i in self.differentiable]
        ctx.known = (names, places, likes, counts)
        if changing:
            ctx.call = inputs, attributes, outputs

    def _type_names(self, inputs: tuple[Any, ...]) -> dict[str, str]:
        return {pin.dtype: NAMES[(value[0] if pin.many else value).dtype]
                for pin, value in zip(self.operator.inputs, inputs, strict=True)
                if pin.dtype in self.types}  # fmt: skip

    def back(self, ctx: Any, flowing: tuple[Any, ...]) -> list[Any]:
        """The gradients of the differentiable inputs, one after the other; where nothing flows, None."""
        fixed, places, likes, counts = ctx.known
        saved = iter(ctx.saved_tensors)
        names = dict(fixed)
        for name, count in places:
            names[name] = next(saved) if count is None else [next(saved) for _ in range(count)]
        reached = []
        for i, gradient in enumerate(flowing):
            name = self.outputs[i]
            if gradient is not None:
                names[f"d_{name}"] = gradient
                reached.append(name)
            elif likes is not None:
                shape, dtype, device = likes[i]
                names[f"d_{name}"] = torch.zeros(shape, dtype=dtype, device=device)
        wanted, found = iter(ctx.needs_input_grad[1:]), []
        for i, count in zip(self.differentiable, counts, strict=True):
            for position in range(1 if count is None else count):
                known = names if count is None else {**names, "position": position}
                found.append(self._sum(self.inputs[i], tuple(reached), known) if next(wanted) else None)
        return found

    def forth(
        self, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> Any:
        """How the outputs change with the differentiable inputs: their tangents, None for whole numbers."""
        names: dict[str, Any] = {name: _primal(value) for name, value in zip(self.inputs, inputs, strict=True)}
        names |= dict(zip(self.outputs, outputs, strict=True))
        names |= self._type_names(inputs) | settings(self.operator, attributes)
        changing = {name: found for name, found in self._by_pin(tangents, inputs).items() if found is not None}
        flowing = [name for name in self.outputs if names[name].is_floating_point() or names[name].is_complex()]
        found = push_forward(TOOLS, self.operator, names, flowing, changing)
        given = tuple(found.get(name) for name in self.outputs)
        return given[0] if self.operator.result is None else given

    def _sum(self, name: str, reached: tuple[str, ...], names: dict[str, Any]) -> Any:
        terms = [evaluate(rule, OP, names) for rule in _rules(self.operator, name, reached)]
        if not terms:
            return None
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total


def _primal(value: Any) -> Any:
    """A tensor without its derivative forward."""
    if isinstance(value, list | tuple):
        return [_primal(part) for part in value]
    return torch._VF._unpack_dual(value, level=0)[0] if isinstance(value, torch.Tensor) else value


def _requires_grad(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_requires_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def _forward_mode(enabled: bool) -> Any:
    """Under `torch.func`, derivatives forward of the levels below; else as it is."""
    return forward_ad._set_fwd_grad_enabled(True) if enabled else nullcontext()


@cache
def _rules(operator: Operator, name: str, reached: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(rules(operator, name, frozenset(reached)))
