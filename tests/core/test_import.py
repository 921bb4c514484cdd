"""`import backops` is quick, loads no framework, and shows the documented names."""

import inspect
import json

import backops
from tests.support.processes import run_python

FORWARD_POOLS = {f"{kind}_pool{rank}d" for kind in ("avg", "adaptive_avg") for rank in (1, 2, 3)}
POOLS = FORWARD_POOLS | {f"{name}_backward" for name in FORWARD_POOLS}
CONVOLUTIONS = {"conv", "conv_backward", "conv_transpose", "conv_transpose_backward"}
OPERATORS = POOLS | CONVOLUTIONS
ERRORS = {"Error", "DTypeError", "ShapeError", "ParamError", "LayoutError"}
SETTINGS = {"set_num_threads", "get_num_threads", "set_deterministic"}

EMPTY = inspect.Parameter.empty
FIXED_PARAMETERS = {
    "grad_output": EMPTY,
    "input": EMPTY,
    "kernel_size": EMPTY,
    "stride": None,
    "padding": 0,
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
    "precision": "keep",
    "out": None,
}
ADAPTIVE_PARAMETERS = {
    "grad_output": EMPTY,
    "input": EMPTY,
    "out": None,
}


def modules_loaded_by(code):
    """The modules that `code` adds to those of `import numpy`."""
    script = f"""
import json, sys
import numpy
before = set(sys.modules)
{code}
after = set(sys.modules)
print(json.dumps(sorted(after - before)))
"""
    return set(json.loads(run_python(script).stdout.splitlines()[-1]))


def top_level(modules):
    return {module.partition(".")[0] for module in modules}


def test_import_loads_no_framework_and_no_command_line():
    unwanted = {"torch", "jax", "jaxlib", "argparse", "click", "rich", "matplotlib", "safetensors"}
    unwanted |= {"dask", "distributed", "zarr"}
    loaded = modules_loaded_by("import backops")
    assert "backops" in loaded
    assert not top_level(loaded) & unwanted
    assert not {"backops._cli", "backops._bench"} & loaded


def test_info_loads_neither_a_framework_nor_what_other_commands_need():
    loaded = modules_loaded_by("import backops.__main__; backops.__main__.main(['info'])")
    assert "backops._cli.info" in loaded
    assert not top_level(loaded) & {"torch", "jax", "jaxlib", "matplotlib", "safetensors"}
    assert not {"backops._cli.bench", "backops._bench"} & loaded


def test_calling_an_operator_loads_no_framework():
    code = """
import backops, backops.plan, backops.reference
grad = numpy.ones((1, 1, 2, 2), numpy.float32)
backops.avg_pool2d_backward(grad, (1, 1, 4, 4), 2)
backops.reference.avg_pool2d_backward(grad, (1, 1, 4, 4), 2)
backops.plan.avg_pool2d_backward((1, 1, 4, 4), 2)(grad)
"""
    assert not top_level(modules_loaded_by(code)) & {"torch", "jax", "jaxlib", "dask"}


def test_module_list_of_this_test_sees_a_framework():
    assert "jax" in top_level(modules_loaded_by("import jax"))
    assert "dask" in top_level(modules_loaded_by("import backops.dask"))


def test_reference_loads_nothing_of_backops_but_the_package():
    tree = inspect.getsource(__import__("backops.reference", fromlist=["reference"]))
    imports = [line.split() for line in tree.splitlines() if line.startswith(("import ", "from "))]
    assert imports
    assert not [words for words in imports if words[1].startswith((".", "backops"))]


def test_import_takes_less_than_150_milliseconds_beyond_numpy():
    code = """
import time, numpy
start = time.perf_counter()
import backops
print(time.perf_counter() - start)
"""
    # The first run may have to read files from disk; the fastest is the import's own cost.
    assert min(float(run_python(code).stdout) for _ in range(5)) < 0.15


def test_public_names_are_the_documented_ones():
    public = {name for name in dir(backops) if not name.startswith("_")}
    modules = {name for name in public if inspect.ismodule(getattr(backops, name))}
    assert public - modules == OPERATORS | ERRORS | SETTINGS
    assert "plan" in modules
    assert set(backops.__all__) - {"reference", "__version__"} == OPERATORS | ERRORS | SETTINGS | {
        "plan"
    }


def test_public_modules_are_those_of_backops():
    for name in dir(backops):
        value = getattr(backops, name)
        if not name.startswith("_") and inspect.ismodule(value):
            assert value.__name__ == f"backops.{name}"


FORWARD_OPERANDS = {
    "input": inspect.Parameter.empty,
    "weight": inspect.Parameter.empty,
    "bias": None,
}
BACKWARD_OPERANDS = {
    "grad_output": inspect.Parameter.empty,
    "input": inspect.Parameter.empty,
    "weight": inspect.Parameter.empty,
}


def conv_parameters(name):
    parameters = dict(BACKWARD_OPERANDS if name.endswith("backward") else FORWARD_OPERANDS)
    parameters |= {"stride": 1, "padding": 0}
    if "transpose" in name:
        parameters["output_padding"] = 0
    parameters |= {"dilation": 1, "groups": 1}
    if name.endswith("backward"):
        parameters["output_mask"] = (True, True, True)
    return parameters | {"precision": "keep", "out": None}


def test_convolutions_have_the_documented_parameters():
    for name in CONVOLUTIONS:
        wanted = conv_parameters(name)
        parameters = inspect.signature(getattr(backops, name)).parameters
        assert {p.name: p.default for p in parameters.values()} == wanted, name
        assert list(parameters) == list(wanted), name
        named_only = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert named_only == list(wanted)[3:], name


def test_pooling_operators_have_the_documented_parameters():
    for name in POOLS:
        wanted = dict(ADAPTIVE_PARAMETERS if name.startswith("adaptive") else FIXED_PARAMETERS)
        if name in FORWARD_POOLS:
            del wanted["grad_output"]
            if name.startswith("adaptive"):
                wanted = {"input": EMPTY, "output_size": EMPTY, "out": None}
        parameters = inspect.signature(getattr(backops, name)).parameters
        assert {p.name: p.default for p in parameters.values()} == wanted, name
        assert list(parameters) == list(wanted), name
        named_only = {p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
        positional = {"grad_output", "input", "kernel_size", "stride", "padding", "output_size"}
        assert named_only == set(wanted) - positional, name


def test_reference_has_the_parameters_of_the_operators_without_out():
    from backops import reference

    for name in OPERATORS:
        operator = inspect.signature(getattr(backops, name)).parameters
        same = inspect.signature(getattr(reference, name)).parameters
        wanted = [(p.name, p.default, p.kind) for p in operator.values() if p.name != "out"]
        assert [(p.name, p.default, p.kind) for p in same.values()] == wanted, name


def test_plans_exist_for_every_operator():
    for name in OPERATORS:
        assert callable(getattr(backops.plan, name))


def test_every_public_function_is_documented_with_an_example():
    for name in sorted(OPERATORS):
        text = inspect.getdoc(getattr(backops, name))
        assert text, name
        assert ">>>" in text or "as `" in text or "those of `" in text, name
