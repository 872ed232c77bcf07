"""What of the environment reaches the ranks: nothing that would change what they compute.

A run file is the whole truth about a run: a variable that somebody's shell happens to hold is not
in it, and the next controller's shell may lack it. Who wants one writes it there:
`trainer.command: [env, XLA_FLAGS=..., python, ...]`.
"""

from collections.abc import Mapping

JAX_KEPT = frozenset({"JAX_COMPILATION_CACHE_DIR", "JAX_PLATFORMS"})
"""Where compiled programs lie, and which devices there are: the machine's facts, not the run's."""
PYTHON_KEPT = frozenset(
    {
        "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPLATLIBDIR",
        "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER",
    }
)  # fmt: skip
"""Where modules lie, and what changes no meaning; others switch assertions off, or ends' codes."""
OTHERS = frozenset({"XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS"})
LOCAL = ("127.0.0.1", "localhost", "::1")
NO_PROXY = ("no_proxy", "NO_PROXY", "no_grpc_proxy")


def list_withheld(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that do not reach the ranks, sorted."""
    return sorted(name for name in environment if is_withheld(name))


def is_withheld(name: str) -> bool:
    """Return whether a variable of that name would change what a rank computes, or how it ends."""
    if name.startswith("JAX_"):
        return name not in JAX_KEPT
    if name.startswith("PYTHON"):
        return name not in PYTHON_KEPT
    return name in OTHERS


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what reaches the ranks; ranks never talk to each other through a proxy."""
    kept = {name: value for name, value in environment.items() if not is_withheld(name)}
    if any(name.lower().endswith("_proxy") for name in kept):
        kept |= {name: _except_local(kept.get(name, "")) for name in NO_PROXY}
    return kept


def _except_local(hosts: str) -> str:
    named = [host for host in hosts.split(",") if host]
    return ",".join([*named, *(host for host in LOCAL if host not in named)])
