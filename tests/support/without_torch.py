"""Stands in for PyTorch where there is none: `pytest --without-torch`.

While tests are collected, there is a torch that can be imported and has everything. While they
run, it can do nothing and is not found again, and a test that fails for that is skipped. Without
the option, which only `make test-python` gives, nothing here is used, and no PyTorch is an error.
"""

import sys
import types

import pytest

MESSAGE = "No module named 'torch'"
_in_a_test = False
_was_missed = False


def install():
    sys.modules["torch"] = _Torch("torch")
    sys.meta_path.insert(0, _Refuse)


class _Refuse:
    """Finds neither torch nor what is made for it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        global _was_missed
        if name in ("torch", "backops.torch") or name.startswith("torch."):
            _was_missed = True
            raise ModuleNotFoundError(MESSAGE, name="torch")


def skip_where_used():
    """What a hook does around a test. Programs say in their output what they miss."""
    global _in_a_test, _was_missed
    _in_a_test, _was_missed = True, False
    sys.modules.pop("torch", None)
    try:
        return (yield)
    except Exception as error:
        said = f"{error} {getattr(error, 'stdout', '')} {getattr(error, 'stderr', '')}"
        if not _was_missed and MESSAGE not in said:
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
