"""Kills a small run at random moments and starts it again, and looks at what is left each time."""
