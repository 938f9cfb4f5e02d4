"""What `headrace[all]` brings along, as CycloneDX JSON: `make sbom` writes build/sbom.cdx.json.

cyclonedx-py lists all that is installed in the environment, the tools of developers included. Only what Headrace and
its extras require is kept, by the metadata of what is installed. The result is valid by the schema of CycloneDX, or
this ends with an error.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
TOOLS = {"test", "docs", "lint", "sbom", "all"}  # extras that are for developers, or a sum of others
ROOT_REF = "root-component"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom.cdx.json"
    document = restricted(environment(), required())
    text = json.dumps(document, indent=2, ensure_ascii=True) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        sys.exit(f"the list is not valid CycloneDX 1.6: {problem}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(f"{target}: {len(document['components'])} components")


def environment() -> dict[str, Any]:
    """Everything that is installed here."""
    words = ["environment", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--sv", "1.6"]
    command = [sys.executable, "-m", "cyclonedx_py", *words, "--of", "JSON", sys.executable]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def direct() -> list[str]:
    """The requirements of the project, and of its extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].items()
    return [*project["dependencies"], *(each for extra, needs in extras if extra not in TOOLS for each in needs)]


def required() -> set[str]:
    """The names of what they require, and what that requires, as far as it is installed."""
    names: set[str] = set()
    left = [Requirement(each) for each in direct()]
    while left:
        need = left.pop()
        name = normal(need.name)
        if name not in names:
            names.add(name)
            left += _requirements(name, need.extras)
    return names


def _requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of an extra that is not installed
        return
    for need in map(Requirement, texts):
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield need


def restricted(document: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The document with the components of these names alone, and what they depend on among them."""
    components = [each for each in document["components"] if normal(each["name"]) in names]
    refs = {each["bom-ref"] for each in components} | {ROOT_REF}
    dependencies = [
        {**each, "dependsOn": [ref for ref in each.get("dependsOn", []) if ref in refs]}
        for each in document["dependencies"]
        if each["ref"] in refs
    ]
    return {**document, "components": components, "dependencies": dependencies}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
