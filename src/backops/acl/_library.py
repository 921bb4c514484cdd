"""The C library itself, as programs link against it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backops import _c_interface
from backops.acl._enums import Status


def root() -> Path:
    """The folder with ``include`` and ``lib64`` that programs build against: ASCEND_PATH.

    >>> from backops import acl
    >>> (acl.root() / "include" / "acl" / "acl.h").exists()
    True
    """
    return Path(__file__).absolute().parent.parent / "cann"


library = ctypes.CDLL(str(root() / "lib64" / "libascendcl.so"))


def declare(name: str, *parameters: Any, result: Any = Status) -> Callable[..., Any]:
    return _c_interface.declare(library, name, *parameters, result=result)
