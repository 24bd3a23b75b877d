"""What a kind of store promises: one folder for each, with the same nouns in every one."""
