"""Measures how long a training's input takes to go on where it stood.

    python benchmarks/resume.py

The records are generated, small (an image of 8 x 8 pixels each, filled up to 1 kB) and many, in 64
files. The time is from building the dataset to its first batch, in processes of their own: at the
beginning, within an epoch, before its end, after many epochs and within one then.
"""

import argparse
import json
import pathlib
import tempfile
import time

import measure
import own_process

_CONFIG = 'mask_rcnn_resnet18_fpn_shapes'
_SHARDS = 64
_BYTES = 1000
_COLUMNS = (
    ('epochs', 'epochs behind', '{}'),
    ('records', 'records behind in the epoch', '{:,}'),
    ('seconds', 'first batch s', '{:.2f}'),
    ('cpu_seconds', 'CPU s', '{:.2f}'),
)


def main() -> None:
    arguments = _arguments()
    if arguments.here:
        print(json.dumps(measure_start(arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        command = ['--here', f'--records={arguments.records}', f'--folder={folder}']
        seconds = write(pathlib.Path(folder), arguments.records)
        results = []
        for epochs, part in ((0, 0.0), (0, 0.5), (0, 1.0), (1000, 0.0), (1000, 0.5)):
            behind = [f'--epochs={epochs}', f'--behind={int(part * arguments.records)}']
            results.append(own_process.run_json(__file__, [*command, *behind]))
    print(f'{arguments.records:,} records of {_BYTES} bytes, written in {seconds:.0f} s')
    print('\n'.join(own_process.table(_COLUMNS, results)))
    measure.write(results, arguments.json)


def write(folder: pathlib.Path, count: int) -> float:
    """Writes the records; returns the seconds."""
    import numpy as np
    import tensorflow as tf

    from object_detection.core import tf_example_keys as keys

    start = time.perf_counter()
    image = tf.io.encode_png(np.zeros([8, 8, 3], np.uint8)).numpy()
    example = tf.train.Example()
    example.features.feature[keys.ENCODED].bytes_list.value.append(image)
    example.features.feature['filler'].bytes_list.value.append(b'.' * (_BYTES - len(image)))
    serialized = example.SerializeToString()
    for shard in range(_SHARDS):
        path = folder / f'train-{shard:05d}-of-{_SHARDS:05d}'
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(shard, count, _SHARDS):
                writer.write(serialized)
    return time.perf_counter() - start


def measure_start(arguments: argparse.Namespace) -> dict[str, float]:
    """Builds the training input from a place, and takes its first batch."""
    import numpy as np
    from google.protobuf import text_format

    from object_detection.builders import dataset_builder
    from object_detection.data.pipeline.record_order import EPOCH
    from object_detection.protos import pipeline_pb2

    text = pathlib.Path(measure.find_config(_CONFIG)).read_text()
    config = text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())
    reader = config.train_input_reader
    reader.tf_record_input_reader.input_path[:] = [f'{arguments.folder}/train-*']
    reader.label_map_path = ''
    reader.load_instance_masks = False
    place = arguments.epochs * EPOCH + arguments.behind
    start, cpu_start = time.perf_counter(), time.process_time()
    batches = dataset_builder.build_train(config, seed=1, start=np.array([[place]], np.int64))
    next(iter(batches))
    return {
        'epochs': arguments.epochs,
        'records': arguments.behind,
        'seconds': time.perf_counter() - start,
        'cpu_seconds': time.process_time() - cpu_start,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--records', type=int, default=1_000_000)
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'resume.json')
    parser.add_argument('--here', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--folder', help=argparse.SUPPRESS)
    for name in ('--epochs', '--behind'):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == '__main__':
    main()
