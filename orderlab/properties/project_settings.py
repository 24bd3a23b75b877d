"""What a repository says of itself once, in ``[tool.orderlab]`` of pyproject.toml: its stores, how they are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.files import read_toml
from orderlab.sim.redis.versions import version_named

FILE = "pyproject.toml"
KEYS = {"stores": list, "effort": str, "reports": list, "silenced": list, "trust_adapter": bool, "server": str}
EXAMPLES = {
    "stores": '["lua/queue"]', "effort": '"quick"', "reports": '["junit=junit-laws.xml"]',
    "silenced": '["rule"]', "trust_adapter": "true", "server": '"7.4"',
}  # fmt: skip


@dataclass(frozen=True)
class ProjectSettings:
    """The table, checked. Paths are those of the repository."""

    file: Path
    stores: tuple[Path, ...] = ()
    effort: str | None = None
    reports: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()
    """Rules of lint that say nothing of it."""
    trust_adapter: bool = False
    server: str | None = None
    """That scripts are for whose store names none."""

    def arguments(self) -> list[str]:
        """What `orderlab` does when it is told nothing. Raises InputError where no store is named."""
        if not self.stores:
            raise InputError(f"{self.file}: tool.orderlab.stores: missing; name the stores, {EXAMPLES['stores']}")
        effort = ["--effort", self.effort] if self.effort is not None else []
        reports = [word for report in self.reports for word in ("--report", report)]
        trust = ["--trust-adapter"] if self.trust_adapter else []
        return ["validate", *map(str, self.stores), *effort, *reports, *trust]


def settings_at(folder: Path) -> ProjectSettings | None:
    """The settings of the repository that ``folder`` lies in: of the nearest pyproject.toml above it that has some.
    Raises InputError for a key or a value that there is not."""
    for above in (folder, *folder.parents):
        file = above / FILE
        if file.is_file() and b"tool.orderlab" in file.read_bytes():
            table = read_toml(file).get("tool", {}).get("orderlab")
            if table is not None:
                return _checked(file, table)
    return None


def silenced_at(folder: Path) -> frozenset[str]:
    """The rules that are silenced there."""
    settings = settings_at(folder)
    return frozenset() if settings is None else frozenset(settings.silenced)


def _checked(file: Path, table: Any) -> ProjectSettings:
    place = f"{file}: tool.orderlab"
    if not isinstance(table, dict):
        raise InputError(f"{place}: not a table; write [tool.orderlab]")
    if type(table.get("effort")) in (int, float):
        table = {**table, "effort": str(table["effort"])}
    for key, value in table.items():
        if key not in KEYS:
            raise InputError(f'{place}: unknown key "{key}"; {did_you_mean(key, tuple(KEYS))}')
        is_right = isinstance(value, KEYS[key]) and (
            not isinstance(value, list) or all(isinstance(item, str) and item for item in value)
        )
        if not is_right:
            raise InputError(f"{place}.{key}: write it as {key} = {EXAMPLES[key]}")
    _check_rules(place, table.get("silenced", []))
    if "effort" in table:
        from orderlab.properties.validation.effort import effort_named

        effort_named(table["effort"], f"{place}.effort")
    if "server" in table:
        version_named(table["server"], f"{place}.server")
    return ProjectSettings(
        file,
        tuple(file.parent / name for name in table.get("stores", [])),
        table.get("effort"),
        tuple(table.get("reports", [])),
        tuple(table.get("silenced", [])),
        table.get("trust_adapter", False),
        table.get("server"),
    )


def _check_rules(place: str, silenced: list[str]) -> None:
    if not silenced:
        return
    from orderlab.properties.lint.linter import RULES

    for name in silenced:
        if name not in RULES:
            raise InputError(f'{place}.silenced: unknown rule "{name}"; {did_you_mean(name, tuple(RULES))}')
