"""What MetPy reads from the same reports and radar files. Its comparisons run in a process of their own.

MetPy loads pyproj, the tests of GRIB load eccodes, and each brings its own copy of a geodesy library: a process that
has loaded both crashes when it ends.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["metpy_metar.py", "metpy_nexrad.py"])
def test_metpy_agrees(name: str) -> None:
    file = Path(__file__).parent / name
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
