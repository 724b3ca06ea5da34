"""Say before a download what would make the set-up fail; runs on Python 3.6 and newer."""

import importlib.util
import shutil
import sys
from pathlib import Path

NEEDED_PYTHON = (3, 11)
NEEDED_GIB = 8  # torch with its CUDA libraries: 5.6 GiB unpacked, the rest while it is unpacked.


def find_obstacles(
    venv: Path, version: "tuple[int, ...]" = sys.version_info[:2], free_bytes: "int | None" = None
) -> "list[str]":
    """Name what stands in the way of installing into the folder `venv`, one line each."""
    if version < NEEDED_PYTHON:
        return [
            "Python {}.{} is too old: latentmill needs 3.11 or newer. Install one, then run "
            "make PYTHON=/path/to/python3.11".format(*version)
        ]
    obstacles = []
    if importlib.util.find_spec("ensurepip") is None:
        obstacles.append(
            "this Python cannot make virtual environments: install its venv package "
            "(Debian, Ubuntu: apt install python3-venv)"
        )
    if free_bytes is None:
        free_bytes = shutil.disk_usage(str(venv.absolute().parent)).free
    if free_bytes < NEEDED_GIB * 2**30 and not list(venv.glob("lib/python*/site-packages/torch")):
        obstacles.append(
            f"{free_bytes / 2**30:.1f} GiB are free where {venv} lies, torch and the rest need "
            f"about {NEEDED_GIB}. Free some, or put it elsewhere: make VENV=/path/to/a/folder"
        )
    return obstacles


def main() -> None:
    """Print the obstacles and exit with 2 when there are any."""
    obstacles = find_obstacles(Path(sys.argv[1]))
    for obstacle in obstacles:
        sys.stderr.write("latentmill set-up: " + obstacle + "\n")
    sys.exit(2 if obstacles else 0)


if __name__ == "__main__":
    main()
