"""Property tests that no slow machine fails."""

from hypothesis import HealthCheck, settings

# Speed is measured by the benchmarks; here it would only make tests flaky.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
