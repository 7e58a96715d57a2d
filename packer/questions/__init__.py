"""What a build asks about rows before it begins, and the ways that it proposes.

Modules here look at the first rows of a file: they find what nothing reads, what may say that an answer is not to be
trained, and rows that are no rows yet. They only ask and say: what a document holds is decided in `source`, by what the
recipe says, so nothing here changes a cache of a recipe that builds.

`find_unread` finds what to ask about, and :mod:`packer.pipeline.plan.unread_fields` asks. `no_schema` and
`columns_hint` say how rows that fit no schema would; `propose` and headings of a page are what they offer.
"""
