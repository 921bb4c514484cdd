"""Parameters of convolutions: arrays of 64-bit or 32-bit values, and never a byte beyond them.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import ctypes
import itertools
import mmap
import struct

import numpy as np
import pytest

from tests.support.conv_cases import ConvCase, empty_results, make_arrays
from tests.support.conv_compare import assert_exact
from tests.support.infini import (
    HANDLE,
    Conv,
    ConvBackward,
    Status,
    Tensor,
    check,
    is_untouched,
)
from tests.support.processes import run_python

WIDTHS = {"int32": "i", "int64": "q"}
NAMES = ("pads", "strides", "dilations")
OPERATORS = {"conv": Conv, "conv_backward": ConvBackward}


@pytest.fixture(params=OPERATORS)
def operator(request):
    return request.param


class PageEnd:
    """Memory that ends where the process may not read on."""

    def __init__(self):
        self.memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.end = begin + mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        forbidden = libc.mprotect(ctypes.c_void_p(self.end), ctypes.c_size_t(mmap.PAGESIZE), 0)
        assert forbidden == 0, ctypes.get_errno()

    def put(self, content: bytes) -> int:
        """The address of `content`, whose last byte is the last that there is."""
        self.memory[mmap.PAGESIZE - len(content) : mmap.PAGESIZE] = content
        return self.end - len(content)


# One for each parameter.
PAGES = {name: PageEnd() for name in NAMES}


def at_page_end(width, **arrays):
    return {
        name: None if values is None else PAGES[name].put(packed(width, values))
        for name, values in arrays.items()
    }


def packed(width, values) -> bytes:
    return struct.pack(f"{len(values)}{WIDTHS[width]}", *values)


def create(case, pads=None, strides=None, dilations=None):
    """The status and the descriptor for parameters at these addresses."""
    shapes = case.output_shape, case.input_shape, case.weight_shape
    return OPERATORS[case.operator].create_from(
        HANDLE, (*map(Tensor, shapes), None), pads, strides, dilations, case.groups
    )


def case_of(operator, rank, pads=None, strides=None, dilations=None):
    """Other sizes on every axis, so that a value that is read wrongly does not fit."""
    return ConvCase(
        "widths",
        (2, 2, *(17, 13, 11)[:rank]),
        (3, 2, *(3, 2, 3)[:rank]),
        stride=strides or 1,
        padding=pads or 0,
        dilation=dilations or 1,
        operator=operator,
    )


PARAMETERS = {"pads": (1, 0, 2), "strides": (3, 2, 1), "dilations": (2, 3, 1)}


def run(case, desc):
    """Computes without a bias, from data that is the same for every call."""
    operator = OPERATORS[case.operator].of(desc)
    arrays = make_arrays(case, "float32", kind="integer")
    results = empty_results(case, "float32")
    addresses = [array.ctypes.data for array in (*results, *arrays)]
    more = {}
    if case.is_backward:
        addresses[2], more["output_mask"] = None, (True, True, False)
        results = (*results[:2], None)
    else:
        addresses[3], arrays = None, arrays[:2]
    operator.run(*addresses)
    operator.destroy()
    assert_exact(results, case, arrays, **more)


def legal_rows():
    """Every parameter given or NULL, but for 32-bit pads alone, which nothing tells."""
    for width, rank in itertools.product(WIDTHS, (1, 2, 3)):
        for given in itertools.product((True, False), repeat=3):
            if width == "int64" or rank == 1 or given != (True, False, False):
                names = [name for name, there in zip(NAMES, given, strict=True) if there]
                yield pytest.param(width, rank, names, id=f"{width} {rank}-D {'+'.join(names)}")


@pytest.mark.parametrize(("width", "rank", "names"), list(legal_rows()))
def test_arrays_of_either_width(operator, width, rank, names):
    arrays = {name: PARAMETERS[name][:rank] if name in names else None for name in NAMES}
    case = case_of(operator, rank, **arrays)
    status, desc = create(case, **at_page_end(width, **arrays))
    check(status)
    run(case, desc)


@pytest.mark.parametrize("rank", [2, 3])
def test_pads_alone_are_64_bit(operator, rank):
    # Of 32-bit ints, these bytes would be (1, 0, 2).
    pads = (1, 2, 1)[:rank]
    case = case_of(operator, rank, pads=pads)
    status, desc = create(case, **at_page_end("int64", pads=pads))
    check(status)
    run(case, desc)


@pytest.mark.parametrize("shows", ["strides", "dilations"])
@pytest.mark.parametrize("rank", [2, 3])
def test_pads_have_the_width_of_the_others(operator, rank, shows):
    # Every pair of 32-bit pads is a 64-bit number, too.
    pads = (0, 1, 1)[:rank]
    ones = (1,) * rank
    for width in WIDTHS:
        case = case_of(operator, rank, pads=pads)
        status, desc = create(case, **at_page_end(width, pads=pads, **{shows: ones}))
        check(status)
        run(case, desc)


@pytest.mark.parametrize("rank", [2, 3])
def test_one_half_of_the_first_word_tells(operator, rank):
    """The same bytes but for the upper half of the first 8: {2, 1, ...} ints, or 2."""
    ints, word = packed("int32", (2, 1, 1)[:rank]), packed("int64", (2, 1, 1)[:rank])
    assert ints[:4] == word[:4]
    assert ints[4:8] != word[4:8]
    for content in (ints, word):
        case = case_of(operator, rank, strides=(2, 1, 1)[:rank])
        status, desc = create(case, strides=PAGES["strides"].put(content))
        check(status)
        run(case, desc)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_upper_halves_of_later_64_bit_values_count(operator, name, axis):
    arrays = {"strides": [1, 1, 1], "dilations": [1, 1, 1], "pads": [1, 1, 1]}
    case = case_of(operator, 3, pads=(1, 1, 1))
    arrays[name][axis] += 2**32
    status, desc = create(case, **at_page_end("int64", **arrays))
    assert status in (Status.BAD_TENSOR_SHAPE, Status.BAD_PARAM)
    assert is_untouched(desc)


def test_one_axis_is_read_in_four_bytes_whatever_follows(operator):
    case = case_of(operator, 1, pads=(1,), strides=(3,), dilations=(2,))
    for rest in (b"", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0"):
        contents = {"pads": 1, "strides": 3, "dilations": 2}
        addresses = {
            name: PAGES[name].put(struct.pack("i", value) + rest)
            for name, value in contents.items()
        }
        status, desc = create(case, **addresses)
        check(status)
        run(case, desc)


# What is wrong


def refused_rows():
    for width, rank, name in itertools.product(WIDTHS, (1, 2, 3), NAMES):
        for axis, value in itertools.product(range(rank), (0, -1, -(2**31))):
            if name == "pads" and value == 0:
                continue
            yield pytest.param(width, rank, name, axis, value)


@pytest.mark.parametrize(("width", "rank", "name", "axis", "value"), list(refused_rows()))
def test_values_that_are_not_positive_are_refused(operator, width, rank, name, axis, value):
    arrays = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * rank}
    arrays[name][axis] = value
    status, desc = create(case_of(operator, rank), **at_page_end(width, **arrays))
    assert status == Status.BAD_PARAM
    assert is_untouched(desc)


@pytest.mark.parametrize("rank", [2, 3])
def test_widths_that_differ_are_refused(operator, rank):
    ones = [1] * rank
    for wide, narrow in (("strides", "dilations"), ("dilations", "strides")):
        arrays = at_page_end("int64", **{wide: ones}) | at_page_end("int32", **{narrow: ones})
        status, desc = create(case_of(operator, rank), **arrays)
        assert (status, is_untouched(desc)) == (Status.BAD_PARAM, True)


def test_page_ends_where_it_should():
    """A read beyond ends the process: here it is asked for in another one."""
    done = run_python(
        """
import ctypes
from tests.infiniop.test_widths import PAGES
address = PAGES["pads"].put(b"1234")
assert ctypes.string_at(address, 4) == b"1234"
print("inside", flush=True)
ctypes.string_at(address, 5)
""",
        check=False,
    )
    assert (done.stdout, done.returncode < 0) == ("inside\n", True)


def test_parameters_in_python_are_of_one_width():
    from backops import infiniop as module

    handle, _ = module.infiniopCreateHandle()
    shapes = (2, 3, 8, 8), (2, 2, 8, 8), (3, 2, 1, 1)
    descs = [
        module.infiniopCreateTensorDescriptor(4, shape, None, module.DType.F32)[0]
        for shape in shapes
    ]
    for nonsense in ([1], [1, 0], [0, 1], [-1, 1], [1, -1]):
        made = module.infiniopCreateConvBackwardDescriptor(
            handle, *descs, None, None, nonsense, None, 1
        )
        assert made == (None, Status.BAD_PARAM), nonsense
    numbers = np.array([1, 1], np.int32)
    desc, status = module.infiniopCreateConvBackwardDescriptor(
        handle, *descs, None, None, numbers.ctypes.data, numbers.ctypes.data, 1
    )
    check(status)
    check(module.infiniopDestroyConvBackwardDescriptor(desc))
