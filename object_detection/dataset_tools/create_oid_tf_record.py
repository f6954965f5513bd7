r"""Converts a data set in the format of Open Images to TFRecords.

    python -m object_detection.dataset_tools.create_oid_tf_record \
        --input_box_annotations_csv=boxes.csv --input_image_label_annotations_csv=labels.csv \
        --input_images_directory=images --input_label_map=label_map.pbtxt \
        --output_tf_record_path_prefix=DIR/train

Writes DIR/train-?????-of-00100 with a label map and a report. `tfod convert open_images` runs the
same job.
"""

from absl import flags

from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.dataset_tools.converters import scripts

FLAGS = flags.FLAGS


def main() -> None:
    source = OpenImagesSource(
        label_map_file=FLAGS.input_label_map,
        image_dir=FLAGS.input_images_directory,
        boxes_file=FLAGS.input_box_annotations_csv,
        image_labels_file=FLAGS.input_image_label_annotations_csv,
    )
    scripts.convert(source, FLAGS.output_tf_record_path_prefix, FLAGS.num_shards)


def run() -> None:
    # Other scripts, which may be imported too, have flags of these names.
    flags.DEFINE_string('input_box_annotations_csv', None, 'CSV file of boxes.')
    flags.DEFINE_string('input_image_label_annotations_csv', '', 'CSV file of image-level labels.')
    flags.DEFINE_string('input_images_directory', None, 'Folder of the images.')
    flags.DEFINE_string('input_label_map', None, 'Label map whose names are MIDs.')
    flags.DEFINE_string(
        'output_tf_record_path_prefix', None, 'Beginning of the names of the outputs.'
    )
    flags.DEFINE_integer('num_shards', 100, 'Number of TFRecord files.', lower_bound=1)
    flags.mark_flags_as_required(
        (
            *('input_box_annotations_csv', 'input_images_directory', 'input_label_map'),
            'output_tf_record_path_prefix',
        )
    )
    scripts.run(main)


if __name__ == '__main__':
    run()
