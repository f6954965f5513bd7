r"""Converts the object detection data set of KITTI to two TFRecord files.

    python -m object_detection.dataset_tools.create_kitti_tf_record \
        --data_dir=kitti --output_path=records/kitti --classes_to_use=car,pedestrian,dontcare

Writes OUTPUT_train.tfrecord and OUTPUT_val.tfrecord, which has the images whose number is below
--validation_set_size, with label maps and reports. `tfod convert kitti` runs the same job.
"""

from absl import flags

from object_detection.data.formats.kitti import KittiSource
from object_detection.dataset_tools.converters import scripts

FLAGS = flags.FLAGS


def main() -> None:
    splits = ('train', 'val') if FLAGS.validation_set_size > 0 else ('train',)
    for split in splits:
        source = KittiSource(
            FLAGS.data_dir,
            FLAGS.classes_to_use,
            split,
            FLAGS.validation_set_size,
            label_map_file=FLAGS.label_map_path,
        )
        scripts.convert_to_file(source, f'{FLAGS.output_path}_{split}.tfrecord', split)


def run() -> None:
    # Other scripts, which may be imported too, have flags of these names.
    flags.DEFINE_string('data_dir', None, 'Folder of training/label_2 and of the images.')
    flags.DEFINE_string('output_path', None, 'Beginning of the names of the files to write.')
    flags.DEFINE_string(
        'classes_to_use',
        'car,pedestrian,dontcare',
        'Types to read. With dontcare, objects that overlap with such an area are left out.',
    )
    flags.DEFINE_string('label_map_path', '', 'Label map; by default in order of the types.')
    flags.DEFINE_integer('validation_set_size', 500, 'Number of validation images, the first.')
    flags.mark_flags_as_required(('data_dir', 'output_path'))
    scripts.run(main)


if __name__ == '__main__':
    run()
