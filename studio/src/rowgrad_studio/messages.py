"""JSON on its way in and out. What browsers say and what drafts hold is read by `decoded`, which lets no text in that
could not be sent or written again.
"""

import json
from collections.abc import Mapping
from typing import Any

from rowgrad._runtime.texts import check_json, is_text
from rowgrad_studio.problems import Refusal


def decoded(text: str | bytes, what: str) -> dict[str, Any]:
    """The object that `text` holds; `what` is what it is called when it is refused."""
    try:
        text = text if isinstance(text, str) else text.decode()
        check_json(text, Refusal)
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(f"{what} is not valid JSON.", "bad-json") from None
    if not isinstance(found, dict):
        raise Refusal(f"{what} must be an object, {{…}}.", "bad-json")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def encoded(message: Mapping[str, Any]) -> str:
    """A message as JSON that UTF-8 can encode; an error may name a file whose name it cannot."""
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if is_text(text) else json.dumps(message, allow_nan=False, separators=(",", ":"))
