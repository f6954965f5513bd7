r"""Converts the Oxford-IIIT Pet data set to TFRecords: faces, or full bodies with masks.

    python -m object_detection.dataset_tools.create_pet_tf_record \
        --data_dir=pets --output_dir=records --label_map_path=pet_label_map.pbtxt

Writes pet_faces_train.record-?????-of-00010 and pet_faces_val.record-?????-of-00010; with
--nofaces_only pets_fullbody_with_masks_train.record-... and ..._val.record-..., which have label
maps and reports too. `tfod convert pets` runs the same job.
"""

import os

from absl import app, flags

from object_detection.data.formats.pets import PetsSource
from object_detection.dataset_tools.converters import scripts

FLAGS = flags.FLAGS


def main() -> None:
    if FLAGS.mask_type != 'png':
        raise app.UsageError(
            f'--mask_type: expected png, read as PNG_MASKS. Received: {FLAGS.mask_type}.'
        )
    name = 'pet_faces' if FLAGS.faces_only else 'pets_fullbody_with_masks'
    for split in ('train', 'val'):
        source = PetsSource(
            FLAGS.data_dir, split, not FLAGS.faces_only, label_map_file=FLAGS.label_map_path
        )
        prefix = os.path.join(FLAGS.output_dir, f'{name}_{split}.record')
        scripts.convert(source, prefix, FLAGS.num_shards, split)


def run() -> None:
    # Other scripts, which may be imported too, have flags of these names.
    flags.DEFINE_string('data_dir', None, 'Folder of images and annotations.')
    flags.DEFINE_string('output_dir', None, 'Folder to write to.')
    flags.DEFINE_string('label_map_path', '', 'Label map; by default in order of the alphabet.')
    flags.DEFINE_bool('faces_only', True, 'Boxes of faces; otherwise boxes and masks of bodies.')
    flags.DEFINE_enum('mask_type', 'png', ['png', 'numerical'], 'How masks are written.')
    flags.DEFINE_integer('num_shards', 10, 'Number of TFRecord files of a split.', lower_bound=1)
    flags.mark_flags_as_required(('data_dir', 'output_dir'))
    scripts.run(main)


if __name__ == '__main__':
    run()
