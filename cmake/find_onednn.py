"""Prints the headers, library and license texts of the installed oneDNN, separated by ";"."""

import importlib.metadata
import sys
from pathlib import Path


def find(package: str, *names: str) -> list[Path]:
    """The files of an installed package that have one of these names."""
    files = [f for f in importlib.metadata.files(package) or () if f.name in names]
    found = [Path(str(file.locate())).resolve() for file in files]
    if not found:
        raise FileNotFoundError(f"{package} has no {names[0]}")
    return found


if __name__ == "__main__":
    try:
        headers = find("onednn-devel-cpu-gomp", "dnnl.hpp")
        library = find("onednn-cpu-gomp", "libdnnl.so.3")[0]
        licenses = find("onednn-cpu-gomp", "LICENSE", "THIRD-PARTY-PROGRAMS")
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError) as error:
        sys.exit(f"oneDNN: {error}")
    # One dnnl.hpp only leads to the other, in oneapi/dnnl.
    folder = min((header.parent for header in headers), key=lambda path: len(path.parts))
    print(";".join(map(str, [folder, library, *licenses])))
