"""The render stage: renders samples to texts and finds the turns to train on in them (RowBatch → TurnBatch)."""
