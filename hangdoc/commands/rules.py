"""The pages of the rules, by name or code."""

import msgspec

from hangdoc.commands.documents import RulePage, Rules
from hangdoc.commands.errors import USAGE, CommandError, suggest
from hangdoc.reasoning.rules import Rule, all_rules


def catalogue() -> Rules:
    """All rules, without their pages."""
    return Rules(rules=tuple(_describe_rule(rule) for rule in all_rules()))


def page(name: str) -> RulePage:
    """The page of a rule, by its name or code. Raises CommandError for an unknown one."""
    wanted = name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.name, rule.code.lower(), rule.code.lower().removeprefix("hd")):
            return msgspec.structs.replace(_describe_rule(rule), page=rule.titled_page)
    known = (called for rule in all_rules() for called in (rule.name, rule.code))
    raise CommandError(f"there is no rule {name[:60]!r}.{suggest(wanted, known)} `hangdoc rules` lists them.", USAGE)


def _describe_rule(rule: Rule) -> RulePage:
    return RulePage(code=rule.code, name=rule.name, says=rule.says)
