"""A site: its configuration, and the daemon that runs it."""

from headrace.site.config import SiteConfig
from headrace.site.loading import check_config, load_config
from headrace.toml.document import Problem

__all__ = ["Problem", "SiteConfig", "check_config", "load_config"]
