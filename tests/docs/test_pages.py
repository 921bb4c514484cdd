"""What the documentation shows runs, and what it says of names, functions and files is so."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backops
from tests.support import snippets

ROOT = snippets.ROOT
LANGUAGES = {"python", "sh", "c", "cpp", "text"}
INTERFACES = ROOT / "docs" / "interfaces"
HEADERS = {
    "infiniop": (ROOT / "cpp" / "infiniop" / "include", "INFINI_API"),
    "cann": (ROOT / "cpp" / "acl" / "include", "ACL_API"),
}
# The site's own pages are checked by `make docs`.
PAGES_OUTSIDE_THE_SITE = [page for page in snippets.PAGES if page.parts[-2] != "docs"]
PAGES_OUTSIDE_THE_SITE = [p for p in PAGES_OUTSIDE_THE_SITE if INTERFACES not in p.parents]


@pytest.mark.parametrize(
    "name",
    [
        "backops",
        "backops.reference",
        "backops.plan",
        "backops.infiniop",
        "backops.acl",
        "backops._verify",
        "backops.torch",
    ],
)
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    # The package re-exports functions of private modules: their examples are found by name.
    tests = list(_doctests(module))
    assert tests, f"{name} shows no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def _doctests(module):
    import numpy as np

    things = {module.__name__: module}
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if not name.startswith("_") and callable(value):
            things[f"{module.__name__}.{name}"] = value
    for name, value in things.items():
        # What a reader of these examples has imported.
        names = {**vars(module), "np": np, "backops": backops}
        text = getattr(value, "__doc__", None) or ""
        test = doctest.DocTestParser().get_doctest(text, names, name, module.__file__, 0)
        if test.examples:
            yield test


# Snippets


@pytest.mark.parametrize("page", snippets.PAGES, ids=snippets.name_of)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        snippets.run(page, tmp_path)
    finally:  # a page may enable it for the whole process
        if "backops.torch" in sys.modules:
            sys.modules["backops.torch"].disable()


@pytest.mark.parametrize("page", snippets.PAGES, ids=snippets.name_of)
def test_no_snippet_escapes(page):
    """A block without a language, or indented instead of fenced, would not be run."""
    text = page.read_text(encoding="utf-8")
    blocks = snippets.blocks_of(text)
    assert 2 * len(blocks) == len(re.findall(r"^\s*```", text, re.MULTILINE))
    for block in blocks:
        where = f"{snippets.name_of(page)}:{block.line}"
        assert block.language in LANGUAGES, where
        assert block.reason is None or len(block.reason) > 10, f"{where}: no reason"
        if block.title is not None:
            later = [b.text for b in blocks if b.line > block.line and b.language == "sh"]
            assert any(block.title in shell for shell in later), f"{where}: nothing uses it"
    prose = snippets.FENCE.sub("", text)
    assert not re.findall(r"(?:^|\n)\n {4,}(?![-*\d ])(\S.*)", prose)


def test_failing_snippets_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(snippets, "name_of", lambda page: page.name)
    page = tmp_path / "page.md"
    for number, text in enumerate(["```python\nassert 1 == 2\n```\n", "```sh\nfalse | cat\n```\n"]):
        page.write_text(text)
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError):
            snippets.run(page, folder)


def test_marked_snippets_do_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(snippets, "name_of", lambda page: page.name)
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: takes an hour -->\n```sh\nfalse\n```\n")
    assert [block.reason for block in snippets.blocks_of(page.read_text())] == ["takes an hour"]
    snippets.run(page, tmp_path)


# Names


def prototypes(text, macro=""):
    """Declarations of functions in C, each as one line."""
    found = re.findall(rf"^{macro}\s*([a-z]\w*[\w\s*]*\w\([^;{{]*\);)", text, re.MULTILINE)
    return {re.sub(r"\(\s+", "(", " ".join(each.split())) for each in found}


@pytest.mark.parametrize("language", ["", ".zh"])
@pytest.mark.parametrize("interface", HEADERS)
def test_interface_pages_declare_what_the_headers_do(interface, language):
    folder, macro = HEADERS[interface]
    headers = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.h"))
    page = (INTERFACES / f"{interface}{language}.md").read_text(encoding="utf-8")
    blocks = [b for b in snippets.blocks_of(page) if b.language == "c" and b.title is None]
    declared = prototypes(headers, macro)
    assert len(declared) > 30
    assert prototypes("\n".join(block.text for block in blocks)) == declared


@pytest.mark.parametrize("language", ["", ".zh"])
def test_interface_pages_give_the_values_of_codes(language):
    page = (INTERFACES / f"infiniop{language}.md").read_text(encoding="utf-8")
    header = (HEADERS["infiniop"][0] / "infinicore.h").read_text(encoding="utf-8")
    statuses = re.findall(r"(INFINI_STATUS_\w+) = (\d+)", header)
    assert len(statuses) == 13
    for name, value in statuses:
        assert f"| `{name}` | {value} |" in page
    page = (INTERFACES / f"cann{language}.md").read_text(encoding="utf-8")
    text = "\n".join(path.read_text(encoding="utf-8") for path in HEADERS["cann"][0].rglob("*.h"))
    codes = re.findall(r"#define (ACL(?:NN)?_ERR\w+) (\d+)", text)
    assert len(codes) == 17
    for name, value in codes:
        assert value == "0" or f"| {value} | `{name}` |" in page


def test_python_page_names_every_public_name():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    missing = [name for name in backops.__all__ if name not in page and not name.startswith("__")]
    assert not missing


def test_command_line_page_has_every_command():
    from backops._cli import COMMANDS

    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"\n## {command}\n" in page


# Files


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = snippets.FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES_OUTSIDE_THE_SITE, ids=snippets.name_of)
def test_links_lead_somewhere(page):
    text = snippets.FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors_of(linked), f"{target}: no such heading"


def test_pictures_of_windows_are_those_of_the_script(tmp_path):
    folder = ROOT / "docs" / "pictures"
    subprocess.run([sys.executable, folder / "windows.py", tmp_path], check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) >= 6
    for picture in drawn:
        assert picture.read_bytes() == (folder / picture.name).read_bytes()
