"""Every instruction set gives the same bits."""

import itertools

import numpy as np
import pytest

import backops
import backops.plan
from tests.support.floats import DTYPES
from tests.support.isa import LEVELS
from tests.support.pool_cases import both_ways, load_cases, make_source
from tests.support.processes import run_python


def dump_results(path) -> None:
    """Writes the results of every case and dtype, with the kernels that made them, to an .npz."""
    results = {}
    for case, dtype in itertools.product(both_ways(load_cases()), DTYPES):
        result = case.run(backops, make_source(case, dtype))
        key = f"{case.name}/{dtype}"
        results[key] = result.view(f"u{result.dtype.itemsize}")
        results[f"{key}/kernel"] = np.array(case.plan(backops.plan, dtype=dtype).kernel)
    np.savez(path, **results)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each level, what every case and dtype gave and the kernel that made it."""
    folder = tmp_path_factory.mktemp("isa")
    loaded = {}
    for level in LEVELS:
        path = folder / f"{level}.npz"
        run_python(
            f"from tests.pool.test_isa import dump_results; dump_results({str(path)!r})",
            BACKOPS_ISA=level,
        )
        with np.load(path) as arrays:
            loaded[level] = {name: arrays[name] for name in arrays.files}
    return loaded


def cpu_flags():
    with open("/proc/cpuinfo") as lines:
        return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def differences(expected, actual):
    """The names of results that differ in a bit, or that only one side has."""
    names = {name for name in expected.keys() | actual.keys() if not name.endswith("/kernel")}
    return sorted(
        name
        for name in names
        if name not in expected
        or name not in actual
        or not np.array_equal(expected[name], actual[name])
    )


@pytest.mark.parametrize("level", LEVELS[1:])
def test_results_are_those_of_generic_in_every_bit(results, level):
    assert differences(results["generic"], results[level]) == []


def test_results_cover_every_case_and_are_not_all_zero_or_nan(results):
    values = {k: v for k, v in results["generic"].items() if not k.endswith("/kernel")}
    assert len(values) == len(both_ways(load_cases())) * len(DTYPES)
    for name, bits in values.items():
        dtype = DTYPES[name.rpartition("/")[2]]
        numbers = bits.view(dtype).astype(np.float64)
        assert np.isfinite(numbers).all(), name
        assert numbers.any() or numbers.size == 0, name


def test_comparison_catches_one_bit_and_one_missing_result(results):
    changed = dict(results["generic"])
    changed["overlap_2d/float32"] = changed["overlap_2d/float32"].copy()
    changed["overlap_2d/float32"].reshape(-1)[100] ^= 1
    assert differences(results["generic"], changed) == ["overlap_2d/float32"]
    del changed["overlap_2d/float32"]
    assert differences(results["generic"], changed) == ["overlap_2d/float32"]
    assert differences(changed, results["generic"]) == ["overlap_2d/float32"]


def test_kernels_stay_within_the_level_asked_for(results):
    kernels = {
        level: {str(v) for k, v in arrays.items() if k.endswith("/kernel")}
        for level, arrays in results.items()
    }
    assert not any("avx" in kernel or "neon" in kernel for kernel in kernels["generic"])
    if "neon" in LEVELS:
        assert any("neon" in kernel for kernel in kernels["neon"])
        return
    assert not any("avx512" in kernel for kernel in kernels["avx2"])
    if "avx2" in cpu_flags():
        assert any("avx2" in kernel for kernel in kernels["avx2"])
    if "avx512bw" in cpu_flags():
        assert any("avx512" in kernel for kernel in kernels["avx512"])


@pytest.mark.parametrize("value", ["sse9", "AVX2", "avx2,avx512", "0"])
def test_unknown_level_is_refused_at_import(value):
    done = run_python("import backops", check=False, BACKOPS_ISA=value)
    assert done.returncode != 0
    message = done.stderr.strip().splitlines()[-1]
    assert "ParamError" in message
    for word in ("BACKOPS_ISA", value, *LEVELS):
        assert word in message


def test_empty_level_means_no_limit():
    code = "import backops.plan as p; print(p.avg_pool2d_backward((1, 1, 64, 64), 2).kernel)"
    unset = run_python(code, BACKOPS_ISA=None).stdout
    assert run_python(code, BACKOPS_ISA="").stdout == unset
