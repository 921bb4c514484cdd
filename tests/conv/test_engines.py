"""Every engine computes every case that it takes, in every dtype and layout.

Whole numbers are added without rounding in any order, so every engine must give the same values on
every instruction set. A process keeps to one of those: the highest here, the others in their own.
"""

import functools
import itertools
import os

import numpy as np
import pytest

import backops
import backops.plan
from tests.support.conv_cases import (
    CASES,
    GRADIENTS,
    OPERATORS,
    TRANSPOSED_CASES,
    find_conv_case,
    make_arrays,
    readings,
)
from tests.support.conv_compare import assert_nothing_else_changed, place_results
from tests.support.floats import DTYPES, round_to
from tests.support.isa import LOWER_LEVELS, call_on
from tests.support.layouts import in_layout

ENGINES = [name for name, _ in backops._native.conv_engines()]
BROADCAST = ("broadcast_channels", "broadcast_last_axis")
LAYOUTS = ("contiguous", "channels_last", "transposed", "every_second", "reversed", *BROADCAST)
# For lower instruction sets: kernels differ, but not in what they know of strides.
FEW_LAYOUTS = ("contiguous", "channels_last", "every_second")
# Under sanitizers (tests/run_sanitized.py), kernels take most of the time.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# How many of CASES an engine takes at least. Folds of outputs have no strides, and rows are those
# of an output product.
FEWEST = {"lanes": 20, "blocks": 80, "folded": 30, "rows": 20, "matrix": 50, "pairs": 50}
TURNED = ("conv", "conv_transpose_backward")
ALONE = [tuple(name == which for name in GRADIENTS) for which in GRADIENTS]
# What engines of bfloat16 products need.
PRODUCT_TYPES = {"matrix": ("float16", "bfloat16"), "pairs": ("bfloat16",)}
PRODUCT_LEVELS = ("avx512_bf16", "amx")


def fewest(engine, operator):
    if engine == "plain":
        return len(CASES) - 1
    if engine == "rows":
        return FEWEST[engine] if operator in TURNED else 0
    if engine == "folded" and operator in TURNED:
        return FEWEST[engine] // 2
    return FEWEST[engine]


@functools.cache
def operands(case, layout):
    """The operands of float64 in that layout."""
    return tuple(in_layout(a, case, layout) for a in make_arrays(case, "float64", kind="integer"))


@functools.cache
def exact_results(case, layout):
    return case.call(backops.reference, *operands(case, layout))


@functools.cache
def expected_results(case, layout, dtype):
    """What every engine must give. Layouts that hold all values share theirs."""
    layout = layout if layout in BROADCAST else "contiguous"
    return tuple(round_to(exact, dtype) for exact in exact_results(case, layout))


@functools.lru_cache(maxsize=len(LAYOUTS))
def placed_operands(case, dtype, layout):
    """What engines that take turns are all given."""
    return [in_layout(a.astype(DTYPES[dtype]), case, layout) for a in operands(case, layout)]


def plan_on(engine, case, dtype, **more):
    """A plan on that engine, or None where it does not take the case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKOPS_ENGINE", engine)
        try:
            return case.plan(backops.plan, dtype=dtype, **more)
        except backops.ParamError as error:
            if "BACKOPS_ENGINE" not in str(error):
                raise
            return None


def plans_on(engine, case, dtype):
    """A plan of all results and which they are, or one of each that the engine takes alone."""
    plan = plan_on(engine, case, dtype)
    if plan is not None:
        return [(plan, (True,) * len(case.result_names))]
    if not case.is_backward:
        return []
    plans = [(plan_on(engine, case, dtype, output_mask=mask), mask) for mask in ALONE]
    return [(plan, mask) for plan, mask in plans if plan is not None]


def check_layout(plan, case, dtype, layout, mask=(True, True, True)):
    """Operands and results in that layout; results of a broadcast one are contiguous."""
    arrays = placed_operands(case, dtype, layout)
    result_layout = "contiguous" if layout in BROADCAST else layout
    placed = place_results(case, dtype, result_layout)
    results = tuple(a if own else None for own, (_, a) in zip(mask, placed, strict=False))
    case.run(plan, *arrays, out=results)
    expected = expected_results(case, layout, dtype)
    for which, got, wanted in zip(case.result_names, results, expected, strict=True):
        if got is None:
            continue
        differ = np.count_nonzero(got != wanted)
        what = f"{differ} elements of {which} differ: {case.name} ({case.problem})"
        assert not differ, f"{what}, {case.operator}, {dtype}, {layout}, {plan.kernel}"
    assert_nothing_else_changed(placed, case, dtype, result_layout)


def multiplications(case):
    return np.prod(case.output_shape) * np.prod(case.weight_shape[1:])


def layouts_for(engine, case, dtype, layouts):
    """Element by element, large cases would take most of the time: they have fewer layouts.

    They are for the highest instruction set and the types that sums have, the largest for one of
    these: what others change is how an element is read and written. Plans of all of them are made.

    Sanitizers look at memory. Small cases show them every layout; others have two of them in turn.
    """
    work = multiplications(case)
    if SANITIZED and work > 5e4:
        turn = ORDER[case.name] + OPERATORS.index(case.operator) + list(DTYPES).index(dtype)
        return [layouts[(turn + step) % len(layouts)] for step in (0, 3)]
    if engine != "plain" or work <= 2e4:
        return layouts
    types = ("float32", "float64") if work <= 3e5 else ("float32",)
    return layouts[:1] if layouts is LAYOUTS and dtype in types else ()


def check_case(engine, case, dtype, layouts):
    """Checks the case in the layouts, and tells whether the engine takes it."""
    # Nothing is multiplied where there is no batch, on any engine.
    plans = [] if 0 in case.input_shape else plans_on(engine, case, dtype)
    for plan, mask in plans:
        steps = plan.kernel.split(" ", 1)[1].split(" + ")
        assert {step.split(":")[0] for step in steps} == {engine}
        for layout in layouts_for(engine, case, dtype, layouts):
            check_layout(plan, case, dtype, layout, mask)
    return len(plans) > 0


ORDER = {case.name: number for number, case in enumerate([*CASES, *TRANSPOSED_CASES])}


def cases_of(operator):
    return readings([*CASES, *TRANSPOSED_CASES], (operator,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_computes_every_case_it_takes(engine, operator, dtype):
    taken = sum(check_case(engine, case, dtype, LAYOUTS) for case in cases_of(operator))
    has_products = backops._native.isa() in PRODUCT_LEVELS
    if engine not in PRODUCT_TYPES or (has_products and dtype in PRODUCT_TYPES[engine]):
        assert taken >= fewest(engine, operator)
    # Weight products of rows are those of pairs.
    if engine == "rows" and operator == "conv_backward" and dtype == "bfloat16" and has_products:
        assert taken >= 20


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "plain"])
def test_bits_do_not_depend_on_what_the_workspace_held(engine, operator):
    # Bytes of ones are NaNs, which must not be taken for numbers of the tensors: some engines would
    # compute everything again, with other roundings.
    for case in readings([*CASES[::3], *TRANSPOSED_CASES[::3]], (operator,)):
        plans = [] if 0 in case.input_shape else plans_on(engine, case, "bfloat16")
        for plan, mask in plans:
            results = []
            for byte in (0, 255):
                arrays = make_arrays(case, "bfloat16")
                out = tuple(
                    np.zeros_like(a) if own else None
                    for own, (_, a) in zip(
                        mask, place_results(case, "bfloat16", "contiguous"), strict=False
                    )
                )
                workspace = np.full(plan.workspace_size, byte, np.uint8)
                results.append(case.run(plan, *arrays, out=out, workspace=workspace))
            for one, two in zip(*results, strict=True):
                assert (one is None) == (two is None)
                assert one is None or one.tobytes() == two.tobytes(), f"{case!r} {plan.kernel}"


def check_engines_and_count():
    """How many cases each engine takes of each operator and dtype."""
    taken = dict.fromkeys(itertools.product(ENGINES, OPERATORS, DTYPES), 0)
    for operator, dtype in itertools.product(OPERATORS, DTYPES):
        for case, engine in itertools.product(cases_of(operator), ENGINES):
            taken[engine, operator, dtype] += check_case(engine, case, dtype, FEW_LAYOUTS)
    return taken


@pytest.mark.parametrize("level", LOWER_LEVELS)
def test_engines_compute_the_same_on_lower_instruction_sets(level):
    taken = call_on(level, "tests.conv.test_engines", "check_engines_and_count")
    assert len(taken) == len(ENGINES) * len(OPERATORS) * len(DTYPES)
    for (engine, operator, _), count in taken.items():
        if engine not in PRODUCT_TYPES:
            assert count >= fewest(engine, operator)


def test_comparison_catches_a_layout_that_was_ignored():
    case = find_conv_case("plain_2d")

    def ignore_layout(*arrays, out):
        plan = plan_on("blocks", case, "float32")
        plan(*(a.ravel("K").reshape(a.shape) for a in arrays), out=out)

    ignore_layout.kernel = "none"
    check_layout(ignore_layout, case, "float32", "contiguous")
    with pytest.raises(AssertionError, match=r"elements of grad_input differ: plain_2d .*channels"):
        check_layout(ignore_layout, case, "float32", "channels_last")
