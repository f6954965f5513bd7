"""The error of everything a user can get wrong in a config."""


class ConfigError(ValueError):
    """A pipeline config that cannot be used; the message names the file or field and the remedy."""
