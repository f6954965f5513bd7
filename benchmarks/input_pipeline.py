"""Measures how many images a second the training input pipeline makes, and its memory.

    python benchmarks/input_pipeline.py
    python benchmarks/input_pipeline.py --input 'data/train.record-*' --num_classes 90

Every setting runs in a process of its own, so that its memory is its own. Without --input the
records are made from a COCO-style folder (--coco) and kept in a temporary folder.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

COCO = pathlib.Path(__file__).resolve().parents[2] / 'shared' / 'data' / 'coco_permissive'

RESIZERS = {
    '1024x1024': 'keep_aspect_ratio_resizer { min_dimension: 1024 max_dimension: 1024 '
    'pad_to_max_dimension: true }',
    '832x1344': 'fixed_shape_resizer { height: 832 width: 1344 }',
}

CONFIG = """
model {{ faster_rcnn {{
  num_classes: {num_classes} number_of_stages: 3
  image_resizer {{ {resizer} }} groundtruth_mask_crop_size: {mask_crop_size}
}} }}
train_config {{
  batch_size: {batch_size}
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
}}
train_input_reader {{
  load_instance_masks: true mask_type: PNG_MASKS
  tf_record_input_reader {{ input_path: '{input}' }}
}}
"""


def main() -> None:
    arguments = _arguments()
    if arguments.setting:
        print(json.dumps(measure(arguments)))
        return
    with contextlib.ExitStack() as stack:
        if not arguments.input:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            arguments.input = write_records(arguments.coco, folder)
        print(f'batch size {arguments.batch_size}, mask crops {arguments.mask_crop_size}, flips')
        print(f'{"setting":>10} {"images/s":>9} {"CPU ms/image":>13} {"peak MB":>8} {"load":>6}')
        for setting in RESIZERS:
            result = _measure_in_process(arguments, setting)
            print(
                f'{setting:>10} {result["images_per_second"]:9.1f} '
                f'{result["cpu_ms_per_image"]:13.1f} {result["resident_mb"]:8.0f} '
                f'{result["load"]:6.1f}'
            )


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Runs one setting; resident memory is the peak over the measured part."""
    import psutil
    from google.protobuf import text_format

    from object_detection.builders import dataset_builder
    from object_detection.protos import pipeline_pb2

    config = CONFIG.format(
        num_classes=arguments.num_classes,
        resizer=RESIZERS[arguments.setting],
        mask_crop_size=arguments.mask_crop_size,
        batch_size=arguments.batch_size,
        input=arguments.input,
    )
    pipeline = text_format.Parse(config, pipeline_pb2.TrainEvalPipelineConfig())
    batches = iter(dataset_builder.build_train(pipeline, seed=1))
    process, resident = psutil.Process(), 0
    for _ in range(arguments.warm_up // arguments.batch_size):
        next(batches)
    start, cpu_start = time.perf_counter(), time.process_time()
    num_batches = arguments.images // arguments.batch_size
    for _ in range(num_batches):
        next(batches)
        resident = max(resident, process.memory_info().rss)
    num_images = num_batches * arguments.batch_size
    return {
        'images_per_second': num_images / (time.perf_counter() - start),
        'cpu_ms_per_image': (time.process_time() - cpu_start) / num_images * 1000,
        'resident_mb': resident / 1e6,
        'load': os.getloadavg()[0],
    }


def write_records(coco: pathlib.Path, folder: str, num_shards: int = 4) -> str:
    """Writes the training photos of a COCO-style folder with PNG masks; returns the pattern."""
    prefix = os.path.join(folder, 'train.record')
    command = [sys.executable, '-m', 'object_detection.cli.main', 'convert', 'coco', '--masks']
    command += [f'--images={coco / "images"}', f'--output={prefix}', f'--shards={num_shards}']
    command += [f'--annotations={coco / "annotations" / "instances_train.json"}']
    subprocess.run(command, check=True)
    return f'{prefix}-?????-of-{num_shards:05d}'


def _measure_in_process(arguments: argparse.Namespace, setting: str) -> dict[str, float]:
    names = ('input', 'num_classes', 'batch_size', 'mask_crop_size', 'images', 'warm_up')
    command = [sys.executable, __file__, f'--setting={setting}']
    command += [f'--{name}={getattr(arguments, name)}' for name in names]
    environment = {**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--input', help='TFRecords with PNG masks (a glob pattern)')
    parser.add_argument('--coco', type=pathlib.Path, default=COCO, help='COCO-style folder')
    parser.add_argument('--num_classes', type=int, default=90)
    parser.add_argument('--batch_size', type=int, default=2)
    parser.add_argument('--mask_crop_size', type=int, default=112)
    parser.add_argument('--images', type=int, default=1200, help='measured, after the warm-up')
    parser.add_argument('--warm_up', type=int, default=200)
    parser.add_argument('--setting', choices=RESIZERS, help='run this one alone, print JSON')
    return parser.parse_args()


if __name__ == '__main__':
    main()
