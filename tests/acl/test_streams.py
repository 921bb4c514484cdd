"""acl's streams and events: in order, beside the caller, waiting for each other.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import time

from backops import acl
from backops.acl import EventRecordedStatus, EventStatus, Status
from tests.support.acl import check
from tests.support.acl_work import Pool, SlowWork, message


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
