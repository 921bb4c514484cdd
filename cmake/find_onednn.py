"""Prints the include folder and the library of the installed oneDNN packages, separated by ';'."""

import importlib.metadata
import sys
from pathlib import Path


def find(package: str, name: str) -> Path:
    """The file `name` of an installed package."""
    for file in importlib.metadata.files(package) or ():
        if file.name == name and Path(str(file.locate())).is_file():
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"{package} has no {name}")


if __name__ == "__main__":
    try:
        # The first dnnl.hpp only leads to the one in oneapi/dnnl; both do.
        headers = find("onednn-devel-cpu-gomp", "dnnl.hpp").parent
        library = find("onednn-cpu-gomp", "libdnnl.so.3")
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError) as error:
        sys.exit(f"oneDNN: {error}")
    if headers.name == "dnnl":
        headers = headers.parents[1]
    print(f"{headers};{library}")
