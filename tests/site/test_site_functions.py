"""The table [functions]: what it may contain, and what a site does with it."""

import os
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import ConfigError, SelectionError
from headrace.site.loading import check_config, load_config, load_functions_of
from support.daemon import Daemon
from support.fleet import free_port

FILTERS = """
from headrace import Product

LIMIT = 20

def strong_wind(product: Product) -> bool:
    return product.properties["wind"] > LIMIT

def two(a, b):
    return True
"""


def write(folder: Path, functions: str) -> Path:
    path = folder / "site.toml"
    path.write_text(f'[site]\nqueue = "wx.queue"\nlisten = ["tcp/127.0.0.1:{free_port()}"]\n[functions]\n{functions}\n')
    return path


@pytest.fixture
def filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user, of a name that no other test has."""
    name = f"filters_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FILTERS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_the_functions_of_a_file_are_loaded(tmp_path: Path, filters: str) -> None:
    path = write(tmp_path, f'strong_wind = "{filters}:strong_wind"')
    assert check_config(path) == []
    assert load_config(path).functions == {"strong_wind": f"{filters}:strong_wind"}
    (function,) = load_functions_of(path).values()
    assert function.__module__ == filters


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        ('f = "no_such_module:f"', "there is no module 'no_such_module'", "PYTHONPATH"),
        ('f = "FILTERS:g"', "has no 'g'", "check the spelling"),
        ('f = "FILTERS:LIMIT"', "is a int, not a function", "give a function"),
        ('f = "FILTERS:two"', "does not take one product", "def name"),
        ('f = "FILTERS"', "does not name a function", "module:function"),
        ("f = 5", "does not name a function", "module:function"),
        ('"f g" = "FILTERS:two"', "not the name of a function", "letters"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_reported_with_its_line(
    tmp_path: Path, filters: str, line: str, problem: str, hint: str
) -> None:
    path = write(tmp_path, line.replace("FILTERS", filters))
    (found,) = check_config(path)
    assert (found.line, found.table) == (5, "[functions]")
    assert problem in found.problem
    assert hint in found.hint
    with pytest.raises(ConfigError, match=r"site\.toml:5"):
        load_functions_of(path)


def test_a_module_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_filters.py").write_text("1 / 0")
    (found,) = check_config(write(tmp_path, 'f = "broken_filters:f"'))
    assert "its module fails with ZeroDivisionError" in found.problem


def test_reading_a_configuration_imports_nothing(tmp_path: Path, filters: str) -> None:
    load_config(write(tmp_path, f'f = "{filters}:strong_wind"'))
    assert filters not in sys.modules


def test_functions_that_are_no_table_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('functions = "x"\n[site]\nqueue = "wx.queue"\n')
    (found,) = check_config(path)
    assert found.problem == "it is not a table"


def test_a_request_and_a_rule_must_not_name_a_function(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[site]\nqueue = "wx.queue"\n[[request]]\nselect = "wx function f"\n')
    (found,) = check_config(path)
    assert "evaluated by readers and stations only" in found.problem


@pytest.mark.processes
def test_a_site_serves_stations_that_select_by_its_functions(
    tmp_path: Path, filters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    path = write(tmp_path, f'strong_wind = "{filters}:strong_wind"')
    endpoint = load_config(path).site.listen[0]
    with Daemon(path) as daemon:
        daemon.wait_until_ready()
        with headrace.connect(endpoint) as queue:
            station = queue.station("wind", "wx/** function strong_wind")
            for wind in (10, 30, 40):
                queue.put(b"%d" % wind, feed="wx/a", properties={"wind": wind})
            with station.attach() as consumer:
                assert [bytes(product.payload) for product in consumer.get(3, timeout=60)] == [b"30", b"40"]
            with pytest.raises(SelectionError, match="no function 'calm' here; there is strong_wind"):
                queue.read_batch(1, "function calm")
