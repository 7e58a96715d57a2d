"""Real tokenizers fitted to real templates: every marker that any template writes is a token of its own."""

import functools
import json
from pathlib import Path

from oracle import Oracle
from supervised import Stages
from tokenizers import AddedToken, Tokenizer

from packer.render import ChatTemplate, written_markers

ALLOW_ALL = "supervision.allow_dropped=[system,user,content,reasoning,tool_call,tool_result,tools]"
STOPS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<end_of_turn>", "<|end|>"),
    *("<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|user|>", "<|observation|>", "<|return|>", "<|call|>"),
    *("[|endofturn|]", "<|message_sep|>"),
)
"""What the models of these templates stop at."""


@functools.cache
def templates(real: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((real / "templates").glob("*.jinja"))}


class Fitted:
    """Copies of the real tokenizers where every marker that any template writes is a token of its own."""

    def __init__(self, real: Path, folder: Path) -> None:
        self._real, self._folder = real, folder
        self._loaded: dict[str, tuple[Stages, Oracle]] = {}

    def load(self, tokenizer: str) -> tuple[Stages, Oracle]:
        if tokenizer not in self._loaded:
            for other in set(self._loaded) - {"minimind"}:
                del self._loaded[other]
            stages = Stages.load(self._copy(tokenizer), ALLOW_ALL)
            self._loaded[tokenizer] = stages, Oracle(stages.model.files, "")
        return self._loaded[tokenizer]

    def _copy(self, tokenizer: str) -> Path:
        backend = Tokenizer.from_file(str(self._real / "tokenizers" / tokenizer / "tokenizer.json"))
        markers = dict.fromkeys(("<s>", "</s>", "[INST]", "[/INST]", *STOPS))
        for source in templates(self._real).values():
            template = ChatTemplate(source, date="2026-01-01", variables={"bos_token": "<s>"}, max_bytes=2**20)
            markers |= dict.fromkeys(written_markers(template))
        backend.add_special_tokens([AddedToken(marker, normalized=False, special=True) for marker in markers])
        folder = self._folder / tokenizer
        folder.mkdir(exist_ok=True)
        backend.save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<|endoftext|>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
        ids = [backend.token_to_id(stop) for stop in STOPS]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}), "utf-8")
        return folder
