"""Which engine a convolution is planned on."""

import conv_choices
import support


def test_choices_are_those_written_down():
    written = (support.TESTS / "cases" / "conv_choices.txt").read_text(encoding="utf-8")
    assert conv_choices.choices().splitlines() == written.splitlines(), (
        "look at what changed: PYTHONPATH=tests python -m conv_choices > tests/cases/conv_choices.txt"
    )
