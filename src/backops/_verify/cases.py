"""Cases of a suite: problems without data, which each case makes itself from its seed."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from backops._calls import ADAPTIVE, CONVOLUTIONS, OPERATORS, PARAMETERS, Call, output_shape
from backops._command import CommandError
from backops._files import DTYPES, Shape
from backops._verify import cann_suite
from backops._verify.values import check_values, has_specials, make_values

FIELDS = (
    "name", "operator", "input", "output_size", "weight", "bias", "dtype", "values", "seed"
)  # fmt: skip
WITH_BIAS = ("conv", "conv_transpose")


@dataclass(frozen=True)
class Case:
    name: str
    operator: str
    input: Shape
    dtype: str
    output_size: Shape | None = None
    weight: Shape | None = None
    bias: bool = False
    values: str | None = None
    """None: those of the standard, or normal ones if it names none."""
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} {self.dtype}"

    def key(self, *more: str) -> str:
        """The same for the same case, whatever its place in a file."""
        text = json.dumps([asdict(self), *more], sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_cases(source: str) -> list[Case]:
    """The cases of a .json or .csv file, or of a suite that comes with backops."""
    rows: Iterable[Mapping[str, Any]]
    if source == "cann":
        rows = cann_suite.rows()
    elif source == "default":
        text = resources.files(__package__).joinpath("default_suite.json").read_text("utf-8")
        rows = json.loads(text)
    else:
        rows = read_rows(Path(source))
    cases = [case for row in rows for case in parse_row(source, row)]
    seen: set[str] = set()
    for case in cases:
        if case.label in seen:
            raise CommandError(f"{source}: two cases are named {case.label!r}")
        seen.add(case.label)
    if not cases:
        raise CommandError(f"{source}: holds no cases")
    return cases


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CommandError(f"{path}: not JSON ({error})") from error
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise CommandError(f"{path}: expected a list of objects, one per case")
        return rows
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            return [
                {key: parse_cell(cell) for key, cell in row.items() if cell}
                for row in csv.DictReader(stream)
            ]
    raise CommandError(f"{path}: expected a .json or .csv file, or the word default or cann")


def parse_cell(cell: str) -> Any:
    """3, (3, 5) from 3x5, True from true; everything else is text."""
    text = cell.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"\d+([x,]\d+)+", text):
        return tuple(map(int, re.split("[x,]", text)))
    return text


def parse_row(source: str, row: Mapping[str, Any]) -> list[Case]:
    """One case for each dtype of the row; float32 if it names none."""
    name = str(row.get("name", "")) or "a case without a name"
    where = f"{source}: {name}"
    operator = row.get("operator")
    if operator not in OPERATORS:
        raise CommandError(f"{where}: operator is {operator!r}, expected one of {OPERATORS}")
    given = {key: value for key, value in row.items() if key not in FIELDS}
    for key in given:
        if key not in PARAMETERS[operator]:
            raise CommandError(f"{where}: {operator} has no {key}")
    needed = ["name", "input"] + ["output_size"] * (operator in ADAPTIVE)
    needed += ["weight"] * (operator in CONVOLUTIONS)
    for key in needed:
        if key not in row:
            raise CommandError(f"{where}: {operator} needs {key}")
    if row.get("bias", False) and operator not in WITH_BIAS:
        raise CommandError(f"{where}: {operator} has no bias")
    dtypes = row.get("dtype", "float32")
    dtypes = dtypes.split() if isinstance(dtypes, str) else dtypes
    values = row.get("values")
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise CommandError(f"{where}: dtype is {dtype!r}, expected one of {tuple(DTYPES)}")
    if values is not None:
        try:
            check_values(str(values))
        except CommandError as error:
            raise CommandError(f"{where}: {error}") from error
    return [
        Case(
            name=name,
            operator=operator,
            input=sizes(where, "input", row["input"]),
            dtype=dtype,
            output_size=optional_sizes(where, "output_size", row),
            weight=optional_sizes(where, "weight", row),
            bias=bool(row.get("bias", False)),
            values=None if values is None else str(values),
            seed=int(row.get("seed", 0)),
            parameters={key: as_tuple(value) for key, value in given.items()},
        )
        for dtype in dtypes
    ]


def sizes(where: str, name: str, value: Any) -> Shape:
    numbers = (value,) if isinstance(value, int) else value
    if not isinstance(numbers, list | tuple) or not all(isinstance(n, int) for n in numbers):
        raise CommandError(f"{where}: {name} is {value!r}, expected sizes")
    return tuple(numbers)


def optional_sizes(where: str, name: str, row: Mapping[str, Any]) -> Shape | None:
    return sizes(where, name, row[name]) if name in row else None


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def make_call(case: Case, attempt: int = 0) -> Call:
    """The tensors of a case, the same on every machine; those of another attempt are others."""
    seed = [case.seed, zlib.crc32(case.name.encode())]
    generator = np.random.default_rng([*seed, attempt] if attempt else seed)
    dtype = DTYPES[case.dtype]
    values = case.values or "normal"
    # Specials in one operand are enough: in all three hardly a number would be left.
    plain = "normal" if has_specials(values) else values
    parameters = dict(case.parameters)
    grad_output = bias = weight = None
    input: Any = case.input
    if case.operator.endswith("_backward"):
        grad_output = make_values(generator, output_shape_of(case), dtype, values)
        if case.weight is not None:
            input = make_values(generator, case.input, dtype, plain)
    else:
        input = make_values(generator, case.input, dtype, values)
        if case.operator in ADAPTIVE:
            parameters["output_size"] = case.output_size
    if case.weight is not None:
        weight = make_values(generator, case.weight, dtype, plain)
    if case.bias:
        bias = make_values(generator, output_channels(case), dtype, plain)
    return Call(case.operator, grad_output, input, weight, parameters, bias)


def output_shape_of(case: Case) -> Shape:
    given = dict(case.parameters)
    if case.output_size is not None:
        given["output_size"] = case.output_size
    return output_shape(case.operator, case.input, case.weight or (), given)


def output_channels(case: Case) -> Shape:
    assert case.weight is not None
    rank = len(case.weight) - 2
    return (output_shape_of(case)[-rank - 1],)
