"""Property tests that no slow machine fails."""

import os

from hypothesis import HealthCheck, settings

# Speed is measured by the benchmarks; here it would only make tests flaky.
# Where changes land, the same examples each time: a failure there must be reproducible at once.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")
