"""acl's memory: copies, and tensors that must lie in what is allocated.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import numpy as np
import pytest

from backops import acl
from backops.acl import Status
from tests.support.acl import DeviceMemory, MemcpyKind, check
from tests.support.acl_work import Pool, SlowWork, message

H2H, H2D, D2H, D2D, DEFAULT = MemcpyKind


def test_copies_of_every_kind(device):
    source = np.arange(1000, dtype=np.uint8)
    first, second = DeviceMemory(source), DeviceMemory(np.zeros_like(source))
    target = np.zeros_like(source)
    check(acl.aclrtMemcpy(second.address, 1000, first.address, 1000, D2D))
    check(acl.aclrtMemcpy(target, 1000, second.address, 1000, D2H))
    assert (target == source).all()
    for pointers in ((target, source), (first.address, source), (target, first.address)):
        check(acl.aclrtMemcpy(pointers[0], 1000, pointers[1], 1000, DEFAULT))
    check(acl.aclrtMemcpy(target, 1000, source, 1000, H2H))
    check(acl.aclrtMemset(first.address, 1000, 7, 1000))
    assert (first.read() == 7).all()


def test_wrong_copies_and_fills_change_nothing(device):
    host = np.zeros(128, np.uint8)
    memory = DeviceMemory(np.full(100, 5, np.uint8))
    address = memory.address
    for status, arguments in (
        (Status.RT_PARAM_INVALID, (address, 99, host, 100, H2D)),  # more than destMax
        (Status.RT_PARAM_INVALID, (address, 128, host, 128, H2D)),  # more than the allocation
        (Status.RT_PARAM_INVALID, (address + 1, 100, host, 100, H2D)),
        (Status.RT_PARAM_INVALID, (host, 128, address, 100, H2D)),  # the wrong way round
        (Status.RT_PARAM_INVALID, (host, 128, address, 100, H2H)),
        (Status.RT_PARAM_INVALID, (address, 100, host, 100, D2D)),
        (Status.RT_PARAM_INVALID, (host, 128, host.ctypes.data, 100, D2H)),
        (Status.INVALID_PARAM, (None, 100, host, 100, H2D)),
        (Status.INVALID_PARAM, (address, 100, None, 100, H2D)),
        (Status.INVALID_PARAM, (address, 100, host, 100, 5)),
        (Status.INVALID_PARAM, (address, 100, host, 100, -1)),
    ):
        assert acl.aclrtMemcpy(*arguments) == status, arguments
        assert acl.aclrtMemcpyAsync(*arguments, None) == status, arguments
    assert "aclrtMemcpyAsync: kind is -1, expected 0 to 4" in message()
    assert acl.aclrtMemset(address, 50, 1, 51) == Status.RT_PARAM_INVALID
    assert acl.aclrtMemset(address, 200, 1, 101) == Status.RT_PARAM_INVALID
    check(acl.aclrtSynchronizeDevice())
    assert (memory.read() == 5).all()
    assert not host.any()


@pytest.mark.parametrize("count", [(1 << 64) - 1, (1 << 64) - 128, 1 << 63, (1 << 47) + 1])
def test_counts_beyond_any_memory(device, count):
    """The end of such bytes, counted in 64 bits, may lie before their beginning."""
    host = np.zeros(256, np.uint8)
    memory = DeviceMemory(np.full(256, 5, np.uint8))
    own, inside = host.ctypes.data, memory.address + 128
    for to, source, kind in (
        (inside, own, H2D),
        (own, inside, D2H),
        (inside, memory.address, D2D),
        (own, own + 128, H2H),
        (inside, own, DEFAULT),
        (own, own + 128, DEFAULT),
    ):
        assert acl.aclrtMemcpy(to, count, source, count, kind) == Status.RT_PARAM_INVALID
        told = f"count is {count}, expected at most 2**47: there is no such memory"
        assert message() == f"aclrtMemcpy: {told}"
        assert acl.aclrtMemcpyAsync(to, count, source, count, kind, None) == Status.RT_PARAM_INVALID
    for where in (inside, own):
        assert acl.aclrtMemset(where, count, 1, count) == Status.RT_PARAM_INVALID
        assert acl.aclrtMemsetAsync(where, count, 1, count, None) == Status.RT_PARAM_INVALID
    assert acl.aclrtHostRegister(own, count, 0) == (None, Status.RT_PARAM_INVALID)
    assert f"size is {count}, expected at most 2**47" in message()
    check(acl.aclrtSynchronizeDevice())
    assert (memory.read() == 5).all()
    assert not host.any()


def test_host_memory_is_not_registered_across_the_end_of_all_addresses(device):
    assert acl.aclrtHostRegister((1 << 64) - 64, 128, 0) == (None, Status.RT_PARAM_INVALID)
    assert "ptr is at bytes 0xffffffffffffffc0 to" in message()


def test_wrong_allocations(device):
    assert acl.aclrtMalloc(0, 0) == (None, Status.INVALID_PARAM)
    assert acl.aclrtMalloc(8, 3) == (None, Status.INVALID_PARAM)
    assert acl.aclrtMalloc(1 << 62, 0) == (None, Status.RT_MEMORY_ALLOCATION)
    memory = check(*acl.aclrtMalloc(64, 0))
    host = check(*acl.aclrtMallocHost(64))
    assert acl.aclrtFree(None) == Status.INVALID_PARAM
    assert acl.aclrtFree(memory + 8) == Status.RT_PARAM_INVALID
    assert acl.aclrtFree(host) == acl.aclrtFreeHost(memory) == Status.RT_PARAM_INVALID
    check(acl.aclrtFree(memory))
    assert acl.aclrtFree(memory) == Status.RT_PARAM_INVALID
    assert "memory that was freed before" in message()
    check(acl.aclrtFreeHost(host))
    free, total = check(*acl.aclrtGetMemInfo(acl.ACL_HBM_MEM))
    assert 0 < free <= total


def text(address, size):
    return f"0x{address:x} to 0x{address + size - 1:x} ({size} bytes)"


def check_refused(pool, expected, **changes):
    """Refused, with the message, and nothing was written; legal memory is taken afterwards."""
    assert pool.launch(**changes) == Status.RUNTIME_ERROR
    assert message() == f"aclnnAvgPool2dBackward: {expected}"
    assert (pool.result() == 9).all()


@pytest.mark.parametrize(
    ("name", "attribute", "elements"),
    [("gradOutput", "grad_output", 4), ("self", "self_", 16), ("gradInput", "grad_input", 16)],
)
def test_tensor_beyond_its_allocation(device, name, attribute, elements):
    pool = Pool(**{name: {"offset": 1}})
    memory = getattr(pool, attribute)
    got, allocation = (
        text(memory.address + 4, 4 * elements),
        text(memory.address, 4 * elements),
    )
    check_refused(
        pool,
        f"{name} is at bytes {got}, expected bytes inside its device allocation, {allocation}",
    )


def test_tensor_before_its_allocation_and_beyond_by_strides(device):
    for layout in ({"offset": -1}, {"strides": (4, 4, 2, 2)}, {"strides": (1, 1, -2, 1)}):
        assert Pool(gradOutput=layout).launch() == Status.RUNTIME_ERROR
        assert "gradOutput is at bytes" in message()
    assert Pool(gradOutput={"strides": (1, 1, -2, 1), "offset": 2}).launch() == Status.SUCCESS
    check(acl.aclrtSynchronizeDevice())


@pytest.mark.parametrize("name", ["gradOutput", "self", "gradInput"])
def test_tensor_around_the_end_of_all_addresses(device, name):
    """Its last byte has a lower address than its first one."""
    memory = DeviceMemory(np.zeros(16, np.float32))
    pool = Pool(**{name: {"data": memory.address, "offset": -(memory.address // 4) - 1}})
    assert pool.launch() == Status.RUNTIME_ERROR
    assert f"{name} is at bytes 0xfffffffffffffffc to 0x" in message()


def test_freed_memory(device):
    pool = Pool()
    address = pool.grad_output.address
    pool.grad_output.free()
    bytes_of = text(address, 16)
    check_refused(
        pool,
        f"gradOutput is at bytes {bytes_of}, expected device memory: the allocation there, "
        f"{bytes_of}, was freed",
    )


def test_memory_of_the_host(device):
    array = np.zeros(4, np.float32)
    pool = Pool(gradOutput={"data": array.ctypes.data})
    check_refused(
        pool,
        f"gradOutput is at bytes {text(array.ctypes.data, 16)}, "
        "expected device memory (from aclrtMalloc), not memory of the host",
    )
    check(*acl.aclrtHostRegister(array, array.nbytes, acl.ACL_HOST_REGISTER_MAPPED))
    check(pool.launch())
    assert (pool.result() == 0).all()
    check(acl.aclrtHostUnregister(array))
    assert acl.aclrtHostUnregister(array) == Status.RT_PARAM_INVALID


def test_tensor_without_data(device):
    expected = "self is without data, expected device memory (from aclrtMalloc)"
    check_refused(Pool(self={"data": None}), expected)


def test_input_and_output_that_overlap(device):
    shared = DeviceMemory(np.zeros(32, np.float32))
    pool = Pool(
        gradOutput={"data": shared.address, "offset": 15}, gradInput={"data": shared.address}
    )
    assert pool.launch() == Status.RUNTIME_ERROR
    assert message() == (
        f"aclnnAvgPool2dBackward: gradInput is at bytes {text(shared.address, 64)}, expected "
        f"memory apart from gradOutput, at bytes {text(shared.address + 60, 16)}"
    )
    # Side by side is not one over the other.
    pool = Pool(
        gradOutput={"data": shared.address, "offset": 16}, gradInput={"data": shared.address}
    )
    check(pool.launch())
    check(acl.aclrtSynchronizeDevice())


def test_workspace(device):
    pool = Pool()
    assert pool.size > 0, "this problem needs none: take another"
    check_refused(
        pool,
        f"workspaceSize is {pool.size - 1}, expected at least the {pool.size} bytes that the first "
        "stage told",
        workspaceSize=pool.size - 1,
    )
    check_refused(
        pool, f"workspace is NULL, expected {pool.size} bytes of device memory", workspace=None
    )
    host = np.zeros(pool.size, np.uint8).ctypes.data
    assert pool.launch(workspace=host) == Status.RUNTIME_ERROR
    assert "expected device memory" in message()
    short = DeviceMemory(np.zeros(pool.size - 1, np.uint8))
    assert pool.launch(workspace=short.address) == Status.RUNTIME_ERROR
    assert "workspace is at bytes" in message()
    check(pool.launch())
    assert (pool.result() == 2).all()
    pool = Pool()
    large = DeviceMemory(np.zeros(pool.size + 64, np.uint8))
    pool = Pool(gradInput={"data": large.address})
    assert pool.launch(workspace=large.address) == Status.RUNTIME_ERROR
    assert "workspace is at bytes" in message()
    assert "apart from gradInput" in message()


def test_memory_may_be_freed_while_work_on_it_is_queued(stream):
    slow = SlowWork(stream)
    pools = [Pool() for _ in range(20)]
    for pool in pools:
        check(pool.launch(stream))
        for memory in (pool.grad_output, pool.self_, pool.grad_input, pool.workspace):
            memory.free()
    check(acl.aclrtSynchronizeStream(stream))
    assert (slow.target.read() == 5).all()
