"""How fast this machine trains and restores."""
