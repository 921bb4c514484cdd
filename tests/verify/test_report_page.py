"""`backops verify --report`: a page that needs nothing else, and that a browser shows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from backops._calls import Call
from backops._verify.page import write_page
from backops._verify.verify import verify

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def write(path: Path, call: Call, candidates: dict[str, Any]) -> str:
    write_page(path, verify(call, candidates), call, candidates)
    return path.read_text(encoding="utf-8")


def calls() -> dict[str, tuple[Call, Any]]:
    random = np.random.default_rng(0).standard_normal
    pool = Call("avg_pool2d_backward", random((2, 3, 6, 6)).astype(np.float32), (2, 3, 11, 11),
                None, {"kernel_size": 3, "stride": 2, "padding": 1})  # fmt: skip
    line = Call("adaptive_avg_pool1d_backward", random((2, 3, 6)), (2, 3, 11))
    volume = Call("adaptive_avg_pool3d_backward", random((1, 2, 2, 3, 3)), (1, 2, 5, 6, 7))
    conv = Call("conv_backward", random((2, 6, 5, 5)), random((2, 4, 7, 7)), random((6, 4, 3, 3)))
    return {"pool": (pool, 0.5), "line": (line, 2.0), "volume": (volume, np.nan), "conv": (conv, 1)}


@pytest.mark.parametrize("name", ["pool", "line", "volume", "conv"])
def test_page_is_well_formed_and_self_contained(name: str, tmp_path: Path) -> None:
    call, change = calls()[name]
    result = {key: array.copy() for key, array in call.run().items()}
    for array in result.values():
        array[..., -1] += change
    text = write(tmp_path / "page.html", call, result)
    head, _, rest = text.partition("\n")
    assert head == "<!doctype html>"
    tree = ElementTree.fromstring(rest)
    sources = [image.get("src", "") for image in tree.iter("img")]
    assert len(sources) >= 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not re.search(r"https?:|<script|<link|@import|url\(", rest)
    assert "wrong" in "".join(tree.find("body/h1").itertext())  # type: ignore[union-attr]


def test_page_of_a_right_result_says_so(tmp_path: Path) -> None:
    call, _ = calls()["pool"]
    text = write(tmp_path / "page.html", call, call.run())
    assert "<title>avg_pool2d_backward: right</title>" in text
    assert "Where the wrong elements are" not in text


def test_page_escapes_what_it_shows(tmp_path: Path) -> None:
    call, _ = calls()["pool"]
    report = verify(call, call.run())
    report.tensors[0].findings.append("<b> & co")
    write_page(tmp_path / "page.html", report, call, call.run())
    assert "&lt;b&gt; &amp; co" in (tmp_path / "page.html").read_text()


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.ones((1, 1, 2, 2), np.float32))
    np.save(tmp_path / "o.npy", np.full((1, 1, 4, 4), 0.25, np.float32))
    program = (
        "import sys; sys.modules['matplotlib'] = None; from backops.__main__ import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["verify", "avg_pool2d_backward", "--grad-output", "g.npy", "--input", "1,1,4,4"]
    arguments += ["--kernel-size", "2", "--candidate", "o.npy", "--report", "r.html"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'backops[report]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_browser_renders_the_page(tmp_path: Path) -> None:
    call, change = calls()["pool"]
    result = {"grad_input": call.run()["grad_input"].copy()}
    result["grad_input"][:, :, -1] += change
    write(tmp_path / "page.html", call, result)
    assert CHROMIUM is not None
    shot = tmp_path / "shot.png"
    subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1400",
         f"--user-data-dir={tmp_path}/profile", f"--screenshot={shot}",
         (tmp_path / "page.html").as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    pixels = np.asarray(Image.open(shot).convert("RGB")).reshape(-1, 3)
    colors = set(map(tuple, np.unique(pixels, axis=0).tolist()))
    # The badge, the bars of the histogram, and a map of many colours.
    assert (192, 57, 43) in colors
    assert (44, 111, 187) in colors
    assert len(colors) > 500
