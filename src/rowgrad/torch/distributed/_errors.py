"""What goes wrong between processes: a rank that does not answer, and ranks that do not agree."""

from rowgrad.errors import RowgradError


class CommunicationError(RowgradError, RuntimeError):
    """A message between ranks failed: one has stopped, cannot be reached, or left an exchange in its middle.

    The error of the process group is its cause. The group cannot be used any more; start again from a checkpoint.
    """

    code = "communication-failed"


class PeerError(RowgradError, RuntimeError):
    """Another rank refused its part of the work, has other settings, or is at another place of a step.

    All ranks raise, and can go on; `value` is the rank, or the ranks.
    """

    code = "peer-refused"
