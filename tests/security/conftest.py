"""Sites with certificates and rules in processes of their own, and hostile peers (support/realm.py, hostile.py)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hostile import Hostile, MakeHostile
from support.realm import Realm, SecureSite
from support.realm import realm as make_realm


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    """An authority, and sites and sessions that have certificates of it; all end with the test."""
    with make_realm(tmp_path) as made:
        yield made


@pytest.fixture
def hostile(realm: Realm) -> MakeHostile:
    """A peer with a certificate that plays a site: `hostile("evil", hub)`."""

    def play(name: str, *sites: SecureSite) -> Hostile:
        return Hostile(realm.session(name, *sites), name, realm.folder)

    return play
