"""Objects of users' modules, named `module:name`."""

from pathlib import Path

import pytest

from headrace.errors import OptionError
from headrace.user_objects import load_object


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    contents = {
        "objects_fine": "class Outer:\n    inner = 3\n", "objects_needs": "import objects_missing",
        "objects_ends": "raise SystemExit", "objects_misspells": "import os\nos.no_such_thing",
    }  # fmt: skip
    for name, text in contents.items():
        (tmp_path / f"{name}.py").write_text(text)


def test_an_object_and_its_attribute_are_found() -> None:
    assert load_object("objects_fine:Outer").inner == load_object("objects_fine:Outer.inner") == 3


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("objects_none:f", "there is no module 'objects_none'", "add its folder to PYTHONPATH"),
        ("objects_needs:f", "there is no module 'objects_missing'", "install it"),
        ("objects_fine:f", "module 'objects_fine' has no 'f'", "check the spelling"),
        ("objects_fine:Outer.x", "module 'objects_fine' has no 'Outer.x'", "check the spelling"),
        ("objects_ends:f", "its module fails with SystemExit", "fix the module"),
        ("objects_misspells:f", "its module fails with AttributeError: module 'os' has no", "fix the module"),
        (":f", "is invalid", "write MODULE:NAME"),
        ("objects_fine", "is invalid", "write MODULE:NAME"),
        ("objects_fine:", "is invalid", "write MODULE:NAME"),
    ],
)
def test_what_is_missing_is_an_error_with_the_remedy(name: str, problem: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        load_object(name, "sink")
    assert caught.value.problem.startswith(f"sink {name!r}")
    assert problem in caught.value.problem
    assert hint in caught.value.hint
    with pytest.raises(OptionError) as caught:
        load_object(name)
    assert caught.value.problem.startswith(repr(name))
