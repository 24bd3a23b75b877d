"""A broker node: its stages from PUBLISH to acknowledgement, and their assembly."""
