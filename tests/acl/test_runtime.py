"""acl's runtime: beginning and end, contexts, memory that is checked, streams, events, executors.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from backops import acl
from backops.acl import EventRecordedStatus, EventStatus, Status
from tests.support.acl import (
    DataType,
    DeviceMemory,
    Format,
    MemcpyKind,
    Spec,
    check,
    initialised,
    int_array,
)

H2H, H2D, D2H, D2D, DEFAULT = MemcpyKind


@pytest.fixture
def device():
    with initialised():
        yield


@pytest.fixture
def stream(device):
    made = check(*acl.aclrtCreateStream())
    yield made
    check(acl.aclrtDestroyStream(made))


def message():
    return acl.aclGetRecentErrMsg()


# Beginning and end


def test_life_of_the_library():
    assert acl.aclFinalize() == Status.UNINITIALIZE
    assert acl.aclrtSetDevice(0) == Status.UNINITIALIZE
    assert acl.aclrtCreateContext(0) == (None, Status.UNINITIALIZE)
    check(acl.aclInit())
    assert acl.aclInit() == Status.REPEAT_INITIALIZE
    assert acl.aclInit("/no/such/file.json") == Status.INVALID_PARAM
    assert message() == (
        "aclInit: configPath is '/no/such/file.json', expected NULL or a file that can be read"
    )
    assert acl.aclrtSetDevice(1) == Status.RT_INVALID_DEVICEID
    assert acl.aclrtSetDevice(-1) == Status.RT_INVALID_DEVICEID
    assert message() == "aclrtSetDevice: deviceId is -1, expected 0: there is one device"
    check(acl.aclrtSetDevice(0))
    assert acl.aclrtGetDevice() == (0, Status.SUCCESS)
    assert acl.aclrtGetDeviceCount() == (1, Status.SUCCESS)
    check(acl.aclrtResetDevice(0))
    assert acl.aclrtGetDevice() == (None, Status.RT_CONTEXT_NULL)
    check(acl.aclFinalize())
    assert acl.aclFinalize() == Status.UNINITIALIZE


def test_beginning_with_the_operators_only(monkeypatch):
    assert acl.aclnnInit("/no/such/file.json") == Status.PARAM_INVALID
    assert "aclnnInit: configPath is '/no/such/file.json'" in message()
    monkeypatch.setenv("BACKOPS_SOC", "Ascend1")
    assert acl.aclnnInit() == Status.PARAM_INVALID
    assert "aclnnInit: BACKOPS_SOC is 'Ascend1'" in message()
    monkeypatch.setenv("BACKOPS_SOC", "Ascend310P3")
    assert acl.aclrtSetDevice(0) == Status.UNINITIALIZE
    assert message() == "aclrtSetDevice: called without aclInit or aclnnInit before"
    check(acl.aclnnInit())
    assert acl.aclrtGetSocName() == "Ascend310P3"
    check(acl.aclrtSetDevice(0))
    check(acl.aclnnInit())
    memory = check(*acl.aclrtMalloc(64, 0))
    check(acl.aclnnFinalize())
    # What belongs to the runtime stays.
    assert acl.aclrtGetDevice() == (0, Status.SUCCESS)
    check(acl.aclrtFree(memory))
    check(acl.aclrtResetDevice(0))
    check(acl.aclFinalize())
    check(acl.aclnnFinalize())
    assert acl.aclrtSetDevice(0) == Status.UNINITIALIZE


@pytest.mark.parametrize("first", ["aclInit", "aclnnInit"])
def test_both_beginnings_in_any_order(first):
    second = {"aclInit": "aclnnInit", "aclnnInit": "aclInit"}[first]
    check(getattr(acl, first)())
    check(getattr(acl, second)())
    assert acl.aclInit() == Status.REPEAT_INITIALIZE
    check(acl.aclnnFinalize())
    check(acl.aclFinalize())
    assert acl.aclFinalize() == Status.UNINITIALIZE


def test_end_of_the_operators_waits_for_what_is_queued(stream):
    event = check(*acl.aclrtCreateEvent())
    SlowWork(stream)
    check(acl.aclrtRecordEvent(event, stream))
    assert check(*acl.aclrtQueryEvent(event)) is EventStatus.NOT_READY
    check(acl.aclnnFinalize())
    assert check(*acl.aclrtQueryEvent(event)) is EventStatus.COMPLETE
    check(acl.aclrtDestroyEvent(event))


def test_without_a_context():
    check(acl.aclInit())
    for got in (
        acl.aclrtMalloc(8, 0),
        acl.aclrtMallocHost(8),
        acl.aclrtCreateStream(),
        acl.aclrtCreateEvent(),
        acl.aclrtGetCurrentContext(),
        acl.aclrtCtxGetSysParamOpt(0),
    ):
        assert got == (None, Status.RT_CONTEXT_NULL)
    assert acl.aclrtSynchronizeDevice() == Status.RT_CONTEXT_NULL
    assert acl.aclrtSynchronizeStream(None) == Status.RT_CONTEXT_NULL
    assert acl.aclrtGetMemInfo(0) == (None, None, Status.RT_CONTEXT_NULL)
    check(acl.aclFinalize())


def test_contexts_belong_to_threads(device):
    own = check(*acl.aclrtGetCurrentContext())
    seen = []

    def body():
        seen.append(acl.aclrtGetCurrentContext())
        check(acl.aclrtSetCurrentContext(own))
        seen.append(acl.aclrtGetCurrentContext())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [(None, Status.RT_CONTEXT_NULL), (own, Status.SUCCESS)]
    assert acl.aclrtDestroyContext(own) == Status.INVALID_PARAM  # the default one
    made = check(*acl.aclrtCreateContext(0))
    assert acl.aclrtGetCurrentContext() == (made, Status.SUCCESS)
    check(acl.aclrtDestroyContext(made))
    assert acl.aclrtDestroyContext(made) == Status.INVALID_PARAM
    assert acl.aclrtSetCurrentContext(made) == Status.INVALID_PARAM
    assert acl.aclrtGetCurrentContext() == (None, Status.RT_CONTEXT_NULL)


def test_settings_of_context_and_process(device):
    assert acl.aclrtGetSysParamOpt(0) == acl.aclrtCtxGetSysParamOpt(0) == (0, Status.SUCCESS)
    check(acl.aclrtSetSysParamOpt(0, 1))
    assert acl.aclrtCtxGetSysParamOpt(0) == (1, Status.SUCCESS)
    check(acl.aclrtCtxSetSysParamOpt(0, 0))
    assert acl.aclrtCtxGetSysParamOpt(0) == (0, Status.SUCCESS)
    assert acl.aclrtGetSysParamOpt(0) == (1, Status.SUCCESS)
    check(acl.aclrtSetSysParamOpt(0, 0))
    for set_option in (acl.aclrtSetSysParamOpt, acl.aclrtCtxSetSysParamOpt):
        assert set_option(0, 2) == Status.INVALID_PARAM
        assert set_option(7, 1) == Status.INVALID_PARAM


def test_messages_belong_to_threads(device):
    assert acl.aclrtSetDevice(5) == Status.RT_INVALID_DEVICEID
    others = []
    thread = threading.Thread(target=lambda: others.append(message()))
    thread.start()
    thread.join()
    assert others == [None]
    assert "deviceId is 5" in message()


# Memory


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


# Streams and events


class SlowWork:
    """Copies that take a stream about a tenth of a second; to be kept until they are done."""

    def __init__(self, stream):
        content = np.full(1 << 24, 5, np.uint8)
        self.source = DeviceMemory(content)
        self.target = DeviceMemory(np.zeros_like(content))
        size = content.nbytes
        for _ in range(30):
            check(
                acl.aclrtMemcpyAsync(
                    self.target.address, size, self.source.address, size, D2D, stream
                )
            )


def test_stream_works_beside_the_caller_in_order(stream):
    event = check(*acl.aclrtCreateEvent())
    start = time.perf_counter()
    work = SlowWork(stream)
    check(acl.aclrtRecordEvent(event, stream))
    assert check(*acl.aclrtQueryEvent(event)) is EventStatus.NOT_READY
    assert check(*acl.aclrtQueryEventStatus(event)) is EventRecordedStatus.NOT_READY
    queued = time.perf_counter() - start
    check(acl.aclrtSynchronizeStream(stream))
    assert time.perf_counter() - start > queued
    assert check(*acl.aclrtQueryEvent(event)) is EventStatus.COMPLETE
    assert check(*acl.aclrtQueryEventStatus(event)) is EventRecordedStatus.COMPLETE
    assert (work.target.read() == 5).all()
    # The last of these is the one that counts.
    for value in range(100):
        check(acl.aclrtMemsetAsync(work.target.address, 1000, value, 1000, stream))
    check(acl.aclrtSynchronizeStream(stream))
    assert (work.target.read()[:1000] == 99).all()
    check(acl.aclrtDestroyEvent(event))


def test_stream_waits_for_an_event_of_another(stream):
    other, event = check(*acl.aclrtCreateStream()), check(*acl.aclrtCreateEvent())
    work = SlowWork(stream)
    check(acl.aclrtRecordEvent(event, stream))
    check(acl.aclrtStreamWaitEvent(other, event))
    check(acl.aclrtDestroyEvent(event))  # the queues keep what they need
    check(acl.aclrtMemsetAsync(work.target.address, 1 << 24, 9, 1 << 24, other))
    check(acl.aclrtSynchronizeStream(other))
    assert (work.target.read() == 9).all()
    check(acl.aclrtDestroyStream(other))


def test_streams_overlap(stream):
    """A second stream finishes while the first is still busy."""
    other, event = check(*acl.aclrtCreateStreamWithConfig(0, 1)), check(*acl.aclrtCreateEvent())
    work = SlowWork(stream)
    check(acl.aclrtRecordEvent(event, stream))
    pool = Pool()
    check(pool.launch(other))
    check(acl.aclrtSynchronizeStream(other))
    assert check(*acl.aclrtQueryEvent(event)) is EventStatus.NOT_READY
    assert (pool.result() == 2).all()
    assert (work.target.read() == 5).all()
    check(acl.aclrtDestroyStream(other))


def test_default_stream_is_asynchronous_and_in_order(device):
    work = SlowWork(None)
    check(acl.aclrtMemsetAsync(work.target.address, 1 << 24, 3, 1 << 24, None))
    check(acl.aclrtSynchronizeStream(None))
    assert (work.target.read() == 3).all()


def test_elapsed_time_between_events(stream):
    start, end = check(*acl.aclrtCreateEvent()), check(*acl.aclrtCreateEvent())
    begin = time.perf_counter()
    check(acl.aclrtRecordEvent(start, stream))
    work = SlowWork(stream)
    check(acl.aclrtRecordEvent(end, stream))
    assert acl.aclrtEventElapsedTime(start, end) == (None, Status.RT_PARAM_INVALID)
    check(acl.aclrtSynchronizeEvent(end))
    outer = 1000 * (time.perf_counter() - begin)
    assert 0 < check(*acl.aclrtEventElapsedTime(start, end)) <= outer
    assert (work.target.read() == 5).all()


def test_handles_that_are_not_alive(device):
    stream, event = check(*acl.aclrtCreateStream()), check(*acl.aclrtCreateEvent())
    check(acl.aclrtDestroyStream(stream))
    check(acl.aclrtDestroyEvent(event))
    invalid = Status.RT_PARAM_INVALID
    assert acl.aclrtDestroyStream(stream) == acl.aclrtSynchronizeStream(stream) == invalid
    assert acl.aclrtDestroyEvent(event) == acl.aclrtSynchronizeEvent(event) == invalid
    assert acl.aclrtRecordEvent(event, None) == acl.aclrtStreamWaitEvent(None, event) == invalid
    assert acl.aclrtQueryEvent(event) == (None, invalid)
    assert acl.aclrtDestroyStream(None) == acl.aclrtDestroyEvent(None) == Status.INVALID_PARAM
    pool = Pool()
    assert pool.launch(stream) == Status.RUNTIME_ERROR
    assert "stream is no stream that is alive" in message()
    check(pool.launch())  # the executor is still good
    assert (pool.result() == 2).all()


# Executors


def test_executor_serves_one_launch(device):
    pool = Pool()
    check(pool.launch())
    assert pool.launch() == Status.PARAM_INVALID
    assert "executor is no executor that is alive, but launched before or destroyed" in message()
    assert acl.aclDestroyAclOpExecutor(pool.executor) == Status.PARAM_INVALID
    assert acl.aclSetAclOpExecutorRepeatable(pool.executor) == Status.PARAM_INVALID
    assert acl.aclnnAvgPool2dBackward(None, 0, None, None) == Status.PARAM_NULLPTR
    assert (pool.result() == 2).all()


def test_executor_that_was_never_launched_can_be_destroyed(device):
    pool = Pool()
    check(acl.aclDestroyAclOpExecutor(pool.executor))
    assert pool.launch() == Status.PARAM_INVALID


def test_executor_of_another_operator(device):
    pool = Pool()
    got = acl.aclnnAdaptiveAvgPool3dBackward(pool.workspace.address, pool.size, pool.executor, None)
    assert got == Status.PARAM_INVALID
    assert "executor is one of aclnnAvgPool2dBackward, expected one from aclnnAdaptive" in message()
    check(pool.launch())
    assert (pool.result() == 2).all()


def test_tensors_may_be_destroyed_before_the_launch(device):
    pool = Pool()
    for tensor in pool.tensors:
        check(acl.aclDestroyTensor(tensor))
    check(pool.launch())
    assert (pool.result() == 2).all()


def test_repeatable_executor_takes_new_addresses(stream):
    pool = Pool()
    check(acl.aclSetAclOpExecutorRepeatable(pool.executor))
    outputs, keep = [], []
    for i in range(50):
        source = DeviceMemory(np.full(4, 4 * i, np.float32))
        target = DeviceMemory(np.zeros(16, np.float32))
        check(acl.aclSetInputTensorAddr(pool.executor, 0, pool.tensors[0], source.address))
        rebind = (acl.aclSetOutputTensorAddr, 0) if i % 2 else (acl.aclSetTensorAddr, 2)
        check(rebind[0](pool.executor, rebind[1], pool.tensors[2], target.address))
        check(pool.launch(stream))
        keep.append(source)
        outputs.append(target)
    check(acl.aclrtSynchronizeStream(stream))
    for i, target in enumerate(outputs):
        assert (target.read().view(np.float32) == i).all()
    assert (pool.result() == 9).all()
    check(acl.aclDestroyAclOpExecutor(pool.executor))
    assert pool.launch(stream) == Status.PARAM_INVALID


def test_wrong_rebinding(device):
    pool = Pool()
    memory = pool.grad_output.address
    rebind = acl.aclSetInputTensorAddr
    assert rebind(pool.executor, 0, pool.tensors[0], memory) == Status.PARAM_INVALID
    assert "executor is for one launch" in message()
    check(acl.aclSetAclOpExecutorRepeatable(pool.executor))
    assert rebind(None, 0, pool.tensors[0], memory) == Status.PARAM_NULLPTR
    assert rebind(pool.executor, 0, None, memory) == Status.PARAM_NULLPTR
    assert rebind(pool.executor, 0, pool.tensors[0], None) == Status.PARAM_NULLPTR
    assert rebind(pool.executor, 2, pool.tensors[0], memory) == Status.PARAM_INVALID
    assert "index is 2, expected 0 to 1" in message()
    assert acl.aclSetOutputTensorAddr(pool.executor, 1, pool.tensors[2], memory) == (
        Status.PARAM_INVALID
    )
    assert acl.aclSetTensorAddr(pool.executor, 3, pool.tensors[2], memory) == Status.PARAM_INVALID
    assert rebind(pool.executor, 0, pool.tensors[2], memory) == Status.PARAM_INVALID
    assert "tensor is (1, 1, 4, 4), expected the shape of gradOutput, (1, 1, 2, 2)" in message()
    # What a launch checks holds for new addresses too.
    check(acl.aclSetOutputTensorAddr(pool.executor, 0, pool.tensors[2], memory))
    assert pool.launch() == Status.RUNTIME_ERROR
    check(acl.aclSetOutputTensorAddr(pool.executor, 0, pool.tensors[2], pool.grad_input.address))
    check(pool.launch())
    assert (pool.result() == 2).all()
    check(acl.aclDestroyAclOpExecutor(pool.executor))


def test_rebinding_where_there_is_no_output(device):
    """Of a convolution that is asked for no gradient."""
    tensors = [Spec(shape).create() for shape in ((1, 1, 2, 2), (1, 1, 2, 2), (1, 1, 1, 1))]
    one, none = int_array([1]), int_array([0])
    mask = acl.aclCreateBoolArray([False] * 3, 3)
    arguments = [*tensors, None, one, none, one, False, None, 1, mask, 0, None, None, None]
    size, executor = check(*acl.aclnnConvolutionBackwardGetWorkspaceSize(*arguments))
    assert size == 0
    check(acl.aclSetAclOpExecutorRepeatable(executor))
    assert acl.aclSetOutputTensorAddr(executor, 0, tensors[1], 64) == Status.PARAM_INVALID
    assert "index is 0, but the executor has no such tensor" in message()
    assert acl.aclSetInputTensorAddr(executor, 3, tensors[1], 64) == Status.PARAM_INVALID
    assert "index is 3, expected 0 to 2" in message()
    check(acl.aclDestroyAclOpExecutor(executor))


def test_executor_in_another_thread(stream):
    pool, got = Pool(), []
    thread = threading.Thread(target=lambda: got.append(pool.launch(stream)))
    thread.start()
    thread.join()
    assert got == [Status.SUCCESS]
    check(acl.aclrtSynchronizeStream(stream))
    assert (pool.result() == 2).all()


def test_one_of_many_threads_launches_an_executor(stream):
    for _ in range(20):
        pool, got = Pool(), []
        threads = [
            threading.Thread(target=lambda p=pool, g=got: g.append(p.launch(stream)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == [Status.SUCCESS] + [Status.PARAM_INVALID] * 3
        check(acl.aclrtSynchronizeStream(stream))


# Objects


def test_tensors_tell_what_they_were_told(device):
    spec = Spec((2, 3), DataType.BF16, Format.ND, (1, 2), 5)
    tensor = spec.create()
    assert acl.aclGetViewShape(tensor) == ([2, 3], Status.SUCCESS)
    assert acl.aclGetStorageShape(tensor) == ([2, 3], Status.SUCCESS)
    assert acl.aclGetViewStrides(tensor) == ([1, 2], Status.SUCCESS)
    assert acl.aclGetViewOffset(tensor) == (5, Status.SUCCESS)
    assert acl.aclGetFormat(tensor) == (Format.ND, Status.SUCCESS)
    assert acl.aclGetDataType(tensor) == (DataType.BF16, Status.SUCCESS)
    assert acl.aclGetViewStrides(Spec((2, 3, 4)).create()) == ([12, 4, 1], Status.SUCCESS)
    check(acl.aclDestroyTensor(tensor))
    assert acl.aclGetViewShape(tensor) == (None, Status.PARAM_INVALID)
    assert acl.aclGetFormat(None) == (None, Status.PARAM_NULLPTR)
    assert acl.aclDestroyTensor(None) == Status.SUCCESS


def test_other_objects():
    array = int_array([1, 2, 3])
    assert acl.aclGetIntArraySize(array) == (3, Status.SUCCESS)
    check(acl.aclDestroyIntArray(array))
    check(acl.aclDestroyBoolArray(acl.aclCreateBoolArray([True, False], 2)))
    check(acl.aclDestroyFloatArray(acl.aclCreateFloatArray([1.5], 1)))
    value = np.array(1.5, np.float32)
    check(acl.aclDestroyScalar(acl.aclCreateScalar(value, DataType.FLOAT)))
    assert acl.aclCreateScalar(value, DataType.STRING) is None
    assert acl.aclCreateScalar(None, DataType.FLOAT) is None
    assert acl.aclCreateIntArray(None, 2) is None
    assert acl.aclCreateIntArray(None, 0) is not None
    assert "aclCreateIntArray: value is NULL" in message()
    assert acl.aclCreateTensor(None, 2, 0, None, 0, 0, None, 0, None) is None
    assert acl.aclCreateTensor([1] * 65, 65, 0, None, 0, 0, None, 0, None) is None
    assert acl.aclCreateScalar(value, DataType.INT4) is None
    assert "dataType is INT4, expected the type of a number of whole bytes" in message()
    scalars = [acl.aclCreateScalar(value, DataType.FLOAT) for _ in range(2)]
    made = acl.aclCreateScalarList(scalars, 2)
    assert acl.aclGetScalarListSize(made) == (2, Status.SUCCESS)
    check(acl.aclDestroyScalarList(made))
    assert acl.aclDestroyScalar(scalars[0]) == Status.PARAM_INVALID  # gone with the list
    assert acl.aclDestroyScalarList(made) == Status.PARAM_INVALID
    assert acl.aclGetScalarListSize(made) == (None, Status.PARAM_INVALID)
    assert acl.aclGetScalarListSize(None) == (None, Status.PARAM_NULLPTR)
    assert acl.aclCreateScalarList(scalars, 2) is None
    assert "aclCreateScalarList: value is no object that is alive" in message()
    assert acl.aclDestroyScalarList(None) == Status.SUCCESS
    tensors = [Spec((2, 2)).create() for _ in range(2)]
    made = acl.aclCreateTensorList(tensors, 2)
    check(acl.aclDestroyTensorList(made))
    assert acl.aclDestroyTensor(tensors[0]) == Status.PARAM_INVALID  # gone with the list
    assert acl.aclDestroyTensorList(made) == Status.PARAM_INVALID


# Numbers


def test_every_float16_as_float():
    bits = np.arange(1 << 16, dtype=np.uint16)
    got = np.array([acl.aclFloat16ToFloat(int(each)) for each in bits])
    expected = bits.view(np.float16).astype(np.float64)
    assert np.isnan(got[np.isnan(expected)]).all()
    finite = ~np.isnan(expected)
    assert (got[finite].view(np.uint64) == expected[finite].view(np.uint64)).all()
    assert (finite.sum(), np.isinf(got).sum()) == (65536 - 2046, 2)


def test_floats_as_float16():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.sort(halves[np.isfinite(halves)].astype(np.float64))
    # Every tie between neighbours, and the floats on both sides of it.
    ties = ((halves[1:] + halves[:-1]) / 2).astype(np.float32)
    sides = [np.nextafter(ties, np.float32(side * np.inf)) for side in (-1, 1)]
    edges = [65504, 65519.99, 65520, 65536, 1e38, np.inf, 2.0**-24, 2.0**-25, 2.0**-26, 1e-45, 0]
    edges = np.array([*edges, *(-np.array(edges))], np.float32)
    random = np.random.default_rng(5).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate([ties, *sides, edges, random])
    got = np.array([acl.aclFloatToFloat16(float(each)) for each in values], np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
    is_nan = np.isnan(values)
    assert is_nan.sum() > 100
    assert np.isnan(got[is_nan].view(np.float16)).all()
    assert (got[is_nan] >> 15 == np.signbit(values[is_nan])).all()
    assert (got[~is_nan] == expected[~is_nan].view(np.uint16)).all()
