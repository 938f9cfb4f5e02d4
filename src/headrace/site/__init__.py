"""A site: its configuration, and the daemon that runs it."""

from headrace.extras import require

require("sites")  # before the imports below fail

from headrace.site.config import SiteConfig  # noqa: E402
from headrace.site.loading import check_config, load_config  # noqa: E402
from headrace.toml.document import Problem  # noqa: E402

__all__ = ["Problem", "SiteConfig", "check_config", "load_config"]
