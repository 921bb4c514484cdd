"""What tests/jax/test_sharding.py runs on four devices; each check compares with one device."""

import functools
import re
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import backops.jax

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RANDOM.standard_normal(shape), jnp.float32)


def pool(name, *arguments, **keywords):
    function = getattr(backops.jax, name)
    return lambda x: function(x, *arguments, **keywords)


def conv(**keywords):
    return lambda x, *weights: backops.jax.conv(x, *weights, **keywords)


def conv_transpose(**keywords):
    return lambda x, *weights: backops.jax.conv_transpose(x, *weights, **keywords)


# Function, x, and the weights that every device has whole.
PROBLEMS = {
    "avg_pool1d": (pool("avg_pool1d", 3, 2, 1), normal(8, 4, 11)),
    "avg_pool2d": (pool("avg_pool2d", 3, 2, 1, ceil_mode=True), normal(8, 4, 9, 8)),
    "avg_pool3d": (pool("avg_pool3d", 2, count_include_pad=False), normal(8, 4, 4, 6, 4)),
    "global": (pool("avg_pool2d", 8), normal(8, 4, 8, 8)),
    "adaptive": (pool("adaptive_avg_pool2d", (3, 5)), normal(8, 4, 8, 9)),
    "conv1d": (conv(), normal(8, 3, 10), normal(5, 3, 3)),
    "conv2d": (conv(stride=2, padding=1), normal(8, 4, 8, 8), normal(6, 4, 3, 3), normal(6)),
    "depthwise": (conv(padding=1, groups=4), normal(8, 4, 6, 7), normal(4, 1, 3, 3), normal(4)),
    "groups": (conv(groups=2), normal(8, 4, 6, 7), normal(6, 2, 3, 3)),
    "transpose": (conv_transpose(stride=2), normal(8, 4, 5, 6), normal(4, 3, 3, 3), normal(3)),
}

# Those that are checked in every way, one of each rule for splits. The others take ways in turn.
THOROUGH = ("avg_pool2d", "conv2d", "depthwise", "transpose")


def in_turn(problem, ways):
    """All of the ways for a thorough problem, one for another: the next one each time."""
    number = list(PROBLEMS).index(problem)
    return ways if problem in THOROUGH else [ways[number % len(ways)]]


def run_checks():
    """Runs all checks, and ends with the names of those that failed."""
    failed = []
    for name, check in CHECKS.items():
        try:
            check()
        except Exception:
            traceback.print_exc()
            failed.append(name)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


def loss(function, *operands):
    return jnp.sin(function(*operands)).sum()


@functools.cache
def gradients(problem, of=loss):
    """On one device."""
    function, *operands = PROBLEMS[problem]
    gradient = jax.grad(functools.partial(of, function), tuple(range(len(operands))))
    return jax.jit(gradient)(*operands)


def second_order(function, *operands):
    """A loss that holds a gradient."""
    grads = jax.grad(functools.partial(loss, function), tuple(range(len(operands))))(*operands)
    return sum((grad**2).sum() for grad in grads)


def assert_same(got, expected, what):
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape, what
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * abs(b).max(), err_msg=str(what))


def put(mesh, split, *operands):
    """The operands on a mesh, the first one split."""
    specs = split, *(P() for _ in operands[1:])
    return [
        jax.device_put(operand, NamedSharding(mesh, spec))
        for operand, spec in zip(operands, specs, strict=True)
    ]


# jax.shard_map


def check_shard_map():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    for problem, (function, *operands) in PROBLEMS.items():
        expected = gradients(problem)
        numbers = tuple(range(len(operands)))
        for axes in in_turn(problem, (("a",), ("a", "b"))):
            specs = P(axes), *(P() for _ in operands[1:])

            def local(*parts, axes=axes, function=function):
                return jax.lax.psum(loss(function, *parts), axes)

            outside = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P())
            got = jax.jit(jax.grad(outside, numbers))(*operands)
            assert_same(got, expected, (problem, axes, "grad outside"))
            inside = jax.grad(local, numbers)
            inside = jax.shard_map(inside, mesh=mesh, in_specs=specs, out_specs=specs)
            assert_same(jax.jit(inside)(*operands), expected, (problem, axes, "grad inside"))
        # Slow: each operation is compiled on its own.
        if problem in ("avg_pool2d", "conv2d"):
            assert_same(inside(*operands), expected, (problem, "not compiled"))


def check_shard_map_second_order():
    """Gradients of gradients: in shard_map, and on explicit axes."""
    mesh = jax.make_mesh((2,), ("a",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    function, x = PROBLEMS["avg_pool2d"]
    local = functools.partial(second_order, function)
    mapped = jax.shard_map(
        lambda x: jax.lax.psum(local(x), "a"), mesh=mesh, in_specs=P("a"), out_specs=P()
    )
    assert_same([jax.jit(jax.grad(mapped))(x)], [jax.grad(local)(x)], "shard_map")
    mesh = jax.make_mesh((2,), ("a",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])
    for problem in ("avg_pool2d", "conv2d", "depthwise"):
        function, *operands = PROBLEMS[problem]
        expected = gradients(problem, second_order)
        with jax.set_mesh(mesh):
            local = functools.partial(second_order, function)
            got = jax.jit(jax.grad(local, tuple(range(len(operands)))))(
                *put(mesh, P("a"), *operands)
            )
            assert_same(got, expected, problem)


def check_shard_map_of_everything():
    """Both the batch and the weights differ from device to device, along different axes."""
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    function, x, weight, bias = PROBLEMS["conv2d"]
    weights, biases = jnp.stack([weight, 2 * weight]), jnp.stack([bias, -bias])

    def plain(x, weights, biases):
        return sum(loss(function, x, w, b) for w, b in zip(weights, biases, strict=True))

    def local(x, weights, biases):
        return jax.lax.psum(loss(function, x, weights[0], biases[0]), ("a", "b"))

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P("a"), P("b"), P("b")), out_specs=P())
    operands = x, weights, biases
    expected = jax.jit(jax.grad(plain, (0, 1, 2)))(*operands)
    assert_same(jax.jit(jax.grad(mapped, (0, 1, 2)))(*operands), expected, "everything")
    # One gradient at a time, and vmap inside.
    for i in range(3):
        assert_same([jax.jit(jax.grad(mapped, i))(*operands)], [expected[i]], i)

    def mapped_twice(x, weight):
        one = jax.vmap(lambda x: loss(conv(stride=2, padding=1), x, weight))
        return jax.lax.psum(one(x).sum(), "a")

    mapped = jax.shard_map(mapped_twice, mesh=mesh, in_specs=(P("a"), P()), out_specs=P())
    plain = functools.partial(loss, conv(stride=2, padding=1))
    got, expected = (jax.jit(jax.grad(f, (0, 1)))(x, weight) for f in (mapped, plain))
    assert_same(got, expected, "vmap")


# Meshes of explicit axes


def check_explicit():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    for problem, (function, *operands) in PROBLEMS.items():
        expected = gradients(problem)
        gradient = jax.grad(functools.partial(loss, function), tuple(range(len(operands))))
        with jax.set_mesh(mesh):
            for split in in_turn(problem, (P(), P(("a", "b")), P("a", "b"))):
                if operands[0].shape[1] % 2:
                    split = P(*split[:1])
                given = put(mesh, split, *operands)
                got = jax.jit(gradient)(*given)
                assert_same(got, expected, (problem, split))
                kinds = [jax.typeof(g).sharding.spec for g in got]
                assert kinds == [jax.typeof(g).sharding.spec for g in given], (problem, split)
            if problem in ("avg_pool2d", "conv2d"):
                assert_same(gradient(*given), expected, (problem, "not compiled"))


def assert_in_parts(function, given, what):
    """Each device computes its own part: nothing is gathered, no call sees the whole batch of 8.

    What was compiled, to be called.
    """
    compiled = jax.jit(function).lower(*given).compile()
    text = compiled.as_text()
    assert "all-gather" not in text, what
    calls = re.findall(r"= (.*) custom-call\(.*backops_", text)
    assert calls, what
    assert not any(re.search(r"\[8,", call) for call in calls), (what, calls)
    return compiled


def check_explicit_parts():
    mesh = jax.make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        for problem, (function, *operands) in PROBLEMS.items():
            given = put(mesh, P("a"), *operands)
            assert jax.typeof(function(*given)).sharding.spec[0] == "a", problem
            gradient = jax.grad(functools.partial(loss, function), tuple(range(len(given))))
            assert_in_parts(function, given, problem)
            assert_in_parts(gradient, given, problem)


def check_explicit_bias():
    """The gradient of a bias alone, and what it changes."""
    mesh = jax.make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))
    function, x, weight, bias = PROBLEMS["conv2d"]

    def change(x, weight, bias):
        return jax.jvp(lambda bias: function(x, weight, bias), (bias,), (bias,))

    gradient = jax.grad(functools.partial(loss, function), 2)
    expected = *change(x, weight, bias), gradient(x, weight, bias)
    with jax.set_mesh(mesh):
        given = put(mesh, P("a"), x, weight, bias)
        got = *jax.jit(change)(*given), jax.jit(gradient)(*given)
        assert_same(got, expected, "bias")
        assert jax.typeof(got[1]) == jax.typeof(got[0])


def check_explicit_others():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Auto))
    function, *operands = PROBLEMS["conv2d"]
    expected = gradients("conv2d")
    gradient = jax.grad(functools.partial(loss, function), (0, 1, 2))
    with jax.set_mesh(mesh):
        got = jax.jit(gradient)(*put(mesh, P("a"), *operands))
        assert_same(got, expected, "one axis explicit")
        # Splits that convolution cannot keep: of space, and of the weight.
        got = jax.jit(gradient)(*put(mesh, P(None, None, "a"), *operands))
        assert_same(got, expected, "space")
        x, _, bias = put(mesh, P("a"), *operands)
        (weight,) = put(mesh, P("a"), operands[1])
        assert_same(jax.jit(gradient)(x, weight, bias), expected, "weight")
    # Without a batch.
    for name, weights in (("conv2d", operands[1:]), ("avg_pool2d", ())):
        one, x = PROBLEMS[name][0], normal(4, 8, 8)
        gradient = jax.grad(functools.partial(loss, one))
        expected = gradient(x, *weights)
        with jax.set_mesh(mesh):
            for split in (P("a"), P(None, "a")):
                got = jax.jit(gradient)(*put(mesh, split, x, *weights))
                assert_same([got], [expected], (name, split))


def check_explicit_inside_shard_map():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    function, *operands = PROBLEMS["conv2d"]
    expected = gradients("conv2d")

    def local(*parts):
        return jax.lax.psum(loss(function, *parts), "a")

    with jax.set_mesh(mesh):
        for names, split in (({"a", "b"}, P("a")), ({"a"}, P(("a", "b"))), ({"a"}, P("a"))):
            specs = P("a"), P(), P()
            mapped = jax.shard_map(local, axis_names=names, in_specs=specs, out_specs=P())
            got = jax.jit(jax.grad(mapped, (0, 1, 2)))(*put(mesh, split, *operands))
            assert_same(got, expected, (names, split))


# Meshes of automatic axes


def check_auto():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    for problem, (function, *operands) in PROBLEMS.items():
        gradient = jax.grad(functools.partial(loss, function), tuple(range(len(operands))))
        expected = gradients(problem)
        splits = P("a"), P(("a", "b")), P("a", None, "b"), P(None, None, "a"), P()
        # The last axes of some do not divide into two.
        even = [split for split in splits if operands[0].shape[2] % 2 == 0 or len(split) <= 2]
        for split in in_turn(problem, even):
            given = put(mesh, split, *operands)
            got = jax.jit(gradient)(*given)
            assert_same(got, expected, (problem, split))
            assert_same([jax.jit(function)(*given)], [function(*operands)], (problem, split))


def check_auto_parts():
    """Batches stay split, also in the gradient of the input; sums over parts are added."""
    mesh = jax.make_mesh((4,), ("a",), axis_types=(AxisType.Auto,))
    for problem, (function, *operands) in PROBLEMS.items():
        given = put(mesh, P("a"), *operands)
        gradient = jax.grad(functools.partial(loss, function), tuple(range(len(given))))
        y = assert_in_parts(function, given, problem)(*given)
        grad_input, *others = assert_in_parts(gradient, given, problem)(*given)
        for kept in (y, grad_input):
            assert kept.sharding.spec[0] == "a", (problem, kept.sharding)
        for whole in others:
            assert whole.sharding.is_fully_replicated, (problem, whole.sharding)


def check_auto_channels():
    """Pooling keeps splits of channels; a convolution's weight that is split is gathered."""
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    function, x = PROBLEMS["avg_pool2d"]
    given = put(mesh, P("a", "b"), x)
    assert assert_in_parts(function, given, "channels")(*given).sharding.spec == P("a", "b")
    function, x, weight, bias = PROBLEMS["conv2d"]
    given = put(mesh, P("a"), x) + put(mesh, P("b"), weight) + put(mesh, P("b"), bias)
    gradient = jax.grad(functools.partial(loss, function), (0, 1, 2))
    assert_same(jax.jit(gradient)(*given), gradients("conv2d"), "weight")


def check_auto_transforms():
    """Forward mode, gradients of gradients, vmap and checkpoint on split arrays."""
    mesh = jax.make_mesh((4,), ("a",), axis_types=(AxisType.Auto,))
    for problem in ("avg_pool2d", "conv2d", "transpose"):
        function, *operands = PROBLEMS[problem]
        given = put(mesh, P("a"), *operands)
        numbers = tuple(range(len(operands)))

        def pushed(*operands, function=function):
            return jax.jvp(function, operands, operands)

        def one_by_one(x, *weights, function=function):
            return jax.vmap(lambda x: jax.checkpoint(function)(x, *weights))(x)

        got = assert_in_parts(pushed, given, problem)(*given)
        assert_same(got, jax.jit(pushed)(*operands), problem)
        assert_same([jax.jit(one_by_one)(*given)], [function(*operands)], problem)
        penalty = jax.grad(functools.partial(second_order, function), numbers)
        got = assert_in_parts(penalty, given, problem)(*given)
        assert_same(got, gradients(problem, second_order), problem)


CHECKS = {name: value for name, value in vars().items() if name.startswith("check_")}
