"""backops.jax on several devices, and under JAX's stricter settings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import jax_sharded
from tests.support.arrays import quickly_compiled
from tests.support.processes import run_python

FLAGS = "--xla_force_host_platform_device_count=4"
_quickly_compiled = pytest.fixture(autouse=True, scope="module")(quickly_compiled)


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="JAX 0.7 and newer, see docs/jax.md")
def test_gradients_on_four_devices():
    # One process for all: what they compare with is computed once.
    run_python(
        "from tests.support import jax_sharded; jax_sharded.run_checks()",
        XLA_FLAGS=FLAGS,
        JAX_DISABLE_MOST_OPTIMIZATIONS=1,
        timeout=600,
    )


# Settings that make JAX refuse what it would otherwise convert on the way


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("problem", jax_sharded.PROBLEMS)
def test_nothing_is_promoted(problem, dtype):
    function, *operands = jax_sharded.PROBLEMS[problem]
    operands = [operand.astype(dtype) for operand in operands]
    numbers = tuple(range(len(operands)))

    def all_of(*operands):
        """Forward, gradients, gradients of gradients, and forward for each example."""
        one = jax.vmap(lambda x: function(x, *operands[1:]))(operands[0])
        return (
            function(*operands),
            jax.grad(functools.partial(jax_sharded.loss, function), numbers)(*operands),
            jax.grad(functools.partial(jax_sharded.second_order, function), numbers)(*operands),
            one,
        )

    # JAX keeps what it has traced, whatever the settings were. It refuses while it traces: nothing
    # needs to be compiled, for the same program gives the same values.
    jax.clear_caches()
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        strict = jax.jit(all_of).lower(*operands)
    jax.clear_caches()
    assert {result.dtype for result in jax.tree.leaves(strict.out_info)} == {jnp.dtype(dtype)}
    assert strict.as_text() == jax.jit(all_of).lower(*operands).as_text()


def test_long_unequal_windows_are_not_promoted():
    import backops.jax

    x = jnp.ones((2, 3, 200))
    jax.clear_caches()
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        y, back = jax.vjp(lambda x: backops.jax.adaptive_avg_pool1d(x, 3), x)
        assert np.allclose(y, 1)
        assert np.allclose(back(y)[0].sum(), y.sum())
