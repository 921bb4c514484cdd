"""Programs with backops.jax in them that jax.export writes down, for any size of the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import backops
import backops.jax

RANDOM = np.random.default_rng(0)
PARAMETERS = tuple(
    jnp.asarray(RANDOM.standard_normal(shape), jnp.float32)
    for shape in ((6, 3, 3, 3), (6,), (6, 4, 3, 3))
)
CHECKS = [export.DisabledSafetyCheck.custom_call(name) for name in backops.jax.CUSTOM_CALLS]


def model(parameters, x):
    weight, bias, transposed = parameters
    y = jax.nn.relu(backops.jax.conv(x, weight, bias, padding="SAME"))
    y = backops.jax.avg_pool2d(y, 3, 2, 1)
    y = backops.jax.conv_transpose(y, transposed, stride=2)
    return backops.jax.adaptive_avg_pool2d(y, 2)


@jax.jit
def step(parameters, x):
    def loss(parameters, x):
        return (model(parameters, x) ** 2).sum()

    return jax.value_and_grad(loss, (0, 1))(parameters, x)


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


@pytest.mark.parametrize("written", [False, True], ids=["in memory", "written"])
def test_a_training_step_of_any_batch(written):
    (batch,) = export.symbolic_shape("batch")
    exported = export.export(step, disabled_checks=CHECKS)(PARAMETERS, shape(batch, 3, 8, 8))
    if written:
        pytest.importorskip("flatbuffers", reason="what JAX writes programs with")
        exported = export.deserialize(exported.serialize())
    for n in (1, 5):
        x = jnp.asarray(RANDOM.standard_normal((n, 3, 8, 8)), jnp.float32)
        got, expected = exported.call(PARAMETERS, x), step(PARAMETERS, x)
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_vmap_over_any_number():
    mapped = jax.jit(jax.vmap(lambda x: model(PARAMETERS, x)))
    (batch,) = export.symbolic_shape("batch")
    exported = export.export(mapped, disabled_checks=CHECKS)(shape(batch, 3, 8, 8))
    x = jnp.ones((4, 3, 8, 8))
    np.testing.assert_array_equal(exported.call(x), mapped(x))


def test_without_the_checks_disabled_jax_refuses():
    with pytest.raises(ValueError, match="backops_conv"):
        export.export(step)(PARAMETERS, shape(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("function", "name", "known"),
    [
        (lambda x: backops.jax.conv(x, PARAMETERS[0]), "conv", 3),
        (lambda x: backops.jax.conv_transpose(x, PARAMETERS[0][:3]), "conv_transpose", 3),
        (lambda x: backops.jax.avg_pool2d(x, 2), "avg_pool2d", 2),
        (lambda x: backops.jax.adaptive_avg_pool2d(x, 2), "adaptive_avg_pool2d", 2),
    ],
)
def test_other_sizes_are_numbers(function, name, known):
    sizes = export.symbolic_shape("2, 3, h, w")
    with pytest.raises(backops.ShapeError) as caught:
        export.export(jax.jit(function), disabled_checks=CHECKS)(shape(*sizes))
    assert str(caught.value) == (
        f"{name}: x is (2, 3, h, w), expected numbers, no symbols, along the last {known} axes"
    )
