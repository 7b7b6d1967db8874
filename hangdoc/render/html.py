"""The report as one page without scripts or outside resources."""

import io

from rich.console import Console

from hangdoc.diagnosis import Diagnosis
from hangdoc.render.text import report


def page(diagnosis: Diagnosis) -> str:
    """The whole page as text; what came from processes is escaped."""
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    report(diagnosis, console, verbose=True)
    return console.export_html(inline_styles=True)
