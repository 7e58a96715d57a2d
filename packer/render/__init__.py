"""The render stage: renders samples to texts and finds the turns to train on in them (RowBatch → TurnBatch)."""

from packer.render.environment import ChatTemplate, RenderError
from packer.render.probe import role_markers, written_markers
from packer.render.renderer import Renderer

__all__ = ["ChatTemplate", "RenderError", "Renderer", "role_markers", "written_markers"]
