"""Backward operators of neural networks on the CPU, and the pooling they belong to."""

from backops import _native, plan, reference
from backops._native import __version__, get_num_threads, set_deterministic, set_num_threads
from backops._ops import (
    adaptive_avg_pool1d,
    adaptive_avg_pool1d_backward,
    adaptive_avg_pool2d,
    adaptive_avg_pool2d_backward,
    adaptive_avg_pool3d,
    adaptive_avg_pool3d_backward,
    avg_pool1d,
    avg_pool1d_backward,
    avg_pool2d,
    avg_pool2d_backward,
    avg_pool3d,
    avg_pool3d_backward,
    conv,
    conv_backward,
    conv_transpose,
    conv_transpose_backward,
)
from backops.errors import DTypeError, Error, LayoutError, ParamError, ShapeError

# BACKOPS_ISA and BACKOPS_NUM_THREADS; a wrong value raises ParamError here.
_native.read_environment()

__all__ = [
    "DTypeError",
    "Error",
    "LayoutError",
    "ParamError",
    "ShapeError",
    "__version__",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "avg_pool1d",
    "avg_pool1d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "conv",
    "conv_backward",
    "conv_transpose",
    "conv_transpose_backward",
    "get_num_threads",
    "plan",
    "reference",
    "set_deterministic",
    "set_num_threads",
]
