"""backops.jax inside larger programs: training steps, control flow, many calls at once."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import backops.jax
from tests.support.processes import run_python


def make_parameters():
    random = np.random.default_rng(3)

    def draw(*shape):
        return jnp.asarray(random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), jnp.float32)

    return [(draw(8, 3, 3, 3), draw(8, 1)[:, 0]), (draw(8, 1, 3, 3), draw(8, 1)[:, 0])]


def network(parameters, x):
    (w0, b0), (w1, b1) = parameters
    x = jax.nn.relu(backops.jax.conv(x, w0, b0, padding=1))
    x = backops.jax.avg_pool2d(x, 3, 2, 1)
    x = jnp.tanh(backops.jax.conv(x, w1, b1, groups=8))
    return backops.jax.adaptive_avg_pool2d(x, 1)


def network_by_xla(parameters, x):
    (w0, b0), (w1, b1) = parameters
    x = jax.lax.conv_general_dilated(x, w0, (1, 1), [(1, 1)] * 2) + b0[:, None, None]
    x = jax.lax.reduce_window(
        jax.nn.relu(x), 0.0, jax.lax.add, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0)] * 2 + [(1, 1)] * 2
    )
    x = jax.lax.conv_general_dilated(x / 9, w1, (1, 1), [(0, 0)] * 2, feature_group_count=8)
    return jnp.tanh(x + b1[:, None, None]).mean((2, 3), keepdims=True)


def make_step(model):
    def loss(parameters, x):
        return (model(parameters, x) ** 2).sum()

    def step(parameters, x):
        value, gradients = jax.value_and_grad(loss)(parameters, x)
        return value, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients)

    return step


X = jnp.asarray(np.random.default_rng(4).standard_normal((4, 3, 12, 13)), jnp.float32)


def train(model, steps=20):
    step = jax.jit(make_step(model), donate_argnums=0)
    parameters, losses = make_parameters(), []
    for _ in range(steps):
        value, parameters = step(parameters, X)
        losses.append(float(value))
    return losses


def test_training_follows_xlas_losses():
    ours, theirs = train(network), train(network_by_xla)
    assert ours[-1] < 0.5 * ours[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize(
    "transform",
    [
        jax.checkpoint,
        lambda model: lambda p, x: jax.vmap(lambda one: model(p, one))(x),
        lambda model: lambda p, x: jax.lax.map(lambda one: model(p, one), x),
        lambda model: lambda p, x: jax.lax.cond(x.sum() < 1e9, model, lambda p, x: 0 * model(p, x),
                                                p, x),
    ],
    ids=["checkpoint", "vmap", "map", "cond"],
)  # fmt: skip
def test_gradients_do_not_change_under(transform):
    def gradients(model):
        return jax.jit(jax.grad(lambda p, x: (model(p, x) ** 2).sum()))(make_parameters(), X)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        gradients(transform(network)),
        gradients(network),
    )


def test_many_threads_at_once():
    step = jax.jit(make_step(network))
    parameters = make_parameters()
    expected = jax.tree.leaves(step(parameters, X))
    wrong = []

    def work():
        for _ in range(40):
            got = jax.tree.leaves(step(parameters, X))
            if not all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True)):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "calls wait for each other"
    assert not wrong


def test_independent_calls_of_one_program():
    """XLA may run them at once, on threads of its own."""
    weights = jnp.asarray(np.random.default_rng(5).standard_normal((6, 4, 3, 3, 3)), jnp.float32)

    def loss(weights):
        return sum((backops.jax.conv(X, weight) ** 2).sum() for weight in weights)

    gradients = jax.jit(jax.grad(loss))(weights)
    alone = jax.jit(jax.grad(lambda weight: (backops.jax.conv(X, weight) ** 2).sum()))
    for weight, gradient in zip(weights, gradients, strict=True):
        np.testing.assert_allclose(gradient, alone(weight), rtol=1e-5, atol=1e-3)


def test_number_of_threads_is_that_of_set_num_threads():
    code = """
import os
import jax, jax.numpy as jnp
import backops, backops.jax

def threads():
    return len(os.listdir("/proc/self/task"))

x = jnp.ones((16, 16, 64, 64))
gradient = jax.jit(jax.grad(lambda x: backops.jax.avg_pool2d(x, 3, 2).sum()))
backops.set_num_threads(1)
jax.block_until_ready(gradient(x))
before = threads()
jax.block_until_ready(gradient(x))
assert threads() == before, "one thread needs no pool"
backops.set_num_threads(4)
jax.block_until_ready(gradient(x))
print(threads() - before)
"""
    assert run_python(code).stdout.split() == ["3"]
