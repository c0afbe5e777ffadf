"""Processes that can be interrupted, however the tests themselves were started.

A shell that starts something in the background lets it ignore Ctrl-C, and whatever that starts ignores it too.
"""

import signal


def heed_ctrl_c() -> None:
    """For `preexec_fn`: the process heeds SIGINT again."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
