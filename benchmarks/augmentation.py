"""Measures what augmentation steps cost: JPEG files are decoded, flipped, and changed by one step.

    python benchmarks/augmentation.py --images 'photos/*.jpg'
    python benchmarks/augmentation.py --images 'photos/*.jpg' --resize 640

One thread does the work; each row is the least of several rounds, all rows in turns. With
`--resize` images are resized to a square at the end, as for a model, so that the work that smaller
crops save is counted too.
"""

import argparse
import pathlib
import time
from collections.abc import Iterator

import measure
import own_process

_FLIP = 'random_horizontal_flip {}'
_COLORS = 'pad_color: 0 pad_color: 0 pad_color: 0'
# Name -> steps in the text format; the first ones are what others are compared with.
_STEPS = {
    'decoded': (),
    'flip': (_FLIP,),
    'flip, SSD crops': (_FLIP, 'ssd_random_crop {}'),
    'flip, crop of the RetinaNet configs': (
        _FLIP,
        'random_crop_image { min_object_covered: 0 max_aspect_ratio: 3 min_area: 0.75 '
        'overlap_thresh: 0 }',
    ),
    'flip, SSD crops with padding': (_FLIP, 'ssd_random_crop_pad {}'),
    'flip, border': (
        _FLIP,
        f'random_absolute_pad_image {{ max_height_padding: 200 max_width_padding: 200 {_COLORS} }}',
    ),
    'flip, square of 512': (_FLIP, 'random_scale_crop_and_pad_to_square {}'),
}
_NUM_OBJECTS = 8
_COLUMNS = (
    ('steps', 'steps', '{}'),
    ('cpu_ms_per_image', 'CPU ms/image', '{:.2f}'),
    ('images_per_second', 'images/s of a core', '{:.0f}'),
    ('of_flip', 'rate of the flip alone', '{:.0%}'),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', required=True, help='pattern of JPEG files')
    parser.add_argument('--resize', type=int, default=0, help='side of the square at the end')
    parser.add_argument('--rounds', type=int, default=6)
    parser.add_argument('--count', type=int, default=64, help='images a round')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'augmentation.json')
    arguments = parser.parse_args()
    results = measure_steps(arguments)
    print('\n'.join(own_process.table(_COLUMNS, results)))
    measure.write(results, arguments.json)


def measure_steps(arguments: argparse.Namespace) -> list[dict]:
    """Returns one result for each row of the table."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    inputs = {name: _images(arguments, steps) for name, steps in _STEPS.items()}
    seconds = {name: [] for name in inputs}
    for _ in range(arguments.rounds + 1):  # The first round prepares.
        for name, images in inputs.items():
            start = time.process_time()
            for _ in range(arguments.count):
                next(images)
            seconds[name].append((time.process_time() - start) / arguments.count)
    least = {name: min(times[1:]) for name, times in seconds.items()}
    return [
        {
            'steps': name,
            'cpu_ms_per_image': 1e3 * time,
            'images_per_second': 1 / time,
            'of_flip': least['flip'] / time,
        }
        for name, time in least.items()
    ]


def _images(arguments: argparse.Namespace, steps: tuple[str, ...]) -> Iterator:
    import tensorflow as tf
    from google.protobuf import text_format

    from object_detection.builders import preprocessor_builder
    from object_detection.core.fields import InputFields
    from object_detection.protos import preprocessor_pb2
    from object_detection.resizers.fixed_sizes import FixedShapeResizer

    built = [
        preprocessor_builder.build(text_format.Parse(step, preprocessor_pb2.PreprocessingStep()))
        for step in steps
    ]
    files = [pathlib.Path(name).read_bytes() for name in sorted(tf.io.gfile.glob(arguments.images))]
    corners = tf.random.stateless_uniform([_NUM_OBJECTS, 2], [1, 2], 0.0, 0.6)
    sizes = tf.random.stateless_uniform([_NUM_OBJECTS, 2], [3, 4], 0.1, 0.4)
    boxes = tf.concat([corners, corners + sizes], axis=1)

    def change(index: tf.Tensor, file: tf.Tensor) -> tf.Tensor:
        example = {
            InputFields.IMAGE: tf.io.decode_jpeg(file, channels=3),
            InputFields.GROUNDTRUTH_BOXES: boxes,
            InputFields.GROUNDTRUTH_WEIGHTS: tf.ones([_NUM_OBJECTS]),
        }
        for i, step in enumerate(built):
            example = step(example, tf.random.fold_in([7, index], i))
        image = example[InputFields.IMAGE]
        if arguments.resize:
            image, _ = FixedShapeResizer(height=arguments.resize, width=arguments.resize)(image)
        return image

    data = tf.data.Dataset.from_tensor_slices(files[: arguments.count]).repeat()
    return iter(data.enumerate().map(change))


if __name__ == '__main__':
    main()
