"""What can go wrong while images are built or loaded."""


class ImageError(Exception):
    """An image could not be built or loaded; the message says what to do."""
