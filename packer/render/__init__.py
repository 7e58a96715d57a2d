"""Stage: samples become rendered texts with the turns to be learned in them (RowBatch → TurnBatch).

`environment` runs a template as Hugging Face does, in a `sandbox` whose `filters`, methods and operators
(`rewriting`) keep within `bounds`, under the eyes of the `watchdog`; `chat` asks it for the prompts and turns of one
sample; `control` keeps control tokens typed by people apart; `dropped` notices what a template leaves out; `documents`
keeps the maximal texts; `filling` spares renderings: what a template writes around the texts of a `shape` of
conversation is kept as a `skeleton`; `batch` walks a RowBatch.
"""

from packer.render.environment import ChatTemplate, RenderError
from packer.render.probe import role_markers, written_markers
from packer.render.renderer import Renderer, RenderRules

__all__ = ["ChatTemplate", "RenderError", "RenderRules", "Renderer", "role_markers", "written_markers"]
