"""Products: what is legal on each, and their names.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import pytest

from backops import acl
from backops.acl import Status
from tests.support.acl import PRODUCTS, Format, Spec, initialised
from tests.support.acl_calls import (
    ALL,
    BF16,
    FLOAT,
    HALF,
    INVALID,
    NOT_FOUND,
    WITH_BF16,
    WITH_POOL,
    adaptive2d,
    adaptive3d,
    conv,
    forward_adaptive2d,
    forward_adaptive3d,
    forward_conv,
    forward_global_of,
    forward_pool2d,
    forward_pool3d,
    global_of,
    one,
    pool2d,
    pool3d,
    reshaped,
    retyped,
    transposed_of,
    with_all,
)

OK = [
    *[(call, ALL, {}) for call in (pool3d, adaptive3d, adaptive2d, conv)],
    (pool2d, WITH_POOL, {}),
    (pool2d, WITH_POOL, {"stride": None}),
    (pool2d, WITH_POOL, {"stride": []}),
    (pool2d, WITH_POOL, {"kernelSize": [2], "stride": [2], "padding": [0]}),
    *[
        (
            pool2d,
            WITH_POOL,
            {
                "gradOutput": Spec((3, 4, 4), HALF, own),
                "self": Spec((3, 8, 8), HALF, others),
                "gradInput": Spec((3, 8, 8), HALF, others),
            },
        )
        for own in (Format.NCL, Format.NCHW)
        for others in (Format.NCL, Format.NCHW)
    ],
    (pool2d, WITH_POOL, {"cubeMathType": 1}),
    (pool2d, WITH_POOL, {"cubeMathType": 2}),
    (pool2d, WITH_POOL, {"divisorOverride": -255}),
    (pool2d, ("A2", "A3", "950"), {"divisorOverride": -(1 << 63)}),
    (pool2d, ("A2", "A3", "950"), with_all(pool2d, dtype=BF16)),
    (pool2d, WITH_POOL, with_all(pool2d, dtype=FLOAT) | {"cubeMathType": 1}),
    (pool2d, ("A2", "A3", "950"), with_all(pool2d, dtype=FLOAT) | {"cubeMathType": 3}),
    *[
        (pool2d, ("950",), with_all(pool2d, dtype=dtype) | {"cubeMathType": mode})
        for dtype in (FLOAT, HALF, BF16)
        for mode in (0, 1, 2, 3)
    ],
    (pool2d, ("950",), global_of(FLOAT) | {"cubeMathType": 3}),
    (pool2d, ("950",), global_of(BF16) | {"cubeMathType": 1}),
    (
        pool2d,
        WITH_POOL,
        {"gradInput": Spec((2, 3, 8, 8), HALF, strides=(192, 64, 8, -1), offset=7)},
    ),
    (adaptive3d, ("A2", "A3", "950", "200I"), with_all(adaptive3d, dtype=BF16)),
    (adaptive3d, ALL, with_all(adaptive3d, format=Format.ND)),
    (adaptive3d, ALL, {name: Spec((3, 4, 4, 4)) for name in adaptive3d.tensors}),
    *[(adaptive2d, ALL, with_all(adaptive2d, format=f)) for f in (Format.NHWC, Format.NCL)],
    (
        adaptive2d,
        ALL,
        {name: Spec((3, 4, 4), format=Format.NHWC) for name in adaptive2d.tensors},
    ),
    (adaptive2d, ALL, one(adaptive2d, "out", format=Format.NHWC)),
    *[
        (adaptive2d, ALL, reshaped(adaptive2d, gradOutput=shape))
        for shape in ((2, 3, 0, 4), (2, 3, 4, 0), (2, 3, 0, 0))
    ],
    *[
        (adaptive2d, ALL, reshaped(adaptive2d, gradOutput=small, self=large, out=large))
        for small, large in (((0, 3, 3, 4), (0, 3, 8, 8)), ((2, 0, 3, 4), (2, 0, 8, 8)))
    ],
    *[(conv, ALL, {"biasSizes": sizes}) for sizes in (None, [], [3], [4, 4])],
    *[(conv, ALL, {"cubeMathType": mode}) for mode in (1, 2, 3)],
    *[
        (conv, ("A2", "A3", "950", "200I"), with_all(conv, dtype=BF16) | {"cubeMathType": mode})
        for mode in (0, 1, 2, 3)
    ],
    *[(conv, ALL, {"padding": padding}) for padding in ([1], [1, 1], [1, 1, 1, 1], [2, 0, 0, 2])],
    (
        conv,
        ALL,
        {"outputMask": [False] * 3, "gradInput": None, "gradWeight": None, "gradBias": None},
    ),
    (
        conv,
        ALL,
        reshaped(conv, gradOutput=(0, 4, 8, 8), input=(0, 3, 8, 8), gradInput=(0, 3, 8, 8)),
    ),
    (conv, ALL, {"outputMask": [True, False, False], "gradWeight": None, "gradBias": None}),
    *[
        (call, products, how | with_dtype | {"cubeMathType": mode})
        for call in (conv, forward_conv)
        for how in ({}, transposed_of(call))
        for products, dtype, mode in (
            *[(ALL, HALF, mode) for mode in (0, 1, 2, 3)],
            *[(WITH_BF16, BF16, mode) for mode in (0, 1, 2, 3)],
            *[(ALL, FLOAT, mode) for mode in (1, 2)],
            *[(WITH_BF16, FLOAT, mode) for mode in (0, 3)],
        )
        for with_dtype in (retyped(call, how, dtype),)
    ],
    *[
        (call, ALL, {})
        for call in (forward_conv, forward_pool3d, forward_adaptive2d, forward_adaptive3d)
    ],
    *[
        (call, WITH_BF16, with_all(call, dtype=BF16))
        for call in (forward_pool3d, forward_adaptive2d, forward_adaptive3d)
    ],
    *[
        (forward_pool2d, WITH_POOL, changes)
        for changes in (
            {},
            {"strides": None},
            {"strides": []},
            {"kernelSize": [2], "strides": [2], "paddings": [0]},
            {"cubeMathType": 1},
            {"cubeMathType": 2},
            {"divisorOverride": -255},
            with_all(forward_pool2d, dtype=FLOAT) | {"cubeMathType": 1},
            {
                "self": Spec((3, 8, 8), HALF, Format.NCL),
                "out": Spec((3, 4, 4), HALF, Format.NCL),
            },
        )
    ],
    *[
        (forward_pool2d, ("A2", "A3", "950"), changes)
        for changes in (
            {"divisorOverride": -(1 << 63)},
            with_all(forward_pool2d, dtype=BF16),
            with_all(forward_pool2d, dtype=FLOAT) | {"cubeMathType": 3},
        )
    ],
    *[
        (forward_pool2d, ("950",), with_all(forward_pool2d, dtype=dtype) | {"cubeMathType": mode})
        for dtype in (FLOAT, HALF, BF16)
        for mode in (0, 1, 2, 3)
    ],
    (forward_pool2d, ("950",), forward_global_of(FLOAT) | {"cubeMathType": 3}),
    (forward_pool3d, ALL, {"stride": None, "divisorOverride": -(1 << 63)}),
    (forward_pool3d, ALL, with_all(forward_pool3d, format=Format.ND)),
    (forward_adaptive3d, ALL, {"self": Spec((3, 8, 8, 8)), "out": Spec((3, 2, 3, 4))}),
    *[
        (forward_adaptive2d, ALL, with_all(forward_adaptive2d, format=format))
        for format in (Format.NHWC, Format.NCL, Format.ND)
    ],
    *[
        (
            forward_adaptive2d,
            ALL,
            reshaped(forward_adaptive2d, self=large, out=(*large[:2], *size))
            | {"outputSize": size},
        )
        for large, size in (((0, 3, 8, 8), [3, 4]), ((2, 0, 8, 8), [3, 4]), ((2, 3, 8, 8), [0, 4]))
    ],
    (forward_conv, ALL, {"bias": None}),
    *[
        (forward_conv, ALL, {"padding": padding})
        for padding in ([1], [1, 1], [1, 1, 1, 1], [2, 0, 0, 2])
    ],
    (forward_conv, ALL, reshaped(forward_conv, input=(0, 3, 8, 8), output=(0, 4, 8, 8))),
    (forward_conv, ALL, reshaped(forward_conv, input=(3, 8, 8), output=(4, 8, 8))),
    *[(forward_conv, ALL, with_all(forward_conv, format=f)) for f in (Format.ND, Format.NCDHW)],
    (
        forward_conv,
        ALL,
        {"output": Spec((2, 4, 8, 8), HALF, strides=(256, 64, 8, -1), offset=7)},
    ),
]


@pytest.mark.parametrize("product", PRODUCTS)
def test_what_is_legal(product):
    with initialised(PRODUCTS[product]):
        for call, products, changes in OK:
            if product in products:
                status = call(**changes)
                assert status == Status.SUCCESS, (changes, acl.aclGetRecentErrMsg())


# What only one series refuses, or alone takes.
SERIES = {
    "Atlas A2": ("Ascend910B1", "Ascend910B2C", "Ascend910B4-1"),
    "Atlas A3": ("Ascend910_9391", "Ascend910_9372"),
    "Ascend 950": ("Ascend950", "Ascend950DT_9582"),
    "Atlas training series": (
        "Ascend910A",
        "Ascend910B",
        "Ascend910ProA",
        "Ascend910ProB",
        "Ascend910PremiumA",
    ),
    "Atlas inference series": ("Ascend310P1", "Ascend310P3"),
    "Atlas 200I/500 A2": ("Ascend310B1",),
}


@pytest.mark.parametrize(
    ("name", "series"), [(name, series) for series, names in SERIES.items() for name in names]
)
def test_names_of_products(name, series):
    with initialised(name):
        assert acl.aclrtGetSocName() == name
        # bfloat16, on those that have it with a mode it refuses.
        bfloat = adaptive3d(**with_all(adaptive3d, dtype=BF16))
        without = series in ("Atlas training series", "Atlas inference series")
        assert bfloat == (INVALID if without else Status.SUCCESS)
        status = pool2d(**global_of(BF16), cubeMathType=2)
        assert status == (NOT_FOUND if series == "Atlas 200I/500 A2" else INVALID)
        told = acl.aclGetRecentErrMsg()
        assert told.endswith(f" {series}") or f" is {series}, " in told


@pytest.mark.parametrize("name", ["Ascend910", "Ascend910ProC", "Ascend910Premium", "ascend910B1"])
def test_names_of_no_product(name, monkeypatch):
    monkeypatch.setenv("BACKOPS_SOC", name)
    assert acl.aclInit() == Status.INVALID_PARAM
    assert f"BACKOPS_SOC is '{name}', expected one of " in acl.aclGetRecentErrMsg()


def test_unknown_product(monkeypatch):
    monkeypatch.setenv("BACKOPS_SOC", "Ascend1")
    assert acl.aclInit() == Status.INVALID_PARAM
    message = acl.aclGetRecentErrMsg()
    assert message.startswith("aclInit: BACKOPS_SOC is 'Ascend1', expected one of Ascend910_93*")
    assert adaptive2d() == INVALID
    assert "BACKOPS_SOC is 'Ascend1'" in acl.aclGetRecentErrMsg()
    monkeypatch.delenv("BACKOPS_SOC")
    assert acl.aclInit() == Status.SUCCESS
    assert acl.aclFinalize() == Status.SUCCESS
