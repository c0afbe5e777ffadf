"""The compiled part: plain arrays in, plain arrays out; nothing is checked and nothing allocated here.

Loading Numba takes longer than loading all the rest, so each module of this folder is imported when it is first
used: `kernels.order.sort`.
"""

import importlib
from pathlib import Path
from types import ModuleType

from rowgrad._kernels import protect

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def __getattr__(name: str) -> ModuleType:
    if name in MODULES:
        if name != "kinds":
            protect.load_numba()
        return protect.preparing(importlib.import_module, f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
