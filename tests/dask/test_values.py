"""Values of cut arrays: those of the uncut operator, for any chunks."""

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backops.dask
from backops.dask import _pool_steps, _tasks
from tests.support import conv_compare, pool_compare
from tests.support.conv_cases import MASKS, make_arrays, parse_conv_case
from tests.support.dask_cases import Cuts, adaptive_cases, conv_cases, fixed_cases
from tests.support.floats import DTYPES, with_special_values
from tests.support.pool_cases import make_grad, make_source, parse_case

GENERATED = settings(max_examples=max(40, settings().max_examples // 4))
SEEDS = st.integers(0, 2**32 - 1)
ALL_DTYPES = st.sampled_from(list(DTYPES))


@pytest.fixture(autouse=True)
def _one_thread():
    """Which scheduler runs the tasks is another test's subject."""
    with dask.config.set(scheduler="synchronous"):
        yield


def check_pool(case, dtype, seed, *, special=False, precision="keep"):
    cuts = Cuts(seed)
    source = make_source(case, dtype, seed)
    if special and source.size >= 8:
        source = with_special_values(source)
    more = {} if case.adaptive else {"precision": precision}
    given_chunks = cuts.choose(None, cuts.chunks(case.target_shape))
    lazy = case.run(backops.dask, cuts.cut(source), chunks=given_chunks, **more)
    assert lazy.shape == case.target_shape
    assert lazy.dtype == source.dtype
    assert lazy._meta.dtype == source.dtype
    assert given_chunks is None or lazy.chunks == given_chunks
    repeat = f"check_pool(parse_case({case.problem!r}), {dtype!r}, {seed})"
    pool_compare.assert_close(lazy.compute(), case, source, repeat=repeat, precision=precision)


def either_way(cases):
    return cases.flatmap(lambda case: st.sampled_from([case, case.forward]))


@GENERATED
@given(either_way(fixed_cases()), ALL_DTYPES, SEEDS)
def test_generated_fixed_windows(case, dtype, seed):
    check_pool(case, dtype, seed)


@GENERATED
@given(either_way(adaptive_cases()), ALL_DTYPES, SEEDS)
def test_generated_adaptive_windows(case, dtype, seed):
    check_pool(case, dtype, seed)


@GENERATED
@given(either_way(fixed_cases() | adaptive_cases()), ALL_DTYPES, SEEDS)
def test_generated_nan_and_infinity_reach_exactly_their_windows(case, dtype, seed):
    check_pool(case, dtype, seed, special=True)


@GENERATED
@given(fixed_cases() | adaptive_cases(), ALL_DTYPES, SEEDS)
def test_generated_blocks_that_are_pooled_as_they_lie(case, dtype, seed):
    """As in large chunks: the largest block alone, then strips that other blocks reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pool_steps, "LEAST_BYTES", 0)
        patch.setattr(_pool_steps, "LEAST_MAIN", 0.2)
        patch.setattr(_pool_steps, "MOST_STRIPS", 0.9)
        check_pool(case, dtype, seed)


def test_large_chunks_are_pooled_as_they_lie(monkeypatch):
    """What is put together beside them is small."""
    made = []
    array = _tasks.scratch.array
    monkeypatch.setattr(
        _tasks.scratch, "array", lambda *more: made.append(array(*more)) or made[-1]
    )
    y = da.random.default_rng(0).random((1, 2, 128, 128, 128), chunks=64, dtype=np.float32)
    lazy = backops.dask.avg_pool3d_backward(y, y.shape, 3, 1, 1)
    expected = backops.avg_pool3d_backward(y.compute(), y.shape, 3, 1, 1)
    assert np.allclose(lazy.compute(), expected, rtol=1e-5)
    assert max(region.size for region in made) < 2 * 64**3 / 3


@pytest.mark.parametrize("precision", ["fp16", "hf32", "allow_fp32_down"])
def test_pooling_rounds_operands(precision):
    for line in ("avg2d in=2x3x17x19 k=3 s=2 p=1 exclude_pad", "avg1d in=2x50 k=40 s=1"):
        case = parse_case(line)
        check_pool(case, "float32", 3, precision=precision)
        check_pool(case.forward, "float32", 3, precision=precision)


def check_conv(case, dtype, seed, *, special=None, **more):
    cuts = Cuts(seed)
    arrays = list(make_arrays(case, dtype, seed))
    if special is not None and arrays[special].size >= 8:
        arrays[special] = with_special_values(arrays[special])
    is_small = [name in ("weight", "bias") for name in case.operand_shapes]
    lazy_arrays = [
        cuts.choose(array, da.from_array(array, chunks=-1)) if small else cuts.cut(array)
        for array, small in zip(arrays, is_small, strict=True)
    ]
    chunks = cuts.choose(None, cuts.chunks(case.result_shapes[0]))
    lazy = case.call(backops.dask, *lazy_arrays, chunks=chunks, **more)
    for result, shape in zip(lazy, case.result_shapes, strict=True):
        assert result is None or (result.shape == shape and result.dtype == DTYPES[dtype])
    if lazy[0] is not None and (chunks or case.is_backward):
        assert lazy[0].chunks == (chunks or lazy_arrays[1].chunks)
    results = dask.compute(*lazy)
    repeat = f"check_conv(parse_conv_case({case.problem!r}), {dtype!r}, {seed}, {more})"
    conv_compare.assert_close(results, case, arrays, repeat=repeat, **more)


OPERATORS = ("conv_backward", "conv", "conv_transpose", "conv_transpose_backward")


@pytest.mark.parametrize("operator", OPERATORS)
@GENERATED
@given(conv_cases(), ALL_DTYPES, SEEDS, st.sampled_from(MASKS))
def test_generated_convolutions(operator, case, dtype, seed, mask):
    more = {"output_mask": mask} if operator.endswith("backward") else {}
    check_conv(case.read_as(operator), dtype, seed, **more)


@pytest.mark.parametrize("operator", OPERATORS)
@GENERATED
@given(conv_cases(), st.sampled_from(["float32", "float16"]), SEEDS, st.integers(0, 2))
def test_generated_nan_and_infinity_of_convolutions(operator, case, dtype, seed, special):
    check_conv(case.read_as(operator), dtype, seed, special=special)


@pytest.mark.parametrize("precision", ["fp16", "hf32", "allow_fp32_down"])
def test_convolution_rounds_operands(precision):
    case = parse_conv_case("conv in=2x6x9x11 w=4x3x3x3 p=1 g=2")
    check_conv(case, "float32", 5, precision=precision)


@pytest.mark.parametrize("operator", OPERATORS[2:])
@pytest.mark.parametrize("seed", range(4))
def test_output_padding_beyond_the_stride(operator, seed):
    case = parse_conv_case("conv in=2x4x30x29 w=6x4x3x2 p=1 s=2x1 d=4x3 fewer=1")
    check_conv(case.read_as(operator), "float32", seed)


def test_half_weight_gradients_are_rounded_once():
    """A sum over 64 chunks whose terms are lost, one by one, against a float16 total."""
    y = np.full((1, 1, 4096), 2.0**-4, np.float16)
    x = np.ones_like(y)
    y[..., 0] = 2048
    lazy = backops.dask.conv_backward(
        da.from_array(y, chunks=(1, 1, 64)), da.from_array(x, chunks=(1, 1, 64)),
        np.ones((1, 1, 1), np.float16), output_mask=(False, True, True),
    )  # fmt: skip
    expected = 2048 + 4095 / 16
    for gradient in dask.compute(*lazy[1:]):
        assert float(gradient.reshape(-1)[0]) == np.float16(expected)


def test_values_of_this_test_can_be_wrong():
    """The comparison notices chunks that are pooled one by one."""
    case = parse_case("avg1d in=2x3x16 k=3 s=1 p=1")
    grad = make_grad(case, "float32")
    halves = [
        backops.avg_pool1d_backward(half, half.shape, 3, 1, 1) for half in np.split(grad, 2, -1)
    ]
    with pytest.raises(AssertionError, match="elements differ"):
        pool_compare.assert_close(np.concatenate(halves, -1), case, grad)
