"""How publishers and subscribers behave."""
