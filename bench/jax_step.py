"""A training step in JAX: plain XLA against backops.jax.

    python bench/jax_step.py [--dtype float32] [--batch 8] [--repeats 5]

Three small networks, all parameters differentiated, jit-compiled; both variants in turn in one
process, the median of each, and the geometric mean over the networks. Then what one call costs
where there is nothing to compute.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import backops
import backops.jax


def xla_conv(x, weight, bias, *, stride=1, padding=0, groups=1):
    y = jax.lax.conv_general_dilated(
        x, weight, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups
    )
    return y + bias[:, None, None]


def xla_pool(x, kernel, stride, padding):
    window, strides = (1, 1, kernel, kernel), (1, 1, stride, stride)
    ends = [(0, 0)] * 2 + [(padding, padding)] * 2
    sums = jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, window, strides, ends)
    return sums / kernel**2


# Per layer: output channels, input channels per group, kernel, stride, groups; then average pooling
# 3x3 of stride 2 where a layer is followed by True.
NETWORKS = {
    "plain 3x3": (
        (112, 3),
        [(32, 3, 3, 1, 1, True), (64, 32, 3, 1, 1, True), (64, 64, 3, 1, 1, 0)],
    ),
    "depthwise": (
        (56, 32),
        [(32, 1, 7, 1, 32, 0), (96, 32, 1, 1, 1, 0), (96, 1, 3, 2, 96, 0), (32, 96, 1, 1, 1, True)],
    ),
    "pooling": ((112, 16), [(16, 16, 1, 1, 1, True), (32, 16, 1, 1, 1, True)]),
}


def make_parameters(layers, dtype):
    random = np.random.default_rng(0)
    for outputs, inputs, kernel, *_ in layers:
        scale = (inputs * kernel * kernel) ** -0.5
        weight = scale * random.standard_normal((outputs, inputs, kernel, kernel))
        yield jnp.asarray(weight, dtype), jnp.zeros(outputs, dtype)


def make_step(layers, conv, pool):
    def loss(parameters, x):
        for (weight, bias), (_, _, kernel, stride, groups, pooled) in zip(
            parameters, layers, strict=True
        ):
            x = conv(x, weight, bias, stride=stride, padding=kernel // 2, groups=groups)
            x = jax.nn.relu(x)
            if pooled:
                x = pool(x, 3, 2, 1)
        return (x.mean((2, 3)).astype(jnp.float32) ** 2).sum()

    def step(parameters, x):
        value, gradients = jax.value_and_grad(loss)(parameters, x)
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)

    return jax.jit(loss), jax.jit(step)


def seconds(function, *arguments):
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def compare(dtype, batch, repeats):
    variants = {"XLA": (xla_conv, xla_pool), "backops": (backops.jax.conv, backops.jax.avg_pool2d)}
    gains = {"forward": [], "step": []}
    for name, ((size, channels), layers) in NETWORKS.items():
        x = jnp.asarray(np.random.default_rng(1).standard_normal((batch, channels, size, size)))
        x = x.astype(dtype)
        parameters = list(make_parameters(layers, dtype))
        functions = {
            (variant, part): function
            for variant, operators in variants.items()
            for part, function in zip(
                ("forward", "step"), make_step(layers, *operators), strict=True
            )
        }
        values = {
            key[0]: float(f(parameters, x)) for key, f in functions.items() if "step" not in key
        }
        times = {key: [] for key in functions}
        for repeat in range(repeats + 1):
            for key, function in functions.items():
                taken = seconds(function, parameters, x)
                if repeat:  # the first one compiles
                    times[key].append(taken)
        median = {key: 1e3 * statistics.median(all_times) for key, all_times in times.items()}
        for part, gain in gains.items():
            gain.append(median["XLA", part] / median["backops", part])
        print(
            f"{name:10} {dtype} batch {batch}: "
            + ", ".join(
                f"{part} {median['XLA', part]:.1f} -> {median['backops', part]:.1f} ms "
                f"({gain[-1]:.1f}x)"
                for part, gain in gains.items()
            )
            + f"; losses {values['XLA']:.6g}, {values['backops']:.6g}",
            flush=True,
        )
    means = (f"{part} {statistics.geometric_mean(gain):.2f}x" for part, gain in gains.items())
    print(f"geometric mean, {dtype} batch {batch}: {', '.join(means)}", flush=True)


def call_cost():
    shape = (1, 1, 4, 4)
    grad = jnp.ones((1, 1, 2, 2))

    def gradient(pool):
        return jax.jit(lambda g: jax.vjp(pool, jnp.ones(shape))[1](g)[0])

    functions = {
        "nothing": jax.jit(lambda g: g + 1),
        "XLA": gradient(lambda x: xla_pool(x, 2, 2, 0)),
        "backops.jax": gradient(lambda x: backops.jax.avg_pool2d(x, 2)),
        "pure_callback": jax.jit(
            lambda g: jax.pure_callback(
                lambda g: backops.avg_pool2d_backward(np.asarray(g), shape, 2),
                jax.ShapeDtypeStruct(shape, g.dtype),
                g,
            )
        ),
    }
    for name, function in functions.items():
        times = sorted(seconds(function, grad) for _ in range(1000))
        print(f"one call of a compiled function, {name}: {1e6 * times[500]:.1f} us", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"JAX {jax.__version__}, {backops.get_num_threads()} threads")
    compare(options.dtype, options.batch, options.repeats)
    call_cost()


if __name__ == "__main__":
    main()
