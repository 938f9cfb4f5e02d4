"""Rules: which products a pipeline selects and what it does with them, written in TOML or in Python.

rule.py                the structs: RuleFile, Rule, one for each action
load.py                from a file to a RuleFile, or to every problem in it
python_rules.py        rules written in Python instead of TOML
kinds.py               kinds of values that only rule files have
defaults.py            defaults that depend on other keys
conflicts.py           contradictions between keys; action_conflicts.py: those of one action
views.py, sql.py       the table that SQL selects from, and its columns; SQL checked without Spark
template.py            texts with fields: template_field.py, template_time.py, template_safety.py
otherwise.py           rules for products that no rule above selects
trial.py               what rules would do with a sample
pqact/                 LDM's pqact.conf, translated into rules
"""

from headrace.pipeline.rules.load import check_rules, load_rules
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
    TlsTable,
    UserTable,
)
from headrace.pipeline.rules.template import Template, template
from headrace.pipeline.rules.trial import Preview, Trial, try_rules

__all__ = [
    "Action", "AlertAction", "ExecAction", "FileAction", "PipeAction", "PipelineTerms", "Preview", "PublishAction",
    "Rule", "RuleFile", "TableAction", "Template", "TlsTable", "Trial", "UserTable", "check_rules", "load_rules",
    "template", "try_rules",
]  # fmt: skip
