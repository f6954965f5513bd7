"""What is said of images and annotations that cannot be converted."""


class UnusableError(ValueError):
    """An image or an annotation cannot be converted; the conversion goes on without it.

    Attributes:
      reason: one word, by which the report counts.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
