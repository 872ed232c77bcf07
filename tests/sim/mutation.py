"""A mutant: one function of the core with another text, or broken rules, and what catches it."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, reduce
from types import FunctionType

from controller.core.rules import Rule


@dataclass(frozen=True)
class Edit:
    """Another text in one function."""

    place: str
    """module:function, or module:class.function."""
    old: str
    """Stands there exactly once."""
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the function be the edited one, wherever it is already imported."""
        function = find_function(self.place)
        kept = function.__code__
        function.__code__ = compile_edited(function, self.old, self.new)
        try:
            yield
        finally:
            function.__code__ = kept


@dataclass(frozen=True)
class ByLife:
    """A checker of the simulator barks in a life."""

    phrase: str
    """Of the violation."""
    violations: Callable[..., object]

    def __str__(self) -> str:
        return f'simulation: "{self.phrase}"'

    def catches(self, changes: dict[str, object]) -> bool:
        """Return whether the life under changed rules or ports shows it."""
        return self.phrase in " | ".join(self.violations(**changes))

    def is_silent(self) -> bool:
        """Return whether the life under the core as it is does not show it."""
        return self.phrase not in tell_unchanged(self.violations)


@dataclass(frozen=True)
class ByTest:
    """A test of the core fails."""

    place: str
    """module:function."""
    values: tuple[object, ...] = ()
    """Of its parameters."""

    def __str__(self) -> str:
        return f"`{self.place.partition(':')[2]}`"

    def catches(self, changes: dict[str, object]) -> bool:
        """Return whether the test fails."""
        assert not changes, "a test runs under the core's own rules"
        try:
            find(f"tests.controller.{self.place}")(*self.values)
        except (AssertionError, TypeError):  # `in None`, where there should be words
            return True
        return False

    def is_silent(self) -> bool:
        """Return whether the test passes on the core as it is."""
        return not self.catches({})


@cache
def tell_unchanged(violations: Callable[..., object]) -> str:
    """Return the violations of a life under the core as it is; several mutants share one life."""
    return " | ".join(violations())


@dataclass(frozen=True)
class Mutant:
    """One way in which the core could be wrong."""

    name: str
    breaks: str
    catcher: ByLife | ByTest
    edit: Edit | None = None
    changes: dict[str, object] = field(default_factory=dict)
    """Rules, or ports behind a wrapper, instead of the core's own."""

    def is_caught(self) -> bool:
        """Return whether the catcher catches it."""
        with self.edit.applied() if self.edit else nullcontext():
            return self.catcher.catches(self.changes)

    def is_silent(self) -> bool:
        """Return whether the catcher is silent without it."""
        return self.catcher.is_silent()


def find(place: str) -> object:
    """Return what stands at module:name."""
    module, _, names = place.partition(":")
    return reduce(getattr, names.split("."), importlib.import_module(module))


def find_function(place: str) -> FunctionType:
    """Return the function at a place; that of a rule is what it asks."""
    found = find(place)
    function = found.ask if isinstance(found, Rule) else found
    assert isinstance(function, FunctionType), place
    return function


def compile_edited(function: FunctionType, old: str, new: str) -> object:
    """Return the code of the function with `new` in the place of `old`."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {function}"
    tree = ast.parse(source.replace(old, new))
    tree.body[0].decorator_list = []
    names: dict[str, object] = {}
    exec(compile(tree, f"<mutant of {function.__name__}>", "exec"), function.__globals__, names)
    return names[function.__name__].__code__
