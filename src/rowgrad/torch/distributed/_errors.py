"""What goes wrong between processes: a rank that does not answer, and ranks that do not agree."""

from rowgrad.errors import RowgradError


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
