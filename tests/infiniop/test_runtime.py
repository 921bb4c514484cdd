"""InfiniRT: devices, memory, streams that run in order beside the caller, events, errors.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import ctypes
import re
import threading
import time
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tests.support.infini import (
    AvgPoolBackward,
    Status,
    Tensor,
    check,
    create_stream,
    infiniop,
    infinirt,
)

COMPLETE, NOT_READY = 0, 1
DISABLE_TIMING = 1


@pytest.fixture
def stream():
    made = create_stream()
    yield made
    check(infinirt.infinirtStreamDestroy(made))


def create_event(flags=0):
    event = c_void_p()
    check(infinirt.infinirtEventCreateWithFlags(byref(event), flags))
    return event


def query(event):
    status = c_int(99)
    check(infinirt.infinirtEventQuery(event, byref(status)))
    return status.value


class SlowWork:
    """Copies that take a stream about a tenth of a second; to be kept until they are done."""

    def __init__(self, stream):
        self.source = np.full(1 << 24, 5, np.uint8)
        self.target = np.zeros_like(self.source)
        for _ in range(30):
            self.copy(stream)

    def copy(self, stream):
        check(
            infinirt.infinirtMemcpyAsync(
                self.target.ctypes.data,
                self.source.ctypes.data,
                self.source.nbytes,
                0,
                stream,
            )
        )


# Devices


def test_every_thread_has_the_cpu():
    seen = []

    def body():
        device, device_id = c_int(-1), c_int(-1)
        check(infinirt.infinirtGetDevice(byref(device), byref(device_id)))
        seen.append((device.value, device_id.value))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    body()
    assert seen == [(0, 0)] * 2
    check(infinirt.infinirtGetDevice(None, None))


def test_counts_of_devices():
    check(infinirt.infinirtInit())
    counts = (c_int * 12)(*[99] * 12)
    check(infinirt.infinirtGetAllDeviceCount(counts))
    assert list(counts) == [1] + [0] * 10 + [99]
    count = c_int(99)
    for device in range(11):
        check(infinirt.infinirtGetDeviceCount(device, byref(count)))
        assert count.value == (1 if device == 0 else 0)


# Memory


def test_memory_of_the_device():
    free, total = c_size_t(), c_size_t()
    check(infinirt.infinirtGetMemInfo(0, 0, byref(free), byref(total)))
    told = dict(re.findall(r"(\w+): +(\d+) kB", Path("/proc/meminfo").read_text()))
    assert total.value == 1024 * int(told["MemTotal"])
    assert 0 < free.value < total.value
    # It changes while the two are read.
    assert abs(free.value - 1024 * int(told["MemAvailable"])) < total.value / 4


@pytest.mark.parametrize("host", ["", "Host"])
def test_memory_is_aligned_and_usable(host):
    for size in (0, 1, 100, 1 << 20):
        memory = c_void_p()
        check(getattr(infinirt, f"infinirtMalloc{host}")(byref(memory), size))
        assert memory.value % 64 == 0
        check(infinirt.infinirtMemset(memory, 7, size))
        assert ctypes.string_at(memory, size) == b"\x07" * size
        check(getattr(infinirt, f"infinirtFree{host}")(memory))


def test_copies_of_every_kind():
    source = np.arange(1000, dtype=np.float32)
    for kind in range(4):
        target = np.zeros_like(source)
        check(infinirt.infinirtMemcpy(target.ctypes.data, source.ctypes.data, source.nbytes, kind))
        assert (target == source).all()


def test_memory_of_a_stream(stream):
    memory = c_void_p()
    check(infinirt.infinirtMallocAsync(byref(memory), 64, stream))
    check(infinirt.infinirtMemsetAsync(memory, 3, 64, stream))
    target = np.zeros(64, np.uint8)
    check(infinirt.infinirtMemcpyAsync(target.ctypes.data, memory, 64, 2, stream))
    check(infinirt.infinirtFreeAsync(memory, stream))
    check(infinirt.infinirtStreamSynchronize(stream))
    assert (target == 3).all()


# Streams


def test_stream_works_beside_the_caller_in_order(stream):
    event = create_event()
    start = time.perf_counter()
    work = SlowWork(stream)
    check(infinirt.infinirtEventRecord(event, stream))
    queued = time.perf_counter() - start
    assert query(event) == NOT_READY
    check(infinirt.infinirtStreamSynchronize(stream))
    done = time.perf_counter() - start
    assert query(event) == COMPLETE
    assert (work.target == 5).all()
    assert queued < done
    # The last of these is the one that counts.
    for value in range(100):
        check(infinirt.infinirtMemsetAsync(work.target.ctypes.data, value, 1000, stream))
    check(infinirt.infinirtStreamSynchronize(stream))
    assert (work.target[:1000] == 99).all()
    check(infinirt.infinirtEventDestroy(event))


def test_device_synchronize_waits_for_every_stream(stream):
    other = create_stream()
    first, second = SlowWork(stream), SlowWork(other)
    check(infinirt.infinirtDeviceSynchronize())
    assert (first.target == 5).all()
    assert (second.target == 5).all()
    check(infinirt.infinirtStreamDestroy(other))


def test_destroying_a_stream_waits_for_its_work():
    stream = create_stream()
    work = SlowWork(stream)
    check(infinirt.infinirtStreamDestroy(stream))
    assert (work.target == 5).all()


def test_stream_waits_for_an_event_of_another(stream):
    other, event = create_stream(), create_event(DISABLE_TIMING)
    work = SlowWork(stream)
    check(infinirt.infinirtEventRecord(event, stream))
    check(infinirt.infinirtStreamWaitEvent(other, event))
    check(infinirt.infinirtEventDestroy(event))  # the queues keep what they need
    check(infinirt.infinirtMemsetAsync(work.target.ctypes.data, 9, work.target.nbytes, other))
    check(infinirt.infinirtStreamSynchronize(other))
    assert (work.target == 9).all()
    check(infinirt.infinirtStreamDestroy(other))


def test_caller_waits_for_an_event_on_the_null_stream(stream):
    event = create_event()
    work = SlowWork(stream)
    check(infinirt.infinirtEventRecord(event, stream))
    check(infinirt.infinirtStreamWaitEvent(None, event))
    assert (work.target == 5).all()
    check(infinirt.infinirtEventDestroy(event))


# Events


def test_event_that_was_never_recorded_is_complete():
    event = create_event()
    assert query(event) == COMPLETE
    check(infinirt.infinirtEventSynchronize(event))
    check(infinirt.infinirtEventDestroy(event))


def test_elapsed_time_between_events(stream):
    start, end = create_event(), create_event()
    milliseconds = c_float(-1)
    begin = time.perf_counter()
    check(infinirt.infinirtEventRecord(start, stream))
    work = SlowWork(stream)
    check(infinirt.infinirtEventRecord(end, stream))
    early = infinirt.infinirtEventElapsedTime(byref(milliseconds), start, end)
    assert (early, milliseconds.value) == (Status.BAD_PARAM, -1)
    check(infinirt.infinirtEventSynchronize(end))
    outer = 1000 * (time.perf_counter() - begin)
    check(infinirt.infinirtEventElapsedTime(byref(milliseconds), start, end))
    assert 0 < milliseconds.value <= outer
    assert (work.target == 5).all()
    for event in (start, end):
        check(infinirt.infinirtEventDestroy(event))


def test_events_without_times_have_no_distance():
    timed, untimed, unrecorded = create_event(), create_event(DISABLE_TIMING), create_event()
    milliseconds = c_float(-1)
    for event in (timed, untimed):
        check(infinirt.infinirtEventRecord(event, None))
    for pair in ((timed, untimed), (untimed, timed), (timed, unrecorded), (unrecorded, timed)):
        status = infinirt.infinirtEventElapsedTime(byref(milliseconds), *pair)
        assert status == Status.BAD_PARAM
    assert milliseconds.value == -1
    check(infinirt.infinirtEventElapsedTime(byref(milliseconds), timed, timed))
    assert milliseconds.value == 0
    for event in (timed, untimed, unrecorded):
        check(infinirt.infinirtEventDestroy(event))


# Operators on streams


def test_descriptor_may_be_destroyed_while_its_operator_is_queued(stream):
    shape = Tensor((2, 3, 64, 64))
    grad_output = np.ones((2, 3, 32, 32), np.float32)
    results = []
    work = SlowWork(stream)
    for _ in range(20):
        pool = AvgPoolBackward(shape, Tensor(grad_output.shape), shape, [2, 2], None, None)
        result, workspace = np.zeros(shape.shape, np.float32), pool.new_workspace()
        data = (result.ctypes.data, grad_output.ctypes.data, grad_output.ctypes.data)
        pool.run(*data, stream=stream, workspace=workspace)
        pool.destroy()
        results.append((result, workspace))
    assert not results[-1][0].any()
    check(infinirt.infinirtStreamSynchronize(stream))
    assert (work.target == 5).all()
    assert all((result == 0.25).all() for result, _ in results)


def test_operators_of_one_stream_see_each_others_results(stream):
    shapes = [(1, 4, 32), (1, 4, 16), (1, 4, 8)]
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    arrays[2].fill(4)
    pools = [
        AvgPoolBackward(
            Tensor(shapes[i]), Tensor(shapes[i + 1]), Tensor(shapes[i]), [2], None, None
        )
        for i in (1, 0)
    ]
    workspaces = [pool.new_workspace() for pool in pools]
    work = SlowWork(stream)
    for pool, workspace, i in zip(pools, workspaces, (1, 0), strict=True):
        large, small = arrays[i].ctypes.data, arrays[i + 1].ctypes.data
        pool.run(large, small, small, stream=stream, workspace=workspace)
    check(infinirt.infinirtStreamSynchronize(stream))
    assert (work.target == 5).all()
    assert (arrays[1] == 2).all()
    assert (arrays[0] == 1).all()
    for pool in pools:
        pool.destroy()


def test_wrong_arguments_are_told_at_once_on_a_stream_too(stream):
    pool = AvgPoolBackward(Tensor((1, 1, 4)), Tensor((1, 1, 2)), Tensor((1, 1, 4)), [2], None, None)
    status = infiniop.infiniopAvgPoolBackward(pool.desc, None, 0, None, None, None, stream)
    assert status == Status.BAD_PARAM
    check(infinirt.infinirtStreamSynchronize(stream))
    pool.destroy()
