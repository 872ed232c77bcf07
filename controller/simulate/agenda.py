"""Virtual time: what happens when, and the clocks that show it."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.core.readings import Instant

Happening = Callable[[], None]

FIRST_WALL_MS = 1_700_000_000_000


@dataclass
class Agenda:
    """Happenings in the order of their time."""

    now_ms: int = 0
    wall_offset_ms: int = FIRST_WALL_MS
    boot: int = 1
    booted_at_ms: int = 0
    _queue: list[tuple[int, int, Happening]] = field(
        default_factory=list[tuple[int, int, Happening]]
    )
    _number: "itertools.count[int]" = field(default_factory=itertools.count)
    _end_ms: int = 0
    """Where the run under way will stop."""

    def after(self, delay_ms: int, happening: Happening) -> None:
        """Let `happening` happen `delay_ms` from now."""
        entry = (self.now_ms + max(0, delay_ms), next(self._number), happening)
        heapq.heappush(self._queue, entry)

    def run_until(self, end_ms: int) -> None:
        """Let everything happen up to `end_ms`, or to where it is hastened, then stand there."""
        before_ms, self._end_ms = self._end_ms, end_ms
        while self._queue and self._queue[0][0] <= self._end_ms:
            at_ms, _, happening = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            happening()
        self.now_ms = max(self.now_ms, self._end_ms)
        self._end_ms = before_ms

    def hasten(self, end_ms: int) -> None:
        """Let the run under way stop at `end_ms` already."""
        self._end_ms = min(self._end_ms, max(end_ms, self.now_ms))

    def reboot(self) -> None:
        """Start the monotonic clock anew under another boot id."""
        self.boot += 1
        self.booted_at_ms = self.now_ms

    @property
    def wall_ms(self) -> int:
        """What the wall clock shows."""
        return self.now_ms + self.wall_offset_ms

    def instant(self) -> Instant:
        """Return the current moment as the controller's clock shows it."""
        mono_ms = self.now_ms - self.booted_at_ms
        return Instant(wall_ms=self.wall_ms, mono_ms=mono_ms, boot_id=f"boot-{self.boot}")
