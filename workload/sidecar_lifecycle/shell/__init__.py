"""The I/O of the workload: it reads files and the API server, and runs decisions of `decide`."""


class InputError(ValueError):
    """An input of a command is invalid; the message names the input and the reason."""
