"""Start the studio: bind to loopback, print the address with the key of this launch, open a browser, serve."""

import contextlib
import logging
import os
import re
import secrets
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import uvicorn

from rowgrad._runtime.limits import available
from rowgrad._runtime.texts import check
from rowgrad_studio.app import create_app
from rowgrad_studio.problems import Refusal, log
from rowgrad_studio.security import MOST_MESSAGE

HOST = "127.0.0.1"
MEMORY = "ROWGRAD_STUDIO_MEMORY"
TOKEN = "ROWGRAD_STUDIO_TOKEN"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def serve(folder: Path, page: str | None = None, *, port: int = 0, browser: bool = True) -> None:
    """Serve the studio over `folder` until Ctrl-C; `page` is opened first, a path in the folder."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    if page is not None:
        check(page, "the name of the page", Refusal)
    limit_memory(os.environ.get(MEMORY, ""))
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    with _bound(port) as bound:
        port = bound.getsockname()[1]
        query = {"token": token} | ({"open": page} if page is not None else {})
        address = f"http://{HOST}:{port}/?{urlencode(query)}"
        config = uvicorn.Config(
            create_app(folder, token=token, port=port),
            log_level="warning",
            access_log=False,
            ws="websockets-sansio",
            ws_max_size=2 * MOST_MESSAGE,
            ws_per_message_deflate=False,  # nothing travels far
            timeout_graceful_shutdown=2,
            server_header=False,
            proxy_headers=False,
        )
        print(f"The studio is at {address}", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr, flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[bound])


def _bound(port: int) -> socket.socket:
    """A socket at `port` of this machine, at any free one for 0."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen(128)  # from now on a browser may knock; it is let in when all is ready
    except OSError as error:
        bound.close()
        raise Refusal(
            f"port {port} is unavailable: {error.strerror}. Use another one, or 0 for any.", "bad-port"
        ) from error
    return bound


def limit_memory(text: str) -> None:
    """Set a ceiling for what pages may take: `text`, as in ``4G``, or three quarters of what is free now; 0 for none.

    The limit is one of data, not of addresses: threads and compilers reserve far more addresses than they use.
    """
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    if text.strip() and found is None:
        log.warning("%s is %r; it should be a size, such as 4G. It is ignored.", MEMORY, text)
    room = int(found[1]) * UNITS[found[2]] if found else available() * 3 // 4
    try:
        import resource

        used = next(
            int(line.split()[1]) * 1024
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmData:")
        )
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + room
        if room and (hard == resource.RLIM_INFINITY or wanted < hard):
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    except (ImportError, OSError, StopIteration, ValueError):
        pass  # not Linux: the operators still compare what they need with what is free
