"""Objects of users' modules, named `module:name`: decoders, functions of a site, work, sinks and algorithms of nodes.

The module is imported in this process, as Python finds it. Whatever it raises is an OptionError, so that a faulty
module is a problem of what names it. Not here: what the object must be; that is for the caller to check.
"""

import importlib
from typing import Any

from headrace.errors import OptionError


def load_object(name: str, what: str = "", folders: str = "PYTHONPATH") -> Any:
    """The object `module:name`, or `module:name.attribute`; OptionError says what is missing.

    `what` is the kind of object, for messages; `folders` says where modules are looked for.
    """
    module, _, path = name.partition(":")
    shown = f"{what} {name!r}".lstrip()
    if not module or not path:
        raise OptionError(f"{shown} is invalid", "write MODULE:NAME, such as decode:work for work in decode.py")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{shown}: there is no module {error.name!r}", f"install it, or add its folder to {folders}"
        ) from None
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise OptionError(f"{shown}: its module fails with {why}", "fix the module") from error
    try:
        for part in path.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise OptionError(f"{shown}: module {module!r} has no {path!r}", "check the spelling") from None
    return found
