"""The fast way of rendering: rows that are *clear* are cut from one rendering; for all others the answer is None.

Its door, :class:`packer.render.clear.rows.ClearRows`, takes a row and returns what the definition
(:mod:`packer.render.turns`, and what :mod:`packer.render.renderer` checks of turns) would return, or None. The
definition then renders the row, prompt by prompt and turn by turn. How it works:

- A rendering is made by a copy of the template that marks where each message stands. Whether it serves for all turns
  is tried for each kind of row (:mod:`packer.render.clear.extension`).
- What the definition asks of a rendering is read off *by place* (:mod:`packer.render.clear.places`).
- What a template writes must not depend on what texts say (:mod:`packer.render.clear.watch`). So rows that are
  built alike are rendered alike, and short chats need not be rendered at all (:mod:`packer.render.clear.filling`).

Proved on every row: texts, calls and tools stand in their places; each turn begins with its prompt's header and ends
with a stop token; no question about a text was answered with yes. Tried once for each kind of row: that later
messages do not change what stands before them, and that a prompt adds a header to it.

Compared with the definition is what is new in a batch, and one row in 128. Of each message it is noted what it is
(role, fields, whether it has a text, how many calls) and what stands before and behind it. The first row of a batch
that has a new combination of *neighbors* is rendered by the definition, too. If both agree, its combinations are
trusted, and other rows with no others are rendered by the fast way alone. If they do not, no row of the batch with one
of the new combinations is. Worked example: under Qwen3, an answer that follows another answer is written otherwise than
one that follows a question. Rows that are filled into the rendering of another row need none of this: that row was
compared.

As a last resort, one row in 128 is compared in any case. If it differs, the fast way is wrong in a way that nobody
thought of, and the batch is rendered by the definition. Which rows are compared depends on the batch alone, so the
result of a row does not depend on which rows a process has seen before.
"""
