"""`backops env`: shell lines for builds against the C libraries."""

from __future__ import annotations

import shlex

import click

from backops._cli.base import Command


@click.command(cls=Command, example='eval "$(backops env infini)"')
@click.argument("interface", type=click.Choice(("infini", "cann")))
def command(interface: str) -> None:
    """Prints the shell lines with which C programs find headers and libraries.

    INTERFACE: infini for InfiniOp and InfiniRT, cann for CANN.
    """
    variables: tuple[str, ...]
    if interface == "infini":
        from backops import infiniop

        variables, root, libraries = ("INFINI_ROOT",), infiniop.root(), "lib"
    else:
        from backops import acl

        variables = ("ASCEND_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
        root, libraries = acl.root(), "lib64"
    for variable in variables:
        print(f"export {variable}={shlex.quote(str(root))}")
    path = f"${variables[0]}/{libraries}"
    print(f'export LD_LIBRARY_PATH="{path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
