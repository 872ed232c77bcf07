"""Renders the reference of `ctl` from the commands themselves."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import typer.main

from controller.cli.main import app


class Parameter(Protocol):
    """What is read of an argument or option."""

    name: str
    opts: Sequence[str]
    required: bool
    default: object
    envvar: str | None
    help: str | None
    is_flag: bool


class Command(Protocol):
    """What is read of a command."""

    name: str
    help: str
    params: Sequence[Parameter]


def render_commands() -> str:
    """Return one section a command: usage, meaning, arguments and options."""
    ctl = cast("Command", typer.main.get_command(app))
    options = [f"- `{_title(it)}` {_meaning(it)}" for it in ctl.params if it.name != "help"]
    head = ["# Commands\n", "## ctl\n", f"{ctl.help}\n", *options, ""]
    return "\n".join([*head, *map(_render, list_commands())])


def list_commands() -> list[Command]:
    """Return the commands in the order of `ctl --help`."""
    commands: dict[str, object] = vars(typer.main.get_command(app))["commands"]
    return [cast("Command", command) for command in commands.values()]


def list_variables() -> Iterator[tuple[str, str]]:
    """Yield each environment variable that stands in for an option, and that option."""
    found: dict[str, str] = {}
    for command in list_commands():
        for it in command.params:
            if it.envvar:
                found.setdefault(f"`{it.envvar}`", f"`{_title(it)}` {_meaning(it)}")
    yield from sorted(found.items())


def _render(command: Command) -> str:
    arguments = [_usage(param) for param in command.params if _is_argument(param)]
    usage = " ".join(["ctl", command.name, *arguments, "[OPTIONS]"])
    rows = [f"- `{_title(it)}` {_meaning(it)}" for it in command.params if it.name != "help"]
    return "\n".join([f"## {usage}\n", f"{command.help}\n", *rows, ""])


def _is_argument(param: Parameter) -> bool:
    return not param.opts[0].startswith("-")


def _usage(argument: Parameter) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _title(param: Parameter) -> str:
    if _is_argument(param):
        return param.name.upper()
    names = ", ".join(param.opts)
    return names if param.is_flag else f"{names} VALUE"


def _meaning(param: Parameter) -> str:
    text = param.help or ""
    if not _is_argument(param) and not param.is_flag and param.default is not None:
        text += f" Default: {param.default}."
    return text + (f" Environment: {param.envvar}." if param.envvar else "")
