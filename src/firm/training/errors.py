"""What a wrong configuration raises."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the message says which setting and what would do."""
