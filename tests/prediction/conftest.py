"""A model whose output is known: it finds the bright pixels of each colour."""

import pathlib

import pytest

COLOURS = ('red', 'green', 'blue')
BRIGHT = 128


@pytest.fixture(scope='session')
def colour_finder(tmp_path_factory) -> pathlib.Path:
    """A SavedModel that finds the box of all bright red, green and blue pixels, classes 1 to 3.

    The score is the highest value over 255. A box has a mask of ones, 4 x 4, and two keypoints, its
    corners. The row of a colour that the image lacks is left out.
    """
    import tensorflow as tf

    class Finder(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)])
        def serve(self, input_tensor):
            bright = tf.transpose(input_tensor >= BRIGHT, [0, 3, 1, 2])  # [B, 3, H, W]
            height, width = tf.shape(bright)[2], tf.shape(bright)[3]

            def extent(lines, length):
                places = tf.range(length)
                low = tf.reduce_min(tf.where(lines, places, length), -1)
                high = tf.reduce_max(tf.where(lines, places + 1, 0), -1)
                return [tf.cast(each / length, tf.float32) for each in (low, high)]

            (top, bottom) = extent(tf.reduce_any(bright, 3), height)
            (left, right) = extent(tf.reduce_any(bright, 2), width)
            boxes = tf.stack([top, left, bottom, right], -1)  # [B, 3, 4]
            scores = tf.cast(tf.reduce_max(input_tensor, [1, 2]), tf.float32) / 255
            scores = tf.where(tf.reduce_any(bright, [2, 3]), scores, 0)
            order = tf.argsort(scores, direction='DESCENDING', stable=True)
            boxes = tf.gather(boxes, order, batch_dims=1)
            count = tf.shape(boxes)[0]
            return {
                'detection_boxes': boxes,
                'detection_scores': tf.gather(scores, order, batch_dims=1),
                'detection_classes': tf.cast(order + 1, tf.float32),
                'detection_masks': tf.ones([count, 3, 4, 4]),
                'detection_keypoints': tf.reshape(boxes, [count, 3, 2, 2]),
                'num_detections': tf.reduce_sum(tf.cast(scores > 0, tf.float32), -1),
            }

    finder, folder = Finder(), tmp_path_factory.mktemp('finder')
    tf.saved_model.save(finder, str(folder), signatures={'serving_default': finder.serve})
    (folder / 'assets').mkdir(exist_ok=True)
    names = ''.join(f"item {{ id: {i} name: '{n}' }}\n" for i, n in enumerate(COLOURS, 1))
    (folder / 'assets' / 'label_map.pbtxt').write_text(names)
    return folder


@pytest.fixture(scope='session')
def predictor(colour_finder):
    from object_detection import Predictor

    return Predictor(colour_finder)
