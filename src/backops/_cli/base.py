"""What all commands share: an example in the help, one-line errors, and loading when called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from backops._command import CommandError, UsageError


class Command(click.Command):
    """A command with `--debug`, whose failures are one line.

    `example`: shell lines that work when pasted, shown under the help as they are.
    `failure`: the exit status of a failure; that of wrong usage is 2.
    """

    def __init__(self, *arguments: Any, example: str, failure: int = 1, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.example = example
        self.failure = failure
        self.params.append(
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error.")
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        debug = ctx.params.pop("debug")
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The reader went away (`backops bench pool | head`); Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            print(f"{ctx.command_path}: interrupted", file=sys.stderr)
            return 130
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if debug:
                raise
            print(f"{ctx.command_path}: {one_line(error)}", file=sys.stderr)
            return 2 if isinstance(error, UsageError) else self.failure


class Group(click.Group):
    """Commands that are loaded from `modules` when they are called; each module has a `command`."""

    def __init__(
        self, name: str, *, example: str, modules: Mapping[str, str] | None = None, **keywords: Any
    ) -> None:
        super().__init__(name, no_args_is_help=False, **keywords)
        self.example = example
        self.modules = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.modules, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(self.modules[cmd_name]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            ctx.fail(f"a command is required: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.example, formatter)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Without wrapping: what is pasted must be what was meant."""
    first, *rest = example.strip().splitlines()
    formatter.write(f"\nexample: {first}\n")
    for line in rest:
        formatter.write(f"         {line}\n")


def usage_line(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "backops"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        message = f"{error.param.make_metavar(error.ctx)} is required" if error.ctx else "required"
        if isinstance(error.param, click.Option):
            message = f"{error.param.opts[0]} is required"
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
    return f"{path}: {message} (see {path} --help)"


def one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, CommandError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {text}"
