"""Exports of a cache to other trainers' file formats: documents or blocks, with loss masks if the format has them.

`run` exports; `formats` lists the formats, and loads neither numpy nor Arrow.
"""
