"""Real tokenizers fitted to real templates: every marker that any template writes is a token of its own."""

import functools
import json
from pathlib import Path

from oracle import Oracle
from supervision_stages import ALLOW_ALL, Stages
from tokenizers import AddedToken, Tokenizer

from packer.recipe.recipe import make_recipe
from packer.render.environment import ChatTemplate
from packer.render.wrappers import _MARKER

STOPS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<end_of_turn>", "<|end|>"),
    *("<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|user|>", "<|observation|>", "<|return|>", "<|call|>"),
    *("[|endofturn|]", "<|message_sep|>"),
)
"""What the models of these templates stop at."""


@functools.cache
def templates(real: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((real / "templates").glob("*.jinja"))}


def compiled(real: Path, name: str) -> ChatTemplate:
    """A real template, to be looked at."""
    return ChatTemplate(templates(real)[name], date="2026-01-01", variables={"bos_token": "<s>"}, max_bytes=2**26)


class Fitted:
    """Copies of the real tokenizers where every marker that any template writes is a token of its own."""

    def __init__(self, real: Path, folder: Path) -> None:
        self._real, self._folder = real, folder
        self._loaded: dict[str, tuple[Stages, Oracle]] = {}
        self._under: dict[tuple[str, tuple[str, ...]], Stages] = {}
        self._defined: dict[str, Oracle] = {}

    @functools.cached_property
    def markers(self) -> tuple[str, ...]:
        """What stands in any template and looks like a control token, and what any model stops at."""
        named = (marker for source in templates(self._real).values() for marker in _MARKER.findall(source))
        return tuple(dict.fromkeys(("<s>", "</s>", "[INST]", "[/INST]", *STOPS, *named)))

    def load(self, tokenizer: str) -> tuple[Stages, Oracle]:
        if tokenizer not in self._loaded:
            for other in set(self._loaded) - {"minimind"}:
                del self._loaded[other]
            stages = Stages.load(self._copy(tokenizer), ALLOW_ALL)
            self._loaded[tokenizer] = stages, Oracle(stages.model.files, "")
        return self._loaded[tokenizer]

    def stages(self, template: str, *overrides: str) -> Stages:
        """The smallest tokenizer under a template: compiled once, for all tests that ask for the same."""
        key = template, overrides
        if key not in self._under:
            base, _ = self.load("minimind")
            self._under[key] = base.with_template(templates(self._real)[template], make_recipe({}, overrides))
        return self._under[key]

    def definition(self, template: str) -> Oracle:
        """What belongs beside :meth:`stages` where the recipe changes no rule."""
        if template not in self._defined:
            _, definition = self.load("minimind")
            self._defined[template] = definition.with_template(templates(self._real)[template])
        return self._defined[template]

    def _copy(self, tokenizer: str) -> Path:
        backend = Tokenizer.from_file(str(self._real / "tokenizers" / tokenizer / "tokenizer.json"))
        special = [AddedToken(marker, normalized=False, special=True) for marker in self.markers]
        backend.add_special_tokens(special)
        folder = self._folder / tokenizer
        folder.mkdir(exist_ok=True)
        backend.save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<|endoftext|>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
        ids = [backend.token_to_id(stop) for stop in STOPS]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}), "utf-8")
        return folder
