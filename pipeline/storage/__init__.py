"""What of a run lies where, what may go, and how it gets to another machine and back."""
