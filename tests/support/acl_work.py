"""Work for acl's streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backops import acl
from tests.support.acl import DeviceMemory, MemcpyKind, Spec, check, int_array


def message():
    return acl.aclGetRecentErrMsg()


class Pool:
    """(1, 1, 4, 4) to (1, 1, 2, 2) in memory that a test may put elsewhere."""

    def __init__(self, /, **changes):
        self.grad_output = DeviceMemory(np.full(4, 8, np.float32))
        self.self_ = DeviceMemory(np.zeros(16, np.float32))
        self.grad_input = DeviceMemory(np.full(16, 9, np.float32))
        specs = {
            "gradOutput": Spec((1, 1, 2, 2), data=self.grad_output.address),
            "self": Spec((1, 1, 4, 4), data=self.self_.address),
            "gradInput": Spec((1, 1, 4, 4), data=self.grad_input.address),
        }
        specs |= {name: replace(specs[name], **fields) for name, fields in changes.items()}
        self.tensors = [spec.create() for spec in specs.values()]
        kernel, padding = int_array([2]), int_array([0])
        self.size, self.executor = check(
            *acl.aclnnAvgPool2dBackwardGetWorkspaceSize(
                *self.tensors[:2], kernel, None, padding, False, True, 0, 0, self.tensors[2]
            )
        )
        self.workspace = DeviceMemory(np.zeros(max(self.size, 1), np.uint8))

    def launch(self, stream=None, **changes):
        arguments = {"workspace": self.workspace.address, "workspaceSize": self.size} | changes
        return acl.aclnnAvgPool2dBackward(*arguments.values(), self.executor, stream)

    def result(self):
        check(acl.aclrtSynchronizeDevice())
        return self.grad_input.read().view(np.float32)


class SlowWork:
    """Copies that take a stream about a tenth of a second; to be kept until they are done."""

    def __init__(self, stream):
        content = np.full(1 << 24, 5, np.uint8)
        self.source = DeviceMemory(content)
        self.target = DeviceMemory(np.zeros_like(content))
        size = content.nbytes
        kind = MemcpyKind.DEVICE_TO_DEVICE
        for _ in range(30):
            source, target = self.source.address, self.target.address
            check(acl.aclrtMemcpyAsync(target, size, source, size, kind, stream))
