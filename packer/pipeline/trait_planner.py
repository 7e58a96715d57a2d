"""Plans which traits of rows each partition has to record, and refuses rules that no row could satisfy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from packer.curate.trait_rules import TraitRules
from packer.errors import InputError
from packer.pipeline.identity import traits_key
from packer.pipeline.partition import TraitsTask
from packer.recipe import Recipe
from packer.row_rules import WHERE
from packer.source.detect import fields_found, has_field
from packer.source.partition import Partition
from packer.source.rows import InputFile, read_rows
from packer.store.manifest import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsSeen:
    """Which of the fields that rules name a file's first rows have."""

    fields: frozenset[str]
    has_time: bool
    not_times: tuple[str, ...]
    """The first value of the time field, for an error message."""


class TraitPlanner:
    """Plans the traits that a recipe's rules about rows need, source by source.

    Raises:
        RecipeError: a regular expression or a language that cannot be used.
    """

    def __init__(self, recipe: Recipe) -> None:
        rules = recipe.row_rules
        self.has_rules = rules.is_set
        """Whether the recipe has any rules about rows."""

        self._rules = rules
        self._of_source = [TraitRules.of(rules, i) for i in range(len(recipe.sources))] if rules.is_set else []
        self._found: list[set[str]] = [set() for _ in self._of_source]
        self._not_times: list[str] = []
        self._has_time = False
        if self.has_rules:
            from packer.curate.traits import TraitMaker  # noqa: PLC0415 - not loaded by builds without rules

            self._makers = [TraitMaker(each) for each in self._of_source]

    def task(self, partition: Partition, entry: Input, recipe: Recipe) -> TraitsTask | None:
        """Return which traits to record for a partition of an input, or None if there are no rules that need any."""
        if entry.part is None:
            return None
        rules = self._of_source[entry.part]
        return TraitsTask(rules=rules, key=traits_key(partition, entry, recipe.rows.max_bytes, rules))

    def sample_fields(self, file: InputFile, partition: Partition, part: int | None) -> FieldsSeen | None:
        """Check which fields a file's first rows have, and whether the time field contains valid times.

        `part` is the number of the source that names it, None without rules about rows. Return None if no rule names a
        field.
        """
        if part is None or not self._of_source[part].fields:
            return None
        rules = self._of_source[part]
        fields = frozenset(fields_found(file.path, rules.fields, format=file.format))
        if rules.time is None or self._has_time:
            return FieldsSeen(fields=fields, has_time=False, not_times=())
        rows = read_rows(
            partition,
            schema=file.schema,
            columns=file.columns,
            roles=file.roles,
            max_row_bytes=file.max_row_bytes,
            fields=[rules.time],
        )
        values = [value for batch in islice(rows, 1) for value in batch.fields[0] if value is not None]
        self._has_time = any(self._makers[part].is_time(value) for value in values)
        return FieldsSeen(fields=fields, has_time=self._has_time, not_times=tuple(map(repr, values[:1])))

    def record_fields(self, seen: FieldsSeen | None, part: int | None) -> None:
        """Record what :meth:`sample_fields` found in a file, here or in another process."""
        if seen is not None and part is not None:
            self._found[part] |= seen.fields
            self._has_time |= seen.has_time
            self._not_times += seen.not_times

    def refuse_absent(self, files: Sequence[tuple[InputFile, int | None]], note: Callable[[str], None]) -> None:
        """Refuse a rule about a field that no row has, or about invalid times, before any partition is built.

        Only for a field that no sampled row has are the files read, each with the number of its source, and this is
        noted: their rows may be of several kinds, one after the other.

        Raises:
            InputError: names the field and the rule.
        """
        everywhere = set().union(*self._found)
        for i, each in enumerate(self._of_source):
            for field in each.fields:
                if field in (self._found[i] if field in each.where else everywhere):
                    continue
                note(f"the first rows have no field '{field}': looking for it in all rows")
                asked = [file for file, part in files if part == i or field not in each.where]
                if not any(has_field(file, field) for file in asked):
                    raise InputError(
                        f"{self._named(i, field)}: no row has a field '{field}'",
                        hint="fields are named as the files have them, as in metadata.user_id",
                    )
                everywhere.add(field)
        split = self._rules.split
        if self._not_times and not self._has_time:
            assert split is not None, "it asks for a time"
            expected = "an ISO time" if split.unit == "iso" else f"a number of {split.unit} since 1970"
            zone = " with a zone" if split.unit == "iso" and split.zone is None else ""
            raise InputError(
                f"split.time: no row that was sampled has {expected}{zone} in '{split.time}'; the first: "
                f"{self._not_times[0][:40]}",
                hint="split.unit is the unit of times (iso, s, ms, us, ns), split.zone the zone of times that name "
                "none: --set split.zone=UTC",
            )

    def _named(self, source: int, field: str) -> str:
        """Name the rule that uses a field."""
        rules = self._of_source[source]
        if field in rules.where:
            return f"sources[{source}].{WHERE}"
        asks = next((each.name for each in rules.filters if each.field == field), None)
        return f"filter '{asks}'" if asks else "split.group" if field == rules.group else "split.time"
