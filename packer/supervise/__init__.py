"""Stage: sequences become documents with their trained runs, each verified (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their own tokens become documents here without the earlier stages. The sides of pairs arrive as
separate rows and are joined here.
"""
