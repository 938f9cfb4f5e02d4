"""Rules: what is done with which products, in TOML or in Python."""

from headrace.pipeline.rules.check import Sketch, Trial, check_rules, try_rules
from headrace.pipeline.rules.loading import load_rules
from headrace.pipeline.rules.rule import (
    Action,
    AlertAction,
    ExecAction,
    FileAction,
    PipeAction,
    PipelineTerms,
    PublishAction,
    Rule,
    RuleFile,
    TableAction,
)
from headrace.pipeline.rules.template import Template, template

__all__ = [
    "Action", "AlertAction", "ExecAction", "FileAction", "PipeAction", "PipelineTerms", "PublishAction", "Rule",
    "RuleFile", "Sketch", "TableAction", "Template", "Trial", "check_rules", "load_rules", "template", "try_rules",
]  # fmt: skip
