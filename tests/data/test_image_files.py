import io
import os
import pathlib
import stat
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.data import image_files
from object_detection.errors import UnusableError
from tests import rows
from tests.data import examples

HEIGHT, WIDTH = 32, 64
# A blue image whose upper left quarter, as it is seen, is red.
UPRIGHT = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
UPRIGHT[..., 2] = 255
UPRIGHT[: HEIGHT // 2, : WIDTH // 2] = [255, 0, 0]
# How a camera stores it so that the orientation of EXIF makes it upright again.
_STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.swapaxes(0, 1),
    6: UPRIGHT.swapaxes(0, 1)[::-1],
    7: UPRIGHT[::-1, ::-1].swapaxes(0, 1),
    8: UPRIGHT.swapaxes(0, 1)[:, ::-1],
}


def turned(orientation: int, image_format: str = 'JPEG') -> bytes:
    """`UPRIGHT` as a file that says how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    pixels = np.ascontiguousarray(_STORED[orientation])
    Image.fromarray(pixels).save(file, image_format, exif=exif)
    return file.getvalue()


def _encode(image: Image.Image, image_format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def _as_tensorflow_reads(encoded: bytes) -> np.ndarray:
    return tf.io.decode_image(encoded, channels=3, expand_animations=False).numpy()


@rows.parametrize('image_format', ['JPEG', 'PNG', 'WEBP'])
@rows.parametrize('orientation', range(2, 9))
def test_turned_photo_is_made_upright(orientation, image_format):
    file = image_files.read_upright(turned(orientation, image_format))
    assert (file.height, file.width) == (HEIGHT, WIDTH)
    assert file.changes == ('exif_orientation',)
    assert file.format == ('jpeg' if image_format == 'JPEG' else 'png')
    pixels = _as_tensorflow_reads(file.encoded).astype(int)
    assert pixels.shape == UPRIGHT.shape
    # JPEG and WebP lose a little where colours meet. With the red quarter at another corner,
    # half of all pixels would differ, by 255 in two colours of three.
    assert np.abs(pixels - UPRIGHT).mean() <= (0 if image_format == 'PNG' else 6)


@rows.parametrize('orientation', [0, 1, 9, 60000])
def test_other_orientations_turn_nothing(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = _encode(Image.fromarray(UPRIGHT), 'JPEG', exif=exif)
    assert image_files.read_upright(encoded) == (encoded, 'jpeg', HEIGHT, WIDTH, ())


@rows.parametrize('orientation', [5, 6, 7, 8])
def test_annotations_of_the_stored_pixels_keep_them(orientation):
    encoded = turned(orientation)
    file = image_files.read_upright(encoded, stated_size=(WIDTH, HEIGHT))
    assert file == (encoded, 'jpeg', WIDTH, HEIGHT, ('exif_orientation_without_effect',))
    assert image_files.read_upright(encoded, stated_size=(HEIGHT, WIDTH)).height == HEIGHT
    assert image_files.read_upright(encoded, stated_size=(None, None)).height == HEIGHT


@pytest.mark.filterwarnings('ignore:Corrupt EXIF data')
def test_broken_exif_data_are_passed_over():
    encoded = _encode(Image.fromarray(UPRIGHT), 'JPEG', exif=b'Exif\0\0MM\0*\xff\xff\xff\xff')
    assert image_files.read_upright(encoded).encoded == encoded


@rows.parametrize(
    ('image_format', 'mode'),
    [
        *(('JPEG', 'RGB'), ('JPEG', 'L'), ('JPEG', 'CMYK'), ('PNG', 'RGBA'), ('PNG', 'P')),
        *(('PNG', '1'), ('PNG', 'LA'), ('BMP', 'RGB'), ('BMP', 'RGBA'), ('BMP', 'L')),
        *(('GIF', 'P'), ('WEBP', 'RGB'), ('WEBP', 'RGBA')),
    ],
)
def test_what_tensorflow_reads_alike_stays_as_it_is(image_format, mode):
    image = Image.fromarray(examples.noise(HEIGHT, WIDTH)).convert(mode)
    encoded = _encode(image, image_format)
    file = image_files.read_upright(encoded)
    assert file == (encoded, image_format.lower(), HEIGHT, WIDTH, ())
    with Image.open(io.BytesIO(encoded)) as expected:
        expected = np.asarray(expected.convert('RGB')).astype(int)
    # Decoders of JPEG round differently.
    assert np.abs(_as_tensorflow_reads(encoded) - expected).max() <= 4


@pytest.mark.parametrize('mode', ['P', '1'])
def test_bmp_with_a_palette(mode):
    image = Image.fromarray(examples.noise(HEIGHT, WIDTH)).convert(mode)
    file = image_files.read_upright(_encode(image, 'BMP'))
    assert (file.format, file.changes) == ('png', ('bmp_palette',))
    expected = np.asarray(image.convert('RGB'))
    np.testing.assert_array_equal(_as_tensorflow_reads(file.encoded), expected)


@pytest.mark.parametrize('image_format', ['WEBP', 'GIF'])
def test_an_animation_is_its_first_picture(image_format):
    first, second = (Image.fromarray(examples.noise(HEIGHT, WIDTH, seed)) for seed in (0, 1))
    first = first.quantize() if image_format == 'GIF' else first
    options = {'save_all': True, 'append_images': [second], 'lossless': True}
    encoded = _encode(first, image_format, **options)
    file = image_files.read_upright(encoded)
    assert (file.format, file.changes) == ('png', ('animation',))
    expected = np.asarray(first.convert('RGB'))
    np.testing.assert_array_equal(_as_tensorflow_reads(file.encoded), expected)
    assert image_files.first_picture(encoded) == file.encoded
    still = turned(6)
    assert image_files.first_picture(still) == still


def test_a_gif_frame_within_a_larger_canvas_gets_the_size_of_the_canvas():
    encoded = bytearray(_encode(Image.new('P', (WIDTH, HEIGHT)), 'GIF'))
    encoded[6:10] = struct.pack('<HH', 2 * WIDTH, HEIGHT)
    file = image_files.read_upright(bytes(encoded))
    assert (file.height, file.width, file.changes) == (HEIGHT, 2 * WIDTH, ('animation',))
    assert _as_tensorflow_reads(file.encoded).shape == (HEIGHT, 2 * WIDTH, 3)


@rows.parametrize('highest', [255, 4095, 65535])
def test_values_of_16_bits_stay_whatever_the_brightest_pixel_is(highest):
    values = np.random.default_rng(0).integers(0, highest + 1, (HEIGHT, WIDTH)).astype(np.uint16)
    encoded = _encode(Image.fromarray(values), 'PNG')
    assert image_files.read_upright(encoded) == (encoded, 'png', HEIGHT, WIDTH, ())


@pytest.mark.parametrize('channels', [1, 3])
def test_a_turned_image_of_16_bits_keeps_them(channels):
    values = np.random.default_rng(0).integers(0, 65536, (4, 6, channels)).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    chunk = b'eXIf' + exif.tobytes().removeprefix(b'Exif\0\0')
    encoded = tf.io.encode_png(values).numpy()
    # After the header.
    parts = [struct.pack('>I', len(chunk) - 4), chunk, struct.pack('>I', zlib.crc32(chunk))]
    file = image_files.read_upright(encoded[:33] + b''.join(parts) + encoded[33:])
    assert file[1:] == ('png', 6, 4, ('exif_orientation',))
    read = tf.io.decode_png(file.encoded, dtype=tf.uint16)
    np.testing.assert_array_equal(read, np.rot90(values, -1))


def test_image_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch):
    encoded = _encode(Image.new('1', (20000, 20000)), 'PNG')
    monkeypatch.setattr(Image.Image, 'load', lambda self: pytest.fail('it was decoded'))
    for read in (image_files.read_upright, image_files.check):
        with pytest.raises(UnusableError, match='20000 pixels high and 20000 wide; expected at'):
            read(encoded)
    # Nothing asks for its pixels either where that many are allowed.
    assert image_files.read_upright(encoded, max_pixels=400_000_000).height == 20000


def test_limit_of_pixels_is_ours_and_pil_s_own_stays(monkeypatch):
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 10)
    assert image_files.read_upright(examples.png(UPRIGHT)).width == WIDTH
    assert Image.MAX_IMAGE_PIXELS == 10


_EPS = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 24\n%%EndComments\nshowpage\n'


@pytest.mark.parametrize('read', [image_files.read_upright, image_files.check])
def test_no_program_is_started(read, tmp_path: pathlib.Path, monkeypatch):
    witness = tmp_path / 'started'
    for name in ('gs', 'gswin32c', 'gswin64c'):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\ntouch {witness}\nexit 1\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv('PATH', f'{tmp_path}{os.pathsep}{os.environ["PATH"]}')
    monkeypatch.setattr('PIL.EpsImagePlugin.gs_binary', None)
    with pytest.raises(UnusableError, match='cannot be decoded: no image file of the formats'):
        read(_EPS)
    assert not witness.exists()


@rows.parametrize('image_format', ['PPM', 'ICO'])
def test_other_formats_are_refused(image_format):
    with pytest.raises(UnusableError, match='JPEG, MPO, PNG, GIF, BMP, WEBP'):
        image_files.read_upright(_encode(Image.fromarray(UPRIGHT), image_format))


def test_damage_that_shows_when_an_image_is_turned():
    encoded = turned(6)
    with pytest.raises(UnusableError, match='cannot be decoded'):
        image_files.read_upright(encoded[: len(encoded) // 2])


@rows.parametrize('mode', ['L', 'RGB', 'RGBA', 'P'])
def test_reduced_images_are_jpeg_of_their_colours(mode):
    file = io.BytesIO()
    Image.fromarray(UPRIGHT).convert(mode).save(file, 'PNG')
    reduced = image_files.reduce(file.getvalue(), WIDTH // 4)
    assert (reduced.format, reduced.height, reduced.width) == ('jpeg', HEIGHT // 4, WIDTH // 4)
    found = np.asarray(Image.open(io.BytesIO(reduced.encoded)).convert('RGB'), int)
    # The lower half is blue, or its grey value.
    expected = np.asarray(Image.fromarray(UPRIGHT).convert(mode).convert('RGB'), int)[-1, -1]
    assert np.abs(found[-1, -1] - expected).max() < 30
    assert image_files.reduce(file.getvalue(), WIDTH) is None
    with pytest.raises(UnusableError, match='pixels'):
        image_files.reduce(file.getvalue(), 8, max_pixels=100)
    with pytest.raises(UnusableError, match='cannot be decoded'):
        image_files.reduce(file.getvalue()[:30], 8)


@pytest.mark.parametrize('channels', [1, 3])
def test_reduced_images_of_16_bits_keep_them(channels):
    gradient = np.linspace(300, 60000, WIDTH).round().astype(np.uint16)
    values = np.broadcast_to(gradient[:, np.newaxis], (HEIGHT, WIDTH, channels))
    reduced = image_files.reduce(tf.io.encode_png(values).numpy(), WIDTH // 4)
    assert (reduced.format, reduced.height, reduced.width) == ('png', HEIGHT // 4, WIDTH // 4)
    found = tf.io.decode_png(reduced.encoded, dtype=tf.uint16).numpy()
    assert found.shape == (HEIGHT // 4, WIDTH // 4, channels)
    assert found.mean() == pytest.approx(gradient.mean(), abs=1)
