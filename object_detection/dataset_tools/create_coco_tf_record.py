r"""Converts the splits of COCO, or of a data set in its format, to TFRecords.

    python -m object_detection.dataset_tools.create_coco_tf_record \
        --train_image_dir=train2017 --train_annotations_file=instances_train2017.json \
        --val_image_dir=val2017 --val_annotations_file=instances_val2017.json \
        --output_dir=DIR --include_masks

Each split that is given is converted to DIR/coco_train.record-?????-of-00100,
DIR/coco_val.record-?????-of-00050 or DIR/coco_testdev.record-?????-of-00050, with a label map and a
report. `tfod convert coco` runs the same job for one split and any prefix.
"""

import os

from absl import app, flags

from object_detection.data.formats.coco import CocoSource
from object_detection.dataset_tools.converters import scripts

# Split -> (prefix of its image and annotation flags, file name).
_SPLITS = {
    'train': ('train_image_dir', 'train_annotations_file', 'coco_train.record'),
    'val': ('val_image_dir', 'val_annotations_file', 'coco_val.record'),
    'testdev': ('test_image_dir', 'testdev_annotations_file', 'coco_testdev.record'),
}

flags.DEFINE_bool('include_masks', False, 'Whether to write instance masks, as PNG.')
for split, (images, annotations, _) in _SPLITS.items():
    flags.DEFINE_string(images, '', f'Folder of the images of {split}.')
    flags.DEFINE_string(annotations, '', f'COCO JSON of the images of {split}.')
for split in ('train', 'val'):
    flags.DEFINE_string(f'{split}_keypoint_annotations_file', '', f'Keypoints of {split}.')
    flags.DEFINE_string(f'{split}_densepose_annotations_file', '', f'DensePose of {split}.')
flags.DEFINE_string('output_dir', '/tmp/', 'Folder to write to.')
flags.DEFINE_bool('remove_non_person_annotations', False, 'Leaves out all objects but persons.')
flags.DEFINE_bool('remove_non_person_images', False, 'Leaves out images without a person.')
# Not in the reference system.
flags.DEFINE_integer('train_num_shards', 100, 'Number of training files.')
flags.DEFINE_integer('val_num_shards', 50, 'Number of validation files.')
flags.DEFINE_integer('testdev_num_shards', 50, 'Number of test files.')

FLAGS = flags.FLAGS


def main() -> None:
    splits = [split for split in _SPLITS if _is_given(split)]
    if not splits:
        raise app.UsageError('Give --train_image_dir and --train_annotations_file, or val or test.')
    for split in splits:
        prefix = os.path.join(FLAGS.output_dir, _SPLITS[split][2])
        scripts.convert(_source(split), prefix, FLAGS[f'{split}_num_shards'].value, name=split)


def _is_given(split: str) -> bool:
    """Returns whether a split is to be converted; raises if only one of its two flags is given."""
    image_flag, annotations_flag, _ = _SPLITS[split]
    given = [flag for flag in (image_flag, annotations_flag) if FLAGS[flag].value]
    if len(given) == 1:
        raise app.UsageError(
            f'--{image_flag} and --{annotations_flag} belong together. Received: only --{given[0]}.'
        )
    for points in ('keypoint', 'densepose'):
        if not given and _points_file(split, points):
            raise app.UsageError(
                f'--{split}_{points}_annotations_file needs the images and annotations of {split}.'
            )
    return bool(given)


def _source(split: str) -> CocoSource:
    image_flag, annotations_flag, _ = _SPLITS[split]
    return CocoSource(
        image_dir=FLAGS[image_flag].value,
        annotations_file=FLAGS[annotations_flag].value,
        masks=FLAGS.include_masks,
        keypoints_file=_points_file(split, 'keypoint'),
        densepose_file=_points_file(split, 'densepose'),
        only_objects_of='person' if FLAGS.remove_non_person_annotations else '',
        only_images_with='person' if FLAGS.remove_non_person_images else '',
    )


def _points_file(split: str, points: str) -> str:
    """Returns the keypoint or DensePose file of a split; test images have none."""
    name = f'{split}_{points}_annotations_file'
    return FLAGS[name].value if name in FLAGS else ''


if __name__ == '__main__':
    scripts.run(main)
