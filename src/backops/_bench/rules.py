"""What the rules of backops.torch do to layers that were measured: for those who change them.

    backops bench layers --json layers.json
    python -m backops._bench.rules layers.json

prints the layers that would go to the slower side, and of each rule what it names: PyTorch's time
over ours, which should be below 1 backward and above 1 forward. `backops bench forward` and
`transposed` will do as well. A change of the rules needs no new measurement.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backops._bench import conv, layers, pytorch
from backops._bench.problems import ConvCase, forward_cases, layer_cases, transposed_cases

Record = Mapping[str, Any]


def measured_cases(results: list[Record]) -> Iterator[tuple[ConvCase, Record]]:
    """Layers that are still measured, each with what it was measured to be."""
    dtypes = list(dict.fromkeys(each["dtype"] for each in results))
    cases = {
        (case.problem.name, case.problem.description, case.dtype, case.layout, case.gradients): case
        for cases in (layer_cases, forward_cases, transposed_cases)
        for case in cases(dtypes)
    }
    for each in results:
        case = cases.get(
            (each["name"], each["problem"], each["dtype"], each["layout"], each["gradients"])
        )
        if case is not None:
            yield case, each


def report(results: list[Record]) -> Iterator[str]:
    from backops.torch import rules

    torch = pytorch.import_torch()
    wrong = 0
    kept: dict[tuple[str, Any], list[float]] = {}
    operators = []
    trusted = [each for each in results if not each["disturbed"]]
    for case, each in measured_cases(trusted):
        ratio = each["ratio"]
        operator = conv.operator_name(case)
        operators.append(operator)
        layer = rules.layer_of(
            getattr(torch, case.dtype),
            case.problem.weight_shape,
            case.problem.of_each_axis("stride"),
            case.problem.of_each_axis("dilation"),
            case.problem.keywords["groups"],
            transposed=case.problem.transposed,
            channels_last=case.layout == "channels_last",
            wants_input=case.output_mask[0],
        )
        for rule in rules.active(operator):
            if rule.holds(layer):
                kept.setdefault((operator, rule), []).append(ratio)
        chosen = layers.is_chosen(torch, case)
        if layers.judge(chosen, ratio):
            wrong += 1
            side = "here" if chosen else "PyTorch"
            yield f"{ratio:6.2f}x, goes to {side}: {case.label}"
    yield f"{wrong} wrong choices of {len(trusted)}; {rules.capability()}"
    for operator in dict.fromkeys(operators):
        for rule in rules.active(operator):
            yield f"{operator}, {named_by(rule, kept.get((operator, rule), []))}"


def named_by(rule: Any, ratios: list[float]) -> str:
    if not ratios:
        return f"nothing: {rule}"
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    range_of = f"{min(ratios):.2f} to {max(ratios):.2f}, mean {mean:.2f}"
    return f"{len(ratios)} layers, {range_of}: {rule}"


if __name__ == "__main__":
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for line in report(document["results"]):
        print(line)
