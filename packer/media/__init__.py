"""Images of rows: where they are, what they are, and what the model's processor writes for them.

The definition is that of text, one step further: a document with images has the ids that the processor's own
`apply_chat_template` gives for its messages, and the processor is transformers'. What it writes for an image depends on
the image's size, in some families also on how many the conversation has. So nothing here knows a family of models.

**The column.** An image is a mark in a text from the row to the rendering (:mod:`~packer.media.carried`), so that no
schema, role, pair or result of a tool has a case for it. A template gets each mark as a part, and its rendering has a
mark again where it wrote the placeholder, which names the image and what the processor writes for it. Prompts and turns
are compared with these marks: if a later image changes what is written for an earlier one, as in LLaVA-OneVision, the
marks differ, which is a rewritten history like any other, and the row becomes several documents. Control tokens that
people typed, and placeholders are among them, are stand-ins by then, so the number of placeholders in a rendering is
that of images that the template shows.

**Ids.** The finished text has the processor's writing with every run of a token once; the ids of runs are repeated
after it was tokenized. Turns are proved as ever, since no trained turn has an image. The span of an image goes from its
first repeated id to its last. For the first rows of a partition, and some of the others, the processor runs on the
decoded images, and its ids must be the document's.

**Bytes.** Documents name images by digest, with size and span, in one optional column of each batch
(:mod:`~packer.media.carried`). Each image is stored once, as it was given. Pixels are made when a cache is read.

A row may name any file, so paths stay below one folder, nothing is fetched, and size and format are read from an
image's header before anything is decoded.
"""
