"""Stage: texts become ids, and turn boundaries become token positions (TurnBatch → TokenBatch)."""
