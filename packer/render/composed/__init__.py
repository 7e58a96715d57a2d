"""Composed rendering: what a template writes for a message is recorded once, and filled in for all others like it.

By definition every prompt and every turn of a conversation is rendered from the first message. But most templates write
the same for each message of a shape, around its texts: only few of their iterations ask where the message stands, what
comes before or behind it, or what a namespace holds. :mod:`packer.render.composed.message_recorder` runs a template for
one message, and records what it writes together with everything that it asked. Whenever a message of the same shape
gives the same answers, the template would do the same again. So a conversation is composed of recordings, message by
message.

What comes before the loop over the messages is run as it is, or recorded as well. Many templates look for something in
all messages there, such as the last question: :mod:`packer.render.search_loops` keeps that from being done again with
each message.

The arguments of a call are unknown as a whole; to templates that walk through them, each key and value is unknown. A
template that looks into texts, or does something else that cannot be recorded, is run.

Rows with tools of 24 messages, including all checks, take 0.6 to 0.7 of the time under the templates of Qwen3 and
Llama 3, and 0.4 and 0.6 under those of Qwen3-Coder and GLM-4.6, which write calls argument by argument. Most of that is
due to losses that need not be searched for. In conversations of 100 messages it is the renderings.
"""

from packer.render.composed.composition import ComposedText, Composition
from packer.render.composed.recordings import Recordings
from packer.render.composed.unknown_environment import recordable
from packer.render.composed.written import AT

__all__ = ["AT", "ComposedText", "Composition", "Recordings", "recordable"]
