"""Real tokenizers as the stages and the definition see them: loading a large one takes seconds, so each is kept."""

import functools
from pathlib import Path

from oracle import Oracle
from supervision_stages import ALLOW_ALL, Stages


@functools.lru_cache(maxsize=3)
def stages_of(folder: Path) -> Stages:
    """A tokenizer folder with its own template; `with_template` gives another one."""
    return Stages.load(folder, ALLOW_ALL)


@functools.lru_cache(maxsize=3)
def oracle_of(folder: Path) -> Oracle:
    """What belongs beside :func:`stages_of`."""
    model = stages_of(folder).model
    return Oracle(model.files, model.template or "")
