import io
from collections.abc import Callable

import pytest
from PIL import Image


@pytest.fixture
def png() -> Callable[[int, int], bytes]:
    """Returns a function (width, height) -> PNG file."""

    def encode(width: int, height: int) -> bytes:
        file = io.BytesIO()
        Image.new('RGB', (width, height), (10, 200, 30)).save(file, 'PNG')
        return file.getvalue()

    return encode
