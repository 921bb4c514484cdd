"""The life of an operator, the same for all: create, ask for the workspace, compute, destroy."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any

from backops._c_interface import (
    Address,
    Tensor,
    input_address,
    memory_address,
    output_address,
    with_value,
)
from backops.infiniop._arrays import checked, keep
from backops.infiniop._enums import Status
from backops.infiniop._library import declare, infiniop


class Operator:
    """The four C functions of one operator."""

    def __init__(
        self, name: str, *parameters: Any, outputs: Sequence[str], inputs: Sequence[str]
    ) -> None:
        """`parameters` are those of creating it, after the handle and the out-pointer."""
        self._outputs, self._inputs = outputs, inputs
        tensors = [c_void_p] * (len(outputs) + len(inputs))
        self._create = declare(
            infiniop, f"infiniopCreate{name}Descriptor", c_void_p, c_void_p, *parameters
        )
        self._get_workspace_size = declare(
            infiniop, f"infiniopGet{name}WorkspaceSize", c_void_p, c_void_p
        )
        self._compute = declare(
            infiniop, f"infiniop{name}", c_void_p, c_void_p, c_size_t, *tensors, c_void_p
        )
        self.destroy = declare(infiniop, f"infiniopDestroy{name}Descriptor", c_void_p)

    def create(self, handle: Address, *arguments: Any) -> tuple[Address, Status]:
        desc = c_void_p()
        return with_value(self._create(handle, byref(desc), *arguments), desc, int)

    def workspace_size(self, desc: Address) -> tuple[int | None, Status]:
        size = c_size_t()
        return with_value(self._get_workspace_size(desc, byref(size)), size, int)

    def compute(
        self,
        desc: Address,
        workspace: Tensor,
        workspace_size: int,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        stream: Address,
    ) -> Status:
        checked(workspace_size, "workspace_size")
        keep(stream, workspace, *outputs, *inputs)
        return self._compute(
            desc,
            memory_address(workspace, "workspace", workspace_size),
            workspace_size,
            *map(output_address, outputs, self._outputs),
            *map(input_address, inputs, self._inputs),
            stream,
        )
