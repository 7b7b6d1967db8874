"""Arguments and variables of the ranks side by side: which differ, and whether they may."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hangdoc import settings
from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.model.agreement import Agreement, agreement
from hangdoc.reasoning.model.run import Run

Standing = Literal["must agree", "should agree", "names data", "meant to differ", "inert", "tuning", "unknown"]
_STANDINGS: dict[str, Standing] = {
    "collectives": "must agree",
    "meeting": "must agree",
    "numbers": "should agree",
    "data": "names data",
    "differs": "meant to differ",
    "tuning": "tuning",
}
ORDER: tuple[Standing, ...] = (
    "must agree", "should agree", "names data", "unknown", "tuning", "inert", "meant to differ",
)  # fmt: skip
"""The gravest first."""


@dataclass(frozen=True)
class Compared:
    """One argument or variable over all ranks that could be read."""

    name: str
    origin: Literal["argument", "variable"]
    standing: Standing
    why: str
    values: Agreement[str | None, int]

    @property
    def differs(self) -> bool:
        """Whether two ranks have different values."""
        return self.values.differs


def compared(run: Run) -> list[Compared]:
    """Everything that the ranks were started with or set themselves, what differs first, by gravity."""
    arguments = {rank: settings.options(process.argv) for rank, process in run.processes.items()}
    variables = {rank: known.environment(process) for rank, process in run.processes.items()}
    found = [
        *(_one("argument", name, arguments, settings.argument(name)) for name in _names(arguments)),
        *(
            _one("variable", name, variables, settings.variable(name), inert=settings.inert(name, run.backend))
            for name in _names(variables)
        ),
    ]
    return sorted(found, key=lambda one: (not one.differs, ORDER.index(one.standing), one.origin, one.name))


def _names(values: dict[int, dict[str, str]]) -> Iterable[str]:
    return sorted({name for known in values.values() for name in known})


def _one(
    origin: Literal["argument", "variable"],
    name: str,
    values: dict[int, dict[str, str]],
    setting: settings.Setting | None,
    *,
    inert: bool = False,
) -> Compared:
    standing: Standing = "inert" if inert else "unknown" if setting is None else _STANDINGS[setting.kind]
    agreed = agreement({rank: found.get(name) for rank, found in values.items()})
    return Compared(name, origin, standing, setting.why if setting is not None and not inert else "", agreed)
