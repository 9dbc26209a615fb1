"""The rules for topics: their names at the target, and the configs to copy.

A rename is `pattern=replacement` (a regular expression that must match the whole name, with groups as `\\1`), or a
replacement in which `{topic}` and `{source}` stand for the name and the source's alias: `--rename '{source}.{topic}'`
names topics as MirrorMaker 2 does. The first rule that matches counts; without one a topic keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.pipeline.errors import BadOption
from klamm.pipeline.kafka.topics import compiled

NEVER: Final = re.compile(r"__.*|.*[-.]internal")
"""Topics that belong to a cluster itself, or to its mirror."""
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
EXCLUDED_CONFIGS: Final = re.compile(
    r"follower\.replication\.throttled\.replicas|leader\.replication\.throttled\.replicas"
    r"|message\.timestamp\.type|message\.timestamp\..*\.max\.ms|unclean\.leader\.election\.enable|min\.insync\.replicas"
    r"|internal\..*|klamm\..*"
)
"""Configs that depend on the brokers of a cluster; and the timestamp type, because records keep their timestamps."""


@dataclass(frozen=True, slots=True)
class Rename:
    """One rename. `pattern` None: any topic."""

    pattern: re.Pattern[str] | None
    replacement: str

    @classmethod
    def parse(cls, text: str) -> Rename:
        """Parse `--rename`. Raises BadOption."""
        if "=" not in text:
            if "{topic}" not in text:
                raise BadOption(f"--rename {text}: it has the form pattern=replacement, or contains {{topic}}")
            return cls(None, text)
        pattern, _, replacement = text.partition("=")
        return cls(compiled(pattern, option="--rename"), replacement)

    def apply(self, topic: str, source: str) -> str | None:
        """Return the new name, None when the rule does not match the topic. Raises BadOption."""
        if self.pattern is None:
            return self.replacement.replace("{topic}", topic).replace("{source}", source)
        match = self.pattern.fullmatch(topic)
        if match is None:
            return None
        try:
            return match.expand(self.replacement)
        except (re.error, IndexError) as error:
            raise BadOption(f"--rename {self.pattern.pattern}={self.replacement}: {error}") from None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one source. `topics` and `exclude` match whole names."""

    source: str
    topics: re.Pattern[str]
    exclude: re.Pattern[str] | None = None
    renames: tuple[Rename, ...] = ()
    exclude_configs: re.Pattern[str] | None = None

    def targets(self, names: Iterable[str]) -> dict[str, str]:
        """Return source topic -> target topic for all that match. Raises BadOption when two get the same name."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in sorted(names):
            if not self._is_meant(name):
                continue
            target = self.target(name)
            if target in taken:
                raise BadOption(
                    f"{taken[target]} and {name} of {self.source} would both become {target}: give them different names"
                )
            found[name], taken[target] = target, name
        return found

    def target(self, name: str) -> str:
        """Return the name of a topic at the target. Raises BadOption for a name that is not valid."""
        new = next((new for rule in self.renames if (new := rule.apply(name, self.source)) is not None), name)
        if not TOPIC_NAME.fullmatch(new) or new in (".", ".."):
            raise BadOption(f"--rename makes {new or 'nothing'} of {name}, which is no topic name")
        return new

    def configs(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Return the configs to copy."""
        return {key: value for key, value in configs.items() if self.goes_along(key)}

    def goes_along(self, key: str) -> bool:
        return not EXCLUDED_CONFIGS.fullmatch(key) and not (
            self.exclude_configs and self.exclude_configs.fullmatch(key)
        )

    def _is_meant(self, name: str) -> bool:
        return (
            self.topics.fullmatch(name) is not None
            and NEVER.fullmatch(name) is None
            and (self.exclude is None or self.exclude.fullmatch(name) is None)
        )


def changes(wanted: Mapping[str, str], there: Mapping[str, str], rules: Rules) -> dict[str, str | None]:
    """Return the configs to set at the target; None for one that returns to the default."""
    new: dict[str, str | None] = {key: value for key, value in wanted.items() if there.get(key) != value}
    return new | {key: None for key in there if key not in wanted and rules.goes_along(key)}


def parse_renames(texts: Sequence[str]) -> tuple[Rename, ...]:
    """Parse `--rename` options. Raises BadOption."""
    return tuple(Rename.parse(text) for text in texts)
