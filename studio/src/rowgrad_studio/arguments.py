"""What commands are given: every field is checked by name and kind before anything is done with it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rowgrad_studio.problems import Refusal

FARTHEST = 1e7  # where blocks and notes may stand
LONGEST_TEXT = 100_000
MOST_ITEMS = 20_000
MOST_STEPS = 10_000_000
MOST_RUNS = 30  # of one sweep


class Field(NamedTuple):
    """A field of a command: how it is checked, and whether it may be left out."""

    check: Callable[[Any], bool]
    what: str
    optional: bool = False

    def or_none(self) -> "Field":
        """The same, for a field that may be left out."""
        return self._replace(optional=True)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FARTHEST


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_ITEMS and all(map(_is_text, value))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MOST_ITEMS


def _is_steps(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_STEPS


TEXT = Field(_is_text, "a text")
BASE64 = Field(lambda value: isinstance(value, str), "a file as base64")
PAGE = Field(lambda value: isinstance(value, str), "a page file")
TEXTS = Field(_is_texts, "a list of texts")
PLACE = Field(_is_place, "two numbers, as [40, 80]")
PLACES = Field(lambda value: _is_object(value) and all(map(_is_place, value.values())), "places, as {id: [x, y]}")
OBJECT = Field(_is_object, "an object")
RECORDS = Field(
    lambda value: isinstance(value, list) and len(value) <= MOST_ITEMS and all(map(_is_object, value)),
    "a list of blocks as in a page file",
)
STEPS = Field(_is_steps, f"a whole number from 1 to {MOST_STEPS}")
NUMBER = Field(lambda value: type(value) is int and value >= 0, "a whole number from 0")
NUMBERS = Field(
    lambda value: isinstance(value, list) and len(value) <= MOST_ITEMS and all(type(one) is int for one in value),
    "a list of whole numbers",
)
LITERALS = Field(lambda value: isinstance(value, list) and 1 <= len(value) <= MOST_RUNS, f"1 to {MOST_RUNS} literals")
BOOL = Field(lambda value: isinstance(value, bool), "true or false")
ANYTHING = Field(lambda value: True, "a literal")


def checked(what: str, given: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """What is given for `what`, with None for what was left out; anything wrong is refused by name."""
    for name in given:
        if name not in fields:
            listed = ", ".join(fields) or "none"
            raise Refusal(f"{what} has no field {str(name)[:100]!r}; it has: {listed}.", argument=str(name)[:100])
    found = {}
    for name, field in fields.items():
        value = given.get(name)
        if value is None and name not in given and not field.optional:
            raise Refusal(f"{what} needs the field {name!r}: {field.what}.", argument=name)
        if not (value is None and field.optional) and not field.check(value):
            raise Refusal(f"{name} must be {field.what}.", argument=name)
        found[name] = value
    return found
