"""`backops.acl` on arrays of every framework, which count as device memory while they are bound."""

import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops
from backops import acl
from backops.acl import Status
from tests.support.acl import DataType, Format, Spec, check, initialised, int_array
from tests.support.dlpack import DLPackOnly


@pytest.fixture(autouse=True)
def device():
    with initialised():
        yield


def plan(grad_output, self_, grad_input):
    """2x2 pooling of (1, 1, 2, 2) to (1, 1, 1, 1): the size, the executor and the tensors."""
    tensors = [
        Spec((1, 1, 1, 1), data=grad_output).create(),
        Spec((1, 1, 2, 2), data=self_).create(),
        Spec((1, 1, 2, 2), data=grad_input).create(),
    ]
    size, executor = check(
        *acl.aclnnAvgPool2dBackwardGetWorkspaceSize(
            *tensors[:2],
            int_array([2]),
            None,
            int_array([0]),
            False,
            True,
            0,
            acl.KEEP_DTYPE,
            tensors[2],
        )
    )
    return size, executor, tensors


def new_result():
    return np.zeros((1, 1, 2, 2), np.float32)


@pytest.mark.parametrize(
    "make",
    [
        np.asarray,
        torch.from_numpy,
        jnp.asarray,
        lambda array: DLPackOnly(torch.from_numpy(array)),
    ],
    ids=["numpy", "torch", "jax", "dlpack"],
)
def test_inputs_of_every_framework(make):
    result = new_result()
    grad = make(np.full((1, 1, 1, 1), 8, np.float32))
    size, executor, _ = plan(grad, make(new_result()), result)
    check(acl.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None))
    check(acl.aclrtSynchronizeStream(None))
    assert (result == 2).all()


def test_result_in_a_torch_tensor():
    result = torch.zeros(1, 1, 2, 2)
    version = result._version
    size, executor, _ = plan(np.full((1, 1, 1, 1), 8, np.float32), new_result(), result)
    workspace = torch.empty(size, dtype=torch.uint8)
    check(acl.aclnnAvgPool2dBackward(workspace, size, executor, None))
    check(acl.aclrtSynchronizeStream(None))
    assert (result == 2).all()
    assert result._version > version


def test_arrays_are_kept_until_the_launch_and_no_longer():
    result = new_result()
    size, executor, tensors = plan(np.full((1, 1, 1, 1), 8, np.float32), new_result(), result)
    for tensor in tensors:
        check(acl.aclDestroyTensor(tensor))
    gc.collect()
    assert len(acl._arrays.executor_arrays[executor]) == 3
    workspace = np.empty(size, np.uint8)
    arrays = list(acl._arrays.executor_arrays[executor])
    check(acl.aclnnAvgPool2dBackward(workspace, size, executor, None))
    assert executor not in acl._arrays.executor_arrays
    check(acl.aclrtSynchronizeStream(None))
    assert (result == 2).all()
    del arrays
    gc.collect()
    # Nothing is registered any more.
    assert acl.aclrtHostUnregister(result) == Status.RT_PARAM_INVALID
    assert acl.aclrtHostUnregister(workspace) == Status.RT_PARAM_INVALID


def test_arrays_live_until_their_stream_is_synchronised():
    stream = check(*acl.aclrtCreateStream())
    for finish in (acl.aclrtSynchronizeStream, acl.aclrtDestroyStream):
        results = [np.zeros((1, 1, 512, 512), np.float32) for _ in range(20)]
        for result in results:
            tensors = [
                Spec(shape, data=array).create()
                for shape, array in (
                    ((1, 1, 256, 256), np.full((1, 1, 256, 256), 8, np.float32)),
                    (result.shape, np.zeros_like(result)),
                    (result.shape, result),
                )
            ]
            size, executor = check(
                *acl.aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(*tensors),
            )
            workspace = np.empty(size, np.uint8)
            check(acl.aclnnAdaptiveAvgPool2dBackward(workspace, size, executor, stream))
            for tensor in tensors:
                check(acl.aclDestroyTensor(tensor))
            del workspace, tensors
        assert stream in acl._arrays.launched.streams()
        check(finish(stream))
        assert stream not in acl._arrays.launched.streams()
        assert all((result == 2).all() for result in results)


def test_repeatable_executor_takes_arrays():
    size, executor, tensors = plan(np.zeros((1, 1, 1, 1), np.float32), new_result(), new_result())
    check(acl.aclSetAclOpExecutorRepeatable(executor))
    workspace = np.empty(size, np.uint8)
    for value in range(5):
        grad, result = np.full((1, 1, 1, 1), 4 * value, np.float32), new_result()
        check(acl.aclSetInputTensorAddr(executor, 0, tensors[0], grad))
        check(acl.aclSetOutputTensorAddr(executor, 0, tensors[2], result))
        check(acl.aclnnAvgPool2dBackward(workspace, size, executor, None))
        check(acl.aclrtSynchronizeStream(None))
        assert (result == value).all()
    check(acl.aclDestroyAclOpExecutor(executor))
    assert executor not in acl._arrays.executor_arrays


def test_views_and_negative_strides():
    values = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
    grad = values[:, ::-1, :1, ::-1]
    strides = tuple(stride // 4 for stride in grad.strides)
    result = np.zeros((1, 2, 2, 4), np.float32)
    tensors = [
        Spec(grad.shape, strides=strides, data=grad).create(),
        Spec(result.shape, data=np.zeros_like(result)).create(),
        Spec(result.shape, data=result).create(),
    ]
    kernel, padding = int_array([2]), int_array([0])
    size, executor = check(
        *acl.aclnnAvgPool2dBackwardGetWorkspaceSize(
            *tensors[:2], kernel, None, padding, False, True, 0, 0, tensors[2]
        )
    )
    check(acl.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None))
    check(acl.aclrtSynchronizeStream(None))
    assert (result == backops.avg_pool2d_backward(grad, result.shape, 2)).all()


def test_array_that_is_smaller_than_its_tensor_is_told():
    size, executor, _ = plan(np.zeros((1, 1, 1, 1), np.float32), new_result(), np.zeros(3, "f4"))
    status = acl.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None)
    assert status == Status.RUNTIME_ERROR
    assert "gradInput is at bytes" in acl.aclGetRecentErrMsg()


def test_read_only_results_and_small_workspaces_are_refused():
    result = new_result()
    result.flags.writeable = False
    with pytest.raises(backops.LayoutError):
        plan(np.zeros((1, 1, 1, 1), np.float32), new_result(), result)
    size, executor, _ = plan(np.zeros((1, 1, 1, 1), np.float32), new_result(), new_result())
    with pytest.raises(backops.ParamError, match="workspace"):
        acl.aclnnAvgPool2dBackward(np.empty(size - 1, np.uint8), size, executor, None)


def test_sequences_that_are_too_short_are_refused():
    with pytest.raises(backops.ParamError, match="viewDims has 2 elements, expected 3"):
        acl.aclCreateTensor([1, 2], 3, DataType.FLOAT, None, 0, Format.ND, [1, 2], 2, None)
    with pytest.raises(backops.ParamError, match="value has 1 elements, expected 2"):
        acl.aclCreateIntArray([1], 2)


def test_documented_names():
    assert acl.ACL_FLOAT16 is DataType.FLOAT16
    assert acl.ACL_FORMAT_NCDHW is Format.NCDHW
    assert acl.ACLNN_ERR_PARAM_INVALID == 161002
    assert acl.ACL_ERROR_RT_CONTEXT_NULL == 107002
    assert (acl.KEEP_DTYPE, acl.ALLOW_FP32_DOWN_PRECISION, acl.USE_FP16, acl.USE_HF32) == (
        0,
        1,
        2,
        3,
    )
    with pytest.raises(AttributeError, match="ACL_NONSENSE"):
        _ = acl.ACL_NONSENSE
    assert acl.aclrtGetSocName() == "Ascend910B1"
    assert acl.aclrtGetVersion()[-1] == Status.SUCCESS


def test_forward_operators_take_arrays():
    """A convolution with a bias, and the mean of what it made."""
    values, weight, bias = np.ones((1, 1, 2, 2), "f4"), np.full((1, 1, 1, 1), 3, "f4"), [5.0]
    made, mean = np.zeros((1, 1, 2, 2), np.float32), torch.zeros(1, 1, 1, 1)
    x, w, y = (Spec(array.shape, data=array).create() for array in (values, weight, made))
    b = Spec((1,), format=Format.ND, data=torch.tensor(bias)).create()
    out = Spec((1, 1, 1, 1), data=mean).create()
    one, none = int_array([1]), int_array([0])
    for second, planned in (
        (
            acl.aclnnConvolution,
            acl.aclnnConvolutionGetWorkspaceSize(
                x, w, b, one, none, one, False, None, 1, y, acl.KEEP_DTYPE
            ),
        ),
        (
            acl.aclnnAdaptiveAvgPool2d,
            acl.aclnnAdaptiveAvgPool2dGetWorkspaceSize(y, int_array([1, 1]), out),
        ),
    ):
        size, executor = check(*planned)
        check(second(np.empty(size, np.uint8), size, executor, None))
    check(acl.aclDestroyTensor(b))
    gc.collect()
    check(acl.aclrtSynchronizeStream(None))
    assert (made == 3 + 5).all()
    assert (mean == 8).all()
