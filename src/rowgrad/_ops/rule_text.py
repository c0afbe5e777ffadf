"""Gradient rules in words: what a rule calls, found by calling it with symbols in place of arrays.

Reference pages and the command show `text`; `needed` tells the front ends what to keep until the gradient comes.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from rowgrad._ops.catalogue import Rule
from rowgrad._ops.gradients import each, mentioned

MANY = "many"  # on the name of one of the arrays of a pin that takes many: the name of that pin


def text(rule: Rule) -> str:
    """A rule as readers see it: ``SparseSegmentMeanGrad(d_output, indices, segment_ids, rows(data))``."""
    return ast.unparse(_traced(rule)).replace("'", '"')


def texts(stated: Rule | tuple[Rule, ...]) -> list[str]:
    """The rules that are stated for one input; what they give is added up."""
    return [text(rule) for rule in each(stated)]


@cache
def needed(rule: Rule) -> frozenset[str]:
    """The names whose values a rule uses; of what it only counts the rows of, it does not."""
    return frozenset(_names(_traced(rule))) & frozenset(mentioned(rule))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif not (isinstance(node, ast.Call) and ast.unparse(node.func) == "rows"):
        for child in ast.iter_child_nodes(node):
            yield from _names(child)


@cache
def _traced(rule: Rule) -> ast.expr:
    return _trace(rule, {})


def _trace(rule: Rule, answers: Mapping[str, bool]) -> ast.expr:
    """What `rule` gives for symbols. Where it asks for the truth of an attribute, it is called for both answers."""
    symbols = {name: _Symbol(ast.Name(name), answers) for name in mentioned(rule)}
    try:
        return _node(rule(_Writer(), **symbols))
    except _Question as question:
        name = question.name
    yes, no = (_trace(rule, {**answers, name: answer}) for answer in (True, False))
    return _either(name, yes, no)


def _either(name: str, yes: ast.expr, no: ast.expr) -> ast.expr:
    """``yes if name else no``, written where the two differ."""
    if ast.dump(yes) == ast.dump(no):
        return yes
    match yes, no:
        case ast.Constant(value=True), ast.Constant(value=False):
            return ast.Name(name)
        case ast.Constant(value=False), ast.Constant(value=True):
            return ast.UnaryOp(ast.Not(), ast.Name(name))
        case ast.Call(), ast.Call() if _form(yes) == _form(no):
            args = [_either(name, a, b) for a, b in zip(yes.args, no.args, strict=True)]
            keywords = [ast.keyword(a.arg, _either(name, a.value, b.value))
                        for a, b in zip(yes.keywords, no.keywords, strict=True)]  # fmt: skip
            return ast.Call(yes.func, args, keywords)
        case ast.IfExp(), ast.IfExp() if ast.dump(yes.test) == ast.dump(no.test):
            return ast.IfExp(yes.test, _either(name, yes.body, no.body), _either(name, yes.orelse, no.orelse))
    return ast.IfExp(ast.Name(name), yes, no)


def _form(call: ast.Call) -> tuple[Any, ...]:
    return ast.dump(call.func), len(call.args), [keyword.arg for keyword in call.keywords]


class _Question(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


class _Symbol:
    """A value of which only the name is known, or how it is computed."""

    def __init__(self, node: ast.expr, answers: Mapping[str, bool] | None = None) -> None:
        self._node = node
        self._answers = answers or {}

    def __getattr__(self, pin: str) -> "_Symbol":
        return _Symbol(ast.Attribute(self._node, pin))

    def __iter__(self) -> "Iterator[_Symbol]":
        one = ast.Name("value")
        setattr(one, MANY, self._node)
        yield _Symbol(one)

    def __getitem__(self, position: "_Symbol") -> "_Symbol":
        return _Symbol(ast.Subscript(self._node, position._node))

    def __bool__(self) -> bool:
        name = ast.unparse(self._node)
        if name not in self._answers:
            raise _Question(name)
        return self._answers[name]


class _Writer:
    """The `op` that writes down what is called."""

    def __getattr__(self, name: str) -> Callable[..., _Symbol]:
        def call(*values: Any, **attributes: Any) -> _Symbol:
            keywords = [ast.keyword(key, _node(value)) for key, value in attributes.items()]
            return _Symbol(ast.Call(ast.Name(name), list(map(_node, values)), keywords))

        return call

    __getitem__ = __getattr__


def _node(value: Any) -> ast.expr:
    if isinstance(value, _Symbol):
        return value._node
    if not isinstance(value, list):
        return ast.parse(repr(value), mode="eval").body
    items = list(map(_node, value))
    for part in ast.walk(items[0]) if items else ():
        if isinstance(part, ast.Name) and hasattr(part, MANY):
            return ast.ListComp(items[0], [ast.comprehension(part, getattr(part, MANY), [], 0)])
    return ast.List(items)
