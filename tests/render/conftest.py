"""One small tokenizer under many templates."""

from collections.abc import Callable

import pytest
import twins
from supervision_stages import Stages

from packer.recipe.recipe import make_recipe
from packer.render.renderer import Renderer


@pytest.fixture(scope="session")
def under(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Renderer]:
    """The renderer of a build under a template and keys of a recipe."""
    stages = Stages.load(twins.byte_level(tmp_path_factory.mktemp("twin")))
    return lambda template, *overrides: stages.with_template(template, make_recipe({}, overrides)).renderer
