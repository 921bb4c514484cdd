"""Which engine a convolution is planned on, and what a plan tells of it."""

import pytest

import backops
import backops.plan
from tests.support import conv_choices
from tests.support.conv_cases import ConvCase
from tests.support.paths import TESTS

ENGINES = [name for name, _ in backops._native.conv_engines()]


on_x86 = pytest.mark.skipif(
    "avx2" not in backops._native.isa_levels(), reason="another architecture has other vectors"
)


@on_x86
def test_choices_are_those_written_down():
    written = (TESTS / "cases" / "conv_choices.txt").read_text(encoding="utf-8")
    assert conv_choices.choices().splitlines() == written.splitlines(), (
        "write them anew, and look at the diff: see tests/support/conv_choices.py"
    )


@on_x86
def test_every_engine_but_plain_is_chosen_somewhere():
    chosen = {
        step.split()[0]
        for cpu in conv_choices.CPUS
        for case in conv_choices.grid()
        for dtype in conv_choices.DTYPES
        for step in conv_choices.engine_of(case, dtype, cpu).split(" + ")
    }
    assert chosen == set(ENGINES) - {"plain"}
    # In float32, rows are those of an output product.
    assert " rows:" in backops.plan.conv((8, 3, 64, 64), (64, 3, 7, 7), stride=2).kernel


def test_why_has_a_line_for_each_engine():
    plan = backops.plan.conv_backward((8, 64, 28, 28), (64, 64, 3, 3), padding=1)
    lines = plan.why.splitlines()
    assert [line.partition(":")[0] for line in lines] == ENGINES
    chosen = [line for line in lines if ": chosen, " in line]
    assert len(chosen) == 1
    assert chosen[0].startswith("blocks: chosen, ")
    assert "million cycles" in chosen[0]
    assert "lanes: does not take one group" in plan.why
    assert "plain: " in lines[-1]


@pytest.mark.parametrize(
    ("shapes", "parameters", "engine"),
    [
        (((4, 64, 9, 9), (64, 1, 3, 3)), {"groups": 64}, "lanes"),
        (((4, 64, 9, 9), (64, 64, 3, 3)), {}, "blocks"),
        (((4, 3, 64, 64), (64, 3, 7, 7)), {}, "folded"),
        (((1, 1, 20000), (1, 1, 2)), {"stride": 5000, "dilation": 2}, "plain"),
    ],
)
def test_engine_is_part_of_the_kernels_name(shapes, parameters, engine):
    plan = backops.plan.conv_backward(*shapes, **parameters)
    assert plan.kernel.split()[1].split(":")[0] == engine
    assert f"{engine}: chosen" in plan.why


def test_forced_engine_is_the_one_that_runs(monkeypatch):
    case = ConvCase("small", (2, 4, 9, 9), (8, 2, 3, 3), padding=1, groups=2)
    for engine in ENGINES:
        monkeypatch.setenv("BACKOPS_ENGINE", engine)
        try:
            kernel = case.plan(backops.plan).kernel
        except backops.ParamError as error:
            assert engine in ("folded", "rows", "matrix", "pairs"), error  # noqa: PT017
            continue
        assert kernel.split()[1].split(":")[0] == engine


def test_nothing_to_multiply_says_so():
    plan = backops.plan.conv_backward((0, 3, 8, 8), (4, 3, 3, 3))
    assert plan.why == "nothing is multiplied"


@pytest.mark.parametrize("name", ["avx3", "AVX2"])
def test_unknown_capability_is_refused(name):
    with pytest.raises(backops.ParamError, match=name):
        backops._native.explain_conv(
            (1, 1, 8), (1, 1, 3), 1, 0, 1, 1, "float32", name, 32768, 1 << 20
        )


@pytest.mark.parametrize(("images", "together"), [(47, False), (48, True)])
def test_many_images_of_one_position_are_worked_on_like_columns(images, together):
    def explained(input_shape):
        cpu = "avx2 avx512 avx512_bf16", 32768, 1 << 20
        return backops._native.explain_conv(
            input_shape, (128, 256, 1, 1), 1, 0, 1, 1, "bfloat16", *cpu
        )

    one_by_one, columns = (images, 256, 1, 1), (1, 256, 1, images)
    assert (explained(one_by_one) == explained(columns)) is together
