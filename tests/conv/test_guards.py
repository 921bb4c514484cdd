"""No plan writes beyond its workspace or its results, whichever engine runs it.

Random problems, each forced on every engine that takes it, on every instruction set. Long rows and
few channels are among them: there an engine's own idea of its memory is furthest from the tensors'.
"""

import os

import numpy as np
import pytest

import backops
import backops.plan
from tests.support.conv_cases import OPERATORS, ConvCase, load_conv_cases, make_arrays
from tests.support.conv_compare import assert_close
from tests.support.floats import DTYPES, same_bits
from tests.support.isa import LEVELS, call_on

ENGINES = [name for name, _ in backops._native.conv_engines()]
GUARD = 32 << 10
FILL = 0xA5
KNOWN = load_conv_cases("conv_memory")


def random_case(random) -> ConvCase:
    """A problem of up to some ten million multiplications."""
    rank = int(random.integers(1, 4))
    groups = int(random.choice([1, 1, 1, 2, 3, 8, 17]))
    most = 20 if groups == 1 else 9
    channels, outputs = (int(random.integers(1, most)) for _ in range(2))
    if groups == 1 and random.random() < 0.3:
        outputs = int(random.integers(16, 49))  # few channels to enough for whole vectors
    kernel = [int(random.choice([1, 1, 2, 3, 5])) for _ in range(rank)]
    stride = [int(random.choice([1, 1, 2, 3])) for _ in range(rank)]
    if groups == 1 and outputs < 20 and random.random() < 0.3:
        # To few outputs without strides: few channels of the products that go the other way.
        channels, outputs = int(random.integers(16, 49)), int(random.integers(1, 5))
        stride = [1] * rank
    dilation = [int(random.choice([1, 1, 1, 2])) for _ in range(rank)]
    padding = [int(random.integers(0, 4)) for _ in range(rank)]
    sizes = []
    for axis in range(rank):
        least = max(1, dilation[axis] * (kernel[axis] - 1) + 1 - 2 * padding[axis])
        sizes.append(least + int(random.integers(0, {1: 90, 2: 24, 3: 8}[rank])))
    if random.random() < 0.2:
        sizes[-1] = int(random.integers(2000, 16000)) // int(np.prod(sizes[:-1]))
        sizes[-1] = max(sizes[-1], 200)
    batch = int(random.integers(1, 6))
    return ConvCase(
        "random",
        (batch, groups * channels, *sizes),
        (groups * outputs, channels, *kernel),
        tuple(stride), tuple(padding), tuple(dilation), groups,
    )  # fmt: skip


def guarded(nbytes: int, offset: int = 0):
    """Memory with filled bytes before and behind; `offset` shifts it against cache lines."""
    whole = np.full(nbytes + 2 * GUARD, FILL, np.uint8)
    return whole, whole[GUARD + offset : GUARD + offset + nbytes]


def assert_untouched(whole, inner, what: str):
    first = inner.ctypes.data - whole.ctypes.data
    if np.all(whole[:first] == FILL) and np.all(whole[first + inner.nbytes :] == FILL):
        return
    changed = np.flatnonzero(whole != FILL)
    outside = changed[(changed < first) | (changed >= first + inner.nbytes)]
    assert outside.size == 0, (
        f"{what}: {outside.size} bytes changed outside, {outside[0] - first} to "
        f"{outside[-1] - first} of {inner.nbytes}"
    )


def run_guarded(case: ConvCase, dtype: str, arrays, offset: int):
    """The results, or None where the engine in force does not take the problem."""
    try:
        plan = case.plan(backops.plan, dtype=dtype)
    except backops.ParamError as error:
        if "BACKOPS_ENGINE" not in str(error):
            raise
        return None
    memory = [guarded(plan.workspace_size, offset)]
    results = []
    for shape in case.result_shapes:
        memory.append(guarded(int(np.prod(shape)) * arrays[0].itemsize, 0))
        results.append(memory[-1][1].view(arrays[0].dtype).reshape(shape))
    case.run(plan, *arrays, out=tuple(results), workspace=memory[0][1])
    repeat = f"{case!r} {dtype} on {plan.kernel}"
    for name, (whole, inner) in zip(("workspace", *case.result_names), memory, strict=True):
        assert_untouched(whole, inner, f"{name} of {repeat}")
    return plan.kernel, results


def multiplications(case: ConvCase) -> float:
    return float(np.prod(case.output_shape)) * float(np.prod(case.weight_shape[1:]))


def assert_alike(got, other, names, what: str) -> None:
    """Fails unless two engines agree as sums in another order do."""
    limits = {"bfloat16": 2**-7, "float16": 2**-9}
    for name, one, two in zip(names, got[1], other[1], strict=True):
        limit = limits.get(one.dtype.name, 1e-4)
        one, two = one.astype(np.float64), two.astype(np.float64)
        error = np.abs(one - two).max(initial=0) / np.abs(two).max(initial=1e-3)
        assert error <= limit, f"{name} of {what}: {error:.2g} between {got[0]} and {other[0]}"


def problems(operator: str, count: int, seed: int):
    """The known and `count` random problems: each with a dtype and an offset."""
    random = np.random.default_rng(seed)
    cases = [*KNOWN, *(random_case(random) for _ in range(count))]
    for number, case in enumerate(cases):
        dtype = str(random.choice(list(DTYPES))) if number >= len(KNOWN) else "float32"
        yield case.read_as(operator), dtype, int(random.integers(0, 64))


def run_on_every_engine(operator: str, count: int, seed: int):
    """Runs the problems on every engine. How often each ran; kernels and results of the first."""
    ran = dict.fromkeys(ENGINES, 0)
    first_results = []
    for case, dtype, offset in problems(operator, count, seed):
        first = None
        arrays = make_arrays(case, dtype)
        for engine in ENGINES:
            if engine == "plain" and multiplications(case) > 3e5:
                continue  # it takes seconds
            os.environ["BACKOPS_ENGINE"] = engine
            got = run_guarded(case, dtype, arrays, offset)
            if got is None:
                continue
            ran[engine] += 1
            if first is None:
                first = got
            else:
                assert_alike(got, first, case.result_names, f"{case!r} {dtype}")
        first_results.append(first)
    return ran, first_results


def run_operators(count: int, seed: int) -> dict:
    """Each operator has problems of its own."""
    return {
        operator: run_on_every_engine(operator, count, seed + number)
        for number, operator in enumerate(OPERATORS)
    }


def test_generated_plans_keep_to_their_memory_on_every_engine():
    fuzz = os.environ.get("BACKOPS_FUZZ") == "1"
    count = 400 if fuzz else 60
    seed = int.from_bytes(os.urandom(4), "little") if fuzz else 1
    levels = {
        level: call_on(level, "tests.conv.test_guards", "run_operators", count, seed)
        for level in LEVELS
    }
    for number, operator in enumerate(OPERATORS):
        of_operator = {level: ran[operator] for level, ran in levels.items()}
        check_operator(of_operator, operator, count, seed + number)


def check_operator(levels: dict, operator: str, count: int, seed: int) -> None:
    """That engines took enough, and that what they gave is right."""
    for level, (ran, _) in levels.items():
        for engine in ("lanes", "blocks", "folded", "plain"):
            # Folds of outputs want few of them and no strides, which is rare.
            fewest = {("folded", "conv"): 1, ("folded", "conv_transpose_backward"): 0}
            least = fewest.get((engine, operator), 5)
            assert ran[engine] >= least, f"{engine} took too few problems on {level}: {ran}"
    # One reference serves all instruction sets.
    for number, (case, dtype, _) in enumerate(problems(operator, count, seed)):
        arrays = make_arrays(case, dtype)
        right = []
        for level, (_, first_results) in levels.items():
            if first_results[number] is None:
                continue
            kernel, results = first_results[number]
            if any(all(map(same_bits, results, other)) for other in right):
                continue
            repeat = f"BACKOPS_ISA={level}, seed {seed}, {case!r}, {kernel}"
            assert_close(results, case, arrays, repeat=repeat)
            right.append(results)


def test_guard_catches_a_byte_on_either_side():
    whole, inner = guarded(100, 3)
    inner[:] = 1
    assert_untouched(whole, inner, "memory")
    for at in (GUARD + 2, GUARD + 103):
        changed = whole.copy()
        changed[at] = 0
        with pytest.raises(AssertionError, match="1 bytes changed outside"):
            assert_untouched(changed, changed[GUARD + 3 : GUARD + 103], "memory")


@pytest.mark.parametrize(
    ("engine", "words"), [("fast", "lanes, blocks"), ("lanes", "does not take one group")]
)
def test_engine_in_force_that_does_not_take_a_problem_is_an_error(monkeypatch, engine, words):
    monkeypatch.setenv("BACKOPS_ENGINE", engine)
    with pytest.raises(backops.ParamError, match=words):
        backops.plan.conv_backward((1, 64, 9, 9), (64, 64, 3, 3))
