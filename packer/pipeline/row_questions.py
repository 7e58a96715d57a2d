"""What a build asks of single rows: which traits each partition needs, and whether there can be an answer at all."""

from packer.curate.trait_rules import TraitRules
from packer.errors import InputError
from packer.pipeline.identity import traits_key
from packer.pipeline.partition import TraitsTask
from packer.recipe import Recipe
from packer.row_rules import WHERE
from packer.source import InputFile, Partition, field_names
from packer.store.manifest import Input


class RowQuestions:
    """The rules of a recipe about rows, source by source.

    Raises:
        RecipeError: a regular expression that cannot be used.

    """

    def __init__(self, recipe: Recipe) -> None:
        rules = recipe.row_rules
        self.any = rules.asks
        """Whether anything is asked of rows."""

        self._of_source = [TraitRules.of(rules, i) for i in range(len(recipe.sources))] if rules.asks else []
        self._found: list[set[str]] = [set() for _ in self._of_source]
        if self.any:
            from packer.curate.traits import TraitMaker  # noqa: PLC0415 - builds without rules do without it

            for each in self._of_source:
                TraitMaker(each)

    def task(self, partition: Partition, entry: Input, recipe: Recipe) -> TraitsTask | None:
        """What is asked of a partition of an input; None where nothing is."""
        if entry.part is None:
            return None
        rules = self._of_source[entry.part]
        return TraitsTask(rules=rules, key=traits_key(partition, entry, recipe.rows.max_bytes, rules))

    def look(self, file: InputFile, part: int | None) -> None:
        """Take note of the fields that the first rows of a file have."""
        if part is not None and self._of_source[part].fields:
            self._found[part] |= field_names(file.path, format=file.format)

    def refuse_absent(self) -> None:
        """Refuse a rule about a field that no row looked at has, before anything is made.

        Raises:
            InputError: names the field and the rule.

        """
        everywhere = set().union(*self._found)
        for i, each in enumerate(self._of_source):
            for field in each.fields:
                own = self._found[i] if field in each.where else everywhere
                if own and field not in own and field.partition(".")[0] not in own:
                    rule = f"sources[{i}].{WHERE}" if field in each.where else "a rule about rows"
                    raise InputError(
                        f"{rule}: no row that was looked at has a field '{field}'",
                        hint="fields are named as the files have them, as in metadata.user_id",
                    )
