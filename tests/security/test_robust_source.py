"""Every thread and every callback of the source comes through guard.py, and every loop has its test."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from test_robust_threads import LOOPS, OTHERWISE

import headrace

SOURCE = Path(headrace.__file__).parent
ASIDE = ("bench", "demo", "testing")  # programs of their own, and fakes
POOLS = {  # whoever submits to them takes the result
    "payload/fragments/arrivals.py", "payload/fragments/receiver.py", "payload/fragments/reading.py", "site/map.py",
}  # fmt: skip
DECLARING = {
    "declare_subscriber", "declare_queryable", "declare_transport_events_listener", "declare_link_events_listener",
    "Callback",
}  # fmt: skip
WORDS = re.compile(r"Thread|Timer|Executor|declare_|Callback")


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Those in which a word of threads or callbacks stands."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = str(path.relative_to(SOURCE)), path.read_text()
        if not name.startswith(ASIDE) and name != "guard.py" and WORDS.search(text):
            found.append((name, ast.parse(text)))
    return found


def calls(tree: ast.Module, *names: str) -> Iterator[ast.Call]:
    """Calls of these functions or methods, whatever they belong to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names:
                yield node


def test_no_thread_is_started_past_the_guard() -> None:
    assert [name for name, tree in modules() if any(calls(tree, "Thread", "start_new_thread"))] == []
    timers = [(name, call) for name, tree in modules() for call in calls(tree, "Timer")]
    assert [name for name, call in timers if "guarded(" not in ast.unparse(call)] == []
    assert {name for name, tree in modules() if any(calls(tree, "ThreadPoolExecutor"))} == POOLS


def test_no_callback_of_zenoh_is_declared_past_the_guard() -> None:
    found = [(name, call) for name, tree in modules() for call in calls(tree, *DECLARING)]
    assert len(found) > 10
    bare = [
        f"{name}:{call.lineno}"
        for name, call in found
        if not any(guard in ast.unparse(call) for guard in ("guarded(", "_directly("))  # the latter calls the former
    ]
    assert bare == []


def test_every_loop_has_a_test_in_which_it_fails() -> None:
    """Their names stand in the files that start them."""
    named = {
        node.value
        for _, tree in modules()
        if any(calls(tree, "GuardedThread", "FairThreads"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).startswith("headrace-") and node.value != "headrace-"
    }
    assert {name.rstrip("-") for name in named} == {*LOOPS, *OTHERWISE}
