"""Builds an sdist, and from it a wheel for each Python that is found, and tries every one in an empty environment.

    python3 .ci/wheel.py [PYTHON ...]        such as python3.12 /opt/python/cp313-cp313/bin/python

Without arguments, python3.11, python3.12 and python3.13 are looked for. dist/ has the files afterwards, and nothing
else. Everything is built in isolation, as pip does it on the machine of a user; nothing comes from .venv.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SUPPORTED = ("3.11", "3.12", "3.13")
QUIET = ("--quiet", "--disable-pip-version-check")


def main() -> None:
    pythons = found(sys.argv[1:] or [f"python{version}" for version in SUPPORTED])
    if not pythons:
        sys.exit("no Python was found that Headrace supports: name one, such as make wheel PYTHONS=/usr/bin/python3.12")
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as name:
        folder = Path(name)
        shutil.rmtree(DIST, ignore_errors=True)
        builder = environment(pythons[0], folder / "build", "build")
        run(builder, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
        (sdist,) = DIST.glob("*.tar.gz")
        for number, python in enumerate(pythons):
            run(python, "-m", "pip", *QUIET, "wheel", "--no-deps", "--wheel-dir", folder / f"wheel-{number}", sdist)
            (wheel,) = (folder / f"wheel-{number}").glob("*.whl")
            attempt(python, folder / f"from-wheel-{number}", wheel)
            wheel.replace(DIST / wheel.name)
        attempt(pythons[0], folder / "from-sdist", sdist)
    print("dist/:", *sorted(path.name for path in DIST.iterdir()), sep="\n  ")


def found(names: list[str]) -> list[str]:
    """Those that run and have a supported version; the others are named."""
    usable = []
    for name in names:
        try:
            ask = [name, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(ask, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            print(f"skipped: {name} was not found, does not run, or has no ensurepip")
            continue
        if done.stdout.strip() in SUPPORTED:
            usable.append(name)
        else:
            print(f"skipped: {name} is Python {done.stdout.strip()}, which is not supported")
    return usable


def attempt(python: str, folder: Path, package: Path) -> None:
    """Install one file into an empty environment and try it there."""
    print(f"{package.name} with {python}:", flush=True)
    run(environment(python, folder, str(package)), ROOT / ".ci" / "smoke.py", cwd=folder)


def environment(python: str, folder: Path, *packages: str) -> Path:
    """The Python of a new virtual environment with these packages."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", *QUIET, "install", *packages)
    return inside


def run(*command: object, cwd: Path | None = None) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=cwd)


if __name__ == "__main__":
    main()
