"""What a cache is made from and by which rules, before there is one or out of one that is there."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from packer.build.identity import documents_identity, recipe_fingerprint
from packer.recipe import Recipe
from packer.store.manifest import Input, Manifest, ModelRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything a manifest says of a cache's origin."""

    recipe: Recipe
    engine: str
    engine_version: str
    rules_version: int
    model: ModelRecord
    inputs: tuple[Input, ...]

    @property
    def model_digests(self) -> dict[str, str]:
        """File of the tokenizer → its sha256."""
        return model_digests(self.model)

    @property
    def recipe_fingerprint(self) -> str:
        documents = documents_identity(
            self.recipe, self.model_digests, self.engine_version, rules_version=self.rules_version
        )
        return recipe_fingerprint(self.recipe, documents, self.inputs)

    @classmethod
    def of(cls, manifest: Manifest, recipe: Recipe) -> "Provenance":
        """That of a cache, with a recipe whose documents half is the cache's own."""
        return cls(
            recipe=recipe,
            engine=manifest.engine,
            engine_version=manifest.engine_version,
            rules_version=manifest.rules_version,
            model=manifest.model,
            inputs=manifest.inputs,
        )


def model_digests(model: ModelRecord) -> dict[str, str]:
    """File of a tokenizer → its sha256."""
    return {PurePosixPath(file.path).name: file.sha256 for file in model.files}
