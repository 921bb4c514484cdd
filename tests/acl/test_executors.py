"""Executors: one launch or many, other addresses, other threads.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import threading
from dataclasses import replace

import numpy as np
import pytest

from backops import acl
from backops.acl import Status
from tests.support.acl import DeviceMemory, Format, Spec, check, int_array
from tests.support.acl_work import Pool, message


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


def test_repeatable_convolution_takes_new_addresses(stream):
    """Forward and backward, one after the other, each on what the one before it made."""
    shape, bias_shape = (1, 1, 2, 2), (1,)
    memory = {name: DeviceMemory(np.full(4, 1, np.float32)) for name in "xyg"}
    specs = {name: Spec(shape, data=memory[name].address) for name in "xyg"}
    small = DeviceMemory(np.full(1, 3, np.float32)), DeviceMemory(np.full(1, 5, np.float32))
    weight = Spec((1, 1, 1, 1), data=small[0].address).create()
    bias = Spec(bias_shape, format=Format.ND, data=small[1].address).create()
    x, y, g = (specs[name].create() for name in "xyg")
    one, none = int_array([1]), int_array([0])
    mask = acl.aclCreateBoolArray([True, False, False], 3)
    forward_size, forward = check(
        *acl.aclnnConvolutionGetWorkspaceSize(x, weight, bias, one, none, one, False, None, 1, y, 0)
    )
    backward_size, backward = check(
        *acl.aclnnConvolutionBackwardGetWorkspaceSize(
            y, x, weight, None, one, none, one, False, None, 1, mask, 0, g, None, None
        )
    )
    for executor in (forward, backward):
        check(acl.aclSetAclOpExecutorRepeatable(executor))
    workspace = DeviceMemory(np.zeros(max(forward_size, backward_size, 1), np.uint8))
    keep, results = [], []
    for i in range(20):
        inputs = DeviceMemory(np.full(4, i, np.float32))
        added = DeviceMemory(np.full(1, 2 * i, np.float32))
        result = DeviceMemory(np.zeros(4, np.float32))
        check(acl.aclSetInputTensorAddr(forward, 0, x, inputs.address))
        check(acl.aclSetInputTensorAddr(forward, 2, bias, added.address))
        check(acl.aclSetOutputTensorAddr(backward, 0, g, result.address))
        check(acl.aclnnConvolution(workspace.address, forward_size, forward, stream))
        check(acl.aclnnConvolutionBackward(workspace.address, backward_size, backward, stream))
        keep += [inputs, added]
        results.append(result)
    check(acl.aclrtSynchronizeStream(stream))
    for i, result in enumerate(results):
        assert (result.read().view(np.float32) == 3 * (3 * i + 2 * i)).all()
    assert acl.aclSetInputTensorAddr(forward, 3, x, 64) == Status.PARAM_INVALID
    assert "index is 3, expected 0 to 2" in message()
    assert acl.aclSetOutputTensorAddr(forward, 0, bias, 64) == Status.PARAM_INVALID
    assert "tensor is (1,), expected the shape of output, (1, 1, 2, 2)" in message()
    # The executor of one operator is none of the other's.
    got = acl.aclnnConvolution(workspace.address, backward_size, backward, stream)
    assert got == Status.PARAM_INVALID
    assert "executor is one of aclnnConvolutionBackward, expected one from" in message()
    for executor in (forward, backward):
        check(acl.aclDestroyAclOpExecutor(executor))


def test_results_of_a_convolution_lie_apart_from_its_inputs(device):
    tensors = [DeviceMemory(np.zeros(n, np.float32)) for n in (4, 1, 1)]
    specs = [Spec(s, format=Format.ND) for s in ((1, 1, 2, 2), (1, 1, 1, 1), (1,))]
    made = [replace(s, data=m.address).create() for s, m in zip(specs, tensors, strict=True)]
    one, none = int_array([1]), int_array([0])
    for name, inside in (("input", 0), ("weight", 1)):
        output = replace(specs[0], data=tensors[inside].address).create()
        size, executor = check(
            *acl.aclnnConvolutionGetWorkspaceSize(*made, one, none, one, False, None, 1, output, 0)
        )
        workspace = DeviceMemory(np.zeros(max(size, 1), np.uint8))
        got = acl.aclnnConvolution(workspace.address, size, executor, None)
        assert got == Status.RUNTIME_ERROR
        assert name == "weight" or f"expected memory apart from {name}, at" in message()


@pytest.mark.parametrize(
    ("operator", "rank"),
    [("AvgPool2d", 2), ("AvgPool3d", 3), ("AdaptiveAvgPool2d", 2), ("AdaptiveAvgPool3d", 3)],
)
def test_repeatable_pooling_takes_new_addresses(operator, rank, stream):
    """Means of what is the same everywhere."""
    shapes = (1, 1, *[4] * rank), (1, 1, *[2] * rank)
    counts = 4**rank, 2**rank
    memory = [DeviceMemory(np.zeros(count, np.float32)) for count in counts]
    format = Format.NCHW if rank == 2 else Format.NCDHW
    self_, out = (
        Spec(shape, format=format, data=each.address).create()
        for shape, each in zip(shapes, memory, strict=True)
    )
    how = [int_array([2] * rank)]
    if not operator.startswith("Adaptive"):
        how += [None, int_array([0]), False, True, 0, *([0] if rank == 2 else [])]
    first = getattr(acl, f"aclnn{operator}GetWorkspaceSize")
    size, executor = check(*first(self_, *how, out))
    check(acl.aclSetAclOpExecutorRepeatable(executor))
    workspace = DeviceMemory(np.zeros(max(size, 1), np.uint8))
    launch = getattr(acl, f"aclnn{operator}")
    inputs, outputs = [], []
    for i in range(20):
        inputs.append(DeviceMemory(np.full(counts[0], i, np.float32)))
        outputs.append(DeviceMemory(np.full(counts[1], -1, np.float32)))
        check(acl.aclSetInputTensorAddr(executor, 0, self_, inputs[-1].address))
        rebind, index = (acl.aclSetOutputTensorAddr, 0) if i % 2 else (acl.aclSetTensorAddr, 1)
        check(rebind(executor, index, out, outputs[-1].address))
        check(launch(workspace.address, size, executor, stream))
    check(acl.aclrtSynchronizeStream(stream))
    for i, output in enumerate(outputs):
        assert (output.read().view(np.float32) == i).all()
    assert (memory[1].read() == 0).all()
    assert acl.aclSetInputTensorAddr(executor, 1, self_, 64) == Status.PARAM_INVALID
    assert "index is 1, expected 0 to 0" in message()
    backward = getattr(acl, f"aclnn{operator}Backward")
    assert backward(workspace.address, size, executor, stream) == Status.PARAM_INVALID
    assert f"executor is one of aclnn{operator}, expected one from aclnn" in message()
    # A result in the memory of its input.
    check(acl.aclSetOutputTensorAddr(executor, 0, out, inputs[-1].address))
    assert launch(workspace.address, size, executor, stream) == Status.RUNTIME_ERROR
    assert "expected memory apart from self, at bytes" in message()
    check(acl.aclDestroyAclOpExecutor(executor))


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
