"""The render stage: renders samples to texts and finds the turns to train on in them (RowBatch → TurnBatch)."""

from packer.render.environment import ChatTemplate, RenderError
from packer.render.renderer import Renderer
from packer.render.wrappers import role_markers, written_markers

__all__ = ["ChatTemplate", "RenderError", "Renderer", "role_markers", "written_markers"]
