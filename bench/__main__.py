"""Every figure that docs/figures.md quotes, one page after the other: `make bench`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run each bench as a process of its own; return 1 if one fails."""
    names = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    failed = [name for name in names if _run(name)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


def _run(name: str) -> int:
    print(f"\n== bench.{name}", flush=True)
    command = [sys.executable, "-m", f"bench.{name}"]
    return subprocess.run(command, cwd=HERE.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
