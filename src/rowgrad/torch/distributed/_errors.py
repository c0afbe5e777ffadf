"""What goes wrong between processes: a rank that does not answer, and ranks that do not agree."""

from rowgrad.errors import RowgradError


class CommunicationError(RowgradError, RuntimeError):
    """A message between ranks failed: one has stopped, cannot be reached, or is in another place of its program.

    The error of the process group is its cause. The group cannot be used any more; start again from a checkpoint.
    """


class PeerError(RowgradError, RuntimeError):
    """Another rank refused its part of the work, or has other settings; `value` is the rank, or the ranks."""
