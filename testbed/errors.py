"""The base of what the testbed raises on purpose."""


class TestbedError(Exception):
    """Something about the testbed failed; the message says what, and what to do."""

    __test__ = False
