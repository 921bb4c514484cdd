"""What bad input raises. Nothing has been written when one of these is raised."""


class Error(Exception):
    """Any error of this package."""


class DTypeError(Error, TypeError):
    """An argument of the wrong type, or tensors whose dtypes do not go together."""


class ShapeError(Error, ValueError):
    """A tensor whose shape does not fit the others."""


class ParamError(Error, ValueError):
    """A parameter outside its range."""


class LayoutError(Error, ValueError):
    """Memory that cannot be used: overlap, another device, a read-only ``out``."""
