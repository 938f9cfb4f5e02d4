"""A site: its configuration, and the daemon that runs it."""

from headrace.site.complaint import Complaint
from headrace.site.config import SiteConfig
from headrace.site.loading import check_config, load_config

__all__ = ["Complaint", "SiteConfig", "check_config", "load_config"]
