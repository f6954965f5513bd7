import io
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pycocotools import mask as mask_api

from object_detection.data import instance_masks
from object_detection.data.coco import masks as coco_masks
from object_detection.metrics import instances
from tests.data import examples
from tests.rows import parametrize


def blobs(count=4, height=37, width=53, seed=0):
    """Filled ellipses uint8 [n, H, W] and their tight boxes, normalized [n, 4]."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    masks, boxes = [], []
    for _ in range(count):
        center_y, center_x = generator.uniform(0, height), generator.uniform(0, width)
        radius_y, radius_x = generator.uniform(5, 20, 2)
        mask = ((y - center_y) / radius_y) ** 2 + ((x - center_x) / radius_x) ** 2 <= 1
        rows, columns = np.where(mask.any(1))[0], np.where(mask.any(0))[0]
        boxes.append(
            [
                rows[0] / height,
                columns[0] / width,
                (rows[-1] + 1) / height,
                (columns[-1] + 1) / width,
            ]
        )
        masks.append(mask)
    return np.array(masks, np.uint8), np.array(boxes, np.float32)


def numpy_crop(mask, box, size):
    """Bilinear samples of one mask at `size` points from edge to edge of the box."""
    height, width = mask.shape
    y = np.linspace(box[0] * (height - 1), box[2] * (height - 1), size)
    x = np.linspace(box[1] * (width - 1), box[3] * (width - 1), size)

    def weights(points, length):
        matrix = np.zeros((size, length))
        low = np.clip(np.floor(points).astype(int), 0, length - 1)
        high = np.minimum(low + 1, length - 1)
        matrix[np.arange(size), low] += 1 - (points - low)
        matrix[np.arange(size), high] += points - low
        return matrix

    return weights(y, height) @ mask @ weights(x, width).T


@parametrize('size', [1, 14, 56])
def test_crops_match_numpy(size):
    masks, boxes = blobs()
    crops = instance_masks.crop(tf.constant(masks), tf.constant(boxes), size)
    assert crops.dtype == tf.uint8
    if size > 1:
        expected = [numpy_crop(mask, box, size) for mask, box in zip(masks, boxes, strict=True)]
        np.testing.assert_allclose(crops / 255, expected, atol=0.003)
    encoded = tf.constant([examples.png(mask * 255) for mask in masks])
    np.testing.assert_array_equal(instance_masks.crop_encoded(encoded, boxes, size), crops)


@parametrize('size', [1, 14, 33])
@parametrize('width', [48, 53])
def test_crops_of_packed_files_are_those_of_the_masks(size, width):
    masks, boxes = blobs(count=20, width=width)
    corners = np.sort(np.random.default_rng(1).uniform(0, 1, (10, 2, 2)).astype(np.float32), axis=1)
    boxes = np.concatenate([boxes[:8], corners.reshape(10, 4), [[0, 0, 1, 1], [0.3, 0.2, 0.3, 1]]])
    encoded = [coco_masks.to_png(mask) for mask in masks]
    rows, _ = instance_masks._packed_rows(tf.constant(encoded))
    assert rows.shape == (20, masks.shape[1], -(-width // 8))
    np.testing.assert_array_equal(
        instance_masks.decode(tf.constant(encoded), *masks[0].shape), masks
    )
    expected = instance_masks.crop(tf.constant(masks), tf.constant(boxes, tf.float32), size)
    crop = tf.function(instance_masks.crop_encoded, autograph=False)
    for files in (encoded, [*encoded[:-1], examples.png(masks[-1])]):
        found = crop(tf.constant(files), tf.constant(boxes, tf.float32), size)
        np.testing.assert_array_equal(found, expected)


def test_packed_files_of_other_forms_are_decoded():
    [mask], _ = blobs(count=1)
    png = coco_masks.to_png(mask)
    others = [
        coco_masks.to_png(mask[1:]),
        coco_masks.to_png(mask[:, :-8]),
        examples.png(mask),
        # A byte is missing; the last row.
        png[:-1],
        _with_data(png, zlib.compress(zlib.decompress(png[41:-16])[:-8])),
        # A filter: the difference to the row above.
        _with_data(png, zlib.compress(b'\2' + zlib.decompress(png[41:-16])[1:])),
    ]
    for other in others:
        assert len(instance_masks._packed_rows(tf.constant([png, other]))[0]) == 0
    damaged = tf.constant([_with_data(png, b'\0' + png[42:-16])])
    with pytest.raises(tf.errors.OpError, match='inflate'):
        instance_masks.crop_encoded(damaged, tf.constant([[0.0, 0.0, 1.0, 1.0]]), 3)


def _with_data(png: bytes, data: bytes) -> bytes:
    """Returns a PNG file with other data; its checksum is that of the old ones."""
    return png[:33] + len(data).to_bytes(4, 'big') + png[37:41] + data + png[-16:]


def test_a_box_that_ends_at_the_image_has_no_empty_last_row():
    # Boxes for which rounding puts the last sample beyond the image's last pixel.
    for height in range(30, 200):
        box = tf.constant([[1 / 3, 1 / 7, 1.0, 1.0]])
        crops = instance_masks.crop(tf.ones([1, height, height + 3], tf.uint8), box, 112)
        assert tf.reduce_min(crops) == 255


def test_no_objects():
    none = tf.zeros([0], tf.string)
    assert instance_masks.crop_encoded(none, tf.zeros([0, 4]), 28).shape == (0, 28, 28)
    assert instance_masks.decode(none, 5, 6).shape == (0, 5, 6)
    assert instance_masks.crop(tf.zeros([0, 5, 6], tf.uint8), tf.zeros([0, 4]), 28).shape[0] == 0
    assert instance_masks.encode(tf.zeros([0, 5, 6], tf.uint8)).shape == (0,)


def test_functions_of_unknown_sizes_as_eager():
    masks, boxes = blobs()
    encoded = tf.constant([examples.png(mask) for mask in masks])
    signature = [tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 4])]
    crop = tf.function(
        lambda encoded, boxes: instance_masks.crop_encoded(encoded, boxes, 28),
        input_signature=signature,
        autograph=False,
    )
    np.testing.assert_array_equal(
        crop(encoded, boxes), instance_masks.crop_encoded(encoded, boxes, 28)
    )
    decode = tf.function(
        lambda encoded, size: instance_masks.decode(encoded, size[0], size[1]),
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([2], tf.int32)],
        autograph=False,
    )
    np.testing.assert_array_equal(decode(encoded, tf.constant(masks.shape[1:])), masks)


def test_decode_inverts_encode():
    masks, _ = blobs()
    np.testing.assert_array_equal(
        instance_masks.decode(instance_masks.encode(tf.constant(masks)), 37, 53), masks
    )


def as_png(mask, mode):
    """A mask, bool [H, W], as a PNG file of one of Pillow's modes."""
    if mode == 'I;16':
        image = Image.fromarray(mask.astype(np.uint16))
    elif mode == 'P':
        image = Image.fromarray(mask.astype(np.uint8)).convert('L')
        image.putpalette([0, 0, 0, 0, 0, 1])
    elif mode == 'RGB':
        # As grey, so dark a blue would be black.
        image = Image.fromarray(mask[..., np.newaxis] * np.array([0, 0, 1], np.uint8))
    elif mode == 'LA':
        grey = Image.fromarray(mask.astype(np.uint8))
        image = Image.merge('LA', [grey, Image.new('L', grey.size, 255)])
    else:
        image = Image.fromarray(mask).convert(mode)
    file = io.BytesIO()
    image.save(file, 'PNG')
    return file.getvalue()


@parametrize('mode', ['1', 'L', 'LA', 'I;16', 'P', 'RGB'])
def test_pixels_that_are_not_black_are_the_object_in_any_png_file(mode):
    mask = np.zeros((12, 10), bool)
    mask[2:9, 3:6] = True
    png = as_png(mask, mode)
    size, box = tf.constant([12, 10]), tf.constant([[0.0, 0.0, 1.0, 1.0]])
    encoded = instance_masks.checked(tf.constant([png]), size, tf.constant('7'))
    np.testing.assert_array_equal(instance_masks.decode(encoded, 12, 10)[0], mask)
    crop = instance_masks.crop_encoded(encoded, box, 20)
    np.testing.assert_array_equal(
        crop, instance_masks.crop(tf.constant(mask[np.newaxis], tf.uint8), box, 20)
    )
    expected = mask_api.encode(np.asfortranarray(mask, np.uint8))
    assert instances.encode_png(png, 12, 10, '7') == expected['counts']


def _white_first():
    image = Image.fromarray(np.eye(4, 6, dtype=np.uint8)).convert('L')
    image.putpalette([255, 255, 255, 0, 0, 0])
    file = io.BytesIO()
    image.save(file, 'PNG')
    return file.getvalue()


@pytest.mark.parametrize(
    ('mask', 'expected'),
    [
        (examples.png(np.ones((6, 4))), r'another size than its image.*4.* 6.*6.* 4'),
        (examples.png(np.ones((4, 6)), 'BMP'), 'is no PNG file'),
        (b'', 'is no PNG file'),
        (_white_first(), 'palette of an instance mask does not begin with black'),
    ],
    ids=['turned', 'bmp', 'empty', 'white first'],
)
def test_a_mask_that_cannot_be_the_images_is_refused_by_name(mask, expected):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f'(?s)(?=.*img 42).*{expected}'):
        instance_masks.checked(tf.constant([mask]), tf.constant([4, 6]), tf.constant('img 42'))


def test_no_mask_is_none_to_check():
    none = tf.zeros([0], tf.string)
    assert instance_masks.checked(none, tf.constant([4, 6]), tf.constant('7')).shape == (0,)


def test_crops_keep_what_full_masks_hold():
    """Pasting a crop of 112 back into its box gives the mask, but for pixels at its outline."""
    masks, boxes = blobs(count=12, height=240, width=320, seed=3)
    crops = instance_masks.crop(tf.constant(masks), tf.constant(boxes), 112).numpy() / 255
    for mask, box, crop in zip(masks, boxes, crops, strict=True):
        height, width = mask.shape
        rows = np.arange(height)[:, None] / (height - 1)
        columns = np.arange(width)[None] / (width - 1)
        y = (rows - box[0]) / (box[2] - box[0]) * 111
        x = (columns - box[1]) / (box[3] - box[1]) * 111
        inside = (y >= 0) & (y <= 111) & (x >= 0) & (x <= 111)
        pasted = crop[
            np.clip(np.rint(y), 0, 111).astype(int), np.clip(np.rint(x), 0, 111).astype(int)
        ]
        pasted = (pasted > 0.5) & inside
        union = np.sum(pasted | (mask > 0))
        assert np.sum(pasted & (mask > 0)) / union > 0.93
