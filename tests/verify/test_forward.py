"""`backops verify` of forward operators and of transposed convolution: right, wrong, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backops
from backops import reference
from backops.__main__ import main
from backops._calls import OPERATORS, Call
from backops._command import CommandError, UsageError
from backops._verify import truth
from backops._verify.verify import Report, verify
from tests.support.floats import DTYPES
from tests.support.pool_cases import load_cases, make_grad


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def pool_call(dtype: str = "float32", **parameters: Any) -> Call:
    given = {"kernel_size": 3, "stride": 2, "padding": 1, **parameters}
    return Call("avg_pool2d", None, random((2, 3, 11, 11), dtype), None, given)


def adaptive_call(dtype: str = "float32", output_size: Any = (3, 4)) -> Call:
    parameters = {"output_size": output_size}
    return Call("adaptive_avg_pool2d", None, random((2, 3, 7, 9), dtype), None, parameters)


def conv_call(dtype: str = "float32", **parameters: Any) -> Call:
    return Call("conv", None, random((2, 4, 7, 7), dtype), random((6, 4, 3, 3), dtype, 1),
                {"padding": 1, **parameters}, random((6,), dtype, 2))  # fmt: skip


def transposed_call(dtype: str = "float32", **parameters: Any) -> Call:
    given = {"stride": 2, "padding": 1, "output_padding": 1, **parameters}
    return Call("conv_transpose", None, random((2, 6, 5, 5), dtype),
                random((6, 4, 3, 3), dtype, 1), given, random((4,), dtype, 2))  # fmt: skip


def transposed_backward_call(dtype: str = "float32", **parameters: Any) -> Call:
    given = {"stride": 2, "padding": 1, "output_padding": 1, **parameters}
    return Call("conv_transpose_backward", random((2, 4, 10, 10), dtype),
                random((2, 6, 5, 5), dtype, 1), random((6, 4, 3, 3), dtype, 2), given)  # fmt: skip


def grouped_call() -> Call:
    return Call("conv", None, random((2, 8, 9)), random((6, 4, 3), seed=1), {"groups": 2})


MAKERS = [pool_call, adaptive_call, conv_call, transposed_call, transposed_backward_call]
every_kind = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


def findings(report: Report) -> str:
    return "\n".join(text for tensor in report.tensors for text in tensor.findings)


# Right results


@pytest.mark.parametrize("dtype", DTYPES)
@every_kind
def test_own_results_are_right_without_a_remark(make: Any, dtype: str) -> None:
    call = make(dtype)
    report = verify(call, call.run(), "float32")
    assert report.is_right
    assert findings(report) == ""
    for tensor in report.tensors:
        assert 0 < tensor.times_allowed <= 1
        assert sum(count for _, _, count in tensor.ulp_histogram) == tensor.elements
    assert verify(call, call.run(), "cann").is_right


@every_kind
def test_rounded_reference_is_exact(make: Any) -> None:
    call = make("float16")
    slow = {name: array.astype(np.float16) for name, array in call.run(reference).items()}
    assert verify(call, slow, "exact").is_right
    last = list(slow)[-1]
    flat = slow[last].reshape(-1)
    flat[-1] = np.nextafter(flat[-1], np.float16(np.inf))
    assert not verify(call, slow, "exact").is_right


@every_kind
def test_large_and_small_truths_agree(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = make()
    for name in call.result_shapes():
        small = truth.truth_of(call, name, with_magnitudes=True)
        slow = list(small.blocks)
        with monkeypatch.context() as patch:
            patch.setattr(truth, "SMALL_POOL_OUTPUTS", 0)
            patch.setattr(truth, "SMALL_CONV_PRODUCTS", 0)
            patch.setattr(truth, "BLOCK_ELEMENTS", 300)
            large = truth.truth_of(call, name, with_magnitudes=True)
            fast = list(large.blocks)
        assert (small.source, large.source) == ("backops.reference", "the core in float64")
        for part in (1, 2):
            one = np.concatenate([np.ravel(block[part]) for block in slow])
            other = np.concatenate([np.ravel(block[part]) for block in fast])
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@every_kind
def test_magnitudes_and_terms_are_those_of_the_sums(make: Any) -> None:
    """With ones for every operand, the largest magnitude is the number of terms."""
    call = make(divisor_override=1) if make is pool_call else make()
    ones = {name: np.ones_like(tensor) for name, tensor in call.operands().items()}
    call = replace(call, **ones)
    for name in call.result_shapes():
        found = truth.truth_of(call, name, with_magnitudes=True)
        largest = max(float(np.max(block.magnitudes)) for block in found.blocks)
        if make is adaptive_call:
            assert largest == pytest.approx(1)
            assert found.terms == 3 * 3
        else:
            # Not every position in a kernel is met in a transposed convolution of stride 2.
            assert largest <= found.terms <= (2.25 if make is transposed_call else 1) * largest


@pytest.mark.parametrize("case", load_cases()[::3], ids=lambda case: case.name)
def test_planes_in_rows_agree_with_whole_planes(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("kernel_size", "stride", "padding")
    parameters = {**dict(zip(names, case.positional, strict=False)), **case.keywords}
    operator = case.function.removesuffix("_backward")
    if "adaptive" in operator:
        parameters = {"output_size": make_grad(case).shape[-case.rank :]}
    call = Call(operator, None, random(case.input_shape, "float64"), None, parameters)
    run = getattr(backops, operator)
    whole = list(truth.pool_blocks(call, run, True))
    monkeypatch.setattr(truth, "LARGE_PLANE_ELEMENTS", 0)
    monkeypatch.setattr(truth, "BLOCK_ELEMENTS", 7 * case.input_shape[-1])
    rows = list(truth.pool_blocks(call, run, True))
    for part in (1, 2):
        one = np.concatenate([np.zeros(0), *(np.ravel(block[part]) for block in whole)])
        other = np.concatenate([np.zeros(0), *(np.ravel(block[part]) for block in rows)])
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    ends = [block.position + block.values.size for block in rows]
    assert [block.position for block in rows] == [0, *ends][: len(rows)]


@every_kind
def test_pytorch_gives_the_same(make: Any) -> None:
    from backops._verify import pytorch  # needs PyTorch, which the other tests do not

    call = make()
    results = pytorch.run(call)
    assert results is not None
    assert verify(call, results).is_right
    unbatched = replace(call, **{
        name: tensor[0] for name, tensor in call.operands().items()
        if name in ("grad_output", "input")
    })  # fmt: skip
    again = pytorch.run(unbatched)
    assert again is not None
    assert verify(unbatched, again).is_right


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_kind
def test_specials_in_their_place_are_no_error(make: Any, value: float) -> None:
    call = make()
    first = next(iter(call.operands()))
    call = replace(call, **{first: np.full_like(call.source, value)})
    results = call.run()
    report = verify(call, results)
    assert report.is_right
    for tensor in report.tensors:
        assert tensor.times_allowed == tensor.times_limit == 0
        changed = {**results, tensor.name: results[tensor.name].copy()}
        changed[tensor.name].reshape(-1)[0] = 1
        (again,) = [each for each in verify(call, changed).tensors if each.name == tensor.name]
        assert again.wrong == 1
        assert again.times_allowed == np.inf


# Wrong results, and what would explain them


@pytest.mark.parametrize(
    ("call", "wrong", "words"),
    [
        (pool_call(), pool_call(count_include_pad=False), "with count_include_pad=False"),
        (pool_call(divisor_override=5), pool_call(), "without divisor_override"),
        (pool_call(count_include_pad=False), pool_call(), "with every window divided by 9"),
        (pool_call(), pool_call(divisor_override=1), "without a division"),
        (pool_call(), pool_call(precision="hf32"), "with precision='hf32'"),
        (pool_call(stride=4), pool_call(stride=4, padding=0), "with padding=0"),
        (conv_call(), replace(conv_call(), bias=None), "without the bias"),
        (conv_call(), replace(conv_call(), bias=2 * conv_call().bias), "with the bias added twice"),
        (conv_call(), replace(conv_call(), weight=conv_call().weight[:, :, ::-1, ::-1]),
         "with the kernel flipped"),
        (conv_call(), replace(conv_call(), weight=conv_call().weight.reshape(4, 6, 3, 3)
                              .swapaxes(0, 1)), "with the weight taken as (C_in, C_out, ...)"),
        (conv_call(stride=4), conv_call(stride=4, padding=0), "with padding=0"),
        (conv_call(stride=4, padding=(1, 0)), conv_call(stride=4, padding=(0, 1)),
         "with padding in the reverse order of axes"),
        (conv_call(stride=4, dilation=2), conv_call(stride=4), "with dilation=1"),
        (conv_call(), conv_call(precision="fp16"), "with precision='fp16'"),
        (transposed_call(), replace(transposed_call(), weight=transposed_call().weight
                                    .reshape(4, 6, 3, 3).swapaxes(0, 1)),
         "with the weight taken as (C_out, C_in, ...)"),
        (transposed_call(), replace(transposed_call(), bias=None), "without the bias"),
        (conv_call(precision="hf32"), conv_call(), "with precision='keep'"),
        (grouped_call(), replace(grouped_call(), weight=grouped_call().weight
                                 .reshape(2, 4, 3, 3).swapaxes(1, 2).reshape(6, 4, 3)),
         "with the weight taken as (C_in, C_out, ...)"),
        (transposed_call(), replace(transposed_call(),
                                    weight=transposed_call().weight[:, :, ::-1, ::-1]),
         "with the kernel flipped"),
        (transposed_backward_call(output_mask=(True, False, False)),
         replace(transposed_backward_call(output_mask=(True, False, False)),
                 weight=transposed_backward_call().weight[:, :, ::-1, ::-1]),
         "with the kernel flipped"),
    ],
)  # fmt: skip
def test_mistake_is_named(call: Call, wrong: Call, words: str) -> None:
    report = verify(call, wrong.run())
    assert not report.is_right
    assert f"it would be right {words}" in findings(report)


def test_other_mistakes_are_not_named() -> None:
    """A right result has no explanation; a wrong one only those under which it would be right."""
    wrong = replace(conv_call(), bias=None).run()
    shown = findings(verify(conv_call(), wrong))
    assert shown.count("it would be right") == 1
    noise = {"output": conv_call().run()["output"] + random((2, 6, 7, 7), seed=9)}
    assert "it would be right" not in findings(verify(conv_call(), noise))


@pytest.mark.parametrize("filled", ["at 0", "at the bias"])
def test_output_padding_left_out(filled: str) -> None:
    call = transposed_call()
    result = call.run()["output"]
    assert call.bias is not None
    fill = call.bias.reshape(-1, 1, 1) if filled == "at the bias" else 0
    result[:, :, -1:, :] = fill
    result[:, :, :, -1:] = fill
    shown = findings(verify(call, {"output": result}))
    assert "all wrong elements lie in what output_padding adds" in shown
    assert f"it would be right with what output_padding adds left {filled}" in shown
    assert shown.count("it would be right") == 1


@pytest.mark.parametrize(
    ("call", "wrong", "words"),
    [
        (pool_call(padding=0, kernel_size=2), pool_call(padding=0, kernel_size=2, ceil_mode=True),
         "ceil_mode=True"),
        (conv_call(stride=2), conv_call(stride=1, padding=2), "stride and padding exchanged"),
        (conv_call(stride=2), conv_call(), "stride=1"),
        (conv_call(stride=2, dilation=1), conv_call(dilation=2), "stride and dilation exchanged"),
        (conv_call(padding=2), conv_call(dilation=2), "padding and dilation exchanged"),
        (pool_call(kernel_size=(3, 5)), pool_call(kernel_size=(5, 3)),
         "kernel_size in the reverse order of axes"),
        (transposed_call(), transposed_call(output_padding=0), "output_padding=0"),
        (transposed_call(stride=(2, 3)), transposed_call(stride=(3, 2)),
         "stride in the reverse order of axes"),
        (adaptive_call(), adaptive_call(output_size=(4, 3)),
         "output_size in the reverse order of axes"),
    ],
)  # fmt: skip
def test_wrong_shape_is_explained(call: Call, wrong: Call, words: str) -> None:
    report = verify(call, wrong.run())
    assert not report.is_right
    assert f"it would have this shape with {words}" in findings(report).splitlines()


# Where


def test_windows_in_the_padding_are_named() -> None:
    call = pool_call()
    shown = findings(verify(call, pool_call(count_include_pad=False).run()))
    assert "all wrong elements lie in windows that reach into the padding" in shown
    result = conv_call().run()["output"]
    result[:, :, 0] += 1
    result[:, :, :, -1] += 1
    shown = findings(verify(conv_call(), {"output": result}))
    assert "all wrong elements lie in windows that reach into the padding" in shown
    result[:, :, 3, 3] += 1
    assert "padding" not in findings(verify(conv_call(), {"output": result}))


def test_last_windows_of_ceil_mode_are_named() -> None:
    call = Call("avg_pool2d", None, random((2, 3, 12, 12)), None,
                {"kernel_size": 3, "stride": 2, "ceil_mode": True})  # fmt: skip
    whole = replace(call, parameters={**call.parameters, "divisor_override": 9}).run()
    shown = findings(verify(call, whole))
    assert "the last, shorter windows of ceil_mode" in shown
    assert "with every window divided by 9" in shown


def test_axes_of_a_transposed_weight_have_their_names() -> None:
    call = transposed_backward_call(output_mask=(False, True, False))
    result = call.run()
    result["grad_weight"][5] *= 2
    assert "all wrong elements lie in input channel index 5 of 6" in findings(verify(call, result))


@pytest.mark.parametrize(
    ("call", "index", "words"),
    [
        (pool_call(), (1, 2, 0, 3), "sum of 6 elements: input[1, 2, 0:2, 5:8] / 9"),
        (pool_call(count_include_pad=False), (1, 2, 0, 3), "/ 6"),
        (adaptive_call(), (0, 1, 1, 3), "sum of 9 elements: input[0, 1, 2:5, 6:9] / 9"),
        (conv_call(), (1, 5, 0, 3), "sum of 24 products: input[1, 0:4, 0:2, 2:5] with their "
                                    "weights, and bias[5]"),
        (transposed_call(), (1, 3, 1, 2), "sum of 12 products: input[1, 0:6, 0:2, 1:2]"),
        (transposed_backward_call(output_mask=(True, False, False)), (0, 2, 0, 4),
         "sum of 24 products: grad_output[0, 0:4, 0:2, 7:10]"),
    ],
)  # fmt: skip
def test_worst_element_names_its_terms(call: Call, index: tuple[int, ...], words: str) -> None:
    result = call.run()
    (name,) = result
    result[name][index] += 100
    worst = verify(call, result).tensors[0].worst[0]
    assert worst.index == index
    assert words in worst.origin


# What is no call


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Call("conv", random((1, 6, 5, 5)), random((1, 4, 7, 7)), random((6, 4, 3, 3))),
         "conv has no grad_output"),
        (lambda: Call("conv", None, (1, 4, 7, 7), random((6, 4, 3, 3))), "input is a shape"),
        (lambda: Call("conv", None, random((1, 4, 7, 7)), (6, 4, 3, 3)), "weight is a shape"),
        (lambda: Call("conv", None, random((1, 4, 7, 7))), "conv needs a weight"),
        (lambda: Call("avg_pool1d", None, random((1, 4, 7)), None, {"kernel_size": 2},
                      random((4,))), "avg_pool1d has no bias"),
        (lambda: Call("avg_pool1d_backward", None, (1, 4, 7), None, {"kernel_size": 2}),
         "needs a grad_output"),
        (lambda: Call("adaptive_avg_pool1d", None, random((1, 4, 7))), "needs output_size"),
        (lambda: conv_call(output_padding=1), "conv has no output_padding"),
        (lambda: conv_call(dilation=9).result_shapes(), "spans"),
        (lambda: transposed_call(output_padding=2).result_shapes(), "output_padding"),
        (lambda: adaptive_call(output_size=(1, 2, 3)).result_shapes(), "output_size"),
    ],
)  # fmt: skip
def test_bad_call_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_core_that_disagrees_with_the_reference_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = pool_call()
    result = call.run()
    monkeypatch.setattr(truth, "SMALL_POOL_OUTPUTS", 0)
    right = backops.avg_pool2d
    monkeypatch.setattr(backops, "avg_pool2d", lambda *a, **k: right(*a, **k) * (1 + 1e-9))
    with pytest.raises(CommandError, match=r"disagrees with backops\.reference"):
        verify(call, result)


def test_every_operator_of_the_package_is_known() -> None:
    public = {name for name in backops.__all__ if callable(getattr(backops, name))}
    assert {name for name in public if "pool" in name or "conv" in name} == set(OPERATORS)


# The command


def test_command_checks_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = transposed_call()
    for name, array in call.operands().items():
        np.save(tmp_path / f"{name}.npy", array)
    result = call.run()["output"]
    np.save(tmp_path / "right.npy", result)
    result.tofile(tmp_path / "right.bin")
    np.save(tmp_path / "wrong.npy", replace(call, bias=None).run()["output"])
    arguments = ["verify", "conv_transpose", "--stride", "2", "--padding", "1"]
    arguments += ["--output-padding", "1"]
    for name in call.operands():
        arguments += [f"--{name}", str(tmp_path / f"{name}.npy")]
    assert main([*arguments, "--candidate", str(tmp_path / "right.npy")]) == 0
    assert main([*arguments, "--candidate", str(tmp_path / "right.bin")]) == 0
    assert main([*arguments, "--candidate", f"output={tmp_path / 'right.npy'}"]) == 0
    page = tmp_path / "page.html"
    wrong = ["--candidate", str(tmp_path / "wrong.npy"), "--report", str(page), "--json",
             str(tmp_path / "out.json")]  # fmt: skip
    capsys.readouterr()
    assert main([*arguments, *wrong]) == 1
    assert "it would be right without the bias" in capsys.readouterr().out
    assert "it would be right without the bias" in page.read_text()
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["grad_output_shape"] is None
    assert document["tensors"][0]["name"] == "output"
    assert main([*arguments[:-2], "--candidate", str(tmp_path / "right.npy")]) == 1  # without bias


@pytest.mark.parametrize("standard", ["exact", "cann", "cann-2026-04", "cann-L0", "cann-L2"])
def test_every_standard_takes_them(standard: str) -> None:
    for make in MAKERS:
        call = make()
        slow = {name: array.astype(np.float32) for name, array in call.run(reference).items()}
        assert verify(call, slow, standard).is_right, make.__name__
        assert not verify(
            call, {name: array * 1.5 for name, array in slow.items()}, standard
        ).is_right
