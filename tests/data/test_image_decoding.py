import functools
import io
import re
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.data import image_decoding
from object_detection.data.image_decoding import count_pixels, decode_image, decode_values
from object_detection.data.pipeline import bad_records
from object_detection.resizers.value_range import ValueRange
from tests import forks, rows
from tests.data import examples

RGBA = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@functools.cache
def in_graph(num_channels=3, value_range=None):
    """`decode_image` as a graph, which takes a second to trace."""
    return tf.function(
        lambda file: decode_image(file, num_channels, value_range),
        input_signature=[tf.TensorSpec([], tf.string)],
        autograph=False,
    )


@rows.parametrize(
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
    np.testing.assert_array_equal(in_graph(1)(encoded), decode_image(encoded, 1))


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
    np.testing.assert_array_equal(in_graph(4)(encoded), decoded)


@pytest.mark.parametrize('channels', [1, 3])
def test_the_upper_8_of_16_bits_are_kept(channels):
    values = np.random.default_rng(1).integers(0, 65536, (9, 7), dtype=np.uint16)
    encoded = saved(Image.fromarray(values), 'PNG')
    assert encoded[24] == 16
    decoded = decode_image(encoded, channels)
    np.testing.assert_array_equal(decoded, np.repeat((values >> 8)[..., np.newaxis], channels, 2))


RANGE = ValueRange(100, 4100)


@pytest.mark.parametrize('channels', [1, 3, 4])
def test_a_range_of_values_is_mapped_without_rounding(channels):
    values = np.array([[0, 100, 101, 2100, 4100, 65535]], np.uint16)
    encoded = saved(Image.fromarray(values), 'PNG')
    decoded = decode_image(encoded, channels, RANGE)
    assert decoded.dtype == tf.float32
    expected = [0, 0, 255 / 4000, 127.5, 255, 255]
    for channel in range(min(channels, 3)):
        np.testing.assert_allclose(decoded[0, :, channel], expected, rtol=1e-6)
    np.testing.assert_allclose(in_graph(3, RANGE)(encoded)[0, :, 0], expected, rtol=1e-6)


def test_stored_values_are_those_of_the_file():
    colors = np.random.default_rng(0).integers(0, 65536, (3, 5, 3), np.uint16)
    np.testing.assert_array_equal(decode_values(tf.io.encode_png(colors)), colors)
    for format in ('PNG', 'BMP', 'WEBP'):
        encoded = saved(Image.fromarray(RGBA).convert('RGB'), format, lossless=True)
        np.testing.assert_array_equal(decode_values(encoded), decode_image(encoded))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_values(examples.png(RGBA)[:20])


def test_inks_become_colors():
    """Pillow writes CMYK inverted, as Adobe does; 0 ink is white."""
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[:8, :, 0], inks[8:, :, 3] = 255, 128
    decoded = decode_image(saved(Image.fromarray(inks, 'CMYK'), 'JPEG', quality=95)).numpy()
    # Cyan ink leaves green and blue; half of black leaves half of all.
    np.testing.assert_allclose(decoded[2, 2], [0, 255, 255], atol=6)
    np.testing.assert_allclose(decoded[13, 13], [127, 127, 127], atol=6)


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(ValueError, match=r'expected at least one channel. Received: 0'):
        decode_image(examples.png(RGBA), 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match='a TIFF file for images of 2'):
        decode_image(examples.png(RGBA), 2)


def animation(format, mode='RGB', sizes=((9, 7), (9, 7), (9, 7)), **options):
    first, *others = (
        Image.fromarray(examples.noise(*size, seed)).convert(mode)
        for seed, size in enumerate(sizes)
    )
    return saved(first, format, save_all=True, append_images=others, **options)


def shapes_of(encoded):
    data = tf.data.Dataset.from_tensors(encoded).repeat(4)
    return {tuple(image.shape) for image in data.map(decode_image)}


def test_an_animation_does_not_end_the_process():
    """TensorFlow writes past its memory if it decodes an animation itself."""
    frames = [Image.new('RGB', (64, 48), color) for color in ('red', 'lime')]
    encoded = saved(frames[0], 'WEBP', save_all=True, append_images=frames[1:])
    assert forks.call(shapes_of, encoded) == {(48, 64, 3)}


@rows.parametrize('is_lossless', [True, False])
@rows.parametrize('mode', ['RGB', 'RGBA'])
def test_an_animated_webp_is_its_first_frame(mode, is_lossless):
    metadata = {'icc_profile': b'p' * 301, 'exif': b'Exif\0\0'}
    encoded = animation('WEBP', mode, lossless=is_lossless, **metadata)
    assert len(re.findall(b'ANMF', encoded)) == 3
    expected = np.asarray(Image.open(io.BytesIO(encoded)).convert('RGB'))
    np.testing.assert_array_equal(decode_image(encoded), expected)
    assert count_pixels(encoded) == 9 * 7
    np.testing.assert_array_equal(in_graph(4)(encoded)[..., :3], expected)


def test_a_frame_of_a_webp_has_its_place_on_the_canvas():
    canvas = Image.new('RGBA', (40, 30), (0, 0, 0, 0))
    canvas.paste((255, 0, 0, 255), (11, 7, 20, 19))
    other = canvas.copy()
    other.paste((0, 255, 0, 255), (2, 2, 5, 5))
    encoded = saved(canvas, 'WEBP', save_all=True, append_images=[other], lossless=True)
    np.testing.assert_array_equal(decode_image(encoded, 4), np.asarray(canvas))


@pytest.mark.parametrize('place', [24, 27])
def test_a_frame_beyond_the_canvas_is_refused(place):
    encoded = bytearray(animation('WEBP'))
    encoded[place] -= 1  # The canvas is a pixel smaller than the frame.
    message = 'Expected a WebP animation whose first frame is within its canvas'
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode_image(bytes(encoded))


@rows.parametrize('share', [0.1, 0.2, 0.4, 0.6])
def test_an_animation_that_breaks_off_in_its_first_frame_is_refused(share):
    encoded = animation('WEBP', sizes=[(40, 40)] * 2, lossless=True)
    end = int(share * len(encoded) / 2)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_image(encoded[:end])


@pytest.mark.parametrize('options', [{}, {'comment': b'c' * 700}])
def test_the_first_frame_of_a_gif_alone_says_its_size(options):
    """TensorFlow gives it the size of the largest."""
    first = Image.fromarray(examples.noise(90, 70)).convert('L')
    still = saved(first, 'GIF', **options)
    larger = saved(Image.new('P', (300, 200)), 'GIF')
    file = still[:-1] + larger[larger.index(b',\0\0\0\0') :]
    assert Image.open(io.BytesIO(file)).n_frames == 2
    assert count_pixels(file) == 90 * 70
    np.testing.assert_array_equal(decode_image(file)[..., 0], first)


@pytest.mark.parametrize('size', [b'\xff\xff\xff\x7f', b'\0\xff\0\0', b'\0\0\0\x80'])
def test_a_bmp_whose_palette_is_beyond_its_end_is_refused(size):
    encoded = saved(Image.new('P', (5, 4)), 'BMP')
    damaged = encoded[:14] + size + encoded[18:-400] + b'\xff' * 99
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_graph()(damaged)


def test_a_jpeg_of_countless_scans_is_refused():
    still = saved(Image.fromarray(RGBA[..., :3]), 'JPEG', progressive=True)
    scan = still[still.rindex(b'\xff\xda') : -2]
    few, many = (still[:-2] + count * scan + still[-2:] for count in (20, 100))
    assert decode_image(few).shape == (9, 7, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match='at most 100 scans'):
        decode_image(many)


def _with(encoded, place, claimed):
    return encoded[:place] + claimed + encoded[place + len(claimed) :]


@pytest.mark.parametrize('num_channels', [3, 4])
def test_sizes_that_take_gigabytes_are_refused_before_the_pixels_are_made(num_channels):
    """A file of one color and 16383 x 16383 pixels has 10 kB; TensorFlow has no limit for it."""
    still, gif = Image.new('RGB', (7, 9)), saved(Image.new('P', (7, 9)), 'GIF')
    lossless = saved(still, 'WEBP', lossless=True)
    sizes = struct.pack('<HH', 16383, 16383)
    claims = [
        _with(saved(still, 'WEBP'), 26, sizes),
        _with(lossless, 21, struct.pack('<I', 16382 << 14 | 16382)),
        _with(lossless[:12] + b'VP8X\x0a' + b'\0' * 13, 24, b'\xfe\x3f\0\xfe\x3f\0')
        + lossless[12:],
        _with(animation('WEBP', lossless=True), 24, b'\xfe\x3f\0\xfe\x3f\0'),
        _with(gif, gif.index(b',') + 5, sizes),
    ]
    for encoded in claims:
        assert count_pixels(encoded) == 16383**2
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            decode_image(encoded, num_channels)
        assert 'no more pixels than 178956970' in str(raised.value)
        assert '268402689' in str(raised.value)
        # The table of bad records counts it as too large.
        kind, _ = bad_records._describe(encoded, lambda _, text=str(raised.value): text)
        assert kind == 'image_too_large'


def test_a_webp_of_another_signature_is_refused():
    """`count_pixels` reads no size from it, so that nothing would limit its canvas."""
    encoded = animation('WEBP', lossless=True).replace(b'WEBP', b'WEBX', 1)
    assert count_pixels(encoded) == 0
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_image(encoded)


@pytest.mark.parametrize('blocks', [b'!\xfe\1a\0', b'!\xfe' + 9 * b'\1a' + b'\0'])
def test_a_gif_of_countless_blocks_is_refused(blocks, monkeypatch):
    monkeypatch.setattr(image_decoding, 'MAX_GIF_BLOCKS', 50)
    still = saved(Image.new('P', (4, 3)), 'GIF')
    start = still.index(b',')
    few, many = (still[:start] + count * blocks + still[start:] for count in (4, 60))
    assert count_pixels(few) == 12
    assert decode_image(few).shape == (3, 4, 3)
    for function in (count_pixels, decode_image):
        with pytest.raises(tf.errors.InvalidArgumentError, match='at most 50 blocks'):
            function(many)


@rows.parametrize('magic', [b'\xff\x0a', b'\0\0\0\x0cJXL \r\n\x87\n', b'II*\0', b''])
def test_other_formats_are_refused(magic):
    """TensorFlow decodes JPEG XL, whose size `count_pixels` does not know."""
    message = (
        'Unknown image file format. Expected JPEG, PNG, BMP, WebP or GIF' if magic else 'empty'
    )
    message = 'Expected a complete TIFF file' if magic.startswith(b'II') else message
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode_image(magic + b'\0' * 40 if magic else magic)
