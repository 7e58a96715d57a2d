"""The fast way of rendering: rows that are *clear* are cut from one rendering; for all others the answer is None.

There is one door, :class:`packer.render.clear.rows.ClearRows`. It takes a row and returns what the definition
(:class:`packer.render.conversation.Conversation`, and what :mod:`packer.render.renderer` checks of its turns) would
return, be it texts or a loss, or None. The definition then renders the row, prompt by prompt and turn by turn. How it
works:

- A rendering is made by a copy of the template that marks where each message stands. Whether it serves for all turns
  is tried for each kind of row (:mod:`packer.render.clear.extension`).
- What the definition asks of a rendering is read off *by place* (:mod:`packer.render.clear.places`).
- What a template writes must not depend on what texts say (:mod:`packer.render.clear.questions`). So rows that are
  built alike are rendered alike, and short chats need not be rendered at all (:mod:`packer.render.clear.filling`).

Proved on every row: texts, calls and tools stand in their places; each turn begins with its prompt's header and ends
with a stop token; no question about a text was answered with yes. Tried once for each kind of row: that later
messages do not change what stands before them, and that a prompt adds a header to it. Compared with the definition:
the first row of a batch with a new combination of neighboring messages, and one row in 128
(:mod:`packer.render.renderer`).
"""
