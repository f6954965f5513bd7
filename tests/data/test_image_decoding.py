import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.data.image_decoding import decode_image
from tests.data import examples

RGBA = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ('mode', 'format'),
    [('L', 'PNG'), ('L', 'JPEG'), ('L', 'BMP'), ('L', 'GIF'), ('1', 'PNG'), ('LA', 'PNG')],
)
def test_one_channel_of_a_grey_image_is_exact(mode, format):
    image = Image.fromarray(RGBA).convert(mode)
    encoded = saved(image, format)
    decoded = decode_image(encoded, 1)
    np.testing.assert_array_equal(decoded[..., 0], decode_image(encoded)[..., 0])
    if format != 'JPEG':  # Its pixels depend on the decoder.
        expected = np.asarray(Image.open(io.BytesIO(encoded)).convert('L'))
        np.testing.assert_array_equal(decoded[..., 0], expected)


def test_one_channel_of_colors_is_their_brightness():
    encoded = saved(Image.fromarray(RGBA[..., :3]), 'PNG')
    expected = np.round(RGBA[..., :3] @ [0.299, 0.587, 0.114])
    assert np.abs(decode_image(encoded, 1)[..., 0] - expected).max() <= 1
    (in_graph,) = tf.data.Dataset.from_tensors(encoded).map(lambda file: decode_image(file, 1))
    np.testing.assert_array_equal(in_graph, decode_image(encoded, 1))


@pytest.mark.parametrize(
    ('mode', 'format', 'options'),
    [
        ('RGBA', 'PNG', {}),
        ('LA', 'PNG', {}),
        ('RGB', 'PNG', {}),
        ('L', 'PNG', {}),
        ('RGBA', 'WEBP', {'lossless': True}),
        ('RGB', 'WEBP', {'lossless': True}),
        ('RGB', 'JPEG', {}),
        ('RGB', 'BMP', {}),
    ],
)
def test_the_fourth_channel_is_alpha_or_opaque(mode, format, options):
    encoded = saved(Image.fromarray(RGBA).convert(mode), format, **options)
    decoded = decode_image(encoded, 4)
    np.testing.assert_array_equal(decoded[..., :3], decode_image(encoded))
    has_alpha = mode.endswith('A')
    np.testing.assert_array_equal(decoded[..., 3], RGBA[..., 3] if has_alpha else 255)
    (in_graph,) = tf.data.Dataset.from_tensors(encoded).map(lambda file: decode_image(file, 4))
    np.testing.assert_array_equal(in_graph, decoded)


@pytest.mark.parametrize('channels', [1, 3])
def test_the_upper_8_of_16_bits_are_kept(channels):
    values = np.random.default_rng(1).integers(0, 65536, (9, 7), dtype=np.uint16)
    encoded = saved(Image.fromarray(values), 'PNG')
    assert encoded[24] == 16
    decoded = decode_image(encoded, channels)
    np.testing.assert_array_equal(decoded, np.repeat((values >> 8)[..., np.newaxis], channels, 2))


def test_inks_become_colors():
    """Pillow writes CMYK inverted, as Adobe does; 0 ink is white."""
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[:8, :, 0], inks[8:, :, 3] = 255, 128
    decoded = decode_image(saved(Image.fromarray(inks, 'CMYK'), 'JPEG', quality=95)).numpy()
    # Cyan ink leaves green and blue; half of black leaves half of all.
    np.testing.assert_allclose(decoded[2, 2], [0, 255, 255], atol=6)
    np.testing.assert_allclose(decoded[13, 13], [127, 127, 127], atol=6)


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(ValueError, match=r'expected \(1, 3, 4\) channels. Received: 2'):
        decode_image(examples.png(RGBA), 2)
