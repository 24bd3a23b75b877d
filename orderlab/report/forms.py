"""The forms of a report by name, for the command line: nothing is imported for its help."""

from __future__ import annotations

FORMS = ("json", "sarif", "junit", "html", "markdown")
REPORT_HELP = f"Write a report as well: FORM=FILE, FORM one of {', '.join(FORMS)}; may be given several times."

RUNNING_EXPORTS = ("pytest", "redis-cli")
EXPORTS = (*RUNNING_EXPORTS, "svg", "mermaid", "states")
EXPORT_HELP = f"Write the steps for others: FORM=FILE, FORM one of {', '.join(EXPORTS)}; may be given several times."
