"""Standing between a controller and its ports: every call is announced before and after."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import cast

from controller.runtime.observe import Ports

Hook = Callable[[str, str], None]
"""Told ("before" | "after", "port.method")."""

UNTAPPED = ("clock",)
"""Reading the time changes nothing, and is done everywhere."""


class ControllerKilled(BaseException):
    """SIGKILL at this very place: nothing that the controller would have done next is done."""


@dataclass
class Tap:
    """One port behind a hook."""

    port: object
    name: str
    hook: Hook

    def __getattr__(self, method: str) -> object:
        """Return the port's method, announced before and after."""
        call = cast("Callable[..., object]", getattr(self.port, method))

        def announced(*values: object, **named: object) -> object:
            self.hook("before", f"{self.name}.{method}")
            result = call(*values, **named)
            self.hook("after", f"{self.name}.{method}")
            return result

        return announced


def tap(ports: Ports, hook: Hook) -> Ports:
    """Return the same ports behind `hook`."""
    names = [one.name for one in fields(Ports) if one.name not in UNTAPPED]
    return replace(ports, **{name: Tap(getattr(ports, name), name, hook) for name in names})


@dataclass
class Killer:
    """Strikes at one moment of a controller's life: before or after its n-th port call."""

    at: tuple[int, str] | None = None
    deed: Callable[[], None] | None = None
    """What happens then; None: the controller is killed."""
    calls: int = 0
    names: list[str] = field(default_factory=list[str])

    def __call__(self, side: str, name: str) -> None:
        """Count the call; strike at the chosen one."""
        if side == "before":
            self.calls += 1
            self.names.append(name)
        if self.at != (self.calls, side):
            return
        self.at = None
        if self.deed is None:
            raise ControllerKilled(f"{side} call {self.calls} ({name})")
        self.deed()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Neither count nor strike: the calls are another controller's."""
        before = (self.at, self.calls)
        self.at = None
        try:
            yield
        finally:
            self.at, self.calls = before
