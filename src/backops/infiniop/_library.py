"""The C libraries themselves, as programs link against them."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path
from typing import Any

from backops import _c_interface
from backops.infiniop._enums import Status


def root() -> Path:
    """The folder with ``include`` and ``lib`` that C programs build against: INFINI_ROOT.

    >>> from backops import infiniop
    >>> (infiniop.root() / "include" / "infiniop.h").exists()
    True
    """
    return Path(__file__).absolute().parent.parent / "infini"


infinirt = CDLL(str(root() / "lib" / "libinfinirt.so"))
infiniop = CDLL(str(root() / "lib" / "libinfiniop.so"))


def declare(library: CDLL, name: str, *parameters: Any) -> Callable[..., Status]:
    return _c_interface.declare(library, name, *parameters, result=Status)
