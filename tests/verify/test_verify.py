"""`backops verify`: right results pass, and each kind of wrong one is caught and explained."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backops
from backops import reference
from backops.__main__ import main
from backops._calls import Call
from backops._command import CommandError
from backops._verify import compare, truth
from backops._verify.standards import make_standard
from backops._verify.verify import Report, verify
from tests.support import snippets
from tests.support.floats import DTYPES
from tests.support.paths import ROOT
from tests.support.pool_cases import load_cases, make_grad

PARAMETERS = {"kernel_size": 3, "stride": 2, "padding": 1}


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def pool_call(dtype: str = "float32", **parameters: Any) -> Call:
    return Call("avg_pool2d_backward", random((2, 3, 6, 6), dtype), (2, 3, 11, 11), None,
                {**PARAMETERS, **parameters})  # fmt: skip


def conv_call(dtype: str = "float32", **parameters: Any) -> Call:
    return Call("conv_backward", random((2, 6, 7, 7), dtype), random((2, 4, 7, 7), dtype, 1),
                random((6, 4, 3, 3), dtype, 2), {"padding": 1, **parameters})  # fmt: skip


def findings(report: Report) -> str:
    return "\n".join(text for tensor in report.tensors for text in tensor.findings)


# Right results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [pool_call, conv_call])
def test_own_results_are_right(make: Callable[[str], Call], dtype: str) -> None:
    call = make(dtype)
    report = verify(call, call.run(), "float32")
    assert report.is_right
    for tensor in report.tensors:
        assert tensor.wrong == 0
        assert sum(count for _, _, count in tensor.ulp_histogram) == tensor.elements
        assert 0 < tensor.times_allowed <= 1
        assert verify(call, call.run(), "cann").is_right


@pytest.mark.parametrize("name", ["float32", "exact", "allclose:1e-2,1e-6"])
def test_rounded_truth_is_right_by_every_standard(name: str) -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        call = pool_call(dtype)
        grad_input = reference.avg_pool2d_backward(*call.tensors(), **call.parameters)
        candidate = {"grad_input": grad_input.astype(DTYPES[dtype])}
        assert verify(call, candidate, name).is_right, dtype


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_named_cases(case: Any) -> None:
    grad = make_grad(case, kind="wide")
    call = Call(case.function, grad, case.input_shape, None, parameters_of(case))
    report = verify(call, call.run())
    assert report.is_right
    assert report.tensors[0].elements == np.prod(case.input_shape)


def test_large_and_small_truths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (pool_call(), conv_call(groups=1, stride=1)):
        for gradient in call.result_shapes():
            small = truth.truth_of(call, gradient, with_magnitudes=True)
            slow = list(small.blocks)
            with monkeypatch.context() as patch:
                patch.setattr(truth, "SMALL_POOL_OUTPUTS", 0)
                patch.setattr(truth, "SMALL_CONV_PRODUCTS", 0)
                patch.setattr(truth, "BLOCK_ELEMENTS", 300)
                large = truth.truth_of(call, gradient, with_magnitudes=True)
                fast = list(large.blocks)
            assert (small.source, large.source) == ("backops.reference", "the core in float64")
            for part in (1, 2):
                one = np.concatenate([np.ravel(block[part]) for block in slow])
                other = np.concatenate([np.ravel(block[part]) for block in fast])
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", load_cases()[::3], ids=lambda case: case.name)
def test_planes_in_rows_agree_with_whole_planes(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grad = make_grad(case)
    call = Call(case.function, grad, case.input_shape, None, parameters_of(case))
    whole = list(truth.pool_blocks(call, backops_operator(call), True))
    monkeypatch.setattr(truth, "LARGE_PLANE_ELEMENTS", 0)
    monkeypatch.setattr(truth, "BLOCK_ELEMENTS", 3 * case.input_shape[-1])
    rows = list(truth.pool_blocks(call, backops_operator(call), True))
    assert whole or 0 in case.input_shape
    for part in (1, 2):
        one = np.concatenate([np.zeros(0), *(np.ravel(block[part]) for block in whole)])
        other = np.concatenate([np.zeros(0), *(np.ravel(block[part]) for block in rows)])
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    ends = [block.position + block.values.size for block in rows]
    assert [block.position for block in rows] == [0, *ends][: len(rows)]


def backops_operator(call: Call) -> Any:
    return getattr(backops, call.operator)


def parameters_of(case: Any) -> dict[str, Any]:
    names = ("kernel_size", "stride", "padding")
    return {**dict(zip(names, case.positional, strict=False)), **case.keywords}


def test_blocks_of_any_size_give_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    call = pool_call()
    result = call.run()
    result["grad_input"][1, 2, 10, 3:7] += 1
    whole = verify(call, result)
    for size in (50, 121, 300):  # less than a plane, one, and some
        monkeypatch.setattr(truth, "BLOCK_ELEMENTS", size)
        parts = verify(call, result)
        assert parts.tensors[0].wrong_by_axis == whole.tensors[0].wrong_by_axis
        assert parts.tensors[0].ulp_histogram == whole.tensors[0].ulp_histogram
        assert parts.tensors[0].worst[0].index == whole.tensors[0].worst[0].index


def test_core_that_disagrees_with_the_reference_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = pool_call()
    result = call.run()
    monkeypatch.setattr(truth, "SMALL_POOL_OUTPUTS", 0)
    right = backops.avg_pool2d_backward
    monkeypatch.setattr(backops, "avg_pool2d_backward", lambda *a, **k: right(*a, **k) * (1 + 1e-9))
    with pytest.raises(CommandError, match=r"disagrees with backops\.reference"):
        verify(call, result)


# Wrong results


def test_flipped_count_include_pad() -> None:
    report = verify(pool_call(), pool_call(count_include_pad=False).run())
    assert not report.is_right
    assert "windows that reach into the padding" in findings(report)
    assert "it would be right with count_include_pad=False" in findings(report)


def test_wrong_last_window_of_ceil_mode() -> None:
    grad = random((2, 3, 6, 6))
    parameters = {"kernel_size": 3, "stride": 2, "ceil_mode": True}
    call = Call("avg_pool2d_backward", grad, (2, 3, 12, 12), None, parameters)
    # Divides the last windows by the whole kernel, as if what overhangs counted.
    wrong = Call("avg_pool2d_backward", grad, (2, 3, 12, 12), None,
                 {**parameters, "divisor_override": 9}).run()  # fmt: skip
    report = verify(call, wrong)
    assert not report.is_right
    assert "the last, shorter windows of ceil_mode" in findings(report)
    assert "with every window divided by 9" in findings(report)


@pytest.mark.parametrize("make", [pool_call, conv_call])
def test_one_changed_element(make: Callable[[], Call]) -> None:
    call = make()
    for name in call.result_shapes():
        result = {key: array.copy() for key, array in call.run().items()}
        flat = result[name].reshape(-1)
        flat[-2] = np.nextafter(flat[-2], np.float32(np.inf)) + np.abs(flat[-2])
        report = verify(call, result)
        wrong = {tensor.name: tensor.wrong for tensor in report.tensors}
        assert wrong == {key: int(key == name) for key in wrong}
        index = np.unravel_index(flat.size - 2, result[name].shape)
        assert f"the wrong element is {name}{[int(i) for i in index]}" in findings(report)


def test_not_a_number_in_another_place() -> None:
    grad = random((2, 3, 6, 6))
    grad[1, 0, 2, 3] = np.nan
    call = Call("avg_pool2d_backward", grad, (2, 3, 11, 11), None, PARAMETERS)
    right = call.run()["grad_input"]
    assert verify(call, {"grad_input": right}).is_right
    shifted = np.roll(right, 1, axis=3)
    report = verify(call, {"grad_input": np.where(np.isnan(shifted), np.nan, right)})
    tensor = report.tensors[0]
    assert not report.is_right
    assert tensor.missing_nans == 0
    assert tensor.unexpected_nans == np.count_nonzero(np.isnan(shifted) & ~np.isnan(right)) > 0
    report = verify(call, {"grad_input": np.nan_to_num(right)})
    assert report.tensors[0].missing_nans == np.isnan(right).sum()
    assert not report.is_right


def test_infinities_must_have_their_sign() -> None:
    grad = random((2, 3, 6, 6), "float16")
    grad[0, 0, 0, 0] = np.inf
    call = Call("avg_pool2d_backward", grad, (2, 3, 11, 11), None, PARAMETERS)
    right = call.run()["grad_input"]
    assert verify(call, {"grad_input": right}).is_right
    report = verify(call, {"grad_input": np.where(np.isinf(right), -right, right)})
    assert report.tensors[0].wrong_infinities == np.isinf(right).sum()
    assert not report.is_right


def test_result_too_large_for_the_dtype_must_be_infinite() -> None:
    grad = np.full((1, 1, 2, 2), 60000, np.float16)
    parameters = {"kernel_size": 2, "stride": 1, "divisor_override": 1}
    call = Call("avg_pool2d_backward", grad, (1, 1, 3, 3), None, parameters)
    result = call.run()["grad_input"]
    assert np.isinf(result[0, 0, 1, 1])
    assert verify(call, {"grad_input": result}).is_right
    result[0, 0, 1, 1] = np.finfo(np.float16).max
    assert not verify(call, {"grad_input": result}).is_right


def test_exchanged_axes() -> None:
    call = pool_call()
    report = verify(call, {"grad_input": call.run()["grad_input"].swapaxes(2, 3)})
    assert not report.is_right
    assert "with spatial axes 0 and 1 exchanged" in findings(report)
    wide = Call("avg_pool2d_backward", random((2, 3, 6, 4)), (2, 3, 11, 8), None, PARAMETERS)
    report = verify(wide, {"grad_input": wide.run()["grad_input"].swapaxes(2, 3)})
    assert not report.is_right
    assert "axes are exchanged" in findings(report)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (np.s_[:, :, 10, :], "the last row (height index 10)"),
        (np.s_[:, :, 0, :], "the first row (height index 0)"),
        (np.s_[:, :, :, 10], "the last column (width index 10)"),
        (np.s_[:, 2], "channel index 2 of 3"),
        (np.s_[:, :, :, 8:], "width indices 8 to 10 (the last 3 of 11)"),
        (np.s_[:, :, 1::3, :], "height indices 1 to 10 in steps of 3"),
        (np.s_[:, :, [0, 0, 10, 10], [0, 10, 0, 10]], "in the corners of the planes"),
    ],
)
def test_place_of_errors_is_named(place: Any, words: str) -> None:
    call = pool_call()
    result = call.run()
    result["grad_input"][place] *= 2
    assert words in findings(verify(call, result))


def test_border_and_whole_tensor_are_told_apart() -> None:
    call = Call("avg_pool2d_backward", random((2, 3, 6, 6)), (2, 3, 12, 12), None,
                {"kernel_size": 2})  # fmt: skip
    result = call.run()["grad_input"]
    border = result.copy() * 2
    border[:, :, 1:-1, 1:-1] = result[:, :, 1:-1, 1:-1]
    assert "on the border of the planes" in findings(verify(call, {"grad_input": border}))
    doubled = findings(verify(call, {"grad_input": result * 2}))
    assert "all elements are wrong" in doubled
    assert "2 times what it should be" in doubled
    assert "all zeros" in findings(verify(call, {"grad_input": result * 0}))


def test_flipped_kernel_of_a_convolution() -> None:
    call = conv_call(output_mask=(True, False, False))
    assert isinstance(call.weight, np.ndarray)
    weight = np.ascontiguousarray(call.weight[:, :, ::-1, ::-1])
    flipped = Call(call.operator, call.grad_output, call.input, weight, call.parameters)
    assert "with the kernel flipped" in findings(verify(call, flipped.run()))


def test_sums_in_float16_are_not_float32() -> None:
    rng = np.random.default_rng(5)
    grad = rng.uniform(0.5, 1.5, (1, 8, 32, 32)).astype(np.float16)
    call = Call("conv_backward", grad, (1, 4, 32, 32), (8, 4, 1, 1),
                {"output_mask": (False, False, True)})  # fmt: skip
    slow = np.zeros(8, np.float16)
    for row in grad.reshape(8, -1).T:
        slow += row
    assert verify(call, call.run()).is_right
    assert not verify(call, {"grad_bias": slow}).is_right


def test_worst_element_names_its_window() -> None:
    call = pool_call(divisor_override=4)
    result = call.run()
    result["grad_input"][1, 2, 1, 1] += 1
    worst = verify(call, result).tensors[0].worst[0]
    assert worst.index == (1, 2, 1, 1)
    places = [(1, 2, 0, 0), (1, 2, 0, 1), (1, 2, 1, 0), (1, 2, 1, 1)]
    assert worst.origin.count(" / 4") == 4
    for place in places:
        assert f"grad_output{list(place)}" in worst.origin
    total = sum(float(call.grad_output[place]) for place in places) / 4
    assert worst.truth == pytest.approx(total, rel=1e-12)


# Standards


def test_ulps_count_values_of_the_dtype() -> None:
    one = np.array([1.0, -1.0, 0.0, 1e-45, 5.0], np.float32)
    other = np.array([1.0, -1.0, -0.0, -1e-45, 5.0], np.float32)
    other[0] = np.nextafter(np.float32(1), np.float32(2))
    other[1] = np.nextafter(np.nextafter(np.float32(-1), np.float32(0)), np.float32(0))
    steps = compare.steps_between(one.view(np.int32), other.view(np.int32))
    assert steps.tolist() == [1, 2, 0, 2, 0]


def test_exact_is_stricter_than_float32() -> None:
    call = pool_call()
    result = call.run()
    result["grad_input"][0, 0, 0, 0] = np.nextafter(result["grad_input"][0, 0, 0, 0], np.float32(9))
    assert verify(call, result, "float32").is_right
    assert not verify(call, result, "exact").is_right


def test_allclose_is_that_of_numpy() -> None:
    call = pool_call()
    wanted = reference.avg_pool2d_backward(*call.tensors(), **call.parameters)
    for factor in (0.9, 1.1):
        got = (wanted * (1 + factor * 1e-3)).astype(np.float32)
        expected = np.allclose(got, wanted, rtol=1e-3, atol=1e-12)
        assert verify(call, {"grad_input": got}, "allclose:1e-3,1e-12").is_right == expected


@pytest.mark.parametrize(
    "text", ["nonsense", "allclose", "allclose:1", "allclose:-1,0", "cann-L3", "CANN"]
)
def test_unknown_standard(text: str) -> None:
    with pytest.raises(CommandError, match="is not a standard"):
        make_standard(text, np.dtype(np.float32))


# The command

SUITE = ["verify", "--suite", "default", "--jobs", "1"]


def files(tmp_path: Path) -> list[str]:
    call = pool_call()
    np.save(tmp_path / "g.npy", call.grad_output)
    np.save(tmp_path / "right.npy", call.run()["grad_input"])
    np.save(tmp_path / "wrong.npy", call.run()["grad_input"] * 2)
    call.run()["grad_input"].tofile(tmp_path / "right.bin")
    return [
        "verify", "avg_pool2d_backward", "--grad-output", str(tmp_path / "g.npy"), "--input",
        "2,3,11,11", "--kernel-size", "3", "--stride", "2", "--padding", "1",
    ]  # fmt: skip


def test_command_tells_right_from_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files(tmp_path)
    assert main([*arguments, "--candidate", str(tmp_path / "right.npy")]) == 0
    assert "grad_input: right by float32" in capsys.readouterr().out
    assert main([*arguments, "--candidate", str(tmp_path / "right.bin")]) == 0
    assert main([*arguments, "--candidate", str(tmp_path / "wrong.npy")]) == 1
    shown = capsys.readouterr().out
    assert "grad_input: wrong by float32" in shown
    assert "every element is 2 times what it should be" in shown


def test_command_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*files(tmp_path), "--candidate", str(tmp_path / "wrong.npy"), "--json"]
    assert main([*arguments, "-"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["is_right"] is False
    assert document["tensors"][0]["wrong"] == 726
    assert main([*arguments, str(tmp_path / "out.json")]) == 1
    assert json.loads((tmp_path / "out.json").read_text()) == document


def test_command_checks_gradients_of_a_convolution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = conv_call()
    arrays = {"g": call.grad_output, "x": call.input, "w": call.weight}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "all.npz", **call.run())
    np.save(tmp_path / "gb.npy", call.run()["grad_bias"] + 1)
    arguments = ["verify", "conv_backward", "--padding", "1"]
    for option, name in (("--grad-output", "g"), ("--input", "x"), ("--weight", "w")):
        arguments += [option, str(tmp_path / f"{name}.npy")]
    assert main([*arguments, "--candidate", str(tmp_path / "all.npz")]) == 0
    assert capsys.readouterr().out.count("right by float32") == 3
    assert main([*arguments, "--candidate", f"grad_bias={tmp_path}/gb.npy"]) == 1
    assert "conv_backward grad_bias: wrong" in capsys.readouterr().out
    assert main([*arguments, "--candidate", str(tmp_path / "gb.npy")]) == 2
    assert "say which gradient" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify"], "OPERATOR is required"),
        (["verify", "avg_pool2d_backward"], "--grad-output is required"),
        (["verify", "--jobs", "2"], "--jobs goes with --suite"),
        (["verify", "--suite", "default"], "needs either --candidate"),
        (["verify", "--suite", "default", "--input", "1"], "--input does not go with --suite"),
        (["verify", "--suite", "x.txt", "--candidate", "backops"], "expected a .json or .csv"),
        ([*SUITE, "--candidate", "no_such_module"], "cannot be imported"),
        ([*SUITE, "--library", "/no/such.so"], "cannot be loaded"),
        ([*SUITE, "--candidate", "json:nix"], "has no function 'nix'"),
    ],
)
def test_what_cannot_be_checked_is_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("backops verify: ")
    assert shown.count("\n") == 1


def test_missing_candidate_and_bad_standard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path)
    assert main(arguments) == 2
    assert main([*arguments, "--candidate", "nix.npy"]) == 2
    assert main([*arguments, "--candidate", str(tmp_path / "g.npy"), "--standard", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    # A shape that does not fit is a wrong result, not wrong usage.
    assert main([*arguments, "--candidate", str(tmp_path / "g.npy")]) == 1


def test_readme_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Kernel")[2]
    shell, shown = snippets.blocks_of(section)[:2]
    monkeypatch.chdir(tmp_path)
    _, run, check = shell.text.replace("\\\n", "").strip().split("\n")
    np.save("grad.npy", np.linspace(1, 2, 96, dtype="float16").reshape(2, 3, 4, 4))
    assert main(shlex.split(run)[1:]) == 0
    capsys.readouterr()
    assert main(shlex.split(check.partition("||")[0])[1:]) == 1
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in shown.text.splitlines() if line != "..."]
    assert len(lines) > 5
    places = [printed.index(line) for line in lines]
    assert places == sorted(places)
