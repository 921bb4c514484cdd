"""acl's beginning and end, contexts, and what belongs to threads.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import threading

import pytest

from backops import acl
from backops.acl import EventStatus, Status
from tests.support.acl import check
from tests.support.acl_work import SlowWork, message


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
