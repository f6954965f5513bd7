"""Measures how many images a second the training input of a config makes, and where time goes.

    python benchmarks/input_pipeline.py
    python benchmarks/input_pipeline.py --input 'data/train.record-*' --label_map data/map.pbtxt
    python benchmarks/input_pipeline.py --cases

The data are generated: 640 x 480 JPEGs of 155 kB with 7.3 objects with PNG masks each. Processor
time is what counts, since another job on the machine does not change it: "of 2 cores" is two
seconds by the processor seconds of an image. Each batch size runs in processes of its own: with
freed memory kept, as training jobs do; as the C library frees it by itself; and kept, with huge
pages in addition. `--cases` instead measures batches of 8 images of 640 x 640 with boxes, masks and
mosaic, beside a plain pipeline of tf.data that decodes the JPEGs and resizes them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import generated_coco
import input_parts
import measure
import own_process

from object_detection.benchmarking import rows
from object_detection.system import tensorflow_setup

_CONFIG = 'mask_rcnn_resnet50_fpn_832x1344_coco17'
_QUICK = {'images': 8, 'warm_up': 4, 'generated': 8}
_HUGE_PAGES = {
    # What jobs set by themselves is left to the user where these are set.
    'MALLOC_MMAP_MAX_': '0',
    'MALLOC_TRIM_THRESHOLD_': str(1 << 40),
    'MALLOC_ARENA_MAX': '1',
    'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1',
}
# Name -> flags and environment of the process.
_MEMORY = {
    'kept': ([], {}),
    'freed': (['--freed'], {}),
    'kept, huge pages': ([], _HUGE_PAGES),
}
_PLAIN = 'plain tf.data'
_CASES = (_PLAIN, 'boxes', 'masks', 'boxes, mosaic', 'masks, mosaic')
_CASE_SIDE, _CASE_BATCH = 640, 8
_CASE_COLUMNS = (
    ('case', 'case', '{}'),
    ('images_per_second', 'images/s', '{:.1f}'),
    ('cpu_ms_per_image', 'CPU ms/image', '{:.2f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
)
_COLUMNS = (
    ('batch_size', 'batch size', '{}'),
    ('memory', 'memory', '{}'),
    ('images_per_second', 'images/s', '{:.1f}'),
    ('cpu_ms_per_image', 'CPU ms/image', '{:.1f}'),
    ('of_system', 'of the system', '{:.1f}'),
    ('on_two_cores', 'images/s of 2 cores', '{:.1f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
)


def main() -> None:
    arguments = _arguments()
    if arguments.here:
        if not arguments.freed:
            tensorflow_setup.keep_freed_memory()
        function = measure_parts if arguments.parts else measure_input
        if arguments.case:
            function = measure_case
        if arguments.parts:
            _use_one_thread()
        print(json.dumps(function(arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.input:
            arguments.input, arguments.label_map = write_records(
                pathlib.Path(folder), arguments.generated
            )
        results = []
        for case in _CASES if arguments.cases else ():
            result = _in_own_process(arguments, _CASE_BATCH, [f'--case={case}'], {})
            results.append({'case': case} | result)
        if arguments.cases:
            print('\n'.join(own_process.table(_CASE_COLUMNS, results)))
            measure.write(results, arguments.json)
            return
        for batch_size in arguments.batch_sizes:
            for name, (flags, environment) in _MEMORY.items():
                result = _in_own_process(arguments, batch_size, flags, environment)
                results.append({'memory': name} | result)
        parts = _in_own_process(arguments, 1, ['--parts'], {})
    print(f'{_CONFIG}; the parts run alone, on one thread')
    print('\n'.join(own_process.table(_COLUMNS, results)))
    for name, milliseconds in parts.items():
        print(f'{name:>44} {milliseconds:7.2f} CPU ms/image')
    measure.write([*results, {'parts': parts}], arguments.json)


def measure_input(arguments: argparse.Namespace) -> dict[str, object]:
    """Runs the training input with one batch size."""
    from object_detection.builders import dataset_builder

    [batch_size] = arguments.batch_sizes
    dataset = dataset_builder.build_train(_config(arguments, batch_size), seed=1)
    return _run(dataset, batch_size, arguments)


def measure_case(arguments: argparse.Namespace) -> dict[str, object]:
    """Runs the input of one of the cases."""
    from object_detection.builders import dataset_builder

    if arguments.case == _PLAIN:
        return _run(_plain_dataset(arguments.input), _CASE_BATCH, arguments)
    config = _config(arguments, _CASE_BATCH)
    resizer = config.model.faster_rcnn.image_resizer.fixed_shape_resizer
    resizer.height = resizer.width = _CASE_SIDE
    del config.train_input_reader.aspect_ratio_buckets[:]
    if 'boxes' in arguments.case:
        config.model.faster_rcnn.number_of_stages = 2
        config.train_input_reader.load_instance_masks = False
    if 'mosaic' in arguments.case:
        config.train_config.data_augmentation_options.add().mosaic.SetInParent()
    return _run(dataset_builder.build_train(config, seed=1), _CASE_BATCH, arguments)


def _plain_dataset(pattern: str):
    """Returns batches of decoded and resized images, as a user of tf.data would write it."""
    import tensorflow as tf

    def load(record: tf.Tensor) -> tf.Tensor:
        features = {'image/encoded': tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_single_example(record, features)['image/encoded']
        image = tf.io.decode_jpeg(encoded, channels=3)
        return tf.image.resize(image, [_CASE_SIDE, _CASE_SIDE])

    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    images = tf.data.TFRecordDataset(files).repeat().map(load, tf.data.AUTOTUNE)
    return images.batch(_CASE_BATCH).prefetch(tf.data.AUTOTUNE)


def _run(dataset, batch_size: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Measures the batches of a dataset after a warm-up."""
    import resource

    batches = iter(dataset)
    for _ in range(max(1, arguments.warm_up // batch_size)):
        next(batches)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    num_batches = max(1, arguments.images // batch_size)
    for _ in range(num_batches):
        next(batches)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    user, system = (1000 * (after[i] - before[i]) / num_batches / batch_size for i in (0, 1))
    return {
        'batch_size': batch_size,
        'images_per_second': num_batches * batch_size / seconds,
        'cpu_ms_per_image': user + system,
        'of_system': system,
        'on_two_cores': 2000 / (user + system),
        'peak_memory': rows.peak_memory(),
    }


def measure_parts(arguments: argparse.Namespace) -> dict[str, float]:
    """Runs each part of the input alone; processor milliseconds an image."""
    return input_parts.measure(_config(arguments, 1), arguments.input, arguments.warm_up)


def write_records(folder: pathlib.Path, num_images: int) -> tuple[str, str]:
    """Writes generated data as TFRecords; returns their pattern and the label map."""
    generated_coco.write(folder, num_images, num_different=num_images)
    command = [sys.executable, '-m', 'object_detection.cli.main', 'convert', 'coco', '--masks']
    command += [f'--images={folder / "images"}', f'--annotations={folder / "annotations.json"}']
    command += [f'--output={folder / "train"}', '--shards=2']
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(folder / 'train-?????-of-?????'), str(folder / 'train_label_map.pbtxt')


def _config(arguments: argparse.Namespace, batch_size: int):
    """Returns the config, reading the given records."""
    from google.protobuf import text_format

    from object_detection.protos import pipeline_pb2

    text = pathlib.Path(measure.find_config(_CONFIG)).read_text()
    config = text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())
    config.train_config.batch_size = batch_size
    reader = config.train_input_reader
    reader.tf_record_input_reader.input_path[:] = [arguments.input]
    reader.label_map_path = arguments.label_map or ''
    # The full buffer is not what is measured.
    reader.shuffle_buffer_size = 64
    return config


def _use_one_thread() -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _in_own_process(
    arguments: argparse.Namespace, batch_size: int, flags: list[str], environment: dict[str, str]
) -> dict:
    command = ['--here', f'--batch_sizes={batch_size}', f'--input={arguments.input}', *flags]
    if arguments.label_map:
        command.append(f'--label_map={arguments.label_map}')
    command += [f'--images={arguments.images}', f'--warm_up={arguments.warm_up}']
    return own_process.run_json(__file__, command, environment)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--input', help='TFRecords with PNG masks (a glob pattern)')
    parser.add_argument('--label_map', help='of the records')
    parser.add_argument('--batch_sizes', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--images', type=int, default=400, help='measured, after the warm-up')
    parser.add_argument('--warm_up', type=int, default=80, help='images; of the parts, all')
    parser.add_argument('--generated', type=int, default=200, help='images that are generated')
    parser.add_argument('--quick', action='store_true', help='few images; shows that it runs')
    parser.add_argument('--cases', action='store_true', help='boxes, masks, mosaic, plain tf.data')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'input.json')
    parser.add_argument('--case', choices=_CASES, help=argparse.SUPPRESS)
    for name in ('--here', '--parts', '--freed'):
        parser.add_argument(name, action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(_QUICK)
    return arguments


if __name__ == '__main__':
    main()
