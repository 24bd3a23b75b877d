"""Old against new: what a change of scripts breaks, fixes, and does differently."""
