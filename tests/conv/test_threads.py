"""Threads: convolution repeats in every bit, and its calls may overlap."""

import dataclasses
import itertools

import numpy as np
import pytest

import backops
from tests.support.conv_cases import (
    CASES,
    LARGE_CASES,
    OPERATORS,
    ConvCase,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
)
from tests.support.conv_compare import check
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import in_layout
from tests.support.threads import run_in_threads

every_large_case = pytest.mark.parametrize("case", readings(LARGE_CASES), ids=reading_id)
every_operator = pytest.mark.parametrize("operator", OPERATORS)


@pytest.fixture
def _restore_settings():
    before = backops.get_num_threads()
    yield
    backops.set_num_threads(before)
    backops.set_deterministic(False)


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize(
    ("name", "threads", "cut"),
    [
        ("large_3x3", 2, ""),
        ("deep_3x3", 5, ":by_outputs"),
        ("deep_square", 2, ":by_outputs_and_inputs"),
        ("deep_spare_lanes", 2, ":by_outputs_and_inputs"),
        ("deep_groups", 2, ":by_outputs_and_inputs"),
    ],
)
def test_many_weights_are_cut_by_what_they_are_of(name, threads, cut):
    case = next(case for case in LARGE_CASES if case.name == name)
    backops.set_num_threads(threads)
    kernel = case.plan(backops.plan, dtype="float32").kernel
    assert kernel.startswith("conv_float32 blocks:")
    assert (":by_outputs" in kernel) == (cut != "")
    assert kernel.endswith(cut)


def results_with_threads(case, arrays, counts):
    results = []
    for count in counts:
        backops.set_num_threads(count)
        results.append(case.call(backops, *arrays))
    return results


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@every_large_case
def test_any_number_of_threads_gives_the_same_bits_when_deterministic(case, dtype):
    for layout in ["contiguous", "channels_last"]:
        arrays = [in_layout(array, case, layout) for array in make_arrays(case, dtype)]
        # Plans made before must not be taken for those of the setting.
        backops.set_deterministic(False)
        results_with_threads(case, arrays, (1, 7))
        backops.set_deterministic(True)
        first, *others = results_with_threads(case, arrays, (1, 2, 7))
        for other, (which, expected) in itertools.product(others, enumerate(first)):
            assert same_bits(other[which], expected), case.result_names[which]


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", readings([*LARGE_CASES[:1], *LARGE_CASES[4:6]]), ids=reading_id)
def test_any_number_of_threads_agrees_with_reference(case, dtype, flag):
    small = dataclasses.replace(case, input_shape=(3, case.input_shape[1], 9, 10))
    backops.set_deterministic(flag)
    for count in (1, 2, 7):
        backops.set_num_threads(count)
        check(small, dtype)


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@every_large_case
def test_results_repeat_in_every_bit(case, dtype):
    arrays = make_arrays(case, dtype)
    for count in [1, 2, 7]:
        backops.set_num_threads(count)
        first = case.call(backops, *arrays)
        for _ in range(2):
            assert all(map(same_bits, case.call(backops, *arrays), first))


@pytest.mark.usefixtures("_restore_settings")
@every_operator
@pytest.mark.parametrize("flag", [True, False])
def test_float64_repeats_in_every_bit_and_for_any_number_of_threads_when_deterministic(
    flag, operator
):
    case = ConvCase("", (5, 8, 12, 13), (12, 8, 3, 3), stride=2, padding=1).read_as(operator)
    arrays = make_arrays(case, "float64")
    backops.set_deterministic(flag)
    for counts in ((1, 2, 7),) if flag else ((1, 1), (2, 2), (7, 7)):
        first, *others = results_with_threads(case, arrays, counts)
        for other in others:
            assert all(map(same_bits, other, first))


@pytest.mark.usefixtures("_restore_settings")
@every_operator
def test_more_threads_than_work_is_fine(operator):
    backops.set_num_threads(64)
    for name in ("one_element", "toy", "empty_batch", "depthwise_1d", "unbatched_3d"):
        check(find_conv_case(name), operator=operator)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_eight_python_threads_call_at_once(dtype):
    # Each in another order: plans are made, and evicted, meanwhile.
    random = np.random.default_rng(0)
    cases = [case.read_as(random.choice(OPERATORS)) for case in (*CASES, *LARGE_CASES[:3])]
    arrays = [make_arrays(case, dtype) for case in cases]
    expected = [case.call(backops, *given) for case, given in zip(cases, arrays, strict=True)]

    def body(i):
        for j in np.random.default_rng(i).permutation(len(cases)):
            results = cases[j].call(backops, *arrays[j])
            assert all(map(same_bits, results, expected[j])), cases[j]

    run_in_threads(8, body)
