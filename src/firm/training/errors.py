"""What goes wrong in training and can be said in a sentence."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the message says which setting and what would do."""


class TrainingError(RuntimeError):
    """A run that cannot begin or go on; the message says why, and the way out."""
