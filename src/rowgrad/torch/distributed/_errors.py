"""What goes wrong between processes: a rank that does not answer, and ranks that do not agree."""

from rowgrad.errors import InvalidArgumentError, OutOfMemoryError, RowgradError


class CommunicationError(RowgradError, RuntimeError):
    """A message between ranks failed: a rank has stopped, cannot be reached, or left an exchange before its end.

    Its cause is the error of the process group, which can no longer be used; start again from a checkpoint.
    """

    code = "communication-failed"


class PeerError(RowgradError, RuntimeError):
    """Another rank rejected its input, has other settings, or is at another place of a step.

    All ranks raise, and can continue; `value` is the rank, or the ranks.
    """

    code = "peer-refused"


def refusal(wrong: Exception) -> RowgradError:
    """The error that a rank tells the others of: `wrong`, or, where another library raised it, one that quotes it.

    The others would wait for a rank that raises without telling them.
    """
    if isinstance(wrong, RowgradError):
        return wrong
    is_memory = isinstance(wrong, MemoryError)
    text = (str(wrong).splitlines() or [""])[0].rstrip(".")
    error = (OutOfMemoryError if is_memory else InvalidArgumentError)(
        f"an argument cannot be used: {type(wrong).__name__}: {text}.",
        code="out-of-memory" if is_memory else "wrong-argument",
    )
    error.__cause__ = wrong
    return error
