"""Named schedule families: shape in, streams out; lowering inserts sends, receives and sums."""
