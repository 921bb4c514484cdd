"""Arrays of no known library: all they can do is DLPack."""

import ctypes

import numpy as np

CODES = {"f": 2, "i": 0, "u": 1}


class DLPackOnly:
    """`__dlpack__` and `__dlpack_device__`, and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **keywords):
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OldDLPackOnly(DLPackOnly):
    """The same from before DLPack 1.0: it takes no keywords but `stream`."""

    def __dlpack__(self, stream=None):
        return self._array.__dlpack__()


# DLPack's structures, as its standard lays them out.


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("view_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


def function(*arguments):
    """Makes a C function, called with the GIL held, of a Python function."""
    return ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)


def make_capsule(address, name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(address, name, None)


def describe(tensor, array):
    """Fills `tensor`; returns what must live as long as it."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    tensor.data, tensor.device_type, tensor.device_id = array.ctypes.data, 1, 0
    tensor.ndim, tensor.byte_offset = array.ndim, 0
    tensor.code, tensor.bits, tensor.lanes = CODES[array.dtype.kind], 8 * array.itemsize, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    return array, shape, strides


class Exchanging:
    """An array type that has only the table of DLPack 1.3, as C libraries offer it.

    `make` gives a type of its own for each variant: without `view`, arrays are handed over;
    `newest` is a table of a major version to come, before the one that we know.
    """

    @staticmethod
    def make(*, view=True, newest=1, read_only=False, fails=False, whole=True):
        held = {}  # what was handed over or allocated, by the address of its Managed

        class Array:
            alive = held

            def __init__(self, array):
                self.array = array
                self.seen = []

        def hand_over(array):
            managed = Managed(version=Version(1, 3), flags=int(read_only))
            managed.deleter = ctypes.cast(delete, ctypes.c_void_p)
            keep = describe(managed.tensor, array)
            held[ctypes.addressof(managed)] = managed, array, keep
            return ctypes.addressof(managed)

        @ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
        def delete(address):
            del held[address]

        @function(ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.c_void_p), *[ctypes.c_void_p] * 2)
        def allocate(prototype, result, context, set_error):
            t = prototype.contents
            shape = tuple(t.shape[i] for i in range(t.ndim))
            result[0] = hand_over(np.empty(shape, f"f{t.bits // 8}"))
            return 0

        @function(ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
        def from_object(given, result):
            if fails:
                return -1
            result[0] = hand_over(given.array)
            return 0

        @function(ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
        def to_object(address, result):
            array = Array(held.pop(address)[1])
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
            result[0] = id(array)
            return 0

        @function(ctypes.py_object, ctypes.POINTER(Tensor))
        def view_object(given, tensor):
            if fails:
                return -1
            given.seen.append(describe(tensor.contents, given.array))
            return 0

        functions = allocate, from_object, to_object, view_object
        table = Table(Version(1, 3), None, *(ctypes.cast(f, ctypes.c_void_p) for f in functions))
        if not view:
            table.view_object = None
        if not whole:
            table.allocate = None
        first = table
        if newest != 1:
            first = Table(Version(newest, 0), ctypes.addressof(table))
        Array.__dlpack_c_exchange_api__ = make_capsule(
            ctypes.addressof(first), b"dlpack_exchange_api"
        )
        Array.keep = functions, table, first, delete
        return Array
