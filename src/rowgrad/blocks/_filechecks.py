"""Checks of what page files hold; errors name the place in the file."""

from collections.abc import Mapping
from typing import Any

from rowgrad.errors import PageError


def place_of(at: tuple[float, float]) -> list[float]:
    """A place as JSON has it."""
    return [int(n) if float(n).is_integer() else n for n in at]


def checked_place(place: str, at: Any) -> tuple[float, float]:
    """A place on a page, of a file."""
    if not isinstance(at, list) or len(at) != 2 or not all(map(_is_number, at)):
        raise wrong(place, "it must be two numbers, as [40, 80]")
    return (at[0], at[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def check_fields(place: str, record: Any, known: tuple[str, ...], required: Mapping[str, type]) -> None:
    """A record must have the fields that are required, and none that is not known."""
    if not isinstance(record, dict):
        raise wrong(place, f"it must be an object, {{…}}, with {', '.join(known)}")
    for name in required:
        if name not in record:
            what = "it is not a page" if place == "the file" else "it is incomplete"
            raise wrong(place, f"{what}: the field {name!r} is missing")
    check_known(place, record, known)
    check_types(place, record, required)


def check_known(place: str, record: Mapping[str, Any], known: Any) -> None:
    """There must be no fields but those that are known."""
    for name in record:
        if name not in known:
            raise wrong(
                f"{place}.{name}", f"there is no such field; known: {', '.join(known) or 'none'}", "unknown-field"
            )


def check_types(place: str, record: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Fields that are there must be of their types."""
    words = {int: "a whole number", str: "a text", list: "a list", dict: "an object"}
    for name, wanted in types.items():
        if name in record and (not isinstance(record[name], wanted) or isinstance(record[name], bool)):
            raise wrong(f"{place}.{name}".removeprefix("the file."), f"it must be {words[wanted]}")


def wrong(place: str, message: str, code: str = "bad-page") -> PageError:
    """The error of what stands at a place of the file."""
    return PageError(f"{place}: {message}.", code=code, value=place)
