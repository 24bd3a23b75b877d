"""The compiled engine: declarative specifications as machine code over packed states."""
