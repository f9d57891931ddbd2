"""What acts: it reads files and the API server, and carries out what `decide` decides."""


class InputError(ValueError):
    """What a command was given can't be used; the message says which and why."""
