"""The gang: what ranks tell each other outside the step, always under a deadline.

Nothing here is a device collective, because those have no timeout: all goes through the key-value
store of the coordination service, which rank 0 serves. A wait that ends in vain names the ranks
that were missing.
"""

import logging
import threading
import time
from typing import Protocol

import jax

# The client of the coordination service has no public name; orbax takes it from here as well.
from jax._src import distributed

from trainer.seat import Seat

LOG = logging.getLogger(__name__)

POLL_S = 0.02
MS_PER_S = 1000


class GangError(RuntimeError):
    """Peers did not answer in time, or the coordination service is gone."""


class Store(Protocol):
    """Keys and values that all ranks see.

    A key that is there when one rank begins a step is seen by every rank before the next step.
    """

    def put(self, key: str, value: str) -> None:
        """Set `key`."""
        ...

    def entries(self, prefix: str) -> dict[str, str]:
        """Return all keys under the folder `prefix`."""
        ...

    def wait(self, key: str, timeout_s: float) -> str | None:
        """Return the value of `key`, or None when it was not set in time."""
        ...

    def forget(self, key: str) -> None:
        """Remove `key` and what is below it."""
        ...


class LocalStore:
    """The store of a gang of one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        """Set `key`."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def entries(self, prefix: str) -> dict[str, str]:
        """Return all keys under the folder `prefix`."""
        with self._changed:
            return {k: v for k, v in self._values.items() if k.startswith(f"{prefix}/")}

    def wait(self, key: str, timeout_s: float) -> str | None:
        """Return the value of `key`, or None when it was not set in time."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, timeout_s)
            return self._values.get(key)

    def forget(self, key: str) -> None:
        """Remove `key` and what is below it."""
        with self._changed:
            gone = [k for k in self._values if k == key or k.startswith(f"{key}/")]
            for name in gone:
                del self._values[name]


class Client(Protocol):
    """The part of the coordination service's client that is used here."""

    def key_value_set(self, key: str, value: str, *, allow_overwrite: bool) -> None: ...

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]: ...

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str: ...

    def key_value_delete(self, key: str) -> None: ...


class ServiceStore:
    """The store that the coordination service of rank 0 keeps."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, key: str, value: str) -> None:
        """Set `key`; raises GangError."""
        try:
            self._client.key_value_set(key, value, allow_overwrite=True)
        except jax.errors.JaxRuntimeError as error:
            raise GangError(f"cannot tell the gang {key}: {first_line(error)}") from error

    def entries(self, prefix: str) -> dict[str, str]:
        """Return all keys under the folder `prefix`; raises GangError."""
        try:
            return dict(self._client.key_value_dir_get(f"{prefix}/"))
        except jax.errors.JaxRuntimeError as error:
            raise GangError(f"cannot ask the gang for {prefix}: {first_line(error)}") from error

    def wait(self, key: str, timeout_s: float) -> str | None:
        """Return the value of `key`, or None when it was not set in time; raises GangError."""
        try:
            return self._client.blocking_key_value_get(key, max(1, int(timeout_s * MS_PER_S)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise GangError(f"cannot ask the gang for {key}: {first_line(error)}") from error

    def forget(self, key: str) -> None:
        """Remove `key` and what is below it; raises GangError."""
        try:
            self._client.key_value_delete(key)
        except jax.errors.JaxRuntimeError as error:
            raise GangError(f"cannot remove {key}: {first_line(error)}") from error


class Gang:
    """All ranks of an attempt, as one of them sees them."""

    def __init__(self, rank: int, ranks: int, store: Store) -> None:
        self.rank = rank
        self.ranks = ranks
        self.store = store

    def gather(self, name: str, value: str, timeout_s: float) -> list[str]:
        """Return what every rank gave under `name` (used once in an attempt), by rank.

        Raises:
            GangError: some did not give theirs in time; the message names them.
        """
        self.store.put(f"{name}/{self.rank}", value)
        deadline = time.monotonic() + timeout_s
        values = [
            self.store.wait(f"{name}/{rank}", deadline - time.monotonic())
            for rank in range(self.ranks)
        ]
        missing = [rank for rank, value in enumerate(values) if value is None]
        if missing:
            raise GangError(f"{name}: nothing from ranks {missing} within {timeout_s:.0f} s")
        return [value for value in values if value is not None]

    def share(self, name: str, value: str | None, timeout_s: float) -> str:
        """Return what rank 0 gave under `name` (used once in an attempt); others give None.

        Raises:
            GangError: rank 0 did not give it in time.
        """
        if self.rank == 0:
            assert value is not None
            self.store.put(name, value)
            return value
        answer = self.store.wait(name, timeout_s)
        if answer is None:
            raise GangError(f"{name}: nothing from rank 0 within {timeout_s:.0f} s")
        return answer

    def meet(self, name: str, timeout_s: float) -> None:
        """Wait until every rank is at `name` (used once in an attempt); raises GangError."""
        self.gather(name, "", timeout_s)

    def part(self, timeout_s: float, settle_s: float = 0.3) -> None:
        """Let the others leave first: rank 0 serves the store, and its end aborts the rest."""
        try:
            self.store.put(f"leaving/{self.rank}", "")
            if self.rank == 0 and self.ranks > 1:
                self.meet("left", timeout_s)
                threading.Event().wait(settle_s)
            elif self.rank:
                self.store.put(f"left/{self.rank}", "")
        except GangError as error:
            LOG.warning("%s", error)


def join(seat: Seat, *, timeout_s: float, heartbeat_s: float) -> Gang:
    """Meet the other ranks at the coordinator and return the gang.

    The preemption service stays off: its notifier would swallow SIGTERM.

    Raises:
        GangError: not all ranks came within `timeout_s`.
    """
    if seat.ranks == 1:
        return Gang(0, 1, LocalStore())
    jax.config.update("jax_enable_preemption_service", False)  # noqa: FBT003  jax's signature
    try:
        jax.distributed.initialize(
            coordinator_address=seat.coordinator,
            num_processes=seat.ranks,
            process_id=seat.rank,
            initialization_timeout=max(1, int(timeout_s)),
            heartbeat_timeout_seconds=max(1, int(heartbeat_s)),
            coordinator_bind_address=seat.coordinator if seat.is_first else None,
        )
    except jax.errors.JaxRuntimeError as error:
        raise GangError(f"rendezvous at {seat.coordinator}: {first_line(error)}") from error
    client = distributed.global_state.client
    assert client is not None, "initialize made it"
    return Gang(seat.rank, seat.ranks, ServiceStore(client))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
