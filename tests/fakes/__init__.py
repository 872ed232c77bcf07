"""One stateful fake per port.

The simulated world is the fake: it passes the suites of the real adapters, and nothing is faked
twice. May live here: what tests need around it. May not: mocks.
"""

from controller.simulate.world import (
    SimCheckpoints,
    SimClock,
    SimFleet,
    SimIntents,
    SimProgress,
    SimPublisher,
    SimStatus,
    SimTelemetry,
    World,
)

__all__ = [
    "SimCheckpoints",
    "SimClock",
    "SimFleet",
    "SimIntents",
    "SimProgress",
    "SimPublisher",
    "SimStatus",
    "SimTelemetry",
    "World",
]
