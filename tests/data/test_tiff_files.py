"""TIFF files of every kind are plain files for TensorFlow; parts of large ones are read alone."""

import contextlib
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.data import image_decoding, image_files
from object_detection.data.tiff import plain_files, tiff_files
from object_detection.data.tiff.tiff_files import LargeImage
from object_detection.errors import UnusableError, UserError
from object_detection.resizers.value_range import ValueRange
from tests import rows
from tests.data import examples

HEIGHT, WIDTH = 48, 64
RANGE = ValueRange(0, 1000)
# By the number of channels; each is traced once.
DECODE = {
    number: tf.function(lambda encoded, n=number: image_decoding.decode_values(encoded, n))
    for number in (1, 2, 3, 5)
}


def values(channels: int, dtype: str) -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 250, (HEIGHT, WIDTH, channels))
    return (noise * (1 if dtype == 'uint8' else 250) / (7 if dtype == 'float32' else 1)).astype(
        dtype
    )


def tiff(image: np.ndarray, path=None, **profile) -> bytes:
    """Writes an image [H, W, C] as rasterio does; returns the file."""
    rasterio = pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    height, width, count = image.shape
    shape = {'height': height, 'width': width, 'count': count, 'dtype': image.dtype}
    # A GeoTIFF.
    profile |= {'crs': 'EPSG:3857', 'transform': rasterio.Affine(0.5, 0, 1000, 0, -0.5, 2000)}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver='GTiff', **shape, **profile) as file:
            file.write(np.moveaxis(image, -1, 0))
        encoded = memory.read()
    if path is not None:
        path.write_bytes(encoded)
    return encoded


def pages(images, **options) -> bytes:
    file = io.BytesIO()
    first, *others = map(Image.fromarray, images)
    first.save(file, 'TIFF', save_all=True, append_images=others, **options)
    return file.getvalue()


@rows.parametrize('dtype', ['uint8', 'uint16', 'float32'])
@rows.parametrize('channels', [1, 2, 3, 5])
def test_plain_files_decode_to_their_values(dtype, channels):
    image = values(channels, dtype)
    encoded = plain_files.encode(image)
    assert image_files.read_upright(encoded) == (encoded, 'tiff', HEIGHT, WIDTH, ())
    assert image_files.stored_size(encoded) == (HEIGHT, WIDTH)
    assert image_decoding.count_pixels(encoded) == HEIGHT * WIDTH
    assert image_files.has_16_bits(encoded) == (dtype != 'uint8')
    np.testing.assert_array_equal(tiff_files.read(encoded, 10**6).values, image)
    for number in DECODE:
        if channels == 1:
            expected = np.repeat(image, number, -1)
        elif channels < max(number, 3 * (number == 1)):
            with pytest.raises(tf.errors.InvalidArgumentError, match='one channel or at least'):
                image_decoding.decode_values(encoded, number)
            continue
        elif number == 1:
            expected = image[..., :3].astype(float) @ [[0.299], [0.587], [0.114]]
        else:
            expected = image[..., :number]
        found = DECODE[number](tf.constant(encoded))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        if dtype == 'float32':
            with pytest.raises(tf.errors.InvalidArgumentError, match='value_range'):
                image_decoding.decode_image(encoded, number)
        elif number > 1:
            upper = expected if dtype == 'uint8' else expected >> 8
            np.testing.assert_array_equal(image_decoding.decode_image(encoded, number), upper)


@rows.parametrize(
    ('channels', 'dtype'), [(1, 'uint8'), (3, 'uint8'), (1, 'uint16'), (1, 'float32')]
)
def test_other_programs_open_plain_files(channels, dtype):
    image = values(channels, dtype)
    with Image.open(io.BytesIO(plain_files.encode(image))) as opened:
        np.testing.assert_array_equal(np.asarray(opened).reshape(image.shape), image)


def test_the_hash_of_a_picture_is_that_of_its_colours():
    noise = np.asarray(Image.fromarray(examples.noise(6, 8)).resize((WIDTH, HEIGHT)))
    png = io.BytesIO()
    Image.fromarray(noise).save(png, 'PNG')
    expected = image_files.check(png.getvalue(), hashes=True)
    dark = noise.astype(np.uint16) * 4
    for image in (noise, dark, np.concatenate([dark, dark], axis=-1)):
        found = image_files.check(plain_files.encode(image), hashes=True)
        assert (found ^ expected).bit_count() <= 2
    assert image_files.check(plain_files.encode(dark)) == 0
    assert expected not in (0, 2**64 - 1)


def test_files_that_claim_too_much_or_are_cut_off_are_refused():
    encoded = plain_files.encode(values(3, 'uint16'))
    for broken in (
        encoded[:200],
        encoded[:16] + b'\xff' * 8 + encoded[24:],
        encoded[:10],
        b'II*\0',
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match='Expected a complete TIFF file'):
            image_decoding.decode_image(broken)
        with pytest.raises(UnusableError, match='cannot be decoded'):
            image_files.check(broken)
    with pytest.raises(UnusableError, match='expected at most 99 pixels'):
        image_files.read_upright(encoded, max_pixels=99)


def test_further_channels_need_a_tiff_file():
    encoded = tf.io.encode_png(examples.noise(4, 4))
    for decode in (image_decoding.decode_image, image_decoding.decode_values):
        with pytest.raises(tf.errors.InvalidArgumentError, match='a TIFF file for images of 5'):
            decode(encoded, 5)


@rows.parametrize(
    ('channels', 'dtype', 'profile'),
    [
        (3, 'uint16', {'tiled': True, 'blockxsize': 32, 'blockysize': 16, 'compress': 'deflate'}),
        (5, 'float32', {'interleave': 'pixel', 'compress': 'lzw', 'predictor': 3}),
        (4, 'uint8', {'interleave': 'band'}),
        (1, 'int16', {}),
        (2, 'uint16', {'BIGTIFF': 'YES', 'ENDIANNESS': 'BIG'}),
    ],
)
def test_tiff_files_become_plain_ones(channels, dtype, profile):
    image = values(channels, 'float32' if dtype == 'float32' else 'uint16').astype(dtype)
    if dtype == 'float32':
        image[0, 0, 0] = np.nan
    file = image_files.read_upright(tiff(image, **profile))
    assert (file.format, file.height, file.width) == ('tiff', HEIGHT, WIDTH)
    assert file.changes == ('tiff',)
    expected = np.where(np.isnan(image), -np.inf, image) if dtype == 'float32' else image
    found = tiff_files.read(file.encoded, 10**6).values
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == ('float32' if dtype == 'int16' else dtype)
    if dtype == 'float32':
        assert image_decoding.decode_image(file.encoded, 5, RANGE)[0, 0, 0] == 0


def test_palettes_and_inverted_values_are_the_colours_that_are_seen():
    pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    colors = Image.fromarray(examples.noise(HEIGHT, WIDTH)).convert('P')
    encoded = pages([np.asarray(colors.convert('RGB'))])
    np.testing.assert_array_equal(
        image_decoding.decode_image(image_files.read_upright(encoded).encoded),
        np.asarray(colors.convert('RGB')),
    )
    file = io.BytesIO()
    colors.save(file, 'TIFF')
    seen = image_decoding.decode_image(image_files.read_upright(file.getvalue()).encoded)
    np.testing.assert_array_equal(seen, np.asarray(colors.convert('RGB')))
    # Masks of a data set are indices.
    np.testing.assert_array_equal(image_files.decode(file.getvalue()), np.asarray(colors))
    bits = io.BytesIO()
    Image.fromarray(np.asarray(colors) > 99).save(bits, 'TIFF')
    found = tiff_files.read(bits.getvalue(), 10**6).values
    np.testing.assert_array_equal(found[..., 0], (np.asarray(colors) > 99) * 255)


@rows.parametrize('orientation', range(1, 9))
def test_turned_files_are_made_upright(orientation):
    pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    image = examples.noise(8, 12)
    encoded = pages([image], tiffinfo={0x0112: orientation})
    exif = Image.Exif()
    exif[0x0112] = orientation
    png = io.BytesIO()
    Image.fromarray(image).save(png, 'PNG', exif=exif)
    file, expected = image_files.read_upright(encoded), image_files.read_upright(png.getvalue())
    assert file.changes == (*expected.changes, 'tiff')
    np.testing.assert_array_equal(
        image_decoding.decode_image(file.encoded), image_decoding.decode_image(expected.encoded)
    )
    if orientation > 4:
        assert image_files.read_upright(encoded, stated_size=(8, 12)).height == 8


def test_the_first_page_is_the_image_and_the_report_says_so():
    pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    images = [examples.noise(8, 12), examples.noise(6, 6)[..., 0]]
    encoded = pages(images)
    assert image_files.read_upright(encoded).changes == ('tiff', 'tiff_further_pages')
    second = image_files.read_upright(encoded, page=1)
    np.testing.assert_array_equal(tiff_files.read(second.encoded, 99).values[..., 0], images[1])


def test_values_that_float32_lacks_are_said_and_others_refused():
    image = np.full((4, 4, 1), 2**24 + 1, np.int32)
    assert image_files.read_upright(tiff(image)).changes == ('tiff', 'tiff_values_rounded')
    with pytest.raises(UnusableError, match='has values of complex64'):
        image_files.read_upright(tiff(np.ones((4, 4, 1), np.complex64)))


def test_sizes_are_compared_with_limits_before_memory_is_taken():
    rasterio = pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    sparse = {'height': 100_000, 'width': 100_000, 'dtype': 'float32', 'SPARSE_OK': True}
    sparse['transform'] = rasterio.Affine(0.5, 0, 1000, 0, -0.5, 2000)
    with rasterio.MemoryFile() as memory:
        with memory.open(driver='GTiff', count=9, tiled=True, BIGTIFF='YES', **sparse):
            pass
        encoded = memory.read()
    with pytest.raises(UnusableError, match='is 100000 pixels high'):
        image_files.read_upright(encoded)
    with pytest.raises(UnusableError, match='has 9 channels, whose values are too many'):
        image_files.read_upright(encoded, max_pixels=10**10)
    with pytest.raises(UnusableError, match='cannot be decoded'):
        image_files.read_upright(b'II*\0' + bytes(99))


@rows.parametrize(('dtype', 'channels'), [('uint8', 3), ('uint16', 5), ('float32', 1)])
def test_parts_of_large_images_are_those_of_the_decoded_image(dtype, channels, tmp_path):
    path = tmp_path / 'a.tif'
    tiff(values(channels, dtype), path, tiled=True, blockxsize=16, blockysize=16)
    value_range = RANGE if dtype == 'float32' else None
    assert LargeImage.of(path, HEIGHT * WIDTH, value_range) is None
    large = LargeImage.of(path, 100, value_range)
    assert large.shape == (HEIGHT, WIDTH, 3)
    encoded = image_files.read_upright(path.read_bytes()).encoded
    decode = image_decoding.decode_values if value_range else image_decoding.decode_image
    whole = decode(encoded).numpy()
    assert large[5:40, 3:9].dtype == whole.dtype
    np.testing.assert_array_equal(large[5:40, 3:9], whole[5:40, 3:9])
    np.testing.assert_array_equal(large[40:99, 60:99], whole[40:, 60:])
    small = large.reduced(32)
    means = whole.reshape(24, 2, 32, 2, 3).astype(float).mean((1, 3))
    # Averages of 16 bits are taken before the upper 8 are.
    np.testing.assert_allclose(small, means, atol=1)
    if channels == 5:
        five = image_decoding.decode_image(encoded, 5)
        np.testing.assert_array_equal(LargeImage(path, channels=5)[5:9, 3:9], five[5:9, 3:9])


def test_the_strips_that_a_part_meets_are_remembered(tmp_path, monkeypatch):
    rasterio = pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    path, caches = tmp_path / 'a.tif', []
    monkeypatch.setattr(tiff_files, '_CACHE', 2**12)
    monkeypatch.setattr(tiff_files, '_MAX_CACHE', 2**13)

    def environment(**options):
        caches.append(options['GDAL_CACHEMAX'])
        return contextlib.nullcontext()

    monkeypatch.setattr(rasterio, 'Env', environment)
    tiff(values(3, 'uint8'), path, tiled=True, blockxsize=16, blockysize=16)
    assert LargeImage(path)[:20, :16].shape == (20, 16, 3)
    # The first opens the file.
    assert caches[1:] == [2**12]
    caches.clear()
    tiff(values(3, 'uint8'), path, blockysize=4)
    large = LargeImage(path)
    assert (large[:20, :16].shape, large[:1, :16].shape) == ((20, 16, 3), (1, 16, 3))
    assert large[:, :16].shape == (HEIGHT, 16, 3)
    # Of 20 rows, one and all; strips are four rows high.
    assert caches[1:] == [28 * WIDTH * 3 * 5 // 4, 2**12, 2**13]


def test_large_images_that_cannot_be_read_in_parts_are_refused(tmp_path):
    path = tmp_path / 'a.tif'
    tiff(values(1, 'float32'), path)
    with pytest.raises(UserError, match=r'a\.tif: .*value_range'):
        LargeImage(path, None)[:4, :4]
    assert LargeImage(path, RANGE)[:4, :4].dtype == np.float32
    pages_of_turned = pages([examples.noise(8, 12)], tiffinfo={0x0112: 6})
    path.write_bytes(pages_of_turned)
    with pytest.raises(UserError, match='is turned'):
        LargeImage(path, None)


def test_thumbnails_and_smaller_files_keep_the_values():
    image = values(3, 'uint16')
    encoded = plain_files.encode(image)
    reduced = image_files.reduce(encoded, 32)
    assert (reduced.format, reduced.height, reduced.width) == ('tiff', 24, 32)
    small = tiff_files.read(reduced.encoded, 10**6).values
    assert small.dtype == np.uint16
    assert abs(small.mean() - image.mean()) < 300
    assert image_files.reduce(encoded, 64) is None
    picture = np.asarray(image_files.thumbnail(encoded, 64, ValueRange(0, 65535)))
    np.testing.assert_allclose(picture, image / 257, atol=0.51)
    floats = plain_files.encode(values(5, 'float32'))
    assert np.asarray(image_files.thumbnail(floats, 64)).max() == 255
