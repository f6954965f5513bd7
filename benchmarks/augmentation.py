"""Measures what augmentation costs: photos are decoded, changed by steps, and resized.

    python benchmarks/augmentation.py --images 'photos/*.jpg'
    python benchmarks/augmentation.py --images 'photos/*.jpg' --configs zoo --resize 300 640

One thread does the work; a row is the least of several rounds, all rows in turns. There is a table
for each size: decoding alone, decoding and resizing, then both with each step of the schema, with
some chains of steps, with `random_distort_color` as TensorFlow's operations compute it, and with
the chains of the configs in a folder. Images are resized to a square at the end, as for a model, so
that the work that smaller crops save is counted too. Steps that put several images together get
copies of the one.
"""

import argparse
import pathlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import measure

from object_detection.system import tensorflow_setup

_FLIP = 'random_horizontal_flip {}'
_BLACK = 'pad_color: 0 pad_color: 0 pad_color: 0'
# Fields of the steps that need some, or do nothing without.
FIELDS = {
    'adjust_gamma': 'gamma: 1.5',
    'drop_label_probabilistically': 'label: 1 drop_probability: 0.5',
    'normalize_image': 'original_maxval: 255',
    'one_of': 'steps { random_vertical_flip {} } steps { random_adjust_hue {} }',
    'random_absolute_pad_image': 'max_height_padding: 200 max_width_padding: 200 ' + _BLACK,
    'random_resize_method': 'target_height: 480 target_width: 640',
    'remap_labels': 'original_labels: 2 new_label: 1',
    'resize_image': 'new_height: 480 new_width: 640',
    'subtract_channel_mean': 'means: 123 means: 117 means: 104',
}
# Name of a row -> steps in the text format.
_CHAINS = {
    'flip, SSD crop': (_FLIP, 'ssd_random_crop {}'),
    'flip, SSD crop, colour': (_FLIP, 'ssd_random_crop {}', 'random_distort_color {}'),
    'flip, SSD crop with padding': (_FLIP, 'ssd_random_crop_pad {}'),
    '`random_distort_color`, order 1': ('random_distort_color { color_ordering: 1 }',),
}
_DECODED, _RESIZED = 'decoded', 'decoded, resized'
_NUM_OBJECTS = 8
_MASK_SIZE = 112
_HEADINGS = ('steps', 'CPU ms/image', 'images/s', 'CPU ms more', 'rate of decoded, resized')

Example = Mapping[str, object]
Change = Callable[..., Example]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', required=True, help='pattern of JPEG files')
    parser.add_argument('--configs', type=pathlib.Path, help='folder of pipeline configs')
    parser.add_argument('--resize', type=int, nargs='+', default=[300], help='sides of the squares')
    parser.add_argument('--only', nargs='+', help='words, one of which is in the name of a row')
    parser.add_argument('--rounds', type=int, default=4)
    parser.add_argument('--count', type=int, default=64, help='images a round')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'augmentation.json')
    arguments = parser.parse_args()
    tensorflow_setup.keep_freed_memory()  # As jobs do.
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    results = []
    print(f'Processor: {_processor()}')
    for side in arguments.resize:
        results += measure_rows(arguments, side)
        print('\n'.join(['', f'Resized to {side} x {side}:', '', *_table(results, side)]))
    measure.write(results, arguments.json)


def measure_rows(arguments: argparse.Namespace, side: int) -> list[dict]:
    """Returns one result for each row of the table of a size."""
    files = [path.read_bytes() for path in sorted(map(pathlib.Path, _glob(arguments.images)))]
    inputs = {
        name: _images(files[: arguments.count], steps, 0 if name == _DECODED else side)
        for name, steps in _rows(arguments).items()
    }
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
            'resize': side,
            'cpu_ms_per_image': 1e3 * time,
            'images_per_second': 1 / time,
            'cpu_ms_more': 1e3 * (time - least[_RESIZED]),
            'of_resized': least[_RESIZED] / time,
        }
        for name, time in least.items()
    ]


def _rows(arguments: argparse.Namespace) -> dict[str, tuple[Change, ...]]:
    """Returns the built steps of each row."""
    from object_detection.builders import preprocessor_builder

    rows = {
        f'`{name}`': (_parse(f'{name} {{ {FIELDS.get(name, "")} }}'),)
        for name in preprocessor_builder.kinds()
    }
    rows |= {name: tuple(map(_parse, steps)) for name, steps in _CHAINS.items()}
    if arguments.configs:
        rows |= _chains_of(arguments.configs)
    built = {name: tuple(map(preprocessor_builder.build, row)) for name, row in rows.items()}
    built |= {
        f'`random_distort_color`, order {order}, by tf.image': (_distort_by_tensorflow(order),)
        for order in range(2)
    }
    only = arguments.only or ['']
    chosen = {name: row for name, row in built.items() if any(word in name for word in only)}
    return {_DECODED: (), _RESIZED: (), **chosen}


def _chains_of(folder: pathlib.Path) -> dict[str, Sequence]:
    """Returns the distinct lists of steps of the configs in a folder."""
    from object_detection.config import reader

    chains, names = {}, {}
    for path in sorted(folder.glob('*.config')):
        steps = reader.read_pipeline(str(path)).train_config.data_augmentation_options
        text = '\n'.join(map(str, steps))
        chains[text] = steps
        names.setdefault(text, []).append(path.stem)
    return {
        f'{len(names[text])} configs as {names[text][0]}': steps for text, steps in chains.items()
    }


def _distort_by_tensorflow(order: int) -> Change:
    """Returns `random_distort_color` by the operations of TensorFlow, with the same numbers."""
    import tensorflow as tf

    from object_detection.core.fields import InputFields
    from object_detection.data.augmentation import colors

    step = colors.RandomDistortColor(order)
    adjustments = {
        colors.RandomAdjustBrightness: tf.add,
        colors.RandomAdjustContrast: tf.image.adjust_contrast,
        colors.RandomAdjustHue: tf.image.adjust_hue,
        colors.RandomAdjustSaturation: tf.image.adjust_saturation,
    }

    def change(example: Example, seed: tf.Tensor) -> Example:
        image = tf.cast(example[InputFields.IMAGE], tf.float32) / 255.0
        draws = tf.unstack(step.draw(image, seed))
        for part, number in zip(step.steps, draws, strict=True):
            image = tf.clip_by_value(adjustments[type(part)](image, number), 0.0, 1.0)
        return {**example, InputFields.IMAGE: image * 255.0}

    return change


def _images(files: Sequence[bytes], steps: Sequence[Change], side: int) -> Iterator:
    """Yields the images of files, changed by steps and resized, without end."""
    import tensorflow as tf

    from object_detection.core.fields import InputFields
    from object_detection.data.augmentation import choice
    from object_detection.resizers.fixed_sizes import FixedShapeResizer

    def change(index: tf.Tensor, file: tf.Tensor) -> tf.Tensor:
        example = {InputFields.IMAGE: tf.io.decode_jpeg(file, channels=3), **objects()}
        for i, step in enumerate(steps):
            partners = [example] * choice.num_partners(step)
            example = choice.apply(step, example, tf.random.fold_in([7, index], i), partners)
        image = example[InputFields.IMAGE]
        return FixedShapeResizer(height=side, width=side)(image)[0] if side else image

    data = tf.data.Dataset.from_tensor_slices(files).repeat()
    return iter(data.enumerate().map(change))


def objects() -> dict:
    """Returns the annotations of every image: boxes, masks, classes and what belongs to them."""
    import tensorflow as tf

    from object_detection.core.fields import InputFields

    corners = tf.random.stateless_uniform([_NUM_OBJECTS, 2], [1, 2], 0.0, 0.6)
    sizes = tf.random.stateless_uniform([_NUM_OBJECTS, 2], [3, 4], 0.1, 0.4)
    return {
        InputFields.GROUNDTRUTH_BOXES: tf.concat([corners, corners + sizes], axis=1),
        InputFields.GROUNDTRUTH_CLASSES: tf.range(_NUM_OBJECTS, dtype=tf.int64) % 3 + 1,
        InputFields.GROUNDTRUTH_WEIGHTS: tf.ones([_NUM_OBJECTS]),
        InputFields.GROUNDTRUTH_IS_CROWD: tf.zeros([_NUM_OBJECTS], tf.bool),
        InputFields.GROUNDTRUTH_AREA: tf.fill([_NUM_OBJECTS], 1e4),
        InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.fill(
            [_NUM_OBJECTS, _MASK_SIZE, _MASK_SIZE], tf.constant(255, tf.uint8)
        ),
        InputFields.MULTICLASS_SCORES: tf.ones([_NUM_OBJECTS, 4]),
    }


def _parse(step: str):
    from google.protobuf import text_format

    from object_detection.protos import preprocessor_pb2

    return text_format.Parse(step, preprocessor_pb2.PreprocessingStep())


def _glob(pattern: str) -> list[str]:
    import tensorflow as tf

    return tf.io.gfile.glob(pattern)


def _table(results: Sequence[dict], side: int) -> list[str]:
    """Lines of a Markdown table."""
    lines = ['| ' + ' | '.join(_HEADINGS) + ' |', '|' + '---|' * len(_HEADINGS)]
    for row in results:
        if row['resize'] == side:
            lines.append(
                f'| {row["steps"]} | {row["cpu_ms_per_image"]:.2f} '
                f'| {row["images_per_second"]:.0f} | {row["cpu_ms_more"]:.2f} '
                f'| {row["of_resized"]:.0%} |'
            )
    return lines


def _processor() -> str:
    """Returns the name of the processor, or of its architecture."""
    information = pathlib.Path('/proc/cpuinfo')
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.processor() or platform.machine()


if __name__ == '__main__':
    main()
