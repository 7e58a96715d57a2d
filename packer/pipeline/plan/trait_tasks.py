"""Which traits of rows each partition has to record; and the refusal of rules that no row could satisfy."""

from collections.abc import Callable, Sequence

from packer.curate.trait_rules import TraitRules
from packer.errors import InputError
from packer.pipeline.identity import traits_key
from packer.pipeline.partition import TraitsTask
from packer.recipe.recipe import Recipe
from packer.recipe.row_rules import WHERE
from packer.source.detect import fields_found, has_field
from packer.source.partition import Partition
from packer.source.rows import InputFile
from packer.store.manifest import Input


def rules_of_sources(recipe: Recipe) -> tuple[TraitRules, ...]:
    """Return the rules about the rows of each source; none if the recipe has no rules about rows.

    Raises:
        RecipeError: a regular expression that cannot be used.
    """
    rules = recipe.row_rules
    if not rules.is_set:
        return ()
    from packer.curate.traits import TraitMaker  # noqa: PLC0415 - not loaded by builds without rules

    of_sources = tuple(TraitRules.of(rules, number) for number in range(len(recipe.sources)))
    for each in of_sources:
        TraitMaker(each)  # refuses what cannot be used
    return of_sources


def traits_task(
    partition: Partition, entry: Input, recipe: Recipe, of_sources: Sequence[TraitRules]
) -> TraitsTask | None:
    """Return which traits to record for a partition of an input, or None if there are no rules about rows."""
    if entry.part is None:
        return None
    rules = of_sources[entry.part]
    return TraitsTask(rules=rules, key=traits_key(partition, entry, recipe.rows.max_bytes, rules))


def refuse_absent(
    of_sources: Sequence[TraitRules], files: Sequence[tuple[int, InputFile]], note: Callable[[str], None]
) -> None:
    """Refuse a rule about a field that no row has, before any partition is built.

    Each of `files` comes with the number of its source. Only for a field that no first row of
    any file has are the files read, and this is noted: their rows may be of several kinds, one after the other.

    Raises:
        InputError: names the field and the rule.
    """
    asked: dict[tuple[str, int | None], int] = {}
    for i, each in enumerate(of_sources):
        for field in each.fields:  # those of `where` are fields of the source, the others of any
            asked.setdefault((field, i if field in each.where else None), i)
    for (field, source), i in asked.items():
        own = [file for number, file in files if source in (None, number)]
        if any(fields_found(file.path, [field], format=file.format) for file in own):
            continue
        note(f"the first rows have no field '{field}': looking for it in all rows")
        if not any(has_field(file, field) for file in own):
            raise InputError(
                f"{_named(of_sources[i], field, i)}: no row has a field '{field}'",
                hint="fields are named as the files have them, as in metadata.user_id",
            )


def _named(rules: TraitRules, field: str, source: int) -> str:
    """Name the rule of a source that uses a field."""
    if field in rules.where:
        return f"sources[{source}].{WHERE}"
    asks = next((each.name for each in rules.filters if each.field == field), None)
    return f"filter '{asks}'" if asks else "split.group" if field == rules.group else "split.time"
