"""Otherwise: rules for products that no rule above selects, as LDM's `_ELSE_`.

    [[rule]]                                  [[rule]]
    name = "metar"                            name = "rest"
    select = "wx/text/** ident ~ '^SA'"       select = "wx/text/**"
    file = "metar.txt"                        otherwise = true
                                              file = "rest.txt"

A rule with `otherwise` takes those products that it selects and no enabled rule above it selects. A rule with `discard`
has no action: what it selects is kept away from `otherwise` below. An `otherwise` above counts with all that it
selects: a product that it selects and does not take was selected further above.

The rules above are evaluated on rows. Rows have properties as text and times in microseconds, so clauses on them are
evaluated at the queue only; a rule with such a clause above `otherwise` is a conflict (conflicts.py).
"""

from headrace.pipeline.rules.rule import Rule, RuleFile
from headrace.product.product import Product
from headrace.selection import Selection

OTHERWISE = "otherwise"


def rules_above(file: RuleFile, rule: Rule) -> tuple[Rule, ...]:
    """The rules that a rule with `otherwise` depends on; none for other rules."""
    if not rule.otherwise:
        return ()
    names = [each.name for each in file.rules]
    return tuple(each for each in file.rules[: names.index(rule.name)] if each.enabled)


def refusal(file: RuleFile, rule: Rule, product: Product) -> str | None:
    """Why a rule does not take a product: the clause, or a rule above; None if it takes the product."""
    refused = rule.select.refused_by(product, product.inserted_ns)
    if refused is not None:
        return refused
    above = (each.name for each in rules_above(file, rule) if each.select.wants(product, product.inserted_ns))
    first = next(above, None)
    return None if first is None else f"{OTHERWISE}: rule {first} selects it"


def is_exact(select: Selection) -> bool:
    """Whether what a row tells is enough to evaluate the selection."""
    return not inexact_clauses(select) and select.every <= 1


def inexact_clauses(select: Selection) -> list[str]:
    names = ("tags", "created", "max_age_s", "replay", "xpath", "where", "function")
    return [name for name in names if getattr(select, name) is not None]
