"""Stands in for PyTorch where there is none: `pytest --without-torch`.

Modules that import torch can then be imported, and a test that uses it is skipped. Without the
option, which only `make test-python` gives, nothing here is used: a missing PyTorch is an error.
"""

import sys
import types

import pytest

MESSAGE = "No module named 'torch'"
_in_a_test = False


def install():
    """Puts a `torch` in place that has everything and can do nothing."""
    sys.modules["torch"] = _Torch("torch")
    sys.meta_path.insert(0, _Refuse)


class _Refuse:
    """No module inside torch can be imported, nor what is made for it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "backops.torch" or name.startswith("torch."):
            raise ModuleNotFoundError(MESSAGE, name="torch")


def skip_where_used():
    """What a hook does around a test. Programs say in their output what they miss."""
    global _in_a_test
    _in_a_test = True
    try:
        return (yield)
    except Exception as error:
        if MESSAGE not in f"{error} {getattr(error, 'stdout', '')} {getattr(error, 'stderr', '')}":
            raise
        pytest.skip(MESSAGE)
    finally:
        _in_a_test = False


class _Torch(types.ModuleType):
    __path__ = ()  # so that _Refuse is asked for what is inside

    def __getattr__(self, name):
        return _missing(self.__name__, name)


def _missing(parent, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(f"{parent}.{name}")


class Missing:
    """Something of PyTorch's. It may be named while tests are collected; who uses it is skipped."""

    def __init__(self, name, *_):
        self.__name__ = name

    def __getattr__(self, name):
        return _missing(self.__name__, name)

    def __call__(self, *arguments, **keywords):
        if _in_a_test:
            pytest.skip(f"{MESSAGE}: {self.__name__} is used")
        return Missing(f"{self.__name__}()")

    def __str__(self):
        return self() and self.__name__

    def __instancecheck__(self, instance):
        return False
