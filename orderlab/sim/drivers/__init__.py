"""Redis clients of a broker: how commands wait, travel, fail and come again."""
